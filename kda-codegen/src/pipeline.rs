//! From the tokens of a kernel module to the items it becomes, and from failure to errors.

use crate::compiled::Compiled;
use crate::diag::{Diagnostic, Errors, Result, Results, render};
use crate::expand::library::Gathering;
use crate::expand::{self, CompiledKernel, kernel::camel};
use crate::signature::{Resolved, resolve};
use crate::syntax::{self, Family, Kernel, ModuleArgs};
use crate::variants::{self, Variant};
use proc_macro2::TokenStream;
use quote::quote;

/// The step that compiles one variant.
pub type CompileVariant = fn(&Family, &Kernel, &Variant, &Resolved) -> Result<Compiled>;

/// Most different errors of one kernel that are reported.
const MOST_ERRORS: usize = 20;

/// Compiles a kernel module whose libraries are at hand.
pub fn compile(
    args: ModuleArgs,
    item: TokenStream,
    libraries: Vec<TokenStream>,
    compile_variant: CompileVariant,
) -> Results<TokenStream> {
    let family = syntax::family(args, item, libraries)?;
    compile_family(&family, compile_variant)
}

/// Compiles a parsed family to the items it becomes.
pub fn compile_family(family: &Family, compile_variant: CompileVariant) -> Results<TokenStream> {
    Ok(expand::family(family, &compile_kernels(family, compile_variant)?))
}

/// Compiles every variant of every kernel.
pub fn compile_kernels(family: &Family, compile_variant: CompileVariant) -> Results<Vec<CompiledKernel<'_>>> {
    let mut errors = Errors::new();
    let mut kernels: Vec<CompiledKernel<'_>> = Vec::new();
    for kernel in &family.kernels {
        let ours = camel(&kernel.name.to_string());
        if let Some(other) = kernels.iter().find(|k| camel(&k.kernel.name.to_string()) == ours) {
            let message = format!("`{}` and `{}` both become `{ours}`", other.kernel.name, kernel.name);
            errors.push(Diagnostic::at(113, &kernel.name, message).note(other.kernel.name.span(), "the other kernel"));
        }
        kernels.extend(errors.take_all(compile_kernel(family, kernel, compile_variant)));
    }
    errors.once().finish(kernels)
}

fn compile_kernel<'a>(
    family: &Family,
    kernel: &'a Kernel,
    compile_variant: CompileVariant,
) -> Results<CompiledKernel<'a>> {
    let variants = variants::expand(family, kernel)?;
    let mut causes = Causes { variants: variants.len(), found: Vec::new() };
    let resolved: Vec<Option<Resolved>> = variants
        .iter()
        .map(|variant| resolve(family, kernel, variant).map_err(|errors| causes.add(errors, variant)).ok())
        .collect();
    // What a signature lacks, a body would complain about again.
    causes.report()?;
    let mut compiled = Vec::with_capacity(variants.len());
    for (variant, resolved) in variants.iter().zip(resolved.iter().flatten()) {
        match compile_variant(family, kernel, variant, resolved) {
            Ok(text) => compiled.push(text),
            Err(error) => causes.add(vec![*error], variant),
        }
    }
    causes.report()?;
    Ok(CompiledKernel { kernel, variants, compiled })
}

/// Errors of the variants of a kernel: one cause is reported once, with the first variant that has it unless all have.
struct Causes {
    variants: usize,
    found: Vec<(Diagnostic, usize)>,
}

impl Causes {
    fn add(&mut self, errors: Vec<Diagnostic>, variant: &Variant) {
        for mut error in errors {
            match self.found.iter_mut().find(|(known, _)| known.same_cause(&error)) {
                Some((_, count)) => *count += 1,
                None => {
                    error.variant = Some(variant.entry.clone());
                    self.found.push((error, 1));
                }
            }
        }
    }

