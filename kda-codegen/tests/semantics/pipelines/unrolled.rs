//! Loops that are unrolled by the stages of rings, and stages that go round a loop.

use super::{Case, TILE, X, X_MAP, Y, error_in};

/// The loops of both roles as `attribute` says.
fn walk(attribute: &str) -> Case {
    let body = format!(
        "let ring = Pipeline::<load, math> {{ v: smem::<f32, Shape<8, 32>, Swizzle<128>, S>() }};
        #[role(load)]
        #[elect_one]
        {attribute}
        for i in 0..n {{
            let slot = ring.acquire();
            slot.v.tma_load(x, [8 * i, 0]);
            slot.commit();
        }}
        #[role(math)]
        {{
            let mut sum = 0.0;
            {attribute}
            for i in 0..n {{
                let slot = ring.wait();
                #[unroll]
                for r in 0..8 {{
                    sum += slot.v[[r, lane]];
                    y.at([8 * i + r, lane]).store_if(warp == 1, slot.v[[r, lane]] + 1.0);
                }}
                slot.release();
            }}
            y.at([63, lane]).store_if(warp == 2, sum);
        }}"
    );
    Case { roles: "load = 0..1, math = 1..4", params: [X_MAP, Y], body: body.leak() }
}

/// Compares tiles and the sum over them, which a variable carries through all copies of the body.
fn check_walk(case: &Case) {
    for stages in 1..=3 {
        for trips in [0, 1, stages - 1, stages, stages + 1, 2 * stages + 1] {
            let (mut run, x) = case.run(stages, trips);
            let got = run.launch_everywhere(1).read::<f32>("y");
            for at in 0..trips * TILE {
                assert_eq!(got[at], x[at] + 1.0, "{stages} stages, {trips} trips, element {at}");
            }
            for lane in 0..32 {
                let sum: f32 = (0..trips * 8).map(|row| x[row * 32 + lane]).sum();
                assert_eq!(got[63 * 32 + lane], sum, "{stages} stages, {trips} trips, lane {lane}");
            }
        }
    }
}

#[test]
fn stages_are_constants_in_an_unrolled_loop() {
    let case = walk("#[unroll(ring)]");
    check_walk(&case);
    // A wait for each stage and side, at a constant address; the plain loop computes addresses.
    let waits = |case: &Case| {
        let (run, _) = case.run(3, 1);
        let of = |constant: bool| {
            let waits = run.compiled.ptx.lines().filter(|line| line.contains("mbarrier.try_wait"));
            waits.filter(|line| line.contains("[smem+") == constant).count()
        };
        (of(true), of(false))
    };
    assert_eq!(waits(&case), (6, 0));
    assert_eq!(waits(&walk("")), (0, 2));
    check_walk(&walk(""));
}

/// Rings of different depth, walked together.
#[test]
fn several_rings_are_unrolled_by_their_common_multiple() {
    let case = Case {
        roles: "load = 0..1, math = 1..2, idle = 2..4",
        params: [X, Y],
        body: "let a = Pipeline::<load, math> { v: smem::<f32, Shape<4, 32>, _, S>() };
        let b = Pipeline::<load, math> { v: smem::<f32, Shape<4, 32>, _, 2>() };
        #[role(load)]
        #[unroll(a, b)]
        for i in 0..n {
            let (first, second) = (a.acquire(), b.acquire());
            for r in 0..4 {
                first.v[[r, lane]] = x.at([8 * i + r, lane]).load();
                second.v[[r, lane]] = x.at([8 * i + 4 + r, lane]).load();
            }
            first.commit();
            second.commit();
        }
        #[role(math)]
        #[unroll(b, a)]
        for i in 0..n {
            let first = a.wait();
            for r in 0..4 { y.at([8 * i + r, lane]).store(first.v[[r, lane]] + 1.0); }
            first.release();
            let second = b.wait();
            for r in 0..4 { y.at([8 * i + 4 + r, lane]).store(second.v[[r, lane]] + 1.0); }
            second.release();
        }",
    };
    case.check(|_, x| x + 1.0);
    let (run, _) = case.run(3, 1);
    assert_eq!(run.compiled.ptx.matches("mbarrier.try_wait").count(), 4 * 6);
}

