//! `scale_add` against its formula: one fma an element, so the results are equal bit for bit.

use super::{Device, Measured, Request, Sink};
use kda_core::KernelDesc;
use kda_core::exec::Stream;
use kda_kernels::scale_add::{ScaleAddArgs, ScaleAddVariant};
use kda_ref::rng::Rng;
use kda_runtime::DeviceBuffer;

/// Lengths around the block sizes, and the empty one.
const LENGTHS: [usize; 7] = [0, 1, 127, 128, 129, 257, 1000];

/// Runs every variant on every length.
pub fn run(request: &Request, sink: Sink) -> Result<(), String> {
    for (done, variant) in ScaleAddVariant::ALL.iter().enumerate() {
        let share = (done + 1) as f64 / ScaleAddVariant::ALL.len() as f64;
        sink(lengths(Device::of(request.device), *variant, &LENGTHS, request.seed)?, share);
    }
    Ok(())
}

/// Runs one variant on three blocks and a part of one.
pub fn sample(device: Device, desc: &'static KernelDesc, seed: u64, sink: Sink) -> Result<(), String> {
    let variant = ScaleAddVariant::ALL.iter().find(|v| std::ptr::eq(v.desc(), desc));
    let variant = variant.ok_or_else(|| format!("{} is no variant of scale_add", desc.entry))?;
    sink(lengths(device, *variant, &[3 * desc.block as usize + 17], seed)?, 1.0);
    Ok(())
}

fn lengths(device: Device, variant: ScaleAddVariant, lengths: &[usize], seed: u64) -> Result<Measured, String> {
    let (mut rng, mut wrong) = (Rng::new(seed), 0usize);
    for n in lengths {
        wrong +=
            mismatches(device, variant, *n, &mut rng).map_err(|e| format!("{}, n = {n}: {e}", variant.desc().entry))?;
    }
    let case = format!("{} ({} lengths)", variant.desc().entry, lengths.len());
    Ok(Measured { case, output: "y, elements that differ".into(), error: wrong as f64, budget: 0.0 })
}

/// Number of elements that differ in their bits.
fn mismatches(
    device: Device,
    variant: ScaleAddVariant,
    n: usize,
    rng: &mut Rng,
) -> Result<usize, Box<dyn std::error::Error>> {
    let Device { executor, guarding } = device;
    let scale = rng.normal() as f32;
    let x = rng.normals_f32(n, 1.0);
    let (input, output) =
        (DeviceBuffer::of(executor, "x", &x, guarding)?, DeviceBuffer::new(executor, "y", 4 * n as u64, guarding)?);
    output.fill(0xFF)?;
    let shape = [n as u64];
    let args = ScaleAddArgs {
        x: input.dense(kda_core::Elem::F32, &shape)?,
        y: output.dense(kda_core::Elem::F32, &shape)?,
        scale,
    };
    let prepared = args.prepare(variant, false)?;
    // SAFETY: both buffers live until the results have been read, and nothing else uses them.
    unsafe { executor.launch(&prepared, Stream::default())? };
    let y: Vec<f32> = output.download()?;
    input.check_canaries()?;
    output.check_canaries()?;
    let block = variant.block() as usize;
    let expected = |i: usize| {
        let mirror = i / block * block + (block - 1 - i % block);
        scale.mul_add(x[i], x.get(mirror).copied().unwrap_or(0.0))
    };
    Ok((0..n).filter(|i| y[*i].to_bits() != expected(*i).to_bits()).count())
}
