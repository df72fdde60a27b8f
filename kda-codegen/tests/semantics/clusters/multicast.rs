//! Tiles that the CTAs of a cluster load together, and loops over them, under every schedule.

use super::super::harness::{Random, Run, error_of};
use super::{MEET, is_reported, kernel};

/// C = A Bᵀ in CTAs of 64 x 64; the CTAs of a cluster lie in one row and load their common A together.
fn product(size: u32, m: &str) -> String {
    format!(
        "#[kernels(arch = sm_90a)]
mod family {{
    #[kernel(block = 160, grid = n / 64, cluster = {size})]
    #[roles(math = 0..4, load = 4..5)]
    #[requires(k % 64 == 0, n % 64 == 0, pitch % 2 == 0)]
    fn product(
        #[dims(64, k)] a: TensorMap<bf16, Shape<{m}, 64>, Swizzle<128>>,
        #[dims(n, k)] b: TensorMap<bf16, Shape<64, 64>, Swizzle<128>>,
        #[dims(64:pitch, n)] c: GlobalMut<f32>,
    ) {{
        let ab = Pipeline::<load, math> {{
            a: smem::<bf16, Shape<64, 64>, Swizzle<128>, 2>(),
            b: smem::<bf16, Shape<64, 64>, Swizzle<128>, 2>(),
        }};
        #[role(math)]
        {{
            let mut acc = Acc::<f32, 64, 64>::zero();
            for kb in 0..k / 64 {{
                let slot = ab.wait();
                #[unroll]
                for i in 0..4 {{
                    acc.mma(slot.a.k_slice(16 * i), slot.b.k_slice(16 * i));
                }}
                wgmma::commit();
                wgmma::wait::<0>();
                slot.release();
            }}
            acc.for_each(|row, column, pair| c.at([row, ctaid.x * 64 + column]).store_v(pair));
        }}
        #[role(load)]
        #[elect_one]
        for kb in 0..k / 64 {{
            let slot = ab.acquire();
            slot.a.tma_multicast(a, [0, kb * 64]);
            slot.b.tma_load(b, [ctaid.x * 64, kb * 64]);
            slot.commit();
        }}
    }}
}}"
    )
}

fn product_run(size: u32) -> (Run, Vec<f32>) {
    let (n, k) = (64 * size as usize, 5 * 64usize);
    let mut random = Random::new(u64::from(size));
    let mut values = |count: usize| -> Vec<f32> { (0..count).map(|_| random.below(9) as f32 - 4.0).collect() };
    let (a, b) = (values(64 * k), values(n * k));
    let half = |values: &[f32]| -> Vec<u16> { values.iter().map(|v| (v.to_bits() >> 16) as u16).collect() };
    let mut run = Run::new(&product(size, &format!("{}", 64 / size)));
    run.map("a", &half(&a), &[64, k as u64]).map("b", &half(&b), &[n as u64, k as u64]);
    run.tensor("c", &vec![0f32; 64 * n]).set("n", n as u32).set("k", k as u32).set("pitch", n as u64);
    let expected = (0..64 * n).map(|i| (0..k).map(|l| a[i / n * k + l] * b[i % n * k + l]).sum()).collect();
    (run, expected)
}

#[test]
fn a_cluster_loads_a_tile_together() {
    for size in [1, 2, 4] {
        let (mut run, expected) = product_run(size);
        assert_eq!(run.launch_everywhere(size).read::<f32>("c"), expected, "clusters of {size}");
    }
}

/// Loops unrolled by the stages.
#[test]
fn loops_over_shared_tiles_are_unrolled() {
    for size in [2, 4] {
        let (mut plain, expected) = product_run(size);
        let source = product(size, &format!("{}", 64 / size)).replace("for kb in", "#[unroll(ab)] for kb in");
        plain.compiled =
            Run::new(&source.replace("#[elect_one]\n        #[unroll(ab)]", "#[unroll(ab)]\n        #[elect_one]"))
                .compiled;
        assert_eq!(plain.launch_everywhere(size).read::<f32>("c"), expected, "clusters of {size}");
    }
}

