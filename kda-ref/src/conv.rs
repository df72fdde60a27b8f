//! Causal depthwise convolution of width 4, then SiLU.
//!
//! ```text
//! y[t] = silu(bias + sum_{j=0..3} w[j] * x[t - 3 + j])        w[3] multiplies the newest token
//! ```
//! x at t < 0 is the history, oldest first. Source: the causal convolution of fla-core and transformers.
//!
//! The contract's arithmetic of the sum is fp32 in a fixed order, and it is the same bits in every variant, so
//! [`sum_contract`] serves both the contract and the emulation:
//! - fp32 taps: bias (or 0), then taps 0..3 by fused multiply-add in order;
//! - bf16 taps: each product is rounded to bf16 and then added in fp32, which is what stock convolution kernels do.

use crate::Mode;
use crate::emulate::scalar;
use crate::gate::silu;
use crate::round::{to_bf16, to_bf16_f32, to_bf16_other_tie};

/// Width of the convolution.
pub const WIDTH: usize = 4;

/// Element type of the taps, which decides how the contract sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TapType {
    /// fp32 taps: fused multiply-adds.
    F32,
    /// bf16 taps: products rounded to bf16.
    Bf16,
}

/// The sum before SiLU in float64, without any rounding. `window` is oldest first.
pub fn sum_exact(window: [f32; WIDTH], taps: [f32; WIDTH], bias: Option<f32>) -> f64 {
    let start = f64::from(bias.unwrap_or(0.0));
    window.iter().zip(taps).fold(start, |sum, (&x, w)| sum + f64::from(x) * f64::from(w))
}

/// The sum before SiLU in the contract's fp32 arithmetic, bit for bit.
pub fn sum_contract(window: [f32; WIDTH], taps: [f32; WIDTH], bias: Option<f32>, tap_type: TapType) -> f32 {
    let start = bias.unwrap_or(0.0);
    window.iter().zip(taps).fold(start, |sum, (&x, w)| match tap_type {
        TapType::F32 => x.mul_add(w, sum),
        TapType::Bf16 => sum + to_bf16_f32(x * w),
    })
}

/// Convolution and SiLU of one channel and token in the given mode; `window` is oldest first.
///
/// `Exact` rounds nothing. The other modes take the contract's sum and round the result to bf16, once.
pub fn convolve(window: [f32; WIDTH], taps: [f32; WIDTH], bias: Option<f32>, tap_type: TapType, mode: Mode) -> f64 {
    let sum = || sum_contract(window, taps, bias, tap_type);
    match mode {
        Mode::Exact => silu(sum_exact(window, taps, bias)),
        Mode::Contract => to_bf16(silu(f64::from(sum()))),
        Mode::ContractOtherTies => to_bf16_other_tie(silu(f64::from(sum()))),
        Mode::Emulate => f64::from(to_bf16_f32(scalar::silu(sum()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tap_three_is_the_newest() {
        let window = [1.0, 10.0, 100.0, 1000.0];
        assert_eq!(sum_exact(window, [0.0, 0.0, 0.0, 1.0], None), 1000.0);
        assert_eq!(sum_exact(window, [1.0, 0.0, 0.0, 0.0], Some(0.5)), 1.5);
    }

    #[test]
    fn the_two_tap_rules_differ() {
        let (window, taps) = ([1.0 + 1.0 / 128.0, 0.0, 0.0, 0.0], [1.0 + 1.0 / 128.0, 0.0, 0.0, 0.0]);
        let exact = 1.0 + 2.0 / 128.0 + 1.0 / 16384.0;
        assert_eq!(sum_contract(window, taps, None, TapType::F32), exact);
        assert_eq!(sum_contract(window, taps, None, TapType::Bf16), 1.0 + 2.0 / 128.0);
    }

    #[test]
    fn the_bias_comes_first() {
        // 1 + 2^-24 rounds back to 1, twice; 2^-24 + 2^-24 first would give 1 + 2^-23.
        let tiny = 2f32.powi(-24);
        let sum = sum_contract([tiny, tiny, 0.0, 0.0], [1.0; 4], Some(1.0), TapType::F32);
        assert_eq!(sum, 1.0);
    }

    #[test]
    fn only_exact_keeps_more_than_bf16() {
        let (window, taps) = ([0.3, -0.7, 1.1, 0.9], [0.2, 0.4, -0.1, 0.5]);
        let exact = convolve(window, taps, None, TapType::F32, Mode::Exact);
        for mode in [Mode::Contract, Mode::ContractOtherTies, Mode::Emulate] {
            let y = convolve(window, taps, None, TapType::F32, mode);
            assert_eq!(y, to_bf16(y));
            assert!((y - exact).abs() <= exact.abs() / 256.0);
        }
    }
}
