//! One problem on many variants: errors against the golden model, results against each other, and bits that are prescribed.
//!
//! | what | how it is judged |
//! | --- | --- |
//! | h, `v_new`, final states | against fp64 within budgets derived from the emulation; `v_new` element by element too |
//! | the same | each step of the recurrence from what the kernel itself stored before it |
//! | the schedule | head, entries and chunk offsets are those of the golden model |
//! | what nothing may write | bit for bit |
//! | other variants, other orders of states and h, the same call again | bit for bit |
//! | each sequence alone; the others beside one of NaN | bit for bit |

use super::Failure;
use super::call::{Call, Results};
use super::case::{Case, walks_segments};
use super::work;
use crate::checks::conv_verify::call::bf16_bits;
use crate::checks::conv_verify::judge::Worst;
use crate::checks::{Device, Measured};
use half::bf16;
use kda_core::KernelDesc;
use kda_core::exec::Stream;
use kda_ref::delta_h::budgets::{Judged, Output};
use kda_ref::delta_h::sample::{GateForm, PoolForm};
use kda_ref::delta_h::{Checked, Got, HEAD, Masked, STATE, consistency, reference};
use kda_ref::floats::Floats;
use kda_ref::layout::StateOrder;
use kda_runtime::operators::delta_h::{Options, Variant};
use std::collections::{BTreeMap, BTreeSet};

/// Bits of an output that no kernel has written, of two and of four bytes.
const UNTOUCHED: [u32; 2] = [0xFFFF, u32::MAX];

/// What was found over several problems.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Problems that were run.
    pub problems: usize,
    h: Worst,
    v_new: Worst,
    final_state: Worst,
    steps: Worst,
    /// Elements of `v_new` and of states of empty sequences that are out of their bound, or do not follow from h.
    wrong_elements: usize,
    /// Words of schedules and chunk offsets that are not those of the golden model.
    wrong_words: usize,
    /// Elements that differ where bits are prescribed.
    wrong_bits: usize,
}

impl Tally {
    /// The results as rows, one a measure.
    pub fn rows(&self, case: &str) -> Vec<Measured> {
        let found = [
            ("h", self.h.error, self.h.limit),
            ("v_new", self.v_new.error, self.v_new.limit),
            ("final state", self.final_state.error, self.final_state.limit),
            ("states from those before", self.steps.error, self.steps.limit),
            ("elements out of their bound", self.wrong_elements as f64, 0.0),
            ("words of the schedule that differ", self.wrong_words as f64, 0.0),
            ("prescribed bits that differ", self.wrong_bits as f64, 0.0),
        ];
        Measured::over(self.problems, case, &found)
    }

    /// Adds what was found elsewhere.
    fn add(&mut self, other: &Tally) {
        for (worst, other) in [
            (&mut self.h, other.h),
            (&mut self.v_new, other.v_new),
            (&mut self.final_state, other.final_state),
            (&mut self.steps, other.steps),
        ] {
            worst.take(other.error, other.limit);
        }
        self.problems += other.problems;
        self.wrong_elements += other.wrong_elements;
        self.wrong_words += other.wrong_words;
        self.wrong_bits += other.wrong_bits;
    }

    /// Adds the results of one problem.
    pub fn judge(&mut self, results: &Results, expected: &Expected) -> Result<(), Failure> {
        self.problems += 1;
        self.wrong_bits += expected.wrong_bits(results) + results.changed_inputs;
        self.wrong_words += expected.wrong_words(results);
        let (case, got) = (&expected.case, expected.got(results));
        let measured = [got.h.map(Floats::Bf16), got.v_new.map(Floats::Bf16), got.final_state];
        let outputs = [Output::H, Output::VNew, Output::Final];
        let worst = [&mut self.h, &mut self.v_new, &mut self.final_state];
        for ((output, measured), worst) in outputs.into_iter().zip(measured).zip(worst) {
            let Some(measured) = measured else { continue };
            let judged = expected.checked.judge(output, measured);
            for Judged { judgement, beyond_their_bound, .. } in judged.into_iter().filter(|part| part.elements > 0) {
                worst.take(judgement.error.rms, judgement.limit.rms);
                worst.take(judgement.error.max, judgement.limit.max);
                self.wrong_elements += beyond_their_bound;
            }
        }
        for agreed in consistency(&case.sample.problem(), case.segments(), &got)? {
            let has_h = case.sample.switches.h_out;
            for step in [agreed.h.filter(|_| has_h), agreed.final_state].into_iter().flatten() {
                if step.limit.rms > 0.0 {
                    self.steps.take(step.error.rms, step.limit.rms);
                    self.steps.take(step.error.max, step.limit.max);
                } else {
                    self.wrong_elements += usize::from(!step.passes);
                }
            }
            self.wrong_elements += agreed.v_new.map_or(0, |(_, wrong)| wrong);
        }
        Ok(())
    }
}

