//! Signs of exact sums of products of `f64`, for directed roundings: no error of rounding is lost, subnormal or not.

use std::cmp::Ordering;

/// Words of a sum: products reach from 2^-2148 to 2^2048.
const WORDS: usize = 68;
/// Power of two of bit 0.
const LEAST: i32 = -2148;

/// A sum of positive numbers, as multiples of 2^[`LEAST`].
type Sum = [u64; WORDS];

/// Significand and exponent of the magnitude of a finite number.
fn parts(x: f64) -> (u64, i32) {
    let bits = x.to_bits();
    let (fraction, exponent) = (bits & ((1 << 52) - 1), (bits >> 52 & 0x7ff) as i32);
    if exponent == 0 { (fraction, -1074) } else { (fraction | 1 << 52, exponent - 1075) }
}

/// Adds `significand * 2^exponent`.
fn add(sum: &mut Sum, significand: u128, exponent: i32) {
    let at = (exponent - LEAST) as usize;
    let (mut word, bit) = (at / 64, at % 64);
    let (low, high) = (significand << bit, if bit == 0 { 0 } else { significand >> (128 - bit) });
    let mut carry = false;
    for piece in [low as u64, (low >> 64) as u64, high as u64] {
        let (x, first) = sum[word].overflowing_add(piece);
        let (x, second) = x.overflowing_add(carry.into());
        (sum[word], carry) = (x, first || second);
        word += 1;
    }
    while carry {
        (sum[word], carry) = sum[word].overflowing_add(1);
        word += 1;
    }
}

/// How the exact sum of products of finite numbers compares with zero.
pub fn sign(products: &[(f64, f64)]) -> Ordering {
    let (mut above, mut below) = ([0; WORDS], [0; WORDS]);
    for (a, b) in products {
        let ((m, e), (n, f)) = (parts(*a), parts(*b));
        let side = if a.is_sign_negative() == b.is_sign_negative() { &mut above } else { &mut below };
        add(side, u128::from(m) * u128::from(n), e + f);
    }
    above.iter().rev().cmp(below.iter().rev())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost() {
        let least = f64::from_bits(1);
        assert_eq!(sign(&[]), Ordering::Equal);
        assert_eq!(sign(&[(least, least)]), Ordering::Greater);
        assert_eq!(sign(&[(f64::MAX, f64::MAX), (-least, least), (-f64::MAX, f64::MAX)]), Ordering::Less);
        assert_eq!(sign(&[(f64::MAX, f64::MAX), (f64::MAX, -f64::MAX)]), Ordering::Equal);
        assert_eq!(sign(&[(1.0, 1.0), (-(1.0 + f64::EPSILON), 1.0 - f64::EPSILON)]), Ordering::Greater);
        assert_eq!(sign(&[(3.0, 7.0), (-21.0, 1.0)]), Ordering::Equal);
        let many = [(f64::MAX, f64::MAX); 8];
        assert_eq!(sign(&many), Ordering::Greater);
    }
}
