//! The verify with compact records as a tensor-core kernel runs it, for one request and head, and its fp32 commit.
//!
//! ```text
//! p_t = e^{cum_t} kn_t;  r_t = e^{cum_t} qn_t          each split into bf16 hi + lo
//! P_t = S p_t;  R_t = S r_t                            fp32 accumulation
//! c_ti = <k_t, w_i>, d_ti = <q_t, w_i>                 w_i = kn_i, multiplied by e^{g_t} at every later token t
//! u_t = beta_t (v_t - P_t - sum_{i<t} c_ti u_i);  o_t = R_t + sum_{i<=t} d_ti u_i
//! ```
//! Source: the operator's contract, with the forward-decayed couplings that are safe for any gate.

use super::{lanes, scalar};
use crate::records::{Drafts, HeadGate, Records};
use crate::round::to_bf16_f32;

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

/// `sum_k state[k, v] * (hi + lo of probe)[k]` for all v.
fn project(state: &[f32], probe: &[f32; KEYS], values: usize) -> Vec<f32> {
    let hi = probe.map(to_bf16_f32);
    let lo: [f32; KEYS] = std::array::from_fn(|k| to_bf16_f32(probe[k] - hi[k]));
    let mut sums = vec![0.0; values];
    for part in [hi, lo] {
        for (row, x) in state.chunks_exact(values).zip(part) {
            lanes::fma(&mut sums, x, row);
        }
    }
    sums
}

/// Verifies the drafts; outputs `[T, V]` before rounding and the records, fp32 values in float64. `state` is K-first.
///
/// # Panics
/// If K is not 128 or a tensor is shorter than the sizes say.
pub fn verify(state: &[f32], drafts: &Drafts, gate: &HeadGate<'_>, scale: f32) -> (Vec<f64>, Records) {
    assert_eq!(drafts.keys, KEYS, "the emulation is for heads of 128 key channels");
    let (values, tokens) = (drafts.values, drafts.raw_beta.len());
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
        let mut correction = project(state, &std::array::from_fn(|c| decay[c] * kn[c]), values);
        let mut output = project(state, &std::array::from_fn(|c| decay[c] * qn[c]), values);
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

/// Applies the first `n` records to a K-first state in fp32, token after token. The store's rounding is the caller's.
///
/// # Panics
/// If K is not 128 or there are fewer than `n` records.
pub fn commit(state: &mut [f32], records: &Records, n: usize, gate: &HeadGate<'_>) {
    assert_eq!(records.keys, KEYS, "the emulation is for heads of 128 key channels");
    for i in 0..n {
        let mut kn = head(&records.kg, 2 * i);
        scalar::l2_normalise(&mut kn, 1.0);
        let g = log_decay(gate, &records.kg[(2 * i + 1) * KEYS..2 * (i + 1) * KEYS]);
        let u: Vec<f32> =
            records.corr[i * records.values..(i + 1) * records.values].iter().map(|&u| u as f32).collect();
        for ((row, k), g) in state.chunks_exact_mut(records.values).zip(kn).zip(g) {
            let decay = scalar::exp(g);
            row.iter_mut().for_each(|s| *s *= decay);
            lanes::fma(row, k, &u);
        }
    }
}
