//! What benches on a CUDA device share: the device, and the median of their times.

use kda_core::Executor;
use kda_core::exec::ExecError;
use kda_runtime::executor::cuda::CudaExecutor;

/// Why a bench ends early.
pub type Failure = Box<dyn std::error::Error>;

/// The first device, named in a comment line; `None`, and why, where there is none: nothing is timed then.
pub fn device() -> Result<Option<CudaExecutor>, Failure> {
    match CudaExecutor::open(0) {
        Ok(executor) => {
            println!("# {}", executor.describe());
            Ok(Some(executor))
        }
        Err(ExecError::NoDevice(why)) => {
            println!("nothing timed: {why}");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// The median of times, of two in the middle the larger one.
pub fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
