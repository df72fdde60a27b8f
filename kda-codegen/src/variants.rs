//! Variants: the rows of `#[variants]` multiplied out, one set of constants an entry.
//!
//! The axes run in source order, the last one fastest, once for each architecture. An entry is the kernel's name, `__`,
//! and one part for each generic in the order of the axes: `bm128` for an integer (`bmm1` for -1), the name for a true
//! boolean, `no` and the name for a false one, the type for an element type. As every entry of a kernel has the same
//! parts in the same order, two entries differ if their constants do. A kernel module for several architectures adds the
//! architecture: `gemm__bm128_sm_90a`. A kernel without variants has one entry with its own name.

use crate::consteval::{self, Const, Names, Scope};
use crate::diag::{Diagnostic, Errors, Results, ends};
use crate::syntax::{Family, Generic, GenericKind, Kernel, VariantAxis, text};
use kda_core::Arch;
use proc_macro2::Span;
use syn::Ident;

/// Most variants of a kernel.
pub const MOST: usize = 1000;

/// One variant of a kernel.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Name of the PTX entry.
    pub entry: String,
    /// Parts of the entry after the kernel's name, empty for a kernel without variants.
    pub parts: Vec<String>,
    /// Target.
    pub arch: Arch,
    /// Value of each generic, in the order of the axes.
    pub bindings: Vec<(String, Const)>,
    /// The row of each axis that this variant has, for errors about it; the kernel's name if there is no axis.
    pub rows: Vec<Span>,
}

impl Variant {
    /// The names of this variant: its generics and the constants of the module and of its libraries.
    pub fn scope<'a>(&self, constants: &'a dyn Names) -> Scope<'a> {
        let mut scope = Scope::within(constants);
        for (name, value) in &self.bindings {
            scope.define(name.as_str(), value.clone());
        }
        scope
    }
}

/// Constants that every kernel of the family sees on `arch`: `ARCH`, `NAME` of the module, `library::NAME` of its
/// libraries.
pub fn constants(family: &Family, arch: Arch) -> crate::diag::Result<Scope<'static>> {
    let mut all = arch_scope(arch);
    for library in &family.libraries {
        let outer = arch_scope(arch);
        for (name, value) in consteval::const_items(&library.consts, &outer)?.own() {
            all.define(format!("{}::{name}", library.name), value.clone());
        }
    }
    let own: Vec<(String, Const)> = consteval::const_items(&family.consts, &all)?
        .own()
        .map(|(name, value)| (name.to_string(), value.clone()))
        .collect();
    for (name, value) in own {
        all.define(name, value);
    }
    Ok(all)
}

/// Constants that the functions of `library` see on `arch`: `ARCH` and the library's own, and those of
/// [`constants`] by their full names.
pub fn library_constants(family: &Family, library: &Ident, arch: Arch) -> crate::diag::Result<Scope<'static>> {
    let mut all = Scope::new();
    for (name, value) in constants(family, arch)?.own().filter(|(name, _)| name.contains("::") || *name == "ARCH") {
        all.define(name, value.clone());
        if let Some(own) = name.strip_prefix(&format!("{library}::")) {
            all.define(own, value.clone());
        }
    }
    Ok(all)
}

fn arch_scope(arch: Arch) -> Scope<'static> {
    let mut scope = Scope::new();
    scope.define("ARCH", Const::Int(consteval::arch_number(arch), None));
    scope
}

/// The variants of a kernel, at least one.
pub fn expand(family: &Family, kernel: &Kernel) -> Results<Vec<Variant>> {
    let mut errors = Errors::new();
    check_names(kernel, &mut errors);
    if !errors.is_empty() {
        return errors.finish_some(None);
    }
    let mut variants = Vec::new();
    for &(arch, _) in &family.arch {
        let constants = constants(family, arch).map_err(|error| vec![*error])?;
        let axes =
            kernel.variants.axes.iter().map(|axis| axis_rows(axis, kernel, &constants)).collect::<Results<_>>()?;
        product(family, kernel, arch, axes, &constants, &mut variants)?;
    }
    let place = kernel.variants.axes.first().map_or(kernel.name.span(), |axis| axis.names[0].span());
    if variants.is_empty() {
        let error = Diagnostic::new(216, place, format!("`skip_if` leaves no variant of `{}`", kernel.name));
        return Err(vec![*error]);
    }
    if variants.len() > MOST {
        return Err(vec![*too_many(kernel, variants.len(), place)]);
    }
    Ok(variants)
}

fn too_many(kernel: &Kernel, count: usize, place: Span) -> Box<Diagnostic> {
    Diagnostic::new(219, place, format!("`{}` has {count} variants; at most {MOST} are possible", kernel.name))
        .help("leave combinations out with `skip_if(…)`, or turn an axis into a launch parameter")
}

/// Every name of an axis is a generic, and every generic is in one axis.
fn check_names(kernel: &Kernel, errors: &mut Errors) {
    let mut set: Vec<&Ident> = Vec::new();
    for name in kernel.variants.axes.iter().flat_map(|axis| &axis.names) {
        if !kernel.generics.iter().any(|g| g.name == *name) {
            errors.push(
                Diagnostic::at(213, name, format!("`{name}` is no generic of `{}`", kernel.name))
                    .help(format!("add `const {name}: u32` or `{name}: Elem` to its generics, or correct the name")),
            );
        } else if let Some(first) = set.iter().find(|n| **n == name) {
            let error = Diagnostic::at(218, name, format!("two axes set `{name}`"));
            errors.push(error.note(first.span(), "set first here"));
        }
        set.push(name);
    }
    for generic in kernel.generics.iter().filter(|g| !set.contains(&&g.name)) {
        let name = &generic.name;
        errors.push(
            Diagnostic::at(214, name, format!("no axis of `#[variants]` sets `{name}`"))
                .help(format!("add an axis: `{name} in [{}]`", example(generic.kind))),
        );
    }
}

