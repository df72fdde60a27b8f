//! One file a family.

pub mod conv_verify;
pub mod decode;
pub mod delta_h;
pub mod gemm;
pub mod scale_add;
pub mod tc_commit;
pub mod tc_verify;
