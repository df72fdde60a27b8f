//! Work that is handed out by a counter in global memory.
//!
//! `(rank..count).step_by(ctas).tickets(counter)` are the items of one of `ctas` CTAs that share the counter. Its first items
//! are those of the range; further ones are drawn, each by one thread of one of the CTAs: ticket t is item
//! `ahead * ctas + t`, where `ahead` items are known in advance. A CTA draws as long as the last item that it knows is below
//! `count`, so that the CTAs together draw `count - (ahead - 1) * ctas` times, and the counter, which wraps there, ends at
//! zero again. Without a counter the items are those of the range.
//!
//! One item is drawn a trip. It is drawn where the trip begins and handed over in shared memory: outside roles at a barrier of
//! the CTA, the first one that every trip passes, or a derived one at its end; between roles by a derived ring, from one
//! thread of the role that loops over the work first to all roles that do.
//!
//! | question | file |
//! | --- | --- |
//! | the work: declaration, the loop over it | here |
//! | how an item reaches all threads | `hand_over` |

mod hand_over;

use super::Specialiser;
use super::range::Range;
use super::site::Site;
use super::trips::{Assigned, Unroll};
use super::value::{GlobalView, Scalar, Value};
use crate::compiled::SharedBuffer;
use crate::diag::{Diagnostic, Result};
use crate::kir::{Trips, Uniform};
use hand_over::Drawn;
use kda_core::Elem;
use kda_ptx::Class;
use std::collections::BTreeSet;
use syn::visit::Visit;
use syn::{BinOp, Expr, GenericArgument};

/// Items on their way from the drawing thread to the roles.
const STAGES: u32 = 4;

/// Items of a CTA.
#[derive(Clone, Debug, PartialEq)]
pub struct Tickets {
    /// Number of the work in the kernel.
    id: usize,
    /// The counter.
    counter: GlobalView,
    /// Number of the CTA, number of items, number of CTAs.
    bounds: [Value; 3],
    /// Items that are known in a trip.
    ahead: u32,
    /// Buffer of the items that are handed over.
    buffer: usize,
    /// Ring between roles, and the role that draws.
    ring: Option<(usize, usize)>,
}

/// What is known of all work while the kernel is compiled.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Number of works so far.
    count: usize,
    /// Loops over works: the work and the role, `None` outside roles.
    looped: Vec<(usize, Option<usize>)>,
    /// Runtime loops around the code.
    pub loops: usize,
    /// The item that is drawn and not yet handed over, outside roles.
    drawn: Option<Drawn>,
}

