//! kda-codegen
