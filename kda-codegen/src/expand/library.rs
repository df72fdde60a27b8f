//! Device libraries: how the source of one module reaches the macro of another.
//!
//! A macro sees only its own tokens, so a device library becomes a macro itself: `#[device_lib] pub mod math { … }`
//! leaves `macro_rules! __kda_lib_math_…`, called `math` by a `use` beside it, and nothing else. That macro takes the path
//! of a callback and a bundle of tokens, and calls back with the bundle and the library's source.
//! `#[kernels(uses = [crate::device::math])]` calls the first library with everything that remains to be done in the
//! bundle; each answer adds one source and calls the next, until all are there and the family is compiled.
//!
//! Modules and macros have separate names, so the path of the macro is the path the module would have had, from any module
//! (`crate::device::math`, `super::math`) and, for a `pub` library, from any crate (`other::device::math`). The name behind
//! it holds a hash of the source, so two libraries of one name do not meet. A `pub` library is exported; any other is
//! visible within its crate. Tokens keep their places, so errors in a library lie in the library's file; the compiler does
//! not show places in another crate, so there the message names them.
//!
//! The callback is `::kda_dsl::…`: a crate that has kernels depends on `kda-dsl` under that name. A library that has
//! errors of its own reports them once and answers with a mark instead of its source; families that use it then stay
//! silent and empty.

use crate::diag::render;
use crate::syntax;
use kda_core::desc::content_hash;
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::{format_ident, quote};
use syn::{Path, Visibility};

/// Everything that remains to be done for a kernel module whose libraries are being gathered.
#[derive(Clone, Debug)]
pub struct Gathering {
    /// Arguments of `#[kernels(…)]`.
    pub attr: TokenStream,
    /// The kernel module.
    pub item: TokenStream,
    /// Sources of the libraries so far.
    pub libraries: Vec<TokenStream>,
    /// Libraries still to be called.
    pub rest: Vec<Path>,
    /// For each of these sources, true if it is from another crate.
    pub foreign: Vec<bool>,
    /// True if a library answered that it has errors.
    pub broken: bool,
}

/// The crate that is being compiled, as cargo names it: the package and the target.
fn this_crate() -> String {
    let name = |variable| std::env::var(variable).unwrap_or_default();
    format!("{}/{}", name("CARGO_PKG_NAME"), name("CARGO_CRATE_NAME"))
}

impl Gathering {
    /// Nothing gathered yet.
    pub fn new(attr: TokenStream, item: TokenStream, uses: Vec<Path>) -> Gathering {
        Gathering { attr, item, libraries: Vec::new(), rest: uses, foreign: Vec::new(), broken: false }
    }

    /// Files of the libraries that are from another crate.
    pub fn foreign_files(&self) -> Vec<String> {
        let foreign = self.libraries.iter().zip(&self.foreign).filter(|(_, foreign)| **foreign);
        foreign.filter_map(|(source, _)| source.clone().into_iter().next()).map(|token| token.span().file()).collect()
    }

    /// The call of the next library, if there is one. `callback` is the function-like macro that takes its answer.
    pub fn next(&self, callback: &TokenStream) -> Option<TokenStream> {
        let (next, rest) = self.rest.split_first()?;
        let Gathering { attr, item, libraries, foreign, broken, .. } = self;
        Some(quote! {
            #next! {
                { #callback }
                { { #attr } { #item } { #({ #libraries })* } { #({ #foreign })* } { #(#rest),* } { #broken } }
            }
        })
    }

    /// Reads the answer of a library: the bundle and the library's source. `None` if the tokens are no such answer.
    pub fn answer(tokens: TokenStream) -> Option<Gathering> {
        let [bundle, origin, library] = braced(tokens)?.try_into().ok()?;
        let [attr, item, libraries, foreign, rest, broken] = <[TokenStream; 6]>::try_from(braced(bundle)?).ok()?;
        let is_true = |tokens: &TokenStream| tokens.to_string() == "true";
        let origin: syn::LitStr = syn::parse2(origin).ok()?;
        let rest = syn::parse::Parser::parse2(
            |input: syn::parse::ParseStream<'_>| input.parse_terminated(Path::parse_mod_style, syn::Token![,]),
            rest,
        );
        let mut gathering = Gathering {
            attr,
            item,
            libraries: braced(libraries)?,
            rest: rest.ok()?.into_iter().collect(),
            foreign: braced(foreign)?.iter().map(is_true).collect(),
            broken: is_true(&broken),
        };
        if library.is_empty() {
            gathering.broken = true;
        } else {
            gathering.libraries.push(library);
            gathering.foreign.push(origin.value() != this_crate());
        }
        Some(gathering)
    }
}

/// Contents of the braces that the tokens are, one after the other.
fn braced(tokens: TokenStream) -> Option<Vec<TokenStream>> {
    tokens
        .into_iter()
        .map(|token| match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group.stream()),
            _ => None,
        })
        .collect()
}

/// What `#[device_lib] mod name { … }` becomes: the macro of the library, and its errors.
pub fn device_library(attr: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = crate::diag::Errors::new();
    if !attr.is_empty() {
        errors.push(crate::diag::Diagnostic::at(104, &attr, "`#[device_lib]` takes no arguments"));
    }
    let parsed = errors.take_all(syntax::device_library(item.clone()));
    let report = errors.finish(()).err().map(|errors| render::all(&errors)).unwrap_or_default();
    let Ok(syn::Item::Mod(module)) = syn::parse2::<syn::Item>(item.clone()) else { return report };
    // An answer without a source says that there are errors.
    let source = if parsed.is_some() && report.is_empty() { item } else { TokenStream::new() };
    let name = &module.ident;
    let behind = format_ident!("__kda_lib_{name}_{:016x}", content_hash(&source.to_string()));
    let (export, vis) = match &module.vis {
        Visibility::Public(_) => (quote!(#[macro_export]), quote!(pub)),
        _ => (TokenStream::new(), quote!(pub(crate))),
    };
    let dollar = TokenTree::Punct(proc_macro2::Punct::new('$', proc_macro2::Spacing::Alone));
    let (source, origin) = (Group::new(Delimiter::Brace, source), this_crate());
    quote! {
        #report
        #[doc(hidden)]
        #[allow(unused_macros)]
        #export
        macro_rules! #behind {
            ({ #dollar(#dollar callback:tt)* } #dollar bundle:tt) => {
                #dollar(#dollar callback)* ! { #dollar bundle { #origin } #source }
            };
        }
        #[doc(hidden)]
        #[allow(unused_imports)]
        #vis use #behind as #name;
    }
}
