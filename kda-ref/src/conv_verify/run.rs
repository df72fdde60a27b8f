//! Walks the rows of a call: index rules, copies of raw inputs, and the sinks of outputs and snapshots.

use super::problem::{Outputs, Problem};
use super::validate::{Refusal, validate};
use super::{HEAD, HISTORY, emulate, golden};
use crate::Mode;
use crate::conv::{TapType, WIDTH, convolve};
use crate::floats::Floats;
use crate::layout::StateOrder;
use crate::round::{bf16_from_f32, bf16_from_f64};

/// Runs the operator. See [`Outputs`] for what is written; `N = 0` writes nothing.
///
/// In [`Mode::Emulate`] outputs and states are fp32 values held in float64.
///
/// # Errors
/// A [`Refusal`] when sizes, strides, element types or index maps do not fit; nothing is written then.
pub fn run(problem: &Problem<'_>, outputs: &mut Outputs<'_>, mode: Mode) -> Result<(), Refusal> {
    validate(problem, outputs)?;
    for n in 0..problem.dims.n {
        match problem.live_row(n) {
            None => zero_row(problem, outputs, n),
            Some((line, slot)) => {
                live_row(problem, outputs, n, line, slot, mode);
                copy_windows(problem, outputs, n, line);
                roll(problem, outputs, n, line);
            }
        }
    }
    Ok(())
}

/// A padding row: zeros in the output, nothing else.
fn zero_row(p: &Problem<'_>, outputs: &mut Outputs<'_>, n: usize) {
    for t in 0..p.dims.t {
        let begin = (n * p.dims.t + t) * outputs.out_row_stride;
        outputs.out[begin..begin + p.dims.hv * HEAD].fill(0.0);
        outputs.out_bf16[begin..begin + p.dims.hv * HEAD].fill(half::bf16::ZERO);
    }
}

fn live_row(p: &Problem<'_>, outputs: &mut Outputs<'_>, n: usize, line: usize, slot: usize, mode: Mode) {
    let d = p.dims;
    let activations = activations(p, n, line, mode);
    let target = p.snapshot_targets(n).map(|(row, _)| row);
    for value_head in 0..d.hv {
        let stride = outputs.out_row_stride;
        let (out, out_bf16, states) = (&mut *outputs.out, &mut *outputs.out_bf16, &mut outputs.states);
        // `o` [V] and the K-first state after token t.
        let mut sink = |t: usize, o: &[f64], state: &[f64]| {
            let begin = (n * d.t + t) * stride + value_head * HEAD;
            for (i, &o) in o.iter().enumerate() {
                out[begin + i] = o;
                out_bf16[begin + i] = match mode {
                    Mode::Emulate => bf16_from_f32(o as f32),
                    _ => bf16_from_f64(o),
                };
            }
            if let (Some(row), Some(states)) = (target, states.as_mut()) {
                let begin = ((row * p.t_alloc + t) * d.hv + value_head) * HEAD * HEAD;
                StateOrder::VFirst.store(HEAD, HEAD, state, &mut states[begin..begin + HEAD * HEAD]);
            }
        };
        match mode {
            Mode::Emulate => emulate::value_head(p, n, slot, value_head, &activations, &mut sink),
            _ => golden::value_head(p, n, slot, value_head, &activations, &mut sink),
        }
    }
}

/// Convolution and SiLU of every token and channel of a row, `[T, D]`.
fn activations(p: &Problem<'_>, n: usize, line: usize, mode: Mode) -> Vec<f64> {
    let tap_type = if matches!(p.conv_weight, Floats::Bf16(_)) { TapType::Bf16 } else { TapType::F32 };
    let channels = p.dims.channels();
    let mut y = vec![0.0; p.dims.t * channels];
    for channel in 0..channels {
        let taps: [f32; WIDTH] = std::array::from_fn(|j| p.conv_weight.get_f32(channel * WIDTH + j));
        let bias = p.conv_bias.map(|bias| bias[channel]);
        for t in 0..p.dims.t {
            let window = std::array::from_fn(|j| p.raw(n, line, t + j, channel));
            y[t * channels + channel] = convolve(window, taps, bias, tap_type, mode);
        }
    }
    y
}

/// The three newest raw inputs at every token, bit for bit.
fn copy_windows(p: &Problem<'_>, outputs: &mut Outputs<'_>, n: usize, line: usize) {
    let (Some((_, row)), Some((windows, layout))) = (p.snapshot_targets(n), &mut outputs.windows) else { return };
    for t in 0..p.dims.t {
        for channel in 0..p.dims.channels() {
            for tap in 0..HISTORY {
                windows.put_exact(layout.offset(row, t, channel, tap), p.raw(n, line, t + 1 + tap, channel));
            }
        }
    }
}

/// The last three of history and inputs become the history. The problem's own pool is never written, so no row can see
/// another row's roll.
fn roll(p: &Problem<'_>, outputs: &mut Outputs<'_>, n: usize, line: usize) {
    let (true, Some(rolled)) = (p.roll, &mut outputs.rolled) else { return };
    for channel in 0..p.dims.channels() {
        for tap in 0..HISTORY {
            let newest = p.raw(n, line, p.dims.t + tap, channel);
            rolled.put_exact(p.conv_layout.offset(line, channel, tap), newest);
        }
    }
}
