//! Calls of device functions: evaluated at the call.

use super::env::Scopes;
use super::site::Site;
use super::value::Value;
use super::{Frame, Specialiser};
use crate::compiled::Param;
use crate::consteval::{self, Const};
use crate::diag::{Diagnostic, Result};
use crate::syntax::{DeviceFn, GenericKind};
use proc_macro2::Span;
use std::collections::HashMap;
use syn::{Expr, GenericArgument, PathArguments};

/// Calls that may be open at once.
const MAX_DEPTH: usize = 64;

impl<'a> Specialiser<'a> {
    /// `path::<generics>(arguments)`
    pub(super) fn call(&mut self, call: &syn::ExprCall, site: Site<'_>) -> Result<Value> {
        let Expr::Path(path) = call.func.as_ref() else {
            return Err(Diagnostic::at(167, &call.func, "only named functions can be called"));
        };
        let names: Vec<String> = path.path.segments.iter().map(|s| s.ident.to_string()).collect();
        let generics = generic_arguments(&path.path);
        let args: Vec<&Expr> = call.args.iter().collect();
        let (library, name) = match names.as_slice() {
            [name] => (self.frame().library.clone(), name.clone()),
            [library, name] => (Some(library.clone()), name.clone()),
            _ => (None, names.join("::")),
        };
        if let Some(device) = self.device(library.as_deref(), &name) {
            return self.inline(device, &generics, &args, site);
        }
        self.builtin(&names, &generics, &args, site)
    }

    fn device(&self, library: Option<&str>, name: &str) -> Option<&'a DeviceFn> {
        let same = |d: &&DeviceFn| d.name == name && d.library.as_ref().map(ToString::to_string).as_deref() == library;
        self.family.devices.iter().find(same)
    }

    fn inline(
        &mut self,
        device: &DeviceFn,
        generics: &[GenericArgument],
        args: &[&Expr],
        site: Site<'_>,
    ) -> Result<Value> {
        let name = match &device.library {
            Some(library) => format!("{library}::{}", device.name),
            None => device.name.to_string(),
        };
        if self.calls.len() >= MAX_DEPTH || self.calls.contains(&name) {
            return Err(Diagnostic::new(165, site, format!("`{name}` calls itself"))
                .help("device functions are always inlined"));
        }
        if args.len() != device.params.len() {
            let message = format!("`{name}` takes {} arguments; {} are given", device.params.len(), args.len());
            return Err(Diagnostic::new(157, site, message));
        }
        self.disjoint_references(args)?;
        let mut values = Vec::with_capacity(args.len());
        for (arg, param) in args.iter().zip(&device.params) {
            let value = match (arg, param.by_reference) {
                (Expr::Reference(r), true) if r.mutability.is_some() => self.expr(&r.expr)?,
                (other, true) => {
                    let message = format!("`{}` changes its argument", param.name);
                    return Err(Diagnostic::at(157, *other, message).help("write `&mut variable`"));
                }
                (other @ Expr::Reference(_), false) => {
                    let message = format!("`{}` takes a value, not a reference", param.name);
                    return Err(Diagnostic::at(157, *other, message));
                }
                (other, false) => self.expr(other)?,
            };
            values.push(value);
        }
        let generics = self.bind_generics(device, generics, &values, site)?;
        self.frames.push(Frame {
            scopes: Scopes::new(),
            generics,
            library: device.library.as_ref().map(ToString::to_string),
        });
        self.calls.push(name);
        let result = self.body(device, values, site);
        self.calls.pop();
        let Some(frame) = self.frames.pop() else { return Ok(Value::Unit) };
        let value = result?;
        for (i, (arg, param)) in args.iter().zip(&device.params).enumerate() {
            if let (Expr::Reference(r), true) = (arg, param.by_reference) {
                self.assign_value(&r.expr, frame.scopes.get(i).value.clone())?;
            }
        }
        Ok(value)
    }

    /// No variable is passed by reference twice: each would be written back, the last one winning.
    fn disjoint_references(&self, args: &[&Expr]) -> Result<()> {
        let mut seen: Vec<String> = Vec::new();
        for arg in args {
            let Expr::Reference(reference) = arg else { continue };
            let place = crate::syntax::text::expr(&reference.expr);
            let related = |other: &String| place.starts_with(other.as_str()) || other.starts_with(&place);
            if seen.iter().any(related) {
                return Err(Diagnostic::at(157, *arg, format!("`{place}` is passed by reference twice")));
            }
            seen.push(place);
        }
        Ok(())
    }

    fn body(&mut self, device: &DeviceFn, values: Vec<Value>, site: Site<'_>) -> Result<Value> {
        let changes = device.params.iter().any(|p| p.mutable || p.by_reference);
        for (param, value) in device.params.iter().zip(values) {
            let mut value = self.argument(value, &param.ty, site)?;
            let mutable = param.mutable || param.by_reference;
            if changes && !param.by_reference {
                value = self.owned(value, site)?;
            }
            self.frame().scopes.declare(param.name.to_string(), value, mutable);
        }
        let value = self.block(&device.body)?;
        match &device.ret {
            Some(ty) => self.typed(value, ty),
            None if value == Value::Unit => Ok(value),
            None => Err(Diagnostic::new(
                160,
                device.name.span(),
                format!("`{}` gives {} but declares nothing", device.name, value.describe()),
            )),
        }
    }

    /// An argument with its declared type; the error stands at the call.
    fn argument(&mut self, value: Value, ty: &syn::Type, site: Site<'_>) -> Result<Value> {
        self.typed(value, ty).map_err(|mut error| {
            error.notes.push((error.span, "the parameter is declared here".into()));
            error.placed(site)
        })
    }

    /// Generics from `::<…>`; those that are not written are found from the lengths of array arguments.
    fn bind_generics(
        &mut self,
        device: &DeviceFn,
        written: &[GenericArgument],
        values: &[Value],
        site: Site<'_>,
    ) -> Result<HashMap<String, Const>> {
        let mut bound = HashMap::new();
        if written.len() > device.generics.len() {
            let message = format!(
                "`{}` has {} generic parameters; {} are given",
                device.name,
                device.generics.len(),
                written.len()
            );
            return Err(Diagnostic::new(157, site, message));
        }
        for (generic, argument) in device.generics.iter().zip(written) {
            let value = self.generic_value(argument)?;
            let value = match (value, generic.kind) {
                (value @ Const::Int(_, None), GenericKind::Int(elem)) => {
                    consteval::as_elem(value, elem, Span::call_site()).map_err(|error| error.over(argument))?
                }
                (Const::Int(v, Some(ty)), GenericKind::Int(elem)) if ty == elem => Const::Int(v, Some(ty)),
                (value @ Const::Bool(_), GenericKind::Bool) | (value @ Const::Elem(_), GenericKind::Elem) => value,
                (value, _) => {
                    let message = format!("{} does not fit the generic `{}`", value.describe(), generic.name);
                    return Err(Diagnostic::at(157, argument, message)
                        .note(generic.name.span(), "the generic is declared here"));
                }
            };
            bound.insert(generic.name.to_string(), value);
        }
        for (param, value) in device.params.iter().zip(values) {
            infer(&param.ty, value, &self.resolved.params, device, &mut bound);
        }
        match device.generics.iter().find(|g| !bound.contains_key(&g.name.to_string())) {
            None => Ok(bound),
            Some(missing) => {
                let message =
                    format!("`{}` of `{}` is not given and follows from no argument", missing.name, device.name);
                Err(Diagnostic::new(157, site, message).help(format!("write `{}::<…>(…)`", device.name)))
            }
        }
    }

    /// The value of a generic argument.
    pub(super) fn generic_value(&mut self, argument: &GenericArgument) -> Result<Const> {
        let site = Site::Tokens(argument);
        let value = match argument {
            GenericArgument::Const(expr) => self.expr(expr)?,
            GenericArgument::Type(syn::Type::Path(path)) => {
                self.expr(&Expr::Path(syn::ExprPath { attrs: Vec::new(), qself: None, path: path.path.clone() }))?
            }
            _ => return Err(Diagnostic::new(157, site, "a generic argument is a constant or an element type")),
        };
        value.as_const().ok_or_else(|| Diagnostic::new(155, site, "a generic argument must be known while compiling"))
    }
}

