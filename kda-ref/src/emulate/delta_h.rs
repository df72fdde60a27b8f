//! One chunk of the inter-chunk recurrence in fp32 with bf16 operands, as a tensor-core kernel runs it.
//!
//! ```text
//! h = bf16(S);  x = u - w h;  S = S * decay;  S = S + kg^T bf16(x)        fp32 accumulation
//! ```
//! The order of summation inside a dot is not contractual. In [`Order::Forward`] products are fused and added in order of
//! the index, and the sum is taken from u; in [`Order::Backward`] they are added in the opposite order onto u, and powers
//! of two are as far off as a hardware approximation may be. Either is a right kernel; their distance says what the freedom
//! costs. A sum over rows accumulates onto the decayed state, as an MMA does.

use super::{lanes, scalar};
use crate::delta_h::step::Chunk;
use crate::round::to_bf16_f32;

/// Which of the two orders of summation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// By rising index.
    Forward,
    /// By falling index.
    Backward,
}

/// 2^x by this order's arithmetic: the approximation of the hardware is off by up to 2^-22.
pub(crate) fn exp2(order: Order) -> fn(f32) -> f32 {
    match order {
        Order::Forward => scalar::exp2,
        Order::Backward => |x| scalar::exp2(x) * (1.0 + f32::EPSILON * 2.0),
    }
}

/// The indices below `count` in this order.
fn indices(order: Order, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |i| if order == Order::Forward { i } else { count - 1 - i })
}

/// Takes the K-first state `[K, V]` over one chunk and returns x `[rows, V]` before its rounding.
pub(crate) fn step(state: &mut [f32], chunk: &Chunk<f32>, order: Order) -> Vec<f32> {
    let keys = chunk.decay.len();
    let (values, rows) = (state.len() / keys, chunk.kg.len() / keys);
    let h: Vec<f32> = state.iter().map(|&s| to_bf16_f32(s)).collect();
    let mut x = if order == Order::Forward { vec![0.0; chunk.u.len()] } else { chunk.u.clone() };
    for (x, w) in x.chunks_exact_mut(values).zip(chunk.w.chunks_exact(keys)) {
        for key in indices(order, keys) {
            let w = if order == Order::Forward { w[key] } else { -w[key] };
            lanes::fma(x, w, &h[key * values..(key + 1) * values]);
        }
    }
    if order == Order::Forward {
        x.iter_mut().zip(&chunk.u).for_each(|(x, u)| *x = u - *x);
    }
    update(state, chunk, &x, |s, key, operand: &[f32]| {
        for row in indices(order, rows) {
            lanes::fma(s, chunk.kg[row * keys + key], &operand[row * values..(row + 1) * values]);
        }
    });
    x
}

/// Decays the state and adds what `add` makes of the rounded, gated x.
fn update(state: &mut [f32], chunk: &Chunk<f32>, x: &[f32], add: impl Fn(&mut [f32], usize, &[f32])) {
    let values = state.len() / chunk.decay.len();
    let mut operand = x.to_vec();
    if let Some(gate) = &chunk.gate {
        for (x, gate) in operand.chunks_exact_mut(values).zip(gate) {
            x.iter_mut().for_each(|x| *x *= gate);
        }
    }
    operand.iter_mut().for_each(|x| *x = to_bf16_f32(*x));
    for ((key, s), decay) in state.chunks_exact_mut(values).enumerate().zip(&chunk.decay) {
        s.iter_mut().for_each(|s| *s *= decay);
        add(s, key, &operand);
    }
}