/// What the golden model says of a case, with states and h in the order `[K, V]`.
pub struct Expected {
    checked: Checked,
    case: Case,
}

impl Expected {
    /// Runs the golden model, and derives the budgets.
    pub fn of(case: &Case) -> Result<Expected, Failure> {
        let case = case.in_orders(StateOrder::KFirst, StateOrder::KFirst);
        let checked = reference(&case.sample.problem(), case.segments())?;
        Ok(Expected { checked, case })
    }

    /// What the problem has of the results.
    fn got<'r>(&self, results: &'r Results) -> Got<'r> {
        let s = &self.case.sample.switches;
        Got {
            h: s.h_out.then_some(&results.h[..]),
            v_new: s.v_new.then_some(&results.v_new[..]),
            final_state: (s.final_state != PoolForm::Absent).then_some(results.final_state.view()),
        }
    }

    /// Elements that nothing may write and that are not what they were.
    fn wrong_bits(&self, results: &Results) -> usize {
        let (s, exact) = (&self.case.sample, &self.checked.exact);
        let poison = |_: usize| UNTOUCHED[0];
        let touched = |mask: &Option<Masked>, before: &dyn Fn(usize) -> u32, after: &[u32]| {
            let mask: &[bool] = mask.as_ref().map_or(&[], |mask| &mask.written);
            let kept = |i: &usize| !mask.get(*i).copied().unwrap_or(false);
            (0..after.len()).filter(kept).filter(|i| before(*i) != after[*i]).count()
        };
        let pool = s.pool.bits();
        let fresh = UNTOUCHED[usize::from(!s.switches.bf16_state)];
        let before = |i: usize| if s.switches.in_place { pool[i] } else { fresh };
        touched(&exact.h, &poison, &bf16_bits(&results.h))
            + touched(&exact.v_new, &poison, &bf16_bits(&results.v_new))
            + touched(&exact.final_state, &before, &results.final_state.bits())
    }

    /// Words of the schedule and chunk offsets that are not those of the golden model.
    fn wrong_words(&self, results: &Results) -> usize {
        work::Asked::of(&self.case).wrong_words(&results.words, Some(&results.offsets))
    }
}

/// The order of h that a variant is written for.
pub fn h_order(variant: impl Into<Variant>) -> StateOrder {
    if variant.into().v_first() { StateOrder::VFirst } else { StateOrder::KFirst }
}

/// Whether a variant is one that walks the sequences of a case, on a device of this compute capability. Without h its order
/// counts as `[K, V]`.
pub fn fits(variant: impl Into<Variant>, case: &Case, (major, minor): (u8, u8)) -> bool {
    let variant = variant.into();
    !variant.maps()
        && walks_segments(variant) == case.batch().cut().is_some()
        && variant.scalar() == (case.sample.switches.gate == GateForm::Scalar)
        && (case.sample.switches.h_out || !variant.v_first())
        && variant.desc().arch.runs_on(major, minor)
}

/// The results of each kernel, by its entry.
pub type Tallies = BTreeMap<&'static str, Tally>;

/// Variants that add in the same order, and so give the same bits: all of those for Hopper, portable ones of one width.
pub type Sums = Option<u32>;

/// The order in which a variant adds.
pub fn sums(variant: Variant) -> Sums {
    (!variant.boxes()).then(|| variant.vs())
}

/// Runs a case on every variant for Hopper that is for it, see [`on_variants`].
pub fn one_case(device: Device, case: &Case, alone: usize, tallies: &mut Tallies) -> Result<(), Failure> {
    let hopper: Vec<Variant> = Variant::all().filter(|v| v.boxes()).collect();
    on_variants(device, case, alone, &hopper, tallies)
}

