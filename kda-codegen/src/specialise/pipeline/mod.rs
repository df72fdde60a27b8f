//! Rings of stages between two roles.
//!
//! `Pipeline::<from, to> { name: smem… }` has a full and an empty mbarrier for each stage. The producing side acquires a
//! stage (waits until it is empty), fills it and commits it; the consuming side waits for it, uses it and releases it.
//! Stage index and phase are variables of each side that the source never sees. Counts follow from who commits and who
//! releases: a single thread that issues bulk copies is one arrival and announces the bytes of its copies; a role of
//! several warps arrives once a warp.

mod declare;
mod election;
mod give;
mod state;
mod take;
mod text;

use super::Specialiser;
use super::site::Site;
use super::tile::TileView;
use super::value::Value;
use crate::diag::{Diagnostic, Result};
pub(super) use declare::fill_counts;
use proc_macro2::Span;

/// A ring.
#[derive(Clone, Debug)]
pub struct Ring {
    /// Name of its variable.
    pub name: String,
    /// Roles that produce and that consume; both empty for a ring within the CTA.
    pub sides: [Vec<usize>; 2],
    /// Number of stages.
    pub stages: u32,
    /// Buffers by name.
    pub buffers: Vec<(String, TileView)>,
    /// Buffer of the mbarriers: full ones, then empty ones.
    pub barriers: usize,
    /// Arrivals of a phase of the full and of the empty barriers, once known.
    pub counts: [Option<u32>; 2],
}

/// A stage that a role holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// Index of the ring.
    pub ring: usize,
    /// 0 for the producing side, 1 for the consuming side.
    pub side: usize,
    /// Stage.
    pub stage: Value,
    /// Number of this holding, unique in the kernel.
    pub id: u32,
}

/// What is known about a holding while the kernel is compiled.
#[derive(Clone, Debug, Default)]
pub struct Holding {
    /// Where it was taken.
    pub taken: Option<(Span, Span)>,
    /// Bytes that bulk copies bring.
    pub bytes: u64,
    /// Committed or released.
    pub done: bool,
}

const SIDES: [&str; 2] = ["producing", "consuming"];

impl Specialiser<'_> {
    /// A buffer of a slot.
    pub(in crate::specialise) fn slot_buffer(&mut self, slot: &Slot, name: &str, site: Site<'_>) -> Result<Value> {
        let found = self.rings[slot.ring].buffers.iter().find(|(buffer, _)| buffer == name);
        let Some((_, view)) = found else {
            let names: Vec<_> = self.rings[slot.ring].buffers.iter().map(|(n, _)| n.clone()).collect();
            return Err(Diagnostic::new(158, site, format!("the pipeline has no buffer `{name}`"))
                .help(format!("its buffers are {}", names.join(", "))));
        };
        if self.holdings[slot.id as usize].done {
            return Err(self.gone(slot, site));
        }
        let view = TileView { stage: slot.stage.clone(), slot: Some(slot.id), ..view.clone() };
        Ok(Value::Tile(Box::new(view)))
    }

    fn gone(&self, slot: &Slot, site: Site<'_>) -> Box<Diagnostic> {
        let word = if slot.side == 0 { "committed" } else { "released" };
        let error = Diagnostic::new(654, site, format!("this stage has been {word}"));
        match self.holdings[slot.id as usize].taken {
            Some(taken) => error.note(taken.0, "it was taken here"),
            None => error,
        }
    }

    /// Keeps a place of the source for the checks.
    pub(in crate::specialise) fn note_span(&mut self, site: Site<'_>) -> usize {
        self.spans.push(site.start());
        self.spans.len() - 1
    }
}
