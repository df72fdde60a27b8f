//! Tensor memory: 128 lanes of 512 columns a CTA; allocation, loads and stores.
//!
//! Order is kept apart from that of ordinary memory: an access may rely on what its warp knew at its last
//! `tcgen05.fence::after_thread_sync`, and on its own accesses that it has waited for; and a warp hands on its own accesses by
//! `tcgen05.fence::before_thread_sync`.

use super::access::Target;
use super::asynchronous::{Accessor, Async};
use super::warp::{Flow, Step, Wait};
use super::{Machine, Outcome};
use crate::memory::block::Block;
use crate::program::details::AgentKind;
use crate::program::op::{AddressRef, Kind};
use crate::report::{Code, Report};
use crate::shadow::clock::{Clocks, Entry, MANY_LANES};
use std::rc::Rc;

/// Columns of a lane.
pub const COLUMNS: usize = 512;
/// Lanes.
pub const LANES: usize = 128;

/// Tensor memory of a CTA.
#[derive(Debug)]
pub struct TensorMemory {
    pub block: Block,
    /// First column and number of columns.
    allocations: Vec<(u32, u32)>,
    relinquished: bool,
}

impl Default for TensorMemory {
    fn default() -> TensorMemory {
        TensorMemory { block: Block::new(LANES * COLUMNS * 4), allocations: Vec::new(), relinquished: false }
    }
}

/// A warp's accesses to tensor memory.
#[derive(Debug, Default)]
pub struct TensorAccesses {
    /// Loads and stores issued, and those waited for.
    issued: [u32; 2],
    waited: [u32; 2],
    /// Products issued.
    pub products: u32,
    /// What the last one of them was behind.
    pub behind: Option<Rc<Clocks>>,
    /// What the warp knew at its last `fence::after_thread_sync`.
    known: Option<Rc<Clocks>>,
    /// Destinations of loads that have not been waited for.
    loading: Vec<u16>,
}

const KINDS: [AgentKind; 2] = [AgentKind::TensorLoad, AgentKind::TensorStore];

