//! One problem on many variants: errors against the golden model, and bits that are prescribed.
//!
//! States that are written are held against fp64 within budgets derived from emulations; compacted windows, slots that are not
//! written and everything between slots are compared bit for bit; and every variant must give the bits of the first one.

use super::Failure;
use super::call::{Call, Results};
use super::case::Case;
use crate::checks::conv_verify::call::{bf16_bits, differences};
use crate::checks::conv_verify::judge::Worst;
use crate::checks::{Device, Measured};
use kda_core::Elem;
use kda_core::exec::Stream;
use kda_kernels::tc_commit::TcCommitVariant;
use kda_ref::tc_commit::sample::Switches;
use kda_ref::tc_commit::{Checked, reference};
use kda_runtime::operators::tc_commit::Options;

/// What was found over several problems.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Problems that were run.
    pub problems: usize,
    state: Worst,
    /// Elements that differ where bits are prescribed.
    wrong_bits: usize,
}

impl Tally {
    /// The results as rows, one an output.
    pub fn rows(&self, case: &str) -> Vec<Measured> {
        let found = [
            ("state", self.state.error, self.state.limit),
            ("prescribed bits that differ", self.wrong_bits as f64, 0.0),
        ];
        Measured::over(self.problems, case, &found)
    }

    /// Adds the results of one problem.
    pub fn judge(&mut self, results: &Results, expected: &Expected) {
        self.problems += 1;
        for (layer, expected) in results.layers.iter().zip(&expected.layers) {
            for judged in expected.checked.judge(layer.state.view()) {
                let (error, limit) = (judged.judgement.error, judged.judgement.limit);
                self.state.take(error.rms, limit.rms);
                self.state.take(error.max, limit.max);
            }
        }
        self.wrong_bits += expected.wrong_bits(results);
    }
}

/// What the golden model says of a layer.
struct Layer<'c> {
    checked: Checked<'c>,
    /// The pool of states ahead of the call.
    before: Vec<u32>,
    /// The elements of it that the call writes.
    written: Vec<bool>,
}

/// What the golden model says of a case.
pub struct Expected<'c> {
    layers: Vec<Layer<'c>>,
}

impl<'c> Expected<'c> {
    /// Asks the golden model, and derives the budgets.
    pub fn of(case: &'c Case) -> Result<Expected<'c>, Failure> {
        let layer = |sample: &'c kda_ref::tc_commit::sample::Sample| -> Result<Layer<'c>, Failure> {
            let problem = sample.problem();
            let before = sample.state.bits();
            let mut written = vec![false; before.len()];
            for (_, slot) in problem.commits().flat_map(|commit| commit.targets().collect::<Vec<_>>()) {
                written[slot * problem.state_pitch..][..problem.state_len()].fill(true);
            }
            Ok(Layer { checked: reference(&problem)?, before, written })
        };
        Ok(Expected { layers: case.layers.iter().map(layer).collect::<Result<_, Failure>>()? })
    }

    /// Elements whose bits are prescribed and are others.
    fn wrong_bits(&self, results: &Results) -> usize {
        let of_layer = |(expected, layer): (&Layer, &super::call::Layer)| {
            let after = layer.state.bits();
            let kept = expected.written.iter().zip(expected.before.iter().zip(&after));
            let changed = kept.filter(|(written, (before, after))| !**written && before != after).count();
            changed + differences(&bf16_bits(&expected.checked.conv), &bf16_bits(&layer.conv))
        };
        self.layers.len().abs_diff(results.layers.len())
            + self.layers.iter().zip(&results.layers).map(of_layer).sum::<usize>()
    }
}

/// Whether a variant is written for the state and the window of these switches, and for boundaries if there are any.
pub fn fits(variant: TcCommitVariant, switches: &Switches) -> bool {
    variant.state() == if switches.bf16_state { Elem::BF16 } else { Elem::F32 }
        && variant.most() as usize >= switches.window
        && (variant.boundary() || !switches.boundary)
}

/// Runs a case on every variant that it fits.
pub fn one_case(
    device: Device,
    case: &Case,
    variants: &[TcCommitVariant],
    tallies: &mut [Tally],
) -> Result<(), Failure> {
    let expected = Expected::of(case)?;
    let switches = &case.first().switches;
    let mut first: Option<Results> = None;
    for (variant, tally) in variants.iter().zip(tallies) {
        if !fits(*variant, switches) {
            continue;
        }
        let results = Call::new(device, case)?.run(Some(*variant))?;
        tally.judge(&results, &expected);
        match &first {
            None => first = Some(results),
            Some(first) => tally.wrong_bits += first.differing_bits(&results),
        }
    }
    Ok(())
}

/// Runs a case once.
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
    use super::super::call::Layer as Written;
    use super::super::case::Plan;
    use super::*;
    use half::bf16;
    use kda_ref::Mode;
    use kda_ref::floats::FloatVec;
    use kda_ref::tc_commit::{ConvOrder, run as golden};
    use kda_runtime::executor::sim::SimExecutor;

