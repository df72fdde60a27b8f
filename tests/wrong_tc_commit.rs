//! `tc_commit` with something wrong: a check must tell each such kernel from the right one, by an error beyond its budget, by a
//! bit that is prescribed, or by the simulator's report.

use kda::checks::tc_commit::call::Call;
use kda::checks::tc_commit::case::{Case, Plan};
use kda::checks::tc_commit::judge::{Expected, Tally, fits};
use kda::checks::tc_commit::problems;
use kda::checks::{Device, Measured};
use kda::core::exec::{Executor, Stream};
use kda::core::{KernelDesc, PreparedLaunch};
use kda::mutate::subject::compile;
use kda::reference::tc_commit::ConvOrder;
use kda::reference::tc_commit::sample::Switches;
use kda::runtime::executor::sim::SimExecutor;
use kda::runtime::operators::tc_commit::{Options, plan};
use kda_kernels::tc_commit::TcCommitVariant;

const SEED: u64 = 2;

/// The problems of a quick check, and slots and counts of every kind that is none; boundaries where the variant applies any.
fn cases(variant: TcCommitVariant) -> Vec<Case> {
    let boundary = variant.boundary();
    let plans = problems::few().into_iter().enumerate();
    let mut cases: Vec<Case> = plans.map(|(at, plan)| plan.draw(SEED + at as u64)).collect();
    for which in 0..if boundary { 3 } else { 2 } {
        let conv = Some(ConvOrder::TokenMajor);
        let switches = Switches { separate: true, boundary, null: 0, conv, ..Switches::plain(4, 1, 4) };
        let mut case = Plan::of(switches).draw(SEED);
        let s = &mut case.layers[0];
        let length = s.slots as i32;
        s.counts.fill(4);
        s.boundary_tokens.copy_from_slice(&[3, 3, 3, 4]);
        let map = [&mut s.slot_of, s.destinations.as_mut().expect("destinations"), &mut s.boundary_slots];
        map.into_iter().nth(which).expect("three maps")[..3].copy_from_slice(&[0, length, -1]);
        cases.push(case);
    }
    // No boundary at 0, below 0 and behind the end; counts past the window.
    let switches = Switches { separate: true, boundary, ..Switches::plain(5, 1, 4) };
    let mut case = Plan::of(switches).draw(SEED);
    case.layers[0].counts.copy_from_slice(&[4, 5, 2, 3, i32::MAX]);
    case.layers[0].boundary_tokens.copy_from_slice(&[0, -1, 3, 3, 1]);
    cases.push(case);
    // Windows that move in place, by every distance.
    let conv = Some(ConvOrder::TokenMajor);
    let mut case = Plan::of(Switches { conv, ..Switches::plain(4, 1, 4) }).draw(SEED);
    case.layers[0].counts.copy_from_slice(&[1, 2, 3, 4]);
    cases.push(case);
    let bf16_state = variant.state() == kda::core::Elem::BF16;
    let of_type = |case: &mut Case| {
        for layer in &mut case.layers {
            layer.switches.bf16_state = bf16_state;
            let pool = layer.state.view();
            let values = (0..pool.len()).map(|at| pool.get_f32(at));
            layer.state = match bf16_state {
                true => kda::reference::floats::FloatVec::Bf16(values.map(half::bf16::from_f32).collect()),
                false => kda::reference::floats::FloatVec::F32(values.collect()),
            };
        }
    };
    cases.iter_mut().for_each(of_type);
    cases.retain(|case| fits(variant, &case.first().switches));
    cases
}

/// Whether a kernel, in the place of a variant, is right on a case.
fn is_right(variant: TcCommitVariant, instead: &'static KernelDesc, case: &Case, expected: &Expected) -> bool {
    let executor = SimExecutor::default();
    let run = || -> Result<_, Box<dyn std::error::Error>> {
        let call = Call::new(Device::simulator(&executor), case)?;
        let planned = plan(&call.problem, &executor, &Options { variant: Some(variant), pdl: true })?;
        let launch = PreparedLaunch { desc: instead, ..planned.prepared().clone() };
        // SAFETY: the simulator touches no host memory; the buffers of the call outlive the launch.
        unsafe { executor.launch(&launch, Stream::default()) }?;
        call.results()
    };
    run().is_ok_and(|results| {
        let mut tally = Tally::default();
        tally.judge(&results, expected);
        tally.rows("").iter().all(Measured::passes)
    })
}

