//! `const` items, in any order, and values of a declared type.

use super::eval::{elem, length};
use super::{Const, Names, Scope, eval, fit, float};
use crate::diag::{Diagnostic, Result};
use crate::syntax::text;
use kda_core::arch::Reach;
use kda_core::{Arch, Elem};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// The number that `ARCH` and the names `sm_90`, `sm_90a`, `sm_100f` stand for in constant expressions: ten times the
/// compute capability's number, plus 1 for `f` and 2 for `a`. So `ARCH >= sm_100` and `ARCH == sm_90a` mean what they say.
pub fn arch_number(arch: Arch) -> i128 {
    let reach = match arch.reach {
        Reach::Forward => 0,
        Reach::Family => 1,
        Reach::Exact => 2,
    };
    i128::from(arch.major) * 100 + i128::from(arch.minor) * 10 + reach
}

/// The constants of a module or of a library, by name. An item may use items below it; `outer` gives all other names.
pub fn const_items<'a>(items: &[syn::ItemConst], outer: &'a dyn Names) -> Result<Scope<'a>> {
    let mut scope = Scope::within(outer);
    let mut open = Vec::new();
    for at in 0..items.len() {
        define(at, items, &mut scope, &mut open)?;
    }
    Ok(scope)
}

/// Defines item `at` after the items that it uses. `open` holds the items whose value is being looked for.
fn define(at: usize, items: &[syn::ItemConst], scope: &mut Scope<'_>, open: &mut Vec<usize>) -> Result<()> {
    let item = &items[at];
    let name = item.ident.to_string();
    if scope.own().any(|(known, _)| known == name) {
        return Ok(());
    }
    if open.contains(&at) {
        let chain: Vec<String> = open.iter().chain([&at]).map(|&i| format!("`{}`", items[i].ident)).collect();
        let message = format!("`{name}` needs its own value: {}", chain.join(" uses "));
        return Err(Diagnostic::at(211, &item.ident, message));
    }
    open.push(at);
    let mut used = Used(Vec::new());
    used.visit_expr(&item.expr);
    used.visit_type(&item.ty);
    for name in used.0 {
        if let Some(other) = items.iter().position(|i| i.ident == name.as_str()) {
            define(other, items, scope, open)?;
        }
    }
    let value = coerce(eval(&item.expr, scope)?, &item.ty, scope).map_err(|e| e.over(&item.expr))?;
    scope.define(name, value);
    open.pop();
    Ok(())
}

/// Names that an expression uses.
struct Used(Vec<String>);

impl<'ast> Visit<'ast> for Used {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        if let Some(ident) = path.get_ident() {
            self.0.push(ident.to_string());
        }
        visit::visit_path(self, path);
    }
}

/// A value as one of the declared type: `u32`, `[f32; 4]`, `(u32, bool)`. Untyped numbers take the type; a number of
/// another type is an error.
pub fn coerce(value: Const, ty: &syn::Type, names: &dyn Names) -> Result<Const> {
    let written = || text::tokens(ty.to_token_stream());
    let refuse = |value: &Const| {
        Diagnostic::at(212, ty, format!("the value is {}; `{}` is declared", value.describe(), written()))
    };
    match (ty, value) {
        (syn::Type::Paren(inner), value) => coerce(value, &inner.elem, names),
        (syn::Type::Group(inner), value) => coerce(value, &inner.elem, names),
        (syn::Type::Array(array), Const::Array(items)) => {
            let len = length(&array.len, names)?;
            if len != items.len() {
                let message = format!("the value has {} elements; `{}` is declared", items.len(), written());
                return Err(Diagnostic::at(212, ty, message));
            }
            items.into_iter().map(|item| coerce(item, &array.elem, names)).collect::<Result<_>>().map(Const::Array)
        }
        (syn::Type::Tuple(tuple), Const::Tuple(items)) if tuple.elems.len() == items.len() => items
            .into_iter()
            .zip(&tuple.elems)
            .map(|(item, ty)| coerce(item, ty, names))
            .collect::<Result<_>>()
            .map(Const::Tuple),
        (syn::Type::Path(path), Const::Elem(elem)) if path.path.is_ident("Elem") => Ok(Const::Elem(elem)),
        (syn::Type::Path(_), value) => {
            typed(value.clone(), elem(ty, names)?, ty.span()).unwrap_or_else(|| Err(refuse(&value)))
        }
        (_, value) => Err(refuse(&value)),
    }
}

/// The number or boolean as a value of `ty`; `None` if it is of another kind or type.
fn typed(value: Const, ty: Elem, span: proc_macro2::Span) -> Option<Result<Const>> {
    match value {
        Const::Bool(value) if ty == Elem::Bool => Some(Ok(Const::Bool(value))),
        Const::Int(value, from) if ty.is_integer() && from.is_none_or(|from| from == ty) => {
            Some(fit(value, Some(ty), span))
        }
        Const::Float(value, from) if ty.is_float() && from.is_none_or(|from| from == ty) => {
            Some(Ok(Const::Float(float::round(value, ty), Some(ty))))
        }
        _ => None,
    }
}

/// The constant as a value of an element type; an error at `span` if it is no such value.
pub(crate) fn as_elem(value: Const, ty: Elem, span: proc_macro2::Span) -> Result<Const> {
    let what = value.describe();
    typed(value, ty, span)
        .unwrap_or_else(|| Err(Diagnostic::new(212, span, format!("the value is {what}; {ty} is declared"))))
}