impl Specialiser<'_> {
    /// `range.tickets::<AHEAD>(counter)`
    pub(super) fn tickets(
        &mut self,
        bounds: (Value, Value, Value),
        ahead: Option<&GenericArgument>,
        args: &[&Expr],
        site: Site<'_>,
    ) -> Result<Value> {
        let name = self.naming.take();
        let [counter] = self.arguments("tickets", args, site)?;
        let ahead = match ahead {
            None => 1,
            Some(argument) => match self.generic_value(argument)?.as_int() {
                Some(n) if (1..=8).contains(&n) => n as u32,
                _ => return Err(Diagnostic::new(155, site, "1 to 8 items can be known in advance")),
            },
        };
        let counter = match counter {
            Value::Global(view) if view.elem == Elem::U32 && view.uniform == Uniform::Cta => *view,
            other => {
                let message =
                    format!("tickets are drawn from an element of a `GlobalMut<u32>`, not from {}", other.describe());
                return Err(Diagnostic::new(156, site, message).help("write `.tickets(counter.at([0]))`"));
            }
        };
        if self.control() > Uniform::Cta || self.frames.len() > 1 || self.roles.is_some() {
            return Err(Diagnostic::new(161, site, "tickets inside a role, a branch or a device function")
                .help("write `let work = (ctaid.x..count).step_by(nctaid.x).tickets(counter);` in the kernel, ahead of the roles"));
        }
        let mut typed = Vec::with_capacity(3);
        for bound in [bounds.0, bounds.1, bounds.2] {
            if bound.uniform() > Uniform::Cta {
                return Err(Diagnostic::new(161, site, "the bounds of tickets differ between threads of the CTA"));
            }
            self.operand(&bound, Elem::U32, site)?;
            typed.push(bound);
        }
        let Ok(bounds) = <[Value; 3]>::try_from(typed) else { return Ok(Value::Unit) };
        let id = self.tickets.count;
        self.tickets.count += 1;
        let ring = match &name {
            Some(name) => self.roles_over(name, site)?,
            None => None,
        };
        let name = name.unwrap_or_else(|| "tickets".into());
        let elements = if ring.is_some() { STAGES } else { 2 };
        let desc = SharedBuffer {
            name: format!("{name}.items"),
            offset: 0,
            bytes: 4 * elements,
            align: 16,
            elem: Elem::U32,
            shape: vec![elements],
        };
        let buffer = self.place_buffer(desc, site);
        let ring = match ring {
            None => None,
            Some((drawer, roles)) => {
                let items = Value::Shared(Box::new(self.whole_items(buffer, elements)));
                let sides = vec![vec![drawer], roles];
                Some((self.add_ring(name, sides, STAGES, vec![("items".into(), items)], site)?, drawer))
            }
        };
        Ok(Value::Tickets(Box::new(Tickets { id, counter, bounds, ahead, buffer, ring })))
    }

    /// The roles that loop over this variable, and the one that draws for them: the first that does so alone.
    fn roles_over(&self, name: &str, site: Site<'_>) -> Result<Option<(usize, Vec<usize>)>> {
        let mut loops = Loops { work: name, role: Vec::new(), found: Vec::new() };
        loops.visit_block(&self.kernel.body);
        let index = |name: &String| self.resolved.roles.iter().position(|r| r.name == *name);
        let found: Vec<Vec<usize>> = loops.found.iter().map(|names| names.iter().filter_map(index).collect()).collect();
        if found.is_empty() {
            return Ok(None);
        }
        let Some(drawer) = found.iter().find_map(|roles| if let [one] = roles.as_slice() { Some(*one) } else { None })
        else {
            return Err(Diagnostic::new(
                161,
                site,
                "tickets are drawn by one role, but each loop over them is of several",
            )
            .help("give at least one role a loop of its own"));
        };
        let all: BTreeSet<usize> = found.into_iter().flatten().collect();
        Ok(Some((drawer, all.into_iter().collect())))
    }

    /// `for item in work`, `for [item, next] in work`
    pub(super) fn ticket_loop(&mut self, expr: &syn::ExprForLoop, work: &Tickets, unroll: &Unroll) -> Result<()> {
        let site = Site::Expr(&expr.expr);
        if !matches!(unroll, Unroll::Unsaid) {
            return Err(Diagnostic::new(161, site, "a loop over tickets is not unrolled"));
        }
        self.enter_work(work, site)?;
        let [rank, count, ctas] = work.bounds.clone();
        let key = format!("tickets {}", work.id);
        let (add, mul) = (BinOp::Add(Default::default()), BinOp::Mul(Default::default()));
        self.frame().scopes.push();
        let first = self.frame().scopes.len();
        let mut phis = Vec::new();
        for n in 0..work.ahead {
            let item = Scalar::new(Elem::U32, self.builder.fresh(Class::B32), Uniform::Cta);
            let steps = self.binary(&mul, ctas.clone(), Value::u32(n), site)?;
            let start = self.binary(&add, rank.clone(), steps, site)?;
            // The same in all roles, in the same trip.
            self.counters.insert(item.reg, format!("counter({key}, {n} ahead)"));
            self.frame().scopes.declare("for".into(), Value::Scalar(item), true);
            phis.push((item, start));
        }
        let turn = first + work.ahead as usize;
        if work.ring.is_none() {
            let scalar = Scalar {
                range: Range { least: 0, most: 1 },
                ..Scalar::new(Elem::U32, self.builder.fresh(Class::B32), Uniform::Cta)
            };
            self.frame().scopes.declare("for".into(), Value::Scalar(scalar), true);
            phis.push((scalar, Value::u32(0)));
        }
        let mut assigned = Assigned::default();
        assigned.visit_block(&expr.body);
        let trips = Trips::Expression { key, start: 0, least: 0, text: crate::syntax::text::expr(&expr.expr) };
        let head = |this: &mut Self| {
            let item = this.frame().scopes.get(first).value.clone();
            this.binary(&BinOp::Lt(Default::default()), item, count.clone(), site)
        };
        let trip = |this: &mut Self| {
            let known: Vec<Value> =
                (first..first + work.ahead as usize).map(|id| this.frame().scopes.get(id).value.clone()).collect();
            let at = work.ring.is_none().then(|| this.frame().scopes.get(turn).value.clone());
            let drawn = this.draw(work, known.last().cloned().unwrap_or(Value::Unit), at, site)?;
            let mut seen = known.clone();
            if let Some(Value::Scalar(item)) = seen.first_mut() {
                let most = Range::of(&count, Elem::U32).most - 1;
                item.range = Range { least: 0, most: most.max(0) };
            }
            let pattern = match (work.ahead, seen.pop()) {
                (1, Some(item)) => item,
                (_, last) => Value::Array(seen.into_iter().chain(last).collect()),
            };
            this.frame().scopes.push();
            this.bind(&expr.pat, pattern)?;
            this.block(&expr.body)?;
            this.frame().scopes.pop();
            let next = this.receive(work, drawn, site)?;
            let shifted = known.into_iter().skip(1).chain([next]);
            for (id, value) in (first..).zip(shifted) {
                this.frame().scopes.get_mut(id).value = value;
            }
            if work.ring.is_none() {
                let before = this.frame().scopes.get(turn).value.clone();
                let after = this.binary(&BinOp::BitXor(Default::default()), before, Value::u32(1), site)?;
                this.frame().scopes.get_mut(turn).value = after;
            }
            Ok(())
        };
        self.runtime_loop(site, phis, Some(trips), &assigned, head, trip)?;
        self.frame().scopes.pop();
        Ok(())
    }

    /// Checks that the work is looped over here, and once.
    fn enter_work(&mut self, work: &Tickets, site: Site<'_>) -> Result<()> {
        let wrong = |message: &str| Diagnostic::new(161, site, message.to_string());
        if self.frames.len() > 1 || self.tickets.loops > 0 || self.tickets.drawn.is_some() {
            return Err(wrong("a loop over tickets inside another loop or a device function")
                .help("the items of a launch are handed out once: loop over them in the kernel itself"));
        }
        let roles = match (&self.roles, work.ring) {
            (None, None) if self.control() == Uniform::Cta && !self.elected => vec![None],
            (Some(roles), Some((ring, _))) if roles.iter().all(|r| self.rings[ring].sides[1].contains(r)) => {
                roles.iter().map(|r| Some(*r)).collect()
            }
            (None, _) => {
                return Err(wrong(
                    "a loop over tickets outside roles is for all threads of the CTA, and no role loops over the same",
                ));
            }
            _ => {
                return Err(wrong("tickets for roles are declared by name, ahead of them")
                    .help("write `let work = (ctaid.x..count).step_by(nctaid.x).tickets(counter);` and `for item in work` in each role"));
            }
        };
        for role in roles {
            if self.tickets.looped.contains(&(work.id, role)) {
                return Err(wrong("a second loop over the same tickets")
                    .help("the items of a launch are handed out once: do the work of an item in one loop"));
            }
            self.tickets.looped.push((work.id, role));
        }
        Ok(())
    }
}

/// Looks for loops over a variable in blocks of roles.
struct Loops<'n> {
    work: &'n str,
    role: Vec<String>,
    found: Vec<Vec<String>>,
}

impl<'ast> Visit<'ast> for Loops<'_> {
    fn visit_expr(&mut self, expr: &'ast Expr) {
        let attrs = match expr {
            Expr::Block(block) => block.attrs.as_slice(),
            Expr::If(branch) => &branch.attrs,
            Expr::ForLoop(run) => &run.attrs,
            _ => &[],
        };
        let before = self.role.clone();
        if let Some(attr) = attrs.iter().find(|a| a.path().is_ident("role")) {
            let names = syn::punctuated::Punctuated::<syn::Ident, syn::Token![,]>::parse_terminated;
            self.role =
                attr.parse_args_with(names).map_or(Vec::new(), |list| list.iter().map(ToString::to_string).collect());
        }
        if let Expr::ForLoop(run) = expr
            && matches!(run.expr.as_ref(), Expr::Path(path) if path.path.is_ident(self.work))
            && !self.role.is_empty()
        {
            self.found.push(self.role.clone());
        }
        syn::visit::visit_expr(self, expr);
        self.role = before;
    }
}
