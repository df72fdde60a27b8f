//! The schedule kernel: header, entries and chunk offsets against those of the golden model, and nothing else written.

use super::Failure;
use super::case::Case;
use crate::checks::conv_verify::call::poisoned;
use crate::checks::{Device, Extent, Measured, Sink};
use kda_core::exec::Stream;
use kda_core::{Elem, KernelDesc};
use kda_kernels::delta_h_schedule::{ScheduleArgs, ScheduleVariant};
use kda_ref::delta_h::schedule::{Entry, Room, WorkList};
use kda_ref::delta_h::{CHUNK, Schedule, Split};
use kda_ref::rng::Rng;
use kda_runtime::DeviceBuffer;
use kda_runtime::operators::delta_h::Batch;
use std::cmp::Ordering;

/// Words ahead of the entries, and of an entry.
const HEADER: usize = 16;
const ENTRY: usize = 8;
/// A word that the kernel has not written.
const UNTOUCHED: u32 = u32::MAX;

/// What a schedule is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// Boundaries `[N+1]`.
    pub cu_seqlens: Vec<i64>,
    /// Rows of the tensors.
    pub rows: usize,
    /// Every this many chunks the state is stored.
    pub h_every: usize,
    /// Chunk states that h holds.
    pub capacity: Option<usize>,
    /// How sequences are cut, and the most segments that there is room for.
    pub segments: Option<(Split, usize)>,
    /// Most rows of a sequence, as promised.
    pub longest: Option<usize>,
    /// Boundaries are i64.
    pub wide: bool,
    /// Chunk offsets are asked for.
    pub offsets: bool,
}

impl Asked {
    /// What the schedule of a case is asked for.
    pub fn of(case: &Case) -> Asked {
        let s = &case.sample;
        Asked {
            cu_seqlens: s.cu_seqlens.clone(),
            rows: s.rows,
            h_every: s.switches.h_every,
            capacity: s.switches.h_out.then_some(s.capacity),
            segments: case.segments().map(|split| (split, case.batch().segments() as usize)),
            longest: case.batch().longest.map(|rows| rows as usize),
            wide: s.switches.wide_boundaries,
            offsets: true,
        }
    }

    fn most_segments(&self) -> usize {
        self.segments.map_or(0, |(_, most)| most)
    }

    /// Word of the first entry of whole sequences and first segments, of later segments, of maps, and the number of all.
    fn places(&self) -> [usize; 4] {
        let (sequences, most) = (self.cu_seqlens.len() - 1, self.most_segments());
        let later = HEADER + ENTRY * sequences;
        let maps = later + ENTRY * most;
        [HEADER, later, maps, maps + ENTRY * 2 * most]
    }

    /// What the golden model has for these boundaries. With room for no segment nothing is cut.
    fn golden(&self) -> (Schedule, WorkList) {
        let segments = self.segments.filter(|(_, most)| *most > 0);
        let room = Room { h: self.capacity, segments, longest: self.longest };
        let golden = Schedule::new(&self.cu_seqlens, self.rows, self.h_every, room);
        let list = golden.work_list(segments.map(|(split, _)| split));
        (golden, list)
    }

