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
    let mut plans: Vec<Plan> = QUICK_LENGTHS.iter().flat_map(|t| four(*t)).collect();
    if extent == Extent::Full {
        let simulated = backend == Backend::Sim;
        let (rounds, most) = if simulated { (2, 3) } else { (12, 8) };
        for t in (0..rounds).flat_map(|_| 1..=17) {
            plans.push(random(rng, most, t));
        }
        plans.extend([1, 2, 4, 8, 9].into_iter().flat_map(extremes));
        plans.extend(waves(simulated));
    }
    plans
}

/// Four problems of `t` tokens that together meet every switch.
pub fn four(t: usize) -> [Plan; 4] {
    let plain = |n, h, hv| Switches::plain(n, t, h, hv);
    [
        Plan::of(Switches { bias: true, ..plain(2, 1, 1) }),
        Plan {
            null_rows: true,
            view: View { index_stride: 3, ..View::WHOLE },
            ..Plan::of(Switches {
                t_alloc: t + 2,
                bf16_taps: true,
                bf16_pool: true,
                channels_innermost: true,
                lower_bound: None,
                roll: true,
                rule: SnapshotRule::ByBatch,
                padding: 8,
                ..plain(4, 1, 2)
            })
        },
        Plan {
            view: View { states: false, index_stride: 2, ..View::WHOLE },
            ..Plan::of(Switches { bias: true, bf16_pool: true, a_log: false, roll: true, ..plain(2, 1, 4) })
        },
        Plan {
            view: View { windows: false, ..View::WHOLE },
            ..Plan::of(Switches {
                t_alloc: t + 1,
                bf16_taps: true,
                channels_innermost: true,
                lower_bound: None,
                null: 0,
                roll: true,
                padding: 16,
                input_sigma: 0.02,
                ..plain(2, 2, 2)
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

/// Values at the ends of their ranges, with both gates.
fn extremes(t: usize) -> Vec<Plan> {
    let mut plans = Vec::new();
    for lower_bound in [Some(-5.0), None] {
        let plain = Switches { lower_bound, roll: true, ..Switches::plain(2, t, 1, 2) };
        let with = |values: Values, switches: Switches| Plan { values, ..Plan::of(switches) };
        plans.extend([0, 2, 4, 6].map(|offset| with(Values::GateExtremes(offset), plain)));
        plans.push(with(Values::BetaExtremes, plain));
        plans.push(with(Values::Tiny(1e-4), plain));
        plans.push(with(Values::Tiny(1e-4), Switches { bf16_pool: true, bf16_taps: true, ..plain }));
        plans.push(with(Values::ZeroTokens, plain));
        plans.push(with(Values::ZeroTokens, Switches { bias: true, ..plain }));
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
        plans.push(Plan::of(base));
        let other = Switches { bf16_pool: true, channels_innermost: true, rule: SnapshotRule::ByBatch, ..base };
        plans.push(Plan::of(other));
    }
    plans
}

#[cfg(test)]
mod tests {
    use super::*;
    use kda_kernels::conv_verify::ConvVerifyVariant;

    /// Whether a problem has what a variant must meet.
    type Meets = fn(&Plan) -> bool;

    /// What each variant must meet.
    const NEEDED: [(&str, Meets); 22] = [
        ("snapshots of every request", |p| p.all_live() && p.view.states && p.view.windows),
        ("roll", |p| p.switches.roll),
        ("no roll", |p| !p.switches.roll),
        ("null rows", |p| p.null_rows),
        ("bounded gate", |p| p.switches.lower_bound.is_some()),
        ("softplus gate", |p| p.switches.lower_bound.is_none()),
        ("fp32 pool", |p| !p.switches.bf16_pool),
        ("bf16 pool", |p| p.switches.bf16_pool),
        ("[D, 3]", |p| !p.switches.channels_innermost),
        ("[3, D]", |p| p.switches.channels_innermost),
        ("bf16 taps", |p| p.switches.bf16_taps),
        ("fp32 taps", |p| !p.switches.bf16_taps),
        ("HV / H = 1", |p| p.switches.dims.hv == p.switches.dims.h),
        ("HV / H = 2", |p| p.switches.dims.hv == 2 * p.switches.dims.h),
        ("HV / H = 4", |p| p.switches.dims.hv == 4 * p.switches.dims.h),
        ("by batch", |p| p.switches.rule == SnapshotRule::ByBatch),
        ("no states_out", |p| !p.view.states),
        ("no windows_out", |p| !p.view.windows),
        ("no bias", |p| !p.switches.bias),
        ("no a_log", |p| !p.switches.a_log),
        ("strided index arrays", |p| p.view.index_stride > 1),
        ("T_alloc > T, padded strides", |p| p.switches.t_alloc > p.switches.dims.t && p.switches.padding > 0),
    ];

    #[test]
    fn every_variant_meets_every_switch_in_a_quick_check() {
        for backend in [Backend::Sim, Backend::Cuda] {
            let plans = problems(Extent::Quick, backend, &mut Rng::new(1));
            for variant in ConvVerifyVariant::ALL {
                let runs = |p: &&Plan| variant.long() || variant.t() as usize == p.switches.dims.t;
                let own: Vec<&Plan> = plans.iter().filter(runs).collect();
                assert!(own.len() >= 3, "{}: {} problems", variant.desc().entry, own.len());
                for (what, meets) in NEEDED {
                    assert!(own.iter().any(|p| meets(p)), "{}: no problem with {what}", variant.desc().entry);
                }
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
