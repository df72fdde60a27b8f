//! What a call must satisfy before it runs.

use super::HEAD;
use super::problem::{Commit, Outputs, Problem};
use crate::tc_verify::Refusal;
use crate::tc_verify::validate::{at_least, rows, sizes};
use std::collections::HashMap;

/// Checks sizes, pitches and places of what a call reads.
pub(super) fn inputs(p: &Problem<'_>) -> Result<(), Refusal> {
    sizes(p.heads, p.window)?;
    let width = p.heads * HEAD;
    rows(["state", "state_pitch"], p.state.len(), p.slots, p.state_pitch, p.state_len())?;
    let records = p.n_req * p.window * width;
    at_least("corr", p.corr.len(), records)?;
    at_least("kg", p.kg.len(), 2 * records)?;
    if let Some(a_log) = p.a_log {
        at_least("a_log", a_log.len(), p.heads)?;
    }
    at_least("dt_bias", p.dt_bias.len(), width)?;
    at_least("slot_of", p.slot_of.len(), p.n_req)?;
    at_least("counts", p.counts.len(), p.n_req)?;
    if let Some(destinations) = p.destinations {
        at_least("destinations", destinations.len(), p.n_req)?;
    }
    if let Some(boundary) = p.boundary {
        at_least("boundary tokens", boundary.tokens.len(), p.n_req)?;
        at_least("boundary slots", boundary.slots.len(), p.n_req)?;
    }
    if let Some(conv) = &p.conv {
        let slot = p.conv_rows() * p.channels();
        rows(["conv", "conv_pitch"], conv.pool.len(), p.slots, conv.pitch, slot)?;
    }
    places(p)
}

/// Checks the buffers that a call writes; its inputs are checked.
pub(super) fn outputs(p: &Problem<'_>, out: &Outputs<'_>) -> Result<(), Refusal> {
    at_least("new state", out.state.len(), p.state.len())?;
    if let Some(conv) = &p.conv {
        let name = "the pool of raw inputs that is compacted";
        at_least(name, out.conv.as_ref().ok_or(Refusal::Absent { name })?.len(), conv.pool.len())?;
    }
    Ok(())
}

/// A slot is written by one request, once unless with the same state, and read by no other.
fn places(p: &Problem<'_>) -> Result<(), Refusal> {
    let mut written: HashMap<usize, (usize, usize)> = HashMap::new();
    for commit in p.commits() {
        for (records, slot) in commit.targets() {
            let other = written.insert(slot, (commit.b, records));
            if other.is_some_and(|other| other != (commit.b, records)) {
                return Err(Refusal::Shared { name: "slot", index: slot });
            }
        }
    }
    let read_by_another = |commit: &Commit| written.get(&commit.source).is_some_and(|&(b, _)| b != commit.b);
    match p.commits().find(read_by_another) {
        Some(commit) => Err(Refusal::Shared { name: "slot", index: commit.source }),
        None => Ok(()),
    }
}
