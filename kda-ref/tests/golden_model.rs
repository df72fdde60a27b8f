//! Properties that the golden model has by algebra, on random inputs.

use kda_ref::Mode;
use kda_ref::budget::{max_abs_error, relative_error};
use kda_ref::chunk;
use kda_ref::delta_h::plain::{self, DeltaH, DeltaHOutputs};
use kda_ref::emulate::tc_verify;
use kda_ref::floats::{Floats, Rows};
use kda_ref::forward::{Activated, Packed, Raw, States, activate, recurrence};
use kda_ref::gate::Gate;
use kda_ref::layout::StateOrder;
use kda_ref::records::{Drafts, HeadGate, commit, commit_reverse, verify};
use kda_ref::rng::Rng;
use kda_ref::round::to_bf16;

const BOUNDED: Gate = Gate::Bounded { lower_bound: -5.0 };

/// Random inputs of packed sequences with small heads, bf16 values as an engine has them.
fn inputs(rng: &mut Rng, packed: &Packed<'_>, gate: Gate) -> Activated {
    let (t, h, hv) = (packed.tokens(), packed.heads, packed.value_heads);
    let mut draw = |len: usize| -> Vec<f64> { rng.normals(len, 1.0).into_iter().map(to_bf16).collect() };
    let (q, k, v) = (draw(t * h * packed.keys), draw(t * h * packed.keys), draw(t * hv * packed.values));
    let (a, b, bias) = (draw(t * hv * packed.keys), draw(t * hv), draw(hv * packed.keys));
    let raw = Raw {
        q: Floats::F64(&q),
        k: Floats::F64(&k),
        v: Floats::F64(&v),
        a: Floats::F64(&a),
        b: Floats::F64(&b),
        a_log: None,
        dt_bias: Some(Floats::F64(&bias)),
        gate,
        scale: 0.25,
    };
    activate(packed, &raw)
}

fn boundaries(lengths: &[usize]) -> Vec<usize> {
    let ends = lengths.iter().scan(0, |sum, len| {
        *sum += len;
        Some(*sum)
    });
    std::iter::once(0).chain(ends).collect()
}

#[test]
fn chunked_equals_sequential() {
    let mut rng = Rng::new(31);
    for (lengths, gate) in [(vec![130], BOUNDED), (vec![0, 64, 0, 1, 65, 63], BOUNDED), (vec![100, 31], Gate::Softplus)]
    {
        let cu = boundaries(&lengths);
        let packed = Packed { cu_seqlens: &cu, heads: 1, value_heads: 2, keys: 16, values: 12 };
        let activated = inputs(&mut rng, &packed, gate);
        let initial = rng.normals(lengths.len() * 2 * packed.state_len(), 0.5);
        for initial in [None, Some(Floats::F64(&initial))] {
            let states = States { initial, order: StateOrder::VFirst };
            let sequential = recurrence(&packed, &activated, &states, false);
            let chunked = chunk::forward(&packed, &activated, &states);
            let errors = (
                relative_error(&sequential.o, &chunked.o),
                relative_error(&sequential.final_state, &chunked.final_state),
            );
            assert!(errors.0 < 1e-12 && errors.1 < 1e-12, "seed 31, {lengths:?}, {gate:?}: {errors:?}");
        }
    }
}

#[test]
fn both_state_orders_hold_the_same_values() {
    let mut rng = Rng::new(32);
    let cu = [0, 5, 5, 9];
    let packed = Packed { cu_seqlens: &cu, heads: 2, value_heads: 4, keys: 8, values: 8 };
    let activated = inputs(&mut rng, &packed, BOUNDED);
    let size = packed.state_len();
    let k_first = rng.normals(3 * 4 * size, 0.5);
    let transpose = |states: &[f64]| -> Vec<f64> {
        states.chunks_exact(size).flat_map(|s| StateOrder::VFirst.load(8, 8, |i| s[i])).collect()
    };
    let v_first = transpose(&k_first);
    let run = |initial: &[f64], order| {
        let states = States { initial: Some(Floats::F64(initial)), order };
        recurrence(&packed, &activated, &states, true)
    };
    let (a, b) = (run(&k_first, StateOrder::KFirst), run(&v_first, StateOrder::VFirst));
    assert_eq!(a.o, b.o);
    assert_eq!(a.final_state, transpose(&b.final_state));
    assert_eq!(a.states, transpose(&b.states));
    // A transposed initial state is another state: the outputs must tell.
    assert!(relative_error(&a.o, &run(&v_first, StateOrder::KFirst).o) > 0.1, "seed 32");
    // The state after the last token of a sequence is its final state; an empty one keeps its bits.
    assert_eq!(a.states[8 * 4 * size..], a.final_state[2 * 4 * size..]);
    assert_eq!(a.final_state[4 * size..8 * size], k_first[4 * size..8 * size]);
}

