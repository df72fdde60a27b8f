//! The arithmetic of a right kernel, in fp32 and bf16, with the contract's reduction trees.
//!
//! An emulation is not a reference: its distance to the float64 contract mode says how far a right kernel must be
//! expected to be off, and [`crate::budget`] turns that into a bound.
//!
//! Choices that a contract leaves open follow common practice on a GPU: exp(x) is `exp2(fp32(x * log2 e))` with the
//! product rounded, division and square root round correctly, and updates are fused multiply-adds.

pub mod delta_h;
pub mod delta_rule;
pub mod lanes;
pub mod scalar;
pub mod tc_verify;
pub mod tree;
