//! The protocol of rings and barriers: does every role get what it waits for, whatever the timing?
//!
//! Each role is a sequential program of events: it takes a stage (and may have to wait for it), gives one, meets others at a
//! barrier, arrives at one. Nothing in such a program depends on timing: which event comes next is decided by the program,
//! and an event that is possible stays possible while others move. So the order in which roles advance does not matter, and
//! one execution decides whether any execution can get stuck.
//!
//! Loops run as often as an expression says that is not known here. Loops of the same expression run equally often; each
//! expression is tried with 0, 1, S - 1, S, S + 1 and 2 S + 1 trips, S being the deepest ring, all equal first and then one
//! after another different from the rest. A ring whose sides agree only by luck gets stuck in one of these runs, or ends with
//! stages that nobody has released.

use crate::diag::{Diagnostic, Result};
use crate::kir::{Branch, Node, Region, Sync, Trips};
use proc_macro2::Span;
use std::collections::{BTreeMap, BTreeSet};

/// Number of the cluster's barrier among the named ones, which end at 15.
const CLUSTER: u32 = 16;

/// A ring, as the check sees it.
#[derive(Clone, Debug)]
pub struct RingModel {
    /// Name in the kernel.
    pub name: String,
    /// Number of stages.
    pub stages: u64,
    /// All threads of the CTA are both sides.
    pub whole_cta: bool,
}

/// A named barrier, as the check sees it.
#[derive(Clone, Debug)]
pub struct BarrierModel {
    /// Name in the kernel.
    pub name: String,
    /// Hardware id.
    pub id: u32,
    /// Roles that take part.
    pub between: Vec<usize>,
}

/// What the check needs besides the code.
#[derive(Clone, Debug)]
pub struct Model<'m> {
    /// Names of the roles; one agent each.
    pub roles: Vec<String>,
    /// Rings.
    pub rings: Vec<RingModel>,
    /// Named barriers.
    pub barriers: Vec<BarrierModel>,
    /// Places of events in the author's source.
    pub spans: &'m [Span],
}

/// What the check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is nothing to prove: no rings and no named barriers.
    Nothing,
    /// No execution gets stuck or leaves a stage behind.
    Proved,
}

/// One step of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Take { ring: usize, side: usize, span: usize },
    Give { ring: usize, side: usize },
    Meet { barrier: Option<u32>, span: usize },
    Arrive { barrier: u32 },
}

/// A role's program.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Event(Event),
    Loop { trips: Option<Trips>, body: Vec<Step>, span: usize },
}

/// Checks the protocol of a kernel.
pub fn check(region: &Region, model: &Model<'_>) -> Result<Verdict> {
    if model.rings.is_empty() && model.barriers.is_empty() {
        return Ok(Verdict::Nothing);
    }
    if model.roles.is_empty() {
        // Without roles all threads are one agent.
        let model = Model { roles: vec!["all threads".into()], ..model.clone() };
        return check(region, &model);
    }
    let programs =
        (0..model.roles.len()).map(|role| program(region, role, model)).collect::<Result<Vec<Vec<Step>>>>()?;
    let mut texts = BTreeMap::new();
    programs.iter().for_each(|program| unknowns(program, &mut texts));
    let keys: Vec<&String> = texts.keys().collect();
    let deepest = model.rings.iter().map(|r| r.stages).max().unwrap_or(1);
    let counts: BTreeSet<u64> = [0, 1, deepest.saturating_sub(1), deepest, deepest + 1, 2 * deepest + 1].into();
    for common in &counts {
        let all: BTreeMap<&str, u64> = keys.iter().map(|key| (key.as_str(), *common)).collect();
        run(&programs, &all, &texts, model)?;
        if keys.len() > 1 {
            for key in &keys {
                let mut one = all.clone();
                one.insert(key, common + 1);
                run(&programs, &one, &texts, model)?;
            }
        }
    }
    Ok(Verdict::Proved)
}

