//! Compact records of a verify, and their commit, for one request and head in float64.
//!
//! ```text
//! verify: S_t = S_{t-1} diag(exp g_t) + u_t kn_t^T;   record t = (u_t, k_t before the norm, raw gate a_t)
//! commit: S_n = S diag(exp cum_n) + sum_{i<n} u_i (exp(cum_n - cum_i) kn_i)^T,   cum_i = g_0 + .. + g_i
//! ```
//! Source: RecoverSSM of vLLM (Apache-2.0) and the contract of the operator. v, beta and q are not needed to commit.
//! States are K-first here.

use crate::delta_rule::{Token, step};
use crate::gate::{Gate, sigmoid};
use crate::norm::l2_normalise;

/// What a head's gate needs beside the raw gate.
#[derive(Clone, Copy, Debug)]
pub struct HeadGate<'a> {
    /// Which gate.
    pub gate: Gate,
    /// The head's `A_log`, 0 when absent.
    pub a_log: f64,
    /// `[K]`.
    pub dt_bias: &'a [f64],
}

impl HeadGate<'_> {
    /// Log decay `[K]` of one token from its raw gate `[K]`.
    pub fn log_decay(&self, raw: &[f64]) -> Vec<f64> {
        raw.iter().zip(self.dt_bias).map(|(a, bias)| self.gate.log_decay(a + bias, self.a_log)).collect()
    }
}

/// Draft tokens of one request and head, after the convolution: `T` rows of q `[K]`, k `[K]`, v `[V]`, raw gate `[K]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Drafts {
    /// Channels of a key head.
    pub keys: usize,
    /// Channels of a value head.
    pub values: usize,
    /// `[T, K]`.
    pub q: Vec<f64>,
    /// `[T, K]`.
    pub k: Vec<f64>,
    /// `[T, V]`.
    pub v: Vec<f64>,
    /// `[T, K]`.
    pub raw_gate: Vec<f64>,
    /// Logits `[T]`.
    pub raw_beta: Vec<f64>,
}

/// What a verify stores of its tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Records {
    /// Channels of a key head.
    pub keys: usize,
    /// Channels of a value head.
    pub values: usize,
    /// The corrections u `[T, V]`.
    pub corr: Vec<f64>,
    /// `[T, 2K]`: the key after the convolution, not normalised, then the raw gate. Copies.
    pub kg: Vec<f64>,
}

impl Records {
    /// Number of recorded tokens.
    pub fn len(&self) -> usize {
        self.corr.len() / self.values
    }

    /// True when no token is recorded.
    pub fn is_empty(&self) -> bool {
        self.corr.is_empty()
    }

    /// Normalised key, log decay and correction of record `i`.
    fn record(&self, i: usize, gate: &HeadGate<'_>) -> (Vec<f64>, Vec<f64>, &[f64]) {
        let (k, raw) = self.kg[2 * i * self.keys..2 * (i + 1) * self.keys].split_at(self.keys);
        let mut kn = k.to_vec();
        l2_normalise(&mut kn, 1.0);
        (kn, gate.log_decay(raw), &self.corr[i * self.values..(i + 1) * self.values])
    }
}

/// Verifies the drafts against a state that is only read: outputs `[T, V]` and the records.
///
/// # Panics
/// If the state or a draft tensor is shorter than the sizes say.
pub fn verify(state: &[f64], drafts: &Drafts, gate: &HeadGate<'_>, scale: f64) -> (Vec<f64>, Records) {
    let (keys, values, tokens) = (drafts.keys, drafts.values, drafts.raw_beta.len());
    let mut state = state.to_vec();
    let mut o = vec![0.0; tokens * values];
    let mut records = Records { keys, values, corr: vec![0.0; tokens * values], kg: Vec::new() };
    for t in 0..tokens {
        let (key_range, value_range) = (t * keys..(t + 1) * keys, t * values..(t + 1) * values);
        let (mut q, mut k) = (drafts.q[key_range.clone()].to_vec(), drafts.k[key_range.clone()].to_vec());
        let raw_gate = &drafts.raw_gate[key_range];
        records.kg.extend(k.iter().chain(raw_gate));
        l2_normalise(&mut q, scale);
        l2_normalise(&mut k, 1.0);
        let token = Token {
            q: &q,
            k: &k,
            v: &drafts.v[value_range.clone()],
            log_decay: &gate.log_decay(raw_gate),
            beta: sigmoid(drafts.raw_beta[t]),
        };
        step(&mut state, token, &mut records.corr[value_range.clone()], &mut o[value_range]);
    }
    (o, records)
}

/// Applies the first `n` records to the state, token after token: `S <- S exp(g) + u kn^T`. `n = 0` leaves its bits.
///
/// # Panics
/// If there are fewer than `n` records.
pub fn commit(state: &mut [f64], records: &Records, n: usize, gate: &HeadGate<'_>) {
    for i in 0..n {
        let (kn, log_decay, u) = records.record(i, gate);
        for ((row, k), g) in state.chunks_exact_mut(records.values).zip(kn).zip(log_decay) {
            let decay = g.exp();
            row.iter_mut().zip(u).for_each(|(s, u)| *s = *s * decay + u * k);
        }
    }
}

/// [`commit`] in reverse order: the newest record first, earlier ones by a running product of decays (all at most 1).
///
/// # Panics
/// If there are fewer than `n` records.
pub fn commit_reverse(state: &mut [f64], records: &Records, n: usize, gate: &HeadGate<'_>) {
    let mut suffix = vec![1.0; records.keys];
    let mut sum = vec![0.0; state.len()];
    for i in (0..n).rev() {
        let (kn, log_decay, u) = records.record(i, gate);
        for (key, row) in sum.chunks_exact_mut(records.values).enumerate() {
            row.iter_mut().zip(u).for_each(|(s, u)| *s += u * kn[key] * suffix[key]);
            suffix[key] *= log_decay[key].exp();
        }
    }
    for ((row, sum), decay) in state.chunks_exact_mut(records.values).zip(sum.chunks_exact(records.values)).zip(suffix)
    {
        row.iter_mut().zip(sum).for_each(|(s, sum)| *s = *s * decay + sum);
    }
}
