//! Constant expressions.

use super::{Const, Names, binary, call, cast, fit, float, unary};
use crate::diag::{Diagnostic, Result};
use crate::syntax::text;
use kda_core::{Arch, Elem};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::{BinOp, Expr, Lit, UnOp};

/// The value of a constant expression: literals, names, arithmetic, comparisons, logic, `if`, blocks without statements,
/// tuples, arrays and indices into them, casts, `min`, `max`, `log2`, `size_of::<T>()`, `bf16::rn`, `f16::rn`.
///
/// A name is what `names` says, else an element type (`bf16`), else an architecture (`sm_90a`, see
/// [`super::arch_number`]). `&&`, `||` and `if` evaluate only what they need.
pub fn eval(expr: &Expr, names: &dyn Names) -> Result<Const> {
    match expr {
        Expr::Lit(lit) => literal(&lit.lit, false),
        Expr::Path(path) if path.qself.is_none() => name(expr, &path.path, names),
        Expr::Paren(paren) => eval(&paren.expr, names),
        Expr::Group(group) => eval(&group.expr, names),
        Expr::Const(block) => tail(expr, &block.block, names),
        Expr::Block(block) if block.label.is_none() => tail(expr, &block.block, names),
        Expr::Unary(inner) => match (&inner.op, &*inner.expr) {
            // The sign belongs to the literal: -2147483648i32 is a value.
            (UnOp::Neg(_), Expr::Lit(lit)) if matches!(lit.lit, Lit::Int(_)) => {
                literal(&lit.lit, true).map_err(|e| e.over(expr))
            }
            (op, operand) => unary(op, &eval(operand, names)?, expr.span()).map_err(|e| e.over(expr)),
        },
        Expr::Binary(operation) => {
            let left = eval(&operation.left, names)?;
            match (&operation.op, &left) {
                (BinOp::And(_), Const::Bool(false)) | (BinOp::Or(_), Const::Bool(true)) => Ok(left),
                (op, _) => {
                    let right = eval(&operation.right, names)?;
                    binary(op, &left, &right, expr.span()).map_err(|e| e.over(expr))
                }
            }
        }
        Expr::If(branch) => {
            let cond = condition(&branch.cond, names)?;
            match (&branch.else_branch, cond) {
                (_, true) => tail(expr, &branch.then_branch, names),
                (Some((_, other)), false) => eval(other, names),
                (None, false) => Err(Diagnostic::at(206, expr, "an `if` without `else` has no value when it is false")),
            }
        }
        Expr::Cast(inner) => {
            let value = eval(&inner.expr, names)?;
            let ty = elem(&inner.ty, names)?;
            cast(&value, ty, expr.span()).map_err(|e| e.over(expr))
        }
        Expr::Call(inner) => function(expr, inner, names),
        Expr::Array(array) => array.elems.iter().map(|e| eval(e, names)).collect::<Result<_>>().map(Const::Array),
        Expr::Tuple(tuple) => tuple.elems.iter().map(|e| eval(e, names)).collect::<Result<_>>().map(Const::Tuple),
        Expr::Repeat(repeat) => {
            let value = eval(&repeat.expr, names)?;
            let len = length(&repeat.len, names)?;
            let elements = len.saturating_mul(value.leaves());
            if elements > MOST_ELEMENTS {
                let message = format!("an array of {elements} elements in all; at most {MOST_ELEMENTS} are possible");
                return Err(Diagnostic::at(209, expr, message));
            }
            Ok(Const::Array(vec![value; len]))
        }
        Expr::Index(index) => {
            let Const::Array(items) = eval(&index.expr, names)? else {
                return Err(Diagnostic::at(205, &index.expr, format!("`{}` is no array", text::expr(&index.expr))));
            };
            let at = integer(&index.index, names)?;
            usize::try_from(at).ok().and_then(|at| items.get(at).cloned()).ok_or_else(|| {
                Diagnostic::at(209, expr, format!("index {at} into an array of {} elements", items.len()))
            })
        }
        Expr::Field(field) => {
            let Const::Tuple(items) = eval(&field.base, names)? else {
                return Err(Diagnostic::at(205, &field.base, format!("`{}` is no tuple", text::expr(&field.base))));
            };
            let at = match &field.member {
                syn::Member::Unnamed(index) => items.get(index.index as usize).cloned(),
                syn::Member::Named(_) => None,
            };
            at.ok_or_else(|| Diagnostic::at(209, expr, format!("a tuple of {} has no such field", items.len())))
        }
        other => Err(Diagnostic::at(206, other, format!("`{}` is no constant expression", text::expr(other)))
            .help("constants are made of literals, names, operators, `if`, arrays, tuples, casts and min, max, log2")),
    }
}

/// The value of a boolean constant expression.
pub(crate) fn condition(expr: &Expr, names: &dyn Names) -> Result<bool> {
    let value = eval(expr, names)?;
    value.as_bool().ok_or_else(|| wrong_kind(expr, &value, "a boolean"))
}

/// The value of an integer constant expression.
pub(crate) fn integer(expr: &Expr, names: &dyn Names) -> Result<i128> {
    let value = eval(expr, names)?;
    value.as_int().ok_or_else(|| wrong_kind(expr, &value, "an integer"))
}

