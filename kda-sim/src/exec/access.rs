//! Loads and stores. A warp that accesses consecutive words, or one address, is served at once; all else lane by lane.

use super::fault::{Fault, Place};
use super::warp::{Flow, Step, Warp};
use super::{Machine, SHARED_BASE, SHARED_BITS};
use crate::alu::lanes::{FULL, LANES, Registers};
use crate::memory::block::Block;
use crate::memory::{GLOBAL_BASE, PAGE, SHARED_WINDOW};
use crate::program::op::{AddressRef, Elements, MemOrder, MemScope, MemSpace, NONE};
use crate::shadow::check::{Observer, Proxy, Spread};
use crate::shadow::clock::MANY_LANES;
use crate::shadow::history::History;

/// Memory that a whole access lies in.
pub(super) enum Target {
    Global,
    Shared { cta: usize },
}

/// Largest access of a warp: 32 lanes of 32 bytes.
const WORDS: usize = 256;

impl Machine<'_> {
    /// Addresses of all lanes.
    #[inline(always)]
    pub(super) fn addresses(registers: &Registers, address: AddressRef) -> [u64; LANES] {
        let base = address.base as usize;
        if address.wide {
            let base = &registers.b64[base];
            std::array::from_fn(|lane| base[lane].wrapping_add(i64::from(address.offset) as u64))
        } else {
            let base = &registers.b32[base];
            std::array::from_fn(|lane| u64::from(base[lane].wrapping_add(address.offset as u32)))
        }
    }

    /// Lanes whose address is undefined.
    #[inline(always)]
    pub(super) fn undefined_addresses(registers: &Registers, address: AddressRef) -> u32 {
        let base = address.base as usize;
        if address.wide { registers.undef64[base] } else { registers.undef32[base] }
    }

    /// CTA and offset of a shared address, if the bytes lie in its memory.
    #[inline(always)]
    pub(super) fn shared_offset(&self, cta: usize, address: u64, bytes: u64) -> Option<(usize, u32)> {
        let size = self.launch.cluster as usize;
        let rank = (address >> SHARED_BITS) as usize;
        let offset = (address & ((1 << SHARED_BITS) - 1)).checked_sub(u64::from(SHARED_BASE))?;
        if rank >= size || offset + bytes > u64::from(self.launch.shared_bytes) {
            return None;
        }
        Some((cta / size * size + rank, offset as u32))
    }

    /// Where an access lies: the memory and the offset in its block. `None` outside every allocation.
    #[inline(always)]
    pub(super) fn locate(&self, cta: usize, space: MemSpace, address: u64, bytes: u64) -> Option<(Target, usize)> {
        let shared = match space {
            MemSpace::Shared => true,
            MemSpace::Global => false,
            MemSpace::Generic => address < GLOBAL_BASE,
        };
        if shared {
            let address = if space == MemSpace::Generic { address.checked_sub(SHARED_WINDOW)? } else { address };
            let (cta, offset) = self.shared_offset(cta, address, bytes)?;
            return Some((Target::Shared { cta }, offset as usize));
        }
        if !self.memory.contains(address, bytes) {
            return None;
        }
        Some((Target::Global, (address & (PAGE - 1)) as usize))
    }

    /// Where a whole warp's access lies, if it is one run of bytes in one block: the target, its offset, bytes of a lane.
    /// A distance of 0 means that all lanes access the same address.
    #[inline(always)]
    fn run_of(
        &self,
        cta: usize,
        active: u32,
        space: MemSpace,
        addresses: &[u64; LANES],
        bytes: usize,
        align: u64,
    ) -> Option<(Target, usize, bool)> {
        let first = addresses[active.trailing_zeros() as usize];
        let stride = bytes as u64;
        let (mut spread, mut same) = (0u64, 0u64);
        if active == FULL {
            for (lane, address) in addresses.iter().enumerate() {
                spread |= address ^ first.wrapping_add(lane as u64 * stride);
                same |= address ^ first;
            }
        } else {
            spread = 1;
            for (lane, address) in addresses.iter().enumerate() {
                same |= if active >> lane & 1 != 0 { address ^ first } else { 0 };
            }
        }
        let total = if spread == 0 {
            stride * LANES as u64
        } else if same == 0 {
            stride
        } else {
            return None;
        };
        if first & (align - 1) != 0 || bytes % 4 != 0 {
            return None;
        }
        let (target, offset) = self.locate(cta, space, first, total)?;
        if matches!(target, Target::Global) && offset as u64 + total > PAGE {
            return None;
        }
        Some((target, offset, spread != 0))
    }

    #[inline(always)]
    pub(super) fn load(
        &mut self,
        w: usize,
        pc: u32,
        act: u32,
        address: AddressRef,
        elements: Elements,
        list: u32,
        order: MemOrder,
        scope: MemScope,
    ) -> Step {
        let warp = &self.warps[w];
        let addresses = Self::addresses(&warp.registers, address);
        let undefined = Self::undefined_addresses(&warp.registers, address) & act;
        if undefined != 0 && self.options.checks.undefined {
            return Err(self.undefined(w, pc, undefined, "is the address of a load"));
        }
        let bytes = elements.bytes as usize * elements.count as usize;
        if address.space != MemSpace::Shared && !warp.dependency_wait {
            self.stats.read_before_wait = true;
        }
        let run = self.run_of(warp.cta, act, address.space, &addresses, bytes, bytes as u64);
        let know = warp.common_knowledge(act);
        let (Some((target, offset, broadcast)), Some(know), MemOrder::Weak) = (run, know, order) else {
            return self.load_lanes(w, pc, act, address.space, &addresses, elements, list, order, scope);
        };
        let races = self.options.checks.races;
        let words = if broadcast { bytes / 4 } else { bytes / 4 * LANES };
        let spread = match broadcast {
            true if act.count_ones() == 1 => Spread::One(act.trailing_zeros()),
            true => Spread::One(MANY_LANES),
            false => Spread::PerLane((bytes / 4).trailing_zeros()),
        };
        let first = addresses[act.trailing_zeros() as usize];
        let cluster_warps = self.cluster_warps();
        let (block, history, key, bases) = match target {
            Target::Global => {
                let (block, history) = self.memory.block_and_history(first);
                let bases = history.bases();
                (block, history, (first - offset as u64) >> 2, bases)
            }
            Target::Shared { cta } => {
                let target = &mut self.ctas[cta];
                let bases = (target.base_segment, target.base_set);
                (&mut target.shared, &mut self.memory.history, super::cta::shared_key(cta), bases)
            }
        };
        let warp = &mut self.warps[w];
        if races {
            block.shadow();
            let mut cells = block.cells(offset / 4, words, key);
            let mut observer = observer(warp, know, history, pc, bases, cluster_warps, false);
            if let Err(conflict) = observer.read_span(&mut cells, spread) {
                let place = Place::of(&target, first).at_word(conflict.word + offset / 4, offset);
                return Err(self.fault(w, pc, act, Fault::Race { conflict, write: false, place }));
            }
        }
        let list = &self.program.lists[list as usize..list as usize + elements.count as usize];
        if broadcast {
            load_broadcast(block, offset, elements, list, &mut warp.registers, act);
        } else {
            load_run(block, offset, elements, list, &mut warp.registers);
        }
        Ok(Flow::Next)
    }

    #[inline(always)]
    pub(super) fn store(
        &mut self,
        w: usize,
        pc: u32,
        act: u32,
        address: AddressRef,
        elements: Elements,
        list: u32,
        order: MemOrder,
        scope: MemScope,
    ) -> Step {
        let warp = &self.warps[w];
        let addresses = Self::addresses(&warp.registers, address);
        let undefined = Self::undefined_addresses(&warp.registers, address) & act;
        if undefined != 0 && self.options.checks.undefined {
            return Err(self.undefined(w, pc, undefined, "is the address of a store"));
        }
        let bytes = elements.bytes as usize * elements.count as usize;
        if address.space != MemSpace::Shared && !warp.dependency_wait {
            self.stats.wrote_before_wait = true;
        }
        let run = self.run_of(warp.cta, act, address.space, &addresses, bytes, bytes as u64);
        let know = warp.common_knowledge(act);
        let (Some((target, offset, false)), Some(know), MemOrder::Weak) = (run, know, order) else {
            return self.store_lanes(w, pc, act, address.space, &addresses, elements, list, order, scope);
        };
        let races = self.options.checks.races;
        let words = bytes / 4 * LANES;
        let first = addresses[0];
        let list = &self.program.lists[list as usize..list as usize + elements.count as usize];
        if matches!(target, Target::Global) && self.options.checks.undefined {
            let undefined = stored_undefined(&warp.registers, elements, list) & act;
            if undefined != 0 {
                return Err(self.undefined(w, pc, undefined, "is stored to global memory"));
            }
        }
        let cluster_warps = self.cluster_warps();
        let (block, history, key, bases) = match target {
            Target::Global => {
                let (block, history) = self.memory.block_and_history(first);
                let bases = history.bases();
                (block, history, (first - offset as u64) >> 2, bases)
            }
            Target::Shared { cta } => {
                let target = &mut self.ctas[cta];
                let bases = (target.base_segment, target.base_set);
                (&mut target.shared, &mut self.memory.history, super::cta::shared_key(cta), bases)
            }
        };
        let warp = &mut self.warps[w];
        if races {
            block.shadow();
            let mut cells = block.cells(offset / 4, words, key);
            let mut observer = observer(warp, know, history, pc, bases, cluster_warps, false);
            if let Err(conflict) = observer.write_span(&mut cells, Spread::PerLane((bytes / 4).trailing_zeros())) {
                let place = Place::of(&target, first).at_word(conflict.word + offset / 4, offset);
                return Err(self.fault(w, pc, act, Fault::Race { conflict, write: true, place }));
            }
        }
        store_run(block, offset, elements, list, &warp.registers);
        self.progress += 1;
        Ok(Flow::Next)
    }

    /// `ld.param`: the same for all lanes.
    pub(super) fn load_param(&mut self, w: usize, act: u32, elements: Elements, list: u32, offset: u32) {
        let program = self.program;
        let registers = &mut self.warps[w].registers;
        for k in 0..elements.count as usize {
            let d = program.lists[list as usize + k];
            let at = offset as usize + k * elements.bytes as usize;
            let mut raw = [0u8; 8];
            raw[..elements.bytes as usize].copy_from_slice(&self.launch.params[at..at + elements.bytes as usize]);
            let value = extend(u64::from_le_bytes(raw), elements);
            for lane in 0..LANES {
                if act >> lane & 1 != 0 {
                    set_lane(registers, d, elements, lane, value, false);
                }
            }
        }
    }
}

