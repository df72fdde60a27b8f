//! Walks the requests of a call: metadata rules, states at the destination and the boundary, compaction of windows.

use super::problem::{Commit, Outputs, Problem};
use super::validate;
use super::{HEAD, HISTORY, Refusal};
use crate::Mode;
use crate::emulate::tc_verify as emulated;
use crate::layout::StateOrder;
use crate::records::{self, HeadGate, Records};
use crate::tc_verify::head::{GateOf, WEAKENED, single};
use half::bf16;

/// The arithmetic of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    /// Float64.
    Golden,
    /// Float64 with [`GateOf::stronger`] gates and [`WEAKENED`] states.
    StrongerDecay,
    /// fp32 from the first record on: the state decays once a record.
    Forward,
    /// fp32 from the last record, by running products of decays: the state decays once. As right as `Forward`.
    Reverse,
}

/// Runs the operator. See [`Outputs`] for what is written; a call without requests writes nothing. In [`Mode::Emulate`] states are
/// fp32 values held in float64, made in forward order; the other modes give the same.
///
/// # Errors
/// A [`Refusal`] when sizes or pitches do not fit, or a slot is written by one request and used by another; nothing is written
/// then.
pub fn run(problem: &Problem<'_>, outputs: &mut Outputs<'_>, mode: Mode) -> Result<(), Refusal> {
    let arithmetic = if mode == Mode::Emulate { Arithmetic::Forward } else { Arithmetic::Golden };
    validate::inputs(problem)?;
    validate::outputs(problem, outputs)?;
    for commit in problem.commits() {
        for head in 0..problem.heads {
            for (records, slot) in commit.targets() {
                let state = state(problem, &commit, head, records, arithmetic);
                let to = slot * problem.state_pitch + head * HEAD * HEAD;
                StateOrder::VFirst.store(HEAD, HEAD, &state, &mut outputs.state[to..to + HEAD * HEAD]);
            }
        }
        if let Some(conv) = &mut outputs.conv {
            compact(problem, conv, &commit);
        }
    }
    Ok(())
}

/// The source's state of a head with the first `n` records applied, K-first.
pub(super) fn state(p: &Problem<'_>, commit: &Commit, head: usize, n: usize, arithmetic: Arithmetic) -> Vec<f64> {
    let record = p.record(commit.b, head, 0);
    let records = Records {
        keys: HEAD,
        values: HEAD,
        corr: p.corr.widened(record, n * HEAD),
        kg: p.kg.widened(2 * record, 2 * n * HEAD),
    };
    let gate = GateOf::new(p.gate(), p.a_log(head), p.dt_bias, head);
    let base = commit.source * p.state_pitch + head * HEAD * HEAD;
    let mut state = StateOrder::VFirst.load(HEAD, HEAD, |i| p.state.get(base + i));
    let in_fp32 = |apply: fn(&mut [f32], &Records, usize, &HeadGate<'_>)| {
        let mut narrow: Vec<f32> = state.iter().map(|&s| s as f32).collect();
        apply(&mut narrow, &records, n, &gate.view());
        narrow.into_iter().map(f64::from).collect()
    };
    match arithmetic {
        Arithmetic::Forward => return in_fp32(emulated::commit),
        Arithmetic::Reverse => return in_fp32(emulated::commit_reverse),
        Arithmetic::Golden => records::commit(&mut state, &records, n, &gate.view()),
        Arithmetic::StrongerDecay => {
            let gate = gate.stronger();
            for i in 0..n {
                state.iter_mut().for_each(|s| *s *= WEAKENED);
                records::commit(&mut state, &single(&records, i), 1, &gate.view());
            }
        }
    }
    state
}

/// Rows n-1 .. n+1 of the source's window become rows 0..2 of the destination's. The problem's own pool is never written.
pub(super) fn compact(p: &Problem<'_>, compacted: &mut [bf16], commit: &Commit) {
    let Some(conv) = &p.conv else { return };
    let offset = |slot: usize, row: usize, channel: usize| {
        slot * conv.pitch + conv.order.offset(row, channel, p.conv_rows(), p.channels())
    };
    for (records, slot) in commit.targets() {
        for (row, channel) in (0..HISTORY).flat_map(|row| (0..p.channels()).map(move |channel| (row, channel))) {
            compacted[offset(slot, row, channel)] = conv.pool[offset(commit.source, records - 1 + row, channel)];
        }
    }
}
