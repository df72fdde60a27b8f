//! Where an error would stand. Looked up only when there is an error, because a place costs a walk over the tokens.

use crate::diag::{Place, ends};
use proc_macro2::Span;
use quote::ToTokens;
use syn::Expr;
use syn::spanned::Spanned as _;

/// A piece of source.
#[derive(Clone, Copy)]
pub(super) enum Site<'e> {
    /// An expression.
    Expr(&'e Expr),
    /// Anything else.
    Tokens(&'e dyn ToTokens),
}

impl Site<'_> {
    /// Its first token.
    pub(super) fn start(self) -> Span {
        match self {
            Site::Expr(expr) => first(expr),
            Site::Tokens(tokens) => ends(tokens).0,
        }
    }
}

impl Place for Site<'_> {
    fn ends(&self) -> (Span, Span) {
        match self {
            Site::Expr(expr) => ends(*expr),
            Site::Tokens(tokens) => ends(*tokens),
        }
    }
}

/// The first token of an expression, without a walk over all of it.
fn first(expr: &Expr) -> Span {
    match expr {
        Expr::Binary(e) => first(&e.left),
        Expr::Assign(e) => first(&e.left),
        Expr::Call(e) => first(&e.func),
        Expr::MethodCall(e) => first(&e.receiver),
        Expr::Index(e) => first(&e.expr),
        Expr::Field(e) => first(&e.base),
        Expr::Cast(e) => first(&e.expr),
        Expr::Path(e) if e.qself.is_none() => e.path.segments.first().map_or_else(|| expr.span(), |s| s.ident.span()),
        Expr::Lit(e) => e.lit.span(),
        Expr::Paren(e) => e.paren_token.span.open(),
        Expr::Array(e) => e.bracket_token.span.open(),
        Expr::Tuple(e) => e.paren_token.span.open(),
        Expr::Unary(e) => e.op.span(),
        Expr::If(e) if e.attrs.is_empty() => e.if_token.span,
        Expr::ForLoop(e) if e.attrs.is_empty() => e.for_token.span,
        other => ends(other).0,
    }
}
