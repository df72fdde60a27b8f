//! In the simulator: every schedule and every order of CTAs gives the same bits, and no report.

use super::Failure;
use super::call::{Call, Results};
use super::case::{Case, Plan, options, shown};
use crate::checks::conv_verify::schedules::ways;
use crate::checks::{Device, Measured, Sink};
use kda_runtime::executor::sim::{Schedule, SimExecutor, cta_order_name, schedule_name};
use kda_runtime::operators::tc_verify::Variant;

/// Every variant in every way, with tickets; CTAs take several requests each.
pub fn run(variants: &[Variant], seed: u64, sink: Sink, share: f64) -> Result<(), Failure> {
    let draw = |variant: &Variant| {
        let plan = Plan { counters: true, ..Plan::of(shown(*variant)) };
        (*variant, plan.draw(seed))
    };
    let runs: Vec<(Variant, Case)> = variants.iter().map(draw).collect();
    let mut first: Vec<Results> = Vec::new();
    for sim in ways(seed) {
        let way = format!("schedule {}, CTAs {}", schedule_name(sim.schedule), cta_order_name(sim.cta_order));
        let mut all = Vec::new();
        for (variant, case) in &runs {
            let executor = SimExecutor::new(sim).with_multiprocessors(1);
            let result = Call::new(Device::simulator(&executor), case)?.run(&options(*variant));
            all.push(result.map_err(|cause| format!("{way}, seed {}: {cause}", sim.seed))?);
        }
        if first.is_empty() {
            first = all.clone();
        }
        let wrong: usize = first.iter().zip(&all).map(|(a, b)| a.differing_bits(b) + b.changed).sum();
        let output = format!("bits that differ from {}", schedule_name(Schedule::ALL[0]));
        sink(Measured { case: way, output, error: wrong as f64, budget: 0.0 }, share);
    }
    Ok(())
}
