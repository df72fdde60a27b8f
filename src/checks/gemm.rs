//! `gemm` against float64: bf16 operands, f32 accumulation, one rounding to bf16.
//!
//! The budget comes from the storage rounding and from a sequential f32 accumulation of the same products. The tensor cores
//! add in another order, with at least that accuracy.

use super::{Device, Measured, Request, Sink};
use half::bf16;
use kda_core::exec::Stream;
use kda_core::{Elem, KernelDesc};
use kda_kernels::gemm::{GemmWsArgs, GemmWsVariant};
use kda_ref::budget::{Budget, Stored};
use kda_ref::rng::Rng;
use kda_runtime::DeviceBuffer;

/// Tiles along M and N, and steps along K: one, as many as a ring has stages, and more.
const SIZES: [(u64, u64, u64); 4] = [(1, 1, 1), (2, 1, 3), (1, 1, 4), (1, 2, 9)];

/// Runs every variant on every size.
pub fn run(request: &Request, sink: Sink) -> Result<(), String> {
    let count = (GemmWsVariant::ALL.len() * SIZES.len()) as f64;
    let mut done = 0.0;
    for variant in GemmWsVariant::ALL {
        for size in SIZES {
            done += 1.0;
            sink(product(Device::of(request.device), variant, size, request.seed)?, done / count);
        }
    }
    Ok(())
}

/// Runs one variant on two tiles, and on more steps along K than twice the depth of a ring.
pub fn sample(device: Device, desc: &'static KernelDesc, seed: u64, sink: Sink) -> Result<(), String> {
    let variant = GemmWsVariant::ALL.into_iter().find(|v| std::ptr::eq(v.desc(), desc));
    let variant = variant.ok_or_else(|| format!("{} is no variant of gemm", desc.entry))?;
    sink(product(device, variant, (2, 1, 9), seed)?, 1.0);
    Ok(())
}

fn product(device: Device, variant: GemmWsVariant, tiles: (u64, u64, u64), seed: u64) -> Result<Measured, String> {
    let (m, n) = (tiles.0 * u64::from(variant.bm()), tiles.1 * u64::from(variant.bn()));
    let k = tiles.2 * u64::from(variant.bk());
    let case = format!("{} [{m}, {n}], K = {k}", variant.desc().entry);
    let (error, budget) = compare(device, variant, [m, n, k], seed).map_err(|e| format!("{case}: {e}"))?;
    Ok(Measured { case, output: "c".into(), error, budget })
}

/// Relative Frobenius error and its limit; infinite if the largest single error is past its own limit.
fn compare(
    device: Device,
    variant: GemmWsVariant,
    [m, n, k]: [u64; 3],
    seed: u64,
) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    let Device { executor, guarding } = device;
    let mut rng = Rng::new(seed);
    let a = rng.normals_bf16((m * k) as usize, 1.0);
    let b = rng.normals_bf16((n * k) as usize, 1.0);
    let a_buffer = DeviceBuffer::of(executor, "a", &a, guarding)?;
    let b_buffer = DeviceBuffer::of(executor, "b", &b, guarding)?;
    let c_buffer = DeviceBuffer::new(executor, "c", 2 * m * n, guarding)?;
    c_buffer.fill(0xFF)?;
    let args = GemmWsArgs {
        a: a_buffer.dense(Elem::BF16, &[m, k])?,
        b: b_buffer.dense(Elem::BF16, &[n, k])?,
        c: c_buffer.dense(Elem::BF16, &[m, n])?,
    };
    let prepared = args.prepare(variant, false)?;
    // SAFETY: the buffers live until the results have been read, and nothing else uses them.
    unsafe { executor.launch(&prepared, Stream::default())? };
    executor.synchronize(Stream::default())?;
    let c: Vec<bf16> = c_buffer.download()?;
    for buffer in [&a_buffer, &b_buffer, &c_buffer] {
        buffer.check_canaries()?;
    }
    let wide = |values: &[bf16]| values.iter().map(|v| v.to_f64()).collect::<Vec<_>>();
    let (a, b, k) = (wide(&a), wide(&b), k as usize);
    let (mut exact, mut emulated) = (Vec::with_capacity(c.len()), Vec::with_capacity(c.len()));
    for row in a.chunks_exact(k) {
        for column in b.chunks_exact(k) {
            exact.push(row.iter().zip(column).map(|(x, y)| x * y).sum());
            let sum = row.iter().zip(column).fold(0.0f32, |sum, (x, y)| (*x as f32).mul_add(*y as f32, sum));
            emulated.push(f64::from(sum));
        }
    }
    let judgement = Budget::derive(&exact, &[&emulated], Stored::Bf16).judge(&exact, &wide(&c));
    let error = if judgement.error.max <= judgement.limit.max { judgement.error.rms } else { f64::INFINITY };
    Ok((error, judgement.limit.rms))
}
