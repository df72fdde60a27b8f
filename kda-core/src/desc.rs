//! A compiled kernel variant, as data.
//!
//! A kernel macro emits one [`KernelDesc`] per variant as a `static`. It carries everything that a launcher, the
//! simulator or a reader needs, so nothing about a kernel is written a second time on the host side.

use crate::{Arch, Elem, Expr, IsaVersion, TensorMapParam};

/// One compiled variant of one kernel.
#[derive(Debug, PartialEq)]
pub struct KernelDesc {
    /// PTX entry name, unique in the workspace: the kernel's name and its variant, `conv_verify__t4_bv8`.
    pub entry: &'static str,
    /// Module that holds the kernel.
    pub family: &'static str,
    /// Kernel function.
    pub kernel: &'static str,
    /// Target the text is written for.
    pub arch: Arch,
    /// `.version` of the text.
    pub isa: IsaVersion,
    /// PTX text of the module that holds this entry alone.
    pub ptx: &'static str,
    /// Threads of a CTA.
    pub block: u32,
    /// CTAs of a cluster; 1 without clusters.
    pub cluster: u32,
    /// CTAs of the grid in x, y and z.
    pub grid: [Expr; 3],
    /// CTAs that are to fit an SM at once; a bound for the register allocator.
    pub min_blocks_per_sm: u32,
    /// Dynamic shared memory, bytes.
    pub shared_bytes: u32,
    /// Map of the dynamic shared memory.
    pub shared: &'static [SharedBuffer],
    /// Warp roles in order of declaration; empty if the kernel has none.
    pub roles: &'static [RoleDesc],
    /// Named barriers.
    pub barriers: &'static [BarrierDesc],
    /// What is known of its pipelines and barriers.
    pub protocol: Protocol,
    /// Parameters in ABI order.
    pub params: &'static [ParamDesc],
    /// Bytes of the parameter block.
    pub param_bytes: u32,
    /// Constants that make this variant.
    pub consts: &'static [ConstDesc],
    /// What a launch must satisfy; assumed by the compiled text.
    pub requires: &'static [Requirement],
    /// True if the text waits for its predecessor with `griddepcontrol.wait`, so that it may be launched with
    /// programmatic dependent launch.
    pub pdl: bool,
    /// Where the kernel is written.
    pub source: SourceLocation,
    /// Hash of the PTX text (FNV-1a, 64 bit).
    pub hash: u64,
}

/// What the compiler knows of the pipelines and barriers of a kernel: whether every role gets what it waits for, and every
/// stage that is committed is released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// There are neither pipelines nor named barriers.
    #[default]
    Nothing,
    /// That is so, however often loops run.
    Proved,
    /// That is so with the numbers of trips that were tried.
    NotProved {
        /// Why there is no proof for all of them.
        why: &'static str,
    },
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Protocol::Nothing => f.write_str("nothing to prove"),
            Protocol::Proved => f.write_str("proved"),
            Protocol::NotProved { why } => write!(f, "not proved: {why}"),
        }
    }
}

/// A place in Rust source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceLocation {
    /// File, as the compiler names it.
    pub file: &'static str,
    /// Line, from 1.
    pub line: u32,
}

/// One buffer of the shared-memory map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedBuffer {
    /// Name in the kernel.
    pub name: &'static str,
    /// Byte offset from the start of dynamic shared memory.
    pub offset: u32,
    /// Size in bytes.
    pub bytes: u32,
    /// Alignment in bytes.
    pub align: u32,
    /// Element type.
    pub elem: Elem,
    /// Shape, outermost first.
    pub shape: &'static [u32],
}

/// A warp role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleDesc {
    /// Name in the kernel.
    pub name: &'static str,
    /// First warp.
    pub first_warp: u32,
    /// Number of warps.
    pub warps: u32,
    /// Registers a thread after `setmaxnreg`; `None` keeps the launch count.
    pub registers: Option<u32>,
}

/// A named barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarrierDesc {
    /// Name in the kernel.
    pub name: &'static str,
    /// Hardware id, 1 to 15.
    pub id: u32,
    /// Threads that take part, arriving and waiting.
    pub threads: u32,
}

