//! One problem on many variants: errors against the golden model, and bits that are prescribed.
//!
//! Outputs and corrections are held against float64 within budgets derived from the emulation; keys and gates of the records,
//! the rolled histories, zeros of requests without a slot and everything that must not be touched are compared bit for bit; and
//! every variant must give the bits of the first one of its kernel for as many tokens.

use super::Failure;
use super::call::{Call, Results};
use super::case::{Case, fits, options};
use crate::checks::conv_verify::call::{bf16_bits, f32_bits};
use crate::checks::conv_verify::judge::Worst;
use crate::checks::{Device, Measured};
use kda_core::exec::Stream;
use kda_ref::Mode;
use kda_ref::tc_verify::{Checked, Got, HEAD, reference, run as golden};
use kda_runtime::operators::tc_verify::{Options, Variant};
use std::collections::BTreeMap;

/// Results by the entries of variants.
pub type Tallies = BTreeMap<&'static str, Tally>;

/// What was found over several problems.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Problems that were run.
    pub problems: usize,
    out: Worst,
    corr: Worst,
    /// Elements that differ where bits are prescribed.
    wrong_bits: usize,
}

impl Tally {
    /// The results as rows, one an output.
    pub fn rows(&self, case: &str) -> Vec<Measured> {
        let found = [
            ("out", self.out.error, self.out.limit),
            ("corr", self.corr.error, self.corr.limit),
            ("prescribed bits that differ", self.wrong_bits as f64, 0.0),
        ];
        Measured::over(self.problems, case, &found)
    }

    /// Adds the results of one problem.
    pub fn judge(&mut self, results: &Results, expected: &Expected) {
        self.problems += 1;
        let got = Got { out: &results.out, out_pitch: expected.out_pitch, corr: &results.corr, kg: &results.kg };
        for judged in expected.checked.judge(&got) {
            for (worst, judgement) in [(&mut self.out, judged.out), (&mut self.corr, judged.corr)] {
                worst.take(judgement.error.rms, judgement.limit.rms);
                worst.take(judgement.error.max, judgement.limit.max);
            }
            self.wrong_bits += judged.wrong_kg;
        }
        self.wrong_bits += expected.wrong_bits(results);
    }
}

/// What the golden model says of a case.
pub struct Expected<'a> {
    checked: Checked<'a>,
    out_pitch: usize,
    /// Elements of `out`, `corr` and `kg` that the call leaves alone.
    untouched: [Vec<bool>; 3],
    /// First elements of the rows of zeros in `out`, and how many elements each has.
    zeros: (Vec<usize>, usize),
}

