//! kda-dsl
