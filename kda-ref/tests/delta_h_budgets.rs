//! Budgets of `delta_h`: right arithmetic passes them, wrong kernels do not.

mod delta_h_kernel;

use delta_h_kernel::{Buffers, Fault, kernel};
use half::bf16;
use kda_ref::delta_h::budgets::{Judged, Output};
use kda_ref::delta_h::consistency::Consistency;
use kda_ref::delta_h::sample::{Damage, GateForm, PoolForm, Sample, Strength, Switches, random_lengths};
use kda_ref::delta_h::{Checked, Got, HEAD, Problem, consistency, reference};
use kda_ref::floats::{FloatVec, Floats};
use kda_ref::layout::StateOrder;
use kda_ref::rng::Rng;

/// A fresh seed, printed so that a failure can be repeated.
fn seed() -> u64 {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let fresh = u64::from(clock.subsec_nanos());
    let seed = std::env::var("KDA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(fresh);
    println!("KDA_SEED={seed}");
    seed
}

/// Judgements of every part, and elements that were written against the contract.
fn judged(problem: &Problem<'_>, checked: &Checked, got: &Buffers) -> (Vec<Judged>, usize) {
    let before = Buffers::new(problem);
    let (mut parts, mut touched) = (Vec::new(), 0);
    let bits = |x: &Floats<'_>, i: usize| match x {
        Floats::Bf16(x) => u32::from(x[i].to_bits()),
        Floats::F32(x) => x[i].to_bits(),
        Floats::F64(_) => 0,
    };
    for (output, mask, before, after) in [
        (Output::H, &checked.exact.h, Floats::Bf16(&before.h), Floats::Bf16(&got.h)),
        (Output::VNew, &checked.exact.v_new, Floats::Bf16(&before.v_new), Floats::Bf16(&got.v_new)),
        (Output::Final, &checked.exact.final_state, before.final_state.view(), got.final_state.view()),
    ] {
        let Some(mask) = mask else { continue };
        parts.extend(checked.judge(output, after));
        touched += mask.touched(|i| bits(&before, i), |i| bits(&after, i));
    }
    (parts, touched)
}

/// Whether the results pass the budgets, and whether they agree with each other.
fn outcome(sample: &Sample, fault: Fault, context: &str) -> (bool, bool) {
    let problem = sample.problem();
    let checked = reference(&problem, None).expect("a valid sample");
    let got = kernel(&problem, fault);
    let (parts, touched) = judged(&problem, &checked, &got);
    let agreeing = agreeing(&problem, &got);
    if matches!(fault, Fault::None | Fault::TowardZero) {
        for part in &parts {
            assert!(part.judgement.passes, "{context}, {fault:?}: spread {} {part:?}", checked.spread);
        }
        for part in &agreeing {
            assert!(part.passes, "{context}, {fault:?}: {part:?}");
        }
        assert_eq!(touched, 0, "{context}");
    }
    (touched == 0 && parts.iter().all(|part| part.judgement.passes), agreeing.iter().all(|part| part.passes))
}

fn agreeing(problem: &Problem<'_>, got: &Buffers) -> Vec<Consistency> {
    let got = Got {
        h: problem.h_buffer.map(|_| got.h.as_slice()),
        v_new: problem.v_new_stride.map(|_| got.v_new.as_slice()),
        final_state: problem.final_state.map(|_| got.final_state.view()),
    };
    consistency(problem, None, &got).expect("a valid sample")
}

fn passes(sample: &Sample, fault: Fault, context: &str) -> bool {
    outcome(sample, fault, context).0
}

#[test]
fn right_arithmetic_passes() {
    let seed = seed();
    for case in 0..30 {
        let mut rng = Rng::new(seed + case);
        let switches = Switches::random(&mut rng, 3);
        let lengths = random_lengths(&mut rng, 4, 300);
        let sample = Sample::random(&mut rng, &lengths, switches);
        let what = format!("KDA_SEED={seed}, case {case}, {lengths:?} {switches:?}");
        assert!(passes(&sample, Fault::None, &what) && passes(&sample, Fault::TowardZero, &what));
    }
}

