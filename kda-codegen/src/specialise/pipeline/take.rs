//! Taking a stage: `acquire` and `wait`, at once or after a look with `peek`.

use super::{CTA, Holding, Peek, Slot, Way};
use crate::diag::{Diagnostic, Place as _, Result};
use crate::kir::{Branch, Node, Sync, Uniform};
use crate::specialise::Specialiser;
use crate::specialise::site::Site;
use crate::specialise::value::Value;
use kda_core::{Arch, Elem};
use kda_ptx::modifier::*;
use kda_ptx::operand::{Address, PredSrc, Src};
use kda_ptx::table::*;
use kda_ptx::{Class, Reg};
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

    /// The side behind the first that the roles here stand on, if there is one.
    fn side_that_waits(&self, ring: usize) -> Option<usize> {
        let (parties, sides) = (self.parties(), &self.rings[ring].sides);
        (1..sides.len()).find(|s| parties.iter().all(|r| sides[*s].contains(r)))
    }

    /// `ring.peek()`: whether the next stage is there already.
    pub(in crate::specialise) fn peek_stage(&mut self, ring: usize, site: Site<'_>) -> Result<Value> {
        let waits = self.side_that_waits(ring);
        let produces = self.parties().iter().all(|r| self.rings[ring].sides[0].contains(r));
        if self.roles.is_none() || waits.is_some() && produces {
            return Err(Diagnostic::new(653, site, "`peek` in threads that are on both sides of the pipeline")
                .help("write `wait()` or `acquire()` alone"));
        }
        let side = waits.unwrap_or(0);
        self.check_side(ring, side, "peek", site)?;
        self.warp_in_step("`peek()`", site)?;
        let state = self.state(ring, side, site)?;
        let (address, parity) = self.barrier_ahead(ring, side, site)?;
        let ready = self.builder.fresh(Class::Pred);
        self.place(site);
        self.try_wait(ready, address, parity);
        let (depth, span) = (self.control.len(), self.note_span(site));
        Ok(Value::Peek(Box::new(Peek { ring, side, ready, state, depth, span })))
    }

    /// `peek.acquire()`, `peek.wait()`
    pub(in crate::specialise) fn take_peeked(&mut self, peek: &Peek, waits: bool, site: Site<'_>) -> Result<Value> {
        let now = self.state(peek.ring, peek.side, site)?;
        if now != peek.state || self.control.len() != peek.depth {
            let message = "the stage that was looked at may have been taken before";
            return Err(Diagnostic::new(654, site, message)
                .note(self.spans[peek.span].0, "it was looked at here")
                .help("look and wait in the same block, and take no other stage of the pipeline in between"));
        }
        self.take(peek.ring, waits, Some(peek.ready), site)
    }

    /// `ring.acquire()`, `ring.wait()`
    pub(in crate::specialise) fn take_stage(&mut self, ring: usize, waits: bool, site: Site<'_>) -> Result<Value> {
        self.take(ring, waits, None, site)
    }

    /// The same; `ready` is true if the stage is known to be there.
    fn take(&mut self, ring: usize, waits: bool, ready: Option<Reg>, site: Site<'_>) -> Result<Value> {
        let parties = self.parties();
        let side = match waits {
            false => 0,
            true => self.side_that_waits(ring).unwrap_or(self.rings[ring].last()),
        };
        self.check_side(ring, side, if waits { "wait" } else { "acquire" }, site)?;
        if self.rings[ring].whole_cta() && !self.elected {
            self.publish_barriers(site)?;
        }
        self.warp_in_step(if waits { "`wait()`" } else { "`acquire()`" }, site)?;
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
        let (stage, _) = self.state(ring, side, site)?;
        let fresh = ready.is_none() && self.is_fresh(ring, side, site)?;
        self.place(site);
        if !fresh {
            self.wait_for_stage(ring, side, ready, site)?;
        }
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
            branches: self.branches,
            carried: false,
            bytes: None,
            copied: false,
            stored: false,
            done: false,
        });
        self.advance_state(ring, side, site)?;
        Ok(Value::Slot(Box::new(Slot { ring, side, stage, id })))
    }

    /// True for a stage that nobody has filled before: there is nothing to wait for. Stage and phase are known to be the first
    /// of a role, no loop comes here again, and the code so far has not gone round the ring.
    fn is_fresh(&self, ring: usize, side: usize, site: Site<'_>) -> Result<bool> {
        let (stage, phase) = self.state(ring, side, site)?;
        let first = stage.as_int().is_some() && phase.as_int() == Some(0);
        let in_loop = self.control.len() > self.branches;
        let taken = self.holdings.iter().filter(|h| (h.ring, h.side) == (ring, 0)).count();
        Ok(side == 0 && first && !in_loop && !self.rings[ring].restarts && taken < self.rings[ring].stages as usize)
    }

    /// Waits for the stage that a side takes next.
    fn wait_for_stage(&mut self, ring: usize, side: usize, ready: Option<Reg>, site: Site<'_>) -> Result<()> {
        let (address, parity) = self.barrier_ahead(ring, side, site)?;
        match ready {
            None => self.spin(address, parity),
            Some(ready) => {
                self.builder.open();
                self.spin(address, parity);
                let then = self.builder.close();
                let (condition, place) = (PredSrc { reg: ready, negated: true }, self.builder.place);
                let (uniform, branch, other) = (Uniform::Thread, Branch::Plain, Vec::new());
                self.builder.push(Node::If { condition, uniform, branch, then, other, place });
            }
        }
        Ok(())
    }

    /// The barrier for which a side waits next, and the parity of the phase.
    fn barrier_ahead(&mut self, ring: usize, side: usize, site: Site<'_>) -> Result<(Address, Src)> {
        // The producing side comes back to a stage.
        self.rings[ring].reused |= side == 0;
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
        Ok((address, parity))
    }

    /// Waits until the phase of that parity has completed.
    pub(in crate::specialise) fn spin(&mut self, address: Address, parity: Src) {
        let done = self.builder.fresh(Class::Pred);
        self.builder.open();
        self.try_wait(done, address, parity);
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
        // Products that follow a loop while others run: without a fence of their own `ptxas` adds one, and serialises them.
        self.flight.fenced = false;
    }

    fn try_wait(&mut self, done: Reg, address: Address, parity: Src) {
        let (order, scope, space, ty) = (None, None, Some(Space::SharedCta), Type::B64);
        if self.variant.arch.has(Arch::SM_90) {
            self.builder.inst(MbarrierTryWait { order, scope, space, ty, done, address, parity });
        } else {
            self.builder.inst(MbarrierTestWait { order, scope, space, ty, done, address, parity });
        }
    }
}
