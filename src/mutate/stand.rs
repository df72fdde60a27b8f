//! A simulator that launches other kernels in the place of those it is given, and remembers what is read back.

use kda_core::PreparedLaunch;
use kda_core::exec::{ExecError, Executor, Stream};
use kda_runtime::executor::sim::SimExecutor;
use std::cell::Cell;
use std::hash::{DefaultHasher, Hasher};

/// The launch that takes the place of another; `None` leaves it as it is.
type Instead = Box<dyn Fn(&PreparedLaunch) -> Option<PreparedLaunch>>;

/// A simulator that launches other kernels in the place of those it is given.
pub(crate) struct Stand {
    /// Where they run.
    pub simulator: SimExecutor,
    instead: Instead,
    read: Cell<u64>,
    refused: Cell<bool>,
}

impl Stand {
    /// A stand that asks `instead` ahead of each launch.
    pub fn new(simulator: SimExecutor, instead: impl Fn(&PreparedLaunch) -> Option<PreparedLaunch> + 'static) -> Stand {
        Stand { simulator, instead: Box::new(instead), read: Cell::new(0), refused: Cell::new(false) }
    }

    /// Hash of all bytes that were read.
    pub fn read(&self) -> u64 {
        self.read.get()
    }

    /// True if the text that was launched last in the place of another cannot be loaded.
    pub fn refused(&self) -> bool {
        self.refused.get()
    }

    /// Instructions of warps that the last launch took.
    pub fn steps(&self) -> u64 {
        self.simulator.last_stats().map_or(0, |stats| stats.warp_instructions)
    }
}

impl Executor for Stand {
    fn describe(&self) -> String {
        self.simulator.describe()
    }

    fn compute_capability(&self) -> (u8, u8) {
        self.simulator.compute_capability()
    }

    fn multiprocessors(&self) -> u32 {
        self.simulator.multiprocessors()
    }

    fn allocate(&self, bytes: u64) -> Result<u64, ExecError> {
        self.simulator.allocate(bytes)
    }

    fn free(&self, ptr: u64) -> Result<(), ExecError> {
        self.simulator.free(ptr)
    }

    fn write(&self, ptr: u64, bytes: &[u8]) -> Result<(), ExecError> {
        self.simulator.write(ptr, bytes)
    }

    fn read(&self, ptr: u64, bytes: &mut [u8]) -> Result<(), ExecError> {
        self.simulator.read(ptr, bytes)?;
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.read.get());
        hasher.write(bytes);
        self.read.set(hasher.finish());
        Ok(())
    }

    fn fill(&self, ptr: u64, byte: u8, bytes: u64) -> Result<(), ExecError> {
        self.simulator.fill(ptr, byte, bytes)
    }

    unsafe fn launch(&self, launch: &PreparedLaunch, stream: Stream) -> Result<(), ExecError> {
        let Some(other) = (self.instead)(launch) else {
            // SAFETY: the caller's promise.
            return unsafe { self.simulator.launch(launch, stream) };
        };
        // SAFETY: the caller's promise; the simulator checks every access of the other text against its memory.
        let outcome = unsafe { self.simulator.launch(&other, stream) };
        self.refused.set(matches!(outcome, Err(ExecError::Unsupported(_))));
        outcome
    }

    fn synchronize(&self, stream: Stream) -> Result<(), ExecError> {
        self.simulator.synchronize(stream)
    }
}
