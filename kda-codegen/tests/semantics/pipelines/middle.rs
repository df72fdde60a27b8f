//! Sides between the producing and the consuming one.

use super::{Case, X, X_MAP, Y, Y_MAP};

/// `load` fills `v`, `gate` makes `w` of it, `math` reads both.
const GATE: Case = Case {
    roles: "load = 0..1, gate = 1..2, math = 2..4",
    params: [X_MAP, Y],
    body: "let ring = Pipeline::<load, gate, math> {
            v: smem::<f32, Shape<8, 32>, Swizzle<128>, S>(),
            w: smem::<f32, Shape<8, 32>, _, S>(),
        };
        #[role(load)]
        #[elect_one]
        for i in 0..n {
            let slot = ring.acquire();
            slot.v.tma_load(x, [8 * i, 0]);
            slot.commit();
        }
        #[role(gate)]
        for i in 0..n {
            let slot = ring.wait();
            for r in 0..8 {
                slot.w[[r, lane]] = 2.0 * slot.v[[7 - r, 31 - lane]];
            }
            slot.commit();
        }
        #[role(math)]
        for i in 0..n {
            let slot = ring.wait();
            for r in (warp - 2..8).step_by(2) {
                y.at([8 * i + r, lane]).store(slot.v[[r, lane]] + slot.w[[7 - r, 31 - lane]]);
            }
            slot.release();
        }",
};

#[test]
fn a_side_in_the_middle() {
    GATE.check(|_, x| 3.0 * x);
    let (run, _) = GATE.run(2, 1);
    // A full barrier, that of the middle side, and an empty one for each of two stages.
    assert_eq!(run.compiled.ptx.matches("mbarrier.init").count(), 6);
    for removed in ["mbarrier.arrive.expect_tx", "bar.warp.sync"] {
        assert!(GATE.without(removed) > 0, "{removed}");
    }
}

/// Four sides; the stages leave by bulk stores.
#[test]
fn two_sides_in_the_middle() {
    let case = Case {
        roles: "load = 0..1, twice = 1..2, more = 2..3, store = 3..4",
        params: [X, Y_MAP],
        body: "let ring = Pipeline::<load, twice, more, store> {
            v: smem::<f32, Shape<8, 32>, _, S>(),
            w: smem::<f32, Shape<8, 32>, Swizzle<128>, S>(),
        };
        #[role(load)]
        for i in 0..n {
            let slot = ring.acquire();
            for r in 0..8 {
                slot.v.at([r, lane]).copy_async(x.at([8 * i + r, lane]));
            }
            slot.commit();
        }
        #[role(twice)]
        for i in 0..n {
            let slot = ring.wait();
            for r in 0..8 {
                slot.v[[r, lane]] = 2.0 * slot.v[[r, lane]];
            }
            slot.commit();
        }
        #[role(more)]
        for i in 0..n {
            let slot = ring.wait();
            for r in 0..8 {
                slot.w[[r, lane]] = slot.v[[r, lane]] + 1.0;
            }
            slot.commit();
        }
        #[role(store)]
        #[elect_one]
        for i in 0..n {
            let slot = ring.wait();
            tma::store(y, [8 * i, 0], slot.w);
            slot.release();
        }",
    };
    case.check(|_, x| 2.0 * x + 1.0);
}

/// A middle side commits, and is one trip as often as the others.
#[test]
fn what_a_middle_side_may_not_do() {
    let body = |gate: &str| {
        let ring = "let ring = Pipeline::<load, gate, math> { v: smem::<f32, Shape<32>, _, S>() };
            #[role(load)] for i in 0..n { let s = ring.acquire(); s.v[[lane]] = x.at([i, lane]).load(); s.commit(); }";
        let math =
            "#[role(math)] for i in 0..n { let s = ring.wait(); y.at([i, lane]).store(s.v[[lane]]); s.release(); }";
        format!("{ring} #[role(gate)] for i in {gate} {math}").leak() as &'static str
    };
    for (code, gate) in [
        (653, "0..n { let s = ring.wait(); s.release(); }"),
        (653, "0..n { let s = ring.acquire(); s.commit(); }"),
        (661, "1..n { let s = ring.wait(); s.commit(); }"),
        (654, "0..n { let s = ring.wait(); }"),
    ] {
        let source = Case { body: body(gate), params: [X, Y], ..GATE }.source(2);
        assert_eq!(crate::harness::error_of(&source), code, "{gate}");
    }
}
