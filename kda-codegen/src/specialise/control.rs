//! Branches, static and at run time; `&&` and `||`.

use super::Specialiser;
use super::site::Site;
use super::value::{Scalar, Value};
use crate::consteval::Const;
use crate::diag::{Diagnostic, Result};
use crate::kir::{Branch, Node, when};
use kda_core::Elem;

impl Specialiser<'_> {
    /// `if condition { … } else { … }`
    pub(super) fn if_else(&mut self, expr: &syn::ExprIf) -> Result<Value> {
        let site = Site::Expr(&expr.cond);
        let condition = self.expr(&expr.cond)?;
        let otherwise = |this: &mut Self| match &expr.else_branch {
            Some((_, other)) => this.expr(other),
            None => Ok(Value::Unit),
        };
        match condition {
            Value::Const(Const::Bool(true)) => self.block(&expr.then_branch),
            Value::Const(Const::Bool(false)) => otherwise(self),
            Value::Scalar(s) if s.elem == Elem::Bool => {
                // An item of work that a barrier of one side hands over is handed over on both.
                let (meets, done) = (self.hands_over(expr), self.handed_over());
                let value = self.branch(
                    s,
                    site,
                    |this| this.handing_over(meets, site, |this| this.block(&expr.then_branch)),
                    |this| {
                        this.before_side(done);
                        this.handing_over(meets, site, otherwise)
                    },
                )?;
                self.mark_guard(s, &expr.cond);
                Ok(value)
            }
            other => Err(Diagnostic::new(156, site, format!("a condition is a bool, not {}", other.describe()))),
        }
    }

    /// `a && b`, `a || b`: the right side runs only where it matters, unless it only computes.
    pub(super) fn lazy(&mut self, left: Scalar, expr: &syn::ExprBinary, site: Site<'_>) -> Result<Value> {
        let and = matches!(expr.op, syn::BinOp::And(_));
        let mark = self.mark();
        self.builder.open();
        let value = self.expr(&expr.right)?;
        let unchanged = self.frame().scopes.snapshot() == *mark.locals();
        let region = self.builder.close();
        if unchanged && !self.returned && region.iter().all(only_computes) {
            for node in region {
                self.builder.push(node);
            }
            self.place(site);
            return self.binary(&expr.op, Value::Scalar(left), value, site);
        }
        self.rewind(&mark);
        let fixed = Value::Const(Const::Bool(!and));
        let site = Site::Expr(&expr.left);
        let value = if and {
            self.branch(left, site, |this| this.expr(&expr.right), |_| Ok(fixed))
        } else {
            self.branch(left, site, |_| Ok(fixed), |this| this.expr(&expr.right))
        }?;
        match value {
            Value::Scalar(s) if s.elem != Elem::Bool => {
                Err(Diagnostic::at(156, &expr.right, format!("a condition is a bool, not a {}", s.elem)))
            }
            other => Ok(other),
        }
    }

    /// A runtime branch.
    pub(super) fn branch(
        &mut self,
        condition: Scalar,
        site: Site<'_>,
        then: impl FnOnce(&mut Self) -> Result<Value>,
        other: impl FnOnce(&mut Self) -> Result<Value>,
    ) -> Result<Value> {
        self.settle_all();
        self.place(site);
        let place = self.builder.place;
        let before = self.frame().scopes.snapshot();
        let waited = self.waited;
        let flight = super::products::Flight { fenced: false, ..self.flight.clone() };
        self.control.push(condition.uniform);
        self.branches += 1;

        self.begin_side(&flight);
        self.returned = false;
        let a = then(self)?;
        self.settle_all();
        let a_returned = std::mem::take(&mut self.returned);
        let a_locals = self.frame().scopes.snapshot();
        let a_region = self.builder.close();
        self.frame().scopes.restore(&before);
        let a_waited = std::mem::replace(&mut self.waited, waited);
        let a_flight = self.flight.clone();

        self.begin_side(&flight);
        let b = other(self)?;
        self.settle_all();
        let b_returned = std::mem::take(&mut self.returned);
        let b_locals = self.frame().scopes.snapshot();
        let b_region = self.builder.close();
        self.control.pop();
        self.branches -= 1;
        self.conversions.clear();
        self.flight = match (a_returned, b_returned) {
            (true, false) => self.flight.clone(),
            (false, true) => a_flight,
            _ => a_flight.join(self.flight.clone(), &flight)?,
        };
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
                let value = self.join(&a, &b, condition.uniform, &mut copies, site)?;
                let mut locals = Vec::with_capacity(before.len());
                for (x, y) in a_locals.iter().zip(&b_locals).take(before.len()) {
                    locals.push(self.join(x, y, condition.uniform, &mut copies, site)?);
                }
                (value, locals, copies)
            }
        };
        self.frame().scopes.restore(&locals);
        let mut regions = Vec::with_capacity(2);
        for (mut region, copies) in [(a_region, copies.0), (b_region, copies.1)] {
            self.builder.open();
            self.copy_all(&copies, site)?;
            region.extend(self.builder.close());
            regions.push(region);
        }
        let (other, then) = (regions.pop().unwrap_or_default(), regions.pop().unwrap_or_default());
        self.builder.push(Node::If {
            condition: when(condition.reg),
            uniform: condition.uniform,
            branch: Branch::Plain,
            then,
            other,
            place,
        });
        Ok(value)
    }
}

impl Specialiser<'_> {
    /// Opens the code of one side of a branch.
    fn begin_side(&mut self, flight: &super::products::Flight) {
        self.flight = flight.clone();
        self.conversions.clear();
        self.builder.open();
    }
}

/// True if the step neither writes, nor synchronises, nor may fault: lanes for which it does not matter can run it too.
fn only_computes(node: &Node) -> bool {
    let Node::Inst { inst, .. } = node else { return false };
    use kda_ptx::Inst;
    matches!(
        inst,
        Inst::Mov(_)
            | Inst::Pack(_)
            | Inst::Unpack(_)
            | Inst::Add(_)
            | Inst::Sub(_)
            | Inst::Mul(_)
            | Inst::Fma(_)
            | Inst::Div(_)
            | Inst::Rem(_)
            | Inst::Min(_)
            | Inst::Max(_)
            | Inst::Abs(_)
            | Inst::Neg(_)
            | Inst::And(_)
            | Inst::Or(_)
            | Inst::Xor(_)
            | Inst::Not(_)
            | Inst::Shl(_)
            | Inst::Shr(_)
            | Inst::Setp(_)
            | Inst::Selp(_)
            | Inst::Cvt(_)
            | Inst::Ex2(_)
            | Inst::Rcp(_)
            | Inst::Rsqrt(_)
            | Inst::Sqrt(_)
            | Inst::Lg2(_)
            | Inst::Tanh(_)
            // All lanes are here, or the shuffle was refused.
            | Inst::Shfl(_)
            | Inst::Vote(_)
    )
}
