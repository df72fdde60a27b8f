//! Stages that are stored while the next one is: the author closes groups of copies, and waits for the last but one.

use super::{Case, TILE, TILES, X, Y_MAP};
use crate::harness::{Random, Run, error_of};
use kda_sim::{Options, Schedule};

const MATH: &str = "let outs = Pipeline::<math, store> { v: smem::<f32, Shape<8, 32>, Swizzle<128>, S>() };
        #[role(math)]
        for i in 0..n {
            let slot = outs.acquire();
            for r in (warp..8).step_by(3) {
                slot.v[[r, lane]] = x.at([8 * i + r, lane]).load() * 2.0;
            }
            slot.commit();
        }";

/// `wait` stands between a group and the release of the stage before.
fn case(wait: &str, last: &str) -> Case {
    let body = format!(
        "{MATH}
        #[role(store)]
        if n > 0 {{
            let mut held = outs.wait();
            #[elect_one]
            {{
                tma::store(y, [0, 0], held.v);
                bulk::commit();
            }}
            for i in 1..n {{
                let slot = outs.wait();
                #[elect_one]
                {{
                    tma::store(y, [8 * i, 0], slot.v);
                    bulk::commit();
                    {wait}
                }}
                held.release();
                held = slot;
            }}
            #[elect_one]
            {{
                {last}
            }}
            held.release();
        }}"
    );
    Case { roles: "math = 0..3, store = 3..4", params: [X, Y_MAP], body: body.leak() }
}

const ONE_LEFT: &str = "bulk::wait_read::<1>();";
const NONE_LEFT: &str = "bulk::wait_read::<0>();";

/// A launch of as many stages and trips.
fn launch(case: &Case, stages: usize, trips: usize) -> (Run, Vec<f32>) {
    let mut random = Random::new(trips as u64);
    let x: Vec<f32> = (0..TILES * TILE).map(|_| random.below(1000) as f32 - 300.0).collect();
    let mut run = Run::new(&case.source(stages));
    run.tensor("x", &x).map("y", &vec![-1.0f32; TILES * TILE], &[TILES as u64 * 8, 32]).set("n", trips as u32);
    (run, x)
}

#[test]
fn one_stage_is_held_while_the_next_is_stored() {
    for wait in [ONE_LEFT, NONE_LEFT] {
        let case = case(wait, NONE_LEFT);
        for stages in 2..=3 {
            for trips in [0, 1, 2, stages, stages + 1, 2 * stages + 1] {
                let (mut run, x) = launch(&case, stages, trips);
                let got = run.launch_everywhere(1).read::<f32>("y");
                for (at, got) in got.iter().enumerate() {
                    let want = if at < trips * TILE { 2.0 * x[at] } else { -1.0 };
                    assert_eq!(*got, want, "{stages} stages, {trips} trips, element {at}");
                }
            }
        }
        // The groups are the author's: the release adds neither a group nor a wait.
        let ptx = launch(&case, 2, 5).0.compiled.ptx;
        assert_eq!(ptx.matches("cp.async.bulk.commit_group").count(), 2, "{ptx}");
        assert_eq!(ptx.matches("cp.async.bulk.wait_group.read").count(), 2, "{ptx}");
    }
}

/// A stage that is released while its copy may still read it is filled again under the copy: the simulator sees it.
#[test]
fn a_stage_that_is_still_read_is_not_released() {
    for (wait, last) in [("", NONE_LEFT), ("bulk::wait_read::<2>();", NONE_LEFT)] {
        let (mut run, _) = launch(&case(wait, last), 2, 5);
        let found = Schedule::ALL.iter().any(|schedule| {
            let options = Options { schedule: *schedule, ..Options::default() };
            run.try_launch(1, &options).is_err()
        });
        assert!(found, "`{wait}` is enough?\n{}", run.compiled.ptx);
    }
}

/// A ring of one stage cannot hold two.
#[test]
fn two_stages_are_not_held_of_one() {
    let code = error_of(&case(ONE_LEFT, NONE_LEFT).source(1));
    assert!((650..700).contains(&code), "{code}");
}
