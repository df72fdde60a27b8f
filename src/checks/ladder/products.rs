//! The rungs with products on tensor cores.

use super::problem::{Expected, Failure, Problem, Rung, output, wide};
use crate::checks::Device;
use half::bf16;
use kda_core::{Elem, PreparedLaunch};
use kda_kernels::ladder::{blackwell_product, chained_product, product};
use kda_ref::rng::Rng;
use kda_ref::round::to_bf16;
use kda_ref::tensor_core;
use kda_runtime::DeviceBuffer;

/// `C = A · Bᵀ`
pub const PRODUCT: Rung = Rung {
    name: "product",
    descs: product::DESCS,
    // Steps along K: one, as many as the ring has stages, and twice round.
    sizes: &[[128, 256, 64], [256, 256, 256], [128, 512, 576]],
    large: [8192, 8192, 8192],
    bitwise: false,
    problem: |device, _, [m, n, k], seed| {
        let Operands { a, b, buffers } = operands(device, [m, n, k], seed)?;
        let args = product::ProductArgs {
            a: buffers[0].dense(Elem::BF16, &[m, k])?,
            b: buffers[1].dense(Elem::BF16, &[n, k])?,
            c: buffers[2].dense(Elem::F32, &[m, n])?,
        };
        let launch = args.prepare(product::ProductVariant::ALL[0], false)?;
        Ok(product_of(launch, buffers, a, b, [m, n, k]))
    },
};

/// `C = A · Bᵀ` on Blackwell.
pub const BLACKWELL_PRODUCT: Rung = Rung {
    name: "blackwell_product",
    descs: blackwell_product::DESCS,
    sizes: &[[128, 128, 64], [256, 128, 256], [128, 256, 576]],
    large: [8192, 8192, 8192],
    bitwise: false,
    problem: |device, _, [m, n, k], seed| {
        let Operands { a, b, buffers } = operands(device, [m, n, k], seed)?;
        let args = blackwell_product::BlackwellProductArgs {
            a: buffers[0].dense(Elem::BF16, &[m, k])?,
            b: buffers[1].dense(Elem::BF16, &[n, k])?,
            c: buffers[2].dense(Elem::F32, &[m, n])?,
        };
        let launch = args.prepare(blackwell_product::BlackwellProductVariant::ALL[0], false)?;
        Ok(product_of(launch, buffers, a, b, [m, n, k]))
    },
};

/// `O = bf16(Q · Kᵀ) · V`
pub const CHAINED_PRODUCT: Rung = Rung {
    name: "chained_product",
    descs: chained_product::DESCS,
    sizes: &[[128, 64, 1], [256, 192, 1], [128, 448, 1]],
    large: [128 * 132 * 4, 8192, 1],
    bitwise: false,
    problem: |device, _, [rows, keys, _], seed| {
        const DIM: u64 = 128;
        let mut rng = Rng::new(seed);
        let mut draw = |n: u64| rng.normals_bf16((n * DIM) as usize, 0.25);
        let (q, k, vt) = (draw(rows), draw(keys), draw(keys));
        let of = |name, values: &[bf16]| DeviceBuffer::of(device.executor, name, values, device.guarding);
        let buffers = vec![of("q", &q)?, of("k", &k)?, of("vt", &vt)?, output(device, "o", rows * DIM)?];
        let args = chained_product::ChainedProductArgs {
            q: buffers[0].dense(Elem::BF16, &[rows, DIM])?,
            k: buffers[1].dense(Elem::BF16, &[keys, DIM])?,
            vt: buffers[2].dense(Elem::BF16, &[DIM, keys])?,
            o: buffers[3].dense(Elem::F32, &[rows, DIM])?,
        };
        let launch = args.prepare(chained_product::ChainedProductVariant::ALL[0], false)?;
        let expected = Box::new(move || {
            let (q, k, vt) = (wide(&q), wide(&k), wide(&vt));
            let rounded = |scores: Vec<f64>| scores.into_iter().map(to_bf16).collect::<Vec<_>>();
            let exact = times(&times(&q, &k, DIM as usize), &vt, keys as usize);
            let emulated = times_f32(&rounded(times_f32(&q, &k, DIM as usize)), &vt, keys as usize);
            Expected { exact, emulated }
        });
        let (bytes, operations) = (4 * (rows + keys) * DIM + 4 * rows * DIM, 4 * rows * keys * DIM);
        Ok(Problem { launch, buffers, bytes, operations, expected })
    },
};

/// Random operands of C = A · Bᵀ, and the three buffers.
struct Operands<'d> {
    a: Vec<bf16>,
    b: Vec<bf16>,
    buffers: Vec<DeviceBuffer<'d>>,
}

fn operands<'d>(device: Device<'d>, [m, n, k]: [u64; 3], seed: u64) -> Result<Operands<'d>, Failure> {
    let mut rng = Rng::new(seed);
    let (a, b) = (rng.normals_bf16((m * k) as usize, 1.0), rng.normals_bf16((n * k) as usize, 1.0));
    let of = |name, values: &[bf16]| DeviceBuffer::of(device.executor, name, values, device.guarding);
    let buffers = vec![of("a", &a)?, of("b", &b)?, output(device, "c", m * n)?];
    Ok(Operands { a, b, buffers })
}

fn product_of<'d>(
    launch: PreparedLaunch,
    buffers: Vec<DeviceBuffer<'d>>,
    a: Vec<bf16>,
    b: Vec<bf16>,
    [m, n, k]: [u64; 3],
) -> Problem<'d> {
    let expected = Box::new(move || {
        let (a, b) = (wide(&a), wide(&b));
        Expected { exact: times(&a, &b, k as usize), emulated: times_f32(&a, &b, k as usize) }
    });
    Problem { launch, buffers, bytes: 2 * (m + n) * k + 4 * m * n, operations: 2 * m * n * k, expected }
}

/// A · Bᵀ in float64.
fn times(a: &[f64], b: &[f64], k: usize) -> Vec<f64> {
    let dot = |row: &[f64], column: &[f64]| row.iter().zip(column).map(|(x, y)| x * y).sum();
    a.chunks_exact(k).flat_map(|row| b.chunks_exact(k).map(move |column| dot(row, column))).collect()
}

/// The same as tensor cores accumulate it.
fn times_f32(a: &[f64], b: &[f64], k: usize) -> Vec<f64> {
    let dot = |row: &[f64], column: &[f64]| f64::from(tensor_core::dot(row, column));
    a.chunks_exact(k).flat_map(|row| b.chunks_exact(k).map(move |column| dot(row, column))).collect()
}
