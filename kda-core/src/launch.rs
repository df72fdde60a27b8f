//! Arguments of a launch: checked against the kernel's description and packed into its parameter block.
//!
//! [`prepare`] is the only way from tensors to a [`PreparedLaunch`]. It binds the named dimensions, compares every
//! shape, stride, dtype, alignment and size, evaluates `#[requires]` and the grid, and touches no device. A launch
//! that it returns cannot fail for a reason known before.

mod error;
mod map;
mod tensor;

pub use error::LaunchError;
pub use tensor::{MAX_RANK, TensorArg};

use crate::Elem;
use crate::desc::{DimDesc, KernelDesc, ParamDesc, ParamKind, StrideDesc, TensorParam};
use crate::expr::Expr;
use crate::tensor_map::TensorMapArg;

/// A scalar argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScalarArg {
    /// `bool`
    Bool(bool),
    /// `u32`
    U32(u32),
    /// `u64`
    U64(u64),
    /// `i32`
    I32(i32),
    /// `i64`
    I64(i64),
    /// `f32`
    F32(f32),
}

impl ScalarArg {
    /// Its type.
    pub const fn elem(self) -> Elem {
        match self {
            ScalarArg::Bool(_) => Elem::Bool,
            ScalarArg::U32(_) => Elem::U32,
            ScalarArg::U64(_) => Elem::U64,
            ScalarArg::I32(_) => Elem::I32,
            ScalarArg::I64(_) => Elem::I64,
            ScalarArg::F32(_) => Elem::F32,
        }
    }

    fn int(self) -> Option<i128> {
        match self {
            ScalarArg::Bool(v) => Some(v.into()),
            ScalarArg::U32(v) => Some(v.into()),
            ScalarArg::U64(v) => Some(v.into()),
            ScalarArg::I32(v) => Some(v.into()),
            ScalarArg::I64(v) => Some(v.into()),
            ScalarArg::F32(_) => None,
        }
    }

    fn write(self, out: &mut [u8]) {
        match self {
            ScalarArg::Bool(v) => out[0] = v.into(),
            ScalarArg::U32(v) => out.copy_from_slice(&v.to_le_bytes()),
            ScalarArg::U64(v) => out.copy_from_slice(&v.to_le_bytes()),
            ScalarArg::I32(v) => out.copy_from_slice(&v.to_le_bytes()),
            ScalarArg::I64(v) => out.copy_from_slice(&v.to_le_bytes()),
            ScalarArg::F32(v) => out.copy_from_slice(&v.to_le_bytes()),
        }
    }
}

/// What the caller gives for one field of a kernel, in the order of [`KernelDesc::fields`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arg {
    /// A tensor, or `None` for an absent optional one.
    Tensor(Option<TensorArg>),
    /// A scalar.
    Scalar(ScalarArg),
}

/// A launch that passed every check.
#[derive(Clone, Debug, PartialEq)]
pub struct PreparedLaunch {
    /// The kernel.
    pub desc: &'static KernelDesc,
    /// CTAs in x, y, z. A zero means that there is nothing to do.
    pub grid: [u32; 3],
    /// The parameter block; the places of tensor maps are zero, and remain so for absent ones.
    pub params: Vec<u8>,
    /// Tensor maps that the executor writes into the parameter block.
    pub maps: Vec<TensorMapArg>,
    /// Launch with programmatic dependent launch.
    pub pdl: bool,
}

impl PreparedLaunch {
    /// True if the grid is empty, so that nothing is launched.
    pub fn is_empty(&self) -> bool {
        self.grid.contains(&0)
    }
}

struct Binding {
    name: &'static str,
    value: i128,
    /// The parameter that gave the value.
    from: &'static str,
}

