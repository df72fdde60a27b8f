//! Calls of `decode`: a good one of any switches, with a field or two made wrong, and index tables of any contents.

use super::call::{Calls, Planner};
use super::conv_verify::indices;
use super::execute::{Memory, numbers};
use super::spoil;
use crate::checks::Device;
use crate::checks::decode::case::{Plan as Drawn, Values};
use crate::checks::decode::judge::{Tally, fits, one_case, order};
use crate::fuzz::Counts;
use kda_core::{Elem, TensorArg};
use kda_kernels::decode::DecodeVariant;
use kda_ref::decode::sample::Switches;
use kda_ref::rng::Rng;
use kda_runtime::executor::sim::SimExecutor;
use kda_runtime::operators::decode::{Convolution, Gate, Options, Problem, Tokens, plan};

const CALLS: Calls<Problem, Options> = Calls {
    name: "decode",
    good,
    options: |rng| Options {
        variant: (rng.below(4) == 0).then(|| rng.choose(&DecodeVariant::ALL)),
        pdl: rng.coin(),
        stable_pools: rng.coin(),
        evict_first: rng.coin(),
    },
    tensors,
    changes: &[
        |p, rng| p.scale = spoil::float(rng),
        |p, rng| p.gate = Gate::Bounded { lower_bound: spoil::float(rng) },
        |p, rng| p.null = spoil::scalar(rng) as i32,
        |p, _| p.state_slots_out = None,
    ],
    held: |_| true,
    execute,
};

pub(super) fn case(rng: &mut Rng, counts: &mut Counts) -> Result<(), String> {
    CALLS.case(plan, rng, counts)
}

/// A call that every check takes.
fn good(rng: &mut Rng) -> Problem {
    let n = rng.choose(&[0, 1, 1, 2, 2, 3]);
    let (h, hv) = rng.choose(&[(1, 1), (1, 1), (1, 2), (2, 2)]);
    let d = (2 * h + hv) * 128;
    let (lines, slots) = (rng.choose(&[0, 1, 2, 4, 6]), rng.choose(&[0, 1, 2, 3, 6]));
    let [pool, elem, gate, taps] = [0; 4].map(|_| rng.choose(&[Elem::F32, Elem::BF16]));
    let pad = 8 * (rng.below(4) / 3) as u64;
    let mut tensor = |elem: Elem, shape: &[u64], strides: &[u64]| {
        let at = 256 + 256 * rng.below(1 << 40) as u64;
        let mut tensor = TensorArg::strided(at, 0, elem, shape, strides).expect("a rank that is possible");
        tensor.bytes = tensor.extent_bytes() as u64;
        tensor
    };
    let rows = |heads: u64| [heads * 128 + pad, 128, 1];
    let x = tensor(Elem::BF16, &[n, d], &[d + pad, 1]);
    let weight = tensor(taps, &[d, 4], &[4, 1]);
    let bias = tensor(Elem::F32, &[d], &[1]);
    let pools = [[3, 1], [1, d]].map(|[channel, tap]| tensor(pool, &[lines, d, 3], &[3 * d + pad, channel, tap]));
    let maps = [0; 4].map(|_| tensor(Elem::I32, &[n], &[1 + pad]));
    let workspace = tensor(Elem::U32, &[n, h], &[h, 1]);
    let (q, k, v) = (
        tensor(Elem::BF16, &[n, h, 128], &rows(h)),
        tensor(Elem::BF16, &[n, h, 128], &rows(h)),
        tensor(Elem::BF16, &[n, hv, 128], &rows(hv)),
    );
    let g = tensor(gate, &[n, hv, 128], &rows(hv));
    let beta = tensor(Elem::BF16, &[n, hv], &[hv + pad, 1]);
    let (a_log, dt_bias) = (tensor(Elem::F32, &[hv], &[1]), tensor(Elem::F32, &[hv, 128], &[128, 1]));
    let states = [[128, 1], [1, 128]]
        .map(|[row, column]| tensor(elem, &[slots, hv, 128, 128], &[hv * 128 * 128 + pad, 128 * 128, row, column]));
    let out = tensor(Elem::BF16, &[n, hv, 128], &rows(hv));
    let separate = rng.below(3) == 0;
    let convolution = Convolution {
        x,
        weight,
        bias: rng.coin().then_some(bias),
        state: rng.choose(&pools),
        slots: maps[0],
        slots_out: separate.then_some(maps[1]),
        workspace,
    };
    Problem {
        tokens: if rng.below(3) > 0 { Tokens::Convolved(convolution) } else { Tokens::Given { q, k, v } },
        g,
        beta,
        a_log: rng.coin().then_some(a_log),
        dt_bias: rng.coin().then_some(dt_bias),
        state: rng.choose(&states),
        state_slots: maps[2],
        state_slots_out: separate.then_some(maps[3]),
        out,
        scale: rng.choose(&[0.088, 1.0, 0.0]),
        gate: if rng.coin() { Gate::Softplus } else { Gate::Bounded { lower_bound: -5.0 } },
        null: rng.choose(&[-1, 0]),
    }
}

