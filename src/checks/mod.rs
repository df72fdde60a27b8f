//! Every operator against the golden model, on fresh random inputs.
//!
//! An operator brings its own cases and bounds; whoever runs them (the command `kda check`, a test) decides what to do with
//! the results. Inputs follow from the seed alone, so a failure can be repeated.

pub mod conv_verify;
pub mod scale_add;

use kda_runtime::Opened;

/// How much is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Every variant, on a few small problems.
    Quick,
    /// Every variant on many problems, large ones included.
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

/// What a check is to use.
pub struct Request<'r> {
    /// The executor, and how it was chosen.
    pub device: &'r Opened,
    /// How much is checked.
    pub extent: Extent,
    /// Seed of the inputs.
    pub seed: u64,
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
}

/// Takes every result as it comes, and the share of the work that is done.
pub type Sink<'s> = &'s mut dyn FnMut(Measured, f64);

/// Takes a request, hands every result to the second argument, and may fail with one line.
pub type Run = fn(&Request, Sink) -> Result<(), String>;

/// The checks of one operator.
pub struct Operator {
    /// Name for `--op`.
    pub name: &'static str,
    /// Runs the cases and hands out each result as it comes. An error is one line: what could not be done, and why.
    pub run: Run,
}

/// Every operator of this build that can be checked.
pub fn operators() -> Vec<Operator> {
    vec![Operator { name: "scale_add", run: scale_add::run }, Operator { name: "conv_verify", run: conv_verify::run }]
}
