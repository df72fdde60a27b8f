//! What only a device shows of `conv_verify`: streams at once, dependent launches, graphs. Without a device these tests say
//! so and end; with `KDA_REQUIRE_CUDA` set they fail.

mod common;

use common::{device, on};
use kda::checks::Device;
use kda::checks::conv_verify::call::{Call, Results};
use kda::checks::conv_verify::case::{Case, Plan};
use kda::checks::conv_verify::{gpu, sample};
use kda::core::exec::{Executor, Stream};
use kda::reference::conv_verify::sample::Switches;
use kda::runtime::executor::cuda::CudaExecutor;
use kda::runtime::operators::conv_verify::{Options, plan};
use kda_kernels::conv_verify::ConvVerifyVariant;
use std::time::{SystemTime, UNIX_EPOCH};

const SEED: u64 = 3;

/// A call whose roll makes every launch depend on the one before.
fn rolling(n: usize, t: usize, seed: u64) -> Case {
    let switches = Switches { roll: true, bias: true, bf16_pool: t % 2 == 1, ..Switches::plain(n, t, 4, 8) };
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
    let cases = [rolling(6, 4, SEED), rolling(5, 5, SEED + 1)];
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
        assert_eq!((results.differing_bits(expected), results.changed_inputs), (0, 0));
    }
}

/// Every launch reads the histories that the one before it wrote.
#[test]
fn dependent_launches_give_the_bits_of_plain_ones() {
    const TIMES: usize = 1000;
    let Some((executor, _guard)) = device() else { return };
    for (n, t) in [(1, 1), (1, 4), (8, 3), (40, 2), (3, 10)] {
        let case = rolling(n, t, SEED);
        let expected = repeated(on(&executor), &case, TIMES);
        let call = Call::new(on(&executor), &case).expect("memory");
        let options = Options { pdl: true, ..Options::default() };
        for _ in 0..TIMES {
            call.enqueue(&options, Stream::default()).expect("the call runs");
        }
        let results = call.results().expect("results");
        assert_eq!((results.differing_bits(&expected), results.changed_inputs), (0, 0), "N {n}, T {t}");
    }
}

/// A graph reads indices when it is replayed, not when it is captured.
#[test]
fn a_captured_call_replays_with_other_indices() {
    let Some((executor, _guard)) = device() else { return };
    let captured = Plan::of(Switches { null: 0, ..Switches::plain(4, 4, 2, 4) }).draw(SEED);
    let mut changed = captured.clone();
    changed.sample.conv_slots.reverse();
    changed.sample.state_slots.rotate_left(1);
    changed.sample.snapshot_rows.rotate_right(1);
    changed.sample.conv_slots[2] = 0;
    changed.sample.snapshot_rows[1] = -7;
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
        let p = &call.problem;
        let sample = &changed.sample;
        let maps = [
            (p.conv_slots.ptr, &sample.conv_slots),
            (p.state_slots.ptr, &sample.state_slots),
            (p.snapshot_rows.ptr, &sample.snapshot_rows),
        ];
        for (ptr, map) in maps {
            let bytes: Vec<u8> = map.iter().flat_map(|index| index.to_le_bytes()).collect();
            executor.write(ptr, &bytes).expect("the indices are written");
        }
        // SAFETY: as above; the stream is the executor's own.
        unsafe { graph.launch(executor.own_stream()) }.expect("a replay");
        let results = call.results().expect("results");
        assert_eq!((results.differing_bits(&expected), results.changed_inputs), (0, 0), "pdl {pdl}");
    }
}

#[test]
fn options_of_the_device_reach_the_driver() {
    let Some((executor, _guard)) = device() else { return };
    let case = rolling(3, 4, SEED);
    let expected = Call::new(on(&executor), &case).expect("memory").run(None).expect("the call runs");
    for (pdl, stable_pools, evict_first) in
        [(false, false, Some(true)), (false, false, Some(false)), (true, true, Some(true)), (true, false, None)]
    {
        let call = Call::new(on(&executor), &case).expect("memory");
        let options = Options { pdl, stable_pools, evict_first, ..Options::default() };
        call.enqueue(&options, executor.own_stream()).expect("the call runs");
        let results = call.results().expect("results");
        assert_eq!((results.differing_bits(&expected), results.changed_inputs), (0, 0), "{options:?}");
    }
}

/// Repeats, replays with other indices, streams and graphs at once, chains of dependent launches: the rows of a full check
/// that only a device has.
#[test]
fn repeats_graphs_and_chains_give_the_same_bits() {
    let Some((_executor, _guard)) = device() else { return };
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
    println!("seed {seed}");
    let (mut count, mut failed) = (0, Vec::new());
    gpu::run(
        seed,
        &mut |row, _| {
            println!("{}: {} {}", row.case, row.error, row.output);
            count += 1;
            if !row.passes() {
                failed.push(row.case);
            }
        },
        1.0,
    )
    .expect("the calls run");
    assert!(count >= 8 && failed.is_empty(), "{count} rows, failed: {failed:?}");
}

/// Each tile and pool at one length, and in several passes: short enough for a sanitizer's tools.
#[test]
fn one_length_of_each_tile_on_its_sample_problem() {
    let Some((executor, _guard)) = device() else { return };
    let own = |v: &&ConvVerifyVariant| v.long() || v.t() == 2;
    for variant in ConvVerifyVariant::ALL.iter().filter(own) {
        for seed in [SEED, SEED + 1] {
            let mut wrong = Vec::new();
            let run = sample(on(&executor), variant.desc(), seed, &mut |row, _| {
                if !row.passes() {
                    wrong.push(format!("{}: {} > {}", row.output, row.error, row.budget));
                }
            });
            run.unwrap_or_else(|cause| panic!("{}: {cause}", variant.desc().entry));
            assert!(wrong.is_empty(), "{}, seed {seed}: {wrong:?}", variant.desc().entry);
        }
    }
}
