//! From times to the preference table that dispatch reads.
//!
//! Where several contracts share a table, the time of a variant at a size is the worst of its times relative to the fastest
//! variant's, over these contracts. For each number of tokens that was measured: the fewest bands of pairs in which one
//! variant is nowhere slower than the fastest by more than half a percent. A bound between two measured sizes lies where
//! the two variants' times meet, linear in the logarithm of the pairs. Numbers of tokens in between take the bands of the
//! nearest that names variants for them; equal bands are one range.

use super::arena::Arena;
use super::report::{Row, Who};
use super::shape::Shape;
use super::{Choice, Contract, Failure, Launch, Subject};
use kda_core::Executor;
use kda_runtime::operators::preference::{is_named, variant_name};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// How much slower than the fastest a variant may be and still be preferred, so that the table is short.
const SLACK: f64 = 1.005;

/// Times of one launch mode: tokens, pairs, variant, µs or times relative to the fastest variant's.
pub type Times = BTreeMap<u64, BTreeMap<u64, BTreeMap<String, f64>>>;

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Tokens, first and last.
    pub tokens: (u64, u64),
    /// Most pairs.
    pub pairs: u64,
    /// Name of the variant.
    pub variant: String,
}

/// The tables of a choice, one for each launch.
pub struct Tables {
    /// What the names of its constants begin with.
    pub prefix: &'static str,
    /// Which calls it is for, in words.
    pub text: &'static str,
    /// The lines for each launch.
    pub lines: Vec<(Launch, Vec<Line>)>,
}

/// Whether a variant runs so many tokens with all contracts of a choice.
pub fn covers(subject: &dyn Subject, executor: &dyn Executor, choice: &Choice, variant: &str, tokens: u64) -> bool {
    choice.contracts.iter().all(|contract| {
        let call = subject.call(&mut Arena::counting(), contract, Shape { t: tokens, h: 1, n: 1 });
        let mut named = subject.kernels().into_iter().filter(|desc| is_named(desc.entry, variant));
        call.is_ok_and(|call| named.any(|desc| call.plan(executor, Some(desc), Launch::Plain).is_ok()))
    })
}

/// The tables of a choice; `covers(variant, tokens)` says whether a variant can run so many tokens.
pub fn tables(rows: &[Row], launches: &[Launch], choice: &Choice, covers: &dyn Fn(&str, u64) -> bool) -> Tables {
    let times: Vec<(Launch, Times)> = launches
        .iter()
        .map(|launch| (*launch, worst(choice.contracts.iter().map(|contract| times(rows, contract, *launch)))))
        .collect();
    let mut lines = times.iter().map(|(launch, times)| (*launch, table(times, covers))).collect::<Vec<_>>();
    share(&mut lines, &times);
    Tables { prefix: choice.prefix, text: choice.text, lines }
}

/// The times of our variants with one contract and launch. Of entries with one name the first one counts: dispatch's choice,
/// else the first of the kernels, which dispatch prefers, too.
pub fn times(rows: &[Row], contract: &Contract, launch: Launch) -> Times {
    let mut times = Times::new();
    for row in rows.iter().filter(|row| row.who == Who::Ours && row.launch == launch.name()) {
        if row.contract == contract.name {
            let sizes = times.entry(row.shape.t).or_default().entry(row.shape.pairs()).or_default();
            sizes.entry(variant_name(&row.kernel)).or_insert(row.us);
        }
    }
    times
}

/// For each size and variant the worst of its times relative to the fastest variant's; contracts that were not timed at a size,
/// and variants that were not timed with all others, do not count.
pub fn worst(contracts: impl Iterator<Item = Times>) -> Times {
    let contracts: Vec<Times> = contracts.filter(|times| !times.is_empty()).collect();
    let mut all = Times::new();
    for (t, sizes) in contracts.iter().flatten() {
        for pairs in sizes.keys() {
            let there: Vec<_> = contracts.iter().filter_map(|times| times.get(t)?.get(pairs)).collect();
            let relative = |name: &String| -> Option<f64> {
                let of = |at: &&BTreeMap<String, f64>| {
                    at.get(name).map(|us| us / at.values().copied().fold(f64::INFINITY, f64::min))
                };
                there.iter().map(of).try_fold(0.0, |worst: f64, ratio| ratio.map(|ratio| worst.max(ratio)))
            };
            let names = there[0].keys().filter_map(|name| Some((name.clone(), relative(name)?)));
            all.entry(*t).or_default().insert(*pairs, names.collect());
        }
    }
    all
}

