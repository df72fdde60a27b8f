//! What a role knows of the arrivals of others at barriers.
//!
//! A barrier counts arrivals and not who arrives: a role that arrives a second time before all others have arrived completes
//! the phase in their place. Whatever the timing, that cannot happen if the other arrivals are in the past of the second one:
//! if the role has waited since for something that others gave after them. What is in the past of an event does not depend on
//! the order in which roles advance, as little as what is possible does.

use super::{Model, RingModel};
use std::collections::VecDeque;

/// Arrivals that are known, by barrier and role.
pub type Known = Vec<Vec<i64>>;

/// Arrivals that lag behind by more are as good as unknown.
const LAG: i64 = 2;

/// What a role knew at its latest events of one kind, oldest first.
#[derive(Clone, Debug)]
struct History {
    /// Number of the first event that is kept.
    first: u64,
    known: VecDeque<Known>,
    /// Events that are kept.
    kept: usize,
}

impl History {
    fn new(kept: usize) -> History {
        History { first: 0, known: VecDeque::new(), kept }
    }

    fn push(&mut self, known: Known) {
        self.known.push_back(known);
        if self.known.len() > self.kept {
            self.known.pop_front();
            self.first += 1;
        }
    }

    fn get(&self, number: u64) -> Option<&Known> {
        self.known.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }
}

/// What roles know, and what they knew when they gave stages and arrived.
#[derive(Clone, Debug)]
pub struct Order {
    /// By role.
    known: Vec<Known>,
    /// With the stages given, by ring, side and role.
    gives: Vec<Vec<Vec<History>>>,
    /// With the arrivals, by barrier and role.
    arrivals: Vec<Vec<History>>,
}

impl Order {
    /// Nothing has happened. `barriers` counts that of the CTA.
    pub fn new(model: &Model<'_>, barriers: usize) -> Order {
        let roles = model.roles.len();
        // Nobody is further behind than the ring has stages.
        let of_ring =
            |ring: &RingModel| vec![vec![History::new(ring.stages.min(1 << 16) as usize + 1); roles]; ring.sides.len()];
        Order {
            known: vec![vec![vec![0; roles]; barriers]; roles],
            gives: model.rings.iter().map(of_ring).collect(),
            // Whoever has not met the others yet is one arrival behind.
            arrivals: vec![vec![History::new(2); roles]; barriers],
        }
    }

    /// A role gives a stage.
    pub fn give(&mut self, ring: usize, side: usize, role: usize) {
        let known = self.known[role].clone();
        self.gives[ring][side][role].push(known);
    }

    /// A role takes what others have given on this side as their stage of this number.
    pub fn take(&mut self, role: usize, ring: usize, side: usize, givers: &[usize], number: u64) {
        for giver in givers {
            if let Some(then) = self.gives[ring][side][*giver].get(number) {
                learn(&mut self.known[role], then);
            }
        }
    }

    /// A role arrives; gives another one of the barrier of whose arrivals it knows fewer than of its own.
    pub fn arrive(&mut self, role: usize, barrier: usize, between: &[usize]) -> Option<usize> {
        let known = &mut self.known[role];
        let own = known[barrier][role];
        let behind = between.iter().copied().find(|other| known[barrier][*other] < own);
        known[barrier][role] += 1;
        self.arrivals[barrier][role].push(known.clone());
        behind
    }

    /// A role has met the others at the barrier.
    pub fn meet(&mut self, role: usize, barrier: usize, between: &[usize]) {
        let number = (self.known[role][barrier][role] - 1) as u64;
        for other in between {
            if let Some(then) = self.arrivals[barrier][*other].get(number) {
                learn(&mut self.known[role], then);
            }
        }
    }

    /// Forgets what is not known of the latest arrivals in a later situation `now`; true if there was any of that.
    pub fn weaken(&mut self, now: &Order) -> bool {
        let (of_self, of_now) = (self.counts(), now.counts());
        let mut changed = false;
        let mut lower = |mine: &mut Known, theirs: &Known| {
            for ((mine, own), (theirs, count)) in flat(mine).zip(&of_self).zip(theirs.iter().flatten().zip(&of_now)) {
                let (lag, later) = (own - *mine, (count - theirs).min(LAG));
                changed |= lag < later;
                *mine = own - lag.max(later);
            }
        };
        self.known.iter_mut().zip(&now.known).for_each(|(mine, theirs)| lower(mine, theirs));
        let mine = self.gives.iter_mut().flatten().chain(&mut self.arrivals).flatten();
        let theirs = now.gives.iter().flatten().chain(&now.arrivals).flatten();
        let mut shorter = false;
        for (mine, theirs) in mine.zip(theirs) {
            while mine.known.len() > theirs.known.len() {
                mine.known.pop_front();
                mine.first += 1;
                shorter = true;
            }
            mine.known.iter_mut().rev().zip(theirs.known.iter().rev()).for_each(|(mine, theirs)| lower(mine, theirs));
        }
        changed || shorter
    }

    /// Arrivals by barrier and role, all in one list.
    fn counts(&self) -> Vec<i64> {
        let barriers = self.known.first().map_or(0, Vec::len);
        (0..barriers)
            .flat_map(|barrier| self.known.iter().enumerate().map(move |(role, own)| own[barrier][role]))
            .collect()
    }
}

fn flat(known: &mut Known) -> impl Iterator<Item = &mut i64> {
    known.iter_mut().flatten()
}

fn learn(known: &mut Known, more: &Known) {
    for (known, more) in known.iter_mut().flatten().zip(more.iter().flatten()) {
        *known = (*known).max(*more);
    }
}
