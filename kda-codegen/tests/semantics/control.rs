//! Branches, loops, variables, calls.

use super::harness::{Inputs, check, check_with, error_of, source};

#[test]
fn a_branch_joins_values_of_different_kinds() {
    check("let mut x = 5; if a < b { x = a; } let r = x;", |i| if i.a < i.b { i.a } else { 5 });
    check("let x = if a < b { 1 } else { -1 }; let r = x as u32;", |i| if i.a < i.b { 1 } else { u32::MAX });
    check("let (x, y) = if a < b { (a, 1) } else { (2, b) }; let r = x * 3 + y;", |i| {
        if i.a < i.b { i.a.wrapping_mul(3).wrapping_add(1) } else { 6u32.wrapping_add(i.b) }
    });
    check("let p = if a < b { n > 1 } else { true }; let r = p as u32;", |i| u32::from(i.a >= i.b || i.n > 1));
    check("let z = if a < b { 0.0 } else { -0.0 }; let r = (z * 1.0).to_bits();", |i| {
        if i.a < i.b { 0 } else { 0x8000_0000 }
    });
    check(
        "let mut s = [a, b, 7]; if b > 9 { if a > 3 { s = [s[1], s[0], n]; } else { s[2] = a; } } let r = s[0] ^ s[1] * 3 ^ s[2] * 5;",
        |i| {
            let s = match (i.b > 9, i.a > 3) {
                (true, true) => [i.b, i.a, i.n],
                (true, false) => [i.a, i.b, i.a],
                _ => [i.a, i.b, 7],
            };
            s[0] ^ s[1].wrapping_mul(3) ^ s[2].wrapping_mul(5)
        },
    );
}

#[test]
fn variables_swap_in_nested_loops() {
    let body = "
        let mut x = a; let mut y = b; let mut z = n;
        for i in 0..n + 2 {
            (x, y) = (y, x);
            for j in 0..n {
                (x, y, z) = (y + i, z, x ^ j);
            }
            if x > y { (y, z) = (z, y); }
        }
        let r = x + 3 * y + 7 * z;";
    check(body, |i: Inputs| {
        let (mut x, mut y, mut z) = (i.a, i.b, i.n);
        for k in 0..i.n + 2 {
            (x, y) = (y, x);
            for j in 0..i.n {
                (x, y, z) = (y.wrapping_add(k), z, x ^ j);
            }
            if x > y {
                (y, z) = (z, y);
            }
        }
        x.wrapping_add(y.wrapping_mul(3)).wrapping_add(z.wrapping_mul(7))
    });
}

#[test]
fn trip_counts_of_zero_one_and_more() {
    fn sum(range: impl Iterator<Item = u32>) -> u32 {
        range.fold(0u32, |s, i| s.wrapping_mul(31).wrapping_add(i + 1))
    }
    let body = |range: &str| format!("let mut s: u32 = 0; for i in {range} {{ s = s * 31 + i + 1; }} let r = s;");
    check(&body("0..n"), |i| sum(0..i.n));
    check(&body("n..5"), |i| sum(i.n..5));
    check(&body("3..=n"), |i| sum(3..=i.n));
    check(&body("(n..20).step_by(3)"), |i| sum((i.n..20).step_by(3)));
    check(&body("(0..17).step_by(n + 1)"), |i| sum((0..17).step_by(i.n as usize + 1)));
    check(&body("(2..11).step_by(4)"), |_| sum((2..11).step_by(4)));
    check(&body("7..7"), |_| sum(7..7));
    check(&body("7..8"), |_| sum(7..8));
    check("let mut s = 0; #[unroll] for i in (2..11).step_by(4) { s = s * 31 + i + 1; } let r = s;", |_| {
        sum((2..11).step_by(4))
    });
}

#[test]
fn ranges_with_negative_ends() {
    check("let mut s: i32 = 0; for i in -2..3 { s = s * 10 + i; } let r = s as u32;", |_| {
        (-2..3).fold(0i32, |s, i| s * 10 + i) as u32
    });
    check("let mut s: i32 = 0; for i in -(n as i32)..2 { s = s * 10 + i; } let r = s as u32;", |x| {
        (-(x.n as i32)..2).fold(0i32, |s, i| s * 10 + i) as u32
    });
}

#[test]
fn a_step_that_is_not_positive_is_an_error() {
    for body in ["for i in (0..n).step_by(0) {} let r = a;", "for i in (0..9).step_by(-1) {} let r = a;"] {
        assert_eq!(error_of(&source("", body)), 161, "{body}");
    }
}

#[test]
fn a_range_is_evaluated_once() {
    check("let mut e = n; let mut s: u32 = 0; for i in 0..e { e += 5; s += i + e; } let r = s + e;", |i| {
        let (mut e, mut s) = (i.n, 0u32);
        for k in 0..i.n {
            e += 5;
            s += k + e;
        }
        s + e
    });
}

