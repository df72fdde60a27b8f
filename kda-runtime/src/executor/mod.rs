//! Chooses the device that runs kernels: the CUDA driver where there is one, otherwise the simulator.
//!
//! The choice is never silent: [`Opened::why`] says what was chosen and for which reason.

use crate::Guarding;
use kda_core::Executor;
use kda_core::exec::ExecError;
use std::fmt;

#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(feature = "sim")]
pub mod sim;

/// Which executor the caller wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Backend {
    /// CUDA where a device is usable, otherwise the simulator.
    #[default]
    Auto,
    /// The first CUDA device; an error where there is none.
    Cuda,
    /// The simulator.
    Sim,
}

impl Backend {
    /// Name as given on a command line: `auto`, `cuda` or `sim`.
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Auto => "auto",
            Backend::Cuda => "cuda",
            Backend::Sim => "sim",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An executor, and how it was chosen.
pub struct Opened {
    /// The executor.
    pub executor: Box<dyn Executor>,
    /// What was chosen: [`Backend::Cuda`] or [`Backend::Sim`], never [`Backend::Auto`].
    pub backend: Backend,
    /// One line: what was chosen and why.
    pub why: String,
}

impl Opened {
    /// How test buffers are to be guarded on this executor. The simulator finds accesses outside an allocation and
    /// reads of memory never written by itself; guard bands and poison would hide both from it.
    pub fn guarding(&self) -> Guarding {
        match self.backend {
            Backend::Sim => Guarding::NONE,
            Backend::Auto | Backend::Cuda => Guarding::BANDS,
        }
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("backend", &self.backend).field("why", &self.why).finish_non_exhaustive()
    }
}

/// Opens an executor: for CUDA the first device, for the simulator its default schedule.
///
/// # Errors
/// [`ExecError::NoDevice`] if CUDA is asked for and no device is usable; [`ExecError::Unsupported`] if what is asked
/// for is not part of this build. [`Backend::Auto`] gives an error only if neither can be opened.
pub fn open(backend: Backend) -> Result<Opened, ExecError> {
    match backend {
        Backend::Cuda => open_cuda("asked for by name"),
        Backend::Sim => open_sim("asked for by name"),
        Backend::Auto => match open_cuda("a usable device was found") {
            Err(cause @ (ExecError::NoDevice(_) | ExecError::Unsupported(_))) => match open_sim(&cause.to_string()) {
                Err(ExecError::Unsupported(other)) => Err(ExecError::NoDevice(format!("{cause}; {other}"))),
                opened => opened,
            },
            // A device that is there and does not work is an error; simulating instead would hide it.
            opened => opened,
        },
    }
}

#[cfg(feature = "cuda")]
fn open_cuda(reason: &str) -> Result<Opened, ExecError> {
    let executor = cuda::CudaExecutor::open(0)?;
    let why = format!("backend cuda ({reason}): {}", executor.describe());
    Ok(Opened { executor: Box::new(executor), backend: Backend::Cuda, why })
}

#[cfg(not(feature = "cuda"))]
fn open_cuda(_reason: &str) -> Result<Opened, ExecError> {
    Err(ExecError::Unsupported("this build has no CUDA executor; build with the feature `cuda`".into()))
}

/// Opens the simulator with these options: schedule, order of CTAs, seed, checks.
#[cfg(feature = "sim")]
pub fn open_sim_with(options: sim::Options) -> Opened {
    simulator(options, "asked for with options")
}

#[cfg(feature = "sim")]
fn simulator(options: sim::Options, reason: &str) -> Opened {
    let executor = sim::SimExecutor::new(options);
    let why = format!("backend sim ({reason}): {}", executor.describe());
    Opened { executor: Box::new(executor), backend: Backend::Sim, why }
}

#[cfg(feature = "sim")]
fn open_sim(reason: &str) -> Result<Opened, ExecError> {
    Ok(simulator(sim::Options::default(), reason))
}

#[cfg(not(feature = "sim"))]
fn open_sim(_reason: &str) -> Result<Opened, ExecError> {
    Err(ExecError::Unsupported("this build has no simulator; build with the feature `sim`".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        let names = [Backend::Auto, Backend::Cuda, Backend::Sim].map(|b| b.to_string());
        assert_eq!(names, ["auto", "cuda", "sim"]);
        assert_eq!(Backend::default(), Backend::Auto);
    }

    #[cfg(feature = "sim")]
    #[test]
    fn there_is_always_the_simulator() {
        assert_eq!(open(Backend::Sim).unwrap().backend, Backend::Sim);
        let auto = open(Backend::Auto).unwrap();
        assert!(auto.backend == Backend::Cuda || auto.why.contains("CUDA device"), "{}", auto.why);
    }

    #[cfg(feature = "sim")]
    #[test]
    fn the_simulator_opens_with_options() {
        let (schedule, cta_order) = (sim::Schedule::LateAsync, sim::CtaOrder::Reverse);
        let opened = open_sim_with(sim::Options { schedule, cta_order, seed: 7, ..sim::Options::default() });
        assert_eq!(opened.backend, Backend::Sim);
        assert!(opened.why.contains("schedule late-async, CTAs reverse, seed 7"), "{}", opened.why);
    }

    #[test]
    fn a_choice_says_what_and_why() {
        for backend in [Backend::Auto, Backend::Cuda, Backend::Sim] {
            match open(backend) {
                Ok(opened) => {
                    assert_ne!(opened.backend, Backend::Auto);
                    assert!(opened.why.contains(opened.backend.name()), "{}", opened.why);
                    assert!(backend == Backend::Auto || backend == opened.backend);
                }
                Err(ExecError::NoDevice(why) | ExecError::Unsupported(why)) => assert!(!why.is_empty()),
                Err(other) => panic!("{backend}: {other}"),
            }
        }
    }
}