    fn report(&mut self) -> Results<()> {
        let variants = self.variants;
        let errors: Vec<Diagnostic> = std::mem::take(&mut self.found)
            .into_iter()
            .take(MOST_ERRORS)
            .map(|(mut error, count)| {
                if count >= variants {
                    error.variant = None;
                }
                error
            })
            .collect();
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

/// What `#[kernels(attr)] item` becomes: the compiled family, the call of its first library, or errors. `callback` is the
/// macro that takes the answers of libraries, see [`after_library`].
pub fn kernels(
    attr: TokenStream,
    item: TokenStream,
    callback: &TokenStream,
    compile_variant: CompileVariant,
) -> TokenStream {
    match syntax::module_args(attr.clone()) {
        Ok(args) => go_on(Gathering::new(attr, item, args.uses), callback, compile_variant),
        Err(errors) => failed(&errors, item),
    }
}

/// What follows when a library has answered with its source.
pub fn after_library(answer: TokenStream, callback: &TokenStream, compile_variant: CompileVariant) -> TokenStream {
    match Gathering::answer(answer.clone()) {
        Some(gathering) => go_on(gathering, callback, compile_variant),
        None => {
            Diagnostic::at(117, &answer, "this macro takes the answer of a device library and nothing else").to_tokens()
        }
    }
}

fn go_on(gathering: Gathering, callback: &TokenStream, compile_variant: CompileVariant) -> TokenStream {
    if let Some(call) = gathering.next(callback) {
        return call;
    }
    let foreign = gathering.foreign_files();
    let Gathering { attr, item, libraries, broken, .. } = gathering;
    if broken {
        return failed(&[], item);
    }
    match syntax::module_args(attr).and_then(|args| compile(args, item.clone(), libraries, compile_variant)) {
        Ok(tokens) => tokens,
        Err(mut errors) => {
            // The compiler shows the attribute instead of a place in another crate.
            for error in errors.iter_mut().filter(|error| foreign.contains(&error.span.file())) {
                error.write_place();
            }
            failed(&errors, item)
        }
    }
}

/// The errors, and the module without contents, so that its name at least is known.
fn failed(errors: &[Diagnostic], item: TokenStream) -> TokenStream {
    let report = render::all(errors);
    match syn::parse2::<syn::Item>(item) {
        Ok(syn::Item::Mod(module)) => {
            let (vis, name) = (&module.vis, &module.ident);
            let doc = format!("`{name}` was not compiled.");
            quote!(#report #[doc = #doc] #vis mod #name {})
        }
        _ => report,
    }
}

/// Compiles the signature of a variant and leaves its body out: an entry that returns at once. For tests of everything
/// around the body.
pub fn signature_only(family: &Family, kernel: &Kernel, variant: &Variant, resolved: &Resolved) -> Result<Compiled> {
    let isa = variant.arch.least_isa();
    let params: Vec<String> = resolved
        .params
        .iter()
        .map(|p| {
            format!("    .param .{} {}", if p.bytes == 1 { "u8".into() } else { format!("b{}", 8 * p.bytes) }, p.name)
        })
        .collect();
    let ptx = format!(
        ".version {isa}\n.target {}\n.address_size 64\n\n.visible .entry {}(\n{}\n)\n{{\n    ret;\n}}\n",
        variant.arch,
        variant.entry,
        params.join(",\n"),
    );
    Ok(Compiled {
        entry: variant.entry.clone(),
        family: family.name.to_string(),
        kernel: kernel.name.to_string(),
        arch: variant.arch,
        isa,
        ptx,
        block: resolved.block,
        cluster: resolved.cluster,
        grid: resolved.grid.clone(),
        min_blocks_per_sm: resolved.min_blocks_per_sm,
        shared_bytes: 0,
        shared: Vec::new(),
        roles: resolved.roles.clone(),
        barriers: Vec::new(),
        protocol: crate::check::protocol::Verdict::Nothing,
        params: resolved.params.clone(),
        param_bytes: resolved.param_bytes,
        consts: variant.bindings.iter().map(|(name, value)| (name.clone(), value.to_string())).collect(),
        requires: resolved.requires.clone(),
        pdl: false,
        file: kernel.name.span().file(),
        line: kernel.name.span().start().line as u32,
    })
}