#[test]
fn the_loop_variable_is_private() {
    check("let mut s: u32 = 0; for i in 0..n { let mut j = i; j += 100; s += j; } let r = s;", |i| {
        (0..i.n).map(|j| j + 100).sum()
    });
}

#[test]
fn while_loops() {
    check(
        "let mut x = a; let mut steps: u32 = 0; while x > 1 { x = if x % 2 == 0 { x / 2 } else { x / 3 }; steps += 1; } let r = steps;",
        |i| {
            let (mut x, mut steps) = (i.a, 0);
            while x > 1 {
                x = if x.is_multiple_of(2) { x / 2 } else { x / 3 };
                steps += 1;
            }
            steps
        },
    );
    // The condition of a `while` computes, but does not assign.
    assert_eq!(error_of(&source("", "let mut x = n; while { x += 1; x < 9 } {} let r = x;")), 151);
}

#[test]
fn the_first_trip_is_not_taken_for_all() {
    // The counter is 0 at first; a constant 0 - 1 would be an error.
    check(
        "let mut s: u32 = 0; for i in 0..n { let before = i - 1; s += table.at([before]).load_if(i > 0); } let r = s;",
        |i| (1..i.n).fold(0, |s: u32, k| s.wrapping_add(i.table[k as usize - 1])),
    );
    check(
        "let mut s: u32 = 0; let mut k: u32 = 0; while k < n { let before = k - 1; s += table.at([before]).load_if(k > 0); k += 1; } let r = s;",
        |i| (1..i.n).fold(0, |s: u32, k| s.wrapping_add(i.table[k as usize - 1])),
    );
}

#[test]
fn booleans_go_round() {
    check(
        "let mut odd = a > 5; let mut last = false; for i in 0..n + 3 { (odd, last) = (!odd, odd && i != 1); } let r = odd as u32 + 2 * last as u32;",
        |i| {
            let (mut odd, mut last) = (i.a > 5, false);
            for k in 0..i.n + 3 {
                (odd, last) = (!odd, odd && k != 1);
            }
            u32::from(odd) + 2 * u32::from(last)
        },
    );
}

#[test]
fn an_unrolled_loop_with_branches() {
    check(
        "let mut s = [0, 0, 0]; #[unroll] for i in 0..3 { if a > i * 10 { s[i] = b + i; s[0] += 1; } else { s[2] = i; } } let r = s[0] + s[1] * 5 + s[2] * 25;",
        |i| {
            let mut s = [0u32; 3];
            for k in 0..3u32 {
                if i.a > k * 10 {
                    s[k as usize] = i.b.wrapping_add(k);
                    s[0] = s[0].wrapping_add(1);
                } else {
                    s[2] = k;
                }
            }
            s[0].wrapping_add(s[1].wrapping_mul(5)).wrapping_add(s[2].wrapping_mul(25))
        },
    );
    check("let mut s = 1; #[unroll] for x in [a, b, 7] { s = s * 3 + x; } let r = s;", |i| {
        [i.a, i.b, 7].into_iter().fold(1u32, |s, x| s.wrapping_mul(3).wrapping_add(x))
    });
}

#[test]
fn values_of_one_branch_do_not_leak() {
    // The same expression in both branches, behind them, and in loops that run no trip.
    check(
        "let mut s: u32 = 0; if a < b { s = (a + 11) * (b + 7); } if b > 30 { s += (a + 11) * (b + 7); } let r = s + (a + 11) * (b + 7);",
        |i| {
            let x = i.a.wrapping_add(11).wrapping_mul(i.b.wrapping_add(7));
            let mut s = if i.a < i.b { x } else { 0 };
            if i.b > 30 {
                s = s.wrapping_add(x);
            }
            s.wrapping_add(x)
        },
    );
    check("let mut s: u32 = 0; for i in 0..n { s += (a ^ 21) * i; } let r = s + (a ^ 21) * 3;", |i| {
        (0..i.n).fold(0u32, |s, k| s.wrapping_add((i.a ^ 21).wrapping_mul(k))).wrapping_add((i.a ^ 21).wrapping_mul(3))
    });
}

#[test]
fn logic_stops_early() {
    check(
        "let i = a % 80; let r = (i < 64 && table.at([i]).load() > 9) as u32 + 2 * (i >= 64 || table.at([i]).load() > 9) as u32;",
        |i| {
            let at = (i.a % 80) as usize;
            u32::from(at < 64 && i.table[at] > 9) + 2 * u32::from(at >= 64 || i.table[at] > 9)
        },
    );
    check("let mut x: u32 = 0; let c = a < b && { x = 7; n > 1 }; let r = x + c as u32;", |i| {
        if i.a < i.b { 7 + u32::from(i.n > 1) } else { 0 }
    });
    check("let mut x: u32 = 0; let c = a < b || { x += 7; n > 1 } || { x += 1; true }; let r = x + c as u32;", |i| {
        if i.a < i.b { 1 } else { 7 + u32::from(i.n <= 1) + 1 }
    });
    check("let mut x: u32 = 0; let c = a < b && (b > 5 && { x = b; n > 1 }); let r = x + c as u32;", |i| {
        if i.a < i.b && i.b > 5 { i.b.wrapping_add(u32::from(i.n > 1)) } else { 0 }
    });
}

