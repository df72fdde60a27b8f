//! Expressions over launch parameters, which the launcher evaluates: grid, sizes, conditions.
//!
//! Constant parts are folded with the exact arithmetic of constants; `&&`, `||` and `if` drop a side that a constant
//! decides, so `LONG || tokens == T` is `tokens == 4` where LONG is false and T is 4.

use crate::compiled::OwnedExpr;
use crate::consteval::{self, Const, Names, Scope};
use crate::diag::{Diagnostic, Result};
use crate::syntax::text;
use kda_core::expr::BinaryOp;
use kda_core::{Arch, Elem};
use std::collections::BTreeMap;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, UnOp};

/// Kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Int,
    /// A condition.
    Bool,
}

impl Kind {
    fn describe(self) -> &'static str {
        match self {
            Kind::Int => "a number",
            Kind::Bool => "a condition",
        }
    }
}

/// What a name is to the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// A value of this kind.
    Value(Kind),
    /// Something that the launcher cannot compute with, in words.
    Other(&'static str),
}

/// Names that the launcher knows.
pub type LaunchNames = BTreeMap<String, Name>;

/// What expressions are read with.
pub struct Launch<'a> {
    /// Constants of the variant.
    pub consts: &'a Scope<'a>,
    /// Launch parameters, named axes and named strides.
    pub names: &'a LaunchNames,
}

