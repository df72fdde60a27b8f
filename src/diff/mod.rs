//! The simulator against a device: the shipped texts on the same inputs on both, and their results compared.
//!
//! | question | module |
//! | --- | --- |
//! | how does one launch run on both | [`pair`] |
//! | how far apart are two results | [`distance`] |
//!
//! Each variant runs on its operator's sample problem. A text without approximations and without products gives the same bits on
//! both, and so does a tensor that any text only copies. Another tensor is within the operator's budget for it of each other; the
//! device's result is held against the golden model as well.

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
    let differences = pair.differences();
    if differences.is_empty() {
        return Err(format!("{}: nothing that was launched writes a tensor", desc.entry));
    }
    for found in differences {
        let output = format!("{}: {} of {} elements differ", found.tensor, found.differing, found.written);
        // Integers are equal, whatever else the kernel computes.
        let exact = is_exact(desc.ptx) || !found.elem.is_float();
        let budget = if exact { 0.0 } else { budget(&judged, found.tensor) };
        sink(Measured { case: desc.entry.into(), output, error: found.distance, budget }, 1.0);
    }
    judged.into_iter().for_each(|measured| sink(measured, 1.0));
    Ok(())
}

/// What the operator allows for a tensor: the budget of its only output that is not compared bit for bit, or of the one that the
/// tensor is named after; otherwise the tensor is a copy.
fn budget(judged: &[Measured], tensor: &str) -> f64 {
    let rounded: Vec<&Measured> = judged.iter().filter(|measured| measured.budget > 0.0).collect();
    match rounded.as_slice() {
        [only] => only.budget,
        several => several.iter().find(|m| tensor.starts_with(&m.output)).map_or(0.0, |m| m.budget),
    }
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
