//! Every operator against the golden model, on fresh random inputs.
//!
//! An operator brings its own cases and bounds; whoever runs them (the command `kda`, a test) decides what to do with
//! the results. Inputs follow from the seed alone, so a failure can be repeated.

pub mod conv_verify;
pub mod decode;
pub mod delta_h;
pub mod gemm;
pub mod ladder;
pub mod scale_add;
pub mod tc_commit;
pub mod tc_verify;

use kda_core::{Executor, KernelDesc};
use kda_ref::replay::{Case, Comparison};
use kda_runtime::{Guarding, Opened};

/// How much is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Every variant on a few small problems, which together meet every switch of the operator.
    Quick,
    /// Every variant on many problems: large ones, extreme values, long streams; in the simulator every schedule too.
    Full,
}

impl Extent {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Extent::Quick => "quick",
            Extent::Full => "full",
        }
    }
}

/// What runs the kernels of a check, and how its buffers are guarded.
#[derive(Clone, Copy)]
pub struct Device<'d> {
    /// Memory and launches.
    pub executor: &'d dyn Executor,
    /// What surrounds a buffer, and what it holds at first.
    pub guarding: Guarding,
}

impl<'d> Device<'d> {
    /// The executor that was opened.
    pub fn of(opened: &'d Opened) -> Device<'d> {
        Device { executor: opened.executor.as_ref(), guarding: opened.guarding() }
    }

    /// A simulator, which finds stray accesses by itself.
    pub fn simulator(executor: &'d dyn Executor) -> Device<'d> {
        Device { executor, guarding: Guarding::NONE }
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
    /// Takes the share of an operator's work that is done, between results.
    pub progress: &'r dyn Fn(f64),
}

/// One output over the problems of one case, compared with the golden model.
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

    /// What was found over several problems as rows: an output, its error and its budget each. Without a problem one row,
    /// which does not pass.
    fn over(problems: usize, case: &str, found: &[(&str, f64, f64)]) -> Vec<Measured> {
        let case = format!("{case} ({problems} problems)");
        let found = if problems == 0 { &[("problems that it can run", f64::NAN, 0.0)] } else { found };
        let row = |(output, error, budget): &(&str, f64, f64)| Measured {
            case: case.clone(),
            output: (*output).into(),
            error: *error,
            budget: *budget,
        };
        found.iter().map(row).collect()
    }
}

/// Takes every result as it comes, and the share of the work that is done.
pub type Sink<'s> = &'s mut dyn FnMut(Measured, f64);

/// Takes a request, hands every result to the second argument, and may fail with one line.
pub type Run = fn(&Request, Sink) -> Result<(), String>;

/// Runs one variant of the operator on a small problem drawn from the seed, and hands out what was measured. Fails with
/// what the executor says.
pub type RunSample = fn(Device, &'static KernelDesc, u64, Sink) -> Result<(), String>;

/// Runs the operator on a golden case of a third-party reference; `None` if the case is not one of this operator.
pub type RunCase = fn(Device, &Case) -> Result<Option<Vec<Comparison>>, String>;

/// The checks of one operator.
#[derive(Clone, Copy)]
pub struct Operator {
    /// Name for `--op`, and the family of its kernels.
    pub name: &'static str,
    /// Runs the cases and hands out each result as it comes. An error is one line: what could not be done, and why.
    pub run: Run,
    /// Runs one variant on its sample problem.
    pub sample: RunSample,
    /// Runs a golden case.
    pub replay: RunCase,
}

/// Every operator of this build that can be checked. Third-party references exist for `conv_verify` alone.
pub fn operators() -> Vec<Operator> {
    let mut operators =
        vec![Operator { name: "scale_add", run: scale_add::run, sample: scale_add::sample, replay: |_, _| Ok(None) }];
    operators.extend(ladder::operators());
    operators.extend([
        Operator { name: "gemm", run: gemm::run, sample: gemm::sample, replay: |_, _| Ok(None) },
        Operator {
            name: "conv_verify",
            run: conv_verify::run,
            sample: conv_verify::sample,
            replay: conv_verify::replay,
        },
        Operator { name: "decode", run: decode::run, sample: decode::sample, replay: decode::replay },
        Operator {
            name: "delta_h_schedule",
            run: delta_h::run_schedule,
            sample: delta_h::sample_schedule,
            replay: |_, _| Ok(None),
        },
        Operator { name: "delta_h", run: delta_h::run, sample: delta_h::sample, replay: delta_h::replay },
        Operator { name: "delta_h_narrow", run: delta_h::run_narrow, sample: delta_h::sample, replay: |_, _| Ok(None) },
        Operator {
            name: "delta_h_portable",
            run: delta_h::run_portable,
            sample: delta_h::sample,
            replay: |_, _| Ok(None),
        },
        Operator { name: "tc_verify", run: tc_verify::run, sample: tc_verify::sample, replay: tc_verify::replay },
        Operator {
            name: "tc_verify_portable",
            run: tc_verify::run_portable,
            sample: tc_verify::sample,
            replay: |_, _| Ok(None),
        },
        Operator { name: "tc_commit", run: tc_commit::run, sample: tc_commit::sample, replay: tc_commit::replay },
    ]);
    operators
}
