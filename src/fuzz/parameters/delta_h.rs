//! Calls of `delta_h` and their schedules: good ones of any form, with a field or two made wrong, and boundaries and index
//! tables of any contents.

use super::conv_verify::{Shown, indices};
use super::execute::{MOST_BYTES, MOST_CTAS, Memory, numbers};
use super::{spoil, words_of};
use crate::fuzz::Counts;
use kda_core::exec::Executor;
use kda_core::{Elem, LaunchError, TensorArg};
use kda_ref::rng::Rng;
use kda_runtime::executor::sim::SimExecutor;
use kda_runtime::operators::delta_h::{Batch, Gate, Options, Problem, Schedule, Variant, plan, schedule};
use kda_runtime::operators::{OpError, Plan};

/// One of so many accepted calls is executed.
const EXECUTE: usize = 8;
/// Compute capabilities on which accepted calls are executed: for Hopper's kernels, and for the portable one.
const EXECUTED: [(u8, u8); 2] = [(9, 0), (8, 0)];

/// How a call is validated.
type Planner = fn(&Problem, &dyn Executor, &Options) -> Result<Plan, OpError>;

pub(super) fn case(rng: &mut Rng, counts: &mut Counts) -> Result<(), String> {
    case_of(plan, rng, counts)
}

fn case_of(plan: Planner, rng: &mut Rng, counts: &mut Counts) -> Result<(), String> {
    let mut problem = good(rng);
    let mut order = schedule_of(&problem, rng);
    for _ in 0..rng.choose(&[0, 0, 1, 1, 2]) {
        wrong(&mut problem, rng);
    }
    if rng.below(4) == 0 {
        wrong_schedule(&mut order, rng);
    }
    let variant = (rng.below(4) == 0).then(|| rng.choose(&Variant::all().collect::<Vec<_>>()));
    let maps = (rng.below(4) == 0).then(|| rng.choose(&Variant::all().filter(|v| v.maps()).collect::<Vec<_>>()));
    let options = Options { variant, maps, pdl: rng.coin() };
    let shown = Shown(if rng.below(6) == 0 { rng.choose(&[(10, 0), (8, 0), (0, 0)]) } else { (9, 0) });
    let with_call = |what: String| format!("{what}\n{problem:?} {options:?}\n{order:?}");
    let kernel_refuses = |error: &LaunchError| !matches!(error, LaunchError::TooLarge { .. });
    let ordered = match schedule::plan(&order, &shown) {
        Err(OpError::Launch(error)) if kernel_refuses(&error) => {
            return Err(with_call(format!("a schedule taken by the operator, refused by the kernel: {error}")));
        }
        Err(error) => {
            words_of(&error, counts)?;
            None
        }
        Ok(_) => Some(order.batch()),
    };
    let accepted = match plan(&problem, &shown, &options) {
        Ok(accepted) => accepted,
        // The operator knows what its kernel needs.
        Err(OpError::Launch(error)) if kernel_refuses(&error) => {
            return Err(with_call(format!("taken by the operator, refused by the kernel: {error}")));
        }
        Err(error) => return words_of(&error, counts),
    };
    counts.add("accepted");
    let ctas = |plan: &Plan| -> u64 {
        let of = |grid: &[u32; 3]| grid.iter().map(|n| u64::from(*n)).fold(1, u64::saturating_mul);
        plan.launches().iter().map(|launch| of(&launch.grid)).sum()
    };
    let small = tensors(&mut problem.clone()).iter().all(|(tensor, _)| tensor.extent_bytes() <= MOST_BYTES);
    // A call and a schedule of other sizes do not belong together.
    let together = ordered == Some(problem.batch()) && order.capacity.is_some() == problem.h.is_some();
    if !EXECUTED.contains(&shown.0) || ctas(&accepted) > MOST_CTAS || !small || !together || rng.below(EXECUTE) != 0 {
        return Ok(());
    }
    execute(plan, shown.0, problem, order, &options, rng).map_err(with_call)?;
    counts.add("executed");
    counts.add("executed of delta_h");
    Ok(())
}

