//! A compiled variant, owned: the mirror of [`kda_core::KernelDesc`] before it is written as tokens.

use crate::check::protocol::Verdict;
use kda_core::expr::BinaryOp;
use kda_core::{Arch, Elem, IsaVersion, Swizzle};

/// A compiled variant of a kernel. Fields are those of [`kda_core::KernelDesc`].
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Compiled {
    pub entry: String,
    pub family: String,
    pub kernel: String,
    pub arch: Arch,
    pub isa: IsaVersion,
    pub ptx: String,
    pub block: u32,
    pub cluster: u32,
    pub grid: [OwnedExpr; 3],
    pub min_blocks_per_sm: u32,
    pub shared_bytes: u32,
    pub shared: Vec<SharedBuffer>,
    pub roles: Vec<Role>,
    pub barriers: Vec<Barrier>,
    pub protocol: Verdict,
    pub params: Vec<Param>,
    pub param_bytes: u32,
    pub consts: Vec<(String, String)>,
    pub requires: Vec<Requirement>,
    pub pdl: bool,
    pub file: String,
    pub line: u32,
}

/// Owned mirror of [`kda_core::Expr`].
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum OwnedExpr {
    Int(i128),
    Name(String),
    Not(Box<OwnedExpr>),
    Binary(BinaryOp, Box<OwnedExpr>, Box<OwnedExpr>),
}

/// Owned mirror of [`kda_core::desc::SharedBuffer`].
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct SharedBuffer {
    pub name: String,
    pub offset: u32,
    pub bytes: u32,
    pub align: u32,
    pub elem: Elem,
    pub shape: Vec<u32>,
}

/// Owned mirror of [`kda_core::desc::RoleDesc`].
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Role {
    pub name: String,
    pub first_warp: u32,
    pub warps: u32,
    pub registers: Option<u32>,
}

/// Owned mirror of [`kda_core::desc::BarrierDesc`].
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Barrier {
    pub name: String,
    pub id: u32,
    pub threads: u32,
}

/// Owned mirror of [`kda_core::desc::Requirement`].
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Requirement {
    pub text: String,
    pub expr: OwnedExpr,
}

/// Owned mirror of [`kda_core::ParamDesc`].
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Param {
    pub name: String,
    pub kind: ParamKind,
    pub offset: u32,
    pub bytes: u32,
}

/// Owned mirror of [`kda_core::ParamKind`].
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum ParamKind {
    Tensor { elem: Elem, writes: bool, optional: bool, stable: bool, align: u32, dims: Vec<Dim>, map: Option<Map> },
    Scalar(Elem),
    Dim,
    Stride { tensor: u32, axis: u32 },
    Present { tensor: u32 },
}

/// How a tensor is reached through a tensor map.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// Elements of a tile as the author wrote it, outermost first.
    pub tile: Vec<u32>,
    /// Elements of one copy: the tile, with its innermost axis cut to the swizzle's span.
    pub copy: Vec<u32>,
    /// Swizzle in shared memory.
    pub swizzle: Swizzle,
}

/// Owned mirror of [`kda_core::desc::DimDesc`].
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Dim {
    pub size: OwnedExpr,
    pub stride: Stride,
}

/// Owned mirror of [`kda_core::desc::StrideDesc`].
#[derive(Clone, Debug, PartialEq)]
pub enum Stride {
    /// Known to the text.
    Const(u64),
    /// A launch parameter of this name.
    Param(String),
    /// Known to the tensor map alone.
    Any,
}
