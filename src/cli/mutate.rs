//! `kda mutate`: does any net notice when one synchronisation of a kernel is missing or wrong?

use super::select::{self, select};
use super::table::{Align, Table};
use super::{Stop, Streams, Verdict, progress};
use clap::{ArgGroup, Args};
use kda::core::KernelDesc;
use kda::mutate::report::{Counts, LEAST, Summary};
use kda::mutate::work::{Judged, Work};
use kda::mutate::{Fate, Net, equivalent, subject};

/// What decides the exit code.
const RULE: &str = "Exit code: 0 if at least 95 % of the mutants are killed and every survivor has a recorded reason, 1 otherwise.\n\
    Reasons are recorded for the variants of --all; of another variant the rate alone decides.";

/// Options of `kda mutate`.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("subject").required(true).args(["entry", "all"])), after_help = RULE)]
pub struct Arguments {
    /// PTX entry of the kernel, as `kda list` shows it.
    entry: Option<String>,
    /// One variant of every design.
    #[arg(long)]
    all: bool,
    /// Target of ENTRY, such as sm_90a; needed where the kernel exists for several.
    #[arg(long, value_name = "ARCH", conflicts_with = "all")]
    arch: Option<String>,
    /// Seed of inputs and schedules.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// List the killed mutants too, with the net that noticed and its code.
    #[arg(long)]
    verbose: bool,
}

/// Runs every mutant; passes if enough are killed and, of the variants that have reasons, every other one has its reason.
pub fn run(arguments: &Arguments, kernels: &[&'static KernelDesc], streams: &mut Streams) -> Result<Verdict, Stop> {
    let everything = subject::chosen(kernels);
    let (chosen, explained) = match &arguments.entry {
        Some(entry) => {
            let desc = select(kernels, &select::Arguments { entry: entry.clone(), arch: arguments.arch.clone() })?;
            (vec![desc], everything.iter().any(|known| std::ptr::eq(*known, desc)))
        }
        None => (everything, true),
    };
    let work = Work::new(&chosen, arguments.seed).map_err(Stop::Input)?;
    let kernels = if chosen.len() == 1 { "kernel" } else { "kernels" };
    writeln!(streams.out, "{} {kernels}, seed {}", chosen.len(), arguments.seed)?;
    let bar = progress::bar(work.len());
    let judged = work.run(&|done| bar.set_position(done as u64));
    bar.finish_and_clear();
    let summary = Summary::of(&judged);
    if arguments.verbose {
        write_killed(&judged, streams)?;
    }
    write(&summary, explained, streams)?;
    let sound = !explained || reasons_hold(&chosen, &summary, streams)?;
    if !explained {
        writeln!(streams.out, "reasons exist for the variants of --all: this one is judged by its rate alone")?;
    }
    writeln!(streams.out, "kill rate: {:.1} %", 100.0 * summary.total.rate())?;
    Ok(if sound && summary.total.rate() >= LEAST { Verdict::Passed } else { Verdict::Failed })
}

/// True if every survivor has its reason, and every reason its survivors; says what does not hold.
fn reasons_hold(chosen: &[&'static KernelDesc], summary: &Summary, streams: &mut Streams) -> Result<bool, Stop> {
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
    Ok(unexplained == 0 && stale.is_empty())
}

fn write(summary: &Summary, explained: bool, streams: &mut Streams) -> Result<(), Stop> {
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
    let none = if explained { "NOT EXPLAINED" } else { "no reason recorded" };
    for (mutant, reason) in &summary.survivors {
        writeln!(streams.out, "{mutant}\n    {}", reason.map_or(none, |reason| reason.why))?;
    }
    writeln!(streams.out)?;
    Ok(())
}

/// Killed mutants, a line each.
fn write_killed(judged: &[Judged], streams: &mut Streams) -> Result<(), Stop> {
    writeln!(streams.out, "killed:")?;
    for (mutant, fate) in judged {
        let Fate::Killed(net) = fate else { continue };
        let code = match net {
            Net::Compiler(code) | Net::Simulator(code) => format!(" {code}"),
            Net::Protocol | Net::Result => String::new(),
        };
        writeln!(streams.out, "{mutant}: {}{code}", Net::COLUMNS[net.column()])?;
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
        given(Arguments { entry: Some(entry.into()), all: false, arch: None, seed: 1, verbose: false })
    }

    fn given(arguments: Arguments) -> (Result<Verdict, String>, String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let verdict = run(&arguments, &kernels(), &mut Streams { out: &mut out, err: &mut err });
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (verdict.map_err(|stop| stop.to_string()), text(out), text(err))
    }

    /// The command line of `kda mutate` with these words, or what is wrong with it.
    fn parsed(words: &[&str]) -> Result<Arguments, String> {
        use clap::FromArgMatches;
        let command = Arguments::augment_args(clap::Command::new("mutate"));
        let matches = command.try_get_matches_from([&["mutate"], words].concat()).map_err(|e| e.to_string())?;
        Arguments::from_arg_matches(&matches).map_err(|e| e.to_string())
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

    #[test]
    fn an_entry_or_all_and_a_target_only_of_an_entry() {
        assert!(parsed(&["--all"]).is_ok_and(|a| a.all && !a.verbose));
        assert!(parsed(&["product", "--arch", "sm_90a"]).is_ok_and(|a| a.arch.as_deref() == Some("sm_90a")));
        let none = parsed(&[]).expect_err("nothing is chosen");
        assert!(none.contains("ENTRY") && none.contains("--all"), "{none}");
        for (words, why) in [
            (["--all", "--arch", "sm_90a"].as_slice(), "cannot be used with"),
            (&["--all", "product"], "cannot be used with"),
        ] {
            let said = parsed(words).expect_err("a contradiction");
            assert!(said.contains(why), "{said}");
        }
        let help = parsed(&["--help"]).expect_err("help is no run");
        assert!(
            help.contains(&format!("at least {} %", 100.0 * LEAST)) && help.contains("has a recorded reason"),
            "{help}"
        );
    }

    #[test]
    fn killed_mutants_are_listed_when_asked_for() {
        let entry = Some("scale_add__block128".into());
        let (verdict, out, _) = given(Arguments { entry, all: false, arch: None, seed: 1, verbose: true });
        assert_eq!(verdict, Ok(Verdict::Passed));
        let listed: Vec<&str> = out.lines().skip(2).take_while(|line| !line.is_empty()).collect();
        assert!(listed.iter().all(|line| line.starts_with("scale_add__block128 line ")), "{out}");
        assert_eq!(listed.len(), 4, "{out}");
        assert!(listed.iter().any(|line| line.contains("`: simulator KDA300")), "{out}");
    }

    /// Of a variant outside --all nobody has written down why mutants live.
    #[test]
    fn other_variants_are_judged_by_their_rate() {
        let (verdict, out, err) = mutate("conv_verify__bv64_lanes32_ctas2_f32_noinner_t1_nolong");
        assert_eq!(err, "");
        assert!(out.contains("\n    no reason recorded\n") && !out.contains("NOT EXPLAINED"), "{out}");
        let end: Vec<&str> = out.lines().rev().take(2).collect();
        assert_eq!(end[1], "reasons exist for the variants of --all: this one is judged by its rate alone");
        let rate: f64 = end[0].trim_start_matches("kill rate: ").trim_end_matches(" %").parse().expect("a rate");
        assert_eq!(verdict, Ok(if rate >= 100.0 * LEAST { Verdict::Passed } else { Verdict::Failed }), "{out}");
    }
}
