//! What only a device shows of `tc_verify` and `tc_commit`: streams at once, dependent launches, graphs, many repeats. Without a
//! device these tests say so and end; with `KDA_REQUIRE_CUDA` set they fail.

mod common;

use common::{device, on};
use kda::checks::tc_verify::call::{Call, Results};
use kda::checks::tc_verify::case::{Case, Plan};
use kda::checks::{Device, tc_commit, tc_verify};
use kda::core::Elem;
use kda::core::exec::{Executor, Stream};
use kda::reference::conv::TapType;
use kda::reference::tc_verify::ConvOrder;
use kda::reference::tc_verify::sample::Switches;
use kda::runtime::DeviceBuffer;
use kda::runtime::executor::cuda::CudaExecutor;
use kda::runtime::operators::tc_commit::{self as commit, plan as plan_commit};
use kda::runtime::operators::tc_verify::{Options, plan};

const SEED: u64 = 3;
/// Launches after which the history of a call that is repeated stays as it is: its rows 0 to 2 are then the first token.
const SETTLED: usize = 4;

/// A call with a convolution whose history rolls, for Hopper or the portable kernel, with tickets or without.
fn rolling(n: usize, heads: usize, kind: usize) -> Case {
    let switches = Switches {
        taps: Some(if kind.is_multiple_of(2) { TapType::Bf16 } else { TapType::F32 }),
        order: if kind % 4 < 2 { ConvOrder::TokenMajor } else { ConvOrder::ChannelMajor },
        lower_bound: (kind % 3 != 2).then_some(-5.0),
        bf16_state: kind < 6,
        ragged: true,
        nulls: true,
        ..Switches::plain(n, heads, 8)
    };
    Plan { counters: kind.is_multiple_of(2), ..Plan::of(switches) }.draw(SEED + kind as u64)
}

/// The results of launching the call so many times, one after the other.
fn repeated(device: Device, case: &Case, times: usize) -> Results {
    let call = Call::new(device, case).expect("memory");
    for _ in 0..times {
        call.enqueue(&Options::default(), Stream::default()).expect("the call runs");
        device.executor.synchronize(Stream::default()).expect("no fault");
    }
    call.results().expect("results")
}

/// Bits that differ, and what must not have changed.
fn unlike(results: &Results, expected: &Results) -> (usize, usize) {
    (results.differing_bits(expected), results.changed)
}

#[test]
fn two_streams_at_once() {
    const TIMES: usize = 200;
    let Some((first, _guard)) = device() else { return };
    let second = CudaExecutor::open(0).expect("the device again");
    let cases = [rolling(60, 12, 0), rolling(50, 5, 1)];
    let expected = cases.each_ref().map(|case| repeated(on(&first), case, SETTLED));
    let calls = [(&first, &cases[0]), (&second, &cases[1])]
        .map(|(executor, case)| (executor, Call::new(on(executor), case).expect("memory")));
    for _ in 0..TIMES {
        for (executor, call) in &calls {
            call.enqueue(&Options::default(), executor.own_stream()).expect("the call runs");
        }
    }
    for ((executor, call), expected) in calls.iter().zip(&expected) {
        executor.synchronize(executor.own_stream()).expect("no fault");
        assert_eq!(unlike(&call.results().expect("results"), expected), (0, 0));
    }
}

/// Two graphs whose replays overlap.
#[test]
fn two_graphs_at_once() {
    const TIMES: usize = 200;
    let Some((first, _guard)) = device() else { return };
    let second = CudaExecutor::open(0).expect("the device again");
    let cases = [rolling(60, 12, 0), rolling(50, 5, 1)];
    let expected = cases.each_ref().map(|case| repeated(on(&first), case, SETTLED));
    let executors = [&first, &second];
    let calls: [Call; 2] = std::array::from_fn(|i| Call::new(on(executors[i]), &cases[i]).expect("memory"));
    let graphs: [_; 2] = std::array::from_fn(|i| {
        let planned = plan(&calls[i].problem, executors[i], &Options::default()).expect("a plan");
        executors[i].warm(planned.desc()).expect("the kernel loads");
        // SAFETY: the buffers of the call outlive every replay.
        executors[i].capture(|executor| unsafe { planned.launch(executor, executor.own_stream()) }).expect("a graph")
    });
    for _ in 0..TIMES {
        for (executor, graph) in executors.iter().zip(&graphs) {
            // SAFETY: as above; the stream is the executor's own.
            unsafe { graph.launch(executor.own_stream()) }.expect("a replay");
        }
    }
    for ((executor, call), expected) in executors.iter().zip(&calls).zip(&expected) {
        executor.synchronize(executor.own_stream()).expect("no fault");
        assert_eq!(unlike(&call.results().expect("results"), expected), (0, 0));
    }
}

/// 100,000 launches give the bits of one, with and without dependent launches.
#[test]
fn repeats_are_bit_equal() {
    const ROUNDS: usize = 25;
    const TIMES: usize = 1000;
    let Some((executor, _guard)) = device() else { return };
    for (n, heads, kind) in [(1, 12, 0), (40, 12, 0), (30, 5, 1), (9, 3, 6)] {
        let case = rolling(n, heads, kind);
        let expected = repeated(on(&executor), &case, SETTLED);
        let call = Call::new(on(&executor), &case).expect("memory");
        for round in 0..ROUNDS {
            let options = Options { pdl: round % 2 == 1, stable_pools: round % 4 == 3, ..Options::default() };
            for _ in 0..TIMES {
                call.enqueue(&options, Stream::default()).expect("the call runs");
            }
            executor.synchronize(Stream::default()).expect("no fault");
            let results = call.results().expect("results");
            assert_eq!(unlike(&results, &expected), (0, 0), "B {n}, H {heads}, kind {kind}, {options:?}");
        }
    }
}

