//! Operators for engines: validate, plan, launch.
//!
//! [`plan`](conv_verify::plan) checks every tensor and chooses a variant; the [`Plan`] that it gives launches on the
//! caller's stream. Between the two nothing allocates, synchronises or reads device memory, so a plan can be captured into
//! a CUDA graph; lengths, slots and counts are read on the device when the graph replays.

mod arguments;
#[cfg(test)]
mod capability;
pub mod conv_verify;
pub mod decode;
pub mod delta_h;
mod limits;
pub mod preference;
pub mod tc_commit;
pub mod tc_verify;

use kda_core::exec::{ExecError, Stream};
use kda_core::{Executor, KernelDesc, LaunchError, PreparedLaunch};

/// Checked launches of chosen variants, one or several in the order in which they run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Never empty.
    launches: Vec<PreparedLaunch>,
}

impl Plan {
    /// One launch.
    pub(crate) fn of(launch: PreparedLaunch) -> Plan {
        Plan { launches: vec![launch] }
    }

    /// The same, and another launch behind the last.
    #[must_use]
    pub(crate) fn then(mut self, launch: PreparedLaunch) -> Plan {
        self.launches.push(launch);
        self
    }

    /// The same, and behind it the launches of another plan.
    #[must_use]
    pub fn followed_by(mut self, later: Plan) -> Plan {
        self.launches.extend(later.launches);
        self
    }

    /// The variant that was chosen; of several launches the last one's, which writes the results.
    pub fn desc(&self) -> &'static KernelDesc {
        self.prepared().desc
    }

    /// The launch, for executors and tools; the last of several.
    pub fn prepared(&self) -> &PreparedLaunch {
        &self.launches[self.launches.len() - 1]
    }

    /// All launches, in order.
    pub fn launches(&self) -> &[PreparedLaunch] {
        &self.launches
    }

    /// Enqueues the launches in order, on one stream. Those without work (no requests) are left out.
    ///
    /// # Errors
    /// What the executor says of the first launch that fails; those behind it are not enqueued.
    ///
    /// # Safety
    /// The tensors that were planned with must stay valid until the launches have run, and nothing may access them in
    /// conflict with them.
    pub unsafe fn launch(&self, executor: &dyn Executor, stream: Stream) -> Result<(), ExecError> {
        for launch in self.launches.iter().filter(|launch| !launch.is_empty()) {
            // SAFETY: the caller keeps the tensors valid and free of conflicts.
            unsafe { executor.launch(launch, stream)? };
        }
        Ok(())
    }
}

/// Why an operator refused a call. Nothing has been written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// The arguments do not fit the kernel.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A dtype that the operator does not take.
    #[error("{op}: `{param}` holds {given}; {needed} is needed")]
    Dtype {
        /// Operator.
        op: &'static str,
        /// Tensor.
        param: &'static str,
        /// Given type.
        given: kda_core::Elem,
        /// Needed types.
        needed: String,
    },
    /// Another number of axes.
    #[error("{op}: `{param}` has shape {given:?}; {needed}")]
    Rank {
        /// Operator.
        op: &'static str,
        /// Tensor.
        param: &'static str,
        /// Given shape.
        given: Vec<u64>,
        /// What is needed, with the names of the axes.
        needed: String,
    },
    /// A size that does not fit.
    #[error("{op}: axis {axis} of `{param}` with shape {shape:?} is {given}; {needed}")]
    Size {
        /// Operator.
        op: &'static str,
        /// Tensor.
        param: &'static str,
        /// Given shape.
        shape: Vec<u64>,
        /// Name of the axis.
        axis: &'static str,
        /// Given size.
        given: u64,
        /// What is needed and why.
        needed: String,
    },
    /// Value heads that do not share the query/key heads evenly.
    #[error(
        "{op}: HV = {value_heads} value heads over H = {heads} query/key heads; HV must be a positive multiple of H"
    )]
    Heads {
        /// Operator.
        op: &'static str,
        /// Given query/key heads.
        heads: u64,
        /// Given value heads.
        value_heads: u64,
    },
    /// An order of axes that the operator does not take.
    #[error("{op}: `{param}` of shape {shape:?} has strides {strides:?}; {needed}")]
    Layout {
        /// Operator.
        op: &'static str,
        /// Tensor.
        param: &'static str,
        /// Given shape.
        shape: Vec<u64>,
        /// Given strides, elements.
        strides: Vec<u64>,
        /// What is needed.
        needed: String,
    },
    /// A null pointer with a shape that is not empty.
    #[error("{op}: `{param}` is a null pointer, with shape {shape:?}; an address of device memory is needed")]
    NullPointer {
        /// Operator.
        op: &'static str,
        /// Tensor.
        param: &'static str,
        /// Given shape.
        shape: Vec<u64>,
    },
    /// A misaligned address.
    #[error("{op}: `{param}` starts at 0x{given:x}; an address that is a multiple of {needed} is needed")]
    Misaligned {
        /// Operator.
        op: &'static str,
        /// Tensor.
        param: &'static str,
        /// Given address.
        given: u64,
        /// Needed alignment, bytes.
        needed: u64,
    },
    /// The memory behind a tensor is too small for its shape.
    #[error("{op}: `{param}` has {given} bytes; its shape {shape:?} with strides {strides:?} needs {needed}")]
    TooFewBytes {
        /// Operator.
        op: &'static str,
        /// Tensor.
        param: &'static str,
        /// Given bytes.
        given: u64,
        /// Needed bytes.
        needed: u64,
        /// Given shape.
        shape: Vec<u64>,
        /// Given strides, elements.
        strides: Vec<u64>,
    },
    /// A scalar outside its range.
    #[error("{op}: `{param}` is {given}; {needed}")]
    Scalar {
        /// Operator.
        op: &'static str,
        /// Scalar.
        param: &'static str,
        /// Given value.
        given: i64,
        /// What is needed and why.
        needed: &'static str,
    },
    /// An argument that another one needs, or that has no use without it.
    #[error("{op}: `{param}` is absent; {needed}")]
    Missing {
        /// Operator.
        op: &'static str,
        /// Tensor.
        param: &'static str,
        /// What needs it.
        needed: String,
    },
    /// A tensor that is written shares memory with another one.
    #[error("{op}: `{param}` at 0x{given:x}, {bytes} bytes, shares memory with `{other}` at 0x{at:x}; {needed}")]
    Overlap {
        /// Operator.
        op: &'static str,
        /// Tensor that is written.
        param: &'static str,
        /// Its address.
        given: u64,
        /// Bytes that it spans.
        bytes: u64,
        /// The other tensor.
        other: &'static str,
        /// Its address.
        at: u64,
        /// What is needed.
        needed: &'static str,
    },
    /// Arguments that are not possible together.
    #[error("{op}: {given}; {needed}")]
    Together {
        /// Operator.
        op: &'static str,
        /// What was given.
        given: String,
        /// What is needed.
        needed: String,
    },
    /// A forced variant that this problem cannot run on, or that does not exist.
    #[error("{op}: variant `{variant}` cannot run this problem: {why}")]
    Forced {
        /// Operator.
        op: &'static str,
        /// The variant asked for.
        variant: String,
        /// Why not.
        why: String,
    },
    /// No variant runs on this device.
    #[error("{op}: no variant runs on compute capability {}.{}; {needed} is needed", given.0, given.1)]
    NoVariant {
        /// Operator.
        op: &'static str,
        /// Compute capability.
        given: (u8, u8),
        /// What is needed.
        needed: String,
    },
}
