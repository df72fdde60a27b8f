//! The operator `tc_commit`: the accepted records of a `tc_verify` applied to states, and the windows of raw inputs compacted.
//!
//! Per request b and head, with n = `counts[b]` records i of key `k_i`, raw gate and correction `u_i`:
//! ```text
//! kn_i = l2norm(k_i);   g_i = gate(raw gate);   cum_n = g_0 + .. + g_{n-1}
//! S_n  = S diag(e^{cum_n}) + sum_{i<n} u_i (e^{cum_n - cum_i} kn_i)^T         -> the destination
//! S_m  likewise, with 1 <= m <= n                                           -> the boundary slot
//! conv : rows n-1 .. n+1 of the source's window -> rows 0..2 of the destination; the boundary slot takes rows m-1 .. m+1
//! ```
//! A pool of bf16 takes states rounded to nearest even. A call is one layer; a launch of many layers is as many calls.
//!
//! Source: the operator's contract, as repeated in the items of [`problem`]. [`run()`] takes what the operator takes, on host
//! slices, in one of the modes of [`crate::Mode`].

pub mod budgets;
pub mod drift;
pub mod problem;
mod run;
pub mod sample;
mod validate;

pub use budgets::{Checked, StateJudgement, reference};
pub use problem::{Boundary, Commit, Compaction, Outputs, Problem};
pub use run::run;

pub use crate::tc_verify::{ConvOrder, HEAD, HISTORY, Refusal};
