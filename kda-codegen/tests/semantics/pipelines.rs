//! Pipelines: every kind of sides, under every schedule, at depths 1 to 3 and around as many trips as there are stages.

mod copies;
mod fresh;
mod held;
mod landing;
mod middle;
mod own;
mod peeks;
mod products;
mod protocol;
mod raw;
mod restarts;
mod rewrites;
mod unrolled;

use super::harness::{Random, Run, error_of};
use kda_sim::{Options, Schedule};

/// Elements of a tile: 8 rows of 32.
const TILE: usize = 256;
/// Tiles of a tensor.
const TILES: usize = 8;

/// What passes through a ring.
struct Case {
    roles: &'static str,
    /// Parameters besides `n`; `x` and `y` have 64 rows of 32 elements.
    params: [&'static str; 2],
    /// The body; `S` is the number of stages, `n` the number of trips.
    body: &'static str,
}

const X: &str = "#[dims(64, 32)] x: Global<f32>";
const Y: &str = "#[dims(64, 32)] y: GlobalMut<f32>";
const X_MAP: &str = "#[dims(64, 32)] x: TensorMap<f32, Shape<8, 32>, Swizzle<128>>";
const Y_MAP: &str = "#[dims(64, 32)] y: TensorMapMut<f32, Shape<8, 32>, Swizzle<128>>";
const X_ROWS: &str = "#[dims(64, 32)] x: TensorMap<f32, Shape<8, 32>>";
const Y_ROWS: &str = "#[dims(64, 32)] y: TensorMapMut<f32, Shape<8, 32>>";

/// Tiles by tensor map, one thread's.
const LOAD: &str = "let ring = Pipeline::<load, math> { v: smem::<f32, Shape<8, 32>, Swizzle<128>, S>() };
        #[role(load)]
        #[elect_one]
        for i in 0..n {
            let slot = ring.acquire();
            slot.v.tma_load(x, [8 * i, 0]);
            slot.commit();
        }";

impl Case {
    fn source(&self, stages: usize) -> String {
        self.source_for("sm_90a", stages)
    }

    fn source_for(&self, arch: &str, stages: usize) -> String {
        format!(
            "#[kernels(arch = {arch})]
mod family {{
    const S: u32 = {stages};
    #[kernel(block = 128, grid = 1)]
    #[roles({})]
    fn k({}, n: u32) {{
        {}
    }}
}}",
            self.roles,
            self.params.join(", "),
            self.body
        )
    }

    /// A launch with random inputs.
    fn run(&self, stages: usize, trips: usize) -> (Run, Vec<f32>) {
        let mut random = Random::new(trips as u64);
        let x: Vec<f32> = (0..TILES * TILE).map(|_| random.below(1000) as f32 - 300.0).collect();
        let mut run = Run::new(&self.source(stages));
        let shape = [TILES as u64 * 8, 32];
        for (name, values) in [("x", x.clone()), ("y", vec![-1.0; TILES * TILE])] {
            if self.params.iter().any(|p| p.contains(&format!("{name}: TensorMap"))) {
                run.map(name, &values, &shape);
            } else {
                run.tensor(name, &values);
            }
        }
        run.set("n", trips as u32);
        (run, x)
    }

    /// Compares `y` with `expected(x)` in the tiles that were passed on; the others are untouched.
    fn check(&self, expected: impl Fn(usize, f32) -> f32) {
        for stages in 1..=3 {
            for trips in [0, 1, stages - 1, stages, stages + 1, 2 * stages + 1] {
                let (mut run, x) = self.run(stages, trips);
                let got = run.launch_everywhere(1).read::<f32>("y");
                for (at, got) in got.iter().enumerate() {
                    let want = if at < trips * TILE { expected(at, x[at]) } else { -1.0 };
                    assert_eq!(*got, want, "{stages} stages, {trips} trips, element {at}\n{}", run.compiled.ptx);
                }
            }
        }
    }

