//! `tc_verify` against the golden model in contract mode.
//!
//! | question | module |
//! | --- | --- |
//! | which problems are run | [`problems`], each made by [`case`] |
//! | how does a problem run on a device | [`call`] |
//! | what of its results is right | [`judge`] |
//! | do steps of verify and commit come to the recurrence | [`chain`] |
//! | does the order of warps, copies and CTAs matter | [`schedules`] |
//! | do the golden cases of third-party references agree | [`oracle`] |

pub mod call;
pub mod case;
pub mod chain;
pub mod judge;
pub mod oracle;
pub mod problems;
pub mod schedules;

use super::{Device, Extent, Request, Sink};
use case::{Plan, options, shown};
use judge::{Tallies, Tally};
use kda_core::KernelDesc;
use kda_ref::replay::{Case as Golden, Comparison};
use kda_ref::rng::Rng;
use kda_runtime::Backend;
use kda_runtime::operators::tc_verify::Variant;

pub use super::conv_verify::Failure;

/// Share of the progress bar at which the problems end.
const PROBLEMS_END: f64 = 0.7;

/// Runs every variant for Hopper on its problems, rows of results a variant; then chains of steps on those that the operator chooses.
pub fn run(request: &Request, sink: Sink) -> Result<(), String> {
    run_of(&Variant::all().filter(|v| v.hopper()).collect::<Vec<_>>(), request, sink)?;
    let device = Device::of(request.device);
    chain::run(device, request.extent, &[], request.seed, sink).map_err(|cause| cause.to_string())
}

/// The same of the portable variants.
pub fn run_portable(request: &Request, sink: Sink) -> Result<(), String> {
    let variants: Vec<Variant> = Variant::all().filter(|v| !v.hopper()).collect();
    run_of(&variants, request, sink)?;
    let device = Device::of(request.device);
    chain::run(device, request.extent, &variants, request.seed, sink).map_err(|cause| cause.to_string())
}

fn run_of(variants: &[Variant], request: &Request, sink: Sink) -> Result<(), String> {
    let (device, seed) = (Device::of(request.device), request.seed);
    let (major, minor) = device.executor.compute_capability();
    let plans = problems::problems(request.extent, request.device.backend, &mut Rng::new(seed));
    let runs: Vec<Variant> = variants.iter().copied().filter(|v| v.desc().arch.runs_on(major, minor)).collect();
    let mut tallies: Tallies = runs.iter().map(|v| (v.desc().entry, Tally::default())).collect();
    for (index, plan) in plans.iter().enumerate() {
        if !runs.iter().any(|variant| case::fits(*variant, &plan.switches)) {
            continue;
        }
        let case = plan.draw(seed.wrapping_add(1 + index as u64));
        judge::on_variants(device, &case, &runs, &mut tallies)
            .map_err(|cause| format!("problem {index} ({plan:?}): {cause}"))?;
        (request.progress)(PROBLEMS_END * index as f64 / plans.len() as f64);
    }
    for (entry, tally) in &tallies {
        for row in tally.rows(entry) {
            sink(row, PROBLEMS_END);
        }
    }
    if request.extent == Extent::Full && request.device.backend == Backend::Sim {
        schedules::run(&runs, seed, sink, 1.0).map_err(|cause| cause.to_string())?;
    }
    Ok(())
}

/// Runs one variant on its sample problem. An odd seed has tickets.
pub fn sample(device: Device, desc: &'static KernelDesc, seed: u64, sink: Sink) -> Result<(), String> {
    let variant = Variant::of(desc).ok_or_else(|| format!("{} is no variant of tc_verify", desc.entry))?;
    let plan = Plan { counters: seed % 2 == 1, ..Plan::of(shown(variant)) };
    let mut tally = Tally::default();
    let case = plan.draw(seed);
    judge::one_call(device, &case, &options(variant), &mut tally).map_err(|cause| cause.to_string())?;
    for row in tally.rows(desc.entry) {
        sink(row, 1.0);
    }
    Ok(())
}

/// Runs a golden case through the operator, which chooses the variant.
pub fn replay(device: Device, case: &Golden) -> Result<Option<Vec<Comparison>>, String> {
    oracle::run(device, case).map_err(|cause| cause.to_string())
}
