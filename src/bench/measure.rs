//! How long a call takes.

use super::Failure;
use kda_core::exec::Stream;
use kda_core::{Executor, PreparedLaunch};
use kda_runtime::executor::cuda::{CudaExecutor, CudaGraph};
use serde::Serialize;

/// Bytes of all input sets together, at least: several times L2.
pub const COLD_BYTES: f64 = 210e6;
/// Device time of one replay, at least, as far as it is known ahead.
const REPLAY_US: f64 = 300.0;
/// Calls of one replay, at least, so that neighbours overlap.
const LEAST_CALLS: f64 = 4.0;
/// No call is expected to take less.
const LEAST_US: f64 = 2.5;
/// Replays ahead of the first that counts.
const WARM_UP: usize = 2;

/// Input sets of so many bytes each that leave L2 cold.
pub fn sets(bytes: f64) -> usize {
    ((COLD_BYTES / bytes).ceil() as usize).clamp(2, 1024)
}

/// Times one call after the other through `sets` input sets until a replay is long enough; `floor_us` is the least that a
/// call takes.
pub fn rounds(floor_us: f64, sets: usize) -> usize {
    let calls = (REPLAY_US / floor_us.max(LEAST_US)).max(LEAST_CALLS);
    (calls / sets as f64).ceil() as usize
}

/// Time of a call over the replays of its graph, µs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Time {
    /// Median.
    pub us: f64,
    /// 10th percentile.
    pub p10: f64,
    /// 90th percentile.
    pub p90: f64,
}

impl Time {
    /// From the times of the samples. Of two in the middle the larger one; `samples` must not be empty.
    pub fn of(samples: &mut [f64]) -> Time {
        samples.sort_by(f64::total_cmp);
        let last = samples.len() - 1;
        let at = |share: f64| samples[(share * last as f64).round() as usize];
        Time { us: samples[samples.len() / 2], p10: at(0.1), p90: at(0.9) }
    }
}

/// Calls of one kernel, one for each input set, captured over several rounds.
pub struct Contender {
    graph: CudaGraph,
    /// Calls of one replay.
    pub calls: usize,
}

impl Contender {
    /// Loads the kernels and captures the calls, each of one launch or several.
    ///
    /// # Safety
    /// The tensors of the launches must outlive the contender.
    ///
    /// # Errors
    /// The device refuses a kernel or a launch.
    pub unsafe fn new(
        executor: &CudaExecutor,
        calls: &[Vec<PreparedLaunch>],
        rounds: usize,
    ) -> Result<Contender, Failure> {
        for launch in calls.iter().flatten() {
            executor.warm(launch.desc)?;
        }
        let graph = executor.capture(|executor| {
            for launch in (0..rounds).flat_map(|_| calls.iter().flatten()) {
                // SAFETY: the caller keeps the tensors; calls of one stream follow each other.
                unsafe { executor.launch(launch, Stream::default()) }?;
            }
            Ok(())
        })?;
        Ok(Contender { graph, calls: rounds * calls.len() })
    }

    /// One replay, µs a call.
    fn replay(&self, executor: &CudaExecutor) -> Result<f64, Failure> {
        // SAFETY: whoever made the contender keeps its tensors.
        let us = executor.time_us(|_| unsafe { self.graph.launch(Stream::default()) })?;
        Ok(us / self.calls as f64)
    }
}

/// Times all contenders in turn, so that a drift of the device's clock meets all of them.
///
/// # Errors
/// A call fails on the device.
pub fn in_turn(executor: &CudaExecutor, contenders: &[Contender], samples: usize) -> Result<Vec<Time>, Failure> {
    let mut times = vec![Vec::with_capacity(samples); contenders.len()];
    for round in 0..WARM_UP + samples.max(1) {
        for (contender, times) in contenders.iter().zip(&mut times) {
            let us = contender.replay(executor)?;
            if round >= WARM_UP {
                times.push(us);
            }
        }
    }
    Ok(times.iter_mut().map(|times| Time::of(times)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_larger_than_l2_together_and_replays_long_enough() {
        assert_eq!([sets(2.9e6), sets(210e6), sets(3e9), sets(1.0)], [73, 2, 2, 1024]);
        for (floor, sets, calls) in [(0.7, 73, 146), (10.9, 5, 30), (687.0, 2, 4), (100.0, 2, 4)] {
            assert_eq!(rounds(floor, sets) * sets, calls, "{floor} us, {sets} sets");
        }
        assert_eq!(rounds(0.7, 1), 120, "one set, L2 warm");
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_samples() {
        let mut samples: Vec<f64> = (1..=15).rev().map(f64::from).collect();
        assert_eq!(Time::of(&mut samples), Time { us: 8.0, p10: 2.0, p90: 14.0 });
        assert_eq!(Time::of(&mut [3.0]), Time { us: 3.0, p10: 3.0, p90: 3.0 });
        assert_eq!(Time::of(&mut [3.0, 1.0]).us, 3.0);
    }
}
