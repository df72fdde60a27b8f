//! Budgets of `tc_verify` and `tc_commit` are tested by breaking kernels: a small fp32 kernel of another construction than the
//! emulation, which has to pass, and the same kernel with one fault at a time, each of which has to be caught.

mod tc_kernel;

use half::bf16;
use kda_ref::Mode;
use kda_ref::conv::TapType;
use kda_ref::rng::Rng;
use kda_ref::round::bf16_from_f64;
use kda_ref::tc_commit;
use kda_ref::tc_verify::budgets::{CORR_BOUND, OUT_ULPS};
use kda_ref::tc_verify::sample::{Gates, Sample, Switches};
use kda_ref::tc_verify::{HEAD, HeadJudgement, reference, run};
use tc_kernel::{CONV_FAULTS, FAULTS, Fault, Stored, commit, kernel};

fn seed() -> u64 {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let fresh = u64::from(clock.subsec_nanos());
    let seed = std::env::var("KDA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(fresh);
    println!("KDA_SEED={seed}");
    seed
}

fn judge(sample: &Sample, fault: Fault) -> Vec<HeadJudgement> {
    let checked = reference(&sample.problem()).expect("a valid sample");
    checked.judge(&kernel(sample, fault).got(sample.out_pitch))
}

/// A right kernel passes on everything that can be drawn, and every live head of every live request is judged.
#[test]
fn right_arithmetic_passes() {
    let seed = seed();
    let (mut judged, mut ties) = (0, 0);
    for case in 0..80 {
        let mut rng = Rng::new(seed + case);
        let switches = Switches::random(&mut rng, 3, 3, 16);
        let sample = Sample::random(&mut rng, switches);
        let heads = judge(&sample, if case % 2 == 0 { Fault::None } else { Fault::Approximations });
        assert_eq!(heads.len(), sample.problem().live_requests().count() * switches.heads);
        for head in &heads {
            assert!(head.passes(), "KDA_SEED={seed}, case {case}: {head:?}, {switches:?}");
        }
        judged += heads.len();
        ties += heads.iter().map(|head| head.other_ties).sum::<usize>();
    }
    println!("{judged} heads, {ties} on the other side of a tie");
    assert!(judged > 80);
}

/// The kernel with a fault fails in every request.
#[test]
fn every_fault_is_caught() {
    let seed = seed();
    for case in 0..6 {
        let mut rng = Rng::new(seed + case);
        let lower_bound = if case % 2 == 0 { Some(-5.0) } else { None };
        let taps = if case % 3 == 0 { Some(TapType::Bf16) } else { Some(TapType::F32) };
        let plain = Switches { lower_bound, bf16_state: case % 4 < 2, ..Switches::plain(2, 2, 5) };
        for fault in FAULTS.into_iter().chain(CONV_FAULTS) {
            let taps = if CONV_FAULTS.contains(&fault) || case % 2 == 1 { taps } else { None };
            let sample = Sample::random(&mut rng, Switches { taps, ..plain });
            let heads = judge(&sample, fault);
            let requests = [0, 1].map(|b| heads.iter().any(|head| head.b == b && !head.passes()));
            assert!(requests == [true; 2], "KDA_SEED={seed}, case {case}: {fault:?} is not caught: {heads:?}");
        }
    }
}

/// Probes of one bf16 are what `corr` has its budget for: it alone catches them, with both types of states and every gate but -5
/// throughout, where the state hardly counts. The fixed bound takes many of them.
#[test]
fn single_bf16_probes_are_caught_by_corr() {
    let seed = seed();
    let mut caught = (0, 0);
    for case in 0..16 {
        let mut rng = Rng::new(seed + case);
        let drawn = Switches::random(&mut rng, 2, 2, 8);
        let gates = if drawn.gates == Gates::Lowest { Gates::Typical } else { drawn.gates };
        let switches = Switches { gates, nulls: false, misfits: false, ragged: false, input_sigma: 1.0, ..drawn };
        let sample = Sample::random(&mut rng, switches);
        for head in judge(&sample, Fault::SingleBf16Probes) {
            assert!(!head.corr.passes, "KDA_SEED={seed}, case {case}: {head:?}, {switches:?}");
            caught.0 += usize::from(head.corr.error.max > CORR_BOUND);
            caught.1 += 1;
        }
    }
    println!("{} of {} heads are within the fixed bound", caught.1 - caught.0, caught.1);
}

/// The contract's own bounds hold for the emulation and for the kernel on typical samples.
#[test]
fn typical_samples_meet_the_fixed_bounds() {
    let seed = seed();
    let mut worst = (0.0f64, 0.0f64);
    for case in 0..40 {
        let mut rng = Rng::new(seed + case);
        let drawn = Switches::random(&mut rng, 2, 2, 8);
        let switches = Switches { gates: Gates::Typical, input_sigma: 1.0, ..drawn };
        let sample = Sample::random(&mut rng, switches);
        let mut buffers = sample.buffers();
        run(&sample.problem(), &mut buffers.outputs(), Mode::Emulate).expect("a valid sample");
        let emulated = Stored {
            out: buffers.out.iter().map(|x| bf16_from_f64(*x)).collect(),
            corr: buffers.corr.iter().map(|x| *x as f32).collect(),
            kg: buffers.kg.iter().map(|x| bf16_from_f64(*x)).collect(),
        };
        let checked = reference(&sample.problem()).expect("a valid sample");
        for stored in [emulated, kernel(&sample, Fault::None)] {
            for head in checked.judge(&stored.got(sample.out_pitch)) {
                worst = (worst.0.max(head.corr.error.max), worst.1.max(head.out_ulps));
                let within = head.corr.error.max <= CORR_BOUND && head.out_ulps <= OUT_ULPS;
                assert!(within && head.passes(), "KDA_SEED={seed}, case {case}: {head:?}, {switches:?}");
            }
        }
    }
    println!("u {:.1e} of {CORR_BOUND:.0e}, out {:.3} of {OUT_ULPS} units of the last place", worst.0, worst.1);
    // The bounds are not so wide that anything meets them.
    assert!(worst.0 > CORR_BOUND / 200.0 && worst.1 > OUT_ULPS / 4.0);
}

/// Activations at a tie may fall either way, a whole unit of the last place elsewhere is a fault.
#[test]
fn ties_go_either_way_and_nothing_else_does() {
    let seed = seed();
    let (mut found, mut taken_wrong) = ([0; 2], 0);
    for case in 0..60 {
        let mut rng = Rng::new(seed + case);
        let plain = Switches { taps: Some(TapType::F32), lower_bound: None, ..Switches::plain(1, 2, 8) };
        let sample = Sample::random(&mut rng, plain);
        let p = sample.problem();
        let runs = [Mode::Contract, Mode::ContractOtherTies].map(|mode| {
            let mut buffers = sample.buffers();
            run(&p, &mut buffers.outputs(), mode).expect("a valid sample");
            buffers
        });
        let checked = reference(&p).expect("a valid sample");
        let stored = |of: &kda_ref::tc_verify::sample::Buffers| Stored {
            out: of.out.iter().map(|x| bf16_from_f64(*x)).collect(),
            corr: of.corr.iter().map(|x| *x as f32).collect(),
            kg: of.kg.iter().map(|x| bf16_from_f64(*x)).collect(),
        };
        let other = checked.judge(&stored(&runs[1]).got(sample.out_pitch));
        assert!(other.iter().all(HeadJudgement::passes), "KDA_SEED={seed}, case {case}: {other:?}");
        let flipped_keys = runs[0].kg.iter().zip(&runs[1].kg).filter(|(a, b)| a != b && !a.is_nan()).count();
        found[0] += flipped_keys;
        found[1] += other.iter().map(|head| head.other_ties).sum::<usize>();
        let mut wrong = stored(&runs[0]);
        // A value so small that its neighbour gives nearly the same u may be taken for either.
        let right = checked.judge(&wrong.got(sample.out_pitch));
        assert!(right.iter().all(HeadJudgement::passes), "KDA_SEED={seed}, case {case}: {right:?}");
        taken_wrong += right.iter().map(|head| head.other_ties).sum::<usize>();
        // A key one unit off, where there is no tie.
        let at = (0..HEAD).find(|&c| runs[0].kg[c] == runs[1].kg[c] && runs[0].kg[c] != 0.0).expect("no tie");
        wrong.kg[at] = bf16::from_bits(wrong.kg[at].to_bits() ^ 1);
        let judged = checked.judge(&wrong.got(sample.out_pitch));
        assert_eq!([judged[0].wrong_kg, judged[1].wrong_kg], [1, 0], "KDA_SEED={seed}, case {case}");
    }
    println!("{} keys and {} values at ties, {taken_wrong} taken for the other", found[0], found[1] - found[0]);
    assert!(10 * taken_wrong <= found[1], "KDA_SEED={seed}");
    assert!(found[0] > 0 && found[1] > found[0], "KDA_SEED={seed}: {found:?}");
}

#[test]
fn a_single_wrong_element_is_caught() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let sample = Sample::random(&mut rng, Switches { padding: 8, ..Switches::plain(2, 2, 3) });
    let checked = reference(&sample.problem()).expect("a valid sample");
    let passes = |stored: &Stored| {
        checked.judge(&stored.got(sample.out_pitch)).iter().map(HeadJudgement::passes).collect::<Vec<_>>()
    };
    assert_eq!(passes(&kernel(&sample, Fault::None)), [true; 4], "KDA_SEED={seed}");
    // The second head of the first request.
    let record = sample.problem().record(0, 1, 1) + 17;
    let out = (sample.query_start[0] as usize + 1) * sample.out_pitch + HEAD + 17;
    for wrong in [1e-3, f32::NAN, f32::INFINITY] {
        let mut stored = kernel(&sample, Fault::None);
        stored.corr[record] += wrong;
        assert_eq!(passes(&stored), [true, false, true, true], "KDA_SEED={seed}: {wrong}");
        let mut stored = kernel(&sample, Fault::None);
        stored.out[out] = bf16::from_f32(stored.out[out].to_f32() + 100.0 * wrong);
        assert_eq!(passes(&stored), [true, false, true, true], "KDA_SEED={seed}: {wrong}");
    }
    let mut stored = kernel(&sample, Fault::None);
    stored.kg[2 * (record - 17) + HEAD + 5] = bf16::NAN;
    assert_eq!(passes(&stored), [true, false, true, true], "KDA_SEED={seed}");
}

