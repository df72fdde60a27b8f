//! `kda replay`: golden cases of third-party references.
//!
//! Every case runs through the golden model in exact mode, so that what the kernels are compared with rests on something
//! other than itself; and through every operator that it is a case of, on the chosen executor.

mod read;

use super::select::hint;
use super::table::{Align, Table};
use super::{BackendName, Stop, Streams, Verdict, progress};
use clap::Args;
use kda::checks::{Device, Operator};
use kda::reference::replay::{Case, Comparison, Outcome, replay};
use kda::runtime::open;
use std::path::PathBuf;

/// Name of the golden model in the column of operators.
const GOLDEN_MODEL: &str = "golden model";

/// Options of `kda replay`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Folder with cases.json and the safetensors files that it names.
    folder: PathBuf,
    /// What runs the operators; the golden model needs no executor.
    #[arg(long, value_enum, default_value = "auto")]
    backend: BackendName,
    /// Replay this case alone; may be given several times.
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,
}

/// What became of the pairs of a case and what replayed it.
struct Report {
    table: Table,
    passed: usize,
    failed: usize,
    skipped: usize,
    /// Why pairs failed, a line each.
    causes: Vec<String>,
}

/// Replays the cases; passes only if at least one was compared and none failed.
pub fn run(arguments: &Arguments, operators: &[Operator], streams: &mut Streams) -> Result<Verdict, Stop> {
    let folder = &arguments.folder;
    let manifest = read::manifest(folder).map_err(|cause| Stop::Input(cause.to_string()))?;
    let names: Vec<&str> = manifest.cases.iter().map(|entry| entry.name.as_str()).collect();
    if let Some(unknown) = arguments.cases.iter().find(|wanted| !names.contains(&wanted.as_str())) {
        let hint = hint(unknown, &names, &folder.join(read::MANIFEST).display().to_string());
        return Err(Stop::Input(format!("there is no case `{unknown}`{hint}")));
    }
    let opened = open(arguments.backend.into()).map_err(|cause| Stop::Input(cause.to_string()))?;
    writeln!(streams.out, "{}", opened.why)?;
    let chosen: Vec<_> = manifest
        .cases
        .iter()
        .filter(|entry| arguments.cases.is_empty() || arguments.cases.contains(&entry.name))
        .collect();
    let mut report = Report::new();
    let bar = progress::bar(chosen.len());
    for entry in chosen {
        bar.set_message(entry.name.clone());
        match read::case(folder, entry) {
            Ok(case) => one_case(&case, operators, Device::of(&opened), &mut report),
            Err(cause) => report.failed(&entry.name, GOLDEN_MODEL, &cause.to_string()),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    report.table.write(streams.out)?;
    for cause in &report.causes {
        writeln!(streams.err, "error: {cause}")?;
    }
    if report.passed + report.failed == 0 {
        writeln!(streams.err, "error: no case was compared; at least one is needed")?;
    }
    writeln!(streams.out, "{} passed, {} failed, {} skipped", report.passed, report.failed, report.skipped)?;
    Ok(if report.failed == 0 && report.passed > 0 { Verdict::Passed } else { Verdict::Failed })
}

/// The golden model, then every operator that the case is one of.
fn one_case(case: &Case, operators: &[Operator], device: Device, report: &mut Report) {
    match replay(case) {
        Err(cause) => report.failed(&case.name, GOLDEN_MODEL, &cause.to_string()),
        Ok(Outcome::Skipped { reason }) => report.skipped(&case.name, GOLDEN_MODEL, reason),
        Ok(Outcome::Compared(outputs)) => report.compared(&case.name, GOLDEN_MODEL, outputs),
    }
    for operator in operators {
        match (operator.replay)(device, case) {
            Err(cause) => report.failed(&case.name, operator.name, &cause),
            Ok(None) => {}
            Ok(Some(outputs)) => report.compared(&case.name, operator.name, outputs),
        }
    }
}

impl Report {
    fn new() -> Report {
        let table = Table::new(&[
            ("case", Align::Left),
            ("operator", Align::Left),
            ("output", Align::Left),
            ("elements", Align::Right),
            ("max error", Align::Right),
            ("worst error", Align::Right),
            ("its tolerance", Align::Right),
            ("verdict", Align::Left),
        ]);
        Report { table, passed: 0, failed: 0, skipped: 0, causes: Vec::new() }
    }

    fn without_values(&mut self, case: &str, operator: &str, verdict: String) {
        let dash = || "-".to_string();
        self.table.row([case.into(), operator.into(), dash(), dash(), dash(), dash(), dash(), verdict]);
    }

    fn failed(&mut self, case: &str, operator: &str, cause: &str) {
        self.failed += 1;
        self.without_values(case, operator, "fail".into());
        // A report of the simulator has many lines; the first says what and where.
        let cause = cause.lines().next().unwrap_or_default();
        self.causes.push(format!("case {case}, {operator}: {cause}"));
    }

    fn skipped(&mut self, case: &str, operator: &str, reason: &str) {
        self.skipped += 1;
        self.without_values(case, operator, format!("skip: {reason}"));
    }

    fn compared(&mut self, case: &str, operator: &str, outputs: Vec<Comparison>) {
        if outputs.is_empty() {
            return self.failed(case, operator, "no output was compared");
        }
        if outputs.iter().all(|output| output.passes) {
            self.passed += 1
        } else {
            self.failed += 1
        }
        for output in outputs {
            if !output.passes {
                self.causes.push(format!("case {case}, {operator}: {}", beyond(&output)));
            }
            self.table.row(row(case, operator, output));
        }
    }
}

fn row(case: &str, operator: &str, output: Comparison) -> [String; 8] {
    [
        case.into(),
        operator.into(),
        output.output,
        output.elements.to_string(),
        format!("{:.2e}", output.max_abs_error),
        format!("{:.2e}", output.worst.0),
        format!("{:.2e}", output.worst.1),
        if output.passes { "pass" } else { "fail" }.into(),
    ]
}

/// What is wrong with an output that does not pass.
fn beyond(output: &Comparison) -> String {
    let (error, tolerance) = output.worst;
    format!("{} is off by {error:.2e}, at most {tolerance:.2e} is allowed there", output.output)
}
