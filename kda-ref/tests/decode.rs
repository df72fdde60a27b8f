//! The contract of `decode`: a verify of one token and its commit, orders of the state, what is written, rounding of a bf16
//! pool.

use half::bf16;
use kda_ref::Mode;
use kda_ref::conv_verify as verify;
use kda_ref::decode::sample::{Buffers, Sample, Switches};
use kda_ref::decode::{HEAD, HISTORY, Problem, Tokens, reference, run};
use kda_ref::floats::{FloatVec, Floats};
use kda_ref::layout::StateOrder;
use kda_ref::rng::Rng;
use kda_ref::round::bf16_from_f64;

const MODES: [Mode; 4] = [Mode::Exact, Mode::Contract, Mode::ContractOtherTies, Mode::Emulate];

fn execute(problem: &Problem<'_>, sample: &Sample, mode: Mode) -> Buffers {
    let mut buffers = sample.buffers();
    run(problem, &mut buffers.outputs(), mode).expect("a valid sample");
    buffers
}

fn bits(x: &[f64]) -> Vec<u64> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// A fresh seed, printed so that a failure can be repeated.
fn seed() -> u64 {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let fresh = u64::from(clock.subsec_nanos());
    let seed = std::env::var("KDA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(fresh);
    println!("KDA_SEED={seed}");
    seed
}

/// What a verify of one token gives: `o` of each request, and in row n + 1 the state and the window of request n.
struct Verified {
    out: Vec<f64>,
    states: Vec<f64>,
    windows: FloatVec,
}

fn verified(sample: &Sample, mode: Mode) -> Verified {
    let (s, p) = (&sample.switches, sample.problem());
    let d = verify::Dims { n: s.dims.n, t: 1, h: s.dims.h, hv: s.dims.hv };
    let (Tokens::Convolved(c), Floats::Bf16(a)) = (p.tokens, p.g) else { panic!("a convolution, and bf16 gates") };
    // Behind row 0, which is none where 0 is the null index.
    let snapshots: Vec<i32> = (1..=d.n as i32).collect();
    let zeros = vec![0.0; d.hv * HEAD];
    // A verify takes no bf16 states: they are widened, which is exact.
    let state = p.state.widened(0, p.state.len());
    let problem = verify::Problem {
        dims: d,
        x: c.x,
        x_row_stride: c.x_row_stride,
        conv_weight: c.weight,
        conv_bias: c.bias,
        conv_state: c.pool,
        conv_layout: c.layout,
        conv_slots: c.slots,
        state: if mode == Mode::Emulate { p.state } else { Floats::F64(&state) },
        state_len: p.state_len,
        state_slot_stride: p.slot_stride,
        state_slots: p.slots,
        snapshot_rows: &snapshots,
        snapshot_len: d.n + 1,
        t_alloc: 1,
        snapshot_rule: verify::SnapshotRule::ByIndex,
        a,
        b: p.beta,
        a_log: p.a_log,
        dt_bias: p.dt_bias.unwrap_or(&zeros),
        scale: p.scale,
        lower_bound: p.lower_bound,
        null: p.null,
        roll: false,
    };
    let width = d.hv * HEAD;
    let (mut out, mut out_bf16) = (vec![f64::NAN; d.n * width], vec![bf16::NAN; d.n * width]);
    let mut states = vec![f64::NAN; (d.n + 1) * d.state_len()];
    let layout = verify::WindowLayout::window_innermost(1, d.channels());
    let mut windows = FloatVec::filled(s.bf16_pool, (d.n + 1) * layout.row, f32::NAN);
    let mut outputs = verify::Outputs {
        out: &mut out,
        out_bf16: &mut out_bf16,
        out_row_stride: width,
        states: Some(&mut states),
        windows: Some((windows.view_mut(), layout)),
        rolled: None,
    };
    verify::run(&problem, &mut outputs, mode).expect("a valid call");
    Verified { out, states, windows }
}

/// The output, the state and the history are those of a verify of the token, committed: bit for bit, in every mode.
#[test]
fn a_decode_is_a_verify_of_one_token_and_its_commit() {
    let seed = seed();
    let mut padding = 0;
    for case in 0..24 {
        let mut rng = Rng::new(seed + case);
        let drawn = Switches::random(&mut rng, 3);
        let sample =
            Sample::random(&mut rng, Switches { fused: true, f32_gate: false, order: StateOrder::VFirst, ..drawn });
        let (p, d) = (sample.problem(), sample.switches.dims);
        for mode in MODES {
            let (got, want) = (execute(&p, &sample, mode), verified(&sample, mode));
            let what = format!("KDA_SEED={seed}, case {case}, {mode:?}: {:?}", sample.switches);
            for n in 0..d.n {
                let out = &got.out[n * got.out_row_stride..][..d.hv * HEAD];
                let Some(place) = p.places(n) else {
                    assert!(out.iter().all(|x| x.to_bits() == 0), "{what}: padding row {n}");
                    padding += 1;
                    continue;
                };
                assert!(bits(out) == bits(&want.out[n * d.hv * HEAD..][..d.hv * HEAD]), "{what}: out");
                let (state, snapshot) = (p.head(place.slot_out, 0), (n + 1) * d.state_len());
                let (state, snapshot) =
                    (&got.state[state..state + d.state_len()], &want.states[snapshot..snapshot + d.state_len()]);
                assert!(bits(state) == bits(snapshot), "{what}: state");
                for (channel, tap) in (0..d.channels()).flat_map(|c| (0..HISTORY).map(move |tap| (c, tap))) {
                    let rolled = got.rolled.view().get_f32(sample.layout.offset(place.line_out, channel, tap));
                    let window = want.windows.view().get_f32(((n + 1) * d.channels() + channel) * HISTORY + tap);
                    assert_eq!(rolled.to_bits(), window.to_bits(), "{what}: history");
                }
            }
        }
    }
    println!("{padding} padding rows");
}

/// What no live row names keeps its bits: in the pool of states, in that of histories, between rows of the output.
#[test]
fn only_what_the_contract_names_is_written() {
    let seed = seed();
    for case in 0..24 {
        let mut rng = Rng::new(seed + case);
        let switches = Switches { nulls: true, ..Switches::random(&mut rng, 5) };
        let sample = Sample::random(&mut rng, switches);
        let (p, d) = (sample.problem(), switches.dims);
        let got = execute(&p, &sample, Mode::Contract);
        let (mut out, mut state) = (vec![false; got.out.len()], vec![false; got.state.len()]);
        let mut rolled = vec![false; got.rolled.view().len()];
        for n in 0..d.n {
            out[n * got.out_row_stride..][..d.hv * HEAD].fill(true);
            let Some(place) = p.places(n) else { continue };
            state[p.head(place.slot_out, 0)..][..d.state_len()].fill(true);
            if switches.fused {
                for (channel, tap) in (0..d.channels()).flat_map(|c| (0..HISTORY).map(move |tap| (c, tap))) {
                    rolled[sample.layout.offset(place.line_out, channel, tap)] = true;
                }
            }
        }
        let written = |x: &[f64]| x.iter().map(|x| !x.is_nan()).collect::<Vec<_>>();
        assert!(written(&got.out) == out, "KDA_SEED={seed}, case {case}: out");
        assert!(written(&got.state) == state, "KDA_SEED={seed}, case {case}: state");
        let (before, after) = (sample.pool.bits(), got.rolled.bits());
        assert!((0..rolled.len()).all(|i| rolled[i] || before[i] == after[i]), "KDA_SEED={seed}, case {case}: history");
    }
}

/// A pool of states with K and V exchanged in every slot.
fn exchanged(sample: &Sample) -> Sample {
    let p = sample.problem();
    let mut other = sample.clone();
    other.switches.order = StateOrder::KFirst;
    let mut view = other.state.view_mut();
    for (slot, hv) in (0..p.state_len).flat_map(|slot| (0..p.dims.hv).map(move |hv| (slot, hv))) {
        let base = p.head(slot, hv);
        for (v, k) in (0..HEAD).flat_map(|v| (0..HEAD).map(move |k| (v, k))) {
            view.put_exact(base + k * HEAD + v, p.state.get_f32(base + v * HEAD + k));
        }
    }
    other
}

#[test]
fn the_order_of_the_state_changes_places_and_no_bits() {
    let seed = seed();
    for case in 0..6 {
        let mut rng = Rng::new(seed + case);
        let drawn = Switches::random(&mut rng, 2);
        let sample = Sample::random(&mut rng, Switches { order: StateOrder::VFirst, ..drawn });
        let other = exchanged(&sample);
        let p = sample.problem();
        for mode in MODES {
            let (rows, columns) = (execute(&p, &sample, mode), execute(&other.problem(), &other, mode));
            assert!(bits(&rows.out) == bits(&columns.out), "KDA_SEED={seed}, case {case}, {mode:?}");
            assert!(rows.rolled.bits() == columns.rolled.bits(), "KDA_SEED={seed}, case {case}, {mode:?}");
            for (slot, hv) in (0..p.state_len).flat_map(|slot| (0..p.dims.hv).map(move |hv| (slot, hv))) {
                let base = p.head(slot, hv);
                for (v, k) in (0..HEAD).flat_map(|v| (0..HEAD).map(move |k| (v, k))) {
                    let (a, b) = (rows.state[base + v * HEAD + k], columns.state[base + k * HEAD + v]);
                    assert_eq!(a.to_bits(), b.to_bits(), "KDA_SEED={seed}, case {case}, {mode:?}: ({v}, {k})");
                }
            }
        }
    }
}

/// A bf16 pool is widened exactly, and o comes from the state ahead of its rounding: the bits are those of an f32 pool with
/// the same values.
#[test]
fn the_type_of_the_pool_changes_its_rounding_alone() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let narrow = Sample::random(&mut rng, Switches { bf16_state: true, ..Switches::plain(2, 1, 2) });
    let mut wide = narrow.clone();
    wide.state = FloatVec::F32((0..narrow.state.view().len()).map(|i| narrow.state.view().get_f32(i)).collect());
    wide.switches.bf16_state = false;
    for mode in MODES {
        let (a, b) = (execute(&narrow.problem(), &narrow, mode), execute(&wide.problem(), &wide, mode));
        assert!((bits(&a.out), bits(&a.state)) == (bits(&b.out), bits(&b.state)), "KDA_SEED={seed}, {mode:?}");
    }
}

