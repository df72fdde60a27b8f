//! Atomics, and the order that releases, acquires and fences make through memory.

use super::access::{Target, observer};
use super::fault::{Fault, Place};
use super::transfer::element;
use super::warp::{Flow, Step};
use super::{Machine, SHARED_BITS};
use crate::program::op::{AddressRef, Kind, MemOrder, MemScope, NONE};
use crate::shadow::clock::Clocks;
use crate::shadow::history::FastMap;
use kda_ptx::modifier::{AtomicOp, Type};
use std::rc::Rc;

/// The bytes of a strong access: only accesses of the same bytes synchronise.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes {
    /// Key of the first word.
    word: u64,
    /// Its first byte that is accessed.
    from: u8,
    /// Number of bytes.
    size: u8,
}

impl Bytes {
    /// Bytes at an offset of the block whose first word has a key.
    pub fn of(key: u64, offset: usize, size: usize) -> Bytes {
        Bytes { word: key + offset as u64 / 4, from: (offset % 4) as u8, size: size as u8 }
    }

    /// The 16 bytes that they begin in, and where.
    fn place(self) -> (u64, u32) {
        (self.word >> 2, (self.word as u32 & 3) * 4 + u32::from(self.from))
    }
}

/// What the releases at some bytes have published.
#[derive(Debug, Default)]
pub struct Location {
    /// First byte of the 16 that it lies in, and number of bytes.
    bytes: (u32, u32),
    /// To everybody.
    gpu: Option<Clocks>,
    /// To the CTA or cluster that released.
    local: FastMap<u64, Clocks>,
}

/// Threads among which a narrow scope holds: a CTA and its cluster, by numbers of their own.
type Domains = [u64; 2];

fn publish(to: &mut Option<Clocks>, clocks: &Clocks) {
    match to {
        Some(to) => to.join(clocks),
        None => *to = Some(clocks.clone()),
    }
}

impl Location {
    fn forget(&mut self) {
        self.gpu = None;
        self.local.clear();
    }

    fn publish(&mut self, clocks: &Clocks, scope: MemScope, domains: Domains) {
        if scope == MemScope::Gpu {
            publish(&mut self.gpu, clocks);
        }
        let narrow = if scope == MemScope::Cta { &domains[..1] } else { &domains[..] };
        for domain in narrow {
            match self.local.get_mut(domain) {
                Some(to) => to.join(clocks),
                None => {
                    self.local.insert(*domain, clocks.clone());
                }
            }
        }
    }

    /// What an acquire of a scope sees.
    fn observe(&self, scope: MemScope, domains: Domains) -> Option<Clocks> {
        let mut seen = None;
        if scope == MemScope::Gpu {
            seen = self.gpu.clone();
        }
        let wide = if scope == MemScope::Cta { &domains[..1] } else { &domains[..] };
        for clocks in wide.iter().filter_map(|domain| self.local.get(domain)) {
            publish(&mut seen, clocks);
        }
        seen
    }
}

