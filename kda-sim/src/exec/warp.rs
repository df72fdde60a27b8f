//! A warp: registers, groups of lanes that stand at the same instruction, and what they know.

use super::Outcome;
use super::loops::Loops;
use super::product::Products;
use super::tensor_memory::TensorAccesses;
use super::thread_copies::ThreadCopies;
use super::watch::Watch;
use crate::alu::lanes::Registers;
use crate::program::op::MemScope;
use crate::shadow::check::Caches;
use crate::shadow::clock::{Clocks, Entry};
use crate::shadow::history::History;
use std::collections::VecDeque;
use std::rc::Rc;

/// Why a group of lanes does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It runs.
    Ready,
    /// It waits for other lanes of the warp at the same instruction.
    Lanes {
        /// Lanes needed.
        needed: u32,
        /// Live lanes when it came; an aligned instruction needs exactly these.
        live: u32,
        /// The instruction is aligned.
        aligned: bool,
    },
    /// It has arrived at a named barrier of its CTA.
    Barrier {
        /// Number.
        id: u32,
    },
    /// It waits for the cluster barrier.
    Cluster,
    /// It waits for the present phase of an mbarrier.
    Mbarrier {
        /// Slot of the CTA.
        cta: usize,
        /// Offset in its shared memory.
        offset: u32,
    },
    /// It waits for its bulk groups.
    Bulk,
    /// It waits for products of its warpgroup.
    Products,
    /// It waits for registers.
    Registers,
    /// It waits for columns of tensor memory.
    TensorMemory,
}

/// Lanes at one instruction.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    pub pc: u32,
    pub mask: u32,
    pub wait: Wait,
    /// Turns spent without anything happening while others could run.
    pub turns: u32,
    /// Its wait on an mbarrier has timed out and gives false.
    pub timed_out: bool,
    /// The `try_wait` or `test_wait` that gave it false last: the next one there waits.
    pub tried: u32,
}

impl Group {
    /// Lanes that can run.
    pub fn ready(pc: u32, mask: u32) -> Group {
        Group { pc, mask, wait: Wait::Ready, turns: 0, timed_out: false, tried: u32::MAX }
    }
}

/// What some lanes know.
#[derive(Clone, Debug)]
pub struct Knowledge {
    pub mask: u32,
    pub clocks: Rc<Clocks>,
    pub caches: Box<Caches>,
    /// What a later relaxed write publishes, and how far: the clocks at the last fence.
    pub fence: Option<(Rc<Clocks>, MemScope)>,
    /// What relaxed reads have seen, for the next fence: within the CTA, and beyond.
    pub seen: [Option<Clocks>; 2],
    /// Words that relaxed reads have seen, for the next fence.
    pub seen_words: Vec<u64>,
    /// Words that these lanes have acquired: atomics on them are over for who comes after.
    pub acquired: Vec<u64>,
}

impl Knowledge {
    /// Remembers a word as acquired.
    pub fn acquire_word(&mut self, key: u64) {
        if !self.acquired.contains(&key) {
            if self.acquired.len() >= 16 {
                self.acquired.remove(0);
            }
            self.acquired.push(key);
        }
    }
}

/// Bulk groups of one lane.
#[derive(Clone, Debug, Default)]
pub struct BulkQueue {
    pub lane: u32,
    /// Stores since the last commit, each with its operation.
    pub open: Vec<(u64, u32)>,
    /// Committed groups, oldest first: stores, and the number of the last one.
    pub groups: VecDeque<BulkGroup>,
}

/// A committed bulk group.
#[derive(Clone, Debug)]
pub struct BulkGroup {
    pub copies: Vec<(u64, u32)>,
    /// Number of the warp's copies when it was committed.
    pub clock: u32,
    /// Its reads have been waited for.
    pub read_waited: bool,
}

#[derive(Debug)]
pub struct Warp {
    /// Slot of its CTA.
    pub cta: usize,
    /// Number in its CTA.
    pub index: u32,
    /// Agent of its generic accesses.
    pub agent: u32,
    pub registers: Registers,
    /// Lanes that have not exited.
    pub live: u32,
    pub groups: Vec<Group>,
    /// Iterations of lanes that run apart.
    pub loops: Loops,
    pub knowledge: Vec<Knowledge>,
    pub clock: u32,
    pub segment: u32,
    pub bulk: Vec<BulkQueue>,
    /// Bulk copies issued.
    pub copies: u32,
    pub dependency_wait: bool,
    /// Lanes that have arrived at the cluster barrier and not waited.
    pub cluster_arrived: u32,
    /// Phase of the cluster barrier at that arrival.
    pub cluster_phase: u64,
    /// Registers of instructions in flight.
    pub watch: Watch,
    /// Its part in the products of its warpgroup.
    pub products: Products,
    /// `cp.async`: what is on its way; the agent; and for each lane how many copies it has waited for.
    pub thread_copies: ThreadCopies,
    pub copy_agent: u32,
    pub waited_copies: [u32; 32],
    /// Its accesses to tensor memory.
    pub tensor: TensorAccesses,
    /// Registers of each thread, and how often `setmaxnreg` has been executed.
    pub register_count: u32,
    pub reallocations: u32,
}

