//! One file a family.

pub mod conv_verify;
pub mod scale_add;
