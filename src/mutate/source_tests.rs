//! Each rule gives exactly the mutants that it names, and each of them is Rust again.

use super::super::Operator::{self, *};
use super::*;

/// Mutants of a body: operator, statement, and the changed body without spaces.
fn changed(body: &str) -> Vec<(Operator, String, String)> {
    let text = format!("mod family {{ fn k() {{\n{body}\n}} }}\n");
    let of = |mutant: Mutant| {
        let Text::Source(text) = mutant.text else { panic!("a source mutant") };
        syn::parse_file(&text).expect("a mutant is Rust");
        let body: String = text.lines().skip(1).take_while(|line| *line != "} }").collect();
        (mutant.operator, mutant.what, body.split_whitespace().collect())
    };
    mutants("k", &text).expect("the body is Rust").into_iter().map(of).collect()
}

fn check(body: &str, expected: &[(Operator, &str, &str)]) {
    let expected: Vec<_> = expected.iter().map(|(o, what, body)| (*o, what.to_string(), body.to_string())).collect();
    assert_eq!(changed(body), expected, "{body}");
}

#[test]
fn statements_are_deleted() {
    check("slot.commit();", &[(Drop, "slot.commit();", "")]);
    check("let slot = ring.wait();", &[(Drop, "let slot = ring.wait();", "")]);
    check("cta_sync();", &[(Drop, "cta_sync();", "")]);
    check("let x = values.at([i]).load(); y.wait_time();", &[]);
}

#[test]
fn barriers_pass_their_neighbours_both_ways() {
    check(
        "tile[[tid]] = 1; cta_sync(); let x = tile[[0]];",
        &[
            (Drop, "cta_sync();", "tile[[tid]]=1;letx=tile[[0]];"),
            (Earlier, "cta_sync();", "cta_sync();tile[[tid]]=1;letx=tile[[0]];"),
            (Later, "cta_sync();", "tile[[tid]]=1;letx=tile[[0]];cta_sync();"),
        ],
    );
    // What touches no memory is no neighbour.
    check(
        "let x = values[i] + min(a, b); cta_sync(); let y = x + 1;",
        &[(Drop, "cta_sync();", "letx=values[i]+min(a,b);lety=x+1;")],
    );
}

#[test]
fn gives_come_too_early_and_waits_too_late() {
    check(
        "use_it(slot); slot.release(); load();",
        &[
            (Drop, "slot.release();", "use_it(slot);load();"),
            (Earlier, "slot.release();", "slot.release();use_it(slot);load();"),
        ],
    );
    check(
        "load(); let slot = ring.wait(); use_it(slot);",
        &[
            (Drop, "let slot = ring.wait();", "load();use_it(slot);"),
            (Later, "let slot = ring.wait();", "load();use_it(slot);letslot=ring.wait();"),
        ],
    );
}

#[test]
fn neighbours_of_one_kind_say_nothing_and_a_swap_counts_once() {
    check("a.release(); b.commit();", &[(Drop, "a.release();", "b.commit();"), (Drop, "b.commit();", "a.release();")]);
    check(
        "slot.release(); cta_sync();",
        &[
            (Drop, "slot.release();", "cta_sync();"),
            (Drop, "cta_sync();", "slot.release();"),
            (Earlier, "cta_sync();", "cta_sync();slot.release();"),
        ],
    );
}

#[test]
fn pending_groups_elections_and_orders() {
    check(
        "wgmma::wait::<0>();",
        &[(Drop, "wgmma::wait::<0>();", ""), (Pending, "wgmma::wait::<0>()", "wgmma::wait::<1>();")],
    );
    check("#[elect_one] { f(); }", &[(EveryLane, "#[elect_one]", "{f();}")]);
    check(
        "n = counter.at([0]).fetch_add(1, ACQ_REL);",
        &[(Narrow, "ACQ_REL", "n=counter.at([0]).fetch_add(1,RELAXED);")],
    );
}

#[test]
fn a_mutant_knows_its_line() {
    let found =
        mutants("k", "mod family {\n    fn k() {\n        // é\n        cta_sync();\n    }\n}\n").expect("Rust");
    assert_eq!(found.iter().map(|mutant| mutant.line).collect::<Vec<_>>(), [4]);
    let Text::Source(text) = &found[0].text else { panic!("a source mutant") };
    assert_eq!(text, "mod family {\n    fn k() {\n        // é\n        \n    }\n}\n");
    assert!(mutants("k", "mod {").is_err());
}
