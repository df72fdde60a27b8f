//! Missing order, one fault a kernel; and the same kernels with the order in place, under every schedule.

mod common;
use common::{Bench, clean};
use kda_sim::{Code, CtaOrder, ProxyFence, Report, Schedule};

/// The two lines that a race names must be these pieces of the text, in either role.
fn expect_race(bench: &mut Bench, one: &str, other: &str, help: &str) -> Box<Report> {
    let report = bench.run().expect_err("the race must be found");
    assert_eq!(report.code, Code::Race, "{report}");
    let mut lines = [report.ptx_line(), report.others[0].at.ptx_line];
    let mut wanted = [bench.line_of(one), bench.line_of(other)];
    lines.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(lines, wanted, "{report}");
    assert!(report.help.contains(help), "{report}");
    report
}

/// Every schedule finds it: a race does not depend on who came first.
fn race_everywhere(make: impl Fn() -> Bench, one: &str, other: &str, help: &str) {
    for (schedule, seed) in common::schedules() {
        for cta_order in [CtaOrder::Forward, CtaOrder::Reverse] {
            let mut bench = make();
            (bench.options.schedule, bench.options.seed, bench.options.cta_order) = (schedule, seed, cta_order);
            expect_race(&mut bench, one, other, help);
        }
    }
}

/// Thread t writes word t and reads word 255 - t.
fn exchange(barrier: &str) -> Bench {
    let body = format!(
        "    .loc 1 7 5
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    mad.lo.u32 %r2, %r0, 4, %r1;
    st.shared.u32 [%r2], 0;
    bar.sync 0;
    .loc 1 10 9
    st.shared.u32 [%r2], %r0;
    {barrier}
    sub.u32 %r3, 255, %r0;
    mad.lo.u32 %r4, %r3, 4, %r1;
    .loc 1 12 17
    ld.shared.u32 %r5, [%r4];
    ld.param.u64 %rd0, [out];
    mad.wide.u32 %rd1, %r0, 4, %rd0;
    st.global.u32 [%rd1], %r5;"
    );
    let mut bench = Bench::new(&["out"], &body).block(256);
    bench.undefined(1024);
    bench
}

#[test]
fn exchange_needs_its_barrier() {
    clean(
        || exchange("bar.sync 0;"),
        |b| {
            let out = u64::from_le_bytes(b.params[..8].try_into().unwrap());
            assert_eq!(b.read_u32(out, 256), (0..256).rev().collect::<Vec<_>>());
        },
    );
    race_everywhere(|| exchange(""), "st.shared.u32 [%r2], %r0", "ld.shared.u32", "put a barrier between");
    let mut bench = exchange("");
    let report = bench.run().unwrap_err();
    let mut lines = [report.source_line().unwrap(), report.others[0].at.source.as_ref().unwrap().line];
    lines.sort_unstable();
    assert_eq!(lines, [10, 12], "{report}");
    assert!(report.to_string().contains("src/kernel.rs:12:17"), "{report}");
}

#[test]
fn a_barrier_orders_both_ways() {
    // The tile is overwritten in a second round: reads of the first must be before it.
    let kernel = |barrier: &str| {
        let body = format!(
            "    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    mad.lo.u32 %r2, %r0, 4, %r1;
    st.shared.u32 [%r2], %r0;
    bar.sync 0;
    xor.b32 %r3, %r0, 32;
    mad.lo.u32 %r4, %r3, 4, %r1;
    ld.shared.u32 %r5, [%r4];
    {barrier}
    st.shared.u32 [%r2], %r5;"
        );
        Bench::new(&[], &body).block(64)
    };
    clean(|| kernel("bar.sync 0;"), |_| {});
    race_everywhere(|| kernel(""), "ld.shared.u32", "st.shared.u32 [%r2], %r5", "put a barrier between");
}

#[test]
fn lanes_of_a_warp_need_bar_warp_sync() {
    let kernel = |barrier: &str| {
        let body = format!(
            "    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    mad.lo.u32 %r2, %r0, 4, %r1;
    st.shared.u32 [%r2], %r0;
    {barrier}
    xor.b32 %r3, %r0, 1;
    mad.lo.u32 %r4, %r3, 4, %r1;
    ld.shared.u32 %r5, [%r4];"
        );
        Bench::new(&[], &body)
    };
    clean(|| kernel("bar.warp.sync -1;"), |_| {});
    race_everywhere(|| kernel(""), "st.shared.u32", "ld.shared.u32", "bar.warp.sync");
    // A shuffle brings lanes together, but does not order memory.
    race_everywhere(
        || kernel("shfl.sync.bfly.b32 %r6, %r0, 1, 31, -1;"),
        "st.shared.u32",
        "ld.shared.u32",
        "bar.warp.sync",
    );
}

