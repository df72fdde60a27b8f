//! Kimi Delta Attention kernels written in Rust: checked while they build, run on a GPU or simulated on any CPU.
//!
//! | question | where |
//! | --- | --- |
//! | what is a compiled kernel, and how is it launched | [`core`] |
//! | how are kernels run on a device, and which device | [`runtime`] |
//! | what is the right answer | [`mod@reference`] |
//! | which kernels are there | [`registry`] |
//! | does every operator give the right answer | [`checks`] |
//! | does the simulator compute what a device computes | [`diff`] |
//! | would a missing synchronisation be noticed | [`mutate`] |
//! | what holds of anything that a user hands over | [`fuzz`] |
//! | how fast are they, beside what | [`mod@bench`] |
//! | what does the assembler say of a kernel | [`assembler`] |
//!
//! The command `kda` shows, checks and replays all of it.

pub mod assembler;
pub mod bench;
pub mod checks;
pub mod diff;
pub mod fuzz;
pub mod mutate;
pub mod registry;

pub use kda_core as core;
pub use kda_ref as reference;
pub use kda_runtime as runtime;
