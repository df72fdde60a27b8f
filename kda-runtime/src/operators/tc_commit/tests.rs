//! Calls on the simulator against the commit written out in float64: every way in which a call can be put.
//!
//! Of an f32 pool the largest error of a state is at most a small factor of that of the same formula in f32, token after
//! token; of a bf16 pool each element is at most half a unit of its last place further away. Everything else keeps its bits.

mod case;
mod expected;

use super::{Boundary, Gate, Options, Problem, plan};
use crate::executor::sim::SimExecutor;
use crate::{DeviceBuffer, Guarding};
use case::{Case, D, Layer, Random, Rows, draw};
use expected::judge;
use half::bf16;
use kda_core::exec::Stream;
use kda_core::{Elem, TensorArg};
use kda_kernels::tc_commit::TcCommitVariant;
use kda_sim::{CtaOrder, Schedule};

/// The pools of each layer behind a launch of all of them.
fn run(case: &Case, layers: &[Layer]) -> Vec<(Vec<f32>, Vec<bf16>)> {
    let orders = [CtaOrder::Forward, CtaOrder::Reverse, CtaOrder::Random];
    let index = Schedule::ALL.iter().position(|s| *s == case.schedule).unwrap_or(0);
    let options = kda_sim::Options {
        schedule: case.schedule,
        cta_order: orders[index % 3],
        seed: index as u64,
        ..kda_sim::Options::default()
    };
    let executor = SimExecutor::with_capability(options, case.capability);
    let bands = Guarding::BANDS;
    let (n, heads, window) = (case.counts.len() as u64, case.heads as u64, case.window as u64);
    let elem = if case.bf16_state { Elem::BF16 } else { Elem::F32 };
    struct Held<'e> {
        state: DeviceBuffer<'e>,
        conv: DeviceBuffer<'e>,
        others: [DeviceBuffer<'e>; 4],
    }
    let held: Vec<Held> = layers
        .iter()
        .map(|x| {
            let narrow: Vec<bf16> = x.state.iter().map(|s| bf16::from_f32(*s)).collect();
            let state = match case.bf16_state {
                true => DeviceBuffer::of(&executor, "state", &narrow, bands),
                false => DeviceBuffer::of(&executor, "state", &x.state, bands),
            };
            Held {
                state: state.unwrap(),
                conv: DeviceBuffer::of(&executor, "conv", &x.conv, bands).unwrap(),
                others: [
                    DeviceBuffer::of(&executor, "corr", &x.corr, bands).unwrap(),
                    DeviceBuffer::of(&executor, "kg", &x.kg, bands).unwrap(),
                    DeviceBuffer::of(&executor, "a_log", &x.a_log, bands).unwrap(),
                    DeviceBuffer::of(&executor, "dt_bias", &x.dt_bias, bands).unwrap(),
                ],
            }
        })
        .collect();
    let integers = |name, values: &[i32]| DeviceBuffer::of(&executor, name, values, bands).unwrap();
    let slots = integers("slots", &case.slots);
    let counts = integers("counts", &case.counts);
    let destinations = case.destinations.as_ref().map(|slots| integers("destinations", slots));
    let boundary = case.boundary.as_ref().map(|(t, s)| (integers("boundary_tokens", t), integers("boundary_slots", s)));
    let addresses: Vec<u64> = held
        .iter()
        .flat_map(|layer| {
            let [corr, kg, a_log, dt_bias] = &layer.others;
            [&layer.state, &layer.conv, corr, kg, a_log, dt_bias].map(DeviceBuffer::ptr)
        })
        .collect();
    let table = DeviceBuffer::of(&executor, "layers", &addresses, bands).unwrap();
    let list = |buffer: &DeviceBuffer| buffer.dense(Elem::I32, &[n]).unwrap();
    let first = &held[0];
    let [corr, kg, a_log, dt_bias] = &first.others;
    let (pool, channels, pitch) = (case.pool as u64, case.channels() as u64, case.conv_pitch() as u64);
    let windows = |rows: Rows| -> TensorArg {
        let inner = if rows == Rows::Tokens { [1, channels] } else { [window + 2, 1] };
        first.conv.strided(Elem::BF16, &[pool, channels, window + 2], &[pitch, inner[0], inner[1]]).unwrap()
    };
    let strides = [case.pitch() as u64, (D * D) as u64, D as u64, 1];
    let problem = Problem {
        state: first.state.strided(elem, &[pool, heads, 128, 128], &strides).unwrap(),
        corr: corr.dense(Elem::F32, &[n + 1, heads, window, 128]).unwrap(),
        kg: kg.dense(Elem::BF16, &[n + 1, heads, window, 256]).unwrap(),
        a_log: case.a_log.then(|| a_log.dense(Elem::F32, &[heads]).unwrap()),
        dt_bias: dt_bias.dense(Elem::F32, &[heads, 128]).unwrap(),
        conv: case.conv.map(windows),
        slots: list(&slots),
        destinations: destinations.as_ref().map(list),
        counts: list(&counts),
        boundary: boundary.as_ref().map(|(tokens, slots)| Boundary { tokens: list(tokens), slots: list(slots) }),
        layers: case.table.then(|| table.dense(Elem::U64, &[layers.len() as u64, 6]).unwrap()),
        gate: if case.softplus { Gate::Softplus } else { Gate::Bounded { lower_bound: -5.0 } },
        null: case.null,
    };
    let planned = plan(&problem, &executor, &Options { variant: case.variant, pdl: true }).expect("a plan");
    // SAFETY: the buffers outlive the launch, and nothing else uses them.
    unsafe { planned.launch(&executor, Stream::default()) }.expect("the call runs");
    for layer in &held {
        for buffer in [&layer.state, &layer.conv].into_iter().chain(&layer.others) {
            buffer.check_canaries().expect("nothing beside it");
        }
    }
    let wide = |buffer: &DeviceBuffer| -> Vec<f32> {
        match elem {
            Elem::BF16 => buffer.download::<bf16>().unwrap().into_iter().map(bf16::to_f32).collect(),
            _ => buffer.download::<f32>().unwrap(),
        }
    };
    held.iter().map(|layer| (wide(&layer.state), layer.conv.download::<bf16>().unwrap())).collect()
}

