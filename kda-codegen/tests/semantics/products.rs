//! Products of warpgroups: every form of an operand and of an accumulator against sums in Rust, under every schedule.
//!
//! Inputs are small integers, so that sums are exact in any order.

use super::harness::{Random, Run, error_of};
use kda_sim::Options;

/// The bits of a small integer in bf16.
fn bf16(x: f32) -> u16 {
    assert_eq!(x.to_bits() & 0xffff, 0, "{x} is exact in bf16");
    (x.to_bits() >> 16) as u16
}

/// Rounded to bf16, ties to even.
fn rounded(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
}

/// A matrix of integers from -7 to 7.
fn matrix(random: &mut Random, rows: usize, columns: usize) -> Vec<f32> {
    (0..rows * columns).map(|_| random.below(15) as f32 - 7.0).collect()
}

/// The transpose of `[rows, columns]`.
fn transposed(a: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..rows * columns).map(|i| a[i % rows * columns + i / rows]).collect()
}

/// A Bᵀ for A `[m, k]` and B `[n, k]`.
fn product(a: &[f32], b: &[f32], (m, n, k): (usize, usize, usize)) -> Vec<f32> {
    let sum = |i: usize, j: usize| (0..k).map(|l| a[i * k + l] * b[j * k + l]).sum();
    (0..m * n).map(|at| sum(at / n, at % n)).collect()
}

fn bits(values: &[f32]) -> Vec<u16> {
    values.iter().map(|v| bf16(*v)).collect()
}

/// A kernel of one CTA of `groups` warpgroups: tiles `a` and `b` of these shapes are in shared memory, `c` is `[m, n]`.
fn kernel(
    groups: usize,
    span: usize,
    [a, b]: [(usize, usize); 2],
    (m, n): (usize, usize),
    before: &str,
    body: &str,
) -> String {
    let ((a0, a1), (b0, b1), threads) = (a, b, 128 * groups);
    format!(
        "#[kernels(arch = sm_90a)]
mod family {{
    #[kernel(block = {threads}, grid = 1)]
    fn k(
        #[dims({a0}, {a1})] a: TensorMap<bf16, Shape<{a0}, {a1}>, Swizzle<{span}>>,
        #[dims({b0}, {b1})] b: TensorMap<bf16, Shape<{b0}, {b1}>, Swizzle<{span}>>,
        #[dims({m}, {n})] c: GlobalMut<f32>,
        n: u32,
    ) {{
        let ring = Pipeline::cta {{
            a: smem::<bf16, Shape<{a0}, {a1}>, Swizzle<{span}>>(),
            b: smem::<bf16, Shape<{b0}, {b1}>, Swizzle<{span}>>(),
        }};
        {before}
        #[elect_one]
        {{
            let slot = ring.acquire();
            slot.a.tma_load(a, [0, 0]);
            slot.b.tma_load(b, [0, 0]);
            slot.commit();
        }}
        let slot = ring.wait();
        {body}
        slot.release();
    }}
}}"
    )
}

/// What most bodies end with.
const OUT: &str = "acc.for_each(|row, column, pair| c.at([row, column]).store_v(pair));";
const DONE: &str = "wgmma::commit(); wgmma::wait::<0>();";

