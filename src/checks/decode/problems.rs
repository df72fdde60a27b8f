//! Which problems are run.

use super::case::{Plan, Values};
use crate::checks::Extent;
use kda_ref::decode::Dims;
use kda_ref::decode::sample::Switches;
use kda_ref::rng::Rng;
use kda_runtime::Backend;

/// The problems of a check: each with an fp32 and with a bf16 state.
pub fn problems(extent: Extent, backend: Backend, rng: &mut Rng) -> Vec<Plan> {
    let mut plans: Vec<Plan> = few().to_vec();
    if extent == Extent::Full {
        let simulated = backend == Backend::Sim;
        let (rounds, most) = if simulated { (16, 3) } else { (150, 9) };
        for _ in 0..rounds {
            let switches = Switches { bf16_state: false, ..Switches::random(rng, most) };
            plans.push(Plan { index_stride: rng.choose(&[1, 1, 2, 5]), ..Plan::of(switches) });
        }
        plans.extend(extremes());
        plans.extend(waves(simulated));
    }
    let narrow = |plan: &Plan| Plan { switches: Switches { bf16_state: true, ..plan.switches }, ..*plan };
    let narrow: Vec<Plan> = plans.iter().map(narrow).collect();
    plans.extend(narrow);
    plans
}

/// Five problems that together meet every switch.
pub fn few() -> [Plan; 5] {
    let plain = Switches::plain;
    [
        Plan::of(Switches { bias: true, ..plain(2, 1, 1) }),
        Plan {
            null_rows: true,
            index_stride: 3,
            ..Plan::of(Switches {
                bf16_taps: true,
                bf16_pool: true,
                channels_innermost: true,
                lower_bound: None,
                padding: 8,
                separate: true,
                f32_gate: true,
                ..plain(4, 1, 2)
            })
        },
        Plan {
            shared_source: true,
            ..Plan::of(Switches { bf16_pool: true, a_log: false, separate: true, bias: true, ..plain(2, 1, 4) })
        },
        Plan {
            index_stride: 2,
            ..Plan::of(Switches {
                bf16_taps: true,
                channels_innermost: true,
                lower_bound: None,
                dt_bias: false,
                null: 0,
                padding: 16,
                input_sigma: 0.02,
                ..plain(2, 2, 2)
            })
        },
        Plan { null_rows: true, ..Plan::of(Switches { fused: false, padding: 8, f32_gate: true, ..plain(3, 1, 3) }) },
    ]
}

/// Values at the ends of their ranges, with both gates.
fn extremes() -> Vec<Plan> {
    let mut plans = Vec::new();
    for lower_bound in [Some(-5.0), None] {
        let plain = Switches { lower_bound, ..Switches::plain(2, 1, 2) };
        let with = |values: Values, switches: Switches| Plan { values, ..Plan::of(switches) };
        plans.extend([0, 2, 4, 6].map(|offset| with(Values::GateExtremes(offset), plain)));
        plans.push(with(Values::BetaExtremes, plain));
        plans.push(with(Values::Tiny(1e-4), plain));
        plans.push(with(Values::Tiny(1e-4), Switches { fused: false, ..plain }));
        plans.push(with(Values::Zeros, plain));
        plans.push(with(Values::Zeros, Switches { bias: true, ..plain }));
    }
    plans
}

/// More CTAs than fit at once: the order of CTAs must not matter to the roll. An H200 holds at most 2112 CTAs of 128
/// threads, the simulator runs 8 at a time.
fn waves(simulated: bool) -> Vec<Plan> {
    let dims = if simulated { Dims { n: 5, h: 2, hv: 4 } } else { Dims { n: 70, h: 8, hv: 32 } };
    let base = Switches { bias: true, ..Switches::plain(dims.n, dims.h, dims.hv) };
    vec![Plan::of(base), Plan::of(Switches { bf16_pool: true, channels_innermost: true, ..base })]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a problem has what a variant must meet.
    type Meets = fn(&Plan) -> bool;

    /// What each variant must meet; every variant runs all problems of its type of state.
    const NEEDED: [(&str, Meets); 23] = [
        ("all requests live", |p| !p.null_rows),
        ("null rows", |p| p.null_rows),
        ("fused convolution", |p| p.switches.fused),
        ("q, k and v given", |p| !p.switches.fused),
        ("bounded gate", |p| p.switches.lower_bound.is_some()),
        ("softplus gate", |p| p.switches.lower_bound.is_none()),
        ("fp32 pool", |p| p.switches.fused && !p.switches.bf16_pool),
        ("bf16 pool", |p| p.switches.fused && p.switches.bf16_pool),
        ("[D, 3]", |p| p.switches.fused && !p.switches.channels_innermost),
        ("[3, D]", |p| p.switches.fused && p.switches.channels_innermost),
        ("bf16 taps", |p| p.switches.fused && p.switches.bf16_taps),
        ("fp32 taps", |p| p.switches.fused && !p.switches.bf16_taps),
        ("fp32 gate", |p| p.switches.f32_gate),
        ("bf16 gate", |p| !p.switches.f32_gate),
        ("HV / H = 1", |p| p.switches.dims.hv == p.switches.dims.h),
        ("HV / H = 2", |p| p.switches.dims.hv == 2 * p.switches.dims.h),
        ("HV / H = 4", |p| p.switches.dims.hv == 4 * p.switches.dims.h),
        ("slots of their own to write", |p| p.switches.separate),
        ("one source of two requests", |p| p.shared_source),
        ("no bias", |p| p.switches.fused && !p.switches.bias),
        ("no a_log", |p| !p.switches.a_log),
        ("no dt_bias", |p| !p.switches.dt_bias),
        ("strided index arrays", |p| p.index_stride > 1),
    ];

    #[test]
    fn a_quick_check_meets_every_switch_with_each_type_of_state() {
        for backend in [Backend::Sim, Backend::Cuda] {
            let plans = problems(Extent::Quick, backend, &mut Rng::new(1));
            for bf16_state in [false, true] {
                let own: Vec<&Plan> = plans.iter().filter(|p| p.switches.bf16_state == bf16_state).collect();
                for (what, meets) in NEEDED {
                    assert!(own.iter().any(|p| meets(p)), "bf16 state {bf16_state}: no problem with {what}");
                }
            }
        }
    }

    #[test]
    fn a_full_check_has_more_than_a_wave() {
        for (backend, resident) in [(Backend::Sim, 8), (Backend::Cuda, 132 * 16)] {
            let plans = problems(Extent::Full, backend, &mut Rng::new(1));
            assert!(plans.iter().any(|p| p.switches.dims.n * p.switches.dims.hv > resident), "{backend}");
        }
    }
}
