//! The contract of `delta_h`: what is read and written, orders, slots, gates, boundaries.

use kda_ref::Mode;
use kda_ref::budget::{Stored, relative_error};
use kda_ref::delta_h::plain::{self, DeltaH};
use kda_ref::delta_h::sample::{Damage, GateForm, PoolForm, Sample, Strength, Switches, random_lengths};
use kda_ref::delta_h::{CHUNK, Gate, HEAD, Masked, Problem, Results, STATE, run};
use kda_ref::floats::{FloatVec, Floats, Rows};
use kda_ref::forward::{Packed, States};
use kda_ref::layout::StateOrder;
use kda_ref::rng::Rng;

const MODES: [Mode; 4] = [Mode::Exact, Mode::Contract, Mode::ContractOtherTies, Mode::Emulate];
const LENGTHS: [&[usize]; 7] =
    [&[65, 0, 63], &[66, 0, 64], &[1, 0, 66], &[64, 1, 63, 65, 127], &[0, 5, 0], &[0, 0], &[130]];

fn execute(problem: &Problem<'_>, mode: Mode) -> Results {
    run(problem, mode).expect("a valid sample")
}

/// A fresh seed, printed so that a failure can be repeated.
fn seed() -> u64 {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let fresh = u64::from(clock.subsec_nanos());
    let seed = std::env::var("KDA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(fresh);
    println!("KDA_SEED={seed}");
    seed
}

fn values(part: &Option<Masked>) -> &[f64] {
    part.as_ref().map_or(&[], |part| &part.values)
}

fn bits(x: &[f64]) -> Vec<u64> {
    x.iter().map(|x| x.to_bits()).collect()
}

fn same(a: &Results, b: &Results) -> bool {
    [(&a.h, &b.h), (&a.v_new, &b.v_new), (&a.final_state, &b.final_state)]
        .iter()
        .all(|(a, b)| bits(values(a)) == bits(values(b)))
}

/// Without switches a call is the plain recurrence, bit for bit.
#[test]
fn a_plain_call_is_the_recurrence() {
    let seed = seed();
    let round: [fn(f64) -> f64; 4] =
        [|x| x, kda_ref::round::to_bf16, kda_ref::round::to_bf16_other_tie, kda_ref::round::to_bf16];
    for lengths in LENGTHS {
        let mut rng = Rng::new(seed);
        let switches = Switches { strength: Strength::Mixed, order: StateOrder::VFirst, ..Switches::plain(2) };
        let sample = Sample::random(&mut rng, lengths, switches);
        let p = sample.problem();
        let cu: Vec<usize> = p.cu_seqlens.iter().map(|x| *x as usize).collect();
        let packed = Packed { cu_seqlens: &cu, heads: 2, value_heads: 2, keys: HEAD, values: HEAD };
        let Gate::Cumulative(gk) = p.gate else { panic!("a cumulative gate") };
        let head_rows = |rows: Rows<'_>| -> Vec<f64> { rows.data.widened(0, rows.data.len()) };
        let (kg, w, u, gk) = (head_rows(p.kg), head_rows(p.w), head_rows(p.u), head_rows(gk));
        let rows = |x| Rows::packed(Floats::F64(x), HEAD);
        let problem = DeltaH {
            packed,
            kg: rows(&kg),
            w: rows(&w),
            u: rows(&u),
            gk: rows(&gk),
            states: States { initial: p.initial.map(|initial| initial.pool), order: StateOrder::VFirst },
            h_order: StateOrder::KFirst,
        };
        for (mode, round) in MODES.into_iter().zip(round) {
            let (got, want) = (execute(&p, mode), plain::run(&problem, mode));
            let what = format!("KDA_SEED={seed}, {lengths:?}, {mode:?}");
            let stored = |part: &Option<Masked>| -> Vec<f64> { values(part).iter().map(|x| round(*x)).collect() };
            assert!(stored(&got.h) == want.h, "{what}: h");
            assert!(stored(&got.v_new) == want.v_new, "{what}: v_new");
            assert!(values(&got.final_state) == want.final_state, "{what}: final state");
        }
    }
}

/// What is written is what the contract names, holds numbers although everything else is NaN, and an empty sequence passes
/// its initial state through.
#[test]
fn only_what_the_contract_names_is_read_and_written() {
    let seed = seed();
    let (mut stopped, mut dead, mut passed) = (0, 0, 0);
    for case in 0..80 {
        let mut rng = Rng::new(seed + case);
        let switches = Switches::random(&mut rng, 3);
        let lengths = random_lengths(&mut rng, 4, 300);
        let sample = Sample::random(&mut rng, &lengths, switches);
        let (p, what) = (sample.problem(), format!("KDA_SEED={seed}, case {case}, {lengths:?} {switches:?}"));
        for mode in [Mode::Exact, Mode::Emulate] {
            let got = execute(&p, mode);
            let [mut h, mut v_new, mut finals] =
                [&got.h, &got.v_new, &got.final_state].map(|part| vec![false; values(part).len()]);
            let mut index = 0;
            for (n, pair) in sample.cu_seqlens.windows(2).enumerate().take(got.schedule.sequences.len()) {
                let (begin, end) = (pair[0] as usize, pair[1] as usize);
                assert_eq!(got.schedule.chunk_offsets[n], index, "{what}");
                for head in 0..p.hv {
                    if !v_new.is_empty() {
                        (begin..end).for_each(|token| v_new[p.v_new_at(token, head)..][..HEAD].fill(true));
                    }
                    if !h.is_empty() {
                        for c in 0..(end - begin).div_ceil(CHUNK).div_ceil(p.h_every) {
                            h[p.h_at(index + c, head)..][..STATE].fill(true);
                        }
                    }
                    let Some(slot) = p.write_slot(n) else { continue };
                    let at = p.final_at(slot, head);
                    finals[at..at + STATE].fill(true);
                    if begin == end {
                        passed += 1;
                        let initial = |i: usize| match (p.read_slot(n), p.initial) {
                            (Some(slot), Some(pool)) => pool.pool.get(slot * pool.slot_stride + head * STATE + i),
                            _ => 0.0,
                        };
                        let got = &values(&got.final_state)[at..at + STATE];
                        assert!(got.iter().enumerate().all(|(i, x)| x.to_bits() == initial(i).to_bits()), "{what}");
                    }
                }
                dead += usize::from(p.final_state.is_some() && p.write_slot(n).is_none());
                index += (end - begin).div_ceil(CHUNK).div_ceil(p.h_every);
            }
            stopped += usize::from(got.schedule.status != 0);
            assert_eq!(got.schedule.h_chunks(), index, "{what}");
            assert_eq!(got.schedule.status == 0, got.schedule.sequences.len() == lengths.len(), "{what}");
            for (part, mask) in [(&got.h, h), (&got.v_new, v_new), (&got.final_state, finals)] {
                let Some(part) = part else { continue };
                assert!(part.written == mask, "{what}");
                let right = |i: usize| part.values[i].is_nan() != mask[i];
                assert!((0..mask.len()).all(right), "{what}: NaN spreads, or what is not written has a value");
            }
        }
    }
    assert!(stopped > 0 && dead > 0 && passed > 0, "KDA_SEED={seed}: {stopped} {dead} {passed}");
}

/// Each kind of damage stops the call where it lies, with its status.
#[test]
fn a_damaged_call_stops() {
    let mut rng = Rng::new(3);
    for (damage, status) in
        [(Damage::Negative, 1), (Damage::Falling, 1), (Damage::PastTheRows, 2), (Damage::Capacity, 4)]
    {
        let switches = Switches { damage: Some(damage), h_every: 2, ..Switches::plain(1) };
        let sample = Sample::random(&mut rng, &[10, 150, 70], switches);
        let schedule = sample.problem().schedule();
        // A sequence that ends past the rows may have too many chunk states, too.
        let also = if damage == Damage::PastTheRows { 4 } else { 0 };
        assert_eq!(schedule.status & !also, status, "{damage:?}");
        assert!(schedule.sequences.len() < 3 && schedule.chunk_offsets.len() == 4);
    }
}

/// Packed sequences are independent: alone, each has the same bits.
#[test]
fn packed_equals_alone() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let lengths = [65, 0, 127, 1, 64];
    let sample = Sample::random(&mut rng, &lengths, Switches { strength: Strength::Mixed, ..Switches::plain(2) });
    let p = sample.problem();
    for mode in MODES {
        let all = execute(&p, mode);
        for n in 0..lengths.len() {
            let s = all.schedule.sequences[n];
            let mut alone = sample.clone();
            alone.cu_seqlens = vec![s.rows.0 as i64, s.rows.1 as i64];
            let FloatVec::F32(pool) = &mut alone.pool else { panic!("an fp32 pool") };
            pool.drain(..n * p.hv * STATE);
            alone.initial_count -= n;
            let one = execute(&alone.problem(), mode);
            let (begin, end) = (p.v_new_at(s.rows.0, 0), p.v_new_at(s.rows.1, 0));
            let h = s.chunks() * p.hv * STATE;
            let at = p.h_at(s.h, 0);
            assert!(values(&all.v_new)[begin..end] == values(&one.v_new)[begin..end], "KDA_SEED={seed} {n} {mode:?}");
            assert!(values(&all.h)[at..at + h] == values(&one.h)[..h], "KDA_SEED={seed} {n} {mode:?}");
            let size = p.hv * STATE;
            let states = (&values(&all.final_state)[n * size..(n + 1) * size], &values(&one.final_state)[..size]);
            assert!(states.0 == states.1, "KDA_SEED={seed} {n} {mode:?}");
        }
    }
}

