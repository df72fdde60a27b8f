//! Branches, loops, collectives, memory accesses of every shape, atomics, special registers, grids and clusters.

mod common;
use common::{Bench, clean};
use kda_sim::{Code, LoadError, Memory, Program};

fn ptr(bench: &Bench, index: usize) -> u64 {
    u64::from_le_bytes(bench.params[index * 8..index * 8 + 8].try_into().unwrap())
}

/// Runs `body`, which leaves a value in `%r20`, and gives the value of each thread.
fn values(block: u32, body: &str) -> Vec<u32> {
    let body = format!(
        "    ld.param.u64 %rd0, [out];\n    mov.u32 %r0, %tid.x;\n    mad.wide.u32 %rd1, %r0, 4, %rd0;\n    mov.u32 %r20, 0;\n{body}\n    \
         st.global.u32 [%rd1], %r20;"
    );
    let make = || {
        let mut b = Bench::new(&["out"], &body).block(block);
        b.undefined(u64::from(block) * 4);
        b
    };
    let mut bench = make();
    bench.run().unwrap_or_else(|r| panic!("{r}"));
    let want = bench.read_u32(ptr(&bench, 0), block as usize);
    clean(make, |b| assert_eq!(b.read_u32(ptr(b, 0), block as usize), want));
    want
}

fn expect(block: u32, body: &str, model: impl Fn(u32) -> u32) {
    let got = values(block, body);
    let want: Vec<u32> = (0..block).map(model).collect();
    assert_eq!(got, want, "{body}");
}

#[test]
fn loops_of_different_length() {
    let body = "    mov.u32 %r1, 0;\nLOOP:\n    setp.ge.u32 %p0, %r1, %r0;\n    @%p0 bra DONE;\n    add.u32 %r20, %r20, %r1;\n    add.u32 %r1, %r1, 1;\n    bra LOOP;\nDONE:";
    expect(70, body, |t| t * t.saturating_sub(1) / 2);
}

#[test]
fn nested_branches_meet_again() {
    let body = "    and.b32 %r1, %r0, 1;
    and.b32 %r2, %r0, 2;
    setp.eq.u32 %p0, %r1, 0;
    setp.eq.u32 %p1, %r2, 0;
    @%p0 bra EVEN;
    add.u32 %r20, %r20, 1;
    @%p1 bra JOIN;
    add.u32 %r20, %r20, 10;
    bra JOIN;
EVEN:
    add.u32 %r20, %r20, 100;
    @%p1 bra JOIN;
    add.u32 %r20, %r20, 1000;
JOIN:
    activemask.b32 %r3;
    popc.b32 %r3, %r3;
    mad.lo.u32 %r20, %r3, 10000, %r20;";
    expect(64, body, |t| 320_000 + [100, 1, 1100, 11][(t & 3) as usize]);
}

#[test]
fn code_out_of_line_rejoins_before_a_barrier() {
    let body = "    setp.ge.u32 %p0, %r0, 7;
    @%p0 bra SLOW;
BACK:
    bar.sync 0;
    bra END;
SLOW:
    add.u32 %r20, %r20, 5;
    bra BACK;
END:";
    expect(64, body, |t| if t >= 7 { 5 } else { 0 });
}

#[test]
fn a_lane_may_wait_for_another_lane_of_its_warp() {
    // Lane 0 spins, at the smaller address, until lane 1 has stored.
    let body = "    mov.u32 %r1, smem;
    setp.ne.u32 %p0, %r0, 0;
    @!%p0 st.shared.u32 [%r1], 0;
    bar.warp.sync -1;
    setp.eq.u32 %p1, %r0, 1;
    @%p0 bra OTHERS;
SPIN:
    ld.acquire.cta.shared.u32 %r20, [%r1];
    setp.eq.u32 %p2, %r20, 0;
    @%p2 bra SPIN;
    bra END;
OTHERS:
    mov.u32 %r2, 42;
    @%p1 st.release.cta.shared.u32 [%r1], %r2;
END:";
    expect(32, body, |t| if t == 0 { 42 } else { 0 });
}

