//! Rings of stages between roles.
//!
//! `Pipeline::<from, to> { name: smem… }` has a full and an empty mbarrier for each stage. The producing side acquires a
//! stage (waits until it is empty), fills it and commits it; the consuming side waits for it, uses it and releases it. A side
//! is a role or several. Sides between the two wait for what the side before them has committed, and commit it to the next;
//! each has a barrier of its own. Stage index and phase are variables of each role that the source never sees.
//!
//! Counts follow from who commits and who releases. A role acts on its side in one thread or as a whole, always in the same
//! way. One thread is one arrival and announces the bytes of its bulk copies; a whole role arrives once a warp, and once a
//! thread more if its threads copy asynchronously.
//!
//! A stage that is filled for the first time is not waited for. A ring whose stages are all filled once has no empty barriers:
//! a release there is the end of the stage's use, and nothing else.
//!
//! | question | file |
//! | --- | --- |
//! | sides, buffers, mbarriers | `declare` |
//! | stage and phase of a role | `state` |
//! | `acquire`, `wait` | `take` |
//! | `commit`, `release` | `give` |
//! | copies into a stage | `fill` |
//! | bulk stores of stages, and the fences ahead of them | `stores` |
//! | `#[elect_one]` | `election` |
//! | `#[unroll(ring)]`, stages that go round a loop | `unroll` |
//! | buffers that are filled under a condition | `conditions` |
//! | whether two values are the same | `text` |

mod conditions;
mod declare;
mod election;
mod fill;
mod give;
mod state;
mod stores;
mod take;
mod text;
mod unroll;

pub use state::ElectedTake;

use super::Specialiser;
use super::site::Site;
use super::tile::TileView;
use super::value::Value;
use super::views::Index;
use crate::diag::{Diagnostic, Result};
pub(super) use declare::fill_counts;
use proc_macro2::Span;
use std::collections::{BTreeMap, BTreeSet};
pub(super) use stores::hand_over;

/// All threads of the CTA, where a role is meant.
pub const CTA: usize = usize::MAX;

/// A ring.
#[derive(Clone, Debug)]
pub struct Ring {
    /// Name of its variable.
    pub name: String,
    /// Roles of each side in the order of flow, the producing side first; all empty for a ring within the CTA.
    pub sides: Vec<Vec<usize>>,
    /// Number of stages.
    pub stages: u32,
    /// It is restarted somewhere: a role keeps the phase of each stage, in a bit of its own.
    pub restarts: bool,
    /// The producing side waits for a stage that has been used before, or might: its release needs a barrier.
    pub reused: bool,
    /// Buffers by name: tiles, or shared views of all stages.
    pub buffers: Vec<(String, Value)>,
    /// Buffer of the mbarriers: for each side those that it completes, in the order of flow.
    pub barriers: usize,
    /// How the roles of each side act on it, once known.
    pub ways: Vec<BTreeMap<usize, Way>>,
    /// Buffers that are filled under a condition, and those that are so without one, wherever that may be.
    pub filled: [BTreeSet<usize>; 2],
    /// Reads of the consuming side without a condition: buffer, holding, place.
    pub reads: Vec<(usize, u32, (Span, Span))>,
    /// Buffers with ordinary stores of sides ahead of the consuming one.
    pub written: BTreeSet<usize>,
    /// Those of the consuming side.
    pub rewritten: BTreeSet<usize>,
    /// Buffers that threads copy into asynchronously.
    pub copied: BTreeSet<usize>,
    /// Buffers that bulk stores of the consuming side read.
    pub stored: BTreeSet<usize>,
    /// Roles that issue these bulk stores.
    pub storers: BTreeSet<usize>,
}

impl Ring {
    /// Number of the consuming side.
    pub fn last(&self) -> usize {
        self.sides.len() - 1
    }

    /// All threads of the CTA are every side.
    pub fn whole_cta(&self) -> bool {
        self.sides.iter().all(Vec::is_empty)
    }

    /// Side in words.
    pub fn side_name(&self, side: usize) -> &'static str {
        match side {
            0 => "producing",
            side if side == self.last() => "consuming",
            _ => "middle",
        }
    }
}

/// How a role acts on a side of a ring.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// In one thread.
    pub elected: bool,
    /// Arrivals a phase, once it has given a stage.
    pub arrivals: Option<u32>,
}

/// A stage that a role holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// Index of the ring.
    pub ring: usize,
    /// Number of the side.
    pub side: usize,
    /// Stage.
    pub stage: Value,
    /// Number of this holding, unique in the kernel.
    pub id: u32,
}

