//! What the compiler can prove of the protocol, and what it says where it cannot.

use super::{Case, X, Y};
use crate::harness::{error_of, try_compile};
use kda_codegen::check::protocol::Verdict;

fn source(load: &str, math: &str) -> String {
    let body = format!(
        "let ring = Pipeline::<load, math> {{ v: smem::<f32, Shape<32>, _, S>() }};
        let b = NamedBarrier {{ between: (load, math) }};
        #[role(load)] {{ {load} }}
        #[role(math)] {{ {math} b.sync(); y.at([0, lane]).store(1.0); }}"
    );
    // Every parameter is used.
    let all = "let all = x.at([0, lane]).load() + (m + n + list.at([0]).load() + mine.at([0]).load()) as f32;
        y.at([1, lane]).store(all);";
    Case { roles: "load = 0..1, math = 1..2, idle = 2..4", params: [X, Y], body: format!("{all} {body}").leak() }
        .source(3)
        .replace("n: u32", "n: u32, m: u32, #[dims(8)] list: Global<u32>, #[dims(8)] mine: GlobalMut<u32>")
}

fn verdict(load: &str, math: &str) -> Verdict {
    let source = source(&format!("{load} b.arrive();"), math);
    match try_compile(&source) {
        Ok(mut found) => found.remove(0).protocol,
        Err(errors) => panic!("{}\n{source}", errors[0].text()),
    }
}

const PUT: &str = "let s = ring.acquire(); s.commit();";
const GET: &str = "let s = ring.wait(); s.release();";

/// Both roles walk alike.
fn walk(around: &str) -> Verdict {
    verdict(&around.replace("STEP", PUT), &around.replace("STEP", GET))
}

#[test]
fn what_is_proved() {
    for around in [
        "STEP",
        "for i in 0..n { STEP }",
        "for i in 0..7 { STEP }",
        "for i in 0..100000 { STEP }",
        "for i in (0..n).step_by(4) { STEP }",
        "for i in 0..n { STEP STEP }",
        "for i in 0..n { for j in 0..m { STEP } }",
        "for i in 0..n { for j in 0..i { STEP } }",
        "for i in 0..3 { for j in i..m { STEP } }",
        "for i in 0..n { for j in 0..list.at([i]).load() { STEP } }",
        "for i in 0..n { STEP } for i in 0..m { STEP }",
        "if n > 3 { STEP for i in 4..n { STEP } }",
        "#[unroll(ring)] for i in 0..n { STEP }",
        "for j in 0..m { #[unroll(ring)] for i in 0..n { STEP } }",
    ] {
        assert_eq!(walk(around), Verdict::Proved, "{around}");
    }
    // The first trip of one role stands ahead of its loop.
    let ahead = "if n > 0 { let mut s = ring.wait(); for i in 1..n { s.release(); s = ring.wait(); } s.release(); }";
    assert_eq!(verdict(&format!("for i in 0..n {{ {PUT} }}"), ahead), Verdict::Proved);
    let twice = format!("for i in 0..n {{ {ahead} }}");
    assert_eq!(verdict(&format!("for j in 0..n {{ for i in 0..n {{ {PUT} }} }}"), &twice), Verdict::Proved);
}

/// A loop that runs once more than another of the same value, as the rest of a trip behind a loop asks for.
#[test]
fn trips_beyond_a_value() {
    // The sum is exact: it does not wrap.
    let with = |steps: &str, step: &str| format!("let k = n / 2; {}", steps.replace("STEP", step));
    for (load, math) in [
        ("for i in 0..k + 1 { STEP }", "STEP for i in 0..k { STEP }"),
        ("for i in 0..k + 1 { STEP }", "for i in 0..k { STEP } STEP"),
        ("for i in 0..k + 3 { STEP }", "STEP for i in 0..k { STEP } STEP STEP"),
        ("if k > 0 { for i in 0..k + 1 { STEP } }", "if k > 0 { STEP for i in 1..k { STEP } STEP }"),
        ("for i in 2..k + 3 { STEP }", "for i in 0..k + 1 { STEP }"),
    ] {
        for (a, b) in [(load, math), (math, load)] {
            assert_eq!(verdict(&with(a, PUT), &with(b, GET)), Verdict::Proved, "{a} {b}");
        }
    }
    for (load, math) in [
        ("for i in 0..k + 1 { STEP }", "for i in 0..k { STEP }"),
        ("for i in 0..k + 2 { STEP }", "STEP for i in 0..k { STEP }"),
        ("if k > 1 { for i in 0..k + 1 { STEP } }", "if k > 0 { STEP for i in 1..k { STEP } STEP }"),
    ] {
        let code = error_of(&source(&format!("{} b.arrive();", with(load, PUT)), &with(math, GET)));
        assert!(matches!(code, 660 | 661), "{load} {math}: {code}");
    }
    // `n + 1` may be 0.
    assert_eq!(
        error_of(&source(
            &format!("for i in 0..n + 1 {{ {PUT} }} b.arrive();"),
            &format!("{GET} for i in 0..n {{ {GET} }}")
        )),
        661
    );
}