/// The consuming side is one thread, which copies its stages out: it releases them in all CTAs.
#[test]
fn one_thread_releases_in_all_ctas() {
    for size in [2u32, 4] {
        let source = format!(
            "#[kernels(arch = sm_90a)]
mod family {{
    #[kernel(block = 64, grid = {size}, cluster = {size})]
    #[roles(load = 0..1, store = 1..2)]
    fn spread(
        #[dims(n, 32)] x: TensorMap<f32, Shape<{}, 32>, Swizzle<128>>,
        #[dims({size}, n, 32)] y: TensorMapMut<f32, Shape<1, 32, 32>, Swizzle<128>>,
    ) {{
        let ring = Pipeline::<load, store> {{ tile: smem::<f32, Shape<32, 32>, Swizzle<128>, 2>() }};
        #[role(load)]
        #[elect_one]
        for i in 0..n / 32 {{
            let slot = ring.acquire();
            slot.tile.tma_multicast(x.hint(l2::evict_first()), [32 * i, 0]);
            slot.commit();
        }}
        #[role(store)]
        #[elect_one]
        for i in 0..n / 32 {{
            let slot = ring.wait();
            tma::store(y, [ctaid.x, 32 * i, 0], slot.tile);
            slot.release();
        }}
    }}
}}",
            32 / size
        );
        let mut random = Random::new(u64::from(size));
        let rows = 32 * 5;
        let x: Vec<f32> = (0..rows * 32).map(|_| random.below(1000) as f32).collect();
        let mut run = Run::new(&source);
        run.map("x", &x, &[rows as u64, 32]).set("n", rows as u32);
        run.map("y", &vec![0f32; x.len() * size as usize], &[size.into(), rows as u64, 32]);
        assert_eq!(run.launch_everywhere(size).read::<f32>("y"), x.repeat(size as usize), "clusters of {size}");
        let arrival = "\tmbarrier.arrive.shared::cluster.b64";
        assert_eq!(run.compiled.ptx.matches(arrival).count(), size as usize, "{}", run.compiled.ptx);
        let last = run.compiled.ptx.lines().rfind(|l| l.starts_with(arrival)).expect("an arrival").to_string();
        is_reported(&mut run, size, &last, "", 0);
    }
}

/// Tiles that are one element along the first axes of their tensor: the first axis of several is the one that is split, so each
/// CTA loads rows of its own and no other place of the axes ahead.
#[test]
fn boxes_with_single_leading_axes_are_split_by_rows() {
    for size in [2u32, 4] {
        let source = format!(
            "#[kernels(arch = sm_90a)]
mod family {{
    #[kernel(block = 64, grid = {size}, cluster = {size})]
    #[roles(load = 0..1, store = 1..2)]
    fn spread(
        #[dims(3, 4, 5, 64, 32)] x: TensorMap<f32, Shape<1, 1, 1, {}, 32>, Swizzle<128>>,
        #[dims(n, {size}, 64, 32)] y: GlobalMut<f32>,
    ) {{
        let ring = Pipeline::<load, store> {{ tile: smem::<f32, Shape<64, 32>, Swizzle<128>, 2>() }};
        #[role(load)]
        #[elect_one]
        for i in 0..n {{
            let slot = ring.acquire();
            slot.tile.tma_multicast(x, [i % 3, i % 4, (i + 1) % 5, 0, 0]);
            slot.commit();
        }}
        #[role(store)]
        for i in 0..n {{
            let slot = ring.wait();
            for row in 0..64 {{
                y.at([i, ctaid.x, row, lane]).store(slot.tile[[row, lane]]);
            }}
            slot.release();
        }}
    }}
}}",
            64 / size
        );
        let (n, matrix) = (5usize, 64 * 32);
        let x: Vec<f32> = (0..3 * 4 * 5 * matrix).map(|at| at as f32).collect();
        let mut run = Run::new(&source);
        run.map("x", &x, &[3, 4, 5, 64, 32]).set("n", n as u32);
        run.tensor("y", &vec![-1f32; size as usize * n * matrix]);
        let want: Vec<f32> = (0..n)
            .flat_map(|i| {
                let first = ((i % 3 * 4 + i % 4) * 5 + (i + 1) % 5) * matrix;
                x[first..first + matrix].repeat(size as usize)
            })
            .collect();
        assert_eq!(run.launch_everywhere(size).read::<f32>("y"), want, "clusters of {size}");
    }
}

