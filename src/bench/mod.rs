//! Times operators on a CUDA device, beside their byte floors, hand-written twins and published peers.
//!
//! Method: a CUDA graph of calls over rotating input sets of more than 200 MB in all, so that L2 is cold; all contenders of
//! a shape in turn, warmed up; median, 10th and 90th percentile of the replays, for each call.
//!
//! | question | file |
//! | --- | --- |
//! | which sizes | [`shape`] |
//! | how long are packed sequences | [`lengths`] |
//! | what does an operator bring to be timed | [`Subject`]; [`conv_verify`], [`decode`], [`delta_h`], [`tc_verify`], [`tc_commit`] |
//! | where do inputs lie, and what do they hold | [`arena`] |
//! | how long does a call take | [`measure`] |
//! | how fast is the memory | [`bandwidth`] |
//! | on what, when and how was it measured | [`environment`] |
//! | what is a result | [`report`] |
//! | which variant is preferred where | [`tune`] |
//! | how fast is the same design in CUDA C++, and does it compute the same | [`twin`], [`twin_check`] |
//! | how fast are other projects' kernels | [`peers`] |
//! | all of it together | [`session`] |

pub mod arena;
pub mod bandwidth;
pub mod conv_verify;
pub mod decode;
pub mod delta_h;
pub mod environment;
pub mod lengths;
pub mod measure;
pub mod peers;
pub mod report;
pub mod session;
pub mod shape;
pub mod tc_commit;
pub mod tc_verify;
pub mod tune;
pub mod twin;
pub mod twin_check;

use arena::Arena;
use kda_core::{Executor, KernelDesc, PreparedLaunch, TensorArg};
use kda_runtime::{OpError, Plan};
use shape::{List, Shape};

/// Why timing ends early.
pub type Failure = Box<dyn std::error::Error>;

/// How a launch overlaps its predecessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Launch {
    /// It starts when its predecessor has ended.
    Plain,
    /// Programmatic dependent launch; everything is read behind the wait for the predecessor.
    Pdl,
    /// Programmatic dependent launch; what the predecessor does not write is read ahead of the wait.
    PdlStable,
}

impl Launch {
    /// All of them.
    pub const ALL: [Launch; 3] = [Launch::Plain, Launch::Pdl, Launch::PdlStable];

    /// Name as given on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Launch::Plain => "plain",
            Launch::Pdl => "pdl",
            Launch::PdlStable => "pdl-stable",
        }
    }

    /// The one of that name.
    pub fn find(name: &str) -> Option<Launch> {
        Launch::ALL.into_iter().find(|launch| launch.name() == name)
    }
}

/// Tensor types and switches that an operator is timed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contract {
    /// Name as given on a command line.
    pub name: &'static str,
    /// In words.
    pub text: &'static str,
}

/// Calls whose variants are preferred by the same tables, one for each launch.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// What the names of its tables begin with.
    pub prefix: &'static str,
    /// Which calls, in words; empty for all.
    pub text: &'static str,
    /// What they are timed with: at each size that contract counts in which a variant is worst beside the fastest one.
    pub contracts: &'static [Contract],
}

/// An operator under the bench.
pub trait Subject: Sync {
    /// Its name, that of `kda_runtime::operators`.
    fn name(&self) -> &'static str;

    /// What it is timed with.
    fn contracts(&self) -> &'static [Contract];

    /// The launch modes that its calls differ in.
    fn launches(&self) -> &'static [Launch] {
        &Launch::ALL
    }

    /// The shapes of a list.
    fn shapes(&self, list: List) -> Vec<Shape>;

    /// Bytes that a call reads and writes at least.
    fn bytes(&self, contract: &Contract, shape: Shape) -> f64;

    /// Its kernels.
    fn kernels(&self) -> Vec<&'static KernelDesc>;

    /// Takes the tensors of one call from the arena.
    ///
    /// # Errors
    /// The device refuses a copy, or the arena is full.
    fn call(&self, arena: &mut Arena, contract: &Contract, shape: Shape) -> Result<Box<dyn Call>, Failure>;

    /// The preference tables that its dispatch reads, each for all launches.
    fn choices(&self) -> &'static [Choice];

    /// The file that holds them, relative to the repository.
    fn preference(&self) -> &'static str;

    /// Its hand-written twin in CUDA C++.
    fn twin(&self) -> Option<&dyn twin::Twin> {
        None
    }

    /// The script that times its peers, relative to the repository.
    fn peers(&self) -> Option<&'static str> {
        None
    }
}

/// One call of an operator, its tensors in place.
pub trait Call {
    /// Plans it: the kernel named, or what dispatch chooses.
    ///
    /// # Errors
    /// The kernel named cannot run it.
    fn plan(
        &self,
        executor: &dyn Executor,
        kernel: Option<&'static KernelDesc>,
        launch: Launch,
    ) -> Result<Plan, OpError>;

    /// What runs once ahead of any number of calls, on the same tensors: its name and plan. It is timed on its own.
    ///
    /// # Errors
    /// The device cannot run it.
    fn ahead(&self, _executor: &dyn Executor) -> Result<Option<(&'static str, Plan)>, OpError> {
        Ok(None)
    }

    /// The same call by hand-written kernels, the one named among them; `None` if that kernel cannot run it.
    fn twin(&self, _kernel: &twin::Kernel, _launch: Launch) -> Option<Vec<PreparedLaunch>> {
        None
    }

    /// The results that are compared with the twin's: dense tensors of bf16 or f32.
    fn outputs(&self) -> Vec<TensorArg> {
        Vec::new()
    }
}

/// Every operator that can be timed.
pub fn subjects() -> Vec<&'static dyn Subject> {
    vec![&conv_verify::ConvVerify, &decode::Decode, &delta_h::DeltaH, &tc_verify::TcVerify, &tc_commit::TcCommit]
}
