//! Scalar functions in fp32: exponentials, SiLU, both gates, write strength, L2 norm.
//!
//! ```text
//! exp(x) = exp2(fp32(x * log2 e))       softplus(z) = z for z > 20, log1p(exp(z)) otherwise (selected, not blended)
//! softplus gate: g = -exp(min(A_log + z, 88)) for z <= -17, else -exp(min(A_log, 88)) * softplus(z)
//! ```
//! Source: the stable forms that the operators' contract requires of an fp32 kernel.

use super::tree;
use crate::gate::Gate;
use crate::norm::EPSILON;

/// 2^x, correctly rounded but for the last bit of float64.
pub fn exp2(x: f32) -> f32 {
    f64::from(x).exp2() as f32
}

/// e^x as a kernel makes it: the product with log2 e is rounded to fp32 first.
pub fn exp(x: f32) -> f32 {
    exp2(x * std::f32::consts::LOG2_E)
}

/// `1 / (1 + exp(-x))`.
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `x / (1 + exp(-x))`.
pub fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// `x`, at most 88; NaN stays NaN.
fn clamped(x: f32) -> f32 {
    if x > 88.0 { 88.0 } else { x }
}

/// The log decay of one channel from the raw gate `a`, its bias and the head's `a_log` (0 when absent).
pub fn log_decay(gate: Gate, a: f32, dt_bias: f32, a_log: f32) -> f32 {
    let z = a + dt_bias;
    match gate {
        Gate::Bounded { lower_bound } => lower_bound as f32 * sigmoid(exp(clamped(a_log)) * z),
        Gate::Softplus if z <= -17.0 => -exp(clamped(a_log + z)),
        Gate::Softplus => -(exp(clamped(a_log)) * if z > 20.0 { z } else { exp(z).ln_1p() }),
    }
}

/// One by the L2 norm of 128 channels; the sum of squares takes the contract's tree.
pub fn inverse_norm(x: &[f32; 128]) -> f32 {
    1.0 / (tree::norm_sum(&x.map(|v| v * v)) + EPSILON as f32).sqrt()
}

/// L2-normalises 128 channels and multiplies by `scale`.
pub fn l2_normalise(x: &mut [f32; 128], scale: f32) {
    let factor = inverse_norm(x) * scale;
    for v in x {
        *v *= factor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate;

    #[test]
    fn gates_follow_the_golden_gates() {
        let pairs =
            [(100.0, -6.0), (-18.0, 10.0), (-90.0, 100.0), (0.3, 2.7), (-17.0, 2.0), (-16.9, 2.0), (20.1, -3.0)];
        for (z, a_log) in pairs {
            for form in [Gate::Softplus, Gate::Bounded { lower_bound: -5.0 }] {
                let (got, want) = (log_decay(form, z, 0.0, a_log), form.log_decay(f64::from(z), f64::from(a_log)));
                // exp of 88 loses up to 88 * 2^-24 relative in the product with log2 e; below 1e-37 fp32 underflows.
                assert!(
                    (f64::from(got) - want).abs() <= 1e-5 * want.abs() + 1e-37,
                    "{form:?} {z} {a_log}: {got} against {want}"
                );
            }
        }
        assert_eq!(log_decay(Gate::Bounded { lower_bound: -5.0 }, 0.0, 0.0, 90.0), -2.5);
        assert!(log_decay(Gate::Softplus, f32::NAN, 0.0, 0.0).is_nan());
        assert!(log_decay(Gate::Softplus, -30.0, 0.0, f32::NAN).is_nan());
    }

    #[test]
    fn silu_has_no_overflow_trap() {
        assert_eq!(silu(-200.0), 0.0);
        assert_eq!(silu(200.0), 200.0);
        for i in -80..80 {
            let x = i as f32 * 0.21;
            assert!((f64::from(silu(x)) - gate::silu(f64::from(x))).abs() <= 2e-6 * f64::from(x.abs()));
        }
    }
}
