//! How often the lanes of a warp have gone round the loops that they run apart.
//!
//! Lanes that have diverged may meet again at an instruction in different iterations. Such lanes are not in step: a branch
//! marked `.uni` says nothing about them.

use super::scattered::lanes_of;

/// Loops with a branch back that was taken while lanes of the warp were apart.
#[derive(Debug, Default)]
pub struct Loops(Vec<Loop>);

#[derive(Debug)]
struct Loop {
    /// Its first instruction.
    first: u32,
    /// Its last branch back.
    last: u32,
    /// Branches back taken by each lane.
    rounds: [u32; 32],
}

impl Loops {
    /// True if no lanes have gone round apart.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All lanes are in step.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Lanes take a branch back; the loops inside begin anew for them.
    #[cold]
    pub fn branch_back(&mut self, from: u32, to: u32, lanes: u32) {
        for inner in self.0.iter_mut().filter(|l| l.first > to && l.last < from) {
            lanes_of(lanes).for_each(|lane| inner.rounds[lane as usize] = 0);
        }
        let at = self.0.iter().position(|l| l.first == to).unwrap_or_else(|| {
            self.0.push(Loop { first: to, last: from, rounds: [0; 32] });
            self.0.len() - 1
        });
        let found = &mut self.0[at];
        found.last = found.last.max(from);
        lanes_of(lanes).for_each(|lane| found.rounds[lane as usize] += 1);
    }

    /// True if a lane of one mask and a lane of the other are in the same iteration of every loop around an instruction.
    #[cold]
    pub fn in_step(&self, pc: u32, one: u32, other: u32) -> bool {
        let around = || self.0.iter().filter(|l| l.first <= pc && pc <= l.last);
        let same = |a: u32, b: u32| around().all(|l| l.rounds[a as usize] == l.rounds[b as usize]);
        lanes_of(one).any(|a| lanes_of(other).any(|b| same(a, b)))
    }
}
