//! Which variant runs a problem.
//!
//! Two steps. *Eligibility*: a variant is written for one order and one type of the state, and its launch checks the kernel's
//! own conditions. *Preference* is a measured table for each of these and each way of launching, by N*HV: `preference.rs`.

use super::problem::Problem;
use super::validate::Layout;
use super::{NAME, preference as measured};
use crate::operators::preference::Table;
use crate::operators::{OpError, Plan};
use kda_core::{Elem, Executor, LaunchError};
use kda_kernels::decode::DecodeVariant;

/// How a call is launched.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// Run this variant; it is refused if the problem does not fit it.
    pub variant: Option<DecodeVariant>,
    /// Launch with programmatic dependent launch: the kernel may start while its predecessor drains.
    pub pdl: bool,
    /// With `pdl`: index arrays, pools and weights (`conv_weight`, `conv_bias`, `a_log`, `dt_bias`) are not written by a
    /// predecessor that may still run, so that they are read ahead of the wait. A predecessor that is a decode of the same
    /// slots writes them.
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
        return Ok(Plan::of(args.prepare(variant, options.pdl)?));
    }
    let table = preference(&layout, options);
    let (pairs, multiprocessors) = (problem.pairs(), executor.multiprocessors());
    // Best first.
    let mut order: Vec<DecodeVariant> =
        DecodeVariant::ALL.iter().copied().filter(|v| runs(*v) && fits(*v, &layout)).collect();
    order.sort_by_cached_key(|v| table.rank(v.desc().entry, 1, pairs, multiprocessors));
    let mut refusal: Option<LaunchError> = None;
    for variant in order {
        match args.prepare(variant, options.pdl) {
            Ok(prepared) => return Ok(Plan::of(prepared)),
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

/// The table for a state and a way of launching.
fn preference(layout: &Layout, options: &Options) -> &'static Table {
    let [plain, pdl, stable] = match (layout.state, layout.k_first) {
        (Elem::BF16, false) => [&measured::BF16_VK_PLAIN, &measured::BF16_VK_PDL, &measured::BF16_VK_PDL_STABLE],
        (Elem::BF16, true) => [&measured::BF16_KV_PLAIN, &measured::BF16_KV_PDL, &measured::BF16_KV_PDL_STABLE],
        (_, false) => [&measured::F32_VK_PLAIN, &measured::F32_VK_PDL, &measured::F32_VK_PDL_STABLE],
        (_, true) => [&measured::F32_KV_PLAIN, &measured::F32_KV_PDL, &measured::F32_KV_PDL_STABLE],
    };
    match (options.pdl, options.stable_pools) {
        (false, _) => plain,
        (true, false) => pdl,
        (true, true) => stable,
    }
}

#[cfg(test)]
mod tests;
