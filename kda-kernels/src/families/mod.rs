//! One file a family.

pub mod conv_verify;
pub mod decode;
pub mod gemm;
pub mod scale_add;
