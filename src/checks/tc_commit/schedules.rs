//! In the simulator: every schedule and every order of CTAs gives the same bits, and no report.

use super::Failure;
use super::call::{Call, Results};
use super::case::Case;
use super::sample_plan;
use crate::checks::conv_verify::schedules::ways;
use crate::checks::{Device, Measured, Sink};
use kda_kernels::tc_commit::TcCommitVariant;
use kda_runtime::executor::sim::{Schedule, SimExecutor, cta_order_name, schedule_name};

/// Every variant in every way, on its sample problem. Windows in rows of channels and the softplus gate are met with
/// boundaries and without, and so are their counterparts.
pub fn run(seed: u64, sink: Sink, share: f64) -> Result<(), Failure> {
    let runs: Vec<(TcCommitVariant, Case)> = TcCommitVariant::ALL
        .into_iter()
        .map(|variant| (variant, sample_plan(variant, (variant.most() == 16) != variant.boundary()).draw(seed)))
        .collect();
    let mut first: Vec<Results> = Vec::new();
    for options in ways(seed) {
        let way = format!("schedule {}, CTAs {}", schedule_name(options.schedule), cta_order_name(options.cta_order));
        let mut all = Vec::new();
        for (variant, case) in &runs {
            let executor = SimExecutor::new(options);
            let result = Call::new(Device::simulator(&executor), case)?.run(Some(*variant));
            all.push(result.map_err(|cause| format!("{way}, seed {}: {cause}", options.seed))?);
        }
        if first.is_empty() {
            first = all.clone();
        }
        let wrong: usize = first.iter().zip(&all).map(|(a, b)| a.differing_bits(b)).sum();
        let output = format!("bits that differ from {}", schedule_name(Schedule::ALL[0]));
        sink(Measured { case: way, output, error: wrong as f64, budget: 0.0 }, share);
    }
    Ok(())
}
