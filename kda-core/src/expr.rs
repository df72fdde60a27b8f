//! Integer and boolean arithmetic over launch parameters, as data.
//!
//! Grid sizes, tensor shapes and the conditions of `#[requires]` are such expressions. A kernel macro emits them as
//! constants; the launcher evaluates them. Values are `i128`, so no product of launch parameters overflows unseen;
//! booleans are 0 and 1.

use std::fmt;

/// A binary operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOp {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`, exact truncation; division by zero is an error
    Div,
    /// `%`; remainder by zero is an error
    Rem,
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
    /// `&&`
    And,
    /// `||`
    Or,
    /// the smaller
    Min,
    /// the larger
    Max,
}

impl BinaryOp {
    /// The operator as written in source.
    pub const fn symbol(self) -> &'static str {
        match self {
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
            BinaryOp::Rem => "%",
            BinaryOp::Eq => "==",
            BinaryOp::Ne => "!=",
            BinaryOp::Lt => "<",
            BinaryOp::Le => "<=",
            BinaryOp::Gt => ">",
            BinaryOp::Ge => ">=",
            BinaryOp::And => "&&",
            BinaryOp::Or => "||",
            BinaryOp::Min => "min",
            BinaryOp::Max => "max",
        }
    }
}

/// An expression over named launch parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Expr {
    /// A constant.
    Int(i128),
    /// The value of a launch parameter, a named dimension or a named stride.
    Name(&'static str),
    /// Logical not.
    Not(&'static Expr),
    /// A binary operation.
    Binary(BinaryOp, &'static Expr, &'static Expr),
}

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExprError {
    /// A name that no parameter defines.
    #[error("`{0}` has no value in this launch")]
    Unbound(String),
    /// Division or remainder by zero.
    #[error("division by zero in `{0}`")]
    DivisionByZero(String),
    /// The value does not fit 128 bits.
    #[error("overflow in `{0}`")]
    Overflow(String),
}

impl Expr {
    /// Evaluates with `lookup` giving the values of names.
    pub fn eval(&self, lookup: &dyn Fn(&str) -> Option<i128>) -> Result<i128, ExprError> {
        match self {
            Expr::Int(value) => Ok(*value),
            Expr::Name(name) => lookup(name).ok_or_else(|| ExprError::Unbound((*name).to_string())),
            Expr::Not(inner) => Ok((inner.eval(lookup)? == 0) as i128),
            Expr::Binary(BinaryOp::And, a, b) => Ok((a.eval(lookup)? != 0 && b.eval(lookup)? != 0) as i128),
            Expr::Binary(BinaryOp::Or, a, b) => Ok((a.eval(lookup)? != 0 || b.eval(lookup)? != 0) as i128),
            Expr::Binary(op, a, b) => {
                let (x, y) = (a.eval(lookup)?, b.eval(lookup)?);
                if matches!(op, BinaryOp::Div | BinaryOp::Rem) && y == 0 {
                    return Err(ExprError::DivisionByZero(self.to_string()));
                }
                match op {
                    BinaryOp::Add => x.checked_add(y),
                    BinaryOp::Sub => x.checked_sub(y),
                    BinaryOp::Mul => x.checked_mul(y),
                    BinaryOp::Div => x.checked_div(y),
                    BinaryOp::Rem => x.checked_rem(y),
                    BinaryOp::Eq => Some((x == y) as i128),
                    BinaryOp::Ne => Some((x != y) as i128),
                    BinaryOp::Lt => Some((x < y) as i128),
                    BinaryOp::Le => Some((x <= y) as i128),
                    BinaryOp::Gt => Some((x > y) as i128),
                    BinaryOp::Ge => Some((x >= y) as i128),
                    BinaryOp::Min => Some(x.min(y)),
                    BinaryOp::Max => Some(x.max(y)),
                    BinaryOp::And | BinaryOp::Or => Some(0),
                }
                .ok_or_else(|| ExprError::Overflow(self.to_string()))
            }
        }
    }

    /// Calls `visit` with every name in the expression.
    pub fn names(&self, visit: &mut dyn FnMut(&'static str)) {
        match self {
            Expr::Int(_) => {}
            Expr::Name(name) => visit(name),
            Expr::Not(inner) => inner.names(visit),
            Expr::Binary(_, a, b) => {
                a.names(visit);
                b.names(visit);
            }
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expr::Int(value) => write!(f, "{value}"),
            Expr::Name(name) => f.write_str(name),
            Expr::Not(inner) => write!(f, "!{inner}"),
            Expr::Binary(op @ (BinaryOp::Min | BinaryOp::Max), a, b) => write!(f, "{}({a}, {b})", op.symbol()),
            Expr::Binary(op, a, b) => {
                let side = |f: &mut fmt::Formatter<'_>, e: &Expr| match e {
                    Expr::Binary(inner, ..) if !matches!(inner, BinaryOp::Min | BinaryOp::Max) => write!(f, "({e})"),
                    _ => write!(f, "{e}"),
                };
                side(f, a)?;
                write!(f, " {} ", op.symbol())?;
                side(f, b)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: Expr = Expr::Name("n");
    const TWO: Expr = Expr::Int(2);

    #[test]
    fn arithmetic_and_text() {
        const TWICE: Expr = Expr::Binary(BinaryOp::Mul, &N, &TWO);
        const TEST: Expr = Expr::Binary(BinaryOp::Eq, &Expr::Binary(BinaryOp::Rem, &TWICE, &TWO), &Expr::Int(0));
        assert_eq!(TEST.eval(&|_| Some(7)), Ok(1));
        assert_eq!(TEST.to_string(), "((n * 2) % 2) == 0");
        assert_eq!(TWICE.eval(&|_| Some(i128::MAX)), Err(ExprError::Overflow("n * 2".into())));
        assert_eq!(N.eval(&|_| None), Err(ExprError::Unbound("n".into())));
        const BAD: Expr = Expr::Binary(BinaryOp::Div, &TWO, &N);
        assert_eq!(BAD.eval(&|_| Some(0)), Err(ExprError::DivisionByZero("2 / n".into())));
    }

    #[test]
    fn logic_is_short_circuit() {
        const GUARDED: Expr = Expr::Binary(
            BinaryOp::Or,
            &Expr::Binary(BinaryOp::Eq, &N, &Expr::Int(0)),
            &Expr::Binary(BinaryOp::Gt, &Expr::Binary(BinaryOp::Div, &TWO, &N), &Expr::Int(0)),
        );
        assert_eq!(GUARDED.eval(&|_| Some(0)), Ok(1));
        assert_eq!(GUARDED.eval(&|_| Some(2)), Ok(1));
        assert_eq!(GUARDED.eval(&|_| Some(3)), Ok(0));
    }
}
