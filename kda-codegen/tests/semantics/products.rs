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
        (905, format!("{acc} {DONE} #[elect_one] {{ acc.mma(slot.a, slot.b); {DONE} }} {OUT}")),
    ] {
        assert_eq!(error_of(&square(1, &body)), code, "{body}");
    }
    let (a, b, once) = square_inputs(1, 1);
    let twice: Vec<f32> = once.iter().map(|x| 2.0 * x).collect();
    for (expected, body) in [
        (&twice, format!("{acc} if n > 1 {{ acc.mma(slot.a, slot.b); {DONE} }} else {{ {DONE} }} {OUT}")),
        (&once, format!("{acc} if n > 5 {{ acc.mma(slot.a, slot.b); {DONE} }} else {{ {DONE} }} {OUT}")),
        (&once, format!("{acc} if n > 1 {{ wgmma::commit(); }} else {{ wgmma::commit(); }} wgmma::wait::<0>(); {OUT}")),
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
