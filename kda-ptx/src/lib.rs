//! kda-ptx
