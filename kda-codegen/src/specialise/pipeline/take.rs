//! Taking a stage: `acquire` and `wait`.

use super::{CTA, Holding, Slot, Way};
use crate::diag::{Diagnostic, Place as _, Result};
use crate::kir::{Node, Sync, Uniform};
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
    /// Checks that the roles that act here may act on a side of a ring.
    pub(super) fn check_side(&self, ring: usize, side: usize, operation: &str, site: Site<'_>) -> Result<()> {
        let ring = &self.rings[ring];
        if ring.whole_cta() && self.roles.is_some() {
            let message = format!("`{operation}` of a pipeline of the whole CTA, inside a role");
            return Err(Diagnostic::new(653, site, message));
        }
        let roles = &ring.sides[side];
        let fits = self.parties().iter().all(|r| roles.contains(r) || (*r == CTA && roles.is_empty()));
        if fits && self.frames.len() == 1 {
            return Ok(());
        }
        let names: Vec<_> = roles.iter().map(|r| self.resolved.roles[*r].name.clone()).collect();
        let message = format!(
            "`{operation}` belongs to the {} side of `{}`: the role {}",
            ring.side_name(side),
            ring.name,
            names.join(", ")
        );
        Err(Diagnostic::new(653, site, message)
            .help("write it in a `#[role(…)]` block of that role, in the kernel itself"))
    }

    /// `ring.acquire()`, `ring.wait()`
    pub(in crate::specialise) fn take_stage(&mut self, ring: usize, waits: bool, site: Site<'_>) -> Result<Value> {
        let parties = self.parties();
        let sides = &self.rings[ring].sides;
        let side = match waits {
            false => 0,
            true => (1..sides.len()).find(|s| parties.iter().all(|r| sides[*s].contains(r))).unwrap_or(sides.len() - 1),
        };
        self.check_side(ring, side, if waits { "wait" } else { "acquire" }, site)?;
        if self.rings[ring].whole_cta() && !self.elected {
            self.publish_barriers(site)?;
        }
        if self.control() > Uniform::Warp && !self.elected {
            return Err(Diagnostic::new(350, site, "lanes may differ in the branch around this"));
        }
        let elected = self.elected;
        for party in parties {
            let way = self.rings[ring].ways[side].entry(party).or_insert(Way { elected, arrivals: None });
            if way.elected != elected {
                let (here, there) =
                    if elected { ("one thread", "the whole role") } else { ("the whole role", "one thread") };
                let message = format!("a stage is taken by {here} here and by {there} elsewhere");
                return Err(Diagnostic::new(656, site, message)
                    .help("put all of this side under `#[elect_one]`, or none of it"));
            }
        }
        let (stage, phase) = self.state(ring, side, site)?;
        let phase = self.parity(ring, &stage, phase, site)?;
        // A fresh barrier counts as if the phase before the first had completed: the producer finds every stage empty.
        let parity = match side {
            0 => self.binary(&BinOp::BitXor(Default::default()), phase, Value::u32(1), site)?,
            _ => phase,
        };
        let parity = self.operand(&parity, Elem::U32, site)?;
        let before = side.checked_sub(1).unwrap_or(self.rings[ring].last());
        let address = self.barrier_address(ring, self.barrier_of(ring, before), &stage);
        self.place(site);
        self.spin(address, parity);
        let span = self.note_span(site);
        self.builder.sync(Sync::Take { ring, side, span });
        self.after_take(ring, side);
        let id = self.holdings.len() as u32;
        self.holdings.push(Holding {
            ring,
            side,
            stage: stage.clone(),
            taken: site.ends(),
            elected,
            depth: self.control.len(),
            bytes: None,
            copied: false,
            stored: false,
            done: false,
        });
        self.advance_state(ring, side, site)?;
        Ok(Value::Slot(Box::new(Slot { ring, side, stage, id })))
    }

    /// Waits until the phase of that parity has completed.
    fn spin(&mut self, address: Address, parity: Src) {
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
