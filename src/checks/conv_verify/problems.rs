//! Which problems are run.

use super::case::{Plan, Values, View};
use crate::checks::Extent;
use kda_ref::conv_verify::sample::Switches;
use kda_ref::conv_verify::{Dims, SnapshotRule};
use kda_ref::rng::Rng;
use kda_runtime::Backend;

/// Numbers of tokens that a quick check runs: each that has variants of its own, then one and two further passes.
const QUICK_LENGTHS: [usize; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 11, 17];

/// The problems of a check.
pub fn problems(extent: Extent, backend: Backend, rng: &mut Rng) -> Vec<Plan> {
    let quick = QUICK_LENGTHS.iter().flat_map(|t| POOLS.into_iter().flat_map(|pool| four(*t, pool)));
    let mut plans: Vec<Plan> = quick.collect();
    if extent == Extent::Full {
        let simulated = backend == Backend::Sim;
        let (rounds, most) = if simulated { (2, 3) } else { (12, 8) };
        for t in (0..rounds).flat_map(|_| 1..=17) {
            plans.push(random(rng, most, t));
        }
        plans.extend([1, 2, 4, 8, 9].into_iter().enumerate().flat_map(|(turn, t)| extremes(t, turn)));
        plans.extend(waves(simulated));
    }
    plans
}

/// The convolution pools that an engine may have: whether elements are bf16, and whether the order is `[3, D]`. The first two
/// are those of engines.
pub const POOLS: [(bool, bool); 4] = [(false, false), (true, true), (false, true), (true, false)];

/// The switches with another convolution pool.
pub fn with_pool(switches: Switches, (bf16_pool, channels_innermost): (bool, bool)) -> Switches {
    Switches { bf16_pool, channels_innermost, ..switches }
}

/// Four problems of `t` tokens on one pool that together meet every other switch, with as few (request, value head) pairs as
/// that takes.
pub fn four(t: usize, pool: (bool, bool)) -> [Plan; 4] {
    let plain = |n, h, hv| with_pool(Switches::plain(n, t, h, hv), pool);
    [
        Plan::of(Switches { bias: true, ..plain(1, 1, 1) }),
        Plan {
            null_rows: true,
            view: View { index_stride: 3, ..View::WHOLE },
            ..Plan::of(Switches {
                t_alloc: t + 2,
                bf16_taps: true,
                lower_bound: None,
                roll: true,
                rule: SnapshotRule::ByBatch,
                padding: 8,
                ..plain(4, 1, 2)
            })
        },
        Plan {
            view: View { states: false, index_stride: 2, ..View::WHOLE },
            ..Plan::of(Switches { bias: true, a_log: false, roll: true, ..plain(1, 1, 4) })
        },
        Plan {
            view: View { windows: false, ..View::WHOLE },
            ..Plan::of(Switches {
                t_alloc: t + 1,
                lower_bound: None,
                null: 0,
                roll: true,
                padding: 16,
                input_sigma: 0.02,
                ..plain(1, 2, 2)
            })
        },
    ]
}

/// Every switch by chance.
fn random(rng: &mut Rng, most: usize, t: usize) -> Plan {
    let mut switches = Switches::random(rng, most, t);
    switches.t_alloc += t - switches.dims.t;
    switches.dims.t = t;
    let view = View { states: rng.below(6) > 0, windows: rng.below(6) > 0, index_stride: rng.choose(&[1, 1, 2, 5]) };
    Plan { view, ..Plan::of(switches) }
}

/// Values at the ends of their ranges, with both gates. The pools take turns: over four lengths each meets every kind of value.
fn extremes(t: usize, turn: usize) -> Vec<Plan> {
    let mut plans = Vec::new();
    for lower_bound in [Some(-5.0), None] {
        let plain = Switches { lower_bound, roll: true, ..Switches::plain(2, t, 1, 2) };
        let with = |values: Values, switches: Switches| Plan { values, ..Plan::of(switches) };
        plans.extend([0, 2, 4, 6].map(|offset| with(Values::GateExtremes(offset), plain)));
        plans.push(with(Values::BetaExtremes, plain));
        plans.push(with(Values::Tiny(1e-4), plain));
        plans.push(with(Values::Tiny(1e-4), Switches { bf16_taps: true, ..plain }));
        plans.push(with(Values::ZeroTokens, plain));
        plans.push(with(Values::ZeroTokens, Switches { bias: true, ..plain }));
    }
    for (index, plan) in plans.iter_mut().enumerate() {
        plan.switches = with_pool(plan.switches, POOLS[(index + turn) % POOLS.len()]);
    }
    plans
}

/// More CTAs than fit at once, with the roll on: the order of CTAs must not matter. An H200 holds at most 528 CTAs of 512
/// threads, the simulator runs 8 at a time; the widest tile makes one CTA of a (request, value head).
fn waves(simulated: bool) -> Vec<Plan> {
    let sizes: [Dims; 2] = if simulated {
        [Dims { n: 5, t: 4, h: 2, hv: 4 }, Dims { n: 3, t: 9, h: 1, hv: 4 }]
    } else {
        [Dims { n: 40, t: 4, h: 8, hv: 16 }, Dims { n: 50, t: 9, h: 3, hv: 12 }]
    };
    let mut plans = Vec::new();
    for dims in sizes {
        let base = Switches { roll: true, bias: true, ..Switches::plain(dims.n, dims.t, dims.h, dims.hv) };
        for (index, pool) in POOLS.into_iter().enumerate() {
            let rule = if index % 2 == 0 { SnapshotRule::ByIndex } else { SnapshotRule::ByBatch };
            plans.push(Plan::of(Switches { rule, ..with_pool(base, pool) }));
        }
    }
    plans
}

