//! Calls of `conv_verify`: a good one of any switches, with a field or two made wrong, and index tables of any contents.

use super::call::{Calls, Planner};
use super::execute::{Memory, numbers};
use super::spoil;
use crate::fuzz::Counts;
use kda_core::exec::{ExecError, Executor, Stream};
use kda_core::{Elem, PreparedLaunch, TensorArg};
use kda_kernels::conv_verify::ConvVerifyVariant;
use kda_ref::rng::Rng;
use kda_runtime::executor::sim::SimExecutor;
use kda_runtime::operators::conv_verify::{Gate, Options, Problem, SnapshotRule, plan};

/// Shows a compute capability, and does nothing else.
pub(super) struct Shown(pub(super) (u8, u8));

const CALLS: Calls<Problem, Options> = Calls {
    name: "conv_verify",
    good,
    options: |rng| Options {
        variant: (rng.below(4) == 0).then(|| rng.choose(&ConvVerifyVariant::ALL)),
        pdl: rng.coin(),
        stable_pools: rng.coin(),
        evict_first: rng.choose(&[None, Some(true), Some(false)]),
    },
    tensors,
    changes: &[
        |p, rng| p.scale = spoil::float(rng),
        |p, rng| p.gate = Gate::Bounded { lower_bound: spoil::float(rng) },
        |p, rng| p.null = spoil::scalar(rng) as i32,
        |p, _| p.states_out = None,
        |p, _| p.windows_out = None,
        |p, _| p.roll = !p.roll,
    ],
    held: |_| true,
    execute,
};

pub(super) fn case(rng: &mut Rng, counts: &mut Counts) -> Result<(), String> {
    CALLS.case(plan, rng, counts)
}

/// A call that every check takes.
fn good(rng: &mut Rng) -> Problem {
    let (n, t) = (rng.choose(&[0, 1, 1, 2, 2, 3]), 1 + rng.below(4) as u64);
    let (h, hv) = rng.choose(&[(1, 1), (1, 1), (1, 2), (2, 2)]);
    let d = 2 * h * 128 + hv * 128;
    let (lines, slots, rows, t_alloc) = (
        rng.choose(&[0, 1, 2, 3, 4, 4]),
        rng.choose(&[0, 1, 2, 3, 3, 3]),
        n + rng.below(2) as u64,
        t + rng.below(4) as u64 / 3,
    );
    let (pool, inner) = (rng.choose(&[Elem::F32, Elem::BF16]), rng.coin());
    let pad = 8 * (rng.below(4) / 3) as u64;
    let at = |rng: &mut Rng| 256 + 256 * rng.below(1 << 40) as u64;
    let mut tensor = |elem: Elem, shape: &[u64], strides: &[u64]| {
        let mut tensor = TensorArg::strided(at(rng), 0, elem, shape, strides).expect("a rank that is possible");
        tensor.bytes = tensor.extent_bytes() as u64;
        tensor
    };
    let dense = |shape: &[u64]| -> Vec<u64> {
        (0..shape.len()).map(|axis| shape[axis + 1..].iter().map(|n| (*n).max(1)).product()).collect()
    };
    let mut whole = |elem: Elem, shape: &[u64]| tensor(elem, shape, &dense(shape));
    let taps = whole(if pad == 0 { Elem::F32 } else { Elem::BF16 }, &[d, 4]);
    let (a, b) = (whole(Elem::BF16, &[n, t, hv, 128]), whole(Elem::BF16, &[n, t, hv]));
    let maps = [0; 3].map(|_| whole(Elem::I32, &[n]));
    let (bias, a_log) = (whole(Elem::F32, &[d]), whole(Elem::F32, &[hv]));
    let dt_bias = whole(Elem::F32, &[hv, 128]);
    let state_slot = hv * 128 * 128;
    let states = whole(Elem::F32, &[rows, t_alloc, hv, 128, 128]);
    let workspace = whole(Elem::U32, &[n, h]);
    let history = if inner { [1, d] } else { [3, 1] };
    let x = tensor(Elem::BF16, &[n, t, d], &[t * (d + pad), d + pad, 1]);
    let conv_state = tensor(pool, &[lines, d, 3], &[3 * d + pad, history[0], history[1]]);
    let state = tensor(Elem::F32, &[slots, hv, 128, 128], &[state_slot + pad, 128 * 128, 128, 1]);
    let (line, step) = (t_alloc * (3 * d + pad), 3 * d + pad);
    let windows = tensor(pool, &[rows, t_alloc, d, 3], &[line, step, history[0], history[1]]);
    let out = tensor(Elem::BF16, &[n, t, hv, 128], &[t * (hv * 128 + pad), hv * 128 + pad, 128, 1]);
    Problem {
        x,
        conv_weight: taps,
        conv_bias: rng.coin().then_some(bias),
        conv_state,
        conv_slots: maps[0],
        state,
        state_slots: maps[1],
        snapshot_rows: maps[2],
        a,
        b,
        a_log: rng.coin().then_some(a_log),
        dt_bias,
        states_out: (rng.below(3) != 0).then_some(states),
        windows_out: (rng.below(3) != 0).then_some(windows),
        out,
        workspace,
        scale: rng.choose(&[0.088, 1.0, 0.0]),
        gate: if rng.coin() { Gate::Softplus } else { Gate::Bounded { lower_bound: -5.0 } },
        null: rng.choose(&[-1, 0]),
        roll: rng.coin(),
        snapshot_rule: rng.choose(&[SnapshotRule::ByIndex, SnapshotRule::ByBatch]),
    }
}