/// The table; `covers(variant, tokens)` says whether a variant can run so many tokens.
pub fn table(times: &Times, covers: &dyn Fn(&str, u64) -> bool) -> Vec<Line> {
    let bands: BTreeMap<u64, Vec<(u64, String)>> = times.iter().map(|(t, sizes)| (*t, bands(sizes))).collect();
    let Some(last) = bands.keys().last().copied() else { return Vec::new() };
    // For each number of tokens the measured one whose bands it takes.
    let mut lines: Vec<Line> = Vec::new();
    let mut ranges: Vec<(u64, u64, u64)> = Vec::new();
    for t in 1..=last {
        let able = bands.iter().filter(|(_, bands)| bands.iter().all(|(_, variant)| covers(variant, t)));
        let nearest = able.map(|(measured, _)| (measured.abs_diff(t), u64::MAX - measured)).min();
        let source = nearest.map_or(last, |(_, from_end)| u64::MAX - from_end);
        match ranges.last_mut() {
            Some((_, end, from)) if merges(times, &bands, *from, source, covers, t) => *end = t,
            _ => ranges.push((t, t, source)),
        }
    }
    if let Some((_, end, _)) = ranges.last_mut() {
        *end = u64::MAX;
    }
    for (first, end, source) in ranges {
        for (pairs, variant) in &bands[&source] {
            lines.push(Line { tokens: (first, end), pairs: *pairs, variant: variant.clone() });
        }
    }
    lines
}

/// Whether tokens `t`, whose own bands are those of `source`, can take the bands of `from`.
fn merges(
    times: &Times,
    bands: &BTreeMap<u64, Vec<(u64, String)>>,
    from: u64,
    source: u64,
    covers: &dyn Fn(&str, u64) -> bool,
    t: u64,
) -> bool {
    let theirs = &bands[&from];
    from == source
        || theirs.iter().all(|(_, variant)| covers(variant, t))
            && times[&source].iter().all(|(pairs, sizes)| {
                let best = sizes.values().copied().fold(f64::INFINITY, f64::min);
                let row = theirs.iter().find(|(bound, _)| pairs <= bound);
                row.and_then(|(_, variant)| sizes.get(variant)).is_some_and(|us| *us <= best * SLACK)
            })
}

/// Bounds of pairs with the variant preferred up to there; the last has no bound.
fn bands(sizes: &BTreeMap<u64, BTreeMap<String, f64>>) -> Vec<(u64, String)> {
    let good = |at: &BTreeMap<String, f64>| -> BTreeSet<String> {
        let best = at.values().copied().fold(f64::INFINITY, f64::min);
        at.iter().filter(|(_, us)| **us <= best * SLACK).map(|(name, _)| name.clone()).collect()
    };
    // Segments as long as one variant is good at all of their sizes.
    let mut segments: Vec<(Vec<u64>, BTreeSet<String>)> = Vec::new();
    for (pairs, at) in sizes {
        let here = good(at);
        match segments.last_mut() {
            Some((list, common)) if !common.is_disjoint(&here) => {
                list.push(*pairs);
                common.retain(|name| here.contains(name));
            }
            _ => segments.push((vec![*pairs], here)),
        }
    }
    let chosen: Vec<(u64, u64, String)> = segments
        .iter()
        .filter_map(|(list, common)| {
            // Of several the one that is fastest in the mean of the logarithms.
            let cost = |name: &String| list.iter().map(|pairs| sizes[pairs][name].ln()).sum::<f64>();
            let best = common.iter().min_by(|a, b| cost(a).total_cmp(&cost(b)))?;
            Some((*list.first()?, *list.last()?, best.clone()))
        })
        .collect();
    let mut bands = Vec::new();
    for (at, (_, end, variant)) in chosen.iter().enumerate() {
        let bound = match chosen.get(at + 1) {
            Some((start, _, next)) => meeting(sizes, *end, *start, variant, next),
            None => u64::MAX,
        };
        bands.push((bound, variant.clone()));
    }
    bands
}

/// The most pairs at which `left` is still preferred to `right`, between two sizes.
fn meeting(sizes: &BTreeMap<u64, BTreeMap<String, f64>>, from: u64, to: u64, left: &str, right: &str) -> u64 {
    let lead = |pairs: u64| Some((sizes[&pairs].get(right)? / sizes[&pairs].get(left)?).ln());
    let share = match (lead(from), lead(to)) {
        // `left` leads at `from` and follows at `to`, within the slack.
        (Some(ahead), Some(behind)) if ahead > 0.0 && behind < 0.0 => ahead / (ahead - behind),
        (Some(ahead), Some(_)) if ahead <= 0.0 => 0.0,
        (Some(_), Some(_)) => 1.0,
        _ => 0.5,
    };
    let (a, b) = ((from as f64).ln(), (to as f64).ln());
    // A bound that is a whole number may come out a little below it.
    (((a + share * (b - a)).exp() + 1e-6).floor() as u64).clamp(from, to.saturating_sub(1).max(from))
}

