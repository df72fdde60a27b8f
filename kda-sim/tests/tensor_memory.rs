//! Tensor memory and the products of one thread.

mod common;
use common::{Bench, clean, encode, faulty, noise, one_barrier, wait};
use kda_core::Elem;
use kda_core::tensor_map::Swizzle;
use kda_sim::Code;

/// Shape of the products: D `[m, n]`, bf16 or tf32 operands, K-major with a swizzle of 128 bytes.
#[derive(Clone, Copy, Debug)]
struct Case {
    m: u32,
    n: u32,
    elem: Elem,
}

const PLAIN: Case = Case { m: 128, n: 16, elem: Elem::BF16 };

/// The same kernel for the architecture that has tensor memory.
fn blackwell(mut b: Bench) -> Bench {
    b.text = b.text.replace(".version 8.0\n.target sm_90a", ".version 8.6\n.target sm_100a");
    b
}

impl Case {
    fn k(self) -> u32 {
        32 / self.elem.bytes()
    }
    fn bytes(self) -> u32 {
        (self.m + self.n) * 128
    }

    fn image(self) -> Vec<u8> {
        let (size, mut out) = (self.elem.bytes(), vec![0; self.bytes() as usize]);
        for (rows, first, seed) in [(self.m, 0, 1), (self.n, self.m * 128, 2)] {
            for row in 0..rows {
                for k in 0..self.k() {
                    let to = (first + Swizzle::B128.place(row * 128 + k * size)) as usize;
                    let value = encode(self.elem, &[noise(seed, (row * self.k() + k) as usize)]);
                    out[to..to + size as usize].copy_from_slice(&value);
                }
            }
        }
        out
    }

    /// The kernel: D is 3 from `tcgen05.st`, two products are added, and every warp writes its lanes of D out.
    fn text(self) -> String {
        let (bytes, n) = (self.bytes(), self.n);
        let registers: Vec<String> = (0..n).map(|i| format!("%r{}", 40 + i)).collect();
        let list = registers.join(", ");
        let initial: String = registers.iter().map(|r| format!("    mov.b32 {r}, 0f40400000;\n")).collect();
        let stores: String = (0..n).map(|i| format!("    st.global.f32 [%rd6+{}], %r{};\n", 4 * i, 40 + i)).collect();
        let (kind, types) = if self.elem == Elem::F32 { ("tf32", 2 << 7 | 2 << 10) } else { ("f16", 1 << 7 | 1 << 10) };
        let instruction = 1 << 4 | types | (n / 8) << 17 | (self.m / 16) << 24;
        let descriptor = 0x4000_4040_0001_0000u64 as i64;
        format!(
            "{}    ld.param.u64 %rd0, [image];
    ld.param.u64 %rd1, [out];
    setp.ge.u32 %p2, %r0, 32;
    @%p0 bra READY;
    mbarrier.init.shared::cta.b64 [%r1+{done}], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+{bytes}], {bytes};
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], {bytes}, [%r1+{bytes}];
READY:
    bar.warp.sync -1;
    @%p2 bra ALLOCATED;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1+{place}], 32;
    tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
ALLOCATED:
    bar.sync 0;
    ld.shared.u32 %r3, [%r1+{place}];
    shr.u32 %r4, %r0, 5;
    shl.b32 %r4, %r4, 21;
    add.u32 %r4, %r4, %r3;
{initial}    tcgen05.st.sync.aligned.32x32b.x{n}.b32 [%r4], {{{list}}};
    tcgen05.wait::st.sync.aligned;
    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    @%p0 bra ISSUED;
{}    tcgen05.fence::after_thread_sync;
    and.b32 %r2, %r1, 262143;
    shr.u32 %r2, %r2, 4;
    cvt.u64.u32 %rd2, %r2;
    or.b64 %rd3, %rd2, {descriptor};
    add.u64 %rd4, %rd3, {};
    mov.u32 %r5, {instruction};
    setp.eq.u32 %p1, 0, 0;
    tcgen05.mma.cta_group::1.kind::{kind} [%r3], %rd3, %rd4, %r5, %p1;
    tcgen05.mma.cta_group::1.kind::{kind} [%r3], %rd3, %rd4, %r5, %p1;
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r1+{done}];
ISSUED:
{}    tcgen05.fence::after_thread_sync;
    tcgen05.ld.sync.aligned.32x32b.x{n}.b32 {{{list}}}, [%r4];
    tcgen05.wait::ld.sync.aligned;
    mad.wide.u32 %rd6, %r0, {}, %rd1;
{stores}    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    @%p2 bra DONE;
    tcgen05.fence::after_thread_sync;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, 32;
