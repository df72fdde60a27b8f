//! One fault a kernel: undefined values, bounds, alignment, barriers, deadlocks, loops, divergence. Each is reported with
//! its code and line, and the kernel without the fault is clean under every schedule.

mod common;
use common::{Bench, clean, schedules};
use kda_sim::{Code, Report};

fn fault(make: impl Fn() -> Bench, code: Code, piece: &str) -> Box<Report> {
    let mut first = None;
    for (schedule, seed) in schedules() {
        let mut bench = make();
        (bench.options.schedule, bench.options.seed) = (schedule, seed);
        let report = bench.run().expect_err("the fault must be found");
        assert_eq!(report.code, code, "{report}");
        assert_eq!(report.ptx_line(), bench.line_of(piece), "{report}");
        first.get_or_insert(report);
    }
    first.unwrap()
}

fn with_buffer(body: &str, bytes: usize) -> Bench {
    let mut b = Bench::new(&["x"], body);
    b.buffer(&vec![0; bytes]);
    b
}

#[test]
fn undefined_values_are_found_where_they_matter() {
    let load = "    ld.param.u64 %rd0, [x];\n    ld.param.u64 %rd1, [y];\n    mov.u32 %r0, %tid.x;\n    \
                mad.wide.u32 %rd2, %r0, 4, %rd0;\n    .loc 1 3 9\n    ld.global.u32 %r1, [%rd2];\n";
    let kernel = |tail: &str, defined: bool| {
        let mut b = Bench::new(&["x", "y"], &format!("{load}{tail}"));
        if defined {
            b.buffer(&[0; 128]);
        } else {
            b.undefined(128);
        }
        b.buffer(&[0; 256]);
        b
    };
    for (tail, piece) in [
        (
            "    .loc 1 9 1\n    mad.wide.u32 %rd3, %r0, 4, %rd1;\n    st.global.u32 [%rd3], %r1;",
            "st.global.u32 [%rd3]",
        ),
        ("    .loc 1 9 1\n    mad.wide.u32 %rd3, %r1, 4, %rd1;\n    ld.global.u32 %r3, [%rd3];", "ld.global.u32 %r3"),
        ("    setp.eq.u32 %p0, %r1, 0;\n    .loc 1 9 1\n    @%p0 bra END;\nEND:", "bra END"),
        ("    setp.eq.u32 %p0, %r1, 0;\n    .loc 1 9 1\n    @!%p0 st.global.u32 [%rd1], %r0;", "@!%p0 st.global"),
        (
            "    add.u32 %r5, %r1, 1;\n    shfl.sync.bfly.b32 %r6, %r5, 1, 31, -1;\n    xor.b32 %r7, %r6, %r0;\n    \
          mad.wide.u32 %rd3, %r0, 4, %rd1;\n    .loc 1 9 1\n    st.global.u32 [%rd3], %r7;",
            "st.global.u32 [%rd3]",
        ),
        (
            "    mov.u32 %r2, smem;\n    st.shared.u32 [%r2], %r1;\n    ld.shared.u32 %r3, [%r2];\n    setp.ne.u32 %p0, %r0, 0;\n    \
          .loc 1 9 1\n    @!%p0 st.global.u32 [%rd1], %r3;",
            "@!%p0 st.global",
        ),
    ] {
        // The last one writes one address from all lanes, so it is kept to one lane.
        let tail = tail.replace(
            "    st.shared.u32 [%r2], %r1;",
            "    elect.sync _|%p1, -1;\n    @%p1 st.shared.u32 [%r2], %r1;\n    bar.warp.sync -1;",
        );
        let report = fault(|| kernel(&tail, false), Code::Uninitialised, piece);
        assert_eq!(report.source_line(), Some(9), "{report}");
        if !tail.contains("%r1, 4, %rd1") {
            clean(|| kernel(&tail, true), |_| {});
        }
    }
}

