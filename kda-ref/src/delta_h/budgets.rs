//! The reference of a kernel test: float64 values of every part of the results, and how far a kernel may be off.
//!
//! Parts are h, v_new and the final state of each sequence and value head. Two bounds hold for a part, both against the exact
//! recurrence (see [`crate::budget`] for the factors), and for elements of v_new a third one, against the emulation:
//! ```text
//! |error|_F   <= 1.02 * storage + 2 * emulation + floor
//! |error|_max <= 1.02 * storage + 4 * emulation + floor
//! |v_new - emulation| <= ulp(larger of both) + max(1, 4 * spread) * sensitivity
//! storage     = error of the exact values once rounded to the stored type;   emulation = its error before that rounding
//! sensitivity = sums in another order, and one rounding of S and of an earlier x on the other side of a tie
//! spread      = how many sensitivities beyond an ulp the two emulations are apart in this call
//! floor       = one unit in the last place of fp32; of v_new beside it 2^-7 sensitivity, of states the smallest normal number
//! ```
//! There are two emulations, by fused multiply-adds and by tensor cores, and the larger error counts; elements are compared with
//! the former. They cut sequences where the kernel does. The final state of an empty sequence is judged by
//! its bits.
//!
//! In the distance to the exact recurrence the rounding of operands weighs most, so that over many chunks without decay a state
//! kept in bf16 may pass. The results against each other, in [`mod@super::consistency`], leave no room for it.

use super::HEAD;
use super::problem::{Problem, Refusal};
use super::run::{Machine, Masked, Results, run, walk};
use super::schedule::{Schedule, Sequence, Split};
use super::segments::{Operand, fold};
use super::sensitivity::sensitivities;
use crate::Mode;
use crate::budget::{ErrorMeasure, FACTOR_MAX, FACTOR_RMS, FLOOR, Judgement, STORAGE_MARGIN, Stored};
use crate::emulate::delta_h::Unit;
use crate::floats::Floats;
use crate::round::to_bf16;

/// One of the three results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// Stored chunk states.
    H,
    /// Corrected values.
    VNew,
    /// Final states.
    Final,
}

/// A result of one sequence and value head, and its bounds.
#[derive(Clone, Debug)]
struct Part {
    output: Output,
    sequence: usize,
    head: usize,
    /// First elements of its blocks in the buffer, and the length of each.
    blocks: (Vec<usize>, usize),
    exact: Vec<f64>,
    limit: ErrorMeasure,
    /// Every bit counts: the sequence is empty.
    bitwise: bool,
    /// Stored values of the emulation, and what each may be off by beside an ulp; empty but for v_new.
    elements: Vec<(f64, f64)>,
}

/// How a part fared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged {
    /// Which result.
    pub output: Output,
    /// Of which sequence.
    pub sequence: usize,
    /// Of which value head.
    pub head: usize,
    /// Errors relative to the reference, absolute where that is all zeros. Passes only with every element within its bound.
    pub judgement: Judgement,
    /// Elements.
    pub elements: usize,
    /// Elements of v_new that differ from the emulation; of the final state of an empty sequence, from its initial state.
    pub differing: usize,
    /// Elements of v_new that are more than an ulp off the emulation.
    pub beyond_an_ulp: usize,
    /// Elements of v_new that are out of their bound, and all that differ of an empty sequence.
    pub beyond_their_bound: usize,
}

/// The reference of one call.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Exact results, and the masks of what is written.
    pub exact: Results,
    /// How many sensitivities beyond an ulp the two emulations are apart at most.
    pub spread: f64,
    parts: Vec<Part>,
}

/// Distance between neighbouring bf16 values at the magnitude of `x`.
pub fn bf16_ulp(x: f64) -> f64 {
    let exponent = if x == 0.0 { -126 } else { (x.abs().log2().floor() as i32).max(-126) };
    2f64.powi(exponent - 7)
}

/// How far two emulations are apart beyond an ulp, in units of `unit`.
fn beyond(a: f64, b: f64, unit: f64) -> f64 {
    let distance = (a - b).abs() - bf16_ulp(a.abs().max(b.abs()));
    if distance > 0.0 { distance / unit } else { 0.0 }
}

