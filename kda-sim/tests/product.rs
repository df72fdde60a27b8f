//! Products of a warpgroup: every operand layout against a direct sum, and what may go wrong round them.

mod common;
use common::{Bench, clean, encode, faulty, faulty_under, noise, one_barrier, wait};
use kda_core::Elem;
use kda_core::tensor_map::Swizzle;
use kda_sim::{Code, Schedule};

/// A layout of an operand in shared memory.
#[derive(Clone, Copy, Debug)]
struct Layout {
    swizzle: Swizzle,
    /// Elements of M or N stand side by side.
    transposed: bool,
}

const K_MAJOR: Layout = Layout { swizzle: Swizzle::B128, transposed: false };

impl Layout {
    /// Leading and stride offsets for a matrix of so many rows (of M or N), and its size in bytes.
    fn offsets(self, rows: u32) -> (u32, u32, u32) {
        match (self.swizzle.span(), self.transposed) {
            // Blocks of 8 rows of 16 bytes: two along K, then the next 8 rows.
            (None, false) => (128, 256, rows * 32),
            // Blocks of 8 of K, of 8 elements of M: first along M, then the second block of K.
            (None, true) => (rows * 16, 128, rows * 32),
            (Some(span), false) => (16, span * 8, rows * span),
            // Atoms of a span of M and 8 of K: two along K, then the next span of M.
            (Some(span), true) => (span * 16, span * 8, rows * 2 / span * span * 16),
        }
    }

    /// Byte of an element.
    fn place(self, rows: u32, row: u32, k: u32, size: u32) -> u32 {
        let (leading, stride, _) = self.offsets(rows);
        let plain = match (self.swizzle.span(), self.transposed) {
            (None, false) => row / 8 * stride + row % 8 * 16 + k * size / 16 * leading + k * size % 16,
            (None, true) => row / 8 * stride + k / 8 * leading + k % 8 * 16 + row % 8 * 2,
            (Some(span), false) => row / 8 * stride + row % 8 * span + k * size,
            (Some(span), true) => {
                let side = span / 2;
                row / side * leading + k / 8 * stride + k % 8 * span + row % side * 2
            }
        };
        self.swizzle.place(plain)
    }

    /// The constant part of the descriptor.
    fn descriptor(self, rows: u32) -> u64 {
        let (leading, stride, _) = self.offsets(rows);
        let mode = match self.swizzle {
            Swizzle::None => 0u64,
            Swizzle::B128 => 1,
            Swizzle::B64 => 2,
            Swizzle::B32 => 3,
        };
        mode << 62 | u64::from(stride >> 4) << 32 | u64::from(leading >> 4) << 16
    }
}

/// What is computed: D = scale D0 + (±A)(±B).
#[derive(Clone, Copy, Debug)]
struct Case {
    elem: Elem,
    n: u32,
    a: Layout,
    b: Layout,
    in_registers: bool,
    negate: [bool; 2],
    accumulate: bool,
}

const PLAIN: Case =
    Case { elem: Elem::BF16, n: 24, a: K_MAJOR, b: K_MAJOR, in_registers: false, negate: [false; 2], accumulate: true };

impl Case {
    fn k(self) -> u32 {
        32 / self.elem.bytes()
    }
    fn b_at(self) -> u32 {
        self.a.offsets(64).2.next_multiple_of(1024)
    }
    fn bytes(self) -> u32 {
        (self.b_at() + self.b.offsets(self.n).2).next_multiple_of(1024)
    }

    /// Shared memory as the product finds it.
    fn image(self) -> Vec<u8> {
        let (size, mut out) = (self.elem.bytes(), vec![0; self.bytes() as usize]);
        for (layout, rows, at, seed) in [(self.a, 64, 0, 1), (self.b, self.n, self.b_at(), 2)] {
            for row in 0..rows {
                for k in 0..self.k() {
                    let to = (at + layout.place(rows, row, k, size)) as usize;
                    let value = encode(self.elem, &[noise(seed, (row * self.k() + k) as usize)]);
                    out[to..to + size as usize].copy_from_slice(&value);
                }
            }
        }
        out
    }

