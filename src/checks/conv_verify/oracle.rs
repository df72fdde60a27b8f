//! Golden cases of third-party references through the operator.
//!
//! The expected values know no rounding to bf16, so the operator is judged by the contract's emulation: it may be off by
//! twice what the emulation is off by on the same case, in the relative Frobenius error and in the largest error of one
//! element. An emulation that is off by more than bf16 explains says nothing about the operator, so its error counts up to
//! [`MOST_EMULATION`] only. Windows and rolled histories are copies and equal bit for bit.

use super::Failure;
use super::call::{Call, Results};
use super::case::{Case, View};
use crate::checks::Device;
use half::bf16;
use kda_ref::Mode;
use kda_ref::budget::{ErrorMeasure, FLOOR};
use kda_ref::conv_verify::sample::{Buffers, Sample, Switches};
use kda_ref::conv_verify::{ConvLayout, Dims, HEAD, HISTORY, SnapshotRule, run as golden};
use kda_ref::floats::FloatVec;
use kda_ref::replay::{Case as Golden, Comparison, Values};

/// What a kernel may be off by, in errors of the emulation.
const FACTOR: f64 = 2.0;
/// Largest error of the emulation that rounding the convolution to bf16 explains: the bound that the KDA tests of public
/// kernel libraries use for bf16.
pub const MOST_EMULATION: f64 = 5e-3;

/// Runs the case; `None` if it is not one of this operator.
pub fn run(device: Device, golden_case: &Golden) -> Result<Option<Vec<Comparison>>, Failure> {
    if !golden_case.tensors.contains_key("in.x_qkv") || !golden_case.tensors.contains_key("in.cu_seqlens") {
        return Ok(None);
    }
    let Some(sample) = sample(golden_case)? else { return Ok(None) };
    let mut emulated = sample.buffers();
    golden(&sample.problem(), &mut emulated.outputs(), Mode::Emulate)?;
    let case = Case { sample, view: View::WHOLE };
    let results = Call::new(device, &case)?.run(None)?;
    compare(golden_case, &case.sample, &results, &emulated).map(Some)
}

/// The case as a call with the identity for every index array; `None` unless all its requests have one length.
fn sample(case: &Golden) -> Result<Option<Sample>, Failure> {
    let (h, hv) = (case.heads, case.value_heads);
    let bounds = match &case.tensors.get("in.cu_seqlens").ok_or("no tensor in.cu_seqlens")?.values {
        Values::Int(bounds) => bounds,
        Values::Float(_) => return Err("in.cu_seqlens holds floats; 32-bit integers are needed".into()),
    };
    let n = bounds.len().saturating_sub(1);
    let t = bounds.get(1).map_or(0, |end| usize::try_from(*end).unwrap_or(0));
    if n == 0 || t == 0 || bounds.iter().enumerate().any(|(i, b)| usize::try_from(*b) != Ok(i * t)) {
        return Ok(None);
    }
    if h == 0 || hv == 0 || !hv.is_multiple_of(h) {
        return Err(format!("{hv} value heads over {h} query/key heads").into());
    }
    let dims = Dims { n, t, h, hv };
    let channels = dims.channels();
    let bf16s = |name: &str, length: usize| -> Result<Vec<bf16>, Failure> {
        Ok(floats(case, name, length)?.iter().map(|v| bf16::from_f64(*v)).collect())
    };
    let f32s = |name: &str, length: usize| -> Result<Vec<f32>, Failure> {
        Ok(floats(case, name, length)?.iter().map(|v| *v as f32).collect())
    };
    let identity: Vec<i32> = (0..n as i32).collect();
    let state = keys_innermost(floats(case, "in.h0", n * dims.state_len())?);
    Ok(Some(Sample {
        switches: Switches {
            bf16_taps: true,
            bf16_pool: true,
            lower_bound: case.lower_bound,
            roll: true,
            rule: SnapshotRule::ByIndex,
            ..Switches::plain(n, t, h, hv)
        },
        x: bf16s("in.x_qkv", n * t * channels)?,
        conv_weight: FloatVec::Bf16(bf16s("in.conv_weight", 4 * channels)?),
        conv_bias: None,
        conv_state: FloatVec::Bf16(bf16s("in.conv_state", n * channels * HISTORY)?),
        conv_layout: ConvLayout::window_innermost(n, channels),
        conv_slots: identity.clone(),
        state: state.iter().map(|v| *v as f32).collect(),
        state_len: n,
        state_slots: identity.clone(),
        snapshot_rows: identity,
        snapshot_len: n,
        a: bf16s("in.g_raw", n * t * hv * HEAD)?,
        b: bf16s("in.beta_raw", n * t * hv)?,
        a_log: Some(f32s("in.A_log", hv)?),
        dt_bias: f32s("in.dt_bias", hv * HEAD)?,
    }))
}

