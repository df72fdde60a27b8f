//! `conv_verify`: causal conv1d + SiLU fused into the verify of T draft tokens, with snapshots.
//!
//! The state pool is read only; every row gets its output, live snapshot rows get the state and the convolution window
//! after each token. Sizes: K = V = 128, convolution width 4, `D = 2*H*128 + HV*128`, channels in the order q, k, v.
//!
//! | file | question |
//! | --- | --- |
//! | [`problem`] | what a call takes |
//! | `validate` | do its arguments fit each other |
//! | [`dispatch`] | which variant runs it |
//! | [`preference`] | which of several is the fastest, as measured |
//! | [`workspace`] | when must the arrival counters be reset, and may two calls be in flight |
//! | [`indices`] | do two requests of a call write the same place |

pub mod dispatch;
pub mod indices;
pub mod preference;
pub mod problem;
mod validate;
pub mod workspace;

pub use dispatch::{Options, plan};
pub use problem::{Gate, Problem, SnapshotRule};

/// Name of the operator.
pub const NAME: &str = "conv_verify";
