//! Every raw gate that bf16 has, against extreme `A_log` and `dt_bias`: each gives a decay between 0 and 1, and the right one.
//!
//! Inputs and histories of zeros make q, k and v zeros, so that a token multiplies the state by its decays and adds nothing: from
//! a state of ones a snapshot is a product of decays. A NaN or an infinity of any channel stays to the end.

use super::Failure;
use super::call::{Call, Results};
use super::case::{Case, Plan};
use super::problems::{POOLS, with_pool};
use crate::checks::{Device, Measured, Sink};
use half::bf16;
use kda_ref::budget::{Budget, Stored};
use kda_ref::conv_verify::HEAD;
use kda_ref::conv_verify::sample::{Sample, Switches};
use kda_ref::emulate::scalar;
use kda_ref::floats::FloatVec;
use kda_ref::gate::Gate;

/// Numbers of bf16.
const ALL: usize = 1 << 16;
const LOWER_BOUND: f64 = -5.0;
/// `A_log`: as trained, and at the ends of fp32.
const A_LOGS: [f32; 5] = [-f32::MAX, -200.0, 2.75, 100.0, f32::MAX];
/// `dt_bias`: sums with a gate that overflow in both directions, and the gates alone.
const BIASES: [f32; 3] = [-f32::MAX, 0.0, f32::MAX];

/// Requests, tokens and value heads that hold each raw gate once.
pub const SHORT: (usize, usize, usize) = (16, 8, 4);
/// The same, one token a request: a snapshot is one decay.
const SINGLE: (usize, usize, usize) = (64, 1, 8);

/// Raw gate number i; NaN is none, and counts as 0.
fn gate(i: usize) -> bf16 {
    let value = bf16::from_bits(i as u16);
    if value.is_nan() { bf16::ZERO } else { value }
}

/// A call on every gate, with one `A_log` and one `dt_bias`.
pub fn case(
    sizes: (usize, usize, usize),
    lower_bound: Option<f64>,
    pool: (bool, bool),
    a_log: f32,
    dt_bias: f32,
) -> Case {
    let (n, t, hv) = sizes;
    let mut case = Plan::of(Switches { lower_bound, ..with_pool(Switches::plain(n, t, 1, hv), pool) })
        .draw(u64::from(a_log.to_bits()));
    case.view.windows = false;
    let s = &mut case.sample;
    s.x.fill(bf16::ZERO);
    match &mut s.conv_state {
        FloatVec::F32(values) => values.fill(0.0),
        FloatVec::Bf16(values) => values.fill(bf16::ZERO),
    }
    s.state.fill(1.0);
    s.a.iter_mut().enumerate().for_each(|(i, a)| *a = gate(i));
    s.a_log = Some(vec![a_log; hv]);
    s.dt_bias.fill(dt_bias);
    case
}

/// Snapshots that are no product of decays, and outputs that are not 0.
pub fn strays(sample: &Sample, results: &Results) -> usize {
    let (d, states) = (sample.switches.dims, results.states.as_deref().unwrap_or_default());
    let length = d.t * d.state_len();
    let own = sample.snapshot_rows.iter().map(|row| &states[*row as usize * length..][..length]);
    let states = own.flatten().filter(|s| !(0.0..=1.0).contains(*s)).count();
    states + results.out.iter().filter(|o| o.to_f32() != 0.0).count() + results.changed_inputs
}

/// Both gates: all values against all extremes, then the decays themselves.
pub fn run(device: Device, _seed: u64, sink: Sink, share: f64) -> Result<(), Failure> {
    for lower_bound in [Some(LOWER_BOUND), None] {
        let name = if lower_bound.is_some() { "bounded" } else { "softplus" };
        let (mut wrong, mut calls) = (0, 0);
        for a_log in A_LOGS {
            for dt_bias in BIASES {
                let case = case(SHORT, lower_bound, POOLS[calls % POOLS.len()], a_log, dt_bias);
                wrong += strays(&case.sample, &Call::new(device, &case)?.run(None)?);
                calls += 1;
            }
        }
        let row = format!("each of {ALL} raw gates, {name}, {calls} pairs of A_log and dt_bias");
        let output = "states outside [0, 1], outputs that are not 0".into();
        sink(Measured { case: row, output, error: wrong as f64, budget: 0.0 }, share);
        for (a_log, dt_bias) in [(2.75, 0.0), (-6.0, 100.0)] {
            let row = format!("each of {ALL} raw gates, {name}, A_log {a_log}, dt_bias {dt_bias}");
            let (error, budget) = decays(device, lower_bound, a_log, dt_bias)?;
            sink(Measured { case: row, output: "decay".into(), error, budget }, share);
        }
    }
    Ok(())
}

/// Error of the decays of all finite gates against fp64, and what is allowed.
fn decays(device: Device, lower_bound: Option<f64>, a_log: f32, dt_bias: f32) -> Result<(f64, f64), Failure> {
    let case = case(SINGLE, lower_bound, POOLS[0], a_log, dt_bias);
    let (s, results) = (&case.sample, Call::new(device, &case)?.run(None)?);
    let form = Gate::from_lower_bound(lower_bound);
    let (mut right, mut emulated, mut measured) = (Vec::new(), Vec::new(), Vec::new());
    for (i, a) in s.a.iter().enumerate().filter(|(_, a)| a.is_finite()) {
        right.push(form.log_decay(f64::from(a.to_f32()) + f64::from(dt_bias), f64::from(a_log)).exp());
        emulated.push(f64::from(scalar::exp(scalar::log_decay(form, a.to_f32(), dt_bias, a_log))));
        let (head, k) = (i / HEAD, i % HEAD);
        let (request, hv) = (head / s.switches.dims.hv, head % s.switches.dims.hv);
        let row = s.snapshot_rows[request] as usize * s.switches.dims.hv + hv;
        let states = results.states.as_deref().unwrap_or_default();
        measured.push(f64::from(states[row * HEAD * HEAD + k]));
    }
    let judgement = Budget::derive(&right, &[&emulated], Stored::F32).judge(&right, &measured);
    Ok((judgement.error.max, judgement.limit.max))
}
