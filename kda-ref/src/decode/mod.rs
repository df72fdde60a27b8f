//! The operator `decode`: one token of the gated delta rule, with the state updated in place and the convolution fused or not.
//!
//! Per row n, value head hv and its query/key head h:
//! ```text
//! y  = bf16(silu(bias + sum_j w[j] xx[j-3]))      with taps, and the history takes the newest input;  y = q, k, v  without
//! qn = l2norm(y_q) * scale;  kn = l2norm(y_k);  v = y_v
//! S <- S * exp(g);  u = beta (v - S kn);  S <- S + u kn^T;  o = S qn
//! out = bf16(o);  the pool takes S, a bf16 pool takes it rounded to nearest even
//! ```
//! This is `conv_verify` of one token whose snapshot goes to the state pool. Source: the operator's contract, as repeated in
//! the items of [`problem`]. [`run`] takes what the operator takes, on host slices, in one of the modes of [`crate::Mode`].

pub mod budgets;
pub mod drift;
pub mod problem;
mod run;
pub mod sample;
mod step;

pub use budgets::{Checked, reference};
pub use problem::{Convolved, Dims, Given, Outputs, Problem, Refusal, Tokens};
pub use run::run;

pub use crate::conv_verify::{ConvLayout, HEAD, HISTORY};
