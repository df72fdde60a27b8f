//! Products of warpgroups: every form of an operand and of an accumulator against sums in Rust, under every schedule.
//!
//! Inputs are small integers, so that sums are exact in any order.

mod accumulators;
mod fences;
mod flight;
mod operands;
mod places;
mod tiles;
mod values;

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

/// Runs a kernel of [`kernel`] and compares `c`.
fn check(source: &str, [a, b]: [&[f32]; 2], shapes: [(usize, usize); 2], expected: &[f32]) -> Run {
    let mut run = Run::new(source);
    run.assemble();
    let [a_shape, b_shape] = shapes.map(|(rows, columns)| [rows as u64, columns as u64]);
    run.map("a", &bits(a), &a_shape).map("b", &bits(b), &b_shape).tensor("c", &vec![-1.0f32; expected.len()]);
    run.set("n", 3u32).launch_everywhere(1);
    let got = run.read::<f32>("c");
    for (i, (got, want)) in got.iter().zip(expected).enumerate() {
        assert_eq!(got, want, "element {i}\n{source}\n{}", run.compiled.ptx);
    }
    run
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

const ZERO: &str = "let mut acc = Acc::<f32, 64, 64>::zero();";
const ONE: &str = "acc.mma(slot.a, slot.b); wgmma::commit(); wgmma::wait::<0>();";

/// Checks bodies of one warpgroup, for A and B of 64 x 64, against what `expected` makes of A, B and A Bᵀ.
fn check_bodies(salt: u64, bodies: &[&str], expected: impl Fn(&[f32], &[f32], &[f32]) -> Vec<f32>) -> Vec<String> {
    let (a, b, product) = square_inputs(1, salt);
    let expected = expected(&a, &b, &product);
    bodies.iter().map(|body| check(&square(1, body), [&a, &b], SQUARE, &expected).compiled.ptx).collect()
}

/// A second accumulator from the first, rounded: `y` in the bodies.
const SECOND: &str = "let mut y = Acc::<f32, 64, 64>::zero();";
const OUT_Y: &str = "y.for_each(|row, column, pair| c.at([row, column]).store_v(pair));";

/// P Bᵀᵀ for P `[64, 64]` and B as it lies: `slot.b.t()` is the operand.
fn times_b(p: &[f32], b: &[f32]) -> Vec<f32> {
    product(p, &transposed(b, 64, 64), (64, 64, 64))
}
