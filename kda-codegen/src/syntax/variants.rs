//! `#[variants((BM, BN) in [(64, 8), (128, 16)], T in 1..=8, skip_if(BM == 64 && T > 4))]`.

use super::ast::{VariantAxis, Variants};
use super::{attrs, text};
use crate::diag::{Diagnostic, Errors, Result, Results};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, Ident, Lit, LitInt, RangeLimits, Token, parenthesized, token};

const VARIANTS: &str = "#[variants((BM, BN) in [(64, 8), (128, 16)], T in 1..=8, OUT in [bf16, f32], skip_if(T > 4))]";
/// Rows of one axis.
const MOST_ROWS: i128 = 1000;

/// The variants of a kernel.
pub(super) fn variants(attr: &Attribute) -> Results<Variants> {
    let mut errors = Errors::new();
    let mut variants = Variants::default();
    let list = attrs::arguments(attr, VARIANTS)
        .and_then(|tokens| attrs::parse(Punctuated::<Entry, Token![,]>::parse_terminated, tokens, attr, VARIANTS));
    for entry in errors.take(list).into_iter().flatten() {
        match entry {
            Entry::SkipIf(expr) => variants.skip_if.push(expr),
            Entry::Axis(names, values) => {
                if let Some(rows) = errors.take_all(rows(&names, &values)) {
                    variants.axes.push(VariantAxis { names, rows });
                }
            }
        }
    }
    if variants.axes.is_empty() && errors.is_empty() {
        let error = Diagnostic::at(216, attr, "`#[variants]` has no axis");
        errors.push(error.help(format!("the form is `{VARIANTS}`; a kernel without variants has no such attribute")));
    }
    errors.finish(variants)
}

enum Entry {
    Axis(Vec<Ident>, Expr),
    SkipIf(Expr),
}

impl Parse for Entry {
    fn parse(input: ParseStream<'_>) -> syn::Result<Entry> {
        let content;
        if input.peek(token::Paren) {
            parenthesized!(content in input);
            let names = Punctuated::<Ident, Token![,]>::parse_terminated(&content)?;
            if names.is_empty() {
                return Err(content.error("expected the name of a generic"));
            }
            input.parse::<Token![in]>()?;
            return Ok(Entry::Axis(names.into_iter().collect(), input.parse()?));
        }
        let name: Ident = input.parse()?;
        if name == "skip_if" {
            parenthesized!(content in input);
            let expr = content.parse()?;
            if !content.is_empty() {
                return Err(content.error("expected one condition"));
            }
            return Ok(Entry::SkipIf(expr));
        }
        input.parse::<Token![in]>()?;
        Ok(Entry::Axis(vec![name], input.parse()?))
    }
}

/// The rows of an axis, with ranges written out.
fn rows(names: &[Ident], values: &Expr) -> Results<Vec<Vec<Expr>>> {
    let mut errors = Errors::new();
    let elements: Vec<&Expr> = match values {
        Expr::Array(array) => array.elems.iter().collect(),
        range @ Expr::Range(_) if names.len() == 1 => vec![range],
        other => {
            let error = Diagnostic::at(103, other, "the values of an axis are a list or a range");
            return Err(vec![*error.help("write `T in [1, 2, 4]` or `T in 1..=8`")]);
        }
    };
    let mut rows: Vec<Vec<Expr>> = Vec::new();
    for element in elements {
        let cells: Vec<&Expr> = match element {
            Expr::Tuple(tuple) if names.len() > 1 => tuple.elems.iter().collect(),
            Expr::Paren(paren) if names.len() == 1 => vec![&paren.expr],
            other => vec![other],
        };
        if cells.len() != names.len() {
            let list: Vec<String> = names.iter().map(Ident::to_string).collect();
            let message = format!("`{}` gives {} of {} values", text::expr(element), cells.len(), names.len());
            errors
                .push(Diagnostic::at(217, element, message).help(format!("one value each for ({})", list.join(", "))));
            continue;
        }
        // The product of the cells, so that a range may stand in a row.
        let mut product: Vec<Vec<Expr>> = vec![Vec::new()];
        for cell in cells {
            let Some(values) = errors.take(written_out(cell)) else { continue };
            product = product
                .iter()
                .flat_map(|row| values.iter().map(|v| [&row[..], std::slice::from_ref(v)].concat()))
                .collect();
            if product.len() as i128 > MOST_ROWS {
                let message = format!("the row stands for more than {MOST_ROWS} combinations");
                errors.push(Diagnostic::at(219, element, message));
                break;
            }
        }
        rows.extend(product);
    }
    if rows.is_empty() && errors.is_empty() {
        errors.push(Diagnostic::at(216, values, "the axis has no values, so there are no variants"));
    }
    errors.finish(rows)
}

/// A value, or the integers of a range.
fn written_out(cell: &Expr) -> Result<Vec<Expr>> {
    let Expr::Range(range) = cell else { return Ok(vec![cell.clone()]) };
    let ends = |expr: &Option<Box<Expr>>| match expr.as_deref() {
        Some(Expr::Lit(lit)) => match &lit.lit {
            Lit::Int(value) => value.base10_parse::<u32>().ok().map(i128::from),
            _ => None,
        },
        _ => None,
    };
    let (Some(first), Some(last)) = (ends(&range.start), ends(&range.end)) else {
        let error = Diagnostic::at(103, cell, format!("`{}` is no range of an axis", text::expr(cell)));
        return Err(error.help("both ends are integer literals: `1..=8`"));
    };
    let last = if matches!(range.limits, RangeLimits::Closed(_)) { last } else { last - 1 };
    if last < first {
        return Err(Diagnostic::at(216, cell, format!("the range `{}` is empty", text::expr(cell))));
    }
    if last - first >= MOST_ROWS {
        return Err(Diagnostic::at(219, cell, format!("the range has more than {MOST_ROWS} values")));
    }
    let span = crate::diag::ends(cell).0;
    let literal = |value: i128| {
        let lit = Lit::Int(LitInt::new(&value.to_string(), span));
        Expr::Lit(syn::ExprLit { attrs: Vec::new(), lit })
    };
    Ok((first..=last).map(literal).collect())
}
