//! Walks the rows of a call: index rules, convolution, copies of raw inputs.

use super::problem::{Convolved, Outputs, Places, Problem, Refusal, Tokens, validate};
use super::{HEAD, HISTORY, step};
use crate::Mode;
use crate::conv::{TapType, WIDTH, convolve};
use crate::floats::Floats;
use crate::round::widen;

/// Runs the operator. See [`Outputs`] for what is written; `N = 0` writes nothing. In [`Mode::Emulate`] outputs and states
/// are fp32 values held in float64.
///
/// # Errors
/// A [`Refusal`] when sizes, strides or index maps do not fit; nothing is written then.
pub fn run(problem: &Problem<'_>, outputs: &mut Outputs<'_>, mode: Mode) -> Result<(), Refusal> {
    validate(problem, outputs)?;
    let d = problem.dims;
    for n in 0..d.n {
        let row = n * outputs.out_row_stride;
        let Some(places) = problem.places(n) else {
            outputs.out[row..row + d.hv * HEAD].fill(0.0);
            continue;
        };
        let activations = activations(problem, n, &places, mode);
        for value_head in 0..d.hv {
            let run = if mode == Mode::Emulate { step::emulate } else { step::golden };
            let (o, state) = run(problem, n, places.slot, value_head, &activations);
            outputs.out[row + value_head * HEAD..][..HEAD].copy_from_slice(&o);
            let to = problem.head(places.slot_out, value_head);
            step::store(problem.order, &state, &mut outputs.state[to..to + HEAD * HEAD]);
        }
        roll(problem, outputs, n, &places);
    }
    Ok(())
}

/// q, k and v of a row, `[D]`.
fn activations(p: &Problem<'_>, n: usize, places: &Places, mode: Mode) -> Vec<f64> {
    let d = p.dims;
    match &p.tokens {
        Tokens::Given(given) => {
            let heads = [(given.q, d.h), (given.k, d.h), (given.v, d.hv)];
            let rows = heads.into_iter().zip(given.row_strides);
            let row = |((x, heads), stride): ((&[half::bf16], usize), usize)| {
                x[n * stride..][..heads * HEAD].iter().map(|x| f64::from(widen(*x))).collect::<Vec<f64>>()
            };
            rows.flat_map(row).collect()
        }
        Tokens::Convolved(c) => {
            let tap_type = if matches!(c.weight, Floats::Bf16(_)) { TapType::Bf16 } else { TapType::F32 };
            let channel = |channel: usize| {
                let taps: [f32; WIDTH] = std::array::from_fn(|j| c.weight.get_f32(channel * WIDTH + j));
                let window = std::array::from_fn(|j| raw(c, n, places.line, j, channel));
                convolve(window, taps, c.bias.map(|bias| bias[channel]), tap_type, mode)
            };
            (0..d.channels()).map(channel).collect()
        }
    }
}

/// Raw input: steps 0, 1 and 2 are the history, 3 is the token.
fn raw(c: &Convolved<'_>, n: usize, line: usize, step: usize, channel: usize) -> f32 {
    if step < HISTORY {
        c.pool.get_f32(c.layout.offset(line, channel, step))
    } else {
        widen(c.x[n * c.x_row_stride + channel])
    }
}

/// The last three inputs become the history. The problem's own pool is never written, so no row sees another row's roll.
fn roll(p: &Problem<'_>, outputs: &mut Outputs<'_>, n: usize, places: &Places) {
    let (Tokens::Convolved(c), Some(rolled)) = (&p.tokens, &mut outputs.rolled) else { return };
    for channel in 0..p.dims.channels() {
        for tap in 0..HISTORY {
            let newest = raw(c, n, places.line, 1 + tap, channel);
            rolled.put_exact(c.layout.offset(places.line_out, channel, tap), newest);
        }
    }
}
