//! The operator `conv_verify`: causal convolution and SiLU fused into the KDA verify of T draft tokens.
//!
//! Per row n, value head hv, its query/key head h and token t:
//! ```text
//! xx[-3..-1] = history of the row, oldest first;   xx[t] = x[n*T + t]
//! y  = bf16(silu(bias + sum_j w[j] xx[t-3+j]))                  rounding point 1, for q, k and v channels
//! qn = l2norm(y_q) * scale;  kn = l2norm(y_k);  v = y_v
//! S <- S * exp(g);  u = beta (v - S kn);  S <- S + u kn^T;  o = S qn
//! out = bf16(o)                                                 rounding point 2
//! ```
//! The initial state is read only. Written are: `out`; per token the state and the window of the three newest raw inputs
//! (snapshots, from which an engine rolls back); and, with `roll`, the convolution history.
//!
//! Source: the operator's contract (tensors, index rules, rounding points, reduction trees) as repeated in the items of
//! [`problem`]. [`run`] takes exactly what the operator takes, on host slices, in one of the modes of [`crate::Mode`].
//! Windows and rolled histories are copies and the same bits in every mode.

pub mod budgets;
mod emulate;
mod golden;
pub mod problem;
mod run;
pub mod sample;
mod validate;

pub use budgets::{Checked, reference};
pub use problem::{ConvLayout, Dims, Outputs, Problem, SnapshotRule, WindowLayout};
pub use run::run;
pub use validate::Refusal;

/// Key and value channels of a head; the operator is defined for no other size.
pub const HEAD: usize = 128;
/// Raw inputs that a history or a window holds.
pub const HISTORY: usize = 3;

/// Receives, after every token t of one value head: t, `o` `[V]` before rounding, and the K-first state.
type TokenSink<'a> = &'a mut dyn FnMut(usize, &[f64], &[f64]);
