//! Operands: in shared memory and in registers, of every type.

use super::*;

/// Every swizzle, both operands along K and across it, either sign, K of several steps, one and two warpgroups with one
/// and two blocks of 64 rows.
#[test]
fn operands_in_shared_memory() {
    for (case, (span, m, n, k, groups)) in
        [(128, 64, 64, 64, 1), (128, 128, 128, 128, 2), (64, 128, 32, 32, 1), (64, 256, 96, 64, 2), (32, 64, 16, 48, 1)]
            .into_iter()
            .enumerate()
    {
        for turns in 0..4 {
            let (turn_a, turn_b) = (turns & 1 != 0, turns & 2 != 0);
            let (sign_a, sign_b) = ([1.0, -1.0][case % 2], [1.0, -1.0][turns / 2]);
            let mut random = Random::new(case as u64 * 4 + turns as u64);
            let (a, b) = (matrix(&mut random, m, k), matrix(&mut random, n, k));
            let shape = |turn, rows, columns| if turn { (columns, rows) } else { (rows, columns) };
            let shapes = [shape(turn_a, m, k), shape(turn_b, n, k)];
            let written = |name: &str, turn: bool, sign: f32| {
                let turn = if turn { ".t()" } else { "" };
                format!("{}slot.{name}{turn}", if sign < 0.0 { "-" } else { "" })
            };
            let (left, right) = (written("a", turn_a, sign_a), written("b", turn_b, sign_b));
            let body = format!("let mut acc = Acc::<f32, {m}, {n}>::zero(); acc.mma({left}, {right}); {DONE} {OUT}");
            let source = kernel(groups, span, shapes, (m, n), "", &body);
            let expected: Vec<f32> = product(&a, &b, (m, n, k)).iter().map(|x| x * sign_a * sign_b).collect();
            let a = if turn_a { transposed(&a, m, k) } else { a };
            let b = if turn_b { transposed(&b, n, k) } else { b };
            check(&source, [&a, &b], shapes, &expected);
        }
    }
}

