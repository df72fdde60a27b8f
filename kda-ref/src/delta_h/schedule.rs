//! Which sequences are processed, where their chunks go, and the work list of a launch.
//!
//! Sequence n is processed when for every m <= n: `0 <= cu[m] <= cu[m+1] <= T`, and its stored chunk states fit the
//! capacity. From the first violation on nothing of that and later sequences is processed. With one of every m chunk states
//! stored, sequence n of c chunks stores `ceil(c / m)` of them, from h index `chunk_offsets[n]` on.

use super::CHUNK;

/// Status bit: boundaries out of order or negative.
pub const OUT_OF_ORDER: u32 = 1;
/// Status bit: boundaries past the allocated rows.
pub const PAST_THE_ROWS: u32 = 2;
/// Status bit: more chunk states than h holds.
pub const PAST_THE_CAPACITY: u32 = 4;

/// A sequence that is processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Its index.
    pub n: usize,
    /// First row and end row.
    pub rows: (usize, usize),
    /// h index of its first chunk.
    pub h: usize,
    /// Index of its first chunk among all chunks of the call.
    pub chunk: usize,
}

impl Sequence {
    /// Number of chunks.
    pub fn chunks(&self) -> usize {
        (self.rows.1 - self.rows.0).div_ceil(CHUNK)
    }

    /// Rows of the chunks `first .. end` of this sequence.
    pub fn chunk_rows(&self, first: usize, end: usize) -> (usize, usize) {
        let row = |chunk: usize| (self.rows.0 + chunk * CHUNK).min(self.rows.1);
        (row(first), row(end))
    }
}

/// What the boundaries of a call say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The processed sequences, in order: a prefix of all.
    pub sequences: Vec<Sequence>,
    /// `[N+1]`: first h index of each sequence, and the number of active chunk states. A sequence that is not processed
    /// stores none, so that its entry is that number.
    pub chunk_offsets: Vec<usize>,
    /// What the first violation is; 0 without one.
    pub status: u32,
    /// Chunks of all processed sequences.
    pub chunks: usize,
}

impl Schedule {
    /// Reads boundaries `[N+1]` over `rows` allocated rows; `capacity` is that of h, absent without h.
    ///
    /// # Panics
    /// If `h_every` is 0.
    pub fn new(cu_seqlens: &[i64], rows: usize, h_every: usize, capacity: Option<usize>) -> Schedule {
        let mut out = Schedule { sequences: vec![], chunk_offsets: vec![0], status: 0, chunks: 0 };
        let mut h = 0;
        for (n, pair) in cu_seqlens.windows(2).enumerate() {
            if out.status == 0 {
                out.status = boundary_status(pair[0], pair[1], rows);
            }
            if out.status == 0 {
                let sequence = Sequence { n, rows: (pair[0] as usize, pair[1] as usize), h, chunk: out.chunks };
                let stored = sequence.chunks().div_ceil(h_every);
                if capacity.is_some_and(|capacity| h + stored > capacity) {
                    out.status = PAST_THE_CAPACITY;
                } else {
                    (h, out.chunks) = (h + stored, out.chunks + sequence.chunks());
                    out.sequences.push(sequence);
                }
            }
            out.chunk_offsets.push(h);
        }
        out
    }

    /// Number of stored chunk states.
    pub fn h_chunks(&self) -> usize {
        self.chunk_offsets.last().copied().unwrap_or(0)
    }

    /// The entries of the launches. `split` is absent where sequences are never cut.
    pub fn work_list(&self, split: Option<Split>) -> WorkList {
        let mut list = WorkList::default();
        let mut map = 0;
        for s in &self.sequences {
            let parts = split.map_or(1, |split| split.parts(s.chunks()));
            for segment in 0..parts {
                let (first, end) = segment_chunks(s.chunks(), segment, parts);
                let entry = Entry {
                    sequence: s.n,
                    rows: s.chunk_rows(first, end),
                    h: s.h,
                    chunk: s.chunk + first,
                    first,
                    segment,
                    last: segment + 1 == parts,
                    identity: false,
                    map,
                };
                if segment == 0 {
                    list.real.push(entry)
                } else {
                    list.fold.push(entry)
                }
                if segment > 0 && segment + 1 < parts {
                    list.map.extend([entry, Entry { identity: true, ..entry }]);
                }
            }
            map += parts - 1;
        }
        list.real.sort_by_key(|entry| std::cmp::Reverse(entry.rows.1 - entry.rows.0));
        list
    }
}

fn boundary_status(begin: i64, end: i64, rows: usize) -> u32 {
    let past = i64::try_from(rows).is_ok_and(|rows| end > rows);
    let out_of_order = begin < 0 || end < begin;
    u32::from(out_of_order) * OUT_OF_ORDER + u32::from(past) * PAST_THE_ROWS
}

/// How long sequences are cut into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Most segments of a sequence.
    pub most: usize,
    /// Least chunks of a segment.
    pub least: usize,
}

impl Split {
    /// What a number of value heads takes; above 16 heads sequences are never cut.
    pub fn of_heads(value_heads: usize) -> Option<Split> {
        let least = if value_heads <= 8 { 16 } else { 32 };
        (1..=16).contains(&value_heads).then(|| Split { most: (132 / (2 * value_heads) + 3) / 2, least })
    }