/// The variant from a source with one text replaced.
fn changed(desc: &'static KernelDesc, from: &str, to: &str) -> &'static KernelDesc {
    let source = kda_kernels::SOURCES.into_iter().find(|source| source.family == desc.family).expect("the source");
    assert!(source.text.contains(from), "the source has no `{from}`");
    let compiled = compile(desc, &source, &source.text.replace(from, to));
    let compiled = compiled.unwrap_or_else(|errors| panic!("`{from}` -> `{to}`: {errors:?}"));
    let (isa, shared_bytes, pdl) = (compiled.isa, compiled.shared_bytes, compiled.pdl);
    KernelDesc { isa, shared_bytes, pdl, ..*desc }.with_text(compiled.ptx)
}

const CHANGES: &[(&str, &str)] = &[
    // Whose request it is.
    ("given <= 0", "given < 0"),
    ("min(given as u32, window)", "min(given as u32, window - 1)"),
    ("min(given as u32, window)", "given as u32"),
    ("!step::is_live(from_slot, null, slots)", "!step::is_live(from_slot, null - 1, slots)"),
    ("!step::is_live(from_slot, null, slots)", "!step::is_live(from_slot, null, slots + 1)"),
    ("!step::is_live(to_slot, null, slots)", "!step::is_live(to_slot, null - 1, slots)"),
    ("!step::is_live(to_slot, null, slots)", "!step::is_live(to_slot, null, slots + 1)"),
    ("select(destinations.is_present(), other_slot, from_slot)", "from_slot"),
    ("select(destinations.is_present(), other_slot, from_slot)", "other_slot"),
    // Sums, decays, norms.
    ("if const { G == 2 } { tid / 4 % 2 * HALF + tid / 8 * 4 + tid % 4 } else { tid }", "tid"),
    ("select(I < n, run * decay[I], run)", "run * decay[I]"),
    ("select(I < n, run * decay[I], run)", "run"),
    (") * run;", ");"),
    ("squares.at([I, 0])", "squares.at([0, 0])"),
    ("gate[i] as f32 + bias", "gate[i] as f32"),
    ("step::decay(true, lower_bound, rate, z[i])", "step::decay(true, lower_bound, 0.0, z[i])"),
    ("step::decay(false, lower_bound, rate, z[i])", "step::decay(false, lower_bound, 0.0, z[i])"),
    ("let decay = if bounded {", "let decay = if !bounded {"),
    ("as f32) * all[g][e]", "as f32)"),
    ("s[r] = fma(u[r], w, s[r]);", "s[r] = fma(u[0], w, s[r]);"),
    ("row + 4 * block, done, n)", "row + 4 * block, done, n - 1)"),
    ("row + 4 * block, done, n)", "row, done, n)"),
    ("corrections.at([at / FOURS, at % FOURS * 4])", "corrections.at([at / FOURS, 0])"),
    ("part * ROWS + at % FOURS * 4", "at % FOURS * 4"),
    ("records.at([i, 1, tid])", "records.at([i, 0, tid])"),
    // Windows.
    ("n != 1 ||", "n > 2 ||"),
    ("tokens.at([from_slot, n - 1 + i, of, head, channel])", "tokens.at([from_slot, n - 1, of, head, channel])"),
    ("tid < PIECES;", "tid < PIECES - 1;"),
    ("window_of.at([n - 1 + i])", "window_of.at([n - 1])"),
    ("let at = part * CHANNELS + c;", "let at = c;"),
    // Layers.
    ("layers.at([layer, CORR_AT])", "layers.at([0, CORR_AT])"),
    ("layers.at([layer, KG_AT])", "layers.at([0, KG_AT])"),
    ("layers.at([layer, CONV_AT])", "layers.at([0, CONV_AT])"),
    ("layers.at([layer, A_LOG_AT])", "layers.at([layer, DT_BIAS_AT])"),
    ("layers.at([layer, DT_BIAS_AT])", "layers.at([0, DT_BIAS_AT])"),
    ("layers.at([layer, STATE_AT])", "layers.at([0, STATE_AT])"),
    ("let many = layers.is_present();", "let many = false;"),
];

/// Of variants that apply boundaries.
const OF_BOUNDARIES: &[(&str, &str)] = &[
    // Whose they are.
    ("step::is_live(mark_slot, null, slots)", "step::is_live(mark_slot, null - 1, slots)"),
    ("step::is_live(mark_slot, null, slots)", "step::is_live(mark_slot, null, slots + 1)"),
    ("mark >= 1 &&", "mark >= 2 &&"),
    ("mark <= n as i32", "mark < n as i32"),
    ("mark <= n as i32", "mark <= window as i32"),
    ("let ends = I + 1 == m;", "let ends = I == m;"),
    ("run = select(ends, 1.0, run);", "run = run;"),
    ("behind = select(ends, run, behind);", "behind = behind;"),
    ("s[r] = s[r] * rest;", "s[r] = s[r];"),
    ("done = m;", "done = m + 1;"),
    ("put::<STATE, G>(to_mark,", "put::<STATE, G>(to,"),
    // Windows.
    ("tokens.at([from_slot, m - 1 + i, of, head, channel])", "tokens.at([from_slot, m, of, head, channel])"),
    ("if halts && tid < PIECES {", "if tid < 0 {"),
    ("window_of.at([m - 1 + i])", "window_of.at([m - 1])"),
];

#[test]
fn a_check_tells_wrong_commits() {
    for name in [
        "tc_commit__rows32_bf16_most8_boundary_sm_90",
        "tc_commit__rows32_bf16_most8_noboundary_sm_90",
        "tc_commit__rows32_f32_most8_boundary_sm_80",
        "tc_commit__rows32_f32_most8_noboundary_sm_80",
    ] {
        let variant = TcCommitVariant::find(name).expect("the variant exists");
        let cases = cases(variant);
        let expected: Vec<Expected> = cases.iter().map(|case| Expected::of(case).expect("a good case")).collect();
        let right = |desc: &'static KernelDesc| {
            cases.iter().zip(&expected).all(|(case, expected)| is_right(variant, desc, case, expected))
        };
        assert!(right(variant.desc()), "{name} itself");
        // A thread has a second four columns of a bf16 state alone, and four rows of it.
        let narrow = name.contains("bf16");
        let applies = |change: &(&str, &str)| match narrow {
            true => *change != ("row + 4 * block, done, n)", "row, done, n)"),
            false => !change.0.contains("HALF + tid / 8"),
        };
        let of_boundaries = OF_BOUNDARIES.iter().filter(|_| variant.boundary());
        let changes = CHANGES.iter().chain(of_boundaries).filter(|change| applies(change));
        let survivors: Vec<_> = changes.filter(|(from, to)| right(changed(variant.desc(), from, to))).collect();
        assert!(survivors.is_empty(), "{name}: {survivors:#?}");
    }
}
