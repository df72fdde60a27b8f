//! One value head of one row in a kernel's arithmetic: fp32 with the contract's trees for norms and sums over K.

use super::problem::Problem;
use super::{HEAD, TokenSink};
use crate::emulate::delta_rule::{Token, step};
use crate::emulate::scalar;
use crate::layout::StateOrder;
use crate::round::widen;

/// As the golden function of the same name, in fp32. Outputs and states go to `sink` widened.
pub(super) fn value_head(
    p: &Problem<'_>,
    n: usize,
    slot: usize,
    value_head: usize,
    activations: &[f64],
    sink: TokenSink<'_>,
) {
    let d = p.dims;
    let key_head = d.key_head(value_head);
    let (gate, a_log) = (p.gate(), p.a_log(value_head));
    let base = slot * p.state_slot_stride + value_head * HEAD * HEAD;
    let mut state: Vec<f32> = (0..HEAD * HEAD)
        .map(|i| p.state.get_f32(base + StateOrder::VFirst.offset(i / HEAD, i % HEAD, HEAD, HEAD)))
        .collect();
    let (mut u, mut o) = ([0.0f32; HEAD], [0.0f32; HEAD]);
    let mut wide = vec![0.0; HEAD * HEAD];
    for t in 0..d.t {
        let channels = &activations[t * d.channels()..(t + 1) * d.channels()];
        // Activations are bf16 values here, so the conversion is exact.
        let head = |index: usize| -> [f32; HEAD] { std::array::from_fn(|c| channels[index * HEAD + c] as f32) };
        let (mut q, mut k, v) = (head(key_head), head(d.h + key_head), head(2 * d.h + value_head));
        scalar::l2_normalise(&mut q, p.scale as f32);
        scalar::l2_normalise(&mut k, 1.0);
        let row = (n * d.t + t) * d.hv + value_head;
        let log_decay = std::array::from_fn(|c| {
            scalar::log_decay(gate, widen(p.a[row * HEAD + c]), p.dt_bias[value_head * HEAD + c], a_log)
        });
        let beta = scalar::sigmoid(widen(p.b[row]));
        step(&mut state, Token { q: &q, k: &k, v: &v, log_decay: &log_decay, beta }, &mut u, &mut o);
        for (wide, s) in wide.iter_mut().zip(&state) {
            *wide = f64::from(*s);
        }
        sink(t, &o.map(f64::from), &wide);
    }
}
