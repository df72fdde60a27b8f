//! Tables of made-up times.

use super::*;
use crate::bench::report::tests::row;
use crate::bench::shape::{List, Shape};
use kda_ref::rng::Rng;
use kda_runtime::executor::sim::SimExecutor;
use kda_runtime::operators::preference::Table;
use kda_runtime::operators::{conv_verify, decode, delta_h, tc_commit};

/// Tokens, pairs, and the variants' µs.
type Point<'p> = (u64, u64, &'p [(&'p str, f64)]);

fn made_up(list: &[Point]) -> Times {
    let mut times = Times::new();
    for (t, pairs, variants) in list {
        let at = times.entry(*t).or_default().entry(*pairs).or_default();
        at.extend(variants.iter().map(|(name, us)| (name.to_string(), *us)));
    }
    times
}

fn line(tokens: (u64, u64), pairs: u64, variant: &str) -> Line {
    Line { tokens, pairs, variant: variant.into() }
}

const END: u64 = u64::MAX;
const WIDE: Contract = Contract { name: "fp32", text: "" };
const NARROW: Contract = Contract { name: "bf16", text: "" };

#[test]
fn the_fastest_wins_and_bounds_lie_where_times_meet() {
    let times = made_up(&[
        (4, 8, &[("small", 4.0), ("large", 8.0)]),
        (4, 32, &[("small", 8.0), ("large", 8.0 * 2.0f64.powf(1.0))]),
        (4, 128, &[("small", 32.0), ("large", 16.0)]),
    ]);
    // A factor of two ahead at 32, of two behind at 128: they meet in the middle, at 64.
    let expected = [line((1, END), 64, "small"), line((1, END), END, "large")];
    assert_eq!(table(&times, &|_, _| true), expected);
}

#[test]
fn differences_below_the_slack_make_no_row() {
    let times = made_up(&[
        (4, 8, &[("a", 4.00), ("b", 4.01)]),
        (4, 16, &[("a", 5.01), ("b", 5.00)]),
        (4, 32, &[("a", 6.00), ("b", 6.02)]),
    ]);
    assert_eq!(table(&times, &|_, _| true), [line((1, END), END, "a")]);
    let apart = made_up(&[(4, 8, &[("a", 4.0), ("b", 4.1)]), (4, 16, &[("a", 5.1), ("b", 5.0)])]);
    assert_eq!(table(&apart, &|_, _| true).len(), 2);
}

#[test]
fn tokens_take_the_nearest_bands_whose_variants_run_them() {
    let times = made_up(&[
        (2, 8, &[("fixed_a", 1.0), ("fixed_b", 2.0)]),
        (8, 8, &[("fixed_a", 2.0), ("fixed_b", 1.0)]),
        (16, 8, &[("long", 5.0)]),
    ]);
    let covers = |name: &str, t: u64| name == "long" || t <= 8;
    let expected = [line((1, 4), END, "fixed_a"), line((5, 8), END, "fixed_b"), line((9, END), END, "long")];
    assert_eq!(table(&times, &covers), expected);
    // Bands that lose nothing elsewhere are one range.
    let alike = made_up(&[(2, 8, &[("a", 1.0), ("b", 2.0)]), (8, 8, &[("a", 2.0), ("b", 2.0)])]);
    assert_eq!(table(&alike, &|_, _| true), [line((1, END), END, "a")]);
    assert!(table(&Times::new(), &covers).is_empty());
}

#[test]
fn a_variant_that_was_not_timed_beside_another_meets_it_in_the_middle() {
    let times = made_up(&[(4, 8, &[("a", 1.0)]), (4, 32, &[("b", 1.0)])]);
    assert_eq!(table(&times, &|_, _| true)[0], line((1, END), 16, "a"));
}

#[test]
fn times_are_those_of_our_variants_in_one_contract() {
    let shape = Shape { t: 4, h: 8, n: 2 };
    let mut other = row(shape, "plain", Who::Ours, "op__a_t4", false, 1.0);
    other.contract = "bf16";
    let rows = [
        row(shape, "plain", Who::Ours, "op__a_t4", true, 5.0),
        row(shape, "plain", Who::Ours, "op__b_f32_t4", false, 6.0),
        row(shape, "plain", Who::Ours, "op__b_f32_t4_long", false, 3.0),
        row(shape, "plain", Who::Twin, "op__c_t4", false, 1.0),
        row(shape, "pdl", Who::Ours, "op__a_t4", true, 4.0),
        other,
    ];
    assert_eq!(times(&rows, &WIDE, Launch::Plain), made_up(&[(4, 16, &[("a", 5.0), ("b", 6.0)])]));
    assert_eq!(times(&rows, &WIDE, Launch::Pdl), made_up(&[(4, 16, &[("a", 4.0)])]));
    assert_eq!(times(&rows, &NARROW, Launch::Plain), made_up(&[(4, 16, &[("a", 1.0)])]));
}

#[test]
fn launches_that_do_not_differ_share_a_table() {
    let plain = vec![line((1, END), END, "a")];
    let own = vec![line((1, END), END, "b")];
    let mut tables = vec![(Launch::Plain, plain.clone()), (Launch::Pdl, own.clone()), (Launch::PdlStable, own.clone())];
    let close = made_up(&[(4, 8, &[("a", 4.01), ("b", 4.0)])]);
    let apart = made_up(&[(4, 8, &[("a", 5.0), ("b", 4.0)])]);
    share(&mut tables, &[(Launch::Pdl, close), (Launch::PdlStable, apart)]);
    assert_eq!([&tables[1].1, &tables[2].1], [&plain, &own]);
}

/// A variant that is good with one contract and bad with the other is worse than one that is fair with both.
#[test]
fn contracts_that_share_a_table_count_by_the_worst() {
    let first = made_up(&[(4, 8, &[("a", 4.0), ("b", 5.0), ("c", 8.0)]), (4, 16, &[("a", 1.0)])]);
    let second = made_up(&[(4, 8, &[("a", 30.0), ("b", 25.0), ("d", 20.0)])]);
    let expected = made_up(&[(4, 8, &[("a", 1.5), ("b", 1.25)]), (4, 16, &[("a", 1.0)])]);
    assert_eq!(worst([first.clone(), second, Times::new()].into_iter()), expected);
    assert_eq!(worst([Times::new()].into_iter()), Times::new());
    let alone = worst([first].into_iter());
    assert_eq!(alone[&4][&8]["b"], 1.25, "one contract: relative to the fastest");
}

#[test]
fn a_choice_has_a_table_for_each_launch() {
    let shape = Shape { t: 4, h: 8, n: 2 };
    let with = |contract: &Contract, launch, kernel: &str, us| {
        let mut row = row(shape, launch, Who::Ours, kernel, false, us);
        row.contract = contract.name;
        row
    };
    let rows = [
        with(&WIDE, "plain", "op__a_t4", 4.0),
        with(&WIDE, "plain", "op__b_t4", 5.0),
        with(&NARROW, "plain", "op__a_t4", 3.0),
        with(&NARROW, "plain", "op__b_t4", 2.0),
        with(&WIDE, "pdl", "op__a_t4", 2.0),
        with(&WIDE, "pdl", "op__b_t4", 3.0),
    ];
    let choice = |contracts| Choice { prefix: "X_", text: "some calls", contracts };
    let launches = [Launch::Plain, Launch::Pdl];
    for (contracts, plain, pdl) in
        [(&[WIDE][..], "a", Some("a")), (&[NARROW], "b", None), (&[WIDE, NARROW], "b", Some("a"))]
    {
        let tables = tables(&rows, &launches, &choice(contracts), &|_, _| true);
        assert_eq!(tables.lines[0], (Launch::Plain, vec![line((1, END), END, plain)]));
        let expected: Vec<Line> = pdl.iter().map(|name| line((1, END), END, name)).collect();
        // Without any time there is no table, and so no file.
        assert_eq!(tables.lines[1], (Launch::Pdl, expected));
    }
}

/// Tables of a committed file.
fn committed(prefix: &'static str, text: &'static str, tables: &[Table]) -> Tables {
    let lines = |table: &Table| -> Vec<Line> {
        table.rows.iter().map(|row| line(row.tokens, row.pairs, row.variant)).collect()
    };
    Tables { prefix, text, lines: Launch::ALL.into_iter().zip(tables.iter().map(lines)).collect() }
}

/// What is written is what the committed files hold, so that they are formatted as the rest of the sources.
#[test]
fn the_committed_tables_are_written_as_they_stand() {
    use conv_verify::preference as verify;
    use decode::preference as step;
    use delta_h::preference as recurrence;
    use tc_commit::preference as commit;
    let choices = |op: &str| {
        let subject = crate::bench::subjects().into_iter().find(|subject| subject.name() == op).unwrap();
        (subject.choices(), subject.preference())
    };
    for (op, tables) in [
        ("conv_verify", vec![vec![verify::PLAIN, verify::PDL, verify::PDL_STABLE]]),
        ("delta_h", vec![vec![recurrence::PLAIN, recurrence::PDL]]),
        ("tc_commit", vec![vec![commit::BF16_PLAIN, commit::BF16_PDL], vec![commit::F32_PLAIN, commit::F32_PDL]]),
        (
            "decode",
            vec![
                vec![step::F32_VK_PLAIN, step::F32_VK_PDL, step::F32_VK_PDL_STABLE],
                vec![step::F32_KV_PLAIN, step::F32_KV_PDL, step::F32_KV_PDL_STABLE],
                vec![step::BF16_VK_PLAIN, step::BF16_VK_PDL, step::BF16_VK_PDL_STABLE],
                vec![step::BF16_KV_PLAIN, step::BF16_KV_PDL, step::BF16_KV_PDL_STABLE],
            ],
        ),
    ] {
        let (choices, path) = choices(op);
        assert_eq!(choices.len(), tables.len());
        let multiprocessors = tables[0][0].multiprocessors;
        let mut tables: Vec<Tables> =
            choices.iter().zip(tables).map(|(choice, tables)| committed(choice.prefix, choice.text, &tables)).collect();
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        let committed = std::fs::read_to_string(path).unwrap();
        let written = body(multiprocessors, &tables).unwrap();
        let (comment, rest) = committed.split_once("\n\n").unwrap();
        assert!(comment.lines().all(|line| line.starts_with("//!")), "{comment}");
        assert_eq!(written, format!("\n{rest}"));
        let whole = source(op, "a device", multiprocessors, &[WIDE, NARROW], &tables).unwrap();
        assert!(whole.ends_with(&written) && whole.starts_with(&format!("//! Which variant of `{op}`")));
        assert!(whole.contains("Measured with the contracts fp32, bf16, cold L2"), "{whole}");
        assert!(whole.lines().all(|line| line.len() <= 120), "{whole}");
        tables[0].lines[0].1.clear();
        assert!(source(op, "a device", multiprocessors, &[WIDE], &tables).is_err());
    }
}

/// Whatever the times: tables of every operator cover all tokens and pairs, with variants that run them in every contract.
#[test]
fn tables_of_any_times_name_variants_that_run() {
    let executor = SimExecutor::default();
    for (seed, subject) in
        [1, 2].into_iter().flat_map(|seed| crate::bench::subjects().into_iter().map(move |s| (seed, s)))
    {
        let rng = &mut Rng::new(seed);
        for choice in subject.choices() {
            let mut rows = Vec::new();
            for (contract, shape) in
                choice.contracts.iter().flat_map(|c| subject.shapes(List::Tune).into_iter().map(move |s| (c, s)))
            {
                let call = subject.call(&mut Arena::counting(), contract, shape).unwrap();
                for desc in subject.kernels() {
                    if call.plan(&executor, Some(desc), Launch::Plain).is_ok() {
                        let mut row = row(shape, "plain", Who::Ours, desc.entry, false, 1.0 + rng.uniform());
                        row.contract = contract.name;
                        rows.push(row);
                    }
                }
            }
            let covers = |variant: &str, t: u64| covers(subject, &executor, choice, variant, t);
            let tables = tables(&rows, &[Launch::Plain], choice, &covers);
            let lines = &tables.lines[0].1;
            let what = format!("seed {seed}, {} {}: {lines:?}", subject.name(), choice.text);
            let longest = subject.shapes(List::Tune).iter().map(|shape| shape.t).max().unwrap();
            // An operator of one token runs no more.
            let most = if longest == 1 { 1 } else { longest + 4 };
            let mut next = 1;
            for (at, line) in lines.iter().enumerate() {
                assert!(line.tokens.0 == next && line.tokens.0 <= line.tokens.1, "{what}");
                for t in line.tokens.0..=line.tokens.1.min(most) {
                    assert!(covers(&line.variant, t), "T {t}: {what}");
                }
                match lines.get(at + 1) {
                    Some(after) if after.tokens == line.tokens => assert!(line.pairs < after.pairs, "{what}"),
                    _ => {
                        assert_eq!(line.pairs, END, "{what}");
                        next = line.tokens.1.saturating_add(1);
                    }
                }
            }
            assert_eq!(lines.last().unwrap().tokens.1, END, "{what}");
            // Random times have many winners; a table that names few of them lost some.
            assert!(lines.len() > 3, "{what}");
        }
    }
}
