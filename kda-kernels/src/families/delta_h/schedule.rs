//! What `delta_h` has to do for a batch: sequences and segments of them, longest first, from boundaries on the device.

/// One CTA reads the boundaries of packed sequences and writes the work list that `delta_h` walks over. Lengths are the same
/// for all layers of a model, so it runs once a batch.
///
/// Sequence n is processed if `0 <= cu[m] <= cu[m + 1] <= rows` for all m up to n, if it has at most `longest` rows, and if
/// what it adds fits: chunks of `h` within `capacity`, segments within `most_segments`. From the first one that is not, nothing
/// is processed.
///
/// A sequence of `chunks` chunks of 64 rows has P = min(most, chunks / least) segments if that is `fewest` or more, and 1
/// otherwise. An inner one has eight shares of the chunks, the first one `first_eighths`, the last one, ahead of which most maps are
/// applied, six. Every sequence has at least one entry.
#[kda_dsl::kernels(arch = sm_80, uses = [crate::device::work])]
pub mod delta_h_schedule {
    const THREADS: u32 = 1024;
    const WARPS: u32 = THREADS / 32;
    const BT: u32 = 64; // rows of a chunk
    const INNER: u32 = 8; // shares of an inner segment
    const LAST: u32 = 6; // shares of the last one
    const PLACES: u32 = 512; // in the order of the entries: 256 lengths of first segments, 256 numbers of later ones

    /// Why a sequence is not processed.
    const DISORDER: u32 = 1;
    const PAST_ROWS: u32 = 2;
    const PAST_CAPACITY: u32 = 4;
    const PAST_SEGMENTS: u32 = 8;
    const PAST_LONGEST: u32 = 16;

    /// Place of a first segment by its length, in steps of an eighth: longest first.
    #[device]
    fn place_of(chunks: u32) -> u32 {
        let eighths = ((chunks as f32).to_bits() >> 20) - 134 * 8 + 128;
        255 - select(chunks < 128, chunks, min(eighths, 255))
    }

    /// Shares ahead of a segment of a sequence of so many.
    #[device]
    fn shares_ahead(segment: u32, parts: u32, first_eighths: u32) -> u32 {
        let ahead = first_eighths + INNER * segment - INNER;
        select(segment == 0, 0, select(segment == parts, ahead - (INNER - LAST), ahead))
    }

    /// Sums of the threads before this one, and of all.
    #[device]
    fn sums_before<const N: u32>(totals: Shared<u32, Shape<WARPS, N>>, mine: [u32; N]) -> ([u32; N], [u32; N]) {
        let mut upto = mine;
        #[unroll]
        for step in [1, 2, 4, 8, 16] {
            let other = shfl_up(upto, step);
            upto += select(lane >= step, other, [0; N]);
        }
        cta_sync();
        if lane == 31 {
            #[unroll]
            for i in 0..N {
                totals[[warp, i]] = upto[i];
            }
        }
        cta_sync();
        let mut before = upto - mine;
        let mut all = [0; N];
        for other in 0..WARPS {
            let there = from_fn::<N>(|i| totals[[other, i]]);
            all += there;
            before += select(other < warp, there, [0; N]);
        }
        (before, all)
    }

    /// The least of a value of all threads.
    #[device]
    fn least_of(shared: Shared<u32, Shape<WARPS>>, mine: u32) -> u32 {
        let mut least = mine;
        #[unroll]
        for step in [16, 8, 4, 2, 1] {
            least = min(least, shfl_xor(least, step));
        }
        cta_sync();
        if lane == 0 {
            shared[[warp]] = least;
        }
        cta_sync();
        for other in 0..WARPS {
            least = min(least, shared[[other]]);
        }
        least
    }

    /// A boundary within 32 bits; what is negative or beyond becomes the largest number.
    #[device]
    fn boundary(at: i64) -> u32 {
        select(at < 0 || at > 2147483647, u32::MAX, at as u32)
    }

    /// Writes an entry.
    #[device]
    fn write(to: GlobalMut<u32>, at: u32, first: [u32; 4], second: [u32; 4]) {
        #[unroll]
        for i in 0..4 {
            to.at([at + i]).store(first[i]);
            to.at([at + 4 + i]).store(second[i]);
        }
    }

