//! The verify with compact records as a tensor-core kernel runs it, for one request and head, and its fp32 commit.
//!
//! ```text
//! p_t = e^{cum_t} kn_t;  r_t = e^{cum_t} qn_t          each split into bf16 hi + lo, and so is an fp32 state
//! P_t = S p_t;  R_t = S r_t                            as tensor cores add; low times low is left out
//! c_ti = <k_t, w_i>, d_ti = <q_t, w_i>                 w_i = kn_i, multiplied by e^{g_t} at every later token t
//! u_t = beta_t (v_t - P_t - sum_{i<t} c_ti u_i);  o_t = R_t + sum_{i<=t} d_ti u_i
//! ```
//! Source: the operator's contract, with the forward-decayed couplings that are safe for any gate.

use super::{lanes, scalar};
use crate::records::{Drafts, HeadGate, Records};
use crate::round::to_bf16_f32;
use crate::tensor_core;

/// Key channels of a head.
const KEYS: usize = 128;

fn head(x: &[f64], row: usize) -> [f32; KEYS] {
    std::array::from_fn(|c| x[row * KEYS + c] as f32)
}

fn dot(a: &[f32; KEYS], b: &[f32; KEYS]) -> f32 {
    a.iter().zip(b).fold(0.0f32, |sum, (a, b)| a.mul_add(*b, sum))
}

fn log_decay(gate: &HeadGate<'_>, raw: &[f64]) -> [f32; KEYS] {
    std::array::from_fn(|c| scalar::log_decay(gate.gate, raw[c] as f32, gate.dt_bias[c] as f32, gate.a_log as f32))
}

/// A number as bf16 high and low parts, about 16 bits of mantissa together.
fn split(x: f32) -> (f64, f64) {
    let hi = to_bf16_f32(x);
    (f64::from(hi), f64::from(to_bf16_f32(x - hi)))
}

/// A state as operands of a tensor core: rows `[V, K]` of high parts, and of low ones where the state has any.
struct Operand {
    hi: Vec<f64>,
    lo: Option<Vec<f64>>,
}

impl Operand {
    /// Of a K-first state.
    fn new(state: &[f32], values: usize) -> Self {
        let at = |i: usize| state[i % KEYS * values + i / KEYS];
        let (hi, lo): (Vec<f64>, Vec<f64>) = (0..KEYS * values).map(|i| split(at(i))).unzip();
        Operand { hi, lo: lo.iter().any(|&x| x != 0.0).then_some(lo) }
    }

    /// `sum_k S[v, k] probe[k]` for all v: high with high, high with low and low with high, in one accumulator.
    fn project(&self, probe: &[f32; KEYS]) -> Vec<f32> {
        let (hi, lo): (Vec<f64>, Vec<f64>) = probe.iter().map(|&x| split(x)).unzip();
        let mut probes = [hi.as_slice(), &lo].concat();
        probes.extend(self.lo.iter().flat_map(|_| &hi));
        let rows = self.hi.chunks_exact(KEYS).enumerate();
        rows.map(|(v, row)| {
            let low = self.lo.as_ref().map_or(&[][..], |lo| &lo[v * KEYS..(v + 1) * KEYS]);
            tensor_core::dot(&[row, row, low].concat(), &probes)
        })
        .collect()
    }
}

