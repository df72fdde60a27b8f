//! One problem on many variants: errors against the golden model, and bits that are prescribed.
//!
//! The first variant's output and states are held against fp64 within budgets derived from the emulation; windows, the
//! rolled pool, zeroed padding rows and everything that must not be touched are compared bit for bit; and every other
//! variant must give the same bits as the first.

use super::Failure;
use super::call::{Call, Results, bf16_bits, differences, f32_bits};
use super::case::Case;
use super::misuse::indices;
use crate::checks::{Device, Measured};
use kda_core::Elem;
use kda_core::exec::Stream;
use kda_kernels::conv_verify::ConvVerifyVariant;
use kda_ref::Mode;
use kda_ref::conv_verify::sample::{Buffers, Switches};
use kda_ref::conv_verify::{Checked, HEAD, reference, run as golden};
use kda_ref::floats::FloatVec;
use kda_runtime::operators::conv_verify::Options;
use kda_runtime::operators::conv_verify::indices::duplicates;
use std::ops::Range;

/// Bits of memory that no kernel has written.
const UNTOUCHED: u32 = 0xFFFF_FFFF;

/// What was found over several problems.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Problems that were run.
    pub problems: usize,
    out: Worst,
    states: Worst,
    /// Elements that differ where bits are prescribed.
    wrong_bits: usize,
}

/// The judgement that came closest to its limit, or passed it.
#[derive(Clone, Copy, Debug)]
pub(in crate::checks) struct Worst {
    pub error: f64,
    pub limit: f64,
}

impl Default for Worst {
    fn default() -> Self {
        Worst { error: 0.0, limit: 1.0 }
    }
}

impl Worst {
    pub fn take(&mut self, error: f64, limit: f64) {
        let (new, old) = (error / limit, self.error / self.limit);
        // A NaN is worse than any number, and stays.
        if new.is_nan() || new >= old {
            *self = Worst { error, limit };
        }
    }
}

impl Tally {
    /// The results as rows, one an output.
    pub fn rows(&self, case: &str) -> Vec<Measured> {
        let found = [
            ("out", self.out.error, self.out.limit),
            ("states", self.states.error, self.states.limit),
            ("prescribed bits that differ", self.wrong_bits as f64, 0.0),
        ];
        Measured::over(self.problems, case, &found)
    }

    /// Adds what another tally found.
    pub fn add(&mut self, other: &Tally) {
        self.problems += other.problems;
        self.out.take(other.out.error, other.out.limit);
        self.states.take(other.states.error, other.states.limit);
        self.wrong_bits += other.wrong_bits;
    }

    /// Adds the results of one problem.
    pub fn judge(&mut self, results: &Results, expected: &Expected) {
        self.problems += 1;
        for row in expected.checked.judge_out(&results.out, expected.buffers.out_row_stride) {
            self.out.take(row.judgement.error.rms, row.judgement.limit.rms);
            self.out.take(row.judgement.error.max, row.judgement.limit.max);
        }
        let golden = &expected.buffers;
        let out = bf16_bits(&results.out);
        self.wrong_bits += untouched(&golden.out, &out, UNTOUCHED & 0xFFFF);
        self.wrong_bits += expected.stale_padding(&out);
        if let Some(states) = &results.states {
            for row in expected.checked.judge_states(states) {
                self.states.take(row.judgement.error.rms, row.judgement.limit.rms);
                self.states.take(row.judgement.error.max, row.judgement.limit.max);
            }
            self.wrong_bits += untouched(&golden.states, &f32_bits(states), UNTOUCHED);
        }
        if let Some(windows) = &results.windows {
            self.wrong_bits += copies(&golden.windows, windows);
        }
        self.wrong_bits += differences(&golden.rolled.bits(), &results.pool.bits());
        self.wrong_bits += results.changed_inputs;
    }
}

/// What the golden model says of a case.
pub struct Expected {
    checked: Checked,
    buffers: Buffers,
    /// Elements of `out` that belong to padding rows.
    padding: Vec<Range<usize>>,
}

impl Expected {
    /// Runs the golden model in contract mode, and derives the budgets.
    pub fn of(case: &Case) -> Result<Expected, Failure> {
        let problem = case.sample.problem();
        let checked = reference(&problem)?;
        let mut buffers = case.sample.buffers();
        golden(&problem, &mut buffers.outputs(), Mode::Contract)?;
        let (d, stride) = (problem.dims, buffers.out_row_stride);
        let padding_rows = (0..d.n).filter(|n| problem.live_row(*n).is_none());
        let rows = padding_rows.flat_map(|n| n * d.t..(n + 1) * d.t);
        let padding = rows.map(|row| row * stride..row * stride + d.hv * HEAD).collect();
        Ok(Expected { checked, buffers, padding })
    }

