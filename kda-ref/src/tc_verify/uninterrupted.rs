//! The recurrence of one request over all its accepted tokens, without drafts, records or commits: what speculative steps
//! must come to.

use super::HEAD;
use super::problem::Problem;
use crate::Mode;
use crate::conv::{TapType, WIDTH, convolve};
use crate::delta_rule::{Token, step};
use crate::floats::Floats;
use crate::gate::sigmoid;
use crate::norm::l2_normalise;
use crate::round::widen;
use half::bf16;

/// One token of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// `[3, heads, K]`: raw projections with a convolution, else q, k and v.
    pub qkv: Vec<bf16>,
    /// `[heads, K]`.
    pub raw_g: Vec<bf16>,
    /// `[heads]`.
    pub raw_beta: Vec<bf16>,
}

/// What the recurrence gives.
#[derive(Clone, Debug)]
pub struct Whole {
    /// Outputs `[heads, V]` of every token, before rounding.
    pub outs: Vec<Vec<f64>>,
    /// Its keys `[heads, K]`, not normalised.
    pub keys: Vec<Vec<f64>>,
    /// The states `[heads, V, K]` behind it.
    pub states: Vec<Vec<f64>>,
}

/// Runs `rows` from a state `[heads, V, K]` and, with a convolution, from the three inputs ahead of the first row,
/// `[3, heads, K]` each. Of the problem only the weights, the gate and the scale are looked at. The mode decides the rounding of
/// activations; everything else is float64.
///
/// # Panics
/// If a row, the state or the history is shorter than said.
pub fn uninterrupted(p: &Problem<'_>, rows: &[Row], history: &[Vec<bf16>], state: &[f64], mode: Mode) -> Whole {
    let heads = p.heads;
    let raw: Vec<&[bf16]> = history.iter().map(Vec::as_slice).chain(rows.iter().map(|row| &row.qkv[..])).collect();
    let mut whole = Whole { outs: Vec::new(), keys: Vec::new(), states: Vec::new() };
    let transposed = |s: &[f64]| -> Vec<f64> { (0..HEAD * HEAD).map(|i| s[i % HEAD * HEAD + i / HEAD]).collect() };
    // K-first, as the recurrence has it.
    let mut states: Vec<Vec<f64>> = state.chunks_exact(HEAD * HEAD).map(transposed).collect();
    for (t, row) in rows.iter().enumerate() {
        let activation = |channel: usize| match &p.conv {
            None => f64::from(widen(row.qkv[channel])),
            Some(conv) => {
                let tap_type = if matches!(conv.taps, Floats::Bf16(_)) { TapType::Bf16 } else { TapType::F32 };
                let window = std::array::from_fn(|j| widen(raw[t + j][channel]));
                let taps = std::array::from_fn(|j| conv.taps.get_f32(channel * WIDTH + j));
                convolve(window, taps, None, tap_type, mode)
            }
        };
        let (mut outs, mut keys) = (Vec::new(), Vec::new());
        for (head, state) in states.iter_mut().enumerate() {
            let part = |part: usize| -> Vec<f64> {
                let first = (part * heads + head) * HEAD;
                (first..first + HEAD).map(activation).collect()
            };
            let (mut q, mut k, v) = (part(0), part(1), part(2));
            keys.extend(k.iter().copied());
            l2_normalise(&mut q, p.scale);
            l2_normalise(&mut k, 1.0);
            let log_decay: Vec<f64> = (head * HEAD..(head + 1) * HEAD)
                .map(|c| {
                    let z = row.raw_g[c].to_f64() + f64::from(p.dt_bias[c]);
                    p.gate().log_decay(z, f64::from(p.a_log(head)))
                })
                .collect();
            let (mut u, mut o) = (vec![0.0; HEAD], vec![0.0; HEAD]);
            let beta = sigmoid(row.raw_beta[head].to_f64());
            step(state, Token { q: &q, k: &k, v: &v, log_decay: &log_decay, beta }, &mut u, &mut o);
            outs.extend(o);
        }
        whole.outs.push(outs);
        whole.keys.push(keys);
        whole.states.push(states.iter().flat_map(|s| transposed(s)).collect());
    }
    whole
}
