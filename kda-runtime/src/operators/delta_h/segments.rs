//! How long sequences are cut into segments that run at the same time, as a function of the number of value heads alone.
//!
//! Chunks of a sequence follow each other; few heads leave most of a device idle meanwhile. What a segment does to the state
//! is an affine map S <- M S + B, so the maps of the inner segments are computed side by side, while the first one is walked,
//! and applied in order by those behind it. A sequence of c chunks is cut into `P = min(most, c / least)` segments, or not at
//! all if that is below `fewest`. An inner segment has eight shares of the chunks, the first one `first`, the last one, ahead of
//! which most maps are applied, six.

use crate::operators::limits::HEAD;

/// Rows of a chunk.
pub const CHUNK: u64 = 64;

/// Multiprocessors of the device that the numbers are for.
const MULTIPROCESSORS: u64 = 132;
/// Slices of 32 columns of V that a head has: CTAs of a segment.
const SLICES: u64 = HEAD / 32;
/// Most heads whose maps have room in slices of 32 columns beside the first segments.
const NARROW_HEADS: u64 = 6;
/// Most heads that are cut.
const MOST_HEADS: u64 = 8;

/// How sequences of a batch are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Most segments of a sequence.
    pub most: u64,
    /// Fewest segments of a sequence that is cut: with fewer the maps cost what the shorter chains save.
    pub fewest: u64,
    /// Fewest chunks of a segment, on average.
    pub least: u64,
    /// Length of the first segment, in eighths of an inner one.
    pub first: u64,
    /// Columns that a CTA of the launch of maps has. Results do not depend on it.
    pub map_columns: u64,
}

impl Cut {
    /// For this many value heads; `None` where a device is full without.
    pub const fn of(heads: u64) -> Option<Cut> {
        match heads {
            1..=NARROW_HEADS => {
                // One slice a segment walks the first ones, two each have the maps of inner ones: 2 P - 3 segments fill the
                // device. Maps are applied one after another: with 1 head sixteen segments take longer than nine.
                let most = (MULTIPROCESSORS / (SLICES * heads) + 3) / 2;
                let most = if most < 9 { most } else { 9 };
                // Three launches take 12 µs longer than one, before any chunk. By the times a chunk takes, that pays from 40
                // chunks on with 1 to 3 heads, from 64 with 4 to 6, as all of them share the memory.
                let (fewest, least) = if heads <= 3 { (4, 10) } else { (most, 64u64.div_ceil(most)) };
                Some(Cut { most, fewest, least, first: 8, map_columns: 32 })
            }
            // Maps in wide slices leave room for as many segments as the second pass has. They take longer, and so may the
            // first segments. Below 100 chunks one launch in slices of 16 columns takes as long.
            7..=MOST_HEADS => Some(Cut { most: 5, fewest: 5, least: 20, first: 10, map_columns: 64 }),
            _ => None,
        }
    }

    /// Segments of a sequence of that many chunks.
    pub const fn segments(self, chunks: u64) -> u64 {
        let most = chunks / self.least;
        let most = if most < self.most { most } else { self.most };
        if most < self.fewest { 1 } else { most }
    }

    /// Most segments that the sequences that are cut have together: of `sequences` sequences at most, in `rows` rows.
    pub fn most_segments(self, sequences: u64, rows: u64) -> u64 {
        // A sequence of P segments has more than 64 (least P - 1) rows.
        let (segment, short) = (u128::from(CHUNK * self.least), u128::from(CHUNK - 1));
        // The more are cut, the more segments there can be, for the last chunk of each may be short.
        let cut = u128::from(sequences).min(u128::from(rows) / (segment * u128::from(self.fewest) - short));
        let together = (u128::from(rows) + short * cut) / segment;
        u64::try_from(together.min(cut * u128::from(self.most))).unwrap_or(u64::MAX)
    }

