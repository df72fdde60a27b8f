//! What becomes of one mutant: compiled if it is source, then run under every schedule until a net notices.
//!
//! The operator's own sample problem runs, on an executor that launches the mutant in the place of the kernel. Every byte that
//! the operator reads back counts: shipped kernels give the same bytes under every schedule, so a mutant must too.

use super::stand::Stand;
use super::subject::{Subject, code};
use super::{Fate, Mutant, Net, Text};
use crate::checks::{self, Device, Measured};
use kda_codegen::check::protocol::Verdict;
use kda_codegen::compiled::Compiled;
use kda_core::desc::Protocol;
use kda_core::{KernelDesc, PreparedLaunch};
use kda_runtime::executor::sim::{CTA_ORDERS, Options, Schedule, SimExecutor, schedule_name};

/// CTAs that run at a time: fewer than most problems have, so that some see what others have left.
const RESIDENT: u32 = 3;
/// Sample problems that a mutant runs on.
pub const PROBLEMS: u64 = 2;
/// A mutant may take this many times the instructions of the kernel before it counts as endless …
const SLOWER: u64 = 20;
/// … and at least this many.
const LEAST_STEPS: u64 = 200_000;

/// What the unchanged kernel does on its sample problem.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Hash of all that the operator reads back.
    pub bytes: u64,
    /// Most instructions under any schedule.
    pub steps: u64,
    /// Tensors that it accesses ahead of its wait for the grid before it: a mutant may, too.
    pub early: Vec<&'static str>,
}

/// Every way in which a mutant is run: each schedule, with the order of CTAs going round.
fn ways(seed: u64, step_limit: u64) -> impl Iterator<Item = Options> {
    Schedule::ALL.into_iter().enumerate().map(move |(at, schedule)| Options {
        schedule,
        cta_order: CTA_ORDERS[at % CTA_ORDERS.len()],
        seed,
        step_limit,
        resident_ctas: RESIDENT,
        ..Options::default()
    })
}

/// Runs the kernel itself: it must pass, and give the same bytes under every schedule.
pub fn right(desc: &'static KernelDesc, operator: &checks::Operator, seed: u64) -> Result<Sample, String> {
    let mut sample: Option<Sample> = None;
    for options in ways(seed, Options::default().step_limit) {
        let name = schedule_name(options.schedule);
        let executor = Stand::new(SimExecutor::for_kernel(options, desc), |_| None);
        let outcome = once(&executor, operator, desc, seed);
        if let Some(what) = outcome {
            return Err(format!("{} fails unchanged, schedule {name}: {what}", desc.entry));
        }
        let (bytes, steps) = (executor.read(), executor.steps());
        let known = sample.get_or_insert(Sample { bytes, steps, early: Vec::new() });
        known.early.extend(executor.simulator.last_early());
        if known.bytes != bytes {
            return Err(format!("{} gives other bytes under the schedule {name}", desc.entry));
        }
        known.steps = known.steps.max(steps);
    }
    sample.ok_or_else(|| "there is no schedule".into())
}

/// Runs a mutant until a net notices.
pub fn run(subject: &Subject, mutant: &Mutant) -> Fate {
    run_with(subject, mutant, |options| options)
}

/// The same, with options changed: for the proof that a blind net is noticed.
pub fn run_with(subject: &Subject, mutant: &Mutant, change: fn(Options) -> Options) -> Fate {
    let (desc, proved) = match &mutant.text {
        Text::Ptx(text) => (subject.desc.with_text(text.clone()), subject.desc.protocol),
        Text::Source(text) => match subject.compile(text) {
            Ok(compiled) => {
                if code(&compiled.ptx).eq(code(subject.desc.ptx)) && !subject.has_line(mutant.line) {
                    return Fate::Absent;
                }
                let proved = match &compiled.protocol {
                    Verdict::Nothing => Protocol::Nothing,
                    Verdict::Proved => Protocol::Proved,
                    Verdict::NotProved { .. } => Protocol::NotProved { why: "" },
                };
                (of_compiled(subject.desc, compiled), proved)
            }
            Err(errors) => {
                let code = errors.first().map_or_else(String::new, |error| error.code.to_string());
                return Fate::Killed(Net::Compiler(code));
            }
        },
    };
    for (seed, right) in (subject.seed..).zip(&subject.right) {
        let limit = LEAST_STEPS.max(right.steps.saturating_mul(SLOWER));
        for options in ways(seed, limit).map(change) {
            let simulator = SimExecutor::for_kernel(options, subject.desc).with_settled(right.early.clone());
            let kernel = subject.desc;
            let executor = Stand::new(simulator, move |launch| {
                // Whoever may be launched while the grid ahead still runs is.
                std::ptr::eq(launch.desc, kernel).then(|| PreparedLaunch { desc, pdl: desc.pdl, ..launch.clone() })
            });
            let outcome = once(&executor, &subject.operator, subject.desc, seed);
            if let Some(report) = executor.simulator.last_report() {
                return Fate::Killed(Net::Simulator(report.code.to_string()));
            }
            if executor.refused() {
                return Fate::Killed(Net::Simulator("load".into()));
            }
            if outcome.is_some() || executor.read() != right.bytes {
                return Fate::Killed(Net::Result);
            }
        }
    }
    match (subject.desc.protocol, proved) {
        (Protocol::Proved, Protocol::NotProved { .. }) => Fate::Killed(Net::Protocol),
        _ => Fate::Survived,
    }
}

/// Runs the sample problem once; what is wrong with the results, if anything is.
fn once(executor: &Stand, operator: &checks::Operator, desc: &'static KernelDesc, seed: u64) -> Option<String> {
    let (mut wrong, mut measured) = (None, 0);
    let mut take = |result: Measured, _: f64| {
        measured += 1;
        if !result.passes() {
            wrong =
                Some(format!("{} is {:.2e}, at most {:.2e} is allowed", result.output, result.error, result.budget));
        }
    };
    let outcome = (operator.sample)(Device::simulator(executor), desc, seed, &mut take);
    match outcome {
        Err(cause) => Some(cause),
        Ok(()) if measured == 0 => Some("nothing was measured".into()),
        Ok(()) => wrong,
    }
}

/// The kernel with the text and the shared memory of another compilation.
fn of_compiled(desc: &'static KernelDesc, compiled: Compiled) -> &'static KernelDesc {
    let Compiled { isa, shared_bytes, pdl, ptx, .. } = compiled;
    KernelDesc { isa, shared_bytes, pdl, ..*desc }.with_text(ptx)
}
