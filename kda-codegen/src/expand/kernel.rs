//! Per kernel: the part of the descriptions that is its own, its variants as a type, and its launch struct.

use super::{CompiledKernel, desc};
use crate::consteval::Const;
use crate::syntax::{GenericKind, Kernel, Param, ParamType, text};
use crate::variants::Variant;
use kda_core::Elem;
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{format_ident, quote};

/// Most variants that become an enum: past that, nobody reads the list and the compiler feels it.
const MOST_IN_ENUM: usize = 300;

/// The items of a kernel whose variants begin at position `first` of the family's.
pub(super) fn items(kernel: &CompiledKernel<'_>, first: usize) -> TokenStream {
    let name = kernel.kernel.name.to_string();
    let count = kernel.compiled.len();
    let statics = descs_name(&name);
    let doc = format!("Variants of the kernel `{name}`, in the order of [`{}Variant::ALL`].", camel(&name));
    let descs = quote! {
        #[doc = #doc]
        pub static #statics: &[::kda_core::KernelDesc] = DESCS.split_at(#first).1.split_at(#count).0;
    };
    let variant = variant_type(kernel);
    let args = args_type(kernel.kernel);
    quote!(#descs #variant #args)
}

fn descs_name(kernel: &str) -> Ident {
    format_ident!("{}_DESCS", kernel.to_uppercase())
}

/// `conv_verify` as `ConvVerify`.
pub(crate) fn camel(name: &str) -> String {
    name.split('_')
        .map(|word| {
            let mut letters = word.chars();
            letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
        })
        .collect()
}

/// The parts of a variant's name in camel case: `T4Flat`. The only variant of a kernel without parts is `Only`.
fn variant_name(variant: &Variant) -> String {
    match variant.parts.is_empty() {
        true => "Only".to_string(),
        false => variant.parts.iter().map(|part| camel(part)).collect(),
    }
}

fn variant_type(kernel: &CompiledKernel<'_>) -> TokenStream {
    let name = kernel.kernel.name.to_string();
    let (ty, statics, count) = (format_ident!("{}Variant", camel(&name)), descs_name(&name), kernel.variants.len());
    let docs = docs(kernel.kernel, &format!("Variants of the kernel `{name}`."));
    let derives = quote!(#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]);
    let definition = if count <= MOST_IN_ENUM {
        let names: Vec<Ident> = kernel.variants.iter().map(|v| format_ident!("{}", variant_name(v))).collect();
        let lines = kernel.variants.iter().map(|v| format!("`{}`", v.entry));
        quote! {
            #docs
            #derives
            pub enum #ty { #(#[doc = #lines] #names),* }
            impl #ty {
                /// Every variant.
                pub const ALL: [#ty; #count] = [#(#ty::#names),*];

                /// Position in [`Self::ALL`].
                pub const fn index(self) -> usize {
                    self as usize
                }
            }
        }
    } else {
        quote! {
            #docs
            #derives
            pub struct #ty(usize);
            impl #ty {
                /// Every variant.
                pub const ALL: [#ty; #count] = {
                    let mut all = [#ty(0); #count];
                    let mut at = 0;
                    while at < #count {
                        all[at] = #ty(at);
                        at += 1;
                    }
                    all
                };

                /// Position in [`Self::ALL`].
                pub const fn index(self) -> usize {
                    self.0
                }
            }
        }
    };
    let constants = kernel.kernel.generics.iter().map(|generic| {
        let name = generic.name.to_string();
        let values =
            kernel.variants.iter().map(|v| v.bindings.iter().find(|(n, _)| *n == name).map(|(_, value)| value));
        let values = values.map(|value| value.map_or_else(TokenStream::new, constant));
        let ty = match generic.kind {
            GenericKind::Int(elem) => {
                let ty = format_ident!("{}", elem.name());
                quote!(#ty)
            }
            GenericKind::Bool => quote!(bool),
            GenericKind::Elem => quote!(::kda_core::Elem),
        };
        let doc = format!("`{name}` of this variant.");
        let function = accessor(&name);
        quote! {
            #[doc = #doc]
            pub const fn #function(self) -> #ty {
                const VALUES: [#ty; #count] = [#(#values),*];
                VALUES[self.index()]
            }
        }
    });
    quote! {
        #definition
        impl #ty {
            /// The compiled variant.
            pub const fn desc(self) -> &'static ::kda_core::KernelDesc {
                &#statics[self.index()]
            }

            /// The variant whose PTX entry has this name.
            pub fn find(entry: &str) -> ::core::option::Option<#ty> {
                #ty::ALL.into_iter().find(|variant| variant.desc().entry == entry)
            }

            #(#constants)*
        }
    }
}

