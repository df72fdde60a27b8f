//! What the host knows of a batch: sizes, but no lengths. All memory is sized by it, for any lengths that fit.

use super::segments::{CHUNK, Cut};
use kda_core::Executor;
use kda_kernels::delta_h_narrow::DeltaHNarrowVariant;

/// Words (u32) of the head of a schedule.
pub const HEADER_WORDS: u64 = 16;
/// Words of an entry of a schedule.
pub const ENTRY_WORDS: u64 = 8;
/// Channels of a head.
const HEAD: u64 = 128;
/// Bytes of what a map has of a head: B in f32, M in two parts of bf16.
const B_BYTES: u64 = HEAD * HEAD * 4;
const M_BYTES: u64 = 2 * HEAD * HEAD * 2;

/// Sizes of a batch. The schedule and the calls of all layers that use it name the same ones; results of others are undefined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// N: sequences, empty ones among them.
    pub sequences: u64,
    /// T: rows that are allocated; sequences may end earlier.
    pub rows: u64,
    /// HV: value heads.
    pub heads: u64,
    /// The state is stored ahead of every so many chunks of a sequence; 1 for all.
    pub h_every: u32,
    /// Whether long sequences may be cut into segments, where that is faster.
    pub split: bool,
    /// Most rows of a sequence, if that is known: a longer one is not processed, nor are those behind it; so it stays in a captured
    /// graph. Where no sequence can be long enough to be cut, calls are launched for whole ones. What is processed has the same
    /// results.
    pub longest: Option<u64>,
}

impl Batch {
    /// The batch on a device: segments need products of warpgroups.
    pub(super) fn on(self, executor: &dyn Executor) -> Batch {
        let (major, minor) = executor.compute_capability();
        let able = DeltaHNarrowVariant::ALL.iter().any(|v| v.split() && v.desc().arch.runs_on(major, minor));
        Batch { split: self.split && able, ..self }
    }

    /// How sequences are cut; `None` if none of this batch is, whatever the lengths.
    pub fn cut(&self) -> Option<Cut> {
        let cut = Cut::of(self.heads).filter(|_| self.split)?.up_to(self.longest())?;
        (cut.most_segments(self.sequences, self.rows) > 0).then_some(cut)
    }

    /// Most rows of a sequence.
    pub const fn longest(&self) -> u64 {
        match self.longest {
            Some(rows) if rows < self.rows => rows,
            _ => self.rows,
        }
    }

    /// X: most segments of the sequences that are cut, and as many places of maps.
    pub fn segments(&self) -> u64 {
        self.cut().map_or(0, |cut| cut.most_segments(self.sequences, self.rows))
    }

    /// Most chunks that the batch can have, whatever the lengths.
    pub const fn chunks(&self) -> u64 {
        pieces(self.sequences, self.rows, CHUNK)
    }

    /// Least capacity of `h`, in chunk states: enough for any lengths, so that a captured graph may replay with others.
    pub const fn h_states(&self) -> u64 {
        let every = if self.h_every == 0 { 1 } else { self.h_every as u64 };
        pieces(self.sequences, self.rows, CHUNK * every)
    }

    /// Words of the schedule.
    pub fn schedule_words(&self) -> u64 {
        let [_, _, maps] = self.entries();
        self.first_entries()[2].saturating_add(maps.saturating_mul(ENTRY_WORDS))
    }

    /// Bytes of the schedule.
    pub fn schedule_bytes(&self) -> u64 {
        self.schedule_words().saturating_mul(4)
    }

    /// Entries that there is room for: of whole sequences and first segments, of later segments, of maps.
    pub fn entries(&self) -> [u64; 3] {
        [self.sequences, self.segments(), self.segments().saturating_mul(2)]
    }

    /// Entries that there are at most. A sequence that is cut has one segment that is not a later one, and two without maps.
    pub fn work(&self) -> [u64; 3] {
        let [first, segments, maps] = self.entries();
        [first, segments.saturating_sub(1), maps.saturating_sub(4)]
    }

    /// Words at which these entries begin.
    pub fn first_entries(&self) -> [u64; 3] {
        let behind = |word: u64, entries: u64| word.saturating_add(entries.saturating_mul(ENTRY_WORDS));
        let [first, later, _] = self.entries();
        let later_word = behind(HEADER_WORDS, first);
        [HEADER_WORDS, later_word, behind(later_word, later)]
    }

