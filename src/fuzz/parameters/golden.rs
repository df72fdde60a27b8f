//! Calls of `conv_verify` with random switches, held against the golden model.

use crate::checks::Device;
use crate::checks::conv_verify::case::{Plan, Values, View};
use crate::checks::conv_verify::judge::{Tally, fits, one_case};
use crate::fuzz::Counts;
use kda_kernels::conv_verify::ConvVerifyVariant;
use kda_ref::conv_verify::sample::Switches;
use kda_ref::rng::Rng;
use kda_runtime::executor::sim::SimExecutor;

pub(super) fn case(rng: &mut Rng, counts: &mut Counts) -> Result<(), String> {
    let switches = Switches::random(rng, 3, 4);
    let view = View { states: rng.coin(), windows: rng.coin(), index_stride: 1 + rng.below(3) };
    let values = rng.choose(&[Values::Drawn, Values::GateExtremes(0), Values::BetaExtremes, Values::ZeroTokens]);
    let plan = Plan { null_rows: rng.coin(), view, values, switches };
    let variants: Vec<ConvVerifyVariant> = ConvVerifyVariant::ALL.into_iter().filter(|v| fits(*v, &switches)).collect();
    let variant = *variants.get(rng.below(variants.len().max(1))).ok_or("no variant fits")?;
    let case = plan.draw(rng.next_u64());
    let executor = SimExecutor::default();
    let mut tally = [Tally::default()];
    let with_plan = |what: String| format!("{what}\n{} on {plan:?}", variant.desc().entry);
    one_case(Device::simulator(&executor), &case, &[variant], &mut tally)
        .map_err(|cause| with_plan(cause.to_string()))?;
    counts.add("held against the golden model");
    match tally[0].rows("golden").into_iter().find(|row| !row.passes()) {
        Some(row) => Err(with_plan(format!("`{}` is off by {:e}, {:e} is allowed", row.output, row.error, row.budget))),
        None => Ok(()),
    }
}
