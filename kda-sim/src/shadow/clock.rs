//! Vector clocks over agents.

use super::foreign::{Foreign, join_all};

/// Agents of a cluster are numbered from `cluster << AGENT_BITS`.
pub const AGENT_BITS: u32 = 13;

/// What is known of one agent: everything up to clock `all`, and of the lanes of `mask` up to `high`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Covered for every lane.
    pub all: u32,
    /// Covered for the lanes of `mask`.
    pub high: u32,
    /// Lanes.
    pub mask: u32,
}

/// The lane field of an access by several lanes.
pub const MANY_LANES: u32 = 32;

impl Entry {
    /// Everything up to a clock.
    pub fn all(clock: u32) -> Entry {
        Entry { all: clock, high: clock, mask: 0 }
    }

    /// Some lanes up to a clock.
    pub fn lanes(mask: u32, clock: u32) -> Entry {
        if mask == u32::MAX { Entry::all(clock) } else { Entry { all: 0, high: clock, mask } }
    }

    /// Learns what `other` knows. Of lanes known up to different clocks the later clock is taken for both.
    #[inline]
    pub fn join(&mut self, other: Entry) {
        let all = self.all.max(other.all);
        let mine = self.mask != 0 && self.high > all;
        let theirs = other.mask != 0 && other.high > all;
        let (mask, high) = match (mine, theirs) {
            (true, true) => (self.mask | other.mask, self.high.max(other.high)),
            (true, false) => (self.mask, self.high),
            (false, true) => (other.mask, other.high),
            (false, false) => (0, all),
        };
        *self = if mask == u32::MAX { Entry::all(high) } else { Entry { all, high, mask } };
    }

    /// Knows only what `other` knows as well; of lanes known up to different clocks the earlier is taken.
    pub fn meet(&mut self, other: Entry) {
        let all = self.all.min(other.all);
        let of = |e: &Entry, lane: u32| if e.mask >> lane & 1 != 0 { e.high.max(e.all) } else { e.all };
        let (mut mask, mut high) = (0u32, u32::MAX);
        if (self.mask | other.mask) != 0 {
            for lane in 0..32 {
                let both = of(self, lane).min(of(&other, lane));
                if both > all {
                    (mask, high) = (mask | 1 << lane, high.min(both));
                }
            }
        }
        *self = if mask == 0 { Entry::all(all) } else { Entry { all, high, mask } };
    }

    /// True if an access of `lane` at `clock` is covered; of [`MANY_LANES`] at least two lanes must be.
    #[inline]
    pub fn covers(self, clock: u32, lane: u32) -> bool {
        clock <= self.all
            || (clock <= self.high
                && if lane < MANY_LANES { self.mask >> lane & 1 != 0 } else { self.mask.count_ones() >= 2 })
    }
}

/// What is known of one agent, through each proxy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    /// Its accesses, for generic accesses and for those of its own proxy.
    pub generic: Entry,
    /// Its generic accesses to shared memory, for the async proxy: those it has fenced.
    pub fenced_shared: Entry,
    /// Its generic accesses to global memory, for the async proxy.
    pub fenced_global: Entry,
}

impl Known {
    /// Learns what `other` knows.
    #[inline]
    pub fn join(&mut self, other: &Known) {
        self.generic.join(other.generic);
        self.fenced_shared.join(other.fenced_shared);
        self.fenced_global.join(other.fenced_global);
    }
}

/// What an observer knows of every agent: at once for the agents of its cluster, in a tree for the others.
#[derive(Clone, Debug)]
pub struct Clocks {
    cluster: u32,
    local: Vec<Known>,
    foreign: Foreign,
}

const LOCAL: u32 = (1 << AGENT_BITS) - 1;

impl Clocks {
    /// Knows nothing.
    pub fn new(cluster: u32) -> Clocks {
        Clocks { cluster, local: Vec::new(), foreign: Foreign::default() }
    }

    /// What is known of an agent.
    #[inline]
    pub fn get(&self, agent: u32) -> Known {
        let cluster = agent >> AGENT_BITS;
        let known = if cluster == self.cluster { self.local.as_slice() } else { self.foreign.get(cluster) };
        known.get((agent & LOCAL) as usize).copied().unwrap_or_default()
    }

    /// What is known of an agent, to change.
    pub fn get_mut(&mut self, agent: u32) -> &mut Known {
        let cluster = agent >> AGENT_BITS;
        let known = if cluster == self.cluster { &mut self.local } else { self.foreign.get_mut(cluster) };
        let index = (agent & LOCAL) as usize;
        if index >= known.len() {
            known.resize(index + 1, Known::default());
        }
        &mut known[index]
    }

    /// Learns what `other` knows.
    pub fn join(&mut self, other: &Clocks) {
        self.foreign.join(&other.foreign);
        if self.cluster == other.cluster {
            join_all(&mut self.local, &other.local);
        } else {
            join_all(self.foreign.get_mut(other.cluster), &other.local);
            join_all(&mut self.local, other.foreign.get(self.cluster));
        }
    }

    /// Knows only what `other` knows as well, of the cluster; nothing of other clusters.
    pub fn meet(&mut self, other: &Clocks) {
        self.foreign = Foreign::default();
        self.local.truncate(other.local.len());
        for (mine, theirs) in self.local.iter_mut().zip(&other.local) {
            mine.generic.meet(theirs.generic);
            mine.fenced_shared.meet(theirs.fenced_shared);
            mine.fenced_global.meet(theirs.fenced_global);
        }
    }

    /// Changes everything known of the cluster.
    pub fn update_local(&mut self, f: impl FnMut(&mut Known)) {
        self.local.iter_mut().for_each(f);
    }

    /// Changes everything known where `needed` says so.
    pub fn update(&mut self, needed: impl Fn(&Known) -> bool, mut f: impl FnMut(&mut Known)) {
        self.local.iter_mut().for_each(&mut f);
        self.foreign.update(&needed, &mut f);
    }
}
