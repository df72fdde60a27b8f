//! Schedule and calls on the simulator, against the recurrence written out: every way in which a call can be put.
//!
//! Values are small whole numbers and halves, and decays are powers of two, so that f32 holds every sum exactly and results
//! agree to the bit whatever the order of summation. Where sequences are cut, maps stand for chunks that round: there decays
//! are 1 and 0, and the state stays a whole number that bf16 holds.

use super::samples::matrices as shape_of_matrices;
use super::{Gate, Options, Problem, Schedule, Status, Variant, plan, schedule};
use crate::executor::sim::SimExecutor;
use crate::{DeviceBuffer, Guarding};
use half::bf16;
use kda_core::Executor;
use kda_core::exec::Stream;
use kda_core::{Elem, TensorArg};
use kda_kernels::delta_h_portable::DeltaHPortableVariant;

const D: usize = 128;
const POISON: f32 = -77.0;

/// splitmix64
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    /// -1, 0 and 1, mostly 0.
    fn sparse(&mut self, count: usize, one_in: u64) -> Vec<f32> {
        (0..count).map(|_| if self.below(one_in) == 0 { self.below(2) as f32 * 2.0 - 1.0 } else { 0.0 }).collect()
    }
}

#[derive(Clone, Copy, PartialEq)]
enum GateKind {
    Cumulative,
    Decay,
    Scalar,
}

/// How a call is put.
#[derive(Clone)]
struct Case {
    lengths: Vec<usize>,
    spare_rows: usize,
    heads: usize,
    gate: GateKind,
    every: u32,
    split: bool,
    longest: Option<u64>,
    maps: Option<Variant>,
    /// First segments are done ahead of the maps that are computed beside them.
    ahead: bool,
    /// Rows of the longest sequence that the schedule alone is promised.
    scheduled: Option<u64>,
    /// Memory orders `[K, V]` of the initial states, the final ones and h.
    k_first: [bool; 3],
    bf16_states: bool,
    /// Slot arrays of initial states (and flags), and of final ones.
    slots: [bool; 2],
    null: i32,
    in_place: bool,
    /// Without h and `v_new`.
    bare: bool,
    variant: Option<Variant>,
    /// On a device without the kernels for Hopper.
    old: bool,
}

impl Case {
    fn plain(lengths: &[usize], heads: usize) -> Case {
        Case {
            lengths: lengths.to_vec(),
            spare_rows: 5,
            heads,
            gate: GateKind::Cumulative,
            every: 1,
            split: false,
            longest: None,
            maps: None,
            ahead: false,
            scheduled: None,
            k_first: [true; 3],
            bf16_states: false,
            slots: [true; 2],
            null: -1,
            in_place: false,
            bare: false,
            variant: None,
            old: false,
        }
    }
}

/// What a call gives, in logical order `[.., HV, K, V]`.
#[derive(PartialEq)]
struct Results {
    h: Vec<f32>,
    v_new: Vec<f32>,
    states: Vec<f32>,
}

struct Inputs {
    kg: Vec<f32>,
    w: Vec<f32>,
    u: Vec<f32>,
    /// Log2 of the decay by row and channel; of a scalar gate the channels agree.
    gate: Vec<f32>,
    initial: Vec<f32>,
    initial_slots: Vec<i32>,
    has_initial: Vec<u8>,
    final_slots: Vec<i32>,
}

fn rounded(x: f32) -> f32 {
    bf16::from_f32(x).to_f32()
}

fn draw(case: &Case, random: &mut Random) -> Inputs {
    let (rows, n) = (case.lengths.iter().sum::<usize>() + case.spare_rows, case.lengths.len());
    let size = rows * case.heads * D;
    let (kg, w) = (random.sparse(size, 64), random.sparse(size, if case.split { 4096 } else { 512 }));
    let u = (0..size).map(|_| random.below(5) as f32 - 2.0).collect();
    let mut gate = Vec::new();
    for _ in 0..rows * case.heads {
        let mut drawn = || match case.split {
            true => {
                if random.below(16) == 0 {
                    -200.0
                } else {
                    0.0
                }
            }
            false => -(random.below(2) as f32),
        };
        let one = drawn();
        gate.extend((0..D).map(|_| if case.gate == GateKind::Scalar { one } else { drawn() }));
    }
    let initial = (0..(n + 2) * case.heads * D * D).map(|_| random.below(9) as f32 - 4.0).collect();
    // Each sequence a slot of its own, the last of them dead where a slot can be.
    let mut slots: Vec<i32> = (0..n as i32).map(|i| (i + 1) % (n as i32 + 2)).collect();
    let mut final_slots = slots.clone();
    if n > 1 {
        (slots[n - 1], final_slots[0]) = (case.null, n as i32 + 2);
    }
    let has_initial = (0..n).map(|i| if i == 1 { 0 } else { 1 + i as u8 }).collect();
    Inputs { kg, w, u, gate, initial, initial_slots: slots, has_initial, final_slots }
}

