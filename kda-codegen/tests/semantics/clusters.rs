//! Clusters: ranks, barriers, shared memory of other CTAs, under every schedule.

use super::harness::{Random, Run, error_of};
use kda_sim::{Options, Schedule};

/// A kernel of clusters of `size` CTAs of 64 threads; `x` and `y` have 64 numbers for each CTA.
fn kernel(size: u32, body: &str) -> String {
    format!(
        "#[kernels(arch = sm_90)]
mod family {{
    #[kernel(block = 64, grid = n, cluster = {size})]
    #[roles(first = 0..1, second = 1..2)]
    fn k(#[dims(n, 64)] x: Global<u32>, #[dims(n, 64)] y: GlobalMut<u32>, m: u32) {{
        {body}
    }}
}}"
    )
}

/// The kernel on six or eight CTAs with random numbers, which are returned.
fn run(size: u32, body: &str) -> (Run, Vec<u32>, u32) {
    let n = if size == 3 { 6 } else { 8 };
    let mut random = Random::new(u64::from(size));
    let x: Vec<u32> = (0..64 * n).map(|_| random.word()).collect();
    let mut run = Run::new(&kernel(size, body));
    run.tensor("x", &x).tensor("y", &vec![0u32; x.len()]).set("n", n).set("m", 3u32);
    (run, x, n)
}

/// The kernel with its PTX changed is reported under some schedule.
fn is_reported(run: &mut Run, n: u32, from: &str, to: &str, which: usize) {
    let text = run.compiled.ptx.clone();
    let at = text.match_indices(from).nth(which).unwrap_or_else(|| panic!("`{from}`\n{text}")).0;
    run.compiled.ptx = format!("{}{to}{}", &text[..at], &text[at + from.len()..]);
    let reports = Schedule::ALL.iter().filter_map(|schedule| {
        let options = Options { schedule: *schedule, ..Options::default() };
        run.try_launch(n, &options).err()
    });
    let codes: Vec<String> = reports.map(|report| format!("{:?}", report.code)).collect();
    println!("without {from:?}: {codes:?}");
    assert!(!codes.is_empty(), "`{from}` number {which} is not missed\n{}", run.compiled.ptx);
    run.compiled.ptx = text;
}

const MEET: &str = "\tbarrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;\n";

/// Every CTA reads the next one's numbers.
const READ_NEXT: &str = "let mine = smem::<u32, Shape<64>>();
        mine[[tid]] = x[[ctaid.x, tid]];
        cluster_sync();
        let next = mine.remote((cluster_rank + 1) % cluster_size);
        y.at([ctaid.x, tid]).store(next[[63 - tid]]);";

#[test]
fn ranks_and_sizes() {
    for size in [1, 2, 4] {
        let (mut run, _, n) = run(size, "y.at([ctaid.x, tid]).store(100 * cluster_size + cluster_rank);");
        let y = run.launch_everywhere(n).read::<u32>("y");
        for (i, y) in y.iter().enumerate() {
            assert_eq!(*y, 100 * size + i as u32 / 64 % size);
        }
    }
}

#[test]
fn ctas_read_each_other() {
    for size in [2, 3, 4, 8] {
        let (mut run, x, n) = run(size, READ_NEXT);
        let y = run.launch_everywhere(n).read::<u32>("y");
        for (i, y) in y.iter().enumerate() {
            let (cta, tid) = (i as u32 / 64, i % 64);
            let next = cta / size * size + (cta + 1) % size;
            assert_eq!(*y, x[next as usize * 64 + 63 - tid], "CTA {cta} of clusters of {size}");
        }
        // The author's barrier, and the one that the compiler adds at the end.
        assert_eq!(run.compiled.ptx.matches(MEET).count(), 2, "{}", run.compiled.ptx);
        is_reported(&mut run, n, MEET, "\tbar.sync 0;\n", 0);
        is_reported(&mut run, n, MEET, "", 1);
    }
}

/// Behind a barrier of the author's own nobody reaches another CTA: the compiler adds none.
#[test]
fn the_last_barrier_may_be_the_authors() {
    let body = format!(
        "{READ_NEXT}\n        cluster_sync();\n        if m > 9 {{ y.at([ctaid.x, tid]).store(mine[[tid]]); }}"
    );
    let (mut run, x, n) = run(2, &body);
    let y = run.launch_everywhere(n).read::<u32>("y");
    for (i, y) in y.iter().enumerate() {
        assert_eq!(*y, x[((i / 64) ^ 1) * 64 + 63 - i % 64], "element {i}");
    }
    assert_eq!(run.compiled.ptx.matches(MEET).count(), 2, "{}", run.compiled.ptx);
    is_reported(&mut run, n, MEET, "", 1);
    // A branch behind it that does reach another CTA needs one more.
    let (run, ..) = self::run(2, &body.replace("store(mine[[tid]])", "store(next[[tid]])"));
    assert_eq!(run.compiled.ptx.matches(MEET).count(), 3, "{}", run.compiled.ptx);
}

