//! Bulk copies as agents: issued by a thread, they read and write when the schedule lets them.

use super::access::Target;
use super::fault::{Fault, Place};
use super::warp::{BulkGroup, Flow, Step, Wait};
use super::{Machine, Outcome};
use crate::memory::PAGE;
use crate::program::op::{AddressRef, Kind, MemSpace};
use crate::report::Code;
use crate::shadow::check::{Caches, Observer, Proxy, Spread};
use crate::shadow::clock::{AGENT_BITS, Clocks, Entry};
use std::rc::Rc;

/// Where a copy completes.
#[derive(Clone, Copy, Debug)]
pub enum Completion {
    /// In the bulk group of its thread.
    Group,
    /// On an mbarrier.
    Mbarrier(usize, u32),
}

/// A copy on its way.
#[derive(Debug)]
pub struct Copy {
    pub id: u64,
    /// Slots of the warp and the CTA that issued it.
    pub warp: usize,
    pub cta: usize,
    pub lane: u32,
    pub pc: u32,
    /// What the issuing thread knew.
    clocks: Rc<Clocks>,
    source: u64,
    destination: u64,
    bytes: u32,
    pub completion: Completion,
    /// Agents and clocks of its reads and its writes.
    reads: (u32, u32),
    writes: (u32, u32),
    /// The bytes and their definedness, once read.
    buffer: Option<(Vec<u8>, Vec<u8>)>,
}

impl Copy {
    /// True if the source has been read.
    pub fn has_read(&self) -> bool {
        self.buffer.is_some()
    }
}

