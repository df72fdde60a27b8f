//! Giving a stage: `commit` and `release`.

use super::Slot;
use crate::diag::{Diagnostic, Result};
use crate::kir::{Sync, Uniform, when};
use crate::specialise::site::Site;
use crate::specialise::value::Value;
use crate::specialise::{Arrivals, Specialiser};
use kda_core::Elem;
use kda_ptx::Class;
use kda_ptx::modifier::*;
use kda_ptx::operand::{Address, DstAndPred, Sink, Src};
use kda_ptx::table::*;

impl Specialiser<'_> {
    /// `slot.commit()`, `slot.release()`
    pub(in crate::specialise) fn give_stage(&mut self, slot: &Slot, operation: &str, site: Site<'_>) -> Result<Value> {
        let (ring, side) = (slot.ring, slot.side);
        let last = self.rings[ring].last();
        let right = if side == last { "release" } else { "commit" };
        if operation != right {
            let message = format!("`{operation}` of a stage of the {} side", self.rings[ring].side_name(side));
            return Err(Diagnostic::new(653, site, message).help(format!("write `{right}()`")));
        }
        self.check_side(ring, side, operation, site)?;
        self.check_held(slot.id, site)?;
        if side == last {
            self.check_products(slot, site)?;
        }
        let holding = self.holdings[slot.id as usize].clone();
        let older = self.holdings[..slot.id as usize].iter().find(|h| !h.done && (h.ring, h.side) == (ring, side));
        if let Some(older) = older {
            return Err(Diagnostic::new(654, site, "stages are given in the order in which they were taken")
                .note(older.taken.0, "this one was taken earlier"));
        }
        if holding.elected != self.elected {
            let (taker, giver) =
                if self.elected { ("the whole role", "one thread") } else { ("one thread", "the whole role") };
            let message = format!("this stage was taken by {taker}, and {giver} gives it");
            return Err(Diagnostic::new(656, site, message)
                .note(holding.taken.0, "it was taken here")
                .help(format!("take it and `{operation}` it in the same `#[elect_one]`, or both outside")));
        }
        self.warp_in_step(&format!("`{operation}()`"), site)?;
        let by_products = self.given_by_products(slot, site)?;
        self.holdings[slot.id as usize].done = true;
        self.count_arrivals(slot, holding.copied, site)?;
        self.finish_stores(slot.id, site);
        let everywhere = side == last && self.releasing(ring) > 1;
        if side == last {
            // Products and other CTAs arrive whether or not somebody waits.
            self.rings[ring].reused |= by_products || everywhere || holding.copied;
            if self.filled_once.contains(&ring) {
                self.place(site);
                let span = self.note_span(site);
                self.builder.sync(Sync::Give { ring, side, span });
                return Ok(Value::Unit);
            }
        }
        let address = self.barrier_address(ring, self.barrier_of(ring, side), &slot.stage);
        let bytes = match &holding.bytes {
            Some(bytes) => Some(self.operand(bytes, Elem::U32, site)?),
            None => None,
        };
        self.place(site);
        let span = self.note_span(site);
        self.builder.sync(Sync::Give { ring, side, span });
        if holding.copied {
            // One more arrival of each thread, when its copies are done.
            self.builder.inst(CpAsyncArrive { address: address.clone() });
        }
        if by_products {
            self.arrive_after_products(address);
        } else if self.elected {
            match everywhere {
                true => self.arrive_everywhere(&address),
                false => self.arrive(address, bytes, None),
            }
        } else {
            self.before_arrival(ring);
            // The lanes of the warp have done their part before one of them arrives for all: what they did to the stage, and
            // whatever else the other side relies on.
            self.builder.sync(Sync::Warp);
            match everywhere {
                true => self.arrive_everywhere(&address),
                false => {
                    let leader = (self.arrivals == Arrivals::Warp).then(|| self.first_lane());
                    self.arrive(address, None, leader);
                }
            }
        }
        Ok(Value::Unit)
    }

    /// Arrivals a phase of the roles that give here; the same at every place where they do.
    fn count_arrivals(&mut self, slot: &Slot, copied: bool, site: Site<'_>) -> Result<()> {
        for party in self.parties() {
            let warps = self.resolved.roles.get(party).map_or(self.resolved.block / 32, |role| role.warps);
            let ctas = if slot.side == self.rings[slot.ring].last() { self.releasing(slot.ring) } else { 1 };
            let lanes = if self.arrivals == Arrivals::Lane && ctas == 1 { 32 } else { 1 };
            let arrivals = match (self.elected, copied) {
                (true, _) => 1 + u32::from(copied),
                (false, false) => lanes * warps,
                (false, true) => (32 + lanes) * warps,
            };
            let arrivals = arrivals * ctas;
            let Some(way) = self.rings[slot.ring].ways[slot.side].get_mut(&party) else { continue };
            if way.arrivals.is_some_and(|known| known != arrivals) {
                return Err(Diagnostic::new(
                    656,
                    site,
                    "a stage is filled by asynchronous copies at one place, and without at another",
                )
                .help("copy at both places; `copy_async_if(false, …)` copies zeros"));
            }
            way.arrivals = Some(arrivals);
        }
        Ok(())
    }

    /// Arrives, and announces the bytes of bulk copies.
    fn arrive(&mut self, address: Address, bytes: Option<Src>, guard: Option<kda_ptx::operand::PredSrc>) {
        let (order, scope, space, ty, state) = (None, None, Some(Space::SharedCta), Type::B64, Sink);
        match bytes {
            Some(bytes) => {
                self.builder.guarded(guard, MbarrierArriveExpectTx { order, scope, space, ty, state, address, bytes });
            }
            None => {
                self.builder.guarded(guard, MbarrierArrive { order, scope, space, ty, state, address, count: None });
            }
        }
    }

    /// True in lane 0.
    fn first_lane(&mut self) -> kda_ptx::operand::PredSrc {
        let lane = self.special(kda_ptx::operand::Special::LaneId, Uniform::Thread);
        when(self.builder.pure(Class::Pred, |dst| {
            let dst = DstAndPred { dst: Some(dst), pred: None };
            Setp { compare: Compare::Eq, ftz: Default::default(), ty: Type::U32, dst, a: lane.src(), b: Src::Imm(0) }
                .into()
        }))
    }
}
