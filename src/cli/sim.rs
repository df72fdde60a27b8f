//! `kda sim`: one kernel in the simulator.

use super::select::{self, select};
use super::{Stop, Verdict};
use clap::Args;
use kda::core::KernelDesc;
use kda::runtime::executor::sim::{Schedule, schedule_name, schedule_of};

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

/// Finds the kernel and the schedule. A kernel runs on the inputs that its operator makes; no operator of this build
/// makes any, so that is the answer.
pub fn run(arguments: &Arguments, kernels: &[&'static KernelDesc]) -> Result<Verdict, Stop> {
    let desc = select(kernels, &arguments.kernel)?;
    let name = arguments.schedule.as_str();
    if schedule_of(name).is_none() {
        let names: Vec<&str> = Schedule::ALL.into_iter().map(schedule_name).collect();
        return Err(Stop::Input(format!("there is no schedule `{name}`; one of {} is needed", names.join(", "))));
    }
    Err(Stop::Input(format!(
        "{} cannot be simulated (schedule {name}, seed {}): no operator of this build makes inputs for it",
        desc.entry, arguments.seed
    )))
}
