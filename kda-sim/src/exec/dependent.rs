//! Dependent launch: what a grid accesses before it has waited for the grid ahead of it.
//!
//! `griddepcontrol.wait` returns when the grid ahead has completed and its writes are visible. A warp knows that once it has
//! executed the wait itself, or has met at a barrier of the CTA a warp that has.

use super::{Machine, Outcome};
use crate::report::Code;

impl Machine<'_> {
    /// Accesses of some lanes by a warp that has not waited.
    #[cold]
    pub(super) fn early(
        &mut self,
        w: usize,
        pc: u32,
        act: u32,
        address: impl Fn(usize) -> u64,
        what: &str,
    ) -> Outcome<()> {
        for lane in (0..32usize).filter(|l| act >> l & 1 != 0) {
            let place = address(lane);
            if self.memory.access_early(place) {
                let message =
                    format!("a {what} of {place:#x} ahead of the wait for the grid that may still be writing there");
                let help = "execute griddepcontrol.wait first (pdl::wait()), or let the caller promise that the memory is settled";
                return Err(self.report_at(w, pc, 1 << lane, Code::Race, message, what, help));
            }
        }
        Ok(())
    }
}
