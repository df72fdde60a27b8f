//! Schedules that must be refused, what the head of a workspace says, and the kernel's list against one made on the host.

use super::*;
use crate::operators::capability::{Capability, HOPPER};
use crate::operators::delta_h::samples::{self, dense, restrided};

#[track_caller]
fn refused(spoil: impl Fn(&mut Schedule), words: &[&str]) {
    let mut good = samples::schedule(3, 4000, 8, true);
    assert!(plan(&good, &HOPPER).is_ok(), "{:?}", plan(&good, &HOPPER));
    spoil(&mut good);
    let said = plan(&good, &HOPPER).expect_err("a refusal").to_string();
    assert!(words.iter().all(|word| said.contains(word)) && said.starts_with("delta_h_schedule: "), "{said}");
}

#[test]
fn bad_arguments() {
    refused(|s| s.cu_seqlens = dense(Elem::U32, &[4]), &["`cu_seqlens` holds u32; i32 or i64 is needed"]);
    refused(|s| s.cu_seqlens = dense(Elem::I32, &[0]), &["axis N + 1 of `cu_seqlens`", "at least 1 is needed"]);
    refused(|s| s.cu_seqlens = dense(Elem::I32, &[4, 1]), &["1 axes are needed: [N + 1]"]);
    refused(|s| s.cu_seqlens = restrided(&s.cu_seqlens, 0, 2), &["`cu_seqlens`", "a stride of 1 elements"]);
    refused(|s| s.cu_seqlens.ptr = 0, &["`cu_seqlens` is a null pointer"]);
    refused(|s| s.cu_seqlens.ptr += 2, &["`cu_seqlens` starts at", "a multiple of 4"]);
    refused(|s| s.cu_seqlens.bytes -= 1, &["`cu_seqlens` has 15 bytes", "needs 16"]);
    refused(|s| s.chunk_offsets = Some(dense(Elem::I64, &[4])), &["`chunk_offsets` holds i64; i32 is needed"]);
    refused(|s| s.chunk_offsets = Some(dense(Elem::I32, &[3])), &["axis N + 1 of `chunk_offsets`", "4 is needed"]);
    let long = |s: &mut Schedule| s.cu_seqlens = dense(Elem::I64, &[4]);
    refused(long, &["`chunk_offsets` holds i32; i64 is needed"]);
    refused(|s| s.workspace = dense(Elem::F32, &[4000]), &["`workspace` holds f32; u8 or u32 is needed"]);
    refused(|s| s.workspace.ptr += 8, &["`workspace` starts at", "a multiple of 16"]);
    let short = |s: &mut Schedule| s.workspace = dense(Elem::U32, &[s.batch().schedule_words() - 1]);
    refused(short, &["axis words of `workspace`", "for any lengths that fit"]);
    refused(
        |s| s.capacity = Some(64),
        &["`capacity` is 64; at least 65 is needed", "N = 3", "T = 4000", "h_every = 1"],
    );
    refused(|s| s.h_every = 0, &["`h_every` is 0"]);
    refused(|s| s.heads = 0, &["`heads` is 0"]);
    refused(|s| s.rows = 1 << 31, &["`rows` is 2147483648; at most 2147483583"]);
    refused(|s| s.rows = u64::MAX, &["`rows` is 9223372036854775807; at most"]);
    refused(|s| s.workspace.ptr = s.cu_seqlens.ptr - s.cu_seqlens.ptr % 16, &["`workspace` at", "shares memory with"]);
    let offsets = |s: &mut Schedule| s.chunk_offsets = Some(s.cu_seqlens);
    refused(offsets, &["`chunk_offsets` at", "shares memory with `cu_seqlens`"]);
    let old = plan(&samples::schedule(3, 4000, 8, true), &Capability(7, 5, 40));
    assert!(old.unwrap_err().to_string().contains("no variant runs on compute capability 7.5"));
}

