//! The roles played against each other: counts of stages and arrivals, and whether an event is possible.

use super::order::Order;
use super::program::{Event, Step, Unknown, key};
use super::{Model, report};
use crate::diag::Result;
use crate::kir::Trips;
use std::collections::BTreeMap;

/// Trips of a known loop that a proof does one by one.
pub const MANY: u64 = 4096;

/// Steps of a role beyond which a run finds nothing.
const MOST_STEPS: u64 = 100_000;

/// How far stages and barriers are.
#[derive(Clone, Debug)]
pub struct Levels {
    /// Stages taken so far, by ring, side and role.
    pub taken: Vec<Vec<Vec<u64>>>,
    /// Stages given so far.
    pub given: Vec<Vec<Vec<u64>>>,
    /// Arrivals so far, by barrier and role; the first barrier is that of the CTA.
    arrivals: Vec<Vec<u64>>,
    /// Restarts so far, by ring and role, and the stages taken at the last one.
    restarts: Vec<Vec<(u64, u64)>>,
    /// What roles know of arrivals.
    order: Option<Order>,
    /// The first arrival that may come before others have arrived at the one before it: the role, its event, who may be late.
    pub early: Option<(usize, Event, usize)>,
}

impl Levels {
    /// Nothing has happened.
    pub fn new(model: &Model<'_>, programs: &[Vec<Step>]) -> Levels {
        let roles = model.roles.len();
        let none: Vec<Vec<Vec<u64>>> = model.rings.iter().map(|r| vec![vec![0; roles]; r.sides.len()]).collect();
        let arrivals = vec![vec![0; roles]; model.barriers.len() + 1];
        let restarts = vec![vec![(0, 0); roles]; model.rings.len()];
        // Whoever always waits where it arrives cannot be early.
        let early = !model.unseen && programs.iter().any(|steps| arrives(steps));
        let order = early.then(|| Order::new(model, arrivals.len()));
        Levels { taken: none.clone(), given: none, arrivals, restarts, order, early: None }
    }

    /// Stages that every role of a side has given.
    pub fn given_by_all(&self, ring: usize, side: usize, model: &Model<'_>) -> u64 {
        model.parties(ring, side).iter().map(|role| self.given[ring][side][*role]).min().unwrap_or(0)
    }

    /// Lets a role do its event if that is possible. `announced` says that it has arrived at the meeting before.
    pub fn act(&mut self, role: usize, event: Event, announced: &mut bool, model: &Model<'_>) -> bool {
        match event {
            Event::Take { ring, side, .. } => {
                let last = self.given[ring].len() - 1;
                let available = match side {
                    0 => model.rings[ring].stages + self.given_by_all(ring, last, model),
                    side => self.given_by_all(ring, side - 1, model),
                };
                let taken = &mut self.taken[ring][side][role];
                let possible = *taken < available;
                if possible {
                    let number = *taken;
                    *taken += 1;
                    let from = side.checked_sub(1).unwrap_or(last);
                    let number = if side == 0 { number.checked_sub(model.rings[ring].stages) } else { Some(number) };
                    if let (Some(order), Some(number)) = (&mut self.order, number) {
                        order.take(role, ring, from, model.parties(ring, from), number);
                    }
                }
                possible
            }
            Event::Give { ring, side, .. } => {
                if let Some(order) = &mut self.order {
                    order.give(ring, side, role);
                }
                self.given[ring][side][role] += 1;
                true
            }
            Event::Arrive { barrier, .. } => {
                let at = number(Some(barrier), model);
                self.arrive(role, at, event, model);
                true
            }
            Event::Restart { ring, .. } => {
                if !std::mem::replace(announced, true) {
                    let taken = self.taken[ring].iter().map(|side| side[role]).max().unwrap_or(0);
                    let (count, at) = &mut self.restarts[ring][role];
                    (*count, *at) = (*count + 1, taken);
                }
                // After the same number of stages, or the sides would be at different ones.
                let (count, at) = self.restarts[ring][role];
                let parties = (0..self.taken[ring].len()).flat_map(|side| model.parties(ring, side));
                parties.map(|other| self.restarts[ring][*other]).all(|other| other.0 > count || other == (count, at))
            }
            Event::Meet { barrier, .. } => {
                let at = number(barrier, model);
                if !std::mem::replace(announced, true) {
                    self.arrive(role, at, event, model);
                }
                let (arrivals, between) = (&self.arrivals[at], participants(at, model));
                let possible = between.iter().all(|other| arrivals[*other] >= arrivals[role]);
                if let (true, Some(order)) = (possible, &mut self.order) {
                    order.meet(role, at, &between);
                }
                possible
            }
        }
    }

