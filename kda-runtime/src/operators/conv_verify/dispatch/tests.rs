//! Plans over memory that does not exist: planning reads none.

use super::*;
use crate::operators::capability::{Capability, HOPPER};
use crate::operators::conv_verify::{Gate, SnapshotRule};
use crate::operators::preference::is_named;
use kda_core::{Elem, TensorArg};

/// A call with every tensor, dense, at addresses that nobody owns.
fn problem(n: u64, t: u64, h: u64, hv: u64) -> Problem {
    let tensor = |elem, shape: &[u64]| TensorArg::dense(1 << 20, u64::MAX >> 1, elem, shape).unwrap();
    let d = (2 * h + hv) * 128;
    Problem {
        x: tensor(Elem::BF16, &[n, t, d]),
        conv_weight: tensor(Elem::F32, &[d, 4]),
        conv_bias: Some(tensor(Elem::F32, &[d])),
        conv_state: tensor(Elem::F32, &[n + 1, d, 3]),
        conv_slots: tensor(Elem::I32, &[n]),
        state: tensor(Elem::F32, &[n + 2, hv, 128, 128]),
        state_slots: tensor(Elem::I32, &[n]),
        snapshot_rows: tensor(Elem::I32, &[n]),
        a: tensor(Elem::BF16, &[n, t, hv, 128]),
        b: tensor(Elem::BF16, &[n, t, hv]),
        a_log: None,
        dt_bias: tensor(Elem::F32, &[hv, 128]),
        states_out: Some(tensor(Elem::F32, &[n, t, hv, 128, 128])),
        windows_out: Some(tensor(Elem::F32, &[n, t, d, 3])),
        out: tensor(Elem::BF16, &[n, t, hv, 128]),
        workspace: tensor(Elem::U32, &[n, h]),
        scale: 0.088_388_35,
        gate: Gate::Bounded { lower_bound: -5.0 },
        null: -1,
        roll: true,
        snapshot_rule: SnapshotRule::ByIndex,
    }
}

/// Type and order of a convolution pool: `true` is `[3, D]`.
const POOLS: [(Elem, bool); 4] = [(Elem::F32, false), (Elem::BF16, true), (Elem::F32, true), (Elem::BF16, false)];

/// The call with another convolution pool, and windows like it.
fn with_pool(problem: &Problem, elem: Elem, inner: bool) -> Problem {
    let like = |t: &TensorArg| {
        let (mut strides, d) = (t.strides().to_vec(), t.shape()[t.shape().len() - 2]);
        if inner {
            let last = strides.len() - 2;
            strides[last..].copy_from_slice(&[1, d]);
        }
        TensorArg::strided(t.ptr, t.bytes, elem, t.shape(), &strides).unwrap()
    };
    let windows_out = problem.windows_out.as_ref().map(like);
    Problem { conv_state: like(&problem.conv_state), windows_out, ..*problem }
}

/// The variant of a plan.
fn variant_of(plan: &Plan) -> ConvVerifyVariant {
    let found = ConvVerifyVariant::ALL.iter().find(|v| std::ptr::eq(v.desc(), plan.desc()));
    *found.expect("a variant of conv_verify")
}

/// Ways of launching.
const LAUNCHES: [(bool, bool); 3] = [(false, false), (true, false), (true, true)];

#[test]
fn every_length_and_size_has_a_plan_of_the_preferred_variant() {
    for t in 1..=40 {
        for (n, h, hv) in [
            (1, 1, 1),
            (1, 1, 3),
            (2, 4, 4),
            (3, 1, 3),
            (1, 16, 16),
            (1, 8, 32),
            (3, 4, 12),
            (2, 32, 64),
            (3, 24, 48),
            (64, 96, 96),
            (4096, 32, 64),
        ] {
            for (pdl, stable_pools) in LAUNCHES {
                let options = Options { pdl, stable_pools, ..Options::default() };
                let plan = plan(&problem(n, t, h, hv), &HOPPER, &options);
                let plan = plan.unwrap_or_else(|error| panic!("T {t}, N {n}, H {h}, HV {hv}: {error}"));
                let row = preference(&options).rows_for(t).iter().find(|row| n * hv <= row.pairs).expect("a row");
                let what = format!("T {t}, N*HV {}: {}, not {}", n * hv, plan.desc().entry, row.variant);
                assert!(is_named(plan.desc().entry, row.variant), "{what}");
                let grid = [(hv * 128 / u64::from(variant_of(&plan).bv())) as u32, n as u32, 1];
                assert_eq!(plan.prepared().grid, grid, "{what}");
            }
        }
    }
}