    /// What a kernel that does as the golden model says would leave behind.
    fn right(case: &Case) -> Results {
        let layer = |sample: &kda_ref::tc_commit::sample::Sample| {
            let mut buffers = sample.buffers();
            golden(&sample.problem(), &mut buffers.outputs(), Mode::Contract).expect("a sample that runs");
            let before = sample.state.view();
            let kept = |(i, s): (usize, &f64)| if s.is_nan() { before.get_f32(i) } else { *s as f32 };
            let state = FloatVec::F32(buffers.state.iter().enumerate().map(kept).collect());
            Written { state, conv: buffers.conv }
        };
        Results { layers: case.layers.iter().map(layer).collect() }
    }

    /// A variant runs what it is written for: its type of the state, windows up to its size, boundaries if it applies them.
    #[test]
    fn variants_run_what_they_are_written_for() {
        for (bf16_state, window, boundary) in
            [false, true].into_iter().flat_map(|b| [(b, 8, false), (b, 8, true), (b, 9, false), (b, 9, true)])
        {
            let switches = Switches { bf16_state, boundary, ..Switches::plain(1, 1, window) };
            let case = Plan::of(switches).draw(1);
            let executor = SimExecutor::default();
            let call = Call::new(Device::simulator(&executor), &case).unwrap();
            for variant in TcCommitVariant::ALL {
                let planned = call.enqueue(&Options { variant: Some(variant), pdl: false }, Stream::default());
                assert_eq!(planned.is_ok(), fits(variant, &switches), "{}: {switches:?}", variant.desc().entry);
            }
            let able = TcCommitVariant::ALL.into_iter().filter(|v| fits(*v, &switches)).count();
            assert_eq!(able, 4 * if window == 8 { 2 } else { 1 } * if boundary { 1 } else { 2 });
        }
    }

    /// Each kind of stray write is counted, in every layer, and a wrong state is off.
    #[test]
    fn stray_writes_and_wrong_states_are_counted() {
        let conv = Some(ConvOrder::TokenMajor);
        let switches = Switches {
            padding: 8,
            separate: true,
            boundary: true,
            bf16_state: false,
            conv,
            ..Switches::plain(3, 2, 4)
        };
        let case = Plan { nobody: true, layers: Some(2), ..Plan::of(switches) }.draw(1);
        let expected = Expected::of(&case).unwrap();
        let right = right(&case);
        let passes = |results: &Results| {
            let mut tally = Tally::default();
            tally.judge(results, &expected);
            let [state, bits] = tally.rows("").try_into().unwrap();
            (state.passes(), bits.error)
        };
        assert_eq!(passes(&right), (true, 0.0));
        let p = case.first().problem();
        let commit = p.commit(2).unwrap();
        let (mark, to) = (commit.boundary.unwrap().1, commit.destination);
        for layer in 0..2 {
            let in_state = |at: usize| {
                let mut wrong = right.clone();
                if let FloatVec::F32(values) = &mut wrong.layers[layer].state {
                    values[at] += 1.0;
                }
                passes(&wrong)
            };
            let (length, pitch) = (p.state_len(), p.state_pitch);
            let untouched = (0..p.slots).find(|slot| !expected.layers[0].written[slot * pitch]).unwrap();
            assert_eq!(in_state(untouched * pitch + 5), (true, 1.0));
            assert_eq!(in_state(to * pitch + length), (true, 1.0), "the gap behind a slot");
            assert_eq!(in_state(to * pitch + length - 1), (false, 0.0));
            assert_eq!(in_state(mark * pitch), (false, 0.0));
            let mut wrong = right.clone();
            wrong.layers[layer].conv[7] = bf16::from_f32(77.0);
            assert_eq!(passes(&wrong), (true, 1.0));
        }
    }
}