/// Checks the arguments of one launch and packs them. `args` follow [`KernelDesc::fields`]; `pdl` asks for programmatic
/// dependent launch, which is used only if the kernel waits for its predecessor.
pub fn prepare(desc: &'static KernelDesc, args: &[Arg], pdl: bool) -> Result<PreparedLaunch, LaunchError> {
    let entry = desc.entry;
    let fields: Vec<(usize, &'static ParamDesc)> =
        desc.params.iter().enumerate().filter(|(_, p)| p.kind.is_field()).collect();
    if fields.len() != args.len() {
        let needed = format!("{} arguments in all, given {}", fields.len(), args.len());
        return Err(LaunchError::BadField { entry, index: args.len().min(fields.len()), needed });
    }
    let mut names: Vec<Binding> = Vec::new();
    let mut tensors: Vec<Option<&TensorArg>> = vec![None; desc.params.len()];
    let mut maps = Vec::new();
    for (index, ((at, param), arg)) in fields.iter().zip(args).enumerate() {
        match (&param.kind, arg) {
            (ParamKind::Scalar(elem), Arg::Scalar(value)) if value.elem() == *elem => {
                if let Some(value) = value.int() {
                    names.push(Binding { name: param.name, value, from: param.name });
                }
            }
            (ParamKind::Tensor(kind), Arg::Tensor(Some(tensor))) => {
                check_tensor(entry, param.name, kind, tensor)?;
                tensors[*at] = Some(tensor);
            }
            (ParamKind::TensorMap(map), Arg::Tensor(Some(tensor))) => {
                check_tensor(entry, param.name, &map::behind(map), tensor)?;
                map::check(entry, param.name, map, tensor)?;
                tensors[*at] = Some(tensor);
                maps.push(TensorMapArg { param: *map, tensor: *tensor, offset: param.offset });
            }
            (ParamKind::Tensor(kind), Arg::Tensor(None)) if kind.optional => {}
            (ParamKind::TensorMap(map), Arg::Tensor(None)) if map.optional => {}
            (ParamKind::Tensor(_) | ParamKind::TensorMap(_), Arg::Tensor(None)) => {
                return Err(LaunchError::Absent { entry, param: param.name });
            }
            (ParamKind::Scalar(elem), _) => {
                return Err(LaunchError::BadField {
                    entry,
                    index,
                    needed: format!("the scalar `{}`: {elem}", param.name),
                });
            }
            _ => return Err(LaunchError::BadField { entry, index, needed: format!("the tensor `{}`", param.name) }),
        }
    }
    bind_dims(desc, &tensors, &mut names)?;
    check_shapes(desc, &tensors, &names)?;
    let lookup = |name: &str| names.iter().find(|b| b.name == name).map(|b| b.value);
    for requirement in desc.requires {
        let holds = requirement.expr.eval(&lookup).map_err(|source| LaunchError::Expr { entry, source })?;
        if holds == 0 {
            return Err(LaunchError::Requirement {
                entry,
                text: requirement.text,
                given: given(&requirement.expr, &lookup),
            });
        }
    }
    let mut grid = [0u32; 3];
    for (axis, (size, expr)) in grid.iter_mut().zip(&desc.grid).enumerate() {
        let value = expr.eval(&lookup).map_err(|source| LaunchError::Expr { entry, source })?;
        let limit = if axis == 0 { i128::from(i32::MAX) } else { 65_535 };
        if !(0..=limit).contains(&value) {
            return Err(LaunchError::TooLarge {
                entry,
                what: format!("grid axis {axis}, `{expr}`,"),
                given: value,
                needed: limit,
            });
        }
        *size = value as u32;
    }
    let params = pack(desc, &fields, args, &tensors, &lookup);
    Ok(PreparedLaunch { desc, grid, params, maps, pdl: pdl && desc.pdl })
}

/// Dtype, rank, const strides, alignment and byte length of one tensor.
fn check_tensor(
    entry: &'static str,
    param: &'static str,
    kind: &TensorParam,
    tensor: &TensorArg,
) -> Result<(), LaunchError> {
    if tensor.elem != kind.elem {
        return Err(LaunchError::WrongElem { entry, param, given: tensor.elem, needed: kind.elem });
    }
    if tensor.shape().len() != kind.dims.len() {
        let axes = kind.dims.iter().map(|d| d.size.to_string()).collect::<Vec<_>>().join(", ");
        let given = tensor.shape().to_vec();
        return Err(LaunchError::WrongRank { entry, param, given, needed: kind.dims.len(), axes });
    }
    let empty = tensor.shape().contains(&0);
    for (axis, dim) in kind.dims.iter().enumerate() {
        let given = tensor.strides()[axis];
        match dim.stride {
            // An axis of size 1 is never stepped along.
            StrideDesc::Const(needed) if given != needed && tensor.shape()[axis] > 1 && !empty => {
                return Err(LaunchError::WrongStride { entry, param, axis, given, needed });
            }
            _ => {}
        }
    }
    if empty {
        return Ok(());
    }
    if tensor.ptr == 0 {
        return Err(LaunchError::NullPointer { entry, param, shape: tensor.shape().to_vec() });
    }
    if !tensor.ptr.is_multiple_of(u64::from(kind.align.max(1))) {
        return Err(LaunchError::Misaligned { entry, param, given: tensor.ptr, needed: kind.align });
    }
    let needed = tensor.extent_bytes();
    if needed > u128::from(tensor.bytes) {
        return Err(LaunchError::TooFewBytes {
            entry,
            param,
            given: tensor.bytes,
            needed,
            shape: tensor.shape().to_vec(),
            strides: tensor.strides().to_vec(),
        });
    }
    Ok(())
}

fn dims_of(desc: &'static KernelDesc, at: usize) -> &'static [DimDesc] {
    match &desc.params[at].kind {
        ParamKind::Tensor(kind) => kind.dims,
        ParamKind::TensorMap(map) => map.dims,
        _ => &[],
    }
}

/// Gives every bare dimension name the size of the first tensor that has it; later ones must agree.
fn bind_dims(
    desc: &'static KernelDesc,
    tensors: &[Option<&TensorArg>],
    names: &mut Vec<Binding>,
) -> Result<(), LaunchError> {
    for (at, tensor) in tensors.iter().enumerate() {
        let Some(tensor) = tensor else { continue };
        for (axis, dim) in dims_of(desc, at).iter().enumerate() {
            let Expr::Name(name) = dim.size else { continue };
            if names.iter().any(|b| b.name == name) {
                continue;
            }
            let size = tensor.shape()[axis];
            let what = || format!("axis {axis} of `{}`", desc.params[at].name);
            let limit = u64::from(u32::MAX);
            if size > limit {
                return Err(LaunchError::TooLarge {
                    entry: desc.entry,
                    what: what(),
                    given: size.into(),
                    needed: limit.into(),
                });
            }
            names.push(Binding { name, value: size.into(), from: desc.params[at].name });
        }
    }
    // Names that only absent tensors carry.
    for param in desc.params.iter().filter(|p| matches!(p.kind, ParamKind::Dim)) {
        if !names.iter().any(|b| b.name == param.name) {
            names.push(Binding { name: param.name, value: 0, from: param.name });
        }
    }
    // Strides by name, for `#[requires]`.
    for param in desc.params {
        if let ParamKind::Stride { tensor, axis } = param.kind {
            let value = stride_value(tensors, tensor, axis);
            names.push(Binding { name: param.name, value: value.into(), from: desc.params[tensor as usize].name });
        }
    }
    Ok(())
}

/// The stride passed to the kernel: 0 for an absent or empty tensor and for an axis that is never stepped along.
fn stride_value(tensors: &[Option<&TensorArg>], tensor: u32, axis: u32) -> u64 {
    match tensors[tensor as usize] {
        Some(t) if t.shape()[axis as usize] > 1 && !t.shape().contains(&0) => t.strides()[axis as usize],
        _ => 0,
    }
}

fn check_shapes(
    desc: &'static KernelDesc,
    tensors: &[Option<&TensorArg>],
    names: &[Binding],
) -> Result<(), LaunchError> {
    let entry = desc.entry;
    let lookup = |name: &str| names.iter().find(|b| b.name == name).map(|b| b.value);
    for (at, tensor) in tensors.iter().enumerate() {
        let Some(tensor) = tensor else { continue };
        for (axis, dim) in dims_of(desc, at).iter().enumerate() {
            let needed = dim.size.eval(&lookup).map_err(|source| LaunchError::Expr { entry, source })?;
            let given = tensor.shape()[axis];
            if i128::from(given) != needed {
                let why = match dim.size {
                    Expr::Int(_) => "fixed by the kernel".to_string(),
                    Expr::Name(name) => {
                        let from = names.iter().find(|b| b.name == name).map_or("", |b| b.from);
                        format!("`{name}`, as in `{from}`")
                    }
                    other => format!("`{other}`, {}", self::given(&other, &lookup)),
                };
                return Err(LaunchError::WrongSize { entry, param: desc.params[at].name, axis, given, needed, why });
            }
        }
    }
    Ok(())
}

fn given(expr: &Expr, lookup: &dyn Fn(&str) -> Option<i128>) -> String {
    let mut parts: Vec<String> = Vec::new();
    expr.names(&mut |name| {
        let part = format!("{name} = {}", lookup(name).unwrap_or_default());
        if !parts.contains(&part) {
            parts.push(part);
        }
    });
    parts.join(", ")
}

fn pack(
    desc: &'static KernelDesc,
    fields: &[(usize, &'static ParamDesc)],
    args: &[Arg],
    tensors: &[Option<&TensorArg>],
    lookup: &dyn Fn(&str) -> Option<i128>,
) -> Vec<u8> {
    let mut block = vec![0u8; desc.param_bytes as usize];
    let mut put = |param: &ParamDesc, bytes: &[u8]| {
        let start = param.offset as usize;
        block[start..start + param.bytes as usize].copy_from_slice(&bytes[..param.bytes as usize]);
    };
    for ((at, param), arg) in fields.iter().zip(args) {
        match arg {
            Arg::Tensor(_) if matches!(param.kind, ParamKind::TensorMap(_)) => {}
            Arg::Tensor(_) => put(param, &tensors[*at].map_or(0, |t| t.ptr).to_le_bytes()),
            Arg::Scalar(value) => {
                let mut bytes = [0u8; 8];
                value.write(&mut bytes[..param.bytes as usize]);
                put(param, &bytes);
            }
        }
    }
    for param in desc.params {
        match param.kind {
            ParamKind::Dim => put(param, &(lookup(param.name).unwrap_or_default() as u32).to_le_bytes()),
            ParamKind::Stride { tensor, axis } => put(param, &stride_value(tensors, tensor, axis).to_le_bytes()),
            ParamKind::Present { tensor } => {
                put(param, &u32::from(tensors[tensor as usize].is_some()).to_le_bytes());
            }
            ParamKind::Tensor(_) | ParamKind::TensorMap(_) | ParamKind::Scalar(_) => {}
        }
    }
    block
}