/// The tensors of a call, index tables first, and whether the kernel may write them.
fn tensors(problem: &mut Problem) -> Vec<(&mut TensorArg, bool)> {
    let Problem { tokens, g, beta, a_log, dt_bias, state, state_slots, state_slots_out, out, .. } = problem;
    let mut all = vec![(state_slots, false), (g, false), (beta, false), (state, true), (out, true)];
    all.extend(state_slots_out.as_mut().map(|t| (t, false)));
    all.extend(a_log.as_mut().map(|t| (t, false)));
    all.extend(dt_bias.as_mut().map(|t| (t, false)));
    match tokens {
        Tokens::Given { q, k, v } => all.extend([(q, false), (k, false), (v, false)]),
        Tokens::Convolved(c) => {
            all.extend([(&mut c.x, false), (&mut c.weight, false), (&mut c.slots, false)]);
            all.extend([(&mut c.state, true), (&mut c.workspace, true)]);
            all.extend(c.bias.as_mut().map(|t| (t, false)));
            all.extend(c.slots_out.as_mut().map(|t| (t, false)));
        }
    }
    all
}

/// Places the call in memory, fills its index tables with anything, plans it again and runs it.
fn execute(
    plan: Planner<Problem, Options>,
    mut problem: Problem,
    options: &Options,
    rng: &mut Rng,
) -> Result<(), String> {
    let null = problem.null;
    let slots = problem.state.shape()[0];
    let lines = if let Tokens::Convolved(c) = &problem.tokens { c.state.shape()[0] } else { 0 };
    // Slots that are written are none that another request reads: the tables of a pool share its entries.
    let separate = problem.state_slots_out.is_some();
    let halves = |length: u64| if separate { (length / 2, length - length / 2) } else { (length, 0) };
    let executor = SimExecutor::default();
    let mut memory = Memory::new(&executor);
    let mut place = |tensor: &mut TensorArg, table: Option<(u64, u64, u64)>, written: bool, rng: &mut Rng| {
        // Requests that share one entry of a table may not be live together.
        let shared = tensor.shape()[0] > 1 && tensor.strides()[0] == 0;
        let contents = |bytes: usize| match (table, tensor.elem) {
            (Some((_, _, length)), _) if shared => table_of(bytes / 4, 0, 0, length, null, rng),
            (Some((first, count, length)), _) => table_of(bytes / 4, first, count, length, null, rng),
            // Arrival counters are zero ahead of a launch.
            (None, Elem::U32) => vec![0; bytes],
            (None, elem) => numbers(elem, bytes, rng),
        };
        *tensor = memory.place(tensor, written, contents)?;
        Ok::<(), String>(())
    };
    for (tensor, written) in tensors(&mut problem) {
        if tensor.elem != Elem::I32 {
            place(tensor, None, written, rng)?;
        }
    }
    let (read, write) = halves(slots);
    place(&mut problem.state_slots, Some((0, read, slots)), false, rng)?;
    if let Some(map) = &mut problem.state_slots_out {
        place(map, Some((read, write, slots)), false, rng)?;
    }
    if let Tokens::Convolved(c) = &mut problem.tokens {
        let (read, write) = if c.slots_out.is_some() { (lines / 2, lines - lines / 2) } else { (lines, 0) };
        place(&mut c.slots, Some((0, read, lines)), false, rng)?;
        if let Some(map) = &mut c.slots_out {
            place(map, Some((read, write, lines)), false, rng)?;
        }
    }
    let plan = plan(&problem, &executor, options).map_err(|error| format!("refused once it was placed: {error}"))?;
    memory.run(plan.prepared())
}

