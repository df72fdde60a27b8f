//! Loads and stores lane by lane: any addresses, any mask, any order.

use super::access::{Target, observer};
use super::atomic::Bytes;
use super::cta::shared_key;
use super::fault::{Fault, Place};
use super::transfer::{element, extend, set_lane, stored_undefined};
use super::warp::{Flow, Step};
use super::{Machine, Outcome};
use crate::alu::lanes::LANES;
use crate::memory::block::Block;
use crate::program::op::{Elements, MemOrder, MemScope, MemSpace};
use crate::shadow::check::Conflict;
use crate::shadow::history::History;

/// Words of an access: number of the word and bytes of it.
pub(super) fn words(offset: usize, bytes: usize) -> impl Iterator<Item = (usize, u32)> {
    let end = offset + bytes;
    (offset / 4..end.div_ceil(4)).map(move |word| {
        let from = offset.max(word * 4) - word * 4;
        let to = end.min(word * 4 + 4) - word * 4;
        (word, (1u32 << to) - (1u32 << from))
    })
}

impl Machine<'_> {
    /// Block, history, key and bases of a located access.
    pub(super) fn parts<'b>(
        memory: &'b mut crate::memory::Memory,
        ctas: &'b mut [super::cta::Cta],
        target: &Target,
        address: u64,
        offset: usize,
    ) -> (&'b mut Block, &'b mut History, u64, (u32, u32)) {
        match target {
            Target::Global => {
                let (block, history) = memory.block_and_history(address);
                let bases = history.bases();
                (block, history, (address - offset as u64) >> 2, bases)
            }
            Target::Shared { cta } => {
                let target = &mut ctas[*cta];
                let bases = (target.base_segment, target.base_set);
                (&mut target.shared, &mut memory.history, shared_key(*cta), bases)
            }
            Target::Tensor { cta } => {
                let target = &mut ctas[*cta];
                let bases = (target.base_segment, target.base_set);
                let block = &mut target.tensor.get_or_insert_default().block;
                (block, &mut memory.history, shared_key(*cta) + (1 << 24), bases)
            }
        }
    }

    /// Locates the access of a lane, or says what is wrong with its address.
    pub(super) fn locate_lane(
        &self,
        w: usize,
        pc: u32,
        lane: u32,
        space: MemSpace,
        address: u64,
        bytes: usize,
    ) -> Outcome<(Target, usize)> {
        if !address.is_multiple_of(bytes as u64) {
            return Err(self.fault(w, pc, 1 << lane, Fault::Misaligned { address, needed: bytes as u64 }));
        }
        let found = self.locate(self.warps[w].cta, space, address, bytes as u64);
        if let Some((Target::Shared { cta }, _)) = found {
            self.check_remote(w, pc, 1 << lane, cta)?;
        }
        found.ok_or_else(|| self.fault(w, pc, 1 << lane, Fault::Bounds { address, bytes: bytes as u64, space }))
    }

    #[inline(never)]
    pub(super) fn load_lanes(
        &mut self,
        w: usize,
        pc: u32,
        act: u32,
        space: MemSpace,
        addresses: &[u64; LANES],
        elements: Elements,
        list: u32,
        order: MemOrder,
        scope: MemScope,
    ) -> Step {
        let bytes = elements.bytes as usize * elements.count as usize;
        let cluster_warps = self.cluster_warps();
        for lane in (0..32).filter(|l| act >> l & 1 != 0) {
            let address = addresses[lane as usize];
            let (target, offset) = self.locate_lane(w, pc, lane, space, address, bytes)?;
            let program = self.program;
            let races = self.options.checks.races;
            let (block, history, key, bases) = Self::parts(self.memory, &mut self.ctas, &target, address, offset);
            let warp = &mut self.warps[w];
            if races {
                block.shadow();
                let know = warp.knowledge_of(lane);
                let mut observer = observer(warp, know, history, pc, bases, cluster_warps, order.strong());
                let mut cells = block.cells(0, block.defined.len(), key);
                let bad = words(offset, bytes)
                    .find_map(|(word, mask)| observer.read_word(&mut cells, word, lane, mask).err().map(|c| (c, word)));
                if let Some((conflict, word)) = bad {
                    let place = Place::of(&target, address).at_word(word, offset);
                    return Err(self.fault(
                        w,
                        pc,
                        1 << lane,
                        Fault::Race { conflict, write: false, place, issued: None },
                    ));
                }
            }
            for k in 0..elements.count as usize {
                let d = program.lists[list as usize + k];
                let (value, undefined) = element(block, offset + k * elements.bytes as usize, elements.bytes as usize);
                set_lane(&mut warp.registers, d, elements, lane as usize, extend(value, elements), undefined);
            }
            if order.strong() {
                self.observe_location(w, lane, Bytes::of(key, offset, bytes), order, scope);
            }
        }
        // A strong load may be one of a polling loop: others should run before the next.
        Ok(if order.strong() { Flow::Yield } else { Flow::Next })
    }

    #[inline(never)]
    pub(super) fn store_lanes(
        &mut self,
        w: usize,
        pc: u32,
        act: u32,
        space: MemSpace,
        addresses: &[u64; LANES],
        elements: Elements,
        list: u32,
        order: MemOrder,
        scope: MemScope,
    ) -> Step {
        let bytes = elements.bytes as usize * elements.count as usize;
        let cluster_warps = self.cluster_warps();
        let lanes = || (0..32u32).filter(|l| act >> l & 1 != 0);
        let sources = list as usize..list as usize + elements.count as usize;
        // All lanes are checked before one writes: what a lane finds stamped by this very instruction is then a lane
        // of this execution of it.
        for lane in lanes() {
            let address = addresses[lane as usize];
            let (target, offset) = self.locate_lane(w, pc, lane, space, address, bytes)?;
            let registers = &self.warps[w].registers;
            if matches!(target, Target::Global) && self.options.checks.undefined {
                let undefined = stored_undefined(registers, elements, &self.program.lists[sources.clone()]);
                if undefined & act != 0 {
                    return Err(self.undefined(w, pc, undefined & act, "is stored to global memory"));
                }
            }
            if !self.options.checks.races {
                continue;
            }
            let (block, history, key, bases) = Self::parts(self.memory, &mut self.ctas, &target, address, offset);
            let warp = &mut self.warps[w];
            block.shadow();
            let know = warp.knowledge_of(lane);
            let mut observer = observer(warp, know, history, pc, bases, cluster_warps, order.strong());
            let cells = block.cells(0, block.defined.len(), key);
            let bad = words(offset, bytes)
                .find_map(|(word, mask)| observer.check_write_word(&cells, word, lane, mask).err().map(|c| (c, word)));
            if let Some((conflict, word)) = bad {
                let place = Place::of(&target, address).at_word(word, offset);
                return Err(self.fault(w, pc, 1 << lane, Fault::Race { conflict, write: true, place, issued: None }));
            }
        }
        for lane in lanes() {
            let address = addresses[lane as usize];
            let (target, offset) = self.locate_lane(w, pc, lane, space, address, bytes)?;
            let program = self.program;
            let races = self.options.checks.races;
            let (block, history, key, bases) = Self::parts(self.memory, &mut self.ctas, &target, address, offset);
            let warp = &mut self.warps[w];
            let mut new = [0u8; 32];
            let mut undefined = 0u32;
            for (k, source) in program.lists[sources.clone()].iter().enumerate() {
                let s = *source as usize;
                let (value, u) = match elements.wide {
                    true => (warp.registers.b64[s][lane as usize], warp.registers.undef64[s]),
                    false => (u64::from(warp.registers.b32[s][lane as usize]), warp.registers.undef32[s]),
                };
                let size = elements.bytes as usize;
                new[k * size..(k + 1) * size].copy_from_slice(&value.to_le_bytes()[..size]);
                undefined |= (u >> lane & 1) << k;
            }
            if races {
                let know = warp.knowledge_of(lane);
                let mut observer = observer(warp, know, history, pc, bases, cluster_warps, order.strong());
                let mut conflict: Option<(Conflict, usize)> = None;
                for (word, mask) in words(offset, bytes) {
                    let mut cells =
                        crate::shadow::check::Cells { writes: &mut block.writes, reads: &mut block.reads, key };
                    if let (false, Some(found)) = (order.strong(), observer.written_by(&cells, word, lane, mask)) {
                        let from = (word * 4).max(offset);
                        let to = (word * 4 + 4).min(offset + bytes);
                        if block.data[from..to] != new[from - offset..to - offset] {
                            conflict = Some((found, word));
                            break;
                        }
                    }
                    observer.stamp_word(&mut cells, word, lane, mask);
                }
                if let Some((conflict, word)) = conflict {
                    let place = Place::of(&target, address).at_word(word, offset);
                    return Err(self.fault(
                        w,
                        pc,
                        1 << lane,
                        Fault::Race { conflict, write: true, place, issued: None },
                    ));
                }
            }
            block.data[offset..offset + bytes].copy_from_slice(&new[..bytes]);
            for k in 0..elements.count as usize {
                let size = elements.bytes as usize;
                block.set_defined(offset + k * size, size, undefined >> k & 1 == 0);
            }
            if order.strong() {
                self.publish_location(w, lane, Bytes::of(key, offset, bytes), order, scope, false);
            }
        }
        self.progress += 1;
        Ok(Flow::Next)
    }
}
