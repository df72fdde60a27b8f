//! How long sequences are cut into segments that run at the same time, as a function of the number of value heads alone.
//!
//! Chunks of a sequence follow each other; few heads leave most of a device idle meanwhile. What a segment does to the state
//! is an affine map S <- M S + B, so the maps of the inner segments are computed side by side and applied in order. A sequence
//! of c chunks is cut into `P = min(most, c / least)` segments, or not at all if that is below [`FEWEST`]: with two the map
//! costs what the shorter chain saves. Segment s has the chunks `c*s/P .. c*(s+1)/P`.

/// Rows of a chunk.
pub const CHUNK: u64 = 64;
/// Fewest segments of a sequence that is cut.
pub const FEWEST: u64 = 3;

/// Multiprocessors of the device that the numbers are for.
const MULTIPROCESSORS: u64 = 132;
/// Slices of 32 columns of V that a head has: CTAs of a segment.
const SLICES: u64 = 4;
/// Most heads at which the maps cost less than the shorter chains save: with 8, three segments of 43 chunks take 54.5 µs, one of
/// 128 takes 54.6, and six shorter sequences 46.6 instead of 41.
const MOST_HEADS: u64 = 6;
/// Most segments: each has the maps of those before it applied, one after another. With 1 head nine take 31.5 µs, sixteen 35.7.
const MOST: u64 = 9;
/// Fewest chunks of a segment; more heads need longer ones, as both passes share the memory. Half chunks a head.
const SHORT: u64 = 10;
const HALVES_PER_HEAD: u64 = 7;

/// How sequences of a batch are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Most segments of a sequence.
    pub most: u64,
    /// Fewest chunks of a segment.
    pub least: u64,
}

impl Cut {
    /// For this many value heads; `None` where a device is full without.
    pub const fn of(heads: u64) -> Option<Cut> {
        if heads == 0 || heads > MOST_HEADS {
            return None;
        }
        // The first segment needs no map and the last none but those before it: with the two passes of the inner ones
        // 2 P - 3 segments fill the device.
        let most = (MULTIPROCESSORS / (SLICES * heads) + 3) / 2;
        let least = HALVES_PER_HEAD * heads / 2;
        Some(Cut { most: if most < MOST { most } else { MOST }, least: if least < SHORT { SHORT } else { least } })
    }

    /// Segments of a sequence of that many chunks.
    pub const fn segments(self, chunks: u64) -> u64 {
        let most = chunks / self.least;
        let most = if most < self.most { most } else { self.most };
        if most < FEWEST { 1 } else { most }
    }

    /// Most segments that the sequences that are cut have together: of `sequences` sequences at most, in `rows` rows.
    pub fn most_segments(self, sequences: u64, rows: u64) -> u64 {
        // A sequence of P segments has more than 64 (least P - 1) rows.
        let (segment, short) = (u128::from(CHUNK * self.least), u128::from(CHUNK - 1));
        // The more are cut, the more segments there can be, for the last chunk of each may be short.
        let cut = u128::from(sequences).min(u128::from(rows) / (segment * u128::from(FEWEST) - short));
        let together = (u128::from(rows) + short * cut) / segment;
        u64::try_from(together.min(cut * u128::from(self.most))).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_heads_are_cut_often() {
        let numbers = |heads| Cut::of(heads).map(|cut| (cut.most, cut.least));
        assert_eq!([numbers(1), numbers(2), numbers(4)], [Some((9, 10)), Some((9, 10)), Some((5, 14))]);
        assert_eq!([numbers(5), numbers(6)], [Some((4, 17)), Some((4, 21))]);
        assert_eq!([numbers(0), numbers(7), numbers(u64::MAX)], [None; 3]);
        for heads in 1..=MOST_HEADS {
            let cut = Cut::of(heads).unwrap();
            assert!(cut.most >= FEWEST && cut.most <= 0xff, "{heads} heads: {cut:?}");
            for chunks in 0..2000 {
                let segments = cut.segments(chunks);
                assert!(segments == 1 || (FEWEST..=cut.most).contains(&segments) && chunks / segments >= cut.least);
            }
        }
    }

    /// The bound is reached by some batch and passed by none: all batches of few rows, by the segments of their sequences.
    #[test]
    fn the_bound_is_exact() {
        for cut in [Cut { most: 5, least: 2 }, Cut { most: 3, least: 1 }, Cut { most: 4, least: 3 }] {
            // Least rows that make a sequence of 1, 3, 4, .. segments.
            let rows_of = |segments: u64| if segments == 1 { 0 } else { CHUNK * (cut.least * segments - 1) + 1 };
            for (segments, rows) in (FEWEST..=cut.most).map(|p| (p, rows_of(p))) {
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
        let fits = (FEWEST..=cut.most).filter(|p| rows_of(*p) <= rows);
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
