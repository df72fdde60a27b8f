//! What only a device shows of `delta_h`: graphs whose boundaries change, streams at once, dependent launches, sizes. Without a
//! device these tests say so and end; with `KDA_REQUIRE_CUDA` set they fail.

mod common;

use common::{device, on};
use kda::checks::delta_h::call::{Call, Results};
use kda::checks::delta_h::case::{Case, Plan};
use kda::checks::delta_h::{judge, large};
use kda::checks::{Device, Measured};
use kda::core::exec::Executor;
use kda::core::{KernelDesc, PreparedLaunch};
use kda::mutate::subject::compile_with_arrivals;
use kda::reference::delta_h::sample::{GateForm, PoolForm, Strength, Switches};
use kda::reference::layout::StateOrder;
use kda::runtime::executor::cuda::CudaExecutor;
use kda::runtime::executor::sim::SimExecutor;
use kda::runtime::operators::delta_h::{Options, Variant, plan, schedule};
use kda_codegen::specialise::Arrivals;
use kda_kernels::SOURCES;
use std::collections::BTreeSet;

const SEED: u64 = 3;

/// Whole sequences and cut ones, with both orders of h, a scalar gate, and states in place.
fn calls() -> Vec<Case> {
    let slots = Switches { initial: PoolForm::Slots, final_state: PoolForm::Slots, ..Switches::plain(2) };
    let scalar = Switches { gate: GateForm::Scalar, h: 1, ..slots };
    let v_first = Switches { h_order: StateOrder::VFirst, order: StateOrder::VFirst, bf16_state: true, ..slots };
    let heads = |count: usize| Switches { h: count, hv: count, ..slots };
    let calls: Vec<Case> = [
        Plan::of(&[300, 0, 64, 1, 65], slots),
        Plan::of(&[300, 0, 64, 1, 65], v_first),
        Plan::of(&[130, 200], scalar),
        Plan::of(&[500, 700], heads(40)),
        Plan::of(&[500, 700], heads(20)),
        Plan::cut(&[3100, 90, 4000], slots),
        Plan::cut(&[3100, 0, 4000], Switches { in_place: true, ..v_first }),
        Plan::cut(&[90, 6400], heads(8)),
    ]
    .iter()
    .enumerate()
    .map(|(at, plan)| plan.draw(SEED + at as u64))
    .collect();
    // Every width of slices, in clusters and not, and segments.
    let simulator = SimExecutor::default();
    let chosen = |case: &Case| {
        let call = Call::new(Device::simulator(&simulator), case).expect("memory");
        let chosen = plan(&call.problem, &simulator, &Options::default()).expect("a plan");
        Variant::of(chosen.desc()).map(|v| (v.vs(), v.split())).expect("a variant")
    };
    let kinds: BTreeSet<(u32, bool)> = calls.iter().map(chosen).collect();
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), [(16, false), (32, false), (32, true), (64, false)]);
    calls
}

fn eager(device: Device, case: &Case) -> Results {
    Call::new(device, case).expect("memory").run(&Options::default()).expect("the call runs")
}

/// Nothing that a launch leaves behind, and nothing that happens at the same time, changes a bit.
#[test]
fn many_launches_give_the_same_bits() {
    let Some((executor, _guard)) = device() else { return };
    for (at, case) in calls().iter().enumerate() {
        let expected = eager(on(&executor), case);
        let call = Call::new(on(&executor), case).expect("memory");
        for turn in 0..40 {
            call.restore().expect("memory");
            call.enqueue_schedule(executor.own_stream()).expect("the schedule runs");
            let options = Options { pdl: turn % 2 == 1, ..Options::default() };
            call.enqueue(&options, executor.own_stream()).expect("the call runs");
            executor.synchronize(executor.own_stream()).expect("no fault");
            let results = call.results().expect("results");
            assert_eq!((results.differing_bits(&expected), results.changed_inputs), (0, 0), "call {at}, turn {turn}");
        }
    }
}