#[test]
fn lanes_may_write_one_address_only_with_one_value() {
    let kernel = |value: &str| {
        let body = format!("    mov.u32 %r0, %tid.x;\n    mov.u32 %r1, 7;\n    st.shared.u32 [smem], {value};");
        Bench::new(&[], &body)
    };
    clean(|| kernel("%r1"), |_| {});
    let report = kernel("%r0").run().unwrap_err();
    assert_eq!(report.code, Code::Race, "{report}");
    assert!(report.help.contains("different values"), "{report}");
}

#[test]
fn halves_of_a_word_are_separate() {
    // Threads 2k and 2k+1 write the halves of word k, of both warps in turn; each reads its own half back.
    let body = "    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    mad.lo.u32 %r2, %r0, 2, %r1;
    cvt.u16.u32 %h0, %r0;
    st.shared.b16 [%r2], %h0;
    ld.shared.b16 %h1, [%r2];
    st.shared.b16 [%r2], %h1;
    shr.u32 %r3, %r0, 5;
    and.b32 %r4, %r0, 31;
    mad.lo.u32 %r5, %r4, 4, %r1;
    mad.lo.u32 %r5, %r3, 2, %r5;
    st.shared.b16 [%r5+1024], %h0;
    ld.shared.b16 %h2, [%r5+1024];
    mad.lo.u32 %r6, %r0, 1, %r1;
    st.shared.b8 [%r6+2048], %h2;
    ld.shared.b8 %h3, [%r6+2048];";
    clean(|| Bench::new(&[], body).block(64), |_| {});
    let racing = format!("{body}\n    mad.lo.u32 %r7, %r4, 4, %r1;\n    ld.shared.u32 %r8, [%r7+1024];");
    expect_race(&mut Bench::new(&[], &racing).block(64), "ld.shared.u32 %r8", "st.shared.b16 [%r5+1024]", "barrier");
}

#[test]
fn in_place_updates_of_halves_are_clean() {
    let body = "    ld.param.u64 %rd0, [x];
    mov.u32 %r0, %tid.x;
    mad.wide.u32 %rd1, %r0, 2, %rd0;
    ld.global.b16 %h0, [%rd1];
    xor.b16 %h0, %h0, -1;
    st.global.b16 [%rd1], %h0;
    ld.global.b16 %h0, [%rd1];
    xor.b16 %h0, %h0, 255;
    st.global.b16 [%rd1], %h0;";
    clean(
        || {
            let mut b = Bench::new(&["x"], body).block(96);
            b.buffer(&[0; 192]);
            b
        },
        |b| {
            let x = u64::from_le_bytes(b.params[..8].try_into().unwrap());
            assert_eq!(b.read_u32(x, 48), vec![0xff00_ff00; 48]);
        },
    );
}

/// Every CTA writes a partial sum and counts; the last one adds them up.
fn last_arriver(count: &str, before: &str, after: &str) -> Bench {
    let body = format!(
        "    ld.param.u64 %rd0, [partial];
    ld.param.u64 %rd1, [counter];
    ld.param.u64 %rd2, [out];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %nctaid.x;
    setp.ne.u32 %p0, %r0, 0;
    @%p0 bra DONE;
    mad.wide.u32 %rd3, %r1, 4, %rd0;
    add.u32 %r3, %r1, 1;
    st.global.u32 [%rd3], %r3;
    {before}
    {count} %r4, [%rd1], 1;
    {after}
    sub.u32 %r5, %r2, 1;
    setp.ne.u32 %p1, %r4, %r5;
    @%p1 bra DONE;
    mov.u32 %r6, 0;
    mov.u32 %r7, 0;
LOOP:
    mad.wide.u32 %rd4, %r6, 4, %rd0;
    ld.global.u32 %r8, [%rd4];
    add.u32 %r7, %r7, %r8;
    add.u32 %r6, %r6, 1;
    setp.lt.u32 %p2, %r6, %r2;
    @%p2 bra LOOP;
    st.global.u32 [%rd2], %r7;
    st.global.u32 [%rd1], 0;
DONE:"
    );
    let mut b = Bench::new(&["partial", "counter", "out"], &body).block(64).grid(20);
    b.undefined(80);
    b.buffer(&[0; 4]);
    b.undefined(4);
    b
}