/// An accumulator, rounded, is the A operand of the next product.
#[test]
fn operands_in_registers() {
    let texts = check_bodies(
        40,
        &[
            &format!("{ZERO} {ONE} {SECOND} y.mma(acc.as_a::<bf16>(), slot.b.t()); {DONE} {OUT_Y}"),
            &format!(
                "{ZERO} {ONE} {SECOND} #[unroll] for i in 0..4 {{
                     y.mma(acc.as_a::<bf16>().k_slice(16 * i), slot.b.t().k_slice(16 * i));
                 }} {DONE} {OUT_Y}"
            ),
            &format!(
                "{ZERO} {ONE} {SECOND} y.mma(-acc.columns(0..32).as_a::<bf16>(), -slot.b.rows(0..32).t());
                 y.mma(acc.columns(32..64).as_a::<bf16>(), slot.b.rows(32..64).t()); {DONE} {OUT_Y}"
            ),
            &format!(
                "{ZERO} {ONE} {SECOND} let p = acc.as_a::<bf16>();
                 y.mma(p.columns(0..32), slot.b.rows(0..32).t()); wgmma::commit();
                 y.mma(p.columns(32..64), slot.b.rows(32..64).t()); wgmma::commit();
                 wgmma::wait::<0>(); {OUT_Y}"
            ),
            // Halves of the first are read while the second half of it is in flight.
            &format!(
                "{ZERO} {SECOND}
                 acc.columns(0..32).mma(slot.a, slot.b.rows(0..32)); wgmma::commit();
                 acc.columns(32..64).mma(slot.a, slot.b.rows(32..64)); wgmma::commit();
                 wgmma::wait::<1>();
                 y.mma(acc.columns(0..32).as_a::<bf16>(), slot.b.rows(0..32).t()); wgmma::commit();
                 wgmma::wait::<1>();
                 y.mma(acc.columns(32..64).as_a::<bf16>(), slot.b.rows(32..64).t()); wgmma::commit();
                 wgmma::wait::<0>(); {OUT_Y}"
            ),
        ],
        |_, b, product| times_b(&product.iter().map(|x| rounded(*x)).collect::<Vec<_>>(), b),
    );
    // The same conversion is the same registers: 32 numbers a thread, in pairs.
    for text in &texts {
        assert_eq!(text.matches("cvt.rn.bf16x2.f32").count(), 16, "{text}");
    }
    let negated = format!("{ZERO} {ONE} {SECOND} y.mma(-acc.as_a::<bf16>(), slot.b.t()); {DONE} {OUT_Y}");
    check_bodies(41, &[&negated], |_, b, product| {
        times_b(&product.iter().map(|x| -rounded(*x)).collect::<Vec<_>>(), b)
    });
    // After a change it is another.
    let changed = format!(
        "{ZERO} {ONE} {SECOND} y.mma(acc.as_a::<bf16>(), slot.b.t()); {DONE}
         {ONE} y.mma(acc.as_a::<bf16>(), slot.b.t()); {DONE}
         acc = acc.map(|row, column, x| 0.5 * x); y.mma(acc.as_a::<bf16>(), slot.b.t()); {DONE}
         if n > 9 {{ let p = acc.as_a::<bf16>(); y.mma(p, slot.b.t()); {DONE} }}
         y.mma(acc.as_a::<bf16>(), slot.b.t()); {DONE} {OUT_Y}"
    );
    check_bodies(42, &[&changed], |_, b, product| {
        let round: Vec<f32> = product.iter().map(|x| 5.0 * rounded(*x)).collect();
        times_b(&round, b)
    });
    // What rounding leaves over is exact here: sums have at most 12 bits.
    let split = format!(
        "{ZERO} {ONE} {SECOND} let (high, low) = acc.split_a::<bf16>();
         y.mma(high, slot.b.t()); y.mma(low, slot.b.t()); {DONE} {OUT_Y}"
    );
    check_bodies(43, &[&split], |_, b, product| times_b(product, b));
    for body in [
        format!("{ZERO} acc.mma(slot.a, slot.b); {SECOND} y.mma(acc.as_a::<bf16>(), slot.b.t()); {DONE}"),
        format!(
            "{ZERO} acc.mma(slot.a, slot.b); wgmma::commit(); let p = acc.columns(0..16).as_a::<bf16>(); wgmma::wait::<0>();"
        ),
    ] {
        assert_eq!(error_of(&square(1, &body)), 903, "{body}");
    }
    for body in [
        format!("{ZERO} {ONE} {SECOND} y.mma(acc.as_a::<f16>(), slot.b.t()); {DONE}"),
        format!("{ZERO} {ONE} {SECOND} y.mma(acc.columns(0..32).as_a::<bf16>(), slot.b.t()); {DONE}"),
        format!("{ZERO} {ONE} {SECOND} y.mma(acc.columns(0..24).as_a::<bf16>(), slot.b.t()); {DONE}"),
        format!("{ZERO} {ONE} {SECOND} y.mma(slot.b, acc.as_a::<bf16>()); {DONE}"),
    ] {
        assert_eq!(error_of(&square(1, &body)), 902, "{body}");
    }
}

