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
/// Numbers of cases are below this.
const MOST: u64 = 1 << 40;
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
    /// So many cases, unless the environment says otherwise. What it says must be numbers; the error is one line.
    pub fn new(seed: u64, cases: u64) -> Result<Sweep, String> {
        let set =
            |name: &str, least| number(name, std::env::var_os(name).map(|text| text.to_string_lossy().into()), least);
        Ok(Sweep { seed, cases: set("KDA_FUZZ_CASES", 1)?.unwrap_or(cases), only: set("KDA_FUZZ_ONLY", 0)? })
    }

    /// So many cases, as the extent of a check asks.
    pub fn of(seed: u64, extent: Extent, quick: u64, full: u64) -> Result<Sweep, String> {
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
            Some(only) => (only, only.saturating_add(1)),
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

/// The number that a variable holds, if it is set.
fn number(name: &str, text: Option<String>, least: u64) -> Result<Option<u64>, String> {
    let Some(text) = text else { return Ok(None) };
    match text.parse() {
        Ok(number) if (least..MOST).contains(&number) => Ok(Some(number)),
        _ => Err(format!("{name} is {text:?}; a whole number from {least} to {} is needed", MOST - 1)),
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
        if self.cases == 0 {
            return Err(format!("{name}: no case was run; at least one is needed"));
        }
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
    fn variables_hold_numbers() {
        let read = |text: &str, least| number("KDA_FUZZ_CASES", Some(text.into()), least);
        assert_eq!(number("KDA_FUZZ_CASES", None, 1), Ok(None));
        assert_eq!([read("1", 1), read("500", 1), read("0", 0)], [Ok(Some(1)), Ok(Some(500)), Ok(Some(0))]);
        assert_eq!(read("1099511627775", 0), Ok(Some(MOST - 1)));
        for text in ["", " ", "-1", "ten", "1e3", "1_000", "0x10", "1.0", " 5", "5\n6", "1099511627776"] {
            let words = read(text, 0).expect_err(text);
            assert!(words.contains("a whole number from 0 to 1099511627775 is needed"), "{words}");
            assert!(words.starts_with("KDA_FUZZ_CASES is \"") && words.lines().count() == 1, "{words}");
        }
        for text in [u64::MAX.to_string(), format!("{}0", u64::MAX)] {
            assert!(read(&text, 0).is_err(), "{text}");
        }
        assert!(read("0", 1).is_err_and(|words| words.contains("is \"0\"; a whole number from 1 to")));
    }

    #[test]
    fn a_sweep_without_cases_is_a_failure() {
        for sweep in [Sweep { seed: 1, cases: 0, only: None }, Sweep { seed: 1, cases: 5, only: Some(u64::MAX) }] {
            let outcome = sweep.run(|_, _| Ok(()), &|_| {});
            assert_eq!(outcome.verdict("cases", 1), Err("cases: no case was run; at least one is needed".into()));
        }
    }

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
