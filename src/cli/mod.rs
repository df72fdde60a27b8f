//! The command line: what each subcommand takes, and how a result becomes an exit code.
//!
//! ```text
//! 0    everything asked for was done and every check passed
//! 1    a check failed, or nothing was there to check
//! 2    wrong usage or unusable input
//! 141  whoever read the output went away
//! ```
//! Results go to standard output; causes of failures go to standard error, one line each.

mod assemble;
mod bench;
mod card;
mod check;
mod explain;
mod list;
mod mutate;
mod progress;
mod ptx;
mod replay;
mod select;
mod sim;
mod table;

#[cfg(test)]
mod fixture;

use clap::{Parser, Subcommand, ValueEnum};
use kda::registry::kernels;
use kda::runtime::Backend;
use std::io::{self, Write};
use std::process::ExitCode;

/// Kimi Delta Attention kernels: checked, shown, simulated, run.
#[derive(Debug, Parser)]
#[command(name = "kda", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compare every operator with the golden model, within bounds derived from the data.
    Check(check::Arguments),
    /// Replay golden cases of third-party references: cases.json and the safetensors files beside it.
    Replay(replay::Arguments),
    /// List the kernels of this build.
    List(list::Arguments),
    /// Print the PTX text of a kernel.
    Ptx(select::Arguments),
    /// Draw a kernel: launch, shared memory, roles, registers, barriers, parameters, what it requires.
    Card(select::Arguments),
    /// Run a kernel in the simulator and report races, stray accesses and deadlocks.
    Sim(sim::Arguments),
    /// Drop or change each synchronisation of a kernel, and show which net notices.
    Mutate(mutate::Arguments),
    /// Assemble kernels with ptxas, and report errors, spills and lost optimisations at their Rust lines.
    Assemble(assemble::Arguments),
    /// Time an operator on a CUDA device, beside its byte floor, a hand-written twin and other projects' kernels.
    Bench(bench::Arguments),
    /// Explain a code such as KDA0605: what is wrong, and what to write instead.
    Explain(explain::Arguments),
}

/// The option `--backend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BackendName {
    /// CUDA where a device is usable, otherwise the simulator.
    Auto,
    /// The first CUDA device.
    Cuda,
    /// The simulator.
    Sim,
}

impl From<BackendName> for Backend {
    fn from(name: BackendName) -> Backend {
        match name {
            BackendName::Auto => Backend::Auto,
            BackendName::Cuda => Backend::Cuda,
            BackendName::Sim => Backend::Sim,
        }
    }
}

/// What a command found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// All that was asked for was done, and passed.
    Passed,
    /// Something failed, or nothing was there to check.
    Failed,
}

/// Why a command could not do what was asked.
#[derive(Debug, thiserror::Error)]
enum Stop {
    /// Wrong usage or unusable input: what is wrong and what is needed, in one line.
    #[error("{0}")]
    Input(String),
    /// Standard output or standard error could not be written.
    #[error("the output cannot be written: {0}")]
    Output(#[from] io::Error),
}

/// Where a command writes: results to the first, causes of failures to the second.
struct Streams<'s> {
    out: &'s mut dyn Write,
    err: &'s mut dyn Write,
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (mut out, mut err) = (io::stdout().lock(), io::stderr());
    let result = run(arguments.command, &mut Streams { out: &mut out, err: &mut err });
    let result = result.and_then(|verdict| out.flush().map(|()| verdict).map_err(Stop::from));
    ExitCode::from(exit_code(result, &mut err))
}

fn run(command: Command, streams: &mut Streams) -> Result<Verdict, Stop> {
    match command {
        Command::Check(arguments) => {
            let all = [kda::checks::operators(), kda::fuzz::operators()].concat();
            check::run(&arguments, &all, streams)
        }
        Command::Replay(arguments) => replay::run(&arguments, &kda::checks::operators(), streams),
        Command::List(arguments) => list::run(&arguments, &kernels(), streams),
        Command::Ptx(arguments) => ptx::run(&arguments, &kernels(), streams),
        Command::Card(arguments) => card::run(&arguments, &kernels(), streams),
        Command::Sim(arguments) => sim::run(&arguments, &kernels(), &kda::checks::operators(), streams),
        Command::Mutate(arguments) => mutate::run(&arguments, &kernels(), streams),
        Command::Assemble(arguments) => assemble::run(&arguments, &kernels(), streams),
        Command::Bench(arguments) => bench::run(&arguments, &kda::bench::subjects(), streams),
        Command::Explain(arguments) => explain::run(&arguments, streams),
    }
}

fn exit_code(result: Result<Verdict, Stop>, err: &mut dyn Write) -> u8 {
    match result {
        Ok(Verdict::Passed) => 0,
        Ok(Verdict::Failed) => 1,
        Err(Stop::Output(cause)) if cause.kind() == io::ErrorKind::BrokenPipe => 141,
        Err(stop) => {
            // Without standard error the exit code is all that is left to say.
            let _ = writeln!(err, "error: {stop}");
            2
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
        let parsed = Arguments::try_parse_from(["kda", "check", "--quick", "--full"]);
        assert!(parsed.is_err(), "quick and full at once");
        for backend in ["auto", "cuda", "sim"] {
            assert!(Arguments::try_parse_from(["kda", "replay", "folder", "--backend", backend]).is_ok());
        }
    }

    #[test]
    fn exit_codes_follow_the_result() {
        let mut err = Vec::new();
        assert_eq!(exit_code(Ok(Verdict::Passed), &mut err), 0);
        assert_eq!(exit_code(Ok(Verdict::Failed), &mut err), 1);
        assert_eq!(exit_code(Err(Stop::Output(io::ErrorKind::BrokenPipe.into())), &mut err), 141);
        assert!(err.is_empty());
        assert_eq!(exit_code(Err(Stop::Input("no such folder".into())), &mut err), 2);
        assert_eq!(exit_code(Err(Stop::Output(io::ErrorKind::StorageFull.into())), &mut err), 2);
        assert!(String::from_utf8(err).unwrap().starts_with("error: no such folder\n"));
    }
}
