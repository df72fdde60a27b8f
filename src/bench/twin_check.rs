//! Whether a hand-written twin computes what our kernel computes, and whether results stay finite.

use super::session::{Event, Watch};
use super::twin::Kernel;
use super::{Call, Failure, Launch};
use half::bf16;
use kda_core::exec::Stream;
use kda_core::{Elem, Executor, PreparedLaunch, TensorArg};
use kda_runtime::executor::cuda::CudaExecutor;

/// Largest relative difference of a twin's result: both are rounded to bf16, by half a unit of the last place each.
const MOST_DIFFERENCE: f64 = 4e-3;
/// Calls after which a rolled history no longer changes: it then holds the newest inputs alone.
const SETTLED: usize = 4;
/// Most elements of a result that are read, from its end on: what a recurrence gets wrong has gathered there.
const MOST_ELEMENTS: u64 = 1 << 26;

/// Runs a call by our kernel and by each twin that can run it, and drops twins whose result is not ours but for rounding.
///
/// # Errors
/// The device refuses a launch or a copy.
pub fn check(executor: &CudaExecutor, call: &dyn Call, twins: &mut Vec<Kernel>, watch: Watch) -> Result<(), Failure> {
    let outputs = call.outputs();
    if outputs.is_empty() {
        return Ok(());
    }
    let ours = call.plan(executor, None, Launch::Plain)?.launches().to_vec();
    for _ in 1..SETTLED {
        once(executor, &ours)?;
    }
    let expected = results(executor, &ours, &outputs)?;
    let mut kept = Vec::new();
    for kernel in twins.drain(..) {
        let Some(launch) = call.twin(&kernel, Launch::Plain) else {
            kept.push(kernel);
            continue;
        };
        let found = results(executor, &launch, &outputs)?;
        let apart = expected.iter().zip(&found).map(|(ours, its)| distance(ours, its));
        let difference = apart.fold(0.0, f64::max);
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

/// Runs the launches of a call, and waits.
///
/// # Errors
/// The device refuses a launch.
pub fn once(executor: &CudaExecutor, launches: &[PreparedLaunch]) -> Result<(), Failure> {
    for launch in launches {
        // SAFETY: the tensors lie in the arena, which outlives the wait below; nothing else runs.
        unsafe { executor.launch(launch, Stream::default()) }?;
    }
    Ok(executor.synchronize(Stream::default())?)
}

/// Whether the result of a call that has run is finite; in-place calls that run over and over must not grow.
///
/// # Errors
/// The device refuses a copy.
pub fn is_finite(executor: &CudaExecutor, call: &dyn Call) -> Result<bool, Failure> {
    for tensor in call.outputs() {
        if !read(executor, &tensor)?.iter().all(|value| value.is_finite()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The results of a call, over poison.
fn results(
    executor: &CudaExecutor,
    launches: &[PreparedLaunch],
    outputs: &[TensorArg],
) -> Result<Vec<Vec<f64>>, Failure> {
    for tensor in outputs {
        executor.fill(tensor.ptr, 0xFF, bytes(tensor))?;
    }
    once(executor, launches)?;
    outputs.iter().map(|tensor| read(executor, tensor)).collect()
}

/// Bytes of a dense tensor.
fn bytes(tensor: &TensorArg) -> u64 {
    tensor.shape().iter().product::<u64>() * u64::from(tensor.elem.bytes())
}

/// The last elements of a dense tensor of bf16 or f32.
fn read(executor: &CudaExecutor, tensor: &TensorArg) -> Result<Vec<f64>, Failure> {
    let all = bytes(tensor);
    let read = all.min(MOST_ELEMENTS * u64::from(tensor.elem.bytes()));
    let mut raw = vec![0; read as usize];
    executor.read(tensor.ptr + all - read, &mut raw)?;
    Ok(match tensor.elem {
        Elem::F32 => raw.chunks_exact(4).map(|v| f64::from(f32::from_le_bytes([v[0], v[1], v[2], v[3]]))).collect(),
        _ => raw.chunks_exact(2).map(|v| f64::from(bf16::from_le_bytes([v[0], v[1]]).to_f32())).collect(),
    })
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
