//! Bulk copies out of a stage, and what a hand-over to them takes.
//!
//! The thread that issues such copies from a consuming side releases the stage when their sources have been read, unless the
//! source closes their group itself, and the role ends when their writes are done. A fence between ordinary stores of the producing side and such a copy stands in
//! the consuming role, behind its wait: there one warp or one thread executes it, not all that have stored.

use super::{CTA, Ring};
use crate::diag::Result;
use crate::kir::{Branch, Node, Region, Sync};
use crate::specialise::Specialiser;
use crate::specialise::site::Site;
use kda_ptx::modifier::{Proxy, ReadOnly};
use kda_ptx::operand::Src;
use kda_ptx::table::*;
use std::collections::BTreeSet;

impl Specialiser<'_> {
    /// An ordinary store to a buffer, perhaps of a slot.
    pub(in crate::specialise) fn note_write(&mut self, slot: Option<u32>, buffer: usize, site: Site<'_>) -> Result<()> {
        let Some(id) = slot else { return Ok(()) };
        self.check_held(id, site)?;
        let holding = &self.holdings[id as usize];
        let ring = &mut self.rings[holding.ring];
        // What the consuming side writes itself it fences itself.
        let list = if holding.side == ring.last() { &mut ring.rewritten } else { &mut ring.written };
        list.insert(buffer);
        Ok(())
    }

    /// A bulk store from a buffer, perhaps of a slot.
    pub(in crate::specialise) fn note_bulk_store(
        &mut self,
        slot: Option<u32>,
        buffer: usize,
        site: Site<'_>,
    ) -> Result<()> {
        let Some(id) = slot else { return Ok(()) };
        self.check_held(id, site)?;
        let parties = self.parties();
        let holding = &mut self.holdings[id as usize];
        let ring = &mut self.rings[holding.ring];
        let reads = holding.side == ring.last();
        if reads {
            holding.stored = true;
            ring.stored.insert(buffer);
            ring.storers.extend(parties);
        }
        if reads { self.note_read(slot, buffer, false, site) } else { Ok(()) }
    }

    /// Closes the group of bulk stores from a slot and waits until they have read it.
    pub(super) fn finish_stores(&mut self, slot: u32, site: Site<'_>) {
        if std::mem::take(&mut self.holdings[slot as usize].stored) {
            self.place(site);
            self.builder.inst(BulkCommit {});
            self.builder.inst(BulkWait { read: ReadOnly(true), pending: Src::Imm(0) });
            self.writing = true;
        }
    }

    /// The source closes the group of bulk stores itself: it also waits itself until they have read their stages.
    pub(in crate::specialise) fn close_stores(&mut self) {
        for holding in &mut self.holdings {
            self.writing |= std::mem::take(&mut holding.stored);
        }
    }

    /// At the end of the code of one thread: the same for slots that the whole role holds.
    pub(super) fn finish_elected_stores(&mut self, site: Site<'_>) {
        for slot in 0..self.holdings.len() {
            if !self.holdings[slot].elected && !self.holdings[slot].done {
                self.finish_stores(slot as u32, site);
            }
        }
    }

    /// At the end of a role: the thread that has issued bulk stores waits for their writes.
    pub(in crate::specialise) fn finish_writes(&mut self, site: Site<'_>) -> Result<()> {
        if !std::mem::take(&mut self.writing) {
            return Ok(());
        }
        self.elect(site, |this| {
            this.builder.inst(BulkWait { read: ReadOnly(false), pending: Src::Imm(0) });
            Ok(crate::specialise::value::Value::Unit)
        })?;
        Ok(())
    }
}

impl Ring {
    /// Buffers that reach bulk stores of the consuming side as the sides before have stored them. What products read as well
    /// is fenced by those who store it, ahead of the products.
    fn handed_over(&self, products: &BTreeSet<usize>) -> BTreeSet<usize> {
        let through = self.written.intersection(&self.stored);
        through.filter(|buffer| !self.rewritten.contains(buffer) && !products.contains(buffer)).copied().collect()
    }
}

/// Puts the fences of hand-overs behind the waits; gives the buffers that need no other. `products` are buffers that
/// products read. What threads copy asynchronously is known to nobody but those who have waited for the barrier, so that a
/// fence ahead of a product or a bulk copy stands there as well.
pub(in crate::specialise) fn hand_over(
    region: &mut Region,
    rings: &[Ring],
    products: &BTreeSet<usize>,
) -> BTreeSet<usize> {
    let fenced: Vec<(bool, bool)> = rings
        .iter()
        .map(|ring| {
            let stores =
                !ring.handed_over(products).is_empty() || ring.copied.intersection(&ring.stored).next().is_some();
            let read = |buffer: &&usize| products.contains(buffer) || ring.filled.iter().any(|f| f.contains(buffer));
            (stores, ring.copied.iter().any(|buffer| read(&buffer)))
        })
        .collect();
    if fenced.iter().any(|(stores, products)| *stores || *products) {
        insert(region, rings, &fenced, &[CTA]);
    }
    rings.iter().flat_map(|ring| ring.handed_over(products)).collect()
}

/// `fenced` tells of each ring whether roles that store, and whether all roles of the consuming side, need a fence; `roles`
/// are those whose code this is.
fn insert(region: &mut Region, rings: &[Ring], fenced: &[(bool, bool)], roles: &[usize]) {
    for mut node in std::mem::take(region) {
        match &mut node {
            Node::If { then, branch: Branch::Roles(roles), .. } => {
                let roles = roles.clone();
                insert(then, rings, fenced, &roles);
            }
            Node::If { then, other, .. } => {
                insert(then, rings, fenced, roles);
                insert(other, rings, fenced, roles);
            }
            Node::Loop { head, body, .. } => {
                insert(head, rings, fenced, roles);
                insert(body, rings, fenced, roles);
            }
            _ => {}
        }
        let after = match &node {
            Node::Sync { sync: Sync::Take { ring, side, .. }, place }
                if *side == rings[*ring].last()
                    && (fenced[*ring].1
                        || fenced[*ring].0 && roles.iter().any(|role| rings[*ring].storers.contains(role))) =>
            {
                let inst = FenceProxy { proxy: Proxy::AsyncSharedCta }.into();
                Some(Node::Inst { inst, guard: None, place: *place })
            }
            _ => None,
        };
        region.push(node);
        region.extend(after);
    }
}
