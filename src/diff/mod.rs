//! The simulator against a device: the shipped texts on the same inputs on both, and their results compared.
//!
//! | question | module |
//! | --- | --- |
//! | how does one launch run on both | [`pair`] |
//! | how far apart are two results | [`distance`] |
//!
//! Each variant runs on its operator's sample problem. A text without approximations and without products gives the same bits on
//! both. Another text gives results within the operator's largest budget of each other: the device's result is held against the
//! golden model as well, and two results within one budget of the truth are within twice that of each other.

pub mod distance;
pub mod pair;

use crate::checks::{Device, Measured, Operator, Sink};
use kda_core::{Executor, KernelDesc};
use kda_runtime::Guarding;
use kda_runtime::executor::sim::{Options, SimExecutor};
use pair::PairExecutor;

/// Runs the sample problem of a variant on both, and hands out a row a tensor that the kernel writes, and the rows of the device's
/// own results.
///
/// # Errors
/// What a device or the simulator says, and a tensor that one of them alone has written.
pub fn variant(
    operator: &Operator,
    device: &dyn Executor,
    desc: &'static KernelDesc,
    seed: u64,
    sink: Sink,
) -> Result<(), String> {
    let simulator = SimExecutor::for_kernel(Options::default(), desc);
    let pair = PairExecutor::new(device, &simulator);
    let mut judged: Vec<Measured> = Vec::new();
    let both = Device { executor: &pair, guarding: Guarding::BANDS };
    (operator.sample)(both, desc, seed, &mut |measured, _| judged.push(measured))?;
    let largest = judged.iter().map(|measured| measured.budget).fold(0.0, f64::max);
    let budget = if is_exact(desc.ptx) { 0.0 } else { largest };
    let differences = pair.differences();
    if differences.is_empty() {
        return Err(format!("{}: nothing that was launched writes a tensor", desc.entry));
    }
    for found in differences {
        let output = format!("{}: {} of {} elements differ", found.tensor, found.differing, found.written);
        // Integers are equal, whatever else the kernel computes.
        let budget = if found.elem.is_float() { budget } else { 0.0 };
        sink(Measured { case: desc.entry.into(), output, error: found.distance, budget }, 1.0);
    }
    judged.into_iter().for_each(|measured| sink(measured, 1.0));
    Ok(())
}

/// True if the PTX ISA fixes every bit of what a text computes.
fn is_exact(ptx: &str) -> bool {
    ![
        "rcp.approx",
        "rsqrt.approx",
        "sqrt.approx",
        "ex2.approx",
        "lg2.approx",
        "tanh.approx",
        "sin.approx",
        "cos.approx",
    ]
    .iter()
    .chain(&["div.approx", "div.full", "mma.sync", "wgmma.mma", "tcgen05.mma"])
    .any(|inexact| ptx.contains(inexact))
}

#[cfg(test)]
mod tests;
