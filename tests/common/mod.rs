//! The device of the tests that need one.

use kda::checks::Device;
use kda::core::exec::ExecError;
use kda::runtime::Guarding;
use kda::runtime::executor::cuda::CudaExecutor;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The device, for one test at a time. Without a device `None`, or a failure where `KDA_REQUIRE_CUDA` is set.
pub fn device() -> Option<(CudaExecutor, MutexGuard<'static, ()>)> {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    match CudaExecutor::open(0) {
        Ok(executor) => Some((executor, guard)),
        Err(ExecError::NoDevice(why)) => {
            assert!(std::env::var_os("KDA_REQUIRE_CUDA").is_none(), "a device is required: {why}");
            eprintln!("skipped: {why}");
            None
        }
        Err(other) => panic!("{other}"),
    }
}

/// The device with every buffer between bands of guarded bytes.
pub fn on(executor: &CudaExecutor) -> Device<'_> {
    Device { executor, guarding: Guarding::BANDS }
}
