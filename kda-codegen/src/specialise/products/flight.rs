//! What runs on the tensor cores while the kernel is compiled.

use super::{Accumulator, Specialiser};
use crate::diag::{Diagnostic, Result};
use crate::specialise::pipeline::Slot;
use crate::specialise::site::Site;

/// What runs on the tensor cores while the kernel is compiled.
#[derive(Clone, Debug, Default)]
pub struct Flight {
    /// Products since the last commit: accumulators, and slots that they read.
    pub open: Vec<(usize, Option<u32>)>,
    /// Committed groups, oldest first.
    pub groups: Vec<Vec<(usize, Option<u32>)>>,
}

impl Flight {
    /// True if any product may still run.
    pub fn is_busy(&self) -> bool {
        !self.open.is_empty() || !self.groups.is_empty()
    }

    /// True if an accumulator is being written.
    pub fn writes(&self, id: usize) -> bool {
        self.open.iter().chain(self.groups.iter().flatten()).any(|(acc, _)| *acc == id)
    }
}

impl Specialiser<'_> {
    /// A slot may be released only when no product reads it any more.
    pub(in crate::specialise) fn check_products(&self, slot: &Slot, site: Site<'_>) -> Result<()> {
        let reads = |(_, read): &(usize, Option<u32>)| *read == Some(slot.id);
        if self.flight.open.iter().chain(self.flight.groups.iter().flatten()).any(reads) {
            return Err(Diagnostic::new(655, site, "products that read this stage may still run")
                .help("wait for them first: `wgmma::commit(); wgmma::wait::<0>();`"));
        }
        Ok(())
    }

    pub(in crate::specialise) fn landed(&self, acc: &Accumulator, site: Site<'_>) -> Result<()> {
        if self.flight.writes(acc.id) {
            return Err(Diagnostic::new(903, site, "products that write this accumulator may still run")
                .help("wait for them first: `wgmma::commit(); wgmma::wait::<0>();`"));
        }
        Ok(())
    }
}
