//! Operators for engines: validate, plan, launch.
//!
//! [`plan`](conv_verify::plan) checks every tensor and chooses a variant; the [`Plan`] that it gives launches on the
//! caller's stream. Between the two nothing allocates, synchronises or reads device memory, so a plan can be captured into
//! a CUDA graph; lengths, slots and counts are read on the device when the graph replays.

pub mod conv_verify;

use kda_core::exec::{ExecError, Stream};
use kda_core::{Executor, KernelDesc, LaunchError, PreparedLaunch};

/// A checked launch of a chosen variant.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    prepared: PreparedLaunch,
}

impl Plan {
    /// The variant that was chosen.
    pub fn desc(&self) -> &'static KernelDesc {
        self.prepared.desc
    }

    /// The launch, for executors and tools.
    pub fn prepared(&self) -> &PreparedLaunch {
        &self.prepared
    }

    /// Enqueues the launch. A plan without work (no requests) enqueues nothing.
    ///
    /// # Safety
    /// The tensors that were planned with must stay valid until the launch has run, and nothing may access them in
    /// conflict with it.
    pub unsafe fn launch(&self, executor: &dyn Executor, stream: Stream) -> Result<(), ExecError> {
        // SAFETY: the caller keeps the tensors valid and free of conflicts.
        unsafe { executor.launch(&self.prepared, stream) }
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
        needed: &'static str,
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
        needed: &'static str,
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