fn swapped(states: &[f64]) -> Vec<f64> {
    let swap = |state: &[f64]| StateOrder::VFirst.load(HEAD, HEAD, |i| state[i]);
    states.chunks_exact(STATE).flat_map(swap).collect()
}

/// Orders of h and of the state change places and no bits, and so does the type of the pool but for its rounding.
#[test]
fn orders_and_types_change_no_bits() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let switches = Switches { bf16_state: true, strength: Strength::Mixed, ..Switches::plain(2) };
    let sample = Sample::random(&mut rng, &[100, 0, 30], switches);
    let base = sample.problem();
    let narrow = base.initial.expect("a pool").pool;
    let wide: Vec<f32> = (0..narrow.len()).map(|i| narrow.get_f32(i)).collect();
    let exchanged: Vec<f32> = swapped(&narrow.widened(0, narrow.len())).iter().map(|x| *x as f32).collect();
    for mode in MODES {
        let want = execute(&base, mode);
        let with = |pool| base.initial.map(|initial| kda_ref::delta_h::Initial { pool, ..initial });
        let f32s = Problem { stored: Stored::F32, initial: with(Floats::F32(&wide)), ..base };
        assert!(same(&execute(&f32s, mode), &want), "KDA_SEED={seed} {mode:?}");
        let other = Problem { h_order: StateOrder::VFirst, order: StateOrder::VFirst, ..f32s };
        let got = execute(&Problem { initial: with(Floats::F32(&exchanged)), ..other }, mode);
        assert!(bits(values(&got.v_new)) == bits(values(&want.v_new)), "KDA_SEED={seed} {mode:?}");
        assert!(swapped(values(&got.h)) == values(&want.h), "KDA_SEED={seed} {mode:?}");
        assert!(swapped(values(&got.final_state)) == values(&want.final_state), "KDA_SEED={seed} {mode:?}");
    }
}

