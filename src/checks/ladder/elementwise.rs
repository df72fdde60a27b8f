//! The rungs without products: addition, tiles, a ring.

use super::problem::{Expected, Failure, Problem, Rung, output};
use crate::checks::Device;
use kda_core::{Elem, KernelDesc};
use kda_kernels::ladder::{add, cluster_sum, ring_sum, role_silu, tile_copy};
use kda_ref::rng::Rng;
use kda_runtime::DeviceBuffer;

/// `z = x + y`
pub const ADD: Rung = Rung {
    name: "add",
    descs: add::DESCS,
    sizes: &[[0, 1, 1], [1, 1, 1], [256, 1, 1], [1000, 1, 1]],
    large: [1 << 26, 1, 1],
    bitwise: true,
    problem: |device, _, [n, ..], seed| {
        let mut rng = Rng::new(seed);
        let (x, y) = (rng.normals_f32(n as usize, 1.0), rng.normals_f32(n as usize, 1.0));
        let of = |name, values: &[f32]| DeviceBuffer::of(device.executor, name, values, device.guarding);
        let buffers = vec![of("x", &x)?, of("y", &y)?, output(device, "z", n)?];
        let tensor = |i: usize| buffers[i].dense(Elem::F32, &[n]);
        let args = add::AddArgs { x: tensor(0)?, y: tensor(1)?, z: tensor(2)? };
        let launch = args.prepare(add::AddVariant::ALL[0], false)?;
        let expected = Box::new(move || {
            let exact = x.iter().zip(&y).map(|(x, y)| f64::from(*x) + f64::from(*y)).collect();
            Expected { exact, emulated: x.iter().zip(&y).map(|(x, y)| f64::from(x + y)).collect() }
        });
        Ok(Problem { launch, buffers, bytes: 12 * n, operations: 0, expected })
    },
};

/// `y = xᵀ`
pub const TILE_COPY: Rung = Rung {
    name: "tile_copy",
    descs: tile_copy::DESCS,
    sizes: &[[4, 4, 1], [32, 32, 1], [36, 100, 1]],
    large: [8192, 8192, 1],
    bitwise: true,
    problem: |device, _, [m, n, _], seed| {
        let x = Rng::new(seed).normals_f32((m * n) as usize, 1.0);
        let buffers = vec![DeviceBuffer::of(device.executor, "x", &x, device.guarding)?, output(device, "y", m * n)?];
        let (from, to) = (buffers[0].dense(Elem::F32, &[m, n])?, buffers[1].dense(Elem::F32, &[n, m])?);
        let launch = tile_copy::TransposeArgs { x: from, y: to }.prepare(tile_copy::TransposeVariant::ALL[0], false)?;
        let expected = Box::new(move || {
            let turned: Vec<f64> = (0..n * m).map(|at| f64::from(x[(at % m * n + at / m) as usize])).collect();
            Expected { exact: turned.clone(), emulated: turned }
        });
        Ok(Problem { launch, buffers, bytes: 8 * m * n, operations: 0, expected })
    },
};

/// Sums of rows.
pub const RING_SUM: Rung = Rung {
    name: "ring_sum",
    descs: ring_sum::DESCS,
    // As many tiles as the ring has stages, one more, and twice round.
    sizes: &[[128, 128, 1], [256, 160, 1], [128, 288, 1]],
    large: [128 * 132 * 4, 4096, 1],
    bitwise: true,
    problem: ring_sum_problem,
};

fn ring_sum_problem<'d>(
    device: Device<'d>,
    desc: &'static KernelDesc,
    [m, n, _]: [u64; 3],
    seed: u64,
) -> Result<Problem<'d>, Failure> {
    let x = Rng::new(seed).normals_f32((m * n) as usize, 1.0);
    let buffers = vec![DeviceBuffer::of(device.executor, "x", &x, device.guarding)?, output(device, "y", m)?];
    let args =
        ring_sum::RingSumArgs { x: buffers[0].dense(Elem::F32, &[m, n])?, y: buffers[1].dense(Elem::F32, &[m])? };
    let variant = ring_sum::RingSumVariant::ALL.into_iter().find(|v| v.desc().entry == desc.entry);
    let launch = args.prepare(variant.ok_or("no variant of ring_sum")?, false)?;
    let expected = Box::new(move || {
        let rows = || x.chunks_exact(n as usize);
        Expected {
            exact: rows().map(|row| row.iter().map(|x| f64::from(*x)).sum()).collect(),
            emulated: rows().map(|row| f64::from(row.iter().fold(0.0f32, |sum, x| sum + x))).collect(),
        }
    });
    Ok(Problem { launch, buffers, bytes: 4 * m * n + 4 * m, operations: 0, expected })
}