/// The steps of one role.
fn program(region: &Region, role: usize, model: &Model<'_>) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for node in region {
        match node {
            // Whatever stands outside roles is done by every role; a ring of the whole CTA counts once.
            Node::Sync { sync: Sync::Take { ring, .. } | Sync::Give { ring, .. }, .. }
                if role > 0 && model.rings[*ring].whole_cta => {}
            Node::Sync { sync, .. } => steps.extend(event(sync).map(Step::Event)),
            Node::If { branch: Branch::Roles(roles), then, .. } => {
                if roles.contains(&role) {
                    steps.extend(program(then, role, model)?);
                }
            }
            // One thread acts for the role; the others meet it behind the branch.
            Node::If { branch: Branch::Elected, then, .. } => steps.extend(program(then, role, model)?),
            Node::If { branch: Branch::Plain, then, other, .. } => {
                let (a, b) = (program(then, role, model)?, program(other, role, model)?);
                if !same(&a, &b) {
                    let Some(span) = first_span(&a).or(first_span(&b)) else { continue };
                    return Err(Diagnostic::new(
                        657,
                        model.spans.get(span).copied().unwrap_or_else(Span::call_site),
                        "a runtime branch takes part in a pipeline or a barrier on one of its sides only",
                    )
                    .help(
                        "take and give stages outside the branch, and make only the copies or the work conditional",
                    ));
                }
                steps.extend(a);
            }
            Node::Loop { head, body, trips, .. } => {
                steps.extend(program(head, role, model)?);
                let body = program(body, role, model)?;
                if let Some(span) = first_span(&body) {
                    steps.push(Step::Loop { trips: trips.clone(), body, span });
                }
            }
            Node::Inst { .. } | Node::Return(_) | Node::Comment(_) => {}
        }
    }
    Ok(steps)
}

fn event(sync: &Sync) -> Option<Event> {
    match sync {
        Sync::Take { ring, side, span } => Some(Event::Take { ring: *ring, side: *side, span: *span }),
        Sync::Give { ring, side } => Some(Event::Give { ring: *ring, side: *side }),
        Sync::Cta => Some(Event::Meet { barrier: None, span: usize::MAX }),
        // No role meets the cluster by itself: a second barrier of the CTA.
        Sync::Cluster { wait, span, .. } => wait.then_some(Event::Meet { barrier: Some(CLUSTER), span: *span }),
        Sync::NamedSync { id, span, .. } => Some(Event::Meet { barrier: Some(*id), span: *span }),
        Sync::NamedArrive { id, .. } => Some(Event::Arrive { barrier: *id }),
        Sync::Warp
        | Sync::SharedWrite { .. }
        | Sync::ProductRead { .. }
        | Sync::BulkStore { .. }
        | Sync::MbarrierInit { .. } => None,
    }
}

/// Equal but for the places.
fn same(a: &[Step], b: &[Step]) -> bool {
    let plain = |event: &Event| match *event {
        Event::Take { ring, side, .. } => Event::Take { ring, side, span: 0 },
        Event::Meet { barrier, .. } => Event::Meet { barrier, span: 0 },
        other => other,
    };
    a.len() == b.len()
        && a.iter().zip(b).all(|pair| match pair {
            (Step::Event(x), Step::Event(y)) => plain(x) == plain(y),
            (Step::Loop { trips: s, body: x, .. }, Step::Loop { trips: t, body: y, .. }) => s == t && same(x, y),
            _ => false,
        })
}

fn first_span(steps: &[Step]) -> Option<usize> {
    steps.first().map(|step| match step {
        Step::Event(Event::Take { span, .. } | Event::Meet { span, .. }) | Step::Loop { span, .. } => *span,
        Step::Event(_) => usize::MAX,
    })
}

/// Expressions whose values are not known, with their texts.
fn unknowns(steps: &[Step], keys: &mut BTreeMap<String, String>) {
    for step in steps {
        if let Step::Loop { trips, body, span } = step {
            if let Some(key) = key(trips, *span) {
                let text = match trips {
                    Some(Trips::Expression { text, .. }) => format!("`{text}`"),
                    _ => "a `while`".to_string(),
                };
                keys.entry(key).or_insert(text);
            }
            unknowns(body, keys);
        }
    }
}

