//! Integers, bits, moves, comparisons.

use super::*;

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
    check64("mad.hi.u64", "%rd10, %rd11, %rd12", |a, b, c| {
        (((u128::from(a) * u128::from(b)) >> 64) as u64).wrapping_add(c)
    });
    check64("mad.hi.s64", "%rd10, %rd11, %rd12", |a, b, c| {
        (((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64).wrapping_add(c)
    });
    let wide16 = |op: &str| format!("{op} %h20, %h10, %h11, %h12;\n    cvt.u64.u16 %rd20, %h20;");
    check(&wide16("mad.hi.u16"), |a, b, c| {
        let high = (u32::from(a as u16) * u32::from(b as u16)) >> 16;
        u64::from((high as u16).wrapping_add(c as u16))
    });
    check(&wide16("mad.hi.s16"), |a, b, c| {
        let high = (i32::from(a as i16) * i32::from(b as i16)) >> 16;
        u64::from((high as u16).wrapping_add(c as u16))
    });
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
