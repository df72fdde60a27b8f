//! Parameters, axes and strides of a variant.

use super::launch::{Kind, Launch, LaunchNames, Name};
use crate::compiled::{Dim, OwnedExpr, Param, ParamKind, Stride};
use crate::consteval::{self, Const, Names, Scope};
use crate::diag::{Diagnostic, Errors, Result, Results};
use crate::syntax::{self, Kernel, ParamType, Stable, text};
use kda_core::{Arch, Elem};
use std::collections::btree_map::Entry;
use syn::{Expr, Ident};

/// Parameters in ABI order, without offsets, and the names that the launcher knows.
pub(super) fn params(kernel: &Kernel, consts: &Scope<'_>) -> Results<(Vec<Param>, LaunchNames)> {
    let mut errors = Errors::new();
    let mut names = LaunchNames::new();
    for param in &kernel.params {
        let name = match &param.ty {
            ParamType::Tensor { .. } => Name::Other("a tensor"),
            ParamType::Scalar(Elem::F32) => Name::Other("an f32, and the launcher computes with integers"),
            ParamType::Scalar(Elem::Bool) => Name::Value(Kind::Bool),
            ParamType::Scalar(_) => Name::Value(Kind::Int),
        };
        names.insert(param.name.to_string(), name);
    }
    let axes = named_axes(kernel, consts, &mut names, &mut errors);
    let axis_names = names.clone();
    let launch = Launch { consts, names: &axis_names };

    let tensor_count = kernel.params.iter().filter(|p| matches!(p.ty, ParamType::Tensor { .. })).count();
    let (mut tensors, mut scalars, mut strides) = (Vec::with_capacity(tensor_count), Vec::new(), Vec::new());
    let mut present = Vec::new();
    for param in &kernel.params {
        let name = param.name.to_string();
        match &param.ty {
            ParamType::Scalar(elem) => scalars.push(unplaced(name, ParamKind::Scalar(*elem), elem.bytes())),
            ParamType::Tensor { elem, writes, optional, stable, dims, map } => {
                let Some(elem) = element(elem, consts) else { continue };
                let stable = match stable {
                    Stable::No => false,
                    Stable::Yes | Stable::Unshared => true,
                    Stable::If(condition) => errors.take(consteval::condition(condition, consts)).unwrap_or(false),
                };
                let map = match map {
                    Some(map) => match errors.take(tensor_map(map, dims.len(), elem, consts, &param.name)) {
                        Some(map) => Some(map),
                        None => continue,
                    },
                    None => None,
                };
                let tensor = Tensor { name: &param.name, index: tensors.len() as u32, dims, mapped: map.is_some() };
                let dims = errors.take_all(tensor.dims(&launch, &mut names, &mut strides)).unwrap_or_default();
                let (writes, optional, align) = (*writes, *optional, elem.bytes());
                if optional && map.is_some() {
                    present.extend(errors.take(presence(&param.name, tensors.len() as u32, &mut names)));
                }
                let bytes = if map.is_some() { kda_core::tensor_map::MAP_BYTES } else { 8 };
                let kind = ParamKind::Tensor { elem, writes, optional, stable, align, dims, map };
                tensors.push(unplaced(name, kind, bytes));
            }
        }
    }
    let axes = axes.into_iter().map(|name| unplaced(name, ParamKind::Dim, 4));
    errors.finish((tensors.into_iter().chain(scalars).chain(axes).chain(strides).chain(present).collect(), names))
}

/// Where the text reads whether an optional map is there: `x_present`. The map itself says nothing that may be read.
fn presence(tensor: &Ident, index: u32, names: &mut LaunchNames) -> Result<Param> {
    let name = format!("{tensor}_present");
    if names.contains_key(&name) {
        let message = format!("whether `{tensor}` is there is called `{name}`, and that name is taken");
        return Err(Diagnostic::at(226, tensor, message).help("rename the other one"));
    }
    names.insert(name.clone(), Name::Other("the presence of a tensor"));
    Ok(unplaced(name, ParamKind::Present { tensor: index }, 4))
}

fn unplaced(name: String, kind: ParamKind, bytes: u32) -> Param {
    Param { name, kind, offset: 0, bytes }
}

