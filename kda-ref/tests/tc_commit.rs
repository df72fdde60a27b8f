//! The contract of `tc_commit`: states against the closed form, boundaries, destinations, what is written, and chains of verify and
//! commit against the uninterrupted recurrence.

use half::bf16;
use kda_ref::Mode;
use kda_ref::budget::max_abs_error;
use kda_ref::floats::Floats;
use kda_ref::norm::l2_normalise;
use kda_ref::rng::Rng;
use kda_ref::tc_commit::drift::curve;
use kda_ref::tc_commit::sample::{Buffers, Sample, Switches};
use kda_ref::tc_commit::{Boundary, Commit, Compaction, HEAD, Outputs, Problem, reference, run};
use kda_ref::tc_verify::sample::Gates;
use kda_ref::tc_verify::{ConvOrder, Refusal};

const MODES: [Mode; 4] = [Mode::Exact, Mode::Contract, Mode::ContractOtherTies, Mode::Emulate];

fn seed() -> u64 {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let fresh = u64::from(clock.subsec_nanos());
    let seed = std::env::var("KDA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(fresh);
    println!("KDA_SEED={seed}");
    seed
}

fn execute(sample: &Sample, mode: Mode) -> Buffers {
    let mut buffers = sample.buffers();
    run(&sample.problem(), &mut buffers.outputs(), mode).expect("a valid sample");
    buffers
}

/// `S diag(e^{cum_n}) + sum_{i<n} u_i (e^{cum_n - cum_i} kn_i)^T`, each factor one exponential; `[V, K]`.
fn closed_form(p: &Problem<'_>, commit: &Commit, head: usize, n: usize) -> Vec<f64> {
    let base = commit.source * p.state_pitch + head * HEAD * HEAD;
    let mut cum = vec![vec![0.0; HEAD]];
    let mut keys = Vec::new();
    for i in 0..n {
        let record = p.record(commit.b, head, i);
        let mut k = p.kg.widened(2 * record, HEAD);
        l2_normalise(&mut k, 1.0);
        let g = |c: usize| {
            let z = p.kg.get(2 * record + HEAD + c) + f64::from(p.dt_bias[head * HEAD + c]);
            p.gate().log_decay(z, f64::from(p.a_log(head)))
        };
        cum.push((0..HEAD).map(|c| cum[i][c] + g(c)).collect());
        keys.push(k);
    }
    let element = |i: usize| {
        let (v, c) = (i / HEAD, i % HEAD);
        let written = |t: usize| {
            let u = p.corr.get(p.record(commit.b, head, t) + v);
            u * keys[t][c] * (cum[n][c] - cum[t + 1][c]).exp()
        };
        p.state.get(base + i) * cum[n][c].exp() + (0..n).map(written).sum::<f64>()
    };
    (0..HEAD * HEAD).map(element).collect()
}

/// Every slot that is written holds the closed form, every other element is left alone, and sources of other destinations too.
#[test]
fn states_are_the_closed_form_and_nothing_else_is_written() {
    let seed = seed();
    let mut seen = [0; 4];
    for case in 0..60 {
        let mut rng = Rng::new(seed + case);
        let drawn = Switches::random(&mut rng, 4, 2, if case % 4 == 0 { 16 } else { 6 });
        let both = case % 2 == 0;
        let switches = Switches { separate: both || drawn.separate, boundary: both || drawn.boundary, ..drawn };
        let sample = Sample::random(&mut rng, switches);
        let (p, got) = (sample.problem(), execute(&sample, Mode::Exact));
        let what = format!("KDA_SEED={seed}, case {case}: {switches:?}");
        let mut written = vec![false; got.state.len()];
        for commit in p.commits() {
            seen[0] += usize::from(commit.destination != commit.source);
            seen[1] += usize::from(commit.boundary.is_some_and(|(m, _)| m == commit.n));
            seen[2] += usize::from(commit.boundary.is_some_and(|(m, _)| m < commit.n));
            seen[3] += usize::from(commit.boundary.is_some_and(|(_, slot)| slot == commit.source));
            for (head, (n, slot)) in (0..p.heads).flat_map(|head| commit.targets().map(move |target| (head, target))) {
                let begin = slot * p.state_pitch + head * HEAD * HEAD;
                let state = &got.state[begin..begin + HEAD * HEAD];
                assert!(max_abs_error(&closed_form(&p, &commit, head, n), state) < 1e-12, "{what}");
                written[begin..begin + HEAD * HEAD].fill(true);
            }
        }
        assert!(got.state.iter().map(|s| !s.is_nan()).eq(written.iter().copied()), "{what}");
        assert!(reference(&p).expect("a valid sample").same_conv(&got.conv), "{what}");
    }
    println!("{seen:?} other destinations, boundaries at the end, ahead of it, in the source");
    assert!(seen.iter().all(|count| *count > 0), "KDA_SEED={seed}: {seen:?}");
}

/// What the metadata make of a request, one case each.
#[test]
fn counts_slots_and_boundaries_out_of_range_are_defined() {
    let mut rng = Rng::new(3);
    let switches = Switches { null: 0, separate: true, boundary: true, ..Switches::plain(1, 1, 4) };
    let sample = Sample::random(&mut rng, switches);
    let commit = |n: i32, source: i32, destination: i32, m: i32, boundary: i32| {
        let mut changed = sample.clone();
        (changed.counts, changed.slot_of, changed.destinations) = (vec![n], vec![source], Some(vec![destination]));
        (changed.boundary_tokens, changed.boundary_slots) = (vec![m], vec![boundary]);
        changed.problem().commit(0)
    };
    let whole = Commit { b: 0, source: 1, destination: 2, n: 3, boundary: Some((2, 3)) };
    assert_eq!(commit(3, 1, 2, 2, 3), Some(whole));
    assert_eq!(commit(3, 1, 2, 3, 3), Some(Commit { boundary: Some((3, 3)), ..whole }));
    for n in [0, -1, i32::MIN] {
        assert_eq!(commit(n, 1, 2, 0, 3), None);
    }
    for n in [5, i32::MAX] {
        assert_eq!(commit(n, 1, 2, 5, 3), Some(Commit { n: 4, boundary: None, ..whole }));
    }
    let dead = [0, -1, i32::MIN, sample.slots as i32, i32::MAX];
    for slot in dead {
        assert_eq!(commit(3, slot, 2, 2, 3), None);
        assert_eq!(commit(3, 1, slot, 2, 3), None);
        assert_eq!(commit(3, 1, 2, 2, slot), Some(Commit { boundary: None, ..whole }));
    }
    for m in [0, -1, 4, i32::MIN, i32::MAX] {
        assert_eq!(commit(3, 1, 2, m, 3), Some(Commit { boundary: None, ..whole }));
    }
    let (mut absent, everything) = (sample.clone(), sample.problem());
    absent.destinations = None;
    assert_eq!(absent.problem().commit(0).map(|c| c.destination), absent.problem().commit(0).map(|c| c.source));
    assert_eq!(Problem { boundary: None, ..everything }.commit(0).and_then(|c| c.boundary), None);
}

/// Windows: rows n-1 .. n+1 of the source become rows 0..2, at the boundary m-1 .. m+1, also in place; other rows stay.
#[test]
fn windows_are_compacted() {
    let seed = seed();
    for order in [ConvOrder::TokenMajor, ConvOrder::ChannelMajor] {
        for (n, m, in_place) in (1..=5).flat_map(|n| (0..=n).flat_map(move |m| [(n, m, true), (n, m, false)])) {
            let mut rng = Rng::new(seed + n as u64);
            let switches = Switches { conv: Some(order), padding: 8, boundary: true, ..Switches::plain(1, 1, 5) };
            let mut sample = Sample::random(&mut rng, switches);
            (sample.counts, sample.boundary_tokens) = (vec![n], vec![m]);
            (sample.slot_of, sample.boundary_slots) = (vec![1], vec![if in_place { 2 } else { 1 }]);
            sample.destinations = if in_place { None } else { Some(vec![0]) };
            let got = execute(&sample, Mode::Contract);
            for (slot, row, channel) in (0..sample.slots)
                .flat_map(|slot| (0..7 * 3 * HEAD).map(move |i| (slot, i / (3 * HEAD), i % (3 * HEAD))))
            {
                let at = |slot: usize, row: usize| {
                    let place =
                        if order == ConvOrder::TokenMajor { row * 3 * HEAD + channel } else { channel * 7 + row };
                    slot * sample.conv_pitch + place
                };
                let (destination, boundary) = if in_place { (1, 2) } else { (0, 1) };
                let from = match (slot, row) {
                    (slot, 0..3) if slot == destination => at(1, n as usize - 1 + row),
                    (slot, 0..3) if slot == boundary && m >= 1 => at(1, m as usize - 1 + row),
                    _ => at(slot, row),
                };
                let (got, want) = (got.conv[at(slot, row)].to_bits(), sample.conv[from].to_bits());
                assert_eq!(got, want, "KDA_SEED={seed}, {order:?}, n {n}, m {m}, in place {in_place}, {slot} {row}");
            }
        }
    }
}

/// A boundary state is the commit of m records, and the destination does not depend on there being one; a source that is no target
/// takes no part.
#[test]
fn a_boundary_is_a_commit_of_fewer_records() {
    let seed = seed();
    for case in 0..6 {
        let mut rng = Rng::new(seed + case);
        let gates = if case % 2 == 0 { Gates::Typical } else { Gates::Far };
        let switches = Switches { boundary: true, gates, lower_bound: None, ..Switches::plain(1, 2, 6) };
        let mut sample = Sample::random(&mut rng, switches);
        sample.counts = vec![5];
        let begin = |slot: i32| slot as usize * sample.state_pitch;
        let (own, other) = (begin(sample.slot_of[0]), begin(sample.boundary_slots[0]));
        let width = sample.problem().state_len();
        for mode in MODES {
            let mut alone = sample.clone();
            alone.switches.boundary = false;
            let whole = execute(&alone, mode);
            for m in 1..=5 {
                sample.boundary_tokens = vec![m];
                alone.counts = vec![m];
                let (both, fewer) = (execute(&sample, mode), execute(&alone, mode));
                assert_eq!(both.state[own..own + width], whole.state[own..own + width], "KDA_SEED={seed}, {mode:?}");
                assert_eq!(
                    both.state[other..other + width],
                    fewer.state[own..own + width],
                    "KDA_SEED={seed}, {mode:?}"
                );
                assert!(both.state[own..own + width].iter().all(|s| s.is_finite()), "KDA_SEED={seed}, {mode:?}");
            }
        }
    }
}

/// Other layers have the same shapes and metadata and other values.
#[test]
fn layers_share_shapes_and_metadata() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let switches =
        Switches { conv: Some(ConvOrder::TokenMajor), padding: 16, boundary: true, ..Switches::plain(3, 2, 4) };
    let first = Sample::random(&mut rng, switches);
    let second = first.another_layer(&mut rng);
    let shape = |s: &Sample| [s.state.view().len(), s.corr.len(), s.kg.len(), s.conv.len(), s.dt_bias.len()];
    assert_eq!(shape(&first), shape(&second));
    assert_eq!(first.problem().commits().collect::<Vec<_>>(), second.problem().commits().collect::<Vec<_>>());
    assert!(first.corr != second.corr && first.kg != second.kg && first.state != second.state);
}

