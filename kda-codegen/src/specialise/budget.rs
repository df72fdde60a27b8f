//! Limits on what one variant may cost to compile: code, nesting, and trials of loops.
//!
//! An unrolled loop in an unrolled loop, or a function that calls another one twice, grows without bound while its source
//! stays small. The work is counted, trials of loop bodies included, and the loop that was being unrolled is named.

use super::Specialiser;
use super::site::Site;
use crate::diag::{Diagnostic, Place, Result};
use proc_macro2::Span;

/// Expressions and array elements that one variant may evaluate.
const MOST_STEPS: u64 = 1_000_000;
/// Expressions that may stand inside each other, calls included.
const MOST_NESTED: usize = 200;

/// Work done so far.
#[derive(Default)]
pub(super) struct Budget {
    steps: u64,
    depth: usize,
    /// Unrolled loops around here: place and number of trips.
    loops: Vec<(Span, Span, i128)>,
}

impl Specialiser<'_> {
    /// Counts work.
    pub(super) fn spend(&mut self, steps: usize, site: Site<'_>) -> Result<()> {
        self.budget.steps += steps as u64;
        if self.budget.steps <= MOST_STEPS {
            return Ok(());
        }
        let message = |what: &str| format!("{what} becomes too much code: more than {MOST_STEPS} steps to compile");
        Err(match self.budget.loops.iter().max_by_key(|(_, _, trips)| *trips) {
            Some((start, end, trips)) => {
                Diagnostic::new(551, (*start, *end), message(&format!("this loop of {trips} unrolled trips")))
                    .help("leave `#[unroll]` out, or unroll fewer loops inside each other")
            }
            None => Diagnostic::new(551, site, message("this"))
                .help("each call of a device function is compiled anew: call it in a loop instead"),
        })
    }

    /// Enters an expression.
    pub(super) fn enter(&mut self, site: Site<'_>) -> Result<()> {
        self.budget.depth += 1;
        self.spend(1, site)?;
        if self.budget.depth > MOST_NESTED {
            return Err(Diagnostic::new(
                552,
                site,
                format!("more than {MOST_NESTED} expressions stand inside each other"),
            )
            .help("give parts of it names with `let`"));
        }
        Ok(())
    }

    /// Leaves an expression.
    pub(super) fn leave(&mut self) {
        self.budget.depth -= 1;
    }

    /// Depth of the expression here, to go back to after an error.
    pub(super) fn nesting(&self) -> (usize, usize) {
        (self.budget.depth, self.budget.loops.len())
    }

    /// Goes back to a depth.
    pub(super) fn unwind_nesting(&mut self, (depth, loops): (usize, usize)) {
        self.budget.depth = depth;
        self.budget.loops.truncate(loops);
    }

    /// Enters an unrolled loop.
    pub(super) fn enter_unrolled(&mut self, site: Site<'_>, trips: i128) {
        let (start, end) = site.ends();
        self.budget.loops.push((start, end, trips));
    }

    /// Leaves it.
    pub(super) fn leave_unrolled(&mut self) {
        self.budget.loops.pop();
    }
}