/// Verifies the drafts; outputs `[T, V]` before rounding and the records, fp32 values in float64. `state` is K-first.
///
/// # Panics
/// If K is not 128 or a tensor is shorter than the sizes say.
pub fn verify(state: &[f32], drafts: &Drafts, gate: &HeadGate<'_>, scale: f32) -> (Vec<f64>, Records) {
    assert_eq!(drafts.keys, KEYS, "the emulation is for heads of 128 key channels");
    let (values, tokens) = (drafts.values, drafts.raw_beta.len());
    let operand = Operand::new(state, values);
    let mut cum = [0.0f32; KEYS];
    let mut carried: Vec<[f32; KEYS]> = Vec::new();
    let mut u: Vec<Vec<f32>> = Vec::new();
    let mut o = Vec::new();
    let mut records = Records { keys: KEYS, values, corr: Vec::new(), kg: Vec::new() };
    for t in 0..tokens {
        let raw = &drafts.raw_gate[t * KEYS..(t + 1) * KEYS];
        let g = log_decay(gate, raw);
        let (mut qn, mut kn) = (head(&drafts.q, t), head(&drafts.k, t));
        records.kg.extend(drafts.k[t * KEYS..(t + 1) * KEYS].iter().chain(raw));
        scalar::l2_normalise(&mut qn, scale);
        scalar::l2_normalise(&mut kn, 1.0);
        for c in 0..KEYS {
            cum[c] += g[c];
            let decay = scalar::exp(g[c]);
            carried.iter_mut().for_each(|w| w[c] *= decay);
        }
        let decay = cum.map(scalar::exp);
        let mut correction = operand.project(&std::array::from_fn(|c| decay[c] * kn[c]));
        let mut output = operand.project(&std::array::from_fn(|c| decay[c] * qn[c]));
        for (w, u) in carried.iter().zip(&u) {
            lanes::fma(&mut correction, dot(&kn, w), u);
            lanes::fma(&mut output, dot(&qn, w), u);
        }
        let beta = scalar::sigmoid(drafts.raw_beta[t] as f32);
        for (x, v) in correction.iter_mut().zip(&drafts.v[t * values..(t + 1) * values]) {
            *x = beta * (*v as f32 - *x);
        }
        lanes::fma(&mut output, dot(&qn, &kn), &correction);
        records.corr.extend(correction.iter().map(|&x| f64::from(x)));
        o.extend(output.iter().map(|&x| f64::from(x)));
        carried.push(kn);
        u.push(correction);
    }
    (o, records)
}

/// Normalised key, log decay and correction of record `i`.
fn record(records: &Records, i: usize, gate: &HeadGate<'_>) -> ([f32; KEYS], [f32; KEYS], Vec<f32>) {
    assert_eq!(records.keys, KEYS, "the emulation is for heads of 128 key channels");
    let mut kn = head(&records.kg, 2 * i);
    scalar::l2_normalise(&mut kn, 1.0);
    let g = log_decay(gate, &records.kg[(2 * i + 1) * KEYS..2 * (i + 1) * KEYS]);
    (kn, g, records.corr[i * records.values..(i + 1) * records.values].iter().map(|&u| u as f32).collect())
}

/// Applies the first `n` records to a K-first state in fp32, token after token. The store's rounding is the caller's.
///
/// # Panics
/// If K is not 128 or there are fewer than `n` records.
pub fn commit(state: &mut [f32], records: &Records, n: usize, gate: &HeadGate<'_>) {
    for i in 0..n {
        let (kn, g, u) = record(records, i, gate);
        for ((row, k), g) in state.chunks_exact_mut(records.values).zip(kn).zip(g) {
            let decay = scalar::exp(g);
            row.iter_mut().for_each(|s| *s *= decay);
            lanes::fma(row, k, &u);
        }
    }
}

/// [`commit`] with keys decayed by running products from the last token: `S <- S * product`, then `S <- fma(u, w, S)` a record.
///
/// # Panics
/// As [`commit`].
pub fn commit_reverse(state: &mut [f32], records: &Records, n: usize, gate: &HeadGate<'_>) {
    let mut suffix = [1.0f32; KEYS];
    let mut carried: Vec<([f32; KEYS], Vec<f32>)> = Vec::new();
    for i in (0..n).rev() {
        let (kn, g, u) = record(records, i, gate);
        carried.push((std::array::from_fn(|c| kn[c] * suffix[c]), u));
        suffix = std::array::from_fn(|c| suffix[c] * scalar::exp(g[c]));
    }
    for (c, row) in state.chunks_exact_mut(records.values).enumerate() {
        row.iter_mut().for_each(|s| *s *= suffix[c]);
        carried.iter().rev().for_each(|(w, u)| lanes::fma(row, w[c], u));
    }
}
