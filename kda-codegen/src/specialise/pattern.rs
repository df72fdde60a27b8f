//! `let` and its patterns.

use super::Specialiser;
use super::expr::consteval_type;
use super::value::Value;
use crate::diag::{Diagnostic, Result};
use syn::Pat;
use syn::spanned::Spanned as _;

impl Specialiser<'_> {
    /// `let pattern: type = value;`
    pub(super) fn local(&mut self, local: &syn::Local) -> Result<()> {
        let span = local.span();
        let Some(init) = &local.init else {
            return Err(Diagnostic::new(151, span, "a variable needs a value where it is declared"));
        };
        if let Some((_, other)) = &init.diverge {
            return Err(Diagnostic::new(151, other.span(), "`let … else` does not exist in kernels"));
        }
        let (pat, ty) = match &local.pat {
            Pat::Type(typed) => (typed.pat.as_ref(), Some(typed.ty.as_ref())),
            pat => (pat, None),
        };
        // A buffer and a barrier take the name of their variable.
        self.naming = match pat {
            Pat::Ident(ident) => Some(ident.ident.to_string()),
            _ => None,
        };
        let value = self.expr(&init.expr);
        self.naming = None;
        let value = value?;
        let value = match ty {
            Some(ty) => self.typed(value, ty)?,
            None => value,
        };
        self.bind(pat, value)
    }

    /// Gives an untyped constant the written type; any other value must have it.
    pub(super) fn typed(&mut self, value: Value, ty: &syn::Type) -> Result<Value> {
        let span = ty.span();
        match (value, ty) {
            (Value::Array(items), syn::Type::Array(array)) => {
                let count = self.const_int(&array.len)?;
                if count != items.len() as i128 {
                    let message = format!("{count} elements are declared, {} are given", items.len());
                    return Err(Diagnostic::new(160, span, message));
                }
                items.into_iter().map(|x| self.typed(x, &array.elem)).collect::<Result<_>>().map(Value::Array)
            }
            (Value::Tuple(items), syn::Type::Tuple(tuple)) if items.len() == tuple.elems.len() => items
                .into_iter()
                .zip(&tuple.elems)
                .map(|(x, ty)| self.typed(x, ty))
                .collect::<Result<_>>()
                .map(Value::Tuple),
            (value @ (Value::Const(_) | Value::Scalar(_)), ty) => {
                let elem = match consteval_type(ty) {
                    Some(elem) => elem,
                    None => self.elem_type(ty)?,
                };
                match &value {
                    Value::Scalar(s) if s.elem == elem => Ok(value),
                    Value::Const(crate::consteval::Const::Bool(_)) if elem == kda_core::Elem::Bool => Ok(value),
                    Value::Const(crate::consteval::Const::Int(v, None)) if elem.is_integer() => {
                        let constant = crate::consteval::Const::Int(*v, None);
                        crate::consteval::cast(&constant, elem, span).map(Value::from_const)
                    }
                    Value::Const(crate::consteval::Const::Float(v, None)) if elem.is_float() => {
                        Ok(Value::Const(crate::consteval::Const::Float(*v, Some(elem))))
                    }
                    Value::Const(_) => self.operand(&value, elem, span).map(|_| value),
                    _ => Err(Diagnostic::new(150, span, format!("{} where a {elem} is declared", value.describe()))
                        .help(format!("conversions are written: `… as {elem}`"))),
                }
            }
            (value, syn::Type::Infer(_)) => Ok(value),
            (
                value @ (Value::Global(_)
                | Value::Shared(_)
                | Value::Hint(_)
                | Value::Tile(_)
                | Value::Slot(_)
                | Value::Acc(_)
                | Value::Operand(_)),
                _,
            ) => Ok(value),
            (value, _) => Err(Diagnostic::new(160, span, format!("{} does not have this type", value.describe()))),
        }
    }

    /// Declares the variables of a pattern.
    pub(super) fn bind(&mut self, pat: &Pat, value: Value) -> Result<()> {
        match pat {
            Pat::Ident(ident) if ident.by_ref.is_none() && ident.subpat.is_none() => {
                let mutable = ident.mutability.is_some();
                self.frame().scopes.declare(ident.ident.to_string(), value, mutable);
                Ok(())
            }
            Pat::Wild(_) => Ok(()),
            Pat::Paren(inner) => self.bind(&inner.pat, value),
            Pat::Type(typed) => {
                let value = self.typed(value, &typed.ty)?;
                self.bind(&typed.pat, value)
            }
            Pat::Tuple(tuple) => {
                let items = match value {
                    Value::Tuple(items) if items.len() == tuple.elems.len() => items,
                    other => {
                        let message = format!("{} names for {}", tuple.elems.len(), other.describe());
                        return Err(Diagnostic::new(160, pat.span(), message));
                    }
                };
                tuple.elems.iter().zip(items).try_for_each(|(pat, item)| self.bind(pat, item))
            }
            Pat::Slice(slice) => {
                let items = match value {
                    Value::Array(items) if items.len() == slice.elems.len() => items,
                    other => {
                        let message = format!("{} names for {}", slice.elems.len(), other.describe());
                        return Err(Diagnostic::new(160, pat.span(), message));
                    }
                };
                slice.elems.iter().zip(items).try_for_each(|(pat, item)| self.bind(pat, item))
            }
            other => Err(Diagnostic::new(160, other.span(), "this pattern does not exist in kernels")
                .help("names, `_`, tuples and arrays of these are possible")),
        }
    }
}
