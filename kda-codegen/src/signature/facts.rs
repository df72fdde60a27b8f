//! What `#[requires]` lets the compiler assume about single launch parameters.

use crate::compiled::{OwnedExpr, Requirement};
use kda_core::expr::BinaryOp;

/// A fact about a launch parameter, a named axis or a named stride.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// `name % of == 0`
    MultipleOf {
        /// The parameter.
        name: String,
        /// The divisor, at least 1.
        of: u64,
    },
    /// `name == value`
    Equals {
        /// The parameter.
        name: String,
        /// The value.
        value: i128,
    },
    /// `name >= value`
    AtLeast {
        /// The parameter.
        name: String,
        /// The least value.
        value: i128,
    },
    /// `name <= value`
    AtMost {
        /// The parameter.
        name: String,
        /// The greatest value.
        value: i128,
    },
}

/// The facts in the conditions: those that stand alone or are joined by `&&`.
pub fn facts(requires: &[Requirement]) -> Vec<Fact> {
    let mut found = Vec::new();
    for requirement in requires {
        collect(&requirement.expr, &mut found);
    }
    found
}

fn collect(expr: &OwnedExpr, found: &mut Vec<Fact>) {
    let OwnedExpr::Binary(op, a, b) = expr else { return };
    let fact = match (op, &**a, &**b) {
        (BinaryOp::And, a, b) => {
            collect(a, found);
            collect(b, found);
            None
        }
        (op, OwnedExpr::Int(value), other) => mirrored(*op).and_then(|op| fact(op, other, *value)),
        (op, other, OwnedExpr::Int(value)) => fact(*op, other, *value),
        _ => None,
    };
    if let Some(fact) = fact
        && !found.contains(&fact)
    {
        found.push(fact);
    }
}

/// The operator with its sides exchanged.
fn mirrored(op: BinaryOp) -> Option<BinaryOp> {
    Some(match op {
        BinaryOp::Eq => BinaryOp::Eq,
        BinaryOp::Lt => BinaryOp::Gt,
        BinaryOp::Le => BinaryOp::Ge,
        BinaryOp::Gt => BinaryOp::Lt,
        BinaryOp::Ge => BinaryOp::Le,
        _ => return None,
    })
}

fn fact(op: BinaryOp, what: &OwnedExpr, value: i128) -> Option<Fact> {
    match (op, what) {
        (BinaryOp::Eq, OwnedExpr::Name(name)) => Some(Fact::Equals { name: name.clone(), value }),
        (BinaryOp::Ge, OwnedExpr::Name(name)) => Some(Fact::AtLeast { name: name.clone(), value }),
        (BinaryOp::Gt, OwnedExpr::Name(name)) => {
            Some(Fact::AtLeast { name: name.clone(), value: value.checked_add(1)? })
        }
        (BinaryOp::Le, OwnedExpr::Name(name)) => Some(Fact::AtMost { name: name.clone(), value }),
        (BinaryOp::Lt, OwnedExpr::Name(name)) => {
            Some(Fact::AtMost { name: name.clone(), value: value.checked_sub(1)? })
        }
        (BinaryOp::Eq, OwnedExpr::Binary(BinaryOp::Rem, a, b)) if value == 0 => match (&**a, &**b) {
            (OwnedExpr::Name(name), OwnedExpr::Int(of)) => {
                Some(Fact::MultipleOf { name: name.clone(), of: u64::try_from(of.unsigned_abs()).ok()?.max(1) })
            }
            _ => None,
        },
        _ => None,
    }
}

/// Least common multiple of the known divisors of `name`; its value if that is known.
pub(super) fn multiple_of(facts: &[Fact], name: &str) -> u64 {
    let mut multiple = 1u64;
    for fact in facts {
        match fact {
            Fact::Equals { name: n, value } if n == name => {
                return u64::try_from(value.unsigned_abs()).unwrap_or(1);
            }
            // A multiple past the range is no use; the divisors so far stay true.
            Fact::MultipleOf { name: n, of } if n == name => {
                multiple = (multiple / gcd(multiple, *of)).checked_mul(*of).unwrap_or(multiple);
            }
            _ => {}
        }
    }
    multiple
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
