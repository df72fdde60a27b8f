//! Accumulators from values: element pairs that are changed, fragments that become accumulators.

use super::*;

/// Pairs know the coordinates of their first element, in one or more parts.
#[test]
fn pairs_of_elements_are_changed() {
    let change = "[2.0 * pair[0] + (row * 64 + column) as f32, pair[1] - 3.0 * pair[0]]";
    let columns = change.replace("column)", "column + 32)");
    check_bodies(
        40,
        &[
            &format!("{ZERO} {ONE} acc = acc.map_pairs(|row, column, pair| {change}); {OUT}"),
            &format!("{ZERO} {ONE} let acc = acc.map_pairs(|row, column, pair| {change}); {OUT}"),
            &format!(
                "{ZERO} {ONE} acc.columns(32..64) = acc.columns(32..64).map_pairs(|row, column, pair| {columns});
                 acc.columns(0..32) = acc.columns(0..32).map_pairs(|row, column, pair| {change}); {OUT}"
            ),
            // In a loop that changes it once.
            &format!(
                "{ZERO} {ONE} for i in 0..n {{ if i == 1 {{ acc = acc.map_pairs(|row, column, pair| {change}); }} }} {OUT}"
            ),
        ],
        |_, _, product| {
            let first = |at: usize| 2.0 * product[at] + at as f32;
            (0..product.len())
                .map(|at| if at % 2 == 0 { first(at) } else { product[at] - 3.0 * product[at - 1] })
                .collect()
        },
    );
    // Arithmetic of arrays, element by element.
    let body = format!("{ZERO} {ONE} let by = [2.0, 3.0]; acc = acc.map_pairs(|_, _, pair| pair * by); {OUT}");
    check_bodies(41, &[&body], |_, _, product| {
        product.iter().enumerate().map(|(at, x)| x * if at % 2 == 0 { 2.0 } else { 3.0 }).collect()
    });
    for (closure, code) in [("|row, column, pair| pair[0]", 168), ("|pair| pair", 168)] {
        let body = format!("{ZERO} {ONE} acc = acc.map_pairs({closure}); {OUT}");
        assert_eq!(error_of(&square(1, &body)), code, "{closure}");
    }
    let body = format!("{ZERO} acc.mma(slot.a, slot.b); acc = acc.map_pairs(|_, _, pair| pair); {DONE} {OUT}");
    assert_eq!(error_of(&square(1, &body)), 903);
}

/// Row of the warpgroup's that row `row` of a warp's fragment is.
const PLACE: &str = "(64 * (row / 16) + 16 * (warp % 4) + row % 16)";

#[test]
fn fragments_become_accumulators() {
    let fragment = format!("Frag::<f32, 16, 64>::from_fn(|row, column| ({PLACE} * 64 + column) as f32)");
    let from_nothing = |extra: f32| {
        move |_: &[f32], _: &[f32], product: &[f32]| -> Vec<f32> {
            product.iter().enumerate().map(|(at, x)| x + extra * at as f32).collect()
        }
    };
    check_bodies(
        60,
        &[
            &format!("let mut acc = Acc::<f32, 64, 64>::of({fragment}); {ONE} {OUT}"),
            // In place, over what it held.
            &format!("{ZERO} {ONE} acc = Acc::<f32, 64, 64>::of({fragment}); {ONE} {OUT}"),
            &format!("{ZERO} acc = Acc::of({fragment}); {ONE} {OUT}"),
            &format!("{ZERO} for i in 0..n {{ acc = Acc::of({fragment}); {ONE} }} {OUT}"),
            // There and back; its own registers, changed on the way.
            &format!("{ZERO} {ONE} let f = acc.fragment(); acc = Acc::of(f + {fragment}); {OUT}"),
        ],
        from_nothing(1.0),
    );
    // Rounded values are the same numbers.
    let rounded_to = |to: &str| format!("{ZERO} {ONE} acc = Acc::of(acc.fragment().round::<{to}>()); {OUT}");
    check_bodies(61, &[&rounded_to("bf16")], |_, _, product| product.iter().map(|x| rounded(*x)).collect());
    // Blocks of 64 rows, and two warpgroups.
    let (a, b, product) = square_inputs(2, 62);
    let (shapes, double) = ([(128, 64), (64, 64)], product.iter().map(|x| 2.0 * x).collect::<Vec<f32>>());
    for groups in [1, 2] {
        let body = format!(
            "let mut acc = Acc::<f32, 128, 64>::zero(); {ONE}
             acc = Acc::<f32, 128, 64>::of(2.0 * acc.fragment()); {OUT}"
        );
        check(&kernel(groups, 128, shapes, (128, 64), "", &body), [&a, &b], shapes, &double);
    }
}

/// Of an accumulator of few rows the first warps have rows, and the others nothing that counts.
#[test]
fn fragments_of_few_rows() {
    for m in [16, 32, 48] {
        let (a, b, product) = square_inputs(1, 70 + m as u64);
        let (a, product) = (a[..m * 64].to_vec(), product[..m * 64].to_vec());
        let shapes = [(m, 64), (64, 64)];
        let load = "let x = Acc::load(slot.a);";
        let fragment = format!("Frag::<f32, 16, 64>::from_fn(|row, column| ({PLACE} * 64 + column) as f32)");
        let expected: Vec<f32> = product.iter().enumerate().map(|(at, x)| x + at as f32).collect();
        for start in [
            format!("let mut y = Acc::<f32, {m}, 64>::of({fragment});"),
            format!("let mut y = Acc::<f32, {m}, 64>::zero(); y = Acc::<f32, {m}, 64>::of({fragment});"),
        ] {
            let body = format!("{load} {start} y.mma(x.as_a::<bf16>(), slot.b); {DONE} {OUT_Y}");
            check(&kernel(1, 128, shapes, (m, 64), "", &body), [&a, &b], shapes, &expected);
        }
    }
}

#[test]
fn fragments_that_do_not_fit() {
    let with = |fragment: &str| square(1, &format!("let acc = Acc::<f32, 64, 64>::of({fragment}); {OUT}"));
    for fragment in ["Frag::<f32, 32, 64>::zero()", "Frag::<f32, 16, 32>::zero()", "1.0"] {
        let code = error_of(&with(fragment));
        assert!((150..1000).contains(&code), "{fragment}: {code}");
    }
    let body = format!("{ZERO} acc.mma(slot.a, slot.b); acc = Acc::of(Frag::<f32, 16, 64>::zero()); {DONE} {OUT}");
    assert_eq!(error_of(&square(1, &body)), 903);
}