/// Inputs of this run; `KDA_SEED` repeats one.
fn random(what: &str) -> Random {
    let given = std::env::var("KDA_SEED").ok().and_then(|seed| seed.parse().ok());
    let fresh = || {
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        time.map_or(0, |time| time.as_nanos() as u64)
    };
    let seed = given.unwrap_or_else(fresh);
    println!("KDA_SEED={seed} ({what})");
    Random(seed)
}

/// Runs a case and checks every layer; gives what the pools hold.
fn check(what: &str, case: &Case) -> Vec<(Vec<f32>, Vec<bf16>)> {
    let mut random = random(what);
    let layers: Vec<Layer> = (0..case.layers).map(|_| draw(case, &mut random)).collect();
    let got = run(case, &layers);
    for (x, (state, conv)) in layers.iter().zip(&got) {
        judge(what, case, x, state, conv);
    }
    got
}

/// Every variant, with every count from below 0 to past the window.
#[test]
fn every_count() {
    for variant in TcCommitVariant::ALL {
        let window = if variant.most() == 8 { 5 } else { 11 };
        let counts: Vec<i32> = [-1, i32::MIN, i32::MAX, window + 1].into_iter().chain(0..=window).collect();
        let capability = (variant.desc().arch.major, variant.desc().arch.minor);
        let bf16_state = variant.state() == Elem::BF16;
        let case =
            Case { heads: 1, variant: Some(variant), capability, bf16_state, ..Case::plain(window as usize, &counts) };
        check(variant.desc().entry, &case);
    }
}

/// Boundaries of every place, windows in both orders, slots in place and apart; the source keeps its bits unless it is named.
#[test]
fn boundaries_destinations_and_windows() {
    for (bf16_state, conv) in [(true, Some(Rows::Tokens)), (false, Some(Rows::Channels)), (true, None)] {
        let case = Case {
            pool: 24,
            slots: vec![1, 2, 3, 4, 5, 6, 7],
            // In place, apart, and one boundary that is the source.
            destinations: Some(vec![11, 2, 13, 14, 5, 16, 17]),
            boundary: Some((vec![1, 3, 4, 0, 2, 5, 2], vec![18, 19, 3, 20, 21, 22, 17])),
            bf16_state,
            conv,
            padding: 24,
            ..Case::plain(4, &[4, 3, 9, 2, 4, 4, 2])
        };
        check("apart", &case);
        check(
            "in place",
            &Case {
                destinations: None,
                boundary: Some((vec![1, 2, 3, 1, 1, 2, 2], vec![8, 9, 10, 11, 12, 13, 14])),
                ..case
            },
        );
    }
}

