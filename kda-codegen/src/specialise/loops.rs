//! Loops: unrolled while compiling, or run.

use super::Specialiser;
use super::join::Copy;
use super::range::{Range, multiple};
use super::site::Site;
use super::trial::Mark;
use super::trips::{Assigned, Trip, Unroll, counter_range, trip_count};
use super::value::{Scalar, Value, class, gcd};
use crate::consteval::Const;
use crate::diag::{Diagnostic, Result};
use crate::kir::{Node, Place, Trips, Uniform, when};
use kda_core::Elem;
use syn::BinOp;
use syn::visit::Visit;

/// Trips of an unrolled loop above which the author is asked whether it is meant.
const MAX_UNROLL: i128 = 4096;

impl Specialiser<'_> {
    /// `for pattern in range { … }`
    pub(super) fn for_loop(&mut self, expr: &syn::ExprForLoop) -> Result<Value> {
        let site = Site::Expr(&expr.expr);
        if let Some(label) = &expr.label {
            return Err(Diagnostic::at(151, label, "labels do not exist in kernels"));
        }
        let unroll = self.unroll_attribute(&expr.attrs)?;
        let range = self.expr(&expr.expr)?;
        let items = match (range, unroll) {
            (Value::Array(_), Unroll::Unsaid) => {
                return Err(Diagnostic::new(161, site, "a loop over an array must be unrolled")
                    .help("write `#[unroll]` before it"));
            }
            (Value::Array(items), _) => items,
            (Value::Tickets(work), unroll) => return self.ticket_loop(expr, &work, &unroll).map(|()| Value::Unit),
            (Value::Range(range), unroll) => {
                let (start, end, step) = *range;
                if step.as_int().is_some_and(|step| step <= 0) {
                    return Err(Diagnostic::new(161, site, "the step of a loop is positive"));
                }
                let trips = trip_count(&start, &end, &step);
                let whole = match (&unroll, trips) {
                    (Unroll::Whole, None) => {
                        let message = "an unrolled loop needs a trip count known while compiling";
                        return Err(Diagnostic::new(161, site, message));
                    }
                    (Unroll::Whole, Some(_)) => true,
                    (Unroll::By(1), _) => false,
                    (Unroll::By(n), Some(trips)) if *n >= trips => true,
                    (Unroll::By(n), _) => {
                        let message = format!("unrolling by {n} is possible only as a whole or not at all");
                        return Err(Diagnostic::new(161, site, message));
                    }
                    // One trip is no loop.
                    (Unroll::Unsaid | Unroll::Rings(_), trips) => matches!(trips, Some(0 | 1)),
                };
                let Some(trips) = trips.filter(|_| whole) else {
                    let rings = if let Unroll::Rings(rings) = unroll { rings } else { Vec::new() };
                    return self.runtime_for(expr, start, end, step, &rings);
                };
                if trips > MAX_UNROLL {
                    return Err(Diagnostic::new(161, site, format!("{trips} trips are too many to unroll")));
                }
                let mut items = Vec::with_capacity(trips as usize);
                let mut value = start;
                for trip in 0..trips {
                    if trip > 0 {
                        value = self.binary(&BinOp::Add(Default::default()), value, step.clone(), site)?;
                    }
                    items.push(value.clone());
                }
                items
            }
            (other, _) => {
                return Err(Diagnostic::new(156, site, format!("{} cannot be looped over", other.describe())));
            }
        };
        self.enter_unrolled(site, items.len() as i128);
        for item in items {
            self.spend(1, site)?;
            self.frame().scopes.push();
            self.bind(&expr.pat, item)?;
            self.block(&expr.body)?;
            self.frame().scopes.pop();
        }
        self.leave_unrolled();
        Ok(Value::Unit)
    }

    /// A loop over a range, run. The counter has a register from the first trial on, so that the body is never compiled
    /// for the first trip alone.
    fn runtime_for(
        &mut self,
        expr: &syn::ExprForLoop,
        start: Value,
        end: Value,
        step: Value,
        rings: &[usize],
    ) -> Result<Value> {
        let site = Site::Expr(&expr.expr);
        let untyped = |v: &Value| matches!(v, Value::Const(Const::Int(_, None)));
        let elem = match (untyped(&start) && untyped(&end), untyped(&step)) {
            (true, true) => self.joined_elem(&start, &end, site)?,
            (true, false) => self.common(&start, &step, site)?,
            (false, _) => self.common(&start, &end, site)?,
        };
        if !matches!(elem, Elem::U32 | Elem::I32 | Elem::U64 | Elem::I64) {
            return Err(Diagnostic::new(156, site, format!("a loop does not count in {elem}")));
        }
        // Each must fit the type of the counter.
        for value in [&start, &end, &step] {
            self.operand(value, elem, site)?;
        }
        let reg = self.builder.fresh(class(elem));
        let (uniform, multiple) = (start.uniform().max(step.uniform()), gcd(multiple(&start), multiple(&step)).max(1));
        // Adding steps wraps by a power of two.
        let multiple = super::range::power_of_two(multiple);
        let counter = Scalar { multiple, ..Scalar::new(elem, reg, uniform) };
        let inside =
            counter_range(elem, Range::of(&start, elem), Range::of(&end, elem), Range::of(&step, elem), multiple);
        self.frame().scopes.push();
        self.frame().scopes.declare("for".into(), Value::Scalar(counter), true);
        let id = self.frame().scopes.len() - 1;
        let head = |this: &mut Self| {
            let now = this.frame().scopes.get(id).value.clone();
            this.binary(&BinOp::Lt(Default::default()), now, end.clone(), site)
        };
        let mut assigned = Assigned::default();
        assigned.visit_block(&expr.body);
        let trips = self.trips_of(counter, [&start, &end, &step], &expr.expr);
        let trip = Trip { expr, id, inside, end: &end, step: &step };
        if rings.is_empty() {
            let body = |this: &mut Self| this.trip(&trip);
            self.runtime_loop(site, vec![(counter, start)], Some(trips), &assigned, head, body)?;
        } else {
            self.ring_loop(&trip, (counter, start), trips, &assigned, rings, head)?;
        }
        self.frame().scopes.pop();
        Ok(Value::Unit)
    }

    /// One trip: the body sees the counter, which then goes on.
    pub(super) fn trip(&mut self, trip: &Trip<'_>) -> Result<()> {
        let now = self.frame().scopes.get(trip.id).value.clone();
        let seen = match &now {
            Value::Scalar(s) => Value::Scalar(Scalar { range: trip.inside, ..*s }),
            other => other.clone(),
        };
        self.frame().scopes.push();
        self.bind(&trip.expr.pat, seen)?;
        self.block(&trip.expr.body)?;
        self.frame().scopes.pop();
        let site = Site::Expr(&trip.expr.expr);
        let next = self.binary(&BinOp::Add(Default::default()), now, trip.step.clone(), site)?;
        self.frame().scopes.get_mut(trip.id).value = next;
        Ok(())
    }

    /// `while condition { … }`
    pub(super) fn while_loop(&mut self, expr: &syn::ExprWhile) -> Result<Value> {
        let site = Site::Expr(&expr.cond);
        if let Some(label) = &expr.label {
            return Err(Diagnostic::at(151, label, "labels do not exist in kernels"));
        }
        let mut assigned = Assigned::default();
        assigned.visit_block(&expr.body);
        let head = |this: &mut Self| {
            let before = this.frame().scopes.snapshot();
            let value = this.expr(&expr.cond)?;
            if this.frame().scopes.snapshot() != before {
                return Err(Diagnostic::new(151, site, "the condition of `while` changes a variable")
                    .help("change it in the body"));
            }
            Ok(value)
        };
        self.runtime_loop(site, Vec::new(), None, &assigned, head, |this| this.block(&expr.body).map(|_| ()))?;
        Ok(Value::Unit)
    }

    /// A loop that runs. The body is tried until the set of values that change in it is known; the last trial is the code.
    pub(super) fn runtime_loop(
        &mut self,
        site: Site<'_>,
        mut phis: Vec<Copy>,
        trips: Option<Trips>,
        assigned: &Assigned,
        head: impl Fn(&mut Self) -> Result<Value>,
        body: impl Fn(&mut Self) -> Result<()>,
    ) -> Result<()> {
        self.settle_all();
        self.check_idle("where a runtime loop begins", site)?;
        self.place(site);
        let place = self.builder.place;
        let mark = self.mark();
        let mut now = mark.locals().clone();
        let mut uniform = phis.iter().map(|(phi, _)| phi.uniform).max().unwrap_or(Uniform::Cta);
        loop {
            self.rewind(&mark);
            self.frame().scopes.restore(&now);
            self.refresh_holdings();
            let trial = match self.trial(site, place, uniform, &head, &body) {
                Ok(trial) => trial,
                Err(error) => {
                    // A constant of the first trip may be an error that the loop as a whole does not have.
                    if matches!(error.code.0, 154 | 164 | 202..=204)
                        && self.loosen(&mark, &mut now, assigned, &mut phis)
                    {
                        continue;
                    }
                    return Err(error);
                }
            };
            let Some(trial) = trial else {
                self.rewind(&mark);
                return Ok(());
            };
            let after = self.frame().scopes.snapshot();
            let mut changed = trial.condition.uniform > uniform;
            uniform = uniform.max(trial.condition.uniform);
            let mut next = Vec::with_capacity(now.len());
            for (value, after) in now.iter().zip(&after) {
                next.push(self.widen(value, after, uniform, &mut phis, &mut changed, site)?);
            }
            if changed {
                now = next;
                continue;
            }
            return self.emit_loop(site, place, trial, trips, &now, &after, &phis, &mark);
        }
    }

    /// One trial of a loop: its code, or `None` if it never runs.
    fn trial(
        &mut self,
        site: Site<'_>,
        place: Place,
        uniform: Uniform,
        head: &impl Fn(&mut Self) -> Result<Value>,
        body: &impl Fn(&mut Self) -> Result<()>,
    ) -> Result<Option<Trial>> {
        self.builder.place = place;
        // Later trips are run by the threads alone for which the condition was true.
        self.control.push(uniform);
        self.conversions.clear();
        self.flight.fenced = false;
        self.builder.open();
        let condition = head(self)?;
        self.check_idle("behind the condition of a runtime loop", site)?;
        let condition = match condition {
            Value::Scalar(s) if s.elem == Elem::Bool => s,
            Value::Const(Const::Bool(false)) => return Ok(None),
            Value::Const(Const::Bool(true)) => self.scalar(&condition, None, site)?,
            other => {
                return Err(Diagnostic::new(156, site, format!("a condition is a bool, not {}", other.describe())));
            }
        };
        let head = self.builder.close();
        self.control.pop();
        self.control.push(condition.uniform.max(uniform));
        self.builder.open();
        let holdings = self.holdings.clone();
        let before = if holdings.is_empty() { Vec::new() } else { self.frame().scopes.snapshot() };
        self.tickets.loops += 1;
        body(self)?;
        self.tickets.loops -= 1;
        self.carry_holdings(&before, &holdings, site)?;
        self.settle_all();
        self.conversions.clear();
        self.flight.fenced = false;
        self.check_landed_by("a runtime loop's body")?;
        if std::mem::take(&mut self.returned) {
            return Err(Diagnostic::new(166, site, "`return` inside a runtime loop")
                .help("carry a condition out of the loop and return behind it"));
        }
        let body = self.builder.close();
        self.control.pop();
        Ok(Some(Trial { head, body, condition }))
    }

    fn emit_loop(
        &mut self,
        site: Site<'_>,
        place: Place,
        trial: Trial,
        trips: Option<Trips>,
        now: &[Value],
        after: &[Value],
        phis: &[Copy],
        mark: &Mark,
    ) -> Result<()> {
        let mut copies = Vec::new();
        for (value, after) in now.iter().zip(after) {
            Self::next_values(value, after, phis, &mut copies);
        }
        let mut body = trial.body;
        self.builder.open();
        self.copy_all(&copies, site)?;
        body.extend(self.builder.close());
        self.copy_all(phis, site)?;
        self.frame().scopes.restore(now);
        self.refresh_holdings();
        // The loop may run no trip.
        self.waited = mark.waited();
        self.builder.push(Node::Loop {
            head: trial.head,
            condition: when(trial.condition.reg),
            uniform: trial.condition.uniform,
            body,
            trips,
            place,
        });
        Ok(())
    }

    /// Gives registers to the typed constants that the body assigns; true if there were any.
    fn loosen(&mut self, mark: &Mark, now: &mut [Value], assigned: &Assigned, phis: &mut Vec<Copy>) -> bool {
        self.rewind(mark);
        let mut any = false;
        for name in &assigned.names {
            let Some(id) = self.frame().scopes.find(name) else { continue };
            let Some(value @ Value::Const(Const::Int(_, Some(elem)))) = now.get(id).cloned() else { continue };
            let scalar = Scalar::new(elem, self.builder.fresh(class(elem)), Uniform::Cta);
            now[id] = Value::Scalar(scalar);
            phis.push((scalar, value));
            any = true;
        }
        any
    }
}

/// Code of a trial.
struct Trial {
    head: crate::kir::Region,
    body: crate::kir::Region,
    condition: Scalar,
}
