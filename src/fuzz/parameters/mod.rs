//! Arguments that are a little wrong: validation never panics, gives an error in one line or a launch, and what it takes runs in
//! the simulator without touching anything outside its tensors.
//!
//! | question | module |
//! | --- | --- |
//! | blocks of the operators | `conv_verify`, `decode`, `delta_h`, `tc_commit`, `tc_verify` |
//! | blocks of any kernel, from its description alone | `kernels` |
//! | what happens to a call of any operator | `call` |
//! | what is made wrong | `spoil` |
//! | how an accepted block runs | `execute` |
//! | whether it gives what it should | `golden` |

mod call;
mod conv_verify;
mod decode;
mod delta_h;
pub(super) mod execute;
mod golden;
pub(super) mod kernels;
mod spoil;
mod tc_commit;
mod tc_verify;

use super::{Counts, Outcome, Sweep, finish};
use crate::checks::{Extent, Request, Sink};
use kda_ref::rng::Rng;

/// Blocks of a quick and of a full run.
const QUICK: u64 = 10_000;
const FULL: u64 = 1_000_000;
/// Blocks of a full run that are executed, at least.
const EXECUTED: u64 = 10_000;

/// The row of `kda check`.
pub fn check(request: &Request, sink: Sink) -> Result<(), String> {
    let sweep = Sweep::of(request.seed, request.extent, QUICK, FULL)?;
    let outcome = run(&sweep, request.progress);
    finish(request, "parameter blocks", &outcome, sink, 1.0)?;
    let executed = outcome.counts.get("executed");
    match request.extent == Extent::Full && outcome.cases >= FULL && executed < EXECUTED {
        true => Err(format!("only {executed} blocks were executed; at least {EXECUTED} are needed")),
        false => Ok(()),
    }
}

/// Validates blocks, and executes some of those that are accepted.
pub fn run(sweep: &Sweep, progress: &dyn Fn(f64)) -> Outcome {
    sweep.run(case, progress)
}

/// One of so many cases is a call held against the golden model.
const GOLDEN: usize = 2_000;

fn case(rng: &mut Rng, counts: &mut Counts) -> Result<(), String> {
    if rng.below(GOLDEN) == 0 {
        return match rng.below(4) {
            0 => golden::case(rng, counts),
            1 => decode::golden(rng, counts),
            2 => tc_commit::golden(rng, counts),
            _ => tc_verify::golden(rng, counts),
        };
    }
    match rng.below(7) {
        0 => kernels::case(rng, counts),
        1 => decode::case(rng, counts),
        2 => delta_h::case(rng, counts),
        3 => tc_commit::case(rng, counts),
        4 => tc_verify::case(rng, counts),
        _ => conv_verify::case(rng, counts),
    }
}

/// An error that a caller can read: words, in one line.
fn words_of(error: &impl std::fmt::Display, counts: &mut Counts) -> Result<(), String> {
    counts.add("refused");
    let words = error.to_string();
    match words.is_empty() || words.lines().count() != 1 {
        true => Err(format!("refused with {words:?}")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_refused_accepted_and_executed() {
        let outcome = run(&Sweep { seed: 4, cases: 3_000, only: None }, &|_| {});
        assert_eq!(outcome.verdict("parameter blocks", 4), Ok(()));
        for name in ["refused", "accepted", "executed"] {
            assert!(outcome.counts.get(name) > 20, "{name}: {:?}", outcome.counts);
        }
    }
}
