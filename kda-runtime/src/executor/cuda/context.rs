//! The primary context of one device and the executor's own stream in it.

use super::module::Modules;
use super::result::{Failure, checked, require_driver};
use cudarc::driver::sys::{self, CUdevice_attribute};
use kda_core::exec::{ExecError, Stream};
use std::ffi::{CStr, c_char, c_int};
use std::marker::PhantomData;
use std::sync::Arc;

/// What the driver says about a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeviceFacts {
    pub name: String,
    /// Compute capability.
    pub capability: (u8, u8),
    pub multiprocessors: u32,
    /// Dynamic shared memory that one CTA may opt in to, bytes.
    pub shared_limit: u32,
    /// CUDA release of the driver, as `cuDriverGetVersion` gives it.
    pub driver: c_int,
}

/// A retained primary context. Dropping it unloads the modules, destroys the stream and releases the context.
pub(super) struct Context {
    pub facts: DeviceFacts,
    pub modules: Modules,
    device: sys::CUdevice,
    handle: sys::CUcontext,
    /// A stream that does not wait for the legacy stream.
    stream: sys::CUstream,
}

// SAFETY: the handles may be used from any thread on which the context is current, which `enter` sees to; the driver
// locks its own state, and `Modules` locks ours.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// The context is current on this thread as long as this lives; what was current before comes back after.
pub(super) struct Current<'c> {
    _context: &'c Context,
    /// Current contexts are a stack of one thread.
    _one_thread: PhantomData<*const ()>,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let mut popped: sys::CUcontext = std::ptr::null_mut();
        // SAFETY: `popped` is valid for one handle; `enter` pushed a context on this thread. A failure has nowhere to go.
        let _ = unsafe { sys::cuCtxPopCurrent_v2(&mut popped) };
    }
}

impl Context {
    /// Retains the primary context of device `ordinal` (counted from 0).
    pub fn open(ordinal: u32) -> Result<Arc<Context>, ExecError> {
        require_driver()?;
        let count = device_count()?;
        if ordinal >= count {
            return Err(ExecError::NoDevice(format!("device {ordinal} was asked for; the driver shows {count}")));
        }
        let mut device: sys::CUdevice = 0;
        // SAFETY: `device` is valid for one handle; the ordinal is below the device count.
        checked("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, ordinal as c_int) })
            .map_err(Failure::no_device)?;
        let facts = DeviceFacts::read(device)?;
        let mut handle: sys::CUcontext = std::ptr::null_mut();
        // SAFETY: `handle` is valid for one handle; `Drop` releases what is retained here.
        checked("cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&mut handle, device) })
            .map_err(Failure::no_device)?;
        let mut context = Context { facts, modules: Modules::default(), device, handle, stream: std::ptr::null_mut() };
        let mut stream: sys::CUstream = std::ptr::null_mut();
        {
            let _current = context.enter()?;
            let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
            // SAFETY: `stream` is valid for one handle; the context is current.
            checked("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut stream, flags) })?;
        }
        context.stream = stream;
        Ok(Arc::new(context))
    }

    /// Makes the context current on this thread.
    pub fn enter(&self) -> Result<Current<'_>, Failure> {
        // SAFETY: the context is retained as long as `self` lives.
        checked("cuCtxPushCurrent_v2", unsafe { sys::cuCtxPushCurrent_v2(self.handle) })?;
        Ok(Current { _context: self, _one_thread: PhantomData })
    }

    /// The driver's handle of a stream; 0 is the executor's own.
    pub fn stream(&self, stream: Stream) -> sys::CUstream {
        if stream.0 == 0 { self.stream } else { stream.0 as usize as sys::CUstream }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Ok(_current) = self.enter() {
            self.modules.unload();
            if !self.stream.is_null() {
                // SAFETY: the stream was created by `open` and is not used again. A failure has nowhere to go.
                let _ = unsafe { sys::cuStreamDestroy_v2(self.stream) };
            }
        }
        // SAFETY: `open` retained the context once; nothing of it is used after this.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// Number of devices that the driver shows. The driver must have been initialised.
fn device_count() -> Result<u32, ExecError> {
    let mut count: c_int = 0;
    // SAFETY: `count` is valid for one integer.
    checked("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) }).map_err(Failure::no_device)?;
    Ok(count.max(0) as u32)
}

impl DeviceFacts {
    fn read(device: sys::CUdevice) -> Result<DeviceFacts, ExecError> {
        use CUdevice_attribute::*;
        let attribute = |which: CUdevice_attribute| -> Result<u32, ExecError> {
            let mut value: c_int = 0;
            // SAFETY: `value` is valid for one integer; the device came from `cuDeviceGet`.
            checked("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut value, which, device) })
                .map_err(Failure::no_device)?;
            Ok(value.max(0) as u32)
        };
        let small = |value: u32| u8::try_from(value).unwrap_or(u8::MAX);
        let mut name = [0u8; 256];
        let length = name.len() as c_int;
        // SAFETY: the pointer is valid for `length` bytes, which the driver ends with NUL.
        let result = unsafe { sys::cuDeviceGetName(name.as_mut_ptr().cast::<c_char>(), length, device) };
        checked("cuDeviceGetName", result).map_err(Failure::no_device)?;
        let mut driver: c_int = 0;
        // SAFETY: `driver` is valid for one integer.
        checked("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut driver) }).map_err(Failure::no_device)?;
        Ok(DeviceFacts {
            name: CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned(),
            capability: (
                small(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?),
                small(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?),
            ),
            multiprocessors: attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            shared_limit: attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            driver,
        })
    }
}
