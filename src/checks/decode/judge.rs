//! One problem on many variants: errors against the golden model, and bits that are prescribed.
//!
//! The output and the new states are held against fp64 within budgets derived from the emulation; the rolled pool, zeroed
//! padding rows, slots that are not written and everything else that must not be touched are compared bit for bit; and every
//! variant must give the bits of the first one, whatever the order of its state.

use super::Failure;
use super::call::{Call, Results};
use super::case::Case;
use crate::checks::conv_verify::call::{bf16_bits, differences};
use crate::checks::conv_verify::judge::Worst;
use crate::checks::{Device, Measured};
use kda_core::Elem;
use kda_core::exec::Stream;
use kda_kernels::decode::DecodeVariant;
use kda_ref::Mode;
use kda_ref::budget::Judgement;
use kda_ref::decode::sample::Buffers;
use kda_ref::decode::{Checked, HEAD, reference, run as golden};
use kda_ref::layout::StateOrder;
use kda_runtime::operators::decode::Options;

/// Bits of an output that no kernel has written.
const UNTOUCHED: u32 = 0xFFFF;

/// What was found over several problems.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Problems that were run.
    pub problems: usize,
    out: Worst,
    state: Worst,
    /// Elements that differ where bits are prescribed.
    wrong_bits: usize,
}

impl Tally {
    /// The results as rows, one an output.
    pub fn rows(&self, case: &str) -> Vec<Measured> {
        let found = [
            ("out", self.out.error, self.out.limit),
            ("state", self.state.error, self.state.limit),
            ("prescribed bits that differ", self.wrong_bits as f64, 0.0),
        ];
        Measured::over(self.problems, case, &found)
    }

    /// Adds the results of one problem.
    pub fn judge(&mut self, results: &Results, expected: &Expected) {
        self.problems += 1;
        let take = |worst: &mut Worst, judgements: Vec<Judgement>| {
            for Judgement { error, limit, .. } in judgements {
                worst.take(error.rms, limit.rms);
                worst.take(error.max, limit.max);
            }
        };
        let golden = &expected.buffers;
        take(&mut self.out, expected.checked.judge_out(&results.out, golden.out_row_stride));
        take(&mut self.state, expected.checked.judge_state(results.state.view()));
        self.wrong_bits += expected.wrong_bits(results);
    }
}

/// What the golden model says of a case, with its state in the order `[V, K]`.
pub struct Expected {
    checked: Checked,
    buffers: Buffers,
    /// The pool of states ahead of the call.
    before: Vec<u32>,
    /// First elements of the outputs of padding rows, and how many each has.
    padding: (Vec<usize>, usize),
}

impl Expected {
    /// Runs the golden model in contract mode, and derives the budgets.
    pub fn of(case: &Case) -> Result<Expected, Failure> {
        let case = case.in_order(StateOrder::VFirst);
        let problem = case.sample.problem();
        let checked = reference(&problem)?;
        let mut buffers = case.sample.buffers();
        golden(&problem, &mut buffers.outputs(), Mode::Contract)?;
        let rows = (0..problem.dims.n).filter(|n| problem.places(*n).is_none());
        let padding = (rows.map(|n| n * buffers.out_row_stride).collect(), problem.dims.hv * HEAD);
        Ok(Expected { checked, before: case.sample.state.bits(), buffers, padding })
    }

    /// Elements whose bits are prescribed and are others.
    fn wrong_bits(&self, results: &Results) -> usize {
        let (out, state) = (bf16_bits(&results.out), results.state.bits());
        let (rows, width) = &self.padding;
        let stale = rows.iter().flat_map(|row| &out[*row..row + width]).filter(|bits| **bits != 0).count();
        let gaps = self.buffers.out.iter().zip(&out).filter(|(golden, bits)| golden.is_nan() && **bits != UNTOUCHED);
        let kept = self.buffers.state.iter().zip(self.before.iter().zip(&state));
        let changed = kept.filter(|(golden, (before, after))| golden.is_nan() && before != after).count();
        let rolled = differences(&self.buffers.rolled.bits(), &results.pool.bits());
        stale + gaps.count() + changed + rolled + results.counters
    }
}

