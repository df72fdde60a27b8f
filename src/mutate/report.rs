//! Rates: how many mutants were killed, by operator, by net and by kernel.

use super::equivalent::{self, Reason};
use super::work::Judged;
use super::{Fate, Level, Mutant, Net, Operator};
use std::collections::BTreeMap;

/// Least share of mutants that must be killed.
pub const LEAST: f64 = 0.95;

/// Counts of some mutants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Killed, by net: see [`Net::COLUMNS`].
    pub nets: [usize; 4],
    /// Survived.
    pub survived: usize,
}

impl Counts {
    /// Those that a net noticed.
    pub fn killed(&self) -> usize {
        self.nets.iter().sum()
    }

    /// All.
    pub fn all(&self) -> usize {
        self.killed() + self.survived
    }

    /// Killed of all; those that do the same as the kernel count as not killed.
    pub fn rate(&self) -> f64 {
        match self.all() {
            0 => 1.0,
            all => self.killed() as f64 / all as f64,
        }
    }

    fn add(&mut self, fate: &Fate) {
        match fate {
            Fate::Killed(net) => self.nets[net.column()] += 1,
            Fate::Survived => self.survived += 1,
            Fate::Absent => {}
        }
    }
}

/// What a run found.
#[derive(Debug, Default)]
pub struct Summary<'j> {
    /// All mutants.
    pub total: Counts,
    /// By level and operator.
    pub operators: BTreeMap<(Level, Operator), Counts>,
    /// By kernel.
    pub kernels: BTreeMap<&'static str, Counts>,
    /// How many mutants each code of compiler and simulator killed.
    pub codes: BTreeMap<&'j str, usize>,
    /// Those that lived, with the reason if there is one.
    pub survivors: Vec<(&'j Mutant, Option<&'static Reason>)>,
}

impl<'j> Summary<'j> {
    /// Counts.
    pub fn of(judged: &'j [Judged]) -> Summary<'j> {
        let mut summary = Summary::default();
        for (mutant, fate) in judged.iter().filter(|(_, fate)| *fate != Fate::Absent) {
            summary.total.add(fate);
            summary.operators.entry((mutant.level, mutant.operator)).or_default().add(fate);
            summary.kernels.entry(mutant.kernel).or_default().add(fate);
            match fate {
                Fate::Killed(Net::Compiler(code) | Net::Simulator(code)) => {
                    *summary.codes.entry(code).or_default() += 1
                }
                Fate::Killed(_) | Fate::Absent => {}
                Fate::Survived => summary.survivors.push((mutant, equivalent::reason(mutant))),
            }
        }
        summary
    }

    /// Survivors without a reason.
    pub fn unexplained(&self) -> impl Iterator<Item = &'j Mutant> {
        self.survivors.iter().filter(|(_, reason)| reason.is_none()).map(|(mutant, _)| *mutant)
    }
}
