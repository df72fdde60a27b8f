//! Tokens to syntax: the kernel module as its author wrote it, with the attributes understood.

pub mod ast;

pub use ast::{
    Arg, DeviceFn, Dim, Family, Generic, GenericKind, Kernel, Param, ParamType, RoleDecl, Stable, VariantAxis, Variants,
};