impl Machine<'_> {
    fn domains(&self, w: usize) -> Domains {
        let warp = &self.warps[w];
        let cluster = self.clusters[self.cluster_of(warp.cta)].id;
        [u64::from(cluster << 4 | self.ctas[warp.cta].rank), 1 << 32 | u64::from(cluster)]
    }

    /// A strong read: acquires, or remembers for a fence.
    pub(super) fn observe_location(&mut self, w: usize, lane: u32, bytes: Bytes, order: MemOrder, scope: MemScope) {
        let domains = self.domains(w);
        let (key, (granule, from)) = (bytes.word, bytes.place());
        let same = |l: &&Location| l.bytes == (from, u32::from(bytes.size));
        let Some(location) = self.locations.get(&granule).and_then(|all| all.iter().find(same)) else { return };
        let Some(clocks) = location.observe(scope, domains) else { return };
        let near = location.observe(MemScope::Cta, domains);
        self.warps[w].change(1 << lane, |k| {
            if order.acquires() {
                Rc::make_mut(&mut k.clocks).join(&clocks);
                k.acquire_word(key);
            } else {
                publish(&mut k.seen[1], &clocks);
                if let Some(near) = &near {
                    publish(&mut k.seen[0], near);
                }
                k.seen_words.push(key);
            }
        });
    }

    /// A strong write: releases, or publishes what a fence has released. `update` for a read-modify-write,
    /// which continues the releases before it.
    pub(super) fn publish_location(
        &mut self,
        w: usize,
        lane: u32,
        bytes: Bytes,
        order: MemOrder,
        scope: MemScope,
        update: bool,
    ) {
        let domains = self.domains(w);
        let warp = &mut self.warps[w];
        let clocks = if order.releases() {
            Some((Rc::new(warp.publish(1 << lane, &mut self.memory.history)), scope))
        } else {
            warp.knowledge[warp.knowledge_of(lane)].fence.clone()
        };
        let ((granule, from), size) = (bytes.place(), u32::from(bytes.size));
        let all = self.locations.entry(granule).or_default();
        // A write of other bytes that overlap ends what was released there.
        all.retain(|l| l.bytes == (from, size) || l.bytes.0 + l.bytes.1 <= from || from + size <= l.bytes.0);
        let at = all.iter().position(|l| l.bytes == (from, size)).unwrap_or_else(|| {
            all.push(Location { bytes: (from, size), ..Location::default() });
            all.len() - 1
        });
        let location = &mut all[at];
        if !update {
            location.forget();
        }
        if let Some((clocks, fence_scope)) = clocks {
            location.publish(&clocks, scope.min(fence_scope), domains);
        }
    }

    /// `fence.acq_rel` and `fence.sc`: acquires what relaxed reads saw, and lets later relaxed writes release.
    pub(super) fn fence(&mut self, w: usize, act: u32, scope: MemScope) {
        let warp = &mut self.warps[w];
        warp.change(act, |k| {
            let seen = &mut k.seen[usize::from(scope > MemScope::Cta)];
            if let Some(seen) = seen.take() {
                Rc::make_mut(&mut k.clocks).join(&seen);
            }
            if scope > MemScope::Cta {
                for key in std::mem::take(&mut k.seen_words) {
                    k.acquire_word(key);
                }
            }
        });
        let (agent, entry) = (warp.agent, warp.own_entry(act));
        let (copy_agent, copies) = (warp.copy_agent, warp.own_copies(act));
        warp.change(act, |k| {
            let mut clocks = (*k.clocks).clone();
            clocks.get_mut(agent).generic.join(entry);
            if copy_agent != 0 {
                clocks.get_mut(copy_agent).generic.join(copies);
            }
            k.fence = Some((Rc::new(clocks), scope));
        });
        warp.advance(&mut self.memory.history);
    }

    pub(super) fn atomic(&mut self, w: usize, pc: u32, act: u32) -> Step {
        let Kind::Atomic { address, op, ty, d, b, c, order, scope } = self.program.ops[pc as usize].kind else {
            return Ok(Flow::Next);
        };
        let bytes = ty.bytes() as usize;
        let wide = bytes == 8;
        let registers = &self.warps[w].registers;
        let addresses = Self::addresses(registers, address);
        let mut undefined = Self::undefined_addresses(registers, address) & act;
        if undefined != 0 && self.options.checks.undefined {
            return Err(self.undefined(w, pc, undefined, "is the address of an atomic"));
        }
        let file = if wide { &registers.undef64 } else { &registers.undef32 };
        undefined = file[b as usize] | if c == NONE { 0 } else { file[c as usize] };
        if undefined & act != 0 && self.options.checks.undefined {
            return Err(self.undefined(w, pc, undefined & act, "is an operand of an atomic"));
        }
        if self.memory.dependent && !self.warps[w].dependency_wait {
            self.early(w, pc, act, |lane| addresses[lane], "atomic")?;
        }
        let cluster_warps = self.cluster_warps();
        for lane in (0..32u32).filter(|l| act >> l & 1 != 0) {
            let l = lane as usize;
            let (target, offset) = self.locate_lane(w, pc, lane, address.space, addresses[l], bytes)?;
            let races = self.options.checks.races;
            let key = {
                let (.., key, _) = Self::parts(self.memory, &mut self.ctas, &target, addresses[l], offset);
                key
            };
            self.observe_location(w, lane, Bytes::of(key, offset, bytes), order, scope);
            let (block, history, key, bases) = Self::parts(self.memory, &mut self.ctas, &target, addresses[l], offset);
            let warp = &mut self.warps[w];
            if races {
                block.shadow();
                let know = warp.knowledge_of(lane);
                let mut observer = observer(warp, know, history, pc, bases, cluster_warps, true);
                let mut cells = block.cells(0, block.defined.len(), key);
                for word in offset / 4..(offset + bytes) / 4 {
                    if let Err(conflict) = observer.check_write_word(&cells, word, lane, 15) {
                        let place = Place::of(&target, addresses[l]).at_word(word, offset);
                        return Err(self.fault(
                            w,
                            pc,
                            1 << lane,
                            Fault::Race { conflict, write: true, place, issued: None },
                        ));
                    }
                    observer.stamp_word(&mut cells, word, lane, 15);
                }
            }
            let (old, old_undefined) = element(block, offset, bytes);
            let value = |r: u16| match (r, wide) {
                (NONE, _) => 0,
                (r, true) => warp.registers.b64[r as usize][l],
                (r, false) => u64::from(warp.registers.b32[r as usize][l]),
            };
            let new = combine(op, ty, old, value(b), value(c));
            let writes = op != AtomicOp::Cas || old == value(b);
            block.data[offset..offset + bytes].copy_from_slice(&new.to_le_bytes()[..bytes]);
            let defined = !old_undefined || op == AtomicOp::Exch;
            block.set_defined(offset, bytes, defined);
            if !defined && self.options.checks.undefined && matches!(target, Target::Global) {
                return Err(self.undefined(w, pc, 1 << lane, "is read and written by an atomic in global memory"));
            }
            if d != NONE {
                let r = &mut warp.registers;
                let u = if wide {
                    r.b64[d as usize][l] = old;
                    &mut r.undef64[d as usize]
                } else {
                    r.b32[d as usize][l] = old as u32;
                    &mut r.undef32[d as usize]
                };
                *u = *u & !(1 << lane) | u32::from(old_undefined) << lane;
            }
            // A comparison that fails writes nothing, so there is nothing that an acquire could see.
            if writes {
                self.publish_location(w, lane, Bytes::of(key, offset, bytes), order, scope, true);
            }
        }
        self.progress += 1;
        Ok(Flow::Yield)
    }

    /// The shared address of a lane's operand, whole.
    pub(super) fn shared_operand(&self, w: usize, lane: usize, address: AddressRef) -> u64 {
        let value = Self::addresses(&self.warps[w].registers, address)[lane];
        match address.space {
            crate::program::op::MemSpace::Generic => value.wrapping_sub(crate::memory::SHARED_WINDOW),
            _ => value & ((1 << (SHARED_BITS + 8)) - 1),
        }
    }
}

