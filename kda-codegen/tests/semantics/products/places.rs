//! Assignments that write an accumulator in place.

use super::*;

/// Instructions that copy a register.
fn copies(text: &str) -> usize {
    text.lines().filter(|l| l.contains("mov.b32 %r") && l.contains(", %r")).count()
}

/// An accumulator that is mapped into itself, as a whole or in parts, with branches in the closure or not.
#[test]
fn mapped_into_itself() {
    let place = "(row * 64 + column) as f32";
    let texts = check_bodies(
        60,
        &[
            &format!("{ZERO} {ONE} acc = acc.map(|row, column, x| 2.0 * x + {place}); {OUT}"),
            // The closure looks at the accumulator: it is computed aside.
            &format!("{ZERO} {ONE} acc = acc.map(|row, column, acc| 2.0 * acc + {place}); {OUT}"),
            &format!(
                "{ZERO} {ONE} #[unroll] for half in [0, 32] {{
                     acc.columns(half..half + 32) = acc.columns(half..half + 32).map(|row, column, x| {{
                         2.0 * x + (row * 64 + column + half) as f32
                     }});
                 }} {OUT}"
            ),
            // A branch at each element, and zeros that nothing has written yet.
            &format!(
                "{ZERO} acc = acc.map(|row, column, x| if n > 2 {{ x + {place} }} else {{ c.at([row, column]).load() }});
                 acc.mma(slot.a, slot.b); {DONE} acc.mma(slot.a, slot.b); {DONE} {OUT}"
            ),
            &format!("{ZERO} {ONE} let kept = acc; acc = acc.map(|row, column, x| x + {place}); acc = acc.map(|row, column, x| x);
                let mut kept = kept; kept = kept.map(|row, column, x| 2.0 * x + {place}); let acc = kept; {OUT}"),
        ],
        |_, _, product| product.iter().enumerate().map(|(i, x)| 2.0 * x + i as f32).collect(),
    );
    // 32 elements a thread: none is copied back.
    assert_eq!(copies(&texts[1]), copies(&texts[0]) + 32);
    let body = format!("{ZERO} acc.mma(slot.a, slot.b); wgmma::commit(); acc = acc.map(|row, column, x| x);");
    assert_eq!(error_of(&square(1, &body)), 903);
    assert_eq!(error_of(&square(1, "let acc = Acc::<f32, 64, 64>::zero(); acc = acc.map(|row, column, x| x);")), 159);
}

/// An accumulator that is loaded again, also in a loop and with few rows.
#[test]
fn loaded_again() {
    let again = |acc: &str| format!("{ZERO} {ONE} acc = {acc}; {ONE} {OUT}");
    check_bodies(
        61,
        &[
            &again("Acc::load(slot.a)"),
            &again("Acc::<f32, 64, 64>::load_t(slot.a.t())"),
            &format!("{ZERO} for i in 0..n {{ acc = Acc::load(slot.a); {ONE} }} {OUT}"),
            &format!("let mut acc = Acc::load_t(slot.b); {ONE} acc = Acc::load(slot.a); {ONE} {OUT}"),
        ],
        |a, _, product| product.iter().zip(a).map(|(x, a)| x + a).collect(),
    );
    for m in [16, 32, 48] {
        let (a, b, product) = square_inputs(1, 62);
        let (a, product) = (a[..m * 64].to_vec(), product[..m * 64].to_vec());
        let (shapes, a_shape) = ([(m, 64), (64, 64)], m);
        let body = format!(
            "let a = Acc::load(slot.a); let mut acc = Acc::<f32, {a_shape}, 64>::zero();
             for i in 0..n {{
                 acc = Acc::load(slot.a);
                 acc = acc.map(|row, column, x| 2.0 * x);
                 acc.mma(a.as_a::<bf16>(), slot.b); {DONE}
             }} {OUT}"
        );
        let expected: Vec<f32> = product.iter().zip(&a).map(|(x, a)| x + 2.0 * a).collect();
        check(&kernel(1, 128, shapes, (m, 64), "", &body), [&a, &b], shapes, &expected);
    }
    for (code, acc) in [(903, "Acc::load(slot.a)"), (902, "Acc::load(n)")] {
        let body = format!("{ZERO} acc.mma(slot.a, slot.b); acc = {acc}; {DONE}");
        assert_eq!(error_of(&square(1, &body)), code);
    }
}