    /// Bytes of the maps of segments; 0 if nothing is cut.
    pub fn map_bytes(&self) -> u64 {
        let [b, m] = self.map_parts();
        b.saturating_add(m)
    }

    /// Bytes of all B, which come first, and of all M.
    pub fn map_parts(&self) -> [u64; 2] {
        let maps = self.segments().saturating_mul(self.heads);
        [maps.saturating_mul(B_BYTES), maps.saturating_mul(M_BYTES)]
    }
}

/// Most pieces of `size` rows that `rows` rows in `sequences` sequences have, each rounded up.
const fn pieces(sequences: u64, rows: u64, size: u64) -> u64 {
    if sequences == 0 {
        return 0;
    }
    let filled = if rows < sequences { rows } else { sequences };
    filled + (rows - filled) / size
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(sequences: u64, rows: u64, heads: u64) -> Batch {
        Batch { sequences, rows, heads, h_every: 1, split: true, longest: None }
    }

    #[test]
    fn chunks_are_bounded_by_the_worst_lengths() {
        // One row in all sequences but one, and what is left in that one.
        let chunks = |lengths: &[u64], every: u64| lengths.iter().map(|l| l.div_ceil(64 * every)).sum::<u64>();
        for every in [1u32, 2, 5] {
            let states = |n, t| Batch { h_every: every, ..batch(n, t, 8) }.h_states();
            for (n, t) in [(1, 0), (0, 0), (0, 9), (1, 64), (1, 65), (3, 2), (3, 66), (4, 1000), (7, 4096)] {
                let mut worst = vec![1; n.min(t) as usize];
                if let Some(first) = worst.first_mut() {
                    *first += t - n.min(t);
                }
                assert!(chunks(&worst, every.into()) <= states(n, t), "{n} of {t} rows");
            }
            // Lengths that reach it: 64 m a + 1 each.
            assert_eq!(
                chunks(&[64 * u64::from(every) * 3 + 1, 1, 1], every.into()),
                states(3, 64 * u64::from(every) * 3 + 3)
            );
        }
        assert_eq!(batch(6, 8192, 64).chunks(), 6 + 8186 / 64);
    }

    #[test]
    fn sizes_of_memory() {
        let whole = batch(3, 8192, 64);
        assert_eq!((whole.cut(), whole.segments(), whole.map_bytes()), (None, 0, 0));
        assert_eq!((whole.schedule_words(), whole.first_entries()), (16 + 3 * 8, [16, 40, 40]));
        let cut = batch(1, 8192, 4);
        assert_eq!((cut.segments(), cut.schedule_bytes()), (5, 4 * (16 + 8 * (1 + 3 * 5))));
        assert_eq!((cut.entries(), cut.first_entries()), ([1, 5, 10], [16, 16 + 8, 16 + 8 * 6]));
        assert_eq!((cut.work(), whole.work()), ([1, 4, 6], [3, 0, 0]));
        assert_eq!(cut.map_parts(), [5 * 4 * 65_536, 5 * 4 * 65_536]);
        let uncut = Batch { split: false, ..cut };
        assert_eq!((uncut.cut(), uncut.map_bytes(), uncut.schedule_words()), (None, 0, 24));
        // Known to be too short to be cut, or for as many segments.
        let up_to = |rows| Batch { longest: Some(rows), ..cut };
        assert_eq!((up_to(8192).cut(), up_to(u64::MAX).cut()), (cut.cut(), cut.cut()));
        assert_eq!(Batch { longest: Some(45 * 64), heads: 1, ..cut }.cut().map(|cut| cut.most), Some(4));
        assert_eq!((up_to(64 * 64).cut(), up_to(0).map_bytes(), up_to(2000).schedule_words()), (None, 0, 24));
        // Too short to be cut.
        assert_eq!(batch(64, 2000, 4).cut(), None);
        let huge = batch(u64::MAX, u64::MAX, 1);
        assert_eq!((huge.schedule_words(), huge.map_bytes(), huge.chunks()), (u64::MAX, u64::MAX, u64::MAX));
    }
}
