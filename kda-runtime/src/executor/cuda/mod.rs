//! Runs kernels on a GPU through the CUDA driver.
//!
//! | question | module |
//! | --- | --- |
//! | is there a driver, and what did it say | `result` |
//! | which context and which stream | `context` |
//! | how does PTX text become a function, once | `module` |
//! | which driver release knows a PTX version | `release` |
//! | how is a launch enqueued | `launch` |
//! | how are launches captured, replayed and timed | `graph` |
//!
//! Nothing here needs CUDA to build: the driver is loaded at run time, and a machine without one gives
//! [`ExecError::NoDevice`]. A launch neither allocates nor waits, so it may be captured into a graph once its kernel is
//! warm.

mod context;
mod graph;
mod launch;
mod module;
mod release;
mod result;

pub use graph::{CudaEvent, CudaGraph};
pub use module::FunctionInfo;
pub use release::{cuda_release_of, release_name};

use context::Context;
use cudarc::driver::sys::{self, CUresult};
use kda_core::exec::{ExecError, Executor, Stream};
use kda_core::{KernelDesc, PreparedLaunch};
use result::checked;
use std::sync::Arc;

/// Alignment that [`Executor::allocate`] promises, bytes.
const ALLOCATION_ALIGN: u64 = 256;

/// One CUDA device: its primary context, which other libraries of the process share, and a stream of its own.
///
/// Every call makes the context current and restores the caller's afterwards, so the executor may be used from any
/// thread. Loaded kernels live as long as the executor and everything made from it.
pub struct CudaExecutor {
    context: Arc<Context>,
}

impl CudaExecutor {
    /// Opens device `ordinal`, counted from 0 in the driver's order.
    ///
    /// # Errors
    /// [`ExecError::NoDevice`] if there is no driver, a function of it is missing, or it shows no such device.
    pub fn open(ordinal: u32) -> Result<CudaExecutor, ExecError> {
        Ok(CudaExecutor { context: Context::open(ordinal)? })
    }

    /// Loads a kernel now, so that its launches can be captured and the first one is not slow. Costs the JIT once.
    ///
    /// # Errors
    /// [`ExecError::OldDriver`] if the driver does not know the PTX version, [`ExecError::Unsupported`] if the device
    /// cannot run the kernel, [`ExecError::Driver`] with the JIT's log if it refuses the text.
    pub fn warm(&self, desc: &'static KernelDesc) -> Result<(), ExecError> {
        let _current = self.context.enter()?;
        self.context.modules.load(&self.context, desc)?;
        Ok(())
    }

    /// Registers, local memory and the JIT's log of a kernel, which is loaded if need be. Errors as
    /// [`CudaExecutor::warm`].
    pub fn function_info(&self, desc: &'static KernelDesc) -> Result<FunctionInfo, ExecError> {
        self.warm(desc)?;
        self.context
            .modules
            .info(desc)
            .ok_or_else(|| ExecError::Unsupported(format!("{} is not loaded in this context", desc.entry)))
    }

    /// The executor's own stream as a `CUstream`, for other libraries that are to enqueue on it.
    pub fn own_stream(&self) -> Stream {
        Stream(self.context.stream(Stream(0)) as usize as u64)
    }

