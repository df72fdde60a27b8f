//! Copies into stages: bulk copies of rows, conditional ones, asynchronous copies by threads; and adding bulk stores.

use super::{Case, TILE, TILES, X, X_MAP, Y, Y_MAP};
use crate::harness::{Random, Run, error_of};

/// Reads the buffer `v` of each stage, in rows of 32.
const READ: &str = "#[role(math)]
        for i in 0..n {
            let slot = ring.wait();
            for r in (warp - 1..8).step_by(3) {
                y.at([8 * i + r, lane]).store(slot.v[[r, lane]] + 1.0);
            }
            slot.release();
        }";

const ROLES: &str = "load = 0..1, math = 1..4";

/// A stage that a copy of rows fills, of a size that is known, or a runtime sum.
#[test]
fn bulk_copies_of_rows() {
    let known = "slot.v.bulk_load(x.at([8 * i..8 * i + 8]).hint(l2::evict_first()), 1024);";
    let rows = "#[unroll]
            for r in 0..8 { slot.v.at([r]).bulk_load(x.at([8 * i + r])); }";
    let runtime = "let first = 128 * (1 + i % 7);
            slot.v.bulk_load(x.at([8 * i..8 * i + 8]), first);
            if first < 1024 {
                slot.v.at([first / 128]).bulk_load(x.at([8 * i + first / 128]), 1024 - first);
            }";
    for load in [known, rows, runtime] {
        let body = format!(
            "let ring = Pipeline::<load, math> {{ v: smem::<f32, Shape<8, 32>, _, S>() }};
        #[role(load)]
        #[elect_one]
        for i in 0..n {{
            let slot = ring.acquire();
            {load}
            slot.commit();
        }}
        {READ}"
        );
        let case = Case { roles: ROLES, params: [X, Y], body: body.leak() };
        case.check(|_, x| x + 1.0);
        assert!(case.without("cp.async.bulk.shared") > 0);
    }
}

/// Sizes announced once: constants fold, runtime sizes are added.
#[test]
fn bytes_are_announced_once() {
    let body = "let ring = Pipeline::<load, math> { v: smem::<f32, Shape<8, 32>, _, S>() };
        #[role(load)]
        #[elect_one]
        for i in 0..n {
            let slot = ring.acquire();
            slot.v.at([0]).bulk_load(x.at([8 * i]));
            slot.v.at([1]).bulk_load(x.at([8 * i + 1]));
            slot.commit();
        }
        #[role(math)]
        for i in 0..n {
            let slot = ring.wait();
            y.at([8 * i, lane]).store_if(warp == 1, slot.v[[1, lane]]);
            slot.release();
        }";
    let (run, _) = Case { roles: ROLES, params: [X, Y], body }.run(2, 1);
    let ptx = &run.compiled.ptx;
    assert_eq!(ptx.matches("expect_tx").count(), 1, "{ptx}");
    assert!(ptx.lines().any(|line| line.contains("mbarrier.arrive.expect_tx") && line.ends_with(", 256;")), "{ptx}");
}

/// Tiles that are copied under a condition, and read under the same.
#[test]
fn conditional_tensor_copies() {
    let body = "let ring = Pipeline::<load, math> {
            v: smem::<f32, Shape<8, 32>, Swizzle<128>, S>(),
            w: smem::<f32, Shape<8, 32>, Swizzle<128>, S>(),
        };
        #[role(load)]
        #[elect_one]
        for i in 0..n {
            let slot = ring.acquire();
            slot.v.tma_load(x, [8 * i, 0]);
            slot.w.tma_load_if(i + 1 < n, x, [8 * i + 8, 0]);
            slot.commit();
        }
        #[role(math)]
        for i in 0..n {
            let slot = ring.wait();
            for r in (warp - 1..8).step_by(3) {
                let mut sum = slot.v[[r, lane]];
                if i + 1 < n {
                    sum += slot.w[[r, lane]];
                }
                y.at([8 * i + r, lane]).store(sum);
            }
            slot.release();
        }";
    let case = Case { roles: ROLES, params: [X_MAP, Y], body };
    for stages in 1..=3 {
        for trips in [0, 1, stages, stages + 1, 2 * stages + 1] {
            let (mut run, x) = case.run(stages, trips);
            let got = run.launch_everywhere(1).read::<f32>("y");
            for at in 0..trips * TILE {
                let next = if at / TILE + 1 < trips { x[at + TILE] } else { 0.0 };
                assert_eq!(got[at], x[at] + next, "{stages} stages, {trips} trips, element {at}");
            }
        }
    }
    // A read without any condition is refused; under another one, the simulator sees what has not been filled.
    let always = Case { body: body.replace("if i + 1 < n {", "{").leak(), ..case };
    assert_eq!(error_of(&always.source(2)), 662);
    let careless = Case { body: body.replace("if i + 1 < n {", "if i < n {").leak(), ..case };
    let (mut run, _) = careless.run(2, 1);
    assert!(run.try_launch(1, &kda_sim::Options::default()).is_err());
}

