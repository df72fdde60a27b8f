//! Which problems are run.

use super::case::{Plan, Values};
use crate::checks::Extent;
use kda_ref::rng::Rng;
use kda_ref::tc_commit::ConvOrder::{ChannelMajor, TokenMajor};
use kda_ref::tc_commit::sample::Switches;
use kda_ref::tc_verify::sample::Gates;
use kda_runtime::Backend;

/// Largest windows of random problems, half of them with boundaries and half of them without.
const WINDOWS: [usize; 2] = [8, 16];

/// The problems of a check: each with an fp32 and with a bf16 state.
pub fn problems(extent: Extent, backend: Backend, rng: &mut Rng) -> Vec<Plan> {
    let mut plans: Vec<Plan> = few();
    if extent == Extent::Full {
        let simulated = backend == Backend::Sim;
        let (rounds, requests, heads) = if simulated { (5, 3, 2) } else { (40, 9, 6) };
        for _ in 0..rounds {
            for (window, boundary) in WINDOWS.into_iter().flat_map(|window| [(window, true), (window, false)]) {
                let switches = Switches { boundary, ..Switches::random(rng, requests, heads, window) };
                let layers = rng.choose(&[None, None, Some(1), Some(2), Some(3)]);
                plans.push(Plan { layers, ..Plan::of(switches) });
            }
        }
        plans.extend(extremes());
        plans.push(wave(simulated));
    }
    let of_type = |bf16_state: bool| {
        plans.iter().map(move |plan| Plan { switches: Switches { bf16_state, ..plan.switches }, ..*plan })
    };
    of_type(false).chain(of_type(true)).collect()
}

/// Problems that together meet every switch, with windows of at most 8 records and with longer ones; those without boundaries
/// do so by themselves.
pub fn few() -> Vec<Plan> {
    let plain = Switches::plain;
    let mut plans = vec![Plan::of(plain(3, 1, 1))];
    for window in WINDOWS {
        plans.extend([
            Plan {
                nobody: true,
                ..Plan::of(Switches {
                    lower_bound: None,
                    conv: Some(TokenMajor),
                    separate: true,
                    boundary: true,
                    null: 0,
                    padding: 8,
                    ..plain(4, 2, window)
                })
            },
            Plan {
                layers: Some(2),
                ..Plan::of(Switches {
                    conv: Some(ChannelMajor),
                    boundary: true,
                    padding: 16,
                    nulls: true,
                    misfits: true,
                    input_sigma: 0.02,
                    ..plain(5, 1, window - 3)
                })
            },
            Plan {
                nobody: true,
                ..Plan::of(Switches {
                    lower_bound: None,
                    gates: Gates::Far,
                    conv: Some(TokenMajor),
                    ..plain(4, 1, window)
                })
            },
            Plan::of(Switches {
                a_log: false,
                gates: Gates::Lowest,
                conv: Some(TokenMajor),
                separate: true,
                ..plain(2, 1, window - 2)
            }),
            Plan {
                layers: Some(1),
                ..Plan::of(Switches {
                    gates: Gates::Zero,
                    conv: Some(ChannelMajor),
                    separate: true,
                    boundary: true,
                    ..plain(2, 3, window - 1)
                })
            },
            Plan { layers: Some(2), ..Plan::of(plain(2, 1, window)) },
        ]);
    }
    plans.into_iter().flat_map(|plan| [Some(plan), unmarked(plan)].into_iter().flatten()).collect()
}

/// A problem with boundaries without them.
fn unmarked(plan: Plan) -> Option<Plan> {
    let switches = Switches { boundary: false, ..plan.switches };
    plan.switches.boundary.then_some(Plan { switches, ..plan })
}

/// Values at the ends of their ranges, with both gates, with boundaries and without.
fn extremes() -> Vec<Plan> {
    let mut plans = Vec::new();
    for lower_bound in [Some(-5.0), None] {
        let plain = Switches { lower_bound, boundary: true, ..Switches::plain(2, 2, 8) };
        let with = |values: Values| Plan { values, ..Plan::of(plain) };
        plans.extend([0, 2, 4, 6].map(|offset| with(Values::GateExtremes(offset))));
        plans.push(with(Values::ZeroKeys));
    }
    plans.into_iter().flat_map(|plan| [Some(plan), unmarked(plan)].into_iter().flatten()).collect()
}

/// More CTAs than fit at once. An H200 holds at most 2112 CTAs of 128 threads, the simulator runs 8 at a time.
fn wave(simulated: bool) -> Plan {
    let (requests, heads) = if simulated { (4, 1) } else { (60, 12) };
    let switches = Switches { conv: Some(TokenMajor), ..Switches::plain(requests, heads, 4) };
    Plan { layers: Some(if simulated { 2 } else { 3 }), ..Plan::of(switches) }
}

#[cfg(test)]
mod tests {
    use super::super::judge::fits;
    use super::*;
    use kda_kernels::tc_commit::TcCommitVariant;

