//! Calls of an operator: how a good one is made wrong, what planning must say of it, and which of those that it takes run.

use super::conv_verify::Shown;
use super::execute::{MOST_BYTES, MOST_CTAS};
use super::{spoil, words_of};
use crate::fuzz::Counts;
use kda_core::exec::Executor;
use kda_core::{LaunchError, TensorArg};
use kda_ref::rng::Rng;
use kda_runtime::operators::{OpError, Plan};
use std::fmt::Debug;

/// One of so many accepted calls is executed, and every one with a tensor of another shape than a good call has.
const EXECUTE: usize = 12;
/// Ways to make a call wrong. Behind those of the operator's own, four shorten an axis and the rest spoil a tensor.
const WAYS: usize = 24;
const SHORTER: usize = 4;

/// How a call is planned.
pub(super) type Planner<P, O> = fn(&P, &dyn Executor, &O) -> Result<Plan, OpError>;

/// Places a call in memory, fills its tables with anything, plans it again and runs it.
pub(super) type Executed<P, O> = fn(Planner<P, O>, P, &O, &mut Rng) -> Result<(), String>;

/// What is known of the calls of an operator.
pub(super) struct Calls<P: 'static, O> {
    /// The operator.
    pub name: &'static str,
    /// A call that every check takes.
    pub good: fn(&mut Rng) -> P,
    /// Options of a launch.
    pub options: fn(&mut Rng) -> O,
    /// The tensors of a call, and whether the kernel may write them.
    pub tensors: fn(&mut P) -> Vec<(&mut TensorArg, bool)>,
    /// Changes of what is no tensor.
    pub changes: &'static [fn(&mut P, &mut Rng)],
    /// Whether the memory of a call is in its tensors.
    pub held: fn(&P) -> bool,
    /// How a call runs.
    pub execute: Executed<P, O>,
}

impl<P: Debug, O: Debug> Calls<P, O> {
    /// One call, wrong in none to two places.
    pub fn case(&self, plan: Planner<P, O>, rng: &mut Rng, counts: &mut Counts) -> Result<(), String> {
        let mut problem = (self.good)(rng);
        let drawn = self.shapes(&mut problem);
        for _ in 0..rng.choose(&[0, 1, 1, 1, 2]) {
            self.wrong(&mut problem, rng);
        }
        let options = (self.options)(rng);
        let shown = Shown(if rng.below(6) == 0 { rng.choose(&[(10, 0), (8, 0), (0, 0)]) } else { (9, 0) });
        let accepted = match plan(&problem, &shown, &options) {
            Ok(accepted) => accepted,
            // The operator knows what its kernels need, and says it of its own arguments; only the size of the grid is left
            // to the launch.
            Err(OpError::Launch(error)) if !matches!(error, LaunchError::TooLarge { .. }) => {
                return Err(format!("taken by the operator, refused by the kernel: {error}\n{problem:?} {options:?}"));
            }
            Err(error) => return words_of(&error, counts),
        };
        counts.add("accepted");
        let ctas = accepted.prepared().grid.iter().map(|n| u64::from(*n)).fold(1, u64::saturating_mul);
        let small = (self.tensors)(&mut problem).iter().all(|(tensor, _)| tensor.extent_bytes() <= MOST_BYTES);
        let reshaped = self.shapes(&mut problem).iter().any(|shape| !drawn.contains(shape));
        let most = if reshaped { 3 * MOST_CTAS } else { MOST_CTAS };
        let runs = shown.0 == (9, 0) && ctas <= most && small && (self.held)(&problem);
        if !runs || !reshaped && rng.below(EXECUTE) != 0 {
            return Ok(());
        }
        let words = format!("{problem:?} {options:?}");
        (self.execute)(plan, problem, &options, rng).map_err(|what| format!("{what}\n{words}"))?;
        counts.add("executed");
        counts.add(&format!("executed of {}", self.name));
        Ok(())
    }

    fn shapes(&self, problem: &mut P) -> Vec<Vec<u64>> {
        (self.tensors)(problem).iter().map(|(tensor, _)| tensor.shape().to_vec()).collect()
    }

    fn wrong(&self, problem: &mut P, rng: &mut Rng) {
        let way = rng.below(WAYS);
        if let Some(change) = self.changes.get(way) {
            return change(problem, rng);
        }
        let shorter = way < self.changes.len() + SHORTER;
        // Mostly what is written is shorter: there, what is touched beyond the axis changes.
        let any = !shorter || rng.below(4) == 0;
        let mut tensors = (self.tensors)(problem);
        tensors.retain(|(_, written)| any || *written);
        let at = rng.below(tensors.len());
        match shorter {
            true => spoil::shorter(tensors[at].0, rng),
            false => spoil::tensor(tensors[at].0, rng),
        }
    }
}

/// What the tests of every operator's calls ask.
#[cfg(test)]
impl<P: Debug, O: Debug + Default> Calls<P, O> {
    /// What is not spoilt is accepted.
    pub fn good_ones_are_accepted(&self, plan: Planner<P, O>) {
        let mut rng = Rng::new(8);
        for index in 0..300 {
            let problem = (self.good)(&mut rng);
            plan(&problem, &Shown((9, 0)), &O::default()).unwrap_or_else(|e| panic!("{index}: {e}\n{problem:?}"));
        }
    }

    /// What becomes of so many calls.
    pub fn sweep(&self, plan: Planner<P, O>, cases: u64) -> crate::fuzz::Outcome {
        let sweep = crate::fuzz::Sweep { seed: 6, cases, only: None };
        sweep.run(|rng, counts| self.case(plan, rng, counts), &|_| {})
    }

    /// Calls are refused, accepted and executed.
    pub fn all_kinds_occur(&self, plan: Planner<P, O>) {
        let outcome = self.sweep(plan, 1_500);
        assert_eq!(outcome.verdict("parameter blocks", 6), Ok(()));
        for name in ["refused", "accepted", &format!("executed of {}", self.name)] {
            assert!(outcome.counts.get(name) > 20, "{name}: {:?}", outcome.counts);
        }
    }

    /// What only the kernel refuses is a failure.
    pub fn refusals_of_kernels_are_failures(&self) {
        let refused = |_: &P, _: &dyn Executor, _: &O| {
            Err(OpError::Launch(LaunchError::Absent { entry: "kernel", param: "state" }))
        };
        assert_eq!(self.sweep(refused, 20).failed, 20);
    }
}