/// The observer of a warp's generic accesses.
#[inline(always)]
pub(super) fn observer<'a>(
    warp: &'a mut Warp,
    know: usize,
    history: &'a mut History,
    pc: u32,
    (base_segment, base_set): (u32, u32),
    warps: u32,
    strong: bool,
) -> Observer<'a> {
    let knowledge = &mut warp.knowledge[know];
    Observer {
        history,
        clocks: &knowledge.clocks,
        caches: &mut knowledge.caches,
        agent: warp.agent,
        segment: warp.segment,
        pc,
        base_segment,
        base_set,
        proxy: Proxy::Generic,
        strong,
        warps,
    }
}

/// Extends an element to its register.
#[inline(always)]
pub(super) fn extend(value: u64, elements: Elements) -> u64 {
    let bits = u32::from(elements.bytes) * 8;
    let value = if elements.signed { ((value << (64 - bits)) as i64 >> (64 - bits)) as u64 } else { value };
    if elements.half { value & 0xffff } else { value }
}

/// Writes one lane of a register of a load.
#[inline(always)]
pub(super) fn set_lane(r: &mut Registers, d: u16, elements: Elements, lane: usize, value: u64, undefined: bool) {
    if d == NONE {
        return;
    }
    let d = d as usize;
    let u = if elements.wide {
        r.b64[d][lane] = value;
        &mut r.undef64[d]
    } else {
        r.b32[d][lane] = value as u32;
        &mut r.undef32[d]
    };
    *u = *u & !(1 << lane) | u32::from(undefined) << lane;
}