/// The plainest call on which a fault can show.
fn provoking(fault: Fault, hv: usize) -> (Vec<usize>, Switches) {
    let plain = Switches { dead: false, spare_rows: 7, ..Switches::plain(hv) };
    let scalar = Switches { gate: GateForm::Scalar, ..plain };
    let slots = Switches { initial: PoolForm::Slots, final_state: PoolForm::Slots, ..plain };
    let switches = match fault {
        Fault::HOfEveryChunk => Switches { h_every: 2, spare_chunks: 4, ..plain },
        Fault::FinalTruncated => Switches { bf16_state: true, ..plain },
        Fault::VNewGated | Fault::UpdateUngated => scalar,
        Fault::NeighbouringKeyHead => Switches { h: 2, hv: 4, ..scalar },
        Fault::DecayRowOfH => Switches { gate: GateForm::Decay, h_every: 2, ..plain },
        Fault::HasInitialIgnored => Switches { has_initial: true, ..plain },
        Fault::DeadSlotsClamped => Switches { dead: true, null: 0, ..slots },
        Fault::BoundariesTrusted => Switches { damage: Some(Damage::Negative), ..plain },
        Fault::StateOrderSwapped => Switches { order: StateOrder::VFirst, ..slots },
        Fault::StateKeptInBf16 => Switches { strength: Strength::Weak, ..plain },
        _ => plain,
    };
    (vec![70, 0, 130, 65, 1, 3, 64], switches)
}

#[test]
fn every_fault_is_caught() {
    let seed = seed();
    for fault in FAULTS {
        let mut rng = Rng::new(seed);
        let (lengths, switches) = provoking(fault, 2);
        let mut sample = Sample::random(&mut rng, &lengths, switches);
        match fault {
            Fault::HasInitialIgnored => sample.has_initial.as_mut().expect("flags")[2] = 0,
            Fault::DeadSlotsClamped => sample.initial_slots.as_mut().expect("slots")[2] = 0,
            Fault::BoundariesTrusted => sample.cu_seqlens[3] = -1,
            _ => {}
        }
        assert!(passes(&sample, Fault::None, &format!("KDA_SEED={seed}, {fault:?}")));
        assert!(!passes(&sample, fault, ""), "KDA_SEED={seed}: {fault:?} is not caught");
    }
}

const FAULTS: [Fault; 22] = [
    Fault::DecayAfterTheUpdate,
    Fault::HAfterTheDecay,
    Fault::HTruncated,
    Fault::FinalTruncated,
    Fault::TailRowsLeak,
    Fault::TailRowsWritten,
    Fault::HeadOfHWrong,
    Fault::HOfEveryChunk,
    Fault::StateOrderSwapped,
    Fault::HOrderSwapped,
    Fault::VNewGated,
    Fault::UpdateUngated,
    Fault::VNewTruncated,
    Fault::StateKeptInBf16,
    Fault::LastRowOfAFullChunk,
    Fault::DecayRowOfH,
    Fault::NeighbouringKeyHead,
    Fault::HasInitialIgnored,
    Fault::DeadSlotsClamped,
    Fault::EmptySequenceSkipped,
    Fault::BoundariesTrusted,
    Fault::InitialStateIgnored,
];