#[cfg(test)]
mod tests {
    use super::super::judge::fits;
    use super::*;
    use kda_kernels::conv_verify::ConvVerifyVariant;

    /// Whether a problem has what a variant must meet.
    type Meets = fn(&Plan) -> bool;

    /// What each variant must meet on its own convolution pool.
    const NEEDED: [(&str, Meets); 24] = [
        ("snapshots of every request", |p| p.all_live() && p.view.states && p.view.windows),
        ("roll", |p| p.switches.roll),
        ("no roll", |p| !p.switches.roll),
        ("null rows, with both snapshots", |p| p.null_rows && p.view.states && p.view.windows),
        ("bounded gate", |p| p.switches.lower_bound.is_some()),
        ("softplus gate", |p| p.switches.lower_bound.is_none()),
        ("bf16 taps", |p| p.switches.bf16_taps),
        ("fp32 taps", |p| !p.switches.bf16_taps),
        ("HV / H = 1", |p| p.switches.dims.hv == p.switches.dims.h),
        ("HV / H = 2", |p| p.switches.dims.hv == 2 * p.switches.dims.h),
        ("HV / H = 4", |p| p.switches.dims.hv == 4 * p.switches.dims.h),
        ("several q/k heads that roll", |p| p.switches.dims.h > 1 && p.switches.roll),
        ("several live requests", |p| p.switches.dims.n > if p.null_rows { 3 } else { 1 }),
        ("by index", |p| p.switches.rule == SnapshotRule::ByIndex),
        ("by batch", |p| p.switches.rule == SnapshotRule::ByBatch),
        ("no states_out", |p| !p.view.states && p.view.windows),
        ("no windows_out", |p| !p.view.windows && p.view.states),
        ("bias", |p| p.switches.bias),
        ("no bias", |p| !p.switches.bias),
        ("no a_log", |p| !p.switches.a_log),
        ("null = 0", |p| p.switches.null == 0),
        ("strided index arrays", |p| p.view.index_stride > 1),
        ("T_alloc > T, padded strides", |p| p.switches.t_alloc > p.switches.dims.t && p.switches.padding > 0),
        ("inputs as small as the norm's epsilon", |p| p.switches.input_sigma < 0.1),
    ];

    #[test]
    fn every_variant_meets_every_switch_in_a_quick_check() {
        for backend in [Backend::Sim, Backend::Cuda] {
            let plans = problems(Extent::Quick, backend, &mut Rng::new(1));
            for variant in ConvVerifyVariant::ALL {
                let own: Vec<&Plan> = plans.iter().filter(|p| fits(variant, &p.switches)).collect();
                assert!(own.len() >= 3, "{}: {} problems", variant.desc().entry, own.len());
                for (what, meets) in NEEDED {
                    assert!(own.iter().any(|p| meets(p)), "{}: no problem with {what}", variant.desc().entry);
                }
            }
        }
    }

    /// Extreme values of every kind, with both gates, and more CTAs than fit at once.
    #[test]
    fn every_pool_meets_extremes_and_waves_in_a_full_check() {
        let plans = problems(Extent::Full, Backend::Sim, &mut Rng::new(1));
        let values = [
            Values::GateExtremes(0),
            Values::GateExtremes(2),
            Values::GateExtremes(4),
            Values::GateExtremes(6),
            Values::BetaExtremes,
            Values::Tiny(1e-4),
            Values::ZeroTokens,
        ];
        for pool in POOLS {
            let own: Vec<&Plan> = plans.iter().filter(|p| with_pool(p.switches, pool) == p.switches).collect();
            for (values, bounded) in values.into_iter().flat_map(|values| [(values, false), (values, true)]) {
                let met = |p: &&Plan| p.values == values && p.switches.lower_bound.is_some() == bounded;
                assert!(own.iter().copied().any(|p| met(&p)), "{pool:?}: {values:?}, bounded {bounded}");
            }
            for long in [false, true] {
                let wave = |p: &&Plan| p.switches.dims.n * p.switches.dims.hv > 8 && p.switches.roll;
                assert!(own.iter().any(|p| wave(p) && (p.switches.dims.t > 8) == long), "{pool:?}, long {long}");
            }
        }
    }

    #[test]
    fn a_full_check_has_every_length_and_more_than_a_wave() {
        for (backend, resident) in [(Backend::Sim, 8), (Backend::Cuda, 132 * 4)] {
            let plans = problems(Extent::Full, backend, &mut Rng::new(1));
            for t in 1..=17 {
                assert!(plans.iter().any(|p| p.switches.dims.t == t), "T = {t}");
            }
            let pairs = |p: &Plan| p.switches.dims.n * p.switches.dims.hv;
            assert!(plans.iter().any(|p| p.switches.roll && pairs(p) > resident), "{backend}");
        }
    }
}
