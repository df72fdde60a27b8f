//! One value head of one row: norm, gate and delta rule, in float64 and in a kernel's arithmetic.

use super::HEAD;
use super::problem::Problem;
use crate::emulate::{delta_rule as emulated, scalar};
use crate::gate::sigmoid;
use crate::layout::StateOrder;
use crate::norm::l2_normalise;
use crate::{delta_rule, round::widen};

/// `o` `[V]` and the new state, K-first.
pub(super) type After = (Vec<f64>, Vec<f64>);

/// In float64. `activations` is `[D]`.
pub(super) fn golden(p: &Problem<'_>, n: usize, slot: usize, value_head: usize, activations: &[f64]) -> After {
    let d = p.dims;
    let base = p.head(slot, value_head);
    let mut state = p.order.load(HEAD, HEAD, |i| p.state.get(base + i));
    let head = |index: usize| &activations[index * HEAD..(index + 1) * HEAD];
    let (mut q, mut k) = (head(d.key_head(value_head)).to_vec(), head(d.h + d.key_head(value_head)).to_vec());
    l2_normalise(&mut q, p.scale);
    l2_normalise(&mut k, 1.0);
    let row = n * d.hv + value_head;
    let log_decay: Vec<f64> = (0..HEAD)
        .map(|c| {
            let z = p.g.get(row * HEAD + c) + f64::from(p.dt_bias(value_head, c));
            p.gate().log_decay(z, f64::from(p.a_log(value_head)))
        })
        .collect();
    let beta = sigmoid(f64::from(widen(p.beta[row])));
    let token = delta_rule::Token { q: &q, k: &k, v: head(2 * d.h + value_head), log_decay: &log_decay, beta };
    let (mut u, mut o) = (vec![0.0; HEAD], vec![0.0; HEAD]);
    delta_rule::step(&mut state, token, &mut u, &mut o);
    (o, state)
}

/// In fp32 with the contract's trees, widened. Activations are bf16 values, so that their conversion is exact.
pub(super) fn emulate(p: &Problem<'_>, n: usize, slot: usize, value_head: usize, activations: &[f64]) -> After {
    let d = p.dims;
    let base = p.head(slot, value_head);
    let place = |i: usize| base + p.order.offset(i / HEAD, i % HEAD, HEAD, HEAD);
    let mut state: Vec<f32> = (0..HEAD * HEAD).map(|i| p.state.get_f32(place(i))).collect();
    let head = |index: usize| -> [f32; HEAD] { std::array::from_fn(|c| activations[index * HEAD + c] as f32) };
    let (mut q, mut k) = (head(d.key_head(value_head)), head(d.h + d.key_head(value_head)));
    scalar::l2_normalise(&mut q, p.scale as f32);
    scalar::l2_normalise(&mut k, 1.0);
    let row = n * d.hv + value_head;
    let log_decay = std::array::from_fn(|c| {
        let (raw, bias) = (p.g.get_f32(row * HEAD + c), p.dt_bias(value_head, c));
        scalar::log_decay(p.gate(), raw, bias, p.a_log(value_head))
    });
    let v = head(2 * d.h + value_head);
    let token =
        emulated::Token { q: &q, k: &k, v: &v, log_decay: &log_decay, beta: scalar::sigmoid(widen(p.beta[row])) };
    let (mut u, mut o) = ([0.0f32; HEAD], [0.0f32; HEAD]);
    emulated::step(&mut state, token, &mut u, &mut o);
    (o.map(f64::from).to_vec(), state.into_iter().map(f64::from).collect())
}

/// Stores a K-first state in the order of the pool.
pub(super) fn store(order: StateOrder, state: &[f64], to: &mut [f64]) {
    order.store(HEAD, HEAD, state, to);
}
