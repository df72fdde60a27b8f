//! `kda bench`: how long an operator takes on a CUDA device, beside its byte floor, its hand-written twin and its peers.

mod again;
mod files;
mod show;

#[cfg(test)]
mod tests;

use super::select::hint;
use super::{Stop, Streams, Verdict, progress};
use again::Earlier;
use clap::Args;
use files::Files;
use kda::bench::arena::Arena;
use kda::bench::environment::Environment;
use kda::bench::report::Report;
use kda::bench::session::{Event, Request, Variants};
use kda::bench::shape::{List, Shapes};
use kda::bench::{Choice, Contract, Failure, Launch, Subject, bandwidth, session, tune};
use kda::core::Executor;
use kda::core::exec::ExecError;
use kda::runtime::executor::cuda::CudaExecutor;
use kda::runtime::executor::sim::SimExecutor;
use kda::runtime::operators::preference::is_named;
use std::path::PathBuf;

/// Options of `kda bench`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Operator to time: conv_verify, decode, delta_h, tc_verify or tc_commit.
    op: String,
    /// Sizes: all, small, table (the default) or a list of T:H:N (tokens, heads, requests); for delta_h rows, heads and sequences,
    /// or fixed8192:H and mixed6:H.
    #[arg(long, value_name = "LIST")]
    shapes: Option<Shapes>,
    /// Our kernels: auto (dispatch's choice), all (every one that can run a shape), or an entry or variant name.
    #[arg(long, value_name = "WHICH", default_value = "auto")]
    variants: String,
    /// Launch modes: plain, pdl, pdl-stable; those that the operator's calls differ in are timed.
    #[arg(long, value_name = "MODES", value_delimiter = ',', default_value = "plain,pdl,pdl-stable")]
    launch: Vec<String>,
    /// Contracts; all of the operator's if absent.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    contract: Vec<String>,
    /// Time with one input set, too, so that what fits L2 is there (two sets with pdl-stable).
    #[arg(long)]
    warm: bool,
    /// Write every result as CSV, each shape as it is done.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write every result as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Time other projects' kernels in the same run (python3 or $PYTHON, with PyTorch; benches/peers/fetch.sh fetches them).
    #[arg(long)]
    peers: bool,
    /// Time the hand-written CUDA C++ kernels in turn with ours (nvcc from $NVCC, the path or /usr/local/cuda).
    #[arg(long)]
    twin: bool,
    /// Time every variant over a grid of sizes, and write the preference table that dispatch reads; --tune=FILE elsewhere.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, conflicts_with_all = ["variants", "launch", "peers", "twin"])]
    tune: Option<Option<PathBuf>>,
    /// Make the table from the CSV of an earlier run, which needs no device.
    #[arg(long, value_name = "CSV", requires = "tune")]
    from: Option<PathBuf>,
    /// Replays of each graph.
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    samples: u32,
}

