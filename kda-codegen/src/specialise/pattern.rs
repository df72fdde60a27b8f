//! `let` and its patterns.

use super::Specialiser;
use super::assign::typed_constant;
use super::attributes;
use super::site::Site;
use super::value::Value;
use crate::consteval::Const;
use crate::diag::{Diagnostic, Result};
use kda_core::Elem;
use syn::Pat;

impl Specialiser<'_> {
    /// `let pattern: type = value;`
    pub(super) fn local(&mut self, local: &syn::Local) -> Result<()> {
        let site = Site::Tokens(local);
        attributes::check(&local.attrs, "a variable", &[])?;
        let Some(init) = &local.init else {
            return Err(Diagnostic::new(151, site, "a variable needs a value where it is declared"));
        };
        if let Some((_, other)) = &init.diverge {
            return Err(Diagnostic::at(151, other, "`let … else` does not exist in kernels"));
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
            // The error stands at the value.
            Some(ty) => self.typed(value, ty).map_err(|error| match error.code.0 {
                150 | 164 | 202 | 204 => error.over(&init.expr),
                _ => error,
            })?,
            None => value,
        };
        self.bind(pat, value)
    }

    /// Gives an untyped constant the written type; any other value must have it.
    pub(super) fn typed(&mut self, value: Value, ty: &syn::Type) -> Result<Value> {
        let site = Site::Tokens(ty);
        match (value, ty) {
            (Value::Array(items), syn::Type::Array(array)) => {
                let count = self.const_int(&array.len)?;
                if count != items.len() as i128 {
                    let message = format!("{count} elements are declared, {} are given", items.len());
                    return Err(Diagnostic::new(160, site, message));
                }
                items.into_iter().map(|x| self.typed(x, &array.elem)).collect::<Result<_>>().map(Value::Array)
            }
            (Value::Tuple(items), syn::Type::Tuple(tuple)) if items.len() == tuple.elems.len() => items
                .into_iter()
                .zip(&tuple.elems)
                .map(|(x, ty)| self.typed(x, ty))
                .collect::<Result<_>>()
                .map(Value::Tuple),
            (value, syn::Type::Infer(_)) => Ok(value),
            (value @ (Value::Const(_) | Value::Scalar(_)), ty) => {
                let elem = self.elem_type(ty)?;
                match &value {
                    Value::Scalar(s) if s.elem == elem => Ok(value),
                    Value::Const(Const::Bool(_)) if elem == Elem::Bool => Ok(value),
                    Value::Const(Const::Int(_, None)) if elem.is_integer() => typed_constant(value, elem, site),
                    Value::Const(Const::Float(_, None)) if elem.is_float() => typed_constant(value, elem, site),
                    Value::Const(_) => self.operand(&value, elem, site).map(|_| value),
                    _ => Err(Diagnostic::new(150, site, format!("{} where a {elem} is declared", value.describe()))
                        .help(format!("conversions are written: `… as {elem}`"))),
                }
            }
            (value @ (Value::Hint(_) | Value::Slot(_) | Value::Operand(_)), _) => Ok(value),
            (value @ (Value::Global(_) | Value::Shared(_) | Value::Tile(_) | Value::Acc(_) | Value::Frag(_)), ty) => {
                self.matrix_type(&value, ty).map(|()| value)
            }
            (value, _) => Err(Diagnostic::new(160, site, format!("{} does not have this type", value.describe()))),
        }
    }

    /// Declares the variables of a pattern.
    pub(super) fn bind(&mut self, pat: &Pat, value: Value) -> Result<()> {
        match pat {
            Pat::Ident(ident) if ident.by_ref.is_none() && ident.subpat.is_none() => {
                let mutable = ident.mutability.is_some();
                let value = self.owned(value, Site::Tokens(ident))?;
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
                        return Err(Diagnostic::at(160, pat, message));
                    }
                };
                tuple.elems.iter().zip(items).try_for_each(|(pat, item)| self.bind(pat, item))
            }
            Pat::Slice(slice) => {
                let items = match value {
                    Value::Array(items) if items.len() == slice.elems.len() => items,
                    other => {
                        let message = format!("{} names for {}", slice.elems.len(), other.describe());
                        return Err(Diagnostic::at(160, pat, message));
                    }
                };
                slice.elems.iter().zip(items).try_for_each(|(pat, item)| self.bind(pat, item))
            }
            other => Err(Diagnostic::at(160, other, "this pattern does not exist in kernels")
                .help("names, `_`, tuples and arrays of these are possible")),
        }
    }
}