    /// Words and offsets that are not those of the golden model. Entries that need the same number of chunks may stand in any
    /// order; one that stands behind a shorter one counts.
    pub fn wrong_words(&self, words: &[u32], offsets: Option<&[i64]>) -> usize {
        let (golden, list) = self.golden();
        let [first, later, maps, end] = self.places();
        let head = [list.first.len(), list.maps.len(), list.map_slots, golden.status as usize];
        let counts = [list.later.len(), golden.h_chunks(), golden.chunks, cut_sequences(&list)];
        let mut want: Vec<u32> = head.into_iter().chain(counts).map(|count| count as u32).collect();
        want.push(self.most_segments() as u32);
        want.resize(HEADER, 0);
        if words.len() != end {
            return words.len().abs_diff(end);
        }
        let mut wrong = differing(&words[..HEADER], &want);
        let of_entries = |entries: &[Entry]| -> Vec<u32> { entries.iter().flat_map(Entry::words).collect() };
        for (from, to, entries) in [(first, later, &list.first), (later, maps, &list.later), (maps, end, &list.maps)] {
            let (got, unused) = words[from..to].split_at(ENTRY * entries.len());
            if from == maps {
                wrong += differing(got, &of_entries(entries));
            } else {
                wrong += out_of_order(got) + differing(&sorted(got), &sorted(&of_entries(entries)));
            }
            wrong += unused.iter().filter(|word| **word != UNTOUCHED).count();
        }
        wrong
            + offsets.map_or(0, |offsets| {
                let want = golden.chunk_offsets.iter().map(|offset| *offset as i64);
                offsets.iter().zip(want).filter(|(got, want)| **got != *want).count()
                    + offsets.len().abs_diff(golden.chunk_offsets.len())
            })
    }

    /// Runs a variant, whose type of boundaries this must be, and counts what is wrong.
    pub fn run(&self, device: Device, variant: ScheduleVariant) -> Result<usize, Failure> {
        self.run_as(device, variant, variant.desc())
    }

    /// The same with another kernel in the place of the variant's own.
    pub fn run_as(
        &self,
        device: Device,
        variant: ScheduleVariant,
        desc: &'static KernelDesc,
    ) -> Result<usize, Failure> {
        let Device { executor, guarding } = device;
        let (count, elem) = (self.cu_seqlens.len() as u64, variant.index_());
        let narrow: Vec<i32> = self.cu_seqlens.iter().map(|end| *end as i32).collect();
        let cu = match elem {
            Elem::I64 => DeviceBuffer::of(executor, "cu_seqlens", &self.cu_seqlens, guarding)?,
            _ => DeviceBuffer::of(executor, "cu_seqlens", &narrow, guarding)?,
        };
        let words = self.places()[3] as u64;
        let work = poisoned(device, "schedule", 4 * words)?;
        let offsets = poisoned(device, "chunk_offsets", u64::from(elem.bytes()) * count)?;
        let split = self.segments.filter(|(_, most)| *most > 0).map(|(split, _)| split);
        let args = ScheduleArgs {
            cu: cu.dense(elem, &[count])?,
            chunk_offsets: if self.offsets { Some(offsets.dense(elem, &[count])?) } else { None },
            work_list: work.dense(Elem::U32, &[words])?,
            seqs: count as u32 - 1,
            rows: self.rows as u32,
            capacity: self.capacity.map_or(u32::MAX, |capacity| capacity as u32),
            every: self.h_every as u32,
            longest: self.longest.map_or(u32::MAX, |longest| longest as u32),
            most: split.map_or(1, |split| split.most as u32),
            fewest: split.map_or(2, |split| split.fewest as u32),
            least: split.map_or(1, |split| split.least as u32),
            first_eighths: split.map_or(8, |split| split.first as u32),
            most_segments: self.most_segments() as u32,
        };
        let launch = kda_core::PreparedLaunch { desc, ..args.prepare(variant, false)? };
        // SAFETY: the buffers live until the results are read; nothing else uses them.
        unsafe { executor.launch(&launch, Stream::default()) }?;
        executor.synchronize(Stream::default())?;
        for buffer in [&cu, &work, &offsets] {
            buffer.check_canaries()?;
        }
        let got: Vec<i64> = match elem {
            Elem::I64 => offsets.download()?,
            _ => offsets.download::<i32>()?.into_iter().map(i64::from).collect(),
        };
        let written = self.offsets || got.iter().all(|offset| *offset == -1);
        let asked = self.offsets.then_some(&got[..]);
        Ok(self.wrong_words(&work.download::<u32>()?, asked) + usize::from(!written))
    }
}

/// Sequences of several segments.
fn cut_sequences(list: &WorkList) -> usize {
    list.first.iter().filter(|entry| entry.parts > 1).count()
}

fn differing(a: &[u32], b: &[u32]) -> usize {
    crate::checks::conv_verify::call::differences(a, b)
}

