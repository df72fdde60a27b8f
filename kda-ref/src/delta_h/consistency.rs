//! Results of a kernel against each other: each step of the recurrence from what the kernel itself stored before it.
//!
//! ```text
//! v_new[R]        in  [bf16(x - e), bf16(x + e)],  x = u - w h as stored,  e = 2^-16 (|u| + sum |w h|)       with every h stored
//! h, final state  =   S * decay + kg^T v_new as stored, chunk after chunk from the initial state             with v_new stored
//! ```
//! No rounding of an operand is between the two sides, so that nothing but fp32 accumulation sets them apart: of states, 1.02
//! times the rounding to the stored type and four times the error of the tensor-core emulation on the same v_new, in norm and in
//! the largest element. The second line is skipped for sequences that a kernel cuts, whose states come through maps, and with a
//! scalar gate, where the operand of the update is not stored.

use super::budgets::{Output, blocks, distance, judge};
use super::problem::{Gate, Problem, Refusal, validate};
use super::schedule::{Schedule, Sequence, Split};
use super::step::{Chunk, update};
use super::{CHUNK, HEAD, STATE};
use crate::budget::{ErrorMeasure, FACTOR_MAX, FLOOR, Judgement, STORAGE_MARGIN, Stored};
use crate::emulate::delta_h::{self as emulate, Unit};
use crate::floats::Floats;
use crate::layout::StateOrder;
use crate::round::{to_bf16, widen};
use half::bf16;

/// What a kernel stored: the buffers that the problem has.
#[derive(Clone, Copy, Debug)]
pub struct Got<'a> {
    /// Chunk states.
    pub h: Option<&'a [bf16]>,
    /// Corrected values.
    pub v_new: Option<&'a [bf16]>,
    /// The pool of final states.
    pub final_state: Option<Floats<'a>>,
}

/// How the results of one sequence and value head agree; what could not be compared is absent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Consistency {
    /// Of which sequence.
    pub sequence: usize,
    /// Of which value head.
    pub head: usize,
    /// Chunk states and the v_new before them.
    pub h: Option<Judgement>,
    /// The final state and v_new.
    pub final_state: Option<Judgement>,
    /// Elements of v_new, and those that do not follow from h.
    pub v_new: Option<(usize, usize)>,
    /// True when all that was compared agrees.
    pub passes: bool,
}

/// Compares the results of every processed sequence and head; `split` is that of a kernel that cuts sequences.
///
/// # Errors
/// As [`super::run()`].
///
/// # Panics
/// If a buffer is shorter than the problem says.
pub fn consistency(p: &Problem<'_>, split: Option<Split>, got: &Got<'_>) -> Result<Vec<Consistency>, Refusal> {
    validate(p)?;
    let schedule = p.schedule();
    let mut out = Vec::new();
    for sequence in &schedule.sequences {
        for head in 0..p.hv {
            let uncut = split.is_none_or(|split| split.parts(sequence.chunks()) == 1);
            let forced = uncut && !matches!(p.gate, Gate::Scalar(_));
            let states = match got.v_new.filter(|_| forced) {
                Some(v_new) => states(p, &schedule, sequence, head, v_new, got),
                None => [None, None],
            };
            let v_new = match (got.h.filter(|_| p.h_every == 1), got.v_new) {
                (Some(h), Some(v_new)) => Some(values(p, sequence, head, h, v_new)),
                _ => None,
            };
            let passes =
                states.iter().flatten().all(|states| states.passes) && v_new.is_none_or(|(_, wrong)| wrong == 0);
            let [h, final_state] = states;
            out.push(Consistency { sequence: sequence.n, head, h, final_state, v_new, passes });
        }
    }
    Ok(out)
}