/// Ranges of tokens follow each other from 1 on, bounds grow to no bound, and every name is a variant at every length.
#[test]
fn the_tables_are_sorted_and_cover_everything() {
    for (pdl, stable_pools) in LAUNCHES {
        let table = preference(&Options { pdl, stable_pools, ..Options::default() });
        assert!(table.multiprocessors > 0);
        let (mut next, mut at) = (1, 0);
        while at < table.rows.len() {
            let (first, last) = table.rows[at].tokens;
            assert_eq!(first, next, "tokens without a row, or with two");
            let rows = table.rows_for(first);
            assert_eq!(rows, table.rows_for(last));
            assert!(rows.is_sorted_by(|a, b| a.pairs < b.pairs), "{rows:?}");
            assert_eq!(rows.last().expect("a row").pairs, u64::MAX);
            for row in rows {
                for t in first..=last.min(40) {
                    let named = |v: &&ConvVerifyVariant| is_named(v.desc().entry, row.variant);
                    let fits = |v: &ConvVerifyVariant| v.long() || u64::from(v.t()) == t;
                    let exists = ConvVerifyVariant::ALL.iter().filter(named).any(fits);
                    assert!(exists, "no variant {} for T = {t}", row.variant);
                }
            }
            (next, at) = (last.saturating_add(1), at + rows.len());
        }
        assert_eq!(next, u64::MAX, "the last range has no end");
    }
}

/// A device with half the multiprocessors is full with half the pairs.
#[test]
fn smaller_devices_prefer_as_if_there_were_more_pairs() {
    let half = Capability(9, 0, PLAIN.multiprocessors / 2);
    for n in [1, 4, 5, 8, 16, 60, 70, 1000] {
        let row = PLAIN.rows_for(4).iter().find(|row| 2 * n <= row.pairs).expect("a row");
        let plan = plan(&problem(n, 4, 1, 1), &half, &Options::default()).unwrap();
        assert!(is_named(plan.desc().entry, row.variant), "{n}: {}, not {}", plan.desc().entry, row.variant);
    }
}

#[test]
fn the_choice_depends_on_sizes_and_pool_alone() {
    let base = problem(4, 4, 2, 4);
    let entry = |p: &Problem| plan(p, &HOPPER, &Options::default()).unwrap().desc().entry;
    let mut narrow_taps = base;
    narrow_taps.conv_weight.elem = Elem::BF16;
    let changed = [
        Problem { roll: false, ..base },
        Problem { gate: Gate::Softplus, ..base },
        Problem { states_out: None, windows_out: None, conv_bias: None, ..base },
        narrow_taps,
        Problem { snapshot_rule: SnapshotRule::ByBatch, null: 0, ..base },
    ];
    for problem in changed {
        assert_eq!(entry(&problem), entry(&base));
    }
    // Heads and requests count the same.
    assert_eq!(entry(&problem(1, 4, 16, 16)), entry(&problem(16, 4, 1, 1)));
}

/// Every pool has kernels for every number of tokens; snapshots are in its type and order.
#[test]
fn every_pool_has_a_variant_of_its_own() {
    for (t, n) in (1..=20).flat_map(|t| [(t, 1), (t, 3), (t, 6), (t, 20), (t, 300)]) {
        for (elem, inner) in POOLS {
            let plan = plan(&with_pool(&problem(n, t, 2, 4), elem, inner), &HOPPER, &Options::default());
            let variant = variant_of(&plan.unwrap_or_else(|error| panic!("T {t}, {elem}, inner {inner}: {error}")));
            assert_eq!((variant.pool(), variant.inner()), (elem, inner), "T {t}, N {n}");
        }
    }
}

#[test]
fn nothing_to_do_is_an_empty_plan() {
    let plan = plan(&problem(0, 4, 1, 2), &HOPPER, &Options::default()).unwrap();
    assert!(plan.prepared().is_empty());
    assert_eq!(plan.prepared().grid[1], 0);
}

/// Nobody steps along the axes of an empty tensor.
#[test]
fn strides_of_empty_tensors_are_anything() {
    let base = problem(2, 4, 1, 2);
    let empty = |t: TensorArg, axis: usize, stride: u64| {
        let (mut shape, mut strides) = (t.shape().to_vec(), t.strides().to_vec());
        shape[0] = 0;
        strides[axis] = stride;
        TensorArg::strided(t.ptr, t.bytes, t.elem, &shape, &strides).unwrap()
    };
    for axis in 0..2 {
        for stride in [0, 1, 3, 16_383, u64::MAX] {
            let states_out = base.states_out.map(|t| empty(t, axis, stride));
            let windows_out = base.windows_out.map(|t| empty(t, axis, stride));
            let state = empty(base.state, 0, stride);
            plan(&Problem { states_out, windows_out, state, ..base }, &HOPPER, &Options::default())
                .unwrap_or_else(|error| panic!("stride {stride} along axis {axis}: {error}"));
        }
    }
}