/// Slots that are nobody's: null, below, past the pool, as source, destination and boundary.
#[test]
fn slots_that_are_nobodys() {
    for null in [-1, 0] {
        let case = Case {
            pool: 9,
            slots: vec![null, -7, 9, i32::MAX, 1, 2, 3, 4],
            destinations: Some(vec![5, 5, 5, 5, null, i32::MIN, 1000, 6]),
            boundary: Some((vec![1; 8], vec![7, 7, 7, 7, 7, 7, 7, 9])),
            conv: Some(Rows::Tokens),
            null,
            ..Case::plain(3, &[2; 8])
        };
        check("nobody's", &case);
        check("their boundaries", &Case { counts: vec![0, 0, 0, 0, 0, 0, 0, 3], null, ..case });
    }
}

/// Windows in both orders at every count, in place.
#[test]
fn windows_at_every_count() {
    for conv in [Rows::Tokens, Rows::Channels] {
        for (window, bf16_state) in [(1, true), (8, true), (16, false)] {
            let counts: Vec<i32> = (0..=window).step_by(window as usize / 4 + 1).chain([1, window]).collect();
            check(
                "windows",
                &Case { heads: 1, conv: Some(conv), bf16_state, padding: 8, ..Case::plain(window as usize, &counts) },
            );
        }
    }
}

/// Both gates, with and without `a_log`, and decays that no f32 holds.
#[test]
fn gates() {
    for bf16_state in [true, false] {
        for (softplus, far, a_log) in
            [(false, false, false), (true, false, true), (true, false, false), (true, true, true), (false, true, true)]
        {
            let case = Case { softplus, far, a_log, bf16_state, ..Case::plain(8, &[8, 2, 1]) };
            check("gates", &case);
        }
    }
}

/// A launch of many layers gives the bits of a launch a layer; absent things are absent in all.
#[test]
fn layers_by_the_table() {
    for (bf16_state, conv, a_log, marked) in [
        (true, Some(Rows::Tokens), true, true),
        (false, Some(Rows::Channels), false, true),
        (true, None, true, true),
        (true, Some(Rows::Channels), false, false),
        (false, Some(Rows::Tokens), true, false),
    ] {
        let case = Case {
            pool: 10,
            destinations: Some(vec![6, 1]),
            slots: vec![3, 1],
            boundary: marked.then(|| (vec![2, 1], vec![8, 9])),
            layers: 3,
            table: true,
            bf16_state,
            conv,
            a_log,
            padding: 8,
            ..Case::plain(4, &[3, 4])
        };
        let mut random = random("layers");
        let layers: Vec<Layer> = (0..3).map(|_| draw(&case, &mut random)).collect();
        let together = run(&case, &layers);
        for (x, got) in layers.iter().zip(&together) {
            judge("layers", &case, x, &got.0, &got.1);
            let alone = run(&Case { layers: 1, table: false, ..case.clone() }, std::slice::from_ref(x)).remove(0);
            let bits = |state: &[f32]| state.iter().map(|s| s.to_bits()).collect::<Vec<u32>>();
            assert!(bits(&alone.0) == bits(&got.0) && alone.1 == got.1);
        }
    }
}

/// Slices, windows of other sizes around a request, whether boundaries could be applied, and schedules do not change a bit.
#[test]
fn variants_and_schedules_agree() {
    let marked = Some((vec![2, 1, 7], vec![10, 11, 0]));
    for (bf16_state, boundary) in [(true, marked.clone()), (true, None), (false, marked.clone()), (false, None)] {
        let case = Case {
            pool: 12,
            destinations: Some(vec![7, 2, 9]),
            slots: vec![1, 2, 3],
            boundary,
            conv: Some(Rows::Tokens),
            bf16_state,
            ..Case::plain(6, &[4, 6, 1])
        };
        let x = draw(&case, &mut random("agree"));
        let first = run(&case, std::slice::from_ref(&x));
        judge("agree", &case, &x, &first[0].0, &first[0].1);
        for schedule in Schedule::ALL {
            assert!(run(&Case { schedule, ..case.clone() }, std::slice::from_ref(&x)) == first, "{schedule:?}");
        }
        let able =
            |v: &TcCommitVariant| (v.state() == Elem::BF16) == bf16_state && (v.boundary() || case.boundary.is_none());
        for variant in TcCommitVariant::ALL.into_iter().filter(able) {
            let capability = (variant.desc().arch.major, variant.desc().arch.minor);
            let other = Case { variant: Some(variant), capability, ..case.clone() };
            assert!(run(&other, std::slice::from_ref(&x)) == first, "{}", variant.desc().entry);
        }
    }
}
