//! Captured graphs and events, for benchmarks and for tests of graph safety.

use super::context::Context;
use super::result::checked;
use super::{CudaExecutor, host_size};
use cudarc::driver::sys;
use kda_core::exec::{ExecError, Stream};
use std::sync::Arc;

/// Launches captured from a stream, ready to be replayed.
pub struct CudaGraph {
    context: Arc<Context>,
    handle: sys::CUgraphExec,
}

// SAFETY: the handle may be used from any thread on which its context is current; two threads cannot launch it at
// once, as it is not `Sync`.
unsafe impl Send for CudaGraph {}

impl CudaGraph {
    /// Enqueues a replay of every captured launch.
    ///
    /// # Safety
    /// What [`kda_core::Executor::launch`] asks for holds again for every captured launch; a stream other than 0 must
    /// be a live `CUstream` of the same context.
    pub unsafe fn launch(&self, stream: Stream) -> Result<(), ExecError> {
        let _current = self.context.enter()?;
        // SAFETY: the graph is instantiated in this context; the caller vouches for the stream and the pointers.
        let result = unsafe { sys::cuGraphLaunch(self.handle, self.context.stream(stream)) };
        Ok(checked("cuGraphLaunch", result)?)
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        if let Ok(_current) = self.context.enter() {
            // SAFETY: the handle is not used again; replays already enqueued are finished by the driver.
            let _ = unsafe { sys::cuGraphExecDestroy(self.handle) };
        }
    }
}

/// A point in a stream, with the time at which the device reached it.
pub struct CudaEvent {
    context: Arc<Context>,
    handle: sys::CUevent,
}

// SAFETY: the handle may be used from any thread on which its context is current.
unsafe impl Send for CudaEvent {}

impl CudaEvent {
    /// Enqueues the event on a stream.
    ///
    /// # Safety
    /// A stream other than 0 must be a live `CUstream` of the same context.
    pub unsafe fn record(&self, stream: Stream) -> Result<(), ExecError> {
        let _current = self.context.enter()?;
        // SAFETY: the event belongs to the current context; the caller vouches for the stream.
        let result = unsafe { sys::cuEventRecord(self.handle, self.context.stream(stream)) };
        Ok(checked("cuEventRecord", result)?)
    }

    /// Waits for this event and gives the device time since `start`, in microseconds. Both must have been recorded.
    pub fn elapsed_us(&self, start: &CudaEvent) -> Result<f64, ExecError> {
        let _current = self.context.enter()?;
        // SAFETY: the event belongs to the current context.
        checked("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.handle) })?;
        let mut milliseconds = 0f32;
        // SAFETY: `milliseconds` is valid for one float; both events are alive.
        let result = unsafe { sys::cuEventElapsedTime(&mut milliseconds, start.handle, self.handle) };
        checked("cuEventElapsedTime", result)?;
        Ok(f64::from(milliseconds) * 1e3)
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        if let Ok(_current) = self.context.enter() {
            // SAFETY: the handle is not used again.
            let _ = unsafe { sys::cuEventDestroy_v2(self.handle) };
        }
    }
}

impl CudaExecutor {
    /// Starts to capture what is enqueued on a stream. [`CudaExecutor::end_capture`] must follow on the same thread.
    /// Until then kernels that were not warmed, allocations and copies are errors on this thread.
    ///
    /// # Safety
    /// A stream other than 0 must be a live `CUstream` of this executor's context.
    pub unsafe fn begin_capture(&self, stream: Stream) -> Result<(), ExecError> {
        let _current = self.context.enter()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is the executor's own, or the caller vouches for it.
        let result = unsafe { sys::cuStreamBeginCapture_v2(self.context.stream(stream), mode) };
        Ok(checked("cuStreamBeginCapture_v2", result)?)
    }

