//! Runs PTX kernels on the CPU, and finds what a GPU would hide.
//!
//! The input is the text that would go to the driver. Warps are interpreted 32 lanes at a time; bulk and tensor copies,
//! products of warpgroups and in tensor memory, barriers and atomics follow the PTX memory model, and every conflicting pair of accesses that nothing orders is reported, whatever
//! the interleaving was. So are uses of undefined values, accesses out of bounds or misaligned, misuse of barriers,
//! registers in flight and tensor memory, deadlocks, endless loops and divergent collectives, each with the line of the text
//! and of the kernel's source.
//!
//! | question | module |
//! | --- | --- |
//! | what is run, and how | [`launch`], [`schedule`] |
//! | a kernel, decoded | [`program`] |
//! | device memory | [`memory`] |
//! | who has accessed what, and what is ordered | `shadow` |
//! | arithmetic | `alu` |
//! | warps, barriers, copies: the machine | `exec` |
//! | what is wrong with a kernel | [`report`] |
//!
//! # Products
//! `mma.sync`, `wgmma` and `tcgen05.mma` multiply exactly, add in f64, and round each result once to f32. A tensor core adds in
//! an order and a precision of its own: agreement with hardware is within its error, not bit for bit.
//!
//! ```
//! use kda_sim::{Launch, Memory, Options, Program, run};
//! let text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(\n.param .u64 out\n)\n{\n\
//!     .reg .b32 %r<1>;\n.reg .b64 %rd<2>;\n\
//!     ld.param.u64 %rd0, [out];\nmov.u32 %r0, %tid.x;\nmad.wide.u32 %rd1, %r0, 4, %rd0;\n\
//!     st.global.u32 [%rd1], %r0;\nret;\n}\n";
//! let program = Program::load(text)?;
//! let mut memory = Memory::new();
//! let out = memory.allocate(256)?;
//! run(&program, &Launch::new([1, 1, 1], 64, &out.to_le_bytes()), &mut memory, &Options::default())?;
//! let mut bytes = [0; 256];
//! memory.read(out, &mut bytes)?;
//! assert_eq!(bytes[4 * 63], 63);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod alu;
mod exec;
pub mod launch;
pub mod memory;
pub mod program;
pub mod report;
pub mod schedule;
mod shadow;

pub use exec::run;
pub use launch::{Checks, CtaOrder, Launch, Options, ProxyFence, Stats};
pub use memory::Memory;
pub use program::{LoadError, Program};
pub use report::{Code, Report};
pub use schedule::Schedule;