/// Fewer chunk states, none, or no v_new: the rest keeps its bits.
#[test]
fn what_is_stored_changes_nothing_else() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let sample = Sample::random(&mut rng, &[200, 64, 0, 70], Switches::plain(1));
    let p = sample.problem();
    let all = execute(&p, Mode::Emulate);
    for h_every in 1..5 {
        let some = execute(&Problem { h_every, ..p }, Mode::Emulate);
        assert!(bits(values(&some.v_new)) == bits(values(&all.v_new)), "KDA_SEED={seed}");
        for s in &some.schedule.sequences {
            for c in 0..s.chunks().div_ceil(h_every) {
                let first = all.schedule.chunk_offsets[s.n] + c * h_every;
                let (a, b) =
                    (&values(&some.h)[p.h_at(s.h + c, 0)..][..STATE], &values(&all.h)[p.h_at(first, 0)..][..STATE]);
                assert!(a == b, "KDA_SEED={seed}, every {h_every}");
            }
        }
    }
    let states = execute(&Problem { h_buffer: None, v_new_stride: None, ..p }, Mode::Emulate);
    assert!(states.h.is_none() && states.v_new.is_none());
    assert!(states.final_state == all.final_state, "KDA_SEED={seed}");
}

/// Given decay rows are those that the cumulative gate gives: the bits of the emulation are the same.
#[test]
fn decay_rows_are_powers_of_the_cumulative_gate() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let sample = Sample::random(&mut rng, &[100, 0, 64, 3], Switches { h_every: 2, ..Switches::plain(2) });
    let p = sample.problem();
    let Gate::Cumulative(gk) = p.gate else { panic!("a cumulative gate") };
    let mut decays = Vec::new();
    for s in p.schedule().sequences {
        for c in 0..s.chunks() {
            let last = s.chunk_rows(c, c + 1).1 - 1;
            decays.extend((0..2 * HEAD).map(|i| kda_ref::emulate::scalar::exp2(gk.get(last, i) as f32)));
        }
    }
    let given = Problem { gate: Gate::Decay(Rows { data: Floats::F32(&decays), stride: 2 * HEAD }), ..p };
    assert!(same(&execute(&p, Mode::Emulate), &execute(&given, Mode::Emulate)), "KDA_SEED={seed}");
}