/// Stores, vectors, ranks that are known or differ between lanes, the two halves of the barrier.
#[test]
fn ctas_write_each_other() {
    let body = "let box_of = smem::<u32, Shape<4, 64>>();
        cluster_arrive();
        let mine = x[[ctaid.x, tid]];
        cluster_wait();
        box_of.remote(tid % 4).at([cluster_rank, tid]).store(mine);
        box_of.remote(0).at([cluster_rank, tid]).store_if(tid % 4 == 0, mine + 1);
        cluster_sync();
        let four = box_of.remote(3 - cluster_rank).at([tid % 4, tid / 4 * 4]).load_v::<4>();
        let last = box_of.at([3, cluster_rank]).load_if(tid == 5);
        y.at([ctaid.x, tid]).store(four[3 - cluster_rank_of(tid)] + last);";
    let body = body.replace("four[3 - cluster_rank_of(tid)]", "select(cluster_rank == 3, four[0], select(cluster_rank == 2, four[1], select(cluster_rank == 1, four[2], four[3])))");
    let (mut run, x, n) = run(4, &body);
    let y = run.launch_everywhere(n).read::<u32>("y");
    for cta in 0..n as usize {
        let (first, rank) = (cta / 4 * 4, cta % 4);
        let at = |row: usize, column: usize| {
            x[(first + row) * 64 + column].wrapping_add(u32::from(column.is_multiple_of(4)))
        };
        for tid in 0..64 {
            let from = 3 - rank;
            let last = if tid == 5 { at(3, rank) } else { 0 };
            assert_eq!(y[cta * 64 + tid], at(tid % 4, tid / 4 * 4 + from).wrapping_add(last), "CTA {cta} thread {tid}");
        }
    }
    is_reported(&mut run, n, "\tbarrier.cluster.arrive.release.aligned;\n", "", 0);
    is_reported(&mut run, n, MEET, "\tbar.sync 0;\n", 0);
    is_reported(&mut run, n, MEET, "", 1);
}

/// Counters of one CTA that all of the cluster add to.
#[test]
fn atomics_reach_other_ctas() {
    let body = "let counts = smem::<u32, Shape<4>>();
        let sums = smem::<f32, Shape<2>>();
        if tid < 4 {
            counts[[tid]] = 0;
            sums.at([tid % 2]).store_if(tid < 2, 0.0);
        }
        cluster_sync();
        let mine = x[[ctaid.x, tid]];
        counts.remote(mine % cluster_size).at([mine / 8 % 4]).fetch_add(1, RELAXED);
        counts.remote(0).at([3]).inc_wrap(1000000, ACQ_REL);
        sums.at([tid % 2]).fetch_add((mine % 16) as f32, RELAXED);
        cluster_sync();
        y.at([ctaid.x, tid]).store(counts[[tid % 4]] * 1000 + (sums[[tid % 2]] as u32));";
    for size in [1u32, 2, 4] {
        let body = if size == 1 {
            body.replace(".remote(mine % cluster_size)", "").replace(".remote(0)", "")
        } else {
            body.to_string()
        };
        let (mut run, x, n) = run(size, &body);
        let y = run.launch_everywhere(n).read::<u32>("y");
        for cta in 0..n {
            let (first, rank) = (cta / size * size, cta % size);
            let all = (first..first + size).flat_map(|c| &x[c as usize * 64..][..64]);
            let mut counts = [0u32; 4];
            all.filter(|v| **v % size == rank).for_each(|v| counts[(v / 8 % 4) as usize] += 1);
            counts[3] += if rank == 0 { 64 * size } else { 0 };
            for tid in 0..64 {
                let own = x[cta as usize * 64..][..64].iter().enumerate();
                let sum: u32 = own.filter(|(i, _)| i % 2 == tid % 2).map(|(_, v)| v % 16).sum();
                assert_eq!(y[cta as usize * 64 + tid], counts[tid % 4] * 1000 + sum, "CTA {cta} of clusters of {size}");
            }
        }
    }
    assert_eq!(error_of(&kernel(1, "let b = smem::<bf16, Shape<4>>(); b.at([0]).fetch_add(1, RELAXED);")), 156);
}

