//! kda-core