/// The tile and the copies of a tensor map.
fn tensor_map(
    map: &syntax::MapType,
    axes: usize,
    elem: Elem,
    consts: &Scope<'_>,
    name: &Ident,
) -> Result<crate::compiled::Map> {
    if map.tile.len() != axes || axes > kda_core::tensor_map::MAX_MAP_RANK {
        let message = format!("axes of the tile of `{name}`: {}, of its tensor: {axes}", map.tile.len());
        return Err(Diagnostic::at(801, name, message)
            .help("a tile has the axes of its tensor, 1 to 5; write 1 where it does not extend"));
    }
    let number = |expr: &Expr| consteval::eval(expr, consts).map(|v| v.as_int());
    let span = match &map.swizzle {
        None => 0,
        Some(expr) => number(expr)?.unwrap_or(-1),
    };
    let swizzle = u32::try_from(span).ok().and_then(kda_core::Swizzle::of_span).ok_or_else(|| {
        Diagnostic::at(802, map.swizzle.as_ref().unwrap_or(&map.tile[0]), format!("a swizzle of {span} bytes"))
            .help("a swizzle spans 32, 64 or 128 bytes; 0 is none")
    })?;
    let mut tile = Vec::with_capacity(axes);
    for (axis, expr) in map.tile.iter().enumerate() {
        let size = number(expr)?.unwrap_or(0);
        // The innermost axis may be cut into several copies.
        let most = if axis + 1 == axes { i128::from(u16::MAX) } else { 256 };
        if !(1..=most).contains(&size) {
            return Err(Diagnostic::at(
                803,
                expr,
                format!("a tile of {size} elements along an axis; 1 to 256 are possible"),
            )
            .help("copy a larger tile in several parts"));
        }
        tile.push(size as u32);
    }
    let inner = tile[axes - 1];
    let widest = swizzle.span().map_or(256, |span| span / elem.bytes());
    let part = inner.min(widest);
    if !(part * elem.bytes()).is_multiple_of(16) || !inner.is_multiple_of(part) || part > 256 {
        let message = format!("rows of {inner} {elem} cannot be copied in parts of {part}");
        return Err(Diagnostic::at(804, &map.tile[axes - 1], message)
            .help("a row is a multiple of 16 bytes, and of the swizzle's span if it is wider"));
    }
    let mut copy = tile.clone();
    copy[axes - 1] = part;
    Ok(crate::compiled::Map { tile, copy, swizzle })
}

/// Gives every parameter its offset; the second value is the size of the block.
pub(super) fn layout(mut params: Vec<Param>) -> (Vec<Param>, u32) {
    let mut end = 0u32;
    for param in &mut params {
        param.offset = end.next_multiple_of(param.bytes.min(kda_core::tensor_map::MAP_ALIGN));
        end = param.offset + param.bytes;
    }
    (params, end)
}

/// The element type that a parameter names, directly or through a generic.
fn element(name: &Ident, consts: &Scope<'_>) -> Option<Elem> {
    let name = name.to_string();
    consts.value(&name).and_then(|v| v.as_elem()).or_else(|| Elem::from_name(&name))
}

/// The name, if the expression is one and nothing else.
fn bare(expr: &Expr) -> Option<&Ident> {
    match expr {
        Expr::Path(path) if path.qself.is_none() => path.path.get_ident(),
        _ => None,
    }
}

/// A name that no constant, type or architecture has.
fn undefined(name: &Ident, consts: &Scope<'_>) -> bool {
    let name = name.to_string();
    consts.value(&name).is_none() && Elem::from_name(&name).is_none() && Arch::from_name(&name).is_none()
}

/// Names of axes that tensors give, in order of first appearance; they are added to `names`.
fn named_axes(kernel: &Kernel, consts: &Scope<'_>, names: &mut LaunchNames, errors: &mut Errors) -> Vec<String> {
    let mut axes = Vec::new();
    for param in &kernel.params {
        let ParamType::Tensor { dims, .. } = &param.ty else { continue };
        for name in dims.iter().filter_map(|dim| bare(&dim.size)).filter(|name| undefined(name, consts)) {
            if let Some(role) = kernel.roles.iter().find(|role| role.name == *name) {
                let error = Diagnostic::at(113, name, format!("`{name}` is defined twice: an axis and a role"));
                errors.push(error.note(role.name.span(), "the role"));
            }
            if let Entry::Vacant(entry) = names.entry(name.to_string()) {
                entry.insert(Name::Value(Kind::Int));
                axes.push(name.to_string());
            }
        }
    }
    axes
}

/// A tensor whose axes are resolved.
struct Tensor<'a> {
    name: &'a Ident,
    /// Position among the parameters: tensors come first.
    index: u32,
    dims: &'a [syntax::Dim],
    /// Reached through a tensor map, which takes any stride.
    mapped: bool,
}