/// A loop that begins at a stage that is not known, and one that goes on behind it.
#[test]
fn unrolled_loops_begin_at_any_stage() {
    let walk = |take: &str, work: &str, give: &str| {
        format!(
            "for half in 0..2 {{
            let first = half * (n / 2);
            let last = select(half == 0, n / 2, n);
            #[unroll(ring)]
            for i in first..last {{
                let slot = ring.{take}();
                {work}
                slot.{give}();
            }}
        }}"
        )
    };
    let load = walk("acquire", "for r in 0..8 { slot.v[[r, lane]] = x.at([8 * i + r, lane]).load(); }", "commit");
    let math = walk("wait", "for r in 0..8 { y.at([8 * i + r, lane]).store(slot.v[[r, lane]] * 3.0); }", "release");
    let body = format!(
        "let ring = Pipeline::<load, math> {{ v: smem::<f32, Shape<8, 32>, _, S>() }};
        #[role(load)]
        {load}
        #[role(math)]
        {math}"
    );
    let case = Case { roles: "load = 0..1, math = 1..2, idle = 2..4", params: [X, Y], body: body.leak() };
    case.check(|_, x| x * 3.0);
}

/// A stage that is taken ahead of the loop and in each trip for the next one.
#[test]
fn stages_go_round_a_loop() {
    for attribute in ["", "#[unroll(ring)]"] {
        let body = format!(
            "let ring = Pipeline::<load, math> {{ v: smem::<f32, Shape<8, 32>, Swizzle<128>, S>() }};
        #[role(load)]
        #[elect_one]
        {attribute}
        for i in 0..n {{
            let slot = ring.acquire();
            slot.v.tma_load(x, [8 * i, 0]);
            slot.commit();
        }}
        #[role(math)]
        if n > 0 {{
            let mut slot = ring.wait();
            {attribute}
            for i in 1..n {{
                for r in 0..8 {{ y.at([8 * i - 8 + r, lane]).store(slot.v[[r, lane]] + 2.0); }}
                slot.release();
                slot = ring.wait();
            }}
            for r in 0..8 {{ y.at([8 * n - 8 + r, lane]).store(slot.v[[r, lane]] + 2.0); }}
            slot.release();
        }}"
        );
        let case = Case { roles: "load = 0..1, math = 1..2, idle = 2..4", params: [X_MAP, Y], body: body.leak() };
        case.check(|_, x| x + 2.0);
    }
}

#[test]
fn what_cannot_go_round() {
    let ring = "let ring = Pipeline::<load, math> { v: smem::<f32, Shape<32>, _, S>() };";
    let wrong = [
        (654, "#[role(math)] { let s = ring.wait(); for i in 0..n { s.release(); } }"),
        (654, "#[role(math)] { let mut s = ring.wait(); for i in 0..n { s = ring.wait(); } s.release(); }"),
        (161, "#[role(math)] #[unroll(ring)] for i in 0..n { for j in 0..i { let s = ring.wait(); s.release(); } }"),
        (654, "#[role(math)] { let s = ring.wait(); let t = ring.wait(); t.release(); s.release(); }"),
        (161, "#[role(math)] #[unroll(x)] for i in 0..n { let s = ring.wait(); s.release(); }"),
    ];
    for (code, body) in wrong {
        assert_eq!(error_in(format!("{ring} {body}").leak()), code, "{body}");
    }
}

/// Two stages of a ring held at once, one of which goes round.
#[test]
fn a_role_holds_two_stages() {
    for attribute in ["", "#[unroll(ring)]"] {
        let body = format!(
            "let ring = Pipeline::<load, math> {{ v: smem::<f32, Shape<8, 32>, _, {{ S + 1 }}>() }};
        #[role(load)]
        {attribute}
        for i in 0..n {{
            let slot = ring.acquire();
            for r in 0..8 {{ slot.v[[r, lane]] = x.at([8 * i + r, lane]).load(); }}
            slot.commit();
        }}
        #[role(math)]
        if n > 0 {{
            let mut slot = ring.wait();
            {attribute}
            for i in 1..n {{
                let next = ring.wait();
                for r in 0..8 {{
                    let sum = slot.v[[r, lane]] + 0.0 * next.v[[r, lane]];
                    y.at([8 * i - 8 + r, lane]).store(sum);
                }}
                slot.release();
                slot = next;
            }}
            for r in 0..8 {{ y.at([8 * n - 8 + r, lane]).store(slot.v[[r, lane]]); }}
            slot.release();
        }}"
        );
        Case { roles: "load = 0..1, math = 1..2, idle = 2..4", params: [X, Y], body: body.leak() }.check(|_, x| x);
    }
}
