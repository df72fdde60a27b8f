//! Random programs of the instruction table.
//!
//! | question | module |
//! | --- | --- |
//! | which instructions, with which modifiers | [`forms`], `conversions` |
//! | what warps and CTAs do together | `together` |
//! | which numbers they read | `input` |
//! | how they become a program whose results are one | [`generate`](mod@generate) |
//! | how it runs, here and on a device | [`run`](mod@run) |
//! | programs that nothing makes right | [`wild`], of shipped kernels `shipped` |
//!
//! A program that is right by construction gives the same bits under every schedule and every order of CTAs, without a report.
//! Where a device is present the same texts run on it and give the bits of the simulator; of approximate instructions, a
//! number within their documented error. Wild programs end in a report or a result.

mod conversions;
pub mod forms;
pub mod generate;
mod input;
pub mod run;
mod shipped;
mod together;
pub mod wild;

use super::{Counts, Fault, Outcome, Sweep, finish};
use crate::checks::{Extent, Request, Sink};
use generate::{Program, generate};
use kda_core::Executor;
use kda_ref::rng::Rng;
use kda_runtime::Backend;
use kda_runtime::executor::sim::{CTA_ORDERS, schedule_name};
use kda_sim::{CtaOrder, Schedule};

/// Programs of a quick and of a full run: right ones, those on a device, wild ones, and programs of every form on a device.
const QUICK: [u64; 4] = [30, 20, 1_000, 1];
const FULL: [u64; 4] = [3_000, 400, 50_000, 20];
/// Statements of a program.
const STATEMENTS: usize = 160;

/// The row of `kda check`.
pub fn check(request: &Request, sink: Sink) -> Result<(), String> {
    let sweep = |which: usize| Sweep::of(request.seed, request.extent, QUICK[which], FULL[which]);
    let mut results = Vec::new();
    let right = run_right(&sweep(0)?, &|share| (request.progress)(0.5 * share));
    results.push(finish(request, "programs", &right, sink, 0.5));
    if request.device.backend == Backend::Cuda {
        let forms = run_forms_on_device(&sweep(3)?, request.device.executor.as_ref());
        results.push(finish(request, "programs of every form on the device", &forms, sink, 0.55));
        let compared = run_on_device(&sweep(1)?, request.device.executor.as_ref());
        results.push(finish(request, "programs on the device", &compared, sink, 0.6));
    }
    let wild = wild::run(&sweep(2)?, &|share| (request.progress)(0.6 + 0.4 * share));
    results.push(finish(request, "wild programs", &wild, sink, 1.0));
    if request.extent == Extent::Full && wild.cases >= FULL[2] && wild.counts.get("run to the end") * 20 < wild.cases {
        results.push(Err("fewer than one wild program in twenty ran to its end".to_string()));
    }
    let wrong: Vec<String> = results.into_iter().filter_map(Result::err).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// The program of a case.
pub fn program(rng: &mut Rng) -> Program {
    let statements = STATEMENTS / 4 + rng.below(STATEMENTS);
    generate(rng, statements)
}

/// Runs programs under every schedule.
pub fn run_right(sweep: &Sweep, progress: &dyn Fn(f64)) -> Outcome {
    sweep.run(case, progress)
}

fn case(rng: &mut Rng, counts: &mut Counts) -> Result<(), String> {
    let program = program(rng);
    let seed = rng.next_u64();
    let with_text = |what: String| format!("{what}\n{}", program.text);
    let first =
        run::simulate(&program, &program.text, Schedule::RoundRobin, CtaOrder::Forward, seed).map_err(with_text)?;
    counts.more("results", program.slots.len() as u64);
    for (index, schedule) in Schedule::ALL.into_iter().enumerate() {
        let order = CTA_ORDERS[(index + seed as usize % 3) % 3];
        let other = run::simulate(&program, &program.text, schedule, order, seed)
            .map_err(|what| with_text(format!("schedule {}: {what}", schedule_name(schedule))))?;
        if other != first {
            let what = run::compare(&program, &first, &other).err().unwrap_or_else(|| "a NaN".to_string());
            return Err(with_text(format!("other bits under schedule {}: {what}", schedule_name(schedule))));
        }
    }
    Ok(())
}

/// Runs programs in the simulator and on a device.
pub fn run_on_device(sweep: &Sweep, executor: &dyn Executor) -> Outcome {
    run_against(sweep, program, &mut |program| run::on_device(program, &program.text, executor))
}

/// Runs every form on a device, and names each that differs from the simulator.
pub fn run_forms_on_device(sweep: &Sweep, executor: &dyn Executor) -> Outcome {
    run_against(sweep, every_form, &mut |program| run::on_device(program, &program.text, executor))
}

/// The program of every form, with these random numbers as operands.
fn every_form(rng: &mut Rng) -> Program {
    generate::of_forms(forms::FORMS.iter(), rng)
}

/// Runs programs in the simulator and elsewhere, and compares.
fn run_against(
    sweep: &Sweep,
    program: fn(&mut Rng) -> Program,
    device: &mut dyn FnMut(&Program) -> Result<Vec<u8>, String>,
) -> Outcome {
    let indices: Vec<u64> = sweep.only.map_or_else(|| (0..sweep.cases).collect(), |only| vec![only]);
    let mut outcome = Outcome { cases: indices.len() as u64, ..Outcome::default() };
    for index in indices {
        let program = program(&mut sweep.random(index));
        let result = run::simulate(&program, &program.text, Schedule::RoundRobin, CtaOrder::Forward, 0)
            .and_then(|simulated| Ok(run::differences(&program, &simulated, &device(&program)?)));
        outcome.counts.more("results", program.slots.len() as u64);
        let wrong = result.unwrap_or_else(|what| vec![what]);
        if !wrong.is_empty() {
            // What follows from a wrong result is wrong too: in a program the first says most.
            let most = if program.shared_bytes == 0 { wrong.len() } else { 1 };
            outcome.fail(Fault { index, panic: false, what: wrong[..most].join("\n") });
        }
    }
    outcome
}

#[cfg(test)]
mod tests;
