//! What only a device shows of `decode`: streams at once, dependent launches, graphs. Without a device these tests say so and
//! end; with `KDA_REQUIRE_CUDA` set they fail.

mod common;

use common::{device, on};
use kda::checks::Device;
use kda::checks::decode::call::{Call, Results};
use kda::checks::decode::case::{Case, Plan};
use kda::core::exec::{Executor, Stream};
use kda::reference::decode::sample::Switches;
use kda::reference::layout::StateOrder;
use kda::runtime::executor::cuda::CudaExecutor;
use kda::runtime::operators::decode::{Options, Tokens, plan};

const SEED: u64 = 3;

/// A call whose state and histories make every launch depend on the one before.
fn rolling(n: usize, kind: usize, seed: u64) -> Case {
    let order = if kind.is_multiple_of(2) { StateOrder::VFirst } else { StateOrder::KFirst };
    let switches = Switches {
        order,
        bf16_state: kind >= 2,
        bias: true,
        bf16_pool: kind % 2 == 1,
        channels_innermost: kind >= 2,
        ..Switches::plain(n, 4, 8)
    };
    Plan::of(switches).draw(seed)
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

#[test]
fn two_streams_at_once() {
    const TIMES: usize = 200;
    let Some((first, _guard)) = device() else { return };
    let second = CudaExecutor::open(0).expect("the device again");
    let cases = [rolling(6, 0, SEED), rolling(5, 3, SEED + 1)];
    let expected = cases.each_ref().map(|case| repeated(on(&first), case, TIMES));
    let calls = [(&first, &cases[0]), (&second, &cases[1])]
        .map(|(executor, case)| (executor, Call::new(on(executor), case).expect("memory")));
    for _ in 0..TIMES {
        for (executor, call) in &calls {
            call.enqueue(&Options::default(), executor.own_stream()).expect("the call runs");
        }
    }
    for ((executor, call), expected) in calls.iter().zip(&expected) {
        executor.synchronize(executor.own_stream()).expect("no fault");
        let results = call.results().expect("results");
        assert_eq!((results.differing_bits(expected), results.counters), (0, 0));
    }
}

/// Every launch reads the states and the histories that the one before it wrote.
#[test]
fn dependent_launches_give_the_bits_of_plain_ones() {
    const TIMES: usize = 1000;
    let Some((executor, _guard)) = device() else { return };
    for (n, kind) in [(1, 0), (1, 1), (8, 0), (40, 1), (3, 2), (20, 3)] {
        let case = rolling(n, kind, SEED);
        let expected = repeated(on(&executor), &case, TIMES);
        let call = Call::new(on(&executor), &case).expect("memory");
        let options = Options { pdl: true, ..Options::default() };
        for _ in 0..TIMES {
            call.enqueue(&options, Stream::default()).expect("the call runs");
        }
        let results = call.results().expect("results");
        assert_eq!((results.differing_bits(&expected), results.counters), (0, 0), "N {n}, kind {kind}");
    }
}

/// A graph reads indices when it is replayed, not when it is captured.
#[test]
fn a_captured_call_replays_with_other_slots() {
    let Some((executor, _guard)) = device() else { return };
    let captured = Plan::of(Switches { null: 0, ..Switches::plain(4, 2, 4) }).draw(SEED);
    let mut changed = captured.clone();
    changed.sample.conv_slots.reverse();
    changed.sample.slots.rotate_left(1);
    changed.sample.conv_slots[2] = 0;
    changed.sample.slots[1] = -7;
    for pdl in [false, true] {
        let options = Options { pdl, ..Options::default() };
        let expected = Call::new(on(&executor), &changed).expect("memory").run(None).expect("the call runs");
        let call = Call::new(on(&executor), &captured).expect("memory");
        let planned = plan(&call.problem, &executor, &options).expect("a plan");
        executor.warm(planned.desc()).expect("the kernel loads");
        let graph = executor
            // SAFETY: the buffers of the call outlive every replay.
            .capture(|executor| unsafe { planned.launch(executor, executor.own_stream()) })
            .expect("a graph");
        let Tokens::Convolved(convolution) = &call.problem.tokens else { panic!("the call has a convolution") };
        let sample = &changed.sample;
        for (ptr, map) in [(convolution.slots.ptr, &sample.conv_slots), (call.problem.state_slots.ptr, &sample.slots)] {
            let bytes: Vec<u8> = map.iter().flat_map(|index| index.to_le_bytes()).collect();
            executor.write(ptr, &bytes).expect("the indices are written");
        }
        // SAFETY: as above; the stream is the executor's own.
        unsafe { graph.launch(executor.own_stream()) }.expect("a replay");
        let results = call.results().expect("results");
        assert_eq!((results.differing_bits(&expected), results.counters), (0, 0), "pdl {pdl}");
    }
}

#[test]
fn options_of_the_device_reach_the_driver() {
    let Some((executor, _guard)) = device() else { return };
    for kind in 0..4 {
        let case = rolling(3, kind, SEED);
        let expected = Call::new(on(&executor), &case).expect("memory").run(None).expect("the call runs");
        for (pdl, stable_pools, evict_first) in
            [(false, false, true), (false, true, false), (true, true, true), (true, true, false), (true, false, true)]
        {
            let call = Call::new(on(&executor), &case).expect("memory");
            let options = Options { pdl, stable_pools, evict_first, ..Options::default() };
            call.enqueue(&options, executor.own_stream()).expect("the call runs");
            let results = call.results().expect("results");
            assert_eq!((results.differing_bits(&expected), results.counters), (0, 0), "{options:?}");
        }
    }
}

/// More than 65,535 pairs: N·HV counts CTAs along two axes of the grid.
#[test]
fn more_pairs_than_an_axis_of_the_grid_has() {
    let Some((executor, _guard)) = device() else { return };
    let case = Plan::of(Switches { bf16_state: true, bf16_pool: true, ..Switches::plain(4100, 1, 16) }).draw(SEED);
    let results = Call::new(on(&executor), &case).expect("memory").run(None).expect("the call runs");
    // Requests at both ends, alone on the same pools.
    for n in [0, 4099] {
        let mut one = case.clone();
        let (sample, d) = (&mut one.sample, case.sample.switches.dims);
        sample.switches.dims.n = 1;
        sample.x = case.sample.x[n * d.channels()..(n + 1) * d.channels()].to_vec();
        sample.g = match &case.sample.g {
            kda::reference::floats::FloatVec::Bf16(g) => {
                kda::reference::floats::FloatVec::Bf16(g[n * d.hv * 128..(n + 1) * d.hv * 128].to_vec())
            }
            other => other.clone(),
        };
        sample.beta = case.sample.beta[n * d.hv..(n + 1) * d.hv].to_vec();
        (sample.slots, sample.conv_slots) = (vec![case.sample.slots[n]], vec![case.sample.conv_slots[n]]);
        let alone = Call::new(on(&executor), &one).expect("memory").run(None).expect("the call runs");
        assert_eq!(alone.out, results.out[n * d.hv * 128..(n + 1) * d.hv * 128], "request {n}");
        let begin = case.sample.slots[n] as usize * d.state_len();
        let state = |results: &Results| results.state.bits()[begin..begin + d.state_len()].to_vec();
        assert_eq!(state(&alone), state(&results), "request {n}");
    }
}

/// Each variant on its sample problem: short enough for a sanitizer's tools.
#[test]
fn each_variant_on_its_sample_problem() {
    let Some((executor, _guard)) = device() else { return };
    for desc in kda_kernels::decode::DESCS {
        for seed in [SEED, SEED + 1] {
            let mut wrong = Vec::new();
            let run = kda::checks::decode::sample(on(&executor), desc, seed, &mut |row, _| {
                if !row.passes() {
                    wrong.push(format!("{}: {} > {}", row.output, row.error, row.budget));
                }
            });
            run.unwrap_or_else(|cause| panic!("{}: {cause}", desc.entry));
            assert!(wrong.is_empty(), "{}, seed {seed}: {wrong:?}", desc.entry);
        }
    }
}
