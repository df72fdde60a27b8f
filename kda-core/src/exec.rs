//! A device that runs kernels: memory and launches behind one trait.
//!
//! Two implementations exist: the CUDA driver and the simulator. Operators and checks are written against the trait, so
//! the same host code serves both.

use crate::IsaVersion;
use crate::launch::PreparedLaunch;

/// A stream of the executor: for CUDA a `CUstream` as an integer, 0 being the executor's own stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stream(pub u64);

/// Memory and launches on one device.
pub trait Executor {
    /// The device in words: name, compute capability, driver; or the simulator and its schedule.
    fn describe(&self) -> String;

    /// Compute capability `(major, minor)` for choosing kernels.
    fn compute_capability(&self) -> (u8, u8);

    /// Number of multiprocessors, for choosing kernels and persistent grids.
    fn multiprocessors(&self) -> u32;

    /// Allocates device memory, aligned to 256 bytes. Its contents are undefined.
    fn allocate(&self, bytes: u64) -> Result<u64, ExecError>;

    /// Frees memory of [`Executor::allocate`].
    fn free(&self, ptr: u64) -> Result<(), ExecError>;

    /// Copies host bytes to the device and waits.
    fn write(&self, ptr: u64, bytes: &[u8]) -> Result<(), ExecError>;

    /// Waits for all work and copies device bytes to the host.
    fn read(&self, ptr: u64, bytes: &mut [u8]) -> Result<(), ExecError>;

    /// Fills device memory with a byte and waits.
    fn fill(&self, ptr: u64, byte: u8, bytes: u64) -> Result<(), ExecError>;

    /// Enqueues a launch on a stream; an empty grid enqueues nothing.
    ///
    /// # Safety
    /// Every pointer in the parameter block must stay valid for the sizes that were checked until the launch has run,
    /// and nothing may access them in conflict with it.
    unsafe fn launch(&self, launch: &PreparedLaunch, stream: Stream) -> Result<(), ExecError>;

    /// Waits for everything enqueued on a stream.
    fn synchronize(&self, stream: Stream) -> Result<(), ExecError>;
}

/// Why an executor failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// No CUDA driver or no device.
    #[error("no usable CUDA device: {0}")]
    NoDevice(String),
    /// The driver refuses the kernel's PTX version.
    #[error(
        "the driver does not know PTX {needed} (entry {entry}); PTX {needed} needs a driver for CUDA {cuda} or newer, this one is for CUDA {driver}"
    )]
    OldDriver {
        /// Kernel entry.
        entry: &'static str,
        /// `.version` of the text.
        needed: IsaVersion,
        /// CUDA release whose driver knows that version.
        cuda: String,
        /// CUDA release of the driver found.
        driver: String,
    },
    /// A driver call failed.
    #[error("{call} failed: {message}")]
    Driver {
        /// The driver function.
        call: &'static str,
        /// The driver's words, with the JIT log where there is one.
        message: String,
    },
    /// An address that the executor did not allocate.
    #[error("0x{ptr:x} + {bytes} bytes is not within an allocation")]
    BadPointer {
        /// First byte.
        ptr: u64,
        /// Length.
        bytes: u64,
    },
    /// The simulator stopped with a report.
    #[error("{0}")]
    Simulation(String),
    /// The device is not able to do this.
    #[error("{0}")]
    Unsupported(String),
}
