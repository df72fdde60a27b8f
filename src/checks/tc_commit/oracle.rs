//! Golden cases of third-party references: states after tokens, by the commit of as many records.
//!
//! The records of a case are those of the golden model's verify, the corrections rounded to f32 and the keys as they are. Each
//! number of tokens that the case has a state for is a request of its own, which reads the sequence's initial state and writes
//! a slot of its own. States of the cases are `[K, V]`.

use super::Failure;
use super::call::Call;
use super::case::Case;
use crate::checks::Device;
use crate::checks::conv_verify::oracle::{floats, judged, keys_innermost};
use half::bf16;
use kda_ref::Mode;
use kda_ref::floats::FloatVec;
use kda_ref::replay::{Case as Golden, Comparison, tc_verify_call};
use kda_ref::tc_commit::sample::{Sample, Switches};
use kda_ref::tc_commit::{HEAD, run as golden};
use kda_ref::tc_verify::run as verify;

/// Runs the case; `None` if it is not one of this operator: with a convolution keys are no bf16 numbers there.
pub fn run(device: Device, case: &Golden) -> Result<Option<Vec<Comparison>>, Failure> {
    let has = |name: &str| case.tensors.contains_key(name);
    let name = if has("out.state_after") { "out.state_after" } else { "out.final_state" };
    if has("in.conv_state") || !has(name) {
        return Ok(None);
    }
    let Some((sample, sequences)) = sample(case, name == "out.state_after")? else { return Ok(None) };
    let mut buffers = sample.buffers();
    golden(&sample.problem(), &mut buffers.outputs(), Mode::Emulate)?;
    let written = sequences * sample.state_pitch..sample.slots * sample.state_pitch;
    let right = buffers.state[written.clone()].to_vec();
    let call = Case { layers: vec![sample], table: false };
    let results = Call::new(device, &call)?.run(None)?;
    let measured: Vec<f64> = written.map(|at| results.layers[0].state.view().get(at)).collect();
    let expected = keys_innermost(floats(case, name, measured.len())?);
    Ok(Some(judged(name, &expected, &measured, &right).to_vec()))
}

/// A request for the state after all tokens of each sequence, or after each of them, and the number of sequences.
fn sample(case: &Golden, every: bool) -> Result<Option<(Sample, usize)>, Failure> {
    let Some(tokens) = tc_verify_call(case)? else { return Ok(None) };
    let mut verified = tokens.buffers();
    verify(&tokens.problem(), &mut verified.outputs(), Mode::Exact)?;
    let (heads, window, sequences) = (tokens.switches.heads, tokens.switches.window, tokens.switches.n_req);
    let lengths = tokens.query_start.windows(2).map(|pair| pair[1] - pair[0]);
    let requests: Vec<(usize, i32)> =
        lengths.enumerate().flat_map(|(b, len)| (if every { 1 } else { len }..=len).map(move |n| (b, n))).collect();
    if requests.iter().any(|(_, n)| *n == 0) {
        return Ok(None); // a state that nothing is added to is not written
    }
    let (pitch, record) = (heads * HEAD * HEAD, heads * window * HEAD);
    let mut state: Vec<f32> = (0..sequences * pitch).map(|at| tokens.state.view().get_f32(at)).collect();
    state.resize((sequences + requests.len()) * pitch, 0.0);
    let of = |row: &dyn Fn(usize) -> Vec<f64>| requests.iter().flat_map(|(b, _)| row(*b)).collect::<Vec<f64>>();
    let corr = of(&|b| verified.corr[b * record..][..record].to_vec());
    let kg = of(&|b| verified.kg[2 * b * record..][..2 * record].to_vec());
    // Records behind the end of a sequence are no numbers, and nobody reads them.
    let n_req = requests.len();
    let sample = Sample {
        switches: Switches {
            lower_bound: case.lower_bound,
            bf16_state: false,
            separate: true,
            ..Switches::plain(n_req, heads, window)
        },
        slots: sequences + n_req,
        state: FloatVec::F32(state),
        state_pitch: pitch,
        rows: n_req,
        corr: corr.iter().map(|u| *u as f32).collect(),
        kg: kg.iter().map(|x| bf16::from_f64(*x)).collect(),
        a_log: tokens.a_log,
        dt_bias: tokens.dt_bias,
        conv: Vec::new(),
        conv_pitch: 0,
        slot_of: requests.iter().map(|(b, _)| *b as i32).collect(),
        destinations: Some((0..n_req).map(|at| (sequences + at) as i32).collect()),
        counts: requests.iter().map(|(_, n)| *n).collect(),
        boundary_tokens: vec![0; n_req],
        boundary_slots: vec![-1; n_req],
    };
    Ok(Some((sample, sequences)))
}
