//! What warps and CTAs do together: shuffles, votes and reductions; shared memory between barriers; atomics whose order does
//! not show; matrices, and products of small whole numbers, whose sums are exact in any order.

use super::forms::{Closeness, Kind};
use super::generate::{COMBINED, Writer};

/// Bytes of shared memory that every thread owns.
const OWN: u32 = 16;
/// Bytes of shared memory that atomics combine: six operations on eight words of 32 bits, four on four of 64.
const SHARED_COMBINED: u32 = 6 * 32 + 4 * 32;

/// Operations of atomics, with the types in which the result does not depend on their order.
const NARROW: [&str; 6] = ["add.u32", "min.u32", "max.s32", "and.b32", "or.b32", "xor.b32"];
const WIDE: [&str; 4] = ["add.u64", "min.s64", "max.u64", "xor.b64"];

/// Shared memory of a program.
pub fn shared_bytes(block: u32) -> u32 {
    block * OWN + SHARED_COMBINED
}

/// Addresses that stay: the thread's own bytes, those of all; and first values of what is combined.
pub(super) fn prepare(writer: &mut Writer) {
    let combined = writer.block * OWN;
    let words = SHARED_COMBINED / 4;
    for line in [
        "mov.u32 %r62, smem;".to_string(),
        format!("mad.lo.u32 %r63, %r60, {OWN}, %r62;"),
        format!("add.u32 %r64, %r62, {combined};"),
        // Lane r of a warp owns row r of four matrices.
        "st.shared.v4.b32 [%r63], {%r0, %r1, %r2, %r3};".to_string(),
        "mov.u32 %r40, %r60;".to_string(),
        "$Lfirst:".to_string(),
        format!("setp.ge.u32 %p15, %r40, {words};"),
        "@%p15 bra $Lprepared;".to_string(),
        "mad.lo.u32 %r41, %r40, 4, %r64;".to_string(),
        "mul.lo.u32 %r42, %r40, -1640531527;".to_string(),
        "st.shared.b32 [%r41], %r42;".to_string(),
        format!("add.u32 %r40, %r40, {};", writer.block),
        "bra $Lfirst;".to_string(),
        "$Lprepared:".to_string(),
        "bar.sync 0;".to_string(),
    ] {
        writer.line(line);
    }
}

/// One statement that all threads of the CTA execute.
pub(super) fn statement(writer: &mut Writer) {
    match writer.rng.below(12) {
        0..3 => shuffle(writer),
        3 => vote(writer),
        4 => reduce(writer),
        5 | 6 => exchange(writer),
        7 => combine_shared(writer),
        8 => combine_global(writer),
        9 | 10 => matrices(writer),
        _ => product(writer),
    }
}

fn shuffle(writer: &mut Writer) {
    let kind = writer.rng.choose(&[Kind::R, Kind::F32]);
    let (d, a, p) = (writer.any(kind), writer.any(kind), writer.any(Kind::P));
    let mode = writer.rng.choose(&["up", "down", "bfly", "idx"]);
    // Segments of 32, 16 or 8 lanes: the mask in the high half, the bound in the low one.
    let segment = writer.rng.choose(&[0u32, 16, 24]);
    let clamp = segment << 8 | if mode == "up" { 0 } else { 31 };
    let lane = match writer.rng.coin() {
        true => writer.rng.below(32).to_string(),
        false => writer.any(Kind::R),
    };
    let destination = if writer.rng.coin() { format!("{d}|{p}") } else { d.clone() };
    let text = format!("shfl.sync.{mode}.b32 {destination}, {a}, {lane}, {clamp}, -1;");
    writer.line(text.clone());
    writer.keep(kind, &d, Closeness::Bits, &text);
    writer.keep(Kind::P, &p, Closeness::Bits, &text);
}

fn vote(writer: &mut Writer) {
    let source = writer.any(Kind::P);
    let not = writer.rng.choose(&["", "!"]);
    let (mode, ty, kind) = writer.rng.choose(&[
        ("all", "pred", Kind::P),
        ("any", "pred", Kind::P),
        ("uni", "pred", Kind::P),
        ("ballot", "b32", Kind::R),
    ]);
    let d = writer.any(kind);
    let text = format!("vote.sync.{mode}.{ty} {d}, {not}{source}, -1;");
    writer.line(text.clone());
    writer.keep(kind, &d, Closeness::Bits, &text);
}

