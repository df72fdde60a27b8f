//! One head of one request: its tokens, its state, and the verify in float64 or in a kernel's arithmetic.

use super::HEAD;
use super::problem::{Problem, Request};
use crate::budget::FLOOR;
use crate::emulate::tc_verify as emulated;
use crate::gate::Gate;
use crate::layout::StateOrder;
use crate::records::{Drafts, HeadGate, Records, commit, verify};
use crate::round::widen;

/// The arithmetic of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    /// Float64.
    Golden,
    /// Float64 with [`GateOf::stronger`] gates and [`WEAKENED`] states.
    StrongerDecay,
    /// fp32 and bf16, as a kernel has it. Activations are bf16 values.
    Emulated,
}

/// What a head's gate needs beside the raw gate; owns the widened bias.
#[derive(Clone, Debug)]
pub(crate) struct GateOf {
    gate: Gate,
    a_log: f64,
    dt_bias: Vec<f64>,
}

impl GateOf {
    /// Of a head; `dt_bias` is `[heads, K]`.
    pub(crate) fn new(gate: Gate, a_log: f32, dt_bias: &[f32], head: usize) -> Self {
        let bias = &dt_bias[head * HEAD..][..HEAD];
        GateOf { gate, a_log: f64::from(a_log), dt_bias: bias.iter().map(|&b| f64::from(b)).collect() }
    }

    /// The gate with log decays one unit of the last fp32 place larger.
    pub(crate) fn stronger(mut self) -> Self {
        match &mut self.gate {
            Gate::Bounded { lower_bound } => *lower_bound *= 1.0 + FLOOR,
            Gate::Softplus => self.a_log += FLOOR,
        }
        self
    }

    /// As the records take it.
    pub(crate) fn view(&self) -> HeadGate<'_> {
        HeadGate { gate: self.gate, a_log: self.a_log, dt_bias: &self.dt_bias }
    }
}

/// What every token leaves of a state where each decay is one unit of the last fp32 place below 1 smaller than it should be.
pub(crate) const WEAKENED: f64 = 1.0 - FLOOR / 2.0;

/// Record `i` alone.
pub(crate) fn single(records: &Records, i: usize) -> Records {
    let corr = records.corr[i * HEAD..(i + 1) * HEAD].to_vec();
    Records { corr, kg: records.kg[2 * i * HEAD..2 * (i + 1) * HEAD].to_vec(), ..*records }
}

/// As [`verify`], with [`WEAKENED`] states.
fn verify_weakened(mut state: Vec<f64>, drafts: &Drafts, gate: &HeadGate<'_>, scale: f64) -> (Vec<f64>, Records) {
    let (mut outs, mut records) = (Vec::new(), Records { keys: HEAD, values: HEAD, corr: Vec::new(), kg: Vec::new() });
    for t in 0..drafts.raw_beta.len() {
        let row = |x: &[f64]| x[t * HEAD..(t + 1) * HEAD].to_vec();
        let token = Drafts {
            q: row(&drafts.q),
            k: row(&drafts.k),
            v: row(&drafts.v),
            raw_gate: row(&drafts.raw_gate),
            raw_beta: vec![drafts.raw_beta[t]],
            ..*drafts
        };
        state.iter_mut().for_each(|s| *s *= WEAKENED);
        let (o, record) = verify(&state, &token, gate, scale);
        commit(&mut state, &record, 1, gate);
        outs.extend(o);
        records.corr.extend(record.corr);
        records.kg.extend(record.kg);
    }
    (outs, records)
}

/// The tokens of a head; `activations` is `[len, 3, heads, K]`.
pub(super) fn drafts(p: &Problem<'_>, request: &Request, head: usize, activations: &[f64]) -> Drafts {
    let part = |part: usize| {
        let token = |t: usize| &activations[t * p.channels() + (part * p.heads + head) * HEAD..][..HEAD];
        (0..request.len).flat_map(token).copied().collect::<Vec<f64>>()
    };
    let rows = request.begin..request.begin + request.len;
    let gates = |row: usize| &p.raw_g[row * p.g_pitch + head * HEAD..][..HEAD];
    Drafts {
        keys: HEAD,
        values: HEAD,
        q: part(0),
        k: part(1),
        v: part(2),
        raw_gate: rows.clone().flat_map(gates).map(|&g| f64::from(widen(g))).collect(),
        raw_beta: rows.map(|row| f64::from(widen(p.raw_beta[row * p.beta_pitch + head]))).collect(),
    }
}

/// Outputs `[len, V]` before rounding and the records of a head.
pub(super) fn run(
    p: &Problem<'_>,
    slot: usize,
    head: usize,
    drafts: &Drafts,
    arithmetic: Arithmetic,
) -> (Vec<f64>, Records) {
    let gate = GateOf::new(p.gate(), p.a_log(head), p.dt_bias, head);
    let base = slot * p.state_pitch + head * HEAD * HEAD;
    let state = StateOrder::VFirst.load(HEAD, HEAD, |i| p.state.get(base + i));
    match arithmetic {
        Arithmetic::Golden => verify(&state, drafts, &gate.view(), p.scale),
        Arithmetic::StrongerDecay => verify_weakened(state, drafts, &gate.stronger().view(), p.scale),
        Arithmetic::Emulated => {
            let state: Vec<f32> = state.into_iter().map(|s| s as f32).collect();
            emulated::verify(&state, drafts, &gate.view(), p.scale as f32)
        }
    }
}
