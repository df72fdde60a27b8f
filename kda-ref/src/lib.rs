//! kda-ref
