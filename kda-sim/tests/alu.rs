//! Every arithmetic instruction against a computation in Rust, over edge values and random ones, on both builds.

mod common;

use half::{bf16, f16};
use kda_sim::{Launch, Memory, Options, Program, run};

const EDGES32: [u32; 28] = [
    0,
    1,
    2,
    31,
    32,
    33,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0x8000,
    0xffff,
    0x10000,
    0x7fff_ffff,
    0x8000_0000,
    0x8000_0001,
    0xffff_ffff,
    0x3f80_0000,
    0xbf80_0000,
    0x3f00_0000,
    0x7f7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_1234,
    0x0080_0000,
    0x007f_ffff,
    0x4b00_0001,
    0x3eaa_aaab,
];

/// A generator of test values; its seed stands in every failure.
struct Values(u64);

impl Values {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let x = self.0 ^ (self.0 >> 33);
        x.wrapping_mul(0xff51_afd7_ed55_8ccd) ^ (x >> 29)
    }

    fn u32(&mut self) -> u32 {
        match self.next() % 4 {
            0 => EDGES32[(self.next() % EDGES32.len() as u64) as usize],
            // Floats of moderate size.
            1 => (self.next() as u32 & 0x807f_ffff) | (120 + (self.next() % 16) as u32) << 23,
            2 => (self.next() % 70) as u32,
            _ => self.next() as u32,
        }
    }

    fn u64(&mut self) -> u64 {
        match self.next() % 4 {
            0 => u64::from(self.u32()),
            1 => (self.next() & 0x800f_ffff_ffff_ffff) | (1015 + self.next() % 16) << 52,
            2 => [0, 1, u64::MAX, 1 << 63, (1 << 63) - 1, 0x7ff0 << 48, 0x3ff0 << 48][(self.next() % 7) as usize],
            _ => self.next(),
        }
    }
}

const SEED: u64 = 20_270_131;
const LANES: usize = 1024;

