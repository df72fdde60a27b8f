//! Calls of `tc_commit`: a good one of any switches, with a field or two made wrong, and slots and counts of any contents.

use super::call::{Calls, Planner};
use super::decode::table_of;
use super::execute::{Memory, numbers};
use super::spoil;
use crate::checks::Device;
use crate::checks::tc_commit::case::{Plan as Drawn, Values};
use crate::checks::tc_commit::judge::{Tally, fits, one_case};
use crate::fuzz::Counts;
use kda_core::{Elem, TensorArg};
use kda_kernels::tc_commit::TcCommitVariant;
use kda_ref::rng::Rng;
use kda_ref::tc_commit::sample::Switches;
use kda_runtime::executor::sim::SimExecutor;
use kda_runtime::operators::tc_commit::{Boundary, Gate, Options, Problem, plan};

const CALLS: Calls<Problem, Options> = Calls {
    name: "tc_commit",
    good,
    options: |rng| Options { variant: (rng.below(4) == 0).then(|| rng.choose(&TcCommitVariant::ALL)), pdl: rng.coin() },
    tensors,
    changes: &[
        |p, rng| p.gate = Gate::Bounded { lower_bound: spoil::float(rng) },
        |p, rng| p.null = spoil::scalar(rng) as i32,
        |p, _| p.destinations = None,
        |p, _| p.boundary = None,
    ],
    held: |p| p.layers.is_none_or(|table| table.shape()[0] <= 1),
    execute,
};

pub(super) fn case(rng: &mut Rng, counts: &mut Counts) -> Result<(), String> {
    CALLS.case(plan, rng, counts)
}

/// A call that every check takes.
fn good(rng: &mut Rng) -> Problem {
    let n = rng.choose(&[0, 1, 1, 2, 2, 3]);
    let heads = rng.choose(&[1, 1, 2]);
    let (slots, window) = (rng.choose(&[0, 1, 2, 3, 6]), rng.choose(&[1, 2, 4, 8, 9, 16]));
    let (channels, rows) = (3 * heads * 128, window + 2);
    let elem = rng.choose(&[Elem::F32, Elem::BF16]);
    let pad = 8 * (rng.below(4) / 3) as u64;
    let mut tensor = |elem: Elem, shape: &[u64], strides: &[u64]| {
        let at = 256 + 256 * rng.below(1 << 40) as u64;
        let mut tensor = TensorArg::strided(at, 0, elem, shape, strides).expect("a rank that is possible");
        tensor.bytes = tensor.extent_bytes() as u64;
        tensor
    };
    let [slot_of, destinations, counts, tokens, marks] = [0; 5].map(|_| tensor(Elem::I32, &[n], &[1]));
    let records = [heads * window * 128, window * 128, 128, 1];
    let corr = tensor(Elem::F32, &[n + 1, heads, window, 128], &records);
    let kg = tensor(Elem::BF16, &[n + 1, heads, window, 256], &[2 * records[0], 2 * records[1], 2 * records[2], 1]);
    let (a_log, dt_bias) = (tensor(Elem::F32, &[heads], &[1]), tensor(Elem::F32, &[heads, 128], &[128, 1]));
    let state = tensor(elem, &[slots, heads, 128, 128], &[heads * 128 * 128 + pad, 128 * 128, 128, 1]);
    let row = channels + pad;
    let conv = [[rows * row, 1, row], [rows * channels + pad / 8, rows, 1]]
        .map(|strides| tensor(Elem::BF16, &[slots, channels, rows], &strides));
    let table = [1, 1, 2].map(|layers| tensor(Elem::U64, &[layers, 6], &[6, 1]));
    Problem {
        state,
        corr,
        kg,
        a_log: rng.coin().then_some(a_log),
        dt_bias,
        conv: rng.coin().then(|| rng.choose(&conv)),
        slots: slot_of,
        destinations: rng.coin().then_some(destinations),
        counts,
        boundary: rng.coin().then_some(Boundary { tokens, slots: marks }),
        layers: (rng.below(3) == 0).then(|| rng.choose(&table)),
        gate: if rng.coin() { Gate::Softplus } else { Gate::Bounded { lower_bound: -5.0 } },
        null: rng.choose(&[-1, 0]),
    }
}

/// The tensors of a call, and whether the kernel may write them.
fn tensors(problem: &mut Problem) -> Vec<(&mut TensorArg, bool)> {
    let Problem { state, corr, kg, a_log, dt_bias, conv, slots, destinations, counts, boundary, layers, .. } = problem;
    let mut all = vec![(state, true), (corr, false), (kg, false), (dt_bias, false), (slots, false), (counts, false)];
    all.extend(conv.as_mut().map(|t| (t, true)));
    all.extend([a_log, destinations, layers].into_iter().flatten().map(|t| (t, false)));
    all.extend(boundary.iter_mut().flat_map(|b| [(&mut b.tokens, false), (&mut b.slots, false)]));
    all
}

