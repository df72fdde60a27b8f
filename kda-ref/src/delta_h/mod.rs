//! The inter-chunk recurrence of chunked KDA: the operator `delta_h`.
//!
//! Per sequence and value head, chunk after chunk of 64 rows R (the last one may be shorter):
//! ```text
//! h[c]     = bf16(S)                        every m-th chunk is stored; every rounded S is an operand
//! x        = u[R] - w[R] bf16(S)
//! v_new[R] = bf16(x)                        stored, never gated
//! S        = S * decay                      decay first:  exp2(gk[last(R)])  or the given row  or exp2(g[last(R)])
//! S        = S + kg[R]^T bf16(x)            scalar gate:  S + k[R]^T bf16(x * exp2(g[last(R)] - g))
//! ```
//! The final state is S after the last chunk, in fp32 or rounded to bf16 once. An empty sequence passes its initial state
//! through bit for bit. Source: `chunk_gated_delta_rule_fwd_h` of fla-core (MIT) and the operator's contract.
//!
//! | question | module |
//! | --- | --- |
//! | which sequences are processed, and where do their chunks go | [`schedule`] |
//! | what does a call take, and what may it write | [`problem`] |
//! | what does it give | [`run()`], with long sequences cut into segments [`segments`] |
//! | how far may a kernel be off | [`budgets`], its results against each other [`mod@consistency`] |
//! | where do problems come from | [`sample`], their rows from [`prepare`] |
//! | the recurrence of any sizes, all in float64 buffers | [`plain`] |

pub mod budgets;
pub mod consistency;
mod draw;
pub mod plain;
pub mod prepare;
pub mod problem;
mod run;
pub mod sample;
pub mod schedule;
pub mod segments;
mod sensitivity;
pub(crate) mod step;

pub use budgets::{Checked, reference};
pub use consistency::{Got, consistency};
pub use problem::{Final, Gate, Initial, Problem, Refusal};
pub use run::{Masked, Results, run};
pub use schedule::{Schedule, Split};

/// Rows of a chunk.
pub const CHUNK: usize = 64;
/// Key and value channels of a head; the operator is defined for no other size.
pub const HEAD: usize = 128;
/// Elements of the state of one head.
pub const STATE: usize = HEAD * HEAD;
