//! Uses of mbarriers and of `setmaxnreg` that a wrong order of threads hides: each is reported whoever comes first.

mod common;
use common::{Bench, clean, faulty, one_barrier, schedules, wait};
use kda_sim::Code;

/// Some wait sees a phase complete before anybody arrives for the next one.
#[test]
fn an_arrival_must_not_overtake_every_wait() {
    // Two warps arrive, and thread 0 waits for the phase that both complete.
    let kernel = |count: u32| {
        let body = format!(
            "    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    setp.ne.u32 %p0, %r0, 0;
    @!%p0 mbarrier.init.shared::cta.b64 [%r1], {count};
    bar.sync 0;
    setp.lt.u32 %p1, %r0, 32;
    @!%p1 mbarrier.arrive.shared::cta.b64 _, [%r1];
    bar.sync 0;
    @%p0 bra END;
{}END:",
            wait("WAIT", 0, 0)
        );
        Bench::new(&[], &body).block(96)
    };
    clean(|| kernel(64), |_| {});
    faulty(|| kernel(32), Code::Barrier, "mbarrier.arrive");
    let report = kernel(32).run().unwrap_err();
    assert!(report.to_string().contains("arrival in phase 1"), "{report}");
}

/// Ordinary stores and copies keep off the bytes of an mbarrier, from its initialisation to its end.
#[test]
fn the_bytes_of_an_mbarrier_are_its_own() {
    let kernel = |access: &str, arrival: &str| {
        let body = format!(
            "{}    ld.param.u64 %rd0, [x];\n    @%p0 bra END;\n    {access}\n    {arrival}\n{}    bar.warp.sync -1;\nEND:",
            one_barrier(64),
            wait("WAIT", 64, 0)
        );
        let mut b = Bench::new(&["x"], &body);
        b.buffer(&[0; 128]);
        b
    };
    let arrive = "mbarrier.arrive.shared::cta.b64 _, [%r1+64];";
    for access in ["", "st.shared.u32 [%r1+60], 0;", "st.shared.u32 [%r1+72], 0;"] {
        clean(|| kernel(access, arrive), |_| {});
    }
    for access in ["st.shared.u32 [%r1+64], 0;", "st.shared.u8 [%r1+71], 0;"] {
        faulty(|| kernel(access, arrive), Code::Barrier, access);
        faulty(|| kernel(access, arrive), Code::Barrier, "mbarrier.arrive");
    }
    let copy = |bytes: u32| {
        move || {
            let copy = format!(
                "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+64], {bytes};\n    \
                 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], {bytes}, [%r1+64];"
            );
            kernel("", &copy)
        }
    };
    clean(copy(64), |_| {});
    faulty(copy(80), Code::Barrier, "try_wait");
    // Behind its end they are bytes like others.
    let again = "mbarrier.inval.shared::cta.b64 [%r1+64];\n    st.shared.u32 [%r1+64], 0;\n    \
                 mbarrier.init.shared::cta.b64 [%r1+64], 1;";
    clean(|| kernel(again, arrive), |_| {});
}

#[test]
fn a_warp_that_has_left_its_warpgroup_is_missed() {
    let kernel = |first: u32| {
        let body = format!(
            "    mov.u32 %r0, %tid.x;
    setp.lt.u32 %p0, %r0, {first};
    @%p0 bra END;
    setmaxnreg.dec.sync.aligned.u32 40;
END:"
        );
        Bench::new(&[], &body).block(256)
    };
    clean(|| kernel(128), |_| {});
    for (schedule, seed) in schedules() {
        let mut b = kernel(160);
        (b.options.schedule, b.options.seed) = (schedule, seed);
        let report = b.run().expect_err("a warp has left");
        assert_eq!(report.code, Code::Registers, "{report}");
    }
}

/// The last cluster barrier releases the arrivals at the barriers of a CTA that may then exit.
#[test]
fn an_arrival_reaches_its_cta_before_that_exits() {
    let kernel = |order: &'static str| {
        move || {
            let body = format!(
                "    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    mov.u32 %r2, %cluster_ctarank;
    xor.b32 %r3, %r2, 1;
    setp.ne.u32 %p0, %r0, 0;
    @!%p0 mbarrier.init.shared::cta.b64 [%r1], 1;
    @!%p0 fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    mapa.shared::cluster.u32 %r4, %r1, %r3;
    @!%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4];
    barrier.cluster.arrive.{order}.aligned;
    barrier.cluster.wait.acquire.aligned;"
            );
            let mut bench = Bench::new(&[], &body);
            (bench.grid, bench.cluster) = ([2, 1, 1], 2);
            bench
        }
    };
    clean(kernel("release"), |_| {});
    faulty(kernel("relaxed"), Code::Race, "ret");
    let report = kernel("relaxed")().run().unwrap_err();
    assert!(report.message.contains("orders an arrival of another CTA at its mbarrier"), "{report}");
    assert!(report.others[0].at.text.contains("mbarrier.arrive.release.cluster"), "{report}");
}

/// No count, and the count of all threads of the CTA, are one barrier.
#[test]
fn a_barrier_of_all_threads_has_two_forms() {
    let kernel = |first: &str, second: &str| {
        let body = format!(
            "    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    mad.lo.u32 %r2, %r0, 4, %r1;
    setp.lt.u32 %p0, %r0, 32;
    st.shared.u32 [%r2], %r0;
    @%p0 bra FIRST;
    {second}
    ld.shared.u32 %r3, [%r1];
    bra END;
FIRST:
    {first}
    ld.shared.u32 %r3, [%r1+128];
END:"
        );
        Bench::new(&[], &body).block(96)
    };
    for (first, second) in
        [("bar.sync 0;", "bar.sync 0, 96;"), ("bar.sync 3, 96;", "bar.sync 3;"), ("bar.sync 0;", "bar.sync 0;")]
    {
        clean(|| kernel(first, second), |_| {});
    }
    faulty(|| kernel("bar.sync 0;", "bar.sync 1, 96;"), Code::Deadlock, "bar.sync");
}
