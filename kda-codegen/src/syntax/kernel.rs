//! Kernels: `#[kernel]`, `#[requires]` and the signature.

use super::ast::Kernel;
use super::{attrs, function, params, roles, variants};
use crate::diag::{Diagnostic, Errors, Results};
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, ReturnType, Token};

const KERNEL: &str = "#[kernel(block = 512, grid = n / 8, min_blocks_per_sm = 2, max_registers = 128)]";
const REQUIRES: &str = "#[requires(n >= 1, d % 8 == 0)]";

/// A kernel; `attr` is its `#[kernel(…)]`.
pub(super) fn kernel(attr: &Attribute, item: syn::ItemFn) -> Results<Kernel> {
    let mut errors = Errors::new();
    let known = ["kernel", "roles", "variants", "requires"];
    for attr in item.attrs.iter().filter(|attr| !attrs::is_inert(attr)) {
        if !known.iter().any(|name| attr.path().is_ident(name)) {
            errors.push(attrs::unknown(attr, "a kernel", "#[roles], #[variants], #[requires]"));
        }
    }
    function::plain_signature(&item, &mut errors);
    if let ReturnType::Type(_, ty) = &item.sig.output {
        let error = Diagnostic::at(108, ty, "a kernel returns nothing");
        errors.push(error.help("write results through a `GlobalMut` parameter"));
    }
    let name = item.sig.ident.to_string();
    if name.contains("__") || name.starts_with("r#") {
        let message = format!("`{name}` cannot be the name of a kernel");
        errors.push(
            Diagnostic::at(119, &item.sig.ident, message)
                .help("`__` separates a kernel's name from its variant's, and keywords are no PTX names"),
        );
    }

    let mut launch = Launch::default();
    if let Some(tokens) = errors.take(attrs::arguments(attr, KERNEL)) {
        let mut own = Errors::new();
        let arguments = ["block", "grid", "cluster", "min_blocks_per_sm", "max_registers"];
        for pair in attrs::pairs(tokens, attr, KERNEL, &arguments, &mut own) {
            launch.set(pair, &mut own);
        }
        // An argument that could not be read is not missing as well.
        if own.is_empty() {
            launch.missing(attr, &mut own);
        }
        errors.append(own);
    }

    let roles = attrs::single(&item.attrs, "roles", &mut errors)
        .and_then(|attr| errors.take_all(roles::roles(attr)))
        .unwrap_or_default();
    let variants = attrs::single(&item.attrs, "variants", &mut errors)
        .and_then(|attr| errors.take_all(variants::variants(attr)))
        .unwrap_or_default();
    let requires = item
        .attrs
        .iter()
        .filter(|attr| attr.path().is_ident("requires"))
        .flat_map(|attr| requires(attr, &mut errors))
        .collect();
    let generics = function::generics(&item.sig.generics, &mut errors);
    let params = item.sig.inputs.iter().flat_map(|input| params::params(input, &generics, &mut errors)).collect();
    let kernel = launch.block.map(|block| Kernel {
        docs: attrs::docs(&item.attrs),
        name: item.sig.ident,
        block,
        grid: launch.grid,
        cluster: launch.cluster,
        min_blocks_per_sm: launch.min_blocks_per_sm,
        max_registers: launch.max_registers,
        roles,
        variants,
        requires,
        generics,
        params,
        body: *item.block,
    });
    errors.finish_some(kernel)
}

/// Arguments of `#[kernel]`.
#[derive(Default)]
struct Launch {
    block: Option<Expr>,
    grid: Vec<Expr>,
    cluster: Option<Expr>,
    min_blocks_per_sm: Option<Expr>,
    max_registers: Option<Expr>,
}

impl Launch {
    fn set(&mut self, pair: attrs::Pair, errors: &mut Errors) {
        match pair.name.to_string().as_str() {
            "block" => self.block = Some(pair.value),
            "grid" => {
                self.grid = match &pair.value {
                    Expr::Array(array) => array.elems.iter().cloned().collect(),
                    other => vec![other.clone()],
                };
                if !(1..=3).contains(&self.grid.len()) {
                    let message = format!("a grid has one to three axes, given {}", self.grid.len());
                    errors.push(Diagnostic::at(120, &pair.value, message).help("write `grid = [x, y, z]`, x fastest"));
                }
            }
            "cluster" => self.cluster = Some(pair.value),
            "min_blocks_per_sm" => self.min_blocks_per_sm = Some(pair.value),
            _ => self.max_registers = Some(pair.value),
        }
    }

    fn missing(&self, attr: &Attribute, errors: &mut Errors) {
        let missing = [("block", self.block.is_none()), ("grid", self.grid.is_empty())];
        for (name, _) in missing.iter().filter(|(_, missing)| *missing) {
            let message = format!("`{name}` is missing");
            errors.push(Diagnostic::at(106, attr, message).help(format!("the form is `{KERNEL}`")));
        }
    }
}

fn requires(attr: &Attribute, errors: &mut Errors) -> Vec<Expr> {
    let list = attrs::arguments(attr, REQUIRES)
        .and_then(|tokens| attrs::parse(Punctuated::<Expr, Token![,]>::parse_terminated, tokens, attr, REQUIRES));
    errors.take(list).into_iter().flatten().collect()
}
