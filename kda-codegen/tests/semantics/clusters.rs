//! Clusters: ranks, barriers, shared memory of other CTAs, under every schedule.

mod multicast;

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
