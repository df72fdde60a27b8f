//! `cp.async`: copies by threads, through the generic proxy, that are known to their thread once it has waited for them.

use super::access::Target;
use super::asynchronous::{Accessor, Async};
use super::fault::Fault;
use super::warp::{Flow, Step, Wait};
use super::{Machine, Outcome};
use crate::program::details::AgentKind;
use crate::program::op::{Kind, MemSpace, NONE};
use crate::shadow::clock::{Clocks, Entry};
use std::collections::VecDeque;
use std::rc::Rc;

/// The copy of a lane.
#[derive(Debug)]
struct LaneCopy {
    lane: u32,
    source: u64,
    destination: (usize, u32),
    bytes: u32,
    /// Bytes that are read; the rest is zero.
    size: u32,
    clocks: Rc<Clocks>,
    /// The warp's clock, and the copies that the lane had waited for.
    before: (u32, u32),
}

/// The copies of a warp instruction.
#[derive(Debug)]
pub struct ThreadCopy {
    pub warp: usize,
    pub cta: usize,
    pc: u32,
    /// Number among the copies of the warp.
    number: u32,
    lanes: Vec<LaneCopy>,
}

/// An arrival that waits for the copies before it.
#[derive(Debug)]
pub struct ThreadArrival {
    pub warp: usize,
    pub cta: usize,
    pc: u32,
    places: Vec<(u32, (usize, u32))>,
    clocks: Clocks,
}

/// Copies of the lanes of a warp.
#[derive(Debug, Default)]
pub struct ThreadCopies {
    /// Warp instructions issued.
    pub issued: u32,
    /// The number issued at each commit that has not been waited for, for each lane.
    groups: [VecDeque<u32>; 32],
}

