//! A rung on a problem: buffers, launch, and what should come out.

use crate::checks::Device;
use half::bf16;
use kda_core::exec::Stream;
use kda_core::{KernelDesc, PreparedLaunch};
use kda_runtime::DeviceBuffer;

/// Why a rung could not be run.
pub type Failure = Box<dyn std::error::Error>;

/// What should come out.
pub struct Expected {
    /// In float64.
    pub exact: Vec<f64>,
    /// With the roundings of the kernel.
    pub emulated: Vec<f64>,
}

/// A launch with its memory.
pub struct Problem<'d> {
    /// The launch.
    pub launch: PreparedLaunch,
    /// Buffers; the last is the output, of f32.
    pub buffers: Vec<DeviceBuffer<'d>>,
    /// Bytes that must be read and written.
    pub bytes: u64,
    /// Floating-point operations of products.
    pub operations: u64,
    /// Computes what should come out.
    pub expected: Box<dyn Fn() -> Expected>,
}

/// One kernel of the ladder.
#[derive(Clone, Copy)]
pub struct Rung {
    /// Family, and the name of the operator.
    pub name: &'static str,
    /// Its variants.
    pub descs: &'static [KernelDesc],
    /// Small problems.
    pub sizes: &'static [[u64; 3]],
    /// A problem that fills a GPU.
    pub large: [u64; 3],
    /// The arithmetic is prescribed bit for bit.
    pub bitwise: bool,
    /// Makes a problem from a seed.
    pub problem: for<'d> fn(Device<'d>, &'static KernelDesc, [u64; 3], u64) -> Result<Problem<'d>, Failure>,
}

impl Rung {
    /// Its variants, one by one.
    pub fn descs(&self) -> impl Iterator<Item = &'static KernelDesc> + use<> {
        self.descs.iter()
    }

    /// What the kernel gives on a device. Inputs and surroundings are unchanged, or it is an error.
    pub fn values(
        &self,
        device: Device,
        desc: &'static KernelDesc,
        size: [u64; 3],
        seed: u64,
    ) -> Result<Vec<f32>, Failure> {
        let problem = (self.problem)(device, desc, size, seed)?;
        // SAFETY: the buffers live until the results have been read, and nothing else uses them.
        unsafe { device.executor.launch(&problem.launch, Stream::default())? };
        device.executor.synchronize(Stream::default())?;
        for buffer in &problem.buffers {
            buffer.check_canaries()?;
        }
        let output = problem.buffers.last().ok_or("a problem has an output")?;
        Ok(output.download()?)
    }

    /// What should come out.
    pub fn expected(
        &self,
        device: Device,
        desc: &'static KernelDesc,
        size: [u64; 3],
        seed: u64,
    ) -> Result<Expected, Failure> {
        Ok(((self.problem)(device, desc, size, seed)?.expected)())
    }
}

/// An output buffer of f32, poisoned.
pub fn output<'d>(device: Device<'d>, name: &'static str, elements: u64) -> Result<DeviceBuffer<'d>, Failure> {
    let buffer = DeviceBuffer::new(device.executor, name, 4 * elements, device.guarding)?;
    buffer.fill(0xFF)?;
    Ok(buffer)
}

/// The numbers in float64.
pub fn wide(values: &[bf16]) -> Vec<f64> {
    values.iter().map(|v| v.to_f64()).collect()
}