#[test]
fn shuffles() {
    let shfl = |mode: &str, b: u32, c: u32| {
        format!(
            "    shfl.sync.{mode}.b32 %r1|%p0, %r0, {b}, {c}, -1;\n    selp.b32 %r2, 1000, 0, %p0;\n    add.u32 %r20, %r1, %r2;"
        )
    };
    for n in [1u32, 4, 16] {
        expect(32, &shfl("bfly", n, 31), |t| 1000 + (t ^ n));
        expect(32, &shfl("down", n, 31), |t| if t + n < 32 { 1000 + t + n } else { t });
        expect(32, &shfl("up", n, 0), |t| if t >= n { 1000 + t - n } else { t });
        expect(32, &shfl("idx", n, 31), |_| 1000 + n);
        // Segments of eight lanes: clamp 7, mask 0b11000.
        let c = (0b11000 << 8) | 7;
        expect(32, &shfl("down", n & 7, c), |t| if (t & 7) + (n & 7) < 8 { 1000 + t + (n & 7) } else { t });
        expect(32, &shfl("idx", n & 7, c), |t| 1000 + (t & !7 | n & 7));
    }
    expect(32, "    sub.u32 %r1, 31, %r0;\n    shfl.sync.idx.b32 %r20, %r0, %r1, 31, -1;", |t| 31 - t);
    // A lane that does not take part has no defined value.
    let mut b = Bench::new(
        &["out"],
        "    ld.param.u64 %rd0, [out];\n    mov.u32 %r0, %tid.x;\n    mad.wide.u32 %rd1, %r0, 4, %rd0;\n    setp.ge.u32 %p0, %r0, 16;\n    \
         @%p0 bra END;\n    shfl.sync.idx.b32 %r1, %r0, 20, 31, 65535;\n    st.global.u32 [%rd1], %r1;\nEND:",
    );
    b.undefined(128);
    assert_eq!(b.run().unwrap_err().code, Code::Uninitialised);
}

#[test]
fn votes_and_reductions() {
    let odd = "    and.b32 %r1, %r0, 1;\n    setp.ne.u32 %p0, %r1, 0;\n";
    expect(64, &format!("{odd}    vote.sync.ballot.b32 %r20, %p0, -1;"), |_| 0xaaaa_aaaa);
    expect(64, &format!("{odd}    vote.sync.ballot.b32 %r20, !%p0, -1;"), |_| 0x5555_5555);
    for (mode, value) in [("all", 0), ("any", 1), ("uni", 0)] {
        expect(32, &format!("{odd}    vote.sync.{mode}.pred %p1, %p0, -1;\n    selp.b32 %r20, 1, 0, %p1;"), |_| value);
    }
    for (op, value) in
        [("add.u32", 31 * 16 + 320), ("min.s32", 10), ("max.u32", 41), ("and.b32", 0), ("or.b32", 63), ("xor.b32", 0)]
    {
        expect(32, &format!("    add.u32 %r1, %r0, 10;\n    redux.sync.{op} %r20, %r1, -1;"), |_| value);
    }
    expect(64, "    elect.sync %r1|%p0, -1;\n    selp.b32 %r20, 7, 3, %p0;\n    add.u32 %r20, %r20, %r1;", |t| {
        if t % 32 == 0 { 7 } else { 3 }
    });
}

