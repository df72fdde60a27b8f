//! `kda replay`: golden cases of third-party references.
//!
//! Every case runs through the golden model in exact mode, so that what the kernels are compared with rests on something
//! other than itself.

mod read;

use super::select::hint;
use super::table::{Align, Table};
use super::{BackendName, Stop, Streams, Verdict, progress};
use clap::Args;
use kda::reference::replay::{Comparison, Outcome, replay};
use std::path::PathBuf;

/// Name of the golden model in the column of operators.
const GOLDEN_MODEL: &str = "golden model";

/// Options of `kda replay`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Folder with cases.json and the safetensors files that it names.
    folder: PathBuf,
    /// Executor of operators that replay a case; the golden model needs none.
    #[arg(long, value_enum, default_value = "auto")]
    backend: BackendName,
    /// Replay this case alone; may be given several times.
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,
}

/// How many cases came to which end.
#[derive(Debug, Default)]
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
}

/// Replays the cases; passes only if at least one was compared and none failed.
pub fn run(arguments: &Arguments, streams: &mut Streams) -> Result<Verdict, Stop> {
    let folder = &arguments.folder;
    let manifest = read::manifest(folder).map_err(|cause| Stop::Input(cause.to_string()))?;
    let names: Vec<&str> = manifest.cases.iter().map(|entry| entry.name.as_str()).collect();
    if let Some(unknown) = arguments.cases.iter().find(|wanted| !names.contains(&wanted.as_str())) {
        let hint = hint(unknown, &names, &folder.join(read::MANIFEST).display().to_string());
        return Err(Stop::Input(format!("there is no case `{unknown}`{hint}")));
    }
    if arguments.backend != BackendName::Auto {
        writeln!(streams.err, "note: --backend is not used: no operator of this build replays cases")?;
    }
    let chosen: Vec<_> = manifest
        .cases
        .iter()
        .filter(|entry| arguments.cases.is_empty() || arguments.cases.contains(&entry.name))
        .collect();
    let mut table = Table::new(&[
        ("case", Align::Left),
        ("operator", Align::Left),
        ("output", Align::Left),
        ("elements", Align::Right),
        ("max error", Align::Right),
        ("worst error", Align::Right),
        ("its tolerance", Align::Right),
        ("verdict", Align::Left),
    ]);
    let (mut tally, mut causes) = (Tally::default(), Vec::new());
    let bar = progress::bar(chosen.len());
    for entry in chosen {
        bar.set_message(entry.name.clone());
        let outcome = read::case(folder, entry)
            .map_err(|cause| cause.to_string())
            .and_then(|case| replay(&case).map_err(|cause| cause.to_string()));
        let mut without_values = |verdict: String| {
            let dash = || "-".to_string();
            table.row([entry.name.clone(), GOLDEN_MODEL.into(), dash(), dash(), dash(), dash(), dash(), verdict]);
        };
        match outcome {
            Err(cause) => {
                tally.failed += 1;
                without_values("fail".into());
                causes.push(format!("case {}: {cause}", entry.name));
            }
            Ok(Outcome::Skipped { reason }) => {
                tally.skipped += 1;
                without_values(format!("skip: {reason}"));
            }
            Ok(outcome) => {
                let passes = outcome.passes();
                if passes {
                    tally.passed += 1
                } else {
                    tally.failed += 1
                }
                let Outcome::Compared(outputs) = outcome else { continue };
                if outputs.is_empty() {
                    without_values("fail".into());
                    causes.push(format!("case {}: no output was compared", entry.name));
                }
                for output in outputs {
                    if !output.passes {
                        causes.push(format!("case {}: {}", entry.name, beyond(&output)));
                    }
                    table.row(row(&entry.name, output));
                }
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    table.write(streams.out)?;
    for cause in causes {
        writeln!(streams.err, "error: {cause}")?;
    }
    if tally.passed + tally.failed == 0 {
        writeln!(streams.err, "error: no case was compared; at least one is needed")?;
    }
    writeln!(streams.out, "{} passed, {} failed, {} skipped", tally.passed, tally.failed, tally.skipped)?;
    Ok(if tally.failed == 0 && tally.passed > 0 { Verdict::Passed } else { Verdict::Failed })
}

fn row(case: &str, output: Comparison) -> [String; 8] {
    [
        case.into(),
        GOLDEN_MODEL.into(),
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
