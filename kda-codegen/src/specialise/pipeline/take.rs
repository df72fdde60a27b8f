//! Taking a stage: `acquire` and `wait`.

use super::{Holding, SIDES, Slot};
use crate::diag::{Diagnostic, Place as _, Result};
use crate::kir::{MbarrierRole, Node, Sync, Uniform};
use crate::specialise::Specialiser;
use crate::specialise::site::Site;
use crate::specialise::value::Value;
use kda_core::Elem;
use kda_ptx::Class;
use kda_ptx::modifier::*;
use kda_ptx::operand::{Address, PredSrc, Src};
use kda_ptx::table::*;
use syn::BinOp;

impl Specialiser<'_> {
    /// Checks that this role may act on a side of a ring.
    pub(super) fn take_side(&mut self, ring: usize, side: usize, operation: &str, site: Site<'_>) -> Result<()> {
        let fits = match &self.roles {
            None => self.rings[ring].sides[side].is_empty(),
            Some(_) if self.rings[ring].sides[side].is_empty() => {
                return Err(Diagnostic::new(
                    653,
                    site,
                    format!("`{operation}` of a pipeline of the whole CTA, inside a role"),
                ));
            }
            Some(roles) => roles.iter().all(|r| self.rings[ring].sides[side].contains(r)),
        };
        if !fits || self.frames.len() > 1 {
            let names: Vec<_> =
                self.rings[ring].sides[side].iter().map(|r| self.resolved.roles[*r].name.clone()).collect();
            let message = format!(
                "`{operation}` belongs to the {} side of `{}`: the role {}",
                SIDES[side],
                self.rings[ring].name,
                names.join(", ")
            );
            return Err(Diagnostic::new(653, site, message)
                .help("write it in a `#[role(…)]` block of that role, in the kernel itself"));
        }
        Ok(())
    }

    /// `ring.acquire()`, `ring.wait()`
    pub(in crate::specialise) fn take_stage(&mut self, ring: usize, side: usize, site: Site<'_>) -> Result<Value> {
        self.take_side(ring, side, if side == 0 { "acquire" } else { "wait" }, site)?;
        if self.rings[ring].sides[side].is_empty() && !self.elected {
            self.publish_barriers(site)?;
        }
        if side == 1 && self.elected {
            return Err(Diagnostic::new(656, site, "`wait` in one thread; the whole role waits for a stage")
                .help("take it and `release` out of `#[elect_one]`"));
        }
        if self.control() > Uniform::Warp && !self.elected {
            return Err(Diagnostic::new(350, site, "lanes may differ in the branch around this"));
        }
        let (_, stage) = self.state(ring, side, "stage");
        let (_, phase) = self.state(ring, side, "phase");
        // A fresh barrier counts as if the phase before the first had completed: the producer finds every stage empty.
        let parity = match side {
            0 => self.binary(&BinOp::BitXor(Default::default()), phase, Value::u32(1), site)?,
            _ => phase,
        };
        let parity = self.operand(&parity, Elem::U32, site)?;
        let role = if side == 0 { MbarrierRole::Empty } else { MbarrierRole::Full };
        let address = self.barrier_address(ring, role, &stage);
        self.place(site);
        self.spin(address, parity);
        let place_number = self.note_span(site);
        self.builder.sync(Sync::Take { ring, side, span: place_number });
        let id = self.holdings.len() as u32;
        self.holdings.push(Holding { taken: Some(site.ends()), bytes: 0, done: false });
        Ok(Value::Slot(Box::new(Slot { ring, side, stage, id })))
    }

    /// Waits until the phase of that parity has completed.
    pub(super) fn spin(&mut self, address: Address, parity: Src) {
        let done = self.builder.fresh(Class::Pred);
        self.builder.open();
        self.builder.inst(MbarrierTryWait {
            order: None,
            scope: None,
            space: Some(Space::SharedCta),
            ty: Type::B64,
            done,
            address,
            parity,
        });
        let head = self.builder.close();
        let condition = PredSrc { reg: done, negated: true };
        let place = self.builder.place;
        self.builder.push(Node::Loop {
            head,
            condition,
            uniform: Uniform::Thread,
            body: Vec::new(),
            trips: None,
            place,
        });
    }
}
