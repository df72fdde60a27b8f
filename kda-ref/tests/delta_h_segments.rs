//! Segments of `delta_h`: as near to float64 as the uncut recurrence, for any decay; a plain bf16 matrix is not.

use half::bf16;
use kda_ref::Mode;
use kda_ref::budget::relative_error;
use kda_ref::delta_h::budgets::Output;
use kda_ref::delta_h::sample::{Sample, Strength, Switches};
use kda_ref::delta_h::segments::{Operand, run_segments};
use kda_ref::delta_h::{Masked, Results, Split, reference, run};
use kda_ref::floats::Floats;
use kda_ref::rng::Rng;
use kda_ref::round::{bf16_from_f64, to_bf16};

/// What the errors of segments may exceed those of the uncut recurrence by.
const FACTOR: f64 = 1.05;

/// A fresh seed, printed so that a failure can be repeated.
fn seed() -> u64 {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let fresh = u64::from(clock.subsec_nanos());
    let seed = std::env::var("KDA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(fresh);
    println!("KDA_SEED={seed}");
    seed
}

/// Errors of h, v_new and the final state, as stored, against float64.
fn errors(exact: &Results, got: &Results) -> [f64; 3] {
    let pick = |r: &Results, round: fn(f64) -> f64| {
        [&r.h, &r.v_new, &r.final_state]
            .map(|part| -> Vec<f64> { part.as_ref().expect("all three").values.iter().map(|x| round(*x)).collect() })
    };
    let (exact, stored, fp32) = (pick(exact, |x| x), pick(got, to_bf16), pick(got, |x| x));
    [relative_error(&exact[0], &stored[0]), relative_error(&exact[1], &stored[1]), relative_error(&exact[2], &fp32[2])]
}

#[test]
fn segments_are_as_exact_as_the_uncut_recurrence() {
    let seed = seed();
    let split = Split { most: 5, fewest: 3, least: 2, first: 12 };
    for (name, strength, beta) in [
        ("strong", Strength::Strong, 1.0),
        ("usual", Strength::Usual, 1.0),
        ("weak", Strength::Weak, 1.0),
        ("none", Strength::None, 1.0),
        ("mixed", Strength::Mixed, 1.0),
        ("near the identity", Strength::None, 0.003),
    ] {
        let mut rng = Rng::new(seed);
        let sample = Sample::random(&mut rng, &[11 * 64 - 7], Switches { strength, beta, ..Switches::plain(1) });
        let problem = sample.problem();
        let exact = run(&problem, Mode::Exact).expect("a valid sample");
        let serial = errors(&exact, &run(&problem, Mode::Emulate).expect("a valid sample"));
        let [cut, plain] = [Operand::HighAndLow, Operand::High]
            .map(|operand| errors(&exact, &run_segments(&problem, split, operand).expect("a valid sample")));
        println!("{name}: serial {serial:?}, segments {cut:?}, without low parts {plain:?}");
        for (output, (serial, cut)) in ["h", "v_new", "final state"].iter().zip(serial.iter().zip(cut)) {
            assert!(cut <= FACTOR * serial, "KDA_SEED={seed}, {name}, {output}: {cut} against {serial}");
        }
        if name == "near the identity" {
            assert!((0..3).all(|i| plain[i] > FACTOR * serial[i]), "KDA_SEED={seed}: low parts are not needed");
        }
    }
}

/// Budgets of a kernel that cuts sequences take its results, and not those of a plain bf16 matrix.
#[test]
fn budgets_need_the_low_parts() {
    let seed = seed();
    let split = Split { most: 5, fewest: 3, least: 2, first: 8 };
    let mut rng = Rng::new(seed);
    let switches = Switches { strength: Strength::None, beta: 0.003, ..Switches::plain(1) };
    let sample = Sample::random(&mut rng, &[65, 7 * 64 + 1], switches);
    let problem = sample.problem();
    let checked = reference(&problem, Some(split)).expect("a valid sample");
    let failing = |operand| -> Vec<(Output, usize)> {
        let got = run_segments(&problem, split, operand).expect("a valid sample");
        let stored = |part: &Option<Masked>| -> Vec<bf16> {
            part.as_ref().expect("all three").values.iter().map(|x| bf16_from_f64(*x)).collect()
        };
        let (h, v_new) = (stored(&got.h), stored(&got.v_new));
        let states: Vec<f32> = got.final_state.expect("a pool").values.iter().map(|x| *x as f32).collect();
        let judged = [
            checked.judge(Output::H, Floats::Bf16(&h)),
            checked.judge(Output::VNew, Floats::Bf16(&v_new)),
            checked.judge(Output::Final, Floats::F32(&states)),
        ];
        judged.concat().iter().filter(|part| !part.judgement.passes).map(|part| (part.output, part.sequence)).collect()
    };
    assert_eq!(failing(Operand::HighAndLow), [], "KDA_SEED={seed}");
    let failing = failing(Operand::High);
    assert!(failing.contains(&(Output::Final, 1)) && failing.iter().all(|part| part.1 == 1), "KDA_SEED={seed}");
}

/// Sequences that are not cut, and the first segments of those that are, keep the bits of the uncut recurrence.
#[test]
fn only_later_segments_differ() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let sample = Sample::random(
        &mut rng,
        &[200, 6 * 64, 0],
        Switches { h_out: false, strength: Strength::Weak, ..Switches::plain(1) },
    );
    let problem = sample.problem();
    let serial = run(&problem, Mode::Emulate).expect("a valid sample");
    let cut = run_segments(&problem, Split { most: 3, fewest: 3, least: 2, first: 8 }, Operand::HighAndLow)
        .expect("a valid sample");
    let (serial_v, cut_v) = (&serial.v_new.expect("v_new").values, &cut.v_new.expect("v_new").values);
    // Segment 1 starts from the end of segment 0 as it is; segment 2 begins 256 rows into the sequence.
    let folded = (200 + 256) * 128;
    assert!(serial_v[..folded] == cut_v[..folded], "KDA_SEED={seed}");
    assert!(serial_v[folded..] != cut_v[folded..], "KDA_SEED={seed}");
    let (serial, cut) = (serial.final_state.expect("a pool").values, cut.final_state.expect("a pool").values);
    let size = 128 * 128;
    assert!(serial[..size] == cut[..size] && serial[2 * size..] == cut[2 * size..], "KDA_SEED={seed}");
    assert!(serial[size..2 * size] != cut[size..2 * size], "KDA_SEED={seed}");
}
