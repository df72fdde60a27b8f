//! Text to AST.
//!
//! [`parse`] reads a module in the dialect of the crate. Every error carries its line and column; no input panics.

mod cursor;
mod module;

pub use cursor::Cursor;
pub use module::parse;

/// What is wrong with a text, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct ParseError {
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// What was found and what is needed.
    pub message: String,
}