/// The tables as a Rust source file; `contracts` are those that were timed.
///
/// # Errors
/// A launch mode has no times.
pub fn source(
    op: &str,
    environment: &str,
    multiprocessors: u32,
    contracts: &[Contract],
    tables: &[Tables],
) -> Result<String, Failure> {
    let mut text = String::new();
    writeln!(text, "//! Which variant of `{op}` to prefer, by size. `kda bench {op} --tune` writes this file.\n//!")?;
    let names = contracts.iter().map(|contract| contract.name).collect::<Vec<_>>().join(", ");
    let contracts = if contracts.len() == 1 { "the contract" } else { "the contracts" };
    for line in wrapped(&format!("Measured with {contracts} {names}, cold L2, on: {environment}."), 116) {
        writeln!(text, "//! {line}")?;
    }
    text.push_str(&body(multiprocessors, tables)?);
    Ok(text)
}

/// The file without its comment.
fn body(multiprocessors: u32, tables: &[Tables]) -> Result<String, Failure> {
    let mut text = String::from("\nuse crate::operators::preference::{Row, Table};\n");
    for tables in tables {
        constants(&mut text, multiprocessors, tables)?;
    }
    Ok(text)
}

/// The tables of a choice, one for each launch.
fn constants(text: &mut String, multiprocessors: u32, tables: &Tables) -> Result<(), Failure> {
    let mut written: Vec<(String, &Vec<Line>)> = Vec::new();
    for (launch, name, comment) in [
        (Launch::Plain, "PLAIN", "Without programmatic dependent launch"),
        (Launch::Pdl, "PDL", "With it, everything read behind the wait for the predecessor"),
        (Launch::PdlStable, "PDL_STABLE", "With it, indices and pools read ahead of that wait"),
    ] {
        let name = format!("{}{name}", tables.prefix);
        // An operator may not have every launch.
        let Some((_, lines)) = tables.lines.iter().find(|(given, _)| *given == launch) else { continue };
        if lines.is_empty() {
            return Err(format!("there are no times for {name} with the launch {}", launch.name()).into());
        }
        let of = if tables.text.is_empty() { String::new() } else { format!("; {}", tables.text) };
        writeln!(text, "\n/// {comment}{of}.")?;
        if let Some((same, _)) = written.iter().find(|(_, other)| *other == lines) {
            writeln!(text, "pub const {name}: Table = {same};")?;
        } else {
            writeln!(
                text,
                "pub const {name}: Table = Table {{\n    multiprocessors: {multiprocessors},\n    rows: &["
            )?;
            for Line { tokens, pairs, variant } in lines {
                let (first, last, pairs) = (tokens.0, bound(tokens.1), bound(*pairs));
                let line =
                    format!("        Row {{ tokens: ({first}, {last}), pairs: {pairs}, variant: \"{variant}\" }},");
                // As the sources are formatted.
                let wide = "\n            ";
                match line.len() {
                    0..=120 => writeln!(text, "{line}")?,
                    _ => writeln!(
                        text,
                        "        Row {{{wide}tokens: ({first}, {last}),{wide}pairs: {pairs},{wide}variant: \"{variant}\",\n        }},"
                    )?,
                }
            }
            writeln!(text, "    ],\n}};")?;
        }
        written.push((name, lines));
    }
    Ok(())
}

fn bound(value: u64) -> String {
    if value == u64::MAX { "u64::MAX".into() } else { value.to_string() }
}

/// Words in lines of at most so many characters.
fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        if !lines[last].is_empty() && lines[last].len() + 1 + word.len() > most {
            lines.push(word.into());
        } else {
            if !lines[last].is_empty() {
                lines[last].push(' ');
            }
            lines[last].push_str(word);
        }
    }
    lines
}

/// Replaces tables that lose no more than the slack by the plain one, so that launches that do not differ share it.
pub fn share(tables: &mut [(Launch, Vec<Line>)], times: &[(Launch, Times)]) {
    let Some((_, plain)) = tables.iter().find(|(launch, _)| *launch == Launch::Plain).cloned() else { return };
    for (launch, lines) in tables.iter_mut() {
        let timed = times.iter().find(|(given, times)| given == launch && !times.is_empty());
        let Some((_, times)) = timed else { continue };
        let serves = times.iter().all(|(t, sizes)| {
            sizes.iter().all(|(pairs, at)| {
                let best = at.values().copied().fold(f64::INFINITY, f64::min);
                let holds = |line: &&Line| line.tokens.0 <= *t && *t <= line.tokens.1 && pairs <= &line.pairs;
                let us = plain.iter().find(holds).and_then(|line| at.get(&line.variant));
                us.is_some_and(|us| *us <= best * SLACK)
            })
        });
        if serves {
            lines.clone_from(&plain);
        }
    }
}

#[cfg(test)]
mod tests;