/// Runs a case on those of these variants that are for it, with states in either order, and once more with the variant that
/// is chosen: of those for Hopper it may be another one, which has the same bits.
///
/// The first variant also runs each of up to `alone` sequences by itself, and beside NaN in another one.
pub fn on_variants(
    device: Device,
    case: &Case,
    alone: usize,
    variants: &[Variant],
    tallies: &mut Tallies,
) -> Result<(), Failure> {
    let case = case.on(device.executor);
    let expected = Expected::of(&case)?;
    let capability = device.executor.compute_capability();
    let mut first: BTreeMap<Sums, (Results, Tally)> = BTreeMap::new();
    for (at, variant) in variants.iter().copied().filter(|v| fits(*v, &case, capability)).enumerate() {
        let order = if at % 4 == 1 || at % 4 == 2 { StateOrder::VFirst } else { StateOrder::KFirst };
        let placed = case.in_orders(order, h_order(variant));
        // Segments: each variant with another one for the maps.
        let options = Options { variant: Some(variant), maps: maps_of(at), pdl: at % 2 == 1 };
        let (results, kernels) = run(device, &placed, &options)?;
        // Results of the same bits are as right, but for the words of the schedule and what nothing may write.
        let mut found = Tally::default();
        match first.get(&sums(variant)) {
            Some((first, judged)) if first.differing_bits(&results) == 0 => {
                found.add(judged);
                found.wrong_words = expected.wrong_words(&results);
                found.wrong_bits = expected.wrong_bits(&results) + results.changed_inputs;
            }
            Some((first, _)) => {
                found.judge(&results, &expected)?;
                found.wrong_bits += first.differing_bits(&results);
            }
            None => {
                found.judge(&results, &expected)?;
                // A sequence alone may be too short to be cut: it takes the variant that is chosen.
                let again = if variant.boxes() { Options::default() } else { options };
                found.wrong_bits += results.differing_bits(&run(device, &placed, &again)?.0);
                found.wrong_bits += neighbours(device, &placed, [&options, &again], &results, alone)?;
            }
        }
        for kernel in kernels.iter().map(|kernel| kernel.entry).collect::<BTreeSet<_>>() {
            tallies.entry(kernel).or_default().add(&found);
        }
        first.entry(sums(variant)).or_insert((results, found));
    }
    Ok(())
}

/// One of the variants that compute maps, in turns.
pub fn maps_of(turn: usize) -> Option<Variant> {
    let all: Vec<Variant> = Variant::all().filter(|v| v.maps()).collect();
    Some(all[turn % all.len()])
}

/// Runs a case with these options.
pub fn one_call(device: Device, case: &Case, options: &Options, tally: &mut Tally) -> Result<(), Failure> {
    let expected = Expected::of(case)?;
    let (results, _) = run(device, case, options)?;
    tally.judge(&results, &expected)
}

fn run(device: Device, case: &Case, options: &Options) -> Result<(Results, Vec<&'static KernelDesc>), Failure> {
    let call = Call::new(device, case)?;
    call.enqueue_schedule(Stream::default())?;
    let kernels = call.enqueue(options, Stream::default())?;
    device.executor.synchronize(Stream::default())?;
    Ok((call.results()?, kernels))
}

/// Bits of sequences that their neighbours change: alone each has the same, and beside NaN too.
fn neighbours(
    device: Device,
    case: &Case,
    [options, by_itself]: [&Options; 2],
    packed: &Results,
    most: usize,
) -> Result<usize, Failure> {
    let sequences = case.sample.problem().schedule().sequences;
    let filled: Vec<usize> = sequences.iter().filter(|s| s.chunks() > 0).map(|s| s.n).collect();
    let mut wrong = 0;
    for n in sequences.iter().map(|s| s.n).filter(|_| sequences.len() > 1).take(most) {
        let one = case.alone(n);
        let (results, _) = run(device, &one, by_itself)?;
        wrong += unlike(&own_bits(case, packed, n), &own_bits(&one, &results, 0));
    }
    if let Some(ill) = filled.get(filled.len() / 2).filter(|_| most > 0 && sequences.len() > 1) {
        let (results, _) = run(device, &case.with_nan(*ill), options)?;
        for n in sequences.iter().map(|s| s.n).filter(|n| n != ill) {
            wrong += unlike(&own_bits(case, packed, n), &own_bits(case, &results, n));
        }
    }
    Ok(wrong)
}

fn unlike(a: &[u32], b: &[u32]) -> usize {
    crate::checks::conv_verify::call::differences(a, b)
}

/// Bits of everything that sequence n of a call writes; it must be processed.
pub fn own_bits(case: &Case, results: &Results, n: usize) -> Vec<u32> {
    let case = case.in_orders(StateOrder::KFirst, StateOrder::KFirst);
    let p = case.sample.problem();
    let schedule = p.schedule();
    let (s, width) = (schedule.sequences[n], p.hv);
    let narrow = |values: &[bf16]| -> Vec<u32> { bf16_bits(values) };
    let mut bits = Vec::new();
    for at in (s.h..schedule.chunk_offsets[n + 1]).filter(|_| !results.h.is_empty()) {
        bits.extend(narrow(&results.h[p.h_at(at, 0)..][..width * STATE]));
    }
    for token in (s.rows.0..s.rows.1).filter(|_| !results.v_new.is_empty()) {
        bits.extend(narrow(&results.v_new[p.v_new_at(token, 0)..][..width * HEAD]));
    }
    if let Some(slot) = p.write_slot(n) {
        let at = p.final_at(slot, 0);
        bits.extend(&results.final_state.bits()[at..at + width * STATE]);
    }
    bits
}
