//! Fuzzing: nothing that a user can hand to this workspace makes it panic, hang or disagree with itself.
//!
//! | what is broken on purpose | module | what must hold |
//! | --- | --- | --- |
//! | kernels, token by token | [`front_end`] | the compiler gives errors with a code and a place, or a text that the simulator loads |
//! | PTX text, character by character | [`parser`] | the parser gives errors with a place; what it takes it prints and takes again; the decoder never panics |
//! | programs of the instruction table | [`programs`] | the simulator gives the same bits under every schedule, and the bits of a GPU where there is one; of wild programs it gives a report |
//! | arguments of operators and kernels | [`parameters`] | validation gives an error, or a launch that touches nothing outside its tensors |
//!
//! A case follows from the seed and its number alone. `KDA_FUZZ_CASES` sets the number of cases of every sweep, and
//! `KDA_FUZZ_ONLY` names the one case to run: with the seed of a failed run it repeats what failed. What is no number, and no
//! case at all, is an error.

pub mod front_end;
pub mod parameters;
pub mod parser;
pub mod programs;
mod sweep;
mod text;

pub use sweep::{Counts, Fault, Outcome, Sweep};

use crate::checks::{Operator, Request, Sink};

/// Rows of `kda check`, one a fuzzer. None of them has a sample problem or golden cases.
pub fn operators() -> Vec<Operator> {
    let operator = |name, run| Operator { name, run, sample: |_, _, _, _| Ok(()), replay: |_, _| Ok(None) };
    vec![
        operator("fuzz_front_end", front_end::check),
        operator("fuzz_parser", parser::check),
        operator("fuzz_programs", programs::check),
        operator("fuzz_parameters", parameters::check),
    ]
}

/// Hands out the rows of an outcome; what went wrong is the error, with what repeats it.
fn finish(request: &Request, name: &str, outcome: &Outcome, sink: Sink, share: f64) -> Result<(), String> {
    for row in outcome.rows(name) {
        sink(row, share);
    }
    outcome.verdict(name, request.seed)
}