#[test]
fn what_a_multicast_needs_is_not_missed() {
    for size in [2, 4] {
        let (mut run, _) = product_run(size);
        let release = "mbarrier.arrive.shared::cluster.b64";
        assert_eq!(run.compiled.ptx.matches(release).count(), 1, "{}", run.compiled.ptx);
        // Releases that reach the own CTA alone: the others wait for ever.
        let setp =
            run.compiled.ptx.lines().find(|l| l.contains("setp.le.u32")).expect("the lanes that arrive").to_string();
        is_reported(&mut run, size, &setp, &setp.replace(&format!(", {};", size - 1), ", 0;"), 0);
        // Barriers that count the own consumers alone: a stage is filled again while others read it.
        let text = run.compiled.ptx.clone();
        run.compiled.ptx = text.replace(&format!("], {};", 4 * size), "], 4;");
        let mapa = run.compiled.ptx.lines().find(|l| l.contains("mapa.")).expect("the address").to_string();
        let own = mapa.replace("mapa.shared::cluster.u32", "mov.u32").rsplit_once(',').expect("a rank").0.to_string();
        run.compiled.ptx = run.compiled.ptx.replace(&setp, &setp.replace(&format!(", {};", size - 1), ", 0;"));
        is_reported(&mut run, size, &mapa, &format!("{own};"), 0);
        run.compiled.ptx = text;
        // The publication and the end.
        is_reported(&mut run, size, MEET, "\tbar.sync 0;\n", 0);
        is_reported(&mut run, size, MEET, "", 1);
    }
}

/// Waits and arrivals keep the scope of the CTA, unless the kernel stores to other CTAs itself.
#[test]
fn the_scope_of_shared_stages() {
    let plain = product(2, "32");
    let scoped = |source: &str| -> Vec<String> {
        let run = Run::new(source);
        let lines = run.compiled.ptx.lines().filter(|l| l.contains("mbarrier.") && l.contains(".cluster."));
        lines.map(ToString::to_string).collect()
    };
    // The initialisation is published to the cluster.
    assert!(scoped(&plain).iter().all(|l| l.contains("mbarrier_init")), "{:?}", scoped(&plain));
    let stores = plain.replacen(
        "slot.release();",
        "note.remote(1 - cluster_rank).at([kb]).store_if(tid == 0, kb);
         slot.release();",
        1,
    );
    let stores = stores.replacen("let ab =", "let note = smem::<u32, Shape<8>>(); let ab =", 1);
    assert_ne!(stores, plain);
    assert!(scoped(&stores).iter().any(|l| l.contains("try_wait.parity.acquire.cluster")));
    assert!(scoped(&stores).iter().any(|l| l.contains("arrive.release.cluster")));
}

#[test]
fn parts_of_a_multicast_must_fit() {
    for (size, m) in [(2, "64"), (2, "16"), (8, "4")] {
        let source = product(size, m);
        assert_eq!(error_of(&source), 820, "{size} CTAs, {m} rows each");
    }
}

