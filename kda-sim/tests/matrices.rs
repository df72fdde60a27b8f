//! Matrices of a warp, copies by threads, clusters.

mod common;
use common::{Bench, clean, encode, faulty, noise, wait};
use kda_core::Elem;
use kda_sim::{Code, Schedule};

/// The 16-bit element of a matrix image: its own number.
fn number_image(count: u32) -> Vec<u8> {
    (0..count).flat_map(|i| (i as u16).to_le_bytes()).collect()
}

/// Thread t copies 16 bytes at 16 t of the image into shared memory.
const FILL: &str = "    ld.param.u64 %rd0, [image];
    ld.param.u64 %rd1, [out];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    mad.lo.u32 %r2, %r0, 16, %r1;
    mad.wide.u32 %rd2, %r0, 16, %rd0;
    mad.wide.u32 %rd3, %r0, 16, %rd1;
    ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd2];
";

fn bench(body: &str) -> Bench {
    let mut b = Bench::new(&["image", "out"], &format!("{FILL}{body}"));
    b.buffer(&number_image(256));
    b.undefined(512);
    b
}

/// The register of a lane for each matrix: two elements.
fn fragment(lane: u32, matrix: u32, transposed: bool) -> u32 {
    let at = |inner: u32| {
        let (row, column) = if transposed { (inner, lane / 4) } else { (lane / 4, inner) };
        matrix * 64 + row * 8 + column
    };
    at(lane % 4 * 2) | at(lane % 4 * 2 + 1) << 16
}

#[test]
fn matrices_are_loaded_and_stored() {
    for (trans, transposed) in [("", false), (".trans", true)] {
        for count in [1u32, 2, 4] {
            let registers: Vec<String> = (0..count).map(|i| format!("%r{}", 10 + i)).collect();
            let list = registers.join(", ");
            let fill: String = (count..4).map(|i| format!("    mov.u32 %r{}, 0;\n", 10 + i)).collect();
            let load = format!(
                "    st.shared.v4.u32 [%r2], {{%r4, %r5, %r6, %r7}};
    bar.warp.sync -1;
    ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{list}}}, [%r2];
{fill}    st.global.v4.u32 [%rd3], {{%r10, %r11, %r12, %r13}};"
            );
            clean(
                || bench(&load),
                |b| {
                    let out = b.read_u32(b.pointer(8), 128);
                    for lane in 0..32u32 {
                        for m in 0..count {
                            let want = fragment(lane, m, transposed);
                            assert_eq!(out[(lane * 4 + m) as usize], want, "x{count}{trans} lane {lane} matrix {m}");
                        }
                    }
                },
            );
            // Without the barrier a lane must not read the row of another.
            let racing = load.replace("bar.warp.sync -1;", "xor.b32 %r2, %r2, 16;");
            faulty(|| bench(&racing), Code::Race, "ldmatrix");
            // Back again by stmatrix: what was loaded returns to its place.
            let back = format!(
                "    bar.warp.sync -1;
    st.shared.v4.u32 [%r2], {{0, 0, 0, 0}};
    bar.warp.sync -1;
    stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%r2], {{{list}}};
    bar.warp.sync -1;
    ld.shared.v4.u32 {{%r10, %r11, %r12, %r13}}, [%r2];
    st.global"
            );
            let there = load.replace("    st.global", &back);
            clean(
                || bench(&there),
                |b| {
                    let out = b.bytes(b.pointer(8), count as usize * 128);
                    assert_eq!(out, number_image(count * 64), "x{count}{trans}");
                },
            );
        }
    }
}

#[test]
fn a_matrix_is_transposed_in_registers() {
    let body = "    st.shared.v4.u32 [%r2], {%r4, %r5, %r6, %r7};
    bar.warp.sync -1;
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r2];
    movmatrix.sync.aligned.m8n8.trans.b16 %r11, %r10;
    mad.wide.u32 %rd3, %r0, 4, %rd1;
    st.global.u32 [%rd3], %r11;";
    clean(
        || bench(body),
        |b| {
            let want: Vec<u32> = (0..32).map(|lane| fragment(lane, 0, true)).collect();
            assert_eq!(b.read_u32(b.pointer(8), 32), want);
        },
    );
    let lanes = body.replace("    movmatrix", "    mov.u32 %r11, 0;\n    setp.lt.u32 %p1, %r0, 3;\n    @%p1 movmatrix");
    faulty(|| bench(&lanes), Code::Divergent, "movmatrix");
    faulty(|| bench(&body.replace("[%r2];\n    mov", "[%r2+8];\n    mov")), Code::Misaligned, "ldmatrix");
}

