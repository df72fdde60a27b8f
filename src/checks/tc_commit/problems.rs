//! Which problems are run.

use super::case::{Plan, Values};
use crate::checks::Extent;
use kda_ref::rng::Rng;
use kda_ref::tc_commit::ConvOrder::{ChannelMajor, TokenMajor};
use kda_ref::tc_commit::sample::Switches;
use kda_ref::tc_verify::sample::Gates;
use kda_runtime::Backend;

/// Largest windows of random problems: variants for 8 records and for 16 meet the same number of them.
const WINDOWS: [usize; 2] = [8, 16];

/// The problems of a check: each with an fp32 and with a bf16 state.
pub fn problems(extent: Extent, backend: Backend, rng: &mut Rng) -> Vec<Plan> {
    let mut plans: Vec<Plan> = few();
    if extent == Extent::Full {
        let simulated = backend == Backend::Sim;
        let (rounds, requests, heads) = if simulated { (8, 3, 2) } else { (80, 9, 6) };
        for _ in 0..rounds {
            for window in WINDOWS {
                let switches = Switches::random(rng, requests, heads, window);
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

/// Problems that together meet every switch, with windows of at most 8 records and with longer ones.
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
            Plan::of(Switches { a_log: false, gates: Gates::Lowest, separate: true, ..plain(2, 1, window - 2) }),
            Plan {
                layers: Some(1),
                ..Plan::of(Switches { gates: Gates::Zero, boundary: true, ..plain(2, 3, window - 1) })
            },
        ]);
    }
    plans
}

/// Values at the ends of their ranges, with both gates.
fn extremes() -> Vec<Plan> {
    let mut plans = Vec::new();
    for lower_bound in [Some(-5.0), None] {
        let plain = Switches { lower_bound, boundary: true, ..Switches::plain(2, 2, 8) };
        let with = |values: Values| Plan { values, ..Plan::of(plain) };
        plans.extend([0, 2, 4, 6].map(|offset| with(Values::GateExtremes(offset))));
        plans.push(with(Values::ZeroKeys));
    }
    plans
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

    /// What each variant must meet.
    const NEEDED: [(&str, Meets); 20] = [
        ("a request that is nobody's", |p| p.nobody),
        ("a boundary for certain", |p| p.nobody && p.switches.boundary),
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
        ("windows in rows of tokens", |p| p.switches.conv == Some(TokenMajor)),
        ("windows in rows of channels", |p| p.switches.conv == Some(ChannelMajor)),
        ("pitches", |p| p.switches.padding > 0),
        ("several layers", |p| p.layers.is_some_and(|layers| layers > 1)),
        ("a table of one layer", |p| p.layers == Some(1)),
        ("a null slot 0", |p| p.switches.null == 0),
    ];

    #[test]
    fn a_quick_check_meets_every_switch_on_every_variant() {
        for backend in [Backend::Sim, Backend::Cuda] {
            let plans = problems(Extent::Quick, backend, &mut Rng::new(1));
            for variant in TcCommitVariant::ALL {
                let own: Vec<&Plan> =
                    plans.iter().filter(|p| fits(variant, p.switches.bf16_state, p.switches.window)).collect();
                for (what, meets) in NEEDED {
                    assert!(own.iter().any(|p| meets(p)), "{}: no problem with {what}", variant.desc().entry);
                }
                let longest = own.iter().map(|p| p.switches.window).max();
                assert_eq!(longest, Some(variant.most() as usize));
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
