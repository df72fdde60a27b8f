//! Kernel modules and device libraries.

use super::ast::{DeviceFn, Family, Kernel, Library};
use super::{attrs, depth, function, kernel, text};
use crate::diag::{Diagnostic, Errors, Results};
use kda_core::Arch;
use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use std::collections::HashMap;
use syn::{AttrStyle, Expr, Ident, Item};

const KERNELS: &str = "#[kernels(arch = sm_90, uses = [crate::device::math])]";

/// Arguments of `#[kernels(…)]`.
#[derive(Clone, Debug)]
pub struct ModuleArgs {
    /// `arch = sm_90`, `arch = [sm_90, sm_100f]`; at least one.
    pub arch: Vec<(Arch, Span)>,
    /// `uses = [crate::device::math]`
    pub uses: Vec<syn::Path>,
}

/// Parses the arguments of `#[kernels(…)]`.
pub fn module_args(tokens: TokenStream) -> Results<ModuleArgs> {
    let mut errors = Errors::new();
    let mut args = ModuleArgs { arch: Vec::new(), uses: Vec::new() };
    let pairs = attrs::pairs(tokens, &TokenStream::new(), KERNELS, &["arch", "uses"], &mut errors);
    let readable = errors.is_empty();
    for pair in &pairs {
        let items = match &pair.value {
            Expr::Array(array) => array.elems.iter().collect(),
            other => vec![other],
        };
        if pair.name == "arch" {
            for item in items {
                architecture(item, &mut args.arch, &mut errors);
            }
            if args.arch.is_empty() && errors.is_empty() {
                errors
                    .push(Diagnostic::at(116, pair, "the list of architectures is empty").help("write `arch = sm_90`"));
            }
        } else {
            for item in items {
                match item {
                    Expr::Path(path) if path.qself.is_none() => args.uses.push(path.path.clone()),
                    other => errors.push(
                        Diagnostic::at(117, other, format!("`{}` is no path to a device library", text::expr(other)))
                            .help("write the path of its module: `uses = [crate::device::math]`"),
                    ),
                }
            }
        }
    }
    if readable && !pairs.iter().any(|p| p.name == "arch") {
        let message = "`arch` is missing: the architecture that the kernels are written for";
        errors.push(Diagnostic::new(106, Span::call_site(), message).help(format!("the form is `{KERNELS}`")));
    }
    errors.finish(args)
}

fn architecture(item: &Expr, found: &mut Vec<(Arch, Span)>, errors: &mut Errors) {
    let name = text::expr(item);
    let Some(arch) = Arch::from_name(&name) else {
        errors.push(
            Diagnostic::at(116, item, format!("`{name}` is no architecture"))
                .help("name a PTX target: sm_80, sm_90, sm_90a, sm_100, sm_100a, sm_100f, sm_103a, sm_120, sm_120a"),
        );
        return;
    };
    let span = crate::diag::ends(item).0;
    match found.iter().find(|(known, _)| *known == arch) {
        Some((_, first)) => {
            errors.push(Diagnostic::at(116, item, format!("`{name}` is given twice")).note(*first, "given first here"));
        }
        None => found.push((arch, span)),
    }
}

/// Parses a kernel module. `libraries` are the modules of the device libraries in `uses`, in that order.
pub fn family(args: ModuleArgs, item: TokenStream, libraries: Vec<TokenStream>) -> Results<Family> {
    let mut errors = Errors::new();
    let Some(module) = errors.take_all(inline_module(item, "#[kernels]")) else { return errors.finish_some(None) };
    attrs::only_inert(&module.attrs, "a kernel module", &mut errors);
    let mut family = Family {
        name: module.name,
        vis: module.vis,
        attrs: module.attrs.into_iter().filter(attrs::is_inert).collect(),
        arch: args.arch,
        consts: Vec::new(),
        libraries: Vec::new(),
        devices: Vec::new(),
        kernels: Vec::new(),
    };
    for tokens in libraries {
        if let Some((library, functions)) = errors.take_all(device_library(tokens)) {
            if let Some(first) = family.libraries.iter().find(|l| l.name == library.name) {
                let message = format!("two device libraries are called `{}`", library.name);
                errors.push(Diagnostic::at(113, &library.name, message).note(first.name.span(), "the other one"));
            } else {
                family.libraries.push(library);
                family.devices.extend(functions);
            }
        }
    }
    for item in module.items {
        module_item(item, &mut family, &mut errors);
    }
    let consts: Vec<Ident> = family.consts.iter().map(|item| item.ident.clone()).collect();
    for kernel in &family.kernels {
        unique_within(kernel_names(kernel), &consts, &mut errors);
    }
    for device in &family.devices {
        let own = match &device.library {
            Some(name) => family.libraries.iter().find(|l| l.name == *name).map(|l| &l.consts),
            None => Some(&family.consts),
        };
        let outer: Vec<Ident> = own.into_iter().flatten().map(|item| item.ident.clone()).collect();
        unique_within(device_names(device), &outer, &mut errors);
    }
    let functions = family.devices.iter().filter(|d| d.library.is_none()).map(|d| d.name.clone());
    unique_within(
        functions.chain(family.kernels.iter().map(|k| k.name.clone())).chain(consts).collect(),
        &[],
        &mut errors,
    );
    if family.kernels.is_empty() && errors.is_empty() {
        let message = format!("the module `{}` has no kernel", family.name);
        errors.push(
            Diagnostic::at(118, &family.name, message)
                .help("mark one function with `#[kernel(block = …, grid = …)]`, or make the module a `#[device_lib]`"),
        );
    }
    errors.finish(family)
}