    /// Forgets what roles do not know of arrivals in a later situation; true if there was any of that.
    pub fn weaken(&mut self, now: &Levels) -> bool {
        match (&mut self.order, &now.order) {
            (Some(mine), Some(now)) => mine.weaken(now),
            _ => false,
        }
    }

    fn arrive(&mut self, role: usize, at: usize, event: Event, model: &Model<'_>) {
        self.arrivals[at][role] += 1;
        if let Some(late) = self.order.as_mut().and_then(|order| order.arrive(role, at, &participants(at, model))) {
            self.early.get_or_insert((role, event, late));
        }
    }

    /// What was possible `before` is possible again.
    pub fn as_before(&self, before: &Levels, model: &Model<'_>) -> bool {
        let (now, then) = (self.clone().relative(model), before.clone().relative(model));
        let same = (now.taken, now.given, now.arrivals, now.restarts)
            == (then.taken, then.given, then.arrivals, then.restarts);
        same && self.early.is_none()
    }

    /// The same situation with as small counts as possible: what is possible depends on differences alone.
    fn relative(mut self, model: &Model<'_>) -> Levels {
        for ring in 0..self.taken.len() {
            let used = |side: usize| model.parties(ring, side).iter().map(move |role| (side, *role));
            let parties: Vec<(usize, usize)> = (0..self.taken[ring].len()).flat_map(used).collect();
            let of = |(side, role): &(usize, usize)| self.taken[ring][*side][*role].min(self.given[ring][*side][*role]);
            let least = parties.iter().map(of).min().unwrap_or(0);
            let restarts = parties.iter().map(|(_, role)| self.restarts[ring][*role].0).min().unwrap_or(0);
            for role in parties.iter().map(|(_, role)| role).collect::<std::collections::BTreeSet<_>>() {
                let (count, at) = self.restarts[ring][*role];
                // Where it was restarted matters only while others have not been there.
                let at = if count > restarts { at.saturating_sub(least) } else { 0 };
                self.restarts[ring][*role] = (count.saturating_sub(restarts), at);
            }
            for (side, role) in parties {
                self.taken[ring][side][role] -= least;
                self.given[ring][side][role] -= least;
            }
        }
        for barrier in 0..self.arrivals.len() {
            let between = participants(barrier, model);
            let least = between.iter().map(|role| self.arrivals[barrier][*role]).min().unwrap_or(0);
            between.iter().for_each(|role| self.arrivals[barrier][*role] -= least);
        }
        self
    }
}

/// True if a role arrives somewhere without waiting.
fn arrives(steps: &[Step]) -> bool {
    steps.iter().any(|step| match step {
        Step::Event(event) => matches!(event, Event::Arrive { .. }),
        Step::Loop { body, .. } => arrives(body),
    })
}

/// Number of a barrier among the arrivals.
fn number(barrier: Option<u32>, model: &Model<'_>) -> usize {
    barrier.and_then(|id| model.barriers.iter().position(|b| b.id == id)).map_or(0, |index| index + 1)
}

