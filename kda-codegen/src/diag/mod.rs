//! Errors in the kernel author's words.
//!
//! | file | what |
//! | --- | --- |
//! | [`kda_core::codes`] | every code with its title, explanation and what to write |
//! | [`render`] | a diagnostic as the tokens of `compile_error!` |
//!
//! A step that can find several independent errors collects them in [`Errors`]; a step that cannot go on after the first
//! returns [`Result`].

pub mod render;
#[cfg(test)]
mod tests;

pub use kda_core::codes as catalogue;
pub use kda_core::codes::Code;
use proc_macro2::{LineColumn, Span, TokenTree};
use quote::ToTokens;

/// One error: a cause, a place, and what to write instead.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// Code of the catalogue.
    pub code: Code,
    /// Where it begins.
    pub span: Span,
    /// Where it ends; the same as `span` if one token is meant.
    pub end: Span,
    /// What is wrong.
    pub message: String,
    /// What to write instead; empty if the message says it.
    pub help: String,
    /// Other places that matter, with a word on each.
    pub notes: Vec<(Span, String)>,
    /// The variant that has the error, where not every variant has it.
    pub variant: Option<String>,
}

/// The value, or the first error.
pub type Result<T> = std::result::Result<T, Box<Diagnostic>>;

/// The value, or every error found.
pub type Results<T> = std::result::Result<T, Vec<Diagnostic>>;

/// Where an error can stand.
pub trait Place {
    /// Spans of the first and the last token.
    fn ends(&self) -> (Span, Span);
}

impl Place for Span {
    fn ends(&self) -> (Span, Span) {
        (*self, *self)
    }
}

impl Place for (Span, Span) {
    fn ends(&self) -> (Span, Span) {
        *self
    }
}

impl Diagnostic {
    /// An error of `code` at `place`.
    pub fn new(code: u16, place: impl Place, message: impl Into<String>) -> Box<Diagnostic> {
        let (span, end) = place.ends();
        Box::new(Diagnostic {
            code: Code(code),
            span,
            end,
            message: message.into(),
            help: String::new(),
            notes: Vec::new(),
            variant: None,
        })
    }

    /// An error of `code` over all tokens of `what`: the whole of an expression, not its first token.
    pub fn at(code: u16, what: &impl ToTokens, message: impl Into<String>) -> Box<Diagnostic> {
        Diagnostic::new(code, Span::call_site(), message).over(what)
    }

    /// Moves the error to all tokens of `what`.
    pub fn over(mut self: Box<Self>, what: &impl ToTokens) -> Box<Diagnostic> {
        (self.span, self.end) = ends(what);
        self
    }

    /// Moves the error to `place`.
    pub fn placed(mut self: Box<Self>, place: impl Place) -> Box<Diagnostic> {
        (self.span, self.end) = place.ends();
        self
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

    /// First and last position in the source.
    pub fn place(&self) -> (LineColumn, LineColumn) {
        (self.span.start(), self.end.end())
    }

    /// True if both report the same cause: same code, same place.
    pub fn same_cause(&self, other: &Diagnostic) -> bool {
        let key = |d: &Diagnostic| {
            let (start, end) = d.place();
            (d.code, start.line, start.column, end.line, end.column)
        };
        key(self) == key(other) && self.span.file() == other.span.file()
    }

    /// Writes the place into the message, for a span that the compiler cannot show: `lib/src/math.rs:3:8`.
    pub fn write_place(&mut self) {
        let (start, _) = self.place();
        self.message.push_str(&format!(" (at {}:{}:{})", self.span.file(), start.line, start.column + 1));
    }
}

impl From<Box<Diagnostic>> for Diagnostic {
    fn from(boxed: Box<Diagnostic>) -> Diagnostic {
        *boxed
    }
}

/// `KDA0105 at 3:8: message`, for tests and logs.
impl std::fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (start, _) = self.place();
        write!(f, "{} at {}:{}: {}", self.code, start.line, start.column + 1, self.message)
    }
}

/// Spans of the first and the last token.
pub(crate) fn ends(what: &(impl ToTokens + ?Sized)) -> (Span, Span) {
    let mut tokens = what.to_token_stream().into_iter();
    let first = tokens.next();
    let last = tokens.last().or_else(|| first.clone());
    let span = |token: Option<TokenTree>| token.map_or_else(Span::call_site, |t| t.span());
    (span(first), span(last))
}

/// Errors of a step that goes on after one.
#[derive(Debug, Default)]
pub struct Errors(Vec<Diagnostic>);

impl Errors {
    /// No errors yet.
    pub fn new() -> Errors {
        Errors::default()
    }

    /// Adds one.
    pub fn push(&mut self, error: impl Into<Diagnostic>) {
        self.0.push(error.into());
    }

    /// Adds several.
    pub fn extend(&mut self, errors: Vec<Diagnostic>) {
        self.0.extend(errors);
    }

    /// Adds those of another step.
    pub fn append(&mut self, other: Errors) {
        self.0.extend(other.0);
    }

    /// The value, if there is one; its error is kept.
    pub fn take<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    /// The value, if there is one; its errors are kept.
    pub fn take_all<T>(&mut self, result: Results<T>) -> Option<T> {
        result.map_err(|errors| self.extend(errors)).ok()
    }

    /// True if none was added.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps the first error of each cause.
    pub fn once(mut self) -> Errors {
        let mut kept: Vec<Diagnostic> = Vec::new();
        for error in self.0.drain(..) {
            if !kept.iter().any(|known| known.same_cause(&error)) {
                kept.push(error);
            }
        }
        Errors(kept)
    }

    /// `value` if no error was added.
    pub fn finish<T>(self, value: T) -> Results<T> {
        if self.0.is_empty() { Ok(value) } else { Err(self.0) }
    }

    /// `value` if there is one and no error was added. A missing value comes with an error.
    pub fn finish_some<T>(self, value: Option<T>) -> Results<T> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(self.0),
        }
    }
}