#[test]
fn packed_equals_alone() {
    let mut rng = Rng::new(33);
    let cu = [0, 3, 70];
    let packed = Packed { cu_seqlens: &cu, heads: 1, value_heads: 1, keys: 8, values: 4 };
    let all = inputs(&mut rng, &packed, Gate::Softplus);
    let states = States { initial: None, order: StateOrder::KFirst };
    let together = recurrence(&packed, &all, &states, false);
    let second = Activated {
        q: all.q[3 * 8..].to_vec(),
        k: all.k[3 * 8..].to_vec(),
        v: all.v[3 * 4..].to_vec(),
        log_decay: all.log_decay[3 * 8..].to_vec(),
        beta: all.beta[3..].to_vec(),
    };
    let alone = recurrence(&Packed { cu_seqlens: &[0, 67], ..packed }, &second, &states, false);
    assert_eq!(together.o[3 * 4..], alone.o);
    assert_eq!(together.final_state[32..], alone.final_state);
}

fn drafts(rng: &mut Rng, tokens: usize) -> Drafts {
    let mut draw = |len: usize| -> Vec<f64> { rng.normals(len, 1.0).into_iter().map(to_bf16).collect() };
    Drafts {
        keys: 128,
        values: 128,
        q: draw(tokens * 128),
        k: draw(tokens * 128),
        v: draw(tokens * 128),
        raw_gate: draw(tokens * 128),
        raw_beta: draw(tokens),
    }
}

#[test]
fn committed_records_are_the_sequential_states() {
    let mut rng = Rng::new(34);
    for gate in [BOUNDED, Gate::Softplus] {
        let drafts = drafts(&mut rng, 8);
        let bias = rng.normals(128, 0.5);
        // e^2.5 = 12: with the softplus gate the cumulative gate passes -88, where e^-cum would overflow fp32.
        let head = HeadGate { gate, a_log: 2.5, dt_bias: &bias };
        let start = rng.normals(128 * 128, 0.5);
        let (o, records) = verify(&start, &drafts, &head, 128f64.powf(-0.5));
        assert_eq!(records.len(), 8);
        let packed = Packed { cu_seqlens: &[0, 8], heads: 1, value_heads: 1, keys: 128, values: 128 };
        let raw = Raw {
            q: Floats::F64(&drafts.q),
            k: Floats::F64(&drafts.k),
            v: Floats::F64(&drafts.v),
            a: Floats::F64(&drafts.raw_gate),
            b: Floats::F64(&drafts.raw_beta),
            a_log: Some(Floats::F64(&[2.5])),
            dt_bias: Some(Floats::F64(&bias)),
            gate,
            scale: 128f64.powf(-0.5),
        };
        let states = States { initial: Some(Floats::F64(&start)), order: StateOrder::KFirst };
        let sequential = recurrence(&packed, &activate(&packed, &raw), &states, true);
        assert_eq!(o, sequential.o);
        for m in 0..=8 {
            let (mut forward, mut reverse) = (start.clone(), start.clone());
            commit(&mut forward, &records, m, &head);
            commit_reverse(&mut reverse, &records, m, &head);
            let size = 128 * 128;
            let want = if m == 0 { &start[..] } else { &sequential.states[(m - 1) * size..m * size] };
            assert!(max_abs_error(want, &forward) < 1e-14, "seed 34, {gate:?}, m {m}");
            assert!(max_abs_error(want, &reverse) < 1e-14, "seed 34, {gate:?}, m {m}");
        }
        // The emulation, and the acceptance bound of the contract.
        let start32: Vec<f32> = start.iter().map(|&s| s as f32).collect();
        let widened: Vec<f64> = start32.iter().map(|&s| f64::from(s)).collect();
        let (o_golden, golden) = verify(&widened, &drafts, &head, 128f64.powf(-0.5));
        let (o_emulated, emulated) =
            tc_verify::verify(&start32, &drafts, &head, 128f32.powf(-0.5), tc_verify::Couplings::Scalar);
        assert_eq!(golden.kg, emulated.kg);
        let errors = (relative_error(&golden.corr, &emulated.corr), relative_error(&o_golden, &o_emulated));
        assert!(errors.0 < 2e-6 && errors.1 < 1e-5, "seed 34, {gate:?}: {errors:?}");
        let mut state32 = start32.clone();
        tc_verify::commit(&mut state32, &emulated, 8, &head);
        let mut state64 = widened.clone();
        commit(&mut state64, &golden, 8, &head);
        let got: Vec<f64> = state32.iter().map(|&s| f64::from(s)).collect();
        let error = relative_error(&state64, &got);
        assert!(error < 2e-6, "seed 34, {gate:?}: {error}");
    }
}

struct DeltaHInputs {
    cu: Vec<usize>,
    kg: Vec<f64>,
    w: Vec<f64>,
    u: Vec<f64>,
    gk: Vec<f64>,
    initial: Vec<f64>,
}

