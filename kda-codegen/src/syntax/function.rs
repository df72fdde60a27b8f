//! Device functions, and what kernels share with them: generics and the form of a signature.

use super::ast::{Arg, DeviceFn, Generic, GenericKind};
use super::{attrs, module, text};
use crate::diag::{Diagnostic, Errors, Result, Results};
use kda_core::Elem;
use quote::ToTokens;
use syn::{FnArg, GenericParam, Ident, Pat, ReturnType, Type, TypeParamBound};

/// A device function of the module, or of `library`.
pub(super) fn device(item: syn::ItemFn, library: Option<&Ident>) -> Results<DeviceFn> {
    let mut errors = Errors::new();
    for attr in item.attrs.iter().filter(|attr| !attrs::is_inert(attr) && !attr.path().is_ident("device")) {
        errors.push(attrs::unknown(attr, "a device function", ""));
    }
    plain_signature(&item, &mut errors);
    let generics = generics(&item.sig.generics, &mut errors);
    let params = item.sig.inputs.iter().filter_map(|input| errors.take(param(input))).collect();
    let ret = match item.sig.output {
        ReturnType::Default => None,
        ReturnType::Type(_, ty) => Some(*ty),
    };
    errors.finish(DeviceFn {
        name: item.sig.ident,
        library: library.cloned(),
        generics,
        params,
        ret,
        body: *item.block,
    })
}

/// Reports what a function of the kernel language cannot be.
pub(super) fn plain_signature(item: &syn::ItemFn, errors: &mut Errors) {
    module::no_visibility(&item.vis, errors);
    let sig = &item.sig;
    let mut refuse = |what: &dyn ToTokens, word: &str, why: &str| {
        errors.push(Diagnostic::at(108, &what.to_token_stream(), format!("{word} has no meaning here")).help(why));
    };
    if let Some(token) = &sig.constness {
        refuse(token, "`const`", "a function whose arguments are constants is folded anyway");
    }
    if let Some(token) = &sig.asyncness {
        refuse(token, "`async`", "asynchronous copies and products are library calls with explicit waits");
    }
    if let Some(token) = &sig.unsafety {
        refuse(token, "`unsafe`", "remove it");
    }
    if let Some(abi) = &sig.abi {
        refuse(abi, "an ABI", "remove it");
    }
    if let Some(clause) = &sig.generics.where_clause {
        refuse(clause, "a `where` clause", "write the bound in the list of generics: `OUT: Elem`");
    }
    if let Some(variadic) = &sig.variadic {
        refuse(variadic, "`...`", "remove it");
    }
}

/// Generic parameters: `const N: u32`, `const FLAG: bool`, `OUT: Elem`.
pub(super) fn generics(generics: &syn::Generics, errors: &mut Errors) -> Vec<Generic> {
    let known = "the forms are `const N: u32` (or another integer), `const FLAG: bool` and `OUT: Elem`";
    let mut found = Vec::new();
    for param in &generics.params {
        let kind = match param {
            GenericParam::Const(param) if param.default.is_none() => {
                const_kind(&param.ty).map(|kind| (&param.ident, kind))
            }
            GenericParam::Type(param) if param.default.is_none() && is_elem(&param.bounds) => {
                Some((&param.ident, GenericKind::Elem))
            }
            _ => None,
        };
        match kind {
            Some((name, kind)) => found.push(Generic { name: name.clone(), kind }),
            None => {
                let message =
                    format!("`{}` is no generic of the kernel language", text::tokens(param.to_token_stream()));
                errors.push(Diagnostic::at(109, param, message).help(known));
            }
        }
    }
    found
}

fn const_kind(ty: &Type) -> Option<GenericKind> {
    match Elem::from_name(&text::tokens(ty.to_token_stream()))? {
        Elem::Bool => Some(GenericKind::Bool),
        elem if elem.is_integer() => Some(GenericKind::Int(elem)),
        _ => None,
    }
}

fn is_elem(bounds: &syn::punctuated::Punctuated<TypeParamBound, syn::Token![+]>) -> bool {
    match bounds.first() {
        Some(TypeParamBound::Trait(bound)) if bounds.len() == 1 => bound.path.is_ident("Elem"),
        _ => false,
    }
}

fn param(input: &FnArg) -> Result<Arg> {
    let known = "the forms are `name: T`, `mut name: T` (a private copy) and `name: &mut T` (the caller's variable)";
    let refuse = || {
        let message = format!("`{}` is no parameter of a device function", text::tokens(input.to_token_stream()));
        Diagnostic::at(110, input, message).help(known)
    };
    let FnArg::Typed(input) = input else { return Err(refuse()) };
    let Pat::Ident(name) = &*input.pat else { return Err(refuse()) };
    if name.by_ref.is_some() || name.subpat.is_some() {
        return Err(refuse());
    }
    if let Some(attr) = input.attrs.iter().find(|attr| !attrs::is_inert(attr)) {
        return Err(attrs::unknown(attr, "a parameter of a device function", ""));
    }
    let (by_reference, ty) = match &*input.ty {
        Type::Reference(reference) if reference.mutability.is_some() && reference.lifetime.is_none() => {
            (true, (*reference.elem).clone())
        }
        Type::Reference(_) => return Err(refuse()),
        ty => (false, ty.clone()),
    };
    if by_reference && name.mutability.is_some() {
        return Err(refuse());
    }
    Ok(Arg { name: name.ident.clone(), mutable: name.mutability.is_some(), by_reference, ty })
}
