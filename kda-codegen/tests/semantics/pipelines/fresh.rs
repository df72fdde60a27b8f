//! Stages that are filled for the first time are not waited for, and rings that are filled once have no empty barriers.

use super::{Case, TILE, X_MAP, Y};

const PUT: &str = "{ let slot = ring.acquire(); slot.v.tma_load(x, [8 * i, 0]); slot.commit(); }";
const GET: &str = "{ let slot = ring.wait();
            for r in (warp - 1..8).step_by(3) { y.at([8 * i + r, lane]).store(slot.v[[r, lane]] + 1.0); }
            slot.release(); }";

fn case(load: &str, math: &str) -> Case {
    let body = format!(
        "let ring = Pipeline::<load, math> {{ v: smem::<f32, Shape<8, 32>, Swizzle<128>, S>() }};
        #[role(load)] #[elect_one] {{ {load} }}
        #[role(math)] {{ {math} }}"
    );
    let body = body.replace("PUT", PUT).replace("GET", GET);
    Case { roles: "load = 0..1, math = 1..4", params: [X_MAP, Y], body: body.leak() }
}

/// Runs it, compares the first tiles, and gives the text.
fn check(case: &Case, stages: usize, trips: usize, tiles: usize) -> String {
    let (mut run, x) = case.run(stages, trips);
    let y = run.launch_everywhere(1).read::<f32>("y");
    for (at, y) in y.iter().enumerate() {
        let want = if at < tiles * TILE { x[at] + 1.0 } else { -1.0 };
        assert_eq!(*y, want, "{stages} stages, {trips} trips, element {at}\n{}", run.compiled.ptx);
    }
    run.compiled.ptx.clone()
}

fn count(text: &str, what: &str) -> usize {
    text.matches(what).count()
}

#[test]
fn a_ring_that_is_filled_once() {
    let once = case("if n > 0 { #[unroll] for i in 0..S PUT }", "if n > 0 { #[unroll] for i in 0..S GET }");
    for stages in 1..=3 {
        let text = check(&once, stages, 1, stages);
        let counts = ["mbarrier.init", "try_wait", "mbarrier.arrive.shared"].map(|what| count(&text, what));
        assert_eq!(counts, [stages, stages, 0], "{text}");
    }
}

#[test]
fn a_ring_that_is_filled_once_and_one_stage_more() {
    let more = case("if n > 0 { #[unroll] for i in 0..S + 1 PUT }", "if n > 0 { #[unroll] for i in 0..S + 1 GET }");
    for stages in 1..=3 {
        let text = check(&more, stages, 1, stages + 1);
        let counts = ["mbarrier.init", "try_wait", "mbarrier.arrive.shared"].map(|what| count(&text, what));
        // The last stage alone is waited for before it is filled.
        assert_eq!(counts, [2 * stages, stages + 2, stages + 1], "{text}");
    }
}

/// Each trip goes round the ring and finds stage and phase as the trip before: nothing is fresh in a loop.
#[test]
fn loops_that_go_round_the_ring() {
    let both = |step: &str| format!("for j in 0..n {{ #[unroll] for k in 0..2 {{ let i = 2 * j + k; {step} }} }}");
    let round = case(&both("PUT"), &both("GET"));
    for stages in 1..=2 {
        for trips in 0..=4 {
            let text = check(&round, stages, trips, 2 * trips);
            assert_eq!(count(&text, "try_wait"), 4, "{text}");
        }
    }
    assert!(round.without("mbarrier.arrive.shared") > 0);
}