#[test]
fn a_counter_between_ctas_needs_release_and_acquire() {
    let sum = |b: &Bench| {
        let out = u64::from_le_bytes(b.params[16..24].try_into().unwrap());
        assert_eq!(b.read_u32(out, 1), [210]);
    };
    clean(|| last_arriver("atom.acq_rel.gpu.global.add.u32", "", ""), sum);
    let fence = "fence.acq_rel.gpu;";
    clean(|| last_arriver("atom.relaxed.gpu.global.add.u32", fence, fence), sum);
    let read = "ld.global.u32 %r8";
    let write = "st.global.u32 [%rd3], %r3";
    for (count, before, after) in [
        ("atom.relaxed.gpu.global.add.u32", "", ""),
        ("atom.release.gpu.global.add.u32", "", ""),
        ("atom.acquire.gpu.global.add.u32", "", ""),
        ("atom.acq_rel.cta.global.add.u32", "", ""),
        ("atom.relaxed.gpu.global.add.u32", fence, ""),
        ("atom.relaxed.gpu.global.add.u32", "", fence),
        ("atom.relaxed.gpu.global.add.u32", "fence.acq_rel.cta;", fence),
        ("atom.relaxed.gpu.global.add.u32", fence, "fence.acq_rel.cta;"),
    ] {
        race_everywhere(|| last_arriver(count, before, after), read, write, "no release and acquire");
    }
}

#[test]
fn release_by_one_thread_needs_a_barrier_before_it() {
    // All threads write, thread 0 releases: without the barrier only its own write is published.
    let kernel = |barrier: &str| {
        let body = format!(
            "    ld.param.u64 %rd0, [data];
    ld.param.u64 %rd1, [flag];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %ctaid.x;
    mad.wide.u32 %rd2, %r0, 4, %rd0;
    setp.ne.u32 %p0, %r1, 0;
    setp.ne.u32 %p1, %r0, 0;
    @%p0 bra READ;
    st.global.u32 [%rd2], %r0;
    {barrier}
    @%p1 bra DONE;
    st.release.gpu.global.u32 [%rd1], 1;
    bra DONE;
READ:
    ld.acquire.gpu.global.u32 %r2, [%rd1];
    setp.eq.u32 %p2, %r2, 0;
    @%p2 bra READ;
    ld.global.u32 %r3, [%rd2];
DONE:"
        );
        let mut b = Bench::new(&["data", "flag"], &body).block(64).grid(2);
        b.undefined(256);
        b.buffer(&[0; 4]);
        b
    };
    clean(|| kernel("bar.sync 0;"), |_| {});
    race_everywhere(|| kernel(""), "ld.global.u32 %r3", "st.global.u32 [%rd2]", "release and acquire");
    race_everywhere(|| kernel("bar.warp.sync -1;"), "ld.global.u32 %r3", "st.global.u32 [%rd2]", "release and acquire");
}

/// All threads fill shared memory, one stores it by bulk copies, twice.
fn bulk_store(fence: &str, wait: &str, last: &str) -> Bench {
    let body = format!(
        "    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    mad.lo.u32 %r2, %r0, 4, %r1;
    mov.u32 %r3, 0;
    setp.ne.u32 %p0, %r0, 0;
LOOP:
    add.u32 %r4, %r0, %r3;
    st.shared.u32 [%r2], %r4;
    {fence}
    bar.sync 0;
    @%p0 bra SKIP;
    cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1], 512;
    cp.async.bulk.commit_group;
    {wait}
SKIP:
    bar.sync 0;
    add.u64 %rd0, %rd0, 512;
    add.u32 %r3, %r3, 1000;
    setp.lt.u32 %p1, %r3, 3000;
    @%p1 bra LOOP;
    @!%p0 {last}"
    );
    let mut b = Bench::new(&["out"], &body).block(128);
    b.undefined(1536);
    b
}