    fn expected(self) -> Vec<f32> {
        let sign = |negated: bool| if negated { -1.0 } else { 1.0 };
        let mut out = Vec::new();
        for m in 0..64 {
            for n in 0..self.n {
                let terms = (0..self.k())
                    .map(|k| noise(1, (m * self.k() + k) as usize) * noise(2, (n * self.k() + k) as usize));
                let sum: f32 = terms.sum();
                let start = if self.accumulate { 3.0 } else { 0.0 };
                out.push(start + sum * sign(self.negate[0]) * sign(self.negate[1]));
            }
        }
        out
    }

    /// The kernel: loads the image, multiplies once, writes D by rows.
    fn text(self) -> String {
        let bytes = self.bytes();
        let accumulators: Vec<String> = (0..self.n / 2).map(|i| format!("%r{}", 40 + i)).collect();
        let mut out = format!(
            "{}    ld.param.u64 %rd0, [image];
    ld.param.u64 %rd1, [out];
    @%p0 bra READY;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+{bytes}], {bytes};
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], {bytes}, [%r1+{bytes}];
READY:
{}    and.b32 %r2, %r1, 262143;
    shr.u32 %r2, %r2, 4;
    cvt.u64.u32 %rd2, %r2;
    or.b64 %rd3, %rd2, {};
    add.u64 %rd4, %rd2, {};
    or.b64 %rd4, %rd4, {};
    and.b32 %r3, %r0, 31;
    shr.u32 %r4, %r0, 5;
    shr.u32 %r5, %r3, 2;
    mad.lo.u32 %r5, %r4, 16, %r5;
    and.b32 %r6, %r3, 3;
    shl.b32 %r6, %r6, 1;
",
            one_barrier(bytes),
            wait("WAIT", bytes, 0),
            self.a.descriptor(64) as i64,
            self.b_at() / 16,
            self.b.descriptor(self.n) as i64,
        );
        if self.in_registers {
            // The fragments, element by element, from the K-major rows without a swizzle that the image then has.
            for i in 0..4u32 {
                let row = i % 2 * 8;
                let (column, size) = if self.elem == Elem::F32 { (i / 2 * 4, 4) } else { (i / 2 * 8, 2) };
                let at = row / 8 * 256 + column * size / 16 * 128 + column * size % 16;
                out += &format!(
                    "    shr.u32 %r7, %r3, 2;
    mad.lo.u32 %r8, %r4, 512, %r1;
    mad.lo.u32 %r8, %r7, 16, %r8;
    and.b32 %r9, %r3, 3;
    mad.lo.u32 %r8, %r9, 4, %r8;
    ld.shared.u32 %r{}, [%r8+{at}];
",
                    20 + i
                );
            }
        }
        for r in &accumulators {
            out += &format!("    mov.b32 {r}, 0f40400000;\n");
        }
        let ty = match self.elem {
            Elem::BF16 => "bf16.bf16",
            Elem::F16 => "f16.f16",
            _ => "tf32.tf32",
        };
        let sign = |negated: bool| if negated { -1 } else { 1 };
        let a = if self.in_registers { "{%r20, %r21, %r22, %r23}" } else { "%rd3" };
        let [ta, tb] = [self.a.transposed, self.b.transposed].map(u32::from);
        let transpose = match (self.elem, self.in_registers) {
            (Elem::F32, _) => String::new(),
            (_, true) => format!(", {tb}"),
            _ => format!(", {ta}, {tb}"),
        };
        out += &format!(
            "    setp.{}.u32 %p1, 0, 0;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n{}k{}.f32.{ty} {{{}}}, {a}, %rd4, %p1, {}, {}{transpose};
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
",
            if self.accumulate { "eq" } else { "ne" },
            self.n,
            self.k(),
            accumulators.join(", "),
            sign(self.negate[0]),
            sign(self.negate[1]),
        );
        for (i, r) in accumulators.iter().enumerate() {
            let (row, column) = (i / 2 % 2 * 8, i / 4 * 8 + i % 2);
            out += &format!(
                "    add.u32 %r10, %r5, {row};
    mad.lo.u32 %r10, %r10, {}, %r6;
    mad.wide.u32 %rd5, %r10, 4, %rd1;
    st.global.f32 [%rd5+{}], {r};
",
                self.n,
                column * 4
            );
        }
        out
    }

    fn bench(self, change: impl Fn(String) -> String) -> Bench {
        let mut b = Bench::new(&["image", "out"], &change(self.text())).block(128).shared(self.bytes() + 64);
        b.buffer(&self.image());
        b.undefined(u64::from(64 * self.n * 4));
        b
    }
}