/// Runs `body` over inputs: 64-bit `%rd10..%rd12` with low halves `%r10..%r12` and low quarters `%h10..%h12`; gives
/// `%rd20`, into which the body or its epilogue has put the result.
fn run_body(body: &str, inputs: &[[u64; 3]], portable: bool) -> Vec<u64> {
    let text = common::module(
        &["input", "output"],
        &format!(
            "    ld.param.u64 %rd0, [input];\n    ld.param.u64 %rd1, [output];\n    mov.u32 %r0, %tid.x;\n    \
             mad.wide.u32 %rd2, %r0, 24, %rd0;\n    mad.wide.u32 %rd3, %r0, 8, %rd1;\n    \
             ld.global.b64 %rd10, [%rd2];\n    ld.global.b64 %rd11, [%rd2+8];\n    ld.global.b64 %rd12, [%rd2+16];\n    \
             cvt.u32.u64 %r10, %rd10;\n    cvt.u32.u64 %r11, %rd11;\n    cvt.u32.u64 %r12, %rd12;\n    \
             cvt.u16.u32 %h10, %r10;\n    cvt.u16.u32 %h11, %r11;\n    cvt.u16.u32 %h12, %r12;\n    \
             mov.b32 %r20, 0;\n    mov.b16 %h20, 0;\n    setp.lt.s32 %p10, %r12, 0;\n    mov.b64 %rd20, 0;\n    {body}\n    \
             st.global.b64 [%rd3], %rd20;"
        ),
    );
    let program = if portable { Program::load_portable(&text) } else { Program::load(&text) };
    let program = program.unwrap_or_else(|e| panic!("{body}: {e}"));
    let mut memory = Memory::new();
    let bytes: Vec<u8> = inputs.iter().flatten().flat_map(|v| v.to_le_bytes()).collect();
    let input = memory.allocate(bytes.len() as u64).unwrap();
    memory.write(input, &bytes).unwrap();
    let output = memory.allocate(inputs.len() as u64 * 8).unwrap();
    let params: Vec<u8> = [input, output].iter().flat_map(|p| p.to_le_bytes()).collect();
    let launch = Launch::new([1, 1, 1], inputs.len() as u32, &params);
    run(&program, &launch, &mut memory, &Options::default()).unwrap_or_else(|r| panic!("{body}: {r}"));
    let mut out = vec![0; inputs.len() * 8];
    memory.read(output, &mut out).unwrap();
    out.chunks(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect()
}

fn inputs(values: &mut Values) -> Vec<[u64; 3]> {
    (0..LANES)
        .map(|_| {
            [values.u64(), values.u64(), values.u64()]
                .map(|v| if v % 3 == 0 { v } else { v & !0xffff_ffff | u64::from(Values(v).u32()) })
        })
        .collect()
}

fn check(body: &str, model: impl Fn(u64, u64, u64) -> u64) {
    check_with(body, model, |got, want| got == want);
}

fn check_with(body: &str, model: impl Fn(u64, u64, u64) -> u64, same: impl Fn(u64, u64) -> bool) {
    let inputs = inputs(&mut Values(SEED));
    let fast = run_body(body, &inputs, false);
    assert_eq!(fast, run_body(body, &inputs, true), "{body}: the builds differ");
    for ([a, b, c], got) in inputs.iter().zip(fast) {
        let want = model(*a, *b, *c);
        assert!(same(got, want), "{body} of {a:#x} {b:#x} {c:#x} (seed {SEED}): {got:#x}, not {want:#x}");
    }
}

/// A 32-bit instruction `op %r20, ...`.
fn check32(op: &str, operands: &str, model: impl Fn(u32, u32, u32) -> u32) {
    let body = format!("{op} %r20, {operands};\n    cvt.u64.u32 %rd20, %r20;");
    check(&body, |a, b, c| u64::from(model(a as u32, b as u32, c as u32)));
}

fn check64(op: &str, operands: &str, model: impl Fn(u64, u64, u64) -> u64) {
    check(&format!("{op} %rd20, {operands};"), model);
}

fn check16(op: &str, operands: &str, model: impl Fn(u16, u16, u16) -> u16) {
    let body = format!("{op} %h20, {operands};\n    cvt.u64.u16 %rd20, %h20;");
    check(&body, |a, b, c| u64::from(model(a as u16, b as u16, c as u16)));
}

#[test]
fn integers() {
    let ab = "%r10, %r11";
    check32("add.u32", ab, |a, b, _| a.wrapping_add(b));
    check32("add.sat.s32", ab, |a, b, _| (a as i32).saturating_add(b as i32) as u32);
    check32("sub.s32", ab, |a, b, _| a.wrapping_sub(b));
    check32("sub.sat.s32", ab, |a, b, _| (a as i32).saturating_sub(b as i32) as u32);
    check32("mul.lo.u32", ab, |a, b, _| a.wrapping_mul(b));
    check32("mul.hi.u32", ab, |a, b, _| ((u64::from(a) * u64::from(b)) >> 32) as u32);
    check32("mul.hi.s32", ab, |a, b, _| ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32);
    check32("mad.lo.s32", "%r10, %r11, %r12", |a, b, c| a.wrapping_mul(b).wrapping_add(c));
    check32("mad.hi.u32", "%r10, %r11, %r12", |a, b, c| (((u64::from(a) * u64::from(b)) >> 32) as u32).wrapping_add(c));
    check32("div.u32", ab, |a, b, _| a.checked_div(b).unwrap_or(u32::MAX));
    check32("rem.u32", ab, |a, b, _| if b == 0 { a } else { a % b });
    check32("div.s32", ab, |a, b, _| if b == 0 { u32::MAX } else { (a as i32).wrapping_div(b as i32) as u32 });
    check32("rem.s32", ab, |a, b, _| if b == 0 { a } else { (a as i32).wrapping_rem(b as i32) as u32 });
    check32("min.u32", ab, |a, b, _| a.min(b));
    check32("max.u32", ab, |a, b, _| a.max(b));
    check32("min.s32", ab, |a, b, _| (a as i32).min(b as i32) as u32);
    check32("max.s32", ab, |a, b, _| (a as i32).max(b as i32) as u32);
    check32("neg.s32", "%r10", |a, _, _| (a as i32).wrapping_neg() as u32);
    check32("abs.s32", "%r10", |a, _, _| (a as i32).wrapping_abs() as u32);
    check64("mul.wide.u32", ab, |a, b, _| u64::from(a as u32) * u64::from(b as u32));
    check64("mul.wide.s32", ab, |a, b, _| (i64::from(a as i32) * i64::from(b as i32)) as u64);
    check64("mad.wide.u32", "%r10, %r11, %rd12", |a, b, c| (u64::from(a as u32) * u64::from(b as u32)).wrapping_add(c));
    check64("mad.wide.s32", "%r10, %r11, %rd12", |a, b, c| {
        ((i64::from(a as i32) * i64::from(b as i32)) as u64).wrapping_add(c)
    });
    let ab = "%rd10, %rd11";
    check64("add.u64", ab, |a, b, _| a.wrapping_add(b));
    check64("sub.s64", ab, |a, b, _| a.wrapping_sub(b));
    check64("mul.lo.u64", ab, |a, b, _| a.wrapping_mul(b));
    check64("mul.hi.u64", ab, |a, b, _| ((u128::from(a) * u128::from(b)) >> 64) as u64);
    check64("mul.hi.s64", ab, |a, b, _| ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64);
    check64("mad.lo.u64", "%rd10, %rd11, %rd12", |a, b, c| a.wrapping_mul(b).wrapping_add(c));
    check64("div.u64", ab, |a, b, _| a.checked_div(b).unwrap_or(u64::MAX));
    check64("rem.s64", ab, |a, b, _| if b == 0 { a } else { (a as i64).wrapping_rem(b as i64) as u64 });
    check64("min.s64", ab, |a, b, _| (a as i64).min(b as i64) as u64);
    check64("max.u64", ab, |a, b, _| a.max(b));
    let ab = "%h10, %h11";
    check16("add.u16", ab, |a, b, _| a.wrapping_add(b));
    check16("sub.s16", ab, |a, b, _| a.wrapping_sub(b));
    check16("mul.lo.u16", ab, |a, b, _| a.wrapping_mul(b));
    check16("mul.hi.s16", ab, |a, b, _| ((i32::from(a as i16) * i32::from(b as i16)) >> 16) as u16);
    check16("min.s16", ab, |a, b, _| (a as i16).min(b as i16) as u16);
    check16("max.u16", ab, |a, b, _| a.max(b));
    check16("div.s16", ab, |a, b, _| if b == 0 { u16::MAX } else { (a as i16).wrapping_div(b as i16) as u16 });
    check16("neg.s16", "%h10", |a, _, _| (a as i16).wrapping_neg() as u16);
    check32("mul.wide.s16", ab, |a, b, _| (i32::from(a as i16) * i32::from(b as i16)) as u32);
    check32("mad.wide.u16", "%h10, %h11, %r12", |a, b, c| (u32::from(a as u16) * u32::from(b as u16)).wrapping_add(c));
}

#[test]
fn bits() {
    check32("and.b32", "%r10, %r11", |a, b, _| a & b);
    check32("or.b32", "%r10, 255", |a, _, _| a | 255);
    check32("xor.b32", "%r10, -1", |a, _, _| !a);
    check32("not.b32", "%r10", |a, _, _| !a);
    check64("and.b64", "%rd10, %rd11", |a, b, _| a & b);
    check64("not.b64", "%rd10", |a, _, _| !a);
    check16("not.b16", "%h10", |a, _, _| !a);
    check16("xor.b16", "%h10, %h11", |a, b, _| a ^ b);
    check32("shl.b32", "%r10, %r11", |a, n, _| a.checked_shl(n).unwrap_or(0));
    check32("shr.u32", "%r10, %r11", |a, n, _| a.checked_shr(n).unwrap_or(0));
    check32("shr.s32", "%r10, %r11", |a, n, _| ((a as i32) >> n.min(31)) as u32);
    check64("shl.b64", "%rd10, %r11", |a, n, _| a.checked_shl(n as u32).unwrap_or(0));
    check64("shr.u64", "%rd10, %r11", |a, n, _| a.checked_shr(n as u32).unwrap_or(0));
    check64("shr.s64", "%rd10, %r11", |a, n, _| ((a as i64) >> (n as u32).min(63)) as u64);
    let body16 = |op: &str| format!("{op} %h20, %h10, %r11;\n    cvt.u64.u16 %rd20, %h20;");
    check(&body16("shl.b16"), |a, n, _| if n as u32 > 15 { 0 } else { (a << n as u32) & 0xffff });
    check(&body16("shr.s16"), |a, n, _| u64::from((i32::from(a as i16) >> (n as u32).min(15)) as u16));
    let wide = |a: u32, b: u32| u64::from(b) << 32 | u64::from(a);
    check32("shf.l.wrap.b32", "%r10, %r11, %r12", |a, b, n| (wide(a, b) << (n & 31) >> 32) as u32);
    check32("shf.r.wrap.b32", "%r10, %r11, %r12", |a, b, n| (wide(a, b) >> (n & 31)) as u32);
    check32("shf.l.clamp.b32", "%r10, %r11, %r12", |a, b, n| if n > 31 { a } else { (wide(a, b) << n >> 32) as u32 });
    check32("shf.r.clamp.b32", "%r10, %r11, %r12", |a, b, n| (wide(a, b) >> n.min(32)) as u32);
    for table in [0x80u32, 0xfe, 0x96, 0xca, 0x1b, 0] {
        check32("lop3.b32", &format!("%r10, %r11, %r12, {table}"), |a, b, c| {
            (0..32).map(|i| (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1) << i).sum()
        });
    }
    check32("prmt.b32", "%r10, %r11, 12816", |a, _, _| a);
    check32("prmt.b32", "%r10, %r11, 21520", |a, b, _| (a & 0xffff) | b << 16);
    check32("prmt.b32", "%r10, %r11, %r12", prmt);
    check32("bfe.u32", "%r10, %r11, %r12", |a, s, n| {
        let (s, n) = (s & 255, n & 255);
        let field = u64::from(a).checked_shr(s).unwrap_or(0);
        if n >= 32 { field as u32 } else { field as u32 & ((1 << n) - 1) }
    });
    check32("bfe.s32", "%r10, %r11, %r12", |a, s, n| {
        let (s, n) = (s & 255, n & 255);
        if n == 0 {
            return 0;
        }
        // Bits past the top are the sign of the field's last bit, or of bit 31.
        let sign = a >> (s + n - 1).min(31) & 1;
        (0..32).map(|i| (if i < n && s + i < 32 { a >> (s + i) & 1 } else { sign }) << i).sum()
    });
    check64("bfe.u64", "%rd10, %r11, %r12", |a, s, n| {
        let (s, n) = (s as u32 & 255, n as u32 & 255);
        let field = a.checked_shr(s).unwrap_or(0);
        if n >= 64 { field } else { field & ((1 << n) - 1) }
    });
    check32("bfi.b32", "%r10, %r11, 5, 9", |a, b, _| (b & !(0x1ff << 5)) | (a & 0x1ff) << 5);
    check32("bfi.b32", "%r10, %r11, 28, 9", |a, b, _| (b & !(0xf << 28)) | a << 28);
    check64("bfi.b64", "%rd10, %rd11, 30, 20", |a, b, _| (b & !(0xf_ffff << 30)) | (a & 0xf_ffff) << 30);
    check32("popc.b32", "%r10", |a, _, _| a.count_ones());
    check32("clz.b32", "%r10", |a, _, _| a.leading_zeros());
    check32("brev.b32", "%r10", |a, _, _| a.reverse_bits());
    check64("brev.b64", "%rd10", |a, _, _| a.reverse_bits());
    check("popc.b64 %r20, %rd10;\n    cvt.u64.u32 %rd20, %r20;", |a, _, _| u64::from(a.count_ones()));
    check("clz.b64 %r20, %rd10;\n    cvt.u64.u32 %rd20, %r20;", |a, _, _| u64::from(a.leading_zeros()));
}

fn prmt(a: u32, b: u32, s: u32) -> u32 {
    let bytes: Vec<u8> = a.to_le_bytes().into_iter().chain(b.to_le_bytes()).collect();
    let pick = |i: u32| {
        let nibble = s >> (4 * i) & 15;
        let byte = bytes[(nibble & 7) as usize];
        if nibble & 8 != 0 { ((byte as i8) >> 7) as u8 } else { byte }
    };
    u32::from_le_bytes([pick(0), pick(1), pick(2), pick(3)])
}

#[test]
fn moves() {
    check32("mov.b32", "%r10", |a, _, _| a);
    check32("mov.b32", "{%h10, %h11}", |a, b, _| (a & 0xffff) | b << 16);
    check64("mov.b64", "{%r10, %r11}", |a, b, _| a & 0xffff_ffff | b << 32);
    check64("mov.b64", "{%h10, %h11, %h12, %h10}", |a, b, c| {
        a & 0xffff | (b & 0xffff) << 16 | (c & 0xffff) << 32 | (a & 0xffff) << 48
    });
    check("mov.b64 {%r20, %r21}, %rd10;\n    mov.b64 %rd20, {%r21, %r20};", |a, _, _| a.rotate_left(32));
    check("mov.b32 {%h20, %h21}, %r10;\n    mov.b32 %r20, {%h21, %h20};\n    cvt.u64.u32 %rd20, %r20;", |a, _, _| {
        u64::from((a as u32).rotate_left(16))
    });
    check("mov.b64 {_, %r21}, %rd10;\n    cvt.u64.u32 %rd20, %r21;", |a, _, _| a >> 32);
    check32("selp.b32", "%r10, %r11, %p10", |a, b, c| if (c as i32) < 0 { a } else { b });
    check64("selp.b64", "%rd10, 7, !%p10", |a, _, c| if (c as i32) < 0 { 7 } else { a });
    // Guards keep the old value.
    check("mov.b64 %rd20, %rd10;\n    @%p10 mov.b64 %rd20, %rd11;", |a, b, c| if (c as i32) < 0 { b } else { a });
    check("cvta.shared.u64 %rd13, %rd10;\n    cvta.to.shared.u64 %rd20, %rd13;", |a, _, _| a);
}

#[test]
fn comparisons() {
    let set = |op: &str, operands: &str| format!("{op} %p1, {operands};\n    selp.b64 %rd20, 1, 0, %p1;");
    check(&set("setp.lt.u32", "%r10, %r11"), |a, b, _| u64::from((a as u32) < b as u32));
    check(&set("setp.le.s32", "%r10, %r11"), |a, b, _| u64::from(a as i32 <= b as i32));
    check(&set("setp.ne.b64", "%rd10, %rd11"), |a, b, _| u64::from(a != b));
    check(&set("setp.gt.s64", "%rd10, %rd11"), |a, b, _| u64::from(a as i64 > b as i64));
    check(&set("setp.ge.u16", "%h10, %h11"), |a, b, _| u64::from(a as u16 >= b as u16));
    check(&set("setp.lt.s16", "%h10, %h11"), |a, b, _| u64::from((a as i16) < b as i16));
    check(&set("setp.lt.and.u32", "%r10, %r11, !%p10"), |a, b, c| u64::from((a as u32) < b as u32 && c as i32 >= 0));
    check(&set("setp.eq.xor.u32", "%r10, %r11, %p10"), |a, b, c| u64::from((a as u32 == b as u32) ^ ((c as i32) < 0)));
    check("setp.lt.u32 _|%p2, %r10, %r11;\n    selp.b64 %rd20, 1, 0, %p2;", |a, b, _| u64::from(a as u32 >= b as u32));
    let f = |a: u64| f32::from_bits(a as u32);
    let nan = |a: u64, b: u64| f(a).is_nan() || f(b).is_nan();
    check(&set("setp.lt.f32", "%r10, %r11"), |a, b, _| u64::from(f(a) < f(b)));
    check(&set("setp.ne.f32", "%r10, %r11"), |a, b, _| u64::from(!nan(a, b) && f(a) != f(b)));
    check(&set("setp.equ.f32", "%r10, %r11"), |a, b, _| u64::from(nan(a, b) || f(a) == f(b)));
    check(&set("setp.geu.f32", "%r10, %r11"), |a, b, _| u64::from(nan(a, b) || f(a) >= f(b)));
    check(&set("setp.num.f32", "%r10, %r11"), |a, b, _| u64::from(!nan(a, b)));
    check(&set("setp.nan.f32", "%r10, %r11"), |a, b, _| u64::from(nan(a, b)));
    check(&set("setp.gt.f64", "%rd10, %rd11"), |a, b, _| u64::from(f64::from_bits(a) > f64::from_bits(b)));
    check(
        "setp.lt.u32 %p1, %r10, %r11;\n    and.pred %p2, %p1, %p10;\n    not.pred %p3, %p2;\n    selp.b64 %rd20, 1, 0, %p3;",
        |a, b, c| u64::from(!((a as u32) < b as u32 && (c as i32) < 0)),
    );
}

fn nan32(x: f32) -> u32 {
    if x.is_nan() { 0x7fff_ffff } else { x.to_bits() }
}

fn flush(x: u32) -> f32 {
    let x = f32::from_bits(x);
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}

#[test]
fn floats_to_nearest() {
    let f = f32::from_bits;
    check32("add.f32", "%r10, %r11", |a, b, _| nan32(f(a) + f(b)));
    check32("sub.rn.f32", "%r10, %r11", |a, b, _| nan32(f(a) - f(b)));
    check32("mul.rn.f32", "%r10, %r11", |a, b, _| nan32(f(a) * f(b)));
    check32("fma.rn.f32", "%r10, %r11, %r12", |a, b, c| nan32(f(a).mul_add(f(b), f(c))));
    check32("add.ftz.f32", "%r10, %r11", |a, b, _| nan32(flush(nan32(flush(a) + flush(b)))));
    check32("mul.rn.ftz.f32", "%r10, %r11", |a, b, _| nan32(flush(nan32(flush(a) * flush(b)))));
    check32("fma.rn.ftz.f32", "%r10, %r11, %r12", |a, b, c| nan32(flush(nan32(flush(a).mul_add(flush(b), flush(c))))));
    let sat = |x: f32| if x.is_nan() { 0 } else { x.clamp(0.0, 1.0).max(0.0).to_bits() & 0x7fff_ffff };
    check32("add.sat.f32", "%r10, %r11", |a, b, _| sat(f(a) + f(b)));
    check32("fma.rn.sat.f32", "%r10, %r11, %r12", |a, b, c| sat(f(a).mul_add(f(b), f(c))));
    check32("div.rn.f32", "%r10, %r11", |a, b, _| nan32(f(a) / f(b)));
    check32("rcp.rn.f32", "%r10", |a, _, _| nan32(1.0 / f(a)));
    check32("sqrt.rn.f32", "%r10", |a, _, _| nan32(f(a).sqrt()));
    check32("neg.f32", "%r10", |a, _, _| a ^ 0x8000_0000);
    check32("abs.f32", "%r10", |a, _, _| a & 0x7fff_ffff);
    let min = |a: u32, b: u32| match (f(a).is_nan(), f(b).is_nan()) {
        (true, true) => 0x7fff_ffff,
        (true, false) => b,
        (false, true) => a,
        _ if f(a) == f(b) => a | b,
        _ => {
            if f(a) < f(b) {
                a
            } else {
                b
            }
        }
    };
    check32("min.f32", "%r10, %r11", |a, b, _| min(a, b));
    check32("max.f32", "%r10, %r11", |a, b, _| {
        if f(a) == f(b) {
            a & b
        } else if f(a).is_nan() && f(b).is_nan() {
            0x7fff_ffff
        } else {
            min(a ^ 1 << 31, b ^ 1 << 31) ^ 1 << 31
        }
    });
    check32(
        "min.NaN.f32",
        "%r10, %r11",
        |a, b, _| if f(a).is_nan() || f(b).is_nan() { 0x7fff_ffff } else { min(a, b) },
    );
    let d = f64::from_bits;
    let nan64 = |x: f64| if x.is_nan() { 0x7ff8_0000_0000_0000 } else { x.to_bits() };
    check64("add.f64", "%rd10, %rd11", |a, b, _| nan64(d(a) + d(b)));
    check64("mul.rn.f64", "%rd10, %rd11", |a, b, _| nan64(d(a) * d(b)));
    check64("fma.rn.f64", "%rd10, %rd11, %rd12", |a, b, c| nan64(d(a).mul_add(d(b), d(c))));
    check64("div.rn.f64", "%rd10, %rd11", |a, b, _| nan64(d(a) / d(b)));
}

/// True if `got` is `exact` rounded: exact is given by brackets, `got` must be the neighbour on the right side.
fn directed(op: &str, mode: &str, operands: &str, exact: impl Fn(f64, f64, f64) -> (f64, f64)) {
    // `exact` gives a sum of two f64 that is exact.
    let body = format!("{op}.{mode}.f32 %r20, {operands};\n    cvt.u64.u32 %rd20, %r20;");
    let mut values = Values(SEED);
    let inputs: Vec<[u64; 3]> = (0..LANES)
        .map(|_| {
            [0; 3].map(|_| ((values.next() as u32 & 0x807f_ffff) | (110 + (values.next() % 30) as u32) << 23) as u64)
        })
        .collect();
    for ([a, b, c], got) in inputs.iter().zip(run_body(&body, &inputs, false)) {
        let [x, y, z] = [a, b, c].map(|v| f64::from(f32::from_bits(*v as u32)));
        let (high, low) = exact(x, y, z);
        let got = f32::from_bits(got as u32);
        // Compare got with high + low exactly: got - high is exact when they are close.
        let side = |g: f32| {
            let difference = f64::from(g) - high;
            if difference == low {
                0
            } else if difference > low {
                1
            } else {
                -1
            }
        };
        let fine = match mode {
            "rm" => side(got) <= 0 && side(got.next_up()) > 0,
            "rp" => side(got) >= 0 && side(got.next_down()) < 0,
            _ if high + low > 0.0 => side(got) <= 0 && side(got.next_up()) > 0,
            _ => side(got) >= 0 && side(got.next_down()) < 0,
        };
        assert!(
            fine || side(got) == 0,
            "{op}.{mode} of {x:e} {y:e} {z:e} (seed {SEED}): {got:e}, exact {high:e} + {low:e}"
        );
    }
}

fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    let t = s - a;
    (s, (a - (s - t)) + (b - t))
}