fn example(kind: GenericKind) -> &'static str {
    match kind {
        GenericKind::Int(_) => "1, 2",
        GenericKind::Bool => "true, false",
        GenericKind::Elem => "bf16, f32",
    }
}

/// An evaluated row: one value a name, and where it stands.
type Row = (Vec<Const>, Span);

fn axis_rows(axis: &VariantAxis, kernel: &Kernel, constants: &Scope<'_>) -> Results<Vec<Row>> {
    let mut errors = Errors::new();
    let mut rows: Vec<Row> = Vec::new();
    for cells in &axis.rows {
        let mut values = Vec::new();
        for (cell, name) in cells.iter().zip(&axis.names) {
            let generic = kernel.generics.iter().find(|g| g.name == *name);
            let value = consteval::eval(cell, constants).and_then(|v| match generic {
                Some(generic) => typed(generic, v, cell),
                None => Ok(v),
            });
            values.extend(errors.take(value));
        }
        if values.len() < axis.names.len() {
            continue;
        }
        let (start, end) = (ends(&cells[0]).0, cells.last().map_or_else(Span::call_site, |c| ends(c).1));
        if let Some((_, first)) = rows.iter().find(|(known, _)| *known == values) {
            let mut error = Diagnostic::new(215, start, format!("the row ({}) stands twice", list(&values)));
            error.end = end;
            errors.push(error.note(*first, "it stands first here"));
        } else {
            rows.push((values, start));
        }
    }
    errors.finish(rows)
}

fn list(values: &[Const]) -> String {
    values.iter().map(Const::to_string).collect::<Vec<_>>().join(", ")
}

/// The value as one of the generic's kind.
fn typed(generic: &Generic, value: Const, cell: &syn::Expr) -> crate::diag::Result<Const> {
    let (name, what) = (&generic.name, value.describe());
    let kind = match (generic.kind, &value) {
        (GenericKind::Int(ty), Const::Int(..)) => {
            return consteval::as_elem(value, ty, ends(cell).0).map_err(|error| error.over(cell));
        }
        (GenericKind::Bool, Const::Bool(_)) | (GenericKind::Elem, Const::Elem(_)) => return Ok(value),
        (GenericKind::Int(ty), _) => format!("a {ty}"),
        (GenericKind::Bool, _) => "a boolean".to_string(),
        (GenericKind::Elem, _) => "an element type".to_string(),
    };
    Err(Diagnostic::at(212, cell, format!("`{}` is {what}; `{name}` is {kind}", text::expr(cell)))
        .note(name.span(), format!("`{name}` is declared here")))
}

/// Adds the product of the axes without the combinations that `skip_if` leaves out.
fn product(
    family: &Family,
    kernel: &Kernel,
    arch: Arch,
    axes: Vec<Vec<Row>>,
    constants: &Scope<'static>,
    variants: &mut Vec<Variant>,
) -> Results<()> {
    // Combinations that are looked at, before `skip_if`.
    const MOST_COMBINATIONS: usize = 100_000;
    let count = axes.iter().try_fold(1usize, |count, rows| count.checked_mul(rows.len())).unwrap_or(usize::MAX);
    if count > MOST_COMBINATIONS {
        let place = kernel.variants.axes[0].names[0].span();
        return Err(vec![*too_many(kernel, count, place)]);
    }
    'combinations: for index in 0..count {
        let mut rest = index;
        let mut chosen: Vec<&Row> = Vec::with_capacity(axes.len());
        for rows in axes.iter().rev() {
            chosen.push(&rows[rest % rows.len()]);
            rest /= rows.len();
        }
        chosen.reverse();
        let names = kernel.variants.axes.iter().flat_map(|axis| &axis.names);
        let values = chosen.iter().flat_map(|(values, _)| values.iter().cloned());
        let bindings: Vec<(String, Const)> = names.map(Ident::to_string).zip(values).collect();
        let mut rows: Vec<Span> = chosen.iter().map(|(_, span)| *span).collect();
        if rows.is_empty() {
            rows.push(kernel.name.span());
        }
        let mut parts: Vec<String> = bindings.iter().map(|(name, value)| part(name, value)).collect();
        if family.arch.len() > 1 {
            parts.push(arch.to_string());
        }
        let entry = match parts.is_empty() {
            true => kernel.name.to_string(),
            false => format!("{}__{}", kernel.name, parts.join("_")),
        };
        let variant = Variant { entry, parts, arch, bindings, rows };
        let mut scope = variant.scope(constants);
        for param in &kernel.params {
            scope.explain(param.name.to_string(), "a launch parameter");
        }
        for condition in &kernel.variants.skip_if {
            if consteval::condition(condition, &scope).map_err(|error| vec![*error])? {
                continue 'combinations;
            }
        }
        variants.push(variant);
    }
    Ok(())
}

/// The part of an entry's name that one generic gives.
fn part(name: &str, value: &Const) -> String {
    let name = name.to_lowercase();
    match value {
        Const::Int(value, _) if *value < 0 => format!("{name}m{}", value.unsigned_abs()),
        Const::Bool(true) => name,
        Const::Bool(false) => format!("no{name}"),
        Const::Elem(elem) => elem.to_string(),
        other => format!("{name}{other}"),
    }
}

#[cfg(test)]
mod tests;
