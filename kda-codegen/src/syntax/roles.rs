//! `#[roles(load = 8..12 (regs = 40), math = 0..8)]`.

use super::ast::RoleDecl;
use super::attrs;
use crate::diag::{Diagnostic, Errors, Result, Results};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, Expr, Ident, RangeLimits};

const ROLES: &str = "#[roles(load = 8..12 (regs = 40), math = 0..8)]";

/// The roles of a kernel.
pub(super) fn roles(attr: &Attribute) -> Results<Vec<RoleDecl>> {
    let mut errors = Errors::new();
    let mut roles = Vec::new();
    let tokens = errors.take(attrs::arguments(attr, ROLES)).unwrap_or_default();
    for piece in attrs::split_commas(tokens) {
        roles.extend(errors.take(role(piece, attr)));
    }
    if roles.is_empty() && errors.is_empty() {
        errors.push(Diagnostic::at(103, attr, "`#[roles]` names no role").help(format!("the form is `{ROLES}`")));
    }
    errors.finish(roles)
}

fn role(piece: TokenStream, attr: &Attribute) -> Result<RoleDecl> {
    let mut tokens: Vec<TokenTree> = piece.clone().into_iter().collect();
    // `(regs = 40)` after the range would read as a call of the range's end.
    let options = match tokens.as_slice() {
        [.., before, TokenTree::Group(group)]
            if group.delimiter() == Delimiter::Parenthesis && !matches!(before, TokenTree::Punct(_)) =>
        {
            names_registers(&group.stream()).then(|| group.stream())
        }
        _ => None,
    };
    if options.is_some() {
        tokens.pop();
    }
    let pair: attrs::Pair = attrs::parse(|input| input.parse(), tokens.into_iter().collect(), &piece, ROLES)
        .map_err(|e| if piece.is_empty() { e.over(attr) } else { e })?;
    let Expr::Range(range) = &pair.value else { return Err(not_a_range(&pair.name, &pair.value)) };
    let (Some(first), Some(end), RangeLimits::HalfOpen(_)) = (&range.start, &range.end, &range.limits) else {
        return Err(not_a_range(&pair.name, &pair.value));
    };
    let registers = match options {
        Some(options) => {
            let form = "name = first..end (regs = 40)";
            let option: attrs::Pair = attrs::parse(|input| input.parse(), options, &piece, form)?;
            Some(option.value)
        }
        None => None,
    };
    Ok(RoleDecl { name: pair.name, first: (**first).clone(), end: (**end).clone(), registers })
}

/// True for `regs = …` and what was meant to be it.
fn names_registers(tokens: &TokenStream) -> bool {
    let mut tokens = tokens.clone().into_iter();
    matches!(tokens.next(), Some(TokenTree::Ident(name)) if name == "regs")
        && matches!(tokens.next(), Some(TokenTree::Punct(punct)) if punct.as_char() == '=')
}

fn not_a_range(name: &Ident, value: &impl ToTokens) -> Box<Diagnostic> {
    Diagnostic::at(103, value, format!("the warps of `{name}` are no range `first..end`"))
        .help(format!("the form is `{ROLES}`; the end is one past the last warp"))
}
