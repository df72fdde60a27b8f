//! Plans over memory that does not exist: planning reads none.

use super::super::Gate;
use super::super::problem::{Convolution, Tokens};
use super::*;
use crate::operators::capability::{Capability, HOPPER};
use crate::operators::preference::is_named;
use kda_core::TensorArg;

fn tensor(elem: Elem, shape: &[u64]) -> TensorArg {
    TensorArg::dense(1 << 20, u64::MAX, elem, shape).expect("a tensor")
}

/// A call with convolution; the state has this type, in this order.
fn problem(n: u64, h: u64, hv: u64, elem: Elem, k_first: bool) -> Problem {
    let d = (2 * h + hv) * 128;
    let inner = if k_first { [1, 128] } else { [128, 1] };
    let strides = [hv * 16384, 16384, inner[0], inner[1]];
    let state = TensorArg::strided(1 << 20, u64::MAX, elem, &[n + 2, hv, 128, 128], &strides).expect("a tensor");
    Problem {
        tokens: Tokens::Convolved(Convolution {
            x: tensor(Elem::BF16, &[n, d]),
            weight: tensor(Elem::F32, &[d, 4]),
            bias: Some(tensor(Elem::F32, &[d])),
            state: tensor(Elem::F32, &[n + 1, d, 3]),
            slots: tensor(Elem::I32, &[n]),
            slots_out: None,
            workspace: tensor(Elem::U32, &[n, h]),
        }),
        g: tensor(Elem::BF16, &[n, hv, 128]),
        beta: tensor(Elem::BF16, &[n, hv]),
        a_log: None,
        dt_bias: Some(tensor(Elem::F32, &[hv, 128])),
        state,
        state_slots: tensor(Elem::I32, &[n]),
        state_slots_out: None,
        out: tensor(Elem::BF16, &[n, hv, 128]),
        scale: 0.088_388_35,
        gate: Gate::Bounded { lower_bound: -5.0 },
        null: -1,
    }
}

/// The variant of a plan.
fn variant_of(plan: &Plan) -> DecodeVariant {
    let found = DecodeVariant::ALL.iter().find(|v| std::ptr::eq(v.desc(), plan.desc()));
    *found.expect("a variant of decode")
}

const KINDS: [(Elem, bool); 4] = [(Elem::F32, false), (Elem::F32, true), (Elem::BF16, false), (Elem::BF16, true)];

/// Ways of launching.
const LAUNCHES: [(bool, bool); 3] = [(false, false), (true, false), (true, true)];

fn options(pdl: bool, stable_pools: bool) -> Options {
    Options { pdl, stable_pools, ..Options::default() }
}

fn layout(h: u64, hv: u64, state: Elem, k_first: bool) -> Layout {
    Layout { heads: h, value_heads: hv, channels_inner: false, k_first, state }
}

#[test]
fn every_size_has_a_plan_with_the_preferred_tile() {
    for ((elem, k_first), (pdl, stable_pools)) in KINDS.into_iter().flat_map(|kind| LAUNCHES.map(|l| (kind, l))) {
        for (n, h, hv) in [
            (1, 1, 1),
            (1, 1, 3),
            (3, 1, 3),
            (1, 8, 32),
            (1, 64, 64),
            (2, 32, 64),
            (8, 64, 64),
            (128, 64, 64),
            (65_535, 1, 1),
        ] {
            let options = options(pdl, stable_pools);
            let plan = plan(&problem(n, h, hv, elem, k_first), &HOPPER, &options);
            let plan = plan.unwrap_or_else(|error| panic!("N {n}, H {h}, HV {hv}, {elem}: {error}"));
            let variant = variant_of(&plan);
            let table = preference(&layout(h, hv, elem, k_first), &options);
            let row = table.rows_for(1).iter().find(|row| n * hv <= row.pairs).expect("a row");
            assert_eq!((variant.state(), variant.k_first()), (elem, k_first));
            assert!(is_named(plan.desc().entry, row.variant), "{}, not {}", plan.desc().entry, row.variant);
            let grid = [(hv * 128 / u64::from(variant.bv())) as u32, n as u32, 1];
            assert_eq!(plan.prepared().grid, grid, "{}", variant.desc().entry);
        }
    }
}

/// Bounds grow to no bound, and every name is a variant for the state.
#[test]
fn the_tables_are_sorted_and_cover_everything() {
    for ((elem, k_first), (pdl, stable_pools)) in KINDS.into_iter().flat_map(|kind| LAUNCHES.map(|l| (kind, l))) {
        let layout = layout(1, 1, elem, k_first);
        let table = preference(&layout, &options(pdl, stable_pools));
        assert!(table.multiprocessors > 0);
        assert_eq!(table.rows_for(1), table.rows);
        assert!(table.rows.is_sorted_by(|a, b| a.pairs < b.pairs), "{table:?}");
        assert_eq!(table.rows.last().expect("a row").pairs, u64::MAX);
        for row in table.rows {
            let exists = DecodeVariant::ALL.iter().any(|v| fits(*v, &layout) && is_named(v.desc().entry, row.variant));
            assert!(exists, "no variant {} for {elem}, k_first {k_first}", row.variant);
        }
    }
}