/// Threads copy 16, 8 or 4 bytes each; a condition gives zeros.
#[test]
fn asynchronous_copies_by_threads() {
    let sixteen = "#[unroll]
            for r in 0..2 {
                let (row, column) = (4 * r + lane / 8, 4 * (lane % 8));
                slot.v.at([row, column]).copy_async_v::<4>(x.at([8 * i + row, column]));
            }";
    let eight = "#[unroll]
            for r in 0..4 {
                let (row, column) = (2 * r + lane / 16, 2 * (lane % 16));
                slot.v.at([row, column]).copy_async_v::<2>(x.at([8 * i + row, column]));
            }";
    let four = "#[unroll]
            for r in 0..8 { slot.v.at([r, lane]).copy_async(x.at([8 * i + r, lane])); }";
    let zeros = "#[unroll]
            for r in 0..8 { slot.v.at([r, lane]).copy_async_if(lane != 5, x.at([8 * i + r, lane])); }";
    for copies in [sixteen, eight, four, zeros] {
        let body = format!(
            "let ring = Pipeline::<load, math> {{ v: smem::<f32, Shape<8, 32>, _, S>() }};
        #[role(load)]
        for i in 0..n {{
            let slot = ring.acquire();
            {copies}
            slot.commit();
        }}
        {READ}"
        );
        let case = Case { roles: ROLES, params: [X, Y], body: body.leak() };
        let holes = copies == zeros;
        case.check(|at, x| if holes && at % 32 == 5 { 1.0 } else { x + 1.0 });
        assert!(case.without("cp.async.mbarrier.arrive") > 0);
    }
}

