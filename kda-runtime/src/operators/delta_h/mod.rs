//! `delta_h`: the inter-chunk recurrence of chunked KDA over packed sequences: the state ahead of every chunk of 64 rows, and
//! the corrected values.
//!
//! Two steps. [`schedule`] once a batch: a kernel reads the boundaries of the sequences on the device and writes what there
//! is to do, which is the same in all layers of a model. [`plan`] in each layer: one or two launches that read that list.
//! No length is read on the host, so both can be captured into a CUDA graph and replayed with other lengths. Sizes:
//! K = V = 128, chunks of 64 rows.
//!
//! | file | question |
//! | --- | --- |
//! | [`batch`] | how much memory do sizes ask for, whatever the lengths |
//! | [`segments`] | into how many segments is a long sequence cut |
//! | [`schedule`] | what is there to do, and what does the device say of the boundaries |
//! | [`problem`] | what a call takes |
//! | `validate` | do its arguments fit each other |
//! | [`variant`] | which kernels there are |
//! | [`dispatch`] | which variants run it, in how many launches |
//! | [`preference`] | which one to prefer |

pub mod batch;
pub mod dispatch;
pub mod preference;
pub mod problem;
#[cfg(test)]
mod samples;
pub mod schedule;
pub mod segments;
#[cfg(all(test, feature = "sim"))]
mod tests;
mod validate;
pub mod variant;

pub use batch::Batch;
pub use dispatch::{Options, plan};
pub use problem::{Gate, Problem};
pub use schedule::{Schedule, Status};
pub use variant::Variant;

/// Name of the operator.
pub const NAME: &str = "delta_h";
