//! Integers, floats, constants, comparisons.

use super::harness::{check, check_with, error_of, source};

#[test]
fn wrapping_arithmetic() {
    check("let r = a + b * 3 - (b << 4);", |i| i.a.wrapping_add(i.b.wrapping_mul(3)).wrapping_sub(i.b.wrapping_shl(4)));
    check("let r = (a ^ b) & !(a | 0xff) | (b >> 7);", |i| (i.a ^ i.b) & !(i.a | 0xff) | (i.b >> 7));
    check("let r = 63 - tid + a * 12 + 5 * b;", |i| {
        (63 - i.tid).wrapping_add(i.a.wrapping_mul(12)).wrapping_add(i.b.wrapping_mul(5))
    });
}

#[test]
fn division_and_remainder_by_constants() {
    for d in [1u32, 2, 3, 7, 8, 64, 1000, 0x8000_0000] {
        check(&format!("let r = a / {d} + (b % {d}) * 3;"), move |i| (i.a / d).wrapping_add((i.b % d).wrapping_mul(3)));
    }
    for d in [1i32, 2, 3, 8, -1, -2, -8, -7] {
        check(&format!("let r = ((a as i32) / ({d}) + (b as i32) % ({d})) as u32;"), move |i| {
            (i.a as i32).wrapping_div(d).wrapping_add((i.b as i32).wrapping_rem(d)) as u32
        });
    }
}

#[test]
fn shifts() {
    check("let r = ((a as i32) >> 3) as u32 + (a >> 3) + (a << (tid % 32));", |i| {
        ((i.a as i32 >> 3) as u32).wrapping_add(i.a >> 3).wrapping_add(i.a << (i.tid % 32))
    });
    check("let r = 1 << (tid % 32);", |i| 1 << (i.tid % 32));
    check("let r = (((m as i64) * 5) >> 33) as u32;", |i| ((i64::from(i.m) * 5) >> 33) as u32);
}

#[test]
fn a_shift_by_the_width_or_more_is_an_error() {
    for body in ["let r = a << 32;", "let r = a >> 40;", "let r = a << -1;", "let x = (a as u64) << 64; let r = a;"] {
        assert_eq!(error_of(&source("", body)), 202, "{body}");
    }
}

#[test]
fn sixty_four_bits() {
    check("let p = a as u64 * b as u64 + (n as u64); let r = (p >> 32) as u32 ^ p as u32;", |i| {
        let p = u64::from(i.a) * u64::from(i.b) + u64::from(i.n);
        (p >> 32) as u32 ^ p as u32
    });
    check("let p = (a as i32) as i64 * (-3) + (m as i64); let r = (p >> 32) as u32 ^ p as u32;", |i| {
        let p = i64::from(i.a as i32) * -3 + i64::from(i.m);
        (p >> 32) as u32 ^ p as u32
    });
    check("let p = (a as u64) * 18446744073709551615; let r = (p % 1000) as u32;", |i| {
        (u64::from(i.a).wrapping_mul(u64::MAX) % 1000) as u32
    });
    check("let c = (a as u64) < 18446744073709551615; let r = c as u32;", |_| 1);
    // Sign extension by way of an unsigned type.
    check("let p = m as u64; let r = (p >> 32) as u32;", |i| (i.m as u64 >> 32) as u32);
}

#[test]
fn comparisons_follow_the_type() {
    check(
        "let x = a as i32; let y = b as i32; let r = (x < y) as u32 + 2 * (a < b) as u32 + 4 * (x >= -1) as u32;",
        |i| u32::from((i.a as i32) < i.b as i32) + 2 * u32::from(i.a < i.b) + 4 * u32::from(i.a as i32 >= -1),
    );
    check(
        "let r = ((a < b) == (b < 20)) as u32 + 2 * ((a < b) != true) as u32 + 4 * ((a < b) ^ (n > 1)) as u32;",
        |i| {
            let less = i.a < i.b;
            u32::from(less == (i.b < 20)) + 2 * u32::from(!less) + 4 * u32::from(less ^ (i.n > 1))
        },
    );
}

#[test]
fn minimum_and_maximum() {
    check("let r = min(a, 7) + max(b, a) + max(min(a as i32, m), -5) as u32;", |i| {
        i.a.min(7).wrapping_add(i.b.max(i.a)).wrapping_add((i.a as i32).min(i.m).max(-5) as u32)
    });
    check("let r = const { min(3, 5) + max(2, 9) } + abs(m) as u32;", |i| {
        12u32.wrapping_add(i.m.wrapping_abs() as u32)
    });
}

