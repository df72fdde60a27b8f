//! Sums of products as the tensor cores of Hopper round them.
//!
//! An instruction multiplies 16-bit operands exactly, adds the [`DEPTH`] products and the accumulator, and drops what lies beyond
//! f32: it rounds toward zero. So errors do not cancel, and grow with the number of instructions. On an H200 sums of normal numbers
//! had 0.85 to 0.91 times the error of this model (K = 320, 576, 824).

/// Products along K of one instruction.
pub const DEPTH: usize = 16;

/// The largest f32 that is not farther from zero.
pub fn toward_zero(x: f64) -> f32 {
    let near = x as f32;
    match f64::from(near).abs() > x.abs() {
        true => f32::from_bits(near.to_bits() - 1),
        false => near,
    }
}

/// `sum_k a[k] b[k]`, accumulated in f32 from 0; the operands are numbers of 16-bit types.
pub fn dot(a: &[f64], b: &[f64]) -> f32 {
    let steps = a.chunks(DEPTH).zip(b.chunks(DEPTH));
    steps.fold(0.0, |sum, (a, b)| {
        let products: f64 = a.iter().zip(b).map(|(x, y)| x * y).sum();
        toward_zero(f64::from(sum) + products)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_toward_zero() {
        let one_up = f64::from(1.0f32.next_up());
        for (x, want) in
            [(1.0, 1.0), (one_up - 1e-12, 1.0), (1.0 - 1e-12, 1.0f32.next_down()), (0.0, 0.0), (1e-60, 0.0)]
        {
            assert_eq!((toward_zero(x), toward_zero(-x)), (want, -want), "{x}");
        }
        assert_eq!(toward_zero(1e300), f32::MAX);
        assert_eq!(toward_zero(f64::INFINITY), f32::INFINITY);
        assert!(toward_zero(f64::NAN).is_nan());
    }

    #[test]
    fn errors_do_not_cancel() {
        // Each step adds a little more than half a unit: to nearest the sum grows, toward zero it does not.
        let (mut a, mut b) = (vec![0.0; 64 * DEPTH], vec![0.0; 64 * DEPTH]);
        (a[0], b[0]) = (1.0, 1.0);
        for step in 1..64 {
            (a[step * DEPTH], b[step * DEPTH]) = (0.75, f64::from(f32::EPSILON));
        }
        assert_eq!(dot(&a, &b), 1.0);
        // Within one instruction nothing is lost.
        let (a, b) = (vec![0.75; DEPTH], vec![f64::from(f32::EPSILON); DEPTH]);
        assert_eq!(f64::from(dot(&a, &b)), 12.0 * f64::from(f32::EPSILON));
    }
}
