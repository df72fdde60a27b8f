//! The memory's speed in this run: what a byte floor is held against beside the yardstick.

use super::Failure;
use super::measure::Time;
use kda_core::Executor;
use kda_runtime::executor::cuda::CudaExecutor;
use serde::Serialize;

/// The yardstick of all byte floors, TB/s.
pub const YARDSTICK: f64 = 4.3;
/// Bytes that are copied or filled at once.
const BYTES: u64 = 1 << 30;
/// Copies or fills of one sample.
const CALLS: usize = 4;
const SAMPLES: usize = 9;

/// TB/s, reads and writes counted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bandwidth {
    /// A copy on the device.
    pub copy: f64,
    /// A fill.
    pub fill: f64,
}

/// Measures it.
///
/// # Errors
/// The device has no 2 GiB left, or a call fails.
pub fn measure(executor: &CudaExecutor) -> Result<Bandwidth, Failure> {
    let from = executor.allocate(BYTES)?;
    let to = executor.allocate(BYTES)?;
    let median = |once: &dyn Fn() -> Result<(), kda_core::exec::ExecError>| -> Result<f64, Failure> {
        let mut samples = Vec::new();
        for _ in 0..SAMPLES + 2 {
            samples.push(executor.time_us(|_| (0..CALLS).try_for_each(|_| once()))? / CALLS as f64);
        }
        Ok(Time::of(&mut samples[2..]).us)
    };
    // SAFETY: both buffers were just allocated, and are freed when all copies have run.
    let copy = median(&|| unsafe { executor.enqueue_copy(to, from, BYTES) });
    // SAFETY: as above.
    let fill = median(&|| unsafe { executor.enqueue_fill(to, 0, BYTES) });
    executor.free(from)?;
    executor.free(to)?;
    let rate = |bytes: u64, us: f64| bytes as f64 / us / 1e6;
    Ok(Bandwidth { copy: rate(2 * BYTES, copy?), fill: rate(BYTES, fill?) })
}