    /// The same rule where no sequence has more than so many rows; `None` where none is cut then.
    pub fn up_to(self, rows: u64) -> Option<Cut> {
        let most = self.segments(rows.div_ceil(CHUNK));
        (most > 1).then_some(Cut { most, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_heads_are_cut_often() {
        let numbers = |heads| Cut::of(heads).map(|cut| (cut.most, cut.fewest, cut.least));
        assert_eq!([numbers(1), numbers(2), numbers(3)], [Some((9, 4, 10)), Some((9, 4, 10)), Some((7, 4, 10))]);
        assert_eq!([numbers(4), numbers(5), numbers(6)], [Some((5, 5, 13)), Some((4, 4, 16)), Some((4, 4, 16))]);
        assert_eq!([numbers(7), numbers(8)], [Some((5, 5, 20)); 2]);
        assert_eq!([numbers(0), numbers(9), numbers(u64::MAX)], [None; 3]);
        for heads in 1..=MOST_HEADS {
            let cut = Cut::of(heads).unwrap();
            assert!(cut.fewest > 2 && cut.most >= cut.fewest && cut.most <= 32, "{heads} heads: {cut:?}");
            // Both passes over one sequence have a multiprocessor for each CTA.
            let (maps, walks) = (2 * (cut.most - 2) * HEAD / cut.map_columns, cut.most - 1);
            assert!(heads * (maps + SLICES) <= MULTIPROCESSORS && heads * walks * SLICES <= MULTIPROCESSORS);
            for chunks in 0..2000 {
                let segments = cut.segments(chunks);
                assert!(segments == 1 || (cut.fewest..=cut.most).contains(&segments) && chunks / segments >= cut.least);
                let up_to = |chunks: u64| cut.up_to(chunks * CHUNK).map_or(1, |cut| cut.segments(chunks));
                assert_eq!(up_to(chunks), segments);
            }
        }
    }

    /// The bound is reached by some batch and passed by none: all batches of few rows, by the segments of their sequences.
    #[test]
    fn the_bound_is_exact() {
        for (fewest, most, least) in [(3, 5, 2), (3, 3, 1), (3, 4, 3), (4, 4, 2), (4, 5, 1)] {
            let cut = Cut { most, fewest, least, first: 8, map_columns: 32 };
            // Least rows that make a sequence of so many segments.
            let rows_of = |segments: u64| if segments == 1 { 0 } else { CHUNK * (cut.least * segments - 1) + 1 };
            for (segments, rows) in (fewest..=cut.most).map(|p| (p, rows_of(p))) {
                assert_eq!(cut.segments(rows.div_ceil(CHUNK)), segments);
                assert!(cut.segments((rows - 1).div_ceil(CHUNK)) < segments);
            }
            for sequences in 0..6 {
                for rows in (0..6000).step_by(7) {
                    let found = most_by_trial(&rows_of, cut, sequences, rows);
                    assert_eq!(cut.most_segments(sequences, rows), found, "{cut:?}, {sequences} of {rows} rows");
                }
            }
        }
    }

    fn most_by_trial(rows_of: &dyn Fn(u64) -> u64, cut: Cut, sequences: u64, rows: u64) -> u64 {
        if sequences == 0 {
            return 0;
        }
        let fits = (cut.fewest..=cut.most).filter(|p| rows_of(*p) <= rows);
        fits.map(|p| p + most_by_trial(rows_of, cut, sequences - 1, rows - rows_of(p))).max().unwrap_or(0)
    }

    #[test]
    fn large_numbers_do_not_wrap() {
        let cut = Cut::of(1).unwrap();
        assert_eq!(cut.most_segments(1, u64::MAX), 9);
        assert!(cut.most_segments(u64::MAX, u64::MAX) >= u64::MAX / (CHUNK * cut.least));
        assert_eq!((cut.most_segments(0, u64::MAX), cut.most_segments(u64::MAX, 0)), (0, 0));
    }
}
