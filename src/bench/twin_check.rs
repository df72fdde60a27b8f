//! Whether a hand-written twin computes what our kernel computes, and whether results stay finite.

use super::session::{Event, Watch};
use super::twin::Kernel;
use super::{Call, Failure, Launch};
use half::bf16;
use kda_core::exec::Stream;
use kda_core::{Executor, PreparedLaunch};
use kda_runtime::executor::cuda::CudaExecutor;

/// Largest relative difference of a twin's result: both are rounded to bf16, by half a unit of the last place each.
const MOST_DIFFERENCE: f64 = 4e-3;
/// Calls after which a rolled history no longer changes: it then holds the newest inputs alone.
const SETTLED: usize = 4;

/// Runs a call by our kernel and by each twin that can run it, and drops twins whose result is not ours but for rounding.
///
/// # Errors
/// The device refuses a launch or a copy.
pub fn check(executor: &CudaExecutor, call: &dyn Call, twins: &mut Vec<Kernel>, watch: Watch) -> Result<(), Failure> {
    let Some((out, elements)) = call.output() else { return Ok(()) };
    let ours = call.plan(executor, None, Launch::Plain)?.prepared().clone();
    for _ in 1..SETTLED {
        once(executor, &ours)?;
    }
    let expected = result(executor, &ours, out, elements)?;
    let mut kept = Vec::new();
    for kernel in twins.drain(..) {
        let Some(launch) = call.twin(&kernel, Launch::Plain) else {
            kept.push(kernel);
            continue;
        };
        let difference = distance(&expected, &result(executor, &launch, out, elements)?);
        let what = format!("twin {} T={}: out differs from ours by {difference:.1e}", kernel.name, kernel.tokens);
        if difference <= MOST_DIFFERENCE {
            watch(Event::Note(what))?;
            kept.push(kernel);
        } else {
            watch(Event::Note(format!("{what}, more than {MOST_DIFFERENCE:.0e}: not timed")))?;
        }
    }
    *twins = kept;
    Ok(())
}

fn once(executor: &CudaExecutor, launch: &PreparedLaunch) -> Result<(), Failure> {
    // SAFETY: the tensors lie in the arena, which outlives the wait below; nothing else runs.
    unsafe { executor.launch(launch, Stream::default()) }?;
    Ok(executor.synchronize(Stream::default())?)
}

/// Whether the result of a call that has run is finite; in-place calls that run over and over must not grow.
///
/// # Errors
/// The device refuses a copy.
pub fn is_finite(executor: &CudaExecutor, call: &dyn Call) -> Result<bool, Failure> {
    let Some((out, elements)) = call.output() else { return Ok(true) };
    Ok(read(executor, out, elements)?.iter().all(|value| value.is_finite()))
}

/// The result of a launch, over poison.
fn result(executor: &CudaExecutor, launch: &PreparedLaunch, out: u64, elements: u64) -> Result<Vec<f64>, Failure> {
    executor.fill(out, 0xFF, 2 * elements)?;
    once(executor, launch)?;
    read(executor, out, elements)
}

/// Elements of bf16.
fn read(executor: &CudaExecutor, out: u64, elements: u64) -> Result<Vec<f64>, Failure> {
    let mut bytes = vec![0; 2 * elements as usize];
    executor.read(out, &mut bytes)?;
    Ok(bytes.chunks_exact(2).map(|pair| f64::from(bf16::from_le_bytes([pair[0], pair[1]]).to_f32())).collect())
}

/// Distance relative to the first, in the Frobenius norm; NaN counts as infinitely far.
fn distance(first: &[f64], second: &[f64]) -> f64 {
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>();
    let apart = square(&mut first.iter().zip(second).map(|(a, b)| a - b));
    let ratio = (apart / square(&mut first.iter().copied())).sqrt();
    if ratio.is_finite() { ratio } else { f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poison_is_infinitely_far() {
        assert_eq!(distance(&[3.0, 4.0], &[3.0, 4.0]), 0.0);
        assert_eq!(distance(&[3.0, 4.0], &[3.0, 9.0]), 1.0);
        assert_eq!(distance(&[3.0, 4.0], &[3.0, f64::NAN]), f64::INFINITY);
    }
}