#[test]
fn a_register_that_was_never_written_is_undefined() {
    fault(
        || {
            with_buffer(
                "    ld.param.u64 %rd0, [x];\n    mov.u32 %r0, %tid.x;\n    mad.wide.u32 %rd1, %r0, 4, %rd0;\n    st.global.u32 [%rd1], %r9;",
                128,
            )
        },
        Code::Uninitialised,
        "st.global",
    );
    // Some lanes define it, the others read it.
    let partly = "    ld.param.u64 %rd0, [x];\n    mov.u32 %r0, %tid.x;\n    mad.wide.u32 %rd1, %r0, 4, %rd0;\n    \
                  setp.lt.u32 %p0, %r0, 16;\n    @%p0 mov.u32 %r9, 1;\n    @!%p0 bra END;\n    st.global.u32 [%rd1], %r9;\nEND:";
    clean(|| with_buffer(partly, 128), |_| {});
    let report =
        fault(|| with_buffer(&partly.replace("    @!%p0 bra END;\n", ""), 128), Code::Uninitialised, "st.global");
    assert_eq!(report.site.unwrap().who.lanes, 0xffff_0000);
    // selp takes the definedness of the operand it picks.
    let select = "    ld.param.u64 %rd0, [x];\n    mov.u32 %r0, %tid.x;\n    mad.wide.u32 %rd1, %r0, 4, %rd0;\n    \
                  setp.lt.u32 %p0, %r0, 32;\n    selp.b32 %r8, %r0, %r9, %p0;\n    st.global.u32 [%rd1], %r8;";
    clean(|| with_buffer(select, 128), |_| {});
    fault(|| with_buffer(&select.replace("%r0, 32", "%r0, 31"), 128), Code::Uninitialised, "st.global");
}

#[test]
fn undefined_shared_memory_is_found_in_a_bulk_store() {
    let body = "    ld.param.u64 %rd0, [x];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    mad.lo.u32 %r2, %r0, 4, %r1;
    st.shared.u32 [%r2], %r0;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    setp.ne.u32 %p0, %r0, 0;
    @%p0 bra END;
    cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1], 128;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
END:";
    clean(|| with_buffer(body, 256), |_| {});
    fault(|| with_buffer(&body.replace("[%r1], 128", "[%r1], 144"), 256), Code::Uninitialised, "cp.async.bulk.global");
}

#[test]
fn bounds_are_exact() {
    let global = |extra: &str| {
        let body = format!(
            "    ld.param.u64 %rd0, [x];\n    mov.u32 %r0, %tid.x;\n    mad.wide.u32 %rd1, %r0, 4, %rd0;\n    \
             ld.global.u32 %r1, [%rd1{extra}];\n    st.global.u32 [%rd1{extra}], %r1;"
        );
        with_buffer(&body, 132)
    };
    clean(|| global(""), |_| {});
    clean(|| global("+4"), |_| {});
    let report = fault(|| global("+8"), Code::OutOfBounds, "ld.global");
    assert_eq!(report.site.as_ref().unwrap().who.lanes, 1 << 31, "{report}");
    assert!(report.message.contains("of 132 bytes"), "{report}");
    fault(|| global("+-4"), Code::OutOfBounds, "ld.global");
    let shared = |extra: u32| {
        let body = format!(
            "    mov.u32 %r0, %tid.x;\n    mov.u32 %r1, smem;\n    mad.lo.u32 %r2, %r0, 16, %r1;\n    \
             st.shared.v4.u32 [%r2+{extra}], {{%r0, %r0, %r0, %r0}};"
        );
        Bench::new(&[], &body)
    };
    clean(|| shared(8192 - 512), |_| {});
    let report = fault(|| shared(8192 - 496), Code::OutOfBounds, "st.shared");
    assert!(report.message.contains("8192 bytes of shared memory"), "{report}");
    let bulk = |offset: u32| {
        let body = format!(
            "    ld.param.u64 %rd0, [x];\n    mov.u32 %r0, smem;\n    elect.sync _|%p0, -1;\n    @!%p0 bra END;\n    \
             mov.u32 %r1, 0;\n    st.shared.v4.u32 [%r0], {{%r1, %r1, %r1, %r1}};\n    fence.proxy.async;\n    \
             cp.async.bulk.global.shared::cta.bulk_group [%rd0+{offset}], [%r0], 16;\n    cp.async.bulk.commit_group;\n    \
             cp.async.bulk.wait_group 0;\nEND:"
        );
        with_buffer(&body, 64)
    };
    clean(|| bulk(48), |_| {});
    fault(|| bulk(64), Code::OutOfBounds, "cp.async.bulk.global");
    fault(|| bulk(56), Code::Misaligned, "cp.async.bulk.global");
}

#[test]
fn a_freed_buffer_is_out_of_bounds() {
    let mut b = with_buffer("    ld.param.u64 %rd0, [x];\n    ld.global.u32 %r1, [%rd0];", 16);
    let ptr = u64::from_le_bytes(b.params[..8].try_into().unwrap());
    b.memory.free(ptr).unwrap();
    let report = b.run().unwrap_err();
    assert_eq!(report.code, Code::OutOfBounds);
    assert!(report.message.contains("(freed)"), "{report}");
    assert!(b.memory.free(ptr).is_err());
}