/// Launches one behind the other without a wait of the host, each reading the states that the one before wrote.
#[test]
fn dependent_launches_give_the_bits_of_plain_ones() {
    let Some((executor, _guard)) = device() else { return };
    let slots = Switches { initial: PoolForm::Slots, final_state: PoolForm::Slots, ..Switches::plain(2) };
    let in_place = Switches { in_place: true, strength: Strength::Weak, ..slots };
    let wide = Switches { h: 20, hv: 20, ..in_place };
    for plan in [Plan::of(&[100, 0, 200], in_place), Plan::of(&[500, 700], wide), Plan::cut(&[3100, 4000], in_place)] {
        let mut case = plan.draw(SEED);
        // Each state is its own successor.
        case.sample.final_slots = case.sample.initial_slots.clone();
        let repeated = |pdl: bool, wait: bool| {
            let call = Call::new(on(&executor), &case).expect("memory");
            call.enqueue_schedule(executor.own_stream()).expect("the schedule runs");
            for _ in 0..20 {
                call.enqueue(&Options { pdl, ..Options::default() }, executor.own_stream()).expect("the call runs");
                if wait {
                    executor.synchronize(executor.own_stream()).expect("no fault");
                }
            }
            executor.synchronize(executor.own_stream()).expect("no fault");
            call.results().expect("results")
        };
        let expected = repeated(false, true);
        for pdl in [false, true] {
            assert_eq!(repeated(pdl, false).differing_bits(&expected), 0, "{plan:?}, pdl {pdl}");
        }
    }
}

/// A graph of schedule and call reads boundaries when it is replayed, not when it is captured.
#[test]
fn a_captured_call_replays_with_other_boundaries() {
    let Some((executor, _guard)) = device() else { return };
    let slots = Switches { initial: PoolForm::Slots, final_state: PoolForm::Slots, ..Switches::plain(2) };
    let plain = Switches { h_every: 2, spare_rows: 10, ..slots };
    let whole: [&[usize]; 3] = [&[100, 64, 0, 36], &[1, 60, 128, 0], &[0, 0, 0, 0]];
    let cut: [&[usize]; 3] = [&[3100, 50, 50], &[20, 3090, 90], &[1000, 1100, 1100]];
    for (split, lengths) in [(false, whole), (true, cut)] {
        let rows: usize = lengths[0].iter().sum();
        // Rows are those of the first draw, whatever the boundaries: data of others are drawn for them.
        let cases: Vec<Case> = lengths
            .iter()
            .enumerate()
            .map(|(at, lengths)| {
                let spare_rows = plain.spare_rows + rows - lengths.iter().sum::<usize>();
                let plan = Plan { split, ..Plan::of(lengths, Switches { spare_rows, ..plain }) };
                plan.draw(SEED + at as u64)
            })
            .collect();
        for case in &cases {
            // Captured with other boundaries than those that it replays with.
            let call = Call::new(on(&executor), case).expect("memory");
            let other = cases.iter().find(|other| !std::ptr::eq(*other, case)).expect("another");
            let expected = eager(on(&executor), case);
            call.set_boundaries(&other.sample.cu_seqlens).expect("boundaries");
            let first = schedule::plan(&call.schedule, &executor).expect("a schedule");
            let second = plan(&call.problem, &executor, &Options::default()).expect("a plan");
            for launch in first.launches().iter().chain(second.launches()) {
                executor.warm(launch.desc).expect("the kernel loads");
            }
            let graph = executor
                .capture(|executor| {
                    // SAFETY: the buffers of the call outlive every replay.
                    unsafe { first.launch(executor, executor.own_stream()) }?;
                    // SAFETY: as above.
                    unsafe { second.launch(executor, executor.own_stream()) }
                })
                .expect("a graph");
            for turn in 0..3 {
                call.restore().expect("memory");
                call.set_boundaries(&case.sample.cu_seqlens).expect("boundaries");
                // SAFETY: as above; the stream is the executor's own.
                unsafe { graph.launch(executor.own_stream()) }.expect("a replay");
                executor.synchronize(executor.own_stream()).expect("no fault");
                let results = call.results().expect("results");
                let cu = &case.sample.cu_seqlens;
                assert_eq!((results.differing_bits(&expected), results.changed_inputs), (0, 0), "{cu:?}, {turn}");
                assert_eq!(results.offsets, expected.offsets, "{cu:?}");
            }
        }
    }
}

#[test]
fn two_streams_at_once() {
    let Some((first, _guard)) = device() else { return };
    let second = CudaExecutor::open(0).expect("the device again");
    let cases = calls();
    for pair in cases.chunks(2) {
        let expected: Vec<Results> = pair.iter().map(|case| eager(on(&first), case)).collect();
        for turn in 0..15 {
            let calls: Vec<_> = [&first, &second]
                .into_iter()
                .zip(pair)
                .map(|(executor, case)| (executor, Call::new(on(executor), case).expect("memory")))
                .collect();
            for (executor, call) in &calls {
                call.enqueue_schedule(executor.own_stream()).expect("the schedule runs");
                call.enqueue(&Options::default(), executor.own_stream()).expect("the call runs");
            }
            for ((executor, call), expected) in calls.iter().zip(&expected) {
                executor.synchronize(executor.own_stream()).expect("no fault");
                assert_eq!(call.results().expect("results").differing_bits(expected), 0, "turn {turn}");
            }
        }
    }
}