/// Lanes with an undefined value among the registers of a store.
#[inline(always)]
pub(super) fn stored_undefined(registers: &Registers, elements: Elements, list: &[u16]) -> u32 {
    let file = if elements.wide { &registers.undef64 } else { &registers.undef32 };
    list.iter().fold(0, |u, r| u | file[*r as usize])
}

#[inline(always)]
fn word(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]])
}

/// Every `N`th word, from the `k`th, into the lanes of a register.
#[inline(always)]
fn gather<const N: usize>(data: &[u8], k: usize, out: &mut [u32; LANES]) {
    let words = &data.as_chunks::<4>().0[..N * LANES];
    let (tuples, _) = words.as_chunks::<N>();
    for (out, tuple) in out.iter_mut().zip(tuples) {
        *out = u32::from_le_bytes(tuple[k & (N - 1)]);
    }
}

/// The lanes of a register into every `N`th word, from the `k`th.
#[inline(always)]
fn scatter<const N: usize>(data: &mut [u8], k: usize, values: &[u32; LANES]) {
    let words = &mut data.as_chunks_mut::<4>().0[..N * LANES];
    let (tuples, _) = words.as_chunks_mut::<N>();
    for (value, tuple) in values.iter().zip(tuples) {
        tuple[k & (N - 1)] = value.to_le_bytes();
    }
}