/// Assembles what was compiled, where `KDA_PTXAS` names the assembler: no error, no spill, no note on products.
fn assembled(run: &Run) {
    let Ok(ptxas) = std::env::var("KDA_PTXAS") else { return };
    let path = std::env::temp_dir().join(format!("products-{:?}.ptx", std::thread::current().id()));
    std::fs::write(&path, &run.compiled.ptx).expect("a file");
    let arch = format!("-arch={}", run.compiled.arch);
    let output = std::process::Command::new(ptxas).args([&arch, "-v", "-o", "/dev/null"]).arg(&path).output();
    let output = output.expect("ptxas runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !text.contains("C75"), "{text}\n{}", run.compiled.ptx);
    assert!(text.contains(" 0 bytes spill stores"), "{text}");
}

/// Runs a kernel of [`kernel`] and compares `c`.
fn check(source: &str, [a, b]: [&[f32]; 2], shapes: [(usize, usize); 2], expected: &[f32]) -> Run {
    let mut run = Run::new(source);
    assembled(&run);
    let [a_shape, b_shape] = shapes.map(|(rows, columns)| [rows as u64, columns as u64]);
    run.map("a", &bits(a), &a_shape).map("b", &bits(b), &b_shape).tensor("c", &vec![-1.0f32; expected.len()]);
    run.set("n", 3u32).launch_everywhere(1);
    let got = run.read::<f32>("c");
    for (i, (got, want)) in got.iter().zip(expected).enumerate() {
        assert_eq!(got, want, "element {i}\n{source}\n{}", run.compiled.ptx);
    }
    run
}

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

const SQUARE: [(usize, usize); 2] = [(64, 64), (64, 64)];

/// A kernel of one warpgroup, or of two that share 128 rows, with tiles of 64 columns.
fn square(groups: usize, body: &str) -> String {
    let shapes = [(64 * groups, 64), (64, 64)];
    kernel(groups, 128, shapes, (64 * groups, 64), "", body)
}

/// Inputs of [`square`], and their product.
fn square_inputs(groups: usize, salt: u64) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
    let mut random = Random::new(salt);
    let (a, b) = (matrix(&mut random, 64 * groups, 64), matrix(&mut random, 64, 64));
    let product = product(&a, &b, (64 * groups, 64, 64));
    (a, b, product)
}

/// Both sides of a runtime branch leave the same products in flight.
#[test]
fn branches_keep_what_is_in_flight() {
    let acc = format!("let mut acc = Acc::<f32, 64, 64>::zero(); {}", "acc.mma(slot.a, slot.b);");
    for (code, body) in [
        (903, format!("{acc} wgmma::commit(); if n > 1 {{ wgmma::wait::<0>(); }} {OUT}")),
        (904, format!("{acc} if n > 1 {{ wgmma::commit(); }} {DONE} {OUT}")),
        (903, format!("{acc} if n > 1 {{ acc.mma(slot.a, slot.b); }} {DONE} {OUT}")),
        (
            903,
            format!("{acc} wgmma::commit(); if n > 1 {{ wgmma::wait::<0>(); }} else {{ wgmma::wait::<1>(); }} {OUT}"),
        ),
        (903, format!("{acc} wgmma::commit(); if n > 1 && {{ wgmma::wait::<0>(); n > 2 }} {{ }} {OUT}")),
        (903, format!("{acc} wgmma::commit(); if n > 9 {{ return; }} wgmma::wait::<0>(); {OUT}")),
        (903, format!("{acc} wgmma::commit(); for i in 0..n {{ wgmma::wait::<0>(); }} {OUT}")),
        (903, format!("{acc} wgmma::commit(); for i in 0..n {{ }} wgmma::wait::<0>(); {OUT}")),
        (903, format!("{acc} {DONE} for i in 0..n {{ acc.mma(slot.a, slot.b); wgmma::commit(); }} {OUT}")),
        (655, format!("{acc} wgmma::commit();")),
        (904, format!("{acc} if n > 1 {{ acc.mma(slot.a, slot.b); {DONE} }} else {{ {DONE} }} {OUT}")),
        (
            904,
            format!("{ZERO} if n > 1 {{ acc.mma(slot.a, slot.b); }} else {{ acc.mma(slot.a, slot.b); }} {DONE} {OUT}"),
        ),
        (905, format!("{acc} {DONE} #[elect_one] {{ acc.mma(slot.a, slot.b); {DONE} }} {OUT}")),
    ] {
        assert_eq!(error_of(&square(1, &body)), code, "{body}");
    }
    let (a, b, once) = square_inputs(1, 1);
    let twice: Vec<f32> = once.iter().map(|x| 2.0 * x).collect();
    for (expected, body) in [
        (
            &twice,
            format!(
                "{acc} wgmma::commit(); if n > 1 {{ acc.mma(slot.a, slot.b); {DONE} }} else {{ wgmma::wait::<0>(); }} {OUT}"
            ),
        ),
        (
            &once,
            format!(
                "{acc} wgmma::commit(); if n > 5 {{ acc.mma(slot.a, slot.b); {DONE} }} else {{ wgmma::wait::<0>(); }} {OUT}"
            ),
        ),
        (
            &once,
            format!("{acc} wgmma::commit(); if n > 1 {{ wgmma::wait::<0>(); }} else {{ wgmma::wait::<0>(); }} {OUT}"),
        ),
        (&twice, format!("{acc} {DONE} for i in 2..n {{ acc.mma(slot.a, slot.b); {DONE} }} {OUT}")),
        // Only one side uses the accumulator; the other leaves it zero.
        (
            &once,
            format!("let mut acc = Acc::<f32, 64, 64>::zero(); if n > 1 {{ acc.mma(slot.a, slot.b); {DONE} }} {OUT}"),
        ),
        (
            &once,
            format!(
                "let mut acc = Acc::<f32, 64, 64>::zero();
                 for i in 0..n {{ acc = Acc::<f32, 64, 64>::zero(); acc.mma(slot.a, slot.b); {DONE} }} {OUT}"
            ),
        ),
        (&vec![0.0; 64 * 64], format!("{acc} {DONE} for i in 0..n {{ acc = Acc::<f32, 64, 64>::zero(); }} {OUT}")),
    ] {
        check(&square(1, &body), [&a, &b], SQUARE, expected);
    }
}

