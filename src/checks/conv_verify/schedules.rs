//! In the simulator: every schedule and every order of CTAs gives the same bits, and no report.

use super::Failure;
use super::call::{Call, Results};
use super::case::{Case, Plan};
use super::judge::fits;
use super::problems::{POOLS, with_pool};
use crate::checks::{Device, Measured, Sink};
use kda_kernels::conv_verify::ConvVerifyVariant;
use kda_ref::conv_verify::sample::Switches;
use kda_runtime::executor::sim::{CTA_ORDERS, Options, Schedule, SimExecutor, cta_order_name, schedule_name};

/// CTAs that run at a time: fewer than a problem has, so that some see what others have left.
const RESIDENT: u32 = 3;

/// Every way to run a launch: schedules, orders of CTAs and, where it matters, two seeds.
pub fn ways(seed: u64) -> Vec<Options> {
    let mut ways = Vec::new();
    for schedule in Schedule::ALL {
        let seeds = if matches!(schedule, Schedule::Random | Schedule::Pct { .. }) { 2 } else { 1 };
        for (cta_order, seed) in CTA_ORDERS.into_iter().flat_map(|order| (0..seeds).map(move |i| (order, seed + i))) {
            ways.push(Options { schedule, cta_order, seed, resident_ctas: RESIDENT, ..Options::default() });
        }
    }
    ways
}

/// Every variant in every way.
pub fn run(seed: u64, sink: Sink, share: f64) -> Result<(), Failure> {
    let lengths = [1, 2, 3, 4, 5, 6, 7, 8, 10];
    let cases: Vec<Case> = lengths.into_iter().flat_map(|t| POOLS.map(|pool| case(t, pool, seed))).collect();
    let mut first: Vec<Vec<Results>> = Vec::new();
    for options in ways(seed) {
        let mut wrong = 0;
        let way = format!("schedule {}, CTAs {}", schedule_name(options.schedule), cta_order_name(options.cta_order));
        let mut all = Vec::new();
        for case in &cases {
            let mut of_case = Vec::new();
            for variant in ConvVerifyVariant::ALL.iter().filter(|v| own(**v, case)) {
                let executor = SimExecutor::new(options);
                let result = Call::new(Device::simulator(&executor), case)?.run(Some(*variant));
                of_case.push(result.map_err(|cause| format!("{way}, seed {}: {cause}", options.seed))?);
            }
            all.push(of_case);
        }
        if first.is_empty() {
            first = all;
        } else {
            let pairs = first.iter().flatten().zip(all.iter().flatten());
            wrong += pairs.map(|(a, b)| a.differing_bits(b) + b.changed_inputs).sum::<usize>();
        }
        let output = format!("bits that differ from {}", schedule_name(Schedule::ALL[0]));
        sink(Measured { case: way, output, error: wrong as f64, budget: 0.0 }, share);
    }
    Ok(())
}

/// A variant runs on the case of its own number of tokens; one of several passes on the longest.
fn own(variant: ConvVerifyVariant, case: &Case) -> bool {
    let switches = &case.sample.switches;
    fits(variant, switches) && variant.long() == (switches.dims.t > 8)
}

fn case(t: usize, pool: (bool, bool), seed: u64) -> Case {
    let switches = Switches { roll: true, bias: true, ..with_pool(Switches::plain(2, t, 1, 2), pool) };
    Plan::of(switches).draw(seed.wrapping_add(t as u64))
}
