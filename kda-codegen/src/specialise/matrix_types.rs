//! Types of matrices and views where a device function or a `let` declares them.
//!
//! `Frag<T, ROWS, COLUMNS>`, `Acc<f32, M, N>`, `Tile<T, Shape<ROWS, COLUMNS>>`, `Shared<T, Shape<…>>`, `Global<T>` and
//! `TensorMap<T, Shape<…>>` say what the value must be; a part that is left out, or `_`, may be anything. Generics that stand
//! in them follow from the value.

use super::Specialiser;
use super::fragment::Kind;
use super::site::Site;
use super::value::Value;
use crate::compiled::{Param, ParamKind};
use crate::consteval::Const;
use crate::diag::{Diagnostic, Result};
use crate::syntax::{DeviceFn, GenericKind};
use kda_core::Elem;
use std::collections::HashMap;
use syn::{GenericArgument, PathArguments};

/// What a value is, in the order of the arguments of its type: element type, `None` for tf32, and sizes where known.
struct Parts {
    names: &'static [&'static str],
    elem: Option<Elem>,
    sizes: Vec<Option<u64>>,
    /// The sizes stand in a `Shape`.
    shape: bool,
}

fn parts(value: &Value) -> Option<Parts> {
    Some(match value {
        Value::Frag(frag) => {
            let elem = match frag.kind {
                Kind::F32 => Some(Elem::F32),
                Kind::Tf32 => None,
                Kind::Half(elem) => Some(elem),
            };
            let sizes = vec![Some(frag.rows.into()), Some(frag.columns.into())];
            Parts { names: &["Frag"], elem, sizes, shape: false }
        }
        Value::Acc(acc) => {
            let sizes = vec![Some(acc.m.into()), Some(acc.n.into())];
            Parts { names: &["Acc"], elem: Some(Elem::F32), sizes, shape: false }
        }
        Value::Tile(view) => {
            let (rows, columns) = view.extent();
            Parts { names: &["Tile"], elem: Some(view.elem), sizes: vec![Some(rows), Some(columns)], shape: true }
        }
        // A buffer without a swizzle is a tile in order.
        Value::Shared(view) => {
            let sizes = view.axes.iter().map(|(size, _)| *size).collect();
            Parts { names: &["Shared", "Tile"], elem: Some(view.elem), sizes, shape: true }
        }
        Value::Global(view) => {
            let sizes = view.axes.iter().map(|axis| axis.size).collect();
            Parts { names: &["Global", "GlobalMut"], elem: Some(view.elem), sizes, shape: true }
        }
        _ => return None,
    })
}

/// The same of a tensor map: its box.
fn map_parts(value: &Value, params: &[Param]) -> Option<Parts> {
    let Value::Global(view) = value else { return None };
    let ParamKind::Tensor { map: Some(map), elem, writes, .. } = &params[view.param].kind else { return None };
    let names: &[_] = if *writes { &["TensorMap", "TensorMapMut"] } else { &["TensorMap"] };
    let sizes = map.tile.iter().map(|size| Some((*size).into())).collect();
    Some(Parts { names, elem: Some(*elem), sizes, shape: true })
}

/// Name and arguments of a type, sizes of a `Shape` in line: the element type first.
fn written(ty: &syn::Type) -> Option<(String, Vec<GenericArgument>)> {
    let syn::Type::Path(path) = ty else { return None };
    let segment = path.path.segments.last()?;
    let arguments = |arguments: &PathArguments| match arguments {
        PathArguments::AngleBracketed(list) => list.args.iter().cloned().collect(),
        _ => Vec::new(),
    };
    let list = arguments(&segment.arguments);
    let mut flat = Vec::with_capacity(list.len());
    for argument in list {
        match &argument {
            GenericArgument::Type(syn::Type::Path(path)) if path.path.segments.last()?.ident == "Shape" => {
                flat.extend(arguments(&path.path.segments.last()?.arguments));
            }
            // The layout is the buffer's.
            GenericArgument::Type(syn::Type::Path(path)) if path.path.segments.last()?.ident == "Swizzle" => {}
            _ => flat.push(argument),
        }
    }
    Some((segment.ident.to_string(), flat))
}

fn anything(argument: &GenericArgument) -> bool {
    matches!(argument, GenericArgument::Type(syn::Type::Infer(_)))
}

impl Specialiser<'_> {
    /// Checks a matrix or a view against the type that is declared for it.
    pub(super) fn matrix_type(&mut self, value: &Value, ty: &syn::Type) -> Result<()> {
        let parts = map_parts(value, &self.resolved.params).or_else(|| parts(value));
        let (Some(parts), Some((name, arguments))) = (parts, written(ty)) else { return Ok(()) };
        let mut fits = parts.names.contains(&name.as_str());
        // Without a `Shape`, views of any extent.
        let sized = !parts.shape || arguments.iter().skip(1).any(|a| !anything(a));
        fits &= !sized || arguments.len() <= 1 || arguments.len() == parts.sizes.len() + 1;
        if fits && let Some(argument) = arguments.first().filter(|a| !anything(a)) {
            let tf32 = matches!(argument, GenericArgument::Type(syn::Type::Path(path)) if path.path.is_ident("tf32"));
            fits = match parts.elem {
                None => tf32,
                Some(elem) => !tf32 && self.generic_value(argument)? == Const::Elem(elem),
            };
        }
        if fits && sized {
            for (argument, size) in arguments.iter().skip(1).zip(&parts.sizes) {
                if anything(argument) {
                    continue;
                }
                let wanted = self.generic_value(argument)?.as_int();
                fits &= size.is_none_or(|size| wanted == Some(size.into()));
            }
        }
        if fits {
            return Ok(());
        }
        let declared = crate::syntax::text::tokens(quote::ToTokens::to_token_stream(ty));
        let message = format!("{} where `{declared}` is declared", value.describe());
        Err(Diagnostic::new(160, Site::Tokens(ty), message))
    }
}

/// Finds generics in the type of a matrix or a view.
pub(super) fn infer(
    ty: &syn::Type,
    value: &Value,
    params: &[Param],
    device: &DeviceFn,
    bound: &mut HashMap<String, Const>,
) {
    let parts = map_parts(value, params).or_else(|| parts(value));
    let (Some(parts), Some((name, arguments))) = (parts, written(ty)) else { return };
    if !parts.names.contains(&name.as_str()) {
        return;
    }
    let generic = |argument: &GenericArgument| {
        let name = match argument {
            GenericArgument::Type(syn::Type::Path(path)) => path.path.get_ident()?.to_string(),
            GenericArgument::Const(syn::Expr::Path(path)) => path.path.get_ident()?.to_string(),
            _ => return None,
        };
        device.generics.iter().find(|g| g.name == name)
    };
    for (place, argument) in arguments.iter().enumerate() {
        let Some(generic) = generic(argument) else { continue };
        let value = match (generic.kind, place.checked_sub(1)) {
            (GenericKind::Elem, None) => parts.elem.map(Const::Elem),
            (GenericKind::Int(elem), Some(axis)) => {
                parts.sizes.get(axis).copied().flatten().map(|size| Const::Int(size.into(), Some(elem)))
            }
            _ => None,
        };
        if let Some(value) = value {
            bound.entry(generic.name.to_string()).or_insert(value);
        }
    }
}