/// Trips from a list in shared memory that is made ahead of the roles, and that nobody writes from then on.
#[test]
fn trips_from_a_list_in_shared_memory() {
    let body = |ahead: &str, load: &str, behind: &str| {
        format!(
            "let ring = Pipeline::<load, math> {{ v: smem::<f32, Shape<8, 32>, _, S>() }};
            let list = smem::<u32, Shape<4>>();
            list.at([tid]).store_if(tid < 4, n * tid / 3);
            cta_sync();
            {ahead}
            #[role(load)]
            for k in 0..4 {{
                for i in 0..list[[k]] {{
                    let slot = ring.acquire();
                    for r in 0..8 {{ slot.v[[r, lane]] = x.at([8 * i + r, lane]).load(); }}
                    slot.commit();
                }}
                {load}
            }}
            #[role(math)]
            for k in 0..4 {{
                for i in 0..list[[k]] {{
                    let slot = ring.wait();
                    for r in (warp - 1..8).step_by(3) {{ y.at([8 * i + r, lane]).store(slot.v[[r, lane]]); }}
                    slot.release();
                }}
            }}
            {behind}"
        )
    };
    let case = |body: String| Case { roles: "load = 0..1, math = 1..4", params: [X, Y], body: body.leak() };
    let right = case(body("", "", ""));
    right.check(|_, x| x);
    let verdict = |case: &Case| try_compile(&case.source(2)).map(|mut found| found.remove(0).protocol);
    assert_eq!(verdict(&right).ok(), Some(Verdict::Proved));
    // Other elements differ, and what is written when roles have begun may differ.
    let other = body("", "", "").replacen("list[[k]]", "list[[3 - k]]", 1);
    for wrong in [
        other,
        body("", "if n > 7 { list[[lane % 4]] = 2; }", ""),
        body("for j in 0..n {", "", "list.at([tid]).store_if(tid < 4, j); }"),
        body(
            "",
            "",
            &format!("list.at([tid]).store_if(tid < 4, n); cta_sync(); {}", {
                "#[role(load)] for i in 0..list[[0]] { let slot = ring.acquire(); slot.commit(); }
             #[role(math)] for i in 0..list[[0]] { let slot = ring.wait(); slot.release(); }"
            }),
        ),
    ] {
        match verdict(&case(wrong.clone())) {
            Ok(verdict) => assert!(matches!(verdict, Verdict::NotProved { .. }), "{wrong}"),
            Err(errors) => assert!(matches!(errors[0].code.0, 660 | 661), "{}", errors[0].text()),
        }
    }
}