#[test]
fn products_are_right_in_every_layout() {
    let layout = |swizzle, transposed| Layout { swizzle, transposed };
    let swizzles = [Swizzle::B128, Swizzle::B64, Swizzle::B32, Swizzle::None];
    let mut cases = vec![
        Case { accumulate: false, ..PLAIN },
        Case { negate: [true, false], ..PLAIN },
        Case { negate: [true, true], n: 8, ..PLAIN },
    ];
    for swizzle in swizzles {
        let plain = layout(swizzle, false);
        for elem in [Elem::BF16, Elem::F16, Elem::F32] {
            cases.push(Case { elem, a: plain, b: plain, ..PLAIN });
        }
        let across = layout(swizzle, true);
        cases.push(Case { a: across, b: plain, n: 64, ..PLAIN });
        cases.push(Case { a: plain, b: across, n: 64, ..PLAIN });
        cases.push(Case { elem: Elem::F16, a: across, b: across, n: 64, ..PLAIN });
        let none = layout(Swizzle::None, false);
        cases.push(Case { a: none, b: across, n: 64, in_registers: true, ..PLAIN });
    }
    let none = layout(Swizzle::None, false);
    for elem in [Elem::BF16, Elem::F16, Elem::F32] {
        cases.push(Case { elem, a: none, b: none, in_registers: true, negate: [true, false], ..PLAIN });
    }
    for case in cases {
        clean(
            || case.bench(|t| t),
            |b| assert_eq!(b.read_f32(b.pointer(8), (64 * case.n) as usize), case.expected(), "{case:?}"),
        );
    }
}

/// The plain product with a piece of its text replaced.
fn changed(from: &'static str, to: &'static str) -> impl Fn() -> Bench {
    move || {
        PLAIN.bench(|text| {
            assert!(text.contains(from), "`{from}`\n{text}");
            text.replace(from, to)
        })
    }
}

const FENCE: &str = "    wgmma.fence.sync.aligned;\n";
const COMMIT: &str = "    wgmma.commit_group.sync.aligned;\n";
const WAIT: &str = "    wgmma.wait_group.sync.aligned 0;\n";

