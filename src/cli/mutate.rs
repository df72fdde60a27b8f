//! `kda mutate`: does any net notice when one synchronisation of a kernel is missing or wrong?

use super::select::{self, select};
use super::table::{Align, Table};
use super::{Stop, Streams, Verdict, progress};
use clap::Args;
use kda::core::KernelDesc;
use kda::mutate::report::{Counts, LEAST, Summary};
use kda::mutate::work::Work;
use kda::mutate::{Net, equivalent, subject};

/// Options of `kda mutate`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// PTX entry of the kernel, as `kda list` shows it.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    entry: Option<String>,
    /// One variant of every design.
    #[arg(long)]
    all: bool,
    /// Target, such as sm_90a; needed where a kernel exists for several.
    #[arg(long, value_name = "ARCH")]
    arch: Option<String>,
    /// Seed of inputs and schedules.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Runs every mutant; passes if enough are killed and every other one has its reason.
pub fn run(arguments: &Arguments, kernels: &[&'static KernelDesc], streams: &mut Streams) -> Result<Verdict, Stop> {
    let chosen = match &arguments.entry {
        Some(entry) => {
            vec![select(kernels, &select::Arguments { entry: entry.clone(), arch: arguments.arch.clone() })?]
        }
        None => subject::chosen(kernels),
    };
    let work = Work::new(&chosen, arguments.seed).map_err(Stop::Input)?;
    let kernels = if chosen.len() == 1 { "kernel" } else { "kernels" };
    writeln!(streams.out, "{} {kernels}, seed {}", chosen.len(), arguments.seed)?;
    let bar = progress::bar(work.len());
    let judged = work.run(&|done| bar.set_position(done as u64));
    bar.finish_and_clear();
    let summary = Summary::of(&judged);
    write(&summary, streams)?;
    let names: Vec<&str> = chosen.iter().map(|desc| desc.entry).collect();
    let survivors: Vec<_> = summary.survivors.iter().map(|(mutant, _)| *mutant).collect();
    let stale = equivalent::stale(&names, &survivors);
    for cause in &stale {
        writeln!(streams.err, "error: {cause}")?;
    }
    let unexplained = summary.unexplained().count();
    if unexplained > 0 {
        writeln!(streams.err, "error: {unexplained} mutants survive for no known reason")?;
    }
    writeln!(streams.out, "kill rate: {:.1} %", 100.0 * summary.total.rate())?;
    let passed = unexplained == 0 && stale.is_empty() && summary.total.rate() >= LEAST;
    Ok(if passed { Verdict::Passed } else { Verdict::Failed })
}

fn write(summary: &Summary, streams: &mut Streams) -> Result<(), Stop> {
    let operators =
        summary.operators.iter().map(|((level, operator), counts)| (format!("{level}: {operator}"), counts));
    table("operator", operators.chain([("all".into(), &summary.total)])).write(streams.out)?;
    writeln!(streams.out)?;
    let kernels = summary.kernels.iter().map(|(kernel, counts)| (kernel.to_string(), counts));
    table("kernel", kernels).write(streams.out)?;
    let codes: Vec<String> = summary.codes.iter().map(|(code, times)| format!("{code} {times}")).collect();
    if !codes.is_empty() {
        writeln!(streams.out, "\nkilled by code: {}", codes.join(", "))?;
    }
    if !summary.survivors.is_empty() {
        writeln!(streams.out, "\nsurvivors:")?;
    }
    for (mutant, reason) in &summary.survivors {
        writeln!(streams.out, "{mutant}\n    {}", reason.map_or("NOT EXPLAINED", |reason| reason.why))?;
    }
    writeln!(streams.out)?;
    Ok(())
}

/// Counts by net, a row a name.
fn table<'c>(what: &str, rows: impl Iterator<Item = (String, &'c Counts)>) -> Table {
    let [compiler, protocol, simulator, result] = Net::COLUMNS;
    let heads = [what, "mutants", "killed", compiler, protocol, simulator, result, "survived", "rate"];
    let mut at = 0;
    let columns = heads.map(|head| {
        at += 1;
        (head, if at == 1 { Align::Left } else { Align::Right })
    });
    let mut table = Table::new(&columns);
    for (name, counts) in rows {
        let [compiler, protocol, simulator, result] = counts.nets.map(|n| n.to_string());
        let (all, killed, survived) =
            (counts.all().to_string(), counts.killed().to_string(), counts.survived.to_string());
        let rate = format!("{:.1} %", 100.0 * counts.rate());
        table.row([name, all, killed, compiler, protocol, simulator, result, survived, rate]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use kda::registry::kernels;

    fn mutate(entry: &str) -> (Result<Verdict, String>, String, String) {
        let arguments = Arguments { entry: Some(entry.into()), all: false, arch: None, seed: 1 };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let verdict = run(&arguments, &kernels(), &mut Streams { out: &mut out, err: &mut err });
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (verdict.map_err(|stop| stop.to_string()), text(out), text(err))
    }

    #[test]
    fn rates_by_operator_and_net() {
        let (verdict, out, err) = mutate("scale_add__block128");
        assert_eq!((verdict, err.as_str()), (Ok(Verdict::Passed), ""));
        assert!(out.starts_with("1 kernel, seed 1\n") && out.ends_with("\nkill rate: 100.0 %\n"), "{out}");
        assert!(out.lines().nth(1).is_some_and(|heads| heads.starts_with("operator") && heads.contains("simulator")));
        assert!(out.contains("\nPTX: drop ") && out.contains("\nsource: later ") && out.contains("KDA300"), "{out}");
        assert!(!out.contains("survivors:"), "{out}");
    }

    /// The kernel is right, and its cta_sync() ahead of the copies is where the ring hands nothing over.
    #[test]
    fn survivors_bring_their_reason() {
        let (verdict, out, _) = mutate("transpose");
        assert_eq!(verdict, Ok(Verdict::Passed));
        let at = out.find("survivors:\ntranspose line ").unwrap_or_else(|| panic!("{out}"));
        assert!(out[at..].contains("source earlier `cta_sync();`\n    the release has no barrier"), "{out}");
    }

    #[test]
    fn a_kernel_without_synchronisation_and_one_that_does_not_exist() {
        let (verdict, out, _) = mutate("add");
        assert!(verdict == Ok(Verdict::Passed) && out.ends_with("kill rate: 100.0 %\n"), "{out}");
        let (verdict, ..) = mutate("trans");
        assert!(verdict.is_err_and(|stop| stop.contains("there is no kernel `trans`") && stop.contains("`transpose`")));
    }
}
