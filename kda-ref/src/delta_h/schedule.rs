//! Which sequences are processed, where their chunks go, and the work list of a launch.
//!
//! Sequence n is processed when for every m <= n: `0 <= cu[m] <= cu[m+1] <= T`, it is no longer than promised, and its stored
//! chunk states fit the capacity. From the first violation on nothing of that and later sequences is processed. With one of
//! every m chunk states stored, sequence n of c chunks stores `ceil(c / m)` of them, from h index `chunk_offsets[n]` on. The
//! status says all that the first sequence that is not processed lacks.
//!
//! Entries of the work list are eight words; in which order those of one length stand is open.

use super::CHUNK;

/// Status bit: boundaries out of order, negative or past 2^31 - 1.
pub const OUT_OF_ORDER: u32 = 1;
/// Status bit: boundaries past the allocated rows.
pub const PAST_THE_ROWS: u32 = 2;
/// Status bit: more chunk states than h holds.
pub const PAST_THE_CAPACITY: u32 = 4;
/// Status bit: more segments than the workspace has places for.
pub const PAST_THE_SEGMENTS: u32 = 8;
/// Status bit: a sequence longer than was promised.
pub const PAST_THE_LONGEST: u32 = 16;

/// What there is room for beside the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Chunk states that h holds; absent: any number.
    pub h: Option<usize>,
    /// How sequences are cut, and the most segments of all that are; absent: none is cut.
    pub segments: Option<(Split, usize)>,
    /// Most rows of a sequence, as promised; absent: any number.
    pub longest: Option<usize>,
}

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
    /// Reads boundaries `[N+1]` over `rows` allocated rows.
    ///
    /// # Panics
    /// If `h_every` is 0.
    pub fn new(cu_seqlens: &[i64], rows: usize, h_every: usize, room: Room) -> Schedule {
        let mut out = Schedule { sequences: vec![], chunk_offsets: vec![0], status: 0, chunks: 0 };
        let (mut h, mut segments) = (0, 0);
        for (n, pair) in cu_seqlens.windows(2).enumerate() {
            if out.status == 0 {
                let within = |row| i32::try_from(row).ok().and_then(|row| usize::try_from(row).ok());
                let ends = within(pair[0]).zip(within(pair[1])).filter(|(begin, end)| begin <= end);
                let rows_of = ends.unwrap_or((0, 0));
                let sequence = Sequence { n, rows: rows_of, h, chunk: out.chunks };
                let stored = sequence.chunks().div_ceil(h_every);
                let cut = room.segments.map_or(1, |(split, _)| split.parts(sequence.chunks()));
                let more = if cut > 1 { cut } else { 0 };
                out.status = if ends.is_none() { OUT_OF_ORDER } else { 0 }
                    + if rows_of.1 > rows { PAST_THE_ROWS } else { 0 }
                    + if room.h.is_some_and(|capacity| h + stored > capacity) { PAST_THE_CAPACITY } else { 0 }
                    + if room.segments.is_some_and(|(_, most)| segments + more > most) { PAST_THE_SEGMENTS } else { 0 }
                    + if room.longest.is_some_and(|most| rows_of.1 - rows_of.0 > most) { PAST_THE_LONGEST } else { 0 };
                if out.status == 0 {
                    (h, out.chunks, segments) = (h + stored, out.chunks + sequence.chunks(), segments + more);
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
        for s in &self.sequences {
            let parts = split.map_or(1, |split| split.parts(s.chunks()));
            let entry = |segment: usize| {
                let (first, end) = split.map_or((0, s.chunks()), |split| split.segment(s.chunks(), segment));
                Entry {
                    sequence: s.n,
                    rows: s.chunk_rows(first, end),
                    h: s.h,
                    chunk: s.chunk + first,
                    first,
                    segment,
                    parts,
                    last: segment + 1 == parts,
                    identity: false,
                    map: list.map_slots,
                }
            };
            list.first.push(entry(0));
            list.later.extend((1..parts).map(entry));
            let both = |segment| [entry(segment), Entry { identity: true, ..entry(segment) }];
            list.maps.extend((1..parts - 1).flat_map(both));
            if parts > 1 {
                list.map_slots += parts;
            }
        }
        let chunks = |entry: &Entry| (entry.rows.1 - entry.rows.0).div_ceil(CHUNK);
        list.first.sort_by_key(|entry| std::cmp::Reverse(chunks(entry)));
        list.later.sort_by_key(|entry| std::cmp::Reverse(entry.segment));
        list
    }
}

/// How long sequences are cut into segments: as many as there may be, of at least so many chunks on average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Most segments of a sequence.
    pub most: usize,
    /// Fewest segments of a sequence that is cut.
    pub fewest: usize,
    /// Least chunks of a segment, on average.
    pub least: usize,
    /// Length of the first segment in eighths of an inner one. The last one has six.
    pub first: usize,
}

impl Split {
    /// What a number of value heads takes; above 8 heads sequences are never cut.
    pub fn of_heads(value_heads: usize) -> Option<Split> {
        match value_heads {
            1..=2 => Some(Split { most: 9, fewest: 4, least: 10, first: 8 }),
            3 => Some(Split { most: 7, fewest: 4, least: 10, first: 8 }),
            4 => Some(Split { most: 5, fewest: 5, least: 13, first: 8 }),
            5..=6 => Some(Split { most: 4, fewest: 4, least: 16, first: 8 }),
            7..=8 => Some(Split { most: 5, fewest: 5, least: 20, first: 10 }),
            _ => None,
        }
    }

    /// Segments of a sequence of this many chunks: at least the fewest, or 1.
    pub fn parts(&self, chunks: usize) -> usize {
        let parts = self.most.min(chunks / self.least);
        if parts < self.fewest { 1 } else { parts }
    }

    /// First and end chunk of a segment of a sequence of this many chunks.
    pub fn segment(&self, chunks: usize, segment: usize) -> (usize, usize) {
        let parts = self.parts(chunks);
        let shares: Vec<usize> = (0..parts)
            .map(|segment| match segment {
                0 => self.first,
                _ if segment + 1 == parts => 6,
                _ => 8,
            })
            .collect();
        let at = |segment: usize| chunks * shares[..segment].iter().sum::<usize>() / shares.iter().sum::<usize>();
        (at(segment), at(segment + 1))
    }
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
    /// Segments of the sequence.
    pub parts: usize,
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
        words[6] |= (self.parts as u32) << 8 | flags;
        words
    }
}

