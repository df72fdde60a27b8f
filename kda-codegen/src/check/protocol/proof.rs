//! The protocol for every number of trips, by induction over loops.
//!
//! The order in which roles advance does not matter, so it may be chosen: loops of the same expression are entered
//! together, and each of their roles does one trip before any does the next. If one such trip completes and leaves stages
//! and barriers as it found them, so do all, and the loops are as good as absent. Loops inside the trip are treated in the
//! same way. Roles whose loops do not go together like that may be right all the same; there is no proof then.

use super::Model;
use super::play::{Agent, Levels, MANY};
use super::program::{Step, key, text};
use crate::kir::Trips;

/// Proves that all roles come to their ends and that all stages are released; or says why not.
pub fn prove(programs: &[Vec<Step>], model: &Model<'_>) -> Result<(), String> {
    let mut levels = Levels::new(model);
    let all: Vec<(usize, &[Step])> = programs.iter().map(Vec::as_slice).enumerate().collect();
    together(&all, &mut levels, model)?;
    for (ring, given) in levels.given.iter().enumerate() {
        let parties = (0..given.len()).flat_map(|side| model.parties(ring, side).iter().map(move |r| (side, *r)));
        let counts: Vec<u64> = parties.map(|(side, role)| given[side][role]).collect();
        if counts.windows(2).any(|pair| pair[0] != pair[1]) {
            return Err(format!("the sides of `{}` give different numbers of stages", model.rings[ring].name));
        }
    }
    Ok(())
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
                None => {}
            }
        }
        if ended {
            return Ok(());
        }
        let before = levels.clone().relative(model);
        let mut keys: Vec<&String> = loops.iter().map(|(key, ..)| key).collect();
        keys.sort();
        keys.dedup();
        let provable = keys.into_iter().find(|key| {
            let bodies: Vec<(usize, &[Step])> =
                loops.iter().filter(|(k, ..)| k == *key).map(|(_, index, _, body)| (agents[*index].0, *body)).collect();
            let mut trip = levels.clone();
            together(&bodies, &mut trip, model).is_ok() && trip.relative(model) == before
        });
        match provable.cloned() {
            Some(done) => {
                for (_, index, ..) in loops.iter().filter(|(key, ..)| *key == done) {
                    agents[*index].1.advance();
                }
            }
            None => return Err(reason(&loops, &agents, model)),
        }
    }
}

/// Why these loops have no proof.
fn reason(
    loops: &[(String, usize, &Option<Trips>, &[Step])],
    agents: &[(usize, Agent<'_>)],
    model: &Model<'_>,
) -> String {
    let of = |index: usize| &model.roles[agents[index].0];
    if let Some((_, index, ..)) = loops.iter().find(|(_, _, trips, _)| trips.is_none()) {
        return format!("role `{}` has a `while` loop, and how often it runs is not known", of(*index));
    }
    // A register in a key is no function of the launch parameters.
    if let Some((_, index, trips, _)) = loops.iter().find(|(key, ..)| has_register(key)) {
        let (role, text) = (of(*index), text(trips));
        return format!("the trips of {text} in role `{role}` are computed in a loop or read from memory");
    }
    match loops {
        [] => "the roles come to no end".to_string(),
        [(key, a, trips, _), rest @ ..] => match rest.iter().find(|(other, ..)| other != key) {
            Some((_, b, others, _)) => format!(
                "role `{}` runs over {}, role `{}` over {}, which may differ",
                of(*a),
                text(trips),
                of(*b),
                text(others)
            ),
            None => format!("a trip of {} does not leave the stages as it found them", text(trips)),
        },
    }
}

/// True if the text names a register of the kernel.
fn has_register(key: &str) -> bool {
    let mut parts = key.split('%');
    parts.next();
    parts.any(|part| {
        let name = part.trim_start_matches(|c: char| c.is_ascii_lowercase());
        name.len() < part.len() && name.starts_with(|c: char| c.is_ascii_digit())
    })
}