#[test]
fn refusals_say_what_is_needed_and_nothing_is_written() {
    let mut rng = Rng::new(9);
    let switches =
        Switches { conv: Some(ConvOrder::ChannelMajor), padding: 8, boundary: true, ..Switches::plain(2, 1, 3) };
    let mut sample = Sample::random(&mut rng, switches);
    (sample.slot_of, sample.boundary_slots) = (vec![0, 1], vec![2, 3]);
    (sample.counts, sample.boundary_tokens) = (vec![3, 2], vec![1, 2]);
    let plain = sample.problem();
    let refusal = |p: &Problem<'_>| {
        let mut buffers = sample.buffers();
        let refusal = run(p, &mut buffers.outputs(), Mode::Contract).expect_err("a bad call");
        assert!(buffers.state.iter().all(|x| x.is_nan()));
        assert!(buffers.conv.iter().zip(&sample.conv).all(|(x, y)| x.to_bits() == y.to_bits()));
        refusal
    };
    let short = |p: &Problem<'_>, name: &str| match refusal(p) {
        Refusal::TooShort { name: given, .. } => assert_eq!(given, name),
        other => panic!("{name}: {other}"),
    };
    short(&Problem { state: Floats::F32(&[]), ..plain }, "state");
    short(&Problem { state_pitch: 1, ..plain }, "state_pitch");
    short(&Problem { corr: Floats::F32(&[]), ..plain }, "corr");
    short(&Problem { kg: Floats::Bf16(&[]), ..plain }, "kg");
    short(&Problem { a_log: Some(&[]), ..plain }, "a_log");
    short(&Problem { dt_bias: &plain.dt_bias[1..], ..plain }, "dt_bias");
    short(&Problem { slot_of: &[0], ..plain }, "slot_of");
    short(&Problem { counts: &[1], ..plain }, "counts");
    short(&Problem { destinations: Some(&[1]), ..plain }, "destinations");
    let boundary = Boundary { tokens: &[1, 1], slots: &[2, 3] };
    short(&Problem { boundary: Some(Boundary { tokens: &[1], ..boundary }), ..plain }, "boundary tokens");
    short(&Problem { boundary: Some(Boundary { slots: &[1], ..boundary }), ..plain }, "boundary slots");
    let conv = plain.conv.expect("windows");
    short(&Problem { conv: Some(Compaction { pool: &[], ..conv }), ..plain }, "conv");
    short(&Problem { conv: Some(Compaction { pitch: 7, ..conv }), ..plain }, "conv_pitch");
    assert!(matches!(refusal(&Problem { window: 17, ..plain }), Refusal::Size { name: "window", given: 17, .. }));
    assert!(matches!(refusal(&Problem { heads: 0, ..plain }), Refusal::Size { name: "heads", given: 0, .. }));
    let (mut state, mut short_conv) = (vec![f64::NAN; sample.state.view().len()], vec![bf16::NAN; 9]);
    for (conv, words) in
        [(None, "the pool of raw inputs that is compacted is needed"), (Some(&mut short_conv[..]), "is 9, at least")]
    {
        let refusal =
            run(&plain, &mut Outputs { state: &mut state, conv }, Mode::Exact).expect_err("nowhere to compact");
        assert!(refusal.to_string().contains(words), "{refusal}");
    }
    let refusal_of = |slot_of: &[i32], destinations: Option<&[i32]>, slots: &[i32]| {
        refusal(&Problem { slot_of, destinations, boundary: Some(Boundary { tokens: &[1, 2], slots }), ..plain })
    };
    let shared = |index: usize| Refusal::Shared { name: "slot", index };
    // Two destinations; a destination that another reads; one that another's boundary takes; one that its own, earlier state takes.
    assert_eq!(refusal_of(&[0, 0], None, &[2, 3]), shared(0));
    assert_eq!(refusal_of(&[0, 1], Some(&[1, 4]), &[2, 3]), shared(1));
    assert_eq!(refusal_of(&[0, 1], None, &[1, 3]), shared(1));
    assert_eq!(refusal_of(&[0, 1], None, &[0, 3]), shared(0));
    // The same state twice into one slot is no conflict: m = n.
    let same = Problem { boundary: Some(Boundary { tokens: &[1, 2], slots: &[2, 1] }), ..plain };
    assert!(run(&same, &mut sample.buffers().outputs(), Mode::Contract).is_ok());
}

/// The curves level off, because the delta rule forgets: with a bf16 pool at a few of its units, with an fp32 pool at what the bf16
/// parts of states and probes leave out, 2^-17. 64 steps here, thousands in the example `tc_drift`.
#[test]
fn drift_levels_off_at_the_rounding_of_the_pool() {
    let seed = seed();
    for (bf16_pool, unit) in [(false, 2f64.powi(-17)), (true, 2f64.powi(-8))] {
        let drift = curve(seed, bf16_pool, &[1, 16, 64]).expect("a valid stream");
        println!("bf16 {bf16_pool}: {drift:?}");
        assert!(drift[0] > 0.0 && drift[0] < unit, "KDA_SEED={seed}: {drift:?}");
        assert!(drift[2] > drift[0] && drift[2] > unit / 16.0 && drift[2] < 4.0 * unit, "KDA_SEED={seed}: {drift:?}");
    }
}
