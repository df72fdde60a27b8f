//! Which variant runs a problem.
//!
//! Two steps. *Eligibility*: a variant is written for one type of the state and for windows up to a size; one that applies no
//! boundary runs no call with one, and every other runs calls with and without; its launch checks the kernel's own
//! conditions. *Preference* is a table by the number of states, `preference.rs`; of two variants of one name the one for
//! smaller windows comes first, of those the one without boundaries, which has more CTAs a multiprocessor, and of those the
//! one for the newer architecture, which alone can be launched with programmatic dependent launch.

use super::problem::Problem;
use super::validate::Layout;
use super::{NAME, preference as measured};
use crate::operators::preference::Table;
use crate::operators::{OpError, Plan};
use kda_core::{Elem, Executor, LaunchError};
use kda_kernels::tc_commit::TcCommitVariant;

/// How a call is launched.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// Run this variant; it is refused if the problem does not fit it.
    pub variant: Option<TcCommitVariant>,
    /// Launch with programmatic dependent launch, where the device has it: the kernel may start while its predecessor
    /// drains, and waits for it ahead of everything else.
    pub pdl: bool,
}

/// Checks a call and chooses the variant that runs it.
///
/// # Errors
/// [`OpError`] says what was given and what is needed; nothing has been written.
pub fn plan(problem: &Problem, executor: &dyn Executor, options: &Options) -> Result<Plan, OpError> {
    let (args, layout) = problem.arguments()?;
    let (major, minor) = executor.compute_capability();
    let runs = |variant: TcCommitVariant| variant.desc().arch.runs_on(major, minor);
    if let Some(variant) = options.variant {
        let refuse = |why: String| Err(OpError::Forced { op: NAME, variant: variant.desc().entry.into(), why });
        if !runs(variant) {
            let arch = variant.desc().arch;
            return refuse(format!("it is written for {arch}, the device has compute capability {major}.{minor}"));
        }
        if variant.state() != layout.state {
            return refuse(format!("it is for a state of {}, the call has {}", variant.state(), layout.state));
        }
        if u64::from(variant.most()) < layout.window {
            return refuse(format!("it is for windows up to {}, the call has {}", variant.most(), layout.window));
        }
        if problem.boundary.is_some() && !variant.boundary() {
            return refuse("it applies no boundary, the call has one".into());
        }
        return Ok(Plan::of(args.prepare(variant, options.pdl)?));
    }
    let (table, states, multiprocessors) =
        (preference(layout.state, options.pdl), problem.states(), executor.multiprocessors());
    // Best first.
    let mut order: Vec<TcCommitVariant> =
        TcCommitVariant::ALL.iter().copied().filter(|v| runs(*v) && fits(*v, problem, &layout)).collect();
    order.sort_by_cached_key(|v| {
        let desc = v.desc();
        (
            table.rank(desc.entry, 1, states, multiprocessors),
            v.most(),
            v.boundary(),
            std::cmp::Reverse((desc.arch.major, desc.arch.minor)),
        )
    });
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
            let oldest = TcCommitVariant::ALL.iter().map(|v| v.desc().arch).min_by_key(|arch| (arch.major, arch.minor));
            let needed = oldest.map_or(String::new(), |arch| arch.to_string());
            Err(OpError::NoVariant { op: NAME, given: (major, minor), needed })
        }
    }
}

/// Whether a variant is written for this type of the state, for a window of this size, and for a boundary if there is one.
fn fits(variant: TcCommitVariant, problem: &Problem, layout: &Layout) -> bool {
    variant.state() == layout.state
        && u64::from(variant.most()) >= layout.window
        && (variant.boundary() || problem.boundary.is_none())
}

/// The table for a type of the state and a launch.
fn preference(state: Elem, pdl: bool) -> &'static Table {
    match (state, pdl) {
        (Elem::BF16, false) => &measured::BF16_PLAIN,
        (Elem::BF16, true) => &measured::BF16_PDL,
        (_, false) => &measured::F32_PLAIN,
        (_, true) => &measured::F32_PDL,
    }
}

#[cfg(test)]
mod tests;
