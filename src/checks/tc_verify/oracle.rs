//! Golden cases of third-party references through the operator, which chooses the variant: cases of few tokens, one request a
//! sequence.
//!
//! Outputs are judged as those of `conv_verify` are; the newest three rows of a rolled history are copies.

use super::Failure;
use super::call::Call;
use super::case::Case;
use crate::checks::Device;
use crate::checks::conv_verify::oracle::{copied, floats, judged};
use kda_ref::Mode;
use kda_ref::replay::{Case as Golden, Comparison, tc_verify_call};
use kda_ref::round::to_bf16;
use kda_ref::tc_verify::{HISTORY, run as golden};
use kda_runtime::operators::tc_verify::Options;

/// Most tokens of a request with the softplus gate.
const MOST_TOKENS_SOFTPLUS: usize = 8;

/// Runs the case; `None` if it is not one of this operator.
pub fn run(device: Device, case: &Golden) -> Result<Option<Vec<Comparison>>, Failure> {
    let Some(sample) = tc_verify_call(case)? else { return Ok(None) };
    let s = sample.switches;
    if s.lower_bound.is_none() && s.window > MOST_TOKENS_SOFTPLUS {
        return Ok(None);
    }
    let call = Case { sample, counters: false };
    let mut emulated = call.sample.buffers();
    golden(&call.sample.problem(), &mut emulated.outputs(), Mode::Emulate)?;
    let results = Call::new(device, &call)?.run(&Options::default())?;
    let measured: Vec<f64> = results.out.iter().map(|o| o.to_f64()).collect();
    let right: Vec<f64> = emulated.out.iter().map(|o| to_bf16(*o)).collect();
    let mut compared = judged("out.o", floats(case, "out.o", measured.len())?, &measured, &right).to_vec();
    if s.taps.is_some() && case.tensors.contains_key("out.conv_state") {
        let (channels, rows) = (s.channels(), s.window + HISTORY - 1);
        let lengths = call.sample.query_start.windows(2).map(|pair| (pair[1] - pair[0]) as usize);
        let newest = lengths.enumerate().flat_map(|(slot, len)| {
            let at = move |channel: usize, row: usize| s.order.offset(len - 1 + row, channel, rows, channels);
            let places = (0..channels).flat_map(move |channel| (0..HISTORY).map(move |row| at(channel, row)));
            places.map(|place| results.conv[slot * call.sample.conv_pitch + place].to_f64()).collect::<Vec<f64>>()
        });
        let newest: Vec<f64> = newest.collect();
        compared.push(copied("out.conv_state", floats(case, "out.conv_state", newest.len())?, &newest));
    }
    Ok(Some(compared))
}