DONE:",
            one_barrier(bytes),
            wait("OPERANDS", bytes, 0),
            self.m * 8,
            wait("PRODUCTS", bytes + 8, 0),
            4 * n,
            done = bytes + 8,
            place = bytes + 16,
        )
    }

    fn bench(self, change: impl Fn(String) -> String) -> Bench {
        let b = Bench::new(&["image", "out"], &change(self.text())).block(128).shared(self.bytes() + 64);
        let mut b = blackwell(b);
        b.buffer(&self.image());
        b.undefined(u64::from(128 * self.n * 4));
        b
    }

    fn expected(self) -> Vec<f32> {
        let mut out = Vec::new();
        for lane in 0..128 {
            // Of 64 rows each quarter of the lanes holds 16.
            let row = match self.m {
                64 if lane % 32 < 16 => Some(lane / 32 * 16 + lane % 16),
                64 => None,
                _ => Some(lane),
            };
            for n in 0..self.n {
                let sum = |row: u32| -> f32 {
                    let at = |seed, i: u32, k| noise(seed, (i * self.k() + k) as usize);
                    (0..self.k()).map(|k| at(1, row, k) * at(2, n, k)).sum()
                };
                out.push(3.0 + row.map_or(0.0, |row| 2.0 * sum(row)));
            }
        }
        out
    }
}

#[test]
fn products_in_tensor_memory_are_right() {
    for case in [PLAIN, Case { elem: Elem::F32, ..PLAIN }, Case { m: 64, n: 8, ..PLAIN }, Case { n: 32, ..PLAIN }] {
        clean(
            || case.bench(|t| t),
            |b| assert_eq!(b.read_f32(b.pointer(8), (128 * case.n) as usize), case.expected(), "{case:?}"),
        );
    }
}

/// The plain kernel with the `which`th place of a piece of its text replaced.
fn changed(from: &'static str, to: &'static str, which: usize) -> impl Fn() -> Bench {
    move || {
        PLAIN
            .bench(|text| {
                let at = text.match_indices(from).nth(which).unwrap_or_else(|| panic!("`{from}`\n{text}")).0;
                format!("{}{to}{}", &text[..at], &text[at + from.len()..])
            })
            .options(|o| o.checks.undefined = false)
    }
}