/// A role meets itself where a condition that is the same in all its threads says so; two roles do not.
#[test]
fn a_role_may_meet_on_one_side_of_a_branch() {
    let case = |meet: &str| Case {
        roles: "load = 0..1, math = 1..4",
        params: [X, Y],
        body: format!(
            "let ring = Pipeline::<load, math> {{ v: smem::<f32, Shape<8, 32>, _, S>() }};
            let sums = smem::<f32, Shape<3>>();
            let both = NamedBarrier {{ between: (load, math) }};
            #[role(load)]
            {{
                for i in 0..n {{
                    let slot = ring.acquire();
                    for r in 0..8 {{ slot.v[[r, lane]] = x.at([8 * i + r, lane]).load(); }}
                    slot.commit();
                }}
                both.arrive();
            }}
            #[role(math)]
            {{
                for i in 0..n {{
                    let slot = ring.wait();
                    if i % 2 == 1 {{
                        for w in (warp - 1..8).step_by(3) {{ slot.v[[w, lane]] = slot.v[[w, lane]] + 2.0; }}
                        {meet};
                    }}
                    for r in (warp - 1..8).step_by(3) {{
                        let from = if i % 2 == 1 {{ 7 - r }} else {{ r }};
                        y.at([8 * i + r, lane]).store(slot.v[[from, lane]]);
                    }}
                    slot.release();
                }}
                both.sync();
                sums[[warp - 1]] = 0.0;
            }}"
        )
        .leak(),
    };
    let right = case("role_sync()");
    for trips in [0, 1, 2, 5] {
        let (mut run, x) = right.run(2, trips);
        assert_eq!(run.compiled.protocol, Verdict::Proved);
        let got = run.launch_everywhere(1).read::<f32>("y");
        for (at, got) in got.iter().enumerate().take(trips * 256) {
            let (tile, row, column) = (at / 256, at / 32 % 8, at % 32);
            let want = if tile % 2 == 1 { x[tile * 256 + (7 - row) * 32 + column] + 2.0 } else { x[at] };
            assert_eq!(*got, want, "{trips} trips, element {at}");
        }
    }
    // Without it there is a race; two roles would wait for each other.
    assert!(right.without("bar.sync 2") > 0);
    assert_eq!(super::error_in(case("both.sync()").body), 657);
}

#[test]
fn why_there_is_no_proof() {
    let why = |verdict| match verdict {
        Verdict::NotProved { why } => why,
        other => panic!("{other:?}"),
    };
    let memory = "let k = mine.at([1]).load(); for i in 0..k { STEP }";
    let both = |around: &str| (around.replace("STEP", PUT), around.replace("STEP", GET));
    for ((load, math), words) in [
        (both(memory), "read from memory"),
        (both("let mut k = n; while k > 0 { STEP k -= 1; }"), "`while`"),
        (both("for i in 0..n { let k = i + mine.at([i]).load(); for j in 0..k { STEP } }"), "read from memory"),
        (
            (
                format!("for i in 0..n {{ {PUT} {PUT} }}"),
                format!("for i in 0..n {{ {GET} }} for i in 0..n {{ {GET} }}"),
            ),
            "does not leave the stages",
        ),
        (
            (
                format!("for i in 0..n {{ {PUT} }} for i in 0..m {{ {PUT} }}"),
                format!("for i in 0..m {{ {GET} }} for i in 0..n {{ {GET} }}"),
            ),
            "may differ",
        ),
    ] {
        let verdict = verdict(&load, &math);
        assert!(why(verdict.clone()).contains(words), "{load} {math} {verdict:?}");
    }
}

/// Loops that may run differently often are errors: they are tried with different numbers.
#[test]
fn what_may_go_wrong() {
    for (load, math) in [
        ("for i in 0..n { PUT }", "for i in 0..m { GET }"),
        ("for i in 0..n { PUT }", "for i in 1..n { GET }"),
        ("for i in 0..n { PUT }", "let k = mine.at([0]).load(); for i in 0..k { GET }"),
        ("if n > 2 { PUT }", "if n > 3 { GET }"),
        ("for i in 0..n { if i > 2 { PUT } }", "for i in 0..n { if i > 1 { GET } }"),
        (
            "for i in 0..n { for j in 0..n { for k in 0..i { PUT } } }",
            "for i in 0..n { for j in 0..n { for k in 0..j { GET } } }",
        ),
        ("let k = warp; for i in 0..k { PUT }", "let k = warp; for i in 0..k { GET }"),
    ] {
        let code = error_of(&source(&format!("{} b.arrive();", load.replace("PUT", PUT)), &math.replace("GET", GET)));
        assert!(matches!(code, 660 | 661), "{load} {math}: {code}");
    }
    let flag = source(&format!("if mine.at([0]).load() == 3 {{ {PUT} }} b.arrive();"), "");
    assert_eq!(error_of(&flag), 657);
}
