//! The work list of `delta_h`: what its kernels know of the schedule that one of them writes; rows of a chunk that is cut short;
//! scalar gates, copied ahead.

/// A header of [`HEADER`](work) words, then three lists of entries of [`ENTRY`](work) words, each behind the most that the one
/// ahead of it can have: whole sequences and first segments, longest first; later segments; maps of inner ones.
#[kda_dsl::device_lib]
pub mod work {
    const HEADER: u32 = 16;
    // Words of the header: numbers of entries, and of the places of maps that there is room for.
    const ENTRIES: u32 = 0;
    const MAPS: u32 = 1;
    const LATER: u32 = 4;
    const PLACES: u32 = 8;

    const ENTRY: u32 = 8;
    // Words of an entry.
    const SEQUENCE: u32 = 0;
    const ROW0: u32 = 1; // first row
    const END: u32 = 2; // the row behind the last
    const H0: u32 = 3; // number of the sequence's first h
    const CHUNK: u32 = 4; // number of its first chunk in the batch
    const FIRST_CHUNK: u32 = 5; // the same in the sequence
    const KIND: u32 = 6; // its segment, how many there are, and what is asked for
    const MAP0: u32 = 7; // map of the sequence's first segment

    const IDENTITY: u32 = 0x40000000; // M, not B
    const LAST: u32 = 0x80000000; // the last segment of its sequence

    /// The item that a trip of a persistent loop does. Items lie longest first, so every other round over the CTAs goes
    /// backwards: who had the longest gets the shortest.
    fn item_of(trip: u32, items: u32) -> u32 {
        let round = trip / nctaid.x;
        let first = round * nctaid.x;
        select(round % 2 == 1, first + min(items - first, nctaid.x) - 1 - (trip - first), trip)
    }

    /// Entry, head and first column of V of an item, for slices of VS columns; rows of the entry from the first to the one
    /// behind the last, and its chunks.
    fn place<const VS: u32>(schedule: Global<u32>, first_entry: u32, heads: u32, item: u32) -> [u32; 6] {
        const SLICES: u32 = 128 / VS;
        let entry = first_entry + item / SLICES / heads * ENTRY;
        let (head, v0) = (item / SLICES % heads, item % SLICES * VS);
        let (row0, end) = (schedule[[entry + ROW0]], schedule[[entry + END]]);
        [entry, head, v0, row0, end, (end - row0 + 63) / 64]
    }

    /// Number of a segment in its sequence.
    fn segment_of(kind: u32) -> u32 {
        kind & 0xff
    }

    /// Maps that are applied to B of the first segment ahead of a segment.
    fn folds_of(kind: u32) -> u32 {
        max(segment_of(kind), 1) - 1
    }

    /// Segments of its sequence.
    fn segments_of(kind: u32) -> u32 {
        kind >> 8 & 0xff
    }

    /// Zeros in the rows of a tile from `first` on; a warpgroup writes them.
    fn clear_from(tile: Tile<bf16, Shape<64, 128>>, first: u32) {
        for i in (16 * first + tid..16 * 64).step_by(128) {
            tile.at([i / 16, 8 * (i % 16)]).store_v([bf16::ZERO; 8]);
        }
    }

    /// Stores the first rows of a tile of VS columns to rows from `row` on, at columns from v0 on; a warp writes them.
    fn store_rows<const VS: u32>(
        to: GlobalMut<bf16>,
        tile: Tile<bf16, Shape<64, VS>>,
        count: u32,
        row: u32,
        head: u32,
        v0: u32,
    ) {
        for i in (lane..count * (VS / 8)).step_by(32) {
            let (t, at) = (i / (VS / 8), i % (VS / 8) * 8);
            to.at([row + t, head, v0 + at]).store_v(tile.at([t, at]).load_v::<8>());
        }
    }

    const AHEAD: u32 = 7; // chunks by which scalar gates are copied ahead of their use

    /// Copies the gates of 64 rows from `row` on; a warp does. Rows behind the end belong to others: zero, and not read.
    fn copy_gates(to: Shared<f32, Shape<64>>, gate: Global<f32>, row: u32, end: u32, head: u32) {
        #[unroll]
        for i in 0..2 {
            let t = lane + 32 * i;
            to.at([t]).copy_async_if(row + t < end, gate.at([row + t, head, 0]));
        }
    }
}
