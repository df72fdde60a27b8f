//! Walks the requests of a call: metadata rules, convolution, records, and the roll of raw inputs.

use super::head::{self, Arithmetic};
use super::problem::{Conv, Outputs, Problem, Request};
use super::validate::{self, Refusal};
use super::{HEAD, HISTORY};
use crate::Mode;
use crate::conv::{TapType, WIDTH, convolve};
use crate::emulate::tc_verify::Couplings;
use crate::floats::Floats;
use crate::round::widen;
use half::bf16;

/// Runs the operator. See [`Outputs`] for what is written; a call without requests writes nothing. In [`Mode::Emulate`] outputs
/// and corrections are fp32 values held in float64.
///
/// # Errors
/// A [`Refusal`] when sizes, pitches or element types do not fit, or requests share tokens, or slots that roll; nothing is
/// written then.
pub fn run(problem: &Problem<'_>, outputs: &mut Outputs<'_>, mode: Mode) -> Result<(), Refusal> {
    run_in(problem, outputs, mode, Couplings::Scalar)
}

/// [`run()`] in [`Mode::Emulate`], with couplings and a solve of fp32 or of tensor cores.
///
/// # Errors
/// As [`run()`].
pub fn emulate(problem: &Problem<'_>, outputs: &mut Outputs<'_>, couplings: Couplings) -> Result<(), Refusal> {
    run_in(problem, outputs, Mode::Emulate, couplings)
}

fn run_in(problem: &Problem<'_>, outputs: &mut Outputs<'_>, mode: Mode, couplings: Couplings) -> Result<(), Refusal> {
    validate::inputs(problem)?;
    validate::outputs(problem, outputs)?;
    let p = problem;
    let arithmetic = if mode == Mode::Emulate { Arithmetic::Emulated(couplings) } else { Arithmetic::Golden };
    for request in p.requests() {
        let out = |t: usize, head: usize| (request.begin + t) * outputs.out_pitch + head * HEAD;
        let Some(slot) = request.slot else {
            (0..request.len).for_each(|t| outputs.out[out(t, 0)..][..p.heads * HEAD].fill(0.0));
            continue;
        };
        let activations = activations(p, &request, slot, mode);
        for head in 0..p.heads {
            let drafts = head::drafts(p, &request, head, &activations);
            let (o, records) = head::run(p, slot, head, &drafts, arithmetic);
            for (t, o) in o.chunks_exact(HEAD).enumerate() {
                outputs.out[out(t, head)..][..HEAD].copy_from_slice(o);
            }
            let record = p.record(request.b, head, 0);
            outputs.corr[record..][..records.corr.len()].copy_from_slice(&records.corr);
            outputs.kg[2 * record..][..records.kg.len()].copy_from_slice(&records.kg);
        }
        if let Some(conv) = &mut outputs.conv {
            roll(p, conv, &request, slot);
        }
    }
    Ok(())
}

/// q, k and v of a request behind the convolution, `[len, 3, heads, K]`.
pub(super) fn activations(p: &Problem<'_>, request: &Request, slot: usize, mode: Mode) -> Vec<f64> {
    let channels = p.channels();
    let mut y = vec![0.0; request.len * channels];
    for (t, y) in y.chunks_exact_mut(channels).enumerate() {
        let row = &p.qkv[(request.begin + t) * p.qkv_pitch..][..channels];
        match &p.conv {
            None => y.iter_mut().zip(row).for_each(|(y, &x)| *y = f64::from(widen(x))),
            Some(conv) => {
                let tap_type = if matches!(conv.taps, Floats::Bf16(_)) { TapType::Bf16 } else { TapType::F32 };
                for (channel, y) in y.iter_mut().enumerate() {
                    let taps = std::array::from_fn(|j| conv.taps.get_f32(channel * WIDTH + j));
                    let window = std::array::from_fn(|j| widen(raw(p, conv, request, slot, t + j, channel)));
                    *y = convolve(window, taps, None, tap_type, mode);
                }
            }
        }
    }
    y
}

/// Raw input: steps 0, 1 and 2 are the history, 3 + t is token t.
fn raw(p: &Problem<'_>, conv: &Conv<'_>, request: &Request, slot: usize, step: usize, channel: usize) -> bf16 {
    match step.checked_sub(HISTORY) {
        Some(t) => p.qkv[(request.begin + t) * p.qkv_pitch + channel],
        None => {
            let row = request.first + step;
            conv.pool[slot * conv.pitch + conv.order.offset(row, channel, p.conv_rows(), p.channels())]
        }
    }
}

/// The newest two history rows and the tokens become rows 0 and on. The problem's own pool is never written.
pub(super) fn roll(p: &Problem<'_>, rolled: &mut [bf16], request: &Request, slot: usize) {
    let Some(conv) = &p.conv else { return };
    for channel in 0..p.channels() {
        for row in 0..HISTORY - 1 + request.len {
            let to = slot * conv.pitch + conv.order.offset(row, channel, p.conv_rows(), p.channels());
            rolled[to] = raw(p, conv, request, slot, row + 1, channel);
        }
    }
}
