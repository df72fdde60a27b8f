//! Walks the sequences and heads of a call.

use super::problem::{Problem, Refusal, validate};
use super::schedule::{Schedule, Sequence, Split};
use super::segments::{Fold, next_start};
use super::step::{Chunk, Real, golden};
use super::{CHUNK, HEAD, STATE};
use crate::Mode;
use crate::emulate::delta_h::{self as emulate, Unit};
use crate::round::{to_bf16, to_bf16_other_tie};
use std::ops::Range;

/// A buffer that a call writes parts of.
#[derive(Clone, Debug, PartialEq)]
pub struct Masked {
    /// Values before the rounding to the stored type; NaN where nothing is written.
    pub values: Vec<f64>,
    /// What the call writes. Everything else keeps its bits.
    pub written: Vec<bool>,
}

impl Masked {
    fn new(len: usize) -> Masked {
        Masked { values: vec![f64::NAN; len], written: vec![false; len] }
    }

    fn put(&mut self, begin: usize, values: impl ExactSizeIterator<Item = f64>) {
        self.written[begin..begin + values.len()].fill(true);
        self.values[begin..].iter_mut().zip(values).for_each(|(to, from)| *to = from);
    }

    /// Elements that the call does not write and whose bits differ all the same; `bits` are given by index.
    pub fn touched(&self, before: impl Fn(usize) -> u32, after: impl Fn(usize) -> u32) -> usize {
        (0..self.written.len()).filter(|&i| !self.written[i] && before(i) != after(i)).count()
    }
}

/// The results of one call. A buffer that the problem does not have is absent.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// State before every m-th chunk, in the order of h.
    pub h: Option<Masked>,
    /// Corrected values x.
    pub v_new: Option<Masked>,
    /// The pool of final states.
    pub final_state: Option<Masked>,
    /// What was processed.
    pub schedule: Schedule,
}

/// Runs the operator. In [`Mode::Emulate`] results are fp32 values held in float64.
///
/// # Errors
/// A [`Refusal`] when sizes, strides or slots do not fit. Boundaries may be anything: see [`super::schedule`].
pub fn run(problem: &Problem<'_>, mode: Mode) -> Result<Results, Refusal> {
    match mode {
        Mode::Exact => walk(problem, &Machine::golden(|s, c| golden(s, c, |x| x))),
        Mode::Contract => walk(problem, &Machine::golden(|s, c| golden(s, c, to_bf16))),
        Mode::ContractOtherTies => walk(problem, &Machine::golden(|s, c| golden(s, c, to_bf16_other_tie))),
        Mode::Emulate => walk(problem, &Machine::emulation(Unit::Lanes, None)),
    }
}

/// How a chunk is computed.
pub(crate) struct Machine<T> {
    /// 2^x.
    pub exp2: fn(T) -> T,
    /// Takes a state over a chunk and returns x.
    pub step: fn(&mut [T], &Chunk<T>) -> Vec<T>,
    /// How sequences are cut, and how segments are joined.
    pub segments: Option<(Split, Fold<T>)>,
}

impl Machine<f64> {
    fn golden(step: fn(&mut [f64], &Chunk<f64>) -> Vec<f64>) -> Self {
        Machine { exp2: f64::exp2, step, segments: None }
    }
}

impl Machine<f32> {
    pub(crate) fn emulation(unit: Unit, segments: Option<(Split, Fold<f32>)>) -> Self {
        let step: fn(&mut [f32], &Chunk<f32>) -> Vec<f32> = match unit {
            Unit::Lanes => |s, c| emulate::step(s, c, Unit::Lanes),
            Unit::TensorCore => |s, c| emulate::step(s, c, Unit::TensorCore),
        };
        Machine { exp2: emulate::exp2(unit), step, segments }
    }
}

/// Runs a call on a machine.
pub(crate) fn walk<T: Real>(p: &Problem<'_>, machine: &Machine<T>) -> Result<Results, Refusal> {
    validate(p)?;
    let schedule = p.schedule();
    let [h, v_new, final_state] = p.extents().map(|extent| extent.map(Masked::new));
    let mut results = Results { h, v_new, final_state, schedule };
    for sequence in results.schedule.sequences.clone() {
        let chunks = sequence.chunks();
        let parts = machine.segments.as_ref().map_or(1, |(split, _)| split.parts(chunks));
        for head in 0..p.hv {
            let mut state = p.initial_state(sequence.n, head);
            // The start of the segment that is walked.
            let mut start = Vec::new();
            for segment in 0..parts {
                let of = |segment| {
                    machine.segments.as_ref().map_or((0, chunks), |(split, _)| split.segment(chunks, segment))
                };
                let (first, end) = of(segment);
                if let Some((_, fold)) = machine.segments.as_ref().filter(|_| segment > 0) {
                    let before = of(segment - 1);
                    let gather = |index| p.chunk(&sequence, index, head, machine.exp2);
                    state = match segment {
                        1 => state,
                        _ => next_start(start, (before.0..before.1).map(gather), machine.step, fold),
                    };
                    start = state.clone();
                }
                span(p, machine, (&sequence, head), first..end, &mut state, &mut results);
            }
            if let (Some(pool), Some(slot)) = (&mut results.final_state, p.write_slot(sequence.n)) {
                let at = |i: usize| state[p.order.offset(i / HEAD, i % HEAD, HEAD, HEAD)].wide();
                pool.put(p.final_at(slot, head), (0..STATE).map(at));
            }
        }
    }
    Ok(results)
}

/// Takes the state over chunks of one sequence and head, and keeps what they store.
fn span<T: Real>(
    p: &Problem<'_>,
    machine: &Machine<T>,
    (sequence, head): (&Sequence, usize),
    chunks: Range<usize>,
    state: &mut [T],
    results: &mut Results,
) {
    for index in chunks {
        if let Some(h) = results.h.as_mut().filter(|_| index.is_multiple_of(p.h_every)) {
            let at = |i: usize| state[p.h_order.offset(i / HEAD, i % HEAD, HEAD, HEAD)].wide();
            h.put(p.h_at(sequence.h + index / p.h_every, head), (0..STATE).map(at));
        }
        let x = (machine.step)(state, &p.chunk(sequence, index, head, machine.exp2));
        if let Some(v_new) = &mut results.v_new {
            let first = sequence.rows.0 + index * CHUNK;
            for (row, x) in x.chunks_exact(HEAD).enumerate() {
                v_new.put(p.v_new_at(first + row, head), x.iter().map(|x| x.wide()));
            }
        }
    }
}