/// Runs the exact model and the emulations; `split` is that of a kernel that cuts sequences.
///
/// # Errors
/// As [`run()`].
pub fn reference(problem: &Problem<'_>, split: Option<Split>) -> Result<Checked, Refusal> {
    let emulate =
        |unit| walk(problem, &Machine::emulation(unit, split.map(|split| (split, fold(Operand::HighAndLow)))));
    let exact = run(problem, Mode::Exact)?;
    let versions = [emulate(Unit::Lanes)?, emulate(Unit::TensorCore)?];
    let units = exact.v_new.as_ref().map(|v_new| sensitivities(problem, v_new.values.len()));
    let mut checked = Checked { exact, spread: 0.0, parts: Vec::new() };
    if let ([Some(a), Some(b)], Some(units)) = (versions.each_ref().map(|v| v.v_new.as_ref()), &units) {
        let apart = |i: usize| beyond(to_bf16(a.values[i]), to_bf16(b.values[i]), units[i]);
        let written = (0..a.written.len()).filter(|&i| a.written[i]);
        checked.spread = written.map(apart).fold(0.0, f64::max);
    }
    for sequence in &checked.exact.schedule.sequences {
        for head in 0..problem.hv {
            for (output, stored) in
                [(Output::H, Stored::Bf16), (Output::VNew, Stored::Bf16), (Output::Final, problem.stored)]
            {
                let of = |results: &Results| -> Option<Vec<f64>> {
                    let blocks = blocks(problem, &results.schedule, output, sequence, head);
                    Some(gather(&buffer(results, output)?.values, &blocks))
                };
                let [Some(a), Some(b)] = versions.each_ref().map(of) else { continue };
                let Some(values) = of(&checked.exact) else { continue };
                let blocks = blocks(problem, &checked.exact.schedule, output, sequence, head);
                let units = if output == Output::VNew { units.as_ref().map(|u| gather(u, &blocks)) } else { None };
                let mut floor = vec![f64::from(f32::MIN_POSITIVE); values.len()];
                let mut elements = Vec::new();
                if let Some(units) = units {
                    floor = units.iter().map(|unit| unit * 2f64.powi(-7)).collect();
                    let factor = (FACTOR_MAX * checked.spread).max(1.0);
                    elements = a.iter().zip(&units).map(|(x, unit)| (to_bf16(*x), factor * unit)).collect();
                }
                let bitwise = sequence.chunks() == 0;
                let limit = limit(&values, &[a, b], stored, &floor);
                checked.parts.push(Part {
                    output,
                    sequence: sequence.n,
                    head,
                    blocks,
                    exact: values,
                    limit,
                    bitwise,
                    elements,
                });
            }
        }
    }
    Ok(checked)
}

fn buffer(results: &Results, output: Output) -> Option<&Masked> {
    match output {
        Output::H => results.h.as_ref(),
        Output::VNew => results.v_new.as_ref(),
        Output::Final => results.final_state.as_ref(),
    }
}

fn gather(values: &[f64], (begins, len): &(Vec<usize>, usize)) -> Vec<f64> {
    begins.iter().flat_map(|&begin| &values[begin..begin + len]).copied().collect()
}

/// Where a part lies in its buffer.
pub(crate) fn blocks(
    p: &Problem<'_>,
    schedule: &Schedule,
    output: Output,
    s: &Sequence,
    head: usize,
) -> (Vec<usize>, usize) {
    match output {
        Output::H => {
            let end = schedule.chunk_offsets[s.n + 1];
            ((s.h..end).map(|index| p.h_at(index, head)).collect(), super::STATE)
        }
        Output::VNew => ((s.rows.0..s.rows.1).map(|token| p.v_new_at(token, head)).collect(), HEAD),
        Output::Final => (p.write_slot(s.n).map(|slot| p.final_at(slot, head)).into_iter().collect(), super::STATE),
    }
}

