//! Races between threads and bulk copies: fences, waits, rings.

use super::common::{Bench, clean};
use super::*;

/// All threads fill shared memory, one stores it by bulk copies, twice.
pub(crate) fn bulk_store(fence: &str, wait: &str, last: &str) -> Bench {
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

/// A warp reads words again and again while a bulk store reads them, too: who waits for the store, and for the warp, may write.
#[test]
fn readers_beside_a_bulk_store_keep_their_lanes() {
    let kernel = |wait: &str| {
        let body = format!(
            "    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    mad.lo.u32 %r2, %r0, 4, %r1;
    st.shared.u32 [%r2], %r0;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    setp.eq.u32 %p0, %r0, 0;
    setp.lt.u32 %p1, %r0, 32;
    @!%p0 bra READ;
    cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1], 256;
    cp.async.bulk.commit_group;
    {wait}
READ:
    @%p1 bra MEET;
    xor.b32 %r3, %r2, 4;
    mov.u32 %r4, 0;
LOOP:
    ld.shared.u32 %r5, [%r2];
    ld.shared.u32 %r6, [%r3];
    add.u32 %r4, %r4, 1;
    setp.lt.u32 %p2, %r4, 32;
    @%p2 bra LOOP;
MEET:
    bar.sync 0;
    st.shared.u32 [%r2], %r1;
    @%p0 cp.async.bulk.wait_group 0;"
        );
        let mut b = Bench::new(&["out"], &body).block(64);
        b.undefined(256);
        b
    };
    clean(|| kernel("cp.async.bulk.wait_group.read 0;"), |_| {});
    race_everywhere(|| kernel(""), "cp.async.bulk.global", "st.shared.u32 [%r2], %r1", "read its source");
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
pub(crate) fn bulk_load(change: impl Fn(&str) -> String) -> Bench {
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
