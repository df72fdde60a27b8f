//! Every kernel of the project, one module a family, and their device libraries.
//!
//! | family | what it computes |
//! | --- | --- |
//! | [`scale_add`] | the smallest kernel with an exchange through shared memory |
//! | [`gemm`] | C = A · Bᵀ of bf16 matrices on tensor cores |
//! | [`ladder`] | eight small kernels, each one idea further |
//! | [`conv_verify`] | causal conv1d, SiLU, gates and the gated delta rule for T draft tokens |
//! | [`decode`] | the same for one token, with the state updated in place |
//! | [`delta_h_schedule`], [`delta_h`] | the inter-chunk recurrence of packed sequences: what there is to do, and the chains |
//! | [`delta_h_narrow`] | the same for few heads |
//! | [`delta_h_portable`] | the chains for every architecture from sm_80 on |
//! | [`tc_verify`] | verify of draft tokens on tensor cores, with compact records instead of states |
//! | [`tc_verify_portable`] | the same for every architecture from sm_80 on, also of states of f32 |
//! | [`tc_commit`] | records of accepted draft tokens, applied to the states of all layers |
//!
//! Kernels are written in the kernel language and compiled while the crate builds; what remains at run time is one
//! [`kda_core::KernelDesc`] a variant and a typed launch struct a kernel.

pub mod device;
mod families;
pub mod ladder;
mod sources;

pub use families::conv_verify::conv_verify;
pub use families::decode::decode;
pub use families::delta_h::{delta_h, delta_h_narrow, delta_h_portable, delta_h_schedule};
pub use families::gemm::gemm;
pub use families::scale_add::scale_add;
pub use families::tc_commit::tc_commit;
pub use families::tc_verify::{tc_verify, tc_verify_portable};
pub use sources::{SOURCES, Source};

use kda_core::KernelDesc;

/// Every variant of every kernel.
pub fn all() -> impl Iterator<Item = &'static KernelDesc> {
    scale_add::DESCS
        .iter()
        .chain(ladder::all())
        .chain(gemm::DESCS)
        .chain(conv_verify::DESCS)
        .chain(decode::DESCS)
        .chain(delta_h_schedule::DESCS)
        .chain(delta_h::DESCS)
        .chain(delta_h_narrow::DESCS)
        .chain(delta_h_portable::DESCS)
        .chain(tc_verify::DESCS)
        .chain(tc_verify_portable::DESCS)
        .chain(tc_commit::DESCS)
}
