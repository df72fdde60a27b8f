//! Accumulators that go to tiles and come from them.

use super::*;

/// Accumulators go to tiles of every layout and come from them, as they are and transposed.
#[test]
fn accumulators_in_tiles() {
    for (case, (span, m, n, groups)) in
        [(128, 64, 64, 1), (128, 256, 128, 2), (64, 128, 96, 2), (32, 128, 48, 1), (0, 64, 80, 1)]
            .into_iter()
            .enumerate()
    {
        for turn in [false, true] {
            let mut random = Random::new(50 + 2 * case as u64 + u64::from(turn));
            // Numbers that are to be rounded, and a tile of such that are not.
            let a: Vec<f32> = matrix(&mut random, m, n).iter().map(|x| x * 3.0).collect();
            let shape = if turn { (n, m) } else { (m, n) };
            let lies = if turn { transposed(&a, m, n) } else { a.clone() };
            let (suffix, rows, columns) = (if turn { "_t" } else { "" }, shape.0, shape.1);
            let before = format!("let tile = smem::<bf16, Shape<{rows}, {columns}>, Swizzle<{span}>>();");
            let body = format!(
                "let acc = Acc::load{suffix}(slot.a).map(|row, column, x| 1.001 * x);
                 acc.store{suffix}(tile);
                 cta_sync();
                 for i in (tid..{rows} * {columns}).step_by(128 * {groups}) {{
                     c.at([i / {columns}, i % {columns}]).store(tile[[i / {columns}, i % {columns}]] as f32);
                 }}"
            );
            let shapes = [shape, (64, 64)];
            let source = kernel(groups, span, shapes, shape, &before, &body)
                .replace("Shape<64, 64>, Swizzle<0>", "Shape<64, 64>, Swizzle<128>");
            let expected: Vec<f32> = lies.iter().map(|x| rounded(1.001 * x)).collect();
            check(&source, [&lies, &vec![0.0; 64 * 64]], shapes, &expected);
        }
    }
    // As the initial accumulator; and what is stored is an operand of the next product.
    let tile = "let tile = smem::<bf16, Shape<64, 64>, Swizzle<128>>();";
    let (a, b, once) = square_inputs(1, 70);
    let sum = |start: &[f32]| once.iter().zip(start).map(|(x, y)| x + y).collect::<Vec<_>>();
    let round: Vec<f32> = once.iter().map(|x| rounded(*x)).collect();
    let chained = product(&round, &b, (64, 64, 64));
    for (expected, body) in [
        (&sum(&a), format!("let mut acc = Acc::load(slot.a); {ONE} {OUT}")),
        (&sum(&transposed(&b, 64, 64)), format!("let mut acc = Acc::load_t(slot.b); {ONE} {OUT}")),
        (&sum(&transposed(&b, 64, 64)), format!("let mut acc = Acc::<f32, 64, 64>::load(slot.b.t()); {ONE} {OUT}")),
        (&chained, format!("{ZERO} {ONE} acc.store(tile); cta_sync(); {SECOND} y.mma(tile, slot.b); {DONE} {OUT_Y}")),
        (
            &chained,
            format!("{ZERO} {ONE} acc.store_t(tile); cta_sync(); {SECOND} y.mma(tile.t(), slot.b); {DONE} {OUT_Y}"),
        ),
        (
            &chained,
            format!(
                "{ZERO} {ONE} acc.columns(0..32).store(tile.columns(0..32));
                 acc.columns(32..64).as_a::<bf16>().store_t(tile.columns(32..64).t());
                 cta_sync(); {SECOND} y.mma(tile, slot.b); {DONE} {OUT_Y}"
            ),
        ),
        // One conversion for the store and for a product in flight.
        (
            &chained,
            format!(
                "{ZERO} {ONE} let p = acc.as_a::<bf16>(); {SECOND} y.mma(p, slot.b); wgmma::commit();
                 p.store(tile); wgmma::wait::<0>(); {OUT_Y}"
            ),
        ),
    ] {
        let source = kernel(1, 128, SQUARE, (64, 64), tile, &body);
        let mut run = check(&source, [&a, &b], SQUARE, expected);
        // The hand-over to the product needs its fence.
        if body.contains("cta_sync") {
            let fence = "fence.proxy.async.shared::cta;";
            assert!(run.compiled.ptx.contains(fence));
            run.compiled.ptx = run.compiled.ptx.replace(fence, "");
            let report = run.try_launch(1, &Options::default()).expect_err("a race");
            assert!(report.to_string().contains("fence.proxy.async"), "{report}");
        }
    }
    for (code, body) in [
        (902, format!("{ZERO} {ONE} acc.store(tile.columns(0..32));")),
        (902, format!("{ZERO} {ONE} (-acc.as_a::<bf16>()).store(tile);")),
        (902, format!("{ZERO} {ONE} acc.store(n);")),
        (903, format!("{ZERO} acc.mma(slot.a, slot.b); acc.store(tile); {DONE}")),
        (350, format!("{ZERO} {ONE} if lane < 4 {{ acc.store(tile); }}")),
        (901, "let acc = Acc::load(slot.a.rows(0..40));".into()),
    ] {
        assert_eq!(error_of(&kernel(1, 128, SQUARE, (64, 64), tile, &body)), code, "{body}");
    }
}