impl Launch<'_> {
    /// The expression, of the kind that is needed.
    pub fn expr(&self, expr: &Expr, needed: Kind) -> Result<OwnedExpr> {
        let (value, kind) = self.any(expr)?;
        if kind == needed { Ok(value) } else { Err(wrong_kind(expr, kind, needed)) }
    }

    fn any(&self, expr: &Expr) -> Result<(OwnedExpr, Kind)> {
        if self.is_constant(expr) {
            return match consteval::eval(expr, self.consts)? {
                Const::Int(value, _) => Ok((OwnedExpr::Int(value), Kind::Int)),
                Const::Bool(value) => Ok((OwnedExpr::Int(value.into()), Kind::Bool)),
                other => Err(unsupported(expr, &format!("`{}` is {}", text::expr(expr), other.describe()))),
            };
        }
        match expr {
            Expr::Path(path) => self.name(expr, &text::path(&path.path)),
            Expr::Paren(inner) => self.any(&inner.expr),
            Expr::Group(inner) => self.any(&inner.expr),
            Expr::Unary(inner) if matches!(inner.op, UnOp::Not(_)) => {
                let value = self.expr(&inner.expr, Kind::Bool)?;
                Ok((OwnedExpr::Not(Box::new(value)), Kind::Bool))
            }
            Expr::Unary(inner) if matches!(inner.op, UnOp::Neg(_)) => {
                let value = self.expr(&inner.expr, Kind::Int)?;
                Ok((join(BinaryOp::Sub, OwnedExpr::Int(0), value), Kind::Int))
            }
            Expr::Binary(operation) => self.binary(expr, operation),
            Expr::If(branch) => self.branch(expr, branch),
            Expr::Call(call) => self.call(expr, call),
            Expr::Cast(_) => Err(unsupported(expr, "a cast is not evaluated by the launcher")
                .help("values are exact integers here; leave the cast out")),
            other => Err(unsupported(other, &format!("`{}` cannot be evaluated by the launcher", text::expr(other)))),
        }
    }

    fn name(&self, expr: &Expr, name: &str) -> Result<(OwnedExpr, Kind)> {
        match self.names.get(name) {
            Some(Name::Value(kind)) => Ok((OwnedExpr::Name(name.to_string()), *kind)),
            Some(Name::Other(what)) => Err(unsupported(expr, &format!("`{name}` is {what}"))),
            None => Err(Diagnostic::at(220, expr, format!("no launch parameter is called `{name}`"))
                .help(format!("known here: {}", self.known()))),
        }
    }

    fn known(&self) -> String {
        let known: Vec<&str> =
            self.names.iter().filter(|(_, n)| matches!(n, Name::Value(_))).map(|(name, _)| name.as_str()).collect();
        if known.is_empty() { "constants only".to_string() } else { known.join(", ") }
    }

    fn binary(&self, expr: &Expr, operation: &syn::ExprBinary) -> Result<(OwnedExpr, Kind)> {
        let (op, needs) = match operation.op {
            BinOp::Add(_) => (BinaryOp::Add, Kind::Int),
            BinOp::Sub(_) => (BinaryOp::Sub, Kind::Int),
            BinOp::Mul(_) => (BinaryOp::Mul, Kind::Int),
            BinOp::Div(_) => (BinaryOp::Div, Kind::Int),
            BinOp::Rem(_) => (BinaryOp::Rem, Kind::Int),
            BinOp::Lt(_) => (BinaryOp::Lt, Kind::Int),
            BinOp::Le(_) => (BinaryOp::Le, Kind::Int),
            BinOp::Gt(_) => (BinaryOp::Gt, Kind::Int),
            BinOp::Ge(_) => (BinaryOp::Ge, Kind::Int),
            BinOp::And(_) => (BinaryOp::And, Kind::Bool),
            BinOp::Or(_) => (BinaryOp::Or, Kind::Bool),
            BinOp::Eq(_) | BinOp::Ne(_) => {
                let op = if matches!(operation.op, BinOp::Eq(_)) { BinaryOp::Eq } else { BinaryOp::Ne };
                let (a, kind) = self.any(&operation.left)?;
                return Ok((join(op, a, self.expr(&operation.right, kind)?), Kind::Bool));
            }
            _ => {
                return Err(unsupported(expr, &format!("`{}` cannot be evaluated by the launcher", text::expr(expr)))
                    .help("it knows + - * / % and comparisons; write a shift as a product or a quotient"));
            }
        };
        let a = self.expr(&operation.left, needs)?;
        // A constant decides the result, or leaves it to the other side, which then is not even looked at or is all.
        match (op, &a) {
            (BinaryOp::And, OwnedExpr::Int(0)) => return Ok((OwnedExpr::Int(0), Kind::Bool)),
            (BinaryOp::Or, OwnedExpr::Int(x)) if *x != 0 => return Ok((OwnedExpr::Int(1), Kind::Bool)),
            (BinaryOp::And | BinaryOp::Or, OwnedExpr::Int(_)) => {
                return Ok((self.expr(&operation.right, needs)?, Kind::Bool));
            }
            _ => {}
        }
        let b = self.expr(&operation.right, needs)?;
        if matches!(op, BinaryOp::Div | BinaryOp::Rem) && b == OwnedExpr::Int(0) {
            return Err(Diagnostic::at(203, expr, format!("`{}` divides by zero", text::expr(expr))));
        }
        let kind = match op {
            BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div | BinaryOp::Rem => Kind::Int,
            _ => Kind::Bool,
        };
        match (op, &b) {
            (BinaryOp::And, OwnedExpr::Int(0)) => Ok((OwnedExpr::Int(0), kind)),
            (BinaryOp::Or, OwnedExpr::Int(x)) if *x != 0 => Ok((OwnedExpr::Int(1), kind)),
            (BinaryOp::And | BinaryOp::Or, OwnedExpr::Int(_)) => Ok((a, kind)),
            _ => Ok((join(op, a, b), kind)),
        }
    }

    /// `if` with a constant condition: the other side is not looked at.
    fn branch(&self, expr: &Expr, branch: &syn::ExprIf) -> Result<(OwnedExpr, Kind)> {
        if !self.is_constant(&branch.cond) {
            return Err(unsupported(expr, "an `if` in an expression of the launch needs a constant condition")
                .help("write it with `min`, `max` or as two conditions"));
        }
        let Some((_, other)) = &branch.else_branch else {
            return Err(unsupported(expr, "an `if` without `else` has no value when it is false"));
        };
        if !consteval::condition(&branch.cond, self.consts)? {
            return self.any(other);
        }
        match branch.then_branch.stmts.as_slice() {
            [syn::Stmt::Expr(value, None)] => self.any(value),
            _ => Err(unsupported(expr, "a block here is one expression, without statements")),
        }
    }

    fn call(&self, expr: &Expr, call: &syn::ExprCall) -> Result<(OwnedExpr, Kind)> {
        let name = match &*call.func {
            Expr::Path(path) => text::path(&path.path),
            _ => String::new(),
        };
        let op = match name.as_str() {
            "min" => BinaryOp::Min,
            "max" => BinaryOp::Max,
            _ => {
                return Err(unsupported(expr, &format!("`{}` cannot be evaluated by the launcher", text::expr(expr)))
                    .help("of functions it knows `min` and `max`"));
            }
        };
        let args: Vec<OwnedExpr> = call.args.iter().map(|arg| self.expr(arg, Kind::Int)).collect::<Result<_>>()?;
        match <[OwnedExpr; 2]>::try_from(args) {
            Ok([a, b]) => Ok((join(op, a, b), Kind::Int)),
            Err(args) => Err(Diagnostic::at(207, expr, format!("`{name}` takes 2 arguments, given {}", args.len()))),
        }
    }

    /// True if every name of the expression is a constant.
    fn is_constant(&self, expr: &Expr) -> bool {
        let mut search = Runtime { launch: self, found: false };
        search.visit_expr(expr);
        !search.found
    }
}

