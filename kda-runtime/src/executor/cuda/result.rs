//! From raw driver results to errors that name the call and say what the driver said; and whether there is a driver.

use cudarc::driver::sys::{self, CUresult};
use kda_core::exec::ExecError;
use std::ffi::{CStr, c_char};

/// Every driver function that this executor calls. cudarc resolves functions at their first call and panics where one
/// is missing, so [`require_driver`] looks all of them up first.
const FUNCTIONS: &[&str] = &[
    "cuCtxPopCurrent_v2",
    "cuCtxPushCurrent_v2",
    "cuCtxSynchronize",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuInit",
    "cuLaunchKernelEx",
    "cuTensorMapEncodeTiled",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamIsCapturing",
    "cuStreamSynchronize",
];

/// A driver call that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// The driver function.
    pub call: &'static str,
    /// What it returned.
    pub code: CUresult,
}

/// Turns what a driver function returned into a result.
pub(super) fn checked(call: &'static str, code: CUresult) -> Result<(), Failure> {
    if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(Failure { call, code }) }
}

impl Failure {
    /// Name and words of the driver for the code: `CUDA_ERROR_OUT_OF_MEMORY (out of memory)`.
    pub fn message(self) -> String {
        let name = words(|out| {
            // SAFETY: `out` is valid for one pointer; a `Failure` exists only after a call into the loaded library.
            unsafe { sys::cuGetErrorName(self.code, out) }
        });
        let text = words(|out| {
            // SAFETY: as above.
            unsafe { sys::cuGetErrorString(self.code, out) }
        });
        match (name, text) {
            (Some(name), Some(text)) => format!("{name} ({text})"),
            (Some(name), None) => name,
            _ => format!("error {}", self.code as u32),
        }
    }

    /// The error, with more words after the driver's own.
    pub fn with(self, more: &str) -> ExecError {
        ExecError::Driver { call: self.call, message: format!("{}; {more}", self.message()) }
    }

    /// The error of a call without which no device can be used.
    pub fn no_device(self) -> ExecError {
        ExecError::NoDevice(format!("{} failed: {}", self.call, self.message()))
    }
}

impl From<Failure> for ExecError {
    fn from(failure: Failure) -> ExecError {
        ExecError::Driver { call: failure.call, message: failure.message() }
    }
}

/// A static string that a driver function hands out, or `None` where it has none.
fn words(ask: impl FnOnce(*mut *const c_char) -> CUresult) -> Option<String> {
    let mut text: *const c_char = std::ptr::null();
    if ask(&mut text) != CUresult::CUDA_SUCCESS || text.is_null() {
        return None;
    }
    // SAFETY: on success the driver gives a NUL-terminated string of static lifetime.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Finds the driver library with every function needed, and initialises it.
///
/// # Errors
/// [`ExecError::NoDevice`] if the library or one of its functions is missing, or if it finds no device.
pub(super) fn require_driver() -> Result<(), ExecError> {
    // SAFETY: loading the driver library runs its initialisers, which any CUDA program does.
    if !unsafe { sys::is_culib_present() } {
        let library = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };
        return Err(ExecError::NoDevice(format!("{library} was not found; an NVIDIA driver is needed")));
    }
    // SAFETY: the library is present, so this does not panic; it stays loaded for the life of the process.
    let library = unsafe { sys::culib() };
    for name in FUNCTIONS {
        // SAFETY: the symbol is looked up, and neither called nor kept.
        if unsafe { library.get::<unsafe extern "C" fn()>(name.as_bytes()) }.is_err() {
            return Err(ExecError::NoDevice(format!(
                "the NVIDIA driver has no function {name}; a driver for CUDA 12.0 or newer is needed"
            )));
        }
    }
    // SAFETY: takes no pointer; may be called any number of times.
    checked("cuInit", unsafe { sys::cuInit(0) }).map_err(Failure::no_device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_function_called_is_looked_up_first() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/executor/cuda");
        let sources: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
            .map(|path| std::fs::read_to_string(path).unwrap())
            .collect();
        let mut called = BTreeSet::new();
        for source in &sources {
            for rest in source.split("sys::cu").skip(1) {
                let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if rest[name.len()..].starts_with('(') && name != "lib" {
                    called.insert(format!("cu{name}"));
                }
            }
        }
        let listed: BTreeSet<String> = FUNCTIONS.iter().copied().map(String::from).collect();
        assert_eq!(called, listed);
    }

    #[test]
    fn success_is_not_a_failure() {
        assert_eq!(checked("cuInit", CUresult::CUDA_SUCCESS), Ok(()));
        let failure = checked("cuInit", CUresult::CUDA_ERROR_NO_DEVICE);
        assert_eq!(failure, Err(Failure { call: "cuInit", code: CUresult::CUDA_ERROR_NO_DEVICE }));
    }
}