/// The new value of an atomic; for `cas`, `b` is the comparison and `c` the value.
fn combine(op: AtomicOp, ty: Type, old: u64, b: u64, c: u64) -> u64 {
    let narrow = |v: u64| if ty.bytes() == 4 { v & 0xffff_ffff } else { v };
    let signed = |v: u64| if ty.bytes() == 4 { i64::from(v as u32 as i32) } else { v as i64 };
    match (op, ty) {
        (AtomicOp::Add, Type::F32) => {
            let modes = 0;
            let modes = crate::alu::float::Modes::unpack(modes);
            u64::from(crate::alu::float::add32(old as u32, b as u32, modes))
        }
        (AtomicOp::Add, Type::F64) => crate::alu::float::add64(old, b, crate::alu::float::Modes::unpack(0)),
        (AtomicOp::Add, _) => narrow(old.wrapping_add(b)),
        (AtomicOp::Inc, _) => {
            if old >= b {
                0
            } else {
                old + 1
            }
        }
        (AtomicOp::Dec, _) => {
            if old == 0 || old > b {
                b
            } else {
                old - 1
            }
        }
        (AtomicOp::Min, _) if ty.is_signed() => {
            if signed(old) <= signed(b) {
                old
            } else {
                b
            }
        }
        (AtomicOp::Max, _) if ty.is_signed() => {
            if signed(old) >= signed(b) {
                old
            } else {
                b
            }
        }
        (AtomicOp::Min, _) => old.min(b),
        (AtomicOp::Max, _) => old.max(b),
        (AtomicOp::And, _) => old & b,
        (AtomicOp::Or, _) => old | b,
        (AtomicOp::Xor, _) => old ^ b,
        (AtomicOp::Exch, _) => b,
        (AtomicOp::Cas, _) => {
            if old == b {
                c
            } else {
                old
            }
        }
    }
}