/// Registers of a warp for the operands of a product: of each lane those of A, then of B, then of C.
fn operands(elem: Elem, k: usize) -> Vec<u8> {
    let a = |m: usize, kk: usize| encode(elem, &[noise(1, m * k + kk)]);
    let b = |n: usize, kk: usize| encode(elem, &[noise(2, n * k + kk)]);
    let mut out = Vec::new();
    for lane in 0..32 {
        let (group, inner) = (lane / 4, lane % 4);
        // A: groups of rows, then of K.
        let wide = elem == Elem::F32;
        let step = if wide { 4 } else { 8 };
        for kb in 0..k / step {
            for row in [group, group + 8] {
                let first = kb * step + if wide { inner } else { inner * 2 };
                out.extend(a(row, first));
                if !wide {
                    out.extend(a(row, first + 1));
                }
            }
        }
        for kb in 0..k / step {
            let first = kb * step + if wide { inner } else { inner * 2 };
            out.extend(b(group, first));
            if !wide {
                out.extend(b(group, first + 1));
            }
        }
        for (row, column) in [(group, 0), (group, 1), (group + 8, 0), (group + 8, 1)] {
            out.extend(noise(3, row * 8 + inner * 2 + column).to_le_bytes());
        }
    }
    out
}

#[test]
fn products_of_a_warp_are_right() {
    for (kind, elem, k) in [
        ("m16n8k16.row.col.f32.bf16.bf16.f32", Elem::BF16, 16),
        ("m16n8k16.row.col.f32.f16.f16.f32", Elem::F16, 16),
        ("m16n8k8.row.col.f32.bf16.bf16.f32", Elem::BF16, 8),
        ("m16n8k8.row.col.f32.tf32.tf32.f32", Elem::F32, 8),
        ("m16n8k4.row.col.f32.tf32.tf32.f32", Elem::F32, 4),
    ] {
        let step = if elem == Elem::F32 { 4 } else { 8 };
        let (na, nb) = (k / step * 2, k / step);
        let total = na + nb + 4;
        let loads: String =
            (0..total).map(|i| format!("    ld.global.u32 %r{}, [%rd2+{}];\n", 10 + i, 4 * i)).collect();
        let list =
            |from: usize, n: usize| (from..from + n).map(|i| format!("%r{}", 10 + i)).collect::<Vec<_>>().join(", ");
        let body = format!(
            "    ld.param.u64 %rd0, [image];
    ld.param.u64 %rd1, [out];
    mov.u32 %r0, %tid.x;
    mad.wide.u32 %rd2, %r0, {}, %rd0;
    mad.wide.u32 %rd3, %r0, 16, %rd1;
{loads}    mma.sync.aligned.{kind} {{%r30, %r31, %r32, %r33}}, {{{}}}, {{{}}}, {{{}}};
    st.global.v4.u32 [%rd3], {{%r30, %r31, %r32, %r33}};",
            total * 4,
            list(0, na),
            list(na, nb),
            list(na + nb, 4),
        );
        let make = || {
            let mut b = Bench::new(&["image", "out"], &body);
            b.buffer(&operands(elem, k));
            b.undefined(512);
            b
        };
        clean(make, |b| {
            let out = b.read_f32(b.pointer(8), 128);
            for lane in 0..32 {
                for i in 0..4 {
                    let (m, n) = (lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2);
                    let sum: f32 = (0..k).map(|kk| noise(1, m * k + kk) * noise(2, n * k + kk)).sum();
                    assert_eq!(out[lane * 4 + i], noise(3, m * 8 + n) + sum, "{kind} row {m} column {n}");
                }
            }
        });
        let undefined = body.replacen("    ld.global.u32 %r10, [%rd2+0];\n", "", 1);
        faulty(
            || {
                let mut b = Bench::new(&["image", "out"], &undefined);
                b.buffer(&operands(elem, k));
                b.undefined(512);
                b
            },
            Code::Uninitialised,
            "mma.sync",
        );
    }
}