fn module_item(item: Item, family: &mut Family, errors: &mut Errors) {
    match item {
        Item::Const(item) => family.consts.extend(constant(item, errors)),
        Item::Fn(item) => {
            let kernel = attrs::single(&item.attrs, "kernel", errors).cloned();
            let device = attrs::single(&item.attrs, "device", errors).cloned();
            match (kernel, device) {
                (Some(kernel), None) => family.kernels.extend(errors.take_all(kernel::kernel(&kernel, item))),
                (None, Some(device)) => {
                    if !matches!(device.meta, syn::Meta::Path(_)) {
                        errors.push(Diagnostic::at(103, &device, "`#[device]` takes no arguments"));
                    }
                    family.devices.extend(errors.take_all(function::device(item, None)));
                }
                (Some(_), Some(device)) => {
                    let message = format!("`{}` is both a kernel and a device function", item.sig.ident);
                    errors.push(Diagnostic::at(107, &device, message).help("keep one of the two attributes"));
                }
                (None, None) => errors.push(
                    Diagnostic::at(
                        107,
                        &item.sig.ident,
                        format!("`{}` is neither kernel nor device function", item.sig.ident),
                    )
                    .help("mark it with `#[device]` or with `#[kernel(block = …, grid = …)]`"),
                ),
            }
        }
        other => {
            errors.push(foreign_item(&other, "a kernel module", "`const` items, `#[device]` and `#[kernel]` functions"))
        }
    }
}

/// Parses the module of a device library: constants and functions, all of them device functions.
pub fn device_library(item: TokenStream) -> Results<(Library, Vec<DeviceFn>)> {
    let mut errors = Errors::new();
    let Some(module) = errors.take_all(inline_module(item, "#[device_lib]")) else { return errors.finish_some(None) };
    attrs::only_inert(&module.attrs, "a device library", &mut errors);
    let mut library = Library { name: module.name, consts: Vec::new() };
    let mut functions: Vec<DeviceFn> = Vec::new();
    for item in module.items {
        match item {
            Item::Const(item) => library.consts.extend(constant(item, &mut errors)),
            Item::Fn(item) if item.attrs.iter().any(|attr| attr.path().is_ident("kernel")) => errors.push(
                Diagnostic::at(107, &item.sig.ident, "a device library has no kernels")
                    .help("move it into a `#[kernels]` module that names this library in `uses`"),
            ),
            Item::Fn(item) => functions.extend(errors.take_all(function::device(item, Some(&library.name)))),
            other => errors.push(foreign_item(&other, "a device library", "`const` items and functions")),
        }
    }
    let names = functions.iter().map(|f| f.name.clone()).chain(library.consts.iter().map(|c| c.ident.clone()));
    unique_within(names.collect(), &[], &mut errors);
    errors.finish((library, functions))
}

/// A kernel module from source text: `#[kernels(…)] mod …`, preceded by the device libraries that it uses, if any. For
/// tests and tools.
pub fn parse_family(source: &str) -> Results<Family> {
    let mut errors = Errors::new();
    let tokens: TokenStream = match source.parse() {
        Ok(tokens) => tokens,
        Err(error) => return Err(vec![*syntax_error(&syn::Error::from(error))]),
    };
    depth::check(&tokens).map_err(|error| vec![*error])?;
    let file = match syn::parse2::<syn::File>(tokens) {
        Ok(file) => file,
        Err(error) => return Err(vec![*syntax_error(&error)]),
    };
    let (mut libraries, mut kernels) = (Vec::new(), None);
    for item in file.items {
        let Item::Mod(mut module) = item else {
            errors.push(Diagnostic::at(114, &item, "only modules can stand here"));
            continue;
        };
        let macro_name = |attr: &syn::Attribute| attr.path().segments.last().map(|s| s.ident.to_string());
        let position = |name: &str, module: &syn::ItemMod| {
            module.attrs.iter().position(|attr| macro_name(attr).as_deref() == Some(name))
        };
        if let Some(at) = position("device_lib", &module) {
            module.attrs.remove(at);
            libraries.push(module.into_token_stream());
        } else if let Some(at) = position("kernels", &module) {
            let attr = module.attrs.remove(at);
            kernels = errors.take(attrs::arguments(&attr, KERNELS)).map(|args| (args, module.into_token_stream()));
        } else {
            errors.push(Diagnostic::at(114, &module.ident, "the module is neither `#[kernels]` nor `#[device_lib]`"));
        }
    }
    let Some((args, module)) = kernels else {
        if errors.is_empty() {
            errors.push(Diagnostic::new(114, Span::call_site(), "there is no `#[kernels]` module"));
        }
        return errors.finish_some(None);
    };
    let family = errors.take_all(module_args(args)).and_then(|args| errors.take_all(family(args, module, libraries)));
    errors.finish_some(family)
}

