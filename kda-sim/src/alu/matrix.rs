//! Matrix products: products of operands are exact, sums are taken in f64, and each result is rounded once to f32.
//!
//! A tensor core adds in an order and precision of its own, so results agree with hardware within its error, not bit for
//! bit.

use super::convert::{bf16_to_f32, f16_to_f32};
use super::float::canonical32;

/// A tf32 operand: an f32 whose low 13 bits do not count.
#[inline(always)]
pub fn tf32_to_f32(bits: u32) -> f32 {
    f32::from_bits(bits & !0x1fff)
}

/// A bf16 operand.
#[inline(always)]
pub fn bf16(bits: u32) -> f32 {
    f32::from_bits(bf16_to_f32(bits & 0xffff))
}

/// An f16 operand.
#[inline(always)]
pub fn f16(bits: u32) -> f32 {
    f32::from_bits(f16_to_f32(bits & 0xffff))
}

/// The f32 of a sum; a NaN is the one that PTX gives.
#[inline(always)]
pub fn rounded(sum: f64) -> u32 {
    canonical32(sum as f32)
}

#[inline(always)]
fn body(a: &[f32], b: &[f32], n: usize, out: &mut [f64]) {
    let k = b.len() / n;
    for (a, out) in a.chunks_exact(k).zip(out.chunks_exact_mut(n)) {
        for (a, b) in a.iter().zip(b.chunks_exact(n)) {
            let a = f64::from(*a);
            for (out, b) in out.iter_mut().zip(b) {
                // The product is exact in f64, so this is one rounding of the sum.
                *out += a * f64::from(*b);
            }
        }
    }
}

/// `out += a b` with `a` `[m, k]`, `b` `[k, n]` and `out` `[m, n]`, all by rows. `vector` tells that AVX2 is there; both
/// builds give the same bits.
pub fn multiply(vector: bool, a: &[f32], b: &[f32], n: usize, out: &mut [f64]) {
    #[cfg(target_arch = "x86_64")]
    if vector {
        #[target_feature(enable = "avx2")]
        fn wide(a: &[f32], b: &[f32], n: usize, out: &mut [f64]) {
            body(a, b, n, out);
        }
        // SAFETY: `vector` is set only where `has_vector` found AVX2.
        return unsafe { wide(a, b, n, out) };
    }
    let _ = vector;
    body(a, b, n, out);
}
