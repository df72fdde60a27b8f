//! Runs the cases of a fuzzer on every core, and counts what they did.
//!
//! A panic is a failure of its case, not of the run. A case that takes longer than [`SLOW`] is a failure too.

use crate::checks::{Extent, Measured};
use kda_ref::rng::Rng;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// What no case may take.
pub const SLOW: Duration = Duration::from_secs(10);
/// Stack of a worker: that of a thread of the Rust compiler, which runs the macro.
const STACK: usize = 8 << 20;
/// Faults of a run that are kept; all are counted.
const KEPT: usize = 12;

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// Seed of every case.
    pub seed: u64,
    /// Number of cases.
    pub cases: u64,
    /// The one case to run.
    pub only: Option<u64>,
}

impl Sweep {
    /// So many cases, unless the environment says otherwise.
    pub fn new(seed: u64, cases: u64) -> Sweep {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
        Sweep { seed, cases: number("KDA_FUZZ_CASES").unwrap_or(cases), only: number("KDA_FUZZ_ONLY") }
    }

    /// So many cases, as the extent of a check asks.
    pub fn of(seed: u64, extent: Extent, quick: u64, full: u64) -> Sweep {
        Sweep::new(seed, if extent == Extent::Full { full } else { quick })
    }

    /// Random numbers of a case.
    pub fn random(&self, index: u64) -> Rng {
        Rng::new(self.seed.wrapping_mul(0x1234_5678_9ABC_DEF1) ^ index.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// Runs `case` with the random numbers of each case; `progress` takes the share that is done. An `Err` of a case is what
    /// is wrong.
    pub fn run(
        &self,
        case: impl Fn(&mut Rng, &mut Counts) -> Result<(), String> + Sync,
        progress: &dyn Fn(f64),
    ) -> Outcome {
        let (first, end) = match self.only {
            Some(only) => (only, only + 1),
            None => (0, self.cases),
        };
        let next = AtomicU64::new(first);
        let workers = std::thread::available_parallelism().map_or(1, |n| n.get()).min((end - first).max(1) as usize);
        let (finished, results) = channel();
        let mut outcome = Outcome { cases: end - first, ..Outcome::default() };
        std::thread::scope(|scope| {
            for _ in 0..workers {
                let (next, case, finished) = (&next, &case, finished.clone());
                let work = move || {
                    let mut part = Outcome::default();
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        if index >= end {
                            break;
                        }
                        part.one(index, &mut self.random(index), case);
                    }
                    // The receiver waits for every worker.
                    let _ = finished.send(part);
                };
                if let Err(error) = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work) {
                    outcome.faults.push(Fault { index: first, panic: false, what: format!("no worker: {error}") });
                    outcome.failed += 1;
                }
            }
            drop(finished);
            loop {
                match results.recv_timeout(Duration::from_millis(200)) {
                    Ok(part) => outcome.add(part),
                    Err(RecvTimeoutError::Disconnected) => break,
                    Err(RecvTimeoutError::Timeout) => {
                        let done = next.load(Ordering::Relaxed).min(end) - first;
                        progress(done as f64 / (end - first).max(1) as f64);
                    }
                }
            }
        });
        outcome.faults.sort_by_key(|fault| fault.index);
        outcome.faults.truncate(KEPT);
        outcome
    }
}

/// What cases did, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(pub BTreeMap<String, u64>);

impl Counts {
    /// One more of it.
    pub fn add(&mut self, name: &str) {
        self.more(name, 1);
    }

    /// So many more of it.
    pub fn more(&mut self, name: &str, count: u64) {
        match self.0.get_mut(name) {
            Some(known) => *known += count,
            None => {
                self.0.insert(name.to_string(), count);
            }
        }
    }

    /// How many there were.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }
}

/// A case that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its number.
    pub index: u64,
    /// It panicked.
    pub panic: bool,
    /// What is wrong.
    pub what: String,
}

/// What a run found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Cases run.
    pub cases: u64,
    /// Cases that panicked.
    pub panics: u64,
    /// Cases that failed otherwise.
    pub failed: u64,
    /// The first of both.
    pub faults: Vec<Fault>,
    /// What the cases did.
    pub counts: Counts,
}

