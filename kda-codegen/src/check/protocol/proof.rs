//! The protocol for every number of trips, by induction over loops.
//!
//! The order in which roles advance does not matter, so it may be chosen: loops of the same expression are entered
//! together, and each of their roles does one trip before any does the next. If one such trip completes and leaves stages
//! and barriers as it found them, so do all, and the loops are as good as absent. Loops inside the trip are treated in the
//! same way. Loops from 0 and from 1 to the same value go together once the first trip of the one has been done alone; what a
//! branch on the value does is told by cases. Roles whose loops do not go together like that may be right all the same; there is no proof then.

use super::Model;
use super::play::{Agent, Levels, MANY};
use super::program::{Step, Unknown, count, differs_in_cluster, key, opaque, text};
use crate::kir::Trips;
use std::collections::BTreeMap;

/// Values of an unknown: one, or all from where it is settled on.
#[derive(Clone, Copy, Debug)]
enum Case {
    Value(u64),
    Settled(u64),
}

/// Where a loop's trips beyond its value stand: `0..n + 1` runs once more than `n` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beyond {
    Ahead,
    Behind,
}

/// Cases beyond which no proof is tried.
const MOST_CASES: usize = 256;

/// Proves that all roles come to their ends and that all stages are released; or says why not.
pub fn prove(programs: &[Vec<Step>], found: &BTreeMap<String, Unknown>, model: &Model<'_>) -> Result<(), String> {
    if let Some(trips) = programs.iter().find_map(|steps| differs_in_cluster(steps, model)) {
        return Err(format!(
            "the trips of {} may differ between the CTAs of a cluster, which take part together",
            text(trips)
        ));
    }
    let mut cases: Vec<BTreeMap<&str, Case>> = vec![BTreeMap::new()];
    for (key, unknown) in found {
        let few = unknown.least.min(unknown.settled)..unknown.settled;
        if few.end - few.start >= (MOST_CASES / cases.len()) as u64 {
            return Err(format!("the constants beside {} make too many cases", text(&unknown.shown)));
        }
        let values: Vec<Case> = few.map(Case::Value).chain([Case::Settled(unknown.settled)]).collect();
        let with = |case: &BTreeMap<_, _>, value| {
            let mut case = case.clone();
            case.insert(key.as_str(), value);
            case
        };
        cases =
            cases.iter().flat_map(|case| values.iter().map(|value| with(case, *value)).collect::<Vec<_>>()).collect();
    }
    for case in &cases {
        // The trips that a loop runs beyond its value stand ahead of the others or behind them: they are all alike.
        prove_case(programs, case, Beyond::Behind, model)
            .or_else(|why| prove_case(programs, case, Beyond::Ahead, model).map_err(|_| why))?;
    }
    Ok(())
}

/// Proves one case.
fn prove_case(
    programs: &[Vec<Step>],
    case: &BTreeMap<&str, Case>,
    beyond: Beyond,
    model: &Model<'_>,
) -> Result<(), String> {
    let programs: Vec<Vec<Step>> = programs.iter().map(|steps| settle(steps, case, beyond)).collect();
    let mut levels = Levels::new(model, &programs);
    let all: Vec<(usize, &[Step])> = programs.iter().map(Vec::as_slice).enumerate().collect();
    together(&all, &mut levels, model)?;
    if let Some((role, event, late)) = levels.early {
        return Err(super::report::early_text(role, event, late, model));
    }
    for (ring, given) in levels.given.iter().enumerate() {
        let parties = (0..given.len()).flat_map(|side| model.parties(ring, side).iter().map(move |r| (side, *r)));
        let counts: Vec<u64> = parties.map(|(side, role)| given[side][role]).collect();
        if counts.windows(2).any(|pair| pair[0] != pair[1]) {
            return Err(format!("the sides of `{}` give different numbers of stages", model.rings[ring].name));
        }
    }
    Ok(())
}

/// The program in a case: branches on settled values are taken, and loops over them begin at the same number, the trips
/// before it ahead of them.
fn settle(steps: &[Step], case: &BTreeMap<&str, Case>, beyond: Beyond) -> Vec<Step> {
    let mut out = Vec::new();
    for step in steps {
        let Step::Loop { trips, body, span } = step else {
            out.push(step.clone());
            continue;
        };
        let body = settle(body, case, beyond);
        let value = key(trips, *span).and_then(|key| case.get(key.as_str()).copied());
        let ahead = match value {
            Some(Case::Value(value) | Case::Settled(value)) => count(trips, value),
            None => 0,
        };
        if let Some(Trips::Guard { .. }) = trips {
            out.extend(if ahead > 0 { body } else { Vec::new() });
            continue;
        }
        let behind = match (trips, beyond) {
            (Some(Trips::Expression { start, .. }), Beyond::Behind) => ahead.min(u64::try_from(-start).unwrap_or(0)),
            _ => 0,
        };
        for trip in 0..ahead - behind {
            out.extend(body.iter().map(|step| in_trip(step, trip)));
        }
        match value {
            Some(Case::Value(_)) => {}
            _ => out.push(Step::Loop { trips: trips.clone(), body: body.clone(), span: *span }),
        }
        for trip in ahead - behind..ahead {
            out.extend(body.iter().map(|step| in_trip(step, trip)));
        }
    }
    out
}