#[test]
fn bulk_stores_need_fence_and_wait() {
    let fence = "fence.proxy.async.shared::cta;";
    let wait = "cp.async.bulk.wait_group.read 0;";
    let last = "cp.async.bulk.wait_group 0;";
    clean(
        || bulk_store(fence, wait, last),
        |b| {
            let out = u64::from_le_bytes(b.params[..8].try_into().unwrap());
            let expected: Vec<u32> = (0..3).flat_map(|k| (0..128).map(move |t| t + 1000 * k)).collect();
            assert_eq!(b.read_u32(out, 384), expected);
        },
    );
    let (copy, write) = ("cp.async.bulk.global", "st.shared.u32");
    race_everywhere(|| bulk_store("", wait, last), copy, write, "fence.proxy.async.shared::cta after");
    race_everywhere(|| bulk_store(fence, "", last), copy, write, "read its source");
    // A fence of the storing thread before the barrier does not cover what the others wrote.
    let one = "@!%p0 fence.proxy.async.shared::cta;";
    race_everywhere(|| bulk_store(one, wait, last), copy, write, "fence.proxy.async.shared::cta after");
}

#[test]
fn the_proxy_fence_may_stand_anywhere_on_the_path() {
    let kernel = || {
        let mut b = bulk_store("", "cp.async.bulk.wait_group.read 0;", "cp.async.bulk.wait_group 0;");
        let copy = "cp.async.bulk.global.shared::cta";
        b.text = b.text.replace(copy, &format!("fence.proxy.async.shared::cta;\n    {copy}"));
        b
    };
    clean(kernel, |_| {});
    let report = kernel().options(|o| o.checks.proxy_fence = ProxyFence::Writer).run().unwrap_err();
    assert_eq!(report.code, Code::Race, "{report}");
}

#[test]
fn a_thread_must_not_exit_before_its_store_has_read() {
    let report = bulk_store("fence.proxy.async.shared::cta;", "", "bra END;\nEND:").run();
    // Reuse in the loop is found first; without the loop only the exit is left.
    assert!(report.is_err());
    let body = "    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    setp.ne.u32 %p0, %r0, 0;
    @%p0 bra END;
    st.shared.v4.u32 [%r1], {%r0, %r0, %r0, %r0};
    fence.proxy.async.shared::cta;
    cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1], 16;
    cp.async.bulk.commit_group;
END:";
    let mut b = Bench::new(&["out"], body);
    b.undefined(16);
    let report = b.run().unwrap_err();
    assert_eq!(report.code, Code::Race, "{report}");
    assert!(report.message.contains("exits while a bulk store"), "{report}");
    let waited = body.replace("commit_group;", "commit_group;\n    cp.async.bulk.wait_group.read 0;");
    clean(
        || {
            let mut b = Bench::new(&["out"], &waited);
            b.undefined(16);
            b
        },
        |_| {},
    );
}

#[test]
fn a_bulk_store_over_data_that_others_read_needs_order_and_fence() {
    // CTAs 1.. read the row, count; the last to count overwrites it from shared memory.
    let kernel = |count: &str, fence: &str| {
        let body = format!(
            "    ld.param.u64 %rd0, [row];
    ld.param.u64 %rd1, [counter];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    mad.wide.u32 %rd2, %r0, 4, %rd0;
    mad.lo.u32 %r2, %r0, 4, %r1;
    ld.global.u32 %r3, [%rd2];
    add.u32 %r3, %r3, 1;
    st.shared.u32 [%r2], %r3;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    setp.ne.u32 %p0, %r0, 0;
    @%p0 bra DONE;
    {count} %r4, [%rd1], 1;
    setp.ne.u32 %p1, %r4, 3;
    @%p1 bra DONE;
    {fence}
    cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1], 256;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
DONE:"
        );
        let mut b = Bench::new(&["row", "counter"], &body).block(64).grid(4);
        b.buffer(&[0; 256]);
        b.buffer(&[0; 4]);
        b
    };
    let fence = "fence.proxy.async.global;";
    clean(|| kernel("atom.acq_rel.gpu.global.add.u32", fence), |_| {});
    let (copy, read) = ("cp.async.bulk.global", "ld.global.u32 %r3");
    race_everywhere(|| kernel("atom.acq_rel.gpu.global.add.u32", ""), copy, read, "fence.proxy.async");
    race_everywhere(|| kernel("atom.relaxed.gpu.global.add.u32", fence), copy, read, "release and acquire");
}

