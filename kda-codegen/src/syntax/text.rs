//! Syntax back to text, for messages and descriptions: the same whatever prints the tokens, spaced as a person would.
//!
//! Tokens alone do not tell `a < b` from `Global<T>`: a `<` opens generic arguments after `::` and after a name in camel
//! case.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use quote::ToTokens;
use syn::Expr;

/// An expression as written, on one line.
pub fn expr(expr: &Expr) -> String {
    tokens(expr.to_token_stream())
}

/// A path without spaces and without generic arguments: `math::STRIDES`.
pub fn path(path: &syn::Path) -> String {
    path.segments.iter().map(|s| s.ident.to_string()).collect::<Vec<_>>().join("::")
}

/// Tokens on one line. Binary operators are spaced, brackets and commas tight on the left.
pub fn tokens(tokens: TokenStream) -> String {
    let mut out = String::new();
    write(tokens, &mut out);
    out
}

fn write(tokens: TokenStream, out: &mut String) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    let mut glue = true; // no space before the next token
    let mut operand = false; // the token before ends an operand, so a `-` here is binary
    let mut applies = false; // a `<` here opens generic arguments: after `::` or the name of a type
    let mut angles = 0; // open generic arguments
    while let Some(token) = tokens.get(at) {
        match token {
            TokenTree::Punct(_) => {
                let mut op = operator(&tokens[at..]);
                if angles > 0 && op.starts_with('>') || applies && op.starts_with('<') {
                    op.truncate(1);
                }
                at += op.chars().count();
                if applies && op == "<" || angles > 0 && op == ">" {
                    out.push_str(&op);
                    (glue, operand, applies) = (op == "<", op == ">", false);
                    angles = if op == "<" { angles + 1 } else { angles - 1 };
                    continue;
                }
                applies = op == "::";
                let tight = matches!(op.as_str(), "::" | "." | ".." | "..=") || (op == "!" && operand);
                let closes = matches!(op.as_str(), "," | ";" | ":" | "?");
                let prefix = !operand && matches!(op.as_str(), "-" | "!" | "*" | "&" | "#" | "'");
                if !(tight || closes || glue) {
                    out.push(' ');
                }
                out.push_str(&op);
                glue = tight || prefix;
                operand = op == "?";
                continue;
            }
            TokenTree::Group(group) => {
                let (open, close, pad) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")", ""),
                    Delimiter::Bracket => ("[", "]", ""),
                    Delimiter::Brace => ("{", "}", " "),
                    Delimiter::None => ("", "", ""),
                };
                // Calls and indices hug what they follow; blocks do not.
                let hugs = operand && matches!(group.delimiter(), Delimiter::Parenthesis | Delimiter::Bracket);
                if !(glue || hugs) {
                    out.push(' ');
                }
                out.push_str(open);
                if !group.stream().is_empty() {
                    out.push_str(pad);
                    write(group.stream(), out);
                    out.push_str(pad);
                }
                out.push_str(close);
                (glue, operand, applies) = (false, true, false);
            }
            TokenTree::Ident(_) | TokenTree::Literal(_) => {
                if !glue {
                    out.push(' ');
                }
                let word = token.to_string();
                operand = !matches!(word.as_str(), "if" | "else" | "in" | "as" | "return" | "match" | "const" | "mut");
                // `Global` and not `T` or `BLOCK`.
                applies = word.starts_with(char::is_uppercase) && word.contains(char::is_lowercase);
                out.push_str(&word);
                glue = false;
            }
        }
        at += 1;
    }
}

/// The operator that the tokens begin with.
fn operator(tokens: &[TokenTree]) -> String {
    const LONG: [&str; 22] = [
        "<<=", ">>=", "..=", "...", "::", "->", "=>", "==", "!=", "<=", ">=", "&&", "||", "<<", ">>", "..", "+=", "-=",
        "*=", "/=", "%=", "|=",
    ];
    let mut joined = String::new();
    for token in tokens.iter().take(3) {
        let TokenTree::Punct(punct) = token else { break };
        joined.push(punct.as_char());
        if punct.spacing() == Spacing::Alone {
            break;
        }
    }
    match LONG.iter().find(|op| joined.starts_with(**op)) {
        Some(op) => (*op).to_string(),
        None => joined.chars().take(1).collect(),
    }
}
