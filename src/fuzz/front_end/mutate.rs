//! Changes to a kernel, token by token: mostly another token of the same kind, as what else stands there seldom gets past
//! the parser.

use kda_ref::rng::Rng;
use proc_macro2::{Delimiter, Group, Literal, TokenStream, TokenTree};

/// What stands in place of a literal.
const LITERALS: [&str; 20] = [
    "0",
    "1",
    "2",
    "3",
    "31",
    "32",
    "33",
    "64",
    "4096",
    "4294967295",
    "4294967296",
    "16",
    "256",
    "65536",
    "2147483648",
    "9223372036854775807",
    "18446744073709551615",
    "1.5",
    "0x7fff_ffff_ffff_ffff_ffff",
    "true",
];

/// What stands in place of a name.
const NAMES: [&str; 22] = [
    "tid", "lane", "warp", "role", "x", "y", "n", "tile", "i", "u32", "i32", "f32", "u8", "min", "select", "shfl",
    "from_fn", "at", "load", "store", "mut", "map",
];

/// The tokens with one change, or with two now and then.
pub fn mutate(mut tokens: TokenStream, rng: &mut Rng) -> TokenStream {
    let mut donors = Vec::new();
    flatten(&tokens, &mut donors);
    for _ in 0..1 + rng.below(5) / 4 {
        let mut at = rng.below(count(&tokens).max(1)) as isize;
        tokens = change(tokens, &mut at, rng, &donors);
    }
    tokens
}

/// Number of tokens, those in groups included.
fn count(tokens: &TokenStream) -> usize {
    tokens.clone().into_iter().map(|t| 1 + if let TokenTree::Group(g) = &t { count(&g.stream()) } else { 0 }).sum()
}

/// Tokens of a stream, through groups.
fn flatten(tokens: &TokenStream, found: &mut Vec<TokenTree>) {
    for token in tokens.clone() {
        if let TokenTree::Group(group) = &token {
            flatten(&group.stream(), found);
        }
        found.push(token);
    }
}

/// Applies one change at token `at`, counted through groups.
fn change(tokens: TokenStream, at: &mut isize, rng: &mut Rng, donors: &[TokenTree]) -> TokenStream {
    let mut out: Vec<TokenTree> = Vec::new();
    let mut pending: Option<TokenTree> = None;
    for token in tokens {
        let here = *at == 0;
        *at -= 1;
        let token = match token {
            TokenTree::Group(group) if !here => {
                let inner = change(group.stream(), at, rng, donors);
                TokenTree::Group(Group::new(group.delimiter(), inner))
            }
            other => other,
        };
        if here {
            // A number is as often one at which arithmetic turns over.
            let number = matches!(token, TokenTree::Literal(_)) && rng.coin();
            match if number { 6 } else { rng.below(20) } {
                8.. => {
                    let same = |t: &&TokenTree| std::mem::discriminant(*t) == std::mem::discriminant(&token);
                    let alike: Vec<&TokenTree> = donors.iter().filter(same).collect();
                    out.push(alike.get(rng.below(alike.len().max(1))).map_or(token, |t| (*t).clone()));
                }
                0 => continue,
                1 => out.extend([token.clone(), token]),
                2 => {
                    pending = Some(token);
                    continue;
                }
                3 => out.push(donors[rng.below(donors.len())].clone()),
                4 => out.extend([token, donors[rng.below(donors.len())].clone()]),
                5 => out.push(TokenTree::Group(Group::new(Delimiter::Parenthesis, token.into()))),
                6 => match rng.choose(&LITERALS).parse::<TokenStream>() {
                    Ok(literal) => out.extend(literal),
                    Err(_) => out.push(TokenTree::Literal(Literal::u32_unsuffixed(7))),
                },
                7 => out.extend(rng.choose(&NAMES).parse::<TokenStream>().into_iter().flatten()),
            }
            continue;
        }
        out.push(token);
        out.extend(pending.take());
    }
    out.extend(pending);
    out.into_iter().collect()
}
