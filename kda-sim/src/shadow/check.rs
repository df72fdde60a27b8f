//! Is an access ordered after those before it?
//!
//! The functions here serve single words; [`span`](super::span) decides for all words of a warp at once where it can.

use super::cell::{self, ALL_BYTES, EXTRA, PAIR, STRONG};
use super::clock::{AGENT_BITS, Clocks, Entry, MANY_LANES};
use super::history::History;

/// How an observer accesses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxy {
    /// As a thread.
    Generic,
    /// As a bulk copy, in shared memory.
    AsyncShared,
    /// As a bulk copy, in global memory.
    AsyncGlobal,
}

/// An earlier access that is not ordered before the present one.
#[derive(Clone, Copy, Debug)]
pub struct Conflict {
    /// Number of the word in the span.
    pub word: usize,
    /// Lane of the present access.
    pub lane: u32,
    /// Segment of the earlier access.
    pub segment: u32,
    /// Its operation.
    pub pc: u32,
    /// Its lane, or [`MANY_LANES`].
    pub previous_lane: u32,
    /// It was a write.
    pub write: bool,
    /// Both are lanes of one instruction.
    pub same_instruction: bool,
}

/// Segments and sets known to be covered for every lane; valid as long as clocks only grow.
#[derive(Clone, Debug)]
pub struct Caches {
    segments: [u32; 64],
    pub(super) sets: [u32; 16],
    /// Sets covered but for the observer's own segment: set and segment.
    pub(super) own_sets: [(u32, u32); 16],
    /// Transitions of reader sets: set, segment, kind and pc, result.
    next: [(u32, u32, u32, u32); 16],
}

impl Default for Caches {
    fn default() -> Caches {
        Caches { segments: [0; 64], sets: [0; 16], own_sets: [(0, 0); 16], next: [(u32::MAX, 0, 0, 0); 16] }
    }
}

/// Shadow cells of consecutive words.
#[derive(Debug)]
pub struct Cells<'a> {
    /// Last writes.
    pub writes: &'a mut [u64],
    /// Reads since.
    pub reads: &'a mut [u64],
    /// Key of the first word in [`History::extra`].
    pub key: u64,
}

/// Who accesses, and what it knows.
#[derive(Debug)]
pub struct Observer<'a> {
    /// Past of everybody.
    pub history: &'a mut History,
    /// What the lanes know.
    pub clocks: &'a Clocks,
    /// Verdicts so far for these clocks.
    pub caches: &'a mut Caches,
    /// Agent of the access.
    pub agent: u32,
    /// Its present segment.
    pub segment: u32,
    /// Operation.
    pub pc: u32,
    /// Segments up to this one are ordered before everything.
    pub base_segment: u32,
    /// Sets up to this one are empty.
    pub base_set: u32,
    /// Proxy of the access.
    pub proxy: Proxy,
    /// A strong access: not in conflict with other strong ones.
    pub strong: bool,
    /// Words whose atomics, so far, are ordered before this access: the observer has acquired them.
    pub acquired: &'a [u64],
    /// Agent of the observer's own `cp.async` copies, and for each lane how many of them it has waited for.
    pub own_copies: (u32, &'a [u32; 32]),
    /// Agents below this number of each cluster access memory through the generic proxy.
    pub warps: u32,
}

