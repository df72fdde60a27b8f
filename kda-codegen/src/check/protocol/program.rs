//! What a role does: its events, in the loops around them.

use super::Model;
use crate::diag::{Diagnostic, Result};
use crate::kir::{Branch, Node, Region, Sync, Trips, Uniform};
use std::collections::BTreeMap;

/// Number of the cluster's barrier among the named ones, which end at 15.
const CLUSTER: u32 = 16;

/// One step of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Takes a stage, once it is given.
    Take { ring: usize, side: usize, span: usize },
    /// Gives a stage.
    Give { ring: usize, side: usize, span: usize },
    /// Arrives at a barrier and waits for the others; `None` is that of the CTA.
    Meet { barrier: Option<u32>, span: usize },
    /// Arrives at a barrier.
    Arrive { barrier: u32, span: usize },
    /// Goes on at the first stage of a ring. Whether roles meet there makes no difference to what they get.
    Restart { ring: usize, span: usize },
}

impl Event {
    /// Number of its place.
    pub fn span(self) -> usize {
        match self {
            Event::Take { span, .. }
            | Event::Give { span, .. }
            | Event::Meet { span, .. }
            | Event::Arrive { span, .. }
            | Event::Restart { span, .. } => span,
        }
    }

    /// Equal but for the places.
    fn same(self, other: Event) -> bool {
        let plain = |event| match event {
            Event::Take { ring, side, .. } => Event::Take { ring, side, span: 0 },
            Event::Give { ring, side, .. } => Event::Give { ring, side, span: 0 },
            Event::Meet { barrier, .. } => Event::Meet { barrier, span: 0 },
            Event::Arrive { barrier, .. } => Event::Arrive { barrier, span: 0 },
            Event::Restart { ring, .. } => Event::Restart { ring, span: 0 },
        };
        plain(self) == plain(other)
    }
}

/// A role's program.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// An event.
    Event(Event),
    /// A loop with events in it.
    Loop {
        /// How often it runs.
        trips: Option<Trips>,
        /// Its body.
        body: Vec<Step>,
        /// Number of the place of the first event in it.
        span: usize,
    },
}

/// What a role does: up to the end of the kernel, and up to each early `return`, in the order of the source. All threads of
/// the CTA return together, so that every role has the same ends.
pub fn programs(region: &Region, role: usize, model: &Model<'_>) -> Result<Vec<Vec<Step>>> {
    let mut ends = Vec::new();
    if let (steps, false) = part(region, role, model, &mut ends)? {
        ends.push(steps);
    }
    Ok(ends)
}

/// The steps of a role in a part of the kernel, and whether it ends in a `return`; `ends` gets the steps up to each.
fn part(region: &Region, role: usize, model: &Model<'_>, ends: &mut Vec<Vec<Step>>) -> Result<(Vec<Step>, bool)> {
    let mut steps: Vec<Step> = Vec::new();
    for node in region {
        let from = ends.len();
        match node {
            // Whatever stands outside roles is done by every role; a ring of the whole CTA counts once.
            Node::Sync {
                sync: Sync::Take { ring, .. } | Sync::Give { ring, .. } | Sync::Restart { ring, .. }, ..
            } if role > 0 && model.rings[*ring].whole_cta() => {}
            Node::Sync { sync, .. } => steps.extend(event(sync).map(Step::Event)),
            Node::If { branch: Branch::Roles(roles), then, .. } => {
                if roles.contains(&role) {
                    steps.extend(part(then, role, model, ends)?.0);
                }
            }
            // One thread acts for the role; the others meet it behind the branch.
            Node::If { branch: Branch::Elected, then, .. } => steps.extend(part(then, role, model, ends)?.0),
            // The same steps as those of the trip before it.
            Node::If { branch: Branch::NextTrip, .. } | Node::Loop { trips: Some(Trips::Part), .. } => {}
            Node::If { branch: kind @ (Branch::Plain | Branch::Guard(_)), then, other, uniform, .. } => {
                let (mut a, a_ends) = part(then, role, model, ends)?;
                let (mut b, b_ends) = part(other, role, model, ends)?;
                if *uniform == Uniform::Cta {
                    // All threads of the role take the same side, and nobody else meets them there.
                    without_own_barriers(&mut a, role, model);
                    without_own_barriers(&mut b, role, model);
                }
                begin_with(&steps, &mut ends[from..]);
                match (a_ends, b_ends) {
                    (true, true) => return Ok((steps, true)),
                    (true, false) => steps.extend(b),
                    (false, true) => steps.extend(a),
                    (false, false) => steps.extend(branch(kind, a, &b, model)?),
                }
            }
            Node::Loop { head, body, trips, .. } => {
                steps.extend(part(head, role, model, ends)?.0);
                let body = part(body, role, model, ends)?.0;
                let all = first_span(&body).map(|span| Step::Loop { trips: trips.clone(), body, span });
                steps.extend(all);
                // Some trips have been whole.
                begin_with(&steps, &mut ends[from..]);
            }
            Node::Return(_) => {
                ends.push(steps.clone());
                return Ok((steps, true));
            }
            Node::Inst { .. } | Node::Comment(_) => {}
        }
    }
    Ok((steps, false))
}

