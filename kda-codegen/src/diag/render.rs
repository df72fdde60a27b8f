//! A diagnostic as tokens: `compile_error!` at the author's span.
//!
//! Stable Rust has no notes or help texts for macros, so the help is a further line of the message and every other place
//! is a further error that begins with `note:`.

use super::Diagnostic;
use proc_macro2::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

impl Diagnostic {
    /// The message with code, variant and help: the text of the error.
    pub fn text(&self) -> String {
        let mut text = format!("{}: {}", self.code, self.message);
        if let Some(variant) = &self.variant {
            text.push_str(&format!("\n  = variant: {variant}"));
        }
        if !self.help.is_empty() {
            text.push_str(&format!("\n  = help: {}", self.help));
        }
        text
    }

    /// `compile_error!` for the error and for each of its notes.
    pub fn to_tokens(&self) -> TokenStream {
        let mut tokens = compile_error(self.span, self.end, &self.text());
        for (span, text) in &self.notes {
            tokens.extend(compile_error(*span, *span, &format!("note: {text}")));
        }
        tokens
    }
}

/// Tokens of every error, in the order found.
pub fn all(errors: &[Diagnostic]) -> TokenStream {
    errors.iter().map(Diagnostic::to_tokens).collect()
}

/// `::core::compile_error! { "text" }`. The compiler underlines from the first token of a macro call to its last, so the
/// path has the span of the start and the braces that of the end.
fn compile_error(start: Span, end: Span, text: &str) -> TokenStream {
    let punct = |c, spacing| {
        let mut p = Punct::new(c, spacing);
        p.set_span(start);
        TokenTree::Punct(p)
    };
    let ident = |name| TokenTree::Ident(Ident::new(name, start));
    let mut message = Literal::string(text);
    message.set_span(end);
    let mut braces = Group::new(Delimiter::Brace, TokenTree::Literal(message).into());
    braces.set_span(end);
    TokenStream::from_iter([
        punct(':', Spacing::Joint),
        punct(':', Spacing::Alone),
        ident("core"),
        punct(':', Spacing::Joint),
        punct(':', Spacing::Alone),
        ident("compile_error"),
        punct('!', Spacing::Alone),
        TokenTree::Group(braces),
    ])
}
