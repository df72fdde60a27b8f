//! A look at the next stage, ahead of the wait for it.

use super::{Case, X_MAP, Y, error_in};

/// Both sides look first: the producing role in one thread, the consuming one as a whole.
fn looking(attribute: &str) -> Case {
    let body = format!(
        "let ring = Pipeline::<load, math> {{ v: smem::<f32, Shape<8, 32>, Swizzle<128>, S>() }};
        #[role(load)]
        #[elect_one]
        {attribute}
        for i in 0..n {{
            let next = ring.peek();
            let row = 8 * i;
            let slot = next.acquire();
            slot.v.tma_load(x, [row, 0]);
            slot.commit();
        }}
        #[role(math)]
        if n > 0 {{
            let mut slot = ring.wait();
            {attribute}
            for i in 1..n {{
                let next = ring.peek();
                for r in (warp - 1..8).step_by(3) {{ y.at([8 * i - 8 + r, lane]).store(slot.v[[r, lane]] + 1.0); }}
                slot.release();
                slot = next.wait();
            }}
            for r in (warp - 1..8).step_by(3) {{ y.at([8 * n - 8 + r, lane]).store(slot.v[[r, lane]] + 1.0); }}
            slot.release();
        }}"
    );
    Case { roles: "load = 0..1, math = 1..4", params: [X_MAP, Y], body: body.leak() }
}

#[test]
fn a_look_and_a_wait() {
    for attribute in ["", "#[unroll(ring)]"] {
        let case = looking(attribute);
        // The stage that is held must be given before the next one comes, or the ring has more.
        for stages in [2, 3] {
            for trips in [0, 1, 2, 3, 4, 7] {
                let (mut run, x) = case.run(stages, trips);
                assert_eq!(run.compiled.protocol, kda_codegen::check::protocol::Verdict::Proved);
                let got = run.launch_everywhere(1).read::<f32>("y");
                for (at, got) in got.iter().enumerate() {
                    assert_eq!(*got, if at < trips * 256 { x[at] + 1.0 } else { -1.0 }, "{stages} {trips} {at}");
                }
            }
        }
    }
    // Without the wait behind the look, the stage may not be there.
    let (run, _) = looking("").run(2, 5);
    let waits = run.compiled.ptx.matches("try_wait").count();
    assert_eq!(waits, 2 * 2 + 1, "{}", run.compiled.ptx);
}

#[test]
fn what_is_looked_at_is_taken_next() {
    let ring = "let ring = Pipeline::<load, math> { v: smem::<f32, Shape<32>, _, S>() };";
    let load = "#[role(load)] for i in 0..n { let s = ring.acquire(); s.commit(); }";
    let math = |body: &str| format!("#[role(math)] for i in 0..n {{ {body} }}");
    let wrong = [
        (654, math("let p = ring.peek(); let s = ring.wait(); s.release(); let s = p.wait(); s.release();")),
        (654, math("let p = ring.peek(); let s = p.wait(); s.release(); let s = p.wait(); s.release();")),
        (
            654,
            math(
                "let p = ring.peek(); if i > 2 { let s = p.wait(); s.release(); } else { let s = ring.wait(); s.release(); }",
            ),
        ),
        (654, "#[role(math)] { let p = ring.peek(); for i in 0..n { let s = p.wait(); s.release(); } }".into()),
        (653, math("let p = ring.peek(); let s = p.acquire(); s.commit();")),
        (653, "let p = ring.peek(); #[role(math)] for i in 0..n { let s = p.wait(); s.release(); }".into()),
        (350, math("if lane < 3 { let p = ring.peek(); } let s = ring.wait(); s.release();")),
        (158, math("let p = ring.peek(); p.release(); let s = ring.wait(); s.release();")),
    ];
    for (code, math) in wrong {
        let body = format!("{ring} {load} {math} y.at([0, lane]).store(x.at([0, lane]).load());");
        assert_eq!(error_in(body.clone().leak()), code, "{body}");
    }
}
