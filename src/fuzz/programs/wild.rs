//! Programs that nothing makes right: instructions of any row with any operands, and right programs and shipped kernels with
//! lines changed. The simulator ends each of them with a result or with a report; it never panics.

use super::generate::GRID;
use super::{program, shipped};
use crate::fuzz::parser::sampled_instruction;
use crate::fuzz::{Counts, Outcome, Sweep, text};
use kda_core::exec::ExecError;
use kda_ref::rng::Rng;
use kda_sim::{CtaOrder, Launch, Memory, Options, Program, Schedule};

/// Warp instructions after which a program is stopped.
pub(super) const STEPS: u64 = 20_000;
/// Bytes of the two buffers.
const BUFFER: u64 = 1 << 16;

/// Runs wild programs.
pub fn run(sweep: &Sweep, progress: &dyn Fn(f64)) -> Outcome {
    sweep.run(case, progress)
}

fn case(rng: &mut Rng, counts: &mut Counts) -> Result<(), String> {
    let text = match rng.below(5) {
        0 | 1 => return shipped::case(rng, counts),
        2 => changed(rng),
        _ => sampled(rng),
    };
    let program = match Program::load(&text) {
        Ok(program) => program,
        Err(_) => {
            counts.add("not loaded");
            return Ok(());
        }
    };
    let with_text = |what: String| format!("{what}\n{text}");
    let failed = |error: ExecError| format!("memory: {error}");
    let mut memory = Memory::new();
    let mut params = Vec::new();
    for _ in 0..2 {
        let at = memory.allocate(BUFFER).map_err(failed)?;
        memory.fill(at, rng.below(256) as u8, BUFFER).map_err(failed)?;
        params.extend(at.to_le_bytes());
    }
    // Small numbers, as sizes and addresses of shared memory.
    params.resize(program.param_bytes as usize, rng.choose(&[0, 1, 16]));
    let block = program.bounds.exact_threads.unwrap_or(rng.choose(&[32, 64, 33, 128]));
    let cluster = program.bounds.cluster.unwrap_or(1);
    let launch = Launch {
        grid: [GRID.next_multiple_of(cluster.max(1)), 1, 1],
        block,
        cluster,
        shared_bytes: rng.choose(&[0, 1024, 4096, 65536]),
        params: &params,
    };
    let options = Options {
        schedule: rng.choose(&Schedule::ALL),
        cta_order: rng.choose(&[CtaOrder::Forward, CtaOrder::Random]),
        seed: rng.next_u64(),
        step_limit: STEPS,
        ..Options::default()
    };
    match kda_sim::run(&program, &launch, &mut memory, &options) {
        Ok(_) => counts.add("run to the end"),
        Err(report) if report.message.is_empty() => return Err(with_text("a report without words".to_string())),
        Err(report) => counts.add(&format!("{}", report.code)),
    }
    Ok(())
}

/// A right program with a few changes.
fn changed(rng: &mut Rng) -> String {
    let (mut text, donor) = (program(rng).text, program(rng).text);
    let mut lines: Vec<&str> = text.lines().collect();
    for _ in 0..rng.below(4) {
        let (at, other) = (rng.below(lines.len()), rng.below(lines.len()));
        match rng.below(4) {
            0 => {
                lines.remove(at);
            }
            1 => lines.swap(at, other),
            2 => lines.insert(at, lines[other]),
            _ => {}
        }
    }
    text = lines.join("\n");
    for _ in 0..rng.below(3) {
        text::change(&mut text, &donor, rng);
    }
    text
}

/// Labels that sampled branches name.
const LABELS: [&str; 5] = ["smem", "x", "$L_loop", "_end", "a_long_name2"];

/// Instructions of any row that the decoder takes, behind registers that hold addresses and small numbers.
fn sampled(rng: &mut Rng) -> String {
    let labels: String = LABELS.iter().map(|label| format!("{label}:\n")).collect();
    let mut lines: Vec<String> = Vec::new();
    let wanted = 2 + rng.below(12);
    for _ in 0..200 {
        let (guard, inst) = sampled_instruction(rng);
        let mut line = String::from("    ");
        if let Some(guard) = guard {
            line.push_str(&format!("@{}%p{} ", if guard.negated { "!" } else { "" }, guard.reg.index));
        }
        inst.print(&mut line);
        line.push_str(";\n");
        // What is decoded alone is decoded among others.
        if Program::load(&around(&format!("{line}{labels}"), 1)).is_ok() {
            lines.push(line);
        }
        if lines.len() == wanted {
            break;
        }
    }
    for label in LABELS {
        lines.insert(rng.below(lines.len() + 1), format!("{label}:\n"));
    }
    around(&lines.concat(), 16 << rng.below(7))
}

/// The module of a body. Its registers hold two buffers, addresses of shared memory, the thread's number and small numbers.
fn around(body: &str, align: u32) -> String {
    let mut registers = String::from(
        "    ld.param.u64 %rd0, [a_long_name2];\n    ld.param.u64 %rd1, [_end];\n    mov.u64 %rd2, smem;\n    \
         mov.u32 %r0, %tid.x;\n    mov.u32 %r1, smem;\n    mad.lo.u32 %r2, %r0, 16, %r1;\n    \
         mad.wide.u32 %rd3, %r0, 16, %rd0;\n    mad.wide.u32 %rd4, %r0, 8, %rd1;\n",
    );
    for index in 0..8 {
        registers
            .push_str(&format!("    mov.b16 %h{index}, {index};\n    setp.ge.u32 %p{index}, %r0, {};\n", index * 8));
        if index > 2 {
            registers.push_str(&format!("    mov.u32 %r{index}, {};\n", index * 16 - 48));
        }
        if index > 4 {
            registers.push_str(&format!("    mov.u64 %rd{index}, {};\n", index - 5));
        }
    }
    format!(
        ".version 8.8\n.target sm_100a\n.address_size 64\n\n.extern .shared .align {align} .b8 smem[];\n\n\
         .visible .entry k(\n    .param .u64 a_long_name2,\n    .param .u64 _end\n)\n{{\n    .reg .pred %p<8>;\n    \
         .reg .b16 %h<8>;\n    .reg .b32 %r<8>;\n    .reg .b64 %rd<8>;\n    .reg .b128 %rq<8>;\n{registers}{body}    ret;\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_run_to_the_end_and_some_are_reported() {
        let outcome = run(&Sweep { seed: 6, cases: 400, only: None }, &|_| {});
        assert_eq!(outcome.verdict("wild programs", 6), Ok(()));
        let reports = outcome.counts.0.keys().filter(|name| name.starts_with("KDA3")).count();
        assert!(outcome.counts.get("run to the end") > 20 && reports > 3, "{:?}", outcome.counts);
    }
}