#[test]
fn floats_in_a_direction() {
    for mode in ["rz", "rm", "rp"] {
        directed("add", mode, "%r10, %r11", |x, y, _| two_sum(x, y));
        directed("sub", mode, "%r10, %r11", |x, y, _| two_sum(x, -y));
        directed("mul", mode, "%r10, %r11", |x, y, _| (x * y, 0.0));
        directed("fma", mode, "%r10, %r11, %r12", |x, y, z| two_sum(x * y, z));
    }
    // Overflow, infinities and the sign of zero.
    let max = f32::MAX.to_bits();
    let tiny = 1;
    for (op, a, b, want) in [
        ("add.rz.f32", max, max, max),
        ("add.rp.f32", max, max, f32::INFINITY.to_bits()),
        ("add.rm.f32", max, max, max),
        ("add.rm.f32", max | 1 << 31, max | 1 << 31, f32::NEG_INFINITY.to_bits()),
        ("mul.rz.f32", max, max, max),
        ("mul.rz.f32", tiny, tiny, 0),
        ("mul.rp.f32", tiny, tiny, 1),
        ("mul.rm.f32", tiny, tiny | 1 << 31, 1 | 1 << 31),
        ("add.rm.f32", 0x3f80_0000, 0xbf80_0000, 1 << 31),
        ("add.rz.f32", 0x3f80_0000, 0xbf80_0000, 0),
        ("add.rz.f32", f32::INFINITY.to_bits(), 0x3f80_0000, f32::INFINITY.to_bits()),
        ("add.rz.f32", f32::INFINITY.to_bits(), f32::NEG_INFINITY.to_bits(), 0x7fff_ffff),
    ] {
        let body = format!("{op} %r20, %r10, %r11;\n    cvt.u64.u32 %rd20, %r20;");
        let got = run_body(&body, &[[u64::from(a), u64::from(b), 0]], false)[0] as u32;
        assert_eq!(got, want, "{op} {a:#x} {b:#x}: {got:#x}");
    }
    let one = 1.0f64.to_bits();
    let small = (2f64.powi(-60)).to_bits();
    for (op, want) in [
        ("add.rz.f64", one),
        ("add.rm.f64", one),
        ("add.rp.f64", one + 1),
        ("sub.rz.f64", one - 1),
        ("sub.rp.f64", one),
    ] {
        let got = run_body(&format!("{op} %rd20, %rd10, %rd11;"), &[[one, small, 0]], false)[0];
        assert_eq!(got, want, "{op}: {got:#x}");
    }
    for (op, want) in [("fma.rz.f64", one), ("fma.rp.f64", one + 1)] {
        let got = run_body(&format!("{op} %rd20, %rd10, %rd11, %rd12;"), &[[small, small, one]], false)[0];
        assert_eq!(got, want, "{op}: {got:#x}");
    }
}

