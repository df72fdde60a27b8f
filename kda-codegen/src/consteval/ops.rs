//! Operators, casts and const functions on constants.

use super::{Const, float};
use crate::diag::{Diagnostic, Result};
use kda_core::Elem;
use proc_macro2::Span;
use syn::{BinOp, UnOp};

/// Least and greatest value of an integer type.
fn range(ty: Elem) -> Option<(i128, i128)> {
    let bits = 8 * ty.bytes();
    match ty {
        _ if !ty.is_integer() => None,
        _ if ty.is_signed() => Some((-(1 << (bits - 1)), (1 << (bits - 1)) - 1)),
        _ => Some((0, (1 << bits) - 1)),
    }
}

/// The integer with its type; an error if it does not fit.
pub fn fit(value: i128, ty: Option<Elem>, span: Span) -> Result<Const> {
    match ty.and_then(|ty| range(ty).map(|(low, high)| (ty, low, high))) {
        Some((ty, 0, _)) if value < 0 => {
            Err(Diagnostic::new(204, span, format!("the result is {value}; {ty} holds no negative value"))
                .help("compare before subtracting, or use a signed type"))
        }
        Some((ty, low, high)) if !(low..=high).contains(&value) => {
            Err(Diagnostic::new(202, span, format!("the result is {value}; {ty} holds {low} to {high}"))
                .help("use a wider type; constants never wrap"))
        }
        _ => Ok(Const::Int(value, ty)),
    }
}

fn overflow(span: Span) -> Box<Diagnostic> {
    Diagnostic::new(202, span, "the result does not fit 128 bits").help("constants never wrap")
}

/// The type that two operands share.
fn unify(a: Option<Elem>, b: Option<Elem>, symbol: &str, span: Span) -> Result<Option<Elem>> {
    match (a, b) {
        (Some(x), Some(y)) if x != y => Err(Diagnostic::new(205, span, format!("`{symbol}` joins a {x} and a {y}"))
            .help(format!("convert one side: `… as {x}`"))),
        (x, y) => Ok(x.or(y)),
    }
}

/// `a op b`. Both sides are values, so `&&` and `||` do not stop early here; [`super::eval`] does.
pub fn binary(op: &BinOp, a: &Const, b: &Const, span: Span) -> Result<Const> {
    let Some(symbol) = symbol(op) else {
        return Err(Diagnostic::new(206, span, "an assignment is no constant expression"));
    };
    match (a, b) {
        (Const::Int(x, s), Const::Int(y, t)) if matches!(op, BinOp::Shl(_) | BinOp::Shr(_)) => {
            shift(matches!(op, BinOp::Shl(_)), (*x, *s), (*y, *t), span)
        }
        (Const::Int(x, s), Const::Int(y, t)) => integer(op, *x, *y, unify(*s, *t, symbol, span)?, span),
        (Const::Float(x, s), Const::Float(y, t)) => real(op, *x, *y, unify(*s, *t, symbol, span)?, span),
        (Const::Bool(x), Const::Bool(y)) => boolean(op, *x, *y, span),
        (Const::Elem(x), Const::Elem(y)) if matches!(op, BinOp::Eq(_)) => Ok(Const::Bool(x == y)),
        (Const::Elem(x), Const::Elem(y)) if matches!(op, BinOp::Ne(_)) => Ok(Const::Bool(x != y)),
        _ => Err(mismatch(symbol, a, b, span)),
    }
}

fn mismatch(symbol: &str, a: &Const, b: &Const, span: Span) -> Box<Diagnostic> {
    let error = Diagnostic::new(205, span, format!("`{symbol}` cannot join {} and {}", a.describe(), b.describe()));
    match (a, b) {
        (Const::Int(..), Const::Float(..)) | (Const::Float(..), Const::Int(..)) => {
            error.help("convert one side: `n as f32`")
        }
        _ => error,
    }
}

fn symbol(op: &BinOp) -> Option<&'static str> {
    Some(match op {
        BinOp::Add(_) => "+",
        BinOp::Sub(_) => "-",
        BinOp::Mul(_) => "*",
        BinOp::Div(_) => "/",
        BinOp::Rem(_) => "%",
        BinOp::And(_) => "&&",
        BinOp::Or(_) => "||",
        BinOp::BitXor(_) => "^",
        BinOp::BitAnd(_) => "&",
        BinOp::BitOr(_) => "|",
        BinOp::Shl(_) => "<<",
        BinOp::Shr(_) => ">>",
        BinOp::Eq(_) => "==",
        BinOp::Lt(_) => "<",
        BinOp::Le(_) => "<=",
        BinOp::Ne(_) => "!=",
        BinOp::Ge(_) => ">=",
        BinOp::Gt(_) => ">",
        _ => return None,
    })
}