/// The recurrence, written out.
fn computed(case: &Case, x: &Inputs, h_states: usize) -> Results {
    let (heads, n) = (case.heads, case.lengths.len());
    let rows = x.kg.len() / heads / D;
    let matrix = heads * D * D;
    let states = if case.in_place { x.initial.clone() } else { vec![POISON; x.initial.len()] };
    let mut r = Results { h: vec![POISON; h_states * matrix], v_new: vec![POISON; rows * heads * D], states };
    let live = |slot: i32| slot > case.null && (slot as usize) < n + 2;
    let (mut first, mut h0) = (0, 0);
    for (seq, length) in case.lengths.iter().enumerate() {
        let chunks = length.div_ceil(64);
        for head in 0..heads {
            let slot = if case.slots[0] { x.initial_slots[seq] } else { seq as i32 };
            let mut s = vec![0.0; D * D];
            if (!case.slots[0] || live(slot) && x.has_initial[seq] != 0) && slot >= 0 {
                s.copy_from_slice(&x.initial[slot as usize * matrix + head * D * D..][..D * D]);
            }
            for c in 0..chunks {
                let part = first + 64 * c..(first + 64 * c + 64).min(first + length);
                let h: Vec<f32> = s.iter().map(|e| rounded(*e)).collect();
                assert!(!case.split || h == s, "a state that bf16 does not hold");
                if c % case.every as usize == 0 {
                    let at = (h0 + c / case.every as usize) * matrix + head * D * D;
                    r.h[at..at + D * D].copy_from_slice(&h);
                }
                let last = ((part.end - 1) * heads + head) * D;
                for k in 0..D {
                    let decay = x.gate[last + k].exp2();
                    s[k * D..k * D + D].iter_mut().for_each(|e| *e *= decay);
                }
                for row in part {
                    let at = (row * heads + head) * D;
                    let mut values = x.u[at..at + D].to_vec();
                    for (k, w) in x.w[at..at + D].iter().enumerate().filter(|(_, w)| **w != 0.0) {
                        values.iter_mut().zip(&h[k * D..]).for_each(|(value, h)| *value -= w * h);
                    }
                    let factor = match case.gate {
                        GateKind::Scalar => (x.gate[last] - x.gate[at]).exp2(),
                        _ => 1.0,
                    };
                    for (k, kg) in x.kg[at..at + D].iter().enumerate().filter(|(_, kg)| **kg != 0.0) {
                        s[k * D..].iter_mut().zip(&values).for_each(|(s, v)| *s += kg * rounded(v * factor));
                    }
                    r.v_new[at..].iter_mut().zip(&values).for_each(|(to, value)| *to = rounded(*value));
                }
            }
            let slot = if case.slots[1] { x.final_slots[seq] } else { seq as i32 };
            if !case.slots[1] || live(slot) {
                let to = &mut r.states[slot as usize * matrix + head * D * D..][..D * D];
                to.iter_mut().zip(&s).for_each(|(to, s)| *to = if case.bf16_states { rounded(*s) } else { *s });
            }
        }
        first += length;
        h0 += chunks.div_ceil(case.every as usize);
    }
    r
}

/// Matrices with K and V exchanged in memory if they are to lie `[V, K]`.
fn ordered(values: &[f32], k_first: bool) -> Vec<f32> {
    if k_first {
        return values.to_vec();
    }
    values.chunks(D * D).flat_map(|m| (0..D * D).map(|at| m[at % D * D + at / D])).collect()
}

fn narrow(values: &[f32]) -> Vec<bf16> {
    values.iter().map(|x| bf16::from_f32(*x)).collect()
}

