//! Budgets: right arithmetic passes them, wrong kernels do not.
//!
//! The "kernel" here is written apart from the library: fp32, sums in plain order, the standard library's exponential.

use half::bf16;
use kda_ref::Mode;
use kda_ref::budget::relative_error;
use kda_ref::conv_verify::budgets::{OUT_BOUND, STATE_BOUND};
use kda_ref::conv_verify::sample::{Sample, Switches};
use kda_ref::conv_verify::{HEAD, Problem, SnapshotRule, reference, run};
use kda_ref::floats::Floats;
use kda_ref::rng::Rng;

/// What a wrong kernel does wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    EpsilonOnTheMean,
    EpsilonOutsideTheRoot,
    TransposedState,
    TapsReversed,
    ActivationNotRounded,
    OtherTapRule,
    NoBias,
    NoScale,
    DecayAfterTheUpdate,
    OutputBeforeTheUpdate,
    NeighbouringKeyHead,
    RawBeta,
    GateWithoutBias,
    StateInBf16,
    SingleBf16Dot,
    OneTokenLate,
    ConvSlotsForStates,
}

const FAULTS: [Fault; 17] = [
    Fault::EpsilonOnTheMean,
    Fault::EpsilonOutsideTheRoot,
    Fault::TransposedState,
    Fault::TapsReversed,
    Fault::ActivationNotRounded,
    Fault::OtherTapRule,
    Fault::NoBias,
    Fault::NoScale,
    Fault::DecayAfterTheUpdate,
    Fault::OutputBeforeTheUpdate,
    Fault::NeighbouringKeyHead,
    Fault::RawBeta,
    Fault::GateWithoutBias,
    Fault::StateInBf16,
    Fault::SingleBf16Dot,
    Fault::OneTokenLate,
    Fault::ConvSlotsForStates,
];