fn syntax_error(error: &syn::Error) -> Box<Diagnostic> {
    Diagnostic::new(101, error.span(), error.to_string())
}

struct Module {
    name: Ident,
    vis: syn::Visibility,
    attrs: Vec<syn::Attribute>,
    items: Vec<Item>,
}

fn inline_module(item: TokenStream, attribute: &str) -> Results<Module> {
    depth::check(&item).map_err(|error| vec![*error])?;
    let mut error = match syn::parse2::<Item>(item.clone()) {
        Ok(Item::Mod(syn::ItemMod { content: Some((_, items)), ident, vis, mut attrs, unsafety: None, .. })) => {
            for attr in &mut attrs {
                attr.style = AttrStyle::Outer;
            }
            return Ok(Module { name: ident, vis, attrs, items });
        }
        Ok(Item::Mod(module)) if module.unsafety.is_none() => {
            Diagnostic::at(114, &module, format!("`{attribute}` needs the module's body: the macro reads its source"))
        }
        Ok(other) => Diagnostic::at(114, &other, format!("`{attribute}` belongs on a module")),
        Err(error) => syntax_error(&error),
    };
    if error.code.0 == 114 {
        error = error.help(format!("write `{attribute} pub mod name {{ … }}`"));
    }
    Err(vec![*error])
}

/// A `const` item, if it is one of the kernel language.
fn constant(item: syn::ItemConst, errors: &mut Errors) -> Option<syn::ItemConst> {
    attrs::only_inert(&item.attrs, "a constant", errors);
    no_visibility(&item.vis, errors);
    if item.ident == "_" || !item.generics.params.is_empty() {
        errors.push(Diagnostic::at(109, &item.ident, "a constant has a name and no generics"));
        return None;
    }
    Some(item)
}

pub(super) fn no_visibility(vis: &syn::Visibility, errors: &mut Errors) {
    if !matches!(vis, syn::Visibility::Inherited) {
        let message = format!("`{}` has no meaning here", text::tokens(vis.to_token_stream()));
        errors.push(Diagnostic::at(108, vis, message).help("remove it: whatever the module becomes is public"));
    }
}

fn foreign_item(item: &Item, place: &str, known: &str) -> Box<Diagnostic> {
    let kind = match item {
        Item::Struct(_) => "a struct",
        Item::Enum(_) => "an enum",
        Item::Use(_) => "a `use`",
        Item::Static(_) => "a static",
        Item::Mod(_) => "a module",
        Item::Impl(_) => "an `impl`",
        Item::Trait(_) => "a trait",
        Item::Type(_) => "a type alias",
        Item::Macro(_) => "a macro call",
        _ => "this item",
    };
    let error = Diagnostic::at(115, item, format!("{kind} cannot stand in {place}"));
    match item {
        Item::Use(_) => error.help("name device libraries in the attribute: `uses = [crate::device::math]`"),
        _ => error.help(format!("it holds {known}")),
    }
}

fn kernel_names(kernel: &Kernel) -> Vec<Ident> {
    let generics = kernel.generics.iter().map(|g| g.name.clone());
    let roles = kernel.roles.iter().map(|r| r.name.clone());
    generics.chain(kernel.params.iter().map(|p| p.name.clone())).chain(roles).collect()
}

fn device_names(device: &DeviceFn) -> Vec<Ident> {
    device.generics.iter().map(|g| g.name.clone()).chain(device.params.iter().map(|p| p.name.clone())).collect()
}

/// Reports every name that stands twice, among `names` or in `outer`.
fn unique_within(names: Vec<Ident>, outer: &[Ident], errors: &mut Errors) {
    let mut seen: HashMap<String, Span> = outer.iter().map(|n| (n.to_string(), n.span())).collect();
    for name in names {
        match seen.get(&name.to_string()) {
            Some(first) => errors.push(
                Diagnostic::at(113, &name, format!("`{name}` is defined twice")).note(*first, "defined first here"),
            ),
            None => {
                seen.insert(name.to_string(), name.span());
            }
        }
    }
}