/// `y = silu(x)`
pub const ROLE_SILU: Rung = Rung {
    name: "role_silu",
    descs: role_silu::DESCS,
    // Fewer tiles than stages, as many, one more, and twice round.
    sizes: &[[128, 32, 1], [256, 96, 1], [128, 128, 1], [128, 224, 1]],
    large: [128 * 132 * 4, 4096, 1],
    bitwise: false,
    problem: |device, _, [m, n, _], seed| {
        let x = Rng::new(seed).normals_f32((m * n) as usize, 3.0);
        let buffers = vec![DeviceBuffer::of(device.executor, "x", &x, device.guarding)?, output(device, "y", m * n)?];
        let (from, to) = (buffers[0].dense(Elem::F32, &[m, n])?, buffers[1].dense(Elem::F32, &[m, n])?);
        let launch = role_silu::RoleSiluArgs { x: from, y: to }.prepare(role_silu::RoleSiluVariant::ALL[0], false)?;
        let expected = Box::new(move || {
            // 2^x in f32 once its argument has been rounded; the reciprocal rounded.
            let emulate = |x: f32| x * (1.0 / (1.0 + (-std::f32::consts::LOG2_E * x).exp2()));
            let exact = |x: f64| x / (1.0 + (-x).exp());
            Expected {
                exact: x.iter().map(|x| exact(f64::from(*x))).collect(),
                emulated: x.iter().map(|x| f64::from(emulate(*x))).collect(),
            }
        });
        Ok(Problem { launch, buffers, bytes: 8 * m * n, operations: 0, expected })
    },
};

/// Sums of rows, a row a cluster.
pub const CLUSTER_SUM: Rung = Rung {
    name: "cluster_sum",
    descs: cluster_sum::DESCS,
    sizes: &[[1, 32, 1], [3, 1024, 1], [2, 16416, 1]],
    large: [264, 1 << 20, 1],
    bitwise: true,
    problem: cluster_sum_problem,
};

fn cluster_sum_problem<'d>(
    device: Device<'d>,
    desc: &'static KernelDesc,
    [rows, n, _]: [u64; 3],
    seed: u64,
) -> Result<Problem<'d>, Failure> {
    let x = Rng::new(seed).normals_f32((rows * n) as usize, 1.0);
    let buffers = vec![DeviceBuffer::of(device.executor, "x", &x, device.guarding)?, output(device, "y", rows)?];
    let args = cluster_sum::ClusterSumArgs {
        x: buffers[0].dense(Elem::F32, &[rows, n])?,
        y: buffers[1].dense(Elem::F32, &[rows])?,
    };
    let variant = cluster_sum::ClusterSumVariant::ALL.into_iter().find(|v| v.desc().entry == desc.entry);
    let variant = variant.ok_or("no variant of cluster_sum")?;
    let launch = args.prepare(variant, false)?;
    let ctas = variant.ctas() as usize;
    let expected = Box::new(move || {
        let rows = || x.chunks_exact(n as usize);
        let total = |row: &[f32]| {
            let parts = row.chunks_exact(row.len() / ctas).map(sum_of_cta);
            f64::from(parts.fold(0.0f32, |total, part| total + part))
        };
        Expected {
            exact: rows().map(|row| row.iter().map(|x| f64::from(*x)).sum()).collect(),
            emulated: rows().map(total).collect(),
        }
    });
    Ok(Problem { launch, buffers, bytes: 4 * rows * n + 4 * rows, operations: 0, expected })
}

/// What a CTA of 256 threads adds up: four neighbours a thread, lanes in a butterfly, warps in order.
fn sum_of_cta(part: &[f32]) -> f32 {
    const THREADS: usize = 256;
    let mut sums = [0.0f32; THREADS];
    for (i, four) in part.chunks_exact(4).enumerate() {
        sums[i % THREADS] += (four[0] + four[1]) + (four[2] + four[3]);
    }
    let warp = |lanes: &[f32]| {
        let mut lanes = lanes.to_vec();
        for step in [16, 8, 4, 2, 1] {
            lanes = (0..32).map(|lane| lanes[lane] + lanes[lane ^ step]).collect();
        }
        lanes[0]
    };
    sums.chunks_exact(32).map(warp).fold(0.0, |sum, part| sum + part)
}