fn reduce(writer: &mut Writer) {
    let (d, a) = (writer.any(Kind::R), writer.any(Kind::R));
    let op = writer
        .rng
        .choose(&["add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32", "or.b32", "xor.b32"]);
    let text = format!("redux.sync.{op} {d}, {a}, -1;");
    writer.line(text.clone());
    writer.keep(Kind::R, &d, Closeness::Bits, &text);
}

/// The address of 16 bytes that any thread owns, in `%r40`.
fn anywhere(writer: &mut Writer) {
    let source = writer.any(Kind::R);
    let last = writer.block - 1;
    writer.line(format!("and.b32 %r40, {source}, {last};"));
    writer.line(format!("mad.lo.u32 %r40, %r40, {OWN}, %r62;"));
}

/// Every thread writes its bytes, and reads those of another.
fn exchange(writer: &mut Writer) {
    let stores: [(&str, Vec<Kind>); 5] = [
        (".v4.b32", vec![Kind::R; 4]),
        (".v4.b32", vec![Kind::R, Kind::R, Kind::R, Kind::R]),
        (".v2.b64", vec![Kind::D; 2]),
        (".b64", vec![Kind::D]),
        (".b16", vec![Kind::H]),
    ];
    let (ty, kinds) = &stores[writer.rng.below(stores.len())];
    let sources: Vec<String> = kinds.iter().map(|kind| writer.any(*kind)).collect();
    let list = if sources.len() == 1 { sources[0].clone() } else { format!("{{{}}}", sources.join(", ")) };
    writer.line(format!("st.shared{ty} [%r63], {list};"));
    writer.line("bar.sync 0;");
    anywhere(writer);
    let (ty, kind, offset) = writer.rng.choose(&[
        (".b64", Kind::D, 8),
        (".b32", Kind::R, 4),
        (".b16", Kind::H, 2),
        (".u16", Kind::R, 6),
        (".s8", Kind::R, 3),
        (".u8", Kind::R, 15),
        (".b64", Kind::D, 0),
    ]);
    let d = writer.any(kind);
    let text = format!("ld.shared{ty} {d}, [%r40+{offset}];");
    writer.line(text.clone());
    // Read by all ahead of the next phase.
    writer.line("bar.sync 0;");
    writer.keep(kind, &d, Closeness::Bits, &text);
}

/// Atomics of a CTA on shared memory, each operation on words of its own; then the words are read.
fn combine_shared(writer: &mut Writer) {
    for _ in 0..1 + writer.rng.below(4) {
        let (index, value) = (writer.any(Kind::R), writer.any(Kind::R));
        let wide = writer.rng.below(3) == 0;
        let op = writer.rng.below(if wide { WIDE.len() } else { NARROW.len() });
        let (name, value, base, size, mask) = match wide {
            true => (WIDE[op], writer.any(Kind::D), 6 * 32 + 32 * op, 8, 3),
            false => (NARROW[op], value, 32 * op, 4, 7),
        };
        writer.line(format!("and.b32 %r40, {index}, {mask};"));
        writer.line(format!("mad.lo.u32 %r40, %r40, {size}, %r64;"));
        match (writer.rng.coin(), wide) {
            (true, _) => writer.line(format!("red.shared.{name} [%r40+{base}], {value};")),
            (false, true) => writer.line(format!("atom.shared.{name} %rd30, [%r40+{base}], {value};")),
            (false, false) => writer.line(format!("atom.shared.{name} %r41, [%r40+{base}], {value};")),
        }
    }
    writer.line("bar.sync 0;");
    let (index, d) = (writer.any(Kind::R), writer.any(Kind::R));
    writer.line(format!("and.b32 %r40, {index}, 63;"));
    writer.line("mad.lo.u32 %r40, %r40, 4, %r64;");
    let text = format!("ld.shared.b32 {d}, [%r40];");
    writer.line(text.clone());
    writer.line("bar.sync 0;");
    writer.keep(Kind::R, &d, Closeness::Bits, &text);
}

/// Atomics of all CTAs; the kernel never reads the result.
fn combine_global(writer: &mut Writer) {
    let index = writer.any(Kind::R);
    let wide = writer.rng.coin();
    let op = writer.rng.below(if wide { WIDE.len() } else { NARROW.len() });
    let (name, value, base, size, mask) = match wide {
        true => (WIDE[op], writer.any(Kind::D), 6 * 32 + 32 * op, 8, 3),
        false => (NARROW[op], writer.any(Kind::R), 32 * op, 4, 7),
    };
    debug_assert!((base + 32) as u64 <= COMBINED);
    writer.line(format!("and.b32 %r40, {index}, {mask};"));
    writer.line(format!("mul.wide.u32 %rd30, %r40, {size};"));
    writer.line("add.u64 %rd30, %rd4, %rd30;");
    let scope = writer.rng.choose(&["", ".relaxed.gpu", ".relaxed.sys"]);
    match (writer.rng.coin(), wide) {
        (true, _) => writer.line(format!("red{scope}.global.{name} [%rd30+{base}], {value};")),
        (false, true) => writer.line(format!("atom{scope}.global.{name} %rd31, [%rd30+{base}], {value};")),
        (false, false) => writer.line(format!("atom{scope}.global.{name} %r41, [%rd30+{base}], {value};")),
    }
}

