//! Rings that restart at every item of a loop, so that the loop inside is unrolled with constant stages.

use super::{Case, X, X_MAP, Y, error_in};

/// `n` tiles in items of 1, 2, … tiles.
fn persistent(attribute: &str) -> Case {
    let body = format!(
        "let ring = Pipeline::<load, math> {{ v: smem::<f32, Shape<8, 32>, Swizzle<128>, S>() }};
        #[role(load)]
        #[elect_one]
        for item in 0..3 {{
            ring.restart();
            {attribute}
            for i in item * n / 3..(item + 1) * n / 3 {{
                let slot = ring.acquire();
                slot.v.tma_load(x, [8 * i, 0]);
                slot.commit();
            }}
        }}
        #[role(math)]
        for item in 0..3 {{
            ring.restart();
            {attribute}
            for i in item * n / 3..(item + 1) * n / 3 {{
                let slot = ring.wait();
                for r in (warp - 1..8).step_by(3) {{
                    y.at([8 * i + r, lane]).store(slot.v[[r, lane]] + 1.0);
                }}
                slot.release();
            }}
        }}"
    );
    Case { roles: "load = 0..1, math = 1..4", params: [X_MAP, Y], body: body.leak() }
}

#[test]
fn rings_restart_at_each_item() {
    for attribute in ["", "#[unroll(ring)]"] {
        let case = persistent(attribute);
        case.check(|_, x| x + 1.0);
        let (run, _) = case.run(3, 1);
        // Every wait is at a constant address if the loop is unrolled.
        let computed = run.compiled.ptx.lines().filter(|l| l.contains("try_wait") && !l.contains("[smem+")).count();
        assert_eq!(computed, if attribute.is_empty() { 2 } else { 0 });
        let proved = kda_codegen::check::protocol::Verdict::Proved;
        assert_eq!(run.compiled.protocol, proved, "{attribute}");
    }
}

/// Stages that go round the loop inside, from item to item.
#[test]
fn stages_go_round_in_each_item() {
    let case = Case {
        roles: "load = 0..1, math = 1..2, idle = 2..4",
        params: [X, Y],
        body: "let ring = Pipeline::<load, math> { v: smem::<f32, Shape<8, 32>, _, S>() };
        #[role(load)]
        for item in 0..2 {
            ring.restart();
            #[unroll(ring)]
            for i in 0..n {
                let slot = ring.acquire();
                for r in 0..8 { slot.v[[r, lane]] = x.at([8 * i + r, lane]).load(); }
                slot.commit();
            }
        }
        #[role(math)]
        for item in 0..2 {
            ring.restart();
            if n > 0 {
                let mut slot = ring.wait();
                #[unroll(ring)]
                for i in 1..n {
                    for r in 0..8 { y.at([8 * i - 8 + r, lane]).store(slot.v[[r, lane]] + item as f32); }
                    slot.release();
                    slot = ring.wait();
                }
                for r in 0..8 { y.at([8 * n - 8 + r, lane]).store(slot.v[[r, lane]] + item as f32); }
                slot.release();
            }
        }",
    };
    case.check(|_, x| x + 1.0);
    let (run, _) = case.run(2, 1);
    assert_eq!(run.compiled.protocol, kda_codegen::check::protocol::Verdict::Proved);
}

#[test]
fn both_sides_restart_together() {
    let ring = "let ring = Pipeline::<load, math> { v: smem::<f32, Shape<32>, _, S>() };";
    let put = "let s = ring.acquire(); s.commit();";
    let get = "let s = ring.wait(); s.release();";
    let wrong = [
        (661, format!("#[role(load)] {{ ring.restart(); {put} }} #[role(math)] {{ {get} }}")),
        (
            661,
            format!("#[role(load)] {{ {put} ring.restart(); {put} }} #[role(math)] {{ {get} {get} ring.restart(); }}"),
        ),
        (
            657,
            format!(
                "#[role(load)] {{ if x.at([0, 0]).load() > 1.0 {{ ring.restart(); }} {put} }} #[role(math)] {{ {get} }}"
            ),
        ),
        (654, "#[role(load)] { let s = ring.acquire(); ring.restart(); s.commit(); }".into()),
        (653, "#[role(load)] { ring.restart(); } ring.restart();".into()),
        // Its declaration counts phases by what is said of its name.
        (654, "let other = ring; #[role(load)] { other.restart(); } #[role(math)] { other.restart(); }".into()),
    ];
    for (code, body) in wrong {
        let body = format!("{ring} {body} y.at([0, lane]).store(x.at([0, lane]).load() + n as f32);");
        assert_eq!(error_in(body.clone().leak()), code, "{body}");
    }
}