/// Consecutive elements into registers: lane `l` has the bytes from `l * bytes * count`.
#[inline(always)]
fn load_run(block: &Block, offset: usize, elements: Elements, list: &[u16], registers: &mut Registers) {
    let (count, bytes) = (elements.count as usize, elements.bytes as usize);
    let words = bytes * count / 4 * LANES;
    let defined = &block.defined[offset / 4..offset / 4 + words];
    let all_defined = defined.iter().fold(15, |a, n| a & n) == 15;
    let data = &block.data[offset..offset + words * 4];
    if bytes == 4 && !elements.wide {
        for (k, d) in list.iter().enumerate() {
            if *d == NONE {
                continue;
            }
            let out = &mut registers.b32[*d as usize];
            match count {
                1 => gather::<1>(data, 0, out),
                2 => gather::<2>(data, k, out),
                4 => gather::<4>(data, k, out),
                _ => gather::<8>(data, k, out),
            }
            let mut undefined = 0;
            if !all_defined {
                for lane in 0..LANES {
                    undefined |= u32::from(defined[lane * count + k] != 15) << lane;
                }
            }
            registers.undef32[*d as usize] = undefined;
        }
        return;
    }
    for (k, d) in list.iter().enumerate() {
        for lane in 0..LANES {
            let at = (lane * count + k) * bytes;
            let (value, undefined) = element(block, offset + at, bytes);
            set_lane(registers, *d, elements, lane, extend(value, elements), undefined);
        }
    }
}

/// One address into all active lanes.
#[inline(always)]
fn load_broadcast(block: &Block, offset: usize, elements: Elements, list: &[u16], registers: &mut Registers, act: u32) {
    let bytes = elements.bytes as usize;
    for (k, d) in list.iter().enumerate() {
        if *d == NONE {
            continue;
        }
        let (value, undefined) = element(block, offset + k * bytes, bytes);
        let value = extend(value, elements);
        let d = *d as usize;
        let u = if elements.wide {
            for (lane, out) in registers.b64[d].iter_mut().enumerate() {
                *out = if act >> lane & 1 != 0 { value } else { *out };
            }
            &mut registers.undef64[d]
        } else {
            for (lane, out) in registers.b32[d].iter_mut().enumerate() {
                *out = if act >> lane & 1 != 0 { value as u32 } else { *out };
            }
            &mut registers.undef32[d]
        };
        *u = *u & !act | if undefined { act } else { 0 };
    }
}

/// An element, and whether a byte of it is undefined.
#[inline(always)]
pub(super) fn element(block: &Block, at: usize, bytes: usize) -> (u64, bool) {
    let data = &block.data[at..at + bytes];
    let value = match bytes {
        1 => u64::from(data[0]),
        2 => u64::from(u16::from_le_bytes([data[0], data[1]])),
        4 => u64::from(word(data, 0)),
        _ => u64::from(word(data, 0)) | u64::from(word(data, 4)) << 32,
    };
    (value, !block.is_defined(at, bytes))
}

/// Registers into consecutive elements.
#[inline(always)]
fn store_run(block: &mut Block, offset: usize, elements: Elements, list: &[u16], registers: &Registers) {
    let (count, bytes) = (elements.count as usize, elements.bytes as usize);
    let words = bytes * count / 4 * LANES;
    debug_assert!(words <= WORDS);
    for (k, s) in list.iter().enumerate() {
        let s = *s as usize;
        if bytes == 4 && !elements.wide {
            let values = &registers.b32[s];
            let data = &mut block.data[offset..offset + words * 4];
            match count {
                1 => scatter::<1>(data, 0, values),
                2 => scatter::<2>(data, k, values),
                4 => scatter::<4>(data, k, values),
                _ => scatter::<8>(data, k, values),
            }
        } else {
            for lane in 0..LANES {
                let value = if elements.wide { registers.b64[s][lane] } else { u64::from(registers.b32[s][lane]) };
                let at = offset + (lane * count + k) * bytes;
                block.data[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
            }
        }
    }
    let undefined = stored_undefined(registers, elements, list);
    let defined = &mut block.defined[offset / 4..offset / 4 + words];
    if undefined == 0 {
        defined.fill(15);
        return;
    }
    let file = if elements.wide { &registers.undef64 } else { &registers.undef32 };
    for (k, s) in list.iter().enumerate() {
        for lane in 0..LANES {
            let nibble = if file[*s as usize] >> lane & 1 != 0 { 0 } else { 15 };
            let at = (lane * count + k) * bytes;
            if bytes >= 4 {
                defined[at / 4..(at + bytes) / 4].fill(nibble);
            } else {
                let mask = ((1u8 << bytes) - 1) << (at % 4);
                defined[at / 4] = defined[at / 4] & !mask | nibble & mask;
            }
        }
    }
}