/// A commit writes the states that the next verify reads; each may start while its predecessor still runs.
#[test]
fn steps_of_dependent_launches_give_the_bits_of_plain_ones() {
    const STEPS: usize = 60;
    let Some((executor, _guard)) = device() else { return };
    for (n, heads, kind) in [(2, 12, 0), (40, 12, 1), (100, 3, 2), (12, 4, 6)] {
        let case = rolling(n, heads, kind);
        let counts: Vec<i32> = (0..n).map(|b| 1 + (b % 8) as i32).collect();
        let steps = |pdl: bool| {
            let device = on(&executor);
            let call = Call::new(device, &case).expect("memory");
            let counts = DeviceBuffer::of(&executor, "counts", &counts, device.guarding).expect("memory");
            let p = call.problem;
            let problem = commit::Problem {
                state: p.state,
                corr: p.corr,
                kg: p.kg,
                a_log: p.a_log,
                dt_bias: p.dt_bias,
                conv: None,
                slots: p.slots,
                destinations: None,
                counts: counts.dense(Elem::I32, &[n as u64]).expect("a tensor"),
                boundary: None,
                layers: None,
                gate: p.gate,
                null: p.null,
            };
            let options = commit::Options { pdl, ..commit::Options::default() };
            let committing = plan_commit(&problem, &executor, &options).expect("a plan");
            for _ in 0..STEPS {
                call.enqueue(&Options { pdl, ..Options::default() }, Stream::default()).expect("the verify runs");
                if !pdl {
                    executor.synchronize(Stream::default()).expect("no fault");
                }
                // SAFETY: the buffers of the call and the counts live until the results have been read.
                unsafe { committing.launch(&executor, Stream::default()) }.expect("the commit runs");
                if !pdl {
                    executor.synchronize(Stream::default()).expect("no fault");
                }
            }
            executor.synchronize(Stream::default()).expect("no fault");
            let mut state = vec![0; usize::try_from(p.state.bytes).expect("a size")];
            executor.read(p.state.ptr, &mut state).expect("the states");
            (call.results().expect("results"), state)
        };
        let ((plain, state), (dependent, other)) = (steps(false), steps(true));
        assert_eq!(plain.differing_bits(&dependent), 0, "B {n}, H {heads}, kind {kind}");
        assert!(state == other, "B {n}, H {heads}, kind {kind}: states");
    }
}

/// A graph reads lengths, slots and counts when it is replayed, not when it is captured.
#[test]
fn a_captured_call_replays_with_other_lengths() {
    let Some((executor, _guard)) = device() else { return };
    for kind in [0, 1, 2, 6] {
        let captured = rolling(40, 12, kind);
        let mut changed = captured.clone();
        let sample = &mut changed.sample;
        sample.slot_of.reverse();
        sample.slot_of[3] = -7;
        sample.accepted.rotate_left(5);
        // Requests move their rows, and some lose them.
        let total = *sample.query_start.last().expect("an offset");
        sample.query_start.iter_mut().enumerate().for_each(|(b, row)| *row = (*row).min(total - 40 + b as i32));
        for (pdl, stable_pools) in [(false, false), (true, false), (true, true)] {
            let options = Options { pdl, stable_pools, ..Options::default() };
            let eager = Call::new(on(&executor), &changed).expect("memory");
            let expected = eager.run(&Options::default()).expect("the call runs");
            let call = Call::new(on(&executor), &captured).expect("memory");
            let planned = plan(&call.problem, &executor, &options).expect("a plan");
            executor.warm(planned.desc()).expect("the kernel loads");
            let graph = executor
                // SAFETY: the buffers of the call outlive every replay.
                .capture(|executor| unsafe { planned.launch(executor, executor.own_stream()) })
                .expect("a graph");
            let accepted = call.problem.convolution.expect("a convolution").accepted;
            let sample = &changed.sample;
            for (ptr, values) in [
                (call.problem.slots.ptr, &sample.slot_of),
                (call.problem.query_start.ptr, &sample.query_start),
                (accepted.ptr, &sample.accepted),
            ] {
                let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                executor.write(ptr, &bytes).expect("the metadata are written");
            }
            // SAFETY: as above; the stream is the executor's own.
            unsafe { graph.launch(executor.own_stream()) }.expect("a replay");
            executor.synchronize(executor.own_stream()).expect("no fault");
            let results = call.results().expect("results");
            assert_eq!(unlike(&results, &expected), (0, 0), "kind {kind}, {options:?}");
        }
    }
}

/// Each variant on its sample problem: short enough for a sanitizer's tools.
#[test]
fn each_variant_on_its_sample_problem() {
    let Some((executor, _guard)) = device() else { return };
    let families =
        [kda_kernels::tc_verify::DESCS, kda_kernels::tc_verify_portable::DESCS, kda_kernels::tc_commit::DESCS];
    for (family, descs) in families.into_iter().enumerate() {
        for desc in descs.iter().filter(|desc| desc.arch.runs_on(9, 0)) {
            for seed in [SEED, SEED + 1] {
                let mut wrong = Vec::new();
                let sink: &mut dyn FnMut(kda::checks::Measured, f64) = &mut |row, _| {
                    if !row.passes() {
                        wrong.push(format!("{}: {} > {}", row.output, row.error, row.budget));
                    }
                };
                let run = match family {
                    2 => tc_commit::sample(on(&executor), desc, seed, sink),
                    _ => tc_verify::sample(on(&executor), desc, seed, sink),
                };
                run.unwrap_or_else(|cause| panic!("{}: {cause}", desc.entry));
                assert!(wrong.is_empty(), "{}, seed {seed}: {wrong:?}", desc.entry);
            }
        }
    }
}