    /// Segments of a sequence of this many chunks: at least 3, or 1.
    pub fn parts(&self, chunks: usize) -> usize {
        let parts = self.most.min(chunks / self.least);
        if parts < 3 { 1 } else { parts }
    }
}

/// First and end chunk of a segment of a sequence of `chunks` chunks.
pub fn segment_chunks(chunks: usize, segment: usize, parts: usize) -> (usize, usize) {
    (chunks * segment / parts, chunks * (segment + 1) / parts)
}

/// One item of work: a sequence, or a segment of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry {
    /// The sequence.
    pub sequence: usize,
    /// First row and end row.
    pub rows: (usize, usize),
    /// h index of the sequence's first chunk.
    pub h: usize,
    /// Index of its own first chunk among all chunks of the call.
    pub chunk: usize,
    /// Index of its own first chunk in the sequence.
    pub first: usize,
    /// Segment of the sequence.
    pub segment: usize,
    /// Whether it is the last one of the sequence.
    pub last: bool,
    /// Columns of the identity, without u: a map's matrix.
    pub identity: bool,
    /// Map slot of the sequence's segment 0.
    pub map: usize,
}

impl Entry {
    /// The words of the entry in the workspace.
    pub fn words(&self) -> [u32; 8] {
        let flags = u32::from(self.last) << 31 | u32::from(self.identity) << 30;
        let numbers = [self.sequence, self.rows.0, self.rows.1, self.h, self.chunk, self.first, self.segment, self.map];
        let mut words = numbers.map(|number| number as u32);
        words[6] |= flags;
        words
    }
}

/// The entries of each launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkList {
    /// Uncut sequences and first segments, longest first.
    pub real: Vec<Entry>,
    /// Of each inner segment the affine part and the matrix.
    pub map: Vec<Entry>,
    /// All segments but the first ones.
    pub fold: Vec<Entry>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_at_the_first_violation() {
        let read = |cu: &[i64], capacity| {
            let s = Schedule::new(cu, 300, 2, capacity);
            (s.sequences.len(), s.chunk_offsets, s.status, s.chunks)
        };
        assert_eq!(read(&[0, 64, 64, 300], None), (3, vec![0, 1, 1, 3], 0, 5));
        assert_eq!(read(&[0, 64, 64, 301, 302], None), (2, vec![0, 1, 1, 1, 1], PAST_THE_ROWS, 1));
        assert_eq!(read(&[0, 64, 63, 64], None), (1, vec![0, 1, 1, 1], OUT_OF_ORDER, 1));
        assert_eq!(read(&[-1, 64, 70], None), (0, vec![0, 0, 0], OUT_OF_ORDER, 0));
        assert_eq!(read(&[400, 350], None), (0, vec![0, 0], OUT_OF_ORDER | PAST_THE_ROWS, 0));
        assert_eq!(read(&[0, 64, 64, 300], Some(3)), (3, vec![0, 1, 1, 3], 0, 5));
        assert_eq!(read(&[0, 64, 64, 300], Some(2)), (2, vec![0, 1, 1, 1], PAST_THE_CAPACITY, 1));
        assert_eq!(read(&[i64::MIN, i64::MAX], Some(0)), (0, vec![0, 0], OUT_OF_ORDER | PAST_THE_ROWS, 0));
        assert_eq!(read(&[5], None), (0, vec![0], 0, 0));
    }

    #[test]
    fn segments_cover_a_sequence_once() {
        assert_eq!(Split::of_heads(8), Some(Split { most: 5, least: 16 }));
        assert_eq!((Split::of_heads(16), Split::of_heads(17)), (Some(Split { most: 3, least: 32 }), None));
        let schedule = Schedule::new(&[3, 3 + 7 * 64 - 5, 500, 500 + 64 * 9], 2000, 1, None);
        let list = schedule.work_list(Some(Split { most: 4, least: 2 }));
        assert_eq!((list.real.len(), list.map.len(), list.fold.len()), (3, 2 + 4, 2 + 3));
        assert_eq!((list.real[0].rows, list.real[1].rows), ((3, 3 + 2 * 64), (500, 500 + 2 * 64)));
        assert!(list.real.is_sorted_by_key(|entry| std::cmp::Reverse(entry.rows.1 - entry.rows.0)));
        let (last, first) = (list.fold[4], list.fold[0]);
        assert_eq!((last.map, last.segment, last.last, last.rows.1, last.chunk), (2, 3, true, 1076, 7 + 1 + 6));
        assert_eq!((first.rows, first.first, first.h, first.last), ((131, 259), 2, 0, false));
        assert_eq!(list.map[1].words(), [0, 131, 259, 0, 2, 2, 1 | 1 << 30, 0]);
        let mut rows: Vec<_> = list.real.iter().chain(&list.fold).map(|entry| entry.rows).collect();
        rows.sort_unstable();
        assert!(rows.windows(2).all(|pair| pair[0].1 == pair[1].0) && rows[0].0 == 3 && rows[7].1 == 1076);
    }
}
