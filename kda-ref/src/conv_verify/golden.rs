//! One value head of one row in float64: norm, gate, recurrence.
//!
//! ```text
//! qn = y_q / sqrt(sum y_q^2 + 1e-6) * scale;  kn = y_k / sqrt(sum y_k^2 + 1e-6);  v = y_v
//! S <- S * exp(g);  u = beta (v - S kn);  S <- S + u kn^T;  o = S qn
//! ```

use super::problem::Problem;
use super::{HEAD, TokenSink};
use crate::delta_rule::{Token, step};
use crate::gate::sigmoid;
use crate::layout::StateOrder;
use crate::norm::l2_normalise;
use crate::round::widen;

/// Runs the tokens of row `n` in order. `activations` is `[T, D]`; `sink(t, o, state)` gets `o` `[V]` and the K-first
/// state after every token.
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
    let (gate, a_log) = (p.gate(), f64::from(p.a_log(value_head)));
    let base = slot * p.state_slot_stride + value_head * HEAD * HEAD;
    let mut state = StateOrder::VFirst.load(HEAD, HEAD, |i| p.state.get(base + i));
    let (mut u, mut o, mut log_decay) = ([0.0; HEAD], [0.0; HEAD], [0.0; HEAD]);
    for t in 0..d.t {
        let channels = &activations[t * d.channels()..(t + 1) * d.channels()];
        let head = |index: usize| &channels[index * HEAD..(index + 1) * HEAD];
        let (mut q, mut k) = (head(key_head).to_vec(), head(d.h + key_head).to_vec());
        l2_normalise(&mut q, p.scale);
        l2_normalise(&mut k, 1.0);
        let row = (n * d.t + t) * d.hv + value_head;
        for (c, g) in log_decay.iter_mut().enumerate() {
            let z = f64::from(widen(p.a[row * HEAD + c])) + f64::from(p.dt_bias[value_head * HEAD + c]);
            *g = gate.log_decay(z, a_log);
        }
        let beta = sigmoid(f64::from(widen(p.b[row])));
        let token = Token { q: &q, k: &k, v: head(2 * d.h + value_head), log_decay: &log_decay, beta };
        step(&mut state, token, &mut u, &mut o);
        sink(t, &o, &state);
    }
}
