//! `kda sim`: one kernel in the simulator.

use super::select::{self, select};
use super::{Stop, Verdict};
use clap::Args;
use kda::core::KernelDesc;

/// Options of `kda sim`.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    kernel: select::Arguments,
    /// In which order warps and asynchronous work advance.
    #[arg(long, default_value = "round-robin")]
    schedule: String,
    /// Seed of the schedule and of the inputs.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Finds the kernel; this build has no simulator to run it in.
pub fn run(arguments: &Arguments, kernels: &[&'static KernelDesc]) -> Result<Verdict, Stop> {
    let desc = select(kernels, &arguments.kernel)?;
    Err(Stop::Input(format!(
        "{} cannot be simulated under schedule {} with seed {}: this build has no simulator",
        desc.entry, arguments.schedule, arguments.seed
    )))
}