impl DeltaHInputs {
    /// bf16 inputs of two heads of 128 channels.
    fn random(rng: &mut Rng, lengths: &[usize]) -> Self {
        let cu = boundaries(lengths);
        let packed = Packed { cu_seqlens: &cu, heads: 2, value_heads: 2, keys: 128, values: 128 };
        let prepared = chunk::prepare(&packed, &inputs(rng, &packed, BOUNDED));
        let bf16 = |x: Vec<f64>| -> Vec<f64> { x.into_iter().map(to_bf16).collect() };
        let fp32 = |x: Vec<f64>| -> Vec<f64> { x.into_iter().map(|x| f64::from(x as f32)).collect() };
        let initial = fp32(rng.normals(lengths.len() * 2 * packed.state_len(), 0.5));
        let (kg, w, u, gk) = (bf16(prepared.kg), bf16(prepared.w), bf16(prepared.u), fp32(prepared.gk));
        DeltaHInputs { cu, kg, w, u, gk, initial }
    }

    fn run(&self, order: StateOrder, h_order: StateOrder, mode: Mode) -> DeltaHOutputs {
        let problem = DeltaH {
            packed: Packed { cu_seqlens: &self.cu, heads: 2, value_heads: 2, keys: 128, values: 128 },
            kg: Rows::packed(Floats::F64(&self.kg), 128),
            w: Rows::packed(Floats::F64(&self.w), 128),
            u: Rows::packed(Floats::F64(&self.u), 128),
            gk: Rows::packed(Floats::F64(&self.gk), 128),
            states: States { initial: Some(Floats::F64(&self.initial)), order },
            h_order,
        };
        plain::run(&problem, mode)
    }
}

#[test]
fn delta_h_emulation_costs_what_the_contract_says() {
    let mut rng = Rng::new(35);
    let inputs = DeltaHInputs::random(&mut rng, &[64, 1, 63, 0, 65, 127]);
    let run = |mode| inputs.run(StateOrder::KFirst, StateOrder::KFirst, mode);
    let (exact, contract, emulated) = (run(Mode::Exact), run(Mode::Contract), run(Mode::Emulate));
    for (name, got) in [("contract", &contract), ("emulation", &emulated)] {
        let errors = [
            relative_error(&exact.h, &got.h),
            relative_error(&exact.v_new, &got.v_new),
            relative_error(&exact.final_state, &got.final_state),
        ];
        assert!(errors[0] > 1e-3 && errors[0] < 2.5e-3, "seed 35, {name} h: {errors:?}");
        assert!(errors[1] < 1e-3 && errors[2] < 5e-4, "seed 35, {name} v_new, final state: {errors:?}");
    }
    // Same rounding points, other arithmetic between them: far nearer to each other than to the exact values.
    let apart = relative_error(&contract.final_state, &emulated.final_state);
    assert!(apart < 2e-5, "seed 35: {apart}");
    // The empty sequence is the fourth.
    let size = 2 * 128 * 128;
    for outputs in [&exact, &contract, &emulated] {
        assert_eq!(outputs.final_state[3 * size..4 * size], inputs.initial[3 * size..4 * size]);
        assert!(outputs.h.iter().chain(&outputs.v_new).all(|x| x.is_finite()));
    }
}

#[test]
fn delta_h_reads_only_the_last_gate_row_and_honours_strides() {
    let mut rng = Rng::new(36);
    let inputs = DeltaHInputs::random(&mut rng, &[70, 3]);
    let plain = inputs.run(StateOrder::KFirst, StateOrder::VFirst, Mode::Contract);
    let mut poisoned = inputs.gk.clone();
    for token in (0..73).filter(|token| ![63, 69, 72].contains(token)) {
        poisoned[token * 256..(token + 1) * 256].fill(f64::NAN);
    }
    let spread = |x: &[f64]| -> Vec<f64> {
        x.chunks_exact(128).flat_map(|row| row.iter().copied().chain([f64::NAN; 8])).collect()
    };
    let (kg, w, u) = (spread(&inputs.kg), spread(&inputs.w), spread(&inputs.u));
    let gk = spread(&poisoned);
    let rows = |data| Rows { data: Floats::F64(data), stride: 136 };
    let problem = DeltaH {
        packed: Packed { cu_seqlens: &inputs.cu, heads: 2, value_heads: 2, keys: 128, values: 128 },
        kg: rows(&kg),
        w: rows(&w),
        u: rows(&u),
        gk: rows(&gk),
        states: States { initial: Some(Floats::F64(&inputs.initial)), order: StateOrder::KFirst },
        h_order: StateOrder::VFirst,
    };
    assert_eq!(plain::run(&problem, Mode::Contract), plain);
    // Both orders of h hold the same values.
    let k_first = inputs.run(StateOrder::KFirst, StateOrder::KFirst, Mode::Contract);
    let size = 128 * 128;
    let transposed: Vec<f64> =
        plain.h.chunks_exact(size).flat_map(|h| StateOrder::VFirst.load(128, 128, |i| h[i])).collect();
    assert_eq!(transposed, k_first.h);
}
