//! Kernel parameters: tensors with `#[dims(…)]`, scalars, and tuples of them.

use super::ast::{Dim, Generic, GenericKind, MapType, Param, ParamType, Stable};
use super::{attrs, text};
use crate::diag::{Diagnostic, Errors, Result};
use kda_core::Elem;
use kda_core::launch::MAX_RANK;
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, FnArg, GenericArgument, Ident, Pat, PathArguments, Token, Type};

const DIMS: &str = "#[dims(n, tokens:pitch, d; stable)]";

/// The parameters that one written parameter stands for: one, or those of a tuple.
pub(super) fn params(input: &FnArg, generics: &[Generic], errors: &mut Errors) -> Vec<Param> {
    let FnArg::Typed(input) = input else {
        errors.push(Diagnostic::at(110, input, "a kernel has no `self`"));
        return Vec::new();
    };
    for attr in input.attrs.iter().filter(|attr| !attrs::is_inert(attr) && !attr.path().is_ident("dims")) {
        errors.push(attrs::unknown(attr, "a kernel parameter", "#[dims]"));
    }
    let dims = attrs::single(&input.attrs, "dims", errors);
    match (&*input.pat, &*input.ty) {
        (Pat::Tuple(pats), Type::Tuple(types)) if pats.elems.len() == types.elems.len() => {
            if let Some(attr) = dims {
                errors.push(no_dims(attr));
            }
            let mut found = Vec::new();
            for (pat, ty) in pats.elems.iter().zip(&types.elems) {
                found.extend(errors.take(param(pat, ty, None, generics)));
            }
            found
        }
        (Pat::Tuple(pats), ty) => {
            let message = format!("{} names need a tuple of {} types", pats.elems.len(), pats.elems.len());
            errors.push(Diagnostic::at(110, ty, message).help("write `(scale, roll): (f32, bool)`"));
            Vec::new()
        }
        (pat, ty) => errors.take(param(pat, ty, dims, generics)).into_iter().collect(),
    }
}

fn param(pat: &Pat, ty: &Type, dims: Option<&Attribute>, generics: &[Generic]) -> Result<Param> {
    let name = match pat {
        Pat::Ident(p) if p.by_ref.is_none() && p.mutability.is_none() && p.subpat.is_none() => p.ident.clone(),
        other => {
            let message = format!("`{}` is no name of a kernel parameter", text::tokens(other.to_token_stream()));
            return Err(Diagnostic::at(110, other, message)
                .help("write `name: T` or `(a, b): (A, B)`; a parameter is never changed: copy it with `let mut`"));
        }
    };
    if name.to_string().starts_with("r#") {
        return Err(Diagnostic::at(119, &name, format!("`{name}` cannot be the name of a parameter"))
            .help("keywords are no PTX names"));
    }
    let (behind, optional) = match applied(ty).filter(|(name, _)| *name == "Option") {
        Some((_, inner)) => (inner, true),
        None => (ty, false),
    };
    if let Some((elem, writes, map)) = tensor_map(behind)? {
        let elem = element(elem, generics)?;
        let Some(attr) = dims else { return Err(without_dims(&name)) };
        let (dims, stable) = shape(attr)?;
        let map = Some(Box::new(map));
        return Ok(Param { name, ty: ParamType::Tensor { elem, writes, optional, stable, dims, map } });
    }
    let Some((elem, writes, optional)) = tensor(ty) else {
        let elem = scalar(ty)?;
        return match dims {
            Some(attr) => Err(no_dims(attr)),
            None => Ok(Param { name, ty: ParamType::Scalar(elem) }),
        };
    };
    let elem = element(elem, generics)?;
    let Some(attr) = dims else { return Err(without_dims(&name)) };
    let (dims, stable) = shape(attr)?;
    Ok(Param { name, ty: ParamType::Tensor { elem, writes, optional, stable, dims, map: None } })
}

