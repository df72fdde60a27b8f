//! Does the net find the fault, where it is marked and nowhere else, and nothing in the corrected kernel?

use super::case::{Case, Net};
use super::launch::Bench;
use kda_codegen::compiled::Compiled;
use kda_codegen::diag::Diagnostic;
use kda_codegen::{signature, specialise, syntax, variants};
use kda_sim::{Checks, Code, CtaOrder, Options, Report, Schedule};
use std::collections::BTreeSet;

/// Begins the failure of a case that its net does not find.
pub const NOT_FOUND: &str = "not found";

/// Schedules of a case, each with the CTAs in another order.
pub fn schedules() -> Vec<Options> {
    let random = |s: &Schedule| matches!(s, Schedule::Random | Schedule::Pct { .. });
    let all = Schedule::ALL.iter().flat_map(|s| (0..if random(s) { 3 } else { 1 }).map(move |seed| (*s, seed)));
    let orders = [CtaOrder::Forward, CtaOrder::Reverse, CtaOrder::Random];
    all.zip(orders.iter().cycle())
        .map(|((schedule, seed), order)| Options { schedule, seed, cta_order: *order, ..Options::default() })
        .collect()
}

/// The only kernel of a text, in its first variant.
pub fn compile(source: &str) -> Result<Compiled, Vec<Diagnostic>> {
    let family = syntax::parse_family(source)?;
    let kernel = &family.kernels[0];
    let variant = &variants::expand(&family, kernel)?[0];
    let resolved = signature::resolve(&family, kernel, variant)?;
    specialise::compile_variant(&family, kernel, variant, &resolved).map_err(|error| vec![*error])
}

/// Judges a case.
pub fn case(case: &Case) -> Result<(), String> {
    match case.net {
        Net::Compiler => refused(case)?,
        Net::Simulator => reported(case)?,
    }
    corrected(case)
}

/// The corrected kernel compiles, and runs clean with the same results under every schedule.
pub fn corrected(case: &Case) -> Result<(), String> {
    let bench = bench(case, &case.right).map_err(|e| format!("corrected: {e}"))?;
    let mut results: Option<Vec<Vec<u8>>> = None;
    for options in schedules() {
        let schedule = options.schedule;
        let after = match bench.run(&options).map_err(|e| format!("corrected: {e}"))? {
            Ok(after) => after,
            Err(report) => return Err(format!("the corrected kernel is not clean under {schedule:?}: {report}")),
        };
        if *results.get_or_insert_with(|| after.clone()) != after {
            return Err(format!("the corrected kernel has other results under {schedule:?}"));
        }
    }
    Ok(())
}

/// A text of the case with its launch.
pub fn bench(case: &Case, text: &str) -> Result<Bench, String> {
    if case.is_ptx() {
        return Bench::of_ptx(text, &case.run);
    }
    let compiled = compile(text).map_err(|errors| {
        let all: Vec<String> = errors.iter().map(Diagnostic::to_string).collect();
        format!("it does not compile: {}", all.join("\n"))
    })?;
    Bench::of_kernel(&compiled, &case.run)
}

/// The compiler gives one error: this code, at this line, with notes at the other lines.
fn refused(case: &Case) -> Result<(), String> {
    let errors = match compile(&case.wrong) {
        Ok(_) => return Err(format!("{NOT_FOUND}: it compiles")),
        Err(errors) => errors,
    };
    let all: Vec<String> = errors.iter().map(Diagnostic::text).collect();
    let all = all.join("\n");
    if errors.len() > 1 {
        return Err(format!("{} errors:\n{all}", errors.len()));
    }
    let error = &errors[0];
    let line = error.place().0.line as u32;
    if (error.code.0, line) != (case.code, case.line) {
        return Err(format!(
            "KDA{:04} at line {}, but marked is KDA{:04} at line {}:\n{all}",
            error.code.0, line, case.code, case.line
        ));
    }
    let notes: BTreeSet<u32> = error.notes.iter().map(|(span, _)| span.start().line as u32).collect();
    named(case, &notes).map_err(|e| format!("{e}\n{all}"))
}

/// The simulator reports this code, with its site at the marked line, under every schedule or under some.
fn reported(case: &Case) -> Result<(), String> {
    let bench = bench(case, &case.wrong)?;
    let (mut found, mut clean) = (Vec::new(), Vec::new());
    let (mut found_as, mut lines) = (BTreeSet::new(), BTreeSet::new());
    for options in schedules() {
        let schedule = options.schedule;
        let Err(mut report) = bench.run(&options)? else {
            clean.push(schedule);
            continue;
        };
        // Who reads ahead of the write may be reported for what it does with undefined bytes, before the write comes.
        if (report.code, case.code) == (Code::Uninitialised, Code::Race as u16) {
            let checks = Checks { undefined: false, ..options.checks };
            let Err(race) = bench.run(&Options { checks, ..options })? else {
                return Err(format!("under {schedule:?} no race: {report}"));
            };
            report = race;
        }
        let said = (report.code as u16, report.site.as_ref().map_or(0, |site| line_of(case, site)));
        if said != (case.code, case.line) && !case.or.contains(&said) {
            return Err(format!(
                "under {schedule:?} {} at line {}, but marked is KDA{} at line {}: {report}",
                report.code, said.1, case.code, case.line
            ));
        }
        found_as.insert(said);
        lines.extend(lines_of(case, &report));
        found.push((schedule, report));
    }
    let Some((_, first)) = found.first() else { return Err(format!("{NOT_FOUND} under any schedule")) };
    match (case.always, clean.is_empty()) {
        (true, false) => return Err(format!("not under {clean:?}; under others: {first}")),
        (false, true) => return Err(format!("it is found under all schedules: {first}")),
        _ => {}
    }
    let marks = [(case.code, case.line)].into_iter().chain(case.or.iter().copied());
    if let Some((code, line)) = marks.into_iter().find(|mark| !found_as.contains(mark)) {
        return Err(format!("KDA{code} is marked at line {line}, and not reported; found: {found_as:?}"));
    }
    named(case, &lines).map_err(|e| format!("{e}\n{first}"))
}

/// Every line named is marked, and every mark is named.
fn named(case: &Case, named: &BTreeSet<u32>) -> Result<(), String> {
    let marked = |line: &u32| *line == case.line || case.also.contains(line) || case.or.iter().any(|(_, l)| l == line);
    if let Some(line) = named.iter().find(|line| !marked(line)) {
        return Err(format!("line {line} is named, and not marked"));
    }
    match case.also.iter().find(|line| !named.contains(line)) {
        Some(line) => Err(format!("line {line} is marked `also`, and not named")),
        None => Ok(()),
    }
}

/// Lines of the case that a report names.
pub fn lines_of(case: &Case, report: &Report) -> BTreeSet<u32> {
    report.site.iter().chain(&report.others).map(|site| line_of(case, site)).collect()
}

/// Line of the case at which a site stands; 0 where the site has no place.
fn line_of(case: &Case, site: &kda_sim::report::Site) -> u32 {
    match case.is_ptx() {
        true => site.at.ptx_line,
        false => site.at.source.as_ref().map_or(0, |s| s.line),
    }
}