/// Entries of an index table: live ones from `first .. first + count`, each once, among ones that are not live in a pool of
/// `length`.
pub(super) fn table_of(entries: usize, first: u64, count: u64, length: u64, null: i32, rng: &mut Rng) -> Vec<u8> {
    let drawn = indices(entries, count, null, rng);
    let moved = drawn.chunks_exact(4).flat_map(|bytes| {
        let index = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let moved = match u64::try_from(index) {
            Ok(index) if i64::from(null) < index as i64 && index < count => (index + first) as i32,
            // What lies past the part must lie past the pool.
            Ok(index) if index < length => i32::MAX,
            _ => index,
        };
        moved.to_le_bytes()
    });
    moved.collect()
}

/// A call with random switches, held against the golden model.
pub(super) fn golden(rng: &mut Rng, counts: &mut Counts) -> Result<(), String> {
    let switches = Switches::random(rng, 3);
    let values = rng.choose(&[Values::Drawn, Values::GateExtremes(0), Values::BetaExtremes, Values::Zeros]);
    let index_stride = 1 + rng.below(3);
    let plan = Drawn { values, index_stride, null_rows: rng.coin(), ..Drawn::of(switches) };
    let variants: Vec<DecodeVariant> =
        DecodeVariant::ALL.into_iter().filter(|v| fits(*v, switches.bf16_state)).collect();
    let variant = rng.choose(&variants);
    let case = plan.draw(rng.next_u64());
    let executor = SimExecutor::default();
    let mut tally = [Tally::default()];
    let with_plan = |what: String| format!("{what}\n{} in {:?} on {plan:?}", variant.desc().entry, order(variant));
    one_case(Device::simulator(&executor), &case, &[variant], &mut tally)
        .map_err(|cause| with_plan(cause.to_string()))?;
    counts.add("held against the golden model");
    match tally[0].rows("golden").into_iter().find(|row| !row.passes()) {
        Some(row) => Err(with_plan(format!("`{}` is off by {:e}, {:e} is allowed", row.output, row.error, row.budget))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_spoilt_is_accepted() {
        CALLS.good_ones_are_accepted(plan);
    }

    #[test]
    fn blocks_are_refused_accepted_and_executed() {
        CALLS.all_kinds_occur(plan);
    }

    /// A pool of fewer slots than its indices may name.
    #[test]
    fn states_past_their_pool_are_a_failure() {
        let outcome = CALLS.sweep(
            |problem, executor, options| {
                let mut grown = *problem;
                let (shape, strides) = (grown.state.shape().to_vec(), grown.state.strides().to_vec());
                if let [slots, hv, rows, columns] = shape[..] {
                    let shape = [slots.saturating_add(1), hv, rows, columns];
                    let larger = TensorArg::strided(grown.state.ptr, 0, grown.state.elem, &shape, &strides);
                    grown.state = larger.expect("a rank that is possible");
                    grown.state.bytes = u64::try_from(grown.state.extent_bytes()).unwrap_or(u64::MAX);
                }
                plan(&grown, executor, options)
            },
            1_500,
        );
        let ran = |fault: &crate::fuzz::Fault| fault.what.contains("accepted, and then");
        assert!(outcome.failed > 0 && outcome.panics == 0 && outcome.faults.iter().all(ran), "{outcome:?}");
    }

    #[test]
    fn what_only_the_kernel_refuses_is_a_failure() {
        CALLS.refusals_of_kernels_are_failures();
    }

    #[test]
    fn tables_of_a_pool_share_no_entry() {
        let mut rng = Rng::new(3);
        for length in 0..7 {
            let (read, write) = (length / 2, length - length / 2);
            let live = |bytes: Vec<u8>| -> Vec<i32> {
                let all = bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]));
                all.filter(|index| (0..length as i32).contains(index)).collect()
            };
            for _ in 0..50 {
                let first = live(table_of(5, 0, read, length, -1, &mut rng));
                let second = live(table_of(5, read, write, length, -1, &mut rng));
                assert!(first.iter().all(|index| (*index as u64) < read), "{first:?}");
                assert!(second.iter().all(|index| *index as u64 >= read), "{second:?}");
            }
        }
    }
}