/// Elements of a float tensor.
pub(in crate::checks) fn floats<'c>(case: &'c Golden, name: &str, length: usize) -> Result<&'c [f64], Failure> {
    let tensor = case.tensors.get(name).ok_or_else(|| format!("the case has no tensor {name}, which is needed"))?;
    match &tensor.values {
        Values::Float(values) if values.len() == length => Ok(values),
        Values::Float(values) => {
            Err(format!("tensor {name} has {} elements; {length} are needed", values.len()).into())
        }
        Values::Int(_) => Err(format!("tensor {name} needs to hold floats").into()),
    }
}

/// States `[K, V]` as `[V, K]`, or the reverse.
pub(in crate::checks) fn keys_innermost(states: &[f64]) -> Vec<f64> {
    let mut swapped = vec![0.0; states.len()];
    for (i, value) in states.iter().enumerate() {
        let (state, row, column) = (i / (HEAD * HEAD), i / HEAD % HEAD, i % HEAD);
        swapped[state * HEAD * HEAD + column * HEAD + row] = *value;
    }
    swapped
}

fn compare(case: &Golden, sample: &Sample, results: &Results, emulated: &Buffers) -> Result<Vec<Comparison>, Failure> {
    let dims = sample.switches.dims;
    let (n, t, length) = (dims.n, dims.t, dims.state_len());
    let widen = |values: &[bf16]| -> Vec<f64> { values.iter().map(|v| v.to_f64()).collect() };
    let states: Vec<f64> = results.states.iter().flatten().map(|v| f64::from(*v)).collect();
    let windows = results.windows.as_ref().ok_or("the call has no windows")?;
    let exact = |values: &FloatVec| values.view().widened(0, values.view().len());
    let expected = floats(case, "out.o", n * t * dims.hv * HEAD)?;
    let mut compared = judged("out.o", expected, &widen(&results.out), &widen(&emulated.out_bf16)).to_vec();
    if case.tensors.contains_key("out.state_after") {
        let expected = keys_innermost(floats(case, "out.state_after", n * t * length)?);
        compared.extend(judged("out.state_after", &expected, &states, &emulated.states));
        let expected = floats(case, "out.conv_state_after", n * t * dims.channels() * HISTORY)?;
        compared.push(copied("out.conv_state_after", expected, &exact(windows)));
    } else {
        let last = |states: &[f64]| -> Vec<f64> {
            (0..n).flat_map(|row| states[((row + 1) * t - 1) * length..][..length].to_vec()).collect()
        };
        let expected = keys_innermost(floats(case, "out.final_state", n * length)?);
        compared.extend(judged("out.final_state", &expected, &last(&states), &last(&emulated.states)));
        let expected = floats(case, "out.conv_state", n * dims.channels() * HISTORY)?;
        compared.push(copied("out.conv_state", expected, &exact(&results.pool)));
    }
    Ok(compared)
}

/// Relative Frobenius error, and largest error relative to the largest value, each against that of the emulation.
pub(in crate::checks) fn judged(name: &str, expected: &[f64], measured: &[f64], emulated: &[f64]) -> [Comparison; 2] {
    let (error, allowed) = (ErrorMeasure::between(expected, measured), ErrorMeasure::between(expected, emulated));
    let row = |measure: &str, error: f64, emulation: f64| {
        // Nothing is within a limit that is not a number.
        let plausible = if emulation > MOST_EMULATION { MOST_EMULATION } else { emulation };
        let limit = FACTOR * plausible + FLOOR;
        Comparison {
            output: format!("{name}, {measure}"),
            elements: expected.len(),
            max_abs_error: largest(expected, measured),
            worst: (error, limit),
            passes: error <= limit,
        }
    };
    [row("Frobenius", error.rms, allowed.rms), row("largest", error.max, allowed.max)]
}

/// Equal, element by element.
pub(in crate::checks) fn copied(name: &str, expected: &[f64], measured: &[f64]) -> Comparison {
    let error = largest(expected, measured);
    Comparison {
        output: name.into(),
        elements: expected.len(),
        max_abs_error: error,
        worst: (error, 0.0),
        passes: error == 0.0,
    }
}

/// Largest absolute difference; NaN if there is one, infinite for other lengths.
fn largest(expected: &[f64], measured: &[f64]) -> f64 {
    kda_ref::budget::max_abs_error(expected, measured)
}
