//! Bulk and tensor copies: issued by a thread, they read and write when the schedule lets them.

use super::access::Target;
use super::asynchronous::{Accessor, Async};
use super::fault::Fault;
use super::tensor::TensorBox;
use super::warp::{BulkGroup, Flow, Step, Wait};
use super::{Machine, Outcome};
use crate::memory::PAGE;
use crate::program::details::AgentKind;
use crate::program::op::{AddressRef, Kind, MemSpace};
use crate::report::Code;
use crate::shadow::clock::{Clocks, Entry, Known};
use kda_core::Elem;
use kda_ptx::modifier::AtomicOp;
use std::rc::Rc;

/// Where a copy completes.
#[derive(Clone, Copy, Debug)]
pub enum Completion {
    /// In the bulk group of its thread.
    Group,
    /// On an mbarrier.
    Mbarrier(usize, u32),
}

/// The global side of a copy.
#[derive(Clone, Debug)]
pub enum Remote {
    /// Consecutive bytes.
    Bytes(u64),
    /// A box of a tensor.
    Box(Rc<TensorBox>),
}

impl Remote {
    /// An address in the tensor, or the first byte.
    fn start(&self) -> u64 {
        match self {
            Remote::Bytes(address) => *address,
            Remote::Box(from) => from.map.ptr,
        }
    }
}

/// Consecutive bytes of one block: target, address, offset in the block, offset in the copy, length.
pub(super) type Piece = (Target, u64, usize, usize, usize);

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
    pub clocks: Rc<Clocks>,
    pub global: Remote,
    /// CTA and offset of the shared side.
    pub shared: (usize, u32),
    /// Into shared memory.
    pub load: bool,
    /// Combine with what is there instead of overwriting it.
    pub reduce: Option<(AtomicOp, Elem)>,
    pub bytes: u32,
    pub completion: Completion,
    /// Agents and clocks of its reads and its writes.
    pub reads: (u32, u32),
    pub writes: (u32, u32),
    /// The bytes and their definedness, byte by byte, once read.
    pub buffer: Option<(Vec<u8>, Vec<bool>)>,
}

impl Copy {
    /// True if the source has been read.
    pub fn has_read(&self) -> bool {
        self.buffer.is_some()
    }
}

