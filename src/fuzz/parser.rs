//! Broken PTX text: the parser never panics, its errors have a place in the text, what it takes it prints and takes again as
//! the same, and the simulator's decoder gives an error or a program.

use super::{Counts, Outcome, Sweep, finish, text};
use crate::checks::{Request, Sink};
use kda_core::{Arch, IsaVersion, KernelDesc};
use kda_ptx::modifier::Type;
use kda_ptx::module::{Bounds, Entry, Module, Param, SharedDecl, Statement};
use kda_ptx::operand::{Class, PredSrc, Reg};
use kda_ptx::table::{Inst, ROWS};
use kda_ref::rng::Rng;
use kda_sim::Program;

/// Texts of a quick and of a full run.
const QUICK: u64 = 2_000;
const FULL: u64 = 100_000;
/// Longer kernels are chosen less often: parsing them takes as long as that of many short ones.
const SHORT: usize = 24_000;

/// The row of `kda check`.
pub fn check(request: &Request, sink: Sink) -> Result<(), String> {
    let sweep = Sweep::of(request.seed, request.extent, QUICK, FULL)?;
    let outcome = run(&sweep, request.progress);
    finish(request, "texts", &outcome, sink, 1.0)
}

/// Parses and decodes changed texts.
pub fn run(sweep: &Sweep, progress: &dyn Fn(f64)) -> Outcome {
    let (mut short, mut long): (Vec<_>, Vec<_>) = kda_kernels::all().partition(|desc| desc.ptx.len() < SHORT);
    short.sort_by_key(|desc| desc.entry);
    long.sort_by_key(|desc| desc.entry);
    sweep.run(|rng, counts| case(&short, &long, rng, counts), progress)
}

fn case(
    short: &[&'static KernelDesc],
    long: &[&'static KernelDesc],
    rng: &mut Rng,
    counts: &mut Counts,
) -> Result<(), String> {
    let sampled = sampled_module(rng).to_string();
    let mut text = match rng.below(40) {
        0 if !long.is_empty() => rng.choose(long).ptx.to_string(),
        1..16 if !short.is_empty() => rng.choose(short).ptx.to_string(),
        _ => sampled.clone(),
    };
    for _ in 0..rng.below(5) {
        text::change(&mut text, &sampled, rng);
    }
    judge(&text, counts).map_err(|what| format!("{what}\n{text}"))
}

/// Parses and decodes a text; what is wrong with the outcome.
fn judge(text: &str, counts: &mut Counts) -> Result<(), String> {
    let module = match kda_ptx::parse(text) {
        Ok(module) => module,
        Err(error) => {
            counts.add("refused");
            let lines = text.lines().count() as u32 + 1;
            return match (1..=lines).contains(&error.line) && error.column >= 1 && !error.message.is_empty() {
                true => Ok(()),
                false => Err(format!("`{error}` is outside the {lines} lines of the text")),
            };
        }
    };
    counts.add("parsed");
    let printed = module.to_string();
    match kda_ptx::parse(&printed) {
        Err(error) => return Err(format!("printed, it is refused: {error}")),
        Ok(again) if again.to_string() != printed => return Err("printed twice, it is another text".to_string()),
        Ok(again) if again != module => return Err("printed, it is another module".to_string()),
        Ok(_) => {}
    }
    match Program::load(text) {
        Ok(_) => counts.add("loaded"),
        Err(error) if error.to_string().is_empty() => return Err("refused without words".to_string()),
        Err(_) => {}
    }
    Ok(())
}

/// A module of instructions of any row, most with operands that are declared.
pub fn sampled_module(rng: &mut Rng) -> Module {
    let mut body = vec![Statement::Label("x".to_string())];
    for _ in 0..1 + rng.below(12) {
        let (guard, inst) = sampled_instruction(rng);
        // `mov` of a list of one is text of a plain `mov`: the only instructions that another row's text covers.
        let single = match &inst {
            Inst::Unpack(i) => i.dst.0.len() == 1,
            Inst::Pack(i) => i.src.0.len() == 1,
            _ => false,
        };
        if !single {
            body.push(Statement::Inst { guard, inst });
        }
    }
    let param = |name: &str| Param { name: name.to_string(), ty: Type::U64, align: None, array: None };
    let entry = Entry {
        name: "k".to_string(),
        params: vec![param("a_long_name2"), param("_end")],
        bounds: Bounds::default(),
        registers: [1 << rng.below(21), 8, 8, 8, 8],
        body,
    };
    let shared = Some(SharedDecl { name: "smem".to_string(), align: 1 << rng.below(8) });
    Module { isa: IsaVersion::new(8, 8), arch: Arch::SM_90, files: Vec::new(), shared, entries: vec![entry] }
}

/// An instruction of any row. Choices among many are mostly among few, so that registers are declared ones.
pub fn sampled_instruction(rng: &mut Rng) -> (Option<PredSrc>, Inst) {
    let row = &ROWS[rng.below(ROWS.len())];
    let mut choose = |bound: usize| match bound > 1 << 16 && rng.below(64) != 0 {
        true => rng.below(8),
        false => rng.below(bound),
    };
    let guard = match choose(4) {
        0 => Some(PredSrc { reg: Reg::new(Class::Pred, choose(2) as u32), negated: choose(2) == 0 }),
        _ => None,
    };
    (guard, (row.sample)(&mut choose))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_reached() {
        let mut rng = Rng::new(1);
        let seen: std::collections::BTreeSet<&str> =
            (0..20_000).map(|_| sampled_instruction(&mut rng).1.mnemonic()).collect();
        assert!(ROWS.iter().all(|row| seen.contains(row.mnemonic)));
    }

    #[test]
    fn some_texts_are_taken_and_some_refused() {
        let outcome = run(&Sweep { seed: 3, cases: 400, only: None }, &|_| {});
        assert_eq!(outcome.verdict("texts", 3), Ok(()));
        for name in ["refused", "parsed", "loaded"] {
            assert!(outcome.counts.get(name) > 20, "{name}: {:?}", outcome.counts);
        }
    }
}