    /// Whether a problem has what a variant must meet.
    type Meets = fn(&Plan) -> bool;

    /// What each variant must meet, one without boundaries in problems without them.
    const NEEDED: [(&str, Meets); 24] = [
        ("a request that is nobody's", |p| p.nobody),
        ("random nobodies", |p| p.switches.nulls),
        ("counts that do not fit", |p| p.switches.misfits),
        ("in place", |p| !p.switches.separate),
        ("slots of their own to write", |p| p.switches.separate),
        ("no boundary", |p| !p.switches.boundary),
        ("bounded gate", |p| p.switches.lower_bound.is_some()),
        ("softplus gate", |p| p.switches.lower_bound.is_none()),
        ("gates far out", |p| p.switches.gates == Gates::Far && p.switches.lower_bound.is_none()),
        ("gates at the bound", |p| p.switches.gates == Gates::Lowest),
        ("no decay", |p| p.switches.gates == Gates::Zero),
        ("no a_log", |p| !p.switches.a_log),
        ("no windows", |p| p.switches.conv.is_none()),
        ("rows of tokens in place", |p| p.switches.conv == Some(TokenMajor) && !p.switches.separate),
        ("rows of tokens to other slots", |p| p.switches.conv == Some(TokenMajor) && p.switches.separate),
        ("rows of channels in place", |p| p.switches.conv == Some(ChannelMajor) && !p.switches.separate),
        ("rows of channels to other slots", |p| p.switches.conv == Some(ChannelMajor) && p.switches.separate),
        ("pitches", |p| p.switches.padding > 0),
        ("several layers with windows", |p| p.layers.is_some_and(|layers| layers > 1) && p.switches.conv.is_some()),
        ("several layers without windows", |p| p.layers.is_some_and(|layers| layers > 1) && p.switches.conv.is_none()),
        ("a table of one layer", |p| p.layers == Some(1)),
        ("no table", |p| p.layers.is_none()),
        ("a null slot 0", |p| p.switches.null == 0),
        ("several heads", |p| p.switches.heads > 1),
    ];

    /// What a variant with boundaries must meet with them.
    const MARKED: [(&str, Meets); 9] = [
        ("a boundary for certain", |p| p.nobody),
        ("misfits and nobodies", |p| p.switches.misfits && p.switches.nulls),
        ("rows of tokens", |p| p.switches.conv == Some(TokenMajor)),
        ("rows of channels", |p| p.switches.conv == Some(ChannelMajor)),
        ("softplus gate", |p| p.switches.lower_bound.is_none()),
        ("bounded gate", |p| p.switches.lower_bound.is_some()),
        ("several layers", |p| p.layers.is_some_and(|layers| layers > 1)),
        ("in place", |p| !p.switches.separate),
        ("slots of their own to write", |p| p.switches.separate),
    ];

    #[test]
    fn a_quick_check_meets_every_switch_on_every_variant() {
        for backend in [Backend::Sim, Backend::Cuda] {
            let plans = problems(Extent::Quick, backend, &mut Rng::new(1));
            for variant in TcCommitVariant::ALL {
                let own: Vec<&Plan> = plans.iter().filter(|p| fits(variant, &p.switches)).collect();
                let name = variant.desc().entry;
                for (what, meets) in NEEDED {
                    assert!(own.iter().any(|p| meets(p)), "{name}: no problem with {what}");
                }
                for (what, meets) in MARKED {
                    let marked = own.iter().any(|p| p.switches.boundary && meets(p));
                    assert_eq!(marked, variant.boundary(), "{name}: boundaries, {what}");
                }
                let longest = own.iter().map(|p| p.switches.window).max();
                assert_eq!(longest, Some(variant.most() as usize));
            }
        }
    }

    /// Of random problems and extremes a variant without boundaries has its share.
    #[test]
    fn a_full_check_has_as_many_problems_without_boundaries() {
        for backend in [Backend::Sim, Backend::Cuda] {
            let plans = problems(Extent::Full, backend, &mut Rng::new(1));
            for bf16_state in [false, true] {
                let of = |boundary: bool, meets: Meets| {
                    let own = |p: &&Plan| (p.switches.bf16_state, p.switches.boundary) == (bf16_state, boundary);
                    plans.iter().filter(own).filter(|p| meets(p)).count()
                };
                let kinds: [Meets; 3] = [|_| true, |p| p.values == Values::ZeroKeys, |p| p.values != Values::Drawn];
                for meets in kinds {
                    assert!(of(false, meets) >= of(true, meets) && of(true, meets) > 0);
                }
            }
        }
    }

    #[test]
    fn a_full_check_has_more_than_a_wave() {
        for (backend, resident) in [(Backend::Sim, 8), (Backend::Cuda, 132 * 16)] {
            let plans = problems(Extent::Full, backend, &mut Rng::new(1));
            let states = |p: &Plan| p.switches.n_req * p.switches.heads * p.layers.unwrap_or(1);
            assert!(plans.iter().any(|p| 2 * states(p) > resident), "{backend}");
        }
    }
}