/// Elements of v_new, and those that do not follow from the stored chunk states.
fn values(p: &Problem<'_>, sequence: &Sequence, head: usize, h: &[bf16], v_new: &[bf16]) -> (usize, usize) {
    let mut wrong = 0;
    for index in 0..sequence.chunks() {
        let chunk: Chunk<f64> = p.chunk(sequence, index, head, f64::exp2);
        let base = p.h_at(sequence.h + index, head);
        let state = p.h_order.load(HEAD, HEAD, |i| f64::from(widen(h[base + i])));
        for (row, w) in chunk.w.chunks_exact(HEAD).enumerate() {
            let u = &chunk.u[row * HEAD..(row + 1) * HEAD];
            let (mut x, mut sum) = (u.to_vec(), u.iter().map(|u| u.abs()).collect::<Vec<f64>>());
            for (w, h) in w.iter().zip(state.chunks_exact(HEAD)) {
                for ((x, sum), h) in x.iter_mut().zip(&mut sum).zip(h) {
                    *x -= w * h;
                    *sum += (w * h).abs();
                }
            }
            let at = p.v_new_at(sequence.rows.0 + index * CHUNK + row, head);
            for ((x, sum), got) in x.iter().zip(&sum).zip(&v_new[at..at + HEAD]) {
                let (reach, got) = (sum * 2f64.powi(-16), f64::from(widen(*got)));
                wrong += usize::from(!(to_bf16(x - reach) <= got && got <= to_bf16(x + reach)));
            }
        }
    }
    ((sequence.rows.1 - sequence.rows.0) * HEAD, wrong)
}

/// Judges the chunk states and the final state by those that the stored v_new gives.
fn states(
    p: &Problem<'_>,
    schedule: &Schedule,
    sequence: &Sequence,
    head: usize,
    v_new: &[bf16],
    got: &Got<'_>,
) -> [Option<Judgement>; 2] {
    let mut exact: Vec<f64> = p.initial_state(sequence.n, head);
    let mut emulated: Vec<f32> = p.initial_state(sequence.n, head);
    let mut kept = Pair::default();
    for index in 0..sequence.chunks() {
        if index.is_multiple_of(p.h_every) {
            kept.push(p.h_order, &exact, &emulated);
        }
        let (begin, end) = sequence.chunk_rows(index, index + 1);
        let rows = (begin..end).map(|token| p.v_new_at(token, head));
        let operand: Vec<f32> = rows.flat_map(|at| &v_new[at..at + HEAD]).map(|x| widen(*x)).collect();
        let wide: Vec<f64> = operand.iter().map(|x| f64::from(*x)).collect();
        update(&mut exact, &p.chunk(sequence, index, head, f64::exp2), &wide);
        let unit = Unit::TensorCore;
        emulate::update(&mut emulated, &p.chunk(sequence, index, head, emulate::exp2(unit)), &operand, unit);
    }
    let mut last = Pair::default();
    last.push(p.order, &exact, &emulated);
    let measured = |output, buffer: Floats<'_>| -> Vec<f64> {
        let (begins, len) = blocks(p, schedule, output, sequence, head);
        begins.iter().flat_map(|&begin| buffer.widened(begin, len)).collect()
    };
    let h = got.h.map(|h| kept.judge(Stored::Bf16, &measured(Output::H, Floats::Bf16(h))));
    let pool = got.final_state.filter(|_| p.write_slot(sequence.n).is_some());
    [h, pool.map(|pool| last.judge(p.stored, &measured(Output::Final, pool)))]
}

/// Exact and emulated states in the order of a buffer.
#[derive(Default)]
struct Pair {
    exact: Vec<f64>,
    emulated: Vec<f64>,
}

impl Pair {
    fn push(&mut self, order: StateOrder, exact: &[f64], emulated: &[f32]) {
        let from = |i: usize| order.offset(i / HEAD, i % HEAD, HEAD, HEAD);
        self.exact.extend((0..STATE).map(|i| exact[from(i)]));
        self.emulated.extend((0..STATE).map(|i| f64::from(emulated[from(i)])));
    }

    fn judge(&self, stored: Stored, got: &[f64]) -> Judgement {
        let rounded: Vec<f64> = self.exact.iter().map(|&x| stored.round(x)).collect();
        let (storage, error) = (distance(&self.exact, &rounded), distance(&self.exact, &self.emulated));
        let norm = distance(&self.exact, &vec![0.0; self.exact.len()]);
        let smallest = f64::from(f32::MIN_POSITIVE);
        let limit = |storage: f64, error: f64, norm: f64, count: f64| {
            STORAGE_MARGIN * storage + FACTOR_MAX * error + FLOOR * norm + smallest * count.sqrt()
        };
        let limit = ErrorMeasure {
            rms: limit(storage.rms, error.rms, norm.rms, self.exact.len() as f64),
            max: limit(storage.max, error.max, norm.max, 1.0),
        };
        judge(&self.exact, limit, got)
    }
}