#[test]
fn faults_round_tensor_memory_are_found() {
    let (before, after) = ("    tcgen05.fence::before_thread_sync;\n", "    tcgen05.fence::after_thread_sync;\n");
    let commit = "    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r1+18440];\n";
    faulty(changed(commit, "", 0), Code::Deadlock, "try_wait");
    // The commit stands before the second product.
    let early = || {
        let mut b = changed(commit, "", 0)();
        let at = b.text.rfind("    tcgen05.mma").unwrap();
        b.text.insert_str(at, commit);
        b
    };
    faulty(early, Code::Race, "tcgen05.mma");
    // Initial values: stored, waited for, handed over.
    faulty(changed("    tcgen05.wait::st.sync.aligned;\n", "", 0), Code::Race, "tcgen05.st");
    faulty(changed(before, "", 0), Code::Race, "tcgen05.st");
    faulty(changed(after, "", 0), Code::Race, "tcgen05.st");
    // Results: waited for, taken over.
    faulty(changed(after, "", 1), Code::Race, "tcgen05.ld");
    faulty(changed("    tcgen05.wait::ld.sync.aligned;\n", "", 0), Code::Product, "st.global.f32 [%rd6+0]");
    // Freed while others may still read.
    faulty(changed(before, "", 1), Code::Race, "tcgen05.dealloc");
    faulty(changed(after, "", 2), Code::Race, "tcgen05.dealloc");
    let free = "    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, 32;\n";
    faulty(changed(free, "", 0), Code::TensorMemory, "ret");
    faulty(
        changed(free, "    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, 64;\n", 0),
        Code::TensorMemory,
        "dealloc",
    );
    let twice = || {
        let mut b = PLAIN.bench(|t| t);
        b.text = b.text.replace(free, &free.repeat(2));
        b
    };
    faulty(twice, Code::TensorMemory, "dealloc");
    faulty(changed("], 32;", "], 48;", 0), Code::TensorMemory, "tcgen05.alloc");
    let relinquish = "    tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n";
    let again = || {
        let mut b = PLAIN.bench(|t| t);
        b.text = b.text.replace(relinquish, "").replace("    tcgen05.alloc", &format!("{relinquish}    tcgen05.alloc"));
        b
    };
    faulty(again, Code::TensorMemory, "tcgen05.alloc");
    // The wrong quarter of the lanes, and columns of nobody.
    faulty(changed("    add.u32 %r4, %r4, %r3;\n", "    mov.u32 %r4, %r3;\n", 0), Code::TensorMemory, "tcgen05.st");
    faulty(changed("    add.u32 %r4, %r4, %r3;\n", "    add.u32 %r4, %r4, 20;\n", 0), Code::TensorMemory, "tcgen05.st");
    // The operands are not waited for.
    let unwaited = changed("    @!%p7 bra OPERANDS;\n", "", 0);
    common::faulty_under(&[kda_sim::Schedule::LateAsync], unwaited, Code::Race, "tcgen05.mma");
    // A descriptor without the constant bits.
    faulty(changed("or.b64 %rd3, %rd2, 4611756662049538048;", "mov.b64 %rd3, %rd2;", 0), Code::Product, "tcgen05.mma");
}

/// Another thread loads new operands once the products have completed: it knows of the first load through their commit alone.
#[test]
fn a_commit_stands_behind_the_loads_of_its_operands() {
    let bytes = PLAIN.bytes();
    let refill = format!(
        "    setp.ne.u32 %p3, %r0, 32;
    @%p3 bra REFILLED;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+{bytes}], {bytes};
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], {bytes}, [%r1+{bytes}];
REFILLED:
{}",
        wait("AGAIN", bytes, 1)
    );
    let kernel = |refill: String| {
        move || {
            PLAIN.bench(|text| {
                let at = text.find("    tcgen05.fence::after_thread_sync;\n    tcgen05.ld").expect("the loads");
                format!("{}{refill}{}", &text[..at], &text[at..])
            })
        }
    };
    clean(kernel(refill.clone()), |b| assert_eq!(b.read_f32(b.pointer(8), 128 * 16), PLAIN.expected()));
    // Ahead of the wait for the products.
    let early = move || {
        PLAIN.bench(|text| {
            let at = text.find("ISSUED:\n").expect("the end of the issue") + "ISSUED:\n".len();
            format!("{}{refill}{}", &text[..at], &text[at..])
        })
    };
    let races = |(schedule, seed): &(kda_sim::Schedule, u64)| {
        let mut b = early().options(|o| (o.schedule, o.seed) = (*schedule, *seed));
        b.run().is_err_and(|report| report.code == Code::Race)
    };
    assert!(common::schedules().iter().any(races));
}

#[test]
fn an_allocation_waits_for_columns() {
    // Two warps allocate all columns in turn.
    let body = "    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    shr.u32 %r2, %r0, 5;
    mad.lo.u32 %r2, %r2, 16, %r1;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r2], 512;
    bar.warp.sync -1;
    ld.shared.u32 %r3, [%r2];
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, 512;";
    clean(|| blackwell(Bench::new(&[], body).block(64)), |_| {});
    let never = body.replace("    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, 512;", "    bar.sync 0;");
    faulty(|| blackwell(Bench::new(&[], &never).block(64)), Code::Deadlock, "tcgen05.alloc");
}
