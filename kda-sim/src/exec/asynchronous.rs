//! Work that goes on beside the threads: copies, products. The scheduler lets it take its next step at any time.

use super::access::Target;
use super::copies::Copy;
use super::fault::{Fault, Place};
use super::lanewise::words;
use super::product::Product;
use super::tensor_product::{TensorCommit, TensorProduct};
use super::thread_copies::{ThreadArrival, ThreadCopy};
use super::warp::Wait;
use super::{Machine, Outcome};
use crate::shadow::check::{Caches, Conflict, Observer, Proxy};
use crate::shadow::clock::{Clocks, Entry};
use crate::shadow::span::Spread;
use std::rc::Rc;

/// Something on its way.
#[derive(Debug)]
pub enum Async {
    /// A bulk or tensor copy.
    Copy(Copy),
    /// A product of a warpgroup.
    Product(Product),
    /// `cp.async` of a warp.
    ThreadCopy(ThreadCopy),
    /// An arrival behind it.
    ThreadArrival(ThreadArrival),
    /// `tcgen05.mma`
    TensorProduct(TensorProduct),
    /// `tcgen05.commit`
    TensorCommit(TensorCommit),
}

impl Async {
    /// Slot of the CTA whose thread issued it.
    pub fn cta(&self) -> usize {
        match self {
            Async::Copy(copy) => copy.cta,
            Async::Product(product) => product.cta,
            Async::ThreadCopy(copy) => copy.cta,
            Async::ThreadArrival(arrival) => arrival.cta,
            Async::TensorProduct(product) => product.cta,
            Async::TensorCommit(commit) => commit.cta,
        }
    }

    /// What happens in order: items with the same queue.
    fn queue(&self) -> Option<(u8, usize)> {
        match self {
            Async::Copy(_) => None,
            Async::Product(product) => Some((0, product.warpgroup)),
            Async::ThreadCopy(copy) => Some((1, copy.warp)),
            Async::ThreadArrival(arrival) => Some((1, arrival.warp)),
            Async::TensorProduct(product) => Some((2, product.warp)),
            Async::TensorCommit(commit) => Some((2, commit.warp)),
        }
    }
}

/// Who accesses memory beside the threads, and on what it may rely.
#[derive(Clone, Debug)]
pub(super) struct Accessor {
    /// Slot of the warp that issued the work, its lane, and the instruction.
    pub warp: usize,
    pub lane: u32,
    pub pc: u32,
    pub clocks: Rc<Clocks>,
    pub segment: u32,
    /// It accesses as the threads do.
    pub generic: bool,
    /// Atomically.
    pub strong: bool,
}

impl Machine<'_> {
    /// An item takes its next step; of a queue the first does.
    pub(super) fn step_async(&mut self, index: usize) -> Outcome<()> {
        self.progress += 1;
        let index = match self.asyncs[index].queue() {
            None => index,
            queue => self.asyncs.iter().position(|a| a.queue() == queue).unwrap_or(index),
        };
        match self.asyncs.remove(index) {
            Async::Copy(copy) => {
                if let Some(rest) = self.step_copy(copy)? {
                    self.asyncs.insert(index, Async::Copy(rest));
                }
            }
            Async::Product(product) => self.step_product(product)?,
            Async::ThreadCopy(copy) => self.step_thread_copy(copy)?,
            Async::ThreadArrival(arrival) => self.step_thread_arrival(arrival)?,
            Async::TensorProduct(product) => self.step_tensor_product(product)?,
            Async::TensorCommit(commit) => self.step_tensor_commit(commit)?,
        }
        Ok(())
    }

    /// Lets the groups of a warp that wait for `what` look again.
    pub(super) fn wake(&mut self, w: usize, what: Wait) {
        for group in &mut self.warps[w].groups {
            if group.wait == what {
                group.wait = Wait::Ready;
            }
        }
    }

    /// What work of one lane may rely on: what the lane knows and has done.
    pub(super) fn issue_clocks(&mut self, w: usize, lane: u32) -> Rc<Clocks> {
        let warp = &mut self.warps[w];
        let mut clocks = (*warp.knowledge[warp.knowledge_of(lane)].clocks).clone();
        let entry = Entry::lanes(1 << lane, warp.clock);
        clocks.get_mut(warp.agent).generic.join(entry);
        if warp.copy_agent != 0 {
            clocks.get_mut(warp.copy_agent).generic.join(warp.own_copies(1 << lane));
        }
        Rc::new(clocks)
    }

    /// Checks and records an access of consecutive bytes of a block, of any alignment.
    pub(super) fn async_access(
        &mut self,
        who: &Accessor,
        target: &Target,
        address: u64,
        offset: usize,
        length: usize,
        write: bool,
    ) -> Outcome<()> {
        if !self.options.checks.races || length == 0 {
            return Ok(());
        }
        let warps = self.generic_agents();
        let proxy = match target {
            _ if who.generic => Proxy::Generic,
            Target::Global => Proxy::AsyncGlobal,
            Target::Shared { .. } | Target::Tensor { .. } => Proxy::AsyncShared,
        };
        let (block, history, key, (base_segment, base_set)) =
            Self::parts(self.memory, &mut self.ctas, target, address, offset);
        block.shadow();
        let mut caches = Caches::default();
        let mut observer = Observer {
            history,
            clocks: &who.clocks,
            caches: &mut caches,
            // Work of one agent is in no order of its own.
            agent: u32::MAX,
            segment: who.segment,
            pc: who.pc,
            base_segment,
            base_set,
            proxy,
            strong: who.strong,
            acquired: &[],
            own_copies: (0, &[0; 32]),
            warps,
        };
        let whole = offset.is_multiple_of(4) && length.is_multiple_of(4) && !who.strong;
        let outcome: Result<(), (Conflict, usize)> = if whole {
            let mut cells = block.cells(offset / 4, length / 4, key);
            let spread = Spread::one(who.lane);
            let done =
                if write { observer.write_span(&mut cells, spread) } else { observer.read_span(&mut cells, spread) };
            done.map_err(|c| (c, c.word + offset / 4))
        } else {
            let mut cells = block.cells(0, block.defined.len(), key);
            words(offset, length).try_for_each(|(word, bytes)| {
                let done = if write {
                    observer.check_write_word(&cells, word, who.lane, bytes)
                } else {
                    observer.read_word(&mut cells, word, who.lane, bytes)
                };
                done.map_err(|c| (c, word))?;
                if write {
                    observer.stamp_word(&mut cells, word, who.lane, bytes);
                }
                Ok(())
            })
        };
        outcome.map_err(|(conflict, word)| {
            let place = match target {
                Target::Tensor { .. } => Place::of(target, word as u64 * 4),
                _ => Place::of(target, address).at_word(word, offset),
            };
            let issued = Some(Rc::clone(&who.clocks));
            self.fault(who.warp, who.pc, 1 << (who.lane & 31), Fault::Race { conflict, write, place, issued })
        })
    }
}