/// The unknown that decides a loop's trips; `None` if they are known. A loop without an expression is its own unknown.
fn key(trips: &Option<Trips>, span: usize) -> Option<String> {
    match trips {
        Some(Trips::Known(_)) => None,
        Some(Trips::Expression { key, .. }) => Some(key.clone()),
        None => Some(format!("loop at {span}")),
    }
}

/// Where a role is.
struct Agent<'p> {
    /// Open loops, innermost last: steps, position, trips left.
    stack: Vec<(&'p [Step], usize, u64)>,
    /// Stages taken so far, by ring and side.
    taken: Vec<[u64; 2]>,
    /// Meetings reached so far, by barrier.
    met: BTreeMap<Option<u32>, u64>,
    /// Waits at a meeting that it has already announced.
    announced: bool,
}

impl<'p> Agent<'p> {
    /// The next event, entering and leaving loops on the way.
    fn next(&mut self, trips: &BTreeMap<&str, u64>) -> Option<Event> {
        loop {
            let (steps, position, left) = self.stack.last_mut()?;
            match steps.get(*position) {
                None if *left > 1 => {
                    *left -= 1;
                    *position = 0;
                }
                None => {
                    self.stack.pop();
                    if let Some((_, position, _)) = self.stack.last_mut() {
                        *position += 1;
                    }
                }
                Some(Step::Event(event)) => return Some(*event),
                Some(Step::Loop { trips: count, body, span }) => {
                    let known = match count {
                        Some(Trips::Known(n)) => Some(*n),
                        _ => key(count, *span).and_then(|key| trips.get(key.as_str()).copied()),
                    };
                    match known.unwrap_or(0) {
                        0 => *position += 1,
                        // More trips than that repeat what was seen.
                        n => self.stack.push((body, 0, n.min(4096))),
                    }
                }
            }
        }
    }

    fn advance(&mut self) {
        self.announced = false;
        if let Some((_, position, _)) = self.stack.last_mut() {
            *position += 1;
        }
    }
}