fn tensor(elem: Elem, shape: &[u64], strides: &[u64], rng: &mut Rng) -> TensorArg {
    let at = 1 + rng.below(1 << 20) as u64;
    let mut tensor = TensorArg::strided(at << 40, 0, elem, shape, strides).expect("a rank that is possible");
    tensor.bytes = tensor.extent_bytes() as u64;
    tensor
}

/// A call that every check takes.
fn good(rng: &mut Rng) -> Problem {
    let (sequences, rows) = (rng.choose(&[0, 1, 1, 2, 3]), rng.choose(&[0, 1, 5, 64, 65, 130]));
    let (heads, pad) = (rng.choose(&[1, 1, 2]), 8 * (rng.below(4) / 3) as u64);
    let pitch = heads * 128 + pad;
    let of_rows = [0; 4].map(|_| tensor(Elem::BF16, &[rows, heads, 128], &[pitch, 128, 1], rng));
    let mut matrices = |elem: Elem, count: u64| {
        let [row, column] = rng.choose(&[[128, 1], [1, 128]]);
        tensor(elem, &[count, heads, 128, 128], &[heads * 16384 + pad, 16384, row, column], rng)
    };
    let slots = sequences + 1;
    let states = [Elem::F32, Elem::BF16].map(|elem| [matrices(elem, slots), matrices(elem, slots)]);
    let h_every = 1;
    let batch = Batch { sequences, rows, heads, h_every, split: false, longest: None };
    let h = matrices(Elem::BF16, batch.h_states());
    let gate = match rng.below(3) {
        0 => Gate::Cumulative(tensor(Elem::F32, &[rows, heads, 128], &[pitch, 128, 1], rng)),
        1 => Gate::Decay(tensor(Elem::F32, &[batch.chunks(), heads, 128], &[pitch, 128, 1], rng)),
        _ => Gate::Scalar(tensor(Elem::F32, &[rows, heads], &[heads + 1, 1], rng)),
    };
    let maps = [0; 2].map(|_| tensor(Elem::I32, &[sequences], &[1], rng));
    let flags = tensor(Elem::U8, &[sequences], &[1], rng);
    let words = batch.schedule_words();
    let schedule = match rng.coin() {
        true => tensor(Elem::U32, &[words], &[1], rng),
        false => tensor(Elem::U8, &[4 * words], &[1], rng),
    };
    let (initial, by_slots) = (rng.below(4) > 0, rng.coin());
    Problem {
        kg: of_rows[0],
        w: of_rows[1],
        u: of_rows[2],
        gate,
        initial_state: initial.then(|| rng.choose(&states)[0]),
        initial_slots: (initial && by_slots).then_some(maps[0]),
        has_initial: (initial && rng.coin()).then_some(flags),
        final_state: Some(rng.choose(&states)[1]),
        final_slots: by_slots.then_some(maps[1]),
        null: rng.choose(&[-1, 0]),
        h: (rng.below(4) > 0).then_some(h),
        v_new: (rng.below(4) > 0).then_some(of_rows[3]),
        schedule,
        maps: None,
        sequences,
        h_every,
        split: rng.below(4) == 0,
        longest: rng.choose(&[None, None, Some(0), Some(64), Some(130), Some(u64::MAX)]),
    }
}

/// The schedule of a good call.
fn schedule_of(problem: &Problem, rng: &mut Rng) -> Schedule {
    let Batch { sequences, rows, heads, h_every, split, longest } = problem.batch();
    let elem = rng.choose(&[Elem::I32, Elem::I64]);
    let mut ends = || tensor(elem, &[sequences + 1], &[1], rng);
    let (cu_seqlens, chunk_offsets) = (ends(), ends());
    Schedule {
        cu_seqlens,
        workspace: problem.schedule,
        chunk_offsets: rng.coin().then_some(chunk_offsets),
        rows,
        heads,
        h_every,
        capacity: problem.h.map(|h| h.shape()[0]),
        split,
        longest,
    }
}