fn constant(value: &Const) -> TokenStream {
    match value {
        // A literal without a suffix takes the type of the array.
        Const::Int(value, _) => {
            let literal = Literal::u128_unsuffixed(value.unsigned_abs());
            if *value < 0 { quote!(-#literal) } else { quote!(#literal) }
        }
        Const::Elem(elem) => desc::elem(*elem),
        Const::Bool(value) => quote!(#value),
        Const::Float(..) | Const::Array(_) | Const::Tuple(_) => TokenStream::new(),
    }
}

/// The function that gives a generic: its name in lower case, with `_` where that is a keyword or another function.
fn accessor(generic: &str) -> Ident {
    let name = generic.to_lowercase();
    let taken = matches!(name.as_str(), "index" | "desc" | "find" | "all") || syn::parse_str::<Ident>(&name).is_err();
    Ident::new(&if taken { format!("{name}_") } else { name }, Span::call_site())
}

/// The author's documentation after a line of ours.
fn docs(kernel: &Kernel, line: &str) -> TokenStream {
    let lines = &kernel.docs;
    match lines.is_empty() {
        true => quote!(#[doc = #line]),
        false => quote!(#[doc = #line] #[doc = ""] #(#[doc = #lines])*),
    }
}

fn args_type(kernel: &Kernel) -> TokenStream {
    let name = kernel.name.to_string();
    let (ty, variant) = (format_ident!("{}Args", camel(&name)), format_ident!("{}Variant", camel(&name)));
    let docs = docs(kernel, &format!("Arguments of the kernel `{name}`."));
    let fields = kernel.params.iter().map(|param| {
        let (name, doc) = (&param.name, field_doc(param));
        let ty = match &param.ty {
            ParamType::Tensor { optional: true, .. } => quote!(::core::option::Option<::kda_core::TensorArg>),
            ParamType::Tensor { .. } => quote!(::kda_core::TensorArg),
            ParamType::Scalar(elem) => {
                let ty = format_ident!("{}", elem.name());
                quote!(#ty)
            }
        };
        quote!(#[doc = #doc] pub #name: #ty)
    });
    let is_tensor = |param: &&Param| matches!(param.ty, ParamType::Tensor { .. });
    let tensors = kernel.params.iter().filter(is_tensor);
    let scalars = kernel.params.iter().filter(|param| !is_tensor(param));
    let values = tensors.chain(scalars).map(|param| {
        let name = &param.name;
        match &param.ty {
            ParamType::Tensor { optional: true, .. } => quote!(::kda_core::launch::Arg::Tensor(self.#name)),
            ParamType::Tensor { .. } => {
                quote!(::kda_core::launch::Arg::Tensor(::core::option::Option::Some(self.#name)))
            }
            ParamType::Scalar(elem) => {
                let case = scalar_case(*elem);
                quote!(::kda_core::launch::Arg::Scalar(::kda_core::ScalarArg::#case(self.#name)))
            }
        }
    });
    let count = kernel.params.len();
    quote! {
        #docs
        #[derive(Clone, Debug, PartialEq)]
        pub struct #ty { #(#fields),* }

        impl #ty {
            /// The arguments in the order of the kernel's parameter block.
            pub fn args(&self) -> [::kda_core::launch::Arg; #count] {
                [#(#values),*]
            }

            /// Checks the arguments for one variant and packs them. `pdl` asks for programmatic dependent launch, which
            /// is used if the kernel waits for its predecessor.
            pub fn prepare(
                &self,
                variant: #variant,
                pdl: bool,
            ) -> ::core::result::Result<::kda_core::PreparedLaunch, ::kda_core::LaunchError> {
                ::kda_core::launch::prepare(variant.desc(), &self.args(), pdl)
            }

            /// Whether a variant can run these arguments, and if not, why.
            pub fn eligible(&self, variant: #variant) -> ::core::result::Result<(), ::kda_core::LaunchError> {
                self.prepare(variant, false).map(|_| ())
            }
        }
    }
}

fn scalar_case(elem: Elem) -> Ident {
    Ident::new(&format!("{elem:?}"), Span::call_site())
}

/// `` `[n_req, tokens:x_pitch, d]`, bf16, read; may be absent ``.
fn field_doc(param: &Param) -> String {
    match &param.ty {
        ParamType::Scalar(elem) => format!("`{}`: {elem}.", param.name),
        ParamType::Tensor { elem, writes, optional, dims, .. } => {
            let axes: Vec<String> = dims
                .iter()
                .map(|dim| match &dim.stride {
                    Some(stride) => format!("{}:{}", text::expr(&dim.size), text::expr(stride)),
                    None => text::expr(&dim.size),
                })
                .collect();
            let access = if *writes { "read and written" } else { "read" };
            let absent = if *optional { "; may be absent" } else { "" };
            format!("`[{}]` of {elem}, {access}{absent}.", axes.join(", "))
        }
    }
}