fn wrong_kind(expr: &Expr, value: &Const, needed: &str) -> Box<Diagnostic> {
    Diagnostic::at(210, expr, format!("`{}` is {}; {needed} is needed here", text::expr(expr), value.describe()))
}

/// Most elements of an array, and of an array of arrays in all.
const MOST_ELEMENTS: usize = 65_536;

/// The length of an array, 0 to 65,536.
pub(crate) fn length(expr: &Expr, names: &dyn Names) -> Result<usize> {
    const MOST: i128 = MOST_ELEMENTS as i128;
    let len = integer(expr, names)?;
    if !(0..=MOST).contains(&len) {
        return Err(Diagnostic::at(209, expr, format!("an array of {len} elements; 0 to {MOST} are possible")));
    }
    Ok(len as usize)
}

/// The value of a block that is one expression.
fn tail(expr: &Expr, block: &syn::Block, names: &dyn Names) -> Result<Const> {
    match block.stmts.as_slice() {
        [syn::Stmt::Expr(value, None)] => eval(value, names),
        _ => Err(Diagnostic::at(206, expr, "a constant block is one expression, without statements")),
    }
}

fn literal(lit: &Lit, negative: bool) -> Result<Const> {
    match lit {
        Lit::Bool(value) => Ok(Const::Bool(value.value)),
        Lit::Int(value) => {
            let ty = suffix(value.suffix(), lit)?;
            let digits: i128 = value
                .base10_digits()
                .parse()
                .map_err(|_| Diagnostic::at(202, lit, "the literal does not fit 128 bits"))?;
            let digits = if negative { -digits } else { digits };
            match ty {
                Some(ty) if ty.is_float() => Ok(Const::Float(float::round(digits as f64, ty), Some(ty))),
                ty => fit(digits, ty, lit.span()),
            }
        }
        Lit::Float(value) => {
            let ty = suffix(value.suffix(), lit)?;
            let parsed: f64 = value
                .base10_digits()
                .parse()
                .map_err(|_| Diagnostic::at(206, lit, "this is no number that a constant can hold"))?;
            Ok(Const::Float(ty.map_or(parsed, |ty| float::round(parsed, ty)), ty))
        }
        _ => Err(Diagnostic::at(206, lit, "only numbers and booleans are constants")),
    }
}

fn suffix(suffix: &str, lit: &Lit) -> Result<Option<Elem>> {
    match Elem::from_name(suffix) {
        Some(Elem::Bool) | None if !suffix.is_empty() => {
            Err(Diagnostic::at(205, lit, format!("`{suffix}` is no type of the kernel language"))
                .help("the integer types are u8, u16, u32, u64, i32 and i64; the others f16, bf16, f32 and f64"))
        }
        ty => Ok(ty),
    }
}

fn name(expr: &Expr, path: &syn::Path, names: &dyn Names) -> Result<Const> {
    let name = text::path(path);
    if let Some(value) = names.value(&name) {
        return Ok(value);
    }
    if let Some(elem) = Elem::from_name(&name) {
        return Ok(Const::Elem(elem));
    }
    if let Some(arch) = Arch::from_name(&name) {
        return Ok(Const::Int(super::arch_number(arch), None));
    }
    Err(match names.instead(&name) {
        Some(what) => Diagnostic::at(201, expr, format!("`{name}` is not known while compiling: it is {what}")),
        None => Diagnostic::at(201, expr, format!("no constant is called `{name}`"))
            .help("constants are `const` items, const generics, element types and the variables of unrolled loops"),
    })
}

/// The element type that a type names: `f32`, or a generic of kind `Elem`.
pub(crate) fn elem(ty: &syn::Type, names: &dyn Names) -> Result<Elem> {
    if let syn::Type::Path(path) = ty
        && path.qself.is_none()
    {
        let name = text::path(&path.path);
        if let Some(elem) = names.value(&name).and_then(|v| v.as_elem()).or_else(|| Elem::from_name(&name)) {
            return Ok(elem);
        }
    }
    Err(Diagnostic::at(205, ty, format!("`{}` is no element type", text::tokens(ty.to_token_stream()))))
}

fn function(expr: &Expr, call_expr: &syn::ExprCall, names: &dyn Names) -> Result<Const> {
    let Expr::Path(path) = &*call_expr.func else {
        return Err(Diagnostic::at(206, expr, format!("`{}` is no constant expression", text::expr(expr))));
    };
    if let Some(segment) = path.path.segments.last()
        && segment.ident == "size_of"
        && let syn::PathArguments::AngleBracketed(generics) = &segment.arguments
        && let (Some(syn::GenericArgument::Type(ty)), 1) = (generics.args.first(), generics.args.len())
        && call_expr.args.is_empty()
    {
        return Ok(Const::Int(elem(ty, names)?.bytes().into(), Some(Elem::U32)));
    }
    let args = call_expr.args.iter().map(|arg| eval(arg, names)).collect::<Result<Vec<_>>>()?;
    call(&text::path(&path.path), &args, expr.span()).map_err(|e| e.over(expr))
}
