//! `kda check --diff`: the variants of one operator on a device and in the simulator.

use kda::checks::{Operator, Request, Sink};
use kda::registry::kernels;
use std::io::Write;

/// Compares every variant that the device can run; what it cannot is said on standard error.
pub fn run(request: &Request, operator: &Operator, err: &mut dyn Write, sink: Sink) -> Result<(), String> {
    let executor = request.device.executor.as_ref();
    let (major, minor) = executor.compute_capability();
    let variants: Vec<_> = kernels().into_iter().filter(|desc| desc.family == operator.name).collect();
    for (index, desc) in variants.iter().enumerate() {
        let share = (index + 1) as f64 / variants.len() as f64;
        if !desc.arch.runs_on(major, minor) {
            let said = writeln!(err, "{}: not compared, it needs {}", desc.entry, desc.arch);
            said.map_err(|cause| format!("standard error cannot be written: {cause}"))?;
            continue;
        }
        kda::diff::variant(operator, executor, desc, request.seed, &mut |measured, _| sink(measured, share))?;
    }
    Ok(())
}

/// True if the device can run no variant of the operator.
pub fn is_for_other_devices(request: &Request, operator: &Operator) -> bool {
    let (major, minor) = request.device.executor.compute_capability();
    kernels().iter().all(|desc| desc.family != operator.name || !desc.arch.runs_on(major, minor))
}
