//! Ordinary loads and stores of lanes whose addresses lie anywhere in one block.

use super::access::{Target, observer};
use super::fault::{Fault, Place};
use super::lanewise::words;
use super::transfer::{lane_bytes, load_lane, store_lane, stored_undefined};
use super::warp::{Flow, Step};
use super::{Machine, Outcome};
use crate::alu::lanes::LANES;
use crate::program::op::Elements;
use crate::shadow::check::Conflict;

/// The active lanes.
pub(super) fn lanes_of(act: u32) -> impl Iterator<Item = u32> {
    let mut left = act;
    std::iter::from_fn(move || {
        let lane = left.trailing_zeros();
        left &= left.wrapping_sub(1);
        (lane < 32).then_some(lane)
    })
}

impl Machine<'_> {
    /// A load; `know` is the knowledge of all active lanes, and the lowest address lies at the offset of the target.
    pub(super) fn load_scattered(
        &mut self,
        w: usize,
        pc: u32,
        act: u32,
        (target, offset): (Target, usize),
        know: usize,
        addresses: &[u64; LANES],
        elements: Elements,
        list: u32,
    ) -> Step {
        let low = lanes_of(act).map(|l| addresses[l as usize]).min().unwrap_or(0);
        let list = &self.program.lists[list as usize..list as usize + elements.count as usize];
        let (races, warps, size) = (self.options.checks.races, self.cluster_warps(), elements.size());
        let (block, history, key, bases) = Self::parts(self.memory, &mut self.ctas, &target, low, offset);
        let warp = &mut self.warps[w];
        let at = |lane: u32| offset + (addresses[lane as usize] - low) as usize;
        let mut bad: Option<(Conflict, usize)> = None;
        if races {
            block.shadow();
            let mut observer = observer(warp, know, history, pc, bases, warps, false);
            let mut cells = block.cells(0, block.defined.len(), key);
            bad = lanes_of(act).find_map(|lane| {
                words(at(lane), size).find_map(|(word, bytes)| {
                    observer.read_word(&mut cells, word, lane, bytes).err().map(|c| (c, word))
                })
            });
        }
        if let Some((conflict, word)) = bad {
            return self.scattered_race(w, pc, (target, low, offset), conflict, word, false);
        }
        for lane in lanes_of(act) {
            load_lane(block, at(lane), elements, list, &mut warp.registers, lane as usize);
        }
        Ok(Flow::Next)
    }

    /// A store, as [`Machine::load_scattered`].
    pub(super) fn store_scattered(
        &mut self,
        w: usize,
        pc: u32,
        act: u32,
        (target, offset): (Target, usize),
        know: usize,
        addresses: &[u64; LANES],
        elements: Elements,
        list: u32,
    ) -> Step {
        let low = lanes_of(act).map(|l| addresses[l as usize]).min().unwrap_or(0);
        let list = &self.program.lists[list as usize..list as usize + elements.count as usize];
        if matches!(target, Target::Global) && self.options.checks.undefined {
            let undefined = stored_undefined(&self.warps[w].registers, elements, list) & act;
            if undefined != 0 {
                return Err(self.undefined(w, pc, undefined, "is stored to global memory"));
            }
        }
        let (races, warps, size) = (self.options.checks.races, self.cluster_warps(), elements.size());
        let (block, history, key, bases) = Self::parts(self.memory, &mut self.ctas, &target, low, offset);
        let warp = &mut self.warps[w];
        let at = |lane: u32| offset + (addresses[lane as usize] - low) as usize;
        let mut bad: Option<(Conflict, usize)> = None;
        if races {
            block.shadow();
            let mut observer = observer(warp, know, history, pc, bases, warps, false);
            // All lanes are checked before one is recorded: see `store_lanes`.
            let cells = block.cells(0, block.defined.len(), key);
            bad = lanes_of(act).find_map(|lane| {
                words(at(lane), size).find_map(|(word, bytes)| {
                    observer.check_write_word(&cells, word, lane, bytes).err().map(|c| (c, word))
                })
            });
        }
        if bad.is_none() {
            for lane in lanes_of(act) {
                if races {
                    let mut observer = observer(warp, know, history, pc, bases, warps, false);
                    let mut cells = block.cells(0, block.defined.len(), key);
                    let mut clash = None;
                    for (word, bytes) in words(at(lane), size) {
                        clash = clash.or(observer.written_by(&cells, word, lane, bytes).map(|c| (c, word)));
                        observer.stamp_word(&mut cells, word, lane, bytes);
                    }
                    // Elements are aligned, so lanes that meet do so in all bytes: fine if the values agree.
                    if let Some(clash) = clash {
                        let new = lane_bytes(elements, list, &warp.registers, lane as usize);
                        if block.data[at(lane)..at(lane) + size] != new[..size] {
                            bad = Some(clash);
                            break;
                        }
                    }
                }
                store_lane(block, at(lane), elements, list, &warp.registers, lane as usize);
            }
        }
        if let Some((conflict, word)) = bad {
            return self.scattered_race(w, pc, (target, low, offset), conflict, word, true);
        }
        self.progress += 1;
        Ok(Flow::Next)
    }

    #[cold]
    fn scattered_race<T>(
        &self,
        w: usize,
        pc: u32,
        (target, low, offset): (Target, u64, usize),
        conflict: Conflict,
        word: usize,
        write: bool,
    ) -> Outcome<T> {
        let place = Place::of(&target, low).at_word(word, offset);
        let fault = Fault::Race { conflict, write, place, issued: None };
        Err(self.fault(w, pc, 1 << (conflict.lane & 31), fault))
    }
}
