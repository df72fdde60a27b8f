//! Tokens to syntax: the kernel module as its author wrote it, with the attributes understood.
//!
//! | file | what |
//! | --- | --- |
//! | [`ast`] | the tree |
//! | [`module`](family) | kernel modules and device libraries |
//! | `depth` | what nests too deeply to be parsed |
//! | `attrs` | attributes and their arguments |
//! | `function` | device functions, generics |
//! | `kernel` | kernels: `#[kernel]`, `#[requires]` |
//! | `params` | kernel parameters, `#[dims]` |
//! | `roles`, `variants` | `#[roles]`, `#[variants]` |
//! | [`text`] | syntax back to text, as a person would space it |
//!
//! Decisions: every malformed thing is an error at its own tokens, and the errors of different items are all reported.
//! Documentation and lint attributes are accepted everywhere and kept on modules and kernels; `#[cfg]` inside a module is
//! refused, since a macro sees the items before they are configured. Items of a kernel module have no visibility of
//! their own: what the module becomes is public.

pub mod ast;
mod attrs;
mod depth;
mod function;
mod kernel;
mod module;
mod params;
mod roles;
#[cfg(test)]
mod tests;
pub mod text;
mod variants;

pub use ast::{
    Arg, DeviceFn, Dim, Family, Generic, GenericKind, Kernel, Library, MapType, Param, ParamType, RoleDecl, Stable,
    VariantAxis, Variants,
};
pub(crate) use attrs::{is_inert, unknown as unknown_attribute};
pub use module::{ModuleArgs, device_library, family, module_args, parse_family};