fn integer(op: &BinOp, x: i128, y: i128, ty: Option<Elem>, span: Span) -> Result<Const> {
    if matches!(op, BinOp::Div(_) | BinOp::Rem(_)) && y == 0 {
        return Err(Diagnostic::new(203, span, format!("{x} is divided by zero")));
    }
    let value = match op {
        BinOp::Add(_) => x.checked_add(y),
        BinOp::Sub(_) => x.checked_sub(y),
        BinOp::Mul(_) => x.checked_mul(y),
        BinOp::Div(_) => x.checked_div(y),
        BinOp::Rem(_) => x.checked_rem(y),
        BinOp::BitAnd(_) => Some(x & y),
        BinOp::BitOr(_) => Some(x | y),
        BinOp::BitXor(_) => Some(x ^ y),
        BinOp::Eq(_) => return Ok(Const::Bool(x == y)),
        BinOp::Ne(_) => return Ok(Const::Bool(x != y)),
        BinOp::Lt(_) => return Ok(Const::Bool(x < y)),
        BinOp::Le(_) => return Ok(Const::Bool(x <= y)),
        BinOp::Gt(_) => return Ok(Const::Bool(x > y)),
        BinOp::Ge(_) => return Ok(Const::Bool(x >= y)),
        _ => return Err(mismatch(symbol(op).unwrap_or(""), &Const::Int(x, ty), &Const::Int(y, ty), span)),
    };
    fit(value.ok_or_else(|| overflow(span))?, ty, span)
}

/// Shifts: a bit lost on the left is an overflow; the amount may have another type.
fn shift(left: bool, (x, ty): (i128, Option<Elem>), (by, _): (i128, Option<Elem>), span: Span) -> Result<Const> {
    let bits = ty.map_or(127, |ty| 8 * ty.bytes());
    if by < 0 || by >= i128::from(bits) {
        let what = ty.map_or_else(|| "an integer without a type".to_string(), |ty| format!("a {ty}"));
        return Err(Diagnostic::new(202, span, format!("{what} is shifted by {by}; it has {bits} bits")));
    }
    let value = if left { x.checked_mul(1 << by).ok_or_else(|| overflow(span))? } else { x >> by };
    fit(value, ty, span)
}

fn real(op: &BinOp, x: f64, y: f64, ty: Option<Elem>, span: Span) -> Result<Const> {
    let value = match op {
        BinOp::Add(_) => x + y,
        BinOp::Sub(_) => x - y,
        BinOp::Mul(_) => x * y,
        BinOp::Div(_) => x / y,
        BinOp::Rem(_) => x % y,
        BinOp::Eq(_) => return Ok(Const::Bool(x == y)),
        BinOp::Ne(_) => return Ok(Const::Bool(x != y)),
        BinOp::Lt(_) => return Ok(Const::Bool(x < y)),
        BinOp::Le(_) => return Ok(Const::Bool(x <= y)),
        BinOp::Gt(_) => return Ok(Const::Bool(x > y)),
        BinOp::Ge(_) => return Ok(Const::Bool(x >= y)),
        _ => return Err(mismatch(symbol(op).unwrap_or(""), &Const::Float(x, ty), &Const::Float(y, ty), span)),
    };
    Ok(Const::Float(ty.map_or(value, |ty| float::round(value, ty)), ty))
}

fn boolean(op: &BinOp, x: bool, y: bool, span: Span) -> Result<Const> {
    Ok(Const::Bool(match op {
        BinOp::And(_) | BinOp::BitAnd(_) => x && y,
        BinOp::Or(_) | BinOp::BitOr(_) => x || y,
        BinOp::BitXor(_) | BinOp::Ne(_) => x != y,
        BinOp::Eq(_) => x == y,
        _ => return Err(mismatch(symbol(op).unwrap_or(""), &Const::Bool(x), &Const::Bool(y), span)),
    }))
}