#[test]
fn vectors_must_be_aligned() {
    let kernel = |offset: u32| {
        let body = format!(
            "    ld.param.u64 %rd0, [x];\n    mov.u32 %r0, %tid.x;\n    mad.wide.u32 %rd1, %r0, 16, %rd0;\n    \
             ld.global.v4.f32 {{%r1, %r2, %r3, %r4}}, [%rd1+{offset}];"
        );
        with_buffer(&body, 1024)
    };
    clean(|| kernel(16), |_| {});
    fault(|| kernel(8), Code::Misaligned, "ld.global.v4");
    fault(|| kernel(4), Code::Misaligned, "ld.global.v4");
}

#[test]
fn counts_of_named_barriers_must_match() {
    // Two warps hand over to two others.
    let kernel = |arrive: &str, sync: &str| {
        let body = format!(
            "    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    mad.lo.u32 %r2, %r0, 4, %r1;
    setp.ge.u32 %p0, %r0, 64;
    @%p0 bra CONSUMER;
    st.shared.u32 [%r2], %r0;
    bar.arrive 1, {arrive};
    bra END;
CONSUMER:
    bar.sync 1, {sync};
    ld.shared.u32 %r3, [%r2+-256];
END:"
        );
        Bench::new(&[], &body).block(128)
    };
    clean(|| kernel("128", "128"), |_| {});
    for (schedule, seed) in schedules() {
        let mut b = kernel("128", "96");
        (b.options.schedule, b.options.seed) = (schedule, seed);
        assert_eq!(b.run().unwrap_err().code, Code::Barrier);
        let mut b = kernel("96", "96");
        (b.options.schedule, b.options.seed) = (schedule, seed);
        // Three warps complete it; the fourth waits for ever, or somebody reads too early.
        let report = b.run().unwrap_err();
        assert!(matches!(report.code, Code::Deadlock | Code::Race), "{report}");
    }
    let mut b = kernel("100", "128");
    assert_eq!(b.run().unwrap_err().code, Code::Barrier);
    let twice = "    mov.u32 %r0, %tid.x;\n    setp.ge.u32 %p0, %r0, 32;\n    @%p0 bra END;\n    bar.arrive 2, 64;\n    bar.arrive 2, 64;\nEND:";
    let report = Bench::new(&[], twice).block(64).run().unwrap_err();
    assert_eq!(report.code, Code::Barrier);
    assert!(report.message.contains("twice"), "{report}");
}

#[test]
fn a_barrier_that_misses_a_warp_is_a_deadlock() {
    let kernel = |threads: u32| {
        let body = format!("    bar.sync 1, {threads};");
        Bench::new(&[], &body).block(64)
    };
    clean(|| kernel(64), |_| {});
    // Warp 1 goes another way.
    let body = "    mov.u32 %r0, %tid.x;\n    setp.ge.u32 %p0, %r0, 32;\n    @%p0 bra OTHER;\n    bar.sync 1, 64;\n    bra END;\nOTHER:\n    bar.sync 2, 64;\nEND:";
    for (schedule, seed) in schedules() {
        let mut b = Bench::new(&[], body).block(64);
        (b.options.schedule, b.options.seed) = (schedule, seed);
        let report = b.run().unwrap_err();
        assert_eq!(report.code, Code::Deadlock);
        assert_eq!(report.ptx_line(), b.line_of("bar.sync 1"));
        assert_eq!(report.others[0].at.ptx_line, b.line_of("bar.sync 2"));
        assert!(report.to_string().contains("32 of 64 threads have arrived; warps not there: 1"), "{report}");
    }
}

#[test]
fn a_wait_that_nobody_answers_is_a_deadlock() {
    let kernel = |count: u32| {
        let body = format!(
            "    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    setp.ne.u32 %p0, %r0, 0;
    @!%p0 mbarrier.init.shared::cta.b64 [%r1], {count};
    bar.sync 0;
    mbarrier.arrive.shared::cta.b64 _, [%r1];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;
    @!%p1 bra WAIT;"
        );
        Bench::new(&[], &body).block(64)
    };
    clean(|| kernel(64), |_| {});
    for (schedule, seed) in schedules() {
        let mut b = kernel(65);
        (b.options.schedule, b.options.seed) = (schedule, seed);
        let report = b.run().unwrap_err();
        assert_eq!(report.code, Code::Deadlock, "{report}");
        assert!(report.to_string().contains("phase 0 of the mbarrier, which misses 1 of 65 arrivals"), "{report}");
        // One arrival too many: the second phase begins, and cannot be told from the first.
        let mut b = kernel(32);
        (b.options.schedule, b.options.seed) = (schedule, seed);
        let report = b.run().unwrap_err();
        assert!(matches!(report.code, Code::Barrier | Code::Deadlock), "{report}");
    }
    let lacking = kernel(64).text.replace(
        "mbarrier.arrive.shared::cta.b64 _, [%r1];",
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16;",
    );
    let mut b = kernel(64);
    b.text = lacking;
    let report = b.run().unwrap_err();
    assert!(report.to_string().contains("1024 expected bytes have not arrived"), "{report}");
}

