//! Calls of device functions: evaluated at the call.

use super::env::Scopes;
use super::value::Value;
use super::{Frame, Specialiser};
use crate::consteval::Const;
use crate::diag::{Diagnostic, Result};
use crate::syntax::{DeviceFn, GenericKind};
use proc_macro2::Span;
use std::collections::HashMap;
use syn::spanned::Spanned as _;
use syn::{Expr, GenericArgument, PathArguments};

/// Calls that may be open at once.
const MAX_DEPTH: usize = 64;

impl Specialiser<'_> {
    /// `path::<generics>(arguments)`
    pub(super) fn call(&mut self, call: &syn::ExprCall) -> Result<Value> {
        let span = call.span();
        let Expr::Path(path) = call.func.as_ref() else {
            return Err(Diagnostic::new(167, call.func.span(), "only named functions can be called"));
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
            return self.inline(&device, &generics, &args, span);
        }
        self.builtin(&names, &generics, &args, span)
    }

    fn device(&self, library: Option<&str>, name: &str) -> Option<DeviceFn> {
        let same = |d: &&DeviceFn| d.name == name && d.library.as_ref().map(ToString::to_string).as_deref() == library;
        self.family.devices.iter().find(same).cloned()
    }

    fn inline(&mut self, device: &DeviceFn, generics: &[GenericArgument], args: &[&Expr], span: Span) -> Result<Value> {
        let name = device.name.to_string();
        if self.calls.len() >= MAX_DEPTH || self.calls.contains(&name) {
            return Err(Diagnostic::new(165, span, format!("`{name}` calls itself"))
                .help("device functions are always inlined"));
        }
        if args.len() != device.params.len() {
            let message = format!("`{name}` takes {} arguments; {} are given", device.params.len(), args.len());
            return Err(Diagnostic::new(157, span, message));
        }
        let mut values = Vec::with_capacity(args.len());
        for (arg, param) in args.iter().zip(&device.params) {
            let value = match (arg, param.by_reference) {
                (Expr::Reference(r), true) if r.mutability.is_some() => self.expr(&r.expr)?,
                (other, true) => {
                    let message = format!("`{}` changes its argument", param.name);
                    return Err(Diagnostic::new(157, other.span(), message).help("write `&mut variable`"));
                }
                (other, false) => self.expr(other)?,
            };
            values.push(value);
        }
        let generics = self.bind_generics(device, generics, &values, span)?;
        self.frames.push(Frame {
            scopes: Scopes::new(),
            generics,
            library: device.library.as_ref().map(ToString::to_string),
        });
        self.calls.push(name);
        let result = self.body(device, values, span);
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

    fn body(&mut self, device: &DeviceFn, values: Vec<Value>, span: Span) -> Result<Value> {
        for (param, value) in device.params.iter().zip(values) {
            let value = self.argument(value, &param.ty, span)?;
            let mutable = param.mutable || param.by_reference;
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
    fn argument(&mut self, value: Value, ty: &syn::Type, span: Span) -> Result<Value> {
        self.typed(value, ty).map_err(|mut error| {
            error.notes.push((error.span, "the parameter is declared here".into()));
            error.span = span;
            error
        })
    }

    /// Generics from `::<…>`; those that are not written are found from the lengths of array arguments.
    fn bind_generics(
        &mut self,
        device: &DeviceFn,
        written: &[GenericArgument],
        values: &[Value],
        span: Span,
    ) -> Result<HashMap<String, Const>> {
        let mut bound = HashMap::new();
        if written.len() > device.generics.len() {
            let message = format!(
                "`{}` has {} generic parameters; {} are given",
                device.name,
                device.generics.len(),
                written.len()
            );
            return Err(Diagnostic::new(157, span, message));
        }
        for (generic, argument) in device.generics.iter().zip(written) {
            let value = self.generic_value(argument)?;
            let fits = match (&value, generic.kind) {
                (Const::Int(..), GenericKind::Int(_))
                | (Const::Bool(_), GenericKind::Bool)
                | (Const::Elem(_), GenericKind::Elem) => true,
                _ => false,
            };
            if !fits {
                return Err(Diagnostic::new(
                    157,
                    argument.span(),
                    format!("this does not fit the generic parameter `{}`", generic.name),
                ));
            }
            let value = match (value, generic.kind) {
                (Const::Int(v, None), GenericKind::Int(elem)) => Const::Int(v, Some(elem)),
                (value, _) => value,
            };
            bound.insert(generic.name.to_string(), value);
        }
        for (param, value) in device.params.iter().zip(values) {
            infer(&param.ty, value, device, &mut bound);
        }
        match device.generics.iter().find(|g| !bound.contains_key(&g.name.to_string())) {
            None => Ok(bound),
            Some(missing) => {
                let message =
                    format!("`{}` of `{}` is not given and follows from no argument", missing.name, device.name);
                Err(Diagnostic::new(157, span, message).help(format!("write `{}::<…>(…)`", device.name)))
            }
        }
    }

    /// The value of a generic argument.
    pub(super) fn generic_value(&mut self, argument: &GenericArgument) -> Result<Const> {
        let span = argument.span();
        let value = match argument {
            GenericArgument::Const(expr) => self.expr(expr)?,
            GenericArgument::Type(syn::Type::Path(path)) => {
                self.expr(&Expr::Path(syn::ExprPath { attrs: Vec::new(), qself: None, path: path.path.clone() }))?
            }
            _ => return Err(Diagnostic::new(157, span, "a generic argument is a constant or an element type")),
        };
        value.as_const().ok_or_else(|| Diagnostic::new(155, span, "a generic argument must be known while compiling"))
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
fn infer(ty: &syn::Type, value: &Value, device: &DeviceFn, bound: &mut HashMap<String, Const>) {
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
                infer(&array.elem, first, device, bound);
            }
        }
        (syn::Type::Path(path), Value::Scalar(s)) => {
            if let Some(name) = path.path.get_ident().map(ToString::to_string)
                && generic(&name).is_some_and(|g| g.kind == GenericKind::Elem)
            {
                bound.entry(name).or_insert(Const::Elem(s.elem));
            }
        }
        _ => {}
    }
}