fn round(x: f32) -> f32 {
    bf16::from_f32(x).to_f32()
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// Convolution and SiLU of one channel and token.
fn activation(p: &Problem<'_>, line: usize, n: usize, t: usize, c: usize, fault: Fault) -> f32 {
    let raw = |step: usize| match step.checked_sub(3) {
        Some(t) => p.x[(n * p.dims.t + t) * p.x_row_stride + c].to_f32(),
        None => p.conv_state.get_f32(p.conv_layout.offset(line, c, step)),
    };
    let mut sum = p.conv_bias.filter(|_| fault != Fault::NoBias).map_or(0.0, |bias| bias[c]);
    for j in 0..4 {
        let tap = if fault == Fault::TapsReversed { 3 - j } else { j };
        let (w, x) = (p.conv_weight.get_f32(c * 4 + tap), raw(t + j));
        let rounded_products = matches!(p.conv_weight, Floats::Bf16(_)) != (fault == Fault::OtherTapRule);
        sum = if rounded_products { sum + round(w * x) } else { w.mul_add(x, sum) };
    }
    let y = sum * sigmoid(sum);
    if fault == Fault::ActivationNotRounded { y } else { round(y) }
}

fn normalise(x: &[f32], scale: f32, fault: Fault) -> Vec<f32> {
    let sum: f32 = x.iter().map(|x| x * x).sum();
    let root = match fault {
        Fault::EpsilonOnTheMean => ((sum / 128.0 + 1e-6) * 128.0).sqrt(),
        Fault::EpsilonOutsideTheRoot => sum.sqrt() + 1e-6,
        _ => (sum + 1e-6).sqrt(),
    };
    x.iter().map(|x| x / root * scale).collect()
}

fn gate(p: &Problem<'_>, hv: usize, c: usize, a: f32, fault: Fault) -> f32 {
    let z = if fault == Fault::GateWithoutBias { a } else { a + p.dt_bias[hv * HEAD + c] };
    let strength = p.a_log(hv).min(88.0).exp();
    match p.lower_bound {
        Some(bound) => bound as f32 * sigmoid(strength * z),
        None if z > 20.0 => -strength * z,
        None => -strength * z.exp().ln_1p(),
    }
}

/// Runs the kernel; `out` `[N*T, HV*V]` and states `[rows, T_alloc, HV, V, K]`.
fn kernel(p: &Problem<'_>, fault: Fault) -> (Vec<bf16>, Vec<f32>) {
    let d = p.dims;
    let mut out = vec![bf16::ZERO; d.n * d.t * d.hv * HEAD];
    let mut states = vec![0.0f32; p.snapshot_len.max(d.n) * p.t_alloc * d.state_len()];
    for (n, hv) in (0..d.n).flat_map(|n| (0..d.hv).map(move |hv| (n, hv))) {
        let Some((line, slot)) = p.live_row(n) else { continue };
        let slot = if fault == Fault::ConvSlotsForStates { line % p.state_len } else { slot };
        let base = slot * p.state_slot_stride + hv * HEAD * HEAD;
        let mut s: Vec<f32> = (0..HEAD * HEAD).map(|i| p.state.get_f32(base + i)).collect();
        if fault == Fault::TransposedState {
            s = (0..HEAD * HEAD).map(|i| p.state.get_f32(base + i % HEAD * HEAD + i / HEAD)).collect();
        }
        let shifted = usize::from(fault == Fault::NeighbouringKeyHead);
        let head = (hv / (d.hv / d.h) + shifted) % d.h;
        for t in 0..d.t {
            let source = if fault == Fault::OneTokenLate { t.saturating_sub(1) } else { t };
            let channels = |first: usize| -> Vec<f32> {
                (first * HEAD..(first + 1) * HEAD).map(|c| activation(p, line, n, source, c, fault)).collect()
            };
            let scale = if fault == Fault::NoScale { 1.0 } else { p.scale as f32 };
            let (q, k) = (normalise(&channels(head), scale, fault), normalise(&channels(d.h + head), 1.0, fault));
            let v = channels(2 * d.h + hv);
            let row = (n * d.t + t) * d.hv + hv;
            let decay: Vec<f32> =
                (0..HEAD).map(|c| gate(p, hv, c, p.a[row * HEAD + c].to_f32(), fault).exp()).collect();
            let raw_beta = p.b[row].to_f32();
            let beta = if fault == Fault::RawBeta { raw_beta } else { sigmoid(raw_beta) };
            for (i, s) in s.chunks_exact_mut(HEAD).enumerate() {
                let dot = |s: &[f32], x: &[f32]| -> f32 {
                    if fault == Fault::SingleBf16Dot {
                        s.iter().zip(x).map(|(s, x)| s * round(*x)).sum()
                    } else {
                        s.iter().zip(x).map(|(s, x)| s * x).sum()
                    }
                };
                let late = fault == Fault::DecayAfterTheUpdate;
                if !late {
                    s.iter_mut().zip(&decay).for_each(|(s, d)| *s *= d);
                }
                let before = dot(s, &q);
                let u = beta * (v[i] - dot(s, &k));
                s.iter_mut().zip(&k).for_each(|(s, k)| *s = u.mul_add(*k, *s));
                if late {
                    s.iter_mut().zip(&decay).for_each(|(s, d)| *s *= d);
                }
                if fault == Fault::StateInBf16 {
                    s.iter_mut().for_each(|s| *s = round(*s));
                }
                let o = if fault == Fault::OutputBeforeTheUpdate { before } else { dot(s, &q) };
                out[row * HEAD + i] = bf16::from_f32(o);
            }
            if let Some((target, _)) = p.snapshot_targets(n) {
                let begin = ((target * p.t_alloc + t) * d.hv + hv) * HEAD * HEAD;
                states[begin..begin + HEAD * HEAD].copy_from_slice(&s);
            }
        }
    }
    (out, states)
}

/// True when every row of both outputs passes its budget.
fn passes(sample: &Sample, fault: Fault, context: &str) -> bool {
    let problem = sample.problem();
    let checked = reference(&problem).expect("a valid sample");
    let (out, states) = kernel(&problem, fault);
    let judged = [checked.judge_out(&out, problem.dims.hv * HEAD), checked.judge_states(&states)].concat();
    let live = (0..problem.dims.n).any(|n| problem.live_row(n).is_some());
    assert_eq!(judged.is_empty(), !live, "{context}: nothing was judged");
    if fault == Fault::None {
        for row in &judged {
            assert!(row.judgement.passes, "{context}: {row:?}");
        }
    }
    judged.iter().all(|row| row.judgement.passes)
}

#[test]
fn right_arithmetic_passes() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let switches = Switches { nulls: seed % 3 == 0, ..Switches::random(&mut rng, 3, 3) };
        let sample = Sample::random(&mut rng, switches);
        assert!(passes(&sample, Fault::None, &format!("seed {seed}, {switches:?}")));
    }
}