/// The arguments in `::<…>` of the last segment that has some.
fn generic_arguments(path: &syn::Path) -> Vec<GenericArgument> {
    path.segments
        .iter()
        .rev()
        .find_map(|s| match &s.arguments {
            PathArguments::AngleBracketed(args) => Some(args.args.iter().cloned().collect()),
            _ => None,
        })
        .unwrap_or_default()
}

/// Finds generics in the types of arguments: `[T; N]` against an array.
fn infer(ty: &syn::Type, value: &Value, params: &[Param], device: &DeviceFn, bound: &mut HashMap<String, Const>) {
    let generic = |name: &str| device.generics.iter().find(|g| g.name == name);
    match (ty, value) {
        (syn::Type::Array(array), Value::Array(items)) => {
            if let Expr::Path(path) = &array.len
                && let Some(name) = path.path.get_ident().map(ToString::to_string)
                && let Some(generic) = generic(&name)
                && let GenericKind::Int(elem) = generic.kind
            {
                bound.entry(name).or_insert(Const::Int(items.len() as i128, Some(elem)));
            }
            if let Some(first) = items.first() {
                infer(&array.elem, first, params, device, bound);
            }
        }
        (syn::Type::Path(path), Value::Scalar(s)) => {
            if let Some(name) = path.path.get_ident().map(ToString::to_string)
                && generic(&name).is_some_and(|g| g.kind == GenericKind::Elem)
            {
                bound.entry(name).or_insert(Const::Elem(s.elem));
            }
        }
        (syn::Type::Tuple(tuple), Value::Tuple(items)) => {
            tuple.elems.iter().zip(items).for_each(|(ty, item)| infer(ty, item, params, device, bound));
        }
        _ => super::matrix_types::infer(ty, value, params, device, bound),
    }
}