/// Asynchronous copies into elements of a tile, in every swizzle; and on a target without waits that block and without an
/// async proxy.
#[test]
fn asynchronous_copies_from_sm_80_on() {
    for layout in ["_", "Swizzle<128>", "Swizzle<64>", "Swizzle<32>"] {
        let body = format!(
            "let ring = Pipeline::<load, math> {{ v: smem::<f32, Shape<8, 32>, {layout}, S>() }};
        #[role(load)]
        for i in 0..n {{
            let slot = ring.acquire();
            for p in (lane..64).step_by(32) {{
                let (row, column) = (p / 8, 4 * (p % 8));
                slot.v.at([row, column]).copy_async_v_if::<4>(row != 5, x.at([8 * i + row, column]));
            }}
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
        let case = Case { roles: ROLES, params: [X, Y], body: body.leak() };
        for arch in ["sm_80", "sm_90"] {
            for (stages, trips) in [(1, 3), (2, 5), (3, 2)] {
                let x: Vec<f32> = (0..TILES * TILE).map(|i| i as f32).collect();
                let mut run = Run::new(&case.source_for(arch, stages));
                for (word, of_hopper) in [("test_wait", false), ("try_wait", true), ("fence.mbarrier_init", true)] {
                    assert_eq!(run.compiled.ptx.contains(word), (arch == "sm_90") == of_hopper, "{word} on {arch}");
                }
                run.assemble();
                run.tensor("x", &x).tensor("y", &[-1.0f32; TILES * TILE]).set("n", trips as u32);
                let got = run.launch_everywhere(1).read::<f32>("y");
                for (at, got) in got.iter().enumerate() {
                    let want = match (at < trips * TILE, at / 32 % 8) {
                        (false, _) => -1.0,
                        (true, 5) => 1.0,
                        (true, _) => x[at] + 1.0,
                    };
                    assert_eq!(*got, want, "{layout}, {arch}, {stages} stages, {trips} trips, element {at}");
                }
            }
        }
    }
    // A vector begins at a multiple of its length, and bulk copies need a newer target.
    let wrong = |body: &'static str| Case { roles: ROLES, params: [X, Y], body };
    let odd = wrong(
        "let ring = Pipeline::<load, math> { v: smem::<f32, Shape<8, 32>, Swizzle<128>, S>() };
        #[role(load)] { let s = ring.acquire(); s.v.at([0, lane]).copy_async_v::<4>(x.at([0, 0])); s.commit(); }",
    );
    assert_eq!(error_of(&odd.source_for("sm_80", 2)), 450);
    let bulk = wrong(
        "let ring = Pipeline::<load, math> { v: smem::<f32, Shape<8, 32>, _, S>() };
        #[role(load)] #[elect_one] { let s = ring.acquire(); s.v.bulk_load(x.at([0..8])); s.commit(); }
        #[role(math)] { let s = ring.wait(); y.at([0, lane]).store(s.v[[0, lane]]); s.release(); }",
    );
    assert_eq!(error_of(&bulk.source_for("sm_80", 1)), 1050);
}

/// Asynchronous copies and stores fill one stage together; what was copied leaves by a bulk store.
#[test]
fn asynchronous_copies_beside_stores() {
    let case = Case {
        roles: "load = 0..2, store = 2..3, idle = 3..4",
        params: [X, Y],
        body: "let ring = Pipeline::<load, store> { v: smem::<f32, Shape<8, 32>, _, S>() };
        #[role(load)]
        for i in 0..n {
            let slot = ring.acquire();
            for r in (warp..7).step_by(2) {
                slot.v.at([r, lane]).copy_async(x.at([8 * i + r, lane]));
            }
            slot.v.at([7, lane]).store_if(warp == 0, 5.0);
            slot.commit();
        }
        #[role(store)]
        #[elect_one]
        for i in 0..n {
            let slot = ring.wait();
            bulk::store(y.at([8 * i..8 * i + 8]), slot.v, 1024);
            slot.release();
        }",
    };
    case.check(|at, x| if at % TILE >= 224 { 5.0 } else { x });
    assert!(case.without("fence.proxy.async") > 0);
}

/// Tiles that are added to a tensor.
#[test]
fn adding_bulk_stores() {
    let case = Case {
        roles: "math = 0..3, store = 3..4",
        params: [X, Y_MAP],
        body: "let outs = Pipeline::<math, store> { v: smem::<f32, Shape<8, 32>, Swizzle<128>, S>() };
        #[role(math)]
        for i in 0..n {
            let slot = outs.acquire();
            for r in (warp..8).step_by(3) {
                slot.v[[r, lane]] = x.at([8 * i + r, lane]).load();
            }
            slot.commit();
        }
        #[role(store)]
        #[elect_one]
        for i in 0..n {
            let slot = outs.wait();
            tma::reduce_add(y, [8 * i, 0], slot.v);
            slot.release();
        }",
    };
    // The tensor holds -1.
    case.check(|_, x| x - 1.0);
}

/// Hints of loads, and prefetches: they change no result.
#[test]
fn prefetches() {
    let source = "#[kernels(arch = sm_90)]
mod family {
    #[kernel(block = 32, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] z: Option<Global<f32>>, #[dims(32)] y: GlobalMut<f32>) {
        l2::prefetch(x.at([lane + 32]));
        l2::prefetch(z.at([lane]));
        let a = x.at([lane]).hint(l2::prefetch_256()).hint(l2::evict_last()).load();
        y.at([lane]).store(a + x.at([lane + 32]).hint(l2::prefetch_64()).load());
    }
}";
    let mut random = Random::new(0);
    let x: Vec<f32> = (0..64).map(|_| random.below(100) as f32).collect();
    let mut run = Run::new(source);
    run.tensor("x", &x).tensor("y", &[0f32; 32]).launch(1);
    assert_eq!(run.read::<f32>("y"), (0..32).map(|i| x[i] + x[i + 32]).collect::<Vec<_>>());
    let ptx = &run.compiled.ptx;
    assert!(ptx.contains(".L2::256B") && ptx.contains(".L2::64B") && ptx.contains("prefetch.global.L2"), "{ptx}");
}

/// A device function copies through maps that it is given; the maps themselves are brought in ahead of the wait.
#[test]
fn maps_are_parameters_of_device_functions() {
    let source = |parameter: &str, early: &str| {
        format!(
            "#[kernels(arch = sm_90)]
mod family {{
    #[device]
    fn give(y: {parameter}, row: u32, from: Shared<f32>) {{
        tma::store(y, [row, 0], from);
    }}
    #[kernel(block = 32, grid = 1)]
    fn k(#[dims(16, 32)] x: TensorMap<f32, Shape<8, 32>>, #[dims(16, 32)] y: TensorMapMut<f32, Shape<8, 32>>) {{
        let ring = Pipeline::cta {{ v: smem::<f32, Shape<8, 32>>() }};
        {early}
        pdl::wait();
        #[elect_one]
        {{
            let slot = ring.acquire();
            slot.v.tma_load(x, [8, 0]);
            slot.commit();
        }}
        let slot = ring.wait();
        #[elect_one]
        {{
            give(y, 0, slot.v);
        }}
        slot.release();
    }}
}}"
        )
    };
    let prefetch = "#[elect_one] { tma::prefetch(x); tma::prefetch(y); }";
    for parameter in
        ["TensorMapMut<f32, Shape<8, 32>>", "TensorMapMut<f32>", "TensorMapMut<_, Shape<_, 32>>", "TensorMap<f32>"]
    {
        let x: Vec<f32> = (0..512).map(|i| i as f32).collect();
        let mut run = Run::new(&source(parameter, prefetch));
        // Both are of one memory.
        run.map("x", &x, &[16, 32]).map_of("y", "x", &[16, 32], &[32, 1]).launch(1);
        assert_eq!(run.read::<f32>("x")[..256], x[256..], "{parameter}");
        let places = ["prefetch.tensormap", "griddepcontrol.wait", "cp.async.bulk.tensor"]
            .map(|text| run.compiled.ptx.find(text));
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{}", run.compiled.ptx);
    }
    for parameter in
        ["TensorMapMut<bf16>", "TensorMapMut<f32, Shape<8, 16>>", "TensorMapMut<f32, Shape<8>>", "GlobalMut<f32>"]
    {
        assert_eq!(error_of(&source(parameter, "")), 160, "{parameter}");
    }
    for (code, early) in [
        (656, "tma::prefetch(x);"),
        (157, "#[elect_one] { tma::prefetch(); }"),
        (805, "#[elect_one] { tma::prefetch(ring); }"),
    ] {
        assert_eq!(error_of(&source("TensorMapMut<f32>", early)), code, "{early}");
    }
}

/// What a copy needs.
#[test]
fn copies_that_do_not_fit() {
    let wrong = [
        (656, "let s = ring.acquire(); s.v.bulk_load(x.at([0..8]), 1024); s.commit();"),
        (453, "#[elect_one] { let s = ring.acquire(); s.v.at([0]).bulk_load(x.at([0, 0..3])); s.commit(); }"),
        (453, "#[elect_one] { let s = ring.acquire(); s.v.bulk_load(x.at([0..8]), 1000); s.commit(); }"),
        (450, "#[elect_one] { let s = ring.acquire(); s.v.at([0]).bulk_load(x.at([0, 3..19]), 64); s.commit(); }"),
        (451, "let s = ring.acquire(); s.v.at([0, 0]).copy_async_v::<8>(x.at([0, 0])); s.commit();"),
        (450, "let s = ring.acquire(); s.v.at([0, lane]).copy_async_v::<4>(x.at([0, 4 * lane])); s.commit();"),
        (455, "let s = ring.acquire(); s.v.at([0]).copy_async(x.at([0])); s.commit();"),
        (654, "let z = smem::<f32, Shape<4>>(); z.at([0]).copy_async(x.at([0, 0]));"),
        (
            656,
            "let s = ring.acquire(); s.v.at([0, lane]).copy_async(x.at([0, lane])); s.commit(); let s = ring.acquire(); s.commit();",
        ),
    ];
    for (code, body) in wrong {
        let cut = if body.contains("smem") { body.find(';').map_or(0, |at| at + 1) } else { 0 };
        let (outer, inner) = body.split_at(cut);
        let body = format!(
            "let ring = Pipeline::<load, math> {{ v: smem::<f32, Shape<8, 32>, _, S>() }}; {outer}
            #[role(load)] {{ {inner} }} y.at([0, lane]).store(1.0);"
        )
        .leak();
        assert_eq!(error_of(&Case { roles: ROLES, params: [X, Y], body }.source(2)), code, "{body}");
    }
}

/// A ring within the CTA: all threads fill, one stores.
#[test]
fn a_ring_of_the_cta_ends_in_bulk_stores() {
    let case = Case {
        roles: "all = 0..4",
        params: [X, Y_MAP],
        body: "let ring = Pipeline::cta { v: smem::<f32, Shape<8, 32>, Swizzle<128>, S>() };
        for i in 0..n {
            let slot = ring.acquire();
            for r in (warp..8).step_by(4) {
                slot.v[[r, lane]] = x.at([8 * i + r, lane]).load() + 4.0;
            }
            slot.commit();
            #[elect_one]
            {
                let full = ring.wait();
                tma::store(y, [8 * i, 0], full.v);
                full.release();
            }
        }",
    };
    case.check(|_, x| x + 4.0);
    for removed in ["fence.proxy.async", "wait_group.read"] {
        assert!(case.without(removed) > 0, "{removed}");
    }
}
