//! kda-runtime