fn no_dims(attr: &Attribute) -> Box<Diagnostic> {
    Diagnostic::at(112, attr, "`#[dims]` belongs on a `Global` or `GlobalMut` parameter")
        .help("scalars have no shape; a tensor does not stand in a tuple")
}

fn without_dims(name: &Ident) -> Box<Diagnostic> {
    Diagnostic::at(112, name, format!("the tensor `{name}` has no `#[dims(…)]`"))
        .help(format!("write its axes before it, outermost first: `{DIMS}`"))
}

/// `TensorMap<T, Shape<…>, Swizzle<…>>` and `TensorMapMut<…>`: element type, whether it writes, tile and swizzle.
fn tensor_map(ty: &Type) -> Result<Option<(&Type, bool, MapType)>> {
    let Type::Path(path) = ty else { return Ok(None) };
    let Some(segment) = path.path.segments.first().filter(|_| path.path.segments.len() == 1) else { return Ok(None) };
    let writes = match segment.ident.to_string().as_str() {
        "TensorMap" => false,
        "TensorMapMut" => true,
        _ => return Ok(None),
    };
    let form = || {
        Diagnostic::at(806, ty, "this is no form of a tensor map").help(
            "write `TensorMap<bf16, Shape<128, 64>, Swizzle<128>>`; without a swizzle the last argument is left out",
        )
    };
    let PathArguments::AngleBracketed(args) = &segment.arguments else { return Err(form()) };
    let types: Vec<&Type> = args
        .args
        .iter()
        .map(|arg| match arg {
            GenericArgument::Type(ty) => Ok(ty),
            _ => Err(form()),
        })
        .collect::<Result<_>>()?;
    let (elem, tile, swizzle) = match types.as_slice() {
        [elem, tile] => (*elem, *tile, None),
        [elem, tile, swizzle] => (*elem, *tile, Some(*swizzle)),
        _ => return Err(form()),
    };
    let tile = numbers(tile, "Shape").filter(|tile| !tile.is_empty()).ok_or_else(form)?;
    let swizzle = match swizzle {
        None => None,
        Some(ty) => match numbers(ty, "Swizzle").as_deref() {
            Some([span]) => Some(span.clone()),
            _ => return Err(form()),
        },
    };
    Ok(Some((elem, writes, MapType { tile, swizzle })))
}

/// The arguments of `Name<1, N, { A + B }>` as expressions.
fn numbers(ty: &Type, name: &str) -> Option<Vec<Expr>> {
    let Type::Path(path) = ty else { return None };
    let segment = path.path.segments.last().filter(|s| s.ident == name)?;
    let PathArguments::AngleBracketed(args) = &segment.arguments else { return None };
    args.args
        .iter()
        .map(|arg| match arg {
            GenericArgument::Const(expr) => Some(expr.clone()),
            GenericArgument::Type(Type::Path(path)) => {
                Some(Expr::Path(syn::ExprPath { attrs: Vec::new(), qself: None, path: path.path.clone() }))
            }
            _ => None,
        })
        .collect()
}

/// The type argument of `Global<T>`, `GlobalMut<T>` and `Option<…>` of these, and whether it writes and is optional.
fn tensor(ty: &Type) -> Option<(&Type, bool, bool)> {
    let (name, inner) = applied(ty)?;
    match name.to_string().as_str() {
        "Global" => Some((inner, false, false)),
        "GlobalMut" => Some((inner, true, false)),
        "Option" => match tensor(inner)? {
            (elem, writes, false) => Some((elem, writes, true)),
            _ => None,
        },
        _ => None,
    }
}

/// `Name<Type>`.
fn applied(ty: &Type) -> Option<(&Ident, &Type)> {
    let Type::Path(path) = ty else { return None };
    if path.qself.is_some() || path.path.segments.len() != 1 {
        return None;
    }
    let segment = path.path.segments.first()?;
    let PathArguments::AngleBracketed(args) = &segment.arguments else { return None };
    match (args.args.first(), args.args.len()) {
        (Some(GenericArgument::Type(inner)), 1) => Some((&segment.ident, inner)),
        _ => None,
    }
}

