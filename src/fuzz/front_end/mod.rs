//! Broken kernels: the compiler never panics and never hangs, every error has a code of the catalogue and a place in the
//! source, and every text that it gives is one that the simulator loads.

mod mutate;

use super::sweep::SLOW;
use super::{Counts, Outcome, Sweep, finish};
use crate::checks::{Extent, Request, Sink};
use kda_codegen::compiled::Compiled;
use kda_codegen::diag::{Diagnostic, catalogue};
use kda_codegen::{signature, specialise, syntax, variants};
use kda_kernels::SOURCES as SHIPPED;
use kda_ref::rng::Rng;
use kda_sim::{LoadError, Program};
use proc_macro2::TokenStream;
use std::sync::LazyLock;
use std::time::Instant;

/// Kernels that between them use everything that bodies can hold.
const SOURCES: [&str; 9] = [
    include_str!("../sources/products.rs.txt"),
    include_str!("../sources/fragments.rs.txt"),
    include_str!("../sources/clusters.rs.txt"),
    include_str!("../sources/persistent.rs.txt"),
    include_str!("../sources/tensor_memory.rs.txt"),
    include_str!("../sources/elementwise.rs.txt"),
    include_str!("../sources/roles.rs.txt"),
    include_str!("../sources/arithmetic.rs.txt"),
    include_str!("../sources/pipelines.rs.txt"),
];

/// The kernels to start from: these and every one that ships, behind its libraries. The documentation of files is a comment here,
/// since it does not belong to the module.
static STARTS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let shipped = SHIPPED.iter().map(|source| source.libraries.concat() + source.text);
    let all = SOURCES.into_iter().map(String::from).chain(shipped);
    all.map(|text| text.replace("//!", "//")).collect()
});

/// Variants of a kernel that are compiled: the others go the same ways.
const VARIANTS: usize = 2;

/// Mutants of a quick and of a full run.
const QUICK: u64 = 500;
const FULL: u64 = 100_000;

/// The row of `kda check`.
pub fn check(request: &Request, sink: Sink) -> Result<(), String> {
    let sweep = Sweep::of(request.seed, request.extent, QUICK, FULL)?;
    let outcome = run(&sweep, request.progress);
    finish(request, "mutants", &outcome, sink, 1.0)?;
    let codes = outcome.counts.0.keys().filter(|name| name.starts_with("KDA")).count();
    match request.extent == Extent::Full && codes < 40 && outcome.cases >= FULL {
        true => Err(format!("only {codes} kinds of errors: the mutants reach too little of the compiler")),
        false => Ok(()),
    }
}

/// Compiles mutants.
pub fn run(sweep: &Sweep, progress: &dyn Fn(f64)) -> Outcome {
    sweep.run(case, progress)
}

fn case(rng: &mut Rng, counts: &mut Counts) -> Result<(), String> {
    // Nothing of the mutant before is alive.
    proc_macro2::extra::invalidate_current_thread_spans();
    let source = &STARTS[rng.below(STARTS.len())];
    let tokens: TokenStream = source.parse().map_err(|error| format!("the source: {error}"))?;
    // What is no Rust ends in the first step of the compiler: mostly another change is tried.
    let mut text = mutate::mutate(tokens.clone(), rng).to_string();
    for _ in 0..rng.below(6) {
        if syn::parse_str::<syn::ItemMod>(&text).is_ok() {
            break;
        }
        text = mutate::mutate(tokens.clone(), rng).to_string();
    }
    let start = Instant::now();
    let judged = judge(&text, counts).and_then(|()| match start.elapsed() {
        elapsed if elapsed >= SLOW => Err(format!("took {elapsed:.1?}")),
        _ => Ok(()),
    });
    judged.map_err(|what| format!("{what}\n{text}"))
}

