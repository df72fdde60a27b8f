//! Loads marked `.nc`: the bytes that they read stay as they are for the whole launch.

use super::access::Target;
use super::lanewise::words;
use super::scattered::lanes_of;
use super::{Machine, Outcome};
use crate::program::op::{AddressRef, Elements};
use crate::report::Code;
use crate::shadow::cell;

impl Machine<'_> {
    /// Lanes load bytes that nobody may have written in this launch, in whatever order.
    pub(super) fn check_constant(
        &mut self,
        w: usize,
        pc: u32,
        act: u32,
        address: AddressRef,
        elements: Elements,
    ) -> Outcome<()> {
        if !self.options.checks.races {
            return Ok(());
        }
        let (cta, size) = (self.warps[w].cta, elements.size());
        let addresses = Self::addresses(&self.warps[w].registers, address);
        for lane in lanes_of(act) {
            let at = addresses[lane as usize];
            let Some((Target::Global, offset)) = self.locate(cta, address.space, at, size as u64) else { continue };
            if !at.is_multiple_of(size as u64) {
                continue;
            }
            let (block, history) = self.memory.block_and_history(at);
            if block.writes.is_empty() {
                continue;
            }
            let (base, first) = (history.bases().0, (at - offset as u64) >> 2);
            let found = words(offset, size).find_map(|(word, bytes)| {
                let written = |s: &u64| cell::segment(*s) > base && cell::bytes(*s) & bytes != 0;
                let stamp = block.writes[word];
                let extra = history.extra.get(&(first + word as u64)).filter(|_| stamp & cell::EXTRA != 0);
                let stamp = Some(stamp).into_iter().chain(extra.into_iter().flatten().copied()).find(written);
                stamp.map(|s| (s, bytes))
            });
            if let Some((stamp, bytes)) = found {
                return Err(self.written_constant(w, pc, lane, at, stamp, bytes));
            }
        }
        Ok(())
    }

    #[cold]
    fn written_constant(
        &self,
        w: usize,
        pc: u32,
        lane: u32,
        at: u64,
        stamp: u64,
        bytes: u32,
    ) -> Box<crate::report::Report> {
        let (agent, _) = self.memory.history.of(cell::segment(stamp));
        let (kind, _) = self.agent_kind(agent);
        let message = format!("race: a load marked .nc reads bytes at {at:#x} that were written in this launch");
        let help = "use an ordinary load: .nc is for memory that nobody writes while the kernel runs";
        let mut report = self.report_at(w, pc, 1 << lane, Code::Race, message, "read", help);
        let what = format!("earlier write{kind}");
        let lane = cell::lane_of(stamp, bytes);
        report.others.push(self.place_of_agent(agent, lane, cell::pc(stamp), &what));
        report
    }
}