#[test]
fn approximations_are_within_their_bounds() {
    let close = |relative: f64| {
        move |got: u64, want: u64| {
            let (got, want) = (f32::from_bits(got as u32), f32::from_bits(want as u32));
            (got.is_nan() && want.is_nan())
                || got == want
                || (f64::from(got) - f64::from(want)).abs()
                    <= f64::from(want).abs() * relative + f64::from(f32::from_bits(1))
        }
    };
    let check = |op: &str, relative: f64, model: fn(f64) -> f64| {
        let body = format!("{op} %r20, %r10;\n    cvt.u64.u32 %rd20, %r20;");
        let model = move |a: u64, _, _| u64::from((model(f64::from(f32::from_bits(a as u32))) as f32).to_bits());
        check_with(&body, model, close(relative));
    };
    let ulp = 2f64.powi(-23);
    check("ex2.approx.f32", 2.0 * ulp, f64::exp2);
    check("rcp.approx.f32", ulp, |x| 1.0 / x);
    check("sqrt.approx.f32", ulp, f64::sqrt);
    check("rsqrt.approx.f32", ulp, |x| 1.0 / x.sqrt());
    check("lg2.approx.f32", ulp, f64::log2);
    check("tanh.approx.f32", ulp, f64::tanh);
    check32("ex2.approx.ftz.f32", "0fC3160000", |_, _, _| 0);
    check32("ex2.approx.f32", "0fC30C0000", |_, _, _| 1 << 9);
    check32("div.full.f32", "%r10, 0f40000000", |a, _, _| nan32(f32::from_bits(a) / 2.0));
}