/// `-a` and `!a`.
pub fn unary(op: &UnOp, a: &Const, span: Span) -> Result<Const> {
    match (op, a) {
        (UnOp::Neg(_), Const::Int(x, ty)) => fit(x.checked_neg().ok_or_else(|| overflow(span))?, *ty, span),
        (UnOp::Neg(_), Const::Float(x, ty)) => Ok(Const::Float(-x, *ty)),
        (UnOp::Not(_), Const::Bool(x)) => Ok(Const::Bool(!x)),
        // Of an unsigned type, the complement within its width.
        (UnOp::Not(_), Const::Int(x, Some(ty))) if !ty.is_signed() => {
            Ok(Const::Int(range(*ty).map_or(!x, |(_, high)| high ^ x), Some(*ty)))
        }
        (UnOp::Not(_), Const::Int(x, ty)) => Ok(Const::Int(!x, *ty)),
        (UnOp::Neg(_), other) => Err(Diagnostic::new(205, span, format!("`-` cannot take {}", other.describe()))),
        (UnOp::Not(_), other) => Err(Diagnostic::new(205, span, format!("`!` cannot take {}", other.describe()))),
        _ => Err(Diagnostic::new(206, span, "a dereference is no constant expression")),
    }
}

/// `a as ty`. Unlike Rust's, a cast to an integer type never wraps or saturates: a value that does not fit is an error.
pub fn cast(value: &Const, ty: Elem, span: Span) -> Result<Const> {
    let refuse = || Diagnostic::new(205, span, format!("{} cannot be cast to {ty}", value.describe()));
    match value {
        _ if matches!(ty, Elem::F16 | Elem::BF16) => Err(refuse().help(format!("write the rounding: `{ty}::rn(x)`"))),
        Const::Int(x, _) if ty.is_integer() => fit(*x, Some(ty), span),
        Const::Int(x, _) if ty.is_float() => Ok(Const::Float(float::round(*x as f64, ty), Some(ty))),
        Const::Bool(x) if ty.is_integer() => Ok(Const::Int((*x).into(), Some(ty))),
        Const::Bool(_) if ty == Elem::Bool => Ok(value.clone()),
        Const::Float(x, _) if ty.is_float() => Ok(Const::Float(float::round(*x, ty), Some(ty))),
        Const::Float(x, _) if ty.is_integer() => {
            // Beyond 2^100 no integer type reaches, and the conversion below would saturate.
            if !x.is_finite() || x.abs() > 2f64.powi(100) {
                return Err(Diagnostic::new(202, span, format!("{x:?} is no value of {ty}")));
            }
            fit(x.trunc() as i128, Some(ty), span)
        }
        Const::Int(..) if ty == Elem::Bool => Err(refuse().help("compare: `x != 0`")),
        _ => Err(refuse()),
    }
}

/// `name(args)` for the const functions: `min`, `max`, `log2` (of exact powers of two), `bf16::rn`, `f16::rn`.
pub fn call(name: &str, args: &[Const], span: Span) -> Result<Const> {
    let needed = match name {
        "min" | "max" => 2,
        "log2" | "bf16::rn" | "f16::rn" => 1,
        _ => {
            return Err(Diagnostic::new(207, span, format!("`{name}` is no function of constants"))
                .help("constants know min, max, log2, size_of, bf16::rn and f16::rn"));
        }
    };
    if args.len() != needed {
        let message = format!("`{name}` takes {needed} argument{}, given {}", plural(needed), args.len());
        return Err(Diagnostic::new(207, span, message));
    }
    match (name, args) {
        ("min" | "max", [Const::Int(x, s), Const::Int(y, t)]) => {
            let ty = unify(*s, *t, name, span)?;
            fit(if name == "min" { *x.min(y) } else { *x.max(y) }, ty, span)
        }
        ("min" | "max", [Const::Float(x, s), Const::Float(y, t)]) => {
            let ty = unify(*s, *t, name, span)?;
            Ok(Const::Float(if name == "min" { x.min(*y) } else { x.max(*y) }, ty))
        }
        ("log2", [Const::Int(x, ty)]) => {
            if *x <= 0 || x & (x - 1) != 0 {
                let message = format!("log2 of {x}, which is no power of two");
                return Err(Diagnostic::new(208, span, message).help("log2 is exact: its argument is 1, 2, 4, 8, …"));
            }
            Ok(Const::Int(x.trailing_zeros().into(), *ty))
        }
        ("bf16::rn" | "f16::rn", [Const::Float(x, _)]) => {
            let ty = if name == "f16::rn" { Elem::F16 } else { Elem::BF16 };
            Ok(Const::Float(float::round(*x, ty), Some(ty)))
        }
        _ => {
            let given: Vec<String> = args.iter().map(Const::describe).collect();
            Err(Diagnostic::new(205, span, format!("`{name}` cannot take {}", given.join(" and "))))
        }
    }
}

fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}
