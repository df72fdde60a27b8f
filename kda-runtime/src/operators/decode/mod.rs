//! `decode`: one token of the gated delta rule, with the state updated in place; convolution fused or not.
//!
//! Every row gets its output, its state pool entry the new state and, with the convolution, its history the newest input. Reads
//! and writes may go to different slots. Sizes: K = V = 128, convolution width 4, `D = 2*H*128 + HV*128`, channels in the
//! order q, k, v. With an fp32 state T calls give the bits of one `conv_verify` of T tokens.
//!
//! | file | question |
//! | --- | --- |
//! | [`problem`] | what a call takes |
//! | `validate` | do its arguments fit each other |
//! | [`dispatch`] | which variant runs it |
//! | [`preference`] | which one to prefer |

pub mod dispatch;
pub mod preference;
pub mod problem;
mod validate;

pub use super::conv_verify::Gate;
pub use dispatch::{Options, plan};
pub use problem::{Convolution, Problem, Tokens};

/// Name of the operator.
pub const NAME: &str = "decode";
