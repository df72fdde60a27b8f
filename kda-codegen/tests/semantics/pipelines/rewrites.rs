//! Stages in which threads store what a bulk copy overwrites later: their stores are fenced ahead of the hand-over.

use super::{Case, LOAD, X, X_MAP, X_ROWS, Y, Y_MAP};

const ADD: &str = "for r in (warp - 1..8).step_by(3) {
                slot.v[[r, lane]] = slot.v[[r, lane]] + 1.0;
                y.at([8 * i + r, lane]).store(slot.v[[r, lane]]);
            }";

fn check(case: Case, expected: impl Fn(f32) -> f32) {
    case.check(|_, x| expected(x));
    assert!(case.without("fence.proxy.async.shared::cta") > 0);
}

/// The consuming side works in the stage; it is filled by tiles, and by rows.
#[test]
fn consumers_rewrite_what_is_filled_again() {
    let math = format!("#[role(math)] for i in 0..n {{ let slot = ring.wait(); {ADD} slot.release(); }}");
    let tiles = format!("{LOAD} {math}");
    let rows = tiles
        .replace("Swizzle<128>", "_")
        .replace("slot.v.tma_load(x, [8 * i, 0])", "slot.v.bulk_load(x.at([8 * i..8 * i + 8]), 1024)");
    for (x, body) in [(X_MAP, tiles), (X, rows)] {
        check(Case { roles: "load = 0..1, math = 1..4", params: [x, Y], body: body.leak() }, |x| x + 1.0);
    }
}

/// The middle side works in the stage; threads read it, or a bulk store does.
#[test]
fn middle_sides_rewrite_what_is_filled_again() {
    let head = |layout: &str| {
        LOAD.replace("<load, math>", "<load, gate, math>").replace("Swizzle<128>", layout)
            + "#[role(gate)]
        for i in 0..n {
            let slot = ring.wait();
            for r in 0..8 {
                slot.v[[r, lane]] = slot.v[[r, lane]] + 1.0;
            }
            slot.commit();
        }
        #[role(math)]"
    };
    let threads = "for i in 0..n {
            let slot = ring.wait();
            for r in (warp - 2..8).step_by(2) {
                y.at([8 * i + r, lane]).store(slot.v[[r, lane]]);
            }
            slot.release();
        }";
    let copies = "#[elect_one]
        for i in 0..n {
            let slot = ring.wait();
            tma::store(y, [8 * i, 0], slot.v);
            slot.release();
        }";
    let roles = "load = 0..1, gate = 1..2, math = 2..4";
    for (params, layout, math) in
        [([X_MAP, Y], "Swizzle<128>", threads), ([X_MAP, Y_MAP], "Swizzle<128>", copies), ([X_ROWS, Y], "_", threads)]
    {
        check(Case { roles, params, body: format!("{} {math}", head(layout)).leak() }, |x| x + 1.0);
    }
}

/// The producing side stores ahead of its own copy: its warp, or the copying thread.
#[test]
fn producers_overwrite_their_own_stores() {
    let math = "#[role(math)] for i in 0..n {
            let slot = ring.wait();
            for r in (warp - 1..8).step_by(3) {
                y.at([8 * i + r, lane]).store(slot.v[[r, lane]]);
            }
            slot.release();
        }";
    let ring = "let ring = Pipeline::<load, math> { v: smem::<f32, Shape<8, 32>, Swizzle<128>, S>() };";
    let warp = "for i in 0..n {
            let slot = ring.acquire();
            slot.v[[0, lane]] = 3.0;
            warp_sync();
            #[elect_one]
            { slot.v.tma_load(x, [8 * i, 0]); }
            slot.commit();
        }";
    let thread = "#[elect_one] for i in 0..n {
            let slot = ring.acquire();
            slot.v[[0, 3]] = 3.0;
            slot.v.tma_load(x, [8 * i, 0]);
            slot.commit();
        }";
    for load in [warp, thread] {
        let body = format!("{ring} #[role(load)] {load} {math}");
        check(Case { roles: "load = 0..1, math = 1..4", params: [X_MAP, Y], body: body.leak() }, |x| x);
    }
}

/// Rows that threads copy asynchronously in one trip and a bulk copy fills in another.
#[test]
fn asynchronous_copies_are_overwritten_by_bulk_copies() {
    let case = Case {
        roles: "load = 0..1, math = 1..4",
        params: [X, Y],
        body: "let ring = Pipeline::<load, math> { v: smem::<f32, Shape<8, 32>, _, S>() };
        #[role(load)]
        for i in 0..n {
            let slot = ring.acquire();
            if i % 2 == 0 {
                #[elect_one]
                for r in 0..4 {
                    slot.v.at([r]).bulk_load(x.at([8 * i + r]));
                }
            }
            for r in 0..8 {
                if r >= 4 || i % 2 == 1 {
                    slot.v.at([r, lane]).copy_async(x.at([8 * i + r, lane]));
                }
            }
            slot.commit();
        }
        #[role(math)]
        for i in 0..n {
            let slot = ring.wait();
            for r in (warp - 1..8).step_by(3) {
                y.at([8 * i + r, lane]).store(slot.v[[r, lane]] + 1.0);
            }
            slot.release();
        }",
    };
    case.check(|_, x| x + 1.0);
}