/// A constant of a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConstDesc {
    /// Name of the const generic.
    pub name: &'static str,
    /// Value as written in source.
    pub value: &'static str,
}

/// A condition of `#[requires]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Requirement {
    /// The condition as written.
    pub text: &'static str,
    /// The condition with this variant's constants filled in.
    pub expr: Expr,
}

/// One parameter of the PTX entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParamDesc {
    /// Name in the kernel and in the PTX text.
    pub name: &'static str,
    /// What it is.
    pub kind: ParamKind,
    /// Byte offset in the parameter block.
    pub offset: u32,
    /// Size in bytes.
    pub bytes: u32,
}

/// What a parameter is, and whence its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParamKind {
    /// A device pointer that the caller gives with its tensor.
    Tensor(TensorParam),
    /// A tensor map, made from the tensor that the caller gives.
    TensorMap(TensorMapParam),
    /// A scalar that the caller gives.
    Scalar(Elem),
    /// A named dimension (`u32`), taken from the tensors that name it.
    Dim,
    /// A stride in elements (`u64`), taken from a tensor.
    Stride {
        /// Index of the tensor in [`KernelDesc::params`].
        tensor: u32,
        /// Axis of that tensor.
        axis: u32,
    },
    /// Whether a tensor behind an optional map is there (`u32`, 0 or 1).
    Present {
        /// Index of the tensor in [`KernelDesc::params`].
        tensor: u32,
    },
}

/// A tensor parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorParam {
    /// Element type.
    pub elem: Elem,
    /// True if the kernel writes it.
    pub writes: bool,
    /// True if it may be absent: loads then give 0 and stores do nothing.
    pub optional: bool,
    /// True if it is not written by a kernel that may still run when this one starts.
    pub stable: bool,
    /// Alignment of the base address, bytes.
    pub align: u32,
    /// Shape and strides, outermost first.
    pub dims: &'static [DimDesc],
}

/// One axis of a tensor parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DimDesc {
    /// Size. A bare name that no scalar defines is bound by the tensors that name it, which must agree.
    pub size: Expr,
    /// Stride in elements.
    pub stride: StrideDesc,
}

/// Stride of an axis in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrideDesc {
    /// Known to the compiled text; the launcher refuses any other.
    Const(u64),
    /// Any; passed in the parameter of this name.
    Param(&'static str),
    /// Any; only the tensor map knows it.
    Any,
}

impl ParamKind {
    /// True for what the caller gives: tensors, tensors behind maps, scalars.
    pub const fn is_field(&self) -> bool {
        matches!(self, ParamKind::Tensor(_) | ParamKind::TensorMap(_) | ParamKind::Scalar(_))
    }
}

impl KernelDesc {
    /// The same kernel with another text, and the hash of that text. It lives as long as the process, as a launch wants it.
    pub fn with_text(&self, text: String) -> &'static KernelDesc {
        let ptx: &'static str = text.leak();
        Box::leak(Box::new(KernelDesc { ptx, hash: content_hash(ptx), ..*self }))
    }

    /// The parameter of that name.
    pub fn param(&self, name: &str) -> Option<&ParamDesc> {
        self.params.iter().find(|p| p.name == name)
    }

    /// Parameters that the caller gives, in order: tensors and scalars.
    pub fn fields(&self) -> impl Iterator<Item = &ParamDesc> {
        self.params.iter().filter(|p| p.kind.is_field())
    }

    /// The value of a constant of this variant, as written in source.
    pub fn constant(&self, name: &str) -> Option<&'static str> {
        self.consts.iter().find(|c| c.name == name).map(|c| c.value)
    }
}

/// FNV-1a over the bytes of a text: the hash of [`KernelDesc::hash`].
pub const fn content_hash(text: &str) -> u64 {
    let bytes = text.as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut i = 0;
    while i < bytes.len() {
        hash ^= bytes[i] as u64;
        hash = hash.wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    hash
}