/// All four warps of a warpgroup take part, and it is seen which conditions say so.
#[test]
fn products_are_of_whole_warpgroups() {
    let acc = "let mut acc = Acc::<f32, 128, 64>::zero();";
    let one = format!("acc.mma(slot.a, slot.b); {DONE}");
    for condition in
        ["warp == 1", "warp % 4 < 2", "warp > 0", "warp < 6", "warp >= 2", "lane < 4", "tid < 128", "warp & 6 == 2"]
    {
        for body in [
            format!("{acc} if {condition} {{ {one} }} {OUT}"),
            format!("{acc} {one} if {condition} {{ wgmma::wait::<0>(); }} {OUT}"),
            format!("{acc} {one} if {condition} {{ wgmma::commit(); }} {OUT}"),
        ] {
            assert_eq!(error_of(&square(2, &body)), 905, "{body}");
        }
    }
    assert_eq!(error_of(&square(2, &format!("{acc} for i in 0..warp {{ {one} }} {OUT}"))), 905);
    let (a, b, full) = square_inputs(2, 2);
    for (condition, rows) in [
        ("warp < 4", 0..64),
        ("warp / 4 == 1", 64..128),
        ("warp >> 2 == 0", 0..64),
        ("warp > 3", 64..128),
        ("warp <= 3 && n > 1", 0..64),
        ("ctaid.x == 0 && n == 3", 0..128),
    ] {
        let expected: Vec<f32> =
            full.iter().enumerate().map(|(i, x)| if rows.contains(&(i / 64)) { *x } else { 0.0 }).collect();
        let source = square(2, &format!("{acc} if {condition} {{ {one} }} {OUT}"));
        check(&source, [&a, &b], [(128, 64), (64, 64)], &expected);
    }
    // What a warp holds, it may use by itself.
    let alone = format!("{acc} {one} if warp == 5 {{ {OUT} }}");
    let expected: Vec<f32> =
        full.iter().enumerate().map(|(i, x)| if (80..96).contains(&(i / 64)) { *x } else { -1.0 }).collect();
    check(&square(2, &alone), [&a, &b], [(128, 64), (64, 64)], &expected);
}

