//! mbarriers outside pipelines.

use super::{Case, X_MAP, Y, error_in};
use kda_codegen::check::protocol::Verdict;

/// A buffer that goes to and fro between a copying thread and three warps.
#[test]
fn a_pipeline_by_hand() {
    let case = Case {
        roles: "load = 0..1, math = 1..4",
        params: [X_MAP, Y],
        body: "let full = Mbarrier::new(1);
        let empty = Mbarrier::new(96);
        let tile = smem::<f32, Shape<8, 32>, Swizzle<128>>();
        #[role(load)]
        #[elect_one]
        for i in 0..n {
            empty.wait((i + 1) % 2);
            full.arrive_expect(1024);
            tile.tma_load_on(full, x, [8 * i, 0]);
        }
        #[role(math)]
        for i in 0..n {
            full.wait(i % 2);
            for r in (warp - 1..8).step_by(3) {
                y.at([8 * i + r, lane]).store(tile[[r, lane]] + 1.0);
            }
            empty.arrive();
        }",
    };
    case.check(|_, x| x + 1.0);
    assert!(case.without("mbarrier.arrive.shared") > 0);
    let (run, _) = case.run(1, 1);
    assert!(matches!(run.compiled.protocol, Verdict::NotProved { .. }));
}

#[test]
fn what_an_mbarrier_needs() {
    for (code, body) in [
        (155, "let b = Mbarrier::new(n);"),
        (155, "let b = Mbarrier::new(0);"),
        (652, "#[role(load)] { let b = Mbarrier::new(1); }"),
        (652, "for i in 0..n { let b = Mbarrier::new(1); }"),
        (652, "for i in 0..n { let p = Pipeline::<load, math> { v: smem::<f32, Shape<32>>() }; }"),
        (158, "let b = Mbarrier::new(1); b.sync();"),
    ] {
        assert_eq!(error_in(body), code, "{body}");
    }
}