    /// Ends a capture and makes what was captured ready for replay.
    ///
    /// # Safety
    /// As [`CudaExecutor::begin_capture`].
    pub unsafe fn end_capture(&self, stream: Stream) -> Result<CudaGraph, ExecError> {
        let _current = self.context.enter()?;
        let mut graph: sys::CUgraph = std::ptr::null_mut();
        // SAFETY: `graph` is valid for one handle; the stream is the executor's own, or the caller vouches for it.
        let result = unsafe { sys::cuStreamEndCapture(self.context.stream(stream), &mut graph) };
        checked("cuStreamEndCapture", result)?;
        let mut handle: sys::CUgraphExec = std::ptr::null_mut();
        // SAFETY: `handle` is valid for one handle; the capture succeeded, so `graph` is a graph.
        let instantiated = unsafe { sys::cuGraphInstantiateWithFlags(&mut handle, graph, 0) };
        // SAFETY: the graph is not used again; an instantiated graph does not need it.
        let _ = unsafe { sys::cuGraphDestroy(graph) };
        checked("cuGraphInstantiateWithFlags", instantiated)?;
        Ok(CudaGraph { context: Arc::clone(&self.context), handle })
    }

    /// Captures what `work` enqueues on the executor's own stream. The capture ends even if `work` fails; its error is
    /// then the result.
    pub fn capture(&self, work: impl FnOnce(&CudaExecutor) -> Result<(), ExecError>) -> Result<CudaGraph, ExecError> {
        // SAFETY: 0 is the executor's own stream.
        unsafe { self.begin_capture(Stream(0)) }?;
        let done = work(self);
        // SAFETY: as above.
        let graph = unsafe { self.end_capture(Stream(0)) };
        done.and(graph)
    }

    /// Enqueues a copy of device bytes on the executor's own stream.
    ///
    /// # Safety
    /// Both ranges must be memory of this device until the copy has run; they must not overlap, and nothing may access
    /// them in conflict with it.
    pub unsafe fn enqueue_copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), ExecError> {
        let _current = self.context.enter()?;
        let stream = self.context.stream(Stream(0));
        // SAFETY: the stream is the executor's own; the caller vouches for both ranges.
        let result = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, host_size(bytes)?, stream) };
        Ok(checked("cuMemcpyDtoDAsync_v2", result)?)
    }

    /// Enqueues a fill of device memory with a byte on the executor's own stream.
    ///
    /// # Safety
    /// As [`CudaExecutor::enqueue_copy`], for the one range.
    pub unsafe fn enqueue_fill(&self, to: u64, byte: u8, bytes: u64) -> Result<(), ExecError> {
        let _current = self.context.enter()?;
        let stream = self.context.stream(Stream(0));
        // SAFETY: the stream is the executor's own; the caller vouches for the range.
        let result = unsafe { sys::cuMemsetD8Async(to, byte, host_size(bytes)?, stream) };
        Ok(checked("cuMemsetD8Async", result)?)
    }

    /// A new event, for timing.
    pub fn event(&self) -> Result<CudaEvent, ExecError> {
        let _current = self.context.enter()?;
        let mut handle: sys::CUevent = std::ptr::null_mut();
        let flags = sys::CUevent_flags::CU_EVENT_DEFAULT as u32;
        // SAFETY: `handle` is valid for one handle; the context is current.
        checked("cuEventCreate", unsafe { sys::cuEventCreate(&mut handle, flags) })?;
        Ok(CudaEvent { context: Arc::clone(&self.context), handle })
    }

    /// Device time, in microseconds, between the start and the end of what `work` enqueues on the executor's own
    /// stream. Waits for it.
    pub fn time_us(&self, work: impl FnOnce(&CudaExecutor) -> Result<(), ExecError>) -> Result<f64, ExecError> {
        let (start, end) = (self.event()?, self.event()?);
        // SAFETY: 0 is the executor's own stream.
        unsafe { start.record(Stream(0)) }?;
        work(self)?;
        // SAFETY: as above.
        unsafe { end.record(Stream(0)) }?;
        end.elapsed_us(&start)
    }
}