/// What threads store into a tile is fenced before products read it; without the fence, or the barrier, it is a race.
#[test]
fn stored_tiles_are_fenced_for_products() {
    let before = "let twice = smem::<bf16, Shape<64, 64>, Swizzle<128>>();";
    let fill = "#[unroll] for i in 0..32 {
            let column = tid % 2 * 32 + i;
            twice[[tid / 2, column]] = bf16::rn(2.0 * (slot.a[[tid / 2, column]] as f32));
        }";
    let one = format!("acc.mma(twice, slot.b); {DONE}");
    let (a, b, once) = square_inputs(1, 3);
    let twice: Vec<f32> = once.iter().map(|x| 2.0 * x).collect();
    let acc = "let mut acc = Acc::<f32, 64, 64>::zero();";
    for body in [
        format!("{acc} {fill} cta_sync(); {one} {OUT}"),
        // Written in one trip, read in the next.
        format!(
            "{acc} {fill} cta_sync(); for i in 0..2 {{ {one} acc = Acc::<f32, 64, 64>::zero(); cta_sync(); {fill} cta_sync(); }} {one} {OUT}"
        ),
        format!("{acc} if n > 1 {{ {fill} }} cta_sync(); {one} {OUT}"),
    ] {
        let source = kernel(1, 128, SQUARE, (64, 64), before, &body);
        let mut run = check(&source, [&a, &b], SQUARE, &twice);
        let right = run.compiled.ptx.clone();
        let fence = "fence.proxy.async.shared::cta;";
        for (at, _) in right.match_indices(fence) {
            run.compiled.ptx = format!("{}{}", &right[..at], &right[at + fence.len()..]);
            let report = run.try_launch(1, &Options::default()).expect_err("a race");
            assert!(report.to_string().contains("fence.proxy.async"), "{report}");
        }
        assert!(right.contains(fence), "{right}");
    }
    // The fence is there, the barrier is not.
    let source = kernel(1, 128, SQUARE, (64, 64), before, &format!("{acc} {fill} {one} {OUT}"));
    let mut run = Run::new(&source);
    assert!(run.compiled.ptx.contains("fence.proxy.async.shared::cta;"));
    run.map("a", &bits(&a), &[64, 64]).map("b", &bits(&b), &[64, 64]).tensor("c", &[0f32; 64 * 64]);
    run.set("n", 3u32).try_launch(1, &Options::default()).expect_err("a race");
}

const ZERO: &str = "let mut acc = Acc::<f32, 64, 64>::zero();";
const ONE: &str = "acc.mma(slot.a, slot.b); wgmma::commit(); wgmma::wait::<0>();";

/// Checks bodies of one warpgroup, for A and B of 64 x 64, against what `expected` makes of A, B and A Bᵀ.
fn check_bodies(salt: u64, bodies: &[&str], expected: impl Fn(&[f32], &[f32], &[f32]) -> Vec<f32>) -> Vec<String> {
    let (a, b, product) = square_inputs(1, salt);
    let expected = expected(&a, &b, &product);
    bodies.iter().map(|body| check(&square(1, body), [&a, &b], SQUARE, &expected).compiled.ptx).collect()
}

