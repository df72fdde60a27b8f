//! Giving a stage: `commit` and `release`.

use super::{SIDES, Slot};
use crate::diag::{Diagnostic, Result};
use crate::kir::{MbarrierRole, Sync, Uniform, when};
use crate::specialise::Specialiser;
use crate::specialise::site::Site;
use crate::specialise::value::Value;
use kda_ptx::Class;
use kda_ptx::modifier::*;
use kda_ptx::operand::{DstAndPred, Sink, Src};
use kda_ptx::table::*;

impl Specialiser<'_> {
    /// `slot.commit()`, `slot.release()`
    pub(in crate::specialise) fn give_stage(&mut self, slot: &Slot, side: usize, site: Site<'_>) -> Result<Value> {
        let operation = if side == 0 { "commit" } else { "release" };
        if slot.side != side {
            let right = if slot.side == 0 { "commit" } else { "release" };
            return Err(Diagnostic::new(
                653,
                site,
                format!("`{operation}` of a stage of the {} side", SIDES[slot.side]),
            )
            .help(format!("write `{right}()`")));
        }
        self.take_side(slot.ring, side, operation, site)?;
        if self.holdings[slot.id as usize].done {
            return Err(self.gone(slot, site));
        }
        self.holdings[slot.id as usize].done = true;
        let bytes = self.holdings[slot.id as usize].bytes;
        let warps: u32 = match self.rings[slot.ring].sides[side].as_slice() {
            [] => self.resolved.block / 32,
            roles => roles.iter().map(|r| self.resolved.roles[*r].warps).sum(),
        };
        let (role, count) = match (side, bytes > 0 || self.elected) {
            (0, true) => (MbarrierRole::Full, 1),
            (0, false) => (MbarrierRole::Full, warps),
            _ => (MbarrierRole::Empty, warps),
        };
        if side == 1 {
            self.check_products(slot, site)?;
            if self.elected {
                return Err(Diagnostic::new(
                    656,
                    site,
                    "`release` in one thread; every warp of the role releases a stage",
                ));
            }
        }
        let known = &mut self.rings[slot.ring].counts[side];
        if known.is_some_and(|known| known != count) {
            return Err(Diagnostic::new(
                656,
                site,
                "this stage is committed by one thread here and by the whole role elsewhere",
            ));
        }
        *known = Some(count);
        let address = self.barrier_address(slot.ring, role, &slot.stage);
        self.place(site);
        self.builder.sync(Sync::Give { ring: slot.ring, side });
        let (order, scope, space, ty) = (None, None, Some(Space::SharedCta), Type::B64);
        if self.elected {
            if bytes > 0 {
                self.builder.inst(MbarrierArriveExpectTx {
                    order,
                    scope,
                    space,
                    ty,
                    state: Sink,
                    address,
                    bytes: Src::Imm(bytes as i64),
                });
            } else {
                self.builder.inst(MbarrierArrive { order, scope, space, ty, state: Sink, address, count: None });
            }
        } else {
            if self.control() > Uniform::Warp {
                return Err(Diagnostic::new(350, site, "lanes may differ in the branch around this"));
            }
            // The lanes of the warp have done their part before one of them arrives for all.
            self.builder.sync(Sync::Warp);
            let lane = self.special(kda_ptx::operand::Special::LaneId, Uniform::Thread);
            let leader = self.builder.pure(Class::Pred, |dst| {
                let dst = DstAndPred { dst: Some(dst), pred: None };
                Setp {
                    compare: Compare::Eq,
                    ftz: Default::default(),
                    ty: Type::U32,
                    dst,
                    a: lane.src(),
                    b: Src::Imm(0),
                }
                .into()
            });
            let arrive = MbarrierArrive { order, scope, space, ty, state: Sink, address, count: None };
            self.builder.guarded(Some(when(leader)), arrive);
        }
        self.advance_state(slot.ring, side, site)?;
        Ok(Value::Unit)
    }

    /// Every stage that was taken since `from` has been given back.
    pub(in crate::specialise) fn check_holdings(&self, from: usize) -> Result<()> {
        for holding in &self.holdings[from..] {
            if let (false, Some(taken)) = (holding.done, holding.taken) {
                return Err(Diagnostic::new(654, taken, "this stage is neither committed nor released")
                    .help("the producing side ends with `slot.commit();`, the consuming side with `slot.release();`"));
            }
        }
        Ok(())
    }
}