/// Looks for a name that is no constant.
struct Runtime<'a> {
    launch: &'a Launch<'a>,
    found: bool,
}

impl<'ast> Visit<'ast> for Runtime<'_> {
    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        let name = text::path(&path.path);
        let known = self.launch.consts.value(&name).is_some()
            || (!self.launch.names.contains_key(&name)
                && (Elem::from_name(&name).is_some() || Arch::from_name(&name).is_some()));
        self.found |= !known;
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        // The function is no value.
        if !matches!(&*call.func, Expr::Path(_)) {
            self.visit_expr(&call.func);
        }
        call.args.iter().for_each(|arg| visit::visit_expr(self, arg));
    }
}

/// `a op b`, folded where both are known. What has no value is left to the launcher to report.
fn join(op: BinaryOp, a: OwnedExpr, b: OwnedExpr) -> OwnedExpr {
    let value = match (&a, &b) {
        (OwnedExpr::Int(x), OwnedExpr::Int(y)) => folded(op, *x, *y),
        _ => None,
    };
    value.map_or_else(|| OwnedExpr::Binary(op, Box::new(a), Box::new(b)), OwnedExpr::Int)
}

fn folded(op: BinaryOp, x: i128, y: i128) -> Option<i128> {
    match op {
        BinaryOp::Add => x.checked_add(y),
        BinaryOp::Sub => x.checked_sub(y),
        BinaryOp::Mul => x.checked_mul(y),
        BinaryOp::Div => x.checked_div(y),
        BinaryOp::Rem => x.checked_rem(y),
        BinaryOp::Min => Some(x.min(y)),
        BinaryOp::Max => Some(x.max(y)),
        BinaryOp::Eq => Some((x == y).into()),
        BinaryOp::Ne => Some((x != y).into()),
        BinaryOp::Lt => Some((x < y).into()),
        BinaryOp::Le => Some((x <= y).into()),
        BinaryOp::Gt => Some((x > y).into()),
        BinaryOp::Ge => Some((x >= y).into()),
        BinaryOp::And | BinaryOp::Or => None,
    }
}

fn unsupported(expr: &Expr, message: &str) -> Box<Diagnostic> {
    Diagnostic::at(221, expr, message)
}

fn wrong_kind(expr: &Expr, given: Kind, needed: Kind) -> Box<Diagnostic> {
    let message = format!("`{}` is {}; {} is needed here", text::expr(expr), given.describe(), needed.describe());
    let error = Diagnostic::at(222, expr, message);
    match needed {
        Kind::Bool => error.help("compare: `n != 0`"),
        Kind::Int => error,
    }
}
