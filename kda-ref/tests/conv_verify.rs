//! The contract of `conv_verify`: index rules, snapshots, chains, NaN containment, refusals.

use half::bf16;
use kda_ref::Mode;
use kda_ref::conv_verify::sample::{Buffers, Sample, Switches};
use kda_ref::conv_verify::{HEAD, HISTORY, Problem, Refusal, SnapshotRule, run};
use kda_ref::floats::{FloatVec, Floats};
use kda_ref::rng::Rng;

const MODES: [Mode; 4] = [Mode::Exact, Mode::Contract, Mode::ContractOtherTies, Mode::Emulate];

fn execute(sample: &Sample, mode: Mode) -> Buffers {
    let mut buffers = sample.buffers();
    run(&sample.problem(), &mut buffers.outputs(), mode).expect("a valid sample");
    buffers
}

fn bits(x: &[f64]) -> Vec<u64> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Everything that a call may touch, by the index rules alone; everything else must keep the canary.
#[test]
fn only_what_the_contract_names_is_written() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let switches = Switches { nulls: true, ..Switches::random(&mut rng, 5, 4) };
        let sample = Sample::random(&mut rng, switches);
        let (d, got) = (switches.dims, execute(&sample, Mode::Contract));
        let (mut out, mut states) = (vec![false; got.out.len()], vec![false; got.states.len()]);
        let (mut windows, mut rolled) = (vec![false; got.windows.view().len()], vec![false; got.rolled.view().len()]);
        for n in 0..d.n {
            let live = |index: i32, len: usize| index > switches.null && index >= 0 && (index as usize) < len;
            let (line, slot, row) = (sample.conv_slots[n], sample.state_slots[n], sample.snapshot_rows[n]);
            let row_live = live(line, sample.conv_layout.lines) && live(slot, sample.state_len);
            let snapshot_live = row_live && live(row, sample.snapshot_len);
            for t in 0..d.t {
                let begin = (n * d.t + t) * got.out_row_stride;
                let end = begin + d.hv * HEAD;
                out[begin..end].fill(true);
                let zero = got.out[begin..end].iter().all(|&x| x == 0.0)
                    && got.out_bf16[begin..end].iter().all(|&x| x == bf16::ZERO);
                assert!(row_live || zero, "seed {seed}: padding row {n}");
                if snapshot_live {
                    let state_row = if switches.rule == SnapshotRule::ByBatch { n } else { row as usize };
                    let begin = (state_row * switches.t_alloc + t) * d.state_len();
                    states[begin..begin + d.state_len()].fill(true);
                    for (c, j) in (0..d.channels()).flat_map(|c| (0..HISTORY).map(move |j| (c, j))) {
                        windows[got.window_layout.offset(row as usize, t, c, j)] = true;
                    }
                }
            }
            if row_live && switches.roll {
                for (c, j) in (0..d.channels()).flat_map(|c| (0..HISTORY).map(move |j| (c, j))) {
                    rolled[sample.conv_layout.offset(line as usize, c, j)] = true;
                }
            }
        }
        let written = |x: &[f64]| x.iter().map(|x| !x.is_nan()).collect::<Vec<_>>();
        assert_eq!(written(&got.out), out, "seed {seed}: out");
        assert_eq!(got.out_bf16.iter().map(|x| !x.is_nan()).collect::<Vec<_>>(), out, "seed {seed}: out (bf16)");
        assert_eq!(written(&got.states), states, "seed {seed}: states");
        let view = got.windows.view();
        assert_eq!(written(&view.widened(0, view.len())), windows, "seed {seed}: windows");
        // A rolled value may equal the old one, but nothing outside the rolled histories may change.
        let (before, after) = (sample.conv_state.bits(), got.rolled.bits());
        assert!((0..rolled.len()).all(|i| rolled[i] || before[i] == after[i]), "seed {seed}: roll");
    }
}