/// The order of state that a variant is written for.
pub fn order(variant: DecodeVariant) -> StateOrder {
    if variant.k_first() { StateOrder::KFirst } else { StateOrder::VFirst }
}

/// Whether a variant is written for a state of this type.
pub fn fits(variant: DecodeVariant, bf16_state: bool) -> bool {
    variant.state() == if bf16_state { Elem::BF16 } else { Elem::F32 }
}

/// Runs a case on every variant for its type of state.
pub fn one_case(device: Device, case: &Case, variants: &[DecodeVariant], tallies: &mut [Tally]) -> Result<(), Failure> {
    let expected = Expected::of(case)?;
    let cases = [StateOrder::VFirst, StateOrder::KFirst].map(|order| case.in_order(order));
    let mut first: Option<Results> = None;
    for (variant, tally) in variants.iter().zip(tallies) {
        if !fits(*variant, case.sample.switches.bf16_state) {
            continue;
        }
        let results = Call::new(device, &cases[usize::from(variant.k_first())])?.run(Some(*variant))?;
        tally.judge(&results, &expected);
        match &first {
            None => first = Some(results),
            Some(first) => tally.wrong_bits += first.differing_bits(&results),
        }
    }
    Ok(())
}

/// Runs a case once, with the state in the order that it has.
pub fn one_call(device: Device, case: &Case, options: &Options, tally: &mut Tally) -> Result<(), Failure> {
    let expected = Expected::of(case)?;
    let call = Call::new(device, case)?;
    call.enqueue(options, Stream::default())?;
    device.executor.synchronize(Stream::default())?;
    tally.judge(&call.results()?, &expected);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::case::Plan;
    use super::*;
    use half::bf16;
    use kda_ref::decode::sample::Switches;
    use kda_ref::floats::FloatVec;

    /// What a kernel that does as the golden model says would leave behind.
    fn right(case: &Case, expected: &Expected) -> Results {
        let golden = &expected.buffers;
        let out = golden.out.iter().map(|o| if o.is_nan() { bf16::from_bits(0xFFFF) } else { bf16::from_f64(*o) });
        let before = case.sample.state.view();
        let kept = |(i, s): (usize, &f64)| if s.is_nan() { before.get_f32(i) } else { *s as f32 };
        let state = FloatVec::F32(golden.state.iter().enumerate().map(kept).collect());
        Results { out: out.collect(), state, pool: golden.rolled.clone(), counters: 0 }
    }

    /// Each kind of stray write is counted.
    #[test]
    fn stray_writes_are_counted() {
        let switches = Switches { padding: 8, separate: true, ..Switches::plain(3, 1, 1) };
        let case = Plan { null_rows: true, ..Plan::of(switches) }.draw(1);
        let expected = Expected::of(&case).unwrap();
        let right = right(&case, &expected);
        assert_eq!(expected.wrong_bits(&right), 0);
        let p = case.sample.problem();
        let places = p.places(2).unwrap();
        let in_state = |at: usize| {
            let mut wrong = right.clone();
            if let FloatVec::F32(values) = &mut wrong.state {
                values[at] += 1.0;
            }
            expected.wrong_bits(&wrong)
        };
        // The slot that is read, the gap behind the slot that is written, and a value of it, which is judged by its error.
        let gap = p.head(places.slot_out, 0) + HEAD * HEAD;
        assert_eq!([in_state(p.head(places.slot, 0)), in_state(gap), in_state(gap - 1)], [1, 1, 0]);
        // The output of a padding row, the gap behind it, and a live row.
        for (at, count) in [(HEAD - 1, 1), (HEAD, 1), (2 * (HEAD + 8), 0)] {
            let mut wrong = right.clone();
            wrong.out[at] = bf16::ONE;
            assert_eq!(expected.wrong_bits(&wrong), count, "{at}");
        }
        assert_eq!(expected.wrong_bits(&Results { counters: 1, ..right }), 1);
    }
}
