//! `delta_h` against the golden model: every variant, and the schedule that they walk.
//!
//! | question | module |
//! | --- | --- |
//! | which problems are run | [`problems`], each made by [`case`] |
//! | how does a problem run on a device | [`call`] |
//! | what of its results is right | [`judge`] |
//! | is the work list right | [`work`] |
//! | do tensors of more than 2^31 elements work | [`large`] |
//! | does the order of warps, copies and CTAs matter | [`schedules`] |
//! | do the golden cases of third-party references agree | [`oracle`] |

pub mod call;
pub mod case;
pub mod judge;
pub mod large;
pub mod oracle;
pub mod problems;
pub mod schedules;
pub mod work;

use super::{Device, Extent, Request, Sink};
use case::{Plan, walks_segments};
use judge::Tallies;
use kda_core::KernelDesc;
use kda_ref::delta_h::sample::{GateForm, PoolForm, Switches};
use kda_ref::layout::StateOrder;
use kda_ref::replay::{Case as Golden, Comparison};
use kda_ref::rng::Rng;
use kda_runtime::Backend;
use kda_runtime::operators::delta_h::{Options, Variant};

pub use super::conv_verify::Failure;

/// Shares of the progress bar at which the parts of a full check end.
const PROBLEMS_END: f64 = 0.6;
const LARGE_END: f64 = 0.7;
/// Sequences of a problem that also run alone.
const ALONE: usize = 3;

/// Runs every variant for many heads on its problems; rows of results a variant.
pub fn run(request: &Request, sink: Sink) -> Result<(), String> {
    run_of(&Variant::all().filter(|v| matches!(v, Variant::Hopper(_))).collect::<Vec<_>>(), request, sink)
}

/// The same of those for few heads, and of segments.
pub fn run_narrow(request: &Request, sink: Sink) -> Result<(), String> {
    run_of(&Variant::all().filter(|v| matches!(v, Variant::Narrow(_))).collect::<Vec<_>>(), request, sink)
}

/// The same of the portable variants.
pub fn run_portable(request: &Request, sink: Sink) -> Result<(), String> {
    run_of(&Variant::all().filter(|v| !v.boxes()).collect::<Vec<_>>(), request, sink)
}

fn run_of(variants: &[Variant], request: &Request, sink: Sink) -> Result<(), String> {
    let (device, seed) = (Device::of(request.device), request.seed);
    let (major, minor) = device.executor.compute_capability();
    let plans = problems::problems(request.extent, request.device.backend, &mut Rng::new(seed));
    let mut tallies = Tallies::new();
    for variant in variants.iter().filter(|v| v.desc().arch.runs_on(major, minor)) {
        tallies.entry(variant.desc().entry).or_default();
    }
    for (index, plan) in plans.iter().enumerate() {
        let case = plan.draw(seed.wrapping_add(1 + index as u64));
        // In the simulator long sequences alone take long, and are much the same.
        let alone = if plan.split && request.device.backend == Backend::Sim { 0 } else { ALONE };
        judge::on_variants(device, &case, alone, variants, &mut tallies)
            .map_err(|cause| format!("problem {index} ({plan:?}): {cause}"))?;
    }
    for (entry, tally) in &tallies {
        for row in tally.rows(entry) {
            sink(row, PROBLEMS_END);
        }
    }
    let words = |cause: Failure| cause.to_string();
    if request.extent == Extent::Full {
        large::run(device, variants, seed, sink, LARGE_END).map_err(words)?;
        if request.device.backend == Backend::Sim {
            schedules::run(variants, seed, sink, 1.0).map_err(words)?;
        }
    }
    Ok(())
}

/// Runs both variants of the schedule on its batches.
pub fn run_schedule(request: &Request, sink: Sink) -> Result<(), String> {
    work::run(Device::of(request.device), request.extent, request.seed, sink).map_err(|cause| cause.to_string())
}

/// The problem on which one variant is shown: an empty sequence and tails in place, or a sequence in segments.
pub fn sample_plan(variant: impl Into<Variant>, odd: bool) -> Plan {
    let variant = variant.into();
    let order = if odd { StateOrder::VFirst } else { StateOrder::KFirst };
    let pools = Switches { initial: PoolForm::Slots, final_state: PoolForm::Slots, order, ..Switches::plain(1) };
    let switches = Switches {
        gate: if variant.scalar() { GateForm::Scalar } else { GateForm::Cumulative },
        h_order: judge::h_order(variant),
        bf16_state: odd,
        in_place: odd,
        ..pools
    };
    match variant.maps() || walks_segments(variant) {
        true => Plan::cut(&[2497], switches),
        false => Plan::of(&[65, 0, 130], switches),
    }
}

/// Runs one variant on its sample problem, launched while its predecessor may still run; a variant for maps with the one that
/// needs them. An odd seed brings bf16 states `[V, K]` in place.
pub fn sample(device: Device, desc: &'static KernelDesc, seed: u64, sink: Sink) -> Result<(), String> {
    let variant = Variant::of(desc);
    let variant = variant.ok_or_else(|| format!("{} is no variant of delta_h", desc.entry))?;
    let of_maps = |v: &Variant| walks_segments(*v) && v.v_first() == variant.v_first();
    let (walks, maps) =
        if variant.maps() { (Variant::all().find(of_maps), Some(variant)) } else { (Some(variant), None) };
    let options = Options { variant: Some(walks.ok_or("no variant needs the maps")?), maps, pdl: true };
    let case = sample_plan(variant, seed % 2 == 1).draw(seed);
    let mut tally = judge::Tally::default();
    judge::one_call(device, &case, &options, &mut tally).map_err(|cause| cause.to_string())?;
    for row in tally.rows(desc.entry) {
        sink(row, 1.0);
    }
    Ok(())
}

/// Runs one variant of the schedule on its sample batch.
pub fn sample_schedule(device: Device, desc: &'static KernelDesc, seed: u64, sink: Sink) -> Result<(), String> {
    work::sample(device, desc, seed, sink).map_err(|cause| cause.to_string())
}

/// Runs a golden case through the operator, which chooses the variant.
pub fn replay(device: Device, case: &Golden) -> Result<Option<Vec<Comparison>>, String> {
    oracle::run(device, case).map_err(|cause| cause.to_string())
}