    /// Waits for one stream; the context must be current.
    fn wait(&self, stream: sys::CUstream) -> Result<(), ExecError> {
        // SAFETY: the stream is the executor's own, or the caller's live one.
        Ok(checked("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream) })?)
    }
}

/// A byte count as the driver takes it.
fn host_size(bytes: u64) -> Result<usize, ExecError> {
    usize::try_from(bytes).map_err(|_| ExecError::Unsupported(format!("{bytes} bytes are past this host's range")))
}

impl Executor for CudaExecutor {
    fn describe(&self) -> String {
        let facts = &self.context.facts;
        format!(
            "{}, compute capability {}.{}, {} multiprocessors, driver for CUDA {}",
            facts.name,
            facts.capability.0,
            facts.capability.1,
            facts.multiprocessors,
            release_name(facts.driver)
        )
    }

    fn compute_capability(&self) -> (u8, u8) {
        self.context.facts.capability
    }

    fn multiprocessors(&self) -> u32 {
        self.context.facts.multiprocessors
    }

    fn allocate(&self, bytes: u64) -> Result<u64, ExecError> {
        let _current = self.context.enter()?;
        let mut ptr: sys::CUdeviceptr = 0;
        // The driver refuses an allocation of nothing.
        let size = host_size(bytes.max(1))?;
        // SAFETY: `ptr` is valid for one address; the context is current.
        checked("cuMemAlloc_v2", unsafe { sys::cuMemAlloc_v2(&mut ptr, size) }).map_err(|failure| {
            if failure.code == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
                failure.with(&format!("{bytes} bytes were asked for"))
            } else {
                failure.into()
            }
        })?;
        if !ptr.is_multiple_of(ALLOCATION_ALIGN) {
            self.free(ptr)?;
            return Err(ExecError::Unsupported(format!(
                "the driver gave 0x{ptr:x}, which is not a multiple of {ALLOCATION_ALIGN}"
            )));
        }
        Ok(ptr)
    }

    fn free(&self, ptr: u64) -> Result<(), ExecError> {
        let _current = self.context.enter()?;
        // SAFETY: the driver looks the address up and refuses one that it did not allocate.
        Ok(checked("cuMemFree_v2", unsafe { sys::cuMemFree_v2(ptr) })?)
    }

    fn write(&self, ptr: u64, bytes: &[u8]) -> Result<(), ExecError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let _current = self.context.enter()?;
        let stream = self.context.stream(Stream(0));
        // SAFETY: the host bytes outlive the copy, as the stream is waited for below; the driver checks the device range.
        let result = unsafe { sys::cuMemcpyHtoDAsync_v2(ptr, bytes.as_ptr().cast(), bytes.len(), stream) };
        checked("cuMemcpyHtoDAsync_v2", result)?;
        self.wait(stream)
    }

    fn read(&self, ptr: u64, bytes: &mut [u8]) -> Result<(), ExecError> {
        let _current = self.context.enter()?;
        // SAFETY: takes no pointer. Work on streams of the caller must have ended, too.
        checked("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })?;
        if bytes.is_empty() {
            return Ok(());
        }
        let stream = self.context.stream(Stream(0));
        // SAFETY: the host bytes outlive the copy, as the stream is waited for below; the driver checks the device range.
        let result = unsafe { sys::cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), ptr, bytes.len(), stream) };
        checked("cuMemcpyDtoHAsync_v2", result)?;
        self.wait(stream)
    }

    fn fill(&self, ptr: u64, byte: u8, bytes: u64) -> Result<(), ExecError> {
        if bytes == 0 {
            return Ok(());
        }
        let _current = self.context.enter()?;
        let stream = self.context.stream(Stream(0));
        // SAFETY: the driver checks the device range.
        let result = unsafe { sys::cuMemsetD8Async(ptr, byte, host_size(bytes)?, stream) };
        checked("cuMemsetD8Async", result)?;
        self.wait(stream)
    }

    unsafe fn launch(&self, launch: &PreparedLaunch, stream: Stream) -> Result<(), ExecError> {
        // SAFETY: the caller's promises are the same.
        unsafe { launch::launch(&self.context, launch, stream) }
    }

    fn synchronize(&self, stream: Stream) -> Result<(), ExecError> {
        let _current = self.context.enter()?;
        self.wait(self.context.stream(stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a device is found, an ordinal past the last one is refused; elsewhere every ordinal is.
    #[test]
    fn a_missing_driver_or_device_is_an_error() {
        match CudaExecutor::open(u32::MAX) {
            Err(ExecError::NoDevice(why)) => assert!(!why.is_empty()),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("there is no device of that ordinal"),
        }
    }
}