/// Many short sequences: a CTA goes from one to the next while its warps are still apart, and copies of the next one's first
/// stages follow as soon as those are given back. All variants for Hopper give the right results, and every launch the same bits.
#[test]
fn many_sequences() {
    let Some((executor, _guard)) = device() else { return };
    let hopper = |v: &Variant| v.boxes() && !v.maps() && !v.split() && !v.v_first();
    for (count, hv, gate) in
        [(300, 2, GateForm::Cumulative), (1500, 1, GateForm::Cumulative), (300, 2, GateForm::Scalar)]
    {
        let lengths: Vec<usize> = (0..count).map(|n| [0, 1, 64, 70, 129, 33][(n * 7 + n / 6) % 6]).collect();
        let slots = PoolForm::Slots;
        let switches = Switches { initial: slots, final_state: slots, dead: true, gate, ..Switches::plain(hv) };
        let case = Plan::of(&lengths, switches).draw(SEED);
        let mut tallies = judge::Tallies::new();
        judge::one_case(on(&executor), &case, 5, &mut tallies).expect("it runs");
        assert!(!tallies.is_empty());
        for (entry, tally) in &tallies {
            for row in tally.rows(entry) {
                assert!(row.passes(), "{row:?}");
            }
        }
        let expected = eager(on(&executor), &case);
        let fit = |v: &Variant| hopper(v) && v.scalar() == (gate == GateForm::Scalar);
        let variants: Vec<Variant> = Variant::all().filter(fit).collect();
        assert_eq!(variants.len(), 3);
        for (variant, turn) in variants.iter().flat_map(|v| (0..3).map(move |turn| (*v, turn))) {
            let call = Call::new(on(&executor), &case).expect("memory");
            let options = Options { variant: Some(variant), pdl: turn % 2 == 1, ..Options::default() };
            let results = call.run(&options).expect("the call runs");
            assert_eq!(results.differing_bits(&expected), 0, "{count} sequences, {}", variant.desc().entry);
        }
    }
}

/// NaN in all rows of a sequence changes no other one, on either side of it, whole or cut.
#[test]
fn nan_stays_in_its_sequence() {
    let Some((executor, _guard)) = device() else { return };
    for case in calls() {
        let expected = eager(on(&executor), &case);
        let p = case.sample.problem();
        let sequences = p.schedule().sequences;
        for ill in sequences.iter().filter(|s| s.chunks() > 0) {
            let results = eager(on(&executor), &case.with_nan(ill.n));
            for other in sequences.iter().filter(|s| s.n != ill.n) {
                let (a, b) = (judge::own_bits(&case, &expected, other.n), judge::own_bits(&case, &results, other.n));
                assert!(a == b, "NaN of sequence {} is in {}", ill.n, other.n);
            }
        }
    }
}

#[test]
fn tensors_of_more_than_2_to_the_32_elements() {
    let Some((executor, _guard)) = device() else { return };
    let mut rows: Vec<Measured> = Vec::new();
    let variants: Vec<Variant> = Variant::all().collect();
    large::run(on(&executor), &variants, SEED, &mut |row, _| rows.push(row), 1.0).expect("memory");
    assert_eq!(rows.len(), large::Tensor::ALL.len());
    for row in rows {
        assert!(row.passes(), "{row:?}");
    }
}