impl Machine<'_> {
    pub(super) fn tensor_error(&self, w: usize, pc: u32, message: String, help: &str) -> Box<Report> {
        self.report_at(w, pc, self.warps[w].live, Code::TensorMemory, message, "tensor memory", help)
    }

    /// A 32-bit register that must be defined and the same in some lanes.
    pub(super) fn tensor_operand(&self, w: usize, pc: u32, act: u32, register: u16, what: &str) -> Outcome<u32> {
        let registers = &self.warps[w].registers;
        let undefined = registers.undef32[register as usize] & act;
        if undefined != 0 && self.options.checks.undefined {
            return Err(self.undefined(w, pc, undefined, &format!("is {what}")));
        }
        let values = &registers.b32[register as usize];
        let value = values[act.trailing_zeros() as usize & 31];
        if (0..32).any(|l| act >> l & 1 != 0 && values[l] != value) {
            let message = format!("the lanes give different values for {what}");
            return Err(self.tensor_error(w, pc, message, "it must be the same in the whole warp"));
        }
        Ok(value)
    }

    pub(super) fn tensor_memory(&mut self, w: usize, pc: u32, act: u32) -> Step {
        if let Kind::TensorFence { after } = self.program.ops[pc as usize].kind {
            self.tensor_fence(w, act, after);
            return Ok(Flow::Next);
        }
        if let Some(flow) = self.whole_warp(w, pc, act)? {
            return Ok(flow);
        }
        match self.program.ops[pc as usize].kind {
            Kind::TensorAlloc { address, columns } => self.tensor_alloc(w, pc, address, columns),
            Kind::TensorFree { address, columns } => self.tensor_free(w, pc, address, columns),
            Kind::TensorRelinquish => {
                let cta = self.warps[w].cta;
                self.ctas[cta].tensor.get_or_insert_default().relinquished = true;
                Ok(Flow::Next)
            }
            Kind::TensorAccess { address, offset, list, count, store } => {
                self.tensor_access(w, pc, (address, offset), (list, count), store)
            }
            Kind::TensorWait { store } => {
                let warp = &mut self.warps[w];
                let at = usize::from(store);
                warp.tensor.waited[at] = warp.tensor.issued[at];
                if !store {
                    let loading = std::mem::take(&mut warp.tensor.loading);
                    warp.watch.unlock(&loading);
                }
                Ok(Flow::Next)
            }
            _ => Ok(Flow::Next),
        }
    }

    fn tensor_fence(&mut self, w: usize, act: u32, after: bool) {
        if after {
            let warp = &mut self.warps[w];
            let mut parts = warp.knowledge.iter().filter(|k| k.mask & act != 0);
            let Some(first) = parts.next() else { return };
            let mut clocks = (*first.clocks).clone();
            parts.for_each(|k| clocks.meet(&k.clocks));
            warp.tensor.known = Some(Rc::new(clocks));
            return;
        }
        let agents = KINDS.map(|kind| self.agent_of(w, kind));
        let warp = &mut self.warps[w];
        for (agent, waited) in agents.into_iter().zip(warp.tensor.waited) {
            if waited > 0 {
                warp.learn_agent(act, agent, Entry::all(waited));
            }
        }
    }

    /// What an access to tensor memory may rely on.
    pub(super) fn tensor_clocks(&self, w: usize) -> Clocks {
        let warp = &self.warps[w];
        let cluster = self.clusters[self.cluster_of(warp.cta)].id;
        let mut clocks = warp.tensor.known.as_ref().map_or_else(|| Clocks::new(cluster), |k| (**k).clone());
        for (kind, waited) in KINDS.into_iter().zip(warp.tensor.waited) {
            clocks.get_mut(self.agent_of(w, kind)).generic.join(Entry::all(waited));
        }
        clocks
    }

    fn tensor_alloc(&mut self, w: usize, pc: u32, address: AddressRef, columns: u16) -> Step {
        let columns = self.tensor_operand(w, pc, u32::MAX, columns, "the number of columns")?;
        if !columns.is_power_of_two() || !(32..=512).contains(&columns) {
            let message = format!("an allocation of {columns} columns");
            return Err(self.tensor_error(w, pc, message, "32, 64, 128, 256 or 512 columns are possible"));
        }
        let cta = self.warps[w].cta;
        let memory = self.ctas[cta].tensor.get_or_insert_default();
        if memory.relinquished {
            let message = "an allocation after the right to allocate was given up".to_string();
            return Err(self.tensor_error(w, pc, message, "allocate before tcgen05.relinquish_alloc_permit"));
        }
        let free = |first: u32| memory.allocations.iter().all(|(c, n)| first + columns <= *c || c + n <= first);
        let Some(first) = (0..=COLUMNS as u32 - columns).step_by(32).find(|c| free(*c)) else {
            return Ok(Flow::Block(Wait::TensorMemory));
        };
        memory.allocations.push((first, columns));
        for lane in 0..LANES {
            let at = (lane * COLUMNS + first as usize) * 4;
            memory.block.set_defined(at, columns as usize * 4, false);
        }
        let to = Self::addresses(&self.warps[w].registers, address)[0];
        if Self::undefined_addresses(&self.warps[w].registers, address) != 0 && self.options.checks.undefined {
            return Err(self.undefined(w, pc, u32::MAX, "is the address for an allocation"));
        }
        let (target, offset) = self.locate_lane(w, pc, 0, address.space, to, 4)?;
        let who = Accessor {
            warp: w,
            lane: 0,
            pc,
            clocks: self.issue_clocks(w, 0),
            segment: self.warps[w].segment,
            generic: true,
            strong: false,
        };
        self.async_access(&who, &target, to, offset, 4, true)?;
        let (block, ..) = Self::parts(self.memory, &mut self.ctas, &target, to, offset);
        block.data[offset..offset + 4].copy_from_slice(&first.to_le_bytes());
        block.set_defined(offset, 4, true);
        self.progress += 1;
        Ok(Flow::Yield)
    }

    fn tensor_free(&mut self, w: usize, pc: u32, address: u16, columns: u16) -> Step {
        let address = self.tensor_operand(w, pc, u32::MAX, address, "an address of tensor memory")?;
        let columns = self.tensor_operand(w, pc, u32::MAX, columns, "the number of columns")?;
        let cta = self.warps[w].cta;
        let memory = self.ctas[cta].tensor.get_or_insert_default();
        let Some(at) = memory.allocations.iter().position(|a| *a == (address, columns)) else {
            let message = format!("{columns} columns at {address:#x} are freed, which is no allocation");
            return Err(self.tensor_error(w, pc, message, "free each allocation once, whole, by its address"));
        };
        // Nobody may still use them, and what is in flight does.
        let in_flight = |a: &Async| matches!(a, Async::TensorProduct(_)) && a.cta() == cta;
        while let Some(index) = self.asyncs.iter().position(in_flight) {
            self.step_async(index)?;
        }
        let who = self.tensor_accessor(w, pc, AgentKind::TensorStore);
        for lane in 0..LANES {
            let offset = (lane * COLUMNS + address as usize) * 4;
            self.async_access(&who, &Target::Tensor { cta }, 0, offset, columns as usize * 4, true)?;
        }
        let memory = self.ctas[cta].tensor.get_or_insert_default();
        memory.allocations.remove(at);
        // Who gets the columns next has waited for this.
        for lane in 0..LANES {
            let first = lane * COLUMNS + address as usize;
            let range = first..first + columns as usize;
            if !memory.block.writes.is_empty() {
                memory.block.writes[range.clone()].fill(0);
                memory.block.reads[range].fill(0);
            }
        }
        let first = cta * self.warps_per_cta;
        for other in first..first + self.warps_per_cta {
            self.wake(other, Wait::TensorMemory);
        }
        self.progress += 1;
        Ok(Flow::Yield)
    }

    /// A further access of a warp to tensor memory.
    fn tensor_accessor(&mut self, w: usize, pc: u32, kind: AgentKind) -> Accessor {
        let clocks = Rc::new(self.tensor_clocks(w));
        let agent = self.agent_of(w, kind);
        let tensor = &mut self.warps[w].tensor;
        let issued = &mut tensor.issued[usize::from(kind == AgentKind::TensorStore)];
        *issued += 1;
        let segment = self.memory.history.segment(agent, *issued);
        Accessor { warp: w, lane: MANY_LANES, pc, clocks, segment, generic: true, strong: false }
    }

    /// Columns that must be allocated.
    pub(super) fn check_columns(&self, w: usize, pc: u32, cta: usize, first: u32, count: u32) -> Outcome<()> {
        let inside = |a: &(u32, u32)| a.0 <= first && first + count <= a.0 + a.1;
        if self.ctas[cta].tensor.as_ref().is_some_and(|m| m.allocations.iter().any(inside)) {
            return Ok(());
        }
        let message = format!("columns {first} to {} of tensor memory are in no allocation", first + count);
        Err(self.tensor_error(
            w,
            pc,
            message,
            "allocate enough columns, and use the address that tcgen05.alloc has written",
        ))
    }

    fn tensor_access(
        &mut self,
        w: usize,
        pc: u32,
        (address, offset): (u16, i32),
        (list, count): (u32, u8),
        store: bool,
    ) -> Step {
        let count = count as usize;
        let address = self.tensor_operand(w, pc, u32::MAX, address, "an address of tensor memory")?;
        let address = address.wrapping_add(offset as u32);
        let (lane, column) = (address >> 16, address & 0xffff);
        let quarter = self.warps[w].index % 4 * 32;
        if lane != quarter {
            let message =
                format!("warp {} accesses lanes {lane} to {} of tensor memory", self.warps[w].index, lane + 31);
            let help = "warp i of a warpgroup reaches lanes 32 i to 32 i + 31: add 32 i << 16 to the address";
            return Err(self.tensor_error(w, pc, message, help));
        }
        let cta = self.warps[w].cta;
        self.check_columns(w, pc, cta, column, count as u32)?;
        let program = self.program;
        let list = &program.lists[list as usize..list as usize + count];
        self.watch_access(w, pc)?;
        let who = self.tensor_accessor(w, pc, KINDS[usize::from(store)]);
        let place = |lane: usize| ((quarter as usize + lane) * COLUMNS + column as usize) * 4;
        for lane in 0..32 {
            self.async_access(&who, &Target::Tensor { cta }, 0, place(lane), count * 4, store)?;
        }
        let warp = &mut self.warps[w];
        let block = &mut self.ctas[cta].tensor.get_or_insert_default().block;
        for (k, register) in list.iter().enumerate() {
            let register = *register as usize;
            for lane in 0..32 {
                let at = place(lane) + k * 4;
                if store {
                    block.data[at..at + 4].copy_from_slice(&warp.registers.b32[register][lane].to_le_bytes());
                    block.set_defined(at, 4, warp.registers.undef32[register] >> lane & 1 == 0);
                } else {
                    let (value, undefined) = super::transfer::element(block, at, 4);
                    warp.registers.b32[register][lane] = value as u32;
                    let u = &mut warp.registers.undef32[register];
                    *u = *u & !(1 << lane) | u32::from(undefined) << lane;
                }
            }
        }
        if !store {
            warp.tensor.loading.extend_from_slice(list);
            warp.watch.lock(list, pc, true);
        }
        self.progress += 1;
        Ok(Flow::Yield)
    }

    /// The last warp of a CTA has exited: everything must have been freed.
    pub(super) fn check_tensor_exit(&self, w: usize, pc: u32) -> Outcome<()> {
        let memory = self.ctas[self.warps[w].cta].tensor.as_ref();
        let Some((first, columns)) = memory.and_then(|m| m.allocations.first().copied()) else { return Ok(()) };
        let message = format!("the CTA exits without freeing {columns} columns of tensor memory at {first:#x}");
        let mut report = self.tensor_error(w, pc, message, "one warp executes tcgen05.dealloc before the end");
        if let Some(site) = &mut report.site {
            site.who.lanes = 0;
        }
        Err(report)
    }
}
