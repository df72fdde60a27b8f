//! Derives the proxy fences.
//!
//! - Ordinary stores to a shared buffer that a bulk copy or a product of a warpgroup reads, or a bulk copy overwrites, are followed by
//!   `fence.proxy.async.shared::cta` in the writing threads, ahead of the barrier that hands the buffer over. One fence a
//!   hand-over, not one a store: the fence costs a memory barrier. Lanes that meet on the way to a barrier of more threads
//!   leave it to that barrier.
//! - A bulk copy into a tensor that the kernel also accesses with ordinary loads or stores is preceded by
//!   `fence.proxy.async.global` in the thread that issues it: what other threads read before they released is then also
//!   before the copy's writes.

use super::{Node, Place, Region, Sync};
use kda_ptx::modifier::Proxy;
use kda_ptx::operand::PredSrc;
use kda_ptx::table::FenceProxy;
use std::collections::BTreeSet;

/// Inserts the fences. `generic` tells of each parameter whether the kernel accesses it with ordinary loads, stores or
/// atomics, anywhere; `products` are buffers that products read, `handed_over` those whose fence stands where they are
/// received.
pub fn derive(region: &mut Region, generic: &[bool], products: BTreeSet<usize>, handed_over: &BTreeSet<usize>) {
    let mut sources = products;
    async_sources(region, &mut sources);
    sources.retain(|buffer| !handed_over.contains(buffer));
    if !sources.is_empty() || !handed_over.is_empty() {
        let mut dirty = false;
        Fences { sources, generic }.region(region, &mut dirty);
    }
}

fn async_sources(region: &Region, sources: &mut BTreeSet<usize>) {
    for node in region {
        match node {
            Node::Sync {
                sync: Sync::BulkStore { buffer, .. } | Sync::ProductRead { buffer } | Sync::BulkFill { buffer },
                ..
            } => {
                sources.insert(*buffer);
            }
            Node::If { then, other, .. } => {
                async_sources(then, sources);
                async_sources(other, sources);
            }
            Node::Loop { head, body, .. } => {
                async_sources(head, sources);
                async_sources(body, sources);
            }
            _ => {}
        }
    }
}

fn fence(proxy: Proxy, guard: Option<PredSrc>, place: Place) -> Node {
    Node::Inst { inst: FenceProxy { proxy }.into(), guard, place }
}

/// True if a fence of earlier stores stands ahead of the step: it hands them over to other threads, or to a reader of the
/// thread itself.
fn hands_over(sync: &Sync) -> bool {
    match sync {
        Sync::Cta | Sync::Cluster { .. } | Sync::NamedSync { .. } | Sync::NamedArrive { .. } => true,
        Sync::Warp | Sync::Give { .. } | Sync::MbarrierArrive => true,
        Sync::BulkStore { .. } | Sync::ProductRead { .. } | Sync::BulkFill { .. } => true,
        Sync::Take { .. } | Sync::Restart { .. } | Sync::MbarrierInit { .. } => false,
        Sync::SharedRead { .. } | Sync::SharedWrite { .. } => false,
    }
}

/// True if more threads meet in this code before anything may read what was written.
fn meet_later(code: &[Node]) -> bool {
    for node in code {
        match node {
            Node::Inst { .. } | Node::Comment(_) => {}
            Node::Sync { sync, .. } => match sync {
                Sync::Cta | Sync::Cluster { .. } | Sync::NamedSync { .. } => return true,
                Sync::Warp | Sync::SharedRead { .. } | Sync::SharedWrite { .. } => {}
                _ => return false,
            },
            Node::If { .. } | Node::Loop { .. } | Node::Return(_) => return false,
        }
    }
    false
}

struct Fences<'a> {
    /// Buffers that bulk copies and products access.
    sources: BTreeSet<usize>,
    generic: &'a [bool],
}

impl Fences<'_> {
    /// `dirty` is true if this thread may have written a bulk source since its last fence.
    fn region(&self, region: &mut Region, dirty: &mut bool) {
        let mut out = Region::with_capacity(region.len());
        let later: Vec<bool> = (1..=region.len()).map(|next| meet_later(&region[next..])).collect();
        for (mut node, later) in region.drain(..).zip(later) {
            match &mut node {
                Node::Sync { sync: Sync::Warp, .. } if later => {}
                Node::Sync { sync, place } => match sync {
                    Sync::SharedWrite { buffer } => *dirty |= self.sources.contains(buffer),
                    sync => {
                        // What the thread has written itself needs no barrier, but the fence.
                        if hands_over(sync) && std::mem::take(dirty) {
                            out.push(fence(Proxy::AsyncSharedCta, None, *place));
                        }
                        if let Sync::BulkStore { destination, guard, .. } = sync
                            && self.generic.get(*destination).copied().unwrap_or(true)
                        {
                            out.push(fence(Proxy::AsyncGlobal, *guard, *place));
                        }
                    }
                },
                Node::If { then, other, .. } => {
                    let (mut a, mut b) = (*dirty, *dirty);
                    self.region(then, &mut a);
                    self.region(other, &mut b);
                    *dirty = a || b;
                }
                Node::Loop { head, body, .. } => {
                    // What the body leaves dirty is dirty at its start too, and the loop may run no trip.
                    *dirty |= self.leaves_dirty(head) || self.leaves_dirty(body);
                    let entry = *dirty;
                    self.region(head, dirty);
                    self.region(body, dirty);
                    *dirty |= entry;
                }
                _ => {}
            }
            out.push(node);
        }
        *region = out;
    }

    /// True if the region may leave a bulk source written and not fenced, after a clean start.
    fn leaves_dirty(&self, region: &Region) -> bool {
        let mut dirty = false;
        for node in region {
            match node {
                Node::Sync { sync: Sync::SharedWrite { buffer }, .. } => dirty |= self.sources.contains(buffer),
                Node::Sync { sync, .. } => dirty &= !hands_over(sync),
                Node::If { then, other, .. } => {
                    let untouched = |region| !self.has_step(region);
                    let kept = dirty && (untouched(then) || untouched(other));
                    dirty = kept || self.leaves_dirty(then) || self.leaves_dirty(other);
                }
                Node::Loop { head, body, .. } => dirty |= self.leaves_dirty(head) || self.leaves_dirty(body),
                _ => {}
            }
        }
        dirty
    }

    /// True if every way through the region passes a step at which a fence would stand.
    fn has_step(&self, region: &Region) -> bool {
        region.iter().any(|node| match node {
            Node::Sync { sync, .. } => hands_over(sync),
            Node::If { then, other, .. } => self.has_step(then) && self.has_step(other),
            _ => false,
        })
    }
}
