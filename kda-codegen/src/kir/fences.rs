//! Derives the proxy fences.
//!
//! - Ordinary stores to a shared buffer that a bulk copy reads are followed by `fence.proxy.async.shared::cta` in the
//!   writing threads, ahead of the barrier that hands the buffer over. One fence a hand-over, not one a store: the fence
//!   costs a memory barrier.
//! - A bulk copy into a tensor that the kernel also accesses with ordinary loads or stores is preceded by
//!   `fence.proxy.async.global` in the thread that issues it: what other threads read before they released is then also
//!   before the copy's writes.

use super::{Node, Place, Region, Sync};
use kda_ptx::modifier::Proxy;
use kda_ptx::table::FenceProxy;
use std::collections::BTreeSet;

/// Inserts the fences.
pub fn derive(region: &mut Region) {
    let mut sources = BTreeSet::new();
    bulk_sources(region, &mut sources);
    if !sources.is_empty() {
        hand_overs(region, &sources, &mut false);
    }
}

fn bulk_sources(region: &Region, sources: &mut BTreeSet<usize>) {
    for node in region {
        match node {
            Node::Sync { sync: Sync::BulkStore { buffer, .. }, .. } => {
                sources.insert(*buffer);
            }
            Node::If { then, other, .. } => {
                bulk_sources(then, sources);
                bulk_sources(other, sources);
            }
            Node::Loop { head, body, .. } => {
                bulk_sources(head, sources);
                bulk_sources(body, sources);
            }
            _ => {}
        }
    }
}

fn fence(proxy: Proxy, place: Place) -> Node {
    Node::Inst { inst: FenceProxy { proxy }.into(), guard: None, place }
}

/// `dirty` is true if a bulk source may have been written since the last fence.
fn hand_overs(region: &mut Region, sources: &BTreeSet<usize>, dirty: &mut bool) {
    let mut out = Region::with_capacity(region.len());
    for mut node in region.drain(..) {
        match &mut node {
            Node::Sync { sync, place } => match sync {
                Sync::SharedWrite { buffer } => *dirty |= sources.contains(buffer),
                Sync::Cta | Sync::NamedSync { .. } | Sync::NamedArrive { .. } | Sync::Warp if *dirty => {
                    out.push(fence(Proxy::AsyncSharedCta, *place));
                    *dirty = false;
                }
                Sync::BulkStore { generic_destination: true, guard, .. } => {
                    let mut node = fence(Proxy::AsyncGlobal, *place);
                    if let Node::Inst { guard: fence_guard, .. } = &mut node {
                        *fence_guard = *guard;
                    }
                    out.push(node);
                }
                _ => {}
            },
            Node::If { then, other, .. } => {
                let (mut a, mut b) = (*dirty, *dirty);
                hand_overs(then, sources, &mut a);
                hand_overs(other, sources, &mut b);
                *dirty = a || b;
            }
            Node::Loop { head, body, .. } => {
                // What the body leaves dirty is dirty at its start too.
                let mut trial = body.clone();
                let mut after = *dirty;
                hand_overs(&mut trial, sources, &mut after);
                *dirty |= after;
                hand_overs(head, sources, dirty);
                hand_overs(body, sources, dirty);
            }
            _ => {}
        }
        out.push(node);
    }
    *region = out;
}
