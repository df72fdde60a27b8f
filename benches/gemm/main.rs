//! Times the matrix product beside cuBLAS on a CUDA device, in one run.
//!
//! Method: bf16 operands from a normal distribution, bf16 results; both on the same operands, CUDA-graph replay, warmed up, all of
//! them in turn, the median of 15. Operands and result of the large products are several times the size of L2.
//! cuBLAS is looked for where the loader finds libraries (`LD_LIBRARY_PATH`); without it ours is timed alone.

#[path = "../common/mod.rs"]
mod common;
mod cublas;

use common::{Failure, device, median};
use cublas::Cublas;
use cudarc::driver::CudaContext;
use kda::checks::Device;
use kda::checks::gemm::{Product, ctas};
use kda::runtime::Guarding;
use kda_core::Executor;
use kda_core::exec::Stream;
use kda_kernels::gemm::GemmWsVariant;
use kda_runtime::executor::cuda::{CudaExecutor, CudaGraph};
use std::time::Instant;

const SIZES: [[u64; 3]; 5] =
    [[8192, 8192, 8192], [4096, 4096, 4096], [16384, 2048, 7168], [8191, 8200, 8184], [1001, 5000, 3000]];
const SEED: u64 = 1;
const REPLAYS: usize = 15;
const WARM: usize = 3;

fn main() -> Result<(), Failure> {
    let start = Instant::now();
    let Some(executor) = device()? else { return Ok(()) };
    first(&executor, start)?;
    // The same primary context, with a stream that both use.
    let stream = CudaContext::new(0)?.new_stream()?;
    let cublas = Cublas::open(&stream)?;
    if cublas.is_none() {
        println!("# no cuBLAS: nothing to compare with");
    }
    println!("{:<22} {:<40} {:>9} {:>9} {:>7} {:>9}", "M, N, K", "kernel", "us", "TFLOP/s", "ratio", "error");
    for size in SIZES {
        compare(&executor, Stream(stream.cu_stream() as u64), cublas.as_ref(), size)?;
    }
    Ok(())
}

/// Seconds to a first result of 8192^3, operands on the device: of the process, and of these the driver's compiler. Set
/// CUDA_CACHE_DISABLE=1 to see the compiler instead of its cache.
fn first(executor: &CudaExecutor, start: Instant) -> Result<(), Failure> {
    let opened = start.elapsed().as_secs_f64();
    let device = Device { executor, guarding: Guarding::NONE };
    let size = SIZES[0];
    let fitting = |v: &GemmWsVariant| v.bn() == 256 && v.ctas() == 1 && v.out() == kda_core::Elem::BF16 && !v.silu();
    let variant = GemmWsVariant::ALL.into_iter().find(fitting).ok_or("a tile of 128 x 256")?;
    let product = Product::new(device, variant, size, ctas(variant, size, executor.multiprocessors()), false, SEED)?;
    let before = Instant::now();
    executor.warm(variant.desc())?;
    let compiled = before.elapsed().as_secs_f64();
    // SAFETY: the buffers of `product` live until the launch has completed.
    unsafe { executor.launch(&product.launch, Stream::default())? };
    executor.synchronize(Stream::default())?;
    let launched = before.elapsed().as_secs_f64();
    println!(
        "# {}: device open after {opened:.3} s; text to a first result {launched:.3} s, of which the driver's compiler {compiled:.3} s",
        variant.desc().entry
    );
    Ok(())
}

/// A way to compute the product, with its times.
struct Contender {
    name: String,
    graph: CudaGraph,
    times: Vec<f64>,
}

fn compare(executor: &CudaExecutor, stream: Stream, cublas: Option<&Cublas>, size: [u64; 3]) -> Result<(), Failure> {
    let device = Device { executor, guarding: Guarding::NONE };
    let mut products = Vec::new();
    let mut contenders = Vec::new();
    for variant in GemmWsVariant::ALL.into_iter().filter(|v| !v.silu() && v.out() == kda_core::Elem::BF16) {
        let grid = ctas(variant, size, executor.multiprocessors());
        let product = Product::new(device, variant, size, grid, false, SEED)?;
        let launch = |executor: &CudaExecutor| {
            // SAFETY: the buffers of `products` outlive every launch below; the stream is live.
            unsafe { executor.launch(&product.launch, stream) }
        };
        executor.warm(variant.desc())?;
        let graph = capture(executor, stream, || Ok(launch(executor)?))?;
        contenders.push(Contender { name: variant.desc().entry.into(), graph, times: Vec::new() });
        products.push(product);
    }
    let reference = Product::new(device, GemmWsVariant::ALL[0], size, 1, false, SEED)?;
    if let Some(cublas) = cublas {
        // Workspaces are made in the first call, which a capture does not allow.
        cublas.product(&reference, size)?;
        let graph = capture(executor, stream, || cublas.product(&reference, size))?;
        contenders.push(Contender { name: "cuBLAS".into(), graph, times: Vec::new() });
    }
    for round in 0..REPLAYS + WARM {
        for contender in &mut contenders {
            let (start, end) = (executor.event()?, executor.event()?);
            // SAFETY: the stream is live; the buffers outlive the replay.
            unsafe {
                start.record(stream)?;
                contender.graph.launch(stream)?;
                end.record(stream)?;
            }
            let us = end.elapsed_us(&start)?;
            if round >= WARM {
                contender.times.push(us);
            }
        }
    }
    let right = cublas.map(|_| reference.results()).transpose()?;
    let best = contenders.iter_mut().map(|c| median(&mut c.times)).collect::<Vec<_>>();
    let base = cublas.and(best.last().copied());
    for (index, (contender, us)) in contenders.iter().zip(&best).enumerate() {
        let [m, n, k] = size;
        let error = match (&right, products.get(index)) {
            (Some(right), Some(product)) => {
                format!("{:.1e}", kda_ref::budget::relative_error(right, &product.results()?))
            }
            _ => "-".into(),
        };
        let ratio = base.map_or("-".into(), |base| format!("{:.3}", base / us));
        println!(
            "{:<22} {:<40} {us:>9.1} {:>9.1} {ratio:>7} {error:>9}",
            format!("{m}, {n}, {k}"),
            contender.name,
            2.0 * (m * n * k) as f64 / us / 1e6,
        );
    }
    Ok(())
}

/// What `work` enqueues on the stream, as a graph.
fn capture(
    executor: &CudaExecutor,
    stream: Stream,
    work: impl FnOnce() -> Result<(), Failure>,
) -> Result<CudaGraph, Failure> {
    // SAFETY: the stream is live and belongs to the executor's context.
    unsafe { executor.begin_capture(stream)? };
    let done = work();
    // SAFETY: as above.
    let graph = unsafe { executor.end_capture(stream) };
    done?;
    Ok(graph?)
}