#[test]
fn special_registers() {
    expect(96, "    mov.u32 %r20, %laneid;", |t| t % 32);
    expect(96, "    mov.u32 %r20, %warpid;", |t| t / 32);
    expect(40, "    mov.u32 %r20, %ntid.x;", |_| 40);
    expect(32, "    mov.u32 %r20, %lanemask_lt;", |t| (1u64 << t) as u32 - 1);
    expect(32, "    mov.u32 %r20, %dynamic_smem_size;", |_| 8192);
    expect(
        32,
        "    mov.u64 %rd5, %clock64;\n    mov.u64 %rd6, %clock64;\n    setp.ge.u64 %p0, %rd6, %rd5;\n    selp.b32 %r20, 1, 0, %p0;",
        |_| 1,
    );
    let grid = "    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ctaid.y;
    mov.u32 %r3, %ctaid.z;
    mov.u32 %r4, %nctaid.x;
    mov.u32 %r5, %nctaid.y;
    mad.lo.u32 %r6, %r3, %r5, %r2;
    mad.lo.u32 %r6, %r6, %r4, %r1;
    mad.lo.u32 %r7, %r6, 32, %r0;
    mad.wide.u32 %rd1, %r7, 4, %rd0;
    st.global.u32 [%rd1], %r7;";
    clean(
        || {
            let mut b = Bench::new(&["out"], grid);
            b.grid = [3, 4, 5];
            b.undefined(60 * 128);
            b
        },
        |b| assert_eq!(b.read_u32(ptr(b, 0), 60 * 32), (0..60 * 32).collect::<Vec<_>>()),
    );
}

#[test]
fn accesses_of_every_width() {
    let bytes: Vec<u8> = (0..64 * 32u32).map(|i| (i * 37 + 11) as u8).collect();
    let at = |i: usize, n: usize| bytes[i..i + n].iter().rev().fold(0u64, |v, b| v << 8 | u64::from(*b));
    for (ty, reg, width, count) in [
        ("u8", "%r", 1, 1),
        ("s8", "%r", 1, 1),
        ("u16", "%r", 2, 1),
        ("s16", "%r", 2, 1),
        ("b32", "%r", 4, 1),
        ("b16", "%h", 2, 1),
        ("b64", "%rd", 8, 1),
        ("u32", "%rd", 4, 1),
        ("s32", "%rd", 4, 1),
        ("b16", "%h", 2, 4),
        ("b32", "%r", 4, 2),
        ("b32", "%r", 4, 4),
        ("b64", "%rd", 8, 2),
        ("b8", "%h", 1, 4),
    ] {
        let names: Vec<String> = (10..10 + count).map(|i| format!("{reg}{i}")).collect();
        let (list, vector) = match count {
            1 => (names[0].clone(), String::new()),
            n => (format!("{{{}}}", names.join(", ")), format!(".v{n}")),
        };
        let size = width * count;
        // Through global memory, shared memory in runs, and shared memory in a permutation; and one lane in two alone.
        let body = format!(
            "    ld.param.u64 %rd0, [x];
    ld.param.u64 %rd1, [out];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    mad.wide.u32 %rd2, %r0, {size}, %rd0;
    mad.wide.u32 %rd3, %r0, {size}, %rd1;
    ld.global{vector}.{ty} {list}, [%rd2];
    mad.lo.u32 %r2, %r0, {size}, %r1;
    st.shared{vector}.{ty} [%r2], {list};
    bar.sync 0;
    ld.shared{vector}.{ty} {list}, [%r2];
    xor.b32 %r3, %r0, 5;
    mad.lo.u32 %r3, %r3, {size}, %r1;
    st.shared{vector}.{ty} [%r3+4096], {list};
    bar.sync 0;
    and.b32 %r4, %r0, 1;
    setp.eq.u32 %p0, %r4, 0;
    @%p0 ld.shared{vector}.{ty} {list}, [%r3+4096];
    @!%p0 ld.shared{vector}.{ty} {list}, [%r3+4096];
    @%p0 st.global{vector}.{ty} [%rd3], {list};
    @!%p0 st.global{vector}.{ty} [%rd3], {list};"
        );
        clean(
            || {
                let mut b = Bench::new(&["x", "out"], &body).block(64);
                b.buffer(&bytes);
                b.undefined(64 * size as u64);
                b
            },
            |b| {
                let mut out = vec![0; 64 * size];
                b.memory.read(ptr(b, 1), &mut out).unwrap();
                assert!(out == bytes[..64 * size], "{ty} x {count}");
            },
        );
    }
    // Extension to the register.
    let extend = |ty: &str, size: u32| {
        let body = format!(
            "    mov.u32 %r1, smem;\n    mad.lo.u32 %r2, %r0, 4, %r1;\n    mad.lo.u32 %r3, %r0, 50529027, 2155905152;\n    \
             st.shared.u32 [%r2], %r3;\n    ld.shared.{ty} %r20, [%r2+{}];",
            4 - size
        );
        values(32, &body)
    };
    let word = |t: u32| t.wrapping_mul(50529027).wrapping_add(2155905152);
    assert_eq!(extend("s8", 1), (0..32).map(|t| (word(t) as i32 >> 24) as u32).collect::<Vec<_>>());
    assert_eq!(extend("u8", 1), (0..32).map(|t| word(t) >> 24).collect::<Vec<_>>());
    assert_eq!(extend("s16", 2), (0..32).map(|t| (word(t) as i32 >> 16) as u32).collect::<Vec<_>>());
    assert_eq!(at(0, 2), u64::from(bytes[1]) << 8 | u64::from(bytes[0]));
}