/// The answer to a look at the next stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Peek {
    /// Index of the ring.
    pub ring: usize,
    /// Number of the side.
    pub side: usize,
    /// True if the stage is there.
    pub ready: kda_ptx::Reg,
    /// Stage and phase.
    pub state: (Value, Value),
    /// Number of runtime branches and loops around it.
    pub depth: usize,
    /// Number of its place.
    pub span: usize,
}

/// What is known about a holding while the kernel is compiled.
#[derive(Clone, Debug)]
pub struct Holding {
    /// Index of the ring.
    pub ring: usize,
    /// Number of the side.
    pub side: usize,
    /// Stage.
    pub stage: Value,
    /// Where it was taken.
    pub taken: (Span, Span),
    /// It was taken by one thread.
    pub elected: bool,
    /// Number of runtime branches and loops around the place where it was taken.
    pub depth: usize,
    /// Number of runtime branches there.
    pub branches: usize,
    /// It goes round a loop, so that conditions may belong to the trip before.
    pub carried: bool,
    /// Bytes of bulk copies that are announced with the commit; `None` if there were no such copies.
    pub bytes: Option<Value>,
    /// Threads have copied into it asynchronously.
    pub copied: bool,
    /// Bulk stores have been issued from it that no group contains yet.
    pub stored: bool,
    /// Committed or released.
    pub done: bool,
}

impl Specialiser<'_> {
    /// A buffer of a slot.
    pub(super) fn slot_buffer(&mut self, slot: &Slot, name: &str, site: Site<'_>) -> Result<Value> {
        let found = self.rings[slot.ring].buffers.iter().find(|(buffer, _)| buffer == name);
        let Some((_, view)) = found else {
            let names: Vec<_> = self.rings[slot.ring].buffers.iter().map(|(n, _)| n.clone()).collect();
            return Err(Diagnostic::new(158, site, format!("the pipeline has no buffer `{name}`"))
                .help(format!("its buffers are {}", names.join(", "))));
        };
        let view = view.clone();
        self.check_held(slot.id, site)?;
        match view {
            Value::Tile(view) => {
                let view = TileView { stage: slot.stage.clone(), slot: Some(slot.id), ..*view };
                Ok(Value::Tile(Box::new(view)))
            }
            Value::Shared(view) => {
                let stages = self.rings[slot.ring].stages;
                let mut view = match stages {
                    1 => *view,
                    _ => self.shared_at(*view, vec![(Index::At(slot.stage.clone()), site)], site)?,
                };
                view.slot = Some(slot.id);
                Ok(Value::Shared(Box::new(view)))
            }
            Value::Tmem(_) => Ok(self.slot_accumulator(slot, name)),
            other => Ok(other),
        }
    }

    /// Refuses a stage that was given.
    pub(super) fn check_held(&self, id: u32, site: Site<'_>) -> Result<()> {
        let holding = &self.holdings[id as usize];
        if !holding.done {
            return Ok(());
        }
        let word = if holding.side == self.rings[holding.ring].last() { "released" } else { "committed" };
        Err(Diagnostic::new(654, site, format!("this stage has been {word}"))
            .note(holding.taken.0, "it was taken here"))
    }

    /// A variable that holds a stage gets another one: the first has been given.
    pub(super) fn check_given(&self, slot: &Slot, value: &Value, site: Site<'_>) -> Result<()> {
        let holding = &self.holdings[slot.id as usize];
        match value {
            Value::Slot(other) if other.id != slot.id && !holding.done => {
                Err(Diagnostic::new(654, site, "this variable still holds a stage")
                    .note(holding.taken.0, "it was taken here"))
            }
            _ => Ok(()),
        }
    }

    /// Every stage that was taken since `from` has been given back.
    pub(super) fn check_holdings(&self, from: usize) -> Result<()> {
        match self.holdings[from..].iter().find(|holding| !holding.done) {
            Some(holding) => Err(Diagnostic::new(654, holding.taken, "this stage is neither committed nor released")
                .help("the producing side ends with `slot.commit();`, the consuming side with `slot.release();`")),
            None => Ok(()),
        }
    }

    /// Roles that act here; [`CTA`] outside roles.
    fn parties(&self) -> Vec<usize> {
        self.roles.clone().unwrap_or_else(|| vec![CTA])
    }

    /// Keeps a place of the source for the checks.
    pub(super) fn note_span(&mut self, site: Site<'_>) -> usize {
        use crate::diag::Place as _;
        self.spans.push(site.ends());
        self.spans.len() - 1
    }
}
