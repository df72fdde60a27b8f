//! Golden cases of third-party references through the operator: cases of few tokens run as as many decodes.
//!
//! Judged as `conv_verify` is: the operator may be off by twice what the contract's emulation is off by on the same case.
//! States of the cases are `[K, V]`, and so they are on the device.

use super::Failure;
use super::call::{Call, Results};
use super::case::Case;
use crate::checks::Device;
use crate::checks::conv_verify::oracle::{copied, floats, judged, keys_innermost};
use half::bf16;
use kda_ref::Mode;
use kda_ref::decode::sample::{Buffers, Sample, Switches};
use kda_ref::decode::{ConvLayout, HEAD, HISTORY, Problem, run as golden};
use kda_ref::floats::{FloatVec, Floats};
use kda_ref::layout::StateOrder;
use kda_ref::replay::{Case as Golden, Comparison, Values};
use kda_ref::round::to_bf16;

/// Most tokens of a case: each is a launch.
const MOST_TOKENS: usize = 16;

/// Runs the case; `None` if it is not one of this operator.
pub fn run(device: Device, case: &Golden) -> Result<Option<Vec<Comparison>>, Failure> {
    let has = |name: &str| case.tensors.contains_key(name);
    if case.heads == 0 || case.value_heads == 0 || !case.value_heads.is_multiple_of(case.heads) {
        return Ok(None);
    }
    if has("in.x_qkv") && has("out.final_state") {
        return convolved(device, case).map(Some);
    }
    let shape = case.tensors.get("in.q").map(|q| q.shape.as_slice());
    match shape {
        Some([batch, tokens, _, _]) if !has("in.cu_seqlens") && *tokens <= MOST_TOKENS => {
            given(device, case, *batch, *tokens).map(Some)
        }
        _ => Ok(None),
    }
}

fn bf16s(values: &[f64]) -> Vec<bf16> {
    values.iter().map(|v| bf16::from_f64(*v)).collect()
}

fn f32s(values: &[f64]) -> Vec<f32> {
    values.iter().map(|v| *v as f32).collect()
}

/// What all cases have in common: a pool of states in the order `[V, K]`, gates and write strengths of one token.
struct Token<'t> {
    switches: Switches,
    x: Vec<bf16>,
    g: &'t [f64],
    beta: &'t [f64],
    /// The pool.
    state: Vec<f32>,
    slots: Vec<i32>,
}

fn sample(case: &Golden, token: Token) -> Result<Sample, Failure> {
    let d = token.switches.dims;
    Ok(Sample {
        switches: token.switches,
        x: token.x,
        weight: FloatVec::Bf16(Vec::new()),
        bias: None,
        pool: FloatVec::Bf16(Vec::new()),
        layout: ConvLayout::window_innermost(0, d.channels()),
        conv_slots: vec![0; d.n],
        conv_slots_out: None,
        g: if token.switches.f32_gate { FloatVec::F32(f32s(token.g)) } else { FloatVec::Bf16(bf16s(token.g)) },
        beta: bf16s(token.beta),
        a_log: Some(f32s(floats(case, "in.A_log", d.hv)?)),
        dt_bias: Some(f32s(floats(case, "in.dt_bias", d.hv * HEAD)?)),
        state_len: token.state.len() / d.state_len(),
        state: FloatVec::F32(token.state),
        slots: token.slots,
        slots_out: None,
    })
}

/// Runs one token on the device and in the emulation, which has a state of its own.
fn step(device: Device, sample: Sample, emulated: &mut [f64]) -> Result<(Results, Buffers), Failure> {
    let case = Case { sample, index_stride: 1 };
    let mut buffers = case.sample.buffers();
    let problem = Problem { state: Floats::F64(emulated), ..case.sample.problem() };
    golden(&problem, &mut buffers.outputs(), Mode::Emulate)?;
    // Slots that were not written keep their values.
    for (old, new) in emulated.iter_mut().zip(&buffers.state) {
        if !new.is_nan() {
            *old = *new;
        }
    }
    let results = Call::new(device, &case.in_order(StateOrder::KFirst))?.run(None)?;
    Ok((results, buffers))
}

