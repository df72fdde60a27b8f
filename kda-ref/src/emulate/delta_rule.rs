//! One token of the gated delta rule for one head in fp32, with the contract's tree for the sums over K.
//!
//! ```text
//! S <- S * exp(g);   u = beta * (v - S k);   S <- fma(u, k, S);   o = S q
//! ```
//! The state is K-first `[128, V]` here: a row of it holds one key channel of every value channel, so the tree runs on
//! all value channels at once. The bits do not depend on that.

use super::tree::{GROUP_STRIDES, butterfly};
use super::{lanes, scalar};

/// Key channels of a head.
pub const KEYS: usize = 128;

/// Query, key, value, gate and write strength of one token, ready for the recurrence, in fp32.
#[derive(Clone, Copy, Debug)]
pub struct Token<'a> {
    /// Query: L2-normalised and multiplied by the attention scale.
    pub q: &'a [f32; KEYS],
    /// Key: L2-normalised.
    pub k: &'a [f32; KEYS],
    /// Value `[V]`.
    pub v: &'a [f32],
    /// Log decay, natural log.
    pub log_decay: &'a [f32; KEYS],
    /// Write strength.
    pub beta: f32,
}

/// `out[v] = sum_k state[k, v] * x[k]` with the contract's tree. `scratch` holds `32 * V` elements.
fn contract_over_keys(state: &[f32], x: &[f32; KEYS], scratch: &mut [f32], out: &mut [f32]) {
    let values = out.len();
    for (group, sums) in scratch.chunks_exact_mut(values).enumerate() {
        let row = |k: usize| &state[k * values..(k + 1) * values];
        let first = 4 * group;
        lanes::multiply(sums, x[first], row(first));
        for (k, &x) in (first + 1..).zip(&x[first + 1..first + 4]) {
            lanes::fma(sums, x, row(k));
        }
    }
    butterfly(GROUP_STRIDES, |to, from| {
        let (head, tail) = scratch.split_at_mut(from * values);
        lanes::add(&mut head[to * values..(to + 1) * values], &tail[..values]);
    });
    out.copy_from_slice(&scratch[..values]);
}

/// Applies one token to `state` `[128, V]` and writes the correction `u` `[V]` and the output `o` `[V]`.
pub fn step(state: &mut [f32], token: Token<'_>, u: &mut [f32], o: &mut [f32]) {
    let values = token.v.len();
    let mut scratch = vec![0.0; 32 * values];
    for (row, &g) in state.chunks_exact_mut(values).zip(token.log_decay) {
        let decay = scalar::exp(g);
        for s in row {
            *s *= decay;
        }
    }
    contract_over_keys(state, token.k, &mut scratch, u);
    for (u, v) in u.iter_mut().zip(token.v) {
        *u = token.beta * (v - *u);
    }
    for (row, &k) in state.chunks_exact_mut(values).zip(token.k) {
        lanes::fma(row, k, u);
    }
    contract_over_keys(state, token.q, &mut scratch, o);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulate::tree;
    use crate::rng::Rng;

    #[test]
    fn all_value_channels_at_once_is_the_scalar_tree() {
        let mut rng = Rng::new(11);
        let values = 5;
        let state: Vec<f32> = (0..KEYS * values).map(|_| rng.normal() as f32).collect();
        let x: [f32; KEYS] = std::array::from_fn(|_| rng.normal() as f32);
        let (mut scratch, mut out) = (vec![0.0; 32 * values], vec![0.0; values]);
        contract_over_keys(&state, &x, &mut scratch, &mut out);
        for (value, got) in out.iter().enumerate() {
            let column: [f32; KEYS] = std::array::from_fn(|k| state[k * values + value]);
            assert_eq!(got.to_bits(), tree::dot(&column, &x).to_bits());
        }
    }
}
