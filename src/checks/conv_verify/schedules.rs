//! In the simulator: every schedule and every order of CTAs gives the same bits, and no report.

use super::Failure;
use super::call::{Call, Results};
use super::case::{Case, Plan};
use super::judge::fits;
use super::problems::{POOLS, with_pool};
use crate::checks::{Device, Measured, Sink};
use kda_core::Elem;
use kda_kernels::conv_verify::ConvVerifyVariant;
use kda_ref::conv_verify::sample::Switches;
use kda_runtime::executor::sim::{CTA_ORDERS, Options, Schedule, SimExecutor, cta_order_name, schedule_name};
use std::collections::BTreeMap;

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

/// Every variant in a third of the ways, with every schedule and every order of CTAs; its neighbours meet the other ways.
pub fn run(seed: u64, sink: Sink, share: f64) -> Result<(), Failure> {
    let lengths = [1, 2, 3, 4, 5, 6, 7, 8, 10];
    let cases: Vec<Case> = lengths.into_iter().flat_map(|t| POOLS.map(|pool| case(t, pool, seed))).collect();
    let mut first: BTreeMap<(usize, bool, bool), Results> = BTreeMap::new();
    for (turn, options) in ways(seed).into_iter().enumerate() {
        let (mut wrong, mut runs) = (0, 0);
        let way = format!("schedule {}, CTAs {}", schedule_name(options.schedule), cta_order_name(options.cta_order));
        for case in &cases {
            for (index, variant) in ConvVerifyVariant::ALL.iter().enumerate().filter(|(_, v)| own(**v, case)) {
                if !takes_turn(index, turn) {
                    continue;
                }
                let executor = SimExecutor::new(options);
                let result = Call::new(Device::simulator(&executor), case)?.run(Some(*variant));
                let results = result.map_err(|cause| format!("{way}, seed {}: {cause}", options.seed))?;
                runs += 1;
                wrong += results.changed_inputs;
                // The first way that a case meets says what the others must give.
                let key = (case.sample.switches.dims.t, variant.pool() == Elem::BF16, variant.inner());
                wrong += first.entry(key).or_insert_with(|| results.clone()).differing_bits(&results);
            }
        }
        let way = format!("{way}, {runs} runs");
        let output = "bits that differ from the first run of the case".into();
        sink(Measured { case: way, output, error: wrong as f64, budget: 0.0 }, share);
    }
    Ok(())
}

/// Whether a variant runs in a way. Ways are numbered schedule by schedule, orders of CTAs within.
fn takes_turn(variant: usize, way: usize) -> bool {
    (variant + way + way / CTA_ORDERS.len()).is_multiple_of(CTA_ORDERS.len())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_meets_every_schedule_and_every_order() {
        let ways = ways(1);
        for variant in 0..CTA_ORDERS.len() {
            let own: Vec<_> =
                ways.iter().enumerate().filter(|(way, _)| takes_turn(variant, *way)).map(|(_, w)| w).collect();
            for schedule in Schedule::ALL {
                assert!(own.iter().any(|w| w.schedule == schedule), "{variant}: {schedule:?}");
            }
            for order in CTA_ORDERS {
                assert!(own.iter().any(|w| w.cta_order == order), "{variant}: {order:?}");
            }
        }
        assert!((0..ways.len()).all(|way| (0..CTA_ORDERS.len()).any(|variant| takes_turn(variant, way))));
    }
}