#[test]
fn generic_addresses_reach_both_memories() {
    let body = "    mov.u64 %rd5, smem;
    cvta.shared.u64 %rd5, %rd5;
    mad.wide.u32 %rd6, %r0, 4, %rd5;
    st.u32 [%rd6], %r0;
    ld.u32 %r5, [%rd6];
    st.u32 [%rd1], %r5;
    ld.u32 %r20, [%rd1];
    cvta.to.global.u64 %rd7, %rd1;
    st.global.u32 [%rd7], %r20;";
    expect(32, body, |t| t);
}

#[test]
fn atomics_of_every_kind() {
    let run = |op: &str, ty: &str, start: u64, operand: &str| -> (u64, Vec<u64>) {
        let bits = if ty.ends_with("64") { 64 } else { 32 };
        let (reg, size) = if bits == 64 { ("%rd10", 8) } else { ("%r10", 4) };
        let body = format!(
            "    ld.param.u64 %rd0, [cell];\n    ld.param.u64 %rd1, [out];\n    mov.u32 %r0, %tid.x;\n    cvt.u64.u32 %rd8, %r0;\n    \
             cvt.rn.f32.u32 %r8, %r0;\n    mad.wide.u32 %rd2, %r0, {size}, %rd1;\n    \
             atom.relaxed.gpu.global.{op}.{ty} {reg}, [%rd0], {operand};\n    st.global.b{bits} [%rd2], {reg};"
        );
        let mut b = Bench::new(&["cell", "out"], &body);
        b.buffer(&start.to_le_bytes());
        b.undefined(32 * size);
        b.run().unwrap_or_else(|r| panic!("{r}"));
        let mut bytes = vec![0; 32 * size as usize];
        b.memory.read(ptr(&b, 1), &mut bytes).unwrap();
        let read = |c: &[u8]| c.iter().rev().fold(0u64, |v, b| v << 8 | u64::from(*b));
        let mut cell = vec![0; size as usize];
        b.memory.read(ptr(&b, 0), &mut cell).unwrap();
        (read(&cell), bytes.chunks(size as usize).map(read).collect())
    };
    assert_eq!(run("add", "u32", 5, "%r0"), (5 + 496, (0..32).map(|t| 5 + t * (t.max(1) - 1) / 2).collect()));
    assert_eq!(run("add", "u64", 1 << 40, "%rd8").0, (1 << 40) + 496);
    assert_eq!(run("add", "f32", u64::from(1f32.to_bits()), "%r8").0, u64::from(497f32.to_bits()));
    assert_eq!(run("inc", "u32", 0, "6").0, 32 % 7);
    assert_eq!(run("dec", "u32", 3, "6").1[..6], [3, 2, 1, 0, 6, 5]);
    assert_eq!(run("min", "s32", 5, "-3").0, (-3i32) as u32 as u64);
    assert_eq!(run("max", "u32", 5, "%r0").0, 31);
    assert_eq!(run("max", "s64", 5, "-1").0, 5);
    assert_eq!(run("or", "b32", 0, "%r0").0, 31);
    assert_eq!(run("and", "b64", 0xff, "%rd8").0, 0);
    assert_eq!(run("xor", "b32", 0, "%r0").0, 0);
    assert_eq!(run("exch", "b32", 9, "%r0"), (31, std::iter::once(9).chain(0..31).collect()));
    // Compare and swap: only lane 3 meets its value.
    assert_eq!(run("cas", "b32", 3, "%r0, 77").0, 77);
}