/// Roles that take part in a barrier.
fn participants(barrier: usize, model: &Model<'_>) -> Vec<usize> {
    match barrier.checked_sub(1).and_then(|index| model.barriers.get(index)) {
        Some(barrier) => barrier.between.clone(),
        None => (0..model.roles.len()).collect(),
    }
}

/// Where a role is.
pub struct Agent<'p> {
    /// Open loops, innermost last: steps, position, trips left.
    pub stack: Vec<(&'p [Step], usize, u64)>,
    /// It has arrived at the meeting at which it waits.
    pub announced: bool,
    /// Steps that it has looked at.
    steps: u64,
}

impl<'p> Agent<'p> {
    /// At the beginning of its program.
    pub fn new(steps: &'p [Step]) -> Agent<'p> {
        Agent { stack: vec![(steps, 0, 1)], announced: false, steps: 0 }
    }

    /// The next event, or the next loop of which `trips` does not know how often it runs; enters and leaves loops on the way.
    pub fn next(&mut self, trips: &impl Fn(&Option<Trips>, usize, &[Step]) -> Option<u64>) -> Option<&'p Step> {
        loop {
            self.steps += 1;
            if self.exhausted() {
                return None;
            }
            let (steps, position, left) = self.stack.last_mut()?;
            let steps: &'p [Step] = steps;
            match steps.get(*position) {
                None if *left > 1 => {
                    *left -= 1;
                    *position = 0;
                }
                None => {
                    self.stack.pop();
                    if let Some((_, position, _)) = self.stack.last_mut() {
                        *position += 1;
                    }
                }
                Some(step @ Step::Event(_)) => return Some(step),
                Some(step @ Step::Loop { trips: count, body, span }) => match trips(count, *span, body) {
                    None => return Some(step),
                    Some(0) => *position += 1,
                    Some(n) => self.stack.push((body, 0, n)),
                },
            }
        }
    }

    /// It has done more than anybody wants to see.
    pub fn exhausted(&self) -> bool {
        self.steps > MOST_STEPS
    }

    /// Goes past the step at which it is.
    pub fn advance(&mut self) {
        self.announced = false;
        if let Some((_, position, _)) = self.stack.last_mut() {
            *position += 1;
        }
    }
}

/// Plays the roles with these values of what is not known.
pub fn run(
    programs: &[Vec<Step>],
    trips: &BTreeMap<&str, u64>,
    found: &BTreeMap<String, Unknown>,
    model: &Model<'_>,
) -> Result<()> {
    let mut agents: Vec<Agent<'_>> = programs.iter().map(|steps| Agent::new(steps)).collect();
    let mut levels = Levels::new(model, programs);
    let count = |of: &Option<Trips>, span: usize, _: &[Step]| {
        let value = key(of, span).and_then(|key| trips.get(key.as_str()).copied()).unwrap_or(0);
        Some(super::program::count(of, value))
    };
    let mut moved = true;
    while std::mem::take(&mut moved) {
        for (role, agent) in agents.iter_mut().enumerate() {
            while let Some(Step::Event(event)) = agent.next(&count) {
                if !levels.act(role, *event, &mut agent.announced, model) {
                    break;
                }
                agent.advance();
                moved = true;
            }
            if agent.exhausted() {
                return Ok(());
            }
        }
    }
    let mut stuck = Vec::new();
    for (role, agent) in agents.iter_mut().enumerate() {
        if let Some(Step::Event(event)) = agent.next(&count) {
            stuck.push((role, *event));
        }
    }
    // Whoever only restarts waits for the others.
    stuck.sort_by_key(|(_, event)| matches!(event, Event::Restart { .. }));
    let condition = report::with(trips, found);
    if !stuck.is_empty() {
        return Err(report::deadlock(&stuck, &levels, &condition, model));
    }
    if let Some((role, event, late)) = levels.early {
        return Err(report::early(role, event, late, &condition, model));
    }
    report::left_over(programs, &levels, &condition, model)
}
