//! Arithmetic of the register-to-register instructions.
//!
//! | question | module |
//! | --- | --- |
//! | how a scalar function becomes an instruction over 32 lanes | [`lanes`] |
//! | add, mul, fma, div, sqrt in `f32` and `f64`, every rounding | [`float`] |
//! | on which side of a result the exact value lies | [`exact`] |
//! | min and max | [`minmax`] |
//! | `f16`, `bf16`, `tf32` and integer conversions | [`convert`] |
//! | `ex2`, `lg2`, `rcp`, `rsqrt`, `tanh` | [`approx`] |
//! | integers and bits | [`int`] |
//!
//! Floating-point results that are NaN are the canonical NaN of their type (`0x7fffffff` in `f32`), so a result never
//! depends on the host.

pub mod approx;
pub mod convert;
pub mod exact;
pub mod float;
pub mod int;
pub mod lanes;
pub mod matrix;
pub mod minmax;