/// One thread loads rows by bulk copies into two stages; all threads add them up.
fn bulk_load(change: impl Fn(&str) -> String) -> Bench {
    let body = "    ld.param.u64 %rd0, [x];
    ld.param.u64 %rd1, [out];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    mad.lo.u32 %r2, %r0, 4, %r1;
    setp.ne.u32 %p0, %r0, 0;
    @%p0 bra READY;
    mbarrier.init.shared::cta.b64 [%r1+1024], 1;
    mbarrier.init.shared::cta.b64 [%r1+1032], 1;
    mbarrier.init.shared::cta.b64 [%r1+1040], 64;
    mbarrier.init.shared::cta.b64 [%r1+1048], 64;
    fence.mbarrier_init.release.cluster;
READY:
    bar.sync 0;
    mov.u32 %r3, 0;
    mov.u32 %r4, 0;
    mov.u32 %r5, 0;
    mov.u32 %r6, 0;
LOOP:
    mad.lo.u32 %r7, %r4, 8, %r1;
    mad.lo.u32 %r8, %r4, 256, %r1;
    mad.lo.u32 %r9, %r4, 256, %r2;
    @%p0 bra CONSUME;
    xor.b32 %r10, %r5, 1;
WAIT1:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r7+1040], %r10;
    @!%p1 bra WAIT1;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r7+1024], 256;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r8], [%rd0], 256, [%r7+1024];
CONSUME:
WAIT2:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r7+1024], %r5;
    @!%p2 bra WAIT2;
    ld.shared.u32 %r11, [%r9];
    mbarrier.arrive.shared::cta.b64 _, [%r7+1040];
    add.u32 %r6, %r6, %r11;
    add.u64 %rd0, %rd0, 256;
    add.u32 %r3, %r3, 1;
    add.u32 %r4, %r4, 1;
    setp.eq.u32 %p3, %r4, 2;
    @%p3 mov.u32 %r4, 0;
    @%p3 xor.b32 %r5, %r5, 1;
    setp.lt.u32 %p4, %r3, 7;
    @%p4 bra LOOP;
    mad.wide.u32 %rd2, %r0, 4, %rd1;
    st.global.u32 [%rd2], %r6;";
    let mut b = Bench::new(&["x", "out"], &change(body)).block(64);
    let x: Vec<u8> = (0..7 * 64u32).flat_map(|i| (i * i).to_le_bytes()).collect();
    b.buffer(&x);
    b.undefined(256);
    b
}

#[test]
fn a_ring_of_bulk_loads_is_clean() {
    clean(
        || bulk_load(str::to_string),
        |b| {
            let out = u64::from_le_bytes(b.params[8..16].try_into().unwrap());
            let expected: Vec<u32> = (0..64u32).map(|t| (0..7).map(|k| (64 * k + t) * (64 * k + t)).sum()).collect();
            assert_eq!(b.read_u32(out, 64), expected);
        },
    );
}

#[test]
fn faults_of_a_ring_are_found() {
    let without = |piece: &'static str| move |body: &str| body.replace(piece, "");
    // Nobody waits for the data.
    let no_wait = without("    @!%p2 bra WAIT2;\n");
    for (schedule, seed) in common::schedules() {
        let mut b = bulk_load(no_wait);
        (b.options.schedule, b.options.seed) = (schedule, seed);
        // Where every copy is there when it is looked for, the wait has happened.
        let early = schedule == Schedule::EarlyAsync;
        match b.run() {
            Ok(_) => assert!(early),
            Err(report) => assert!(matches!(report.code, Code::Race | Code::Barrier), "{report}"),
        }
    }
    // The wait is on the other stage's barrier.
    let mut b = bulk_load(|body| body.replace("%p2, [%r7+1024], %r5", "%p2, [%r1+1024], %r5"));
    assert!(matches!(b.run().unwrap_err().code, Code::Race | Code::Barrier | Code::Deadlock));
    // The producer does not wait for the stage to be free.
    let wait = "WAIT1:\n    mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r7+1040], %r10;\n    @!%p1 bra WAIT1;\n";
    for (schedule, seed) in common::schedules() {
        let mut b = bulk_load(without(wait));
        (b.options.schedule, b.options.seed) = (schedule, seed);
        let report = b.run().expect_err("overwriting a stage must be found");
        assert!(matches!(report.code, Code::Race | Code::Barrier), "{report}");
    }
}