/// Rows of a warp's own matrices, in any order, loaded or stored and loaded.
fn matrices(writer: &mut Writer) {
    let trans = writer.rng.choose(&["", ".trans"]);
    let (name, count) = writer.rng.choose(&[("x1", 1), ("x2", 2), ("x4", 4)]);
    writer.line("bar.warp.sync -1;");
    if writer.rng.below(3) == 0 {
        let (d, a) = (writer.any(Kind::R), writer.any(Kind::R));
        let text = format!("movmatrix.sync.aligned.m8n8.trans.b16 {d}, {a};");
        writer.line(text.clone());
        return writer.keep(Kind::R, &d, Closeness::Bits, &text);
    }
    // Row `lane ^ mask` of the warp's 32 rows.
    let mask = writer.rng.below(32);
    writer.line(format!("xor.b32 %r40, %r60, {mask};"));
    writer.line(format!("mad.lo.u32 %r40, %r40, {OWN}, %r62;"));
    let registers = |writer: &mut Writer| -> Vec<String> {
        let first = writer.rng.below(8);
        (0..count).map(|index| super::generate::register(Kind::R, first + index)).collect()
    };
    if writer.rng.coin() {
        let sources = registers(writer).join(", ");
        writer.line(format!("stmatrix.sync.aligned.m8n8.{name}{trans}.shared.b16 [%r40], {{{sources}}};"));
        writer.line("bar.sync 0;");
    }
    let destinations = registers(writer);
    let text = format!("ldmatrix.sync.aligned.m8n8.{name}{trans}.shared.b16 {{{}}}, [%r40];", destinations.join(", "));
    writer.line(text.clone());
    writer.line("bar.sync 0;");
    for destination in &destinations {
        writer.keep(Kind::R, destination, Closeness::Bits, &text);
    }
}

/// A product of whole numbers from -4 to 3.
fn product(writer: &mut Writer) {
    let (kind, pack, a, b) = writer.rng.choose(&[
        ("m16n8k16.row.col.f32.bf16.bf16.f32", "cvt.rn.bf16x2.f32", 4, 2),
        ("m16n8k16.row.col.f32.f16.f16.f32", "cvt.rn.f16x2.f32", 4, 2),
        ("m16n8k8.row.col.f32.bf16.bf16.f32", "cvt.rn.bf16x2.f32", 2, 1),
        ("m16n8k8.row.col.f32.tf32.tf32.f32", "", 4, 2),
        ("m16n8k4.row.col.f32.tf32.tf32.f32", "", 2, 1),
    ]);
    let small = |writer: &mut Writer, register: &str| {
        let source = writer.any(Kind::R);
        writer.line(format!("and.b32 {register}, {source}, 7;"));
        writer.line(format!("sub.s32 {register}, {register}, 4;"));
        writer.line(format!("cvt.rn.f32.s32 {register}, {register};"));
    };
    // A and B in %r66 and on, C in %r72 and on.
    for next in 66..66 + a + b {
        let register = format!("%r{next}");
        small(writer, &register);
        if !pack.is_empty() {
            small(writer, "%r41");
            writer.line(format!("{pack} {register}, {register}, %r41;"));
        }
    }
    for index in 72..76 {
        small(writer, &format!("%r{index}"));
    }
    let list = |range: std::ops::Range<usize>| range.map(|index| format!("%r{index}")).collect::<Vec<_>>().join(", ");
    let (a, b) = (list(66..66 + a), list(66 + a..66 + a + b));
    let text = format!("mma.sync.aligned.{kind} {{{}}}, {{{a}}}, {{{b}}}, {{{}}};", list(76..80), list(72..76));
    writer.line("bar.warp.sync -1;");
    writer.line(text.clone());
    for index in 76..80 {
        let register = format!("%r{index}");
        writer.keep(Kind::F32, &register, Closeness::Bits, &text);
    }
    let d = writer.any(Kind::F32);
    writer.line(format!("mov.b32 {d}, %r77;"));
}
