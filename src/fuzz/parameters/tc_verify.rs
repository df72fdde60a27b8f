//! Calls of `tc_verify`: a good one of any switches, with a field or two made wrong, and metadata of any contents.

use super::call::{Calls, Planner};
use super::decode::table_of;
use super::execute::{Memory, numbers};
use super::spoil;
use crate::checks::Device;
use crate::checks::tc_verify::case::{Plan as Drawn, fits, options as options_of};
use crate::checks::tc_verify::judge::{Tally, one_call};
use crate::fuzz::Counts;
use kda_core::{Elem, TensorArg};
use kda_ref::rng::Rng;
use kda_ref::tc_verify::sample::Switches;
use kda_runtime::executor::sim::SimExecutor;
use kda_runtime::operators::tc_verify::{Convolution, Gate, Options, Problem, Variant, plan};

/// Most tokens of a request with the softplus gate.
const MOST_TOKENS_SOFTPLUS: usize = 8;

const CALLS: Calls<Problem, Options> = Calls {
    name: "tc_verify",
    good,
    options: |rng| {
        let variants: Vec<Variant> = Variant::all().collect();
        let variant = (rng.below(4) == 0).then(|| rng.choose(&variants));
        Options { variant, pdl: rng.coin(), stable_pools: rng.coin() }
    },
    tensors,
    changes: &[
        |p, rng| p.scale = spoil::float(rng),
        |p, rng| p.gate = Gate::Bounded { lower_bound: spoil::float(rng) },
        |p, rng| p.null = spoil::scalar(rng) as i32,
        |p, _| p.convolution = None,
        |p, _| p.gate = Gate::Softplus,
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
    let convolved = rng.below(3) > 0;
    let (h, hv) = rng.choose(if convolved { &[(1, 1), (1, 1), (2, 2)] } else { &[(1, 1), (1, 2), (2, 2)] });
    let (slots, window) = (rng.choose(&[0, 1, 2, 3, 6]), rng.choose(&[1, 2, 4, 8, 9, 16]));
    let (total, d, rows) = (rng.choose(&[0, 1, n * window, n * window + 3]), (2 * h + hv) * 128, window + 2);
    let (elem, taps) = (rng.choose(&[Elem::F32, Elem::BF16]), rng.choose(&[Elem::F32, Elem::BF16]));
    let pad = 8 * (rng.below(4) / 3) as u64;
    let mut tensor = |elem: Elem, shape: &[u64], strides: &[u64]| {
        let at = 256 + 256 * rng.below(1 << 40) as u64;
        let mut tensor = TensorArg::strided(at, 0, elem, shape, strides).expect("a rank that is possible");
        tensor.bytes = tensor.extent_bytes() as u64;
        tensor
    };
    let [slot_of, accepted] = [0; 2].map(|_| tensor(Elem::I32, &[n], &[1]));
    let query_start = tensor(Elem::I32, &[n + 1], &[1]);
    let qkv = tensor(Elem::BF16, &[total, d], &[d + pad, 1]);
    let [raw_g, out] = [0; 2].map(|_| tensor(Elem::BF16, &[total, hv, 128], &[hv * 128 + pad, 128, 1]));
    let raw_beta = tensor(Elem::BF16, &[total, hv], &[hv + pad, 1]);
    let (a_log, dt_bias) = (tensor(Elem::F32, &[hv], &[1]), tensor(Elem::F32, &[hv, 128], &[128, 1]));
    let state = tensor(elem, &[slots, hv, 128, 128], &[hv * 128 * 128 + pad, 128 * 128, 128, 1]);
    let row = d + pad;
    let histories = [[rows * row, 1, row], [rows * d + pad / 8, rows, 1]]
        .map(|strides| tensor(Elem::BF16, &[slots, d, rows], &strides));
    let weight = tensor(taps, &[d, 4], &[4, 1]);
    let corr = tensor(Elem::F32, &[n + 1, hv, window, 128], &[hv * window * 128, window * 128, 128, 1]);
    let kg = tensor(Elem::BF16, &[n + 1, hv, window, 256], &[hv * window * 256, window * 256, 256, 1]);
    let counters = tensor(Elem::U32, &[hv], &[1]);
    let softplus = window <= MOST_TOKENS_SOFTPLUS as u64 && rng.coin();
    let state_of = rng.choose(&histories);
    Problem {
        qkv,
        raw_g,
        raw_beta,
        a_log: rng.coin().then_some(a_log),
        dt_bias,
        state,
        convolution: convolved.then_some(Convolution { weight, state: state_of, accepted }),
        query_start,
        slots: slot_of,
        corr,
        kg,
        out,
        counters: rng.coin().then_some(counters),
        scale: rng.choose(&[0.088, 1.0, 0.0]),
        gate: if softplus { Gate::Softplus } else { Gate::Bounded { lower_bound: -5.0 } },
        null: rng.choose(&[-1, 0]),
    }
}

/// The tensors of a call, and whether the kernel may write them.
fn tensors(problem: &mut Problem) -> Vec<(&mut TensorArg, bool)> {
    let Problem { qkv, raw_g, raw_beta, a_log, dt_bias, state, convolution, .. } = problem;
    let mut all = vec![(qkv, false), (raw_g, false), (raw_beta, false), (dt_bias, false), (state, false)];
    all.extend(a_log.as_mut().map(|t| (t, false)));
    if let Some(Convolution { weight, state, accepted }) = convolution {
        all.extend([(weight, false), (state, true), (accepted, false)]);
    }
    let Problem { query_start, slots, corr, kg, out, counters, .. } = problem;
    all.extend([(query_start, false), (slots, false), (corr, true), (kg, true), (out, true)]);
    all.extend(counters.as_mut().map(|t| (t, true)));
    all
}

/// Offsets in order, of which one or another is no offset: that leaves the requests on both sides empty.
fn offsets(entries: usize, total: u64, window: u64, rng: &mut Rng) -> Vec<u8> {
    let mut at = rng.below(2) as u64;
    let total = i32::try_from(total).unwrap_or(i32::MAX);
    let mut one = || {
        let given = i32::try_from(at).unwrap_or(i32::MAX);
        at += rng.choose(&[0, 1, window / 2, window, window, window + 1]);
        if rng.below(8) == 0 { rng.choose(&[-1, i32::MIN, i32::MAX, total.saturating_add(1)]) } else { given }
    };
    (0..entries).flat_map(|_| one().to_le_bytes()).collect()
}

/// Places the call in memory, fills its metadata with anything, plans it again and runs it.
fn execute(
    plan: Planner<Problem, Options>,
    mut problem: Problem,
    options: &Options,
    rng: &mut Rng,
) -> Result<(), String> {
    let (null, slots) = (problem.null, problem.state.shape()[0]);
    let (total, window) = (problem.raw_beta.shape()[0], problem.corr.shape()[2]);
    // CTAs take a request each, or several.
    let executor = SimExecutor::default().with_multiprocessors(rng.choose(&[1, 132]));
    let mut memory = Memory::new(&executor);
    let mut place = |tensor: &mut TensorArg, contents: &mut dyn FnMut(usize) -> Vec<u8>, written: bool| {
        *tensor = memory.place(tensor, written, contents)?;
        Ok::<(), String>(())
    };
    for (tensor, written) in tensors(&mut problem) {
        match tensor.elem {
            Elem::I32 => {}
            // Tickets are zero ahead of a launch.
            Elem::U32 => place(tensor, &mut |bytes| vec![0; bytes], written)?,
            elem => place(tensor, &mut |bytes| numbers(elem, bytes, rng), written)?,
        }
    }
    place(&mut problem.slots, &mut |bytes| table_of(bytes / 4, 0, slots, slots, null, rng), false)?;
    place(&mut problem.query_start, &mut |bytes| offsets(bytes / 4, total, window, rng), false)?;
    if let Some(convolution) = &mut problem.convolution {
        let mut any = |bytes: usize| -> Vec<u8> {
            let mut one = || rng.choose(&[0, 1, 1, 2, 3, 8, 9, 16, 17, -1, i32::MIN, i32::MAX]).to_le_bytes();
            (0..bytes / 4).flat_map(|_| one()).collect()
        };
        place(&mut convolution.accepted, &mut any, false)?;
    }
    let plan = plan(&problem, &executor, options).map_err(|error| format!("refused once it was placed: {error}"))?;
    memory.run(plan.prepared())
}

/// A call with random switches, held against the golden model.
pub(super) fn golden(rng: &mut Rng, counts: &mut Counts) -> Result<(), String> {
    let mut switches = Switches::random(rng, 3, 2, 16);
    if switches.lower_bound.is_none() {
        switches.window = switches.window.min(MOST_TOKENS_SOFTPLUS);
    }
    let plan = Drawn { counters: rng.coin(), ..Drawn::of(switches) };
    let variants: Vec<Variant> = Variant::all().filter(|v| fits(*v, &switches)).collect();
    let variant = *variants.get(rng.below(variants.len().max(1))).ok_or("no variant fits")?;
    let case = plan.draw(rng.next_u64());
    let executor = SimExecutor::default().with_multiprocessors(rng.choose(&[1, 132]));
    let mut tally = Tally::default();
    let with_plan = |what: String| format!("{what}\n{} on {plan:?}", variant.desc().entry);
    one_call(Device::simulator(&executor), &case, &options_of(variant), &mut tally)
        .map_err(|cause| with_plan(cause.to_string()))?;
    counts.add("held against the golden model");
    match tally.rows("golden").into_iter().find(|row| !row.passes()) {
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

    /// More rows than there are.
    #[test]
    fn rows_past_their_tensors_are_a_failure() {
        let outcome = CALLS.sweep(
            |problem, executor, options| {
                let mut grown = *problem;
                for tensor in [&mut grown.qkv, &mut grown.raw_g, &mut grown.raw_beta, &mut grown.out] {
                    let mut shape = tensor.shape().to_vec();
                    match shape.first_mut() {
                        Some(rows) => *rows = rows.saturating_add(4),
                        None => continue,
                    }
                    let longer = TensorArg::strided(tensor.ptr, 0, tensor.elem, &shape, tensor.strides());
                    *tensor = longer.expect("a rank that is possible");
                    tensor.bytes = u64::try_from(tensor.extent_bytes()).unwrap_or(u64::MAX);
                }
                plan(&grown, executor, options)
            },
            1_500,
        );
        // Or the longer rows reach into what was placed behind them.
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
