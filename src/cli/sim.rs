//! `kda sim`: one kernel in the simulator, on the problem that its operator makes for it.

use super::select::{self, hint, select};
use super::table::{Align, Table};
use super::{Stop, Streams, Verdict};
use clap::{Args, ValueEnum};
use kda::checks::{Device, Measured, Operator};
use kda::core::KernelDesc;
use kda::runtime::executor::sim::{CtaOrder, Options, Schedule, SimExecutor, schedule_name, schedule_of};

/// Name that stands for every schedule.
const ALL: &str = "all";

/// Options of `kda sim`.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    kernel: select::Arguments,
    /// In which order warps and asynchronous work advance; `all` runs every schedule in turn.
    #[arg(long, default_value = "round-robin")]
    schedule: String,
    /// In which order CTAs start.
    #[arg(long, value_enum, default_value = "forward")]
    ctas: CtaOrderName,
    /// Seed of the schedule and of the inputs.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// The option `--ctas`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CtaOrderName {
    /// As numbered.
    Forward,
    /// The last first.
    Reverse,
    /// Shuffled by the seed.
    Random,
}

impl From<CtaOrderName> for CtaOrder {
    fn from(name: CtaOrderName) -> CtaOrder {
        match name {
            CtaOrderName::Forward => CtaOrder::Forward,
            CtaOrderName::Reverse => CtaOrder::Reverse,
            CtaOrderName::Random => CtaOrder::Random,
        }
    }
}

