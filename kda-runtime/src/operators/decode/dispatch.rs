//! Which variant runs a problem.
//!
//! Two steps. *Eligibility*: a variant is written for one order and one type of the state, and its launch checks the kernel's
//! own conditions. *Preference* is the table below, by N*HV: what is launched must fill the chip, and a CTA that owns more
//! rows of V repeats less of the convolution.

use super::NAME;
use super::problem::Problem;
use super::validate::Layout;
use crate::operators::{OpError, Plan};
use kda_core::{Elem, Executor, LaunchError};
use kda_kernels::decode::DecodeVariant;

/// By N*HV: rows of V a CTA, its threads, and CTAs an SM; the first row whose bound is not exceeded.
type Table = &'static [(u64, Tile)];
type Tile = (u32, u32, u32);

/// fp32 `[V, K]`.
const V_MAJOR: Table =
    &[(16, (16, 128, 4)), (32, (32, 128, 4)), (128, (64, 256, 2)), (512, (64, 256, 3)), (u64::MAX, (128, 512, 2))];
/// fp32 `[K, V]`.
const K_MAJOR: Table = &[(32, (16, 128, 5)), (64, (32, 128, 4)), (256, (64, 256, 2)), (u64::MAX, (128, 256, 2))];
/// bf16, either order.
const NARROW: Table = &[(64, (32, 128, 4)), (256, (64, 256, 2)), (u64::MAX, (128, 256, 2))];

/// How a call is launched.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// Run this variant; it is refused if the problem does not fit it.
    pub variant: Option<DecodeVariant>,
    /// Launch with programmatic dependent launch: the kernel may start while its predecessor drains.
    pub pdl: bool,
    /// With `pdl`: indices, convolution pool and state pool are not written by a predecessor that may still run, so that
    /// they are read ahead of the wait. A predecessor that is a decode of the same pools writes them.
    pub stable_pools: bool,
    /// New states leave L2 first.
    pub evict_first: bool,
}

/// Checks a call and chooses the variant that runs it.
///
/// # Errors
/// [`OpError`] says what was given and what is needed; nothing has been written.
pub fn plan(problem: &Problem, executor: &dyn Executor, options: &Options) -> Result<Plan, OpError> {
    let (args, layout) = problem.arguments(options.pdl && options.stable_pools, options.evict_first)?;
    let (major, minor) = executor.compute_capability();
    let runs = |variant: DecodeVariant| variant.desc().arch.runs_on(major, minor);
    if let Some(variant) = options.variant {
        let refuse = |why: String| Err(OpError::Forced { op: NAME, variant: variant.desc().entry.into(), why });
        if !runs(variant) {
            let arch = variant.desc().arch;
            return refuse(format!("it is written for {arch}, the device has compute capability {major}.{minor}"));
        }
        if !fits(variant, &layout) {
            let order = |k_first: bool| if k_first { "[K, V]" } else { "[V, K]" };
            let (of, given) = (variant.state(), layout.state);
            let (its, order) = (order(variant.k_first()), order(layout.k_first));
            return refuse(format!("it is for a state of {of} in the order {its}, the call has {given} in {order}"));
        }
        return Ok(Plan { prepared: args.prepare(variant, options.pdl)? });
    }
    let (rows, threads, ctas) = preferred(problem.pairs(), &layout);
    // Best first: the preferred tile, then larger ones, then smaller ones.
    let mut order: Vec<DecodeVariant> =
        DecodeVariant::ALL.iter().copied().filter(|v| runs(*v) && fits(*v, &layout)).collect();
    order.sort_by_key(|v| {
        (v.bv() < rows, v.bv().abs_diff(rows), v.threads().abs_diff(threads), v.ctas().abs_diff(ctas))
    });
    let mut refusal: Option<LaunchError> = None;
    for variant in order {
        match args.prepare(variant, options.pdl) {
            Ok(prepared) => return Ok(Plan { prepared }),
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    match refusal {
        Some(error) => Err(error.into()),
        None => {
            let needed = DecodeVariant::ALL.first().map_or(String::new(), |v| v.desc().arch.to_string());
            Err(OpError::NoVariant { op: NAME, given: (major, minor), needed })
        }
    }
}

/// Whether a variant is written for this order and type of the state.
fn fits(variant: DecodeVariant, layout: &Layout) -> bool {
    variant.k_first() == layout.k_first && variant.state() == layout.state
}

/// The tile that the table names.
fn preferred(pairs: u64, layout: &Layout) -> Tile {
    let table = match (layout.state, layout.k_first) {
        (Elem::BF16, _) => NARROW,
        (_, true) => K_MAJOR,
        (_, false) => V_MAJOR,
    };
    table.iter().find(|(most, _)| pairs <= *most).map_or((128, 256, 2), |(_, tile)| *tile)
}

#[cfg(test)]
mod tests;