#[test]
fn faults_round_a_product_are_found() {
    faulty(changed(FENCE, ""), Code::Product, "wgmma.mma_async");
    faulty(changed(FENCE, "    wgmma.fence.sync.aligned;\n    mov.b32 %r44, 0;\n"), Code::Product, "mov.b32 %r44, 0;");
    faulty(changed(COMMIT, ""), Code::Product, "st.global.f32 [%rd5+0], %r40");
    faulty(changed(WAIT, ""), Code::Product, "st.global.f32 [%rd5+0], %r40");
    faulty(changed(WAIT, "    wgmma.wait_group.sync.aligned 1;\n"), Code::Product, "st.global.f32 [%rd5+0], %r40");
    // The operands are not waited for.
    let late = &[Schedule::LateAsync, Schedule::RoundRobin];
    let unwaited = changed("    @!%p7 bra WAIT;\n", "");
    faulty_under(late, || unwaited().options(|o| o.checks.undefined = false), Code::Race, "wgmma.mma_async");
    // Only three of the warps wait.
    let one = "    setp.lt.u32 %p2, %r0, 32;\n    @%p2 bra GO;\nWAIT:";
    let three = || PLAIN.bench(|t| t.replace("WAIT:", one).replace("@!%p7 bra WAIT;\n", "@!%p7 bra WAIT;\nGO:\n"));
    faulty(|| three().options(|o| o.checks.undefined = false), Code::Race, "wgmma.mma_async");
    // The operands are overwritten before the product is waited for, or by a thread that has not waited.
    let early = changed(WAIT, "    @!%p0 st.shared.u32 [%r1], 0;\n    wgmma.wait_group.sync.aligned 0;\n");
    faulty(early, Code::Race, "wgmma.mma_async");
    let others = changed(WAIT, "    wgmma.wait_group.sync.aligned 0;\n    @!%p0 st.shared.u32 [%r1], 0;\n");
    clean(others, |_| {});
    // Descriptors that differ, a base offset, a warpgroup that is not whole, lanes that are missing.
    faulty(
        changed("add.u64 %rd4, %rd2,", "cvt.u64.u32 %rd2, %r0;\n    add.u64 %rd4, %rd2,"),
        Code::Product,
        "wgmma.mma",
    );
    let by_warp = "shr.u32 %r30, %r0, 5;\n    cvt.u64.u32 %rd2, %r30;\n    add.u64 %rd4, %rd2,";
    faulty(changed("add.u64 %rd4, %rd2,", by_warp), Code::Divergent, "wgmma.mma");
    faulty(
        changed(
            "    setp.eq.u32 %p1, 0, 0;\n",
            "    or.b64 %rd4, %rd4, 562949953421312;\n    setp.eq.u32 %p1, 0, 0;\n",
        ),
        Code::Product,
        "wgmma.mma",
    );
    faulty(|| PLAIN.bench(|t| t).block(96), Code::Product, "wgmma.mma");
    let lanes = "    setp.eq.u32 %p3, %r0, 5;\n    @%p3 bra END;\n    wgmma.fence.sync.aligned;\n";
    faulty(
        || {
            let mut b = changed(FENCE, lanes)();
            b.text = b.text.replace("    ret;", "END:\n    ret;");
            b
        },
        Code::Divergent,
        "wgmma.fence",
    );
    // The accumulators have never been written.
    faulty(changed("    mov.b32 %r40, 0f40400000;\n", ""), Code::Uninitialised, "wgmma.mma_async");
    // An operand outside shared memory.
    let outside = changed("    and.b32 %r2, %r1, 262143;\n", "    add.u32 %r2, %r1, 65536;\n");
    faulty(outside, Code::OutOfBounds, "wgmma.mma_async");
}

#[test]
fn of_two_groups_in_flight_only_the_older_is_done_after_wait_1() {
    let second = |registers: &str, wait: u32| {
        let product = |d: &str| {
            format!("    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{{d}}}, %rd3, %rd4, %p1, 1, 1, 0, 0;\n")
        };
        let text = format!(
            "{FENCE}{}{COMMIT}{}{COMMIT}    wgmma.wait_group.sync.aligned {wait};\n",
            product("%r20, %r21, %r22, %r23"),
            product(registers)
        );
        move || {
            Case { n: 8, ..PLAIN }.bench(|t| {
                let start = t.find("    wgmma.fence").unwrap();
                let end = t.find(WAIT).unwrap() + WAIT.len();
                let init: String = (20..24).map(|i| format!("    mov.b32 %r{i}, 0;\n")).collect();
                format!("{}{init}{text}    mov.b32 %r30, %r20;\n{}{WAIT}", &t[..start], &t[end..])
            })
        }
    };
    // The second group's own accumulators are read with one group pending.
    faulty(second("%r40, %r41, %r42, %r43", 1), Code::Product, "st.global.f32 [%rd5+0], %r40");
    clean(second("%r40, %r41, %r42, %r43", 0), |_| {});
    // Reading those of the first alone is right.
    let first = || {
        let mut b = second("%r40, %r41, %r42, %r43", 1)();
        let stores = b.text.find("    add.u32 %r10, %r5").unwrap();
        let end = b.text.rfind(WAIT).unwrap();
        b.text.replace_range(stores..end, "");
        b
    };
    clean(first, |_| {});
    // Both accumulate into the same registers: the second still has them.
    faulty(second("%r20, %r21, %r22, %r23", 1), Code::Product, "mov.b32 %r30, %r20");
    // Part of the first's registers, in another order, is not the same accumulator.
    faulty(second("%r21, %r20, %r22, %r23", 0), Code::Product, "wgmma.mma_async");
}