impl Outcome {
    fn one(&mut self, index: u64, rng: &mut Rng, case: impl Fn(&mut Rng, &mut Counts) -> Result<(), String>) {
        let start = Instant::now();
        let counts = &mut self.counts;
        let result = catch_unwind(AssertUnwindSafe(|| case(rng, counts)));
        let (panic, what) = match result {
            Ok(Ok(())) if start.elapsed() < SLOW => return,
            Ok(Ok(())) => (false, format!("took {:.1?}", start.elapsed())),
            Ok(Err(what)) => (false, what),
            Err(payload) => {
                let words = payload.downcast_ref::<String>().map(String::as_str);
                let words = words.or_else(|| payload.downcast_ref::<&str>().copied());
                (true, format!("panicked: {}", words.unwrap_or("without words")))
            }
        };
        self.fail(Fault { index, panic, what });
    }

    /// Counts a failure.
    pub fn fail(&mut self, fault: Fault) {
        *(if fault.panic { &mut self.panics } else { &mut self.failed }) += 1;
        if self.faults.len() < KEPT {
            self.faults.push(fault);
        }
    }

    fn add(&mut self, part: Outcome) {
        self.panics += part.panics;
        self.failed += part.failed;
        self.faults.extend(part.faults);
        for (name, count) in part.counts.0 {
            self.counts.more(&name, count);
        }
    }

    /// Rows of a table: the panics and the other failures.
    pub fn rows(&self, name: &str) -> [Measured; 2] {
        // Codes by their number, parts of another count not at all.
        let codes = self.counts.0.keys().filter(|name| name.starts_with("KDA")).count();
        let plain = self.counts.0.iter().filter(|(name, _)| !name.starts_with("KDA") && !name.contains(" of "));
        let mut counts: String = plain.map(|(name, count)| format!(", {count} {name}")).collect();
        if codes > 0 {
            counts.push_str(&format!(", {codes} error codes"));
        }
        let row = |output: &str, error| Measured {
            case: format!("{} {name}{counts}", self.cases),
            output: output.to_string(),
            error: error as f64,
            budget: 0.0,
        };
        [row("panics", self.panics), row("failures", self.failed)]
    }

    /// An error of what failed and how to repeat it, if anything did.
    pub fn verdict(&self, name: &str, seed: u64) -> Result<(), String> {
        if self.panics + self.failed == 0 {
            return Ok(());
        }
        let lines: Vec<String> = self.faults.iter().map(|f| format!("case {}: {}", f.index, f.what)).collect();
        Err(format!(
            "{name}: {} of {} cases failed; repeat one with `--seed {seed}` and KDA_FUZZ_ONLY=<case>\n{}",
            self.panics + self.failed,
            self.cases,
            lines.join("\n")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_and_errors_are_failures_that_can_be_repeated() {
        let sweep = Sweep { seed: 5, cases: 100, only: None };
        let case = |rng: &mut Rng, counts: &mut Counts| {
            let number = rng.below(10);
            counts.add(if number < 2 { "bad" } else { "good" });
            match number {
                0 => panic!("number {number}"),
                1 => Err("one".to_string()),
                _ => Ok(()),
            }
        };
        let outcome = sweep.run(case, &|_| {});
        assert!(outcome.panics > 0 && outcome.failed > 0);
        assert_eq!(outcome.panics + outcome.failed, outcome.counts.get("bad"));
        assert_eq!(outcome.counts.get("bad") + outcome.counts.get("good"), 100);
        assert!(outcome.rows("cases").iter().all(|row| !row.passes()));
        let words = outcome.verdict("cases", 5).unwrap_err();
        assert!(words.contains("--seed 5"), "{words}");
        for fault in &outcome.faults {
            let again = Sweep { only: Some(fault.index), ..sweep }.run(case, &|_| {});
            assert_eq!((again.cases, &again.faults), (1, &vec![fault.clone()]));
        }
        let good = sweep.run(|_, _| Ok(()), &|_| {});
        assert!(good.rows("cases").iter().all(Measured::passes) && good.verdict("cases", 5).is_ok());
    }
}
