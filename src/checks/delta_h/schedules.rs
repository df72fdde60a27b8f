//! In the simulator: every schedule and every order of CTAs gives the same bits, and no report.

use super::Failure;
use super::call::{Call, Results};
use super::case::{Case, Plan};
use super::judge::{Sums, fits, h_order, maps_of, sums};
use crate::checks::conv_verify::schedules::ways;
use crate::checks::{Device, Measured, Sink};
use kda_ref::delta_h::sample::{GateForm, PoolForm, Switches};
use kda_ref::layout::StateOrder;
use kda_runtime::executor::sim::{Schedule, SimExecutor, cta_order_name, schedule_name};
use kda_runtime::operators::delta_h::{Options, Variant};
use std::collections::BTreeMap;

/// Each of these variants in a third of the ways, with every schedule; whole sequences in place, and segments.
pub fn run(variants: &[Variant], seed: u64, sink: Sink, share: f64) -> Result<(), Failure> {
    let slots =
        Switches { initial: PoolForm::Slots, final_state: PoolForm::Slots, in_place: true, ..Switches::plain(1) };
    let whole = |gate| Plan::of(&[65, 0, 130], Switches { gate, hv: 2, h: 2, ..slots }).draw(seed);
    let cases = [
        whole(GateForm::Cumulative),
        whole(GateForm::Scalar),
        Plan::cut(&[2497, 70], Switches { h_every: 4, ..slots }).draw(seed),
    ];
    let mut first: [BTreeMap<Sums, Results>; 3] = Default::default();
    for (turn, options) in ways(seed).into_iter().enumerate() {
        let way = format!("schedule {}, CTAs {}", schedule_name(options.schedule), cta_order_name(options.cta_order));
        let (mut wrong, mut runs) = (0, 0);
        let executor = SimExecutor::new(options);
        let device = Device::simulator(&executor);
        let capability = kda_core::Executor::compute_capability(&executor);
        for (case, first) in cases.iter().zip(&mut first) {
            let own = variants.iter().filter(|v| fits(**v, case, capability));
            for (_, variant) in own.enumerate().filter(|(at, _)| takes_turn(*at, turn)) {
                let results =
                    one(device, case, *variant, turn).map_err(|cause| format!("{way}, {}: {cause}", options.seed))?;
                wrong += results.changed_inputs;
                runs += 1;
                wrong += first.entry(sums(*variant)).or_insert_with(|| results.clone()).differing_bits(&results);
            }
        }
        let output = format!("bits that differ from {}", schedule_name(Schedule::ALL[0]));
        sink(Measured { case: format!("{way}, {runs} runs"), output, error: wrong as f64, budget: 0.0 }, share);
    }
    Ok(())
}

/// Whether a variant runs in a way. Ways are numbered schedule by schedule, three orders of CTAs within.
fn takes_turn(variant: usize, way: usize) -> bool {
    (variant + way + way / 3).is_multiple_of(3)
}

fn one(device: Device, case: &Case, variant: Variant, turn: usize) -> Result<Results, Failure> {
    let case = case.in_orders(StateOrder::KFirst, h_order(variant));
    Call::new(device, &case)?.run(&Options { variant: Some(variant), maps: maps_of(turn), pdl: true })
}
