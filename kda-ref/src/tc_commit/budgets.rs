//! The reference of a kernel test: the float64 state of every slot and head that is written, and how far a kernel may be off.
//!
//! ```text
//! reference = float64        (see crate::budget for the limit)
//! right versions = fp32 in forward and in reverse order, float64 one unit of the last fp32 place larger, and float64 with every log
//!                  decay and every decay one such unit stronger
//! conv = bit for bit, the whole pool
//! ```
//! Each head of each written slot has a budget of its own, which knows the type of the pool. The norm of a key is one number for all
//! that its token adds, and so is the strength of a head's gate; decays near 1 may all be off the same way. The
//! emulations may have hit them by luck: hence the last versions.

use super::problem::{Commit, Problem};
use super::run::{Arithmetic, compact, state};
use super::validate;
use super::{HEAD, Refusal};
use crate::budget::{Budget, FLOOR, Judgement, Stored};
use crate::floats::Floats;
use crate::layout::StateOrder;
use half::bf16;

/// How a head of a written slot fared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StateJudgement {
    /// The request.
    pub b: usize,
    /// The slot.
    pub slot: usize,
    /// Records that its state has.
    pub records: usize,
    /// The head.
    pub head: usize,
    /// The state against its budget.
    pub judgement: Judgement,
}

/// References of one call.
#[derive(Clone, Debug)]
pub struct Checked<'a> {
    problem: Problem<'a>,
    commits: Vec<Commit>,
    /// The pool of raw inputs behind the call, with what lies between its slots; empty without one.
    pub conv: Vec<bf16>,
}

/// Compacts the windows; the states are made where a kernel's are judged.
///
/// # Errors
/// As [`super::run()`].
pub fn reference<'a>(problem: &Problem<'a>) -> Result<Checked<'a>, Refusal> {
    validate::inputs(problem)?;
    let mut conv = problem.conv.map_or_else(Vec::new, |conv| conv.pool.to_vec());
    let commits: Vec<Commit> = problem.commits().collect();
    commits.iter().for_each(|commit| compact(problem, &mut conv, commit));
    Ok(Checked { problem: *problem, commits, conv })
}

impl Checked<'_> {
    /// Judges the pool of states that a kernel left, every head of every written slot.
    ///
    /// # Panics
    /// If `got` is shorter than the pool.
    pub fn judge(&self, got: Floats<'_>) -> Vec<StateJudgement> {
        let p = &self.problem;
        let stored = if matches!(got, Floats::Bf16(_)) { Stored::Bf16 } else { Stored::F32 };
        let mut judged = Vec::new();
        for (commit, head) in self.commits.iter().flat_map(|commit| (0..p.heads).map(move |head| (commit, head))) {
            for (records, slot) in commit.targets() {
                let of = |arithmetic| state(p, commit, head, records, arithmetic);
                let reference = of(Arithmetic::Golden);
                let right = [Arithmetic::Forward, Arithmetic::Reverse, Arithmetic::StrongerDecay].map(of);
                let larger: Vec<f64> = reference.iter().map(|s| s * (1.0 + FLOOR)).collect();
                let base = slot * p.state_pitch + head * HEAD * HEAD;
                let measured = StateOrder::VFirst.load(HEAD, HEAD, |i| got.get(base + i));
                let budget = Budget::derive(&reference, &[&right[0], &right[1], &right[2], &larger], stored);
                let judgement = budget.judge(&reference, &measured);
                judged.push(StateJudgement { b: commit.b, slot, records, head, judgement });
            }
        }
        judged
    }

    /// True when the pool that a kernel compacted has the right bits everywhere.
    pub fn same_conv(&self, conv: &[bf16]) -> bool {
        let bits = |x: &[bf16]| x.iter().map(|x| x.to_bits()).collect::<Vec<u16>>();
        bits(&self.conv) == bits(conv)
    }
}