/// Halves of N are in flight, and are waited for, by themselves.
#[test]
fn columns_of_an_accumulator() {
    let halves = "acc.columns(0..32).mma(slot.a, slot.b.rows(0..32));
        wgmma::commit();
        acc.columns(32..64).mma(slot.a, slot.b.rows(32..64));
        wgmma::commit();";
    let left = "acc.columns(0..32).for_each(|row, column, pair| c.at([row, column]).store_v(pair));";
    let right = "acc.columns(32..64).for_each(|row, column, pair| c.at([row, 32 + column]).store_v(pair));";
    check_bodies(
        10,
        &[
            &format!("{ZERO} {halves} wgmma::wait::<1>(); {left} wgmma::wait::<0>(); {right}"),
            &format!("{ZERO} {halves} wgmma::wait::<0>(); {OUT}"),
            // B across K has its halves along the rows of the tile, and K in halves.
            &format!(
                "{ZERO} acc.mma(slot.a.columns(0..32), slot.b.columns(0..32));
                 acc.mma(slot.a.columns(32..64), slot.b.columns(32..64)); {DONE} {OUT}"
            ),
            // The other half stays zero, and is written as such.
            &format!(
                "{ZERO} acc.columns(32..64).mma(slot.a, slot.b.rows(32..64)); {DONE}
                 let half = acc; acc.columns(0..32).mma(slot.a, slot.b.rows(0..32)); {DONE}
                 acc.columns(32..64) = half.columns(32..64); {OUT}"
            ),
            &format!(
                "{ZERO} let mut half = Acc::<f32, 64, 32>::zero(); half.mma(slot.a, slot.b.rows(32..64)); {DONE}
                acc.columns(32..64) = half; acc.columns(0..32).mma(slot.a, slot.b.rows(0..32)); {DONE} {OUT}"
            ),
        ],
        |_, _, product| product.to_vec(),
    );
    // The whole goes on from halves.
    let twice = format!(
        "{ZERO} acc.columns(0..32).mma(slot.a, slot.b.rows(0..32)); {DONE} acc.mma(slot.a, slot.b); {DONE} {OUT}"
    );
    check_bodies(11, &[&twice], |_, _, product| {
        product.iter().enumerate().map(|(i, x)| if i % 64 < 32 { 2.0 * x } else { *x }).collect()
    });
    for body in [
        format!("{ZERO} {halves} wgmma::wait::<1>(); {right} wgmma::wait::<0>();"),
        format!("{ZERO} {halves} wgmma::wait::<1>(); {OUT} wgmma::wait::<0>();"),
        format!("{ZERO} {halves} acc.mma(slot.a, slot.b); {DONE}"),
    ] {
        assert_eq!(error_of(&square(1, &body)), 903, "{body}");
    }
    for body in [
        format!("{ZERO} acc.columns(0..36).mma(slot.a, slot.b.rows(0..32)); {DONE}"),
        format!("{ZERO} acc.columns(32..96).mma(slot.a, slot.b); {DONE}"),
        format!("{ZERO} acc.columns(n..64).mma(slot.a, slot.b); {DONE}"),
    ] {
        assert_eq!(error_of(&square(1, &body)), 154, "{body}");
    }
    let body = format!("{ZERO} acc.columns(0..32).mma(slot.a, slot.b.rows(0..64)); {DONE}");
    assert_eq!(error_of(&square(1, &body)), 902, "{body}");
}

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

/// A second accumulator from the first, rounded: `y` in the bodies.
const SECOND: &str = "let mut y = Acc::<f32, 64, 64>::zero();";
const OUT_Y: &str = "y.for_each(|row, column, pair| c.at([row, column]).store_v(pair));";

