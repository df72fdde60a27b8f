//! Shared vocabulary of the workspace: what a compiled kernel is and how it is launched.
//!
//! | question | module |
//! | --- | --- |
//! | element types of tensors | [`elem`] |
//! | GPU architectures and PTX ISA versions | [`arch`] |
//! | a compiled kernel variant, as data | [`desc`] |
//! | arithmetic over launch parameters, as data | [`expr`] |
//! | tensors and scalars handed to a launch, checked and packed | [`launch`] |
//! | what bulk tensor copies know about a tensor | [`tensor_map`] |
//! | a device that runs kernels | [`exec`] |
//! | the codes of errors, explained | [`codes`] |
//!
//! Everything a kernel macro expands to refers to this crate alone.

pub mod arch;
pub mod codes;
pub mod desc;
pub mod elem;
pub mod exec;
pub mod expr;
pub mod launch;
pub mod tensor_map;

pub use arch::{Arch, IsaVersion};
pub use desc::{KernelDesc, ParamDesc, ParamKind};
pub use elem::Elem;
pub use exec::Executor;
pub use expr::Expr;
pub use launch::{LaunchError, PreparedLaunch, ScalarArg, TensorArg};
pub use tensor_map::{Swizzle, TensorMapArg, TensorMapParam};