#[test]
fn misuse_of_mbarriers_is_found() {
    let one = |lines: &str| {
        let body = format!(
            "    mov.u32 %r0, %tid.x;\n    mov.u32 %r1, smem;\n    setp.ne.u32 %p0, %r0, 0;\n    @%p0 bra END;\n{lines}\nEND:"
        );
        Bench::new(&[], &body)
    };
    let init = "    mbarrier.init.shared::cta.b64 [%r1], 1;\n";
    let arrive = "    mbarrier.arrive.shared::cta.b64 _, [%r1];\n";
    clean(|| one(&format!("{init}{arrive}")), |_| {});
    fault(|| one(arrive), Code::Barrier, "mbarrier.arrive");
    fault(|| one(&format!("{init}    mbarrier.arrive.shared::cta.b64 _, [%r1], 2;")), Code::Barrier, "mbarrier.arrive");
    fault(|| one("    mbarrier.init.shared::cta.b64 [%r1+4], 1;"), Code::Misaligned, "mbarrier.init");
    fault(|| one("    mbarrier.init.shared::cta.b64 [%r1], 0;"), Code::Barrier, "mbarrier.init");
    fault(|| one(&format!("{init}    mbarrier.init.shared::cta.b64 [%r1], 2;")), Code::Barrier, "[%r1], 2");
    let inval = "    mbarrier.inval.shared::cta.b64 [%r1];\n";
    clean(|| one(&format!("{init}{inval}{init}{arrive}")), |_| {});
    fault(|| one(&format!("{init}{inval}{arrive}")), Code::Barrier, "mbarrier.arrive");
    let expect = "    mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 1048575;\n";
    clean(|| one(&format!("{init}{expect}")), |_| {});
    fault(
        || one(&format!("{init}    mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 1;\n{expect}")),
        Code::Barrier,
        "1048575",
    );
}

#[test]
fn an_mbarrier_is_known_only_after_a_barrier() {
    let kernel = |barrier: &str| {
        let body = format!(
            "    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    setp.ne.u32 %p0, %r0, 0;
    @!%p0 mbarrier.init.shared::cta.b64 [%r1], 64;
    {barrier}
    mbarrier.arrive.shared::cta.b64 _, [%r1];"
        );
        Bench::new(&[], &body).block(64)
    };
    clean(|| kernel("bar.sync 0;"), |_| {});
    for (schedule, seed) in schedules() {
        let mut b = kernel("");
        (b.options.schedule, b.options.seed) = (schedule, seed);
        assert_eq!(b.run().unwrap_err().code, Code::Barrier);
    }
}

#[test]
fn the_initialisation_must_reach_the_async_proxy() {
    let kernel = |fence: &str| {
        let body = format!(
            "    ld.param.u64 %rd0, [x];
    mov.u32 %r1, smem;
    elect.sync _|%p0, -1;
    @!%p0 bra END;
    mbarrier.init.shared::cta.b64 [%r1+64], 1;
    {fence}
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+64], 64;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 64, [%r1+64];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1+64], 0;
    @!%p1 bra WAIT;
END:"
        );
        with_buffer(&body, 64)
    };
    clean(|| kernel("fence.mbarrier_init.release.cluster;"), |_| {});
    clean(|| kernel("fence.proxy.async.shared::cta;"), |_| {});
    fault(|| kernel(""), Code::Barrier, "cp.async.bulk");
}

