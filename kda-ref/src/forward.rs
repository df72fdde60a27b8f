//! Packed sequences from raw projections to outputs, token by token, in float64.
//!
//! ```text
//! q, k: l2norm (q also * scale);  g = gate(a + dt_bias, A_log);  beta = sigmoid(b);  then the delta rule per value head
//! ```
//! Sequence n owns rows `cu_seqlens[n] .. cu_seqlens[n+1]`; an empty one returns its initial state bit for bit. Source:
//! `naive_recurrent_kda` of fla-core (MIT).

use crate::delta_rule::{Token, step};
use crate::floats::Floats;
use crate::gate::{Gate, sigmoid};
use crate::layout::{StateOrder, key_head, sequences};
use crate::norm::l2_normalise;

/// Sizes and boundaries of packed sequences.
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a> {
    /// Boundaries `[N+1]`, non-decreasing, first value 0. T is the last one.
    pub cu_seqlens: &'a [usize],
    /// Query/key heads H.
    pub heads: usize,
    /// Value heads HV, a multiple of `heads`.
    pub value_heads: usize,
    /// Channels K of a key head.
    pub keys: usize,
    /// Channels V of a value head.
    pub values: usize,
}

impl Packed<'_> {
    /// Tokens of all sequences.
    pub fn tokens(&self) -> usize {
        self.cu_seqlens.last().copied().unwrap_or(0)
    }

    /// Elements of the state of one head.
    pub fn state_len(&self) -> usize {
        self.keys * self.values
    }
}

/// Raw inputs: after the convolution, before norm and gates.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'a> {
    /// Query `[T, H, K]`.
    pub q: Floats<'a>,
    /// Key `[T, H, K]`.
    pub k: Floats<'a>,
    /// Value `[T, HV, V]`.
    pub v: Floats<'a>,
    /// Raw gate `[T, HV, K]`.
    pub a: Floats<'a>,
    /// Raw write strength `[T, HV]`, a logit.
    pub b: Floats<'a>,
    /// `[HV]`; absent = 0.
    pub a_log: Option<Floats<'a>>,
    /// `[HV, K]`; absent = 0.
    pub dt_bias: Option<Floats<'a>>,
    /// Which gate.
    pub gate: Gate,
    /// Multiplies the normalised query.
    pub scale: f64,
}

/// Inputs of the recurrence, float64, per value head.
#[derive(Clone, Debug, PartialEq)]
pub struct Activated {
    /// Normalised, scaled query `[T, HV, K]`.
    pub q: Vec<f64>,
    /// Normalised key `[T, HV, K]`.
    pub k: Vec<f64>,
    /// Value `[T, HV, V]`.
    pub v: Vec<f64>,
    /// Log decay `[T, HV, K]`, natural log.
    pub log_decay: Vec<f64>,
    /// Write strength `[T, HV]`.
    pub beta: Vec<f64>,
}

/// Initial states of all sequences.
#[derive(Clone, Copy, Debug)]
pub struct States<'a> {
    /// `[N, HV, ..]`; absent = zeros.
    pub initial: Option<Floats<'a>>,
    /// Axis order of the initial states and of everything returned.
    pub order: StateOrder,
}

/// Results of the recurrence.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Output of every token `[T, HV, V]`.
    pub o: Vec<f64>,
    /// State after the last token `[N, HV, ..]`.
    pub final_state: Vec<f64>,
    /// State after every token `[T, HV, ..]`; empty unless asked for.
    pub states: Vec<f64>,
}

/// Norms and gates; query and key heads are repeated for their value heads.
///
/// # Panics
/// If an input is shorter than the sizes say.
pub fn activate(packed: &Packed<'_>, raw: &Raw<'_>) -> Activated {
    let (keys, hv) = (packed.keys, packed.value_heads);
    let rows = packed.tokens() * hv;
    let mut out =
        Activated { q: vec![], k: vec![], v: raw.v.widened(0, rows * packed.values), log_decay: vec![], beta: vec![] };
    for row in 0..rows {
        let (token, value_head) = (row / hv, row % hv);
        let source = (token * packed.heads + key_head(value_head, packed.heads, hv)) * keys;
        let (mut q, mut k) = (raw.q.widened(source, keys), raw.k.widened(source, keys));
        l2_normalise(&mut q, raw.scale);
        l2_normalise(&mut k, 1.0);
        out.q.extend(q);
        out.k.extend(k);
        let a_log = raw.a_log.map_or(0.0, |a_log| a_log.get(value_head));
        out.log_decay.extend((0..keys).map(|c| {
            let bias = raw.dt_bias.map_or(0.0, |bias| bias.get(value_head * keys + c));
            raw.gate.log_decay(raw.a.get(row * keys + c) + bias, a_log)
        }));
        out.beta.push(sigmoid(raw.b.get(row)));
    }
    out
}

/// The initial state of one head, K-first.
pub(crate) fn initial_state(packed: &Packed<'_>, states: &States<'_>, sequence: usize, value_head: usize) -> Vec<f64> {
    let begin = (sequence * packed.value_heads + value_head) * packed.state_len();
    match states.initial {
        Some(initial) => states.order.load(packed.keys, packed.values, |i| initial.get(begin + i)),
        None => vec![0.0; packed.state_len()],
    }
}

/// Runs the recurrence over every sequence and value head. `keep_states` also returns the state after every token.
///
/// # Panics
/// If an input is shorter than the sizes say.
pub fn recurrence(packed: &Packed<'_>, inputs: &Activated, states: &States<'_>, keep_states: bool) -> Outcome {
    let (keys, values, hv, size) = (packed.keys, packed.values, packed.value_heads, packed.state_len());
    let rows = packed.tokens() * hv;
    let sequence_count = packed.cu_seqlens.len().saturating_sub(1);
    let mut out = Outcome {
        o: vec![0.0; rows * values],
        final_state: vec![0.0; sequence_count * hv * size],
        states: vec![0.0; if keep_states { rows * size } else { 0 }],
    };
    let mut u = vec![0.0; values];
    for (n, (begin, end)) in sequences(packed.cu_seqlens).enumerate() {
        for value_head in 0..hv {
            let mut state = initial_state(packed, states, n, value_head);
            for row in (begin..end).map(|token| token * hv + value_head) {
                let token = Token {
                    q: &inputs.q[row * keys..(row + 1) * keys],
                    k: &inputs.k[row * keys..(row + 1) * keys],
                    v: &inputs.v[row * values..(row + 1) * values],
                    log_decay: &inputs.log_decay[row * keys..(row + 1) * keys],
                    beta: inputs.beta[row],
                };
                step(&mut state, token, &mut u, &mut out.o[row * values..(row + 1) * values]);
                if keep_states {
                    states.order.store(keys, values, &state, &mut out.states[row * size..(row + 1) * size]);
                }
            }
            let slot = (n * hv + value_head) * size;
            states.order.store(keys, values, &state, &mut out.final_state[slot..slot + size]);
        }
    }
    out
}
