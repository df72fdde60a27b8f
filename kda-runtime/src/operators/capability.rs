//! Devices for tests of planning, which asks them what they are and nothing else.

use kda_core::exec::{ExecError, Stream};
use kda_core::{Executor, PreparedLaunch};

/// A device of some compute capability and number of multiprocessors that must not be asked for anything else.
pub struct Capability(pub u8, pub u8, pub u32);

/// An H200.
pub const HOPPER: Capability = Capability(9, 0, 132);

impl Executor for Capability {
    fn describe(&self) -> String {
        "a compute capability".into()
    }

    fn compute_capability(&self) -> (u8, u8) {
        (self.0, self.1)
    }

    fn multiprocessors(&self) -> u32 {
        self.2
    }

    fn allocate(&self, _bytes: u64) -> Result<u64, ExecError> {
        panic!("planning allocates nothing")
    }

    fn free(&self, _ptr: u64) -> Result<(), ExecError> {
        panic!("planning frees nothing")
    }

    fn write(&self, _ptr: u64, _bytes: &[u8]) -> Result<(), ExecError> {
        panic!("planning writes nothing")
    }

    fn read(&self, _ptr: u64, _bytes: &mut [u8]) -> Result<(), ExecError> {
        panic!("planning reads nothing")
    }

    fn fill(&self, _ptr: u64, _byte: u8, _bytes: u64) -> Result<(), ExecError> {
        panic!("planning fills nothing")
    }

    unsafe fn launch(&self, _launch: &PreparedLaunch, _stream: Stream) -> Result<(), ExecError> {
        panic!("planning launches nothing")
    }

    fn synchronize(&self, _stream: Stream) -> Result<(), ExecError> {
        panic!("planning waits for nothing")
    }
}
