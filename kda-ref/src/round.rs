//! Rounding to nearest even from float64 to bf16, once and correctly.
//!
//! Going through fp32 by two roundings is wrong near ties, and so is dropping the low bits of the float64: the value is
//! first rounded *to odd* in fp32, which keeps the information "above or below the tie", and then to nearest even.

use half::bf16;

/// Relative distance from a bf16 rounding tie inside which a right fp32 kernel may land on either side.
///
/// 2^-20 is 16 units in the last place of fp32: SiLU by approximate exp2 and division is off by at most about ten.
pub const TIE_MARGIN: f64 = 1.0 / (1 << 20) as f64;

/// Widens bf16 to fp32 by its bits (NaN payloads survive).
#[inline]
pub fn widen(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

/// Rounds fp32 to bf16, nearest even. NaN stays NaN.
#[inline]
pub fn bf16_from_f32(x: f32) -> bf16 {
    bf16::from_f32(x)
}

/// Rounds float64 to bf16, nearest even, in one rounding. NaN stays NaN.
pub fn bf16_from_f64(x: f64) -> bf16 {
    let nearest = x as f32;
    if nearest.is_nan() || f64::from(nearest) == x {
        return bf16::from_f32(nearest);
    }
    let bits = nearest.to_bits();
    let toward_zero = if f64::from(nearest).abs() > x.abs() { bits - 1 } else { bits };
    bf16::from_f32(f32::from_bits(toward_zero | 1))
}

/// The bf16 value nearest to `x`, as float64.
#[inline]
pub fn to_bf16(x: f64) -> f64 {
    f64::from(widen(bf16_from_f64(x)))
}

/// [`to_bf16`], except that a value within `TIE_MARGIN * |x|` of a tie goes to the neighbour on the other side.
pub fn to_bf16_other_tie(x: f64) -> f64 {
    let near = to_bf16(x);
    let reach = x.abs() * TIE_MARGIN;
    for moved in [x - reach, x + reach] {
        let other = to_bf16(moved);
        if other != near {
            return other;
        }
    }
    near
}

/// The bf16 value nearest to `x`, as fp32.
#[inline]
pub fn to_bf16_f32(x: f32) -> f32 {
    widen(bf16_from_f32(x))
}

/// Distance in units of the last place between two bf16 values; 0 for equal values (`+0` and `-0` are equal), `None` if
/// either is NaN.
pub fn bf16_ulps(a: bf16, b: bf16) -> Option<u32> {
    let ordered = |x: bf16| {
        let bits = i32::from(x.to_bits() & 0x7FFF);
        if x.is_sign_negative() { -bits } else { bits }
    };
    if a.is_nan() || b.is_nan() { None } else { Some(ordered(a).abs_diff(ordered(b))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_rounding_not_two() {
        // Just above the tie between 1 and 1 + 2^-7: fp32 rounds it onto the tie, and the tie would go down to 1.
        let x = 1.0 + 2f64.powi(-8) + 2f64.powi(-40);
        assert_eq!(to_bf16(x), 1.0 + 2f64.powi(-7));
        assert_eq!(bf16::from_f32(x as f32).to_f64(), 1.0);
        assert_eq!(to_bf16(-x), -1.0 - 2f64.powi(-7));
        assert_eq!(to_bf16(1.0 + 2f64.powi(-8)), 1.0);
        assert_eq!(to_bf16(1.0 + 3.0 * 2f64.powi(-8)), 1.0 + 2f64.powi(-6));
    }

    #[test]
    fn ends_of_the_range() {
        assert!(to_bf16(f64::NAN).is_nan());
        assert_eq!(to_bf16(1e39), f64::INFINITY);
        assert_eq!(to_bf16(-1e300), f64::NEG_INFINITY);
        assert_eq!(to_bf16(1e-300), 0.0);
        assert!(to_bf16(-1e-300).is_sign_negative());
        assert_eq!(to_bf16(3.0e38), f64::from(bf16::from_f32(3.0e38)));
    }

    #[test]
    fn ties_go_to_the_other_side() {
        let tie = 1.0 + 2f64.powi(-8);
        assert_eq!(to_bf16_other_tie(tie + 1e-9), 1.0);
        assert_eq!(to_bf16_other_tie(tie - 1e-9), 1.0 + 2f64.powi(-7));
        assert_eq!(to_bf16_other_tie(1.001), to_bf16(1.001));
        assert_eq!(to_bf16_other_tie(0.0), 0.0);
        assert!(to_bf16_other_tie(f64::NAN).is_nan());
    }

    #[test]
    fn ulps_cross_zero() {
        let one = bf16::from_f32(1.0);
        assert_eq!(bf16_ulps(one, one), Some(0));
        assert_eq!(bf16_ulps(one, bf16::from_bits(one.to_bits() + 1)), Some(1));
        assert_eq!(bf16_ulps(bf16::from_bits(0x8001), bf16::from_bits(1)), Some(2));
        assert_eq!(bf16_ulps(bf16::from_bits(0x8000), bf16::from_bits(0)), Some(0));
        assert_eq!(bf16_ulps(bf16::NAN, one), None);
    }
}