/// Loops over what the CTAs of a cluster do together are proved where all of them run equally often.
#[test]
fn trips_that_differ_in_a_cluster_are_not_proved() {
    use kda_codegen::check::protocol::Verdict;
    let verdict = |source: &str| Run::new(source).compiled.protocol;
    let tiles = |trips: &str| verdict(&product(2, "32").replace("0..k / 64", trips));
    assert_eq!([tiles("0..k / 64"), tiles("0..ctaid.y + k / 64")], [Verdict::Proved, Verdict::Proved]);
    for trips in ["0..ctaid.x / 2 + k / 64", "(ctaid.x / 4..k / 64).step_by(2)"] {
        assert_eq!(tiles(trips), Verdict::Proved, "{trips}");
    }
    // Lists in shared memory are each CTA's own, and so are tickets.
    let list = "let list = smem::<u32, Shape<4>>(); if tid < 4 { list[[tid]] = ctaid.x; } cta_sync(); let ab =";
    for trips in ["0..list[[0]]", "0..k / 64 + list[[1]]"] {
        let source = product(2, "32").replace("0..k / 64", trips).replacen("let ab =", list, 1);
        assert!(matches!(verdict(&source), Verdict::NotProved { why } if why.contains("of a cluster")), "{trips}");
    }
    let drawn = product(2, "32")
        .replace("for kb in 0..k / 64", "for kb in work")
        .replacen("let ab =", "let work = (ctaid.x..k / 64).step_by(nctaid.x).tickets(counter.at([0])); let ab =", 1)
        .replacen("fn product(", "fn product(#[dims(1)] counter: Option<GlobalMut<u32>>, ", 1);
    assert!(matches!(verdict(&drawn), Verdict::NotProved { why } if why.contains("of a cluster")));
    for trips in ["0..ctaid.x", "0..k / 64 + cluster_rank", "ctaid.x..k / 64", "0..ctaid.x / 3", "0..(ctaid.x + 1) / 2"]
    {
        assert!(matches!(tiles(trips), Verdict::NotProved { why } if why.contains("of a cluster")), "{trips}");
    }
    let load = "slot.a.tma_multicast(a, [0, kb * 64]);";
    let some = product(2, "32").replace(load, &format!("if ctaid.x % 2 == 0 {{ {load} }}"));
    assert!(matches!(verdict(&some), Verdict::NotProved { why } if why.contains("under a condition")));
    let whole =
        product(2, "32").replace("        #[elect_one]\n", "").replace(load, &format!("#[elect_one] {{ {load} }}"));
    let whole = whole.replace(
        "slot.b.tma_load(b, [ctaid.x * 64, kb * 64]);",
        "#[elect_one] { slot.b.tma_load(b, [ctaid.x * 64, kb * 64]); }",
    );
    assert_eq!(verdict(&whole), Verdict::Proved);
    let alone = product(2, "64").replace("tma_multicast", "tma_load").replace("0..k / 64", "0..ctaid.x");
    assert_eq!(verdict(&alone), Verdict::Proved);
    let barrier = |trips: &str| {
        let body = "let ring = Pipeline::cta { v: smem::<u32, Shape<32>, _, 2>() };
            for i in TRIPS { let s = ring.acquire(); s.commit(); let s = ring.wait(); s.release(); cluster_sync(); }
            y.at([ctaid.x, tid]).store(x[[ctaid.x, tid]] + m);";
        verdict(&kernel(2, &body.replace("TRIPS", trips)))
    };
    assert_eq!(barrier("0..m"), Verdict::Proved);
    assert!(matches!(barrier("0..ctaid.x"), Verdict::NotProved { .. }));
}

/// mbarriers are published ahead of the author's barrier or behind it, not between its halves.
#[test]
fn the_cluster_does_not_meet_for_mbarriers_between_halves() {
    for halves in ["cluster_sync();", "cluster_arrive(); cluster_wait();"] {
        let source = product(2, "32").replacen("#[role(math)]", &format!("{halves} #[role(math)]"), 1);
        let mut at = 0;
        for line in Run::new(&source).compiled.ptx.lines().filter(|l| l.contains("barrier.cluster")) {
            assert_eq!(line.contains("arrive"), at % 2 == 0, "{halves}: arrivals and waits take turns");
            at += 1;
        }
        assert!(at >= 4, "{halves}");
    }
}