/// Compiles a source: what is wrong with its errors, or with its text.
fn judge(source: &str, counts: &mut Counts) -> Result<(), String> {
    let kernels = match compile(source) {
        Ok(kernels) => kernels,
        Err(errors) => {
            let first = errors.first().ok_or("refused without an error")?;
            counts.add(&first.code.to_string());
            return errors.iter().try_for_each(|error| judge_error(error, source));
        }
    };
    counts.add("compile");
    for kernel in kernels {
        match Program::load(&kernel.ptx) {
            Ok(_) => counts.add("texts loaded"),
            // A loop that a change made long, unrolled: the simulator numbers registers in 16 bits.
            Err(LoadError::Unsupported { form, .. }) if form.starts_with("register ") => {
                counts.add("texts of too many registers");
            }
            Err(error) => return Err(format!("the text of {}: {error}", kernel.entry)),
        }
    }
    Ok(())
}

/// The first variants of every kernel.
fn compile(source: &str) -> Result<Vec<Compiled>, Vec<Diagnostic>> {
    let family = syntax::parse_family(source)?;
    let mut kernels = Vec::new();
    for kernel in &family.kernels {
        for variant in variants::expand(&family, kernel)?.iter().take(VARIANTS) {
            let resolved = signature::resolve(&family, kernel, variant)?;
            let compiled = specialise::compile_variant(&family, kernel, variant, &resolved);
            kernels.push(compiled.map_err(|error| vec![*error])?);
        }
    }
    Ok(kernels)
}

/// An error has words, a code of the catalogue, and a place in the source that begins before it ends.
fn judge_error(error: &Diagnostic, source: &str) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("`{error}` {what}"));
    if error.message.is_empty() {
        return wrong("has no words");
    }
    if !catalogue::all().any(|entry| entry.code == error.code) {
        return wrong("has a code that is not in the catalogue");
    }
    let lines: Vec<&str> = source.lines().collect();
    let (start, end) = error.place();
    let inside = |line: usize, column: usize| {
        line >= 1 && lines.get(line - 1).is_some_and(|text| column <= text.chars().count())
    };
    // Where something is missing there may be no token: the place is then that of the whole.
    let whole = (start.line, start.column) == (1, 0);
    if !whole && !inside(start.line, start.column) {
        return wrong("begins outside the source");
    }
    if !whole && !inside(end.line, end.column) {
        return wrong("ends outside the source");
    }
    if (start.line, start.column) > (end.line, end.column) {
        return wrong("ends before it begins");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_compile_and_load() {
        let all = || {
            for source in STARTS.iter() {
                let mut counts = Counts::default();
                judge(source, &mut counts).unwrap();
                assert!(counts.get("texts loaded") > 0, "{counts:?}\n{source}");
            }
        };
        // The stack of a thread of the Rust compiler; a test has less.
        let compiler = std::thread::Builder::new().stack_size(8 << 20).spawn(all).unwrap();
        compiler.join().unwrap();
    }

    #[test]
    fn a_text_may_have_more_registers_than_the_simulator() {
        let source = "#[kernels(arch = sm_90)]\nmod family { #[kernel(block = 32, grid = 1)] fn k(#[dims(70000)] x: GlobalMut<u32>) {
            #[unroll] for i in 0..200 { #[unroll] for j in 0..200 {
                let at = x.at([tid + 200 * i + j]);
                at.store(at.load() + lane);
            } } } }";
        let mut counts = Counts::default();
        judge(source, &mut counts).unwrap();
        assert_eq!((counts.get("texts of too many registers"), counts.get("texts loaded")), (1, 0), "{counts:?}");
    }

    #[test]
    fn errors_outside_the_source_are_failures() {
        let source =
            "#[kernels(arch = sm_90)]\nmod family { #[kernel(block = 32, grid = 1)] fn k(n: u32) { let z = q; } }";
        let error = compile(source).unwrap_err().remove(0);
        judge_error(&error, source).unwrap();
        assert!(judge_error(&error, "mod family {}").unwrap_err().contains("outside the source"));
        let silent = Diagnostic { message: String::new(), ..error };
        assert!(judge_error(&silent, source).unwrap_err().contains("no words"));
    }
}