/// The other types that products take, and what they do not.
#[test]
fn types_of_operands() {
    // f16: the bits of small integers, and tf32: those of f32.
    let half = |x: &f32| half_bits(*x);
    let (a, b, expected) = square_inputs(1, 80);
    let body = format!("{ZERO} {ONE} {OUT}");
    let mut run = Run::new(&square(1, &body).replace("bf16", "f16"));
    run.assemble();
    let (a16, b16): (Vec<u16>, Vec<u16>) = (a.iter().map(half).collect(), b.iter().map(half).collect());
    run.map("a", &a16, &[64, 64]).map("b", &b16, &[64, 64]).tensor("c", &vec![-1f32; 64 * 64]).set("n", 3u32);
    assert_eq!(run.launch_everywhere(1).read::<f32>("c"), expected);
    let body = format!("{ZERO} {ONE} {SECOND} y.mma(-acc.as_a::<f16>(), slot.b.t()); {DONE} {OUT_Y}");
    let mut run = Run::new(&square(1, &body).replace("bf16", "f16"));
    run.assemble();
    run.map("a", &a16, &[64, 64]).map("b", &b16, &[64, 64]).tensor("c", &vec![-1f32; 64 * 64]).set("n", 3u32);
    // Sums of at most 11 bits are exact in f16; the others are even.
    let rounded: Vec<f32> = expected.iter().map(|x| -half_value(half_bits(*x))).collect();
    assert_eq!(run.launch_everywhere(1).read::<f32>("c"), times_b(&rounded, &b));
    for (span, k) in [(128, 64), (64, 32), (32, 24)] {
        let mut random = Random::new(81 + span as u64);
        let (a, b) = (matrix(&mut random, 64, k), matrix(&mut random, 32, k));
        let body = format!("let mut acc = Acc::<f32, 64, 32>::zero(); acc.mma(slot.a, -slot.b); {DONE} {OUT}");
        let source = kernel(1, span, [(64, k), (32, k)], (64, 32), "", &body).replace("bf16", "f32");
        let mut run = Run::new(&source);
        run.assemble();
        run.map("a", &a, &[64, k as u64]).map("b", &b, &[32, k as u64]).tensor("c", &vec![-1f32; 64 * 32]);
        let expected: Vec<f32> = product(&a, &b, (64, 32, k)).iter().map(|x| -x).collect();
        assert_eq!(run.set("n", 3u32).launch_everywhere(1).read::<f32>("c"), expected, "{}", run.compiled.ptx);
    }
    for (from, to, body) in [
        // Only 16-bit elements are transposed, and nothing without a swizzle.
        ("bf16", "f32", format!("{ZERO} acc.mma(slot.a, slot.b.t()); {DONE}")),
        ("Swizzle<128>", "Swizzle<0>", format!("{ZERO} {ONE}")),
        ("bf16", "i32", format!("{ZERO} {ONE}")),
        // Parts that no descriptor describes.
        ("", "", format!("{ZERO} acc.columns(0..32).mma(slot.a, slot.b.t().rows(8..40)); {DONE}")),
        ("", "", format!("{ZERO} acc.mma(slot.a.columns(8..24), slot.b.columns(8..24)); {DONE}")),
        ("", "", format!("{ZERO} acc.mma(slot.a.columns(0..24), slot.b.columns(0..24)); {DONE}")),
        ("", "", format!("{ZERO} acc.mma(slot.a.k_slice(0), slot.b); {DONE}")),
        ("", "", format!("{ZERO} acc.mma(slot.a.rows(0..32), slot.b); {DONE}")),
    ] {
        let source = square(1, &body);
        let source = if from.is_empty() { source } else { source.replace(from, to) };
        assert_eq!(error_of(&source), 902, "{body}");
    }
}

/// An integer as f16, ties to even.
fn half_bits(x: f32) -> u16 {
    let magnitude = x.abs();
    if magnitude == 0.0 {
        return 0;
    }
    let exponent = magnitude.log2().floor();
    let step = (exponent - 10.0).exp2();
    let units = (magnitude / step).round_ties_even() as u32;
    let bits = ((exponent as i32 + 15) as u32 * 1024) + units - 1024;
    bits as u16 | u16::from(x < 0.0) << 15
}

fn half_value(bits: u16) -> f32 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
    let value = if exponent == 0 { 0.0 } else { (1024.0 + fraction) * ((exponent - 25) as f32).exp2() };
    if bits >> 15 == 0 { value } else { -value }
}
