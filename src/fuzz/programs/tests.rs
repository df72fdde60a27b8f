//! The generator and the comparison, each shown to see what it is for.

use super::*;
use crate::assembler;
use std::collections::BTreeSet;

/// Rows whose results are lanes' own: all of them stand in some form.
const LANE_WISE: [&str; 34] = [
    "Mov", "Unpack", "Pack", "Cvt", "Selp", "Prmt", "Add", "Sub", "Mul", "Mad", "Fma", "Div", "Rem", "Neg", "Abs",
    "Min", "Max", "Rcp", "Sqrt", "Rsqrt", "Ex2", "Lg2", "Tanh", "And", "Or", "Xor", "Not", "Shl", "Shr", "Shf", "Lop3",
    "Bfe", "Bfi", "Setp",
];

#[test]
fn every_lane_wise_row_and_much_of_the_rest_is_generated() {
    let mut seen = BTreeSet::new();
    for index in 0..60 {
        let text = program(&mut Sweep { seed: 1, cases: 1, only: None }.random(index)).text;
        let module = kda_ptx::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        for statement in &module.entries[0].body {
            if let kda_ptx::Statement::Inst { inst, .. } = statement {
                let name = format!("{inst:?}");
                seen.insert(name.split([' ', '{', '(']).next().unwrap_or_default().to_string());
            }
        }
    }
    for row in LANE_WISE {
        assert!(seen.contains(row), "{row} is not generated; {seen:?}");
    }
    for row in ["Bra", "Ld", "St", "Atom", "Red", "Shfl", "Vote", "Redux", "BarSync", "LdMatrix", "StMatrix", "Mma"] {
        assert!(seen.contains(row), "{row} is not generated; {seen:?}");
    }
}

#[test]
fn every_form_is_one_that_the_simulator_models() {
    let wrong: Vec<String> = forms::FORMS
        .iter()
        .filter_map(|form| {
            let program = generate::of_forms(std::iter::once(form), &mut Rng::new(1));
            let loaded = kda_sim::Program::load(&program.text);
            loaded.err().map(|error| format!("{}: {error}", form.text))
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), forms::FORMS.len(), wrong.join("\n"));
}

#[test]
fn programs_give_the_same_bits_under_every_schedule() {
    let outcome = run_right(&Sweep { seed: 2, cases: 12, only: None }, &|_| {});
    assert_eq!(outcome.verdict("programs", 2), Ok(()));
}

/// A simulator that takes one operation for another is seen by the comparison with a device.
#[test]
fn a_wrong_operation_is_seen() {
    for (right, wrong) in [
        ("add.s32", "sub.s32"),
        ("min.s32", "max.s32"),
        ("fma.rm.f32", "fma.rp.f32"),
        ("shr.s64", "shr.u64"),
        ("cvt.rni.s32.f32", "cvt.rzi.s32.f32"),
        ("redux.sync.add", "redux.sync.min"),
        ("rem.u32", "div.u32"),
        ("mul.rn.ftz.f32", "mul.rn.f32"),
        ("shfl.sync.up", "shfl.sync.bfly"),
        ("ex2.approx.f32", "sqrt.approx.f32"),
    ] {
        let mut seen = false;
        for index in 0..200 {
            let program = program(&mut Sweep { seed: 3, cases: 1, only: None }.random(index));
            // At the start of an instruction.
            let (right, wrong) = (format!(" {right}"), format!(" {wrong}"));
            if !program.text.contains(&right) {
                continue;
            }
            let run = |text: &str| run::simulate(&program, text, Schedule::RoundRobin, CtaOrder::Forward, 0);
            let simulated = run(&program.text).unwrap();
            // One that is stopped by a report says nothing of the comparison.
            let Ok(other) = run(&program.text.replace(&right, &wrong)) else { continue };
            seen = run::compare(&program, &simulated, &other).is_err();
            if seen {
                break;
            }
        }
        assert!(seen, "{wrong} in place of {right}");
    }
}

#[test]
fn a_device_that_agrees_passes_and_one_that_does_not_fails() {
    let sweep = Sweep { seed: 5, cases: 6, only: None };
    let run = |program: &Program, text: &str| run::simulate(program, text, Schedule::Random, CtaOrder::Reverse, 1);
    let good = run_against(&sweep, program, &mut |program| run(program, &program.text));
    assert_eq!(good.verdict("programs on the device", 5), Ok(()));
    let bad = run_against(&sweep, program, &mut |program| run(program, &program.text.replace("xor.b32", "or.b32")));
    assert!(bad.failed > 0, "{bad:?}");
    let executor = kda_runtime::executor::sim::SimExecutor::default();
    assert_eq!(run_on_device(&sweep, &executor).verdict("programs on the device", 5), Ok(()));
}

/// A form that a device takes for another is named, with its operands, and no other is.
#[test]
fn every_wrong_form_is_named() {
    let sweep = Sweep { seed: 6, cases: 1, only: None };
    let run = |program: &Program, text: &str| run::simulate(program, text, Schedule::Random, CtaOrder::Reverse, 1);
    let good = run_against(&sweep, every_form, &mut |program| run(program, &program.text));
    assert_eq!(good.verdict("forms", 6), Ok(()));
    let wrong = |text: &str| text.replace(" fma.rz.f64 ", " fma.rn.f64 ").replace(" max.s16 ", " max.u16 ");
    let bad = run_against(&sweep, every_form, &mut |program| run(program, &wrong(&program.text)));
    let words = &bad.faults[0].what;
    assert!(words.contains("; fma.rz.f64 ") && words.contains("; max.s16 ") && words.contains("at first %"), "{words}");
    // `max.s16` stands in front of quotients too.
    assert!(words.lines().all(|line| line.contains("fma.rz.f64") || line.contains("max.s16")), "{words}");
}

/// With an assembler at hand: it takes every form and every program.
#[test]
fn the_assembler_takes_every_form_and_every_program() {
    let Some(ptxas) = assembler::find() else {
        eprintln!("skipped: no ptxas in $PTXAS or PATH");
        return;
    };
    let assemble = |text: &str| {
        let (assembled, words) = assembler::output(&ptxas, text, "sm_90a").expect("ptxas runs");
        let errors: Vec<&str> = words.lines().filter(|line| line.contains("error") || line.contains("fatal")).collect();
        let named = errors.iter().take(40).map(|line| {
            let number =
                line.split("line ").nth(1).and_then(|rest| rest.split(';').next()).and_then(|n| n.parse().ok());
            let source = number.and_then(|n: usize| text.lines().nth(n.saturating_sub(1))).unwrap_or_default();
            format!("{line}: {source}")
        });
        assert!(assembled, "{}", named.collect::<Vec<_>>().join("\n"));
    };
    assemble(&every_form(&mut Rng::new(1)).text);
    let sweep = Sweep::new(7, 50).expect("the environment");
    for index in 0..sweep.cases {
        assemble(&program(&mut sweep.random(index)).text);
    }
}