impl Observer<'_> {
    #[inline(always)]
    pub(super) fn is_ok_segment(&self, segment: u32) -> bool {
        segment <= self.base_segment || self.caches.segments[(segment & 63) as usize] == segment
    }

    /// Which knowledge counts for an earlier access.
    fn entry(&self, agent: u32, previous_write: bool) -> Entry {
        let known = self.clocks.get(agent);
        let generic = agent & ((1 << AGENT_BITS) - 1) < self.warps;
        match self.proxy {
            Proxy::AsyncShared if generic && previous_write => known.fenced_shared,
            Proxy::AsyncGlobal if generic => known.fenced_global,
            _ => known.generic,
        }
    }

    /// True if an earlier access of a segment by a lane is ordered before this one by `lane`.
    fn ordered(&mut self, segment: u32, previous_lane: u32, lane: u32, previous_write: bool) -> bool {
        if segment <= self.base_segment {
            return true;
        }
        let (agent, clock) = self.history.of(segment);
        let entry = self.entry(agent, previous_write);
        if clock <= entry.all {
            if previous_write {
                self.caches.segments[(segment & 63) as usize] = segment;
            }
            return true;
        }
        // A thread's own accesses are in order; its bulk copies are not.
        let own = self.proxy == Proxy::Generic && agent == self.agent && previous_lane == lane && lane < MANY_LANES;
        own || entry.covers(clock, previous_lane) || self.waited(agent, clock, previous_lane, lane)
    }

    /// True for a copy of the lane's own that it has waited for.
    #[cold]
    fn waited(&self, agent: u32, clock: u32, previous_lane: u32, lane: u32) -> bool {
        let (copies, waited) = self.own_copies;
        agent == copies && copies != 0 && previous_lane == lane && lane < MANY_LANES && clock <= waited[lane as usize]
    }

    /// Checks the last write of a word against an access of some of its bytes.
    pub(super) fn check_write(
        &mut self,
        cells: &Cells<'_>,
        word: usize,
        lane: u32,
        bytes: u32,
    ) -> Result<(), Conflict> {
        let stamp = cells.writes[word];
        let acquired = self.acquired.contains(&(cells.key + word as u64));
        if !(acquired && stamp & STRONG != 0) {
            self.check_stamp(stamp, word, lane, bytes)?;
        }
        if stamp & EXTRA != 0
            && let Some(extra) = self.history.extra.get(&(cells.key + word as u64))
        {
            let past = |s: &u64| self.is_ok_segment(cell::segment(*s)) || cell::bytes(*s) & bytes == 0;
            let atomic = |s: &u64| (acquired || self.strong && bytes & !cell::bytes(*s) == 0) && s & STRONG != 0;
            let open: Vec<u64> = extra.iter().copied().filter(|s| !past(s) && !atomic(s)).collect();
            for stamp in open {
                self.check_stamp(stamp, word, lane, bytes)?;
            }
        }
        Ok(())
    }

    fn check_stamp(&mut self, stamp: u64, word: usize, lane: u32, bytes: u32) -> Result<(), Conflict> {
        let segment = cell::segment(stamp);
        // Strong accesses of different bytes are no better than ordinary ones. A stamp may stand for several narrow ones.
        let strong = self.strong && stamp & STRONG != 0 && bytes & !cell::bytes(stamp) == 0;
        if self.is_ok_segment(segment) || cell::bytes(stamp) & bytes == 0 || strong {
            return Ok(());
        }
        let previous_lane = cell::lane_of(stamp, bytes);
        if self.ordered(segment, previous_lane, lane, true) {
            return Ok(());
        }
        let pc = cell::pc(stamp);
        Err(Conflict { word, lane, segment, pc, previous_lane, write: true, same_instruction: false })
    }

    /// Checks the reads of a word against a write of some of its bytes.
    pub(super) fn check_reads(
        &mut self,
        cells: &Cells<'_>,
        word: usize,
        lane: u32,
        bytes: u32,
    ) -> Result<(), Conflict> {
        let stamp = cells.reads[word];
        let set = cell::segment(stamp);
        if set <= self.base_set || self.caches.sets[(set & 15) as usize] == set {
            return Ok(());
        }
        let acquired = self.acquired.contains(&(cells.key + word as u64));
        let mut all_covered = true;
        let mut only_own = true;
        let mut at = set;
        while at > self.base_set {
            let node = self.history.node(at);
            let (agent, clock) = self.history.of(node.segment);
            let entry = self.entry(agent, false);
            let covered = clock <= entry.all;
            all_covered &= covered;
            only_own &= covered || (at == set && node.segment == self.segment);
            let same = self.strong && u32::from(node.kind) & 15 == bytes;
            let strong = (same || acquired) && node.kind & 16 != 0;
            if !covered && !strong && u32::from(node.kind) & bytes != 0 {
                // The stamp describes the last reader alone; of the others it is not known which lanes read.
                let last = at == set && cell::bytes(stamp) & bytes != 0;
                let previous_lane = cell::lane_of(stamp, bytes);
                let fine = match (last, agent == self.agent) {
                    (true, _) => self.ordered(node.segment, previous_lane, lane, false),
                    (false, true) => true,
                    (false, false) => clock <= entry.high && entry.mask != 0,
                };
                if !fine {
                    let previous_lane = if last { previous_lane } else { MANY_LANES };
                    let (segment, pc) = (node.segment, node.pc);
                    let same_instruction = false;
                    return Err(Conflict { word, lane, segment, pc, previous_lane, write: false, same_instruction });
                }
            }
            at = node.rest;
        }
        if all_covered {
            self.caches.sets[(set & 15) as usize] = set;
        } else if only_own {
            self.caches.own_sets[(set & 15) as usize] = (set, self.segment);
        }
        Ok(())
    }

    #[inline(always)]
    pub(super) fn next_set(&mut self, set: u32, bytes: u32) -> u32 {
        let set = if set <= self.base_set { 0 } else { set };
        let kind = bytes | if self.strong { 16 } else { 0 };
        let what = self.pc << 8 | kind;
        let slot = ((set ^ self.pc) & 15) as usize;
        let cached = self.caches.next[slot];
        if (cached.0, cached.1, cached.2) == (set, self.segment, what) {
            return cached.3;
        }
        let next = self.history.with_reader(set, self.segment, kind as u8, self.pc, self.clocks);
        self.caches.next[slot] = (set, self.segment, what, next);
        next
    }

    /// A read of some bytes of a word.
    pub fn read_word(&mut self, cells: &mut Cells<'_>, word: usize, lane: u32, bytes: u32) -> Result<(), Conflict> {
        let write = cells.writes[word];
        if !self.is_ok_segment(cell::segment(write)) || write & EXTRA != 0 {
            self.check_write(cells, word, lane, bytes)?;
        }
        let old = cells.reads[word];
        let set = cell::segment(old);
        let next = self.next_set(set, bytes);
        let mut info = cell::info(self.pc, lane, bytes);
        if self.last_reader(old) {
            info = merge_reader(old, info, lane, bytes);
        }
        cells.reads[word] = u64::from(next) << 32 | info;
        Ok(())
    }

    /// True if a read stamp describes a reader of the present segment.
    #[inline(always)]
    pub(super) fn last_reader(&self, stamp: u64) -> bool {
        let set = cell::segment(stamp);
        set > self.base_set && self.history.node(set).segment == self.segment
    }

    /// First half of a write of some bytes of a word: the check.
    pub fn check_write_word(&mut self, cells: &Cells<'_>, word: usize, lane: u32, bytes: u32) -> Result<(), Conflict> {
        let write = cells.writes[word];
        if !self.is_ok_segment(cell::segment(write)) || write & EXTRA != 0 {
            self.check_write(cells, word, lane, bytes)?;
        }
        self.check_reads(cells, word, lane, bytes)
    }

    /// The lane of this instruction that has already written some of these bytes.
    pub fn written_by(&self, cells: &Cells<'_>, word: usize, lane: u32, bytes: u32) -> Option<Conflict> {
        let of = |stamp: u64| {
            let other = cell::lane_of(stamp, bytes);
            (cell::segment(stamp) == self.segment
                && cell::pc(stamp) == self.pc
                && cell::bytes(stamp) & bytes != 0
                && other != lane)
                .then_some(other)
        };
        let stamp = cells.writes[word];
        let mut found = of(stamp);
        if found.is_none() && stamp & EXTRA != 0 {
            let extra = self.history.extra.get(&(cells.key + word as u64));
            found = extra.into_iter().flatten().find_map(|s| of(*s));
        }
        let (segment, pc) = (self.segment, self.pc);
        found.map(|previous_lane| Conflict {
            word,
            lane,
            segment,
            pc,
            previous_lane,
            write: true,
            same_instruction: true,
        })
    }

    /// Second half of a write of some bytes of a word: the stamp.
    pub fn stamp_word(&mut self, cells: &mut Cells<'_>, word: usize, lane: u32, bytes: u32) {
        let old = cells.writes[word];
        let strong = if self.strong { STRONG } else { 0 };
        let new = u64::from(self.segment) << 32 | cell::info(self.pc, lane, bytes) | strong;
        let key = cells.key + word as u64;
        let segment = cell::segment(old);
        let live = segment > self.base_segment;
        let left = cell::bytes(old) & !bytes;
        let mut keep_old = false;
        let mut stamp = new | (old & EXTRA);
        if live && segment == self.segment && left != 0 && (old & STRONG) == strong {
            let half = bytes & 3 == 0 || bytes & 12 == 0;
            if old & PAIR != 0 && half && cell::lane_of(old, bytes) == lane {
                // One of two neighbours writes its half again.
                stamp = u64::from(self.segment) << 32 | cell::info(self.pc, cell::lane(old), 15) | PAIR | strong;
                stamp |= old & EXTRA;
            } else if cell::lane(old) == lane && old & PAIR == 0 {
                stamp |= u64::from(left) << 3;
            } else if (left, bytes) == (3, 12) && old & PAIR == 0 && cell::lane(old) + 1 == lane {
                // Two neighbours write the halves of a word: one stamp tells both.
                stamp = u64::from(self.segment) << 32
                    | cell::info(self.pc, cell::lane(old), 15)
                    | PAIR
                    | strong
                    | (old & EXTRA);
            } else {
                keep_old = true;
            }
        } else if live && (left != 0 || (self.strong && old & STRONG != 0)) {
            let (agent, clock) = self.history.of(segment);
            keep_old = agent != self.agent && clock > self.entry(agent, true).all;
        }
        if keep_old {
            self.history.keep_write(key, old & !EXTRA);
            stamp |= EXTRA;
        }
        if bytes == 15 {
            if old & EXTRA != 0 && !self.strong {
                self.history.extra.remove(&key);
                stamp &= !EXTRA;
            }
            cells.reads[word] = 0;
        }
        cells.writes[word] = stamp;
    }
}

/// A further reader of the same segment: its lane joins that of the stamp before.
fn merge_reader(old: u64, info: u64, lane: u32, bytes: u32) -> u64 {
    let before = cell::bytes(old);
    if cell::lane_of(old, bytes) == lane && before & bytes == bytes {
        return (info & !(63 << 7) & !ALL_BYTES) | (old & (63 << 7 | PAIR | ALL_BYTES));
    }
    if before & bytes == 0 {
        if (before, bytes) == (3, 12) && old & PAIR == 0 && cell::lane(old) + 1 == lane {
            return (info & !(63 << 7) & !ALL_BYTES) | (old & (63 << 7)) | ALL_BYTES | PAIR;
        }
        if cell::lane(old) == lane && old & PAIR == 0 {
            return info | u64::from(before) << 3;
        }
        return info;
    }
    (info & !(63 << 7)) | u64::from(MANY_LANES) << 7
}