/// A name stands for one variant of a state, so that the table decides alone.
#[test]
fn names_of_a_state_are_distinct() {
    for (elem, k_first) in KINDS {
        let layout = layout(1, 1, elem, k_first);
        let of_state: Vec<DecodeVariant> = DecodeVariant::ALL.into_iter().filter(|v| fits(*v, &layout)).collect();
        for variant in &of_state {
            let name = crate::operators::preference::variant_name(variant.desc().entry);
            assert_eq!(of_state.iter().filter(|v| is_named(v.desc().entry, &name)).count(), 1, "{name}");
        }
    }
}

/// Heads are many along x; requests are along y.
#[test]
fn requests_past_the_grid_are_refused_by_name() {
    let planned = |n, heads| plan(&problem(n, heads, heads, Elem::F32, false), &HOPPER, &Options::default());
    assert!(planned(1, 8192).unwrap().prepared().grid[0] >= 8192);
    let error = planned(65_536, 1).unwrap_err().to_string();
    assert!(error.contains("axis N of `beta`") && error.contains("65536; at most 65535 is possible"), "{error}");
}

#[test]
fn nothing_to_do_is_an_empty_plan() {
    let plan = plan(&problem(0, 1, 2, Elem::F32, false), &HOPPER, &Options::default()).unwrap();
    assert!(plan.prepared().is_empty());
}

/// Nobody steps along the axes of an empty pool.
#[test]
fn strides_of_empty_pools_are_anything() {
    let base = problem(2, 1, 2, Elem::F32, false);
    let Tokens::Convolved(convolution) = base.tokens else { panic!("a convolution") };
    let empty = |t: TensorArg, strides: &[u64]| {
        let mut shape = t.shape().to_vec();
        shape[0] = 0;
        TensorArg::strided(0, 0, t.elem, &shape, strides).expect("a tensor")
    };
    for stride in [0, 1, 3, 385, 16_383, 1 << 29] {
        for inner in [[1, stride], [3, 1]] {
            let state = empty(convolution.state, &[stride, inner[0], inner[1]]);
            let tokens = Tokens::Convolved(Convolution { state, ..convolution });
            let call = Problem { tokens, state: empty(base.state, &[stride, stride, 128, 1]), ..base };
            plan(&call, &HOPPER, &Options::default())
                .unwrap_or_else(|error| panic!("stride {stride}, {inner:?}: {error}"));
        }
    }
}

#[test]
fn a_forced_variant_runs_what_it_can() {
    for variant in DecodeVariant::ALL {
        for (elem, k_first) in KINDS {
            let options = Options { variant: Some(variant), ..Options::default() };
            let fits = (variant.state(), variant.k_first()) == (elem, k_first);
            match plan(&problem(2, 1, 2, elem, k_first), &HOPPER, &options) {
                Ok(plan) => assert!(fits && variant_of(&plan) == variant),
                Err(error) => assert!(!fits && error.to_string().contains("it is for a state of"), "{error}"),
            }
        }
    }
}

#[test]
fn other_devices_are_told_what_is_needed() {
    let small = problem(1, 1, 1, Elem::F32, false);
    let error = plan(&small, &Capability(8, 0, 108), &Options::default()).unwrap_err().to_string();
    assert_eq!(error, "decode: no variant runs on compute capability 8.0; sm_90 is needed");
    let options = Options { variant: Some(DecodeVariant::ALL[0]), ..Options::default() };
    let error = plan(&small, &Capability(8, 0, 108), &options).unwrap_err().to_string();
    assert!(error.contains("it is written for sm_90, the device has compute capability"), "{error}");
    assert!(plan(&small, &Capability(10, 0, 148), &Options::default()).is_ok());
}

#[test]
fn options_reach_the_launch() {
    let scalar = |plan: &Plan, name: &str| {
        let param = plan.desc().params.iter().find(|p| p.name == name).expect("the parameter exists");
        plan.prepared().params[param.offset as usize]
    };
    let with = |options: Options| plan(&problem(2, 1, 2, Elem::F32, false), &HOPPER, &options).unwrap();
    let waits = with(Options { pdl: true, ..Options::default() });
    assert!(waits.prepared().pdl && scalar(&waits, "early") == 0);
    let early = with(Options { pdl: true, stable_pools: true, ..Options::default() });
    assert!(early.prepared().pdl && scalar(&early, "early") == 1);
    // Without PDL there is no predecessor that still runs, and so nothing to be ahead of.
    let alone = with(Options { stable_pools: true, ..Options::default() });
    assert!(!alone.prepared().pdl && scalar(&alone, "early") == 0);
    for evict_first in [false, true] {
        let forced = with(Options { evict_first, ..Options::default() });
        assert_eq!(scalar(&forced, "evict_first"), u8::from(evict_first));
    }
}