#[test]
fn device_functions_change_their_references_only() {
    let items = "
        #[device] fn bump(x: &mut u32, mut by: u32) -> u32 { let old = x; by += 1; if by > 9 { x += by; } old }
        #[device] fn twice(x: &mut [u32; 2], by: u32) -> u32 { bump(&mut x[0], by) + bump(&mut x[1], x[0]) }";
    let body = "let mut s = [a, b]; let by = n * 4; let q = twice(&mut s, by); let r = q + s[0] * 3 + s[1] * 5 + by;";
    check_with(items, body, |i| {
        let mut s = [i.a, i.b];
        let by = i.n * 4;
        let bump = |x: &mut u32, by: u32| {
            let (old, by) = (*x, by.wrapping_add(1));
            if by > 9 {
                *x = x.wrapping_add(by);
            }
            old
        };
        let first = bump(&mut s[0], by);
        let s0 = s[0];
        let q = first.wrapping_add(bump(&mut s[1], s0));
        q.wrapping_add(s[0].wrapping_mul(3)).wrapping_add(s[1].wrapping_mul(5)).wrapping_add(by)
    });
    let same = "#[device] fn f(x: &mut u32, y: &mut u32) { x += 1; y += 2; }";
    assert_eq!(error_of(&source(same, "let mut q = a; f(&mut q, &mut q); let r = q;")), 157);
}

#[test]
fn references_in_branches_and_loops() {
    let items = "#[device] fn step(x: &mut u32, y: &mut u32) { (x, y) = (y, x + 1); }";
    check_with(
        items,
        "let mut x = a; let mut y = b; for i in 0..n { if i != 1 { step(&mut x, &mut y); } } let r = x + 3 * y;",
        |i| {
            let (mut x, mut y) = (i.a, i.b);
            for k in 0..i.n {
                if k != 1 {
                    (x, y) = (y, x.wrapping_add(1));
                }
            }
            x.wrapping_add(y.wrapping_mul(3))
        },
    );
}

#[test]
fn shadowing_and_scopes() {
    check("let x = a; { let x = b; let y = x; } if a < b { let x = 7; } let x = x + 1; let r = x;", |i| {
        i.a.wrapping_add(1)
    });
    check("let mut x = a; { x = b; let mut x = 3; x += 1; } let r = x;", |i| i.b);
    check("let y = from_fn::<4>(|i| { let t = a + i; t * t }); let r = y.map(|v| v + b)[3];", |i| {
        let t = i.a.wrapping_add(3);
        t.wrapping_mul(t).wrapping_add(i.b)
    });
}

#[test]
fn an_early_return_keeps_variables() {
    check(
        "let mut x = a; out.at([tid]).store(x); if n == 0 { out.at([tid]).store(17); return; } if n > 1 { x = b; } let r = x;",
        |i| match i.n {
            0 => 17,
            1 => i.a,
            _ => i.b,
        },
    );
    check(
        "let mut x = a; if n != 1 { x = b + 1; } else { out.at([tid]).store(5); return; } let r = x + (b + 1);",
        |i| {
            if i.n == 1 { 5 } else { i.b.wrapping_add(1).wrapping_mul(2) }
        },
    );
}

#[test]
fn a_variable_keeps_its_type() {
    for body in [
        "let mut x = a; x = 1.5; let r = a;",
        "let mut x = a; x = 5u64; let r = a;",
        "let mut x = 0; x = 1.5; let r = a;",
        "let mut x = a < b; x = 1; let r = a;",
        "let mut x = (a, b); x = (a, b, a); let r = a;",
        "let mut x = (a, b); x = (a, 1.0); let r = a;",
        "let mut x = [a, b]; x = a; let r = a;",
    ] {
        let code = error_of(&source("", body));
        assert!(matches!(code, 150 | 160), "{code}: {body}");
    }
}

#[test]
fn attributes_that_mean_nothing_are_errors() {
    for body in [
        "let mut x = n; #[role(first)] while x > 0 { x -= 1; } let r = a;",
        "#[unroll] let r = a;",
        "#[role(first)] cta_sync(); let r = a;",
        "#[unroll] while n > 9 {} let r = a;",
        "let r = a; #[hot] if a < b { }",
        "let r = a; #[role(first)] let z = b;",
        "let r = #[role(first)] a;",
    ] {
        assert_eq!(error_of(&source("", body)), 102, "{body}");
    }
    assert_eq!(error_of(&source("", "#[role()] { } let r = a;")), 351);
}