impl Machine<'_> {
    pub(super) fn thread_copies(&mut self, w: usize, pc: u32, act: u32) -> Step {
        match self.program.ops[pc as usize].kind {
            Kind::ThreadCopy { .. } => self.issue_thread_copy(w, pc, act),
            Kind::ThreadCommit => {
                let copies = &mut self.warps[w].thread_copies;
                for lane in (0..32).filter(|l| act >> l & 1 != 0) {
                    copies.groups[lane].push_back(copies.issued);
                }
                Ok(Flow::Next)
            }
            Kind::ThreadWait { pending } => Ok(self.wait_thread_copies(w, act, pending as usize)),
            Kind::ThreadArrive { address } => {
                let agent = self.agent_of(w, AgentKind::ThreadCopy);
                let mut clocks = self.warps[w].publish(act, &mut self.memory.history);
                let issued = self.warps[w].thread_copies.issued;
                clocks.get_mut(agent).generic.join(Entry::lanes(act, issued));
                let mut places = Vec::new();
                for lane in (0..32u32).filter(|l| act >> l & 1 != 0) {
                    let place = self.mbarrier_place(w, pc, lane, address)?;
                    self.known_mbarrier(w, pc, lane, place)?;
                    places.push((lane, place));
                }
                let cta = self.warps[w].cta;
                self.asyncs.push(Async::ThreadArrival(ThreadArrival { warp: w, cta, pc, places, clocks }));
                Ok(Flow::Yield)
            }
            _ => Ok(Flow::Next),
        }
    }

    fn issue_thread_copy(&mut self, w: usize, pc: u32, act: u32) -> Step {
        let Kind::ThreadCopy { dst, src, bytes, size } = self.program.ops[pc as usize].kind else {
            return Ok(Flow::Next);
        };
        let bytes = u32::from(bytes);
        let registers = &self.warps[w].registers;
        let mut undefined = Self::undefined_addresses(registers, dst) | Self::undefined_addresses(registers, src);
        if size != NONE {
            undefined |= registers.undef32[size as usize];
        }
        if undefined & act != 0 && self.options.checks.undefined {
            return Err(self.undefined(w, pc, undefined & act, "is an operand of cp.async"));
        }
        let (sources, destinations) = (Self::addresses(registers, src), Self::addresses(registers, dst));
        if self.memory.dependent && !self.warps[w].dependency_wait {
            self.early(w, pc, act, |lane| sources[lane], "read")?;
        }
        let mut lanes = Vec::new();
        let mut shared_clocks: Option<(usize, Rc<Clocks>)> = None;
        for lane in (0..32u32).filter(|l| act >> l & 1 != 0) {
            let l = lane as usize;
            let size = if size == NONE { bytes } else { self.warps[w].registers.b32[size as usize][l].min(bytes) };
            let source = sources[l];
            if !source.is_multiple_of(u64::from(bytes)) {
                let fault = Fault::Misaligned { address: source, needed: u64::from(bytes) };
                return Err(self.fault(w, pc, 1 << lane, fault));
            }
            if size > 0 && !self.memory.contains(source, u64::from(size)) {
                let fault = Fault::Bounds { address: source, bytes: u64::from(size), space: MemSpace::Global };
                return Err(self.fault(w, pc, 1 << lane, fault));
            }
            let (target, offset) = self.locate_lane(w, pc, lane, dst.space, destinations[l], bytes as usize)?;
            let Target::Shared { cta } = target else { continue };
            self.check_remote(w, pc, 1 << lane, cta)?;
            let know = self.warps[w].knowledge_of(lane);
            let clocks = match &shared_clocks {
                Some((number, clocks)) if *number == know => Rc::clone(clocks),
                _ => Rc::clone(&self.warps[w].knowledge[know].clocks),
            };
            shared_clocks = Some((know, Rc::clone(&clocks)));
            let destination = (cta, offset as u32);
            let before = (self.warps[w].clock, self.warps[w].waited_copies[l]);
            lanes.push(LaneCopy { lane, source, destination, bytes, size, clocks, before });
        }
        let warp = &mut self.warps[w];
        if !warp.dependency_wait {
            self.stats.read_before_wait = true;
        }
        warp.thread_copies.issued += 1;
        let (number, cta) = (warp.thread_copies.issued, warp.cta);
        self.asyncs.push(Async::ThreadCopy(ThreadCopy { warp: w, cta, pc, number, lanes }));
        self.warps[w].advance(&mut self.memory.history);
        Ok(Flow::Yield)
    }

    fn wait_thread_copies(&mut self, w: usize, act: u32, pending: usize) -> Flow {
        let copies = &self.warps[w].thread_copies;
        let target = |lane: usize| {
            let groups = &copies.groups[lane];
            groups.len().checked_sub(pending + 1).map_or(0, |i| groups[i])
        };
        let first = self.asyncs.iter().find_map(|a| match a {
            Async::ThreadCopy(copy) if copy.warp == w => Some(copy.number),
            _ => None,
        });
        let lanes = || (0..32usize).filter(|l| act >> l & 1 != 0);
        // Copies of a warp are done in order.
        if first.is_some_and(|first| lanes().any(|l| target(l) >= first)) {
            return Flow::Block(Wait::Bulk);
        }
        for lane in lanes() {
            let target = {
                let groups = &self.warps[w].thread_copies.groups[lane];
                groups.len().checked_sub(pending + 1).map_or(0, |i| groups[i])
            };
            let warp = &mut self.warps[w];
            let left = warp.thread_copies.groups[lane].len().min(pending);
            let done = warp.thread_copies.groups[lane].len() - left;
            warp.thread_copies.groups[lane].drain(..done);
            warp.waited_copies[lane] = warp.waited_copies[lane].max(target);
        }
        Flow::Next
    }

    pub(super) fn step_thread_copy(&mut self, copies: ThreadCopy) -> Outcome<()> {
        let (w, pc) = (copies.warp, copies.pc);
        let agent = self.agent_of(w, AgentKind::ThreadCopy);
        let segment = self.memory.history.segment(agent, copies.number);
        for copy in copies.lanes {
            let mut clocks = (*copy.clocks).clone();
            self.warps[w].join_own_before(&mut clocks, copy.lane, copy.before);
            let clocks = Rc::new(clocks);
            let who = Accessor { warp: w, lane: copy.lane, pc, clocks, segment, generic: true, strong: false };
            let (bytes, size) = (copy.bytes as usize, copy.size as usize);
            let mut data = [0u8; 16];
            let mut defined = [true; 16];
            if size > 0 {
                let offset = (copy.source % crate::memory::PAGE) as usize;
                self.async_access(&who, &Target::Global, copy.source, offset, size, false)?;
                let block = self.memory.block_mut(copy.source);
                data[..size].copy_from_slice(&block.data[offset..offset + size]);
                for (byte, defined) in defined[..size].iter_mut().enumerate() {
                    *defined = block.is_defined(offset + byte, 1);
                }
            }
            let (cta, offset) = copy.destination;
            let address = u64::from(offset + super::SHARED_BASE);
            let offset = offset as usize;
            self.async_access(&who, &Target::Shared { cta }, address, offset, bytes, true)?;
            let block = &mut self.ctas[cta].shared;
            block.data[offset..offset + bytes].copy_from_slice(&data[..bytes]);
            for (byte, defined) in defined[..bytes].iter().enumerate() {
                block.set_defined(offset + byte, 1, *defined);
            }
        }
        self.wake(w, Wait::Bulk);
        Ok(())
    }

    pub(super) fn step_thread_arrival(&mut self, arrival: ThreadArrival) -> Outcome<()> {
        for (lane, place) in arrival.places {
            self.arrive(arrival.warp, arrival.pc, lane, place, 1, Some(&arrival.clocks))?;
        }
        Ok(())
    }
}
