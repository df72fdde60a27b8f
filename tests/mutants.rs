//! A sample of the mutants of `kda mutate --all`, fresh in each run: whatever survives must be in the table of reasons, and
//! what the table names must survive. And the tool itself: a blind net lets mutants through.

use kda::core::KernelDesc;
use kda::mutate::equivalent::{REASONS, reason, stale};
use kda::mutate::report::Summary;
use kda::mutate::subject::{Subject, chosen};
use kda::mutate::work::Work;
use kda::mutate::{Fate, Level, Mutant, Operator, run};
use kda_sim::{Checks, Options};
use std::collections::BTreeSet;

/// Mutants of the sample, beside those that reasons are about.
const SAMPLE: u64 = 120;

fn kernels() -> Vec<&'static KernelDesc> {
    chosen(&kda::registry::kernels())
}

fn subject(entry: &str) -> Subject {
    let desc = kernels().into_iter().find(|desc| desc.entry == entry).expect("the kernel is chosen");
    Subject::new(desc, 0).expect("the kernel is right")
}

/// Numbers below `bound` that follow from a seed.
fn draw(mut seed: u64, bound: u64) -> impl Iterator<Item = usize> {
    std::iter::repeat_with(move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((seed >> 33) % bound) as usize
    })
}

#[test]
fn what_survives_has_its_reason() {
    let clock =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_nanos() as u64;
    let seed = std::env::var("KDA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(clock % 1_000_000);
    println!("KDA_SEED={seed}");
    let kernels = kernels();
    let mut work = Work::new(&kernels, seed).expect("the kernels are right");
    assert!(work.len() > 600, "{} mutants", work.len());
    let drawn: BTreeSet<usize> = draw(seed, work.len() as u64).take(SAMPLE as usize).collect();
    let explained: Vec<bool> = work.mutants().map(|(_, mutant)| reason(mutant).is_some()).collect();
    work.keep(&|at| drawn.contains(&at) || explained[at]);
    let judged = work.run(&|_| ());
    let summary = Summary::of(&judged);
    let unexplained: Vec<String> = summary.unexplained().map(Mutant::to_string).collect();
    assert!(unexplained.is_empty(), "KDA_SEED={seed}: no net notices\n{}", unexplained.join("\n"));
    let survivors: Vec<&Mutant> = summary.survivors.iter().map(|(mutant, _)| *mutant).collect();
    let names: Vec<&str> = kernels.iter().map(|desc| desc.entry).collect();
    assert_eq!(stale(&names, &survivors), [""; 0], "KDA_SEED={seed}");
    assert!(REASONS.iter().all(|reason| names.contains(&reason.kernel)), "a reason is about no chosen kernel");
}

#[test]
fn every_kernel_that_synchronises_has_mutants_of_both_levels() {
    let work = Work::new(&kernels(), 0).expect("the kernels are right");
    for subject in work.subjects() {
        let own = || work.mutants().filter(|(of, _)| std::ptr::eq(*of, subject)).map(|(_, mutant)| mutant);
        // One kernel has nothing to synchronise.
        let none = subject.desc.entry == "add";
        for level in [Level::Ptx, Level::Source] {
            assert_eq!(own().any(|mutant| mutant.level == level), !none, "{}, {level}", subject.desc.entry);
        }
    }
    for operator in Operator::ALL {
        assert!(work.mutants().any(|(_, mutant)| mutant.operator == operator), "{operator} has no mutant");
    }
}

/// Without the check for races, and with undefined values let through, fewer mutants are killed.
#[test]
fn a_blind_net_is_noticed() {
    let subject = subject("transpose");
    let blind = |options: Options| {
        let checks = Checks { races: false, undefined: false, ..options.checks };
        Options { checks, ..options }
    };
    let mut lost = 0;
    for mutant in subject.mutants().expect("mutants") {
        let (seen, unseen) = (run::run(&subject, &mutant), run::run_with(&subject, &mutant, blind));
        // What the compiler refuses, or what cannot end, it does not miss.
        assert!(seen != Fate::Survived || unseen == Fate::Survived, "{mutant}: {unseen:?}");
        lost += usize::from(seen != Fate::Survived && unseen == Fate::Survived);
    }
    assert!(lost >= 5, "{lost} mutants are killed by races alone");
}

/// The outputs are compared: an operator that accepts everything still tells a kernel that gives something else.
#[test]
fn results_are_compared_byte_by_byte() {
    let subject = subject("ring_sum__stages4");
    let mut mutant = subject.mutants().expect("mutants").remove(0);
    let changed = subject.desc.ptx.replacen("add.rn.f32", "sub.rn.f32", 1);
    assert!(changed != subject.desc.ptx, "the kernel adds");
    mutant.text = kda::mutate::Text::Ptx(changed);
    let mut lenient = subject;
    lenient.operator.sample = |device, desc, seed, sink| {
        let operator = kda::checks::operators().into_iter().find(|o| o.name == "ring_sum").expect("the operator");
        (operator.sample)(device, desc, seed, &mut |measured, share| {
            sink(kda::checks::Measured { error: 0.0, ..measured }, share);
        })
    };
    assert_eq!(run::run(&lenient, &mutant), Fate::Killed(kda::mutate::Net::Result));
    mutant.text = kda::mutate::Text::Ptx(lenient.desc.ptx.to_string());
    assert_eq!(run::run(&lenient, &mutant), Fate::Survived);
    mutant.text = kda::mutate::Text::Ptx("nonsense".into());
    assert_eq!(run::run(&lenient, &mutant), Fate::Killed(kda::mutate::Net::Simulator("load".into())));
}
