//! Plans over memory that does not exist: planning reads none.

use super::super::Gate;
use super::super::problem::Boundary;
use super::*;
use crate::operators::capability::{Capability, HOPPER};
use crate::operators::preference::{is_named, variant_name};
use kda_core::TensorArg;

fn strided(elem: Elem, shape: &[u64], strides: &[u64]) -> TensorArg {
    TensorArg::strided(1 << 20, u64::MAX, elem, shape, strides).expect("a tensor")
}

/// A dense tensor of its own, far from all others.
fn tensor(at: u64, elem: Elem, shape: &[u64]) -> TensorArg {
    TensorArg::dense(at << 40, u64::MAX, elem, shape).expect("a tensor")
}

/// A call with everything that is optional.
fn problem(n: u64, heads: u64, window: u64, state: Elem, layers: u64) -> Problem {
    let indices = |at| tensor(at, Elem::I32, &[n]);
    Problem {
        state: tensor(1, state, &[3 * n + 2, heads, 128, 128]),
        corr: tensor(2, Elem::F32, &[n + 1, heads, window, 128]),
        kg: tensor(3, Elem::BF16, &[n + 1, heads, window, 256]),
        a_log: Some(tensor(4, Elem::F32, &[heads])),
        dt_bias: tensor(5, Elem::F32, &[heads, 128]),
        conv: Some(tensor(6, Elem::BF16, &[3 * n + 2, 3 * heads * 128, window + 2])),
        slots: indices(7),
        destinations: Some(indices(8)),
        counts: indices(9),
        boundary: Some(Boundary { tokens: indices(10), slots: indices(11) }),
        layers: (layers > 0).then(|| tensor(12, Elem::U64, &[layers, 6])),
        gate: Gate::Bounded { lower_bound: -5.0 },
        null: -1,
    }
}

fn variant_of(plan: &Plan) -> TcCommitVariant {
    let found = TcCommitVariant::ALL.iter().find(|v| std::ptr::eq(v.desc(), plan.desc()));
    *found.expect("a variant of tc_commit")
}

const STATES: [Elem; 2] = [Elem::BF16, Elem::F32];

#[test]
fn every_size_has_a_plan_with_the_preferred_slice() {
    for state in STATES {
        for (device, arch) in
            [(&HOPPER, "sm_90"), (&Capability(8, 0, 132), "sm_80"), (&Capability(10, 0, 132), "sm_90")]
        {
            for (n, heads, layers) in [(1, 1, 0), (1, 96, 0), (32, 12, 0), (128, 12, 1), (3, 5, 69), (65_535, 1, 0)] {
                for (window, marked) in (1..=16).flat_map(|window| [(window, true), (window, false)]) {
                    let mut call = problem(n, heads, window, state, layers);
                    call.boundary = call.boundary.filter(|_| marked);
                    let plan = plan(&call, device, &Options { pdl: true, ..Options::default() })
                        .unwrap_or_else(|error| panic!("N {n}, H {heads}, window {window}, {state}: {error}"));
                    let variant = variant_of(&plan);
                    let states = n * heads * layers.max(1);
                    assert_eq!(call.states(), states);
                    let row =
                        preference(state, true).rows_for(1).iter().find(|row| states <= row.pairs).expect("a row");
                    assert!(is_named(plan.desc().entry, row.variant), "{}, not {}", plan.desc().entry, row.variant);
                    assert_eq!((variant.state(), variant.most()), (state, if window <= 8 { 8 } else { 16 }));
                    assert_eq!(variant.boundary(), marked, "{}", plan.desc().entry);
                    assert_eq!(plan.desc().arch.to_string(), arch);
                    assert_eq!(plan.prepared().pdl, arch == "sm_90");
                    let grid = [heads * 128 / u64::from(variant.rows()), n, layers.max(1)].map(|size| size as u32);
                    assert_eq!(plan.prepared().grid, grid);
                }
            }
        }
    }
}

/// Bounds grow to no bound; every name is a variant for the state, of one slice.
#[test]
fn the_tables_are_sorted_and_cover_everything() {
    for (state, pdl) in STATES.into_iter().flat_map(|state| [(state, false), (state, true)]) {
        let table = preference(state, pdl);
        assert_eq!(table.rows_for(1), table.rows);
        assert!(table.rows.is_sorted_by(|a, b| a.pairs < b.pairs), "{table:?}");
        assert_eq!(table.rows.last().expect("a row").pairs, u64::MAX);
        let of_state = || TcCommitVariant::ALL.iter().filter(|v| v.state() == state);
        for row in table.rows {
            assert!(of_state().any(|v| is_named(v.desc().entry, row.variant)), "no variant {}", row.variant);
        }
        for variant in of_state() {
            assert_eq!(variant_name(variant.desc().entry), format!("rows{}", variant.rows()));
        }
    }
}

