//! The Rust items that a kernel module becomes.
//!
//! | file | what |
//! | --- | --- |
//! | [`desc`] | a compiled variant as a constant [`kda_core::KernelDesc`] |
//! | [`kernel`] | per kernel: an enum of its variants and a typed launch struct |
//! | [`library`] | a device library as a macro that hands its source to kernel modules |
//!
//! A family `conv_verify` with the kernel `conv_verify` becomes
//!
//! ```text
//! pub mod conv_verify {
//!     pub static DESCS: &[KernelDesc];                   // every variant of every kernel
//!     pub static CONV_VERIFY_DESCS: &[KernelDesc];       // those of the kernel, a part of DESCS
//!     pub enum ConvVerifyVariant { T1Flat, T1Noflat, … } // ALL, index(), desc(), find(entry), t(), flat(), …
//!     pub struct ConvVerifyArgs { pub x: TensorArg, … }  // args(), prepare(variant, pdl), eligible(variant)
//! }
//! ```
//!
//! Everything refers to `::kda_core` alone, is documented, and keeps the author's documentation and visibility. A kernel
//! of more than 300 variants has a struct around the position instead of an enum, with the same functions.

pub mod desc;
pub mod kernel;
pub mod library;
#[cfg(test)]
mod tests;

use crate::compiled::Compiled;
use crate::syntax::{Family, Kernel};
use crate::variants::Variant;
use proc_macro2::TokenStream;
use quote::quote;

/// A kernel with its variants and what they compiled to, in the same order.
pub struct CompiledKernel<'a> {
    /// The kernel as written.
    pub kernel: &'a Kernel,
    /// Its variants.
    pub variants: Vec<Variant>,
    /// The compiled variants.
    pub compiled: Vec<Compiled>,
}

/// The module of a family.
pub fn family(family: &Family, kernels: &[CompiledKernel<'_>]) -> TokenStream {
    let descs = kernels.iter().flat_map(|k| &k.compiled).map(desc::tokens);
    let mut first = 0;
    let items: TokenStream = kernels
        .iter()
        .map(|kernel| {
            let tokens = kernel::items(kernel, first);
            first += kernel.compiled.len();
            tokens
        })
        .collect();
    let Family { name, vis, attrs, .. } = family;
    let doc = match attrs.iter().any(|attr| attr.path().is_ident("doc")) {
        true => TokenStream::new(),
        false => {
            let text = format!("Kernels of the family `{name}`.");
            quote!(#[doc = #text])
        }
    };
    quote! {
        #(#attrs)*
        #doc
        #[allow(dead_code)]
        #vis mod #name {
            /// Every variant of every kernel of the family.
            pub static DESCS: &[::kda_core::KernelDesc] = &[#(#descs),*];
            #items
        }
    }
}
