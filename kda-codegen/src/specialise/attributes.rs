//! Attributes inside bodies. One that nothing reads would be silently ignored, so it is an error.

use crate::diag::Result;
use crate::syntax::{is_inert, unknown_attribute};
use syn::{Attribute, Expr};

/// Refuses attributes that `place` does not have.
pub(super) fn check(attrs: &[Attribute], place: &str, known: &[&str]) -> Result<()> {
    match attrs.iter().find(|a| !is_inert(a) && !known.iter().any(|name| a.path().is_ident(name))) {
        Some(attr) => {
            let list = known.iter().map(|name| format!("`#[{name}]`")).collect::<Vec<_>>().join(", ");
            Err(unknown_attribute(attr, place, &list))
        }
        None => Ok(()),
    }
}

/// Refuses attributes that an expression does not have.
pub(super) fn of_expr(expr: &Expr) -> Result<()> {
    let (attrs, place, known): (_, _, &[&str]) = match expr {
        Expr::ForLoop(e) => (&e.attrs, "a loop", &["role", "unroll", "elect_one"]),
        Expr::If(e) => (&e.attrs, "a branch", &["role", "elect_one"]),
        Expr::Block(e) => (&e.attrs, "a block", &["role", "elect_one"]),
        Expr::While(e) => (&e.attrs, "a `while` loop", &[]),
        Expr::Array(e) => (&e.attrs, "an expression", &[]),
        Expr::Assign(e) => (&e.attrs, "an assignment", &[]),
        Expr::Binary(e) => (&e.attrs, "an expression", &[]),
        Expr::Call(e) => (&e.attrs, "a call", &[]),
        Expr::Cast(e) => (&e.attrs, "an expression", &[]),
        Expr::Closure(e) => (&e.attrs, "a closure", &[]),
        Expr::Const(e) => (&e.attrs, "a block", &[]),
        Expr::Field(e) => (&e.attrs, "an expression", &[]),
        Expr::Group(e) => (&e.attrs, "an expression", &[]),
        Expr::Index(e) => (&e.attrs, "an expression", &[]),
        Expr::Lit(e) => (&e.attrs, "a number", &[]),
        Expr::MethodCall(e) => (&e.attrs, "a call", &[]),
        Expr::Paren(e) => (&e.attrs, "an expression", &[]),
        Expr::Path(e) => (&e.attrs, "a name", &[]),
        Expr::Range(e) => (&e.attrs, "a range", &[]),
        Expr::Reference(e) => (&e.attrs, "an expression", &[]),
        Expr::Repeat(e) => (&e.attrs, "an expression", &[]),
        Expr::Return(e) => (&e.attrs, "`return`", &[]),
        Expr::Struct(e) => (&e.attrs, "an expression", &[]),
        Expr::Tuple(e) => (&e.attrs, "an expression", &[]),
        Expr::Unary(e) => (&e.attrs, "an expression", &[]),
        _ => return Ok(()),
    };
    if attrs.is_empty() { Ok(()) } else { check(attrs, place, known) }
}