/// P Bᵀᵀ for P `[64, 64]` and B as it lies: `slot.b.t()` is the operand.
fn times_b(p: &[f32], b: &[f32]) -> Vec<f32> {
    product(p, &transposed(b, 64, 64), (64, 64, 64))
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
            let source = kernel(groups, span.max(0), shapes, shape, &before, &body)
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
        (&chained, format!("{ZERO} {ONE} acc.store_t(tile); cta_sync(); {SECOND} y.mma(tile.t(), slot.b); {DONE} {OUT_Y}")),
        (&chained, format!("{ZERO} {ONE} acc.columns(0..32).store(tile.columns(0..32)); acc.columns(32..64).as_a::<bf16>().store_t(tile.t().rows(32..64).t());
            cta_sync(); {SECOND} y.mma(tile, slot.b); {DONE} {OUT_Y}").replace(".store_t(tile.t().rows(32..64).t())", ".store(tile.columns(32..64))")),
        // One conversion for the store and for a product in flight.
        (&chained, format!("{ZERO} {ONE} let p = acc.as_a::<bf16>(); {SECOND} y.mma(p, slot.b); wgmma::commit(); p.store(tile); wgmma::wait::<0>(); {OUT_Y}")
            .replace("slot.b);\n", "slot.b);")),
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

/// The other types that products take, and what they do not.
#[test]
fn types_of_operands() {
    // f16: the bits of small integers, and tf32: those of f32.
    let half = |x: &f32| half_bits(*x);
    let (a, b, expected) = square_inputs(1, 80);
    let body = format!("{ZERO} {ONE} {OUT}");
    let mut run = Run::new(&square(1, &body).replace("bf16", "f16"));
    assembled(&run);
    let (a16, b16): (Vec<u16>, Vec<u16>) = (a.iter().map(half).collect(), b.iter().map(half).collect());
    run.map("a", &a16, &[64, 64]).map("b", &b16, &[64, 64]).tensor("c", &vec![-1f32; 64 * 64]).set("n", 3u32);
    assert_eq!(run.launch_everywhere(1).read::<f32>("c"), expected);
    let body = format!("{ZERO} {ONE} {SECOND} y.mma(-acc.as_a::<f16>(), slot.b.t()); {DONE} {OUT_Y}");
    let mut run = Run::new(&square(1, &body).replace("bf16", "f16"));
    assembled(&run);
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
        assembled(&run);
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

/// The recurrence on the page of the language: products from registers, halves of N, tiles stored while they are read.
#[test]
fn the_recurrence_of_the_page() {
    let page = include_str!("../../../docs/language.md");
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
    assembled(&run);
    let size = |n: usize| n as u64;
    run.map("w", &bits(&w), &[size(rows), size(k)]).map("u", &bits(&u), &[size(rows), size(v)]);
    run.map("g", &bits(&g), &[size(rows), size(k)]).tensor("decay", &decay).tensor("s0", &start);
    run.tensor("s1", &vec![0f32; v * k]).tensor("h", &vec![0u16; rows * 2 * v]).set("rows", rows as u32);
    run.launch_everywhere(1);
    assert_eq!(run.read::<f32>("s1"), s);
    assert_eq!(run.read::<u16>("h"), h);
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
}

/// A role of threads fills the stages of a ring that products read: the hand-over has its fence.
#[test]
fn stages_filled_by_threads() {
    let source = "#[kernels(arch = sm_90a)]
mod family {
    #[kernel(block = 192, grid = 1)]
    #[roles(math = 0..4, fill = 4..6)]
    fn k(#[dims(steps, 64, 64)] a: Global<f32>, #[dims(64, 64)] c: GlobalMut<f32>) {
        let ring = Pipeline::<fill, math> { a: smem::<bf16, Shape<64, 64>, Swizzle<128>, 2>() };
        #[role(fill)]
        for step in 0..steps {
            let slot = ring.acquire();
            let tile = slot.a;
            #[unroll]
            for i in 0..64 {
                tile[[i, tid - 128]] = bf16::rn(a.at([step, i, tid - 128]).load());
            }
            slot.commit();
        }
        #[role(math)]
        {
            let mut acc = Acc::<f32, 64, 64>::zero();
            for step in 0..steps {
                let slot = ring.wait();
                acc.mma(slot.a, slot.a.t());
                wgmma::commit();
                wgmma::wait::<0>();
                slot.release();
            }
            acc.for_each(|row, column, pair| c.at([row, column]).store_v(pair));
        }
    }
}";
    let mut random = Random::new(110);
    let steps = 5;
    let a = matrix(&mut random, steps * 64, 64);
    let mut expected = vec![0.0; 64 * 64];
    for a in a.chunks(64 * 64) {
        let square = product(a, &transposed(a, 64, 64), (64, 64, 64));
        expected.iter_mut().zip(square).for_each(|(sum, x)| *sum += x);
    }
    let mut run = Run::new(source);
    assembled(&run);
    run.tensor("a", &a).tensor("c", &vec![0f32; 64 * 64]).set("steps", steps as u32);
    assert_eq!(run.launch_everywhere(1).read::<f32>("c"), expected);
    let fence = "fence.proxy.async.shared::cta;";
    assert_eq!(run.compiled.ptx.matches(fence).count(), 1);
    run.compiled.ptx = run.compiled.ptx.replace(fence, "");
    let report = run.try_launch(1, &Options::default()).expect_err("a race");
    assert!(report.to_string().contains("fence.proxy.async"), "{report}");
}
