//! Accumulators: elements with coordinates, values, few rows.

use super::*;

/// Coordinates: elements know their row and column, in any number of warpgroups.
#[test]
fn coordinates_of_elements() {
    let place = "(row * 64 + column) as f32";
    let scaled = |product: &[f32]| product.iter().enumerate().map(|(i, x)| 2.0 * x + i as f32).collect::<Vec<_>>();
    check_bodies(
        20,
        &[
            &format!("{ZERO} {ONE} acc = acc.map(|row, column, x| 2.0 * x + {place}); {OUT}"),
            &format!("{ZERO} {ONE} let acc = acc.map(|row, column, x| 2.0 * x + {place}); {OUT}"),
            &format!(
                "let mut acc = Acc::<f32, 64, 64>::from_fn(|row, column| {place});
                 for i in 1..n {{ {ONE} }} {OUT}"
            ),
            // A loop that changes the accumulator by both.
            &format!(
                "{ZERO} for i in 1..n {{ {ONE} if i == 2 {{ acc = acc.map(|row, column, x| x + {place}); }} }} {OUT}"
            ),
            &format!("{ZERO} {ONE} {ONE} acc.columns(32..64) = acc.columns(32..64).map(|row, column, x| x + (row * 64 + column + 32) as f32);
                acc.columns(0..32) = acc.columns(0..32).map(|row, column, x| x + {place}); {OUT}"),
        ],
        |_, _, product| scaled(product),
    );
    let (a, b, product) = square_inputs(2, 21);
    for blocks in [1, 2] {
        let (groups, m) = (2, 128 * blocks);
        let shapes = [(m, 64), (64, 64)];
        let a: Vec<f32> = (0..blocks).flat_map(|_| a.clone()).collect();
        let product: Vec<f32> = (0..blocks).flat_map(|_| product.clone()).collect();
        let body = format!(
            "let mut acc = Acc::<f32, {m}, 64>::zero(); {ONE} acc = acc.map(|row, column, x| 2.0 * x + {place}); {OUT}"
        );
        check(&kernel(groups, 128, shapes, (m, 64), "", &body), [&a, &b], shapes, &scaled(&product));
    }
    assert_eq!(error_of(&square(1, &format!("{ZERO} {ONE} acc = acc.map(|x| x); {OUT}"))), 168);
    assert_eq!(error_of(&square(1, &format!("{ZERO} {ONE} acc = acc.map(|row, column, x| row); {OUT}"))), 150);
    let body = format!("{ZERO} acc.mma(slot.a, slot.b); acc = acc.map(|row, column, x| x); {DONE} {OUT}");
    assert_eq!(error_of(&square(1, &body)), 903);
}

/// Accumulators are values: a second variable has registers of its own.
#[test]
fn accumulators_are_values() {
    let wide = "let mut wide = [Acc::<f32, 64, 64>::zero(); 2];";
    check_bodies(
        30,
        &[
            &format!("{ZERO} {ONE} let before = acc; {ONE} let acc = before; {OUT}"),
            &format!("{ZERO} {ONE} let mut other = acc; other.mma(slot.a, slot.b); {DONE} {OUT}"),
            &format!(
                "{ZERO} let mut other = acc; {ONE} (acc, other) = (other, acc); (acc, other) = (other, acc); {OUT}"
            ),
            &format!(
                "{wide} wide[0].mma(slot.a, slot.b); {DONE} wide[1].mma(slot.a, slot.b); {DONE} wide[1].mma(slot.a, slot.b); {DONE} let acc = wide[0]; {OUT}"
            ),
            &format!("{ZERO} {ONE} let kept = acc; {ONE} for i in 0..n {{ acc = kept; }} {OUT}"),
        ],
        |_, _, product| product.to_vec(),
    );
    let items = "
    #[device] fn add(acc: &mut Acc<f32, 64, _>, a: Tile, b: Tile) { acc.mma(a, b); wgmma::commit(); wgmma::wait::<0>(); }
    #[device] fn aside(mut acc: Acc<f32, 64, 64>, a: Tile, b: Tile) { acc.mma(a, b); wgmma::commit(); wgmma::wait::<0>(); }
    #[kernel(";
    let (a, b, product) = square_inputs(1, 31);
    for body in [
        format!("{ZERO} add(&mut acc, slot.a, slot.b); aside(acc, slot.a, slot.b); {OUT}"),
        format!(
            "{ZERO} add(&mut acc.columns(0..32), slot.a, slot.b.rows(0..32)); add(&mut acc.columns(32..64), slot.a, slot.b.rows(32..64)); {OUT}"
        ),
    ] {
        let source = square(1, &body).replacen("#[kernel(", items, 1);
        check(&source, [&a, &b], SQUARE, &product);
    }
}

/// Fewer rows than a warpgroup has: nobody reads or writes those beyond, and they are zero.
#[test]
fn accumulators_of_few_rows() {
    for m in [16, 32, 48] {
        let (a, b, product) = square_inputs(1, 100 + m as u64);
        let (a, product) = (a[..m * 64].to_vec(), product[..m * 64].to_vec());
        let shapes = [(m, 64), (64, 64)];
        let tile = format!("let tile = smem::<bf16, Shape<64, {m}>, Swizzle<0>>();");
        let y = format!("let mut y = Acc::<f32, {m}, 64>::zero();");
        let fill = "Acc::load(slot.a)";
        let (round, change): (Vec<f32>, _) = (product.iter().map(|x| rounded(*x)).collect(), "|row, column, x|");
        for (expected, body) in [
            (product.clone(), format!("let x = {fill}; {y} y.mma(x.as_a::<bf16>(), slot.b); {DONE} {OUT_Y}")),
            // From global memory, which has no more rows than the accumulator.
            (
                product.iter().map(|x| x - 1.0).collect(),
                format!(
                    "let x = {fill}; let mut y = Acc::<f32, {m}, 64>::from_fn(|row, column| c.at([row, column]).load());
                     y.mma(x.as_a::<bf16>(), slot.b); {DONE} {OUT_Y}"
                ),
            ),
            (
                product.iter().map(|x| 2.0 * x - 1.0).collect(),
                format!(
                    "let x = {fill}; {y} y.mma(x.as_a::<bf16>(), slot.b); {DONE}
                     y = y.map({change} 2.0 * x + c.at([row, column]).load()); {OUT_Y}"
                ),
            ),
            (
                round,
                format!(
                    "let x = {fill}; {y} y.mma(x.as_a::<bf16>(), slot.b); {DONE} y.store_t(tile); cta_sync();
                     for i in (tid..{m} * 64).step_by(128) {{
                         c.at([i / 64, i % 64]).store(tile[[i % 64, i / 64]] as f32);
                     }}"
                ),
            ),
        ] {
            check(&kernel(1, 128, shapes, (m, 64), &tile, &body), [&a, &b], shapes, &expected);
        }
        let body = format!("{y} y.mma(slot.a, slot.b); {DONE} {OUT_Y}");
        assert_eq!(error_of(&kernel(1, 128, shapes, (m, 64), "", &body)), 902);
    }
    assert_eq!(error_of(&square(1, "let acc = Acc::<f32, 24, 64>::zero();")), 901);
    assert_eq!(error_of(&square(2, "let acc = Acc::<f32, 32, 64>::zero();")), 901);
    // One register more than a thread has.
    assert_eq!(error_of(&square(1, "let acc = Acc::<f32, 256, 128>::zero();")), 901);
    assert_eq!(error_of(&square(2, "let acc = Acc::<f32, 512, 128>::zero();")), 901);
}

/// The registers of an accumulator are a fragment of each warp: arithmetic, products of fragments, the way back to memory.
#[test]
fn accumulators_as_fragments() {
    let place = "64 * (row / 16) + 16 * (warp % 4) + row % 16";
    let out = format!("f.for_each(|row, column, pair| c.at([{place}, column]).store_v(pair));");
    check_bodies(
        50,
        &[
            &format!("{ZERO} {ONE} let f = acc.fragment(); {ONE} {out}"),
            &format!("{ZERO} {ONE} let f = 0.5 * (acc.fragment() + acc.fragment()); {out}"),
            &format!("{ZERO} let f = acc.fragment(); {ONE} let f = f + acc.fragment(); {out}"),
            &format!(
                "{ZERO} {ONE} let zero = Frag::<f32, 16, 64>::zero();
                 let f = acc.columns(0..32).fragment(); f.for_each(|row, column, pair| c.at([{place}, column]).store_v(pair));
                 let f = acc.columns(32..64).fragment(); f.for_each(|row, column, pair| c.at([{place}, 32 + column]).store_v(pair));"
            ),
        ],
        |_, _, product| product.to_vec(),
    );
    // As the first operand of products in a warp: P times B.
    let body = format!(
        "{ZERO} {ONE} let (high, low) = acc.fragment().split::<bf16>();
         let b = Frag::<bf16, 64, 64>::load_t(slot.b);
         let mut f = Frag::<f32, 16, 64>::zero(); f.mma(low, b); f.mma(high, b); {out}"
    );
    check_bodies(51, &[&body], |_, b, product| times_b(product, b));
    // Two blocks of 64 rows, and two warpgroups.
    let (a, b, product) = square_inputs(2, 52);
    let shapes = [(128, 64), (64, 64)];
    for (groups, more) in [(1, ""), (2, " + 64 * (warp / 4)")] {
        let out = format!("acc.fragment().for_each(|row, column, pair| c.at([{place}{more}, column]).store_v(pair));");
        let body = format!("let mut acc = Acc::<f32, 128, 64>::zero(); {ONE} {out}");
        check(&kernel(groups, 128, shapes, (128, 64), "", &body), [&a, &b], shapes, &product);
    }
    let body = format!("{ZERO} acc.mma(slot.a, slot.b); let f = acc.fragment(); {DONE} {OUT}");
    assert_eq!(error_of(&square(1, &body)), 903);
}