/// Frobenius norm and largest magnitude of the difference; NaN if it holds a NaN.
pub(crate) fn distance(a: &[f64], b: &[f64]) -> ErrorMeasure {
    let differences = a.iter().zip(b).map(|(a, b)| if a == b { 0.0 } else { (a - b).abs() });
    let (sum, max) = differences.fold((0.0, 0.0f64), |(sum, max), d| (sum + d * d, max.max(d)));
    ErrorMeasure { rms: f64::sqrt(sum), max: if f64::is_nan(sum) { f64::NAN } else { max } }
}

/// Absolute bounds of a part.
fn limit(exact: &[f64], versions: &[Vec<f64>], stored: Stored, floor: &[f64]) -> ErrorMeasure {
    let zeros = vec![0.0; exact.len()];
    let rounded: Vec<f64> = exact.iter().map(|&x| stored.round(x)).collect();
    let (storage, norm, floor) = (distance(exact, &rounded), distance(exact, &zeros), distance(floor, &zeros));
    let arithmetic = versions.iter().map(|version| distance(exact, version));
    let worst = arithmetic.fold(ErrorMeasure { rms: 0.0, max: 0.0 }, |a, b| ErrorMeasure {
        rms: if b.rms.is_nan() { b.rms } else { a.rms.max(b.rms) },
        max: if b.max.is_nan() { b.max } else { a.max.max(b.max) },
    });
    ErrorMeasure {
        rms: STORAGE_MARGIN * storage.rms + FACTOR_RMS * worst.rms + FLOOR * norm.rms + floor.rms,
        max: STORAGE_MARGIN * storage.max + FACTOR_MAX * worst.max + FLOOR * norm.max + floor.max,
    }
}

impl Checked {
    /// Judges what a kernel stored in one of the results: every part of it, empty sequences included.
    ///
    /// # Panics
    /// If `measured` is shorter than the buffer of the problem.
    pub fn judge(&self, output: Output, measured: Floats<'_>) -> Vec<Judged> {
        self.parts.iter().filter(|part| part.output == output).map(|part| part.judge(measured)).collect()
    }
}

impl Part {
    fn judge(&self, measured: Floats<'_>) -> Judged {
        let (begins, len) = &self.blocks;
        let got: Vec<f64> = begins.iter().flat_map(|&begin| measured.widened(begin, *len)).collect();
        let judgement = judge(&self.exact, self.limit, &got);
        let (mut differing, mut beyond_an_ulp, mut beyond_their_bound) = (0, 0, 0);
        for (got, (want, slack)) in got.iter().zip(&self.elements) {
            let (distance, ulp) = ((got - want).abs(), bf16_ulp(got.abs().max(want.abs())));
            let within = |bound: f64| got == want || distance <= bound;
            differing += usize::from(!within(0.0));
            beyond_an_ulp += usize::from(!within(ulp));
            beyond_their_bound += usize::from(!within(ulp + slack));
        }
        if self.bitwise {
            differing = got.iter().zip(&self.exact).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
            beyond_their_bound = differing;
        }
        Judged {
            output: self.output,
            sequence: self.sequence,
            head: self.head,
            judgement: Judgement { passes: judgement.passes && beyond_their_bound == 0, ..judgement },
            elements: got.len(),
            differing,
            beyond_an_ulp,
            beyond_their_bound,
        }
    }
}

/// Judges by absolute bounds; what is returned is relative to the reference, where that is not all zeros.
pub(crate) fn judge(reference: &[f64], limit: ErrorMeasure, got: &[f64]) -> Judgement {
    let (error, norm) = (distance(reference, got), distance(reference, &vec![0.0; reference.len()]));
    let ratio = |x: f64, norm: f64| if norm > 0.0 { x / norm } else { x };
    let relative = |m: ErrorMeasure| ErrorMeasure { rms: ratio(m.rms, norm.rms), max: ratio(m.max, norm.max) };
    let passes = error.rms <= limit.rms && error.max <= limit.max;
    Judgement { error: relative(error), limit: relative(limit), passes }
}
