//! Floats: every rounding, approximations within their bounds, products of 16 bits, conversions.

use super::*;

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

/// Whether a result is subnormal, and so zero, is seen after rounding to 24 bits: what an H200 gives for 2^-126 (1 - 2^-e) and the
/// like.
#[test]
fn what_is_flushed_is_seen_after_rounding() {
    let least = f32::MIN_POSITIVE;
    for (mode, last_flushed) in [("rn", 24), ("rz", 40), ("rm", 40), ("rp", 24)] {
        for e in [22, 23, 24, 25, 26, 28, 30, 40] {
            let operands = [-(0.5f32.powi(e)), least, least].map(|x| u64::from(x.to_bits()));
            let body = format!("fma.{mode}.ftz.f32 %r20, %r10, %r11, %r12;\n    cvt.u64.u32 %rd20, %r20;");
            let want = if e <= last_flushed { 0 } else { least.to_bits() };
            assert_eq!(run_body(&body, &[operands], false)[0], u64::from(want), "{mode} e = {e}");
        }
    }
    for (op, a, b, want) in [
        ("fma.rp.ftz.sat.f32 %r20, %r11, %r10, %r11", 0xb3e7_0061u32, 0x0080_0000u32, 0u32),
        ("mul.rn.ftz.f32 %r20, %r10, %r11", 0x3f7f_fffe, 0x0080_0001, 0x0080_0000),
        ("mul.rz.ftz.f32 %r20, %r10, %r11", 0x3f7f_fffe, 0x0080_0001, 0),
        ("mul.rn.ftz.f32 %r20, %r10, %r11", 0x3f7f_ffff, 0x0080_0000, 0),
        ("mul.rm.ftz.f32 %r20, %r10, %r11", 0xbf7f_fffe, 0x0080_0001, 0x8080_0000),
        ("mul.rp.ftz.f32 %r20, %r10, %r11", 0xbf7f_ffff, 0x0080_0000, 0x8000_0000),
        ("div.rn.ftz.f32 %r20, %r10, %r11", 0x00ff_ffff, 0x4000_0000, 0),
        ("div.rp.ftz.f32 %r20, %r10, %r11", 0x00ff_ffff, 0x4000_0000, 0),
    ] {
        let body = format!("{op};\n    cvt.u64.u32 %rd20, %r20;");
        let got = run_body(&body, &[[u64::from(a), u64::from(b), 0]], false)[0];
        assert_eq!(got, u64::from(want), "{op} {a:#x} {b:#x}: {got:#x}");
    }
}

/// What an H200 gives where results, or the errors of results, are subnormal.
#[test]
fn subnormal_doubles_in_a_direction() {
    for (op, operands, want) in [
        ("mul.rz.f64", [0x1e7c_63c5_7ed9_da2e, 0x1e7c_63c5_7ed9_da2e, 0], 0xc),
        ("mul.rm.f64", [0x3fc7_3180_fba1_0cae, 0x000f_ffff_ffff_ffff, 0], 0x2_e630_1f74_2195),
        ("mul.rp.f64", [0x000f_ffff_ffff_ffff, 0x000f_ffff_ffff_ffff, 0], 1),
        ("fma.rz.f64", [0x800f_ffff_ffff_ffff, 0xa3eb_5e20_161e_98fc, 0x9673_280e_28bf_3048], 0x9673_280e_28bf_3047),
        ("fma.rm.f64", [0x8003_9386_d480_814f, 1, 1], 0),
        ("fma.rp.f64", [0x000f_ffff_ffff_ffff; 3], 0x0010_0000_0000_0000),
        ("div.rm.f64", [0x800f_ffff_ffff_ffff, 0x9673_280e_28bf_3048, 0], 0x298a_ba2e_3a7d_0eaa),
        ("sqrt.rz.f64", [0x000f_ffff_ffff_ffff, 0, 0], 0x1fff_ffff_ffff_fffe),
        ("sqrt.rm.f64", [0x000f_ffff_ffff_ffff, 0, 0], 0x1fff_ffff_ffff_fffe),
        ("sqrt.rp.f64", [0x0007_11a3_4dc2_57e5, 0, 0], 0x1ff5_4519_720f_aafc),
    ] {
        let list = match op.split('.').next() {
            Some("sqrt") => "%rd10",
            Some("fma") => "%rd10, %rd11, %rd12",
            _ => "%rd10, %rd11",
        };
        let got = run_body(&format!("{op} %rd20, {list};"), &[operands], false)[0];
        assert_eq!(got, want, "{op} {operands:#x?}: {got:#x}");
    }
}