/// A million rows, tiles of the same ones: decays leave nothing of a state behind a chunk, so that every tile has the bits of
/// one alone, wherever it lies, in whole sequences and in segments.
#[test]
fn a_million_rows() {
    const TILE: usize = 4096;
    const TILES: usize = 256;
    let Some((executor, _guard)) = device() else { return };
    let strong = Switches { strength: Strength::Strong, initial: PoolForm::Absent, ..Switches::plain(1) };
    let small = Plan::of(&[TILE], strong).draw(SEED);
    let tile = eager(on(&executor), &small);
    for (split, bounds) in [(true, &[0, TILES][..]), (false, &[0, TILES]), (true, &[0, 170, 170, TILES])] {
        let mut case = small.clone();
        let s = &mut case.sample;
        (s.kg, s.w, s.u) = (s.kg.repeat(TILES), s.w.repeat(TILES), s.u.repeat(TILES));
        (s.gate, s.rows) = (s.gate.repeat(TILES), TILES * TILE);
        s.cu_seqlens = bounds.iter().map(|tile| (tile * TILE) as i64).collect();
        s.final_count = bounds.len() - 1;
        case.split = split;
        case.states = case.batch().h_states() as usize;
        case.sample.capacity = case.states;
        assert_eq!(case.batch().cut().is_some(), split);
        let results = eager(on(&executor), &case);
        let (rows, states) = (TILE * 128, TILE / 64 * 128 * 128);
        for at in 0..TILES {
            let first = bounds.contains(&at);
            // Of a tile behind another one the first chunk starts from its state.
            let (skip_rows, skip_states) = if first { (0, 0) } else { (64 * 128, 128 * 128) };
            let v_new = &results.v_new[at * rows..(at + 1) * rows];
            assert!(v_new[skip_rows..] == tile.v_new[skip_rows..], "v_new of tile {at}, split {split}");
            let h = &results.h[at * states..(at + 1) * states];
            assert!(h[skip_states..] == tile.h[skip_states..], "h of tile {at}, split {split}");
            if !first {
                let (second, second_h) = (&results.v_new[rows..rows + skip_rows], &results.h[states..][..skip_states]);
                assert!(v_new[..skip_rows] == *second && h[..skip_states] == *second_h, "tile {at}, split {split}");
            }
        }
    }
}

/// A warp arrives by one lane for all of them, behind a warp barrier. racecheck knows a thread's own arrivals alone and reports what
/// the other lanes did; where every lane arrives for itself it has nothing to report, and the results are as right.
#[test]
fn arrivals_of_every_lane() {
    let Some((executor, _guard)) = device() else { return };
    let slots = Switches { initial: PoolForm::Slots, final_state: PoolForm::Slots, ..Switches::plain(2) };
    for switches in [slots, Switches { gate: GateForm::Scalar, h: 1, ..slots }] {
        let case = Plan::of(&[300, 0, 64, 1, 65], switches).draw(SEED);
        let call = Call::new(on(&executor), &case).expect("memory");
        call.enqueue_schedule(executor.own_stream()).expect("the schedule runs");
        let planned = plan(&call.problem, &executor, &Options::default()).expect("a plan");
        for launch in planned.launches().iter().filter(|launch| !launch.is_empty()) {
            assert_eq!(launch.desc.cluster, 1, "{}: lanes arrive in their own CTA", launch.desc.entry);
            let source = SOURCES.iter().find(|source| source.family == launch.desc.family).expect("its source");
            let compiled = compile_with_arrivals(launch.desc, source, source.text, Arrivals::Lane);
            let compiled = compiled.unwrap_or_else(|errors| panic!("{}: {errors:?}", launch.desc.entry));
            assert_ne!(compiled.ptx, launch.desc.ptx);
            let (isa, shared_bytes, pdl) = (compiled.isa, compiled.shared_bytes, compiled.pdl);
            let desc = KernelDesc { isa, shared_bytes, pdl, ..*launch.desc }.with_text(compiled.ptx);
            let launch = PreparedLaunch { desc, ..launch.clone() };
            // SAFETY: the buffers of the call outlive the launch, which is waited for.
            unsafe { executor.launch(&launch, executor.own_stream()) }.expect("it runs");
        }
        executor.synchronize(executor.own_stream()).expect("no fault");
        let mut tally = judge::Tally::default();
        let expected = judge::Expected::of(&case).expect("the golden model runs");
        tally.judge(&call.results().expect("results"), &expected).expect("a valid call");
        for row in tally.rows("every lane") {
            assert!(row.passes(), "{row:?}");
        }
    }
}

/// Each variant on its sample problem: short enough for a sanitizer's tools.
#[test]
fn each_variant_on_its_sample_problem() {
    let Some((executor, _guard)) = device() else { return };
    let families = kda::checks::operators();
    let wide = kda_kernels::delta_h::DESCS.iter().chain(kda_kernels::delta_h_portable::DESCS);
    for desc in wide.chain(kda_kernels::delta_h_narrow::DESCS).chain(kda_kernels::delta_h_schedule::DESCS) {
        let operator = families.iter().find(|operator| operator.name == desc.family).expect("its operator");
        for seed in [SEED, SEED + 1] {
            let mut wrong = Vec::new();
            let run = (operator.sample)(on(&executor), desc, seed, &mut |row, _| {
                if !row.passes() {
                    wrong.push(format!("{}: {} > {}", row.output, row.error, row.budget));
                }
            });
            run.unwrap_or_else(|cause| panic!("{}: {cause}", desc.entry));
            assert!(wrong.is_empty(), "{}, seed {seed}: {wrong:?}", desc.entry);
        }
    }
}
