//! What only a GPU shows: many repeats, graphs, streams and graphs at once, dependent launches.

use super::Failure;
use super::call::{Call, Results};
use super::case::{Case, Plan};
use super::chain;
use super::problems::{POOLS, with_pool};
use crate::checks::{Device, Measured, Sink};
use kda_core::exec::{Executor, Stream};
use kda_core::{Elem, TensorArg};
use kda_ref::conv_verify::sample::Switches;
use kda_ref::rng::Rng;
use kda_runtime::executor::cuda::{CudaExecutor, CudaGraph};
use kda_runtime::operators::Plan as Planned;
use kda_runtime::operators::conv_verify::{Options, plan};
use kda_runtime::{DeviceBuffer, Guarding};

/// Launches of one problem whose results are all read back and compared, every byte.
const REPEATS: usize = 100_000;
/// Launches in a graph: each has outputs of its own, so that one copy brings all results of a replay.
const IN_A_GRAPH: usize = 100;
/// Replays of a graph with other indices in each.
const INDEX_SETS: usize = 25;
/// Launches on each of two streams, and replays of each of two graphs.
const AT_ONCE: usize = 1000;
/// Rounds of each chain of dependent launches.
const ROUNDS: usize = 40;

/// Every row. Opens the device again, for streams of its own.
pub fn run(seed: u64, sink: Sink, share: f64) -> Result<(), Failure> {
    let (first, second) = (CudaExecutor::open(0)?, CudaExecutor::open(0)?);
    for (index, times) in [(0, REPEATS), (1, REPEATS / 5)] {
        let wrong = repeats(&first, POOLS[index], times, seed)?;
        let case = format!("{times} launches in replayed graphs, {}", name(POOLS[index]));
        sink(measured(case, "bytes that differ from one launch", wrong), share);
    }
    for pool in POOLS {
        let wrong = other_indices(&first, pool, seed)?;
        let case = format!("{} replays, other indices in each, {}", 2 * INDEX_SETS, name(pool));
        sink(measured(case, "bits that differ from eager calls", wrong), share);
    }
    for graphs in [false, true] {
        let wrong = at_once([&first, &second], graphs, seed)?;
        let what = if graphs { "graphs" } else { "streams" };
        let case = format!("two {what} at once, {AT_ONCE} launches in each");
        sink(measured(case, "bits that differ from launches one by one", wrong), share);
    }
    chain::run(on(&first), ROUNDS, seed, sink, share)
}

fn measured(case: String, output: &str, wrong: usize) -> Measured {
    Measured { case, output: output.into(), error: wrong as f64, budget: 0.0 }
}

fn name((bf16_pool, channels_innermost): (bool, bool)) -> String {
    let elem = if bf16_pool { "bf16" } else { "fp32" };
    format!("{elem} pool {}", if channels_innermost { "[3, D]" } else { "[D, 3]" })
}

fn on(executor: &CudaExecutor) -> Device<'_> {
    Device { executor, guarding: Guarding::BANDS }
}

/// A graph of plans in order.
fn capture(executor: &CudaExecutor, plans: &[Planned]) -> Result<CudaGraph, Failure> {
    for planned in plans {
        executor.warm(planned.desc())?;
    }
    let graph = executor.capture(|executor| {
        // SAFETY: callers keep the buffers for as long as they replay.
        plans.iter().try_for_each(|planned| unsafe { planned.launch(executor, Stream::default()) })
    })?;
    Ok(graph)
}

