//! `tc_verify`: verify of draft tokens on tensor cores, with compact records instead of states.
//!
//! Each request has up to Q tokens, whose number the device alone knows. Their outputs are written, and a record of each
//! token: the correction u, the key and the raw gate. The state is read once and keeps its bits;
//! `tc_commit` applies the records of the tokens that were accepted. Causal conv1d + SiLU are fused or not; the history of
//! the convolution is rolled in place. Sizes: K = V = 128, convolution width 4; as many heads of q and k as of v, or without a
//! convolution a fraction of them.
//!
//! | file | question |
//! | --- | --- |
//! | [`problem`] | what a call takes |
//! | `validate` | do its arguments fit each other |
//! | [`variant`] | which kernels there are |
//! | [`dispatch`] | which variant runs it, on how many CTAs |

pub mod dispatch;
pub mod problem;
mod validate;
pub mod variant;

pub use super::conv_verify::Gate;
pub use dispatch::{Options, plan};
pub use problem::{Convolution, Problem};
pub use variant::Variant;

/// Name of the operator.
pub const NAME: &str = "tc_verify";