#[test]
fn a_wait_by_one_lane_does_not_cover_the_others() {
    let kernel = |sync: &str| {
        let body = format!(
            "    ld.param.u64 %rd0, [x];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    mad.lo.u32 %r2, %r0, 4, %r1;
    setp.ne.u32 %p0, %r0, 0;
    @%p0 bra READY;
    mbarrier.init.shared::cta.b64 [%r1+1024], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+1024], 128;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 128, [%r1+1024];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1+1024], 0;
    @!%p1 bra WAIT;
READY:
    {sync}
    ld.shared.u32 %r3, [%r2];"
        );
        let mut b = Bench::new(&["x"], &body);
        b.buffer(&[1; 128]);
        b
    };
    clean(|| kernel("bar.warp.sync -1;"), |_| {});
    race_everywhere(|| kernel(""), "ld.shared.u32", "cp.async.bulk", "waits for the phase");
}

/// Runs a kernel under every schedule; the codes found.
fn outcomes(make: impl Fn() -> Bench) -> Vec<Option<Code>> {
    common::schedules()
        .into_iter()
        .map(|(schedule, seed)| {
            let mut b = make();
            (b.options.schedule, b.options.seed) = (schedule, seed);
            b.options.step_limit = 100_000;
            b.run().err().map(|r| r.code)
        })
        .collect()
}

#[test]
fn every_dropped_synchronisation_is_found() {
    const SYNC: [&str; 7] = ["bar.", "mbarrier.", "fence", "wait_group", "commit_group", "atom.", "bra WAIT"];
    type Make = Box<dyn Fn() -> Bench>;
    let kernels: [(&str, Make); 4] = [
        ("ring", Box::new(|| bulk_load(str::to_string))),
        (
            "store",
            Box::new(|| {
                bulk_store(
                    "fence.proxy.async.shared::cta;",
                    "cp.async.bulk.wait_group.read 0;",
                    "cp.async.bulk.wait_group.read 0;",
                )
            }),
        ),
        ("counter", Box::new(|| last_arriver("atom.acq_rel.gpu.global.add.u32", "", ""))),
        (
            "fenced counter",
            Box::new(|| last_arriver("atom.relaxed.gpu.global.add.u32", "fence.acq_rel.gpu;", "fence.acq_rel.gpu;")),
        ),
    ];
    let mut dropped = 0;
    let mut survivors = Vec::new();
    for (name, make) in &kernels {
        let text = make().text;
        for (number, line) in text.lines().enumerate() {
            if !SYNC.iter().any(|s| line.contains(s)) || line.ends_with(':') {
                continue;
            }
            dropped += 1;
            let mutant: String =
                text.lines().enumerate().filter(|(n, _)| *n != number).map(|(_, l)| format!("{l}\n")).collect();
            let found = outcomes(|| {
                let mut b = make();
                b.text = mutant.clone();
                b
            });
            if found.iter().all(Option::is_none) {
                survivors.push(format!("{name}: {}", line.trim()));
            }
        }
    }
    assert_eq!(dropped, 22);
    // The last wait of the store kernel repeats the one in its loop.
    assert_eq!(survivors, ["store: @!%p0 cp.async.bulk.wait_group.read 0;"], "of {dropped}");
}

#[test]
fn an_arrival_of_one_lane_releases_that_lane_alone() {
    // Warp 0 reads the tile and lane 0 arrives; warp 1 waits and overwrites it.
    let kernel = |sync: &str| {
        let body = format!(
            "    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    and.b32 %r9, %r0, 31;
    mad.lo.u32 %r2, %r9, 4, %r1;
    setp.eq.u32 %p0, %r0, 0;
    setp.ge.u32 %p1, %r0, 32;
    @%p0 mbarrier.init.shared::cta.b64 [%r1+1024], 1;
    @!%p1 st.shared.u32 [%r2], 0;
    bar.sync 0;
    @%p1 bra WRITER;
    ld.shared.u32 %r3, [%r2];
    {sync}
    @%p0 mbarrier.arrive.shared::cta.b64 _, [%r1+1024];
    bra END;
WRITER:
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1+1024], 0;
    @!%p2 bra WAIT;
    st.shared.u32 [%r2], %r0;
END:"
        );
        Bench::new(&[], &body).block(64)
    };
    clean(|| kernel("bar.warp.sync -1;"), |_| {});
    race_everywhere(|| kernel(""), "ld.shared.u32 %r3", "st.shared.u32 [%r2], %r0", "");
}