impl Warp {
    /// True if some lanes can run.
    #[inline]
    pub fn ready(&self) -> bool {
        self.groups.iter().any(|g| g.wait == Wait::Ready)
    }

    /// Lets waits on mbarriers give false. True if there was one.
    pub fn time_out(&mut self) -> bool {
        let mut any = false;
        for group in &mut self.groups {
            if matches!(group.wait, Wait::Mbarrier { .. }) {
                (group.wait, group.timed_out) = (Wait::Ready, true);
                any = true;
            }
        }
        any
    }

    /// Merges groups at the same instruction and chooses the next to run: the smallest instruction, unless it has been
    /// going round for long while others could run.
    pub fn choose(&mut self) -> Option<usize> {
        if self.groups.len() > 1 {
            self.merge();
        }
        for group in &mut self.groups {
            if let Wait::Lanes { needed, live, aligned } = group.wait {
                // Who waits at an aligned instruction needs everybody that was there when it came.
                let needed = if aligned { live } else { needed & self.live };
                if needed & !group.mask == 0 {
                    group.wait = Wait::Ready;
                }
            }
        }
        let ready = self.groups.iter().enumerate().filter(|(_, g)| g.wait == Wait::Ready);
        ready.min_by_key(|(_, g)| (g.turns >> 4, g.pc)).map(|(i, _)| i)
    }

    fn merge(&mut self) {
        let mut i = 0;
        while i < self.groups.len() {
            let mut j = i + 1;
            while j < self.groups.len() {
                let (a, b) = (self.groups[i], self.groups[j]);
                let together = |w: Wait| matches!(w, Wait::Ready | Wait::Lanes { .. });
                if a.pc == b.pc && together(a.wait) && together(b.wait) {
                    let wait = if a.wait == Wait::Ready || b.wait == Wait::Ready { Wait::Ready } else { a.wait };
                    self.groups[i] = Group { wait, ..Group::ready(a.pc, a.mask | b.mask) };
                    self.groups.swap_remove(j);
                } else {
                    j += 1;
                }
            }
            i += 1;
        }
    }

    /// The number of the knowledge of all these lanes, if it is one.
    #[inline(always)]
    pub fn common_knowledge(&self, mask: u32) -> Option<usize> {
        if self.knowledge.len() == 1 {
            return Some(0);
        }
        self.knowledge.iter().position(|k| mask & !k.mask == 0)
    }

    /// The number of the knowledge of a lane.
    pub fn knowledge_of(&self, lane: u32) -> usize {
        self.knowledge.iter().position(|k| k.mask >> lane & 1 != 0).unwrap_or(0)
    }

    /// Gives a mask of lanes a knowledge of their own; returns the numbers of the parts.
    fn isolate(&mut self, mask: u32) -> Vec<usize> {
        let mut parts = Vec::new();
        for i in 0..self.knowledge.len() {
            let inside = self.knowledge[i].mask & mask;
            if inside == 0 {
                continue;
            }
            if inside == self.knowledge[i].mask || self.knowledge[i].mask & self.live & !mask == 0 {
                parts.push(i);
                continue;
            }
            let mut part = self.knowledge[i].clone();
            part.mask = inside;
            self.knowledge[i].mask &= !inside;
            self.knowledge.push(part);
            parts.push(self.knowledge.len() - 1);
        }
        parts
    }

    /// Lanes learn what others have published.
    pub fn learn(&mut self, mask: u32, clocks: &Clocks) {
        for i in self.isolate(mask) {
            Rc::make_mut(&mut self.knowledge[i].clocks).join(clocks);
        }
    }

    /// Lanes learn about one agent.
    pub fn learn_agent(&mut self, mask: u32, agent: u32, entry: Entry) {
        for i in self.isolate(mask) {
            Rc::make_mut(&mut self.knowledge[i].clocks).get_mut(agent).generic.join(entry);
        }
    }

    /// Changes the clocks of some lanes.
    pub fn change(&mut self, mask: u32, mut f: impl FnMut(&mut Knowledge)) {
        for i in self.isolate(mask) {
            f(&mut self.knowledge[i]);
        }
    }

    /// The accesses of some lanes up to now.
    pub fn own_entry(&self, mask: u32) -> Entry {
        if self.live & !mask == 0 { Entry::all(self.clock) } else { Entry::lanes(mask, self.clock) }
    }

