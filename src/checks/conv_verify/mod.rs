//! `conv_verify` against the golden model in contract mode.
//!
//! A problem is drawn once and run on every variant that can run it. The first variant's output and states are held
//! against fp64 within budgets derived from the emulation; windows, the rolled pool, zeroed padding rows and everything
//! that must not be touched are compared bit for bit; and every other variant must give the same bits as the first.

mod device;

use super::{Extent, Measured, Request, Sink};
use device::{Device, Results};
use kda_kernels::conv_verify::ConvVerifyVariant;
use kda_ref::Mode;
use kda_ref::conv_verify::sample::{Sample, Switches};
use kda_ref::conv_verify::{Dims, SnapshotRule, reference, run as golden};
use kda_ref::floats::FloatVec;
use kda_ref::rng::Rng;

/// Bits of memory that no kernel has written.
const UNTOUCHED: u32 = 0xFFFF_FFFF;

/// What was found for one variant over all its problems.
#[derive(Clone, Debug, Default)]
struct Tally {
    problems: usize,
    /// Largest error relative to its limit, with both.
    out: Worst,
    states: Worst,
    /// Elements that differ where bits are prescribed.
    wrong_bits: usize,
}

/// The judgement that came closest to its limit, or passed it.
#[derive(Clone, Copy, Debug)]
struct Worst {
    error: f64,
    limit: f64,
}

impl Default for Worst {
    fn default() -> Self {
        Worst { error: 0.0, limit: 1.0 }
    }
}

impl Worst {
    fn take(&mut self, error: f64, limit: f64) {
        // A NaN is worse than any number.
        if !(error / limit <= self.error / self.limit) {
            *self = Worst { error, limit };
        }
    }
}

/// Runs every variant; one row of results a variant and output.
pub fn run(request: &Request, sink: Sink) -> Result<(), String> {
    let seed = request.seed;
    let problems = problems(request.extent, &mut Rng::new(seed));
    let variants: Vec<ConvVerifyVariant> = ConvVerifyVariant::ALL.to_vec();
    let mut tallies = vec![Tally::default(); variants.len()];
    for (index, switches) in problems.iter().enumerate() {
        let sample = Sample::random(&mut Rng::new(seed.wrapping_add(1 + index as u64)), *switches);
        one_problem(request, &sample, &variants, &mut tallies)
            .map_err(|cause| format!("problem {index} ({switches:?}): {cause}"))?;
    }
    for (done, (variant, tally)) in variants.iter().zip(&tallies).enumerate() {
        let share = (done + 1) as f64 / variants.len() as f64;
        let case = format!("{} ({} problems)", variant.desc().entry, tally.problems);
        let mut row = |output: &str, error: f64, budget: f64| {
            sink(Measured { case: case.clone(), output: output.into(), error, budget }, share);
        };
        if tally.problems == 0 {
            row("problems that it can run", f64::NAN, 0.0);
            continue;
        }
        row("out", tally.out.error, tally.out.limit);
        row("states", tally.states.error, tally.states.limit);
        row("prescribed bits that differ", tally.wrong_bits as f64, 0.0);
    }
    Ok(())
}

/// Problems that give every variant some: each T that has variants of its own, and longer ones.
fn problems(extent: Extent, rng: &mut Rng) -> Vec<Switches> {
    let (rounds, max_n, lengths): (usize, usize, &[usize]) = match extent {
        Extent::Quick => (1, 3, &[1, 2, 3, 4, 5, 6, 7, 8, 11]),
        Extent::Full => (12, 8, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 16, 17]),
    };
    let mut out = Vec::new();
    for _ in 0..rounds {
        for t in lengths {
            let mut switches = Switches::random(rng, max_n, *t);
            switches.t_alloc += t - switches.dims.t;
            switches.dims.t = *t;
            if extent == Extent::Quick {
                switches.dims.hv = switches.dims.hv.min(2);
                switches.dims.h = switches.dims.h.min(switches.dims.hv);
            }
            out.push(switches);
        }
    }
    if extent == Extent::Full {
        // More CTAs than fit at once, with the roll on: the order of CTAs must not matter.
        let large = Switches { roll: true, bias: true, ..Switches::plain(40, 4, 8, 16) };
        out.push(large);
        out.push(Switches {
            dims: Dims { n: 5, t: 8, h: 3, hv: 12 },
            t_alloc: 9,
            rule: SnapshotRule::ByBatch,
            ..large
        });
    }
    out
}

fn one_problem(
    request: &Request,
    sample: &Sample,
    variants: &[ConvVerifyVariant],
    tallies: &mut [Tally],
) -> Result<(), Box<dyn std::error::Error>> {
    let problem = sample.problem();
    let checked = reference(&problem)?;
    let mut buffers = sample.buffers();
    golden(&problem, &mut buffers.outputs(), Mode::Contract)?;
    let mut first: Option<Results> = None;
    for (variant, tally) in variants.iter().zip(tallies) {
        if !variant.long() && variant.t() as usize != problem.dims.t {
            continue;
        }
        let device = Device::new(request.device, sample)?;
        let results = device.launch(*variant)?;
        tally.problems += 1;
        for row in checked.judge_out(&results.out, buffers.out_row_stride) {
            tally.out.take(row.judgement.error.rms, row.judgement.limit.rms);
            tally.out.take(row.judgement.error.max, row.judgement.limit.max);
        }
        for row in checked.judge_states(&results.states) {
            tally.states.take(row.judgement.error.rms, row.judgement.limit.rms);
            tally.states.take(row.judgement.error.max, row.judgement.limit.max);
        }
        tally.wrong_bits +=
            untouched(&buffers.out, results.out.iter().map(|v| u32::from(v.to_bits())), UNTOUCHED & 0xFFFF);
        tally.wrong_bits += untouched(&buffers.states, results.states.iter().map(|v| v.to_bits()), UNTOUCHED);
        tally.wrong_bits += copies(&buffers.windows, &results.windows);
        tally.wrong_bits += differences(&buffers.rolled.bits(), &results.pool.bits());
        tally.wrong_bits += results.changed_inputs;
        match &first {
            None => first = Some(results),
            Some(first) => tally.wrong_bits += first.differing_bits(&results),
        }
    }
    Ok(())
}

/// Elements that the golden model leaves alone and the kernel does not, and zeros of padding rows that are not zeros.
fn untouched(golden: &[f64], measured: impl Iterator<Item = u32>, poison: u32) -> usize {
    let wrong = |(golden, bits): (&f64, u32)| match golden {
        g if g.is_nan() => bits != poison,
        g if g.to_bits() == 0 => bits != 0,
        _ => false,
    };
    golden.iter().zip(measured).filter(|pair| wrong(*pair)).count()
}

/// Windows: copies of inputs, bit for bit; NaN in the golden buffer marks what is not written.
fn copies(golden: &FloatVec, measured: &FloatVec) -> usize {
    let fill = FloatVec::filled(matches!(golden, FloatVec::Bf16(_)), 1, f32::NAN).bits()[0];
    let poison = if matches!(golden, FloatVec::Bf16(_)) { UNTOUCHED & 0xFFFF } else { UNTOUCHED };
    let expected: Vec<u32> = golden.bits().iter().map(|b| if *b == fill { poison } else { *b }).collect();
    differences(&expected, &measured.bits())
}

fn differences(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).filter(|(a, b)| a != b).count() + a.len().abs_diff(b.len())
}