#[test]
fn products_of_16_bits() {
    let bf = |a: u16, b: u16| {
        let exact = f64::from(bf16::from_bits(a)) * f64::from(bf16::from_bits(b));
        if exact.is_nan() { 0x7fff } else { bf16::from_f64(exact).to_bits() }
    };
    let half = |a: u16, b: u16| {
        let exact = f64::from(f16::from_bits(a)) * f64::from(f16::from_bits(b));
        if exact.is_nan() { 0x7fff } else { f16::from_f64(exact).to_bits() }
    };
    check16("mul.rn.bf16", "%h10, %h11", |a, b, _| bf(a, b));
    check16("mul.rn.f16", "%h10, %h11", |a, b, _| half(a, b));
    let both = |f: &dyn Fn(u16, u16) -> u16, a: u32, b: u32| {
        u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16 | u32::from(f(a as u16, b as u16))
    };
    check32("mul.rn.bf16x2", "%r10, %r11", |a, b, _| both(&bf, a, b));
    check32("mul.rn.f16x2", "%r10, %r11", |a, b, _| both(&half, a, b));
}

#[test]
fn conversions() {
    let f = f32::from_bits;
    let bf = |x: f32| if x.is_nan() { 0x7fff } else { u64::from(bf16::from_f32(x).to_bits()) };
    let hf = |x: f32| if x.is_nan() { 0x7fff } else { u64::from(f16::from_f32(x).to_bits()) };
    let to16 = |op: &str, from: &str| format!("{op} %h20, {from};\n    cvt.u64.u16 %rd20, %h20;");
    check(&to16("cvt.rn.bf16.f32", "%r10"), |a, _, _| bf(f(a as u32)));
    check(&to16("cvt.rn.f16.f32", "%r10"), |a, _, _| hf(f(a as u32)));
    check(&to16("cvt.rz.bf16.f32", "%r10"), |a, _, _| if f(a as u32).is_nan() { 0x7fff } else { a >> 16 & 0xffff });
    check("cvt.rn.bf16x2.f32 %r20, %r10, %r11;\n    cvt.u64.u32 %rd20, %r20;", |a, b, _| {
        bf(f(a as u32)) << 16 | bf(f(b as u32))
    });
    check("cvt.rn.f16x2.f32 %r20, %r10, %r11;\n    cvt.u64.u32 %rd20, %r20;", |a, b, _| {
        hf(f(a as u32)) << 16 | hf(f(b as u32))
    });
    check("cvt.rn.relu.bf16x2.f32 %r20, %r10, %r11;\n    cvt.u64.u32 %rd20, %r20;", |a, b, _| {
        let relu = |x: f32| if x.is_nan() { 0x7fff } else { bf(x.max(0.0)) & 0x7fff };
        relu(f(a as u32)) << 16 | relu(f(b as u32))
    });
    check32("cvt.f32.bf16", "%h10", |a, _, _| a << 16);
    check32("cvt.f32.f16", "%h10", |a, _, _| {
        let x = f16::from_bits(a as u16);
        if x.is_nan() { 0x7fff_ffff } else { x.to_f32().to_bits() }
    });
    check64(
        "cvt.f64.f32",
        "%r10",
        |a, _, _| if f(a as u32).is_nan() { 0x7ff8 << 48 } else { f64::from(f(a as u32)).to_bits() },
    );
    check("cvt.rn.f32.f64 %r20, %rd10;\n    cvt.u64.u32 %rd20, %r20;", |a, _, _| {
        u64::from(nan32(f64::from_bits(a) as f32))
    });
    check32("cvt.rn.f32.s32", "%r10", |a, _, _| (a as i32 as f32).to_bits());
    check32("cvt.rn.f32.u32", "%r10", |a, _, _| (a as f32).to_bits());
    check32("cvt.rn.f32.s16", "%h10", |a, _, _| f32::from(a as i16).to_bits());
    check("cvt.rn.f32.u64 %r20, %rd10;\n    cvt.u64.u32 %rd20, %r20;", |a, _, _| u64::from((a as f32).to_bits()));
    check64("cvt.rn.f64.s64", "%rd10", |a, _, _| (a as i64 as f64).to_bits());
    check32("cvt.rz.f32.u32", "%r10", |a, _, _| {
        let near = a as f32;
        if near as u64 > u64::from(a) { near.next_down().to_bits() } else { near.to_bits() }
    });
    check32("cvt.rzi.s32.f32", "%r10", |a, _, _| f(a) as i32 as u32);
    check32("cvt.rni.s32.f32", "%r10", |a, _, _| f(a).round_ties_even() as i32 as u32);
    check32("cvt.rmi.u32.f32", "%r10", |a, _, _| f(a).floor() as u32);
    check32("cvt.rpi.s32.f32", "%r10", |a, _, _| f(a).ceil() as i32 as u32);
    check64("cvt.rzi.s64.f32", "%r10", |a, _, _| f(a as u32) as i64 as u64);
    check64("cvt.rzi.u64.f64", "%rd10", |a, _, _| f64::from_bits(a) as u64);
    check32("cvt.rni.f32.f32", "%r10", |a, _, _| nan32(f(a).round_ties_even()));
    check32("cvt.sat.f32.f32", "%r10", |a, _, _| if f(a) > 0.0 { f(a).min(1.0).to_bits() } else { 0 });
    check32(
        "cvt.rna.tf32.f32",
        "%r10",
        |a, _, _| if f(a).is_nan() { 0x7fff_ffff } else { a.wrapping_add(0x1000) & !0x1fff },
    );
    check64("cvt.s64.s32", "%r10", |a, _, _| a as i32 as i64 as u64);
    check64("cvt.u64.u32", "%r10", |a, _, _| a & 0xffff_ffff);
    check64("cvt.s64.s8", "%h10", |a, _, _| a as i8 as i64 as u64);
    check32("cvt.u32.u8", "%h10", |a, _, _| a & 0xff);
    check32("cvt.s32.s16", "%h10", |a, _, _| a as i16 as i32 as u32);
    check32("cvt.sat.u8.s32", "%r10", |a, _, _| (a as i32).clamp(0, 255) as u32);
    check32("cvt.sat.s16.s32", "%r10", |a, _, _| (a as i32).clamp(-32768, 32767) as u32);
    check(&to16("cvt.u16.u32", "%r10"), |a, _, _| a & 0xffff);
}
