//! Golden cases of third-party references through the operator: cases of chunks as they are, cases of a layer from the rows
//! that the chunked form makes of them.
//!
//! Judged as `conv_verify` is: the operator may be off by twice what the contract's emulation is off by on the same case.

use super::Failure;
use super::call::Call;
use super::case::Case;
use crate::checks::Device;
use crate::checks::conv_verify::oracle::judged;
use kda_ref::Mode;
use kda_ref::delta_h::{STATE, run as golden};
use kda_ref::replay::{Case as Golden, Comparison, delta_h_call};
use kda_ref::round::to_bf16;
use kda_runtime::operators::delta_h::Options;

/// Runs the case; `None` if it is not one of this operator.
pub fn run(device: Device, case: &Golden) -> Result<Option<Vec<Comparison>>, Failure> {
    let Some(call) = delta_h_call(case)? else { return Ok(None) };
    let emulated = golden(&call.sample.problem(), Mode::Emulate)?;
    let case = Case::of(call.sample);
    let results = Call::new(device, &case)?.run(&Options::default())?;
    let values = results.final_state.view();
    let (measured, right) = (values.widened(0, values.len()), emulated.final_state.ok_or("no final state")?.values);
    let mut compared = judged("out.final_state", &call.final_state, &measured, &right).to_vec();
    if let Some(expected) = &call.h {
        let wide = |values: &[half::bf16]| -> Vec<f64> { values.iter().map(|h| h.to_f64()).collect() };
        let active = case.sample.problem().schedule().h_chunks() * case.sample.switches.hv * STATE;
        let right: Vec<f64> = emulated.h.ok_or("no chunk states")?.values.iter().map(|h| to_bf16(*h)).collect();
        let rows = [&wide(&results.h)[..active], &right[..active]];
        compared.extend(judged("out.h", expected, rows[0], rows[1]));
    }
    Ok(Some(compared))
}
