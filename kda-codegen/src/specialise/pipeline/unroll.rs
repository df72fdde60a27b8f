//! `#[unroll(ring)]`: a loop whose trips are copied for each stage, so that stages are known in each copy.
//!
//! A trip of the emitted loop holds as many copies of the body as the rings have stages, their least common multiple; each
//! but the first runs if there is one trip more. Behind the last one every ring is where it was at the start, so stages are
//! constants; behind the loop they are runtime values. A loop that is entered at a stage that is not known first runs trips
//! with runtime stages until all rings are at stage 0.

use super::Slot;
use crate::consteval::Const;
use crate::diag::{Diagnostic, Result};
use crate::kir::{Branch, Trips};
use crate::specialise::Specialiser;
use crate::specialise::join::Copy;
use crate::specialise::site::Site;
use crate::specialise::trips::{Assigned, Trip};
use crate::specialise::value::{Scalar, Value, class, gcd};
use kda_core::Elem;
use syn::BinOp;

/// Copies of a body beyond which the author is asked whether it is meant.
const MAX_COPIES: u64 = 32;

/// A stage that is known at the start of each trip: a local that holds it, and the local that keeps it for the time behind
/// the loop.
struct Pin {
    local: usize,
    start: Value,
    exit: usize,
}

impl Specialiser<'_> {
    /// A loop over a range, copied for the stages of these rings.
    pub(in crate::specialise) fn ring_loop(
        &mut self,
        trip: &Trip<'_>,
        counter: Copy,
        trips: Trips,
        assigned: &Assigned,
        rings: &[usize],
        head: impl Fn(&mut Self) -> Result<Value>,
    ) -> Result<()> {
        let site = Site::Expr(&trip.expr.expr);
        if self.frames.len() > 1 {
            return Err(Diagnostic::new(
                161,
                site,
                "a loop that is unrolled by a pipeline stands in the kernel itself",
            ));
        }
        let period = rings.iter().map(|ring| u64::from(self.rings[*ring].stages)).fold(1, |a, b| a / gcd(a, b) * b);
        if period > MAX_COPIES {
            let message = format!("the stages of these pipelines come round after {period} trips");
            return Err(Diagnostic::new(161, site, message)
                .help(format!("give them depths of which {MAX_COPIES} or less is a common multiple")));
        }
        let locals = self.stage_locals(rings);
        let known = locals.iter().all(|local| self.stage_in(*local).as_int().is_some());
        let (mut counter, mut start) = counter;
        if !known {
            if locals.iter().any(|local| matches!(self.frame().scopes.get(*local).value, Value::Slot(_))) {
                return Err(Diagnostic::new(161, site, "the stage that goes round the loop is not known at its start")
                    .help("unroll loops that begin at the first stage of the pipeline"));
            }
            let unaligned = |this: &mut Self| {
                let more = head(this)?;
                let off = this.off_first_stage(&locals, site)?;
                this.binary(&BinOp::BitAnd(Default::default()), more, off, site)
            };
            let body = |this: &mut Self| this.trip(trip);
            self.runtime_loop(site, vec![(counter, start)], Some(Trips::Part), assigned, unaligned, body)?;
            start = self.frame().scopes.get(trip.id).value.clone();
            let reg = self.builder.fresh(class(counter.elem));
            let text = self.counters.get(&counter.reg).cloned();
            self.counters.extend(text.map(|text| (reg, text)));
            counter = Scalar { reg, ..counter };
            self.frame().scopes.get_mut(trip.id).value = Value::Scalar(counter);
        }
        let mut pins = Vec::new();
        for local in locals {
            let before = self.stage_in(local);
            self.frame().scopes.declare("stage behind the loop".into(), before.clone(), true);
            let exit = self.frame().scopes.len() - 1;
            let start = if known { before } else { Value::u32(0) };
            self.set_stage(local, start.clone());
            pins.push(Pin { local, start, exit });
        }
        let body = |this: &mut Self| {
            this.copies_of_trip(trip, period, &pins)?;
            // Whoever goes on has run all copies.
            for pin in &pins {
                let stage = this.stage_in(pin.local);
                this.frame().scopes.get_mut(pin.exit).value = stage;
                this.set_stage(pin.local, pin.start.clone());
            }
            Ok(())
        };
        self.runtime_loop(site, vec![(counter, start)], Some(trips), assigned, head, body)?;
        for pin in &pins {
            let stage = self.frame().scopes.get(pin.exit).value.clone();
            self.set_stage(pin.local, stage);
        }
        self.refresh_holdings();
        Ok(())
    }

    /// A copy of the body, and the copies behind it if there is a trip more.
    fn copies_of_trip(&mut self, trip: &Trip<'_>, left: u64, pins: &[Pin]) -> Result<()> {
        let site = Site::Expr(&trip.expr.expr);
        self.spend(1, site)?;
        self.trip(trip)?;
        if left == 1 {
            if let Some(pin) = pins.iter().find(|pin| self.stage_in(pin.local) != pin.start) {
                let _ = pin;
                return Err(Diagnostic::new(161, site, "a trip takes a number of stages that is not known")
                    .help("take as many stages in every trip, outside branches and loops inside it"));
            }
            return Ok(());
        }
        let now = self.frame().scopes.get(trip.id).value.clone();
        let more = self.binary(&BinOp::Lt(Default::default()), now, trip.end.clone(), site)?;
        match more {
            Value::Scalar(more) => {
                let further = |this: &mut Self| this.copies_of_trip(trip, left - 1, pins).map(|()| Value::Unit);
                self.branch(more, site, further, |_| Ok(Value::Unit))?;
                self.builder.mark_branch(Branch::NextTrip);
                Ok(())
            }
            Value::Const(Const::Bool(true)) => self.copies_of_trip(trip, left - 1, pins),
            _ => Ok(()),
        }
    }

    /// True while a ring is at another stage than its first.
    fn off_first_stage(&mut self, locals: &[usize], site: Site<'_>) -> Result<Value> {
        let mut off = Value::Const(Const::Bool(false));
        for local in locals {
            let stage = self.stage_in(*local);
            let this = self.binary(&BinOp::Ne(Default::default()), stage, Value::u32(0), site)?;
            off = self.binary(&BinOp::BitOr(Default::default()), off, this, site)?;
        }
        // A constant has no register to branch on.
        match off {
            Value::Const(_) => self.scalar(&off, Some(Elem::Bool), site).map(Value::Scalar),
            other => Ok(other),
        }
    }

    /// The stage in a local: a state, or a slot.
    fn stage_in(&self, local: usize) -> Value {
        match &self.frames[0].scopes.get(local).value {
            Value::Slot(slot) => slot.stage.clone(),
            other => other.clone(),
        }
    }

    fn set_stage(&mut self, local: usize, stage: Value) {
        let value = &mut self.frames[0].scopes.get_mut(local).value;
        *value = match &*value {
            Value::Slot(slot) => Value::Slot(Box::new(Slot { stage, ..**slot })),
            _ => stage,
        };
    }

    /// Slots in variables say at which stages their holdings are.
    pub(in crate::specialise) fn refresh_holdings(&mut self) {
        if self.holdings.is_empty() {
            return;
        }
        for value in self.frames[0].scopes.snapshot() {
            if let Value::Slot(slot) = value
                && let Some(holding) = self.holdings.get_mut(slot.id as usize)
            {
                holding.stage = slot.stage;
            }
        }
    }

    /// At the end of a loop's body: stages taken in it have been given, or are those with which the next trip begins; stages
    /// taken ahead of it are held as before.
    pub(in crate::specialise) fn carry_holdings(
        &mut self,
        before: &[Value],
        holdings: &[super::Holding],
        site: Site<'_>,
    ) -> Result<()> {
        let after = if before.is_empty() { Vec::new() } else { self.frame().scopes.snapshot() };
        for (before, after) in before.iter().zip(&after) {
            let (Value::Slot(first), Value::Slot(last)) = (before, after) else { continue };
            if first.id == last.id || (first.ring, first.side) != (last.ring, last.side) {
                continue;
            }
            let (was, is) = (&holdings[first.id as usize], &self.holdings[last.id as usize]);
            if was.done || is.done || !self.holdings[first.id as usize].done {
                continue;
            }
            if [was, is].iter().any(|h| h.bytes.is_some() || h.copied || h.stored) {
                return Err(Diagnostic::new(
                    654,
                    site,
                    "copies of a stage that goes round the loop are under way at its end",
                )
                .note(is.taken.0, "it is taken here")
                .help("copy into a stage, or out of it, in the trip that gives it"));
            }
            let taken = is.taken;
            self.holdings[last.id as usize].done = true;
            self.holdings[first.id as usize] = super::Holding { taken, carried: true, ..was.clone() };
        }
        for (id, was) in holdings.iter().enumerate() {
            if !was.done && self.holdings[id].done {
                return Err(Diagnostic::new(
                    654,
                    was.taken,
                    "this stage is given in a loop that may run more than once",
                )
                .help("take it in the loop too, or give it behind the loop"));
            }
        }
        self.check_holdings(holdings.len())
    }
}
