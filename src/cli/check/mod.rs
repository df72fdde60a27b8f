//! `kda check`: every operator against the golden model.
//!
//! An operator brings its own cases and bounds as an [`Operator`]; this file runs them, shows what they measured and
//! decides.

mod diff;

use super::select::hint;
use super::table::{Align, Table};
use super::{BackendName, Stop, Streams, Verdict, progress};
use clap::Args;
use kda::checks::{Extent, Measured, Operator, Request};
use kda::runtime::{Backend, Opened, open};

/// Options of `kda check`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Check this operator alone; may be given several times.
    #[arg(long = "op", value_name = "OP")]
    ops: Vec<String>,
    /// What runs the kernels.
    #[arg(long, value_enum, default_value = "auto")]
    backend: BackendName,
    /// Every variant on a few small problems, which together meet every switch; the default.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Many problems, extreme values, long streams, pools beyond 2^31 elements, in the simulator every schedule: minutes.
    #[arg(long)]
    full: bool,
    /// Every variant on its sample problem, on a CUDA device and in the simulator, and their results compared.
    #[arg(long, conflicts_with_all = ["quick", "full"])]
    diff: bool,
    /// Seed of the inputs; drawn from the clock and printed if absent.
    #[arg(long)]
    seed: Option<u64>,
}

/// Runs the checks; passes only if something was measured and all of it is within its budget.
pub fn run(arguments: &Arguments, operators: &[Operator], streams: &mut Streams) -> Result<Verdict, Stop> {
    let names: Vec<&str> = operators.iter().map(|operator| operator.name).collect();
    if let Some(unknown) = arguments.ops.iter().find(|wanted| !names.contains(&wanted.as_str())) {
        let near = hint(unknown, &names, "kda check --help");
        return Err(Stop::Input(format!(
            "there is no operator `{unknown}`{near}; one of {} is needed",
            names.join(", ")
        )));
    }
    if operators.is_empty() {
        writeln!(streams.err, "error: this build has no operator to check")?;
        return Ok(Verdict::Failed);
    }
    let backend = match (arguments.diff, arguments.backend) {
        (true, BackendName::Sim) => return Err(Stop::Input("--diff needs a CUDA device beside the simulator".into())),
        (true, _) => Backend::Cuda,
        (false, name) => name.into(),
    };
    let device = open(backend).map_err(|cause| Stop::Input(cause.to_string()))?;
    run_on(arguments, operators, &device, streams)
}

fn run_on(
    arguments: &Arguments,
    operators: &[Operator],
    device: &Opened,
    streams: &mut Streams,
) -> Result<Verdict, Stop> {
    let extent = if arguments.full { Extent::Full } else { Extent::Quick };
    let seed = arguments.seed.unwrap_or_else(clock_seed);
    let kind = if arguments.diff { "simulator against device" } else { extent.name() };
    writeln!(streams.out, "{}; {kind} check, seed {seed}", device.why)?;
    let mut table = Table::new(&[
        ("operator", Align::Left),
        ("case", Align::Left),
        ("output", Align::Left),
        ("error", Align::Right),
        ("budget", Align::Right),
        ("verdict", Align::Left),
    ]);
    let (mut passed, mut failed, mut causes) = (0, 0, Vec::new());
    let chosen: Vec<&Operator> = operators
        .iter()
        .filter(|operator| arguments.ops.is_empty() || arguments.ops.iter().any(|name| name == operator.name))
        .collect();
    let bar = progress::bar(chosen.len() * STEPS);
    for (index, operator) in chosen.into_iter().enumerate() {
        bar.set_message(operator.name);
        let progress = |share: f64| bar.set_position(position(index, share));
        let request = Request { device, extent, seed, progress: &progress };
        let mut measured = 0;
        let mut take = |result: Measured, share: f64| {
            bar.set_position(position(index, share));
            measured += 1;
            let passes = result.passes();
            if passes {
                passed += 1
            } else {
                failed += 1
            }
            table.row([
                operator.name.into(),
                result.case,
                result.output,
                format!("{:.2e}", result.error),
                format!("{:.2e}", result.budget),
                if passes { "pass" } else { "fail" }.into(),
            ]);
        };
        let result = if arguments.diff {
            diff::run(&request, operator, streams.err, &mut take)
        } else {
            (operator.run)(&request, &mut take)
        };
        if let Err(cause) = result {
            failed += 1;
            causes.push(format!("{}: {cause}", operator.name));
        } else if measured == 0 && !(arguments.diff && diff::is_for_other_devices(&request, operator)) {
            failed += 1;
            causes.push(format!("{}: nothing was measured", operator.name));
        }
        bar.set_position(position(index + 1, 0.0));
    }
    bar.finish_and_clear();
    table.write(streams.out)?;
    for cause in causes {
        writeln!(streams.err, "error: {cause}")?;
    }
    writeln!(streams.out, "{passed} passed, {failed} failed")?;
    Ok(if failed == 0 && passed > 0 { Verdict::Passed } else { Verdict::Failed })
}

/// Steps of the progress bar for each operator.
const STEPS: usize = 100;

/// Where the progress bar stands when `share` of the work of operator `index` is done.
fn position(index: usize, share: f64) -> u64 {
    ((index as f64 + share.clamp(0.0, 1.0)) * STEPS as f64) as u64
}

/// A seed that differs from run to run.
fn clock_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |d| d.as_nanos() as u64)
}

#[cfg(test)]
mod tests;