/// Bytes that differ between launches of one problem with roll: plain ones and dependent ones, back to back in graphs.
fn repeats(executor: &CudaExecutor, pool: (bool, bool), times: usize, seed: u64) -> Result<usize, Failure> {
    // Three tokens: from the second launch on every launch finds the history that it leaves.
    let (t, hv) = (3u64, 2u64);
    let switches =
        Switches { roll: true, bias: true, ..with_pool(Switches::plain(1, t as usize, 1, hv as usize), pool) };
    let mut case = Plan::of(switches).draw(seed);
    case.sample.snapshot_rows = vec![0];
    let call = Call::new(on(executor), &case)?;
    let elem = call.problem.conv_state.elem;
    let d = call.problem.x.shape()[2];
    let sizes = [t * hv * 128 * 128 * 4, t * d * 3 * u64::from(elem.bytes()), t * hv * 128 * 2];
    let each = sizes.iter().sum::<u64>();
    let arena = DeviceBuffer::new(executor, "outputs", each * IN_A_GRAPH as u64, Guarding::BANDS)?;
    let window = match pool.1 {
        true => [t * d * 3, d * 3, 1, d],
        false => [t * d * 3, d * 3, 3, 1],
    };
    let problems = (0..IN_A_GRAPH as u64).map(|i| -> Result<_, Failure> {
        let mut at = arena.ptr() + i * each;
        let mut next = |elem: Elem, shape: &[u64], strides: Option<&[u64]>, bytes: u64| {
            let tensor = match strides {
                Some(strides) => TensorArg::strided(at, bytes, elem, shape, strides),
                None => TensorArg::dense(at, bytes, elem, shape),
            };
            at += bytes;
            tensor
        };
        let mut problem = call.problem;
        problem.states_out = Some(next(Elem::F32, &[1, t, hv, 128, 128], None, sizes[0])?);
        problem.windows_out = Some(next(elem, &[1, t, d, 3], Some(&window), sizes[1])?);
        problem.out = next(Elem::BF16, &[1, t, hv, 128], None, sizes[2])?;
        Ok(problem)
    });
    let problems = problems.collect::<Result<Vec<_>, Failure>>()?;
    let plans = |options: Options| problems.iter().map(|p| plan(p, executor, &options)).collect::<Result<Vec<_>, _>>();
    let plain = plans(Options::default())?;
    let dependent = plans(Options { pdl: true, ..Options::default() })?;
    // The histories settle, then one launch alone says what is right.
    for planned in &plain[..2] {
        arena.fill(0xFF)?;
        // SAFETY: the buffers outlive the launch, which is waited for.
        unsafe { planned.launch(executor, Stream::default()) }?;
        executor.synchronize(Stream::default())?;
    }
    let mut right = vec![0; each as usize];
    executor.read(arena.ptr() + each, &mut right)?;
    let graphs = [capture(executor, &plain)?, capture(executor, &dependent)?];
    let (mut wrong, mut all) = (0, vec![0; (each * IN_A_GRAPH as u64) as usize]);
    for replay in 0..times / IN_A_GRAPH {
        arena.fill(0xFF)?;
        // SAFETY: the buffers outlive the replay, which the copy waits for; the stream is the executor's own.
        unsafe { graphs[replay % 2].launch(Stream::default()) }?;
        executor.read(arena.ptr(), &mut all)?;
        for found in all.chunks_exact(each as usize).filter(|found| **found != right[..]) {
            wrong += found.iter().zip(&right).filter(|(a, b)| a != b).count();
        }
    }
    arena.check_canaries()?;
    Ok(wrong + call.results()?.changed_inputs)
}

/// Bits that differ between replays of one graph whose indices change, null ones among them, and eager calls on the same
/// indices.
fn other_indices(executor: &CudaExecutor, pool: (bool, bool), seed: u64) -> Result<usize, Failure> {
    let switches = Switches { null: 0, roll: true, ..with_pool(Switches::plain(4, 4, 2, 4), pool) };
    let captured = Plan::of(switches).draw(seed);
    let mut rng = Rng::new(seed);
    let mut wrong = 0;
    for pdl in [false, true] {
        let options = Options { pdl, ..Options::default() };
        let call = Call::new(on(executor), &captured)?;
        let graph = capture(executor, &[plan(&call.problem, executor, &options)?])?;
        for _ in 0..INDEX_SETS {
            let changed = with_other_indices(&captured, &switches, &mut rng);
            let expected = Call::new(on(executor), &changed)?.run(None)?;
            let (p, s) = (&call.problem, &changed.sample);
            let maps = [
                (p.conv_slots.ptr, &s.conv_slots),
                (p.state_slots.ptr, &s.state_slots),
                (p.snapshot_rows.ptr, &s.snapshot_rows),
            ];
            for (ptr, map) in maps {
                let bytes: Vec<u8> = map.iter().flat_map(|index| index.to_le_bytes()).collect();
                executor.write(ptr, &bytes)?;
            }
            call.restore()?;
            // SAFETY: the buffers outlive the replay, which the copies wait for.
            unsafe { graph.launch(Stream::default()) }?;
            let results = call.results()?;
            wrong += results.differing_bits(&expected) + results.changed_inputs;
        }
    }
    Ok(wrong)
}

