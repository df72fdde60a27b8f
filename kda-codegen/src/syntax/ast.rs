//! The syntax tree: what the attributes and signatures of a kernel module say. Bodies stay `syn` trees.

use kda_core::{Arch, Elem};
use proc_macro2::Span;
use syn::Ident;

/// A kernel module: kernels with their constants and device functions.
#[derive(Clone, Debug)]
pub struct Family {
    /// Name of the module.
    pub name: Ident,
    /// Visibility of the module.
    pub vis: syn::Visibility,
    /// Documentation and lint attributes of the module, as outer attributes.
    pub attrs: Vec<syn::Attribute>,
    /// Targets of `arch = …`; at least one.
    pub arch: Vec<(Arch, Span)>,
    /// `const` items, in order.
    pub consts: Vec<syn::ItemConst>,
    /// Libraries in `uses`, with their own constants.
    pub libraries: Vec<Library>,
    /// `#[device]` functions of the module and of the libraries in `uses`.
    pub devices: Vec<DeviceFn>,
    /// `#[kernel]` functions.
    pub kernels: Vec<Kernel>,
}

/// A device library: constants that its own functions see, and that kernels call `library::NAME`. Its functions stand
/// among [`Family::devices`].
#[derive(Clone, Debug)]
pub struct Library {
    /// Name of the module.
    pub name: Ident,
    /// `const` items, in order.
    pub consts: Vec<syn::ItemConst>,
}

/// A device function: always inlined.
#[derive(Clone, Debug)]
pub struct DeviceFn {
    /// Name. Functions of a library are called `library::name`.
    pub name: Ident,
    /// Library that holds it, or `None` for the kernel module itself.
    pub library: Option<Ident>,
    /// Const generics and element types.
    pub generics: Vec<Generic>,
    /// Parameters.
    pub params: Vec<Arg>,
    /// Result type as written.
    pub ret: Option<syn::Type>,
    /// Body.
    pub body: syn::Block,
}

/// A parameter of a device function.
#[derive(Clone, Debug)]
pub struct Arg {
    /// Name.
    pub name: Ident,
    /// `mut name: T`: a private copy that may change.
    pub mutable: bool,
    /// `name: &mut T`: the caller's variable.
    pub by_reference: bool,
    /// Type as written, without `&mut`.
    pub ty: syn::Type,
}

/// A generic parameter.
#[derive(Clone, Debug)]
pub struct Generic {
    /// Name.
    pub name: Ident,
    /// What it stands for.
    pub kind: GenericKind,
}

/// What a generic parameter stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenericKind {
    /// `const N: u32` and the other integers.
    Int(Elem),
    /// `const FLAT: bool`
    Bool,
    /// `OUT: Elem`: an element type.
    Elem,
}

/// A kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Name.
    pub name: Ident,
    /// Documentation lines.
    pub docs: Vec<String>,
    /// `block = …`: threads of a CTA, a constant of each variant.
    pub block: syn::Expr,
    /// `grid = …`: one to three expressions over launch parameters.
    pub grid: Vec<syn::Expr>,
    /// `cluster = …`: CTAs of a cluster, a constant of each variant; 1 if absent.
    pub cluster: Option<syn::Expr>,
    /// `min_blocks_per_sm = …`; 1 if absent.
    pub min_blocks_per_sm: Option<syn::Expr>,
    /// `max_registers = …`
    pub max_registers: Option<syn::Expr>,
    /// `#[roles(…)]`
    pub roles: Vec<RoleDecl>,
    /// `#[variants(…)]`
    pub variants: Variants,
    /// `#[requires(…)]`, one expression each.
    pub requires: Vec<syn::Expr>,
    /// Const generics and element types.
    pub generics: Vec<Generic>,
    /// Parameters in order; tuples of parameters are flattened.
    pub params: Vec<Param>,
    /// Body.
    pub body: syn::Block,
}

/// A warp role: `name = first..end (regs = n)`.
#[derive(Clone, Debug)]
pub struct RoleDecl {
    /// Name.
    pub name: Ident,
    /// First warp.
    pub first: syn::Expr,
    /// One past the last warp.
    pub end: syn::Expr,
    /// Registers a thread, for `setmaxnreg`.
    pub registers: Option<syn::Expr>,
}

/// `#[variants(…)]`
#[derive(Clone, Debug, Default)]
pub struct Variants {
    /// Axes; the variants are their product, the last axis running fastest.
    pub axes: Vec<VariantAxis>,
    /// `skip_if(…)`: combinations that are left out.
    pub skip_if: Vec<syn::Expr>,
}

/// One axis: `T in [1, 2, 4]`, `T in 1..=8`, `(BM, BN) in [(64, 8), (128, 16)]`.
#[derive(Clone, Debug)]
pub struct VariantAxis {
    /// Generics that the axis sets together.
    pub names: Vec<Ident>,
    /// Rows, each with one expression a name. A range stands as one row an integer.
    pub rows: Vec<Vec<syn::Expr>>,
}

/// A kernel parameter.
#[derive(Clone, Debug)]
pub struct Param {
    /// Name.
    pub name: Ident,
    /// What it is.
    pub ty: ParamType,
}

/// Type of a kernel parameter.
#[derive(Clone, Debug)]
pub enum ParamType {
    /// `Global<T>`, `GlobalMut<T>`, `Option<…>` of these, with `#[dims(…)]`.
    Tensor {
        /// Element type as written: an element type, or a generic of kind `Elem`.
        elem: Ident,
        /// `GlobalMut`
        writes: bool,
        /// `Option<…>`
        optional: bool,
        /// Whether a predecessor that still runs may write it.
        stable: Stable,
        /// Axes, outermost first.
        dims: Vec<Dim>,
        /// `TensorMap<…>`: the tensor is reached by bulk tensor copies alone.
        map: Option<Box<MapType>>,
    },
    /// A scalar.
    Scalar(Elem),
}

/// `TensorMap<T, Shape<ROWS, COLUMNS>, Swizzle<128>>`, or `TensorMapMut<…>` if the kernel stores through it.
#[derive(Clone, Debug)]
pub struct MapType {
    /// Sizes of a tile, outermost first.
    pub tile: Vec<syn::Expr>,
    /// Span of the swizzle in bytes: 0, 32, 64 or 128; 0 if absent.
    pub swizzle: Option<syn::Expr>,
}

/// `#[dims(…; stable)]`, `#[dims(…; stable(COND))]` and `#[dims(…; unshared)]`.
#[derive(Clone, Debug)]
pub enum Stable {
    /// Not stable.
    No,
    /// Nothing that runs at the same time writes it.
    Yes,
    /// Stable in the variants for which the constant expression holds.
    If(Box<syn::Expr>),
    /// Nothing that runs at the same time reads or writes it.
    Unshared,
}

/// One axis of `#[dims(…)]`: `size`, or `size:stride`.
///
/// The innermost axis has stride 1 unless a stride is written. A further axis is dense, with a constant stride, while all
/// axes inside it have constant sizes and strides; else its stride is a launch parameter. A written stride that is a bare
/// name which nothing else defines names that launch parameter; any other written stride must be a constant.
#[derive(Clone, Debug)]
pub struct Dim {
    /// Size: an expression over constants and launch parameters. A bare name which nothing else defines is bound by the
    /// tensors that have it.
    pub size: syn::Expr,
    /// Stride in elements.
    pub stride: Option<syn::Expr>,
}