fn run(case: &Case, x: &Inputs) -> Results {
    let executor = match case.old {
        true => SimExecutor::with_capability(Default::default(), (8, 0)),
        false => SimExecutor::default(),
    };
    let (n, heads, bands) = (case.lengths.len() as u64, case.heads as u64, Guarding::BANDS);
    let rows = (x.kg.len() / case.heads / D) as u64;
    let wide = |name, values: &[f32]| DeviceBuffer::of(&executor, name, values, bands).unwrap();
    let half = |name, values: &[f32]| DeviceBuffer::of(&executor, name, &narrow(values), bands).unwrap();
    let of_rows = [rows, heads, 128];
    let (kg, w, u) = (half("kg", &x.kg), half("w", &x.w), half("u", &x.u));
    let mut chunk_gates = Vec::new();
    let mut first = 0;
    for length in &case.lengths {
        for c in 0..length.div_ceil(64) {
            let last = (first + (64 * c + 64).min(*length) - 1) * case.heads * D;
            chunk_gates.extend(x.gate[last..last + case.heads * D].iter().map(|g| g.exp2()));
        }
        first += length;
    }
    let bound = |rows: u64| if n == 0 { 0 } else { n.min(rows) + (rows - n.min(rows)) / 64 };
    chunk_gates.resize((bound(rows) * heads) as usize * D, f32::NAN);
    let scalars: Vec<f32> = x.gate.chunks(D).map(|row| row[0]).collect();
    let gates = wide("gate", [&x.gate[..], &chunk_gates, &scalars][case.gate as usize]);
    let gate = match case.gate {
        GateKind::Cumulative => Gate::Cumulative(gates.dense(Elem::F32, &of_rows).unwrap()),
        GateKind::Decay => Gate::Decay(gates.dense(Elem::F32, &[bound(rows), heads, 128]).unwrap()),
        GateKind::Scalar => Gate::Scalar(gates.dense(Elem::F32, &[rows, heads]).unwrap()),
    };
    let states = |name, values: &[f32], k_first| {
        let values = ordered(values, k_first);
        let elem = if case.bf16_states { Elem::BF16 } else { Elem::F32 };
        let buffer = if case.bf16_states { half(name, &values) } else { wide(name, &values) };
        let like = shape_of_matrices(elem, n + 2, heads, k_first);
        let tensor = buffer.strided(elem, like.shape(), like.strides()).unwrap();
        (buffer, tensor)
    };
    let (initial, initial_state) = states("initial_state", &x.initial, case.k_first[0]);
    let (own, own_state) = states("final_state", &vec![POISON; x.initial.len()], case.k_first[1]);
    let integers = |name, values: &[i32]| DeviceBuffer::of(&executor, name, values, bands).unwrap();
    let (initial_slots, final_slots) =
        (integers("initial_slots", &x.initial_slots), integers("final_slots", &x.final_slots));
    let flags = DeviceBuffer::of(&executor, "has_initial", &x.has_initial, bands).unwrap();
    let given = |at: usize, tensor: TensorArg| case.slots[at].then_some(tensor);
    let mut problem = Problem {
        kg: kg.dense(Elem::BF16, &of_rows).unwrap(),
        w: w.dense(Elem::BF16, &of_rows).unwrap(),
        u: u.dense(Elem::BF16, &of_rows).unwrap(),
        gate,
        initial_state: Some(initial_state),
        initial_slots: given(0, initial_slots.dense(Elem::I32, &[n]).unwrap()),
        has_initial: given(0, flags.dense(Elem::U8, &[n]).unwrap()),
        final_state: Some(if case.in_place { initial_state } else { own_state }),
        final_slots: given(1, final_slots.dense(Elem::I32, &[n]).unwrap()),
        null: case.null,
        h: None,
        v_new: None,
        schedule: kg.dense(Elem::U8, &[0]).unwrap(),
        maps: None,
        sequences: n,
        h_every: case.every,
        split: case.split,
        longest: case.longest,
    };
    let batch = problem.batch();
    let h_states = batch.h_states() as usize;
    let h = half("h", &vec![POISON; h_states * case.heads * D * D]);
    let v_new = half("v_new", &vec![POISON; x.u.len()]);
    if !case.bare {
        let like = shape_of_matrices(Elem::BF16, batch.h_states(), heads, case.k_first[2]);
        problem.h = Some(h.strided(Elem::BF16, like.shape(), like.strides()).unwrap());
        problem.v_new = Some(v_new.dense(Elem::BF16, &of_rows).unwrap());
    }
    let work = DeviceBuffer::new(&executor, "schedule", batch.schedule_bytes(), bands).unwrap();
    let maps = DeviceBuffer::new(&executor, "maps", batch.map_bytes(), bands).unwrap();
    problem.schedule = work.dense(Elem::U8, &[batch.schedule_bytes()]).unwrap();
    problem.maps = (batch.map_bytes() > 0).then(|| maps.dense(Elem::U8, &[batch.map_bytes()]).unwrap());
    let ends: Vec<i32> = std::iter::once(0)
        .chain(case.lengths.iter().scan(0, |end, length| {
            *end += *length as i32;
            Some(*end)
        }))
        .collect();
    let cu = integers("cu_seqlens", &ends);
    let order = Schedule {
        cu_seqlens: cu.dense(Elem::I32, &[n + 1]).unwrap(),
        workspace: problem.schedule,
        chunk_offsets: None,
        rows,
        heads,
        h_every: case.every,
        capacity: problem.h.map(|h| h.shape()[0]),
        split: case.split,
        longest: case.scheduled.or(case.longest),
    };
    let ordered_work = schedule::plan(&order, &executor).expect("a schedule");
    let options = Options { variant: case.variant, maps: case.maps, pdl: true };
    let planned = plan(&problem, &executor, &options).expect("a plan");
    let cut = batch.cut().is_some() && !case.old;
    assert_eq!(planned.launches().len(), if cut { 3 } else { 1 });
    // SAFETY: the buffers outlive the launches, and nothing else uses them.
    unsafe { ordered_work.launch(&executor, Stream::default()) }.expect("the schedule runs");
    let status = Status::read(&problem.schedule, &executor).expect("a status");
    assert!(status.is_whole() && status.sequences == case.lengths.len() as u32, "{status}");
    let long =
        case.lengths.iter().any(|rows| batch.cut().is_some_and(|cut| cut.segments(rows.div_ceil(64) as u64) > 1));
    assert_eq!(status.segments > 0, cut && long, "{status}");
    // The second of several launches starts beside the first, and may be ahead of it.
    let mut launches: Vec<_> = planned.launches().iter().filter(|launch| !launch.is_empty()).collect();
    if case.ahead {
        launches.swap(0, 1);
    }
    for launch in launches {
        // SAFETY: as above.
        unsafe { executor.launch(launch, Stream::default()) }.expect("the call runs");
    }
    for buffer in [&kg, &w, &u, &gates, &initial, &own, &h, &v_new, &work, &maps] {
        buffer.check_canaries().expect("nothing beside it");
    }
    let floats = |buffer: &DeviceBuffer, elem| -> Vec<f32> {
        match elem {
            Elem::BF16 => buffer.download::<bf16>().unwrap().into_iter().map(bf16::to_f32).collect(),
            _ => buffer.download::<f32>().unwrap(),
        }
    };
    let (pool, k_first) = if case.in_place { (&initial, case.k_first[0]) } else { (&own, case.k_first[1]) };
    Results {
        h: ordered(&floats(&h, Elem::BF16), case.k_first[2]),
        v_new: floats(&v_new, Elem::BF16),
        states: ordered(&floats(pool, initial_state.elem), k_first),
    }
}