/// The words of entries, those with one start one after the other.
fn sorted(words: &[u32]) -> Vec<u32> {
    let mut entries: Vec<&[u32]> = words.chunks(ENTRY).collect();
    entries.sort_unstable();
    entries.concat()
}

/// Entries that stand behind one that they should stand ahead of: first segments by length, in steps of an eighth from 128
/// chunks on; then further ones, late ones first.
fn out_of_order(words: &[u32]) -> usize {
    let place = |entry: &[u32]| {
        let chunks = u64::from(entry[2].saturating_sub(entry[1])).div_ceil(CHUNK as u64);
        (entry[6] & 0xff, chunks)
    };
    let after = |a: &[u32], b: &[u32]| {
        let ((a, a_chunks), (b, b_chunks)) = (place(a), place(b));
        match (a.min(1)).cmp(&b.min(1)) {
            Ordering::Equal if a > 0 => a < b,
            Ordering::Equal if a_chunks < 128 => a_chunks < b_chunks,
            Ordering::Equal => a_chunks * 9 / 8 < b_chunks,
            order => order == Ordering::Greater,
        }
    };
    let entries: Vec<&[u32]> = words.chunks(ENTRY).collect();
    entries.windows(2).filter(|pair| after(pair[0], pair[1])).count()
}

/// Batches that meet every rule: lengths, wrong boundaries, room that does not suffice, more sequences than threads.
pub fn batches(extent: Extent, rng: &mut Rng) -> Vec<Asked> {
    let ends = |lengths: &[usize]| -> Vec<i64> {
        let sums = lengths.iter().scan(0, |end, length| {
            *end += *length as i64;
            Some(*end)
        });
        std::iter::once(0).chain(sums).collect()
    };
    let asked = |lengths: &[usize], hv: u64| {
        let cu_seqlens = ends(lengths);
        let rows = cu_seqlens[lengths.len()] as usize;
        let batch = Batch {
            sequences: lengths.len() as u64,
            rows: rows as u64,
            heads: hv,
            h_every: 1,
            split: true,
            longest: None,
        };
        let segments = Split::of_heads(hv as usize).map(|split| (split, batch.segments() as usize));
        Asked { cu_seqlens, rows, h_every: 1, capacity: None, segments, longest: None, wide: false, offsets: true }
    };
    let few: [&[usize]; 8] = [
        &[],
        &[0],
        &[0, 0, 0],
        &[64, 1, 63, 65, 200, 127],
        &[8192],
        &[1300, 547, 2048, 963, 271, 3063],
        &[2497, 0, 20_000, 2496, 5000],
        &[128 * 64, 130 * 64, 143 * 64, 144 * 64, 127 * 64, 2_000_000],
    ];
    let mut all: Vec<Asked> = Vec::new();
    for (at, lengths) in few.iter().enumerate() {
        for hv in [1, 4, 6, 8, 9] {
            let plain = asked(lengths, hv);
            all.push(Asked { h_every: 1 + at % 3, wide: at % 2 == 0, offsets: hv != 4, ..plain });
        }
    }
    // Wrong boundaries in every place.
    let good = asked(&[100, 3100, 0, 64, 6500, 1, 700], 3);
    for at in 0..good.cu_seqlens.len() {
        for (value, wide) in
            [(-1, false), (i32::MIN.into(), false), (i32::MAX.into(), false), (50, false), (0, false), (i64::MIN, true)]
        {
            let mut bad = Asked { wide, ..good.clone() };
            bad.cu_seqlens[at] = value;
            all.push(bad);
        }
        for (more, wide) in [(good.rows as i64 + 1 - good.cu_seqlens[at], false), (1 << 32, true)] {
            let mut bad = Asked { wide, ..good.clone() };
            bad.cu_seqlens[at] += more;
            all.push(bad);
        }
    }
    // Room for less than there is, at its edges.
    let states = Schedule::new(&good.cu_seqlens, good.rows, 2, Room::default()).h_chunks();
    for wide in [false, true] {
        for capacity in [0, 1, 51, states - 1, states, states + 1] {
            all.push(Asked { wide, h_every: 2, capacity: Some(capacity), ..good.clone() });
        }
        if let Some((split, most)) = good.segments {
            for less in 0..=most.min(9) {
                all.push(Asked { wide, segments: Some((split, most - less)), capacity: Some(1000), ..good.clone() });
            }
        }
    }
    // Sequences longer than promised, with room for the segments of those that are not.
    for longest in [0, 100, 3099, 3100, 6499, 6500] {
        let some = asked(&[100, 3100, 0, 64, 6500, 1, 700], [1, 4, 8][longest % 3]);
        all.extend([false, true].map(|wide| Asked { longest: Some(longest), wide, ..some.clone() }));
    }
    // Only the first state of each is stored.
    let first = asked(&[100, 0, 64, 300], 1);
    all.extend([false, true].map(|wide| Asked { wide, h_every: u32::MAX as usize, ..first.clone() }));
    // More sequences than threads; the last of them wrong, or the first behind the threads.
    let many = asked(&[3; 1100], 6);
    all.push(Asked { rows: 3298, ..many.clone() });
    all.push(Asked { capacity: Some(1024), ..many.clone() });
    all.push(many);
    let random = if extent == Extent::Full { 100 } else { 4 };
    for _ in 0..random {
        let lengths: Vec<usize> = (0..1 + rng.below(1500))
            .map(|_| match rng.below(40) {
                0 => rng.below(30_000),
                1..10 => 0,
                _ => rng.below(300),
            })
            .collect();
        let mut one = asked(&lengths, 1 + rng.below(9) as u64);
        one.h_every = 1 + rng.below(4);
        (one.wide, one.rows) = (rng.coin(), one.rows + rng.below(100));
        if rng.below(3) == 0 {
            let at = rng.below(one.cu_seqlens.len());
            one.cu_seqlens[at] = rng.choose(&[-1, 0, 1000, one.rows as i64 + 1]);
        }
        all.push(one);
    }
    all
}