/// Puts steps ahead of what leads to ends.
fn begin_with(steps: &[Step], ends: &mut [Vec<Step>]) {
    ends.iter_mut().for_each(|end| *end = [steps, end].concat());
}

/// The steps of a branch of which both sides go on.
fn branch(kind: &Branch, then: Vec<Step>, other: &[Step], model: &Model<'_>) -> Result<Vec<Step>> {
    if let (Branch::Guard(trips), Some(span), []) = (kind, first_span(&then), other) {
        return Ok(vec![Step::Loop { trips: Some(trips.clone()), body: then, span }]);
    }
    match first_span(&then).or(first_span(other)) {
        Some(span) if !same(&then, other) => Err(Diagnostic::new(
            657,
            model.place(span),
            "a runtime branch takes part in a pipeline or a barrier on one of its sides only",
        )
        .help("take and give stages outside the branch, and make only the copies or the work conditional")),
        _ => Ok(then),
    }
}

fn event(sync: &Sync) -> Option<Event> {
    match sync {
        Sync::Take { ring, side, span } => Some(Event::Take { ring: *ring, side: *side, span: *span }),
        Sync::Give { ring, side, span } => Some(Event::Give { ring: *ring, side: *side, span: *span }),
        Sync::Restart { ring, span } => Some(Event::Restart { ring: *ring, span: *span }),
        Sync::Cta => Some(Event::Meet { barrier: None, span: usize::MAX }),
        // No role meets the cluster by itself: a second barrier of the CTA.
        Sync::Cluster { wait, span, .. } => wait.then_some(Event::Meet { barrier: Some(CLUSTER), span: *span }),
        Sync::NamedSync { id, span, .. } => Some(Event::Meet { barrier: Some(*id), span: *span }),
        Sync::NamedArrive { id, span, .. } => Some(Event::Arrive { barrier: *id, span: *span }),
        Sync::Warp
        | Sync::MbarrierArrive
        | Sync::SharedRead { .. }
        | Sync::SharedWrite { .. }
        | Sync::ProductRead { .. }
        | Sync::BulkFill { .. }
        | Sync::BulkStore { .. }
        | Sync::MbarrierInit { .. } => None,
    }
}

/// Drops the barriers at which this role alone takes part.
fn without_own_barriers(steps: &mut Vec<Step>, role: usize, model: &Model<'_>) {
    steps.retain_mut(|step| match step {
        Step::Event(Event::Meet { barrier: Some(id), .. }) => {
            !model.barriers.iter().any(|barrier| barrier.id == *id && barrier.between == [role])
        }
        Step::Event(_) => true,
        Step::Loop { body, .. } => {
            without_own_barriers(body, role, model);
            !body.is_empty()
        }
    });
}

/// Equal but for the places.
fn same(a: &[Step], b: &[Step]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|pair| match pair {
            (Step::Event(x), Step::Event(y)) => x.same(*y),
            (Step::Loop { trips: s, body: x, .. }, Step::Loop { trips: t, body: y, .. }) => s == t && same(x, y),
            _ => false,
        })
}

fn first_span(steps: &[Step]) -> Option<usize> {
    steps.first().map(|step| match step {
        Step::Event(event) => event.span(),
        Step::Loop { span, .. } => *span,
    })
}

/// A value that is not known, and on which trips depend.
#[derive(Clone, Debug)]
pub struct Unknown {
    /// A loop or a branch that depends on it.
    pub shown: Option<Trips>,
    /// Another loop, which runs more often than the value says.
    pub beyond: Option<Trips>,
    /// The value is not smaller.
    pub least: u64,
    /// From here on, all branches on it are taken and all loops have begun to count.
    pub settled: u64,
}

