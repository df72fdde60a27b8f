//! How an error of the protocol is told.

use super::Model;
use super::play::Levels;
use super::program::{Event, Step, Unknown, count, text};
use crate::diag::{Diagnostic, Result};
use crate::kir::Trips;
use proc_macro2::Span;
use std::collections::BTreeMap;

/// Refuses an end at which the sides of a ring have given different numbers of stages.
pub fn left_over(programs: &[Vec<Step>], levels: &Levels, condition: &str, model: &Model<'_>) -> Result<()> {
    for (ring, given) in levels.given.iter().enumerate() {
        let last = given.len() - 1;
        let parties: Vec<(usize, usize, u64)> = (0..given.len())
            .flat_map(|side| model.parties(ring, side).iter().map(move |role| (side, *role, given[side][*role])))
            .collect();
        let (Some(most), Some(least)) = (parties.iter().max_by_key(|p| p.2), parties.iter().min_by_key(|p| p.2)) else {
            continue;
        };
        if most.2 == least.2 {
            continue;
        }
        let place =
            take_span(&programs[most.1], ring, most.0).map_or_else(|| model.place(usize::MAX), |s| model.place(s));
        let several = given.len() > 2 || (0..given.len()).any(|side| model.parties(ring, side).len() > 1);
        let list: Vec<String> = parties
            .iter()
            .map(|(side, role, n)| {
                let word = if *side == last { "released" } else { "committed" };
                if several { format!("{n} {word} by `{}`", model.roles[*role]) } else { format!("{n} {word}") }
            })
            .collect();
        let message = format!("stages of `{}` at the end: {}{condition}", model.rings[ring].name, list.join(", "));
        return Err(Diagnostic::new(660, place, message)
            .help("give both sides the same loop: the same bounds, written as the same expression; ahead of a `return`, release what was committed"));
    }
    Ok(())
}

/// The place where a role first takes a stage on a side of a ring.
fn take_span(steps: &[Step], ring: usize, side: usize) -> Option<usize> {
    steps.iter().find_map(|step| match step {
        Step::Event(Event::Take { ring: r, side: s, span }) if (*r, *s) == (ring, side) => Some(*span),
        Step::Event(_) => None,
        Step::Loop { body, .. } => take_span(body, ring, side),
    })
}

/// The assumption under which something was found.
pub fn with(values: &BTreeMap<&str, u64>, found: &BTreeMap<String, Unknown>) -> String {
    let describe = |trips: &Option<Trips>, value: u64| {
        let n = count(trips, value);
        match trips {
            Some(Trips::Guard { text, .. }) => format!("`{text}` {}", if n > 0 { "true" } else { "false" }),
            _ => format!("{n} {} of {}", if n == 1 { "trip" } else { "trips" }, text(trips)),
        }
    };
    let mut list: Vec<String> = Vec::new();
    for (key, value) in values {
        let Some(unknown) = found.get(*key) else { continue };
        if unknown.beyond.is_some() && unknown.beyond != unknown.shown {
            list.push(describe(&unknown.beyond, *value));
        }
        list.push(describe(&unknown.shown, *value));
    }
    if list.is_empty() { String::new() } else { format!(", with {}", list.join(" and ")) }
}

/// A role that may arrive at a barrier a second time before others have arrived once.
pub fn early(role: usize, event: Event, late: usize, condition: &str, model: &Model<'_>) -> Box<Diagnostic> {
    let message = format!("deadlock{condition}: {}", early_text(role, event, late, model));
    Diagnostic::new(661, model.place(event.span()), message)
        .help("between two arrivals a role waits for what the others do after they have arrived: with `sync()`, at another barrier, or for a stage")
}

/// The same in words.
pub fn early_text(role: usize, event: Event, late: usize, model: &Model<'_>) -> String {
    let name = match event {
        Event::Arrive { barrier, .. } | Event::Meet { barrier: Some(barrier), .. } => {
            model.barriers.iter().find(|b| b.id == barrier).map_or("cluster_sync()", |b| b.name.as_str())
        }
        _ => "cta_sync()",
    };
    let (role, late) = (&model.roles[role], &model.roles[late]);
    format!(
        "role `{role}` may arrive at `{name}` again before role `{late}` has, and complete the barrier in its place"
    )
}

/// Roles that wait for ever, and for what.
pub fn deadlock(stuck: &[(usize, Event)], levels: &Levels, condition: &str, model: &Model<'_>) -> Box<Diagnostic> {
    let describe = |(role, event): &(usize, Event)| -> ((Span, Span), String) {
        let who = &model.roles[*role];
        let what = match *event {
            Event::Take { ring, side: 0, .. } => {
                let (name, stages) = (&model.rings[ring].name, model.rings[ring].stages);
                let last = levels.given[ring].len() - 1;
                let (taken, released) = (levels.taken[ring][0][*role], levels.given_by_all(ring, last, model));
                format!(
                    "role `{who}` waits for an empty stage of `{name}` ({taken} taken, {released} released, {stages} stages)"
                )
            }
            Event::Take { ring, side, .. } => {
                let (taken, committed) = (levels.taken[ring][side][*role], levels.given_by_all(ring, side - 1, model));
                let name = &model.rings[ring].name;
                format!("role `{who}` waits for a full stage of `{name}` ({taken} taken, {committed} committed)")
            }
            Event::Meet { barrier: None, .. } => format!("role `{who}` waits at `cta_sync()`"),
            Event::Meet { barrier: Some(id), .. } => {
                let name = model.barriers.iter().find(|b| b.id == id).map_or("cluster_sync()", |b| b.name.as_str());
                format!("role `{who}` waits at `{name}`")
            }
            Event::Restart { ring, .. } => {
                let taken = levels.taken[ring].iter().map(|side| side[*role]).max().unwrap_or(0);
                format!(
                    "role `{who}` restarts `{}` after {taken} stages, and no other role does",
                    model.rings[ring].name
                )
            }
            Event::Give { .. } | Event::Arrive { .. } => format!("role `{who}` has more to do"),
        };
        (model.place(event.span()), what)
    };
    let (span, first) = describe(&stuck[0]);
    let help = if stuck.iter().all(|(_, event)| matches!(event, Event::Meet { .. })) {
        "let all roles meet equally often, and at their barriers in the same order"
    } else {
        "every stage that is waited for must be committed, and every stage that is acquired again must have been released: give both sides the same loop"
    };
    let mut error = Diagnostic::new(661, span, format!("deadlock{condition}: {first}")).help(help);
    for other in &stuck[1..] {
        let ((span, _), text) = describe(other);
        error = error.note(span, text);
    }
    error
}