    /// The number of schedules that find fault with the kernel without the lines that contain `removed`.
    fn without(&self, removed: &str) -> usize {
        let (mut run, _) = self.run(2, 5);
        let lines: Vec<&str> = run.compiled.ptx.lines().filter(|line| !line.contains(removed)).collect();
        assert!(lines.len() < run.compiled.ptx.lines().count(), "no `{removed}` in\n{}", run.compiled.ptx);
        run.compiled.ptx = lines.join("\n");
        let fails = |schedule: &&Schedule| {
            let options = Options { schedule: **schedule, ..Options::default() };
            run.try_launch(1, &options).is_err()
        };
        Schedule::ALL.iter().filter(fails).count()
    }
}

const THREADS_TO_THREADS: Case = Case {
    roles: "load = 0..1, math = 1..4",
    params: [X, Y],
    body: "let ring = Pipeline::<load, math> { v: smem::<f32, Shape<8, 32>, _, S>() };
        #[role(load)]
        for i in 0..n {
            let slot = ring.acquire();
            #[unroll]
            for r in 0..2 {
                let (row, column) = (4 * r + lane / 8, 4 * (lane % 8));
                slot.v.at([row, column]).store_v(x.at([8 * i + row, column]).load_v::<4>());
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

/// Warps that read what a warp has stored.
#[test]
fn threads_to_threads() {
    THREADS_TO_THREADS.check(|_, x| x + 1.0);
    assert!(THREADS_TO_THREADS.without("mbarrier.arrive") > 0);
    assert!(THREADS_TO_THREADS.without("bar.warp.sync") > 0);
}

/// Tiles by tensor map, in rows and swizzled.
#[test]
fn tensor_copies_to_threads() {
    for (x, layout) in [(X_MAP, "Swizzle<128>"), (X_ROWS, "_")] {
        let body = format!(
            "let ring = Pipeline::<load, math> {{ v: smem::<f32, Shape<8, 32>, {layout}, S>() }};
        #[role(load)]
        #[elect_one]
        for i in 0..n {{
            let slot = ring.acquire();
            slot.v.tma_load(x.hint(l2::evict_first()), [8 * i, 0]);
            slot.commit();
        }}
        #[role(math)]
        for i in 0..n {{
            let slot = ring.wait();
            for r in (warp - 1..8).step_by(3) {{
                y.at([8 * i + r, lane]).store(slot.v[[r, lane]] + 1.0);
            }}
            slot.release();
        }}"
        );
        Case { roles: "load = 0..1, math = 1..4", params: [x, Y], body: body.leak() }.check(|_, x| x + 1.0);
    }
}

/// One thread copies between the stages that its whole role takes: the copy announces its bytes itself.
#[test]
fn a_role_and_its_copy_fill_a_stage_together() {
    let case = Case {
        roles: "load = 0..2, math = 2..4",
        params: [X_MAP, Y],
        body: "let ring = Pipeline::<load, math> {
            v: smem::<f32, Shape<8, 32>, Swizzle<128>, S>(),
            w: smem::<f32, Shape<64>, _, S>(),
        };
        #[role(load)]
        for i in 0..n {
            let slot = ring.acquire();
            #[elect_one]
            if i % 2 == 0 {
                slot.v.tma_load(x, [8 * i, 0]);
            } else {
                slot.v.tma_load(x, [8 * i, 0]);
            }
            slot.w.at([tid]).store((i + 1) as f32);
            slot.commit();
        }
        #[role(math)]
        for i in 0..n {
            let slot = ring.wait();
            for r in (warp - 2..8).step_by(2) {
                y.at([8 * i + r, lane]).store(slot.v[[r, lane]] + slot.w[[lane + 32 * (r % 2)]]);
            }
            slot.release();
        }",
    };
    case.check(|at, x| x + (at / TILE + 1) as f32);
    assert!(case.without("mbarrier.expect_tx") > 0);
}

/// What threads store leaves by bulk copies of one thread of another role.
#[test]
fn threads_to_bulk_stores() {
    let stores = [
        (Y_MAP, "Swizzle<128>", "tma::store(y.hint(l2::evict_first()), [8 * i, 0], slot.v);"),
        (Y_ROWS, "_", "tma::store(y, [8 * i, 0], slot.v);"),
        (Y, "_", "bulk::store(y.at([8 * i..8 * i + 8]), slot.v, 1024);"),
    ];
    for (y, layout, store) in stores {
        // The role waits in one thread, or as a whole.
        let elected = format!("#[elect_one] for i in 0..n {{ let slot = outs.wait(); {store} slot.release(); }}");
        let whole = format!("for i in 0..n {{ let slot = outs.wait(); #[elect_one] {{ {store} }} slot.release(); }}");
        for consumer in [elected, whole] {
            let body = format!(
                "let outs = Pipeline::<math, store> {{ v: smem::<f32, Shape<8, 32>, {layout}, S>() }};
        #[role(math)]
        for i in 0..n {{
            let slot = outs.acquire();
            for r in (warp..8).step_by(3) {{
                slot.v[[r, lane]] = x.at([8 * i + r, lane]).load() * 2.0;
            }}
            slot.commit();
        }}
        #[role(store)]
        {consumer}"
            );
            let case = Case { roles: "math = 0..3, store = 3..4", params: [X, y], body: body.leak() };
            case.check(|_, x| x * 2.0);
            // One fence in the store role, none in the role that stores to shared memory.
            let (run, _) = case.run(2, 1);
            let ptx = &run.compiled.ptx;
            assert_eq!(ptx.matches("fence.proxy.async.shared::cta").count(), 1, "{ptx}");
            assert!(ptx.find("fence.proxy.async").unwrap_or(0) > ptx.rfind("st.shared").unwrap_or(0), "{ptx}");
            assert!(case.without("fence.proxy.async") > 0);
            assert!(case.without("wait_group.read") > 0);
        }
    }
}

/// Stores of a stage that the storing role rewrites are fenced where they are.
#[test]
fn a_rewritten_stage_is_fenced_by_its_writers() {
    let case = Case {
        roles: "math = 0..2, store = 2..3, idle = 3..4",
        params: [X, Y_MAP],
        body: "let outs = Pipeline::<math, store> { v: smem::<f32, Shape<8, 32>, Swizzle<128>, S>() };
        #[role(math)]
        for i in 0..n {
            let slot = outs.acquire();
            for r in (warp..8).step_by(2) {
                slot.v[[r, lane]] = x.at([8 * i + r, lane]).load();
            }
            slot.commit();
        }
        #[role(store)]
        for i in 0..n {
            let slot = outs.wait();
            slot.v[[7, lane]] = 5.0;
            warp_sync();
            #[elect_one]
            {
                tma::store(y, [8 * i, 0], slot.v);
            }
            slot.release();
        }",
    };
    case.check(|at, x| if at % TILE >= 224 { 5.0 } else { x });
}

/// Sides of several roles, each with its own stages and its own way to act.
#[test]
fn sides_of_several_roles() {
    let case = Case {
        roles: "even = 0..1, odd = 1..2, upper = 2..3, lower = 3..4",
        params: [X_MAP, Y],
        body: "let ring = Pipeline::<(even, odd), (upper, lower)> {
            v: smem::<f32, Shape<8, 32>, Swizzle<128>, S>(),
            w: smem::<f32, Shape<32>, _, S>(),
        };
        #[role(even)]
        #[elect_one]
        for i in 0..n {
            let slot = ring.acquire();
            slot.v.tma_load(x, [8 * i, 0]);
            slot.commit();
        }
        #[role(odd)]
        for i in 0..n {
            let slot = ring.acquire();
            slot.w[[lane]] = i as f32;
            slot.commit();
        }
        #[role(upper)]
        for i in 0..n {
            let slot = ring.wait();
            for r in 0..4 {
                y.at([8 * i + r, lane]).store(slot.v[[r, lane]] + slot.w[[lane]]);
            }
            slot.release();
        }
        #[role(lower)]
        for i in 0..n {
            let slot = ring.wait();
            for r in 4..8 {
                y.at([8 * i + r, lane]).store(slot.v[[r, lane]] - slot.w[[lane]]);
            }
            slot.release();
        }",
    };
    case.check(|at, x| x + (at / TILE) as f32 * if at % TILE < 128 { 1.0 } else { -1.0 });
    let (run, _) = case.run(2, 1);
    // One thread and one warp fill; two warps release.
    assert_eq!(run.compiled.ptx.matches("mbarrier.init").count(), 4);
    assert!(run.compiled.ptx.lines().filter(|l| l.contains("mbarrier.init")).all(|l| l.ends_with(", 2;")));
}

/// The code of the error of a kernel with this body.
fn error_in(body: &'static str) -> u16 {
    error_of(&Case { body, ..THREADS_TO_THREADS }.source(2))
}

/// What a side may not do.
#[test]
fn sides_act_in_one_way() {
    let ring = "let ring = Pipeline::<load, math> { v: smem::<f32, Shape<8, 32>, _, S>() };";
    let wrong = [
        // One thread here, the role there.
        (
            656,
            "#[role(load)] { #[elect_one] { let s = ring.acquire(); s.commit(); } let s = ring.acquire(); s.commit(); }",
        ),
        (656, "#[role(math)] { #[elect_one] { let s = ring.wait(); s.release(); } let s = ring.wait(); s.release(); }"),
        (656, "#[role(load)] { let s = ring.acquire(); #[elect_one] { s.commit(); } }"),
        (653, "#[role(load)] { let s = ring.acquire(); s.release(); }"),
        (653, "#[role(math)] { let s = ring.acquire(); s.commit(); }"),
        (654, "#[role(load)] { let s = ring.acquire(); let v = s.v; s.commit(); v[[0, lane]] = 1.0; }"),
        (654, "#[role(math)] { let s = ring.wait(); let v = s.v; s.release(); y.at([0, lane]).store(v[[0, lane]]); }"),
        (653, "#[role(math)] { let s = ring.wait(); s.v.at([0, lane]).copy_async(x.at([0, lane])); s.release(); }"),
    ];
    for (code, body) in wrong {
        assert_eq!(error_in(format!("{ring} {body}").leak()), code, "{body}");
    }
    for sides in ["<load>", "<load, nobody>", "<load, (math, math)>", "<load, ()>"] {
        let body = format!("let ring = Pipeline::{sides} {{ v: smem::<f32, Shape<8, 32>, _, S>() }};");
        let code = error_in(body.leak());
        assert!(matches!(code, 351 | 652), "{sides}: {code}");
    }
}

/// A barrier of one role: its warps exchange what they have stored, while others go on.
#[test]
fn roles_meet_by_themselves() {
    let case = Case {
        roles: "single = 0..1, pair = 1..3, idle = 3..4",
        params: [X, Y],
        body: "let a = smem::<f32, Shape<2, 32>>();
        let b = smem::<f32, Shape<32>>();
        #[role(single)]
        for i in 0..n {
            b[[lane]] = x.at([8 * i, lane]).load();
            role_sync();
            y.at([8 * i, lane]).store(b[[31 - lane]]);
            role_sync();
        }
        #[role(pair)]
        for i in 0..n {
            a[[warp - 1, lane]] = x.at([8 * i + warp, lane]).load();
            role_sync();
            y.at([8 * i + 3 - warp, lane]).store(a[[2 - warp, lane]]);
            role_sync();
        }",
    };
    let (mut run, x) = case.run(1, 3);
    let got = run.launch_everywhere(1).read::<f32>("y");
    for i in 0..3 {
        for lane in 0..32 {
            let at = i * TILE + lane;
            let first = x[i * TILE + 31 - lane];
            assert_eq!([got[at], got[at + 32], got[at + 64]], [first, x[at + 32], x[at + 64]]);
        }
    }
    // One barrier, for the role of two warps.
    assert_eq!(run.compiled.barriers.len(), 1);
    for removed in ["bar.sync 1", "bar.warp.sync"] {
        assert!(case.without(removed) > 0, "{removed}");
    }
    assert_eq!(error_in("role_sync();"), 352);
    assert_eq!(error_in("#[role(load)] if lane < 3 { role_sync(); }"), 350);
}
