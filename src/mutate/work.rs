//! All mutants of some kernels, on all cores.

use super::run;
use super::subject::Subject;
use super::{Fate, Mutant};
use kda_core::KernelDesc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// A mutant and what became of it.
pub type Judged = (Mutant, Fate);

/// Kernels with their mutants, in order.
pub struct Work {
    subjects: Vec<Subject>,
    /// Number of the kernel, and the mutant.
    mutants: Vec<(usize, Mutant)>,
}

impl Work {
    /// Runs the kernels unchanged, and makes their mutants.
    pub fn new(kernels: &[&'static KernelDesc], seed: u64) -> Result<Work, String> {
        let subjects = each(kernels, &|desc| Subject::new(desc, seed), &|_| ());
        let subjects = subjects.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut mutants = Vec::new();
        for (at, subject) in subjects.iter().enumerate() {
            mutants.extend(subject.mutants()?.into_iter().map(|mutant| (at, mutant)));
        }
        Ok(Work { subjects, mutants })
    }

    /// Number of mutants.
    pub fn len(&self) -> usize {
        self.mutants.len()
    }

    /// True if there is nothing to change.
    pub fn is_empty(&self) -> bool {
        self.mutants.is_empty()
    }

    /// Kernels.
    pub fn subjects(&self) -> &[Subject] {
        &self.subjects
    }

    /// Mutants with their kernels.
    pub fn mutants(&self) -> impl Iterator<Item = (&Subject, &Mutant)> {
        self.mutants.iter().map(|(at, mutant)| (&self.subjects[*at], mutant))
    }

    /// Keeps the mutants with these numbers.
    pub fn keep(&mut self, chosen: &dyn Fn(usize) -> bool) {
        let mut at = 0;
        self.mutants.retain(|_| {
            at += 1;
            chosen(at - 1)
        });
    }

    /// Runs every mutant. `done` hears how many are finished.
    pub fn run(self, done: &(dyn Fn(usize) + Sync)) -> Vec<Judged> {
        let subjects = &self.subjects;
        let fates = each(&self.mutants, &|(at, mutant)| run::run(&subjects[*at], mutant), done);
        self.mutants.into_iter().map(|(_, mutant)| mutant).zip(fates).collect()
    }
}

/// Applies a function to all items, on all cores.
fn each<T: Sync, R: Send>(items: &[T], f: &(dyn Fn(&T) -> R + Sync), done: &(dyn Fn(usize) + Sync)) -> Vec<R> {
    let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results = Mutex::new(Vec::with_capacity(items.len()));
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get()).min(items.len());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { break };
                    let result = f(item);
                    results.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
                    done(finished.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}