/// Each thread copies 16 bytes by `cp.async` in two groups, and reads what another thread has copied.
fn thread_copies(first_wait: &str, last_wait: &str, barrier: &str) -> Bench {
    let body = format!(
        "    ld.param.u64 %rd0, [image];
    ld.param.u64 %rd1, [out];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    mad.lo.u32 %r2, %r0, 16, %r1;
    mad.wide.u32 %rd2, %r0, 16, %rd0;
    cp.async.cg.shared.global [%r2], [%rd2], 16;
    cp.async.commit_group;
    cp.async.ca.shared.global [%r2+1024], [%rd2], 16, 6;
    cp.async.commit_group;
    {first_wait}
    ld.shared.u32 %r10, [%r2];
    {last_wait}
    {barrier}
    xor.b32 %r3, %r2, 48;
    ld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%r3+1024];
    add.u32 %r4, %r4, %r10;
    mad.wide.u32 %rd3, %r0, 16, %rd1;
    st.global.v4.u32 [%rd3], {{%r4, %r5, %r6, %r7}};"
    );
    let mut b = Bench::new(&["image", "out"], &body).block(64);
    b.buffer(&(0..256u32).flat_map(|i| (i * 65_537).to_le_bytes()).collect::<Vec<_>>());
    b.undefined(1024);
    b
}

#[test]
fn copies_by_threads_are_known_to_their_thread_once_waited_for() {
    let (one, all) = ("cp.async.wait_group 1;", "cp.async.wait_group 0;");
    clean(
        || thread_copies(one, all, "bar.sync 0;"),
        |b| {
            let out = b.read_u32(b.pointer(8), 256);
            let base = b.pointer(0);
            let image = b.read_u32(base, 256);
            for t in 0..64usize {
                // Six of the sixteen bytes are copied.
                let other = t ^ 3;
                let want = [image[other * 4].wrapping_add(image[t * 4]), image[other * 4 + 1] & 0xffff, 0, 0];
                assert_eq!(out[t * 4..t * 4 + 4], want, "thread {t}");
            }
        },
    );
    let defined = |b: Bench| b.options(|o| o.checks.undefined = false);
    faulty(|| defined(thread_copies("", all, "bar.sync 0;")), Code::Race, "cp.async.cg");
    faulty(|| defined(thread_copies("cp.async.wait_group 2;", all, "bar.sync 0;")), Code::Race, "cp.async.cg");
    faulty(|| defined(thread_copies(one, "", "bar.sync 0;")), Code::Race, "cp.async.ca");
    faulty(|| defined(thread_copies(one, all, "")), Code::Race, "cp.async.ca");
    // A warp's lanes see each other's copies behind bar.warp.sync: here both are in one warp.
    clean(|| thread_copies(one, all, "bar.warp.sync -1;"), |_| {});
}

#[test]
fn copies_by_threads_arrive_at_an_mbarrier() {
    let make = |arrive: &'static str| {
        move || {
            let body = format!(
                "{}    ld.param.u64 %rd0, [image];
    mad.lo.u32 %r2, %r0, 16, %r1;
    mad.wide.u32 %rd2, %r0, 16, %rd0;
    cp.async.cg.shared.global [%r2], [%rd2], 16;
    {arrive}
{}    xor.b32 %r3, %r2, 768;
    ld.shared.u32 %r4, [%r3];",
                common::one_barrier(4096).replace("[%r1+4096], 1", "[%r1+4096], 64"),
                wait("WAIT", 4096, 0)
            );
            let mut b = Bench::new(&["image"], &body).block(64);
            b.buffer(&[7; 1024]);
            b
        }
    };
    clean(make("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r1+4096];"), |_| {});
    let plain = make("mbarrier.arrive.shared::cta.b64 _, [%r1+4096];");
    faulty(|| plain().options(|o| o.checks.undefined = false), Code::Race, "cp.async.cg");
}

#[test]
fn a_copy_by_threads_needs_the_proxy_fence_before_a_bulk_store() {
    let make = |fence: &'static str| {
        move || {
            let body = format!(
                "    ld.param.u64 %rd0, [image];
    ld.param.u64 %rd1, [out];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    setp.ne.u32 %p0, %r0, 0;
    mad.lo.u32 %r2, %r0, 16, %r1;
    mad.wide.u32 %rd2, %r0, 16, %rd0;
    cp.async.cg.shared.global [%r2], [%rd2], 16;
    cp.async.commit_group;
    cp.async.wait_group 0;
    {fence}
    bar.sync 0;
    @%p0 bra DONE;
    cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 1024;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
DONE:"
            );
            let mut b = Bench::new(&["image", "out"], &body).block(64);
            b.buffer(&[7; 1024]);
            b.undefined(1024);
            b
        }
    };
    clean(make("fence.proxy.async.shared::cta;"), |b| assert_eq!(b.bytes(b.pointer(8), 1024), [7; 1024]));
    faulty(make(""), Code::Race, "cp.async.cg");
}

const MEET: &str = "barrier.cluster.arrive.release.aligned;\n    barrier.cluster.wait.acquire.aligned;";

