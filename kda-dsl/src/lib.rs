//! The macros of the kernel language: a shell around the compiler in `kda-codegen`.
//!
//! ```
//! #[kda_dsl::kernels(arch = sm_80)]
//! pub mod scale_add {
//!     /// y = scale * x + y.
//!     #[kernel(block = 256, grid = (n + 255) / 256)]
//!     fn scale_add(#[dims(n)] x: Global<f32>, #[dims(n)] y: GlobalMut<f32>, scale: f32) {
//!         let i = ctaid.x * 256 + tid;
//!         let mine = x.at([i]).load_if(i < n);
//!         y.at([i]).store_if(i < n, fma(scale, mine, y.at([i]).load_if(i < n)));
//!     }
//! }
//!
//! fn main() {
//!     assert_eq!(scale_add::ScaleAddVariant::Only.desc().block, 256);
//! }
//! ```
//!
//! A crate with kernels depends on `kda-dsl` and `kda-core` under these names: what the macros expand to refers to them.

use kda_codegen::expand::library;
use kda_codegen::pipeline::{self, CompileVariant};
use kda_codegen::specialise;
use proc_macro::TokenStream;

/// The step that compiles one variant.
const COMPILE: CompileVariant = specialise::compile_variant;

/// The macro that device libraries call back.
fn callback() -> proc_macro2::TokenStream {
    ["::", "kda_dsl", "::", "__after_library"]
        .iter()
        .flat_map(|piece| piece.parse::<proc_macro2::TokenStream>())
        .collect()
}

/// Compiles the kernels of an inline module: `#[kernels(arch = sm_90, uses = [crate::device::math])] pub mod name { … }`.
///
/// `arch` is a PTX target or a list of them. `uses` are the device libraries whose functions the module calls.
///
/// The module becomes a module of the same name with, for a kernel `conv`: `CONV_DESCS` and `DESCS`, the compiled variants;
/// `ConvVariant`, one case a variant; and `ConvArgs`, the launch arguments by name, which checks and packs them.
#[proc_macro_attribute]
pub fn kernels(attr: TokenStream, item: TokenStream) -> TokenStream {
    pipeline::kernels(attr.into(), item.into(), &callback(), COMPILE).into()
}

/// Makes an inline module a device library: `#[device_lib] pub mod math { const …; fn … }`.
///
/// Every function is a device function; constants are visible to the functions. Kernel modules name the library by the
/// path of its module, `uses = [crate::device::math]`, and call `math::f(x)`. A `pub` library is usable from other crates.
#[proc_macro_attribute]
pub fn device_lib(attr: TokenStream, item: TokenStream) -> TokenStream {
    library::device_library(attr.into(), item.into()).into()
}

/// Takes the source of a device library; called by what [`macro@device_lib`] leaves and by nothing else.
#[doc(hidden)]
#[proc_macro]
pub fn __after_library(answer: TokenStream) -> TokenStream {
    pipeline::after_library(answer.into(), &callback(), COMPILE).into()
}