/// The entries of each launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkList {
    /// Uncut sequences and first segments, longest first.
    pub first: Vec<Entry>,
    /// Further segments, late ones first.
    pub later: Vec<Entry>,
    /// Affine part and matrix of each inner segment, neither first nor last.
    pub maps: Vec<Entry>,
    /// Places of maps: as many as a cut sequence has segments.
    pub map_slots: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_at_the_first_violation() {
        let read = |cu: &[i64], h| {
            let s = Schedule::new(cu, 300, 2, Room { h, ..Room::default() });
            (s.sequences.len(), s.chunk_offsets, s.status, s.chunks)
        };
        assert_eq!(read(&[0, 64, 64, 300], None), (3, vec![0, 1, 1, 3], 0, 5));
        assert_eq!(read(&[0, 64, 64, 301, 302], None), (2, vec![0, 1, 1, 1, 1], PAST_THE_ROWS, 1));
        assert_eq!(read(&[0, 64, 63, 64], None), (1, vec![0, 1, 1, 1], OUT_OF_ORDER, 1));
        assert_eq!(read(&[-1, 64, 70], None), (0, vec![0, 0, 0], OUT_OF_ORDER, 0));
        assert_eq!(read(&[400, 350], None), (0, vec![0, 0], OUT_OF_ORDER, 0));
        assert_eq!(read(&[0, 64, 64, 300], Some(3)), (3, vec![0, 1, 1, 3], 0, 5));
        assert_eq!(read(&[0, 64, 64, 300], Some(2)), (2, vec![0, 1, 1, 1], PAST_THE_CAPACITY, 1));
        assert_eq!(read(&[0, 64, 400], Some(2)), (1, vec![0, 1, 1], PAST_THE_ROWS | PAST_THE_CAPACITY, 1));
        assert_eq!(read(&[0, i64::from(i32::MAX)], None).2, PAST_THE_ROWS);
        assert_eq!(read(&[0, i64::from(i32::MAX) + 1], None).2, OUT_OF_ORDER);
        assert_eq!(read(&[i64::MIN, i64::MAX], Some(0)), (0, vec![0, 0], OUT_OF_ORDER, 0));
        assert_eq!(read(&[5], None), (0, vec![0], 0, 0));
        let segments = |most| {
            let room = Room { segments: Some((SPLIT, most)), ..Room::default() };
            Schedule::new(&[0, 64 * 6, 64 * 11, 64 * 20], 1280, 1, room)
        };
        assert_eq!((segments(7).status, segments(7).sequences.len()), (0, 3));
        assert_eq!((segments(6).status, segments(6).chunk_offsets), (PAST_THE_SEGMENTS, vec![0, 6, 11, 11]));
        let longest = |rows| {
            let room = Room { longest: Some(rows), ..Room::default() };
            Schedule::new(&[0, 70, 200, 210], 300, 1, room)
        };
        assert_eq!((longest(130).status, longest(130).sequences.len()), (0, 3));
        assert_eq!((longest(129).status, longest(129).chunk_offsets), (PAST_THE_LONGEST, vec![0, 2, 2, 2]));
        assert_eq!(longest(0).sequences.len(), 0);
    }

    const SPLIT: Split = Split { most: 4, fewest: 3, least: 2, first: 8 };

    #[test]
    fn segments_of_a_sequence() {
        assert_eq!(Split::of_heads(1), Some(Split { most: 9, fewest: 4, least: 10, first: 8 }));
        assert_eq!(Split::of_heads(6), Some(Split { most: 4, fewest: 4, least: 16, first: 8 }));
        assert_eq!((Split::of_heads(8).map(|split| split.parts(128)), Split::of_heads(9)), (Some(5), None));
        for (split, chunks) in
            (1..=8).filter_map(Split::of_heads).chain([SPLIT]).flat_map(|s| (0..400).map(move |c| (s, c)))
        {
            let parts = split.parts(chunks);
            let segments: Vec<_> = (0..parts).map(|segment| split.segment(chunks, segment)).collect();
            assert!(segments.windows(2).all(|pair| pair[0].1 == pair[1].0), "{split:?}, {chunks} chunks");
            assert_eq!((segments[0].0, segments[parts - 1].1), (0, chunks));
            let lengths: Vec<_> = segments.iter().map(|segment| segment.1 - segment.0).collect();
            if parts > 1 {
                let inner = &lengths[1..parts - 1];
                assert!(inner.iter().max().unwrap() - inner.iter().min().unwrap() <= 1, "{lengths:?}");
                assert!((8 * lengths[0]).abs_diff(split.first * inner[0]) < 8 + split.first, "{lengths:?}");
                assert!((8 * lengths[parts - 1]).abs_diff(6 * inner[0]) < 14, "{lengths:?}");
            }
        }
        let eight = Split::of_heads(8).unwrap();
        assert_eq!([0, 1, 2, 3, 4].map(|segment| eight.segment(128, segment).1), [32, 57, 83, 108, 128]);
    }

    #[test]
    fn segments_cover_a_sequence_once() {
        let schedule = Schedule::new(&[3, 3 + 7 * 64 - 5, 500, 500 + 64 * 9], 2000, 1, Room::default());
        let list = schedule.work_list(Some(SPLIT));
        // Three and four segments, and the empty sequence between them.
        assert_eq!((list.first.len(), list.later.len(), list.maps.len(), list.map_slots), (3, 2 + 3, 2 * (1 + 2), 7));
        let of = |entry: &Entry| (entry.sequence, entry.segment);
        assert_eq!(list.first.iter().map(of).collect::<Vec<_>>(), [(0, 0), (2, 0), (1, 0)]);
        assert_eq!(list.later.iter().map(of).collect::<Vec<_>>(), [(2, 3), (0, 2), (2, 2), (0, 1), (2, 1)]);
        let last = list.later[0];
        assert_eq!((last.map, last.parts, last.last, last.rows.1, last.chunk), (3, 4, true, 1076, 7 + 1 + 7));
        let inner = list.later[3];
        assert_eq!((inner.rows, inner.first, inner.h, inner.last), ((131, 323), 2, 0, false));
        assert_eq!(list.maps[1].words(), [0, 131, 323, 0, 2, 2, 1 | 3 << 8 | 1 << 30, 0]);
        let maps: Vec<_> = list.maps.iter().map(|entry| (of(entry), entry.identity)).collect();
        let matrices =
            [((0, 1), false), ((0, 1), true), ((2, 1), false), ((2, 1), true), ((2, 2), false), ((2, 2), true)];
        assert_eq!(maps, matrices);
        let mut rows: Vec<_> = list.first.iter().chain(&list.later).map(|entry| entry.rows).collect();
        rows.sort_unstable();
        assert!(rows.windows(2).all(|pair| pair[0].1 == pair[1].0) && rows[0].0 == 3 && rows[7].1 == 1076);
    }
}