/// A scalar gate is a cumulative one with equal channels, whose keys the operator gates by itself; key heads are shared.
#[test]
fn a_scalar_gate_is_a_gate_of_equal_channels() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let switches = Switches { gate: GateForm::Scalar, h: 2, strength: Strength::Weak, ..Switches::plain(4) };
    let sample = Sample::random(&mut rng, &[100, 0, 64, 3], switches);
    let p = sample.problem();
    let Gate::Scalar(g) = p.gate else { panic!("a scalar gate") };
    let (mut gk, mut kg) = (vec![0.0; p.rows * 4 * HEAD], vec![0.0; p.rows * 4 * HEAD]);
    for s in p.schedule().sequences {
        for c in 0..s.chunks() {
            let (begin, end) = s.chunk_rows(c, c + 1);
            for (token, i) in (begin..end).flat_map(|token| (0..4 * HEAD).map(move |i| (token, i))) {
                let (head, at) = (i / HEAD, token * 4 * HEAD + i);
                gk[at] = g.get(token, head);
                kg[at] =
                    p.kg.get(token, head / 2 * HEAD + i % HEAD) * (g.get(end - 1, head) - g.get(token, head)).exp2();
            }
        }
    }
    let rows = |x| Rows { data: Floats::F64(x), stride: 4 * HEAD };
    let gated = Problem { h: 4, kg: rows(&kg), gate: Gate::Cumulative(rows(&gk)), ..p };
    let (a, b) = (execute(&p, Mode::Exact), execute(&gated, Mode::Exact));
    for (a, b) in [(&a.h, &b.h), (&a.v_new, &b.v_new), (&a.final_state, &b.final_state)] {
        assert!(relative_error(values(a), values(b)) < 1e-13, "KDA_SEED={seed}");
    }
}

/// Sizes and slots that do not fit are refused.
#[test]
fn misfits_are_refused() {
    let mut rng = Rng::new(9);
    let slots = Switches { initial: PoolForm::Slots, final_state: PoolForm::Slots, ..Switches::plain(2) };
    let sample = Sample::random(&mut rng, &[10, 20], slots);
    let p = sample.problem();
    let refusal = |p: &Problem<'_>| run(p, Mode::Exact).expect_err("a misfit").to_string();
    assert_eq!(refusal(&Problem { h: 1, ..p }), "1 heads of kg: the gate is in kg, so 2 are needed");
    assert_eq!(refusal(&Problem { h_every: 0, ..p }), "h_every is 0, at least 1 is needed");
    assert_eq!(
        refusal(&Problem { v_new_stride: Some(255), ..p }),
        "row stride of v_new is 255, at least 256 is needed"
    );
    assert_eq!(refusal(&Problem { rows: 31, ..p }), "kg is 7680, at least 7936 is needed");
    assert_eq!(refusal(&Problem { stored: Stored::Bf16, ..p }), "the pool of initial states is not Bf16");
    let twice = p.final_state.map(|target| kda_ref::delta_h::Final { slots: Some(&[1, 1]), ..target });
    assert_eq!(refusal(&Problem { final_state: twice, ..p }), "two sequences write slot 1");
    let crossed = p.initial.map(|initial| kda_ref::delta_h::Initial { slots: Some(&[1, 2]), ..initial });
    let count = p.initial.expect("a pool").count;
    let target =
        p.final_state.map(|target| kda_ref::delta_h::Final { slots: Some(&[2, 1]), in_place: true, count, ..target });
    assert_eq!(
        refusal(&Problem { initial: crossed, final_state: target, ..p }),
        "sequence 0 writes slot 2, which another one reads"
    );
}