#[test]
fn right_commits_pass_and_faults_are_caught() {
    use tc_commit::sample::{Sample, Switches};
    let seed = seed();
    let mut judged = 0;
    for case in 0..60 {
        let mut rng = Rng::new(seed + case);
        let switches = Switches::random(&mut rng, 3, 2, 16);
        let sample = Sample::random(&mut rng, switches);
        let checked = tc_commit::reference(&sample.problem()).expect("a valid sample");
        for state in checked.judge(commit(&sample, if case % 2 == 0 { "" } else { "approximations" }).view()) {
            assert!(state.judgement.passes, "KDA_SEED={seed}, case {case}: {state:?}, {switches:?}");
            judged += 1;
        }
    }
    println!("{judged} states");
    assert!(judged > 60, "KDA_SEED={seed}");
    for (case, bf16_state) in (0..4).map(|case| (case, case % 2 == 0)) {
        let mut rng = Rng::new(seed + 1000 + case);
        let lower_bound = if case < 2 { Some(-5.0) } else { None };
        let mut sample = Sample::random(&mut rng, Switches { lower_bound, bf16_state, ..Switches::plain(2, 2, 6) });
        sample.counts = vec![6, 3];
        let checked = tc_commit::reference(&sample.problem()).expect("a valid sample");
        let faults = ["one record less", "keys not normalised", "no bias", "keys not decayed", "truncated"];
        for fault in faults.into_iter().filter(|fault| bf16_state || *fault != "truncated") {
            let states = checked.judge(commit(&sample, fault).view());
            assert!(states.iter().all(|state| !state.judgement.passes), "KDA_SEED={seed}: {fault}: {states:?}");
        }
    }
}