/// Windows and rolled histories are the three newest raw inputs, for T below and above 3, bit for bit in every mode.
#[test]
fn windows_and_rolls_are_copies() {
    for seed in 100..130 {
        let mut rng = Rng::new(seed);
        let switches = Switches { nulls: false, roll: true, ..Switches::random(&mut rng, 3, 5) };
        let sample = Sample::random(&mut rng, switches);
        let d = switches.dims;
        for mode in MODES {
            let got = execute(&sample, mode);
            let raw = |n: usize, step: usize, c: usize| match step.checked_sub(HISTORY) {
                Some(t) => sample.x[(n * d.t + t) * (d.channels() + switches.padding) + c].to_f32(),
                None => {
                    sample.conv_state.view().get_f32(sample.conv_layout.offset(sample.conv_slots[n] as usize, c, step))
                }
            };
            for n in 0..d.n {
                for (c, j) in (0..d.channels()).flat_map(|c| (0..HISTORY).map(move |j| (c, j))) {
                    for t in 0..d.t {
                        let at = got.window_layout.offset(sample.snapshot_rows[n] as usize, t, c, j);
                        let window = got.windows.view().get_f32(at);
                        assert_eq!(window.to_bits(), raw(n, t + 1 + j, c).to_bits(), "seed {seed}, {mode:?}");
                    }
                    let at = sample.conv_layout.offset(sample.conv_slots[n] as usize, c, j);
                    let rolled = got.rolled.view().get_f32(at);
                    assert_eq!(rolled.to_bits(), raw(n, d.t + j, c).to_bits(), "seed {seed}, {mode:?}");
                }
            }
        }
    }
}

/// One call of T tokens equals T calls of one token, each fed with the snapshots of the one before: bit for bit, in every
/// mode. This is also the commit of m accepted tokens for every m.
#[test]
fn a_verify_is_a_chain_of_decodes() {
    for seed in 200..216 {
        let mut rng = Rng::new(seed);
        let t = 1 + rng.below(6);
        let switches = Switches { nulls: false, padding: 0, ..Switches::random(&mut rng, 2, 1) };
        let switches = Switches { dims: kda_ref::conv_verify::Dims { t, ..switches.dims }, t_alloc: t, ..switches };
        let sample = Sample::random(&mut rng, switches);
        let d = switches.dims;
        for mode in MODES {
            let whole = execute(&sample, mode);
            let mut state: Vec<f64> = sample.state.iter().map(|&s| f64::from(s)).collect();
            let mut histories = sample.conv_state.clone();
            for t in 0..d.t {
                let pick = |x: &[bf16], width: usize| -> Vec<bf16> {
                    (0..d.n).flat_map(|n| &x[(n * d.t + t) * width..(n * d.t + t + 1) * width]).copied().collect()
                };
                let (x, a, b) = (pick(&sample.x, d.channels()), pick(&sample.a, d.hv * HEAD), pick(&sample.b, d.hv));
                let one =
                    Switches { dims: kda_ref::conv_verify::Dims { t: 1, ..d }, t_alloc: 1, roll: true, ..switches };
                let problem = Problem {
                    dims: one.dims,
                    x: &x,
                    a: &a,
                    b: &b,
                    state: Floats::F64(&state),
                    conv_state: histories.view(),
                    t_alloc: 1,
                    roll: true,
                    ..sample.problem()
                };
                let mut buffers = Sample { switches: one, conv_state: histories.clone(), ..sample.clone() }.buffers();
                run(&problem, &mut buffers.outputs(), mode).unwrap();
                for n in 0..d.n {
                    let (row, width) = (n * d.t + t, d.hv * HEAD);
                    let want = &whole.out[row * width..(row + 1) * width];
                    assert_eq!(
                        bits(&buffers.out[n * width..(n + 1) * width]),
                        bits(want),
                        "seed {seed}, {mode:?}, {t}"
                    );
                    let snapshot =
                        if switches.rule == SnapshotRule::ByBatch { n } else { sample.snapshot_rows[n] as usize };
                    let from = &buffers.states[snapshot * d.state_len()..(snapshot + 1) * d.state_len()];
                    let want = &whole.states[(snapshot * d.t + t) * d.state_len()..][..d.state_len()];
                    assert_eq!(bits(from), bits(want), "seed {seed}, {mode:?}, token {t}");
                    let slot = sample.state_slots[n] as usize * d.state_len();
                    state[slot..slot + d.state_len()].copy_from_slice(from);
                }
                histories = buffers.rolled.clone();
            }
            if switches.roll {
                assert_eq!(histories.bits(), whole.rolled.bits(), "seed {seed}, {mode:?}");
            }
        }
    }
}