#[test]
fn reductions_from_many_ctas_do_not_race() {
    let body = "    ld.param.u64 %rd0, [x];\n    mov.u32 %r0, %tid.x;\n    mad.wide.u32 %rd1, %r0, 4, %rd0;\n    red.relaxed.gpu.global.add.u32 [%rd1], %r0;";
    clean(
        || {
            let mut b = Bench::new(&["x"], body).grid(9).block(64);
            b.buffer(&[0; 256]);
            b
        },
        |b| assert_eq!(b.read_u32(ptr(b, 0), 64), (0..64).map(|t| 9 * t).collect::<Vec<_>>()),
    );
}

#[test]
fn kernel_boundaries_order_everything() {
    let body = "    ld.param.u64 %rd0, [x];\n    mov.u32 %r0, %tid.x;\n    xor.b32 %r0, %r0, 63;\n    mad.wide.u32 %rd1, %r0, 4, %rd0;\n    ld.global.u32 %r1, [%rd1];\n    add.u32 %r1, %r1, 1;\n    st.global.u32 [%rd1], %r1;";
    let mut b = Bench::new(&["x"], body).block(64);
    b.buffer(&[0; 256]);
    for _ in 0..3 {
        b.run().unwrap_or_else(|r| panic!("{r}"));
        // The next launch touches every word from another warp.
        b.text = b.text.replace("63;", "31;");
    }
    assert_eq!(b.read_u32(ptr(&b, 0), 64), vec![3; 64]);
}

#[test]
fn clusters_meet_at_their_barrier() {
    // CTA 1 of each cluster reads what CTA 0 wrote, after the cluster barrier.
    let kernel = |barrier: &str| {
        let body = format!(
            "    ld.param.u64 %rd0, [x];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %cluster_ctarank;
    mad.lo.u32 %r3, %r1, 64, %r0;
    mad.wide.u32 %rd1, %r3, 4, %rd0;
    setp.ne.u32 %p0, %r2, 0;
    @!%p0 st.global.u32 [%rd1], %r3;
    {barrier}
    @%p0 ld.global.u32 %r4, [%rd1+-256];
    @%p0 st.global.u32 [%rd1], %r4;"
        );
        let mut b = Bench::new(&["x"], &body).block(64).grid(6);
        b.undefined(6 * 256);
        b
    };
    let text = |b: &mut Bench| b.text.clone();
    let both = "barrier.cluster.arrive.release.aligned;\n    barrier.cluster.wait.acquire.aligned;";
    for (barrier, ok) in
        [(both, true), ("barrier.cluster.arrive.relaxed.aligned;\n    barrier.cluster.wait.aligned;", false)]
    {
        for (schedule, seed) in common::schedules() {
            let mut b = kernel(barrier);
            let program = Program::load(&text(&mut b)).unwrap();
            let launch = kda_sim::Launch { cluster: 2, ..kda_sim::Launch::new([6, 1, 1], 64, &b.params) };
            let options = kda_sim::Options { schedule, seed, ..b.options };
            let result = kda_sim::run(&program, &launch, &mut b.memory, &options);
            match (ok, result) {
                (true, result) => {
                    result.unwrap_or_else(|r| panic!("{r}"));
                    let want: Vec<u32> = (0..384).map(|i| i / 128 * 128 + i % 64).collect();
                    assert_eq!(b.read_u32(ptr(&b, 0), 384), want);
                }
                (false, result) => assert_eq!(result.unwrap_err().code, Code::Race),
            }
        }
    }
}

