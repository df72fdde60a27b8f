//! `tc_commit`: the accepted records of a `tc_verify` applied to states, and the windows of raw inputs moved along.
//!
//! Of request b the first `counts[b]` records become part of the state at `slots[b]`, which goes to `destinations[b]`; at a
//! boundary of cache blocks an earlier state goes to a slot of its own. Source and destination may be the same. One launch
//! does the layers of a whole model by a table of their addresses. Sizes: K = V = 128, as many v heads as q and k heads.
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
#[cfg(all(test, feature = "sim"))]
mod tests;
mod validate;

pub use super::conv_verify::Gate;
pub use dispatch::{Options, plan};
pub use problem::{Boundary, Problem};

/// Name of the operator.
pub const NAME: &str = "tc_commit";