/// Layouts and pool types that can hold the same values give the same bits.
#[test]
fn layouts_and_pool_types_do_not_matter() {
    let mut rng = Rng::new(300);
    let switches = Switches { bf16_pool: true, roll: true, ..Switches::plain(3, 2, 1, 2) };
    let sample = Sample::random(&mut rng, switches);
    let reference = execute(&sample, Mode::Emulate);
    let (d, old) = (switches.dims, sample.conv_layout);
    let new = kda_ref::conv_verify::ConvLayout::channels_innermost(old.lines, d.channels());
    let mut moved = vec![0.0f32; old.lines * new.line];
    for line in 0..old.lines {
        for (c, j) in (0..d.channels()).flat_map(|c| (0..HISTORY).map(move |j| (c, j))) {
            moved[new.offset(line, c, j)] = sample.conv_state.view().get_f32(old.offset(line, c, j));
        }
    }
    let other = Sample {
        switches: Switches { channels_innermost: true, bf16_pool: false, ..switches },
        conv_state: FloatVec::F32(moved),
        conv_layout: new,
        ..sample.clone()
    };
    let got = execute(&other, Mode::Emulate);
    assert_eq!(bits(&reference.out), bits(&got.out));
    assert_eq!(bits(&reference.states), bits(&got.states));
    for (row, t) in sample.snapshot_rows.iter().flat_map(|&row| (0..d.t).map(move |t| (row as usize, t))) {
        for (c, j) in (0..d.channels()).flat_map(|c| (0..HISTORY).map(move |j| (c, j))) {
            let a = reference.windows.view().get_f32(reference.window_layout.offset(row, t, c, j));
            assert_eq!(a, got.windows.view().get_f32(got.window_layout.offset(row, t, c, j)));
        }
    }
}

/// Which (row, value head) outputs hold a NaN.
fn poisoned(sample: &Sample, mode: Mode) -> Vec<(usize, usize)> {
    let d = sample.switches.dims;
    let got = execute(sample, mode);
    let has_nan = |n: usize, hv: usize| {
        (0..d.t).any(|t| {
            let begin = (n * d.t + t) * got.out_row_stride + hv * HEAD;
            got.out[begin..begin + HEAD].iter().any(|x| x.is_nan())
        })
    };
    (0..d.n).flat_map(|n| (0..d.hv).map(move |hv| (n, hv))).filter(|&(n, hv)| has_nan(n, hv)).collect()
}

#[test]
fn nan_stays_with_the_heads_that_read_it() {
    let mut rng = Rng::new(400);
    let clean = Sample::random(&mut rng, Switches::plain(3, 3, 2, 4));
    let d = clean.switches.dims;
    for mode in MODES {
        assert_eq!(poisoned(&clean, mode), []);
        let with = |change: &dyn Fn(&mut Sample)| {
            let mut sample = clean.clone();
            change(&mut sample);
            poisoned(&sample, mode)
        };
        let x_of = |n: usize, t: usize, channel: usize| (n * d.t + t) * d.channels() + channel;
        // q head 1, k head 0, v head 3 of row 1.
        assert_eq!(with(&|s| s.x[x_of(1, 0, HEAD + 5)] = bf16::NAN), [(1, 2), (1, 3)]);
        assert_eq!(with(&|s| s.x[x_of(1, 2, 2 * HEAD)] = bf16::NAN), [(1, 0), (1, 1)]);
        assert_eq!(with(&|s| s.x[x_of(1, 1, (4 + 3) * HEAD + 9)] = bf16::NAN), [(1, 3)]);
        assert_eq!(with(&|s| s.a[((2 * d.t) * d.hv + 1) * HEAD] = bf16::NAN), [(2, 1)]);
        assert_eq!(with(&|s| s.b[d.hv - 1] = bf16::NAN), [(0, 3)]);
        assert_eq!(with(&|s| s.a_log.as_mut().unwrap()[2] = f32::NAN), [(0, 2), (1, 2), (2, 2)]);
        let slot = clean.state_slots[1] as usize * d.state_len();
        assert_eq!(with(&|s| s.state[slot + 2 * HEAD * HEAD + 77] = f32::NAN), [(1, 2)]);
    }
}

