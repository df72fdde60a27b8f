//! One file a family.

pub mod conv_verify;
pub mod gemm;
pub mod scale_add;
