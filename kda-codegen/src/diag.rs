//! Errors in the kernel author's words.

use proc_macro2::Span;

/// A code of the catalogue: `KDA0105`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub u16);

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KDA{:04}", self.0)
    }
}

/// One error: a cause, a place, and what to write instead.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// Code of the catalogue.
    pub code: Code,
    /// Where.
    pub span: Span,
    /// What is wrong.
    pub message: String,
    /// What to write instead; empty if the message says it.
    pub help: String,
    /// Other places that matter, with a word on each.
    pub notes: Vec<(Span, String)>,
}

/// The value, or the first error.
pub type Result<T> = std::result::Result<T, Box<Diagnostic>>;

impl Diagnostic {
    /// An error of `code` at `span`.
    pub fn new(code: u16, span: Span, message: impl Into<String>) -> Box<Diagnostic> {
        Box::new(Diagnostic { code: Code(code), span, message: message.into(), help: String::new(), notes: Vec::new() })
    }

    /// Adds what to write instead.
    pub fn help(mut self: Box<Self>, help: impl Into<String>) -> Box<Diagnostic> {
        self.help = help.into();
        self
    }

    /// Adds another place.
    pub fn note(mut self: Box<Self>, span: Span, text: impl Into<String>) -> Box<Diagnostic> {
        self.notes.push((span, text.into()));
        self
    }
}
