//! Shared memory of other CTAs of the cluster: it is there only between their start and their end.

use super::access::Target;
use super::asynchronous::Async;
use super::fault::{Fault, Place};
use super::{Machine, Outcome};
use crate::report::Code;
use crate::shadow::check::{Caches, Observer, Proxy};
use crate::shadow::clock::{Clocks, Entry, MANY_LANES};
use crate::shadow::span::Spread;
use std::rc::Rc;

/// An arrival at an mbarrier of another CTA.
#[derive(Clone, Copy, Debug)]
pub struct RemoteArrival {
    pub agent: u32,
    pub lane: u32,
    pub clock: u32,
    pub pc: u32,
}

impl Machine<'_> {
    /// Remembers an arrival at an mbarrier of another CTA, in the place of the thread's last one.
    pub(super) fn note_remote_arrival(&mut self, w: usize, place: (usize, u32), arrival: RemoteArrival) {
        if place.0 == self.warps[w].cta {
            return;
        }
        let Some(barrier) = self.ctas[place.0].mbarriers.get_mut(&place.1) else { return };
        let same = barrier.remote.iter_mut().find(|a| (a.agent, a.lane) == (arrival.agent, arrival.lane));
        match same {
            Some(last) => *last = arrival,
            None => barrier.remote.push(arrival),
        }
    }

    /// An arrival at an mbarrier of a CTA that exits, which nothing orders before: it might come when the memory is gone.
    fn check_remote_arrivals(&self, w: usize, pc: u32, clocks: &Clocks) -> Outcome<()> {
        let cta = self.warps[w].cta;
        let arrivals = self.ctas[cta].mbarriers.iter().flat_map(|(at, b)| b.remote.iter().map(move |a| (at, a)));
        for (offset, arrival) in arrivals {
            if clocks.get(arrival.agent).generic.covers(arrival.clock, arrival.lane) {
                continue;
            }
            let message = format!(
                "the CTA exits, but nothing orders an arrival of another CTA at its mbarrier at shared offset {offset} before"
            );
            let help = "put a cluster barrier, with release and acquire, between the arrival and the end of the CTA";
            let mut report = self.report_at(w, pc, 1, Code::Race, message, "exit", help);
            report.others.push(self.place_of_agent(arrival.agent, arrival.lane, arrival.pc, "arrival"));
            return Err(report);
        }
        Ok(())
    }

    /// An access to the shared memory of a CTA by a warp: another CTA must be known to have started, and must still run.
    #[inline(always)]
    pub(super) fn check_remote(&self, w: usize, pc: u32, act: u32, cta: usize) -> Outcome<()> {
        if cta == self.warps[w].cta || !self.options.checks.races {
            return Ok(());
        }
        self.check_other(w, pc, act, cta)
    }

    #[cold]
    fn check_other(&self, w: usize, pc: u32, act: u32, cta: usize) -> Outcome<()> {
        let warps = &self.warps[cta * self.warps_per_cta..(cta + 1) * self.warps_per_cta];
        let clocks = &self.warps[w].knowledge[self.warps[w].knowledge_of(act.trailing_zeros() & 31)].clocks;
        let rank = self.ctas[cta].rank;
        let (message, help) = if warps.iter().all(|other| other.live == 0) {
            (
                format!("the shared memory of the CTA of rank {rank} is accessed after that CTA has exited"),
                "put a cluster barrier behind the last access, before any CTA exits",
            )
        } else if warps.iter().all(|other| clocks.get(other.agent).generic == Entry::default()) {
            (
                format!("the shared memory of the CTA of rank {rank} is accessed, but that CTA may not have started"),
                "put barrier.cluster.arrive and barrier.cluster.wait before the first access of another CTA's shared memory",
            )
        } else {
            return Ok(());
        };
        Err(self.report_at(w, pc, act, Code::Race, message, "access of another CTA's shared memory", help))
    }

    /// The last warp of a CTA has exited: nobody may access its shared memory any more.
    pub(super) fn check_cta_exit(&mut self, w: usize, pc: u32) -> Outcome<()> {
        let cta = self.warps[w].cta;
        if self.launch.cluster == 1 && !self.program.loads || !self.options.checks.races {
            return Ok(());
        }
        // What is still on its way into this memory is an access that nobody has waited for.
        let into = |a: &Async| matches!(a, Async::Copy(copy) if copy.load && copy.shared.0 == cta);
        while let Some(index) = self.asyncs.iter().position(into) {
            self.step_async(index)?;
        }
        let warps = cta * self.warps_per_cta..(cta + 1) * self.warps_per_cta;
        let mut clocks = Clocks::new(self.clusters[self.cluster_of(cta)].id);
        for warp in &self.warps[warps] {
            warp.knowledge.iter().for_each(|k| clocks.join(&k.clocks));
            warp.join_own(&mut clocks, u32::MAX);
            clocks.get_mut(warp.agent).generic.join(Entry::all(warp.clock));
        }
        self.check_remote_arrivals(w, pc, &clocks)?;
        let target = Target::Shared { cta };
        let generic = self.generic_agents();
        let (agent, segment) = (self.warps[w].agent, self.warps[w].segment);
        let (block, history, key, (base_segment, base_set)) = Self::parts(self.memory, &mut self.ctas, &target, 0, 0);
        if block.writes.is_empty() {
            return Ok(());
        }
        let mut caches = Caches::default();
        let mut observer = Observer {
            history,
            clocks: &clocks,
            caches: &mut caches,
            agent,
            segment,
            pc,
            base_segment,
            base_set,
            proxy: Proxy::Generic,
            strong: false,
            acquired: &[],
            own_copies: (0, &[0; 32]),
            warps: generic,
        };
        let words = block.defined.len();
        let mut cells = block.cells(0, words, key);
        let Err(conflict) = observer.write_span(&mut cells, Spread::one(MANY_LANES)) else { return Ok(()) };
        let place = Place::of(&target, u64::from(super::SHARED_BASE)).at_word(conflict.word, 0);
        let issued = Some(Rc::new(clocks));
        let mut report = self.fault(w, pc, 1, Fault::Race { conflict, write: true, place, issued });
        report.message =
            format!("the CTA exits, but nothing orders an access of its shared memory before: {}", report.message);
        report.help =
            "put a cluster barrier (or a wait for the copy) between the access and the end of the CTA".to_string();
        Err(report)
    }
}