/// Runs both variants on all batches.
pub fn run(device: Device, extent: Extent, seed: u64, sink: Sink) -> Result<(), Failure> {
    let batches = batches(extent, &mut Rng::new(seed));
    for (at, variant) in ScheduleVariant::ALL.into_iter().enumerate() {
        let (mut wrong, mut runs) = (0, 0);
        for (index, asked) in batches.iter().enumerate() {
            if asked.wide != (variant.index_() == Elem::I64) {
                continue;
            }
            let found = asked.run(device, variant).map_err(|cause| format!("batch {index} ({asked:?}): {cause}"))?;
            (wrong, runs) = (wrong + found, runs + 1);
        }
        let share = (at + 1) as f64 / ScheduleVariant::ALL.len() as f64;
        sink(measured(variant.desc(), runs, wrong), share);
    }
    Ok(())
}

fn measured(desc: &KernelDesc, runs: usize, wrong: usize) -> Measured {
    let case = format!("{} ({runs} batches)", desc.entry);
    let error = if runs == 0 { f64::NAN } else { wrong as f64 };
    Measured { case, output: "words that differ from the golden model".into(), error, budget: 0.0 }
}

/// Runs a variant on a batch of empty, short, cut and wrong sequences, each in a place of its own, so that their order is fixed.
pub fn sample(device: Device, desc: &'static KernelDesc, seed: u64, sink: Sink) -> Result<(), Failure> {
    let variant = ScheduleVariant::ALL.into_iter().find(|v| std::ptr::eq(v.desc(), desc));
    let variant = variant.ok_or_else(|| format!("{} is no variant of delta_h_schedule", desc.entry))?;
    let mut rng = Rng::new(seed);
    let mut cu_seqlens = vec![0];
    for length in [130, 0, 3200 + rng.below(200) as i64, 200 + rng.below(50) as i64, 5000, 64] {
        cu_seqlens.push(cu_seqlens[cu_seqlens.len() - 1] + length);
    }
    let split = Split { most: 4, fewest: 3, least: 16, first: 8 + 4 * (seed as usize % 2) };
    // The last but one sequence of an odd seed has no room for its segments.
    let room = if seed % 2 == 1 { 5 } else { 7 };
    let rows = cu_seqlens[cu_seqlens.len() - 1] as usize;
    let asked = Asked {
        cu_seqlens,
        rows,
        h_every: 2,
        capacity: Some(2000),
        segments: Some((split, room)),
        longest: seed.is_multiple_of(3).then_some(3300),
        wide: variant.index_() == Elem::I64,
        offsets: true,
    };
    let wrong = asked.run(device, variant)?;
    sink(measured(desc, 1, wrong), 1.0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory for any lengths that fit suffices: boundaries that are in order have no segment too many.
    #[test]
    fn segments_of_good_boundaries_have_room() {
        for asked in batches(Extent::Full, &mut Rng::new(5)) {
            let schedule = |segments| {
                let room = Room { segments, ..Room::default() };
                Schedule::new(&asked.cu_seqlens, asked.rows, asked.h_every, room)
            };
            let ends = (asked.cu_seqlens.len() as u64 - 1, asked.rows as u64);
            for (hv, split) in (1..=16).filter_map(|hv| Some((hv, Split::of_heads(hv)?))) {
                let batch =
                    Batch { sequences: ends.0, rows: ends.1, heads: hv as u64, h_every: 1, split: true, longest: None };
                let most = batch.segments() as usize;
                let golden = schedule(Some((split, most)));
                if schedule(None).status == 0 {
                    assert_eq!(golden.status, 0, "HV {hv}: {asked:?}");
                    assert!(golden.work_list(Some(split)).map_slots <= most);
                }
            }
        }
    }

    /// A word, an offset and an entry out of its place are told.
    #[test]
    fn wrong_words_are_counted() {
        let asked = batches(Extent::Quick, &mut Rng::new(5)).into_iter().find(|a| a.most_segments() > 8);
        let asked = asked.expect("a batch with segments");
        let (golden, list) = asked.golden();
        let [first, later, maps, end] = asked.places();
        let mut words = vec![UNTOUCHED; end];
        let head = [list.first.len(), list.maps.len(), list.map_slots, 0, list.later.len(), golden.h_chunks()];
        words[..HEADER].fill(0);
        head.iter()
            .chain([&golden.chunks, &cut_sequences(&list), &asked.most_segments()])
            .enumerate()
            .for_each(|(at, count)| words[at] = *count as u32);
        for (first, entries) in [(first, &list.first), (later, &list.later), (maps, &list.maps)] {
            let all: Vec<u32> = entries.iter().flat_map(Entry::words).collect();
            words[first..first + all.len()].copy_from_slice(&all);
        }
        let offsets: Vec<i64> = golden.chunk_offsets.iter().map(|offset| *offset as i64).collect();
        assert_eq!(asked.wrong_words(&words, Some(&offsets)), 0);
        let used = later + ENTRY * list.later.len();
        for at in [0, 3, 7, 15, first, later - 1, later, used - 1, maps, end - 1] {
            let mut wrong = words.clone();
            wrong[at] ^= 1 << 20;
            assert!(asked.wrong_words(&wrong, Some(&offsets)) > 0, "word {at}");
        }
        let mut swapped = words.clone();
        let (early, last) = (later..later + ENTRY, used - ENTRY..used);
        let moved = swapped[early.clone()].to_vec();
        swapped.copy_within(last.clone(), later);
        swapped[last].copy_from_slice(&moved);
        assert!(asked.wrong_words(&swapped, Some(&offsets)) > 0);
        let mut wrong = offsets.clone();
        wrong[1] += 1;
        assert_eq!(asked.wrong_words(&words, Some(&wrong)), 1);
        assert!(asked.wrong_words(&words[1..], Some(&offsets)) > 0);
    }
}