/// The tensors of a call, and whether the kernel may write them.
fn tensors(problem: &mut Problem) -> Vec<(&mut TensorArg, bool)> {
    let Problem {
        x,
        conv_weight,
        conv_bias,
        conv_state,
        conv_slots,
        state,
        state_slots,
        snapshot_rows,
        a,
        b,
        a_log,
        dt_bias,
        states_out,
        windows_out,
        out,
        workspace,
        roll,
        ..
    } = problem;
    let mut all = vec![
        (conv_slots, false),
        (state_slots, false),
        (snapshot_rows, false),
        (x, false),
        (conv_weight, false),
        (conv_state, *roll),
        (state, false),
        (a, false),
        (b, false),
        (dt_bias, false),
        (out, true),
        (workspace, true),
    ];
    all.extend(conv_bias.as_mut().map(|t| (t, false)));
    all.extend(a_log.as_mut().map(|t| (t, false)));
    all.extend(states_out.as_mut().map(|t| (t, true)));
    all.extend(windows_out.as_mut().map(|t| (t, true)));
    all
}

/// Places the call in memory, fills its index tables with anything, plans it again and runs it.
fn execute(
    plan: Planner<Problem, Options>,
    mut problem: Problem,
    options: &Options,
    rng: &mut Rng,
) -> Result<(), String> {
    let pools = [problem.conv_state.shape()[0], problem.state.shape()[0], live_rows(&problem)];
    let null = problem.null;
    let executor = SimExecutor::default();
    let mut memory = Memory::new(&executor);
    for (index, (tensor, written)) in tensors(&mut problem).into_iter().enumerate() {
        // Requests that share one entry of a table may not be live together.
        let shared = tensor.shape()[0] > 1 && tensor.strides()[0] == 0;
        let contents = |bytes: usize| match (index, tensor.elem) {
            (0..3, _) if shared => table(bytes / 4, pools[index], null, 0, rng),
            (0..3, _) => indices(bytes / 4, pools[index], null, rng),
            // Arrival counters are zero ahead of a launch.
            (_, Elem::U32) => vec![0; bytes],
            (_, elem) => numbers(elem, bytes, rng),
        };
        let placed = memory.place(tensor, written, contents)?;
        *tensor = placed;
    }
    let plan = plan(&problem, &executor, options).map_err(|error| format!("refused once it was placed: {error}"))?;
    memory.run(plan.prepared())
}

/// Rows that `snapshot_rows` may name.
fn live_rows(problem: &Problem) -> u64 {
    let rows = |tensor: &Option<TensorArg>| tensor.as_ref().map(|t| t.shape()[0]);
    rows(&problem.states_out).unwrap_or(u64::MAX).min(rows(&problem.windows_out).unwrap_or(u64::MAX))
}

/// Entries of an index table: live ones, each once, as the contract asks; among them null ones, negative ones and ones past
/// the pool.
pub(super) fn indices(count: usize, length: u64, null: i32, rng: &mut Rng) -> Vec<u8> {
    table(count, length, null, 16, rng)
}

