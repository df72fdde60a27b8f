//! `tc_commit` against the golden model in contract mode.
//!
//! | question | module |
//! | --- | --- |
//! | which problems are run | [`problems`], each made by [`case`] |
//! | how does a problem run on a device | [`call`] |
//! | what of its results is right | [`judge`] |
//! | does the order of warps and CTAs matter | [`schedules`] |
//! | do the golden cases of third-party references agree | [`oracle`] |

pub mod call;
pub mod case;
pub mod judge;
pub mod oracle;
pub mod problems;
pub mod schedules;

use super::{Device, Extent, Request, Sink};
use case::Plan;
use judge::Tally;
use kda_core::{Elem, KernelDesc};
use kda_kernels::tc_commit::TcCommitVariant;
use kda_ref::replay::{Case as Golden, Comparison};
use kda_ref::rng::Rng;
use kda_ref::tc_commit::ConvOrder;
use kda_ref::tc_commit::sample::Switches;
use kda_runtime::Backend;
use kda_runtime::operators::tc_commit::Options;

pub use super::conv_verify::Failure;

/// Share of the progress bar at which the problems of a full check end.
const PROBLEMS_END: f64 = 0.8;

/// Runs every variant on its problems; one row of results a variant and output.
pub fn run(request: &Request, sink: Sink) -> Result<(), String> {
    let (device, seed) = (Device::of(request.device), request.seed);
    let plans = problems::problems(request.extent, request.device.backend, &mut Rng::new(seed));
    let variants = TcCommitVariant::ALL;
    let mut tallies = vec![Tally::default(); variants.len()];
    for (index, plan) in plans.iter().enumerate() {
        let case = plan.draw(seed.wrapping_add(1 + index as u64));
        judge::one_case(device, &case, &variants, &mut tallies)
            .map_err(|cause| format!("problem {index} ({plan:?}): {cause}"))?;
        (request.progress)(PROBLEMS_END * (index + 1) as f64 / plans.len() as f64);
    }
    for (variant, tally) in variants.iter().zip(&tallies) {
        for row in tally.rows(variant.desc().entry) {
            sink(row, PROBLEMS_END);
        }
    }
    if request.extent == Extent::Full && request.device.backend == Backend::Sim {
        schedules::run(seed, sink, 1.0).map_err(|cause| cause.to_string())?;
    }
    Ok(())
}

/// The problem on which one variant is shown: two layers by their table, a request that is nobody's, boundaries where it
/// applies any, slots of their own to write and windows to move.
pub fn sample_plan(variant: TcCommitVariant, odd: bool) -> Plan {
    let window = if variant.most() == 8 { 5 } else { 9 };
    let switches = Switches {
        bf16_state: variant.state() == Elem::BF16,
        conv: Some(if odd { ConvOrder::ChannelMajor } else { ConvOrder::TokenMajor }),
        lower_bound: if odd { None } else { Some(-5.0) },
        separate: true,
        boundary: variant.boundary(),
        ..Switches::plain(3, 2, window)
    };
    Plan { nobody: true, layers: Some(2), ..Plan::of(switches) }
}

/// Runs one variant on its sample problem, launched while its predecessor may still run, where it can be. An odd seed brings
/// the softplus gate, and windows in rows of channels.
pub fn sample(device: Device, desc: &'static KernelDesc, seed: u64, sink: Sink) -> Result<(), String> {
    let variant = TcCommitVariant::ALL.iter().find(|v| std::ptr::eq(v.desc(), desc));
    let variant = *variant.ok_or_else(|| format!("{} is no variant of tc_commit", desc.entry))?;
    let case = sample_plan(variant, seed % 2 == 1).draw(seed);
    let options = Options { variant: Some(variant), pdl: true };
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