/// What another CTA has written is copied out by bulk: the writer fences for it.
#[test]
fn bulk_copies_read_what_other_ctas_wrote() {
    let body = "let row = smem::<u32, Shape<64>>();
        cluster_sync();
        row.remote(1 - cluster_rank).at([tid]).store(x[[ctaid.x, tid]]);
        cluster_sync();
        if tid == 0 {
            bulk::store(y.at([ctaid.x]), row);
            bulk::commit();
            bulk::wait_read::<0>();
        }";
    let (mut run, x, n) = run(2, body);
    let y = run.launch_everywhere(n).read::<u32>("y");
    for (i, y) in y.iter().enumerate() {
        assert_eq!(*y, x[i ^ 64]);
    }
    let fence = "\tfence.proxy.async.shared::cluster;\n";
    assert_eq!(run.compiled.ptx.matches(fence).count(), 1, "{}", run.compiled.ptx);
    is_reported(&mut run, n, fence, "", 0);
}

#[test]
fn clusters_divide_the_grid() {
    let (run, ..) = run(2, READ_NEXT);
    let texts: Vec<&str> = run.compiled.requires.iter().map(|r| r.text.as_str()).collect();
    assert_eq!(texts, ["(n) % 2 == 0"]);
    assert_eq!(run.compiled.cluster, 2);
    assert!(run.compiled.ptx.contains(".reqnctapercluster 2, 1, 1\n"), "{}", run.compiled.ptx);
    let constant = kernel(4, "").replace("grid = n", "grid = 6");
    assert_eq!(error_of(&constant), 520);
}

#[test]
fn wrong_uses_of_clusters_are_errors() {
    assert_eq!(error_of(&kernel(9, "")), 520);
    assert_eq!(error_of(&kernel(2, "if tid == 0 { cluster_sync(); }")), 350);
    assert_eq!(error_of(&kernel(2, "#[role(first)] { cluster_sync(); }")), 353);
    for halves in [
        "cluster_arrive();",
        "cluster_wait();",
        "cluster_arrive(); cluster_sync();",
        "cluster_arrive(); cluster_arrive();",
        "cluster_arrive(); if m == 0 { cluster_wait(); }",
        "for i in 0..m { cluster_arrive(); } cluster_wait();",
    ] {
        assert_eq!(error_of(&kernel(2, halves)), 360, "{halves}");
    }
    let reads = "let b = smem::<u32, Shape<64>>(); cluster_sync(); if m == 0 { return; } y.at([0, tid]).store(b.remote(1)[[tid]]);";
    assert_eq!(error_of(&kernel(2, reads)), 361);
    assert_eq!(error_of(&kernel(1, &reads.replace("if m == 0 { return; }", ""))), 460);
    assert_eq!(error_of(&kernel(2, &reads.replace("remote(1)", "remote(2)"))), 154);
    let bulk =
        "let b = smem::<u32, Shape<64>>(); cluster_sync(); if tid == 0 { bulk::store(y.at([ctaid.x]), b.remote(1)); }";
    assert_eq!(error_of(&kernel(2, bulk)), 460);
    assert_eq!(error_of(&kernel(2, "").replace("sm_90", "sm_80")), 1050);
}

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

/// A barrier of two halves covers what stands ahead of the first: a later access of another CTA is followed by one more.
#[test]
fn the_closing_barrier_counts_from_the_arrival() {
    let plain = "let row = smem::<u32, Shape<64>>(); row[[tid]] = x[[ctaid.x, tid]]; cluster_sync();
        let next = row.remote((cluster_rank + 1) % cluster_size); let mut seen: u32 = 0;
        AHEAD cluster_arrive(); BETWEEN cluster_wait(); y.at([ctaid.x, tid]).store(seen);";
    for (ahead, between, barriers) in [("seen = next[[tid]];", "", 2), ("", "seen = next[[tid]];", 3)] {
        let body = plain.replace("AHEAD", ahead).replace("BETWEEN", between);
        let (mut run, x, n) = run(2, &body);
        let got = run.launch_everywhere(n).read::<u32>("y");
        let expected: Vec<u32> = (0..64 * n as usize).map(|at| x[((at / 64) ^ 1) * 64 + at % 64]).collect();
        assert_eq!(got, expected, "{body}");
        assert_eq!(run.compiled.ptx.matches("barrier.cluster.arrive").count(), barriers, "{}", run.compiled.ptx);
    }
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