/// A step of a trip by itself: what depends on a counter is not what it is in other trips.
fn in_trip(step: &Step, trip: u64) -> Step {
    let Step::Loop { trips, body, span } = step else { return step.clone() };
    let mut trips = trips.clone();
    if let Some(Trips::Expression { key, .. } | Trips::Guard { key, .. }) = &mut trips
        && key.contains("counter(")
    {
        key.push_str(&format!(" in trip {trip}"));
    }
    Step::Loop { trips, body: body.iter().map(|step| in_trip(step, trip)).collect(), span: *span }
}

/// Runs these parts of roles to their ends.
fn together(parts: &[(usize, &[Step])], levels: &mut Levels, model: &Model<'_>) -> Result<(), String> {
    let mut agents: Vec<(usize, Agent<'_>)> = parts.iter().map(|(role, steps)| (*role, Agent::new(steps))).collect();
    // A trip of a loop around others is told from the next one by those others: their trips may depend on its counter.
    let known = |trips: &Option<Trips>, _: usize, body: &[Step]| match trips {
        Some(Trips::Known(n)) if *n <= MANY && body.iter().all(|step| matches!(step, Step::Event(_))) => Some(*n),
        _ => None,
    };
    loop {
        let mut moved = false;
        for (role, agent) in &mut agents {
            while let Some(Step::Event(event)) = agent.next(&known) {
                if !levels.act(*role, *event, &mut agent.announced, model) {
                    break;
                }
                agent.advance();
                moved = true;
            }
        }
        if moved {
            continue;
        }
        let mut loops: Vec<(String, usize, &Option<Trips>, &[Step])> = Vec::new();
        let mut ended = true;
        for (index, (_, agent)) in agents.iter_mut().enumerate() {
            match agent.next(&known) {
                Some(Step::Loop { trips, body, span }) => {
                    let key = key(trips, *span).unwrap_or_else(|| text(trips));
                    loops.push((key, index, trips, body));
                    ended = false;
                }
                Some(Step::Event(_)) => ended = false,
                None if agent.exhausted() => return Err("the roles do too much".to_string()),
                None => {}
            }
        }
        if ended {
            return Ok(());
        }
        let mut keys: Vec<&String> = loops.iter().map(|(key, ..)| key).collect();
        keys.sort();
        keys.dedup();
        let mut inside = None;
        let mut weakest = levels.clone();
        let provable = keys.into_iter().find(|key| {
            let bodies: Vec<(usize, &[Step])> =
                loops.iter().filter(|(k, ..)| k == *key).map(|(_, index, _, body)| (agents[*index].0, *body)).collect();
            let mut start = levels.clone();
            loop {
                let mut trip = start.clone();
                if let Err(why) = together(&bodies, &mut trip, model) {
                    inside.get_or_insert(why);
                    return false;
                }
                if let Some((role, event, late)) = trip.early {
                    inside.get_or_insert(super::report::early_text(role, event, late, model));
                }
                if !trip.as_before(&start, model) {
                    return false;
                }
                // What is known of arrivals at the start of every trip.
                if !start.weaken(&trip) {
                    break;
                }
            }
            weakest = start;
            true
        });
        match provable.cloned() {
            Some(done) => {
                *levels = weakest;
                for (_, index, ..) in loops.iter().filter(|(key, ..)| *key == done) {
                    agents[*index].1.advance();
                }
            }
            None => return Err(reason(&loops, inside, &agents, model)),
        }
    }
}

/// Why these loops have no proof; `inside` says why a trip of one of them has none.
fn reason(
    loops: &[(String, usize, &Option<Trips>, &[Step])],
    inside: Option<String>,
    agents: &[(usize, Agent<'_>)],
    model: &Model<'_>,
) -> String {
    let of = |index: usize| &model.roles[agents[index].0];
    if let Some((_, index, ..)) = loops.iter().find(|(_, _, trips, _)| trips.is_none()) {
        return format!("role `{}` has a `while` loop, and how often it runs is not known", of(*index));
    }
    if let Some((_, index, trips, _)) = loops.iter().find(|(key, ..)| opaque(key)) {
        let (role, text) = (of(*index), text(trips));
        return format!("the trips of {text} in role `{role}` are computed in a loop or read from memory");
    }
    match loops {
        [] => "a trip alone waits for stages of other trips".to_string(),
        [(key, a, trips, _), rest @ ..] => match rest.iter().find(|(other, ..)| other != key) {
            Some((_, b, others, _)) => format!(
                "role `{}` runs over {}, role `{}` over {}, which may differ",
                of(*a),
                text(trips),
                of(*b),
                text(others)
            ),
            None => inside
                .unwrap_or_else(|| format!("a trip of {} does not leave the stages as it found them", text(trips))),
        },
    }
}
