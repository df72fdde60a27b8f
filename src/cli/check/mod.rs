//! `kda check`: every operator against the golden model.
//!
//! An operator brings its own cases and bounds as an [`Operator`]; this file runs them, shows what they measured and
//! decides.

use super::select::hint;
use super::table::{Align, Table};
use super::{BackendName, Stop, Streams, Verdict, progress};
use clap::Args;
use kda::runtime::{Opened, open};

/// Options of `kda check`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Check this operator alone; may be given several times.
    #[arg(long = "op", value_name = "OP")]
    ops: Vec<String>,
    /// What runs the kernels.
    #[arg(long, value_enum, default_value = "auto")]
    backend: BackendName,
    /// A few small cases only.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Every case, long ones included.
    #[arg(long)]
    full: bool,
    /// Seed of the inputs.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// How much is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// A few small cases.
    Quick,
    /// What is worth checking at every change.
    Usual,
    /// Every case.
    Full,
}

impl Extent {
    fn name(self) -> &'static str {
        match self {
            Extent::Quick => "quick",
            Extent::Usual => "usual",
            Extent::Full => "all",
        }
    }
}

/// What a check is to use.
pub struct Request<'r> {
    /// The executor, and how it was chosen.
    pub device: &'r Opened,
    /// How much is checked.
    pub extent: Extent,
    /// Seed of the inputs.
    pub seed: u64,
}

/// One output of one case, compared with the golden model.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The case: sizes and what is special about it.
    pub case: String,
    /// Which output, and in which measure.
    pub output: String,
    /// What was found.
    pub error: f64,
    /// What is allowed: a bound derived from the data.
    pub budget: f64,
}

impl Measured {
    /// True if the error is a number within the budget.
    pub fn passes(&self) -> bool {
        self.error <= self.budget
    }
}

/// Takes a request, hands every result to the second argument, and may fail with one line.
pub type Run = fn(&Request, &mut dyn FnMut(Measured)) -> Result<(), String>;

/// The checks of one operator.
pub struct Operator {
    /// Name for `--op`.
    pub name: &'static str,
    /// Runs the cases and hands out each result as it comes. An error is one line: what could not be done, and why.
    pub run: Run,
}

/// Every operator of this build that can be checked.
pub fn operators() -> Vec<Operator> {
    Vec::new()
}

/// Runs the checks; passes only if something was measured and all of it is within its budget.
pub fn run(arguments: &Arguments, operators: &[Operator], streams: &mut Streams) -> Result<Verdict, Stop> {
    let names: Vec<&str> = operators.iter().map(|operator| operator.name).collect();
    if let Some(unknown) = arguments.ops.iter().find(|wanted| !names.contains(&wanted.as_str())) {
        return Err(Stop::Input(format!("there is no operator `{unknown}`{}", hint(unknown, &names, "kda check"))));
    }
    if operators.is_empty() {
        writeln!(streams.err, "error: this build has no operator to check")?;
        return Ok(Verdict::Failed);
    }
    let device = open(arguments.backend.into()).map_err(|cause| Stop::Input(cause.to_string()))?;
    run_on(arguments, operators, &device, streams)
}

fn run_on(
    arguments: &Arguments,
    operators: &[Operator],
    device: &Opened,
    streams: &mut Streams,
) -> Result<Verdict, Stop> {
    let extent = match (arguments.quick, arguments.full) {
        (true, _) => Extent::Quick,
        (false, true) => Extent::Full,
        (false, false) => Extent::Usual,
    };
    let request = Request { device, extent, seed: arguments.seed };
    writeln!(streams.out, "{}; {} cases, seed {}", request.device.why, request.extent.name(), request.seed)?;
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
    let bar = progress::bar(chosen.len());
    for operator in chosen {
        bar.set_message(operator.name);
        let mut measured = 0;
        let mut take = |result: Measured| {
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
        let result = (operator.run)(&request, &mut take);
        if let Err(cause) = result {
            failed += 1;
            causes.push(format!("{}: {cause}", operator.name));
        } else if measured == 0 {
            failed += 1;
            causes.push(format!("{}: nothing was measured", operator.name));
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    table.write(streams.out)?;
    for cause in causes {
        writeln!(streams.err, "error: {cause}")?;
    }
    writeln!(streams.out, "{passed} passed, {failed} failed")?;
    Ok(if failed == 0 && passed > 0 { Verdict::Passed } else { Verdict::Failed })
}

#[cfg(test)]
mod tests;
