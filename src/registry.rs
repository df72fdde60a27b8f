//! The kernels of this build.

use kda_core::KernelDesc;

/// Every variant of every kernel.
pub fn kernels() -> Vec<&'static KernelDesc> {
    kda_kernels::all().collect()
}