impl Machine<'_> {
    /// The operands of a bulk copy of one lane, checked.
    fn copy_operands(
        &self,
        w: usize,
        pc: u32,
        lane: u32,
        [dst, src]: [AddressRef; 2],
        bytes: u16,
    ) -> Outcome<(u64, u64, u32)> {
        let registers = &self.warps[w].registers;
        let l = lane as usize;
        let undefined = Self::undefined_addresses(registers, dst)
            | Self::undefined_addresses(registers, src)
            | registers.undef32[bytes as usize];
        if undefined >> lane & 1 != 0 && self.options.checks.undefined {
            return Err(self.undefined(w, pc, 1 << lane, "is an operand of a bulk copy"));
        }
        let bytes = registers.b32[bytes as usize][l];
        let addresses = [dst, src].map(|a| Self::addresses(registers, a)[l]);
        for (address, operand) in addresses.into_iter().zip([dst, src]) {
            if address % 16 != 0 || bytes % 16 != 0 || bytes == 0 {
                let address = if address % 16 != 0 { address } else { u64::from(bytes) };
                return Err(self.fault(w, pc, 1 << lane, Fault::Misaligned { address, needed: 16 }));
            }
            let (cta, size) = (self.warps[w].cta, u64::from(bytes));
            if self.locate(cta, operand.space, address, size).is_none() {
                let fault = Fault::Bounds { address, bytes: size, space: operand.space };
                return Err(self.fault(w, pc, 1 << lane, fault));
            }
        }
        Ok((addresses[0], addresses[1], bytes))
    }

    /// What a copy of one lane may rely on: what the lane knows and has done.
    fn issue_clocks(&mut self, w: usize, lane: u32) -> Rc<Clocks> {
        let warp = &mut self.warps[w];
        let mut clocks = (*warp.knowledge[warp.knowledge_of(lane)].clocks).clone();
        let entry = Entry::lanes(1 << lane, warp.clock);
        clocks.get_mut(warp.agent).generic.join(entry);
        Rc::new(clocks)
    }

    pub(super) fn bulk_store(&mut self, w: usize, pc: u32, act: u32) -> Step {
        let Kind::BulkStore { dst, src, bytes } = self.program.ops[pc as usize].kind else { return Ok(Flow::Next) };
        for lane in (0..32u32).filter(|l| act >> l & 1 != 0) {
            let (destination, source, bytes) = self.copy_operands(w, pc, lane, [dst, src], bytes)?;
            let clocks = self.issue_clocks(w, lane);
            let cluster_warps = self.cluster_warps();
            let warp = &mut self.warps[w];
            warp.copies += 1;
            let number = warp.copies;
            let (reads, writes) = (warp.agent + cluster_warps, warp.agent + 2 * cluster_warps);
            let (cta, id) = (warp.cta, self.next_copy);
            warp.bulk_queue(lane).open.push(id);
            self.next_copy += 1;
            if !warp.dependency_wait {
                self.stats.wrote_before_wait = true;
            }
            self.copies.push(Copy {
                id,
                warp: w,
                cta,
                lane,
                pc,
                clocks,
                source,
                destination,
                bytes,
                completion: Completion::Group,
                reads: (reads, number),
                writes: (writes, number),
                buffer: None,
            });
        }
        self.stats.bulk_copies += u64::from(act.count_ones());
        self.warps[w].advance(&mut self.memory.history);
        Ok(Flow::Yield)
    }

    pub(super) fn bulk_load(&mut self, w: usize, pc: u32, act: u32) -> Step {
        let Kind::BulkLoad { dst, src, bytes, barrier } = self.program.ops[pc as usize].kind else {
            return Ok(Flow::Next);
        };
        for lane in (0..32u32).filter(|l| act >> l & 1 != 0) {
            let (destination, source, bytes) = self.copy_operands(w, pc, lane, [dst, src], bytes)?;
            let place = self.mbarrier_place(w, pc, lane, barrier)?;
            self.check_async_mbarrier(w, pc, lane, place)?;
            let clocks = self.issue_clocks(w, lane);
            let Some(mbarrier) = self.ctas[place.0].mbarriers.get(&place.1) else { continue };
            let agent = (mbarrier.agent, mbarrier.phase as u32 + 1);
            let warp = &self.warps[w];
            if !warp.dependency_wait {
                self.stats.read_before_wait = true;
            }
            self.copies.push(Copy {
                id: self.next_copy,
                warp: w,
                cta: warp.cta,
                lane,
                pc,
                clocks,
                source,
                destination,
                bytes,
                completion: Completion::Mbarrier(place.0, place.1),
                reads: agent,
                writes: agent,
                buffer: None,
            });
            self.next_copy += 1;
        }
        self.stats.bulk_copies += u64::from(act.count_ones());
        self.warps[w].advance(&mut self.memory.history);
        Ok(Flow::Yield)
    }

    pub(super) fn bulk_commit(&mut self, w: usize, act: u32) {
        let warp = &mut self.warps[w];
        let clock = warp.copies;
        for lane in (0..32u32).filter(|l| act >> l & 1 != 0) {
            let queue = warp.bulk_queue(lane);
            let copies = std::mem::take(&mut queue.open);
            queue.groups.push_back(BulkGroup { copies, clock, read_waited: false });
        }
    }

    pub(super) fn bulk_wait(&mut self, w: usize, act: u32, pending: u32, read: bool) -> Flow {
        let copies = &self.copies;
        let warp = &mut self.warps[w];
        let finished = |group: &BulkGroup| {
            group.copies.iter().all(|id| copies.iter().find(|c| c.id == *id).is_none_or(|c| read && c.has_read()))
        };
        let lanes = || (0..32u32).filter(|l| act >> l & 1 != 0);
        let waits_for = |groups: usize| groups.saturating_sub(pending as usize);
        for lane in lanes() {
            let queue = warp.bulk_queue(lane);
            if !queue.groups.iter().take(waits_for(queue.groups.len())).all(finished) {
                return Flow::Block(Wait::Bulk);
            }
        }
        let cluster_warps = self.launch.cluster * self.warps_per_cta as u32;
        for lane in lanes() {
            let queue = warp.bulk_queue(lane);
            let count = waits_for(queue.groups.len());
            let Some(last) = count.checked_sub(1).and_then(|i| queue.groups.get(i)) else { continue };
            let entry = Entry::lanes(1 << lane, last.clock);
            if read {
                queue.groups.iter_mut().take(count).for_each(|g| g.read_waited = true);
            } else {
                queue.groups.drain(..count);
            }
            let agent = warp.agent;
            warp.learn_agent(1 << lane, agent + cluster_warps, entry);
            if !read {
                warp.learn_agent(1 << lane, agent + 2 * cluster_warps, entry);
            }
        }
        Flow::Next
    }

    /// A thread must not exit before its bulk stores have read shared memory.
    pub(super) fn check_exit(&mut self, w: usize, pc: u32, act: u32) -> Outcome<()> {
        let unread = |q: &super::warp::BulkQueue| {
            act >> q.lane & 1 != 0
                && (!q.open.is_empty() || q.groups.iter().any(|g| !g.read_waited && !g.copies.is_empty()))
        };
        if let Some(queue) = self.warps[w].bulk.iter().find(|q| unread(q))
            && self.options.checks.races
        {
            let lane = queue.lane;
            return Err(self.report_at(
                w,
                pc,
                1 << lane,
                Code::Race,
                "the thread exits while a bulk store of its own may still read shared memory".to_string(),
                "exit",
                "commit the stores, and execute cp.async.bulk.wait_group.read 0 (or wait_group 0) before the end",
            ));
        }
        Ok(())
    }

    /// A copy takes its next step: it reads its source, or writes its destination and completes.
    pub(super) fn step_copy(&mut self, index: usize) -> Outcome<()> {
        self.progress += 1;
        if self.copies[index].buffer.is_none() {
            let (data, defined) = self.copy_read(index)?;
            self.copies[index].buffer = Some((data, defined));
            self.wake_bulk(self.copies[index].warp);
            return Ok(());
        }
        self.copy_write(index)?;
        let copy = self.copies.remove(index);
        match copy.completion {
            Completion::Group => self.wake_bulk(copy.warp),
            Completion::Mbarrier(cta, offset) => {
                self.complete_tx((cta, offset), i64::from(copy.bytes), copy.warp, copy.pc)?;
            }
        }
        Ok(())
    }

    fn wake_bulk(&mut self, w: usize) {
        for group in &mut self.warps[w].groups {
            if group.wait == Wait::Bulk {
                group.wait = Wait::Ready;
            }
        }
    }

    /// Pieces of a range that lie in one block each: target, address, offset in the block, offset in the range, length.
    fn copy_pieces(&self, cta: usize, address: u64, bytes: u32) -> Option<Vec<(Target, u64, usize, usize, usize)>> {
        let mut pieces = Vec::new();
        let mut at = 0usize;
        while at < bytes as usize {
            let from = address + at as u64;
            let space = if from >= crate::memory::GLOBAL_BASE { MemSpace::Global } else { MemSpace::Shared };
            let room = if space == MemSpace::Global { (PAGE - from % PAGE) as usize } else { usize::MAX };
            let length = room.min(bytes as usize - at);
            let (target, offset) = self.locate(cta, space, from, length as u64)?;
            pieces.push((target, from, offset, at, length));
            at += length;
        }
        Some(pieces)
    }

    fn copy_read(&mut self, index: usize) -> Outcome<(Vec<u8>, Vec<u8>)> {
        let copy = &self.copies[index];
        let (w, pc, lane, size) = (copy.warp, copy.pc, copy.lane, copy.bytes as usize);
        let (mut data, mut defined) = (vec![0; size], vec![0; size / 4]);
        let pieces = self.copy_pieces(copy.cta, copy.source, copy.bytes);
        for (target, address, offset, at, length) in pieces.unwrap_or_default() {
            if let Err(conflict) = self.copy_check(index, &target, address, offset, length, false) {
                let place = Place::of(&target, address).at_word(conflict.word + offset / 4, offset);
                return Err(self.fault(w, pc, 1 << lane, Fault::Race { conflict, write: false, place }));
            }
            let (block, ..) = Self::parts(self.memory, &mut self.ctas, &target, address, offset);
            data[at..at + length].copy_from_slice(&block.data[offset..offset + length]);
            defined[at / 4..(at + length) / 4].copy_from_slice(&block.defined[offset / 4..(offset + length) / 4]);
        }
        let to_global = matches!(self.copies[index].completion, Completion::Group);
        if to_global && self.options.checks.undefined && defined.iter().any(|n| *n != 15) {
            return Err(self.undefined(w, pc, 1 << lane, "is stored to global memory by a bulk copy"));
        }
        Ok((data, defined))
    }

    fn copy_write(&mut self, index: usize) -> Outcome<()> {
        let copy = &mut self.copies[index];
        let (w, pc, lane) = (copy.warp, copy.pc, copy.lane);
        let Some((data, defined)) = copy.buffer.take() else { return Ok(()) };
        let copy = &self.copies[index];
        let pieces = self.copy_pieces(copy.cta, copy.destination, copy.bytes);
        for (target, address, offset, at, length) in pieces.unwrap_or_default() {
            if let Err(conflict) = self.copy_check(index, &target, address, offset, length, true) {
                let place = Place::of(&target, address).at_word(conflict.word + offset / 4, offset);
                return Err(self.fault(w, pc, 1 << lane, Fault::Race { conflict, write: true, place }));
            }
            let (block, ..) = Self::parts(self.memory, &mut self.ctas, &target, address, offset);
            block.data[offset..offset + length].copy_from_slice(&data[at..at + length]);
            block.defined[offset / 4..(offset + length) / 4].copy_from_slice(&defined[at / 4..(at + length) / 4]);
        }
        Ok(())
    }

    /// Checks and records the accesses of a copy.
    fn copy_check(
        &mut self,
        index: usize,
        target: &Target,
        address: u64,
        offset: usize,
        length: usize,
        write: bool,
    ) -> Result<(), crate::shadow::check::Conflict> {
        if !self.options.checks.races {
            return Ok(());
        }
        let warps = self.cluster_warps();
        let copy = &self.copies[index];
        let (agent, clock) = if write { copy.writes } else { copy.reads };
        let (clocks, pc, lane) = (Rc::clone(&copy.clocks), copy.pc, copy.lane);
        let proxy = match target {
            Target::Global => Proxy::AsyncGlobal,
            Target::Shared { .. } => Proxy::AsyncShared,
        };
        let (block, history, key, (base_segment, base_set)) =
            Self::parts(self.memory, &mut self.ctas, target, address, offset);
        block.shadow();
        let segment = history.segment(agent, clock);
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
            proxy,
            strong: false,
            warps,
        };
        let mut cells = block.cells(offset / 4, length / 4, key);
        if write {
            observer.write_span(&mut cells, Spread::One(lane))
        } else {
            observer.read_span(&mut cells, Spread::One(lane))
        }
    }

    /// `fence.proxy.async`: the generic accesses of these lanes reach the async proxy.
    pub(super) fn proxy_fence(&mut self, w: usize, act: u32, shared: bool, global: bool) {
        let on_path = self.options.checks.proxy_fence == crate::launch::ProxyFence::OnPath;
        let warp = &mut self.warps[w];
        let (agent, mine) = (warp.agent, warp.own_entry(act));
        warp.change(act, |k| {
            let clocks = Rc::make_mut(&mut k.clocks);
            if global || (shared && on_path) {
                clocks.for_each(|known| {
                    if global {
                        known.fenced_global.join(known.generic);
                    }
                    if shared && on_path {
                        known.fenced_shared.join(known.generic);
                    }
                });
            }
            let known = clocks.get_mut(agent);
            if shared {
                known.fenced_shared.join(mine);
            }
            if global {
                known.fenced_global.join(mine);
            }
        });
        warp.advance(&mut self.memory.history);
        if shared {
            self.init_fence(w, act);
        }
    }
}

/// Agents of a warp's generic accesses, and what kind an agent is of.
pub(super) fn agent_kind(agent: u32, cluster_warps: u32) -> (&'static str, Option<u32>) {
    let local = agent & ((1 << AGENT_BITS) - 1);
    match local / cluster_warps {
        0 => ("", Some(local)),
        1 => (" by a bulk store reading its source", Some(local - cluster_warps)),
        2 => (" by a bulk store", Some(local - 2 * cluster_warps)),
        _ => (" by a copy that completes on an mbarrier", None),
    }
}
