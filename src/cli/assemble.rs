//! `kda assemble`: what ptxas says of the kernels, at the lines of their Rust source.

use super::select::hint;
use super::table::{Align, Table};
use super::{Stop, Streams, Verdict};
use clap::Args;
use kda::assembler::{self, Report};
use kda::core::KernelDesc;
use std::path::PathBuf;

/// Options of `kda assemble`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Kernels to assemble, by entry or family. Without any, all of them.
    names: Vec<String>,
    /// The assembler. By default `$PTXAS`, then the one in PATH.
    #[arg(long, value_name = "FILE")]
    ptxas: Option<PathBuf>,
}

/// Assembles kernels; passes if nothing is found wrong.
pub fn run(arguments: &Arguments, kernels: &[&'static KernelDesc], streams: &mut Streams) -> Result<Verdict, Stop> {
    let chosen = chosen(&arguments.names, kernels)?;
    let Some(ptxas) = arguments.ptxas.clone().or_else(assembler::find) else {
        return Err(Stop::Input(
            "there is no ptxas in $PTXAS or PATH; it comes with the CUDA toolkit, and alone as \
             `pip install --no-deps nvidia-cuda-nvcc`"
                .into(),
        ));
    };
    let mut table = Table::new(&[("kernel", Align::Left), ("target", Align::Left), ("registers", Align::Right)]);
    let mut reports: Vec<Report> = Vec::new();
    for desc in chosen {
        let report = assembler::assemble(&ptxas, desc)
            .map_err(|cause| Stop::Input(format!("{} cannot be run: {cause}", ptxas.display())))?;
        let registers = report.registers.map_or("-".into(), |n| n.to_string());
        table.row([desc.entry.into(), desc.arch.to_string(), registers]);
        for finding in &report.findings {
            let (file, line) = (&finding.file, finding.line);
            writeln!(streams.err, "error: {}: {} ({}) at {file}:{line}", finding.code, finding.message, desc.entry)?;
        }
        reports.push(report);
    }
    table.write(streams.out)?;
    let clean = reports.iter().filter(|report| report.findings.is_empty()).count();
    writeln!(streams.out, "{clean} of {} clean", reports.len())?;
    Ok(if clean == reports.len() && clean > 0 { Verdict::Passed } else { Verdict::Failed })
}

fn chosen(names: &[String], kernels: &[&'static KernelDesc]) -> Result<Vec<&'static KernelDesc>, Stop> {
    for name in names {
        if !kernels.iter().any(|desc| desc.entry == name || desc.family == name) {
            let mut known: Vec<&str> = kernels.iter().flat_map(|desc| [desc.entry, desc.family]).collect();
            known.sort_unstable();
            known.dedup();
            return Err(Stop::Input(format!("there is no kernel `{name}`{}", hint(name, &known, "kda list"))));
        }
    }
    let wanted = |desc: &&&KernelDesc| names.is_empty() || names.iter().any(|n| desc.entry == n || desc.family == n);
    Ok(kernels.iter().filter(wanted).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixture::{SCALE_90, VERIFY};

    fn assemble(names: &[&str], ptxas: Option<&str>) -> (Result<Verdict, String>, String, String) {
        let arguments =
            Arguments { names: names.iter().map(|n| n.to_string()).collect(), ptxas: ptxas.map(PathBuf::from) };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let verdict = run(&arguments, &[&VERIFY, &SCALE_90], &mut Streams { out: &mut out, err: &mut err });
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (verdict.map_err(|stop| stop.to_string()), text(out), text(err))
    }

    #[test]
    fn unknown_kernels_and_assemblers_are_refused() {
        let error = assemble(&["verify__t5"], None).0.unwrap_err();
        assert!(error.contains("near it: `verify__t4`"), "{error}");
        let error = assemble(&["verify__t4"], Some("/nonexistent/ptxas")).0.unwrap_err();
        assert!(error.starts_with("/nonexistent/ptxas cannot be run: "), "{error}");
    }

    #[test]
    #[cfg(unix)]
    fn an_assembler_that_fails_fails_the_command() {
        let (verdict, out, err) = assemble(&[], Some("/bin/false"));
        assert_eq!(verdict, Ok(Verdict::Failed));
        assert!(out.ends_with("0 of 2 clean\n"), "{out}");
        assert!(err.starts_with("error: KDA2001: ") && err.contains("(verify__t4) at "), "{err}");
    }
}
