//! Which variant runs a problem.
//!
//! Two steps. *Eligibility* follows from the kernel's own conditions: the launch of an ineligible variant is refused.
//! *Preference* is the table below, by N*HV.

use super::NAME;
use super::problem::Problem;
use crate::operators::{OpError, Plan};
use kda_core::{Executor, LaunchError};
use kda_kernels::conv_verify::{ConvVerifyArgs, ConvVerifyVariant};

/// Rows of V a CTA by N*HV: the first row whose bound is not exceeded. From the hand-written twin's measurements on an
/// H200 (132 SMs): one row a lane group fills the chip up to 32 pairs, 512-byte warp stores win above.
const PREFERENCE: &[(u64, u32)] = &[(8, 8), (16, 16), (32, 32), (128, 64), (u64::MAX, 128)];

/// Snapshots below this many bytes in all leave L2 first: they would push out what the next kernel reads. Above, the hint
/// costs 2 to 4 % (measured with the twin on an H200).
const EVICT_FIRST_BYTES: u64 = 150_000_000;

/// How a call is launched.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// Run this variant; it is refused if the problem does not fit it.
    pub variant: Option<ConvVerifyVariant>,
    /// Launch with programmatic dependent launch: the kernel may start while its predecessor drains.
    pub pdl: bool,
    /// With `pdl`: indices, convolution pool and state pool are not written by a predecessor that may still run, so that
    /// they are read ahead of the wait.
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
        return Ok(Plan { prepared: args.prepare(variant, options.pdl)? });
    }
    choose(problem, &args, options, (major, minor))
}

fn choose(problem: &Problem, args: &ConvVerifyArgs, options: &Options, capability: (u8, u8)) -> Result<Plan, OpError> {
    let runs = |v: &ConvVerifyVariant| v.desc().arch.runs_on(capability.0, capability.1);
    let rows = preferred_rows(problem.pairs());
    // Best first: the preferred tile, then larger ones, then smaller ones; the exact number of tokens ahead of the loop.
    let mut order: Vec<ConvVerifyVariant> = ConvVerifyVariant::ALL.iter().copied().filter(runs).collect();
    order.sort_by_key(|v| (v.long(), v.bv() < rows, v.bv().abs_diff(rows)));
    let mut refusal: Option<LaunchError> = None;
    for variant in order.iter().filter(|v| problem.refuses(**v).is_none()) {
        match args.prepare(*variant, options.pdl) {
            Ok(prepared) => return Ok(Plan { prepared }),
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

/// Rows of V a CTA that the preference table names.
fn preferred_rows(pairs: u64) -> u32 {
    PREFERENCE.iter().find(|(most, _)| pairs <= *most).map_or(128, |(_, rows)| *rows)
}

#[cfg(test)]
mod tests;