#[test]
fn a_forced_variant_runs_what_it_can() {
    for variant in ConvVerifyVariant::ALL {
        for (t, (elem, inner)) in [1, 4, 8, 9, 40].into_iter().flat_map(|t| POOLS.map(|pool| (t, pool))) {
            let options = Options { variant: Some(variant), ..Options::default() };
            let plan = plan(&with_pool(&problem(2, t, 1, 2), elem, inner), &HOPPER, &options);
            let (length, pool) = (variant.long() || u64::from(variant.t()) == t, (variant.pool(), variant.inner()));
            match plan {
                Ok(plan) => {
                    assert_eq!(variant_of(&plan), variant);
                    assert!(length && pool == (elem, inner), "{}", variant.desc().entry);
                }
                Err(error) if !length => {
                    let words = format!("it is for T = {}, the call has T = {t}", variant.t());
                    assert!(error.to_string().contains(&words), "{error}");
                }
                Err(error) => {
                    assert_ne!(pool, (elem, inner), "{error}");
                    let order = |inner| if inner { "[3, D]" } else { "[D, 3]" };
                    let call = format!("the call's is {elem} {}", order(inner));
                    let words = format!("its convolution pool is {} {}, {call}", pool.0, order(pool.1));
                    assert!(error.to_string().contains(&words), "{error}");
                }
            }
        }
    }
}

/// The grid has a row of CTAs a request, and kernels count in 32 bits.
#[test]
fn sizes_past_the_grid_are_refused_by_name() {
    let words = |n, t, h, hv| plan(&problem(n, t, h, hv), &HOPPER, &Options::default()).unwrap_err().to_string();
    assert!(plan(&problem(65_535, 1, 1, 1), &HOPPER, &Options::default()).is_ok());
    let given = words(65_536, 1, 1, 1);
    assert!(given.contains("axis N of `b`") && given.contains("65536; at most 65535 is possible"), "{given}");
    assert!(plan(&problem(1, 1 << 24, 1, 1), &HOPPER, &Options::default()).is_ok());
    let given = words(1, (1 << 24) + 1, 1, 1);
    assert!(given.contains("axis T of `b`") && given.contains("16777217; at most 16777216 is possible"), "{given}");
    let given = words(1, 1, 1, 1 << 25);
    assert!(given.contains("axis D of `x`") && given.contains("at most 4294967295 is possible"), "{given}");
}

#[test]
fn other_devices_are_told_what_is_needed() {
    for capability in [Capability(8, 0, 108), Capability(7, 5, 40)] {
        let (major, minor) = capability.compute_capability();
        let error = plan(&problem(1, 4, 1, 1), &capability, &Options::default()).unwrap_err().to_string();
        let words = format!("conv_verify: no variant runs on compute capability {major}.{minor}; sm_90 is needed");
        assert_eq!(error, words);
        let options = Options { variant: Some(ConvVerifyVariant::ALL[0]), ..Options::default() };
        let error = plan(&problem(1, 1, 1, 1), &capability, &options).unwrap_err().to_string();
        assert!(error.contains("it is written for sm_90, the device has compute capability"), "{error}");
    }
    assert!(plan(&problem(1, 4, 1, 1), &Capability(10, 0, 148), &Options::default()).is_ok());
}

/// The scalar parameter of that name.
fn scalar(plan: &Plan, name: &str) -> u8 {
    let param = plan.desc().params.iter().find(|p| p.name == name).expect("the parameter exists");
    plan.prepared().params[param.offset as usize]
}

#[test]
fn options_reach_the_launch() {
    let small = problem(2, 4, 1, 2);
    let with = |problem: &Problem, options: Options| plan(problem, &HOPPER, &options).unwrap();
    let plain = with(&small, Options::default());
    assert!(!plain.prepared().pdl && scalar(&plain, "early") == 0);
    let waits = with(&small, Options { pdl: true, ..Options::default() });
    assert!(waits.prepared().pdl && scalar(&waits, "early") == 0);
    let early = with(&small, Options { pdl: true, stable_pools: true, ..Options::default() });
    assert!(early.prepared().pdl && scalar(&early, "early") == 1);
    // Where waiting first is faster it is done, whatever is allowed.
    let stable = Options { pdl: true, stable_pools: true, ..Options::default() };
    for (pairs, expected) in [(128, 1), (179, 1), (180, 0), (256, 0), (720, 0), (721, 1), (8192, 1)] {
        assert_eq!(scalar(&with(&problem(pairs, 4, 1, 1), stable), "early"), expected, "{pairs} pairs");
    }
    let half = plan(&problem(100, 4, 1, 1), &Capability(9, 0, PLAIN.multiprocessors / 2), &stable).unwrap();
    assert_eq!(scalar(&half, "early"), 0, "half the device has twice the pairs for each multiprocessor");
    // Without PDL there is no predecessor that still runs, and so nothing to be ahead of.
    let alone = with(&small, Options { stable_pools: true, ..Options::default() });
    assert_eq!(scalar(&alone, "early"), 0);
    // Small snapshots leave L2 first; large ones do not, unless the caller says so.
    let large = problem(128, 8, 64, 64);
    assert_eq!(scalar(&plain, "evict_first"), 1);
    assert_eq!(scalar(&with(&large, Options::default()), "evict_first"), 0);
    for (problem, evict_first) in [(&small, false), (&large, true)] {
        let forced = with(problem, Options { evict_first: Some(evict_first), ..Options::default() });
        assert_eq!(scalar(&forced, "evict_first"), u8::from(evict_first));
    }
}