#[track_caller]
fn check(what: &str, case: &Case) {
    let seed = std::env::var("KDA_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed);
    println!("KDA_SEED={seed} ({what})");
    let x = draw(case, &mut Random(seed));
    let got = run(case, &x);
    let mut want = computed(case, &x, got.h.len() / (case.heads * D * D));
    if case.bare {
        (want.h, want.v_new) = (vec![POISON; got.h.len()], vec![POISON; got.v_new.len()]);
    }
    for (name, got, want) in
        [("h", &got.h, &want.h), ("v_new", &got.v_new, &want.v_new), ("states", &got.states, &want.states)]
    {
        assert_eq!(got.len(), want.len());
        let differ = got.iter().zip(want).position(|(got, want)| got.to_bits() != want.to_bits() && got != want);
        if let Some(at) = differ {
            panic!("{what}: {name} differs at {at} of {}: {} is not {}", got.len(), got[at], want[at]);
        }
    }
}

#[test]
fn sequences_of_any_length() {
    for old in [false, true] {
        check("tails", &Case { old, ..Case::plain(&[64, 1, 63, 65, 0, 130], 1) });
        check("several heads", &Case { old, ..Case::plain(&[70, 0, 128], 3) });
        check("nothing", &Case { old, ..Case::plain(&[0, 0], 2) });
        check("no rows", &Case { old, spare_rows: 0, ..Case::plain(&[0, 0, 0], 2) });
        check("no sequences", &Case { old, ..Case::plain(&[], 2) });
    }
}

#[test]
fn every_way_to_put_a_call() {
    for old in [false, true] {
        every_way(Case { old, ..Case::plain(&[100, 64, 130], 2) });
    }
}

fn every_way(plain: Case) {
    for at in 0..8 {
        let k_first = [at & 1 == 0, at & 2 == 0, at & 4 == 0];
        check("orders", &Case { k_first, bf16_states: at % 3 == 0, ..plain.clone() });
    }
    check("decays", &Case { gate: GateKind::Decay, ..plain.clone() });
    check("a scalar gate", &Case { gate: GateKind::Scalar, ..plain.clone() });
    check("every second state", &Case { every: 2, ..plain.clone() });
    check("a null slot 0", &Case { null: 0, ..plain.clone() });
    check("no slots", &Case { slots: [false; 2], null: 0, ..plain.clone() });
    check("no initial slots", &Case { slots: [false, true], null: 0, ..plain.clone() });
    check("no final slots", &Case { slots: [true, false], null: 0, ..plain.clone() });
    check("in place", &Case { in_place: true, ..plain.clone() });
    check("states alone", &Case { bare: true, ..plain.clone() });
}

#[test]
fn every_variant() {
    for variant in Variant::all().filter(|v| !v.maps() && !v.split()) {
        let gate = if variant.scalar() { GateKind::Scalar } else { GateKind::Cumulative };
        let k_first = [true, true, !variant.v_first()];
        check(variant.desc().entry, &Case { gate, k_first, variant: Some(variant), ..Case::plain(&[65, 130], 2) });
    }
}

/// Narrow slices give what wide ones give, whatever the device: no sum depends on them.
#[test]
fn slices_of_any_width() {
    for variant in DeltaHPortableVariant::ALL {
        let gate = if variant.scalar() { GateKind::Scalar } else { GateKind::Decay };
        let k_first = [false, false, !variant.v_first()];
        let case = Case { gate, k_first, every: 2, bf16_states: true, ..Case::plain(&[130, 0, 70], 1) };
        check(variant.desc().entry, &Case { old: true, variant: Some(variant.into()), ..case });
    }
}

/// A batch that would be cut where segments can be is whole on a device where they cannot.
#[test]
fn long_sequences_are_whole_on_other_devices() {
    check("whole", &Case { split: true, old: true, ..Case::plain(&[50, 3200], 1) });
}

#[test]
fn long_sequences_in_segments() {
    for (in_place, h_first, vs) in [(false, true, 32), (true, false, 64)] {
        let (lengths, k_first) = ([50, 3200], [true, true, h_first]);
        let maps = Variant::all().find(|v| v.maps() && v.vs() == vs);
        let case = Case { split: true, in_place, maps, k_first, ..Case::plain(&lengths, 1) };
        check("segments", &case);
        check("first segments ahead", &Case { ahead: true, ..case });
    }
}

/// With 8 heads first segments are longer, and maps are of slices of 64 columns.
#[test]
fn eight_heads_in_segments() {
    check("eight heads", &Case { split: true, ..Case::plain(&[80 * 64 - 20], 8) });
    let case =
        Case { split: true, in_place: true, k_first: [false; 3], every: 3, ..Case::plain(&[90, 80 * 64 + 1], 7) };
    check("seven heads", &case);
}

/// States of nothing but first chunks.
#[test]
fn first_states_alone() {
    for old in [false, true] {
        check("first states", &Case { every: u32::MAX, old, ..Case::plain(&[130, 70, 0, 200], 1) });
    }
}

/// A call whose lists lie elsewhere than those of the schedule does nothing.
#[test]
fn a_schedule_of_another_batch() {
    let case = Case { split: true, ..Case::plain(&[2000; 6], 1) };
    let x = draw(&case, &mut Random(5));
    let got = run(&Case { scheduled: Some(2000), ..case.clone() }, &x);
    assert!(got.h.iter().chain(&got.v_new).chain(&got.states).all(|x| x.to_bits() == POISON.to_bits()));
    assert!(run(&case, &x).v_new.iter().any(|x| x.to_bits() != POISON.to_bits()));
}

/// A host that knows the longest sequence has the bits of one that does not, and one launch where that is too short to be cut.
#[test]
fn sequences_known_to_be_short() {
    let case = Case { split: true, ..Case::plain(&[1800, 0, 1300], 1) };
    for longest in [None, Some(1800)] {
        check("short", &Case { longest, ..case.clone() });
    }
    // Too short for as many segments as the batch has room for otherwise.
    check("fewer segments", &Case { split: true, longest: Some(2900), ..Case::plain(&[2900, 70, 2500, 0], 1) });
}