    /// What some lanes know and have done. Accesses from here on belong to a new segment.
    pub fn publish(&mut self, mask: u32, history: &mut History) -> Clocks {
        let mut parts = self.knowledge.iter().filter(|k| k.mask & mask != 0);
        let mut clocks = match parts.next() {
            Some(first) => (*first.clocks).clone(),
            None => (*self.knowledge[0].clocks).clone(),
        };
        for part in parts {
            clocks.join(&part.clocks);
        }
        self.join_own(&mut clocks, mask);
        self.advance(history);
        clocks
    }

    /// Adds what some lanes have done.
    pub fn join_own(&self, clocks: &mut Clocks, mask: u32) {
        clocks.get_mut(self.agent).generic.join(self.own_entry(mask));
        if self.copy_agent != 0 {
            clocks.get_mut(self.copy_agent).generic.join(self.own_copies(mask));
        }
    }

    /// Adds what a lane has done before its copy of a number.
    pub fn join_own_before(&self, clocks: &mut Clocks, lane: u32, (clock, waited): (u32, u32)) {
        clocks.get_mut(self.agent).generic.join(Entry::lanes(1 << lane, clock));
        if waited > 0 {
            clocks.get_mut(self.copy_agent).generic.join(Entry::lanes(1 << lane, waited));
        }
    }

    /// The `cp.async` copies of some lanes that they have waited for.
    pub fn own_copies(&self, mask: u32) -> Entry {
        let mut entry = Entry::default();
        let mut left = mask & self.waited_copies.iter().enumerate().fold(0, |m, (l, n)| m | u32::from(*n > 0) << l);
        while left != 0 {
            let waited = self.waited_copies[left.trailing_zeros() as usize];
            let same = (0..32).filter(|l| left >> l & 1 != 0 && self.waited_copies[*l as usize] == waited);
            let same = same.fold(0u32, |m, l| m | 1 << l);
            entry.join(Entry::lanes(same, waited));
            left &= !same;
        }
        entry
    }

    /// Begins a new segment.
    pub fn advance(&mut self, history: &mut History) {
        self.clock += 1;
        self.segment = history.segment(self.agent, self.clock);
    }

    /// All lanes know the same from now on.
    pub fn unite(&mut self, clocks: Rc<Clocks>) {
        self.loops.clear();
        let rest = self.knowledge.split_off(1);
        let first = &mut self.knowledge[0];
        first.mask = u32::MAX;
        first.clocks = clocks;
        // A fence of some lanes counts for all from here on: lanes are no longer told apart.
        for mut part in rest {
            first.acquired.append(&mut part.acquired);
            first.seen_words.append(&mut part.seen_words);
            match (&mut first.fence, part.fence) {
                (Some((to, wide)), Some((from, scope))) => {
                    Rc::make_mut(to).join(&from);
                    *wide = scope.max(*wide);
                }
                (to, from) => *to = to.take().or(from),
            }
            for (to, from) in first.seen.iter_mut().zip(part.seen) {
                match (&mut *to, from) {
                    (Some(to), Some(from)) => to.join(&from),
                    (_, from) => *to = to.take().or(from),
                }
            }
        }
    }

    /// Lanes of a mask wait for each other and see each other's accesses.
    pub fn sync_lanes(&mut self, mask: u32, history: &mut History) {
        let entry = self.own_entry(mask);
        if self.knowledge.len() == 1 && self.live & !mask == 0 {
            self.loops.clear();
            let agent = self.agent;
            let copies = (self.copy_agent != 0).then(|| self.own_copies(mask));
            let clocks = Rc::make_mut(&mut self.knowledge[0].clocks);
            clocks.get_mut(agent).generic.join(entry);
            if let Some(copies) = copies {
                clocks.get_mut(self.copy_agent).generic.join(copies);
            }
            self.advance(history);
            return;
        }
        let clocks = self.publish(mask, history);
        if self.live & !mask == 0 {
            self.unite(Rc::new(clocks));
        } else {
            self.learn(mask, &clocks);
        }
    }

    /// The bulk queue of a lane.
    pub fn bulk_queue(&mut self, lane: u32) -> &mut BulkQueue {
        let at = match self.bulk.iter().position(|q| q.lane == lane) {
            Some(at) => at,
            None => {
                self.bulk.push(BulkQueue { lane, ..BulkQueue::default() });
                self.bulk.len() - 1
            }
        };
        &mut self.bulk[at]
    }
}

/// What an operation does to the lanes that executed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// They go on with the next instruction.
    Next,
    /// They go on with the next instruction, and the warp lets others run.
    Yield,
    /// They stay at this instruction.
    Block(Wait),
    /// They are gone.
    Exited,
}

pub type Step = Outcome<Flow>;
