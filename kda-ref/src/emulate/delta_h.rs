//! One chunk of the inter-chunk recurrence in fp32 with bf16 operands, as a tensor-core kernel runs it.
//!
//! ```text
//! h = bf16(S);  x = u - w h;  S = S * decay;  S = S + kg^T bf16(x)        fp32 accumulation
//! ```
//! The order of summation inside a dot is not contractual, and its rounding is that of the machine. `Unit::Lanes` fuses
//! products and adds them in order of the index, rounding to nearest; `Unit::TensorCore` adds 16 products at a time onto u or
//! the decayed state and rounds toward zero (see [`crate::tensor_core`]), and its powers of two are as far off as a hardware
//! approximation may be. Either is a right kernel; their distance says what the freedom costs.

use super::{lanes, scalar};
use crate::delta_h::step::Chunk;
use crate::round::to_bf16_f32;
use crate::tensor_core::{DEPTH, toward_zero};

/// What adds the products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Fused multiply-adds of fp32.
    Lanes,
    /// Matrix instructions.
    TensorCore,
}

/// 2^x by this unit's arithmetic: the approximation of the hardware is off by up to 2^-22, and here on the side of zero, as the
/// sums are.
pub(crate) fn exp2(unit: Unit) -> fn(f32) -> f32 {
    match unit {
        Unit::Lanes => scalar::exp2,
        Unit::TensorCore => |x| scalar::exp2(x) * (1.0 - f32::EPSILON * 2.0),
    }
}

/// `acc[v] += sum_i a(i) b[i, v]`, with `count` rows of `b`.
fn accumulate(unit: Unit, acc: &mut [f32], count: usize, a: impl Fn(usize) -> f32, b: &[f32]) {
    let width = acc.len();
    if unit == Unit::Lanes {
        for (i, b) in b.chunks_exact(width).enumerate().take(count) {
            lanes::fma(acc, a(i), b);
        }
        return;
    }
    let mut sums = vec![0.0f64; width];
    for (block, b) in b.chunks(DEPTH * width).enumerate() {
        sums.fill(0.0);
        for (i, b) in b.chunks_exact(width).enumerate() {
            let a = f64::from(a(block * DEPTH + i));
            sums.iter_mut().zip(b).for_each(|(sum, b)| *sum += a * f64::from(*b));
        }
        acc.iter_mut().zip(&sums).for_each(|(acc, sum)| *acc = toward_zero(f64::from(*acc) + sum));
    }
}

/// Takes the K-first state `[K, V]` over one chunk and returns x `[rows, V]` before its rounding.
pub(crate) fn step(state: &mut [f32], chunk: &Chunk<f32>, unit: Unit) -> Vec<f32> {
    let keys = chunk.decay.len();
    let values = state.len() / keys;
    let h: Vec<f32> = state.iter().map(|&s| to_bf16_f32(s)).collect();
    let mut x = if unit == Unit::Lanes { vec![0.0; chunk.u.len()] } else { chunk.u.clone() };
    for (x, w) in x.chunks_exact_mut(values).zip(chunk.w.chunks_exact(keys)) {
        accumulate(unit, x, keys, |key| if unit == Unit::Lanes { w[key] } else { -w[key] }, &h);
    }
    if unit == Unit::Lanes {
        x.iter_mut().zip(&chunk.u).for_each(|(x, u)| *x = u - *x);
    }
    let mut operand = x.clone();
    if let Some(gate) = &chunk.gate {
        for (x, gate) in operand.chunks_exact_mut(values).zip(gate) {
            x.iter_mut().for_each(|x| *x *= gate);
        }
    }
    operand.iter_mut().for_each(|x| *x = to_bf16_f32(*x));
    update(state, chunk, &operand, unit);
    x
}

/// Decays the state and adds `kg^T operand`.
pub(crate) fn update(state: &mut [f32], chunk: &Chunk<f32>, operand: &[f32], unit: Unit) {
    let keys = chunk.decay.len();
    let (values, rows) = (state.len() / keys, chunk.kg.len() / keys);
    for ((key, s), decay) in state.chunks_exact_mut(values).enumerate().zip(&chunk.decay) {
        s.iter_mut().for_each(|s| *s *= decay);
        accumulate(unit, s, rows, |row| chunk.kg[row * keys + key], operand);
    }
}
