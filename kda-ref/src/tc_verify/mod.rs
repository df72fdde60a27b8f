//! The operator `tc_verify`: up to `window` draft tokens of each request against a state that is only read, with a compact
//! record of each token.
//!
//! Per request b, head h and token t, over the rows `query_start[b] ..` of the packed tokens:
//! ```text
//! y  = bf16(silu(sum_j w[j] xx[t+j]))  with taps, xx = three history rows and the raw tokens;   y = q, k, v  without
//! qn = l2norm(y_q) * scale;  kn = l2norm(y_k);  v = y_v
//! u  = beta (v - S diag(e^g) kn);  S <- S diag(e^g) + u kn^T;  o = S qn
//! out = bf16(o);  corr = u in f32;  kg = [y_k, raw g] in bf16, copies
//! ```
//! With taps the window of raw inputs rolls in place: history rows `accepted-1 .. accepted+1` become rows 0..1 and, with the
//! tokens behind them, the rows that the next step starts from. `tc_commit` applies records to states.
//!
//! Source: the operator's contract, as repeated in the items of [`problem`]. [`run()`] takes what the operator takes, on host
//! slices, in one of the modes of [`crate::Mode`].

pub mod budgets;
pub(crate) mod head;
pub mod problem;
mod run;
pub mod sample;
pub mod uninterrupted;
pub(crate) mod validate;

pub use budgets::{Checked, Got, HeadJudgement, reference};
pub use problem::{Conv, ConvOrder, Outputs, Problem, Request};
pub use run::{emulate, run};

pub use crate::emulate::tc_verify::Couplings;
pub use validate::Refusal;

pub use crate::conv_verify::{HEAD, HISTORY};

/// The longest window that the operator is defined for.
pub const MAX_WINDOW: usize = 16;