#[test]
fn extreme_gates_stay_finite() {
    let mut rng = Rng::new(500);
    for lower_bound in [None, Some(-5.0)] {
        let mut sample = Sample::random(&mut rng, Switches { lower_bound, ..Switches::plain(1, 4, 1, 1) });
        let extremes = [-3e38, -200.0, -90.0, -18.0, -17.0, 0.0, 20.0, 89.0, 100.0, 3e38].map(bf16::from_f32);
        sample.a.iter_mut().zip(extremes.iter().cycle()).for_each(|(a, x)| *a = *x);
        for a_log in [-100.0, -6.0, 0.0, 10.0, 90.0, 100.0, 3e38] {
            sample.a_log = Some(vec![a_log]);
            for mode in MODES {
                let got = execute(&sample, mode);
                assert!(got.out.iter().all(|x| x.is_finite()), "seed 500, {lower_bound:?}, A_log {a_log}, {mode:?}");
                let row = sample.snapshot_rows[0] as usize * 4 * HEAD * HEAD;
                assert!(got.states[row..row + 4 * HEAD * HEAD].iter().all(|x| x.is_finite()), "seed 500, {mode:?}");
            }
        }
    }
}

#[test]
fn refusals_name_what_is_needed() {
    let mut rng = Rng::new(600);
    let sample = Sample::random(&mut rng, Switches { roll: true, ..Switches::plain(2, 2, 1, 2) });
    let refuse = |change: &dyn Fn(&mut Problem<'_>)| {
        let (mut problem, mut buffers) = (sample.problem(), sample.buffers());
        change(&mut problem);
        let refusal = run(&problem, &mut buffers.outputs(), Mode::Exact).expect_err("a refusal");
        assert!(buffers.out.iter().all(|x| x.is_nan()), "nothing is written before a refusal");
        refusal
    };
    assert_eq!(refuse(&|p| p.dims.hv = 3), Refusal::TooShort { name: "x row stride", given: 512, needed: 640 });
    assert_eq!(refuse(&|p| p.dims.h = 3), Refusal::Heads { h: 3, hv: 2 });
    assert_eq!(refuse(&|p| p.t_alloc = 1), Refusal::TooShort { name: "T_alloc", given: 1, needed: 2 });
    assert_eq!(refuse(&|p| p.conv_slots = &[1, 1]), Refusal::Duplicate { name: "conv_slots", index: 1 });
    assert_eq!(refuse(&|p| p.snapshot_rows = &[0, 0]), Refusal::Duplicate { name: "snapshot_rows", index: 0 });
    assert!(refuse(&|p| p.state_len += 1).to_string().starts_with("state is "));
    assert!(refuse(&|p| p.conv_state = Floats::F64(&[0.0])).to_string().contains("fp32 or bf16"));
    let mut buffers = sample.buffers();
    let mut outputs = buffers.outputs();
    outputs.rolled = None;
    assert_eq!(run(&sample.problem(), &mut outputs, Mode::Exact), Err(Refusal::NoRollTarget));
    // Two live rows may share a state slot.
    let mut buffers = sample.buffers();
    let shared = Problem { state_slots: &[1, 1], ..sample.problem() };
    assert_eq!(run(&shared, &mut buffers.outputs(), Mode::Contract), Ok(()));
    // No rows: nothing to do.
    let empty = Problem { dims: kda_ref::conv_verify::Dims { n: 0, ..sample.switches.dims }, ..sample.problem() };
    let mut buffers = sample.buffers();
    assert_eq!(run(&empty, &mut buffers.outputs(), Mode::Contract), Ok(()));
    assert!(buffers.out.iter().all(|x| x.is_nan()));
}
