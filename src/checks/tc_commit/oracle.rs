//! Golden cases of third-party references: the states after each token, by the commit of as many records.
//!
//! The records of a case come from the golden model's verify in float64; each token is a request of its own that reads the
//! initial state and writes a slot of its own. States of the cases are `[K, V]`.

use super::Failure;
use super::call::Call;
use super::case::Case;
use crate::checks::Device;
use crate::checks::conv_verify::oracle::{floats, judged, keys_innermost};
use half::bf16;
use kda_ref::Mode;
use kda_ref::floats::FloatVec;
use kda_ref::gate::Gate;
use kda_ref::records::{Drafts, HeadGate, Records, verify};
use kda_ref::replay::{Case as Golden, Comparison};
use kda_ref::tc_commit::sample::{Sample, Switches};
use kda_ref::tc_commit::{HEAD, run as golden};

/// Most tokens of a case: its records are one window.
const MOST_TOKENS: usize = 16;
/// Elements of a state.
const SIZE: usize = HEAD * HEAD;

/// Runs the case; `None` if it is not one of this operator.
pub fn run(device: Device, case: &Golden) -> Result<Option<Vec<Comparison>>, Failure> {
    let has = |name: &str| case.tensors.contains_key(name);
    let shape = case.tensors.get("in.q").map(|q| q.shape.as_slice());
    let Some(&[1, tokens, ..]) = shape else { return Ok(None) };
    let states = has("out.state_after") && !has("in.cu_seqlens") && has("in.h0");
    if !states || tokens == 0 || tokens > MOST_TOKENS || case.heads == 0 || case.heads != case.value_heads {
        return Ok(None);
    }
    let heads = case.heads;
    let sample = sample(case, tokens)?;
    let mut buffers = sample.buffers();
    golden(&sample.problem(), &mut buffers.outputs(), Mode::Emulate)?;
    let written = heads * SIZE..(1 + tokens) * heads * SIZE;
    let right = buffers.state[written.clone()].to_vec();
    let call = Case { layers: vec![sample], table: false };
    let results = Call::new(device, &call)?.run(None)?;
    let measured: Vec<f64> = written.map(|at| results.layers[0].state.view().get(at)).collect();
    let expected = keys_innermost(floats(case, "out.state_after", measured.len())?);
    Ok(Some(judged("out.state_after", &expected, &measured, &right).to_vec()))
}

/// A request a token: the first so many records, from slot 0 to a slot of its own.
fn sample(case: &Golden, tokens: usize) -> Result<Sample, Failure> {
    let heads = case.heads;
    let rows = tokens * heads * HEAD;
    let (q, k, v) = (floats(case, "in.q", rows)?, floats(case, "in.k", rows)?, floats(case, "in.v", rows)?);
    let (gates, betas) = (floats(case, "in.g_raw", rows)?, floats(case, "in.beta_raw", tokens * heads)?);
    let (a_log, dt_bias) = (floats(case, "in.A_log", heads)?, floats(case, "in.dt_bias", heads * HEAD)?);
    let initial = floats(case, "in.h0", heads * SIZE)?;
    let records: Vec<Records> = (0..heads)
        .map(|head| {
            let of = |x: &[f64], width: usize| -> Vec<f64> {
                (0..tokens).flat_map(|t| &x[(t * heads + head) * width..][..width]).copied().collect()
            };
            let drafts = Drafts {
                keys: HEAD,
                values: HEAD,
                q: of(q, HEAD),
                k: of(k, HEAD),
                v: of(v, HEAD),
                raw_gate: of(gates, HEAD),
                raw_beta: of(betas, 1),
            };
            let dt_bias = &dt_bias[head * HEAD..][..HEAD];
            let gate = HeadGate { gate: Gate::from_lower_bound(case.lower_bound), a_log: a_log[head], dt_bias };
            verify(&initial[head * SIZE..][..SIZE], &drafts, &gate, 1.0).1
        })
        .collect();
    let switches = Switches {
        lower_bound: case.lower_bound,
        bf16_state: false,
        separate: true,
        ..Switches::plain(tokens, heads, tokens)
    };
    let mut state: Vec<f32> = keys_innermost(initial).iter().map(|s| *s as f32).collect();
    state.resize((1 + tokens) * heads * SIZE, 0.0);
    // Every request has the records of all tokens.
    let corr: Vec<f32> = records.iter().flat_map(|of_head| of_head.corr.iter().map(|u| *u as f32)).collect();
    let kg: Vec<bf16> = records.iter().flat_map(|of_head| of_head.kg.iter().map(|x| bf16::from_f64(*x))).collect();
    Ok(Sample {
        switches,
        slots: 1 + tokens,
        state: FloatVec::F32(state),
        state_pitch: heads * SIZE,
        rows: tokens,
        corr: corr.repeat(tokens),
        kg: kg.repeat(tokens),
        a_log: Some(a_log.iter().map(|a| *a as f32).collect()),
        dt_bias: dt_bias.iter().map(|b| *b as f32).collect(),
        conv: Vec::new(),
        conv_pitch: 0,
        slot_of: vec![0; tokens],
        destinations: Some((1..=tokens as i32).collect()),
        counts: (1..=tokens as i32).collect(),
        boundary_tokens: vec![0; tokens],
        boundary_slots: vec![-1; tokens],
    })
}