/// The case with the index arrays of another one, null ones among them. What is past the end of the other's pools is past the
/// end of any: in ours it could be live, for two requests at once.
fn with_other_indices(case: &Case, switches: &Switches, rng: &mut Rng) -> Case {
    let other = Plan::of(Switches { nulls: true, ..*switches }).draw(rng.next_u64()).sample;
    let past_any_end = |map: &[i32], len: usize| -> Vec<i32> {
        map.iter()
            .map(|index| if usize::try_from(*index).is_ok_and(|i| i >= len) { i32::MAX } else { *index })
            .collect()
    };
    let mut changed = case.clone();
    changed.sample.conv_slots = past_any_end(&other.conv_slots, other.conv_layout.lines);
    changed.sample.state_slots = past_any_end(&other.state_slots, other.state_len);
    changed.sample.snapshot_rows = past_any_end(&other.snapshot_rows, other.snapshot_len);
    changed
}

/// Bits that differ between two calls that run at once, each with a workspace of its own, and the same calls one by one.
fn at_once(executors: [&CudaExecutor; 2], graphs: bool, seed: u64) -> Result<usize, Failure> {
    let sizes = [(6, 4), (5, 5)];
    let cases: Vec<Case> = sizes
        .into_iter()
        .enumerate()
        .map(|(i, (n, t))| {
            let switches = Switches { roll: true, bias: true, ..with_pool(Switches::plain(n, t, 4, 8), POOLS[i]) };
            Plan::of(switches).draw(seed.wrapping_add(i as u64))
        })
        .collect();
    let one_by_one = |case: &Case| -> Result<Results, Failure> {
        let call = Call::new(on(executors[0]), case)?;
        // The histories are settled after two.
        for _ in 0..3 {
            call.run(None)?;
        }
        call.results()
    };
    let expected = cases.iter().map(one_by_one).collect::<Result<Vec<_>, _>>()?;
    let calls =
        executors.into_iter().zip(&cases).map(|(executor, case)| Ok((executor, Call::new(on(executor), case)?)));
    let calls = calls.collect::<Result<Vec<_>, Failure>>()?;
    let options = Options::default();
    if graphs {
        const EACH: usize = 20;
        let captured = calls.iter().map(|(executor, call)| {
            let planned = plan(&call.problem, *executor, &options)?;
            capture(executor, &vec![planned; EACH])
        });
        let captured = captured.collect::<Result<Vec<_>, Failure>>()?;
        for graph in (0..AT_ONCE / EACH).flat_map(|_| &captured) {
            // SAFETY: the buffers outlive the replays, which are waited for below.
            unsafe { graph.launch(Stream::default()) }?;
        }
    } else {
        for _ in 0..AT_ONCE {
            for (executor, call) in &calls {
                call.enqueue(&options, executor.own_stream())?;
            }
        }
    }
    let mut wrong = 0;
    for ((executor, call), expected) in calls.iter().zip(&expected) {
        executor.synchronize(executor.own_stream())?;
        let results = call.results()?;
        wrong += results.differing_bits(expected) + results.changed_inputs;
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two live requests with one line or one snapshot row would have no defined result.
    #[test]
    fn other_indices_have_no_live_duplicates() {
        let switches = Switches { null: 0, roll: true, ..Switches::plain(4, 4, 2, 4) };
        let (mut rng, mut past) = (Rng::new(1), 0);
        let case = Plan::of(switches).draw(1);
        for _ in 0..400 {
            let sample = with_other_indices(&case, &switches, &mut rng).sample;
            let maps = [(&sample.conv_slots, sample.conv_layout.lines), (&sample.snapshot_rows, sample.snapshot_len)];
            for (map, len) in maps {
                let is_live = |index: &&i32| **index > 0 && usize::try_from(**index).is_ok_and(|i| i < len);
                let mut live: Vec<&i32> = map.iter().filter(is_live).collect();
                let count = live.len();
                live.sort();
                live.dedup();
                assert_eq!(live.len(), count, "{map:?}");
                past += map.iter().filter(|index| **index == i32::MAX).count();
            }
        }
        assert!(past > 20, "{past} indices past the end");
    }
}