/// Runs the kernel once a schedule; passes if no run has a report and every output is within its budget.
pub fn run(
    arguments: &Arguments,
    kernels: &[&'static KernelDesc],
    operators: &[Operator],
    streams: &mut Streams,
) -> Result<Verdict, Stop> {
    let desc = select(kernels, &arguments.kernel)?;
    let schedules = schedules(&arguments.schedule)?;
    let Some(operator) = operators.iter().find(|operator| operator.name == desc.family) else {
        return Err(Stop::Input(format!(
            "{} cannot be simulated: no operator of this build makes inputs for the family {}",
            desc.entry, desc.family
        )));
    };
    let mut table = Table::new(&[
        ("schedule", Align::Left),
        ("CTAs", Align::Right),
        ("warp instructions", Align::Right),
        ("bulk copies", Align::Right),
        ("M/s", Align::Right),
        ("output", Align::Left),
        ("error", Align::Right),
        ("budget", Align::Right),
        ("verdict", Align::Left),
    ]);
    let (seed, cta_order) = (arguments.seed, CtaOrder::from(arguments.ctas));
    let (mut reports, mut causes, mut clean) = (Vec::new(), Vec::new(), 0);
    for schedule in &schedules {
        let name = schedule_name(*schedule);
        let options = Options { schedule: *schedule, cta_order, seed, ..Options::default() };
        let executor = SimExecutor::for_kernel(options, desc);
        let mut measured: Vec<Measured> = Vec::new();
        let result =
            (operator.sample)(Device::simulator(&executor), desc, seed, &mut |result, _| measured.push(result));
        let stats = executor.last_stats().unwrap_or_default();
        let seconds = executor.last_elapsed().map_or(f64::INFINITY, |elapsed| elapsed.as_secs_f64());
        let counts = [
            stats.ctas.to_string(),
            stats.warp_instructions.to_string(),
            stats.bulk_copies.to_string(),
            format!("{:.1}", stats.warp_instructions as f64 / seconds / 1e6),
        ];
        let mut row = |first: bool, output: [String; 4]| {
            let [ctas, instructions, copies, rate] = if first { counts.clone() } else { Default::default() };
            let [output, error, budget, verdict] = output;
            let name = if first { name.to_string() } else { String::new() };
            table.row([name, ctas, instructions, copies, rate, output, error, budget, verdict]);
        };
        let verdict = |passes: bool| if passes { "pass" } else { "fail" }.to_string();
        let good = result.is_ok() && !measured.is_empty() && measured.iter().all(Measured::passes);
        for (at, m) in measured.iter().enumerate() {
            let numbers = [format!("{:.2e}", m.error), format!("{:.2e}", m.budget)];
            let [error, budget] = numbers;
            row(at == 0, [m.output.clone(), error, budget, verdict(m.passes())]);
            if !m.passes() {
                causes.push(format!(
                    "schedule {name}: {} is {:.2e}; at most {:.2e} is allowed",
                    m.output, m.error, m.budget
                ));
            }
        }
        if let Err(cause) = result {
            row(true, ["-".into(), "-".into(), "-".into(), verdict(false)]);
            match executor.last_report() {
                Some(report) => {
                    causes.push(format!("schedule {name}: {} at PTX line {}", report.code, report.ptx_line()));
                    reports.push(report.to_string());
                }
                None => causes.push(format!("schedule {name}: {cause}")),
            }
        } else if measured.is_empty() {
            causes.push(format!("schedule {name}: nothing was measured"));
        }
        clean += usize::from(good);
    }
    writeln!(streams.out, "{}, seed {seed}", desc.entry)?;
    table.write(streams.out)?;
    for report in reports {
        writeln!(streams.out, "\n{report}")?;
    }
    for cause in causes {
        writeln!(streams.err, "error: {cause}")?;
    }
    match (clean == schedules.len(), schedules.len()) {
        (true, 1) => writeln!(streams.out, "clean")?,
        (true, count) => writeln!(streams.out, "clean under {count} schedules")?,
        (false, count) => writeln!(streams.out, "clean under {clean} of {count} schedules")?,
    }
    Ok(if clean == schedules.len() { Verdict::Passed } else { Verdict::Failed })
}

/// The schedules of that name.
fn schedules(name: &str) -> Result<Vec<Schedule>, Stop> {
    if name == ALL {
        return Ok(Schedule::ALL.to_vec());
    }
    match schedule_of(name) {
        Some(schedule) => Ok(vec![schedule]),
        None => {
            let mut names: Vec<&str> = Schedule::ALL.into_iter().map(schedule_name).collect();
            names.push(ALL);
            let near = hint(name, &names, "kda sim --help");
            Err(Stop::Input(format!("there is no schedule `{name}`{near}; one of {} is needed", names.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixture::{SCALE_90, VERIFY};
    use kda::runtime::DeviceBuffer;

    const GOOD: Operator = Operator {
        name: "conv_verify",
        run: |_, _| Ok(()),
        sample: |device, desc, seed, take| {
            // Something is run, so that there are counts.
            let buffer =
                DeviceBuffer::of(device.executor, "x", &[1u32, 2], device.guarding).map_err(|e| e.to_string())?;
            assert_eq!((buffer.bytes(), desc.entry, seed), (8, "verify__t4", 5));
            take(Measured { case: "c".into(), output: "out".into(), error: 1e-3, budget: 1e-3 }, 1.0);
            Ok(())
        },
        replay: |_, _| Ok(None),
    };

    fn sim(schedule: &str, sample: kda::checks::RunSample) -> (Result<Verdict, String>, String, String) {
        let kernel = select::Arguments { entry: "verify__t4".into(), arch: None };
        let arguments = Arguments { kernel, schedule: schedule.into(), ctas: CtaOrderName::Reverse, seed: 5 };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let operators = [Operator { sample, ..GOOD }];
        let verdict = run(&arguments, &[&VERIFY], &operators, &mut Streams { out: &mut out, err: &mut err });
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (verdict.map_err(|stop| stop.to_string()), text(out), text(err))
    }

    #[test]
    fn clean_only_if_all_is_within_budget() {
        let (verdict, out, err) = sim("all", GOOD.sample);
        assert_eq!((verdict, err.as_str()), (Ok(Verdict::Passed), ""));
        assert!(out.starts_with("verify__t4, seed 5\n") && out.ends_with("clean under 6 schedules\n"), "{out}");
        assert!(sim("pct", GOOD.sample).1.ends_with("\nclean\n"));
        let (verdict, out, err) = sim("random", |_, _, _, take| {
            take(Measured { case: "c".into(), output: "out".into(), error: f64::NAN, budget: 1.0 }, 1.0);
            Ok(())
        });
        assert_eq!(verdict, Ok(Verdict::Failed));
        assert!(
            out.ends_with("clean under 0 of 1 schedules\n") && err.contains("schedule random: out is NaN"),
            "{err}"
        );
        for (sample, cause) in [
            (sim("random", |_, _, _, _| Ok(())), "nothing was measured"),
            (sim("random", |_, _, _, _| Err("lost".into())), "schedule random: lost"),
        ] {
            let (verdict, _, err) = sample;
            assert_eq!(verdict, Ok(Verdict::Failed));
            assert!(err.contains(cause), "{err}");
        }
    }

    /// A launch that reads memory which nobody has written.
    fn undefined(device: Device, _: &'static KernelDesc, _: u64, _: kda::checks::Sink) -> Result<(), String> {
        use kda::core::{Elem, Executor, exec::Stream};
        let buffer = |name| DeviceBuffer::new(device.executor, name, 1200, device.guarding).map_err(|e| e.to_string());
        let (x, y) = (buffer("x")?, buffer("y")?);
        let tensor = |buffer: &DeviceBuffer| buffer.dense(Elem::F32, &[300]).map_err(|e| e.to_string());
        let args = kda_kernels::scale_add::ScaleAddArgs { x: tensor(&x)?, y: tensor(&y)?, scale: 1.0 };
        let launch = args.prepare(kda_kernels::scale_add::ScaleAddVariant::ALL[0], false).map_err(|e| e.to_string())?;
        // SAFETY: the simulator touches no host memory, and the buffers outlive the launch.
        unsafe { Executor::launch(device.executor, &launch, Stream::default()) }.map_err(|e| e.to_string())
    }

    #[test]
    fn a_report_is_shown_whole() {
        let (verdict, out, err) = sim("late-async", undefined);
        assert_eq!(verdict, Ok(Verdict::Failed));
        assert!(out.contains("\nerror[KDA3002] in kernel `scale_add__"), "{out}");
        assert!(out.contains("families/scale_add.rs:") && out.contains("help: "), "{out}");
        assert!(out.ends_with("clean under 0 of 1 schedules\n"), "{out}");
        assert!(
            err.starts_with("error: schedule late-async: KDA3002 at PTX line ") && err.lines().count() == 1,
            "{err}"
        );
    }

    #[test]
    fn unknown_names_bring_near_ones() {
        let (verdict, ..) = sim("randon", GOOD.sample);
        let error = verdict.unwrap_err();
        assert!(error.contains("near it: `random`") && error.contains("late-async, early-async, all"), "{error}");
        let kernel = select::Arguments { entry: "scale".into(), arch: None };
        let arguments = Arguments { kernel, schedule: ALL.into(), ctas: CtaOrderName::Forward, seed: 0 };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let stop = run(&arguments, &[&SCALE_90], &[GOOD], &mut Streams { out: &mut out, err: &mut err }).unwrap_err();
        assert!(stop.to_string().contains("makes inputs for the family scale"), "{stop}");
    }
}