/// Any slot stride of whole 16 bytes, windows in both orders, absent things, strides of empty pools.
#[test]
fn pitches_orders_and_absences() {
    let base = problem(2, 3, 5, Elem::BF16, 0);
    let fine = |call: &Problem| {
        let able = |v: &&TcCommitVariant| v.state() == call.state.elem && (v.boundary() || call.boundary.is_none());
        for variant in TcCommitVariant::ALL.iter().filter(able) {
            let options = Options { variant: Some(*variant), pdl: false };
            plan(call, &HOPPER, &options).unwrap_or_else(|error| panic!("{}: {error}", variant.desc().entry));
        }
    };
    for pad in [0, 8, 24, 1 << 33] {
        let state = strided(Elem::BF16, &[8, 3, 128, 128], &[3 * 16384 + pad, 16384, 128, 1]);
        let row = 1152 + pad % 64;
        let token = [7 * row + pad, 1, row];
        for strides in [[1152 * 7 + pad + pad % 3, 7, 1], token] {
            let mut conv = strided(Elem::BF16, &[8, 1152, 7], &strides);
            conv.ptr = 1 << 62;
            fine(&Problem { state, conv: Some(conv), ..base });
            fine(&Problem { state, conv: Some(conv), boundary: None, ..base });
        }
    }
    fine(&Problem { a_log: None, conv: None, destinations: None, boundary: None, ..base });
    for boundary in [base.boundary, None] {
        fine(&Problem { a_log: None, boundary, ..base });
        fine(&Problem { conv: None, boundary, ..base });
        fine(&Problem { destinations: None, boundary, ..base });
    }
    let empty = |t: TensorArg, strides: &[u64]| {
        let mut shape = t.shape().to_vec();
        shape[0] = 0;
        TensorArg::strided(0, 0, t.elem, &shape, strides).expect("a tensor")
    };
    for stride in [0, 1, 3, 16_383] {
        let conv = base.conv.map(|conv| empty(conv, &[stride, 1, stride]));
        for boundary in [base.boundary, None] {
            fine(&Problem { state: empty(base.state, &[stride, 16384, 128, 1]), conv, boundary, ..base });
        }
    }
    let none = plan(&problem(0, 1, 2, Elem::F32, 0), &HOPPER, &Options::default()).expect("an empty plan");
    assert!(none.prepared().is_empty());
}

#[test]
fn a_forced_variant_runs_what_it_can() {
    for variant in TcCommitVariant::ALL {
        let options = Options { variant: Some(variant), ..Options::default() };
        for (state, window) in [(Elem::F32, 8), (Elem::F32, 9), (Elem::BF16, 8), (Elem::BF16, 16)] {
            for marked in [false, true] {
                let mut call = problem(2, 3, window, state, 0);
                call.boundary = call.boundary.filter(|_| marked);
                // The first that holds is the one that is named.
                let why = if variant.state() != state {
                    Some("it is for a state of")
                } else if u64::from(variant.most()) < window {
                    Some("it is for windows up to 8")
                } else if marked && !variant.boundary() {
                    Some("it applies no boundary, the call has one")
                } else {
                    None
                };
                match (plan(&call, &HOPPER, &options), why) {
                    (Ok(plan), None) => assert!(variant_of(&plan) == variant),
                    (Err(error), Some(why)) => assert!(error.to_string().contains(why), "{error}; not: {why}"),
                    (result, why) => panic!("{}: {result:?}, not {why:?}", variant.desc().entry),
                }
            }
        }
    }
}

#[test]
fn other_devices_are_told_what_is_needed() {
    let small = problem(1, 1, 1, Elem::F32, 0);
    let error = plan(&small, &Capability(7, 5, 40), &Options::default()).unwrap_err().to_string();
    assert_eq!(error, "tc_commit: no variant runs on compute capability 7.5; sm_80 is needed");
    let newer = TcCommitVariant::ALL.into_iter().find(|v| v.desc().arch.major == 9);
    let error = plan(&small, &Capability(8, 0, 108), &Options { variant: newer, pdl: false }).unwrap_err().to_string();
    assert!(error.contains("it is written for sm_90, the device has compute capability 8.0"), "{error}");
}