#[test]
fn every_fault_is_caught() {
    for seed in 1000..1004 {
        let mut rng = Rng::new(seed);
        for fault in FAULTS {
            let switches = Switches {
                bias: true,
                bf16_taps: seed % 2 == 0,
                lower_bound: if seed % 4 < 2 { Some(-5.0) } else { None },
                a_log: false,
                rule: SnapshotRule::ByIndex,
                // The norm's epsilon only shows where the squares are as small.
                input_sigma: if matches!(fault, Fault::EpsilonOnTheMean | Fault::EpsilonOutsideTheRoot) {
                    0.02
                } else {
                    1.0
                },
                ..Switches::plain(2, 3, 2, 2)
            };
            let mut sample = Sample::random(&mut rng, switches);
            if matches!(fault, Fault::EpsilonOnTheMean | Fault::EpsilonOutsideTheRoot) {
                sample.conv_bias = None;
            }
            assert!(!passes(&sample, fault, &format!("seed {seed}")), "seed {seed}: {fault:?} is not caught");
        }
    }
}

#[test]
fn a_single_wrong_element_is_caught() {
    let mut rng = Rng::new(2000);
    let sample = Sample::random(&mut rng, Switches::plain(2, 2, 1, 1));
    let checked = reference(&sample.problem()).unwrap();
    let (out, states) = kernel(&sample.problem(), Fault::None);
    let row = checked.rows[1].states_begin + 5000;
    for wrong in [states[row] + 1e-3, f32::NAN, f32::INFINITY] {
        let mut changed = states.clone();
        changed[row] = wrong;
        let judged = checked.judge_states(&changed);
        assert_eq!(judged.iter().map(|row| row.judgement.passes).collect::<Vec<_>>(), [true, false], "{wrong}");
    }
    let mut changed = out;
    changed[0] = bf16::NAN;
    let judged = checked.judge_out(&changed, HEAD);
    assert_eq!(judged.iter().map(|row| row.judgement.passes).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn the_emulation_is_within_the_fixed_bounds() {
    for seed in 3000..3030 {
        let mut rng = Rng::new(seed);
        let switches = Switches { nulls: false, input_sigma: 1.0, padding: 0, ..Switches::random(&mut rng, 3, 6) };
        let sample = Sample::random(&mut rng, switches);
        let results = [Mode::Contract, Mode::Emulate].map(|mode| {
            let mut buffers = sample.buffers();
            run(&sample.problem(), &mut buffers.outputs(), mode).unwrap();
            buffers.states.retain(|x| !x.is_nan());
            buffers
        });
        let stored: Vec<f64> = results[1].out_bf16.iter().map(|x| x.to_f64()).collect();
        let errors = (relative_error(&results[0].out, &stored), relative_error(&results[0].states, &results[1].states));
        assert!(errors.0 > 1e-3 && errors.0 < OUT_BOUND && errors.1 < STATE_BOUND, "seed {seed}: {errors:?}");
    }
}