/// Entries of an index table of which the first `most` of the pool may be live.
fn table(count: usize, length: u64, null: i32, most: i32, rng: &mut Rng) -> Vec<u8> {
    let length = length.min(i32::MAX as u64) as i32;
    let mut live: Vec<i32> = (0..length.min(most)).collect();
    let mut out = Vec::new();
    for _ in 0..count {
        let dead = [null, -1, -7, i32::MIN, i32::MAX, length, length.saturating_add(1)];
        let index = match rng.below(6) {
            0 => rng.choose(&dead),
            _ if live.is_empty() => rng.choose(&dead),
            _ => live.swap_remove(rng.below(live.len())),
        };
        out.extend_from_slice(&index.to_le_bytes());
    }
    out
}

impl Executor for Shown {
    fn describe(&self) -> String {
        "no device".into()
    }
    fn compute_capability(&self) -> (u8, u8) {
        self.0
    }
    fn multiprocessors(&self) -> u32 {
        132
    }
    fn allocate(&self, _: u64) -> Result<u64, ExecError> {
        Err(ExecError::NoDevice(self.describe()))
    }
    fn free(&self, _: u64) -> Result<(), ExecError> {
        Err(ExecError::NoDevice(self.describe()))
    }
    fn write(&self, _: u64, _: &[u8]) -> Result<(), ExecError> {
        Err(ExecError::NoDevice(self.describe()))
    }
    fn read(&self, _: u64, _: &mut [u8]) -> Result<(), ExecError> {
        Err(ExecError::NoDevice(self.describe()))
    }
    fn fill(&self, _: u64, _: u8, _: u64) -> Result<(), ExecError> {
        Err(ExecError::NoDevice(self.describe()))
    }
    unsafe fn launch(&self, _: &PreparedLaunch, _: Stream) -> Result<(), ExecError> {
        Err(ExecError::NoDevice(self.describe()))
    }
    fn synchronize(&self, _: Stream) -> Result<(), ExecError> {
        Err(ExecError::NoDevice(self.describe()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_spoilt_is_accepted() {
        CALLS.good_ones_are_accepted(plan);
    }

    /// Windows of fewer steps than tokens, and whatever memory they need to be taken.
    #[test]
    fn windows_of_too_few_steps_that_are_taken_are_a_failure() {
        let outcome = CALLS.sweep(
            |problem, executor, options| {
                let (mut grown, tokens) = (*problem, problem.b.shape().get(1).copied().unwrap_or(0));
                if let Some(windows) = &mut grown.windows_out
                    && let [rows, steps, d, taps] = *windows.shape()
                    && steps < tokens
                {
                    let shape = [rows, tokens, d, taps];
                    let larger = TensorArg::strided(windows.ptr, 0, windows.elem, &shape, windows.strides());
                    *windows = larger.expect("a rank that is possible");
                    windows.bytes = u64::try_from(windows.extent_bytes()).unwrap_or(u64::MAX);
                }
                plan(&grown, executor, options)
            },
            8_000,
        );
        let ran = |fault: &crate::fuzz::Fault| {
            fault.what.contains("what lies between") || fault.what.contains("accepted, and then")
        };
        assert!(outcome.failed > 0 && outcome.panics == 0 && outcome.faults.iter().all(ran), "{outcome:?}");
    }

    #[test]
    fn what_only_the_kernel_refuses_is_a_failure() {
        CALLS.refusals_of_kernels_are_failures();
    }

    #[test]
    fn live_indices_are_distinct() {
        let mut rng = Rng::new(2);
        let (mut live, mut dead) = (0, 0);
        for _ in 0..100 {
            let bytes = indices(6, 4, -1, &mut rng);
            let mut found: Vec<i32> =
                bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
            found.retain(|index| (0..4).contains(index));
            (live, dead) = (live + found.len(), dead + 6 - found.len());
            let count = found.len();
            found.sort_unstable();
            found.dedup();
            assert_eq!(found.len(), count);
        }
        assert!(live > 50 && dead > 50);
        for null in [-1, 0] {
            let none = table(100, 4, null, 0, &mut rng);
            let index = |bytes: &[u8]| i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            assert!(none.chunks_exact(4).map(index).all(|index| index <= null || index >= 4), "{none:?}");
        }
    }
}