impl Machine<'_> {
    /// The operands of a bulk copy of one lane, checked: the global address, the shared place, the bytes.
    fn copy_operands(
        &self,
        w: usize,
        pc: u32,
        lane: u32,
        [global, shared]: [AddressRef; 2],
        bytes: u16,
    ) -> Outcome<(u64, (usize, u32), u32)> {
        let registers = &self.warps[w].registers;
        let l = lane as usize;
        let undefined = Self::undefined_addresses(registers, global)
            | Self::undefined_addresses(registers, shared)
            | registers.undef32[bytes as usize];
        if undefined >> lane & 1 != 0 && self.options.checks.undefined {
            return Err(self.undefined(w, pc, 1 << lane, "is an operand of a bulk copy"));
        }
        let bytes = registers.b32[bytes as usize][l];
        let cta = self.warps[w].cta;
        let mut place = (cta, 0);
        let addresses = [global, shared].map(|a| Self::addresses(registers, a)[l]);
        for (address, operand) in addresses.into_iter().zip([global, shared]) {
            if address % 16 != 0 || !bytes.is_multiple_of(16) || bytes == 0 {
                let address = if address % 16 != 0 { address } else { u64::from(bytes) };
                return Err(self.fault(w, pc, 1 << lane, Fault::Misaligned { address, needed: 16 }));
            }
            match self.locate(cta, operand.space, address, u64::from(bytes)) {
                Some((Target::Shared { cta }, offset)) => place = (cta, offset as u32),
                Some(_) => {}
                None => {
                    let fault = Fault::Bounds { address, bytes: u64::from(bytes), space: operand.space };
                    return Err(self.fault(w, pc, 1 << lane, fault));
                }
            }
        }
        Ok((addresses[0], place, bytes))
    }

    /// Issues a copy out of shared memory.
    pub(super) fn issue_store(
        &mut self,
        w: usize,
        pc: u32,
        lane: u32,
        global: Remote,
        shared: (usize, u32),
        bytes: u32,
        reduce: Option<(AtomicOp, Elem)>,
    ) -> Outcome<()> {
        if self.memory.dependent && !self.warps[w].dependency_wait {
            self.early(w, pc, 1 << lane, |_| global.start(), "write")?;
        }
        let clocks = self.issue_clocks(w, lane);
        let agents = [AgentKind::BulkRead, AgentKind::BulkWrite].map(|kind| self.agent_of(w, kind));
        let warp = &mut self.warps[w];
        warp.copies += 1;
        let number = warp.copies;
        let (cta, id) = (warp.cta, self.next_copy);
        warp.bulk_queue(lane).open.push((id, pc));
        self.next_copy += 1;
        if !warp.dependency_wait {
            self.stats.wrote_before_wait = true;
        }
        self.asyncs.push(Async::Copy(Copy {
            id,
            warp: w,
            cta,
            lane,
            pc,
            clocks,
            global,
            shared,
            load: false,
            reduce,
            bytes,
            completion: Completion::Group,
            reads: (agents[0], number),
            writes: (agents[1], number),
            buffer: None,
        }));
        self.stats.bulk_copies += 1;
        Ok(())
    }

    /// Issues a copy into shared memory that completes on an mbarrier.
    pub(super) fn issue_load(
        &mut self,
        w: usize,
        pc: u32,
        lane: u32,
        global: Remote,
        shared: (usize, u32),
        bytes: u32,
        place: (usize, u32),
    ) -> Outcome<()> {
        self.check_async_mbarrier(w, pc, lane, place)?;
        if self.memory.dependent && !self.warps[w].dependency_wait {
            self.early(w, pc, 1 << lane, |_| global.start(), "read")?;
        }
        let clocks = self.issue_clocks(w, lane);
        let Some(mbarrier) = self.ctas[place.0].mbarriers.get(&place.1) else { return Ok(()) };
        let agent = (mbarrier.agent, mbarrier.phase as u32 + 1);
        let warp = &self.warps[w];
        if !warp.dependency_wait {
            self.stats.read_before_wait = true;
        }
        self.asyncs.push(Async::Copy(Copy {
            id: self.next_copy,
            warp: w,
            cta: warp.cta,
            lane,
            pc,
            clocks,
            global,
            shared,
            load: true,
            reduce: None,
            bytes,
            completion: Completion::Mbarrier(place.0, place.1),
            reads: agent,
            writes: agent,
            buffer: None,
        }));
        self.next_copy += 1;
        self.stats.bulk_copies += 1;
        Ok(())
    }

    pub(super) fn bulk_store(&mut self, w: usize, pc: u32, act: u32) -> Step {
        let (dst, src, bytes, reduce) = match self.program.ops[pc as usize].kind {
            Kind::BulkStore { dst, src, bytes } => (dst, src, bytes, None),
            Kind::BulkReduce { dst, src, bytes, op } => (dst, src, bytes, Some((op, Elem::F32))),
            _ => return Ok(Flow::Next),
        };
        for lane in (0..32u32).filter(|l| act >> l & 1 != 0) {
            let (global, shared, bytes) = self.copy_operands(w, pc, lane, [dst, src], bytes)?;
            self.issue_store(w, pc, lane, Remote::Bytes(global), shared, bytes, reduce)?;
        }
        self.warps[w].advance(&mut self.memory.history);
        Ok(Flow::Yield)
    }

    pub(super) fn bulk_load(&mut self, w: usize, pc: u32, act: u32) -> Step {
        let Kind::BulkLoad { dst, src, bytes, barrier } = self.program.ops[pc as usize].kind else {
            return Ok(Flow::Next);
        };
        for lane in (0..32u32).filter(|l| act >> l & 1 != 0) {
            let (global, shared, bytes) = self.copy_operands(w, pc, lane, [src, dst], bytes)?;
            let place = self.mbarrier_place(w, pc, lane, barrier)?;
            self.issue_load(w, pc, lane, Remote::Bytes(global), shared, bytes, place)?;
        }
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
        let on_way = |id: u64| {
            self.asyncs.iter().find_map(|a| if let Async::Copy(c) = a { (c.id == id).then_some(c) } else { None })
        };
        let finished =
            |group: &BulkGroup| group.copies.iter().all(|(id, _)| on_way(*id).is_none_or(|c| read && c.has_read()));
        let agents = [AgentKind::BulkRead, AgentKind::BulkWrite].map(|kind| self.agent_of(w, kind));
        let warp = &mut self.warps[w];
        let lanes = || (0..32u32).filter(|l| act >> l & 1 != 0);
        let waits_for = |groups: usize| groups.saturating_sub(pending as usize);
        for lane in lanes() {
            let queue = warp.bulk_queue(lane);
            if !queue.groups.iter().take(waits_for(queue.groups.len())).all(finished) {
                return Flow::Block(Wait::Bulk);
            }
        }
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
            warp.learn_agent(1 << lane, agents[0], entry);
            if !read {
                warp.learn_agent(1 << lane, agents[1], entry);
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
            let unread =
                queue.groups.iter().filter(|g| !g.read_waited).flat_map(|g| &g.copies).chain(&queue.open).next();
            let store = unread.map(|(_, store)| self.place_of(*store, w, "bulk store"));
            let mut report = self.report_at(
                w,
                pc,
                1 << lane,
                Code::Race,
                "the thread exits while a bulk store of its own may still read shared memory".to_string(),
                "exit",
                "commit the stores, and execute cp.async.bulk.wait_group.read 0 (or wait_group 0) before the end",
            );
            report.others.extend(store);
            return Err(report);
        }
        Ok(())
    }

    /// A copy takes its next step: it reads its source, or writes its destination and completes. What is left of it.
    pub(super) fn step_copy(&mut self, mut copy: Copy) -> Outcome<Option<Copy>> {
        if copy.buffer.is_none() {
            copy.buffer = Some(self.copy_read(&copy)?);
            self.wake(copy.warp, Wait::Bulk);
            return Ok(Some(copy));
        }
        self.copy_write(&mut copy)?;
        match copy.completion {
            Completion::Group => self.wake(copy.warp, Wait::Bulk),
            Completion::Mbarrier(cta, offset) => {
                self.complete_tx((cta, offset), i64::from(copy.bytes), copy.warp, copy.pc)?;
            }
        }
        Ok(None)
    }

    /// The pieces of one side of a copy, each in one block.
    fn copy_pieces(&self, copy: &Copy, global: bool) -> Outcome<Vec<Piece>> {
        if !global {
            let (cta, offset) = copy.shared;
            let place = (offset + super::SHARED_BASE) | self.ctas[cta].rank << super::SHARED_BITS;
            return Ok(vec![(Target::Shared { cta }, u64::from(place), offset as usize, 0, copy.bytes as usize)]);
        }
        let rows = match &copy.global {
            Remote::Bytes(address) => vec![(*address, 0, copy.bytes as usize)],
            Remote::Box(tensor) => tensor.rows(!copy.load),
        };
        let mut pieces = Vec::with_capacity(rows.len());
        for (address, at, bytes) in rows {
            if !self.memory.contains(address, bytes as u64) {
                let fault = Fault::Bounds { address, bytes: bytes as u64, space: MemSpace::Global };
                return Err(self.fault(copy.warp, copy.pc, 1 << copy.lane, fault));
            }
            let mut done = 0usize;
            while done < bytes {
                let from = address + done as u64;
                let length = ((PAGE - from % PAGE) as usize).min(bytes - done);
                pieces.push((Target::Global, from, (from % PAGE) as usize, at + done, length));
                done += length;
            }
        }
        Ok(pieces)
    }

    fn accessor(&mut self, copy: &Copy, write: bool) -> Accessor {
        let (agent, clock) = if write { copy.writes } else { copy.reads };
        Accessor {
            warp: copy.warp,
            lane: copy.lane,
            pc: copy.pc,
            clocks: Rc::clone(&copy.clocks),
            segment: self.memory.history.segment(agent, clock),
            generic: false,
            strong: write && copy.reduce.is_some(),
        }
    }

    fn copy_read(&mut self, copy: &Copy) -> Outcome<(Vec<u8>, Vec<bool>)> {
        let size = copy.bytes as usize;
        // What a load does not find in the tensor is zero.
        let (mut data, mut defined) = (vec![0; size], vec![true; size]);
        let who = self.accessor(copy, false);
        for (target, address, offset, at, length) in self.copy_pieces(copy, copy.load)? {
            self.async_access(&who, &target, address, offset, length, false)?;
            let (block, ..) = Self::parts(self.memory, &mut self.ctas, &target, address, offset);
            data[at..at + length].copy_from_slice(&block.data[offset..offset + length]);
            if !block.is_defined(offset, length) {
                for (byte, defined) in defined[at..at + length].iter_mut().enumerate() {
                    *defined = block.is_defined(offset + byte, 1);
                }
            }
        }
        if !copy.load
            && let Remote::Box(tensor) = &copy.global
        {
            (data, defined) = tensor.unswizzled(copy.shared.1, &data, &defined);
        }
        Ok((data, defined))
    }

    fn copy_write(&mut self, copy: &mut Copy) -> Outcome<()> {
        let Some((mut data, mut defined)) = copy.buffer.take() else { return Ok(()) };
        if copy.load
            && let Remote::Box(tensor) = &copy.global
        {
            (data, defined) = tensor.swizzled(copy.shared.1, &data, &defined);
        }
        let who = self.accessor(copy, true);
        for (target, address, offset, at, length) in self.copy_pieces(copy, !copy.load)? {
            let part = at..at + length;
            if !copy.load && self.options.checks.undefined && !defined[part.clone()].iter().all(|d| *d) {
                return Err(self.undefined(copy.warp, copy.pc, 1 << copy.lane, "is stored to global memory by a copy"));
            }
            self.async_access(&who, &target, address, offset, length, true)?;
            let (block, ..) = Self::parts(self.memory, &mut self.ctas, &target, address, offset);
            match copy.reduce {
                None => block.data[offset..offset + length].copy_from_slice(&data[part.clone()]),
                Some((op, elem)) => {
                    super::tensor::combine(op, elem, &mut block.data[offset..offset + length], &data[part.clone()]);
                }
            }
            if defined[part.clone()].iter().all(|d| *d) {
                if copy.reduce.is_none() {
                    block.set_defined(offset, length, true);
                } else if self.options.checks.undefined && !block.is_defined(offset, length) {
                    let how = "in global memory is reduced into";
                    return Err(self.undefined(copy.warp, copy.pc, 1 << copy.lane, how));
                }
            } else {
                for (byte, defined) in defined[part].iter().enumerate() {
                    block.set_defined(offset + byte, 1, *defined);
                }
            }
        }
        Ok(())
    }

    /// `fence.proxy.async`: the generic accesses of these lanes reach the async proxy.
    pub(super) fn proxy_fence(&mut self, w: usize, act: u32, shared: bool, global: bool) {
        let on_path = self.options.checks.proxy_fence == crate::launch::ProxyFence::OnPath;
        let warp = &mut self.warps[w];
        let (agent, mine) = (warp.agent, warp.own_entry(act));
        let (copy_agent, copies) = (warp.copy_agent, warp.own_copies(act));
        warp.change(act, |k| {
            let clocks = Rc::make_mut(&mut k.clocks);
            if global {
                let needed = |known: &Known| known.fenced_global != known.generic;
                clocks.update(needed, |known| known.fenced_global.join(known.generic));
            }
            if shared && on_path {
                // Nobody outside the cluster writes its shared memory.
                clocks.update_local(|known| known.fenced_shared.join(known.generic));
            }
            let known = clocks.get_mut(agent);
            if shared {
                known.fenced_shared.join(mine);
            }
            if global {
                known.fenced_global.join(mine);
            }
            if copy_agent != 0 {
                let known = clocks.get_mut(copy_agent);
                if shared {
                    known.fenced_shared.join(copies);
                }
                if global {
                    known.fenced_global.join(copies);
                }
            }
        });
        warp.advance(&mut self.memory.history);
        if shared {
            self.init_fence(w, act);
        }
    }
}
