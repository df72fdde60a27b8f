//! Rounding of `f64` values to the narrower floating-point types, to nearest even.

use kda_core::Elem;

/// `value` rounded to `ty`; infinite past the type's range. Other types than the floating-point ones leave it alone.
pub fn round(value: f64, ty: Elem) -> f64 {
    match ty {
        Elem::F32 => f64::from(value as f32),
        Elem::BF16 => round_to(value, 8, -126, 127),
        Elem::F16 => round_to(value, 11, -14, 15),
        _ => value,
    }
}

/// Rounds to a format of `precision` significant bits with exponents `least..=most`.
fn round_to(value: f64, precision: i32, least: i32, most: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let exponent = exponent(value).max(least);
    // One unit in the last place; a power of two within the range of f64, so scaling is exact.
    let unit = 2f64.powi(exponent - precision + 1);
    let rounded = (value / unit).round_ties_even() * unit;
    let limit = (2.0 - 2f64.powi(1 - precision)) * 2f64.powi(most);
    if rounded.abs() > limit { f64::INFINITY.copysign(value) } else { rounded }
}

/// Floor of the binary logarithm of a finite, non-zero value.
fn exponent(value: f64) -> i32 {
    let field = (value.to_bits() >> 52 & 0x7ff) as i32;
    // A subnormal f64 lies below every format here; any exponent under their least does.
    if field == 0 { -1023 } else { field - 1023 }
}
