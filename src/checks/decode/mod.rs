//! `decode` against the golden model in contract mode.
//!
//! | question | module |
//! | --- | --- |
//! | which problems are run | [`problems`], each made by [`case`] |
//! | how does a problem run on a device | [`call`] |
//! | what of its results is right | [`judge`] |
//! | does a verify of T tokens give what T decodes give | [`chain`] |
//! | how far does a state drift in thousands of tokens | [`drift`] |
//! | do pools of more than 2^31 elements work | [`large`] |
//! | does the order of warps, copies and CTAs matter | [`schedules`] |
//! | do the golden cases of third-party references agree | [`oracle`] |

pub mod call;
pub mod case;
pub mod chain;
pub mod drift;
pub mod judge;
pub mod large;
pub mod oracle;
pub mod problems;
pub mod schedules;

use super::{Device, Extent, Request, Sink};
use case::Plan;
use judge::Tally;
use kda_core::{Elem, KernelDesc};
use kda_kernels::decode::DecodeVariant;
use kda_ref::decode::sample::Switches;
use kda_ref::replay::{Case as Golden, Comparison};
use kda_ref::rng::Rng;
use kda_runtime::Backend;
use kda_runtime::operators::decode::Options;

pub use super::conv_verify::Failure;

/// Shares of the progress bar at which the parts of a full check begin.
const PROBLEMS_END: f64 = 0.5;
const CHAIN_END: f64 = 0.6;
const DRIFT_END: f64 = 0.8;
const LARGE_END: f64 = 0.9;

/// Runs every variant on its problems; one row of results a variant and output. Then the chain against `conv_verify`.
pub fn run(request: &Request, sink: Sink) -> Result<(), String> {
    let (device, seed) = (Device::of(request.device), request.seed);
    let plans = problems::problems(request.extent, request.device.backend, &mut Rng::new(seed));
    let variants = DecodeVariant::ALL;
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
    let words = |cause: Failure| cause.to_string();
    chain::run(device, request.extent, seed, sink, CHAIN_END).map_err(words)?;
    if request.extent == Extent::Full {
        drift::run(device, seed, sink, DRIFT_END).map_err(words)?;
        large::run(device, seed, sink, LARGE_END).map_err(words)?;
        if request.device.backend == Backend::Sim {
            schedules::run(seed, sink, 1.0).map_err(words)?;
        }
    }
    Ok(())
}

/// The problem on which one variant is shown: a padding row, two value heads a q/k head, slots of their own to write.
pub fn sample_plan(variant: DecodeVariant, odd: bool) -> Plan {
    let bf16_state = variant.state() == Elem::BF16;
    let order = judge::order(variant);
    let switches = Switches { bias: true, bf16_pool: odd, bf16_state, order, ..Switches::plain(3, 1, 2) };
    Plan { null_rows: true, ..Plan::of(switches) }
}

/// Runs one variant on its sample problem, launched while its predecessor may still run. An odd seed brings a pool of bf16,
/// and pools that the predecessor leaves alone.
pub fn sample(device: Device, desc: &'static KernelDesc, seed: u64, sink: Sink) -> Result<(), String> {
    let variant = DecodeVariant::ALL.iter().find(|v| std::ptr::eq(v.desc(), desc));
    let variant = *variant.ok_or_else(|| format!("{} is no variant of decode", desc.entry))?;
    let odd = seed % 2 == 1;
    let case = sample_plan(variant, odd).draw(seed);
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