#[test]
fn memory_is_sparse_and_far_apart() {
    let mut memory = Memory::new();
    let pool = memory.allocate(20 << 30).unwrap();
    let next = memory.allocate(1).unwrap();
    assert!(pool >= 0x7f00_0000_0000 && pool.is_multiple_of(256) && next >= pool + (20 << 30) + 256);
    memory.write(pool + (19 << 30) - 2, &[1, 2, 3, 4]).unwrap();
    let mut bytes = [0; 4];
    memory.read(pool + (19 << 30) - 2, &mut bytes).unwrap();
    assert_eq!(bytes, [1, 2, 3, 4]);
    assert!(memory.committed_bytes() <= 2 << 16);
    assert!(memory.is_defined(pool + (19 << 30) - 2, 4).unwrap());
    assert!(!memory.is_defined(pool + (19 << 30) - 3, 4).unwrap());
    assert!(memory.write(pool + (20 << 30) - 1, &[0, 0]).is_err());
    assert!(memory.read(next + 1, &mut bytes[..1]).is_err());
    assert!(memory.fill(next, 7, 1).is_ok());
}

#[test]
fn programs_that_cannot_run_say_why() {
    let load = |body: &str| Program::load(&common::module(&["x"], body)).unwrap_err();
    assert!(matches!(load("    bra NOWHERE;"), LoadError::Label { line: 15, .. }));
    assert!(matches!(load("A:\nA:"), LoadError::Label { problem: "defined twice", .. }));
    assert!(matches!(load("    mov.u32 %r500, 1;"), LoadError::Register { declared: 128, .. }));
    assert!(matches!(load("    add.u32 %r0, %rd0, 1;"), LoadError::Operand { .. }));
    assert!(matches!(load("    mov.u32 %r0, y;"), LoadError::Operand { .. }));
    assert!(matches!(load("    ld.param.u64 %rd0, [x+8];"), LoadError::Operand { .. }));
    assert!(matches!(load("    ld.global.v2.f32 %r0, [%rd0];"), LoadError::Operand { .. }));
    assert!(matches!(load("    ld.local.u32 %r0, [%rd0];"), LoadError::Unsupported { .. }));
    assert!(matches!(load("    nonsense;"), LoadError::Parse(_)));
    assert!(matches!(Program::load_entry(&common::module(&[], ""), "other"), Err(LoadError::Entry { .. })));
    let error = load("    add.u32 %r0, %rd0, 1;").to_string();
    assert!(error.contains("line 15") && error.contains("%rd0"), "{error}");
}

#[test]
fn dependent_launch_is_recorded() {
    let body = "    ld.param.u64 %rd0, [x];\n    ld.global.u32 %r0, [%rd0];\n    griddepcontrol.wait;\n    griddepcontrol.launch_dependents;\n    ld.global.u32 %r1, [%rd0];";
    let mut b = Bench::new(&["x"], body);
    b.buffer(&[0; 4]);
    let stats = b.run().unwrap();
    assert!(stats.dependency_wait && stats.launch_dependents && stats.read_before_wait && !stats.wrote_before_wait);
    b.text = b.text.replace("    ld.global.u32 %r0, [%rd0];\n", "");
    assert!(!b.run().unwrap().read_before_wait);
}