    #[kernel(block = THREADS, grid = 1, min_blocks_per_sm = 1)]
    #[variants(INDEX in [i32, i64])]
    #[requires(seqs + 1 == boundaries, every > 0, least > 0, first_eighths > 2, rows <= 2147483647)]
    #[requires(fewest > 1, most <= 32, first_eighths <= 128)]
    #[requires(words >= work::HEADER + work::ENTRY * (seqs + 3 * most_segments))]
    fn schedule<INDEX: Elem>(
        #[dims(boundaries)] cu: Global<INDEX>,
        #[dims(boundaries)] chunk_offsets: Option<GlobalMut<INDEX>>, // chunks of `h` ahead of each sequence, and of all
        #[dims(words)] work_list: GlobalMut<u32>,
        seqs: u32,
        rows: u32,          // of the tensors
        capacity: u32,      // chunks that `h` holds
        every: u32,         // `h` of every so many chunks is kept
        longest: u32,       // rows of a sequence
        most: u32,          // segments of a sequence
        fewest: u32,        // segments of a sequence that is cut
        least: u32,         // chunks of a segment, on average
        first_eighths: u32, // shares of a first segment
        most_segments: u32, // of all sequences that have several
    ) {
        let totals = smem::<u32, Shape<WARPS, 4>>();
        let minima = smem::<u32, Shape<WARPS>>();
        let counts = smem::<u32, Shape<PLACES>>(); // of entries of each place; then the next index there
        for i in (tid..PLACES).step_by(THREADS) {
            counts[[i]] = 0;
        }
        let later_list = work::HEADER + work::ENTRY * seqs;
        let map_list = later_list + work::ENTRY * most_segments;

        let mut stop = seqs; // the first sequence that is not processed
        let mut status = 0;
        let mut all = [0, 0, 0, 0];
        // The first pass counts, the second writes.
        #[unroll]
        for pass in 0..2 {
            let mut ahead = [0, 0, 0, 0]; // chunks, chunks of h, segments, sequences of several segments
            for first in (0..seqs).step_by(THREADS) {
                let n = first + tid;
                let inside = n < seqs;
                let from = boundary(cu.at([n]).load_if(inside) as i64);
                let to = boundary(cu.at([n + 1]).load_if(inside) as i64);
                let disorder = from == u32::MAX || to == u32::MAX || to < from;
                let chunks = select(inside && !disorder, (to - from) / BT + select((to - from) % BT > 0, 1, 0), 0);
                let parts = min(most, chunks / least);
                let parts = select(parts < fewest, 1, parts);
                let split = parts > 1;
                // Products with all chunks would not fit.
                let shares = shares_ahead(parts, parts, first_eighths);
                let (share, rest) = (chunks / shares, chunks % shares);
                let first_end = select(split, share * first_eighths + rest * first_eighths / shares, chunks);
                let kept = chunks / every + select(chunks % every > 0, 1, 0);
                let mine = [chunks, kept, select(split, parts, 0), select(split, 1, 0)];
                let (before, here) = sums_before(totals, mine);
                let at = ahead + before;
                ahead += here;
                if const { pass == 0 } {
                    let why = select(disorder, DISORDER, 0)
                        | select(!disorder && to > rows, PAST_ROWS, 0)
                        | select(!disorder && to - from > longest, PAST_LONGEST, 0)
                        | select(at[1] + mine[1] > capacity, PAST_CAPACITY, 0)
                        | select(at[2] + mine[2] > most_segments, PAST_SEGMENTS, 0);
                    let bad = inside && why != 0;
                    let end = least_of(minima, select(bad, n, u32::MAX));
                    // What the first one lacks.
                    let lacking = least_of(minima, select(n == end, why, u32::MAX));
                    status = select(end < stop, lacking, status);
                    stop = min(stop, end);
                }
                let done = inside && n < stop;
                if const { pass == 0 } {
                    let (_, counted) = sums_before(totals, select(done, mine, [0, 0, 0, 0]));
                    all += counted;
                }
                if done {
                    if const { pass == 0 } {
                        counts.at([place_of(first_end)]).fetch_add(1, RELAXED);
                        for s in 1..parts {
                            counts.at([512 - min(s, 255)]).fetch_add(1, RELAXED);
                        }
                    } else {
                        // B and M of inner segments, in the order of sequences.
                        let inner = map_list + work::ENTRY * 2 * (at[2] - 2 * at[3]);
                        for s in 0..parts {
                            let (ahead, upto) =
                                (shares_ahead(s, parts, first_eighths), shares_ahead(s + 1, parts, first_eighths));
                            let low = share * ahead + rest * ahead / shares;
                            let high = select(split, share * upto + rest * upto / shares, chunks);
                            let place = if s == 0 { place_of(first_end) } else { 512 - s };
                            let index = counts.at([place]).fetch_add(1, RELAXED);
                            let kind = s | parts << 8;
                            let start = [n, from + low * BT, min(from + high * BT, to), at[1]];
                            let last = select(s + 1 == parts, work::LAST, 0);
                            // The places of later segments follow those of all first ones.
                            let to_list = select(s == 0, work::HEADER, later_list - work::ENTRY * stop);
                            let entry = to_list + work::ENTRY * index;
                            write(work_list, entry, start, [at[0] + low, low, kind | last, at[2]]);
                            if s > 0 && s + 1 < parts {
                                let map = inner + work::ENTRY * 2 * (s - 1);
                                write(work_list, map, start, [at[0] + low, low, kind, at[2]]);
                                let m = [at[0] + low, low, kind | work::IDENTITY, at[2]];
                                write(work_list, map + work::ENTRY, start, m);
                            }
                        }
                    }
                }
                if const { pass == 1 } {
                    chunk_offsets.at([n]).store_if(inside, (if n < stop { at[1] } else { all[1] }) as INDEX);
                }
            }
            if const { pass == 0 } {
                cta_sync();
                let mine = counts.at([tid % PLACES]).load();
                let (before, _) = sums_before(totals, [select(tid < PLACES, mine, 0), 0, 0, 0]);
                if tid < PLACES {
                    counts[[tid]] = before[0];
                }
                cta_sync();
            }
        }
        if tid < work::HEADER {
            let later = all[2] - all[3];
            let maps = 2 * (all[2] - 2 * all[3]);
            let words = [stop, maps, all[2], status, later, all[1], all[0], all[3], most_segments];
            let mut word = 0;
            #[unroll]
            for i in 0..9 {
                word = select(tid == i, words[i], word);
            }
            work_list.at([tid]).store(word);
        }
        if tid == 0 {
            chunk_offsets.at([seqs]).store(all[1] as INDEX);
        }
    }
}