fn element(ty: &Type, generics: &[Generic]) -> Result<Ident> {
    if let Type::Path(path) = ty
        && let Some(name) = path.path.get_ident()
    {
        if generics.iter().any(|g| g.name == *name && g.kind == GenericKind::Elem) {
            return Ok(name.clone());
        }
        match Elem::from_name(&name.to_string()) {
            Some(Elem::Bool) | None => {}
            Some(_) => return Ok(name.clone()),
        }
    }
    Err(Diagnostic::at(402, ty, format!("`{}` is no element type of a tensor", text::tokens(ty.to_token_stream())))
        .help("write u8, u16, u32, u64, i32, i64, f16, bf16, f32, f64, or a generic `OUT: Elem`"))
}

fn scalar(ty: &Type) -> Result<Elem> {
    let written = text::tokens(ty.to_token_stream());
    match Elem::from_name(&written) {
        Some(elem @ (Elem::Bool | Elem::U32 | Elem::U64 | Elem::I32 | Elem::I64 | Elem::F32)) => Ok(elem),
        Some(_) => Err(Diagnostic::at(401, ty, format!("`{written}` cannot be passed as a scalar"))
            .help("scalars are bool, u32, i32, u64, i64 or f32; convert in the kernel")),
        None => Err(Diagnostic::at(111, ty, format!("`{written}` is no type of a kernel parameter"))
            .help("write `Global<T>`, `GlobalMut<T>`, `TensorMap<…>`, `TensorMapMut<…>`, `Option<…>` of one, or bool, u32, i32, u64, i64, f32")),
    }
}

/// `size` or `size:stride`.
impl Parse for Dim {
    fn parse(input: ParseStream<'_>) -> syn::Result<Dim> {
        let size = input.parse()?;
        let stride = if input.peek(Token![:]) {
            input.parse::<Token![:]>()?;
            Some(input.parse()?)
        } else {
            None
        };
        Ok(Dim { size, stride })
    }
}

fn shape(attr: &Attribute) -> Result<(Vec<Dim>, Stable)> {
    let (mut axes, mut options) = (TokenStream::new(), None);
    for token in attrs::arguments(attr, DIMS)? {
        match (&token, &mut options) {
            (TokenTree::Punct(punct), None) if punct.as_char() == ';' => options = Some(TokenStream::new()),
            (_, None) => axes.extend([token]),
            (_, Some(options)) => options.extend([token]),
        }
    }
    let dims = attrs::parse(Punctuated::<Dim, Token![,]>::parse_terminated, axes, attr, DIMS)?;
    if dims.is_empty() || dims.len() > MAX_RANK {
        return Err(Diagnostic::at(
            403,
            attr,
            format!("a tensor of {} axes; 1 to {MAX_RANK} are possible", dims.len()),
        )
        .help("a tensor without axes is a tensor of one element: `#[dims(1)]`"));
    }
    let stable = match options {
        Some(options) => stability(options, attr)?,
        None => Stable::No,
    };
    Ok((dims.into_iter().collect(), stable))
}

fn stability(options: TokenStream, attr: &Attribute) -> Result<Stable> {
    let known = "after the `;` stands `stable`, `stable(COND)` for the variants in which it holds, or `unshared`";
    let option: Expr = attrs::parse(|input| input.parse(), options, attr, DIMS)?;
    match &option {
        Expr::Path(path) if path.path.is_ident("stable") => Ok(Stable::Yes),
        Expr::Path(path) if path.path.is_ident("unshared") => Ok(Stable::Unshared),
        Expr::Call(call) if call.args.len() == 1 => match (&*call.func, call.args.first()) {
            (Expr::Path(path), Some(cond)) if path.path.is_ident("stable") => Ok(Stable::If(Box::new(cond.clone()))),
            _ => Err(Diagnostic::at(104, &option, "this is no property of a tensor").help(known)),
        },
        other => Err(Diagnostic::at(104, other, "this is no property of a tensor").help(known)),
    }
}
