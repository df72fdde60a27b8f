//! The two gates and the write strength, in float64, for any input.
//!
//! ```text
//! z        = a + dt_bias
//! bounded  : g = lower_bound * sigmoid(exp(A_log) * z)
//! softplus : g = -exp(A_log) * softplus(z),   softplus(z) = ln(1 + exp(z))
//! beta     = sigmoid(b)
//! ```
//! g is the natural log of the decay of one key channel, g <= 0. Source: the KDA layers of fla-core (MIT) and
//! transformers (Apache-2.0); the safe forms below are algebra.
//!
//! Extremes. `exp(A_log)` is clamped at `exp(88)`, which is finite in fp32 too, so `exp(A_log) * 0 = 0`. Far below zero
//! softplus(z) = exp(z), so there g = -exp(A_log + z) is taken: a large A_log against a very negative z neither
//! overflows nor cancels. A clamped g is below -1e30 before the clamp and after it, so the decay is 0 either way.
//! NaN passes through every function: a clamp never swallows it.

/// Largest exponent that the gates raise e to.
pub const MAX_EXPONENT: f64 = 88.0;

/// Which of the two gates a layer uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gate {
    /// `g = lower_bound * sigmoid(exp(A_log) * z)`, between `lower_bound` (negative) and 0.
    Bounded {
        /// The bound; -5 in published models.
        lower_bound: f64,
    },
    /// `g = -exp(A_log) * softplus(z)`, without a bound.
    Softplus,
}

impl Gate {
    /// The gate that a call with this optional bound uses: bounded when present, softplus when absent.
    pub fn from_lower_bound(lower_bound: Option<f64>) -> Self {
        match lower_bound {
            Some(lower_bound) => Gate::Bounded { lower_bound },
            None => Gate::Softplus,
        }
    }

    /// The log decay of one channel from `z = a + dt_bias` and the head's `a_log` (0 when absent).
    pub fn log_decay(self, z: f64, a_log: f64) -> f64 {
        match self {
            Gate::Bounded { lower_bound } => lower_bound * sigmoid(clamped(a_log).exp() * z),
            // At -40 the replacement is off by exp(-40)/2 = 2e-18 of its value: below float64.
            Gate::Softplus if z <= -40.0 => -clamped(a_log + z).exp(),
            Gate::Softplus => -(clamped(a_log).exp() * softplus(z)),
        }
    }
}

/// `x`, at most [`MAX_EXPONENT`]; NaN stays NaN (`f64::min` would drop it).
fn clamped(x: f64) -> f64 {
    if x > MAX_EXPONENT { MAX_EXPONENT } else { x }
}

/// `1 / (1 + exp(-x))` without overflow; small results keep their relative precision.
pub fn sigmoid(x: f64) -> f64 {
    if x >= 0.0 {
        1.0 / (1.0 + (-x).exp())
    } else {
        let e = x.exp();
        e / (1.0 + e)
    }
}

/// `ln(1 + exp(x))` without overflow or cancellation: never raises e to a positive power.
pub fn softplus(x: f64) -> f64 {
    let tail = (-x.abs()).exp().ln_1p();
    if x > 0.0 { x + tail } else { tail }
}

/// `x / (1 + exp(-x))`.
pub fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(got: f64, want: f64, relative: f64) {
        assert!((got - want).abs() <= relative * want.abs(), "got {got}, want {want}");
    }

    #[test]
    fn table_of_extremes() {
        close(Gate::Softplus.log_decay(100.0, -6.0), -100.0 * (-6f64).exp(), 1e-15);
        close(Gate::Softplus.log_decay(100.0, -6.0), -0.24788, 3e-5);
        close(Gate::Softplus.log_decay(-18.0, 10.0), -3.3546e-4, 1e-5);
        close(Gate::Softplus.log_decay(-90.0, 100.0), -10f64.exp(), 1e-15);
        assert_eq!(Gate::Softplus.log_decay(-90.0, 100.0).exp(), 0.0);
        assert_eq!(Gate::Softplus.log_decay(-200.0, 100.0).exp(), 1.0);
        let bounded = Gate::Bounded { lower_bound: -5.0 };
        assert_eq!(bounded.log_decay(0.0, 90.0), -2.5);
        assert_eq!(bounded.log_decay(0.0, f64::INFINITY), -2.5);
        assert_eq!(bounded.log_decay(1e30, 90.0), -5.0);
        assert_eq!(bounded.log_decay(-1e30, 90.0), 0.0);
    }

    #[test]
    fn no_input_gives_nan_or_a_growing_state() {
        let values = [0.0, 1e-30, 0.3, 16.9, 17.1, 20.1, 39.9, 40.1, 89.0, 710.0, 1e10, 3e38];
        for z in values.into_iter().flat_map(|x| [x, -x]) {
            for a_log in values.into_iter().flat_map(|x| [x, -x]) {
                for gate in [Gate::Softplus, Gate::Bounded { lower_bound: -5.0 }] {
                    let g = gate.log_decay(z, a_log);
                    assert!(g <= 0.0 && g.is_finite(), "{gate:?} z {z} a_log {a_log} gives {g}");
                }
            }
        }
    }

    #[test]
    fn nan_is_never_swallowed() {
        for gate in [Gate::Softplus, Gate::Bounded { lower_bound: -5.0 }] {
            assert!(gate.log_decay(f64::NAN, 0.0).is_nan());
            assert!(gate.log_decay(0.0, f64::NAN).is_nan());
            assert!(gate.log_decay(-90.0, f64::NAN).is_nan());
        }
    }

    #[test]
    fn the_two_softplus_branches_meet() {
        let (below, above) = (Gate::Softplus.log_decay(-40.0, 3.0), Gate::Softplus.log_decay(-39.999_999_999, 3.0));
        close(above, below, 2e-9);
        close(softplus(-40.0), (-40f64).exp(), 1e-15);
        assert_eq!(sigmoid(-720.0), (-720f64).exp());
        assert_eq!((sigmoid(1000.0), sigmoid(-1000.0)), (1.0, 0.0));
    }
}
