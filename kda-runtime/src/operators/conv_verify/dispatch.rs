//! Which variant runs a problem.
//!
//! Two steps. *Eligibility* follows from the kernel's own conditions: the launch of an ineligible variant is refused.
//! *Preference* is a measured table, by tokens and N*HV: `preference.rs`.

use super::NAME;
use super::preference::{PDL, PDL_STABLE, PLAIN};
use super::problem::Problem;
use crate::operators::preference::Table;
use crate::operators::{OpError, Plan};
use kda_core::{Executor, LaunchError};
use kda_kernels::conv_verify::{ConvVerifyArgs, ConvVerifyVariant};
use std::ops::RangeInclusive;

/// Snapshots below this many bytes in all leave L2 first: they would push out what the next kernel reads. Above, the hint
/// costs 2 to 4 % (measured with the twin on an H200).
const EVICT_FIRST_BYTES: u64 = 150_000_000;

/// Pairs, on a device with [`PDL_STABLE`]'s number of multiprocessors, at which loads ahead of the wait do not pay although
/// the caller allows them: they take bandwidth from the predecessor's last stores. Waiting first is 1 to 4 % faster at 256
/// pairs, up to 1.5 % at 512, and 1 to 9 % slower at 128, on an H200.
const WAIT_FIRST_PAIRS: RangeInclusive<u64> = 180..=720;

/// How a call is launched.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// Run this variant; it is refused if the problem does not fit it.
    pub variant: Option<ConvVerifyVariant>,
    /// Launch with programmatic dependent launch: the kernel may start while its predecessor drains.
    pub pdl: bool,
    /// With `pdl`: index arrays, pools and weights (`conv_weight`, `conv_bias`, `a_log`, `dt_bias`) are not written by a
    /// predecessor that may still run, so that they may be read ahead of the wait. They are, at sizes at which that is
    /// faster. A predecessor that rolls the same lines writes them, and so does one that commits to the same slots.
    pub stable_pools: bool,
    /// Whether snapshots leave L2 first; chosen by their size if `None`.
    pub evict_first: Option<bool>,
}

/// Checks a call and chooses the variant that runs it.
///
/// # Errors
/// [`OpError`] says what was given and what is needed; nothing has been written.
pub fn plan(problem: &Problem, executor: &dyn Executor, options: &Options) -> Result<Plan, OpError> {
    let snapshot_bytes = problem.pairs().saturating_mul(problem.tokens()).saturating_mul(128 * 128 * 4);
    let evict_first = options.evict_first.unwrap_or(snapshot_bytes < EVICT_FIRST_BYTES);
    let options = &Options { stable_pools: options.stable_pools && reads_early(problem, executor), ..*options };
    let args = problem.arguments(options.pdl && options.stable_pools, evict_first)?;
    let (major, minor) = executor.compute_capability();
    let runs = |variant: ConvVerifyVariant| variant.desc().arch.runs_on(major, minor);
    if let Some(variant) = options.variant {
        let refuse = |why: String| Err(OpError::Forced { op: NAME, variant: variant.desc().entry.into(), why });
        if !runs(variant) {
            let arch = variant.desc().arch;
            return refuse(format!("it is written for {arch}, the device has compute capability {major}.{minor}"));
        }
        if let Some(why) = problem.refuses(variant) {
            return refuse(why);
        }
        return Ok(Plan::of(args.prepare(variant, options.pdl)?));
    }
    choose(problem, executor, &args, options)
}

fn choose(
    problem: &Problem,
    executor: &dyn Executor,
    args: &ConvVerifyArgs,
    options: &Options,
) -> Result<Plan, OpError> {
    let capability = executor.compute_capability();
    let tokens = problem.tokens();
    let fits =
        |v: &ConvVerifyVariant| v.desc().arch.runs_on(capability.0, capability.1) && problem.refuses(*v).is_none();
    let (table, pairs, multiprocessors) = (preference(options), problem.pairs(), executor.multiprocessors());
    let mut order: Vec<ConvVerifyVariant> = ConvVerifyVariant::ALL.iter().copied().filter(fits).collect();
    // Best first; among what the table does not name, the exact number of tokens ahead of the loop.
    order.sort_by_cached_key(|v| (table.rank(v.desc().entry, tokens, pairs, multiprocessors), v.long()));
    let mut refusal: Option<LaunchError> = None;
    for variant in &order {
        match args.prepare(*variant, options.pdl) {
            Ok(prepared) => return Ok(Plan::of(prepared)),
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    match refusal {
        Some(error) => Err(error.into()),
        None => {
            let needed = ConvVerifyVariant::ALL.first().map_or(String::new(), |v| v.desc().arch.to_string());
            Err(OpError::NoVariant { op: NAME, given: capability, needed })
        }
    }
}

/// Whether loads ahead of the wait for the predecessor pay at this size.
fn reads_early(problem: &Problem, executor: &dyn Executor) -> bool {
    let scaled = u128::from(problem.pairs()) * u128::from(PDL_STABLE.multiprocessors);
    let pairs = scaled / u128::from(executor.multiprocessors().max(1));
    !u64::try_from(pairs).is_ok_and(|pairs| WAIT_FIRST_PAIRS.contains(&pairs))
}

/// The table for a way of launching.
pub fn preference(options: &Options) -> &'static Table {
    match (options.pdl, options.stable_pools) {
        (false, _) => &PLAIN,
        (true, false) => &PDL,
        (true, true) => &PDL_STABLE,
    }
}

#[cfg(test)]
mod tests;
