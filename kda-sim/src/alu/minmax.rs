//! The smaller and the larger of two floats.

use super::float::{NAN32, NAN64, flush};

/// The smaller of `a` and `b`, -0 before +0. A NaN gives way to a number unless `nan`.
#[inline(always)]
pub fn min32(a: u32, b: u32, ftz: bool, nan: bool) -> u32 {
    let (a, b) = if ftz { (flush(a), flush(b)) } else { (a, b) };
    let (x, y) = (f32::from_bits(a), f32::from_bits(b));
    // Equal numbers differ at most in the sign of zero: or-ing the bits picks -0.
    let number = if x < y {
        a
    } else if x > y {
        b
    } else {
        a | b
    };
    pick32(a, b, number, nan)
}

/// The larger of `a` and `b`, +0 after -0. A NaN gives way to a number unless `nan`.
#[inline(always)]
pub fn max32(a: u32, b: u32, ftz: bool, nan: bool) -> u32 {
    let (a, b) = if ftz { (flush(a), flush(b)) } else { (a, b) };
    let (x, y) = (f32::from_bits(a), f32::from_bits(b));
    let number = if x > y {
        a
    } else if x < y {
        b
    } else {
        a & b
    };
    pick32(a, b, number, nan)
}

#[inline(always)]
fn pick32(a: u32, b: u32, number: u32, nan: bool) -> u32 {
    let (nan_a, nan_b) = (f32::from_bits(a).is_nan(), f32::from_bits(b).is_nan());
    if (nan_a && nan_b) || (nan && (nan_a || nan_b)) {
        NAN32
    } else if nan_a {
        b
    } else if nan_b {
        a
    } else {
        number
    }
}

/// As [`min32`] in `f64`.
pub fn min64(a: u64, b: u64) -> u64 {
    let (x, y) = (f64::from_bits(a), f64::from_bits(b));
    match (x.is_nan(), y.is_nan()) {
        (true, true) => NAN64,
        (true, false) => b,
        (false, true) => a,
        _ if x < y => a,
        _ if x > y => b,
        _ => a | b,
    }
}

/// As [`max32`] in `f64`.
pub fn max64(a: u64, b: u64) -> u64 {
    let (x, y) = (f64::from_bits(a), f64::from_bits(b));
    match (x.is_nan(), y.is_nan()) {
        (true, true) => NAN64,
        (true, false) => b,
        (false, true) => a,
        _ if x > y => a,
        _ if x < y => b,
        _ => a & b,
    }
}