/// Places the call in memory, fills its slots and counts with anything, plans it again and runs it.
fn execute(
    plan: Planner<Problem, Options>,
    mut problem: Problem,
    options: &Options,
    rng: &mut Rng,
) -> Result<(), String> {
    let null = problem.null;
    let length = problem.state.shape()[0];
    // Slots that are written are none that another request uses: the tables share the entries of the pool.
    let parts = 1 + u64::from(problem.destinations.is_some()) + u64::from(problem.boundary.is_some());
    let share = length / parts;
    let executor = SimExecutor::default();
    let mut memory = Memory::new(&executor);
    let mut place = |tensor: &mut TensorArg, contents: &mut dyn FnMut(usize) -> Vec<u8>, written: bool| {
        *tensor = memory.place(tensor, written, contents)?;
        Ok::<(), String>(())
    };
    for (tensor, written) in tensors(&mut problem) {
        if !matches!(tensor.elem, Elem::I32 | Elem::U64) {
            let elem = tensor.elem;
            place(tensor, &mut |bytes| numbers(elem, bytes, rng), written)?;
        }
    }
    let mut first = 0;
    let Problem { slots, destinations, boundary, .. } = &mut problem;
    let marks = boundary.as_mut().map(|boundary| &mut boundary.slots);
    for table in [Some(slots), destinations.as_mut(), marks].into_iter().flatten() {
        place(table, &mut |bytes| table_of(bytes / 4, first, share, length, null, rng), false)?;
        first += share;
    }
    let tokens = problem.boundary.as_mut().map(|boundary| &mut boundary.tokens);
    for numbers in [Some(&mut problem.counts), tokens].into_iter().flatten() {
        let mut any = |bytes: usize| -> Vec<u8> {
            let mut one = || rng.choose(&[0, 1, 1, 2, 3, 8, 9, 16, 17, -1, i32::MIN, i32::MAX]).to_le_bytes();
            (0..bytes / 4).flat_map(|_| one()).collect()
        };
        place(numbers, &mut any, false)?;
    }
    let at = |tensor: Option<TensorArg>| tensor.map_or(0, |tensor| tensor.ptr);
    let p = problem;
    let addresses = [p.state.ptr, at(p.conv), p.corr.ptr, p.kg.ptr, at(p.a_log), p.dt_bias.ptr];
    if let Some(table) = &mut problem.layers {
        let bytes: Vec<u8> = addresses.iter().flat_map(|address| address.to_le_bytes()).collect();
        place(table, &mut |length| bytes.iter().copied().cycle().take(length).collect(), false)?;
    }
    let plan = plan(&problem, &executor, options).map_err(|error| format!("refused once it was placed: {error}"))?;
    memory.run(plan.prepared())
}

/// A call with random switches, held against the golden model.
pub(super) fn golden(rng: &mut Rng, counts: &mut Counts) -> Result<(), String> {
    let switches = Switches::random(rng, 3, 2, 16);
    let values = rng.choose(&[Values::Drawn, Values::GateExtremes(0), Values::ZeroKeys]);
    let layers = rng.choose(&[None, Some(1), Some(2)]);
    let plan = Drawn { values, layers, ..Drawn::of(switches) };
    let variants: Vec<TcCommitVariant> = TcCommitVariant::ALL.into_iter().filter(|v| fits(*v, &switches)).collect();
    let variant = rng.choose(&variants);
    let case = plan.draw(rng.next_u64());
    let executor = SimExecutor::default();
    let mut tally = [Tally::default()];
    let with_plan = |what: String| format!("{what}\n{} on {plan:?}", variant.desc().entry);
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

    /// A pool of fewer slots than may be named.
    #[test]
    fn states_past_their_pool_are_a_failure() {
        let outcome = CALLS.sweep(
            |problem, executor, options| {
                let mut grown = *problem;
                let more = |tensor: &TensorArg| {
                    let mut shape = tensor.shape().to_vec();
                    match shape.first_mut() {
                        Some(slots) => *slots = slots.saturating_add(1),
                        None => return *tensor,
                    }
                    let larger = TensorArg::strided(tensor.ptr, 0, tensor.elem, &shape, tensor.strides());
                    let mut larger = larger.expect("a rank that is possible");
                    larger.bytes = u64::try_from(larger.extent_bytes()).unwrap_or(u64::MAX);
                    larger
                };
                (grown.state, grown.conv) = (more(&grown.state), grown.conv.as_ref().map(more));
                plan(&grown, executor, options)
            },
            1_500,
        );
        // Or the larger pool reaches into what was placed behind it.
        let ran = |fault: &&crate::fuzz::Fault| fault.what.contains("accepted, and then");
        let grown = |fault: &&crate::fuzz::Fault| fault.what.contains("shares memory with");
        let all = outcome.faults.iter().all(|fault| ran(&fault) || grown(&fault));
        assert!(outcome.panics == 0 && all && outcome.faults.iter().any(|fault| ran(&fault)), "{outcome:?}");
    }

    #[test]
    fn what_only_the_kernel_refuses_is_a_failure() {
        CALLS.refusals_of_kernels_are_failures();
    }
}
