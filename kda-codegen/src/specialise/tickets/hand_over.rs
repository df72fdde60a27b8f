//! How an item reaches all threads that work on it.

use super::Tickets;
use crate::consteval::Const;
use crate::diag::Result;
use crate::kir::{Sync, Uniform};
use crate::specialise::Specialiser;
use crate::specialise::site::Site;
use crate::specialise::value::{Scalar, SharedView, Value};
use kda_core::Elem;
use kda_ptx::modifier::{AtomicOp, Order, Type};
use kda_ptx::operand::{Special, Src};
use kda_ptx::table::Mov;
use kda_ptx::{Class, Reg};
use syn::BinOp;
use syn::visit::Visit;

/// An item that has been drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawn {
    work: Tickets,
    /// Last item that is known.
    last: Value,
    /// What the counter was, in the thread that draws, and whether it has drawn.
    ticket: Value,
    drawn: Value,
    /// True in the thread that draws; where it puts the item.
    thread: Value,
    turn: Option<Value>,
    /// Register in which all threads get it, and whether they have.
    to: Reg,
    done: bool,
    /// Runtime control around the barriers at which it may be handed over.
    depth: usize,
}

impl Specialiser<'_> {
    /// Draws the next item, if this is the code of the thread that does.
    pub(super) fn draw(
        &mut self,
        work: &Tickets,
        last: Value,
        turn: Option<Value>,
        site: Site<'_>,
    ) -> Result<Option<Drawn>> {
        let thread = match work.ring {
            None => {
                let tid = Value::Scalar(self.special(Special::TidX, Uniform::Thread));
                self.binary(&BinOp::Eq(Default::default()), tid, Value::u32(0), site)?
            }
            Some((_, drawer)) if self.roles.as_deref() == Some(&[drawer]) => Value::Const(Const::Bool(true)),
            Some(_) => return Ok(None),
        };
        if work.ring.is_some() && !self.elected {
            // One thread of the role does all of it at once; nothing of it is left for the others.
            self.elect(site, |this| {
                let drawn = this.drawn(work, last, thread, turn, site)?;
                this.commit_item(&drawn, site)?;
                Ok(Value::Unit)
            })?;
            return Ok(None);
        }
        let drawn = self.drawn(work, last, thread, turn, site)?;
        if work.ring.is_none() {
            self.tickets.drawn = Some(drawn);
            return Ok(None);
        }
        Ok(Some(drawn))
    }

    fn drawn(
        &mut self,
        work: &Tickets,
        last: Value,
        thread: Value,
        turn: Option<Value>,
        site: Site<'_>,
    ) -> Result<Drawn> {
        let [_, count, ctas] = work.bounds.clone();
        let more = self.binary(&BinOp::Lt(Default::default()), last.clone(), count.clone(), site)?;
        let drawn = self.binary(&BinOp::BitAnd(Default::default()), thread.clone(), more, site)?;
        let (sub, mul) = (BinOp::Sub(Default::default()), BinOp::Mul(Default::default()));
        // The number of draws of a launch, less one: there the counter wraps.
        let ahead = self.binary(&mul, ctas, Value::u32(work.ahead - 1), site)?;
        let draws = self.binary(&sub, count, ahead, site)?;
        let limit = self.binary(&sub, draws, Value::u32(1), site)?;
        self.place(site);
        let (op, order) = (AtomicOp::Inc, Order::Relaxed);
        let ticket = self.global_atomic(&work.counter, op, order, &limit, Some(&drawn), site)?;
        let (to, depth) = (self.builder.fresh(Class::B32), self.control.len());
        Ok(Drawn { work: work.clone(), last, ticket, drawn, thread, turn, to, done: false, depth })
    }

    /// The item, in the thread that draws: that of the ticket; behind the last one, or without a counter, that of the range.
    fn item(&mut self, drawn: &Drawn, site: Site<'_>) -> Result<Value> {
        let (add, mul) = (BinOp::Add(Default::default()), BinOp::Mul(Default::default()));
        let [_, _, ctas] = drawn.work.bounds.clone();
        let first = self.binary(&mul, ctas.clone(), Value::u32(drawn.work.ahead), site)?;
        let item = self.binary(&add, drawn.ticket.clone(), first, site)?;
        match drawn.work.counter.present {
            None => self.select(drawn.drawn.clone(), item, drawn.last.clone(), site),
            Some(present) => {
                let present = Value::Scalar(Scalar::new(Elem::Bool, present, Uniform::Cta));
                let given = self.binary(&BinOp::BitAnd(Default::default()), drawn.drawn.clone(), present, site)?;
                let next = self.binary(&add, drawn.last.clone(), ctas, site)?;
                self.select(given, item, next, site)
            }
        }
    }

    /// The next item in all threads, at the end of a trip.
    pub(super) fn receive(&mut self, work: &Tickets, drawn: Option<Drawn>, site: Site<'_>) -> Result<Value> {
        let Some((ring, _)) = work.ring else {
            self.meet_for_item(site)?;
            let to = self.tickets.drawn.take().map_or_else(|| self.builder.fresh(Class::B32), |drawn| drawn.to);
            return Ok(Value::Scalar(Scalar::new(Elem::U32, to, Uniform::Cta)));
        };
        if let Some(drawn) = drawn {
            self.commit_item(&drawn, site)?;
        }
        let Value::Slot(slot) = self.take_stage(ring, true, site)? else { return Ok(Value::Unit) };
        let Value::Shared(view) = self.slot_buffer(&slot, "items", site)? else { return Ok(Value::Unit) };
        let value = self.shared_load(&view, 1, None, site)?;
        self.give_stage(&slot, "release", site)?;
        // One thread has written it for all.
        Ok(match value {
            Value::Scalar(item) => Value::Scalar(Scalar { uniform: Uniform::Cta, ..item }),
            other => other,
        })
    }

    /// Puts the item into the ring.
    fn commit_item(&mut self, drawn: &Drawn, site: Site<'_>) -> Result<()> {
        let Some((ring, _)) = drawn.work.ring else { return Ok(()) };
        let item = self.item(drawn, site)?;
        let Value::Slot(slot) = self.take_stage(ring, false, site)? else { return Ok(()) };
        let Value::Shared(view) = self.slot_buffer(&slot, "items", site)? else { return Ok(()) };
        self.shared_store(&view, &item, None, site)?;
        self.give_stage(&slot, "commit", site).map(|_| ())
    }

    /// A barrier of the CTA for the item alone, if no barrier of the trip has handed it over.
    fn meet_for_item(&mut self, site: Site<'_>) -> Result<()> {
        match &self.tickets.drawn {
            Some(drawn) if !drawn.done => self.cta_barrier(site),
            _ => Ok(()),
        }
    }

    /// All threads of the CTA meet. If every trip of a loop over tickets passes here, the next item goes along.
    pub(in crate::specialise) fn cta_barrier(&mut self, site: Site<'_>) -> Result<()> {
        let waiting = self.tickets.drawn.clone().filter(|drawn| !drawn.done && drawn.depth == self.control.len());
        let place = waiting.as_ref().map(|drawn| self.item_place(drawn));
        if let (Some(drawn), Some(place)) = (&waiting, &place) {
            let item = self.item(drawn, site)?;
            self.shared_store(place, &item, Some(&drawn.thread), site)?;
        }
        self.place(site);
        match self.fresh_barriers {
            Some(_) => self.publish_barriers(site)?,
            None => self.builder.sync(Sync::Cta),
        }
        if let (Some(drawn), Some(place)) = (waiting, place) {
            if let Value::Scalar(item) = self.shared_load(&place, 1, None, site)? {
                self.builder.inst(Mov { ty: Type::B32, dst: drawn.to, src: Src::Reg(item.reg) });
            }
            self.tickets.drawn = Some(Drawn { done: true, ..drawn });
        }
        Ok(())
    }

    /// Two places in turn: one barrier a trip is enough.
    fn item_place(&self, drawn: &Drawn) -> SharedView {
        let runtime = match &drawn.turn {
            Some(Value::Scalar(turn)) => Some(*turn),
            _ => None,
        };
        SharedView { runtime, axes: Vec::new(), ..self.whole_items(drawn.work.buffer, 2) }
    }

    /// A buffer of items.
    pub(super) fn whole_items(&self, buffer: usize, elements: u32) -> SharedView {
        let axes = vec![(Some(u64::from(elements)), 1)];
        SharedView { buffer, elem: Elem::U32, runtime: None, offset: 0, axes, remote: None, slot: None }
    }

    /// Runs one side of a branch. Where a barrier of one side hands the item over, the end of the other does so too; `meets`
    /// says that there is one.
    pub(in crate::specialise) fn handing_over(
        &mut self,
        meets: bool,
        site: Site<'_>,
        side: impl FnOnce(&mut Self) -> Result<Value>,
    ) -> Result<Value> {
        let (here, together) = (self.control.len(), self.control() == Uniform::Cta);
        match &mut self.tickets.drawn {
            Some(drawn) if meets && together && !drawn.done && drawn.depth + 1 == here => drawn.depth = here,
            _ => return side(self),
        }
        let value = side(self)?;
        self.meet_for_item(site)?;
        if let Some(drawn) = &mut self.tickets.drawn {
            drawn.depth = here - 1;
        }
        Ok(value)
    }

    /// True if an item waits for a barrier, and one of the two sides of a branch has one.
    pub(in crate::specialise) fn hands_over(&self, branch: &syn::ExprIf) -> bool {
        self.tickets.drawn.as_ref().is_some_and(|drawn| !drawn.done) && meets(branch)
    }

    /// The item is not handed over yet, as ahead of a branch.
    pub(in crate::specialise) fn before_side(&mut self, done: bool) {
        if let Some(drawn) = &mut self.tickets.drawn {
            drawn.done = done;
        }
    }

    /// True if the item that is drawn has been handed over.
    pub(in crate::specialise) fn handed_over(&self) -> bool {
        self.tickets.drawn.as_ref().is_some_and(|drawn| drawn.done)
    }
}

/// True if one of the two sides of a branch calls `cta_sync()` itself.
fn meets(branch: &syn::ExprIf) -> bool {
    struct Meets(bool);
    impl<'ast> Visit<'ast> for Meets {
        fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
            self.0 |= matches!(call.func.as_ref(), syn::Expr::Path(path) if path.path.is_ident("cta_sync"));
            syn::visit::visit_expr_call(self, call);
        }
        // A loop may run no trip.
        fn visit_expr_for_loop(&mut self, _: &'ast syn::ExprForLoop) {}
        fn visit_expr_while(&mut self, _: &'ast syn::ExprWhile) {}
    }
    let mut found = Meets(false);
    found.visit_block(&branch.then_branch);
    if let Some((_, other)) = &branch.else_branch {
        found.visit_expr(other);
    }
    found.0
}