/// The budget of a bf16 pool takes states that are rounded to nearest even, and neither truncated nor enlarged ones.
#[test]
fn a_bf16_pool_is_rounded_to_nearest_even() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let sample = Sample::random(&mut rng, Switches { bf16_state: true, ..Switches::plain(2, 1, 2) });
    let p = sample.problem();
    let checked = reference(&p).expect("a valid sample");
    let exact = execute(&p, &sample, Mode::Contract);
    let passes = |round: &dyn Fn(f64) -> bf16| {
        let state = FloatVec::Bf16(exact.state.iter().map(|x| round(*x)).collect());
        let judgements = checked.judge_state(state.view());
        assert_eq!(judgements.len(), 2);
        judgements
            .iter()
            .all(|judgement| judgement.error.rms <= judgement.limit.rms && judgement.error.max <= judgement.limit.max)
    };
    assert!(passes(&|x| bf16_from_f64(x)), "KDA_SEED={seed}");
    assert!(!passes(&|x| bf16::from_bits(((x as f32).to_bits() >> 16) as u16)), "KDA_SEED={seed}: truncated");
    let larger = 1.0 + 2f64.powi(-8);
    assert!(!passes(&|x| bf16_from_f64(x * larger)), "KDA_SEED={seed}: up to a unit of the last place too large");
}
