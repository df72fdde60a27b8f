//! How deeply tokens nest. Parsers and trees recurse, and a stack overflow is no diagnostic; so this is looked at first,
//! without recursion.

use crate::diag::{Diagnostic, Result};
use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};

/// Most groups inside each other.
const MOST_GROUPS: usize = 120;
/// Most prefix operators in a row, branches of one `else if` chain, and the like.
const MOST_CHAINED: usize = 120;
/// Most tokens of one expression.
const MOST_TOKENS: usize = 3000;

/// What a parser would recurse over, counted in one group since the last boundary between expressions.
#[derive(Default)]
struct Run {
    tokens: usize,
    prefixes: usize,
    assignments: usize,
    branches: usize,
    angles: usize,
    behind_braces: bool,
}

impl Run {
    fn too_long(&self) -> bool {
        self.tokens > MOST_TOKENS
            || [self.prefixes, self.assignments, self.branches, self.angles].iter().any(|n| *n > MOST_CHAINED)
    }

    fn token(&mut self, token: &TokenTree) {
        self.tokens += 1;
        let behind_braces = std::mem::take(&mut self.behind_braces);
        match token {
            TokenTree::Group(group) => {
                self.prefixes = 0;
                self.behind_braces = group.delimiter() == Delimiter::Brace;
            }
            TokenTree::Ident(name) if *name == "else" => (self.branches, self.prefixes) = (self.branches + 1, 0),
            TokenTree::Ident(name) if *name == "return" => self.prefixes += 1,
            TokenTree::Punct(punct) => match punct.as_char() {
                ';' => *self = Run::default(),
                ',' => (self.tokens, self.prefixes, self.assignments) = (0, 0, 0),
                '=' => (self.assignments, self.prefixes) = (self.assignments + 1, 0),
                '<' => (self.angles, self.prefixes) = (self.angles + 1, 0),
                '>' => (self.angles, self.prefixes) = (self.angles.saturating_sub(1), 0),
                _ => self.prefixes += 1,
            },
            // A statement that ends with braces is over, unless it goes on.
            _ if behind_braces => *self = Run { tokens: 1, ..Run::default() },
            _ => self.prefixes = 0,
        }
    }
}

/// Refuses tokens that nest too deeply to be parsed.
pub(super) fn check(tokens: &TokenStream) -> Result<()> {
    let refuse = |span: Span| {
        Err(Diagnostic::new(552, span, "expressions stand inside each other too deeply").help("name parts with `let`"))
    };
    let mut open = vec![(tokens.clone().into_iter(), Run::default())];
    while let Some((rest, run)) = open.last_mut() {
        let Some(token) = rest.next() else {
            open.pop();
            continue;
        };
        run.token(&token);
        if run.too_long() {
            return refuse(token.span());
        }
        if let TokenTree::Group(group) = &token {
            if open.len() > MOST_GROUPS {
                return refuse(group.span_open());
            }
            open.push((group.stream().into_iter(), Run::default()));
        }
    }
    Ok(())
}