#[test]
fn a_phase_must_not_complete_before_all_have_seen_the_last() {
    // Warp 0 arrives in every phase; warp 1 only looks.
    let kernel = |barrier: &str| {
        let body = format!(
            "    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    setp.ne.u32 %p0, %r0, 0;
    @!%p0 mbarrier.init.shared::cta.b64 [%r1], 32;
    bar.sync 0;
    setp.ge.u32 %p1, %r0, 32;
    mov.u32 %r2, 0;
LOOP:
    @!%p1 mbarrier.arrive.shared::cta.b64 _, [%r1];
    and.b32 %r3, %r2, 1;
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], %r3;
    @!%p2 bra WAIT;
    {barrier}
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p3, %r2, 6;
    @%p3 bra LOOP;"
        );
        Bench::new(&[], &body).block(64)
    };
    clean(|| kernel("bar.sync 0;"), |_| {});
    let mut found = 0;
    for (schedule, seed) in schedules() {
        let mut b = kernel("");
        (b.options.schedule, b.options.seed) = (schedule, seed);
        if let Err(report) = b.run() {
            assert!(matches!(report.code, Code::Barrier | Code::Deadlock), "{report}");
            found += 1;
        }
    }
    assert!(found >= 15, "{found}");
}

#[test]
fn a_loop_without_end_is_stopped() {
    let body = "    mov.u32 %r0, 0;\n    .loc 1 40 2\nLOOP:\n    add.u32 %r0, %r0, 1;\n    setp.ne.u32 %p0, %r0, 0;\n    @%p0 bra LOOP;";
    for (schedule, seed) in schedules() {
        let mut b = Bench::new(&[], body).options(|o| o.step_limit = 10_000);
        (b.options.schedule, b.options.seed) = (schedule, seed);
        let report = b.run().unwrap_err();
        assert_eq!(report.code, Code::StepLimit);
        assert_eq!(report.source_line(), Some(40), "{report}");
    }
    // A flag that nobody sets.
    let spin = "    ld.param.u64 %rd0, [x];\nSPIN:\n    ld.acquire.gpu.global.u32 %r0, [%rd0];\n    setp.eq.u32 %p0, %r0, 0;\n    @%p0 bra SPIN;";
    let mut b = with_buffer(spin, 4).options(|o| o.step_limit = 10_000);
    assert_eq!(b.run().unwrap_err().code, Code::StepLimit);
}

#[test]
fn trap_is_reported() {
    let body = "    mov.u32 %r0, %tid.x;\n    setp.eq.u32 %p0, %r0, 5;\n    .loc 1 8 3\n    @%p0 trap;";
    let report = fault(|| Bench::new(&[], body), Code::Trap, "trap");
    assert_eq!(report.source_line(), Some(8));
    assert_eq!(report.site.unwrap().who.lanes, 1 << 5);
}

#[test]
fn collectives_need_their_lanes() {
    let branch = |inside: &str, limit: u32| {
        let body = format!(
            "    mov.u32 %r0, %tid.x;\n    setp.ge.u32 %p0, %r0, {limit};\n    @%p0 bra END;\n    {inside}\nEND:\n    mov.u32 %r9, 0;"
        );
        Bench::new(&[], &body).block(64)
    };
    for collective in [
        "bar.sync 0;",
        "shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1;",
        "bar.warp.sync -1;",
        "vote.sync.ballot.b32 %r1, %p0, -1;",
    ] {
        clean(|| branch(collective, 64), |_| {});
        let piece = collective.split(' ').next().unwrap();
        if piece == "bar.sync" {
            fault(|| branch(collective, 16), Code::Divergent, piece);
            continue;
        }
        // With a mask of those that are there it is fine; lanes that have exited are not waited for.
        let masked = collective.replace("-1", "65535");
        clean(|| branch(&masked, 16), |_| {});
        let waits = |inside: &str| {
            let body = format!(
                "    mov.u32 %r0, %tid.x;\n    setp.ge.u32 %p0, %r0, 16;\n    @%p0 bra ELSE;\n    {inside}\n    bra END;\nELSE:\n    shfl.sync.idx.b32 %r2, %r0, 0, 31, -65536;\n    bar.warp.sync -1;\nEND:"
            );
            Bench::new(&[], &body)
        };
        fault(|| waits(collective), Code::Divergent, piece);
    }
    // A lane outside its own mask.
    fault(|| branch("bar.warp.sync 255;", 16), Code::Divergent, "bar.warp.sync");
}

#[test]
fn launches_are_checked() {
    let mut b = Bench::new(&["x"], "");
    assert_eq!(b.run().unwrap_err().code, Code::Launch);
    b.scalar(0);
    assert!(b.run().is_ok());
    b.block = 1025;
    assert_eq!(b.run().unwrap_err().code, Code::Launch);
    b.block = 0;
    assert_eq!(b.run().unwrap_err().code, Code::Launch);
    b.block = 32;
    b.shared_bytes = 232_449;
    assert_eq!(b.run().unwrap_err().code, Code::Launch);
    b.shared_bytes = 0;
    b.grid = [0, 1, 1];
    assert_eq!(b.run().unwrap().ctas, 0);
}
