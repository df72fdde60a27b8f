//! L2 normalisation of a query or key head.
//!
//! ```text
//! y = x / sqrt(sum x^2 + 1e-6)
//! ```
//! The constant is added to the SUM, inside the root; it is not a mean and not a clamp of the norm. Source: `l2norm` of
//! fla-core (MIT).

/// Added to the sum of squares.
pub const EPSILON: f64 = 1e-6;

/// Divides `x` by the root of its sum of squares plus [`EPSILON`] and multiplies by `scale` (1 for keys, the attention
/// scale for queries).
pub fn l2_normalise(x: &mut [f64], scale: f64) {
    let sum: f64 = x.iter().map(|v| v * v).sum();
    let root = (sum + EPSILON).sqrt();
    for v in x {
        *v = *v / root * scale;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epsilon_is_added_to_the_sum() {
        let mut x = [1e-3, 0.0, 0.0, 0.0];
        l2_normalise(&mut x, 2.0);
        assert!((x[0] - 2.0 * 1e-3 / (2e-6f64).sqrt()).abs() < 1e-15);
        let mut zero = [0.0; 4];
        l2_normalise(&mut zero, 1.0);
        assert_eq!(zero, [0.0; 4]);
    }
}
