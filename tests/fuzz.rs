//! The short run of every fuzzer, with a fresh seed each time; `kda check --full` is the long one.
//!
//! `KDA_SEED` sets the seed, `KDA_FUZZ_CASES` the number of cases, `KDA_FUZZ_ONLY` the one case to run.

use kda::fuzz::{Outcome, Sweep, front_end, parameters, parser, programs};

fn sweep(cases: u64) -> Sweep {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock");
    let given = std::env::var("KDA_SEED").ok();
    let seed =
        given.map(|text| text.parse().unwrap_or_else(|_| panic!("KDA_SEED is {text:?}; a whole number is needed")));
    Sweep::new(seed.unwrap_or(now.as_nanos() as u64), cases).unwrap_or_else(|what| panic!("{what}"))
}

#[track_caller]
fn judge(name: &str, sweep: &Sweep, outcome: &Outcome) {
    println!("KDA_SEED={} {} {name}: {:?}", sweep.seed, outcome.cases, outcome.counts.0);
    outcome.verdict(name, sweep.seed).unwrap_or_else(|what| panic!("{what}"));
}

#[test]
fn broken_kernels_give_errors_and_nothing_worse() {
    let sweep = sweep(2_000);
    judge("mutants", &sweep, &front_end::run(&sweep, &|_| {}));
}

#[test]
fn broken_texts_give_errors_and_nothing_worse() {
    let sweep = sweep(10_000);
    judge("texts", &sweep, &parser::run(&sweep, &|_| {}));
}

#[test]
fn arguments_that_validation_takes_touch_nothing_outside_their_tensors() {
    let sweep = sweep(30_000);
    judge("parameter blocks", &sweep, &parameters::run(&sweep, &|_| {}));
}

#[test]
fn programs_give_the_same_bits_under_every_schedule() {
    let sweep = sweep(60);
    judge("programs", &sweep, &programs::run_right(&sweep, &|_| {}));
}

#[test]
fn wild_programs_end_in_a_result_or_a_report() {
    let sweep = sweep(3_000);
    judge("wild programs", &sweep, &programs::wild::run(&sweep, &|_| {}));
}