fn run(
    programs: &[Vec<Step>],
    trips: &BTreeMap<&str, u64>,
    texts: &BTreeMap<String, String>,
    model: &Model<'_>,
) -> Result<()> {
    let rings = model.rings.len();
    let mut agents: Vec<Agent<'_>> = programs
        .iter()
        .map(|steps| Agent {
            stack: vec![(steps.as_slice(), 0, 1)],
            taken: vec![[0; 2]; rings],
            met: BTreeMap::new(),
            announced: false,
        })
        .collect();
    let mut given = vec![[0u64; 2]; rings];
    // Arrivals at each barrier by role.
    let mut arrivals: BTreeMap<Option<u32>, Vec<u64>> = BTreeMap::new();
    let everyone: Vec<usize> = (0..programs.len()).collect();
    loop {
        let mut moved = false;
        for (index, agent) in agents.iter_mut().enumerate() {
            while let Some(event) = agent.next(trips) {
                let possible = match event {
                    Event::Take { ring, side: 0, .. } => {
                        agent.taken[ring][0] < model.rings[ring].stages + given[ring][1]
                    }
                    Event::Take { ring, .. } => agent.taken[ring][1] < given[ring][0],
                    Event::Give { .. } => true,
                    Event::Arrive { barrier } => {
                        arrivals.entry(Some(barrier)).or_insert_with(|| vec![0; programs.len()])[index] += 1;
                        true
                    }
                    Event::Meet { barrier, .. } => {
                        let count = arrivals.entry(barrier).or_insert_with(|| vec![0; programs.len()]);
                        if !agent.announced {
                            count[index] += 1;
                            agent.announced = true;
                        }
                        let reached = agent.met.get(&barrier).copied().unwrap_or(0) + 1;
                        let others = match barrier {
                            None => &everyone,
                            Some(id) => model.barriers.iter().find(|b| b.id == id).map_or(&everyone, |b| &b.between),
                        };
                        others.iter().all(|other| count[*other] >= reached)
                    }
                };
                if !possible {
                    break;
                }
                match event {
                    Event::Take { ring, side, .. } => agent.taken[ring][side] += 1,
                    Event::Give { ring, side } => given[ring][side] += 1,
                    Event::Meet { barrier, .. } => *agent.met.entry(barrier).or_insert(0) += 1,
                    Event::Arrive { .. } => {}
                }
                agent.advance();
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    let stuck: Vec<(usize, Event)> =
        agents.iter_mut().enumerate().filter_map(|(index, agent)| Some((index, agent.next(trips)?))).collect();
    if !stuck.is_empty() {
        return Err(deadlock(&stuck, &agents, &given, &with(trips, texts), model));
    }
    for (ring, [committed, released]) in given.iter().enumerate() {
        if committed != released {
            // The side that has done more than the other.
            let side = usize::from(released > committed);
            let span = take_span(programs, ring, side)
                .and_then(|s| model.spans.get(s).copied())
                .unwrap_or_else(Span::call_site);
            return Err(Diagnostic::new(
                660,
                span,
                format!(
                    "stages of `{}` at the end: {committed} committed, {released} released{}",
                    model.rings[ring].name,
                    with(trips, texts)
                ),
            )
            .help("give both sides the same loop: the same bounds, written as the same expression"));
        }
    }
    Ok(())
}

/// The place where one side of a ring first takes a stage.
fn take_span(programs: &[Vec<Step>], ring: usize, side: usize) -> Option<usize> {
    fn find(steps: &[Step], wanted: (usize, usize)) -> Option<usize> {
        steps.iter().find_map(|step| match step {
            Step::Event(Event::Take { ring, side, span }) if (*ring, *side) == wanted => Some(*span),
            Step::Event(_) => None,
            Step::Loop { body, .. } => find(body, wanted),
        })
    }
    programs.iter().find_map(|program| find(program, (ring, side)))
}

/// The assumption under which something was found.
fn with(trips: &BTreeMap<&str, u64>, texts: &BTreeMap<String, String>) -> String {
    let trips_of = |(key, n): (&&str, &u64)| {
        format!(
            "{n} {} of {}",
            if *n == 1 { "trip" } else { "trips" },
            texts.get(*key).map_or("a loop", String::as_str)
        )
    };
    let list: Vec<String> = trips.iter().map(trips_of).collect();
    if list.is_empty() { String::new() } else { format!(", with {}", list.join(" and ")) }
}

fn deadlock(
    stuck: &[(usize, Event)],
    agents: &[Agent<'_>],
    given: &[[u64; 2]],
    condition: &str,
    model: &Model<'_>,
) -> Box<Diagnostic> {
    let place = |span: usize| model.spans.get(span).copied().unwrap_or_else(Span::call_site);
    let describe = |(role, event): &(usize, Event)| {
        let who = &model.roles[*role];
        match *event {
            Event::Take { ring, side: 0, span } => (
                place(span),
                format!(
                    "role `{who}` waits for an empty stage of `{}` ({} taken, {} released, {} stages)",
                    model.rings[ring].name, agents[*role].taken[ring][0], given[ring][1], model.rings[ring].stages
                ),
            ),
            Event::Take { ring, span, .. } => (
                place(span),
                format!(
                    "role `{who}` waits for a full stage of `{}` ({} taken, {} committed)",
                    model.rings[ring].name, agents[*role].taken[ring][1], given[ring][0]
                ),
            ),
            Event::Meet { barrier: None, span } => (place(span), format!("role `{who}` waits at `cta_sync()`")),
            Event::Meet { barrier: Some(id), span } => {
                let name = model.barriers.iter().find(|b| b.id == id).map_or("cluster_sync()", |b| b.name.as_str());
                (place(span), format!("role `{who}` waits at `{name}`"))
            }
            Event::Give { .. } | Event::Arrive { .. } => (Span::call_site(), format!("role `{who}` has more to do")),
        }
    };
    let (span, first) = describe(&stuck[0]);
    let help = if stuck.iter().all(|(_, event)| matches!(event, Event::Meet { .. })) {
        "let all roles meet equally often, and at their barriers in the same order"
    } else {
        "every stage that is waited for must be committed, and every stage that is acquired again must have been released: give both sides the same loop"
    };
    let mut error = Diagnostic::new(661, span, format!("deadlock{condition}: {first}")).help(help);
    for other in &stuck[1..] {
        let (span, text) = describe(other);
        error = error.note(span, text);
    }
    error
}