/// A NaN whose payload lies below tf32 becomes an infinity, as on an H200.
#[test]
fn tf32_of_a_nan() {
    for (bits, want) in
        [(0x7f80_0a7f, 0x7f80_0000), (0xff80_1739, 0xff80_0000), (0x7f80_2000, 0x7fff_ffff), (0x7fff_ffff, 0x7fff_ffff)]
    {
        let got = run_body("cvt.rna.tf32.f32 %r20, %r10;\n    cvt.u64.u32 %rd20, %r20;", &[[bits, 0, 0]], false);
        assert_eq!(got[0], want, "{bits:#x}");
    }
}

/// A NaN of 64 bits becomes the least number of a signed type, and the highest bit of an unsigned one.
#[test]
fn integers_of_a_nan_of_64_bits() {
    let nan = 0xfffa_2466_1e85_db4b;
    for (to, want) in [("s8", 0xffff_ff80), ("u8", 0x80), ("s32", 0x8000_0000), ("u32", 0x8000_0000)] {
        let got =
            run_body(&format!("cvt.rni.{to}.f64 %r20, %rd10;\n    cvt.u64.u32 %rd20, %r20;"), &[[nan, 0, 0]], false);
        assert_eq!(got[0], want, "{to}");
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
    // A NaN gives 0, but MININT or its bits where 64 bits are on either side.
    let top = |nan: bool, value: u64| if nan { 1 << 63 } else { value };
    check64("cvt.rzi.s64.f64", "%rd10", |a, _, _| top(f64::from_bits(a).is_nan(), f64::from_bits(a) as i64 as u64));
    check64("cvt.rzi.u64.f64", "%rd10", |a, _, _| top(f64::from_bits(a).is_nan(), f64::from_bits(a) as u64));
    check64("cvt.rzi.s64.f32", "%r10", |a, _, _| top(f(a as u32).is_nan(), f(a as u32) as i64 as u64));
    check32("cvt.rzi.s32.f32", "%r10", |a, _, _| f(a) as i32 as u32);
    check("cvt.rzi.s32.f64 %r20, %rd10;\n    cvt.u64.u32 %rd20, %r20;", |a, _, _| {
        let x = f64::from_bits(a);
        u64::from(if x.is_nan() { 1 << 31 } else { x as i32 as u32 })
    });
    check32("cvt.rz.f32.u32", "%r10", |a, _, _| {
        let near = a as f32;
        if near as u64 > u64::from(a) { near.next_down().to_bits() } else { near.to_bits() }
    });
    check32("cvt.rzi.s32.f32", "%r10", |a, _, _| f(a) as i32 as u32);
    check32("cvt.rni.s32.f32", "%r10", |a, _, _| f(a).round_ties_even() as i32 as u32);
    check32("cvt.rmi.u32.f32", "%r10", |a, _, _| f(a).floor() as u32);
    check32("cvt.rpi.s32.f32", "%r10", |a, _, _| f(a).ceil() as i32 as u32);
    check32("cvt.rni.f32.f32", "%r10", |a, _, _| nan32(f(a).round_ties_even()));
    check32("cvt.sat.f32.f32", "%r10", |a, _, _| if f(a) > 0.0 { f(a).min(1.0).to_bits() } else { 0 });
    check32("cvt.rna.tf32.f32", "%r10", |a, _, _| {
        if f(a).is_nan() && a & 0x7f_e000 != 0 { 0x7fff_ffff } else { a.wrapping_add(0x1000) & !0x1fff }
    });
    check64("cvt.s64.s32", "%r10", |a, _, _| a as i32 as i64 as u64);
    check64("cvt.u64.u32", "%r10", |a, _, _| a & 0xffff_ffff);
    check64("cvt.s64.s8", "%h10", |a, _, _| a as i8 as i64 as u64);
    check32("cvt.u32.u8", "%h10", |a, _, _| a & 0xff);
    check32("cvt.s32.s16", "%h10", |a, _, _| a as i16 as i32 as u32);
    check32("cvt.sat.u8.s32", "%r10", |a, _, _| (a as i32).clamp(0, 255) as u32);
    check32("cvt.sat.s16.s32", "%r10", |a, _, _| (a as i32).clamp(-32768, 32767) as u32);
    check(&to16("cvt.u16.u32", "%r10"), |a, _, _| a & 0xffff);
}
