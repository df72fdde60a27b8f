//! Values known while compiling.

use kda_core::Elem;

/// A constant.
///
/// Integers are untyped and exact until they meet a typed value; `ty` is kept where it was written.
#[derive(Clone, Debug, PartialEq)]
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