/// Each CTA of a pair writes into the other's shared memory, and reads what the other has written.
fn exchange(before: &str, between: &str, after: &str) -> Bench {
    let body = format!(
        "    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    mov.u32 %r5, %cluster_ctarank;
    mov.u32 %r6, %ctaid.x;
    mad.lo.u32 %r2, %r0, 4, %r1;
    xor.b32 %r3, %r5, 1;
    mapa.shared::cluster.u32 %r4, %r2, %r3;
    mad.lo.u32 %r7, %r6, 64, %r0;
    {before}
    st.shared::cluster.u32 [%r4], %r7;
    {between}
    ld.shared.u32 %r8, [%r2];
    ld.shared::cluster.u32 %r9, [%r4];
    mad.wide.u32 %rd1, %r7, 4, %rd0;
    st.global.u32 [%rd1], %r8;
    {after}"
    );
    let mut b = Bench::new(&["out"], &body).block(64).grid(4).cluster(2);
    b.undefined(1024);
    b
}

#[test]
fn ctas_of_a_cluster_exchange_through_shared_memory() {
    clean(
        || exchange(MEET, MEET, MEET),
        |b| {
            let want: Vec<u32> = (0..256).map(|i| i ^ 64).collect();
            assert_eq!(b.read_u32(b.pointer(0), 256), want);
        },
    );
    faulty(|| exchange("", MEET, MEET), Code::Race, "st.shared::cluster");
    faulty(|| exchange(MEET, "", MEET).options(|o| o.checks.undefined = false), Code::Race, "st.shared::cluster");
    let relaxed = MEET.replace(".release", ".relaxed");
    faulty(|| exchange(MEET, &relaxed, MEET).options(|o| o.checks.undefined = false), Code::Race, "st.shared::cluster");
    // The last access of a peer's memory comes before nothing that ends the peer.
    faulty(|| exchange(MEET, MEET, ""), Code::Race, "ld.shared::cluster");
}

/// Every CTA arrives at the mbarrier of rank 0, which waits for all.
fn remote_arrival(count: u32, before: &str, after: &str) -> Bench {
    let body = format!(
        "{}    ld.param.u64 %rd0, [out];
    mov.u32 %r5, %cluster_ctarank;
    mad.lo.u32 %r2, %r5, 4, %r1;
    mapa.shared::cluster.u32 %r4, %r1, 0;
    mad.lo.u32 %r6, %r5, 4, %r4;
    {before}
    @!%p0 st.shared::cluster.u32 [%r6], %r5;
    @!%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4+4096];
    setp.ne.u32 %p1, %r5, 0;
    @%p1 bra DONE;
WAIT:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p7, [%r1+4096], 0;
    @!%p7 bra WAIT;
    ld.shared.v4.u32 {{%r8, %r9, %r10, %r11}}, [%r1];
    add.u32 %r8, %r8, %r9;
    add.u32 %r8, %r8, %r10;
    add.u32 %r8, %r8, %r11;
    st.global.u32 [%rd0], %r8;
DONE:
    {after}",
        common::one_barrier(4096).replace("[%r1+4096], 1", &format!("[%r1+4096], {count}"))
    );
    let mut b = Bench::new(&["out"], &body).block(32).grid(4).cluster(4);
    b.undefined(4);
    b
}

#[test]
fn ctas_arrive_at_an_mbarrier_of_another() {
    clean(|| remote_arrival(4, MEET, MEET), |b| assert_eq!(b.read_u32(b.pointer(0), 1), [6]));
    faulty(|| remote_arrival(5, MEET, MEET), Code::Deadlock, "try_wait");
    for (schedule, seed) in common::schedules() {
        let mut b = remote_arrival(3, MEET, MEET).options(|o| o.checks.undefined = false);
        (b.options.schedule, b.options.seed) = (schedule, seed);
        // The fourth arrival comes too early, or the read before the fourth write.
        let code = b.run().expect_err("too few arrivals are expected").code;
        assert!(matches!(code, Code::Race | Code::Barrier), "{code}");
    }
    faulty(|| remote_arrival(4, "", MEET), Code::Race, "st.shared::cluster");
    // Whoever arrives last may find that rank 0 has left.
    let schedules = &[Schedule::RoundRobin, Schedule::LateAsync];
    let gone = || remote_arrival(3, MEET, "").options(|o| o.checks.undefined = false);
    for schedule in schedules {
        let mut b = gone();
        b.options.schedule = *schedule;
        assert!(b.run().is_err());
    }
}