/// The results against each other show what the budgets leave room for: over many chunks without decay, a state kept in bf16.
#[test]
fn results_that_do_not_follow_from_each_other_are_caught() {
    let seed = seed();
    for strength in [Strength::None, Strength::Weak, Strength::Usual, Strength::Mixed, Strength::Strong] {
        let mut rng = Rng::new(seed);
        let sample = Sample::random(&mut rng, &[16 * 64 + 3, 0, 65], Switches { strength, ..Switches::plain(1) });
        for fault in [Fault::None, Fault::TowardZero] {
            outcome(&sample, fault, &format!("KDA_SEED={seed}, {strength:?}"));
        }
        for fault in [Fault::StateKeptInBf16, Fault::VNewTruncated, Fault::HTruncated, Fault::DecayAfterTheUpdate] {
            if fault == Fault::DecayAfterTheUpdate && strength == Strength::None {
                continue;
            }
            assert!(!outcome(&sample, fault, "").1, "KDA_SEED={seed}, {strength:?}: {fault:?} is not caught");
        }
    }
}

/// Each output has a part for every sequence and head, and one wrong element of any fails its part alone.
#[test]
fn a_single_wrong_element_is_caught() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let sample = Sample::random(&mut rng, &[70, 0, 65], Switches::plain(2));
    let problem = sample.problem();
    let checked = reference(&problem, None).expect("a valid sample");
    let right = kernel(&problem, Fault::None);
    let fails = |got: &Buffers| -> Vec<(Output, usize, usize)> {
        let (parts, _) = judged(&problem, &checked, got);
        assert_eq!(parts.len(), 3 * 3 * 2);
        parts.iter().filter(|p| !p.judgement.passes).map(|p| (p.output, p.sequence, p.head)).collect()
    };
    assert!(fails(&right).is_empty(), "KDA_SEED={seed}");
    // Small elements some units of their last place off, errors that the norms do not see: 99 of 100 are out of their bounds, and
    // one of them alone is found.
    let rows = (70..135).map(|row| problem.v_new_at(row, 1)).flat_map(|row| row..row + HEAD);
    let small: Vec<usize> = rows.filter(|&at| (0.05..0.2).contains(&right.v_new[at].to_f32().abs())).collect();
    let off = |elements: &[usize]| {
        let mut changed = right.clone();
        for &at in elements {
            changed.v_new[at] = bf16::from_bits(right.v_new[at].to_bits() + 6);
        }
        changed
    };
    let (parts, _) = judged(&problem, &checked, &off(&small));
    let found: usize = parts.iter().map(|part| part.beyond_their_bound).sum();
    assert!(100 * found >= 95 * small.len(), "KDA_SEED={seed}: {found} of {}", small.len());
    let at = small.iter().copied().find(|&at| !fails(&off(&[at])).is_empty()).expect("a small element that is found");
    let changed = off(&[at]);
    assert_eq!(fails(&changed), [(Output::VNew, 2, 1)], "KDA_SEED={seed}");
    let (parts, _) = judged(&problem, &checked, &changed);
    let part = parts.iter().find(|part| !part.judgement.passes).expect("it fails");
    let (error, limit) = (part.judgement.error, part.judgement.limit);
    assert!(error.rms < limit.rms && error.max < limit.max && part.beyond_their_bound == 1, "KDA_SEED={seed}");
    for wrong in [bf16::from_f32(30.0), bf16::NAN, bf16::INFINITY] {
        let mut changed = right.clone();
        changed.v_new[at] = wrong;
        assert_eq!(fails(&changed), [(Output::VNew, 2, 1)], "KDA_SEED={seed}: {wrong}");
    }
    let at = problem.h_at(1, 0) + 77;
    for wrong in [right.h[at].to_f32() + 0.1, f32::NAN] {
        let mut changed = right.clone();
        changed.h[at] = bf16::from_f32(wrong);
        assert_eq!(fails(&changed), [(Output::H, 0, 0)], "KDA_SEED={seed}: {wrong}");
    }
    for (sequence, change) in [(1, 1e-7), (2, 0.03), (0, f32::NAN)] {
        let mut changed = right.clone();
        let FloatVec::F32(pool) = &mut changed.final_state else { panic!("an fp32 pool") };
        pool[problem.final_at(sequence, 1) + 9] += change;
        assert_eq!(fails(&changed), [(Output::Final, sequence, 1)], "KDA_SEED={seed}: {change}");
    }
}
