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
    // Known numbers are multiplied, as far as they can be played.
    let idle = "for i in 0..100000 { for j in 0..100000 { for k in 0..m { STEP } } }";
    walk(idle);
    for (put, get) in [(10_000, [100, 100]), (4000, [2000, 2])] {
        let get = format!("for i in 0..{} {{ for j in 0..{} {{ {GET} }} }}", get[0], get[1]);
        verdict(&format!("for i in 0..{put} {{ {PUT} }}"), &get);
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
        ("for i in 0..5000 { PUT }", "for i in 0..5001 { GET }"),
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

/// Roles `a`, `b` and `c` do this with two barriers and a ring from `b` to `a`.
fn barriers(between: &str, bodies: [&str; 3]) -> Result<Verdict, u16> {
    let [a, b, c] = bodies;
    let body = format!(
        "let t = NamedBarrier {{ between: {between} }};
        let u = NamedBarrier {{ between: {between} }};
        let ring = Pipeline::<b, a> {{ v: smem::<f32, Shape<32>, _, S>() }};
        y.at([0, tid]).store(x.at([0, lane]).load() + n as f32);
        #[role(a)] {{ {a} }} #[role(b)] {{ {b} }} #[role(c)] {{ {c} }}"
    );
    let case = Case { roles: "a = 0..1, b = 1..2, c = 2..4", params: [X, Y], body: body.leak() };
    try_compile(&case.source(3)).map(|mut found| found.remove(0).protocol).map_err(|errors| errors[0].code.0)
}

/// A role that arrives without waiting arrives again only when all others have arrived.
#[test]
fn arrivals_do_not_overtake() {
    let (put, get) = ("let s = ring.acquire(); s.commit();", "let s = ring.wait(); s.release();");
    let n = |body: &str| format!("for i in 0..n {{ {body} }}");
    let pair = |a: &str, b: &str| barriers("(a, b)", [a, b, ""]);
    for (a, b) in [
        ("t.arrive();", "t.sync();"),
        // The turn goes to and fro.
        (n("t.sync(); u.arrive();").as_str(), format!("t.arrive(); {}", n("u.sync(); t.arrive();")).as_str()),
        (n("u.arrive(); t.sync();").as_str(), n("u.sync(); t.arrive();").as_str()),
        // The other role has arrived ahead of the stage.
        (n(&format!("t.arrive(); {get}")).as_str(), n(&format!("t.sync(); {put}")).as_str()),
    ] {
        assert_eq!(pair(a, b), Ok(Verdict::Proved), "{a} {b}");
    }
    for (a, b) in [
        ("t.arrive(); t.arrive();", "t.sync(); t.sync();"),
        (n("t.arrive();").as_str(), n("t.sync();").as_str()),
        // The other role may not have arrived when it commits.
        (n(&format!("t.arrive(); {get}")).as_str(), n(&format!("{put} t.sync();")).as_str()),
        (n("t.arrive(); u.sync();").as_str(), n("u.sync(); t.sync();").as_str()),
    ] {
        assert_eq!(pair(a, b), Err(661), "{a} {b}");
    }
    let all = |meet: &str| barriers("(a, b, c)", [&n("t.arrive(); u.sync();"), &n("t.sync(); u.sync();"), &n(meet)]);
    assert_eq!(all("t.arrive(); u.sync();"), Ok(Verdict::Proved));
    assert_eq!(all("u.arrive(); t.arrive();"), Err(661));
}

/// What holds at the end of the kernel holds at every `return`.
#[test]
fn returns_leave_nothing_behind() {
    let end = |body: &str| {
        let ring = "let ring = Pipeline::<load, math> { v: smem::<f32, Shape<32>, _, S>() };
            let own = Pipeline::cta { v: smem::<f32, Shape<32>, _, S>() };
            y.at([0, tid]).store(x.at([0, lane]).load());";
        let body = body
            .replace("LOAD", &format!("#[role(load)] for i in 0..n {{ {PUT} }}"))
            .replace("MATH", &format!("#[role(math)] for i in 0..n {{ {GET} }}"))
            .replace("FILL", "let s = own.acquire(); s.commit();")
            .replace("DRAIN", "let s = own.wait(); s.release();");
        let body = format!("{ring} {body}").leak();
        let case = Case { roles: "load = 0..1, math = 1..4", params: [X, Y], body };
        try_compile(&case.source(3)).map(|mut found| found.remove(0).protocol).map_err(|errors| errors[0].code.0)
    };
    for body in [
        "if n == 3 { return; } LOAD MATH",
        "LOAD MATH if n == 3 { return; } LOAD MATH",
        "if n > 4 { if n > 5 { return; } else { return; } } else { if n > 1 { return; } } LOAD MATH",
        "for i in 0..n { FILL DRAIN if i > 3 { return; } }",
        "if n > 3 { FILL DRAIN return; } FILL DRAIN FILL DRAIN",
    ] {
        assert_eq!(end(body), Ok(Verdict::Proved), "{body}");
    }
    for body in [
        "LOAD if n == 3 { return; } MATH",
        "for i in 0..n { FILL if i > 3 { return; } DRAIN }",
        "if n > 3 { FILL return; } FILL DRAIN",
    ] {
        assert_eq!(end(body), Err(660), "{body}");
    }
}