/// q, k and v after the convolution; a pool of states, or an initial state a request.
fn given(device: Device, case: &Golden, batch: usize, tokens: usize) -> Result<Vec<Comparison>, Failure> {
    let (h, hv) = (case.heads, case.value_heads);
    let size = hv * HEAD * HEAD;
    let mut switches = Switches { fused: false, lower_bound: case.lower_bound, ..Switches::plain(batch, h, hv) };
    let rows = batch * tokens;
    let (q, k) = (floats(case, "in.q", rows * h * HEAD)?, floats(case, "in.k", rows * h * HEAD)?);
    let (v, g) = (floats(case, "in.v", rows * hv * HEAD)?, floats(case, "in.g_raw", rows * hv * HEAD)?);
    let beta = floats(case, "in.beta_raw", rows * hv)?;
    switches.f32_gate = g.iter().any(|g| to_bf16(*g) != *g);
    let (initial, after) = if case.tensors.contains_key("in.state_pool") {
        ("in.state_pool", "out.state_pool")
    } else if case.tensors.contains_key("out.state_after") {
        ("in.h0", "out.state_after")
    } else {
        ("in.h0", "out.final_state")
    };
    let entries = case.tensors.get(initial).and_then(|t| t.shape.first().copied()).unwrap_or(batch);
    let slots: Vec<i32> = match case.tensors.get("in.slots").map(|t| &t.values) {
        Some(Values::Int(slots)) => slots.clone(),
        _ => (0..batch as i32).collect(),
    };
    let zeros = vec![0.0; entries * size];
    let start = if case.tensors.contains_key(initial) { floats(case, initial, entries * size)? } else { &zeros };
    let mut state = f32s(&keys_innermost(start));
    let mut emulated: Vec<f64> = state.iter().map(|s| f64::from(*s)).collect();
    let (mut out, mut emulated_out) = (vec![0.0; rows * hv * HEAD], vec![0.0; rows * hv * HEAD]);
    let (mut states, mut emulated_states) = (Vec::new(), Vec::new());
    for t in 0..tokens {
        let pick = |x: &[f64], width: usize| -> Vec<f64> {
            (0..batch).flat_map(|n| &x[(n * tokens + t) * width..][..width]).copied().collect()
        };
        let (q, k, v) = (pick(q, h * HEAD), pick(k, h * HEAD), pick(v, hv * HEAD));
        let part = |x: &[f64], n: usize, width: usize| bf16s(&x[n * width..(n + 1) * width]);
        let row = |n: usize| [part(&q, n, h * HEAD), part(&k, n, h * HEAD), part(&v, n, hv * HEAD)].concat();
        let (g, beta) = (pick(g, hv * HEAD), pick(beta, hv));
        let x = (0..batch).flat_map(row).collect();
        let token = Token { switches, x, g: &g, beta: &beta, state, slots: slots.clone() };
        let (results, buffers) = step(device, sample(case, token)?, &mut emulated)?;
        for n in 0..batch {
            let (from, to) = (n * hv * HEAD, (n * tokens + t) * hv * HEAD);
            for i in 0..hv * HEAD {
                out[to + i] = results.out[from + i].to_f64();
                emulated_out[to + i] = to_bf16(buffers.out[from + i]);
            }
        }
        state = match results.state {
            FloatVec::F32(state) => state,
            FloatVec::Bf16(_) => return Err("the state is fp32".into()),
        };
        if after == "out.state_after" {
            states.push(state.clone());
            emulated_states.push(emulated.clone());
        }
    }
    let mut compared = judged("out.o", floats(case, "out.o", rows * hv * HEAD)?, &out, &emulated_out).to_vec();
    let (mut measured, mut right) = (state.iter().map(|s| f64::from(*s)).collect::<Vec<f64>>(), emulated);
    if after == "out.state_after" {
        // [B, T, ..] in the case, [T, B, ..] here.
        let rows = (0..batch).flat_map(|n| (0..tokens).map(move |t| (t, n * size)));
        measured = rows.clone().flat_map(|(t, at)| states[t][at..at + size].iter().map(|s| f64::from(*s))).collect();
        right = rows.flat_map(|(t, at)| emulated_states[t][at..at + size].to_vec()).collect();
    }
    compared.extend(judged(after, &keys_innermost(floats(case, after, measured.len())?), &measured, &right));
    Ok(compared)
}

/// One token with its convolution.
fn convolved(device: Device, case: &Golden) -> Result<Vec<Comparison>, Failure> {
    let (h, hv) = (case.heads, case.value_heads);
    let n = case.tensors.get("in.conv_state").and_then(|t| t.shape.first().copied()).unwrap_or(0);
    let switches =
        Switches { bf16_taps: true, bf16_pool: true, lower_bound: case.lower_bound, ..Switches::plain(n, h, hv) };
    let d = switches.dims;
    let channels = d.channels();
    let state = f32s(&keys_innermost(floats(case, "in.h0", n * d.state_len())?));
    let mut emulated: Vec<f64> = state.iter().map(|s| f64::from(*s)).collect();
    let identity: Vec<i32> = (0..n as i32).collect();
    let token = Token {
        switches,
        x: bf16s(floats(case, "in.x_qkv", n * channels)?),
        g: floats(case, "in.g_raw", n * hv * HEAD)?,
        beta: floats(case, "in.beta_raw", n * hv)?,
        state,
        slots: identity.clone(),
    };
    let sample = Sample {
        weight: FloatVec::Bf16(bf16s(floats(case, "in.conv_weight", 4 * channels)?)),
        pool: FloatVec::Bf16(bf16s(floats(case, "in.conv_state", n * channels * HISTORY)?)),
        layout: ConvLayout::window_innermost(n, channels),
        conv_slots: identity,
        ..sample(case, token)?
    };
    let (results, buffers) = step(device, sample, &mut emulated)?;
    let wide = |values: &FloatVec| values.view().widened(0, values.view().len());
    let out: Vec<f64> = results.out.iter().map(|o| o.to_f64()).collect();
    let right: Vec<f64> = buffers.out.iter().map(|o| to_bf16(*o)).collect();
    let mut compared = judged("out.o", floats(case, "out.o", out.len())?, &out, &right).to_vec();
    let expected = keys_innermost(floats(case, "out.final_state", emulated.len())?);
    compared.extend(judged("out.final_state", &expected, &wide(&results.state), &emulated));
    let expected = floats(case, "out.conv_state", n * channels * HISTORY)?;
    compared.push(copied("out.conv_state", expected, &wide(&results.pool)));
    Ok(compared)
}
