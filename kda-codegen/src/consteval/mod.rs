//! Values known while compiling.
//!
//! | file | what |
//! | --- | --- |
//! | [`ops`](self) | operators, casts and const functions on values |
//! | [`eval`] | constant expressions |
//! | `items` | `const` items and declared types |
//! | [`float`] | rounding to the narrower floating-point types |
//!
//! Integers are exact: they are untyped until they meet a written type, and a result that does not fit that type, a
//! negative result of an unsigned type, a lost bit of a shift and a division by zero are errors at the expression.
//! Floating-point values are kept as `f64`; a value whose type is written is rounded to it after every operation.

mod eval;
pub mod float;
mod items;
mod ops;
#[cfg(test)]
mod tests;

pub use eval::eval;
pub(crate) use eval::{condition, integer};
pub(crate) use items::as_elem;
pub use items::{arch_number, coerce, const_items};
pub use ops::{binary, call, cast, fit, unary};

use kda_core::Elem;
use std::collections::HashMap;
use std::fmt;

/// A constant.
///
/// Integers are untyped and exact until they meet a typed value; `ty` is kept where it was written.
#[derive(Clone, Debug)]
pub enum Const {
    /// An integer, with its type if one was written.
    Int(i128, Option<Elem>),
    /// A floating-point number, with its type if one was written.
    Float(f64, Option<Elem>),
    /// A boolean.
    Bool(bool),
    /// An element type.
    Elem(Elem),
    /// An array.
    Array(Vec<Const>),
    /// A tuple.
    Tuple(Vec<Const>),
}

/// Equal are values of the same type and the same bits: 0.0 and -0.0 differ, a NaN equals itself.
impl PartialEq for Const {
    fn eq(&self, other: &Const) -> bool {
        match (self, other) {
            (Const::Int(a, s), Const::Int(b, t)) => a == b && s == t,
            (Const::Float(a, s), Const::Float(b, t)) => a.to_bits() == b.to_bits() && s == t,
            (Const::Bool(a), Const::Bool(b)) => a == b,
            (Const::Elem(a), Const::Elem(b)) => a == b,
            (Const::Array(a), Const::Array(b)) | (Const::Tuple(a), Const::Tuple(b)) => a == b,
            _ => false,
        }
    }
}

impl Const {
    /// What it is, in the author's words: `an integer`, `a u32`.
    pub fn describe(&self) -> String {
        match self {
            Const::Int(_, None) => "an integer".into(),
            Const::Float(_, None) => "a floating-point number".into(),
            Const::Int(_, Some(ty)) => format!("{} {ty}", if *ty == Elem::U8 || ty.is_signed() { "an" } else { "a" }),
            Const::Float(_, Some(ty)) => format!("{} {ty}", if *ty == Elem::BF16 { "a" } else { "an" }),
            Const::Bool(_) => "a boolean".into(),
            Const::Elem(_) => "an element type".into(),
            Const::Array(_) => "an array".into(),
            Const::Tuple(_) => "a tuple".into(),
        }
    }

    /// Numbers and booleans in it.
    pub(crate) fn leaves(&self) -> usize {
        match self {
            Const::Array(items) | Const::Tuple(items) => items.iter().map(Const::leaves).sum::<usize>().max(1),
            _ => 1,
        }
    }

    /// The integer, if it is one.
    pub fn as_int(&self) -> Option<i128> {
        match self {
            Const::Int(value, _) => Some(*value),
            _ => None,
        }
    }

    /// The boolean, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Const::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The element type, if it is one.
    pub fn as_elem(&self) -> Option<Elem> {
        match self {
            Const::Elem(elem) => Some(*elem),
            _ => None,
        }
    }
}

/// The value as written in source, without a type suffix.
impl fmt::Display for Const {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, items: &[Const]| {
            for (i, item) in items.iter().enumerate() {
                write!(f, "{}{item}", if i > 0 { ", " } else { "" })?;
            }
            Ok(())
        };
        match self {
            Const::Int(value, _) => write!(f, "{value}"),
            Const::Float(value, _) => write!(f, "{value:?}"),
            Const::Bool(value) => write!(f, "{value}"),
            Const::Elem(elem) => write!(f, "{elem}"),
            Const::Array(items) => {
                f.write_str("[")?;
                list(f, items)?;
                f.write_str("]")
            }
            Const::Tuple(items) => {
                f.write_str("(")?;
                list(f, items)?;
                f.write_str(if items.len() == 1 { ",)" } else { ")" })
            }
        }
    }
}

/// What the names of a constant expression stand for.
pub trait Names {
    /// The constant called `name`: an identifier, or a path such as `math::STRIDES`.
    fn value(&self, name: &str) -> Option<Const>;

    /// For a name without a value, what it is instead: `a launch parameter, known only at the launch`.
    fn instead(&self, _name: &str) -> Option<String> {
        None
    }
}

/// Named constants, with an outer scope.
#[derive(Clone, Default)]
pub struct Scope<'a> {
    outer: Option<&'a dyn Names>,
    names: HashMap<String, Const>,
    others: HashMap<String, String>,
}

impl<'a> Scope<'a> {
    /// No names.
    pub fn new() -> Scope<'static> {
        Scope::default()
    }

    /// No names of its own; those of `outer` are visible.
    pub fn within(outer: &'a dyn Names) -> Scope<'a> {
        Scope { outer: Some(outer), ..Scope::default() }
    }

    /// Defines a constant, hiding one of the same name.
    pub fn define(&mut self, name: impl Into<String>, value: Const) {
        self.names.insert(name.into(), value);
    }

    /// Says what a name is that is no constant, for the message about its use.
    pub fn explain(&mut self, name: impl Into<String>, what: impl Into<String>) {
        self.others.insert(name.into(), what.into());
    }

    /// This scope's own constants, in no order.
    pub fn own(&self) -> impl Iterator<Item = (&str, &Const)> {
        self.names.iter().map(|(name, value)| (name.as_str(), value))
    }
}

impl Names for Scope<'_> {
    fn value(&self, name: &str) -> Option<Const> {
        self.names.get(name).cloned().or_else(|| self.outer.and_then(|outer| outer.value(name)))
    }

    fn instead(&self, name: &str) -> Option<String> {
        self.others.get(name).cloned().or_else(|| self.outer.and_then(|outer| outer.instead(name)))
    }
}
