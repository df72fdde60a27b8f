//! Checks and times the matrix product on a CUDA device: TFLOP/s of each variant.

use kda_core::exec::{ExecError, Stream};
use kda_core::{Elem, Executor, TensorArg};
use kda_kernels::gemm::{GemmWsArgs, GemmWsVariant};
use kda_ref::rng::Rng;
use kda_runtime::executor::cuda::CudaExecutor;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let executor = match CudaExecutor::open(0) {
        Ok(executor) => executor,
        Err(ExecError::NoDevice(why)) => {
            println!("nothing timed: {why}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    println!("# {}", executor.describe());
    for variant in GemmWsVariant::ALL {
        let error = run(&executor, variant, 512, 768, 448, true)?.0;
        println!("{}: largest relative error {error:.2e}", variant.desc().entry);
        let (_, us) = run(&executor, variant, 8192, 8192, 8192, false)?;
        println!("{}: 8192^3 in {us:.1} us, {:.1} TFLOP/s", variant.desc().entry, 2.0 * 8192f64.powi(3) / us / 1e6);
    }
    Ok(())
}

/// Largest error relative to the largest result, and the median time.
fn run(
    executor: &CudaExecutor,
    variant: GemmWsVariant,
    m: u64,
    n: u64,
    k: u64,
    check: bool,
) -> Result<(f64, f64), Failure> {
    let mut rng = Rng::new(m ^ n ^ k);
    let mut upload = |rows: u64| -> Result<(Vec<f64>, TensorArg), Failure> {
        let values = rng.normals_bf16((rows * k) as usize, 1.0);
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let ptr = executor.allocate(bytes.len() as u64)?;
        executor.write(ptr, &bytes)?;
        let wide = values.iter().map(|v| v.to_f64()).collect();
        Ok((wide, TensorArg::dense(ptr, bytes.len() as u64, Elem::BF16, &[rows, k])?))
    };
    let ((a_host, a), (b_host, b)) = (upload(m)?, upload(n)?);
    let c_ptr = executor.allocate(2 * m * n)?;
    executor.fill(c_ptr, 0xFF, 2 * m * n)?;
    let c = TensorArg::dense(c_ptr, 2 * m * n, Elem::BF16, &[m, n])?;
    let prepared = GemmWsArgs { a, b, c }.prepare(variant, false)?;
    executor.warm(variant.desc())?;
    let launch = |executor: &CudaExecutor| {
        // SAFETY: the matrices are freed behind the last use below.
        unsafe { executor.launch(&prepared, Stream::default()) }
    };
    let mut times = Vec::new();
    for _ in 0..if check { 1 } else { 12 } {
        times.push(executor.time_us(launch)?);
    }
    times.sort_by(f64::total_cmp);
    let mut worst = 0.0f64;
    if check {
        let mut bytes = vec![0u8; 2 * (m * n) as usize];
        executor.read(c_ptr, &mut bytes)?;
        let mut largest = 0.0f64;
        for i in 0..m as usize {
            for j in 0..n as usize {
                let at = 2 * (i * n as usize + j);
                let got = half::bf16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f64();
                let k = k as usize;
                let want: f64 = (0..k).map(|l| a_host[i * k + l] * b_host[j * k + l]).sum();
                largest = largest.max(want.abs());
                // NaN must not be lost.
                worst = if (got - want).abs() <= worst { worst } else { (got - want).abs() };
            }
        }
        worst /= largest;
    }
    for ptr in [a.ptr, b.ptr, c_ptr] {
        executor.free(ptr)?;
    }
    Ok((worst, times[times.len() / 2]))
}
