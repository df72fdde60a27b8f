//! A role on both sides of a ring, and a ring that a known branch declares.

use super::{Case, X, Y};

/// A warp copies tiles S - 1 trips ahead of its own reads, in each of two items.
const AHEAD: Case = Case {
    roles: "own = 0..1, idle = 1..4",
    params: [X, Y],
    body: "let ring = Pipeline::<own, own> { v: smem::<f32, Shape<8, 32>, _, S>() };
        #[role(own)]
        for item in 0..2 {
            ring.restart();
            #[unroll]
            for i in 0..S - 1 {
                let slot = ring.acquire();
                for r in 0..8 { slot.v.at([r, lane]).copy_async_if(i < n, x.at([8 * i + r, lane])); }
                slot.commit();
            }
            for i in 0..n {
                let next = i + S - 1;
                let slot = ring.acquire();
                for r in 0..8 { slot.v.at([r, lane]).copy_async_if(next < n, x.at([8 * next + r, lane])); }
                slot.commit();
                let slot = ring.wait();
                for r in 0..8 { y.at([8 * i + r, lane]).store(slot.v[[r, 31 - lane]] + item as f32); }
                slot.release();
            }
            for _ in 0..S - 1 {
                ring.wait().release();
            }
        }",
};

#[test]
fn a_role_copies_ahead_for_itself() {
    for stages in 1..=3 {
        for trips in [0, 1, stages - 1, stages, stages + 1, 2 * stages + 1] {
            let (mut run, x) = AHEAD.run(stages, trips);
            assert_eq!(run.compiled.protocol, kda_codegen::check::protocol::Verdict::Proved);
            let got = run.launch_everywhere(1).read::<f32>("y");
            for (at, got) in got.iter().enumerate() {
                let mirror = at / 32 * 32 + 31 - at % 32;
                let want = if at < trips * super::TILE { x[mirror] + 1.0 } else { -1.0 };
                assert_eq!(*got, want, "{stages} stages, {trips} trips, element {at}");
            }
        }
    }
    assert!(AHEAD.without("cp.async.mbarrier") > 0);
    assert!(AHEAD.without("mbarrier.try_wait") > 0);
}

/// The code is the same as that of a ring without a branch around its declaration.
#[test]
fn a_known_branch_declares_a_ring() {
    let body = |ring: &str| {
        format!(
            "let ring = {ring};
        #[role(load)]
        for item in 0..2 {{
            ring.restart();
            for i in 0..n {{
                let slot = ring.acquire();
                for r in 0..8 {{ slot.v[[r, lane]] = x.at([8 * i + r, lane]).load(); }}
                slot.commit();
            }}
        }}
        #[role(math)]
        for item in 0..2 {{
            ring.restart();
            for i in 0..n {{
                let slot = ring.wait();
                for r in 0..8 {{ y.at([8 * i + r, lane]).store(slot.v[[r, lane]] + item as f32); }}
                slot.release();
            }}
        }}"
        )
    };
    let here = "Pipeline::<load, math> { v: smem::<f32, Shape<8, 32>, _, S>() }";
    let branch = format!(
        "if const {{ S > 8 }} {{ Pipeline::<math, load> {{ v: smem::<f32, Shape<8, 32>, _, S>() }} }} else {{ {here} }}"
    );
    let case =
        |ring: &str| Case { roles: "load = 0..1, math = 1..2, idle = 2..4", params: [X, Y], body: body(ring).leak() };
    case(&branch).check(|_, x| x + 1.0);
    let code = |case: Case| -> Vec<String> {
        let places = |line: &&str| ![".loc", ".file"].iter().any(|word| line.trim_start().starts_with(word));
        case.run(3, 1).0.compiled.ptx.lines().filter(places).map(String::from).collect()
    };
    assert_eq!(code(case(&branch)), code(case(here)));
}