/// The tensors of a call, and whether a kernel may write them.
fn tensors(problem: &mut Problem) -> Vec<(&mut TensorArg, bool)> {
    let Problem { kg, w, u, gate, initial_state, initial_slots, has_initial, .. } = problem;
    let Problem { final_state, final_slots, h, v_new, schedule, maps, .. } = problem;
    let (Gate::Cumulative(gate) | Gate::Decay(gate) | Gate::Scalar(gate)) = gate;
    let mut all = vec![(kg, false), (w, false), (u, false), (gate, false), (schedule, true)];
    for read in [initial_state, initial_slots, has_initial, final_slots] {
        all.extend(read.as_mut().map(|t| (t, false)));
    }
    for written in [final_state, h, v_new, maps] {
        all.extend(written.as_mut().map(|t| (t, true)));
    }
    all
}

fn wrong(problem: &mut Problem, rng: &mut Rng) {
    match rng.below(24) {
        0 => problem.null = spoil::scalar(rng) as i32,
        1 => problem.h_every = spoil::scalar(rng),
        2 => problem.sequences = u64::from(spoil::scalar(rng)),
        3 => problem.initial_state = None,
        4 => problem.final_state = None,
        5 => problem.initial_slots = None,
        6 => problem.split = !problem.split,
        7 => {
            // One tensor in the memory of another.
            let mut tensors = tensors(problem);
            let (from, to) = (rng.below(tensors.len()), rng.below(tensors.len()));
            tensors[to].0.ptr = tensors[from].0.ptr;
        }
        8..11 => {
            let mut tensors = tensors(problem);
            let at = rng.below(tensors.len());
            spoil::shorter(tensors[at].0, rng);
        }
        _ => {
            let mut tensors = tensors(problem);
            let at = rng.below(tensors.len());
            spoil::tensor(tensors[at].0, rng);
        }
    }
}

fn wrong_schedule(order: &mut Schedule, rng: &mut Rng) {
    match rng.below(8) {
        0 => order.rows = u64::from(spoil::scalar(rng)),
        1 => order.heads = u64::from(spoil::scalar(rng)),
        2 => order.h_every = spoil::scalar(rng),
        3 => order.capacity = Some(u64::from(spoil::scalar(rng))),
        4 => spoil::tensor(&mut order.workspace, rng),
        5 => order.chunk_offsets.iter_mut().for_each(|t| spoil::tensor(t, rng)),
        _ => spoil::tensor(&mut order.cu_seqlens, rng),
    }
}

/// Places the call in memory, with boundaries and indices of any contents, plans both steps again and runs them.
fn execute(
    plan: Planner,
    capability: (u8, u8),
    mut problem: Problem,
    mut order: Schedule,
    options: &Options,
    rng: &mut Rng,
) -> Result<(), String> {
    let executor = SimExecutor::with_capability(Default::default(), capability);
    let mut memory = Memory::new(&executor);
    let (null, rows) = (problem.null, problem.batch().rows);
    let in_place = problem.initial_state.is_some() && problem.initial_state == problem.final_state;
    if in_place && problem.initial_slots.is_some() != problem.final_slots.is_some() {
        return Ok(()); // a sequence may replace the state that another one starts from
    }
    let slots = |state: &Option<TensorArg>| state.map_or(0, |state| state.shape()[0]);
    let (first, last) = (slots(&problem.initial_state), slots(&problem.final_state));
    let mut numbered: Vec<Vec<u8>> = Vec::new();
    for (map, length) in [(&problem.initial_slots, first), (&problem.final_slots, last)] {
        let entries = map.map_or(0, |map| map.extent_bytes() as usize / 4);
        numbered.push(indices(entries, length, null, rng));
    }
    // A sequence that replaces a state replaces the one that it starts from.
    if in_place && numbered[0].len() == numbered[1].len() {
        numbered[1] = numbered[0].clone();
    }
    let mut numbered = numbered.into_iter();
    for map in [&mut problem.initial_slots, &mut problem.final_slots] {
        let contents = numbered.next().unwrap_or_default();
        if let Some(map) = map {
            *map = memory.place(map, false, |_| contents)?;
        }
    }
    for (tensor, written) in tensors(&mut problem).into_iter().filter(|(t, _)| t.elem != Elem::I32) {
        let elem = tensor.elem;
        *tensor = memory.place(tensor, written || in_place, |bytes| numbers(elem, bytes, rng))?;
    }
    if in_place {
        problem.final_state = problem.initial_state;
    }
    order.workspace = problem.schedule;
    let elem = order.cu_seqlens.elem;
    order.cu_seqlens = memory.place(&order.cu_seqlens, false, |bytes| boundaries(elem, bytes, rows, rng))?;
    if let Some(offsets) = &mut order.chunk_offsets {
        *offsets = memory.place(offsets, true, |bytes| vec![0xFF; bytes])?;
    }
    let again = |error: OpError| format!("refused once it was placed: {error}");
    let (ordered, planned) =
        (schedule::plan(&order, &executor).map_err(again)?, plan(&problem, &executor, options).map_err(again)?);
    for launch in ordered.launches().iter().chain(planned.launches()).filter(|launch| !launch.is_empty()) {
        memory.run(launch)?;
    }
    Ok(())
}