/// Values that are not known, by their keys.
pub fn unknowns(steps: &[Step], found: &mut BTreeMap<String, Unknown>) {
    for step in steps {
        let Step::Loop { trips, body, span } = step else { continue };
        if let Some(key) = key(trips, *span) {
            let (settled, least) = match trips {
                Some(Trips::Expression { start, least, .. }) => (u64::try_from(*start).unwrap_or(0), *least),
                Some(Trips::Guard { from, least, .. }) => (*from, *least),
                _ => (0, 0),
            };
            let entry = found.entry(key).or_insert(Unknown { shown: trips.clone(), beyond: None, least, settled });
            entry.least = entry.least.max(least);
            entry.settled = entry.settled.max(settled);
            if let Some(Trips::Expression { start: ..0, .. }) = trips {
                entry.beyond.get_or_insert_with(|| trips.clone().unwrap_or(Trips::Part));
            }
            // A loop tells more than a branch, and the one that counts from the smallest number most.
            if entry.shown.as_ref().map_or(i64::MAX, rank) > trips.as_ref().map_or(i64::MAX, rank) {
                entry.shown.clone_from(trips);
            }
        }
        unknowns(body, found);
    }
}

fn rank(trips: &Trips) -> i64 {
    match trips {
        Trips::Expression { start, .. } if *start >= 0 => *start,
        Trips::Expression { .. } => i64::MAX - 2,
        _ => i64::MAX - 1,
    }
}

/// Trips, if the value on which they depend is this.
pub fn count(trips: &Option<Trips>, value: u64) -> u64 {
    match trips {
        Some(Trips::Known(n)) => *n,
        Some(Trips::Expression { start, .. }) => match start.is_negative() {
            true => value.saturating_add(start.unsigned_abs()),
            false => value.saturating_sub(start.unsigned_abs()),
        },
        Some(Trips::Guard { from, .. }) => u64::from(value >= *from),
        Some(Trips::Part) | None => value,
    }
}

/// A loop in the author's words.
pub fn text(trips: &Option<Trips>) -> String {
    match trips {
        Some(Trips::Expression { text, .. } | Trips::Guard { text, .. }) => format!("`{text}`"),
        Some(Trips::Known(n)) => format!("{n} trips"),
        Some(Trips::Part) | None => "a `while`".to_string(),
    }
}

/// The unknown that decides a loop's trips; `None` if they are known. A loop without an expression is its own unknown.
pub fn key(trips: &Option<Trips>, span: usize) -> Option<String> {
    match trips {
        Some(Trips::Known(_)) => None,
        Some(Trips::Expression { key, .. } | Trips::Guard { key, .. }) => Some(key.clone()),
        Some(Trips::Part) | None => Some(format!("loop at {span}")),
    }
}

/// What may differ between the CTAs of a cluster, as it stands in keys: neighbours lie along x, and each CTA has lists in its shared
/// memory and draws tickets of its own.
const APART: [&str; 4] = ["%ctaid.x", "%cluster", "list ", "tickets "];

/// A loop with steps in which all CTAs of a cluster take part, but which may run differently often in them.
pub fn differs_in_cluster<'s>(steps: &'s [Step], model: &Model<'_>) -> Option<&'s Option<Trips>> {
    steps.iter().find_map(|step| {
        let Step::Loop { trips, body, span } = step else { return None };
        let differs = key(trips, *span).is_some_and(|key| APART.iter().any(|part| key.contains(part)));
        if differs && in_cluster(body, model) { Some(trips) } else { differs_in_cluster(body, model) }
    })
}

/// True if all CTAs of a cluster take part in a step.
fn in_cluster(steps: &[Step], model: &Model<'_>) -> bool {
    steps.iter().any(|step| match step {
        Step::Event(Event::Take { ring, .. } | Event::Give { ring, .. }) => model.rings[*ring].shared,
        Step::Event(Event::Meet { barrier, .. }) => *barrier == Some(CLUSTER),
        Step::Event(_) => false,
        Step::Loop { body, .. } => in_cluster(body, model),
    })
}

/// True if a key says nothing of the value: it is the number of a loop, or names a register, which is no function of the
/// launch parameters.
pub fn opaque(key: &str) -> bool {
    let mut parts = key.split('%');
    parts.next();
    key.starts_with("loop at")
        || parts.any(|part| {
            let name = part.trim_start_matches(|c: char| c.is_ascii_lowercase());
            name.len() < part.len() && name.starts_with(|c: char| c.is_ascii_digit())
        })
}
