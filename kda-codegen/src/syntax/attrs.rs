//! Attributes and their arguments.

use crate::diag::{Diagnostic, Errors, Result};
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, Ident, Meta, Token};

/// A syntax error of the parser, over `what`, with the form that is expected.
pub(super) fn malformed(error: &syn::Error, form: &str) -> Box<Diagnostic> {
    let message = error.to_string();
    let mut diagnostic = Diagnostic::new(103, error.span(), message).help(format!("the form is `{form}`"));
    // A syn error knows the first and the last of its tokens only in its own rendering.
    let tokens: Vec<TokenTree> = error.to_compile_error().into_iter().collect();
    if let (Some(first), Some(last)) = (tokens.first(), tokens.last()) {
        diagnostic.span = first.span();
        diagnostic.end = last.span();
    }
    diagnostic
}

/// True for the attributes that are Rust's own and say nothing to the compiler of kernels.
pub(crate) fn is_inert(attr: &Attribute) -> bool {
    const INERT: [&str; 6] = ["doc", "allow", "warn", "deny", "expect", "rustfmt"];
    attr.path().segments.first().is_some_and(|s| INERT.iter().any(|name| s.ident == name))
}

/// Text of the documentation lines.
pub(super) fn docs(attrs: &[Attribute]) -> Vec<String> {
    attrs
        .iter()
        .filter_map(|attr| match &attr.meta {
            Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
                Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
                _ => None,
            },
            _ => None,
        })
        .collect()
}

/// An attribute that does not belong where it stands.
pub(crate) fn unknown(attr: &Attribute, place: &str, known: &str) -> Box<Diagnostic> {
    let name = super::text::path(attr.path());
    let error = Diagnostic::at(102, attr, format!("`#[{name}]` is no attribute of {place}"));
    match name.as_str() {
        "cfg" | "cfg_attr" => error.help("configure the whole module, or make it an axis of `#[variants]`"),
        "inline" => error.help("device functions are always inlined"),
        _ if known.is_empty() => error.help("only documentation and lint attributes can stand here"),
        _ => error.help(format!("known here: {known}")),
    }
}

/// Reports every attribute that is not Rust's own.
pub(super) fn only_inert(attrs: &[Attribute], place: &str, errors: &mut Errors) {
    for attr in attrs.iter().filter(|attr| !is_inert(attr)) {
        errors.push(unknown(attr, place, ""));
    }
}

/// Tokens in the parentheses of `#[name(…)]`; an error if there are none.
pub(super) fn arguments(attr: &Attribute, form: &str) -> Result<TokenStream> {
    match &attr.meta {
        Meta::List(list) if matches!(list.delimiter, syn::MacroDelimiter::Paren(_)) => Ok(list.tokens.clone()),
        _ => Err(Diagnostic::at(103, attr, format!("`#[{}]` needs its arguments in parentheses", name(attr)))
            .help(format!("the form is `{form}`"))),
    }
}

fn name(attr: &Attribute) -> String {
    super::text::path(attr.path())
}

/// Parses tokens, with syntax errors in the author's words.
pub(super) fn parse<T>(
    parser: impl FnOnce(ParseStream<'_>) -> syn::Result<T>,
    tokens: TokenStream,
    around: &impl ToTokens,
    form: &str,
) -> Result<T> {
    let empty = tokens.is_empty();
    syn::parse::Parser::parse2(parser, tokens).map_err(|error| {
        let diagnostic = malformed(&error, form);
        if empty { diagnostic.over(around) } else { diagnostic }
    })
}

/// `name = value`.
pub(super) struct Pair {
    pub name: Ident,
    pub value: Expr,
}

impl Parse for Pair {
    fn parse(input: ParseStream<'_>) -> syn::Result<Pair> {
        let name = Ident::parse_any(input)?;
        input.parse::<Token![=]>()?;
        Ok(Pair { name, value: input.parse()? })
    }
}

impl ToTokens for Pair {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        self.name.to_tokens(tokens);
        self.value.to_tokens(tokens);
    }
}

/// `name = value, …` with names out of `known`, each at most once.
pub(super) fn pairs(
    tokens: TokenStream,
    around: &impl ToTokens,
    form: &str,
    known: &[&str],
    errors: &mut Errors,
) -> Vec<Pair> {
    let list = parse(Punctuated::<Pair, Token![,]>::parse_terminated, tokens, around, form);
    let mut found: Vec<Pair> = Vec::new();
    for pair in errors.take(list).into_iter().flatten() {
        if !known.iter().any(|name| pair.name == name) {
            let message = format!("`{}` is no argument here", pair.name);
            errors.push(Diagnostic::at(104, &pair.name, message).help(format!("known here: {}", known.join(", "))));
        } else if let Some(first) = found.iter().find(|p| p.name == pair.name) {
            let error = Diagnostic::at(105, &pair, format!("`{}` is given twice", pair.name));
            errors.push(error.note(first.name.span(), "given first here"));
        } else {
            found.push(pair);
        }
    }
    found
}

/// The attribute called `name`, if it stands once; a second one is reported.
pub(super) fn single<'a>(attrs: &'a [Attribute], name: &str, errors: &mut Errors) -> Option<&'a Attribute> {
    let mut found = attrs.iter().filter(|attr| attr.path().is_ident(name));
    let first = found.next()?;
    for again in found {
        let error = Diagnostic::at(105, again, format!("`#[{name}]` stands twice"));
        errors.push(error.note(first.pound_token.span, "it stands first here"));
    }
    Some(first)
}

/// Splits at the commas outside all brackets; an empty last piece is dropped.
pub(super) fn split_commas(tokens: TokenStream) -> Vec<TokenStream> {
    let mut pieces = vec![TokenStream::new()];
    for token in tokens {
        match &token {
            TokenTree::Punct(punct) if punct.as_char() == ',' => pieces.push(TokenStream::new()),
            _ => {
                if let Some(piece) = pieces.last_mut() {
                    piece.extend([token]);
                }
            }
        }
    }
    if pieces.last().is_some_and(TokenStream::is_empty) {
        pieces.pop();
    }
    pieces
}
