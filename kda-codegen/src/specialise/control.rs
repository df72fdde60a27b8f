//! Branches and loops, static and at run time.

use super::Specialiser;
use super::value::{Scalar, Value};
use crate::consteval::Const;
use crate::diag::{Diagnostic, Result};
use crate::kir::{Node, Uniform, when};
use kda_core::Elem;
use proc_macro2::Span;
use syn::spanned::Spanned as _;

/// Trips of an unrolled loop above which the author is asked whether it is meant.
const MAX_UNROLL: i128 = 4096;

impl Specialiser<'_> {
    /// `if condition { … } else { … }`
    pub(super) fn if_else(&mut self, expr: &syn::ExprIf) -> Result<Value> {
        let span = expr.cond.span();
        let condition = self.expr(&expr.cond)?;
        let otherwise = |this: &mut Self| match &expr.else_branch {
            Some((_, other)) => this.expr(other),
            None => Ok(Value::Unit),
        };
        match condition {
            Value::Const(Const::Bool(true)) => self.block(&expr.then_branch),
            Value::Const(Const::Bool(false)) => otherwise(self),
            Value::Scalar(s) if s.elem == Elem::Bool => {
                self.branch(s, span, |this| this.block(&expr.then_branch), otherwise)
            }
            other => Err(Diagnostic::new(156, span, format!("a condition is a bool, not {}", other.describe()))),
        }
    }

    /// A runtime branch.
    pub(super) fn branch(
        &mut self,
        condition: Scalar,
        span: Span,
        then: impl FnOnce(&mut Self) -> Result<Value>,
        other: impl FnOnce(&mut Self) -> Result<Value>,
    ) -> Result<Value> {
        self.place(span);
        let place = self.builder.place;
        let before = self.frame().scopes.snapshot();
        let waited = self.waited;
        self.control.push(condition.uniform);

        self.builder.open();
        self.returned = false;
        let a = then(self)?;
        let a_returned = std::mem::take(&mut self.returned);
        let a_locals = self.frame().scopes.snapshot();
        let a_region = self.builder.close();
        self.frame().scopes.restore(&before);
        let a_waited = std::mem::replace(&mut self.waited, waited);

        self.builder.open();
        let b = other(self)?;
        let b_returned = std::mem::take(&mut self.returned);
        let b_locals = self.frame().scopes.snapshot();
        let b_region = self.builder.close();
        self.control.pop();
        self.waited = match (a_returned, b_returned) {
            (true, false) => self.waited,
            (false, true) => a_waited,
            _ => a_waited && self.waited,
        };

        // A side that has returned does not reach the join.
        let (value, locals, copies) = match (a_returned, b_returned) {
            (true, true) => {
                self.returned = true;
                (Value::Unit, before.clone(), Default::default())
            }
            (true, false) => (b, b_locals[..before.len()].to_vec(), Default::default()),
            (false, true) => (a, a_locals[..before.len()].to_vec(), Default::default()),
            (false, false) => {
                let mut copies = (Vec::new(), Vec::new());
                let value = self.join(&a, &b, condition.uniform, &mut copies, span)?;
                let mut locals = Vec::with_capacity(before.len());
                for (x, y) in a_locals.iter().zip(&b_locals).take(before.len()) {
                    locals.push(self.join(x, y, condition.uniform, &mut copies, span)?);
                }
                (value, locals, copies)
            }
        };
        self.frame().scopes.restore(&locals);
        let mut regions = Vec::with_capacity(2);
        for (mut region, copies) in [(a_region, copies.0), (b_region, copies.1)] {
            self.builder.open();
            self.copy_all(&copies, span)?;
            region.extend(self.builder.close());
            regions.push(region);
        }
        let (other, then) = (regions.pop().unwrap_or_default(), regions.pop().unwrap_or_default());
        self.builder.push(Node::If { condition: when(condition.reg), uniform: condition.uniform, then, other, place });
        Ok(value)
    }

    /// `for pattern in range { … }`
    pub(super) fn for_loop(&mut self, expr: &syn::ExprForLoop) -> Result<Value> {
        let span = expr.expr.span();
        let unroll = self.unroll_attribute(&expr.attrs)?;
        let range = self.expr(&expr.expr)?;
        let items = match range {
            Value::Array(items) if unroll.is_some() => items,
            Value::Array(_) => {
                return Err(Diagnostic::new(161, span, "a loop over an array must be unrolled")
                    .help("write `#[unroll]` before it"));
            }
            Value::Range(range) => {
                let (start, end, step) = *range;
                let trips = trip_count(&start, &end, &step);
                let whole = match (unroll, trips) {
                    (Some(None), None) => {
                        return Err(Diagnostic::new(
                            161,
                            span,
                            "an unrolled loop needs a trip count known while compiling",
                        ));
                    }
                    (Some(None), Some(_)) => true,
                    (Some(Some(1)), _) => false,
                    (Some(Some(n)), Some(trips)) if n >= trips => true,
                    (Some(Some(n)), _) => {
                        let message = format!("unrolling by {n} is possible only as a whole or not at all");
                        return Err(Diagnostic::new(161, span, message));
                    }
                    // One trip is no loop.
                    (None, trips) => matches!(trips, Some(0 | 1)),
                };
                if !whole {
                    return self.runtime_for(expr, start, end, step, span);
                }
                let trips = trips.unwrap_or(0);
                if trips > MAX_UNROLL {
                    return Err(Diagnostic::new(161, span, format!("{trips} trips are too many to unroll")));
                }
                let mut items = Vec::with_capacity(trips as usize);
                let mut value = start;
                for trip in 0..trips {
                    if trip > 0 {
                        value = self.binary(&syn::BinOp::Add(Default::default()), value, step.clone(), span)?;
                    }
                    items.push(value.clone());
                }
                items
            }
            other => return Err(Diagnostic::new(156, span, format!("{} cannot be looped over", other.describe()))),
        };
        for item in items {
            self.frame().scopes.push();
            self.bind(&expr.pat, item)?;
            self.block(&expr.body)?;
            self.frame().scopes.pop();
        }
        Ok(Value::Unit)
    }

    /// `#[unroll]` gives `Some(None)`, `#[unroll(n)]` gives `Some(Some(n))`.
    fn unroll_attribute(&mut self, attrs: &[syn::Attribute]) -> Result<Option<Option<i128>>> {
        let Some(attr) = attrs.iter().find(|a| a.path().is_ident("unroll")) else { return Ok(None) };
        match &attr.meta {
            syn::Meta::Path(_) => Ok(Some(None)),
            _ => {
                let expr: syn::Expr =
                    attr.parse_args().map_err(|e| Diagnostic::new(161, e.span(), "`#[unroll(…)]` takes a number"))?;
                let value = self.expr(&expr)?.as_int();
                value
                    .map(|v| Some(Some(v)))
                    .ok_or_else(|| Diagnostic::new(161, expr.span(), "`#[unroll(…)]` takes a constant"))
            }
        }
    }

    fn runtime_for(
        &mut self,
        expr: &syn::ExprForLoop,
        start: Value,
        end: Value,
        step: Value,
        span: Span,
    ) -> Result<Value> {
        let elem = match (&start, &end) {
            (Value::Const(Const::Int(_, None)), Value::Const(Const::Int(_, None))) => Elem::U32,
            _ => self.common(&start, &end, span)?,
        };
        let first = match start {
            Value::Const(Const::Int(v, _)) => Value::Const(Const::Int(v, Some(elem))),
            other => other,
        };
        self.frame().scopes.push();
        self.frame().scopes.declare("for".into(), first, true);
        let counter = self.frame().scopes.len() - 1;
        let head = |this: &mut Self| {
            let now = this.frame().scopes.get(counter).value.clone();
            this.binary(&syn::BinOp::Lt(Default::default()), now, end.clone(), span)
        };
        let body = |this: &mut Self| {
            let now = this.frame().scopes.get(counter).value.clone();
            this.frame().scopes.push();
            this.bind(&expr.pat, now.clone())?;
            this.block(&expr.body)?;
            this.frame().scopes.pop();
            let next = this.binary(&syn::BinOp::Add(Default::default()), now, step.clone(), span)?;
            this.frame().scopes.get_mut(counter).value = next;
            Ok(())
        };
        self.runtime_loop(span, head, body)?;
        self.frame().scopes.pop();
        Ok(Value::Unit)
    }

    /// `while condition { … }`
    pub(super) fn while_loop(&mut self, expr: &syn::ExprWhile) -> Result<Value> {
        let span = expr.cond.span();
        self.runtime_loop(span, |this| this.expr(&expr.cond), |this| this.block(&expr.body).map(|_| ()))?;
        Ok(Value::Unit)
    }

    /// A runtime loop. The body is tried until the set of values that change in it is known; the last trial is the code.
    fn runtime_loop(
        &mut self,
        span: Span,
        head: impl Fn(&mut Self) -> Result<Value>,
        body: impl Fn(&mut Self) -> Result<()>,
    ) -> Result<()> {
        self.place(span);
        let place = self.builder.place;
        let mut now = self.frame().scopes.snapshot();
        let mut phis = Vec::new();
        let mut uniform = Uniform::Cta;
        let (buffers, barriers, declared, end) =
            (self.buffers.len(), self.barriers.len(), self.declared, self.shared_end);
        loop {
            self.frame().scopes.restore(&now);
            self.builder.open();
            let condition = head(self)?;
            let condition = match condition {
                Value::Scalar(s) if s.elem == Elem::Bool => s,
                Value::Const(Const::Bool(false)) => {
                    self.builder.close();
                    return Ok(());
                }
                Value::Const(Const::Bool(true)) if phis.is_empty() => self.scalar(&condition, None, span)?,
                other => {
                    return Err(Diagnostic::new(156, span, format!("a condition is a bool, not {}", other.describe())));
                }
            };
            let head_region = self.builder.close();
            self.control.push(condition.uniform);
            self.builder.open();
            body(self)?;
            if std::mem::take(&mut self.returned) {
                return Err(Diagnostic::new(166, span, "`return` inside a runtime loop"));
            }
            let mut body_region = self.builder.close();
            self.control.pop();
            let after = self.frame().scopes.snapshot();
            let mut changed = condition.uniform > uniform;
            uniform = uniform.max(condition.uniform);
            let mut next = Vec::with_capacity(now.len());
            for (value, after) in now.iter().zip(&after) {
                next.push(self.widen(value, after, uniform, &mut phis, &mut changed, span)?);
            }
            if changed {
                now = next;
                self.buffers.truncate(buffers);
                self.barriers.truncate(barriers);
                (self.declared, self.shared_end) = (declared, end);
                continue;
            }
            let mut copies = Vec::new();
            for (value, after) in now.iter().zip(&after) {
                Self::next_values(value, after, &phis, &mut copies);
            }
            self.builder.open();
            self.copy_all(&copies, span)?;
            body_region.extend(self.builder.close());
            self.copy_all(&phis, span)?;
            self.frame().scopes.restore(&now);
            self.builder.push(Node::Loop {
                head: head_region,
                condition: when(condition.reg),
                uniform: condition.uniform,
                body: body_region,
                place,
            });
            return Ok(());
        }
    }
}

/// Trips of a range, if they are known.
fn trip_count(start: &Value, end: &Value, step: &Value) -> Option<i128> {
    let step = step.as_int().filter(|s| *s > 0)?;
    let length = match (start, end) {
        (Value::Scalar(_), _) | (_, Value::Scalar(_)) => return None,
        _ => end.as_int()? - start.as_int()?,
    };
    Some((length.max(0) + step - 1) / step)
}