#[test]
fn selects() {
    check("let c = a < b; let r = select(c, a, 5) + select(select(c, n > 0, a > 3), 100, 200);", |i| {
        let c = i.a < i.b;
        let d = if c { i.n > 0 } else { i.a > 3 };
        (if c { i.a } else { 5 }).wrapping_add(if d { 100 } else { 200 })
    });
    check("let x = select(a < b, 1, -1); let r = (x * 3) as u32;", |i| (if i.a < i.b { 3i32 } else { -3 }) as u32);
    check("let x = select(a < b, 0.0, -0.0); let r = x.to_bits();", |i| if i.a < i.b { 0 } else { 0x8000_0000 });
    check(
        "let (x, y) = (from_fn::<3>(|i| a + i), [b, b, n]); let z = select(a < b, x, y); let r = z[0] ^ z[1] + z[2];",
        |i| {
            let z = if i.a < i.b { [0, 1, 2].map(|k| i.a.wrapping_add(k)) } else { [i.b, i.b, i.n] };
            z[0] ^ z[1].wrapping_add(z[2])
        },
    );
}

#[test]
fn floats_round_once_an_operation() {
    let f = |bits: u32| (bits % 1000) as f32 * 0.37;
    let get = "let x = (a % 1000) as f32 * 0.37; let y = (b % 1000) as f32 * 0.37;";
    check(&format!("{get} let z = x * y + 1.5; let r = z.to_bits();"), move |i| (f(i.a) * f(i.b) + 1.5).to_bits());
    check(&format!("{get} let z = fma(x, y, 1.5) / (y + 1.0) - -x; let r = z.to_bits();"), move |i| {
        (f(i.a).mul_add(f(i.b), 1.5) / (f(i.b) + 1.0) - -f(i.a)).to_bits()
    });
    check(&format!("{get} let z = max(min(x, y), 3.25) + abs(x - y); let r = z.to_bits();"), move |i| {
        (f(i.a).min(f(i.b)).max(3.25) + (f(i.a) - f(i.b)).abs()).to_bits()
    });
}

#[test]
fn typed_float_constants_are_of_their_type() {
    // Rounded to f32 when they get the type, and after each operation.
    check("let x: f32 = 0.1; let y = x * 3.0; let r = y.to_bits();", |_| (0.1f32 * 3.0).to_bits());
    check("const X: f32 = 0.1; let r = (X * X * 7.0).to_bits();", |_| (0.1f32 * 0.1 * 7.0).to_bits());
    check("let mut x: f32 = 1.0; x = 0.1; let r = (x * 3.0).to_bits();", |_| (0.1f32 * 3.0).to_bits());
    check("let x: bf16 = 0.1; let y = x as f32; let r = y.to_bits();", |_| 0x3dcd_0000);
    check("let x = bf16::rn(0.1); let r = (x as f32).to_bits() + const { (bf16::rn(0.5) as f32) as u32 };", |_| {
        0x3dcd_0000
    });
    check_with("const THIRD: f32 = 1.0 / 3.0;", "let r = (THIRD * 3.0).to_bits();", |_| (1.0f32 / 3.0 * 3.0).to_bits());
    // Without a type: exact until it meets one.
    check("let r = (1.0 / 3.0 * 3.0 + select(a < b, 0.0, 0.0)).to_bits();", |_| 1f32.to_bits());
}

#[test]
fn constants_of_every_kind() {
    check_with(
        "const N: u32 = size_of::<bf16>() * 3; const NEW: bool = ARCH >= sm_90; const LIST: [i32; 3] = [-1, 2, 3];",
        "let x = LIST[0] + LIST[2]; const HERE: u32 = N + size_of::<f64>();
         let r = HERE + x as u32 + if const { NEW } { 100 } else { 1000 };",
        |_| 116,
    );
}

#[test]
fn the_architecture_is_a_constant_of_bodies() {
    check("let r = if const { ARCH >= sm_90 } { a } else { b };", |i| i.a);
    check("let r = if const { ARCH == sm_100a } { a } else { b };", |i| i.b);
    check_with(
        "#[device] fn f(x: u32) -> u32 { if const { ARCH < sm_100 } { x + 1 } else { x } }",
        "let r = f(a);",
        |i| i.a.wrapping_add(1),
    );
}

#[test]
fn generics_take_their_type() {
    let items = "#[device] fn f<const N: u32, const S: i32, const B: bool, T: Elem>(x: u32) -> u32 {
        const HALF: u32 = N / 2;
        if const { B } { x + HALF + (x as T + S as T) as u32 } else { x }
    }";
    check_with(items, "let r = f::<7, { 2 - 5 }, true, i32>(a) + f::<1, 1, false, u32>(b);", |i| {
        i.a.wrapping_add(3).wrapping_add(i.a.wrapping_sub(3)).wrapping_add(i.b)
    });
    let device = "#[device] fn f<const N: u32>(x: u32) -> u32 { x + N }";
    assert_eq!(error_of(&source(device, "let r = f::<-1>(a);")), 204);
    assert_eq!(error_of(&source(device, "let r = f::<{ 3i32 }>(a);")), 157);
}
