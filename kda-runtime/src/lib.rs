//! Runs KDA kernels on a GPU through the CUDA driver, or on any CPU through the simulator of the emitted PTX.
//!
//! | question | module |
//! | --- | --- |
//! | how does an engine call an operator | [`operators`] |
//! | which device runs a kernel, and why that one | [`executor`] |
//! | how do tests and tools hold device memory | [`buffer`] |
//!
//! Both executors implement [`kda_core::Executor`], so shape checks, dispatch and parameter packing are the same code
//! whichever of them runs a kernel.

pub mod buffer;
pub mod executor;
pub mod operators;

pub use buffer::{DeviceBuffer, Guarding};
pub use executor::{Backend, Opened, open};
pub use operators::{OpError, Plan};
