//! Loads and stores. A warp that accesses consecutive words, or one address, is served at once; all else lane by lane.

use super::fault::{Fault, Place};
use super::transfer::{extend, load_broadcast, load_run, load_some, set_lane, store_run, store_some, stored_undefined};
use super::warp::{Flow, Step, Warp};
use super::{Machine, SHARED_BASE, SHARED_BITS};
use crate::alu::lanes::{FULL, LANES, Registers};
use crate::memory::{GLOBAL_BASE, PAGE, SHARED_WINDOW};
use crate::program::op::{AddressRef, Elements, MemOrder, MemScope, MemSpace};
use crate::shadow::check::{Observer, Proxy};
use crate::shadow::clock::MANY_LANES;
use crate::shadow::history::History;
use crate::shadow::span::Spread;

/// How the addresses of the lanes lie to each other.
#[derive(Clone, Copy)]
enum Shape {
    /// All the same.
    Broadcast,
    /// One behind the other, for lanes that stand one behind the other.
    Run { begin: u32, lanes: u32 },
    /// Any way, in one block.
    Scattered,
}

/// Memory that a whole access lies in.
pub(super) enum Target {
    Global,
    Shared { cta: usize },
    Tensor { cta: usize },
}

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
            MemSpace::Shared | MemSpace::Cluster => true,
            MemSpace::Global => false,
            MemSpace::Generic => address < GLOBAL_BASE,
        };
        if shared {
            let address = if space == MemSpace::Generic { address.checked_sub(SHARED_WINDOW)? } else { address };
            let own = cta;
            let (cta, offset) = self.shared_offset(own, address, bytes)?;
            if space == MemSpace::Shared && cta != own {
                return None;
            }
            return Some((Target::Shared { cta }, offset as usize));
        }
        if !self.memory.contains(address, bytes) {
            return None;
        }
        Some((Target::Global, (address & (PAGE - 1)) as usize))
    }

    /// Where a warp's access lies, if it lies in one block: the target, the offset of its lowest address, its shape.
    #[inline(always)]
    fn shape_of(
        &self,
        cta: usize,
        active: u32,
        space: MemSpace,
        addresses: &[u64; LANES],
        bytes: usize,
    ) -> Option<(Target, usize, Shape)> {
        let (begin, lanes) = (active.trailing_zeros(), active.count_ones());
        let first = addresses[begin as usize];
        let stride = bytes as u64;
        let (mut spread, mut same, mut low) = (0u64, 0u64, 0u64);
        if active == FULL {
            for (lane, address) in addresses.iter().enumerate() {
                spread |= address ^ first.wrapping_add(lane as u64 * stride);
                same |= address ^ first;
                low |= address;
            }
        } else {
            for (lane, address) in addresses.iter().enumerate() {
                let on = 0u64.wrapping_sub(u64::from(active >> lane & 1));
                spread |= (address
                    ^ first.wrapping_add((lane as u64).wrapping_sub(u64::from(begin)).wrapping_mul(stride)))
                    & on;
                same |= (address ^ first) & on;
                low |= address & on;
            }
            let run = FULL >> (32 - lanes) << begin;
            spread |= u64::from(run ^ active);
        }
        if low & (stride - 1) != 0 {
            return None;
        }
        let whole = bytes >= 4 || (bytes == 2 && first.is_multiple_of(4) && lanes.is_multiple_of(2));
        let (shape, low, total) = if same == 0 && (bytes >= 4 || lanes == 1) {
            (Shape::Broadcast, first, stride)
        } else if spread == 0 && whole {
            (Shape::Run { begin, lanes }, first, stride * u64::from(lanes))
        } else {
            let on = |lane: &usize| active >> lane & 1 != 0;
            let low = (0..LANES).filter(on).map(|l| addresses[l]).min().unwrap_or(first);
            let high = (0..LANES).filter(on).map(|l| addresses[l]).max().unwrap_or(first);
            (Shape::Scattered, low, (high - low).checked_add(stride)?)
        };
        let (target, offset) = self.locate(cta, space, low, total)?;
        if matches!(target, Target::Global) && offset as u64 + total > PAGE {
            return None;
        }
        Some((target, offset, shape))
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
        if !address.space.is_shared() && !warp.dependency_wait {
            self.stats.read_before_wait = true;
            if self.memory.dependent {
                self.early(w, pc, act, |lane| addresses[lane], "read")?;
            }
        }
        let warp = &self.warps[w];
        let shape = self.shape_of(warp.cta, act, address.space, &addresses, bytes);
        let know = warp.common_knowledge(act);
        let (Some((target, offset, shape)), Some(know), MemOrder::Weak) = (shape, know, order) else {
            return self.load_lanes(w, pc, act, address.space, &addresses, elements, list, order, scope);
        };
        let races = self.options.checks.races;
        let words = bytes.div_ceil(4);
        let shift = words.trailing_zeros();
        let (words, spread) = match shape {
            Shape::Broadcast if act.is_power_of_two() => (words, Spread::one(act.trailing_zeros())),
            Shape::Broadcast => (words, Spread::one(MANY_LANES)),
            Shape::Run { begin, lanes } if bytes < 4 => (lanes as usize / 2, Spread::pairs(begin)),
            Shape::Run { begin, lanes } => (words * lanes as usize, Spread::lanes(begin, shift)),
            Shape::Scattered => {
                return self.load_scattered(w, pc, act, (target, offset), know, &addresses, elements, list);
            }
        };
        if bytes < 4 && matches!(shape, Shape::Broadcast) {
            return self.load_scattered(w, pc, act, (target, offset), know, &addresses, elements, list);
        }
        let first = addresses[act.trailing_zeros() as usize];
        let cluster_warps = self.cluster_warps();
        let (block, history, key, bases) = match target {
            Target::Global => {
                let (block, history) = self.memory.block_and_history(first);
                let bases = history.bases();
                (block, history, (first - offset as u64) >> 2, bases)
            }
            Target::Shared { cta } | Target::Tensor { cta } => {
                self.check_remote(w, pc, act, cta)?;
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
                return Err(self.fault(w, pc, act, Fault::Race { conflict, write: false, place, issued: None }));
            }
        }
        let list = &self.program.lists[list as usize..list as usize + elements.count as usize];
        match shape {
            Shape::Broadcast => load_broadcast(block, offset, elements, list, &mut warp.registers, act),
            _ if act == FULL && bytes >= 4 => load_run(block, offset, elements, list, &mut warp.registers),
            _ => load_some(block, offset, elements, list, &mut warp.registers, act),
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
        if !address.space.is_shared() && !warp.dependency_wait {
            self.stats.wrote_before_wait = true;
            if self.memory.dependent {
                self.early(w, pc, act, |lane| addresses[lane], "write")?;
            }
        }
        let warp = &self.warps[w];
        let shape = self.shape_of(warp.cta, act, address.space, &addresses, bytes);
        let know = warp.common_knowledge(act);
        let (Some((target, offset, shape)), Some(know), MemOrder::Weak) = (shape, know, order) else {
            return self.store_lanes(w, pc, act, address.space, &addresses, elements, list, order, scope);
        };
        let races = self.options.checks.races;
        let (words, spread) = match shape {
            Shape::Run { begin, lanes } if bytes < 4 => (lanes as usize / 2, Spread::pairs(begin)),
            Shape::Run { begin, lanes } => {
                (bytes / 4 * lanes as usize, Spread::lanes(begin, (bytes / 4).trailing_zeros()))
            }
            Shape::Broadcast if act.is_power_of_two() && bytes >= 4 => (bytes / 4, Spread::one(act.trailing_zeros())),
            _ => return self.store_scattered(w, pc, act, (target, offset), know, &addresses, elements, list),
        };
        let first = addresses[act.trailing_zeros() as usize];
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
            Target::Shared { cta } | Target::Tensor { cta } => {
                self.check_remote(w, pc, act, cta)?;
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
            if let Err(conflict) = observer.write_span(&mut cells, spread) {
                let place = Place::of(&target, first).at_word(conflict.word + offset / 4, offset);
                return Err(self.fault(w, pc, act, Fault::Race { conflict, write: true, place, issued: None }));
            }
        }
        if act == FULL && bytes >= 4 {
            store_run(block, offset, elements, list, &warp.registers);
        } else {
            store_some(block, offset, elements, list, &warp.registers, act);
        }
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
        acquired: &knowledge.acquired,
        own_copies: (warp.copy_agent, &warp.waited_copies),
        warps,
    }
}