#[test]
fn generic_writes_reach_a_product_through_the_proxy_fence() {
    // Thread t writes 72 bytes of A and B; the operands are not loaded by a copy.
    let make = |fence: &'static str, barrier: &'static str| {
        move || {
            Case { n: 8, ..PLAIN }.bench(|t| {
                let start = t.find("    @%p0 bra READY;").unwrap();
                let end = t.find("    and.b32 %r2, %r1, 262143;").unwrap();
                let fill = "    mad.lo.u32 %r11, %r0, 72, %r1;\n    mov.u32 %r12, 0;\nFILL:\n    st.shared.u32 [%r11], 0;\n    \
                            add.u32 %r11, %r11, 4;\n    add.u32 %r12, %r12, 1;\n    setp.lt.u32 %p5, %r12, 18;\n    @%p5 bra FILL;\n";
                format!("{}{fill}    {fence}\n    {barrier}\n{}", &t[..start], &t[end..])
            })
        }
    };
    let fence = "fence.proxy.async.shared::cta;";
    clean(make(fence, "bar.sync 0;"), |_| {});
    // After the barrier each thread has acquired what it fences.
    clean(make("bar.sync 0;", fence), |_| {});
    faulty(make("", "bar.sync 0;"), Code::Race, "st.shared.u32 [%r11]");
    faulty(make(fence, ""), Code::Race, "st.shared.u32 [%r11]");
}

#[test]
fn registers_of_a_must_not_change_in_flight() {
    let none = Layout { swizzle: Swizzle::None, transposed: false };
    let case = Case { a: none, b: none, in_registers: true, ..PLAIN };
    let make = |piece: &'static str, at: &'static str| move || case.bench(|t| t.replace(at, &format!("{at}{piece}")));
    faulty(make("    mov.b32 %r21, 0;\n", COMMIT), Code::Product, "mov.b32 %r21, 0;");
    faulty(make("    mov.b32 %r21, 0;\n", FENCE), Code::Product, "mov.b32 %r21, 0;");
    clean(make("    mov.b32 %r21, 0;\n", WAIT), |_| {});
    // Reading them is no change.
    clean(make("    mov.b32 %r24, %r21;\n", COMMIT), |_| {});
}

#[test]
fn registers_are_a_pool() {
    // One warpgroup of three gives registers away, two take them: 40 + 2 * 232 is what 3 * 168 allow.
    let make = |down: u32, up: u32| {
        move || {
            let body = format!(
                "    mov.u32 %r0, %tid.x;
    setp.ge.u32 %p0, %r0, 256;
    @%p0 bra GIVE;
    setmaxnreg.inc.sync.aligned.u32 {up};
    bra DONE;
GIVE:
    setmaxnreg.dec.sync.aligned.u32 {down};
DONE:"
            );
            Bench::new(&[], &body).block(384)
        }
    };
    clean(make(40, 232), |_| {});
    faulty(make(56, 240), Code::Deadlock, "setmaxnreg.inc");
    let report = make(56, 240)().run().unwrap_err();
    assert!(report.to_string().contains("waiting for registers"), "{report}");
    faulty(make(176, 232), Code::Registers, "setmaxnreg.dec");
    faulty(make(40, 160), Code::Registers, "setmaxnreg.inc");
    // Not the whole warpgroup.
    let part = || {
        let mut b = make(40, 232)();
        b.text = b.text.replace("%r0, 256", "%r0, 288");
        b
    };
    faulty(part, Code::Registers, "setmaxnreg");
}
