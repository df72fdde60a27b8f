//! Who runs next: the adversary of a kernel's synchronisation.

/// A schedule. Every schedule is fair: whoever can run does so in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Warps in turn; bulk copies in the order of their issue, one a round.
    RoundRobin,
    /// Warps in turn from the last to the first.
    ReverseWarps,
    /// A random warp for a random number of instructions, copies at random times.
    Random,
    /// Random priorities with `depth` points at which the running warp becomes the last.
    Pct {
        /// Number of change points.
        depth: u32,
    },
    /// Warps in turn; copies happen only when nothing else can, the youngest first.
    LateAsync,
    /// Warps in turn; copies happen as soon as they are issued.
    EarlyAsync,
}

impl Schedule {
    /// One of each kind.
    pub const ALL: [Schedule; 6] = [
        Schedule::RoundRobin,
        Schedule::ReverseWarps,
        Schedule::Random,
        Schedule::Pct { depth: 5 },
        Schedule::LateAsync,
        Schedule::EarlyAsync,
    ];
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// A warp of the list runs for so many instructions.
    Warp(usize, u32),
    /// A pending copy of the list takes its next step.
    Copy(usize),
}

/// A small random generator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_add(0x9e37_79b9_7f4a_7c15))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// State of a schedule.
#[derive(Debug)]
pub(crate) struct Scheduler {
    schedule: Schedule,
    random: Random,
    cursor: usize,
    /// Priorities of the warps by their slot; higher runs first.
    priorities: Vec<u64>,
    low: u64,
    steps_to_change: u64,
    changes: u32,
}

/// Instructions of a turn.
const TURN: u32 = 256;

impl Scheduler {
    pub fn new(schedule: Schedule, seed: u64) -> Scheduler {
        let mut random = Random::new(seed);
        let steps_to_change = random.below(2000) as u64;
        let changes = if let Schedule::Pct { depth } = schedule { depth } else { 0 };
        Scheduler { schedule, random, cursor: 0, priorities: Vec::new(), low: 1 << 32, steps_to_change, changes }
    }

    /// Chooses among the warps that can run (by slot, ascending) and the pending copies (oldest first). One of the two
    /// is not empty.
    pub fn choose(&mut self, warps: &[usize], copies: usize) -> Choice {
        if warps.is_empty() {
            return Choice::Copy(match self.schedule {
                Schedule::LateAsync => copies - 1,
                Schedule::Random | Schedule::Pct { .. } => self.random.below(copies),
                _ => 0,
            });
        }
        match self.schedule {
            Schedule::EarlyAsync if copies > 0 => Choice::Copy(0),
            Schedule::RoundRobin | Schedule::LateAsync | Schedule::EarlyAsync => {
                let next = warps.iter().position(|w| *w >= self.cursor);
                if next.is_none() && self.schedule == Schedule::RoundRobin && copies > 0 {
                    self.cursor = 0;
                    return Choice::Copy(0);
                }
                let index = next.unwrap_or(0);
                self.cursor = warps[index] + 1;
                Choice::Warp(index, TURN)
            }
            Schedule::ReverseWarps => {
                let next = warps.iter().rposition(|w| *w < self.cursor);
                if next.is_none() && copies > 0 {
                    self.cursor = usize::MAX;
                    return Choice::Copy(0);
                }
                let index = next.unwrap_or(warps.len() - 1);
                self.cursor = warps[index];
                Choice::Warp(index, TURN)
            }
            Schedule::Random => {
                let index = self.random.below(warps.len() + copies);
                if index >= warps.len() {
                    return Choice::Copy(index - warps.len());
                }
                Choice::Warp(index, 1 + self.random.below(48) as u32)
            }
            Schedule::Pct { .. } => self.priority(warps, copies),
        }
    }

    fn priority(&mut self, warps: &[usize], copies: usize) -> Choice {
        // Copies have a priority of their own, drawn anew each time.
        if copies > 0 && self.random.below(8) == 0 {
            return Choice::Copy(self.random.below(copies));
        }
        let last = warps[warps.len() - 1];
        while self.priorities.len() <= last {
            let priority = (1 << 33) + (self.random.next() >> 32);
            self.priorities.push(priority);
        }
        let index = (0..warps.len()).max_by_key(|i| self.priorities[warps[*i]]).unwrap_or(0);
        Choice::Warp(index, 64)
    }

    /// A warp has run: moves change points nearer, and takes priority from a warp that only ran in a circle.
    pub fn ran(&mut self, slot: usize, steps: u32, whole_turn: bool) {
        if !matches!(self.schedule, Schedule::Pct { .. }) {
            return;
        }
        let change = self.changes > 0 && u64::from(steps) >= self.steps_to_change;
        self.steps_to_change = self.steps_to_change.saturating_sub(u64::from(steps));
        if change {
            self.changes -= 1;
            self.steps_to_change = self.random.below(4000) as u64;
        }
        // Now and then a warp that used its whole turn steps back: a spinning warp must not run for ever.
        if change || (whole_turn && self.random.below(64) == 0) {
            self.low = self.low.saturating_sub(1);
            self.priorities[slot] = self.low;
        }
    }

    /// A random generator for other choices.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }
}
