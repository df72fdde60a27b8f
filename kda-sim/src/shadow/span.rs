//! Whole consecutive words at once: as long as all cells look alike, one verdict serves all lanes.

use super::cell::{self, ALL_BYTES, EXTRA, PAIR, STRONG};
use super::check::{Cells, Conflict, Observer};
use super::clock::MANY_LANES;

/// To which lanes consecutive words belong.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    first: u32,
    left: u32,
    right: u32,
    pair: bool,
}

impl Spread {
    /// From lane `first` on, each lane has two to the power `shift` words.
    pub fn lanes(first: u32, shift: u32) -> Spread {
        Spread { first, left: 0, right: shift, pair: false }
    }

    /// From lane `first` on, two lanes share a word, a half each.
    pub fn pairs(first: u32) -> Spread {
        Spread { first, left: 1, right: 0, pair: true }
    }

    /// All words belong to one lane, or each to [`MANY_LANES`].
    pub fn one(lane: u32) -> Spread {
        Spread { first: lane, left: 0, right: 31, pair: false }
    }

    /// The lane of a word, or of its low half.
    #[inline(always)]
    fn lane(self, word: usize) -> u32 {
        self.first + (((word as u32) << self.left) >> self.right)
    }

    #[inline(always)]
    fn flag(self) -> u64 {
        if self.pair { PAIR } else { 0 }
    }

    /// Lanes of a word, with their bytes.
    #[inline(always)]
    fn parts(self, word: usize) -> impl Iterator<Item = (u32, u32)> {
        let lane = self.lane(word);
        let parts = if self.pair { [(lane, 3), (lane + 1, 12)] } else { [(lane, 15), (lane, 0)] };
        parts.into_iter().filter(|(_, bytes)| *bytes != 0)
    }
}

const SEGMENT: u64 = 0xffff_ffff << 32;
const LANE: u64 = 63 << 7;

impl Observer<'_> {
    /// True if every word was last written by its own lane, in the present segment.
    #[inline(always)]
    fn own_lanes(&self, writes: &[u64], spread: Spread) -> bool {
        let own = u64::from(self.segment) << 32 | ALL_BYTES | spread.flag();
        let mut other = 0;
        for (word, write) in writes.iter().enumerate() {
            let lane = u64::from(spread.lane(word)) << 7;
            other |= (write ^ (own | lane)) & (SEGMENT | LANE | PAIR | ALL_BYTES | EXTRA);
        }
        // A word of several lanes belongs to none of them.
        other == 0 && spread.first != MANY_LANES
    }

    /// A read of whole consecutive words.
    #[inline(always)]
    pub fn read_span(&mut self, cells: &mut Cells<'_>, spread: Spread) -> Result<(), Conflict> {
        let n = cells.writes.len();
        if n == 0 {
            return Ok(());
        }
        let (write0, read0) = (cells.writes[0], cells.reads[0]);
        let (mut differ, mut any, mut differ_reads) = (0, 0, 0);
        for (write, read) in cells.writes.iter().zip(cells.reads.iter()) {
            differ |= write ^ write0;
            any |= write;
            differ_reads |= read ^ read0;
        }
        if (differ & SEGMENT != 0 || any & EXTRA != 0 || !self.is_ok_segment(cell::segment(write0)))
            && !self.own_lanes(cells.writes, spread)
        {
            for word in 0..n {
                if !self.is_ok_segment(cell::segment(cells.writes[word])) || cells.writes[word] & EXTRA != 0 {
                    for (lane, bytes) in spread.parts(word) {
                        self.check_write(cells, word, lane, bytes)?;
                    }
                }
            }
        }
        let flag = spread.flag();
        if differ_reads & SEGMENT != 0 {
            for word in 0..n {
                let old = cells.reads[word];
                let next = self.next_set(cell::segment(old), 0xf);
                let lane = spread.lane(word);
                let mut info = cell::info(self.pc, lane, 0xf) | flag;
                if self.last_reader(old) && (old ^ info) & (LANE | PAIR | ALL_BYTES) != 0 {
                    info = cell::info(self.pc, MANY_LANES, 0xf);
                }
                cells.reads[word] = u64::from(next) << 32 | info;
            }
            return Ok(());
        }
        let set = cell::segment(read0);
        let next = u64::from(self.next_set(set, 0xf)) << 32;
        let base = next | cell::info(self.pc, 0, 0xf);
        if self.last_reader(read0) {
            let many = base | u64::from(MANY_LANES) << 7;
            for (word, read) in cells.reads.iter_mut().enumerate() {
                let info = base | u64::from(spread.lane(word)) << 7 | flag;
                *read = if (*read ^ info) & (LANE | PAIR | ALL_BYTES) == 0 { info } else { many };
            }
        } else {
            for (word, read) in cells.reads.iter_mut().enumerate() {
                *read = base | u64::from(spread.lane(word)) << 7 | flag;
            }
        }
        Ok(())
    }

    /// A write of whole consecutive words, each byte by one lane.
    #[inline(always)]
    pub fn write_span(&mut self, cells: &mut Cells<'_>, spread: Spread) -> Result<(), Conflict> {
        let n = cells.writes.len();
        if n == 0 {
            return Ok(());
        }
        let (write0, read0) = (cells.writes[0], cells.reads[0]);
        let (mut differ, mut any, mut differ_reads) = (0, 0, 0);
        for (write, read) in cells.writes.iter().zip(cells.reads.iter()) {
            differ |= write ^ write0;
            any |= write;
            differ_reads |= read ^ read0;
        }
        let extra = any & EXTRA != 0;
        if (differ & SEGMENT != 0 || extra || !self.is_ok_segment(cell::segment(write0)))
            && !self.own_lanes(cells.writes, spread)
        {
            for word in 0..n {
                if !self.is_ok_segment(cell::segment(cells.writes[word])) || cells.writes[word] & EXTRA != 0 {
                    for (lane, bytes) in spread.parts(word) {
                        self.check_write(cells, word, lane, bytes)?;
                    }
                }
            }
        }
        let set = cell::segment(read0);
        let alike = differ_reads & SEGMENT == 0;
        if !(alike && (set <= self.base_set || self.caches.sets[(set & 15) as usize] == set)) {
            let own = alike && self.caches.own_sets[(set & 15) as usize] == (set, self.segment);
            let mut other = 0;
            for (word, read) in cells.reads.iter().enumerate() {
                let lane = u64::from(spread.lane(word)) << 7;
                other |= (read ^ (lane | ALL_BYTES | spread.flag())) & (LANE | PAIR | ALL_BYTES);
            }
            if !own || other != 0 {
                for word in 0..n {
                    for (lane, bytes) in spread.parts(word) {
                        self.check_reads(cells, word, lane, bytes)?;
                    }
                }
            }
        }
        if extra {
            for word in 0..n {
                self.history.extra.remove(&(cells.key + word as u64));
            }
        }
        let strong = if self.strong { STRONG } else { 0 };
        let base = u64::from(self.segment) << 32 | cell::info(self.pc, 0, 0xf) | strong | spread.flag();
        for (word, write) in cells.writes.iter_mut().enumerate() {
            *write = base | u64::from(spread.lane(word)) << 7;
        }
        cells.reads.fill(0);
        Ok(())
    }
}