impl<'a> Expected<'a> {
    /// Runs the golden model in contract mode.
    pub fn of(case: &'a Case) -> Result<Expected<'a>, Failure> {
        let problem = case.sample.problem();
        let mut buffers = case.sample.buffers();
        golden(&problem, &mut buffers.outputs(), Mode::Contract)?;
        let out_pitch = buffers.out_pitch;
        let dead = problem.requests().filter(|request| request.slot.is_none());
        let rows = dead.flat_map(|r| r.begin..r.begin + r.len).map(|row| row * out_pitch).collect();
        let untouched = [&buffers.out, &buffers.corr, &buffers.kg].map(|all| all.iter().map(|x| x.is_nan()).collect());
        Ok(Expected { checked: reference(&problem)?, out_pitch, untouched, zeros: (rows, problem.heads * HEAD) })
    }

    /// Elements whose bits are prescribed and are others, but for the keys and gates of records.
    fn wrong_bits(&self, results: &Results) -> usize {
        let (out, corr, kg) = (bf16_bits(&results.out), f32_bits(&results.corr), bf16_bits(&results.kg));
        let (rows, width) = &self.zeros;
        let stale = rows.iter().flat_map(|row| &out[*row..row + width]).filter(|bits| **bits != 0).count();
        let written = |bits: &[u32], untouched: &[bool], poison: u32| {
            bits.iter().zip(untouched).filter(|(bits, untouched)| **untouched && **bits != poison).count()
        };
        let [no_out, no_corr, no_kg] = &self.untouched;
        let strays = written(&out, no_out, 0xFFFF) + written(&corr, no_corr, u32::MAX) + written(&kg, no_kg, 0xFFFF);
        let rolled =
            bf16_bits(&self.checked.conv).iter().zip(bf16_bits(&results.conv)).filter(|(a, b)| **a != *b).count();
        stale + strays + rolled + self.checked.conv.len().abs_diff(results.conv.len()) + results.changed
    }
}

/// Runs a case on every variant that is written for it.
pub fn on_variants(device: Device, case: &Case, variants: &[Variant], tallies: &mut Tallies) -> Result<(), Failure> {
    let expected = Expected::of(case)?;
    let mut first: BTreeMap<(bool, u32), Results> = BTreeMap::new();
    for variant in variants.iter().filter(|v| fits(**v, &case.sample.switches)) {
        let Some(tally) = tallies.get_mut(variant.desc().entry) else { continue };
        let results = Call::new(device, case)?.run(&options(*variant))?;
        tally.judge(&results, &expected);
        let first = first.entry((variant.hopper(), variant.most_tokens())).or_insert_with(|| results.clone());
        tally.wrong_bits += first.differing_bits(&results);
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
    use super::super::case::Plan;
    use super::*;
    use half::bf16;
    use kda_ref::tc_verify::sample::Switches;

    /// What a kernel that does as the golden model says would leave behind.
    fn right(case: &Case) -> Results {
        let mut golden_buffers = case.sample.buffers();
        golden(&case.sample.problem(), &mut golden_buffers.outputs(), Mode::Contract).unwrap();
        let narrow = |x: &f64| if x.is_nan() { bf16::from_bits(0xFFFF) } else { bf16::from_f64(*x) };
        let wide = |x: &f64| if x.is_nan() { f32::from_bits(u32::MAX) } else { *x as f32 };
        Results {
            out: golden_buffers.out.iter().map(narrow).collect(),
            corr: golden_buffers.corr.iter().map(wide).collect(),
            kg: golden_buffers.kg.iter().map(narrow).collect(),
            conv: golden_buffers.conv,
            changed: 0,
        }
    }

    /// What is right passes; each kind of stray write, of a wrong record and of a wrong value is noticed.
    #[test]
    fn wrong_results_are_noticed() {
        let switches = Switches {
            taps: Some(kda_ref::conv::TapType::Bf16),
            padding: 8,
            ragged: true,
            nulls: true,
            ..Switches::plain(6, 1, 4)
        };
        // Requests of all kinds: full ones, short ones, and one without a slot.
        let found = (0..200).map(|seed| Plan::of(switches).draw(seed)).find(|case| {
            let p = case.sample.problem();
            let live = |full: bool| p.live_requests().any(|(r, _)| (r.len == 4) == full);
            live(true) && live(false) && p.requests().any(|r| r.slot.is_none())
        });
        let case = found.expect("a problem with all kinds of requests");
        let (expected, right) = (Expected::of(&case).unwrap(), right(&case));
        let passes = |results: &Results| {
            let mut tally = Tally::default();
            tally.judge(results, &expected);
            tally.rows("case").iter().map(|row| row.passes()).collect::<Vec<bool>>()
        };
        assert_eq!(passes(&right), [true; 3]);
        let p = case.sample.problem();
        let (full, _) = p.live_requests().find(|(r, _)| r.len == 4).unwrap();
        let (short, slot) = p.live_requests().find(|(r, _)| r.len < 4).unwrap();
        let dead = p.requests().find(|r| r.slot.is_none()).unwrap();
        let changed = |change: &dyn Fn(&mut Results)| {
            let mut results = right.clone();
            change(&mut results);
            passes(&results)
        };
        let (record, behind) = (p.record(full.b, 0, 1), p.record(short.b, 0, short.len));
        let pitch = expected.out_pitch;
        for (what, change, wanted) in [
            ("u", &(|r: &mut Results| r.corr[record + 3] *= 1.001) as &dyn Fn(&mut Results), [true, false, true]),
            ("o", &|r| r.out[full.begin * pitch] += bf16::from_f32(0.25), [false, true, true]),
            ("a gate", &|r| r.kg[2 * record + HEAD] = bf16::from_f32(3.0), [true, true, false]),
            ("u behind the length", &|r| r.corr[behind] = 0.0, [true, true, false]),
            ("a record behind the length", &|r| r.kg[2 * behind] = bf16::ZERO, [true, true, false]),
            ("a record of nobody", &|r| r.corr[p.record(6, 0, 0)] = 0.0, [true, true, false]),
            ("a row of zeros", &|r| r.out[dead.begin * pitch + 5] = bf16::ONE, [true, true, false]),
            ("between rows", &|r| r.out[full.begin * pitch + HEAD] = bf16::ONE, [true, true, false]),
            ("a history", &|r| r.conv[slot * case.sample.conv_pitch] = bf16::from_f32(77.0), [true, true, false]),
            ("the state", &|r| r.changed = 1, [true, true, false]),
        ] {
            assert_eq!(changed(change), wanted, "{what}");
        }
    }
}
