//! What runs on the tensor cores while the kernel is compiled.
//!
//! Products since the last commit are open; a commit makes them a group; a wait ends the oldest groups. Both sides of a
//! runtime branch leave the same products in flight, and a group is opened and closed on one side; none is in flight where
//! a runtime loop begins, goes round or ends. Hardware would allow more, but `ptxas` would serialise the products, or
//! repair what it does not follow.

use super::{Accumulator, Specialiser};
use crate::diag::{Diagnostic, Result};
use crate::specialise::pipeline::Slot;
use crate::specialise::site::Site;
use proc_macro2::Span;
use std::ops::Range;

/// A product that may still run.
#[derive(Clone, Debug, PartialEq)]
pub struct Running {
    /// Number of the accumulator that it writes.
    pub accumulator: usize,
    /// Columns that it writes.
    pub columns: Range<u32>,
    /// Stages of pipelines that it reads.
    pub stages: Vec<u32>,
}

/// A statement that changes what is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A product.
    Product,
    /// `wgmma::commit()`
    Commit,
    /// `wgmma::wait::<N>()`
    Wait,
}

/// What runs on the tensor cores.
#[derive(Clone, Debug, Default)]
pub struct Flight {
    /// Products since the last commit.
    pub open: Vec<Running>,
    /// Committed groups, oldest first.
    pub groups: Vec<Vec<Running>>,
    /// Nothing has touched registers of products since the last `wgmma.fence`.
    pub fenced: bool,
    /// The last statement that changed it.
    pub last: Option<(Step, (Span, Span))>,
}

impl Flight {
    fn running(&self) -> impl Iterator<Item = &Running> {
        self.open.iter().chain(self.groups.iter().flatten())
    }

    /// True if any product may still run.
    pub fn is_busy(&self) -> bool {
        self.running().next().is_some()
    }

    /// True if columns of an accumulator are being written.
    pub fn writes(&self, accumulator: usize, columns: &Range<u32>) -> bool {
        self.running().any(|r| r.accumulator == accumulator && overlap(&r.columns, columns))
    }

    /// True if they are being written by products of other columns than exactly these.
    pub fn writes_otherwise(&self, accumulator: usize, columns: &Range<u32>) -> bool {
        self.running().any(|r| r.accumulator == accumulator && overlap(&r.columns, columns) && r.columns != *columns)
    }

    /// True if a stage is being read.
    fn reads(&self, stage: u32) -> bool {
        self.running().any(|r| r.stages.contains(&stage))
    }

    /// True if the same products are in flight.
    fn same(&self, other: &Flight) -> bool {
        self.open == other.open && self.groups == other.groups
    }

    /// What is in flight behind a branch with these two sides; `before` is what was ahead of it.
    pub fn join(self, other: Flight, before: &Flight) -> Result<Flight> {
        if self.same(&other) {
            let closed = before.open.is_empty() && self.open.is_empty() || self.same(before);
            return match self.last {
                Some((_, place)) if !closed => {
                    let message = "products that no commit has closed reach into a runtime branch or out of it";
                    Err(Diagnostic::new(904, place, message)
                        .help("write `wgmma::commit();` behind the products, on the same side of the branch"))
                }
                _ => Ok(Flight { fenced: false, ..self }),
            };
        }
        let changed = if self.same(before) { other } else { self };
        let (step, place) = changed.last.unwrap_or((Step::Product, (Span::call_site(), Span::call_site())));
        let (code, what) = match step {
            Step::Product => (903, "this product"),
            Step::Commit => (904, "this commit"),
            Step::Wait => (903, "this wait"),
        };
        let message = format!("{what} leaves other products in flight than the other side of the runtime branch");
        Err(Diagnostic::new(code, place, message)
            .help("do the same on both sides, move it out of the branch, or wait within the branch"))
    }
}

fn overlap(a: &Range<u32>, b: &Range<u32>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Specialiser<'_> {
    /// A slot may be released only when no product reads it any more.
    pub(in crate::specialise) fn check_products(&self, slot: &Slot, site: Site<'_>) -> Result<()> {
        if self.flight.reads(slot.id) {
            return Err(Diagnostic::new(655, site, "products that read this stage may still run")
                .help("wait for them first: `wgmma::commit(); wgmma::wait::<0>();`"));
        }
        Ok(())
    }

    /// An accumulator may be touched only by its warpgroups, and when no product writes it any more.
    pub(super) fn landed(&self, acc: &Accumulator, site: Site<'_>) -> Result<()> {
        self.check_group(acc.m, acc.tiles.len(), site)?;
        if self.flight.writes(acc.id, &acc.columns()) {
            return Err(Diagnostic::new(903, site, "products that write this accumulator may still run")
                .help("wait for them first: `wgmma::commit(); wgmma::wait::<0>();`"));
        }
        Ok(())
    }

    /// Nothing may be in flight here; `what` ends the sentence that says so.
    pub(in crate::specialise) fn check_idle(&self, what: &str, site: Site<'_>) -> Result<()> {
        if !self.flight.is_busy() {
            return Ok(());
        }
        let error = Diagnostic::new(903, site, format!("products are in flight {what}"))
            .help("wait for them first: `wgmma::commit(); wgmma::wait::<0>();`");
        Err(match self.flight.last {
            Some((_, place)) => error.note(place.0, "the last of them, or of their commits and waits, is here"),
            None => error,
        })
    }

    /// Products are in flight at the end of what `what` names: an error at the last statement that concerns them.
    pub(in crate::specialise) fn check_landed_by(&self, what: &str) -> Result<()> {
        match self.flight.last {
            Some((_, place)) if self.flight.is_busy() => {
                Err(Diagnostic::new(903, place, format!("products are in flight at the end of {what}"))
                    .help("end it with `wgmma::commit(); wgmma::wait::<0>();`"))
            }
            _ => Ok(()),
        }
    }
}