#[test]
fn heads_of_workspaces() {
    let words = [4u32, 6, 5, 0b11010, 3, 3, 2, 0, 9, 9, 9, 9, 9, 9, 9, 9];
    let head: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let status = Status::decode(&head).unwrap();
    assert_eq!((status.entries, status.maps, status.segments, status.sequences), (7, 6, 5, 4));
    assert_eq!((status.h_states, status.chunks, status.is_whole()), (3, 2, false));
    let said = status.to_string();
    let sizes = "4 sequences, 2 chunks, 3 chunk states, 5 segments";
    assert_eq!(
        said,
        format!(
            "{sizes}; a sequence ends past the last row; segments do not fit the workspace; a sequence is longer than `longest`"
        )
    );
    assert_eq!(Status::decode(&head[..63]), None);
    assert!(Status::default().is_whole());
}

#[cfg(feature = "sim")]
mod on_the_simulator {
    use super::*;
    use crate::executor::sim::SimExecutor;
    use crate::operators::delta_h::segments::CHUNK;
    use crate::{DeviceBuffer, Guarding};
    use kda_core::exec::Stream;

    const ENTRY: usize = 8;
    const IDENTITY: u32 = 1 << 30;
    const LAST: u32 = 1 << 31;

    /// splitmix64
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z ^ (z >> 31)) % end
        }
    }

    /// What the contract asks of a schedule: status, first chunk states, and the lists, each sorted.
    struct Expected {
        status: Status,
        offsets: Vec<i64>,
        first: Vec<[u32; ENTRY]>,
        later: Vec<[u32; ENTRY]>,
        maps: Vec<[u32; ENTRY]>,
    }

    fn expected(batch: &Batch, ends: &[i64], capacity: u64) -> Expected {
        let (first, later, maps) = (Vec::new(), Vec::new(), Vec::new());
        let mut e = Expected { status: Status::default(), offsets: vec![0], first, later, maps };
        for (n, pair) in ends.windows(2).enumerate() {
            let (from, to) = (pair[0], pair[1]);
            let whole = e.status.is_whole();
            let (ordered, inside) = (0 <= from && from <= to && to <= i32::MAX.into(), to <= batch.rows as i64);
            let chunks = if ordered { (to - from) as u64 } else { 0 }.div_ceil(CHUNK);
            let states = chunks.div_ceil(batch.h_every.into());
            let parts = batch.cut().map_or(1, |cut| cut.segments(chunks));
            let segments = e.status.segments + if parts > 1 { parts as u32 } else { 0 };
            if whole {
                // All that the first one lacks.
                e.status.past_workspace = u64::from(segments) > batch.segments();
                e.status.past_longest = ordered && (to - from) as u64 > batch.longest.unwrap_or(u64::MAX);
                e.status.out_of_order = !ordered;
                e.status.past_end = ordered && !inside;
                e.status.past_capacity = u64::from(e.status.h_states) + states > capacity;
            }
            if e.status.is_whole() {
                let (h0, chunk0, map0) = (e.status.h_states, e.status.chunks, e.status.segments);
                for s in 0..parts {
                    // Shares of the chunks: those of the first segment, eight of inner ones, six of the last.
                    let first = batch.cut().map_or(8, |cut| cut.first);
                    let shares = |s: u64| match s {
                        0 => 0,
                        s if s == parts => first + 8 * (s - 1) - 2,
                        s => first + 8 * (s - 1),
                    };
                    let bound = |s: u64| chunks * shares(s) / shares(parts);
                    let (low, high) = (bound(s), bound(s + 1));
                    let row = |chunk: u64| (from as u64 + CHUNK * chunk).min(to as u64) as u32;
                    let kind = s as u32 | (parts as u32) << 8;
                    let last = if s + 1 == parts { LAST } else { 0 };
                    let start = [n as u32, row(low), row(high), h0, chunk0 + low as u32, low as u32];
                    let entry = |kind| {
                        let mut entry = [0; ENTRY];
                        entry[..6].copy_from_slice(&start);
                        entry[6..].copy_from_slice(&[kind, map0]);
                        entry
                    };
                    let list = if s == 0 { &mut e.first } else { &mut e.later };
                    list.push(entry(kind | last));
                    if s > 0 && s + 1 < parts {
                        e.maps.extend([entry(kind), entry(kind | IDENTITY)]);
                    }
                }
                e.status.sequences += 1;
                e.status.chunks += chunks as u32;
                e.status.h_states += states as u32;
                e.status.segments = segments;
            }
            e.offsets.push(e.status.h_states.into());
        }
        e.status.entries = (e.first.len() + e.later.len()) as u32;
        e.status.maps = e.maps.len() as u32;
        e.first.sort_unstable();
        e.later.sort_unstable();
        e.maps.sort_unstable();
        e
    }

    fn run(batch: &Batch, ends: &[i64], capacity: Option<u64>, wide: bool) {
        let executor = SimExecutor::default();
        let bands = Guarding::BANDS;
        let narrow: Vec<i32> = ends.iter().map(|end| *end as i32).collect();
        let (elem, cu, offsets) = match wide {
            true => (
                Elem::I64,
                DeviceBuffer::of(&executor, "cu", ends, bands).unwrap(),
                DeviceBuffer::of(&executor, "offsets", &vec![-1i64; ends.len()], bands).unwrap(),
            ),
            false => (
                Elem::I32,
                DeviceBuffer::of(&executor, "cu", &narrow, bands).unwrap(),
                DeviceBuffer::of(&executor, "offsets", &vec![-1i32; ends.len()], bands).unwrap(),
            ),
        };
        let poison = vec![0xdead_beefu32; batch.schedule_words() as usize];
        let work = DeviceBuffer::of(&executor, "work", &poison, bands).unwrap();
        let shape = [ends.len() as u64];
        let schedule = Schedule {
            cu_seqlens: cu.dense(elem, &shape).unwrap(),
            workspace: work.dense(Elem::U32, &[batch.schedule_words()]).unwrap(),
            chunk_offsets: Some(offsets.dense(elem, &shape).unwrap()),
            rows: batch.rows,
            heads: batch.heads,
            h_every: batch.h_every,
            capacity,
            split: batch.split,
            longest: batch.longest,
        };
        assert_eq!(schedule.batch(), *batch);
        let planned = plan(&schedule, &executor).expect("a plan");
        // SAFETY: the buffers outlive the launch, and nothing else uses them.
        unsafe { planned.launch(&executor, Stream::default()) }.expect("a schedule");
        for buffer in [&cu, &offsets, &work] {
            buffer.check_canaries().expect("nothing beside it");
        }
        let want = expected(batch, ends, capacity.unwrap_or(u64::MAX));
        let status = Status::read(&schedule.workspace, &executor).expect("a status");
        assert_eq!(status, want.status, "{batch:?}, {ends:?}");
        let got: Vec<i64> = match wide {
            true => offsets.download().unwrap(),
            false => offsets.download::<i32>().unwrap().into_iter().map(i64::from).collect(),
        };
        let last = *want.offsets.last().expect("one");
        assert_eq!(got.last(), Some(&last), "{batch:?}, {ends:?}");
        let processed = status.sequences as usize;
        assert_eq!(got[..processed], want.offsets[..processed], "{batch:?}, {ends:?}");
        let words = work.download::<u32>().unwrap();
        let list = |first: u64, count: u32| -> Vec<[u32; ENTRY]> {
            let words = &words[first as usize..][..ENTRY * count as usize];
            words.chunks(ENTRY).map(|entry| entry.try_into().expect("eight")).collect()
        };
        let [first, later, maps] = batch.first_entries();
        let mut first = list(first, status.sequences);
        let mut later = list(later, status.entries - status.sequences);
        let mut maps = list(maps, status.maps);
        // Longest first; late segments first.
        let lengths: Vec<u32> = first.iter().map(|e| (e[2] - e[1]).div_ceil(64)).collect();
        assert!(lengths.windows(2).all(|pair| pair[0] >= pair[1] || pair[1] >= 128), "{lengths:?}");
        assert!(later.windows(2).all(|pair| pair[0][6] & 0xff >= pair[1][6] & 0xff), "{later:?}");
        for entries in [&mut first, &mut later, &mut maps] {
            entries.sort_unstable();
        }
        assert_eq!((first, later, maps), (want.first, want.later, want.maps), "{batch:?}, {ends:?}");
    }

    fn ends_of(lengths: &[i64]) -> Vec<i64> {
        let sums = lengths.iter().scan(0, |end, length| {
            *end += length;
            Some(*end)
        });
        std::iter::once(0).chain(sums).collect()
    }

    fn batch(sequences: u64, rows: i64, heads: u64, h_every: u32) -> Batch {
        Batch { sequences, rows: rows as u64, heads, h_every, split: true, longest: None }
    }

    #[test]
    fn lists_hold_what_there_is_to_do() {
        let seed = std::env::var("KDA_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed);
        println!("KDA_SEED={seed}");
        let mut random = Random(seed);
        let fixed: [&[i64]; 6] =
            [&[], &[0], &[0, 0, 0], &[64, 1, 63, 65, 200, 127], &[8192], &[1300, 547, 2048, 963, 271, 3063]];
        for (at, lengths) in fixed.iter().enumerate() {
            let ends = ends_of(lengths);
            for heads in [1, 4, 6, 8, 9] {
                let rows = ends[ends.len() - 1] + (at as i64 % 3) * 40;
                run(&batch(lengths.len() as u64, rows, heads, 1 + at as u32 % 3), &ends, None, at % 2 == 0);
            }
        }
        for _ in 0..6 {
            let count = 1 + random.below(1500);
            let lengths: Vec<i64> = (0..count)
                .map(|_| match random.below(40) {
                    0 => random.below(30_000) as i64,
                    1..10 => 0,
                    _ => random.below(300) as i64,
                })
                .collect();
            let ends = ends_of(&lengths);
            let (rows, heads) = (ends[lengths.len()] + random.below(100) as i64, 1 + random.below(9));
            run(&batch(count, rows, heads, 1 + random.below(4) as u32), &ends, None, random.below(2) == 0);
        }
    }

    /// Rows, boundaries, promises and steps of stored states at the ends of what can be counted.
    #[test]
    fn extreme_sizes() {
        let last = 2_147_483_583i64;
        for heads in [1, 4, 8, 9] {
            for longest in [None, Some(1 << 33), Some(last as u64), Some(64 * 85)] {
                let of = |n, rows| Batch { longest, ..batch(n, rows, heads, 1) };
                run(&of(1, last), &[0, last], None, heads == 1);
                run(&of(3, last), &[last - 6000, last - 100, last, last], None, true);
                run(&of(3, last), &[0, i32::MAX.into(), 0, i32::MAX.into()], None, false);
                run(&of(3, last), &[0, 1 << 32, (1 << 32) + 64, 1 << 34], None, true);
                run(&of(3, 6000), &[0, 100, i64::MAX, i64::MIN], None, true);
            }
        }
        for every in [u32::MAX, u32::MAX - 1, 1 << 31] {
            run(&batch(4, 6000, 1, every), &[0, 200, 400, 400, 6000], None, false);
        }
    }

    /// Boundaries that are not possible end the list, wherever they stand.
    #[test]
    fn bad_boundaries_end_the_list() {
        let good = ends_of(&[100, 3000, 0, 64, 5000, 1, 700]);
        let rows = good[7];
        for at in 0..8 {
            for value in [-1, i64::from(i32::MIN), i64::from(i32::MAX), rows + 1, 0, 50] {
                let mut ends = good.clone();
                ends[at] = value;
                run(&batch(7, rows, 4, 2), &ends, None, false);
                if at > 0 {
                    ends[at] = if value < 0 { i64::MIN } else { value + (1 << 33) };
                    run(&batch(7, rows, 4, 2), &ends, None, true);
                }
            }
        }
        // Rows that do not exist, after many sequences that are fine.
        let many = ends_of(&[3; 1100]);
        run(&batch(1100, 3000, 8, 1), &many, None, false);
    }

    /// Sequences longer than promised end the list; the promise changes no entry.
    #[test]
    fn sequences_longer_than_promised_end_the_list() {
        let ends = ends_of(&[100, 3000, 0, 64, 5000, 1, 700]);
        for heads in [1, 4, 8, 9] {
            for longest in [0, 99, 100, 2999, 3000, 4999, 5000, 5001, 1 << 40] {
                run(&Batch { longest: Some(longest), ..batch(7, ends[7], heads, 1) }, &ends, None, heads == 4);
            }
        }
    }

    /// A capacity for any good lengths is passed only by boundaries that are not possible.
    #[test]
    fn chunk_states_that_do_not_fit_end_the_list() {
        let batch = batch(4, 4096, 8, 1);
        run(&batch, &[0, 100, 10_000, 10_000, 10_100], Some(batch.h_states()), false);
        run(&batch, &[0, 1, 2, 3, 4096], Some(batch.h_states()), false);
    }
}
