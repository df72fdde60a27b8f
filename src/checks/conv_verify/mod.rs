//! `conv_verify` against the golden model in contract mode.
//!
//! | question | module |
//! | --- | --- |
//! | which problems are run | [`problems`], each made by [`case`] |
//! | how does a problem run on a device | [`call`] |
//! | what of its results is right | [`judge`] |
//! | do chains of verifies and commits give what one stream gives | [`streams`] |
//! | where does a NaN go | [`nan`] |
//! | do pools of more than 2^31 elements work | [`large`] |
//! | is every raw gate a decay between 0 and 1 | [`gates`] |
//! | what do calls that break the contract spoil, and what finds them | [`misuse`] |
//! | does the order of warps, copies and CTAs matter | [`schedules`] |
//! | do dependent launches give what launches one by one give | [`chain`] |
//! | do repeats, graphs and streams at once, which only a GPU has | [`gpu`] |
//! | do the golden cases of third-party references agree | [`oracle`] |

pub mod call;
pub mod case;
pub mod chain;
pub mod gates;
pub mod gpu;
pub mod judge;
pub mod large;
pub mod misuse;
pub mod nan;
pub mod oracle;
pub mod problems;
pub mod schedules;
pub mod streams;

use super::{Device, Extent, Request, Sink};
use case::Plan;
use judge::Tally;
use kda_core::{Elem, KernelDesc};
use kda_kernels::conv_verify::ConvVerifyVariant;
use kda_ref::conv_verify::sample::Switches;
use kda_ref::replay::{Case as Golden, Comparison};
use kda_ref::rng::Rng;
use kda_runtime::Backend;
use kda_runtime::operators::conv_verify::Options;

/// Whatever went wrong, in one line.
pub type Failure = Box<dyn std::error::Error>;

/// Shares of the progress bar at which the parts of a full check begin.
const PROBLEMS_END: f64 = 0.5;
const STREAMS_END: f64 = 0.6;
const NAN_END: f64 = 0.65;
const GATES_END: f64 = 0.7;
const MISUSE_END: f64 = 0.75;
const LARGE_END: f64 = 0.8;

/// Runs every variant on its problems; one row of results a variant and output. A full check goes on to streams, NaNs,
/// large pools and, in the simulator, schedules.
pub fn run(request: &Request, sink: Sink) -> Result<(), String> {
    let (device, seed) = (Device::of(request.device), request.seed);
    let plans = problems::problems(request.extent, request.device.backend, &mut Rng::new(seed));
    let variants = ConvVerifyVariant::ALL;
    let mut tallies = vec![Tally::default(); variants.len()];
    for (index, plan) in plans.iter().enumerate() {
        let case = plan.draw(seed.wrapping_add(1 + index as u64));
        judge::one_case(device, &case, &variants, &mut tallies)
            .map_err(|cause| format!("problem {index} ({plan:?}): {cause}"))?;
    }
    for (variant, tally) in variants.iter().zip(&tallies) {
        for row in tally.rows(variant.desc().entry) {
            sink(row, PROBLEMS_END);
        }
    }
    if request.extent == Extent::Full {
        let words = |cause: Failure| cause.to_string();
        // All tiles give the same bits; the simulator is slow with many CTAs.
        let rows = if request.device.backend == Backend::Sim { 128 } else { 0 };
        streams::run(device, seed, rows, sink, STREAMS_END).map_err(words)?;
        nan::run(device, seed, rows, sink, NAN_END).map_err(words)?;
        gates::run(device, seed, sink, GATES_END).map_err(words)?;
        let simulated = request.device.backend == Backend::Sim;
        misuse::duplicated(device, simulated, seed, sink, MISUSE_END).map_err(words)?;
        large::run(device, seed, sink, LARGE_END).map_err(words)?;
        if !simulated {
            gpu::run(seed, sink, 1.0).map_err(words)?;
        }
        if simulated {
            chain::run(device, 1, seed, sink, LARGE_END).map_err(words)?;
            misuse::counters(seed, sink, LARGE_END).map_err(words)?;
            schedules::run(seed, sink, 1.0).map_err(words)?;
        }
    }
    Ok(())
}

/// The problem on which one variant is shown: a padding row, snapshots, roll, two value heads a q/k head.
pub fn sample_plan(variant: ConvVerifyVariant) -> Plan {
    let t = if variant.long() { variant.t() as usize + 3 } else { variant.t() as usize };
    let (bf16_pool, channels_innermost) = (variant.pool() == Elem::BF16, variant.inner());
    let plain = Switches { bf16_pool, channels_innermost, ..Switches::plain(4, t, 1, 2) };
    let switches = Switches { roll: true, bias: true, t_alloc: t + 1, ..plain };
    Plan { null_rows: true, ..Plan::of(switches) }
}

/// Runs one variant on its sample problem, launched while its predecessor may still run. An odd seed brings
/// pools that the predecessor leaves alone.
pub fn sample(device: Device, desc: &'static KernelDesc, seed: u64, sink: Sink) -> Result<(), String> {
    let variant = ConvVerifyVariant::ALL.iter().find(|v| std::ptr::eq(v.desc(), desc));
    let variant = *variant.ok_or_else(|| format!("{} is no variant of conv_verify", desc.entry))?;
    let odd = seed % 2 == 1;
    let case = sample_plan(variant).draw(seed);
    let options = Options { variant: Some(variant), pdl: true, stable_pools: odd, ..Options::default() };
    let mut tally = Tally::default();
    judge::one_call(device, &case, &options, &mut tally).map_err(|cause| cause.to_string())?;
    for row in tally.rows(desc.entry) {
        sink(row, 1.0);
    }
    Ok(())
}

/// Runs a golden case through the operator, which chooses the variant.
pub fn replay(device: Device, case: &Golden) -> Result<Option<Vec<Comparison>>, String> {
    oracle::run(device, case).map_err(|cause| cause.to_string())
}
