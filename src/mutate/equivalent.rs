//! Mutants that no net can notice, because they do the same as the kernel: which, how many, and why.
//!
//! A reason names something that a reader can look up: a line of the kernel, a rule of the PTX memory model. An entry that matches
//! fewer or more mutants than it says is an error, so that the table cannot outlive what it explains.

use super::{Level, Mutant, Operator};

/// Why mutants of a kind live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Entry of the kernel.
    pub kernel: &'static str,
    /// Where the change is.
    pub level: Level,
    /// What was done.
    pub operator: Operator,
    /// Beginning of the instruction or statement.
    pub what: &'static str,
    /// How many mutants live for this reason.
    pub times: usize,
    /// Why nothing is wrong with them.
    pub why: &'static str,
}

/// Every reason.
pub const REASONS: &[Reason] = &[];

/// The reason why a mutant may live.
pub fn reason(mutant: &Mutant) -> Option<&'static Reason> {
    REASONS.iter().find(|r| {
        (r.kernel, r.level, r.operator) == (mutant.kernel, mutant.level, mutant.operator)
            && mutant.what.starts_with(r.what)
    })
}

/// Reasons of these kernels that do not hold of the survivors as often as they say, in words.
pub fn stale(kernels: &[&str], survivors: &[&Mutant]) -> Vec<String> {
    let here = REASONS.iter().filter(|reason| kernels.contains(&reason.kernel));
    here.filter_map(|r| {
        let found = survivors.iter().filter(|m| reason(m) == Some(r)).count();
        let Reason { kernel, level, operator, what, times, .. } = r;
        let name = format!("{kernel}: {level} {operator} `{what}`");
        (found != *times).then(|| format!("{name} is said to survive {times} times, and did {found} times"))
    })
    .collect()
}
