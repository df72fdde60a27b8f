//! The protocol of rings and barriers: does every role get what it waits for, whatever the timing?
//!
//! Each role is a sequential program of events: it takes a stage (and may have to wait for it), gives one, meets others at a
//! barrier, arrives at one. Nothing in such a program depends on timing: which event comes next is decided by the program,
//! and an event that is possible stays possible while others move. So the order in which roles advance does not matter, and
//! one execution decides whether any execution can get stuck.
//!
//! Loops run as often as an expression says that is not known here. Loops of the same expression run equally often, and one
//! from 1 to n once less than one from 0 to n; a branch on a comparison of n with a constant is a loop of at most one trip.
//! Each expression is tried with 0, 1, S - 1, S, S + 1 and 2 S + 1, S being the deepest ring, and as much more than the
//! constants beside it; all equal first and then one after another different from the rest, but for values that come from memory or belong to a `while`: whether they are
//! equal is not known. A ring whose sides agree only by luck gets stuck in one of these runs, or ends with
//! stages that nobody has released. Each early `return` is an end of its own. These runs find errors; `proof` looks for an argument for all numbers of trips.
//!
//! | question | file |
//! | --- | --- |
//! | what a role does | `program` |
//! | how far stages and barriers are, and who may go on | `play` |
//! | who may arrive too early at a barrier | `order` |
//! | does it hold for every number of trips | `proof` |
//! | how an error is told | `report` |

mod order;
mod play;
mod program;
mod proof;
mod report;

use crate::diag::Result;
use crate::kir::Region;
use proc_macro2::Span;
use program::{Step, programs, unknowns};
use std::collections::{BTreeMap, BTreeSet};

/// A ring, as the check sees it.
#[derive(Clone, Debug)]
pub struct RingModel {
    /// Name in the kernel.
    pub name: String,
    /// Number of stages.
    pub stages: u64,
    /// Roles of each side, in the order of flow; none if all threads of the CTA are every side.
    pub sides: Vec<Vec<usize>>,
    /// Its stages are filled and released by all CTAs of a cluster.
    pub shared: bool,
}

impl RingModel {
    /// All threads of the CTA are every side.
    pub fn whole_cta(&self) -> bool {
        self.sides.iter().all(Vec::is_empty)
    }
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
    /// Roles may wait for each other in ways that the check does not see.
    pub unseen: bool,
    /// Places of events in the author's source.
    pub spans: &'m [(Span, Span)],
}

impl Model<'_> {
    /// A place in the author's source.
    fn place(&self, span: usize) -> (Span, Span) {
        self.spans.get(span).copied().unwrap_or_else(|| (Span::call_site(), Span::call_site()))
    }

    /// Roles of a side of a ring.
    fn parties(&self, ring: usize, side: usize) -> &[usize] {
        let sides = &self.rings[ring].sides;
        if self.rings[ring].whole_cta() { &[0] } else { &sides[side] }
    }
}

/// What the check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is nothing to prove: no rings and no named barriers.
    Nothing,
    /// No execution gets stuck or leaves a stage behind, however often loops run.
    Proved,
    /// That holds with the numbers of trips that were tried; for others there is no proof.
    NotProved {
        /// What stands in the way.
        why: String,
    },
}

impl Verdict {
    /// What holds of two ends of a kernel.
    fn and(self, other: Verdict) -> Verdict {
        if let Verdict::Proved = self { other } else { self }
    }
}

/// Largest value that is tried for what is not known, beside the depth of rings.
const MOST_TRIED: u64 = 256;

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
    let by_role = (0..model.roles.len()).map(|role| programs(region, role, model)).collect::<Result<Vec<_>>>()?;
    let mut verdict = Verdict::Proved;
    let ends = by_role.first().map_or(0, Vec::len);
    for end in 0..ends {
        let programs: Vec<Vec<Step>> = by_role.iter().filter_map(|ends| ends.get(end).cloned()).collect();
        let of_end = check_end(&programs, model).map_err(|mut error| {
            if end + 1 < ends {
                error.message.push_str(", for CTAs that return early");
            }
            error
        });
        verdict = verdict.and(of_end?);
    }
    Ok(verdict)
}

/// Checks what the roles do up to one of their ends.
fn check_end(programs: &[Vec<Step>], model: &Model<'_>) -> Result<Verdict> {
    let mut found = BTreeMap::new();
    programs.iter().for_each(|program| unknowns(program, &mut found));
    let deepest = model.rings.iter().map(|r| r.stages).max().unwrap_or(1);
    let settled = found.values().map(|unknown| unknown.settled).max().unwrap_or(0).min(MOST_TRIED);
    let few = [0, 1, deepest.saturating_sub(1), deepest, deepest + 1, 2 * deepest + 1];
    let values: BTreeSet<u64> = few.into_iter().chain(few.map(|n| n + settled)).collect();
    for common in &values {
        let all: BTreeMap<&str, u64> =
            found.iter().map(|(key, unknown)| (key.as_str(), (*common).max(unknown.least.min(MOST_TRIED)))).collect();
        play::run(programs, &all, &found, model)?;
        if found.len() > 1 {
            for key in found.keys().filter(|key| !program::opaque(key)) {
                let mut one = all.clone();
                one.insert(key, all[key.as_str()] + 1);
                play::run(programs, &one, &found, model)?;
            }
        }
    }
    Ok(match proof::prove(programs, &found, model) {
        Ok(()) => Verdict::Proved,
        Err(why) => Verdict::NotProved { why },
    })
}