/// Times an operator.
pub fn run(arguments: &Arguments, subjects: &[&'static dyn Subject], streams: &mut Streams) -> Result<Verdict, Stop> {
    let subject = find(&arguments.op, subjects)?;
    let request = request(arguments, subject)?;
    if let Some(csv) = &arguments.from {
        let text = std::fs::read_to_string(csv).map_err(|cause| Stop::Input(format!("{}: {cause}", csv.display())))?;
        let earlier = again::read(&text, subject).map_err(|what| Stop::Input(format!("{}: {what}", csv.display())))?;
        return write_preference(arguments, subject, &request, &SimExecutor::default(), &earlier, streams);
    }
    let executor = match CudaExecutor::open(0) {
        Ok(executor) => executor,
        Err(ExecError::NoDevice(why)) => {
            writeln!(streams.out, "nothing timed: {why}")?;
            return Ok(Verdict::Passed);
        }
        Err(error) => return Err(Stop::Input(error.to_string())),
    };
    let report = measure(arguments, subject, &request, &executor, streams)?;
    let (environment, multiprocessors) = (report.environment.line(), executor.multiprocessors());
    let measured = Earlier { environment, multiprocessors, rows: report.rows };
    write_preference(arguments, subject, &request, &executor, &measured, streams)
}

/// The operator of that name.
fn find(op: &str, subjects: &[&'static dyn Subject]) -> Result<&'static dyn Subject, Stop> {
    subjects.iter().copied().find(|subject| subject.name() == op).ok_or_else(|| {
        let names: Vec<&str> = subjects.iter().map(|subject| subject.name()).collect();
        let near = hint(op, &names, "kda bench --help");
        Stop::Input(format!("there is no operator `{op}` to time{near}; one of {} is needed", names.join(", ")))
    })
}

/// What the options ask for.
fn request(arguments: &Arguments, subject: &dyn Subject) -> Result<Request, Stop> {
    let tunes = arguments.tune.is_some();
    let default = Shapes::Named(if tunes { List::Tune } else { List::Table });
    let shapes = match arguments.shapes.as_ref().unwrap_or(&default) {
        Shapes::Named(list) => subject.shapes(*list),
        Shapes::Given(shapes) => shapes.clone(),
    };
    if let Shapes::Given(shapes) = arguments.shapes.as_ref().unwrap_or(&default) {
        for (contract, shape) in
            subject.contracts().iter().flat_map(|contract| shapes.iter().map(move |s| (contract, *s)))
        {
            let call = subject.call(&mut Arena::counting(), contract, shape);
            call.map_err(|failure| Stop::Input(failure.to_string()))?;
        }
    }
    let launches = arguments.launch.iter().map(|name| {
        let needed = Launch::ALL.map(Launch::name).join(", ");
        Launch::find(name).ok_or_else(|| Stop::Input(format!("there is no launch mode `{name}`; {needed} are known")))
    });
    let mut launches = launches.collect::<Result<Vec<Launch>, Stop>>()?;
    launches.retain(|launch| subject.launches().contains(launch));
    if launches.is_empty() {
        let needed = subject.launches().iter().map(|launch| launch.name()).collect::<Vec<_>>().join(", ");
        return Err(Stop::Input(format!("{} has the launch modes {needed}; one of them is needed", subject.name())));
    }
    let mut request = Request {
        shapes,
        contracts: contracts(&arguments.contract, subject)?,
        launches,
        variants: variants(&arguments.variants, subject)?,
        warm: arguments.warm,
        twin: arguments.twin,
        peers: arguments.peers,
        samples: arguments.samples as usize,
    };
    if tunes && subject.choices().is_empty() {
        return Err(Stop::Input(format!("{} has no preference tables that times would fill", subject.name())));
    }
    if tunes {
        request.variants = Variants::EachName;
        request.launches = subject.launches().to_vec();
        let chosen: Vec<Contract> = subject.choices().iter().flat_map(|choice| choice.contracts).copied().collect();
        if !arguments.contract.is_empty() && chosen.iter().any(|contract| !request.contracts.contains(contract)) {
            let needed: Vec<&str> = chosen.iter().map(|contract| contract.name).collect();
            return Err(Stop::Input(format!("the tables of {} need times with {}", subject.name(), needed.join(", "))));
        }
        request.contracts = chosen;
    }
    Ok(request)
}

fn contracts(names: &[String], subject: &dyn Subject) -> Result<Vec<Contract>, Stop> {
    let all = subject.contracts();
    if names.is_empty() {
        return Ok(all.to_vec());
    }
    let find = |name: &String| {
        let known: Vec<&str> = all.iter().map(|contract| contract.name).collect();
        all.iter().copied().find(|contract| contract.name == name).ok_or_else(|| {
            let op = subject.name();
            Stop::Input(format!("{op} has no contract `{name}`; one of {} is needed", known.join(", ")))
        })
    };
    names.iter().map(find).collect()
}

fn variants(name: &str, subject: &dyn Subject) -> Result<Variants, Stop> {
    match name {
        "auto" => Ok(Variants::Auto),
        "all" => Ok(Variants::All),
        _ => {
            let kernels = subject.kernels();
            if kernels.iter().any(|desc| desc.entry == name || is_named(desc.entry, name)) {
                return Ok(Variants::Named(name.into()));
            }
            let entries: Vec<&str> = kernels.iter().map(|desc| desc.entry).collect();
            let near = hint(name, &entries, "kda list");
            let needed = "auto, all, an entry, or an entry's suffix without the number of tokens is needed";
            Err(Stop::Input(format!("{} has no variant `{name}`{near}; {needed}", subject.name())))
        }
    }
}

/// Times everything, shows it, and writes the files.
fn measure(
    arguments: &Arguments,
    subject: &dyn Subject,
    request: &Request,
    executor: &CudaExecutor,
    streams: &mut Streams,
) -> Result<Report, Stop> {
    let environment = Environment::of(executor.describe());
    writeln!(streams.out, "# {}", environment.line())?;
    let mut files = Files::create(arguments.csv.as_deref(), arguments.json.as_deref(), &environment)?;
    let mut report = Report { environment, bandwidth: None, notes: Vec::new(), rows: Vec::new() };
    match bandwidth::measure(executor) {
        Ok(measured) => {
            report.bandwidth = Some(measured);
            writeln!(streams.out, "# copy {:.2} TB/s, fill {:.2} TB/s in this run", measured.copy, measured.fill)?;
        }
        Err(failure) => report.notes.push(format!("the memory's speed was not measured: {failure}")),
    }
    let bar = progress::bar(request.shapes.len() * request.contracts.len());
    let mut watch = |event: Event| -> Result<(), Failure> {
        match event {
            Event::Rows(rows) => {
                files.rows(rows)?;
                report.rows.extend_from_slice(rows);
                bar.inc(1);
            }
            Event::Note(note) => {
                files.note(&note)?;
                report.notes.push(note);
            }
            Event::Step(what) => bar.set_message(what),
        }
        Ok(())
    };
    let done = session::run(executor, subject, report.bandwidth, request, &mut watch);
    bar.finish_and_clear();
    // What was timed ahead of a failure is shown all the same.
    show::write(streams.out, &report, request)?;
    files.report(&report)?;
    done.map_err(|failure| Stop::Input(format!("the run stopped early: {failure}")))?;
    Ok(report)
}

/// Makes the preference tables of what was measured, if they are asked for, and writes them whole or not at all.
fn write_preference(
    arguments: &Arguments,
    subject: &dyn Subject,
    request: &Request,
    executor: &dyn Executor,
    measured: &Earlier,
    streams: &mut Streams,
) -> Result<Verdict, Stop> {
    let Some(file) = &arguments.tune else { return Ok(Verdict::Passed) };
    let path = file.clone().unwrap_or_else(|| subject.preference().into());
    let tables = |choice: &Choice| {
        let covers = |variant: &str, t: u64| tune::covers(subject, executor, choice, variant, t);
        tune::tables(&measured.rows, &request.launches, choice, &covers)
    };
    let tables: Vec<tune::Tables> = subject.choices().iter().map(tables).collect();
    let text =
        tune::source(subject.name(), &measured.environment, measured.multiprocessors, &request.contracts, &tables)
            .map_err(|failure| Stop::Input(format!("there is no table to write: {failure}")))?;
    files::write_whole(&path, &text)?;
    writeln!(streams.out, "wrote {}", path.display())?;
    Ok(Verdict::Passed)
}
