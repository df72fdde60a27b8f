//! Which problems are run.

use super::case::Plan;
use crate::checks::Extent;
use kda_ref::conv::TapType;
use kda_ref::rng::Rng;
use kda_ref::tc_verify::ConvOrder;
use kda_ref::tc_verify::sample::{Gates, Switches};
use kda_runtime::Backend;

/// Most tokens that every kernel takes, and that any does.
const TOKENS: usize = 8;
const MOST_TOKENS: usize = 16;

/// Inputs of a kernel: behind a convolution, or ahead of one with taps of a type and a history in an order.
pub const INPUTS: [(Option<TapType>, ConvOrder); 5] = [
    (None, ConvOrder::TokenMajor),
    (Some(TapType::Bf16), ConvOrder::TokenMajor),
    (Some(TapType::F32), ConvOrder::TokenMajor),
    (Some(TapType::Bf16), ConvOrder::ChannelMajor),
    (Some(TapType::F32), ConvOrder::ChannelMajor),
];

/// The problems of a check.
pub fn problems(extent: Extent, backend: Backend, rng: &mut Rng) -> Vec<Plan> {
    let mut plans = few();
    if extent == Extent::Full {
        let (rounds, most) = if backend == Backend::Sim { (24, 3) } else { (400, 12) };
        for _ in 0..rounds {
            let mut switches = Switches::random(rng, most, 4, MOST_TOKENS);
            if switches.lower_bound.is_none() {
                switches.window = switches.window.min(TOKENS);
            }
            plans.push(Plan { counters: rng.coin(), ..Plan::of(switches) });
        }
        if backend == Backend::Cuda {
            plans.extend(large());
        }
    }
    plans
}

/// A few problems that together meet every switch, with both gates for each kind of inputs.
pub fn few() -> Vec<Plan> {
    let mut plans = Vec::new();
    for (taps, order) in INPUTS {
        for lower_bound in [Some(-5.0), None] {
            let plain =
                |n_req, heads, window| Switches { taps, order, lower_bound, ..Switches::plain(n_req, heads, window) };
            // Full windows, dense; then everything ragged; then gates at their ends.
            plans.push(Plan::of(plain(2, 1, 8)));
            plans.push(Plan {
                counters: true,
                ..Plan::of(Switches {
                    ragged: true,
                    nulls: true,
                    misfits: true,
                    padding: 8,
                    null: 0,
                    a_log: false,
                    ..plain(7, 2, 5)
                })
            });
            let gates = if lower_bound.is_some() { Gates::Lowest } else { Gates::Far };
            plans.push(Plan::of(Switches { gates, ..plain(1, 1, 8) }));
            plans.push(Plan::of(Switches { gates: Gates::Zero, input_sigma: 0.02, ..plain(1, 1, 1) }));
            if lower_bound.is_some() {
                plans.push(Plan::of(plain(1, 1, 16)));
                plans.push(Plan::of(Switches { ragged: true, nulls: true, padding: 16, ..plain(3, 2, 11) }));
            }
            if taps.is_some() && order == ConvOrder::TokenMajor {
                plans.push(Plan { counters: true, ..Plan::of(Switches { nulls: true, ..plain(2, 12, 8) }) });
            }
        }
    }
    // The same with states of f32, which other kernels take.
    let wide = |plan: &Plan| Plan { switches: Switches { bf16_state: false, ..plan.switches }, ..*plan };
    let wide: Vec<Plan> = plans.iter().map(wide).collect();
    plans.extend(wide);
    plans
}

/// More work than a device holds at once, with tickets and without.
fn large() -> Vec<Plan> {
    let sizes = [(512, 12), (300, 12), (700, 5), (40, 96), (9000, 1)];
    let taps = Some(TapType::Bf16);
    let plan = |(n_req, heads), counters| {
        let switches = Switches { taps, ragged: true, nulls: true, ..Switches::plain(n_req, heads, TOKENS) };
        Plan { counters, ..Plan::of(switches) }
    };
    [false, true].into_iter().flat_map(|counters| sizes.map(|size| plan(size, counters))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::case::fits;
    use super::*;
    use kda_runtime::operators::tc_verify::Variant;

    /// Whether a problem has what a variant must meet.
    type Meets = fn(&Plan) -> bool;

    const NEEDED: [(&str, Meets); 10] = [
        ("full windows", |p| [8, 16].contains(&p.switches.window) && !p.switches.ragged),
        ("a window of one", |p| p.switches.window == 1),
        ("ragged lengths", |p| p.switches.ragged),
        ("slots that are not live", |p| p.switches.nulls),
        ("metadata that do not fit", |p| p.switches.misfits),
        ("padded rows", |p| p.switches.padding > 0),
        ("no a_log", |p| !p.switches.a_log),
        ("gates at their end", |p| matches!(p.switches.gates, Gates::Lowest | Gates::Far)),
        ("tickets", |p| p.counters),
        ("a fixed order", |p| !p.counters),
    ];

    #[test]
    fn a_quick_check_meets_every_switch_with_each_variant() {
        let plans = few();
        for variant in Variant::all() {
            let own: Vec<&Plan> = plans.iter().filter(|p| fits(variant, &p.switches)).collect();
            for (what, meets) in NEEDED.iter().filter(|_| variant.heads() == 0) {
                assert!(own.iter().any(|p| meets(p)), "{}: no problem with {what}", variant.desc().entry);
            }
            assert!(!own.is_empty(), "{}", variant.desc().entry);
        }
    }
}