/// Boundaries of sequences in so many rows, mostly in order; now and then any.
fn boundaries(elem: Elem, bytes: usize, rows: u64, rng: &mut Rng) -> Vec<u8> {
    let width = elem.bytes() as usize;
    let mut ends: Vec<i64> = (0..bytes / width).map(|_| rng.below(rows as usize + 1) as i64).collect();
    ends.sort_unstable();
    if rng.coin()
        && let Some(first) = ends.first_mut()
    {
        *first = 0;
    }
    if rng.below(3) == 0
        && let Some(at) = ends.len().checked_sub(1).map(|last| rng.below(last + 1))
    {
        ends[at] = rng.choose(&[-1, i64::MIN, i64::MAX, 1 << 31, 1 << 32, i64::from(i32::MIN), rows as i64 + 1, 0]);
    }
    ends.iter().flat_map(|end| end.to_le_bytes()[..width].to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_spoilt_is_accepted() {
        let mut rng = Rng::new(8);
        for index in 0..300 {
            let mut problem = good(&mut rng);
            problem.split = false;
            let order = schedule_of(&problem, &mut rng);
            let hopper = Shown((9, 0));
            schedule::plan(&order, &hopper).unwrap_or_else(|e| panic!("{index}: {e}\n{order:?}"));
            match plan(&problem, &hopper, &Options::default()) {
                Err(OpError::Missing { param: "h", .. }) | Ok(_) => {}
                Err(e) => panic!("{index}: {e}\n{problem:?}"),
            }
        }
    }

    fn sweep(plan: Planner, cases: u64) -> crate::fuzz::Outcome {
        let sweep = crate::fuzz::Sweep { seed: 6, cases, only: None };
        sweep.run(|rng, counts| case_of(plan, rng, counts), &|_| {})
    }

    #[test]
    fn blocks_are_refused_accepted_and_executed() {
        let outcome = sweep(plan, 1_000);
        assert_eq!(outcome.verdict("parameter blocks", 6), Ok(()));
        for name in ["refused", "accepted", "executed of delta_h"] {
            assert!(outcome.counts.get(name) > 10, "{name}: {:?}", outcome.counts);
        }
    }

    /// Values that are written a little behind their place.
    #[test]
    fn values_past_their_rows_are_a_failure() {
        let outcome = sweep(
            |problem, executor, options| {
                let mut moved = *problem;
                moved.v_new.iter_mut().for_each(|v_new| v_new.ptr = v_new.ptr.wrapping_add(64));
                moved.v_new.iter_mut().for_each(|v_new| v_new.bytes = v_new.bytes.saturating_add(64));
                plan(&moved, executor, options)
            },
            800,
        );
        let found = ["accepted, and then", "what lies between the elements of a tensor has changed"];
        let ran = |fault: &crate::fuzz::Fault| found.iter().any(|words| fault.what.contains(words));
        assert!(outcome.failed > 0 && outcome.panics == 0 && outcome.faults.iter().all(ran), "{outcome:?}");
    }
}
