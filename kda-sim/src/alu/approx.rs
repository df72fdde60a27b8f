//! The approximate functions: computed in `f64` and rounded to `f32`, well within the documented errors.
//!
//! They are written with plain multiplications and additions, so that every build gives the same bits.

use super::float::{NAN32, flush};

/// `1 / ln 2`
const LOG2_E: f64 = std::f64::consts::LOG2_E;
/// `1.5 * 2^52`: adding it rounds to an integer.
const ROUND: f64 = 6755399441055744.0;

/// `2^x` for `|x| < 1000`.
#[inline(always)]
fn exp2_f64(x: f64) -> f64 {
    let shifted = x + ROUND;
    let n = shifted - ROUND;
    let t = (x - n) * std::f64::consts::LN_2;
    // exp(t) for |t| <= ln 2 / 2: the Taylor remainder of degree 12 is below 2e-16.
    const INVERSE_FACTORIALS: [f64; 13] = [
        1.0,
        1.0,
        1.0 / 2.0,
        1.0 / 6.0,
        1.0 / 24.0,
        1.0 / 120.0,
        1.0 / 720.0,
        1.0 / 5040.0,
        1.0 / 40320.0,
        1.0 / 362880.0,
        1.0 / 3628800.0,
        1.0 / 39916800.0,
        1.0 / 479001600.0,
    ];
    let mut p = INVERSE_FACTORIALS[12];
    let mut k = 12;
    while k > 0 {
        k -= 1;
        p = p * t + INVERSE_FACTORIALS[k];
    }
    // The integer stands in the low bits of `shifted`.
    let exponent = (shifted.to_bits() as i64).wrapping_sub(ROUND.to_bits() as i64);
    p * f64::from_bits((exponent.wrapping_add(1023) as u64) << 52)
}

/// `ex2.approx.f32`
#[inline(always)]
pub fn ex2(a: u32, ftz: bool) -> u32 {
    let x = f32::from_bits(if ftz { flush(a) } else { a });
    // Beyond these the result is 0 or infinity; the clamp also keeps the exponent in range.
    let clamped = if x > 200.0 {
        200.0
    } else if x < -200.0 {
        -200.0
    } else {
        x
    };
    let y = (exp2_f64(f64::from(clamped)) as f32).to_bits();
    let y = if ftz { flush(y) } else { y };
    if x.is_nan() { NAN32 } else { y }
}

/// Natural logarithm's base-2 sibling for positive normal `f64`.
#[inline(always)]
fn log2_f64(x: f64) -> f64 {
    let bits = x.to_bits();
    // Mantissa in [sqrt 1/2, sqrt 2).
    let offset = bits.wrapping_sub(0x3fe6_a09e_667f_3bcd);
    let exponent = (offset as i64) >> 52;
    let m = f64::from_bits(bits.wrapping_sub((exponent as u64) << 52));
    // log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.1716.
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let mut p = 1.0 / 21.0;
    let mut k = 19.0;
    while k > 0.0 {
        p = p * z + 1.0 / k;
        k -= 2.0;
    }
    exponent as i32 as f64 + 2.0 * s * p * LOG2_E
}

/// `lg2.approx.f32`
#[inline(always)]
pub fn lg2(a: u32, ftz: bool) -> u32 {
    let bits = if ftz { flush(a) } else { a };
    let x = f32::from_bits(bits);
    if x.is_nan() || x < 0.0 {
        NAN32
    } else if x == 0.0 {
        f32::NEG_INFINITY.to_bits()
    } else if x == f32::INFINITY {
        bits
    } else {
        let y = (log2_f64(f64::from(x)) as f32).to_bits();
        if ftz { flush(y) } else { y }
    }
}

/// `rcp.approx.f32`
#[inline(always)]
pub fn rcp(a: u32, ftz: bool) -> u32 {
    let x = f32::from_bits(if ftz { flush(a) } else { a });
    let y = (1.0 / x).to_bits();
    let y = if ftz { flush(y) } else { y };
    if x.is_nan() { NAN32 } else { y }
}

/// `rsqrt.approx.f32`
#[inline(always)]
pub fn rsqrt(a: u32, ftz: bool) -> u32 {
    let x = f32::from_bits(if ftz { flush(a) } else { a });
    let y = ((1.0 / f64::from(x).sqrt()) as f32).to_bits();
    // sqrt(-0) = -0, so the zero keeps its sign.
    if x.is_nan() || x < 0.0 { NAN32 } else { y }
}

/// `sqrt.approx.f32`
#[inline(always)]
pub fn sqrt(a: u32, ftz: bool) -> u32 {
    let x = f32::from_bits(if ftz { flush(a) } else { a });
    let y = x.sqrt().to_bits();
    if x.is_nan() || x < 0.0 { NAN32 } else { y }
}

/// `tanh.approx.f32`
#[inline(always)]
pub fn tanh(a: u32) -> u32 {
    let x = f32::from_bits(a);
    let magnitude = f64::from(x.abs());
    // Past 20 the result is 1. Near 0 the quotient would cancel: three terms of the series are exact to f32 there.
    let clamped = if magnitude > 20.0 { 20.0 } else { magnitude };
    let e = exp2_f64(clamped * (2.0 * LOG2_E));
    let large = (e - 1.0) / (e + 1.0);
    let z = clamped * clamped;
    let small = clamped * (1.0 + z * (-1.0 / 3.0 + z * (2.0 / 15.0)));
    let y = (if clamped < 0.01 { small } else { large }) as f32;
    if x.is_nan() { NAN32 } else { y.to_bits() | (a & 0x8000_0000) }
}
