//! Assignments to variables, elements, tuples and shared memory.

use super::Specialiser;
use super::value::Value;
use crate::diag::{Diagnostic, Result};
use syn::spanned::Spanned as _;
use syn::{BinOp, Expr};

impl Specialiser<'_> {
    /// `left = right`, or `left op= right`.
    pub(super) fn assign(&mut self, left: &Expr, right: &Expr, op: Option<&BinOp>) -> Result<Value> {
        let span = left.span();
        // The value first, as in Rust.
        let mut value = self.expr(right)?;
        if let Some(op) = op {
            let before = self.expr(left)?;
            self.place(span);
            value = self.binary(&plain(op), before, value, right.span())?;
        }
        self.place(span);
        self.assign_value(left, value)?;
        Ok(Value::Unit)
    }

    /// `left = value`
    pub(super) fn assign_value(&mut self, left: &Expr, value: Value) -> Result<()> {
        let span = left.span();
        match left {
            Expr::Paren(inner) => self.assign_value(&inner.expr, value),
            Expr::Infer(_) => Ok(()),
            Expr::Tuple(tuple) => {
                let items = match value {
                    Value::Tuple(items) if items.len() == tuple.elems.len() => items,
                    other => {
                        let message = format!("{} places for {}", tuple.elems.len(), other.describe());
                        return Err(Diagnostic::new(160, span, message));
                    }
                };
                tuple.elems.iter().zip(items).try_for_each(|(left, item)| self.assign_value(left, item))
            }
            Expr::Index(index) => {
                if let Some(Value::Shared(view)) = self.peek(&index.expr) {
                    let indices = self.indices(&index.index)?;
                    let view = self.shared_at(*view, indices, span)?;
                    return self.shared_store(&view, &value, None, span);
                }
                self.assign_place(left, value)
            }
            _ => self.assign_place(left, value),
        }
    }

    /// The value of a plain variable, without evaluating anything.
    fn peek(&mut self, expr: &Expr) -> Option<Value> {
        let Expr::Path(path) = expr else { return None };
        let name = path.path.get_ident()?.to_string();
        let id = self.frame().scopes.find(&name)?;
        Some(self.frame().scopes.get(id).value.clone())
    }

    /// A variable, or an element of an array or tuple variable at constant indices.
    fn assign_place(&mut self, left: &Expr, value: Value) -> Result<()> {
        let span = left.span();
        let mut path = Vec::new();
        let mut root = left;
        loop {
            match root {
                Expr::Index(index) => {
                    let at = self.expr(&index.index)?;
                    let Some(at) = at.as_int() else {
                        return Err(Diagnostic::new(
                            153,
                            index.index.span(),
                            "an array in registers takes constant indices only",
                        )
                        .help("unroll the loop with `#[unroll]`, or keep the array in shared memory"));
                    };
                    path.push(at);
                    root = &index.expr;
                }
                Expr::Field(field) => {
                    let syn::Member::Unnamed(index) = &field.member else {
                        return Err(Diagnostic::new(151, span, "this cannot be assigned to"));
                    };
                    path.push(index.index.into());
                    root = &field.base;
                }
                Expr::Paren(inner) => root = &inner.expr,
                _ => break,
            }
        }
        let name = match root {
            Expr::Path(path) => path.path.get_ident().map(ToString::to_string),
            _ => None,
        };
        let Some(name) = name else { return Err(Diagnostic::new(151, span, "this cannot be assigned to")) };
        let Some(id) = self.frame().scopes.find(&name) else {
            return Err(Diagnostic::new(152, root.span(), format!("`{name}` is no variable here")));
        };
        if !self.frame().scopes.get(id).mutable {
            return Err(Diagnostic::new(159, span, format!("`{name}` does not change"))
                .help(format!("declare it `let mut {name}`")));
        }
        let mut place = &mut self.frame().scopes.get_mut(id).value;
        for at in path.into_iter().rev() {
            let (Value::Array(items) | Value::Tuple(items)) = place else {
                return Err(Diagnostic::new(156, span, format!("{} has no elements", place.describe())));
            };
            let count = items.len();
            place = match usize::try_from(at).ok().and_then(|at| items.get_mut(at)) {
                Some(item) => item,
                None => return Err(Diagnostic::new(154, span, format!("index {at} of an array of {count}"))),
            };
        }
        *place = same_type(place, value, span)?;
        Ok(())
    }
}

/// `+` of `+=`.
fn plain(op: &BinOp) -> BinOp {
    match op {
        BinOp::AddAssign(_) => BinOp::Add(Default::default()),
        BinOp::SubAssign(_) => BinOp::Sub(Default::default()),
        BinOp::MulAssign(_) => BinOp::Mul(Default::default()),
        BinOp::DivAssign(_) => BinOp::Div(Default::default()),
        BinOp::RemAssign(_) => BinOp::Rem(Default::default()),
        BinOp::BitXorAssign(_) => BinOp::BitXor(Default::default()),
        BinOp::BitAndAssign(_) => BinOp::BitAnd(Default::default()),
        BinOp::BitOrAssign(_) => BinOp::BitOr(Default::default()),
        BinOp::ShlAssign(_) => BinOp::Shl(Default::default()),
        BinOp::ShrAssign(_) => BinOp::Shr(Default::default()),
        other => *other,
    }
}

/// The new value with the type of the old one.
fn same_type(old: &Value, new: Value, span: proc_macro2::Span) -> Result<Value> {
    use crate::consteval::{Const, cast};
    let elem = match old {
        Value::Scalar(s) => Some(s.elem),
        Value::Const(Const::Int(_, ty) | Const::Float(_, ty)) => *ty,
        _ => None,
    };
    match (&new, elem) {
        (Value::Scalar(s), Some(elem)) if s.elem != elem => {
            Err(Diagnostic::new(150, span, format!("a {} is assigned to a {elem}", s.elem))
                .help(format!("write `… as {elem}`")))
        }
        (Value::Const(c @ Const::Int(_, None)), Some(elem)) if elem.is_integer() => {
            cast(c, elem, span).map(Value::from_const)
        }
        (Value::Const(Const::Float(v, None)), Some(elem)) if elem.is_float() => {
            Ok(Value::Const(Const::Float(*v, Some(elem))))
        }
        (Value::Array(a), _) => match old {
            Value::Array(b) if a.len() == b.len() => {
                let items = b.iter().zip(a.iter().cloned()).map(|(o, n)| same_type(o, n, span));
                items.collect::<Result<_>>().map(Value::Array)
            }
            _ => Err(Diagnostic::new(160, span, format!("{} is assigned to {}", new.describe(), old.describe()))),
        },
        _ => Ok(new),
    }
}
