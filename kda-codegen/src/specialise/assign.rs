//! Assignments to variables, elements, tuples and shared memory.

use super::Specialiser;
use super::site::Site;
use super::value::Value;
use crate::consteval::{self, Const};
use crate::diag::{Diagnostic, Result};
use kda_core::Elem;
use proc_macro2::Span;
use syn::{BinOp, Expr};

impl Specialiser<'_> {
    /// `left = right`, or `left op= right`.
    pub(super) fn assign(&mut self, left: &Expr, right: &Expr, op: Option<&BinOp>, site: Site<'_>) -> Result<Value> {
        // The value first, as in Rust.
        let mut value = match op.is_none().then(|| self.written_in_place(left, right)).transpose()?.flatten() {
            Some(mapped) => mapped,
            None => self.expr(right)?,
        };
        if let Some(op) = op {
            let before = self.expr(left)?;
            self.place(site);
            value = self.binary(&plain(op), before, value, site)?;
        }
        self.place(site);
        self.assign_value(left, value)?;
        Ok(Value::Unit)
    }

    /// `left = value`
    pub(super) fn assign_value(&mut self, left: &Expr, value: Value) -> Result<()> {
        let site = Site::Expr(left);
        match left {
            Expr::Paren(inner) => self.assign_value(&inner.expr, value),
            Expr::Infer(_) => Ok(()),
            Expr::Tuple(tuple) => {
                let items = match value {
                    Value::Tuple(items) if items.len() == tuple.elems.len() => items,
                    other => {
                        let message = format!("{} places for {}", tuple.elems.len(), other.describe());
                        return Err(Diagnostic::new(160, site, message));
                    }
                };
                // All values are there before the first place changes.
                let Value::Tuple(items) = self.owned(Value::Tuple(items), site)? else { return Ok(()) };
                tuple.elems.iter().zip(items).try_for_each(|(left, item)| self.assign_value(left, item))
            }
            Expr::MethodCall(call) if call.method == "columns" => self.assign_columns(call, value),
            Expr::Index(index) => {
                let target = self.peek(&index.expr)?;
                if let Some(Value::Tile(view)) = target {
                    let indices = self.indices(&index.index)?;
                    let element = self.tile_at(&view, indices, site)?;
                    return self.tile_store(&element, &value, None, site);
                }
                if let Some(Value::Shared(view)) = target {
                    let indices = self.indices(&index.index)?;
                    let view = self.shared_at(*view, indices, site)?;
                    return self.shared_store(&view, &value, None, site);
                }
                self.assign_place(left, value)
            }
            _ => self.assign_place(left, value),
        }
    }

    /// The value of a plain variable, or of a buffer of a stage in one, without evaluating anything.
    fn peek(&mut self, expr: &Expr) -> Result<Option<Value>> {
        if let Expr::Field(field) = expr
            && matches!(self.peek(&field.base)?, Some(Value::Slot(_)))
        {
            return self.expr(expr).map(Some);
        }
        let Expr::Path(path) = expr else { return Ok(None) };
        let Some(name) = path.path.get_ident() else { return Ok(None) };
        let id = self.frame().scopes.find(&name.to_string());
        Ok(id.map(|id| self.frame().scopes.get(id).value.clone()))
    }

    /// A variable, or an element of an array or tuple variable at constant indices.
    fn assign_place(&mut self, left: &Expr, value: Value) -> Result<()> {
        let site = Site::Expr(left);
        let mut path = Vec::new();
        let mut root = left;
        loop {
            match root {
                Expr::Index(index) => {
                    let at = self.expr(&index.index)?;
                    let Some(at) = at.as_int() else {
                        let message = "an array in registers takes constant indices only";
                        return Err(Diagnostic::at(153, &index.index, message)
                            .help("unroll the loop with `#[unroll]`, or keep the array in shared memory"));
                    };
                    path.push(at);
                    root = &index.expr;
                }
                Expr::Field(field) => {
                    let syn::Member::Unnamed(index) = &field.member else {
                        return Err(Diagnostic::new(151, site, "this cannot be assigned to"));
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
        let Some(name) = name else { return Err(Diagnostic::new(151, site, "this cannot be assigned to")) };
        let Some(id) = self.frame().scopes.find(&name) else {
            return Err(Diagnostic::at(152, root, format!("`{name}` is no variable here")));
        };
        if !self.frame().scopes.get(id).mutable {
            return Err(Diagnostic::new(159, site, format!("`{name}` does not change"))
                .help(format!("declare it `let mut {name}`")));
        }
        if let Value::Slot(slot) = &self.frame().scopes.get(id).value {
            let slot = slot.clone();
            self.check_given(&slot, &value, site)?;
        }
        let mut new = value;
        if self.accumulators > 0 {
            let old = element(&mut self.frame().scopes.get_mut(id).value, &path, site)?.clone();
            new = self.replaced(&old, new, site)?;
        }
        let place = element(&mut self.frame().scopes.get_mut(id).value, &path, site)?;
        *place = same_type(place, new, site)?;
        Ok(())
    }
}

/// The element at `path`, innermost index first.
fn element<'v>(mut place: &'v mut Value, path: &[i128], site: Site<'_>) -> Result<&'v mut Value> {
    for at in path.iter().rev() {
        let (Value::Array(items) | Value::Tuple(items)) = place else {
            return Err(Diagnostic::new(156, site, format!("{} has no elements", place.describe())));
        };
        let count = items.len();
        place = match usize::try_from(*at).ok().and_then(|at| items.get_mut(at)) {
            Some(item) => item,
            None => return Err(Diagnostic::new(154, site, format!("index {at} of an array of {count}"))),
        };
    }
    Ok(place)
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
fn same_type(old: &Value, new: Value, site: Site<'_>) -> Result<Value> {
    if let (Value::Acc(before), Value::Acc(after)) = (old, &new)
        && before.id == after.id
    {
        return Ok(new);
    }
    if let (Value::Slot(before), Value::Slot(after)) = (old, &new)
        && (before.ring, before.side) == (after.ring, after.side)
    {
        return Ok(new);
    }
    let differ = |new: &Value| {
        let error = Diagnostic::new(160, site, format!("{} is assigned to {}", new.describe(), old.describe()));
        Err(match old {
            Value::Operand(_) => {
                error.help("assign to the accumulator, and write `acc.as_a::<…>()` where it is multiplied")
            }
            _ => error,
        })
    };
    match (old, new) {
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let items = a.iter().zip(b).map(|(old, new)| same_type(old, new, site));
            items.collect::<Result<_>>().map(Value::Array)
        }
        (Value::Tuple(a), Value::Tuple(b)) if a.len() == b.len() => {
            let items = a.iter().zip(b).map(|(old, new)| same_type(old, new, site));
            items.collect::<Result<_>>().map(Value::Tuple)
        }
        (Value::Frag(a), Value::Frag(b)) if a.alike(&b) => Ok(Value::Frag(b)),
        (Value::Const(_) | Value::Scalar(_), new @ (Value::Const(_) | Value::Scalar(_))) => same_number(old, new, site),
        (Value::Global(_), new @ Value::Global(_))
        | (Value::Shared(_), new @ Value::Shared(_))
        | (Value::Hint(_), new @ Value::Hint(_))
        | (Value::Barrier(_), new @ Value::Barrier(_))
        | (Value::Range(_), new @ Value::Range(_))
        | (Value::Unit, new @ Value::Unit) => Ok(new),
        (_, new) => differ(&new),
    }
}

/// The new number with the type of the old one; an untyped old one leaves the width open.
fn same_number(old: &Value, new: Value, site: Site<'_>) -> Result<Value> {
    /// A type, or what is known of one.
    #[derive(PartialEq)]
    enum Kind {
        Typed(Elem),
        Integer,
        Real,
        Other,
    }
    let kind = |value: &Value| match value {
        Value::Scalar(s) => Kind::Typed(s.elem),
        Value::Const(Const::Int(_, Some(ty)) | Const::Float(_, Some(ty))) => Kind::Typed(*ty),
        Value::Const(Const::Int(..)) => Kind::Integer,
        Value::Const(Const::Float(..)) => Kind::Real,
        Value::Const(Const::Bool(_)) => Kind::Typed(Elem::Bool),
        _ => Kind::Other,
    };
    match (kind(old), kind(&new)) {
        (a, b) if a == b => Ok(new),
        (Kind::Typed(elem), Kind::Integer) if elem.is_integer() => typed_constant(new, elem, site),
        (Kind::Typed(elem), Kind::Real) if elem.is_float() => typed_constant(new, elem, site),
        (Kind::Integer, Kind::Typed(elem)) if elem.is_integer() => Ok(new),
        (Kind::Real, Kind::Typed(elem)) if elem.is_float() => Ok(new),
        (Kind::Typed(elem), _) => {
            Err(Diagnostic::new(150, site, format!("{} is assigned to a variable of type {elem}", new.describe()))
                .help(format!("write `… as {elem}`")))
        }
        _ => Err(Diagnostic::new(150, site, format!("{} is assigned to {}", new.describe(), old.describe()))
            .help("conversions are written: `… as f32`")),
    }
}

/// A number without a type as one of `elem`; other values as they are.
pub(super) fn typed_constant(value: Value, elem: Elem, site: Site<'_>) -> Result<Value> {
    match value {
        Value::Const(constant @ (Const::Int(_, None) | Const::Float(_, None))) => {
            consteval::as_elem(constant, elem, Span::call_site()).map(Value::Const).map_err(|error| error.placed(site))
        }
        other => Ok(other),
    }
}
