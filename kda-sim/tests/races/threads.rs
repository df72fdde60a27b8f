//! Races between threads: barriers of the CTA and the warp, counters between CTAs, arrivals.

use super::common::{Bench, clean};
use super::*;

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
pub(crate) fn last_arriver(count: &str, before: &str, after: &str) -> Bench {
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