    /// Elements of padding rows that are not zeros.
    fn stale_padding(&self, out: &[u32]) -> usize {
        self.padding.iter().flat_map(|row| &out[row.clone()]).filter(|bits| **bits != 0).count()
    }
}

/// Whether a variant can run calls of this kind: their number of tokens, their convolution pool.
pub fn fits(variant: ConvVerifyVariant, switches: &Switches) -> bool {
    let length = variant.long() || variant.t() as usize == switches.dims.t;
    let narrow = variant.pool() == Elem::BF16;
    length && narrow == switches.bf16_pool && variant.inner() == switches.channels_innermost
}

/// Runs a case on every variant that can run it.
pub fn one_case(
    device: Device,
    case: &Case,
    variants: &[ConvVerifyVariant],
    tallies: &mut [Tally],
) -> Result<(), Failure> {
    let expected = Expected::of(case)?;
    // Results with the same bits have the same judgement.
    let mut first: Option<(Results, Tally)> = None;
    for (variant, tally) in variants.iter().zip(tallies) {
        if !fits(*variant, &case.sample.switches) {
            continue;
        }
        let call = Call::new(device, case)?;
        if let Some(twice) = duplicates(&call.problem, &indices(case)).first() {
            return Err(format!("the problem is none: {twice}").into());
        }
        let results = call.run(Some(*variant))?;
        let differ = first.as_ref().map_or(0, |(first, _)| first.differing_bits(&results));
        let judgement = match &first {
            Some((first, judgement)) if differ == 0 && first.changed_inputs == results.changed_inputs => {
                judgement.clone()
            }
            _ => {
                let mut judgement = Tally::default();
                judgement.judge(&results, &expected);
                judgement
            }
        };
        tally.add(&judgement);
        tally.wrong_bits += differ;
        if first.is_none() {
            first = Some((results, judgement));
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

/// Elements that the golden model leaves alone and the kernel does not.
fn untouched(golden: &[f64], measured: &[u32], poison: u32) -> usize {
    golden.iter().zip(measured).filter(|(golden, bits)| golden.is_nan() && **bits != poison).count()
}

/// Windows: copies of inputs, bit for bit; NaN in the golden buffer marks what is not written.
fn copies(golden: &FloatVec, measured: &FloatVec) -> usize {
    let fill = FloatVec::filled(matches!(golden, FloatVec::Bf16(_)), 1, f32::NAN).bits()[0];
    let poison = if matches!(golden, FloatVec::Bf16(_)) { UNTOUCHED & 0xFFFF } else { UNTOUCHED };
    let expected: Vec<u32> = golden.bits().iter().map(|b| if *b == fill { poison } else { *b }).collect();
    differences(&expected, &measured.bits())
}

#[cfg(test)]
mod tests {
    use super::super::case::Plan;
    use super::*;
    use kda_ref::conv_verify::sample::Switches;

    #[test]
    fn the_worst_keeps_a_nan() {
        let mut worst = Worst::default();
        worst.take(1.0, 2.0);
        worst.take(1.0, 4.0);
        assert_eq!((worst.error, worst.limit), (1.0, 2.0));
        worst.take(f64::NAN, 1.0);
        worst.take(3.0, 1.0);
        assert!(worst.error.is_nan());
    }

    #[test]
    fn a_sum_of_tallies_keeps_the_worst_and_counts() {
        let with = |error: f64, wrong_bits: usize| Tally {
            problems: 1,
            out: Worst { error, limit: 2.0 },
            wrong_bits,
            ..Tally::default()
        };
        let mut sum = Tally::default();
        [with(1.0, 0), with(1.5, 3), with(0.5, 0)].iter().for_each(|tally| sum.add(tally));
        assert_eq!((sum.problems, sum.out.error, sum.wrong_bits), (3, 1.5, 3));
        sum.add(&with(f64::NAN, 0));
        assert!(sum.rows("")[0].error.is_nan());
    }

    #[test]
    fn stray_writes_and_stale_padding_are_counted() {
        assert_eq!(untouched(&[f64::NAN, f64::NAN, 1.5], &[UNTOUCHED, 0, 7], UNTOUCHED), 1);
        let plan = Plan { null_rows: true, ..Plan::of(Switches { padding: 8, ..Switches::plain(3, 2, 1, 1) }) };
        let expected = Expected::of(&plan.draw(1)).unwrap();
        let mut out = vec![0; 3 * 2 * 136];
        assert_eq!(expected.stale_padding(&out), 0);
        // The last element of request 1, then its gap, then request 2.
        for (at, stale) in [(3 * 136 + 127, 1), (3 * 136 + 128, 1), (4 * 136, 1)] {
            out[at] = 1;
            assert_eq!(expected.stale_padding(&out), stale, "{at}");
        }
    }
}