/// The recurrence on the page of the language: products from registers, halves of N, tiles stored while they are read.
#[test]
fn the_recurrence_of_the_page() {
    let page = include_str!("../../../../docs/language.md");
    let source = page.split("```rust,kernel\n").find(|block| block.contains("pub mod state")).expect("the block");
    let source = source.split("```").next().expect("its code");
    let (chunks, v, k) = (3, 64, 128);
    let rows = 64 * chunks;
    let mut random = Random::new(90);
    // Few numbers are not zero, so that sums stay exact.
    let mut sparse = |n: usize| -> Vec<f32> {
        (0..n).map(|_| if random.below(24) == 0 { random.below(3) as f32 - 1.0 } else { 0.0 }).collect()
    };
    let (w, u, g) = (sparse(rows * k), sparse(rows * v), sparse(rows * k));
    let decay: Vec<f32> = (0..k).map(|i| if i % 3 == 0 { 0.5 } else { 1.0 }).collect();
    let start = matrix(&mut random, v, k);
    let (mut s, mut h) = (start.clone(), Vec::new());
    for c in 0..chunks {
        let part = |a: &[f32], n: usize| a[c * 64 * n..(c + 1) * 64 * n].to_vec();
        let round: Vec<f32> = s.iter().map(|x| rounded(*x)).collect();
        h.extend(transposed(&round, v, k).iter().map(|x| bf16(*x)));
        let products = product(&round, &part(&w, k), (v, 64, k));
        let x: Vec<f32> = transposed(&part(&u, v), 64, v).iter().zip(&products).map(|(u, p)| rounded(u - p)).collect();
        let added = product(&x, &transposed(&part(&g, k), 64, k), (v, k, 64));
        s = s.iter().enumerate().map(|(i, s)| s * decay[i % k] + added[i]).collect();
    }
    let mut run = Run::new(source);
    run.assemble();
    let size = |n: usize| n as u64;
    run.map("w", &bits(&w), &[size(rows), size(k)]).map("u", &bits(&u), &[size(rows), size(v)]);
    run.map("g", &bits(&g), &[size(rows), size(k)]).tensor("decay", &decay).tensor("s0", &start);
    run.tensor("s1", &vec![0f32; v * k]).tensor("h", &vec![0u16; rows * 2 * v]).set("rows", rows as u32);
    run.launch_everywhere(1);
    assert_eq!(run.read::<f32>("s1"), s);
    assert_eq!(run.read::<u16>("h"), h);
}