impl Tensor<'_> {
    /// Axes, outermost first. Strides that are launch parameters are added to `strides` and to `names`.
    fn dims(&self, launch: &Launch<'_>, names: &mut LaunchNames, strides: &mut Vec<Param>) -> Results<Vec<Dim>> {
        let mut errors = Errors::new();
        // The stride of a dense axis, while everything inside is constant.
        let mut dense: Option<u64> = Some(1);
        let mut found: Vec<(Dim, usize)> = Vec::new();
        for (axis, dim) in self.dims.iter().enumerate().rev() {
            let size = errors.take(self.size(&dim.size, launch));
            let stride = match &dim.stride {
                Some(written) => errors.take(self.written_stride(written, launch, names)),
                None => match dense {
                    Some(stride) if !self.mapped || axis + 1 == self.dims.len() => Some(Stride::Const(stride)),
                    _ if self.mapped => Some(Stride::Any),
                    Some(stride) => Some(Stride::Const(stride)),
                    None => errors.take(self.own_stride(axis, names)),
                },
            };
            let (Some(size), Some(stride)) = (size, stride) else {
                dense = None;
                continue;
            };
            dense = match (&size, &stride) {
                (OwnedExpr::Int(size), Stride::Const(stride)) => {
                    match u64::try_from(*size).ok().and_then(|n| n.checked_mul(*stride)) {
                        Some(next) => Some(next),
                        None => {
                            let message = "the axes span more than 2^64 elements";
                            errors.push(Diagnostic::at(227, &dim.size, message));
                            None
                        }
                    }
                }
                _ => None,
            };
            found.push((Dim { size, stride }, axis));
        }
        found.reverse();
        // Parameters in the order of the axes.
        for (dim, axis) in &found {
            if let Stride::Param(name) = &dim.stride {
                let kind = ParamKind::Stride { tensor: self.index, axis: *axis as u32 };
                strides.push(unplaced(name.clone(), kind, 8));
            }
        }
        errors.finish(found.into_iter().map(|(dim, _)| dim).collect())
    }

    fn size(&self, expr: &Expr, launch: &Launch<'_>) -> Result<OwnedExpr> {
        let size = launch.expr(expr, Kind::Int).map_err(|error| match error.code.0 {
            220 => {
                let mut unbound = Diagnostic::new(
                    225,
                    error.span,
                    error.message.replace("no launch parameter is", "no axis and no scalar is"),
                )
                .help("a name in a larger expression is given by a tensor that has it as a whole axis, or by a scalar");
                unbound.end = error.end;
                unbound
            }
            _ => error,
        })?;
        match size {
            OwnedExpr::Int(value) if !(0..=i128::from(u32::MAX)).contains(&value) => {
                Err(Diagnostic::at(227, expr, format!("an axis of size {value}; 0 to 2^32 - 1 are possible")))
            }
            size => Ok(size),
        }
    }

    fn written_stride(&self, expr: &Expr, launch: &Launch<'_>, names: &mut LaunchNames) -> Result<Stride> {
        if let Some(name) = bare(expr).filter(|name| undefined(name, launch.consts)) {
            let text = name.to_string();
            return match (launch.names.get(&text), names.contains_key(&text)) {
                (Some(_), _) => {
                    Err(Diagnostic::at(224, name, format!("the stride `{name}` is also a parameter or an axis")).help(
                        "a named stride is a launch parameter by itself, taken from the tensor: remove the other one",
                    ))
                }
                (None, true) => Err(Diagnostic::at(226, name, format!("two axes have the stride `{name}`"))
                    .help("give each a name of its own, and `#[requires(a == b)]` where they must agree")),
                (None, false) => {
                    names.insert(text.clone(), Name::Value(Kind::Int));
                    Ok(Stride::Param(text))
                }
            };
        }
        match consteval::eval(expr, launch.consts) {
            Ok(Const::Int(value, _)) => u64::try_from(value).map(Stride::Const).map_err(|_| {
                Diagnostic::at(227, expr, format!("a stride of {value} elements; 0 to 2^64 - 1 are possible"))
            }),
            Ok(other) => {
                Err(Diagnostic::at(224, expr, format!("`{}` is {}, not a stride", text::expr(expr), other.describe())))
            }
            Err(error) if error.code.0 == 201 => {
                Err(Diagnostic::at(224, expr, format!("the stride `{}` is no constant", text::expr(expr)))
                    .help("write a constant, or a new name that the launch takes from the tensor"))
            }
            Err(error) => Err(error),
        }
    }

    /// The stride that nothing in the source names: `x_stride0`.
    fn own_stride(&self, axis: usize, names: &mut LaunchNames) -> Result<Stride> {
        let name = format!("{}_stride{axis}", self.name);
        if names.contains_key(&name) {
            return Err(Diagnostic::at(
                226,
                &self.dims[axis].size,
                format!("the stride of this axis is called `{name}`, and that name is taken"),
            )
            .help("name the stride: `size:pitch`"));
        }
        names.insert(name.clone(), Name::Value(Kind::Int));
        Ok(Stride::Param(name))
    }
}
