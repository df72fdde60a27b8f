//! The bytes of an mbarrier, which are nobody's business: whoever writes them is found at the barrier's next use.

use super::{Machine, Outcome};
use crate::shadow::cell;

/// What they hold between initialisation and end; another value has been written over them.
const SEAL: [u8; 8] = 0x9e37_79b9_7f4a_7c15u64.to_le_bytes();

impl Machine<'_> {
    /// Marks the bytes of an mbarrier that has been initialised.
    pub(super) fn seal(&mut self, cta: usize, offset: u32) {
        let (block, at) = (&mut self.ctas[cta].shared, offset as usize);
        block.data[at..at + 8].copy_from_slice(&SEAL);
        block.set_defined(at, 8, false);
    }

    /// Refuses an mbarrier whose bytes have been overwritten, and names the last write of them.
    pub(super) fn check_seal(&self, w: usize, pc: u32, lane: u32, (cta, offset): (usize, u32)) -> Outcome<()> {
        let (block, at) = (&self.ctas[cta].shared, offset as usize);
        let Some(word) = (0..2).find(|word| block.data[at + 4 * word..][..4] != SEAL[4 * word..][..4]) else {
            return Ok(());
        };
        let message = format!("the bytes of the mbarrier at shared offset {offset} have been overwritten");
        let help = "keep buffers apart from mbarriers; execute mbarrier.inval before their bytes are used otherwise";
        let mut report = self.mbarrier_error(w, pc, lane, message, help);
        if let Some(stamp) = block.writes.get(at / 4 + word) {
            let (agent, _) = self.memory.history.of(cell::segment(*stamp));
            report.others.push(self.place_of_agent(agent, cell::lane(*stamp), cell::pc(*stamp), "write"));
        }
        Err(report)
    }
}
