//! Plans over memory that does not exist: planning reads none.

use super::super::problem::Convolution;
use super::*;
use crate::operators::capability::{Capability, HOPPER};
use crate::operators::limits::align;
use kda_kernels::{tc_verify, tc_verify_portable};
use std::cell::Cell;

const BOUNDED: Gate = Gate::Bounded { lower_bound: -5.0 };
const AMPERE: Capability = Capability(8, 0, 108);
const BLACKWELL: Capability = Capability(10, 0, 148);

thread_local! {
    static NEXT: Cell<u64> = const { Cell::new(1 << 30) };
}

/// A tensor with memory of its own that nobody owns.
fn strided(elem: Elem, shape: &[u64], strides: &[u64]) -> TensorArg {
    let ptr = NEXT.get();
    let mut tensor = TensorArg::strided(ptr, 0, elem, shape, strides).expect("a tensor");
    tensor.bytes = u64::try_from(tensor.extent_bytes()).expect("a size");
    NEXT.set((ptr + tensor.bytes + 1).next_multiple_of(256));
    tensor
}

fn dense(elem: Elem, shape: &[u64]) -> TensorArg {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis].max(1);
    }
    strided(elem, shape, &strides)
}

/// A convolution with taps of this type.
fn convolution(taps: Elem, channel_major: bool, requests: u64, heads: u64, window: u64) -> Convolution {
    let (rows, d) = (window + 2, 3 * heads * 128);
    let inner = if channel_major { [rows, 1] } else { [1, d] };
    Convolution {
        weight: dense(taps, &[d, 4]),
        state: strided(Elem::BF16, &[requests + 2, d, rows], &[rows * d, inner[0], inner[1]]),
        accepted: dense(Elem::I32, &[requests]),
    }
}

/// A call with a convolution of bf16 taps.
fn problem(requests: u64, heads: u64, window: u64) -> Problem {
    let total = requests * window;
    Problem {
        qkv: dense(Elem::BF16, &[total, 3 * heads * 128]),
        raw_g: dense(Elem::BF16, &[total, heads, 128]),
        raw_beta: dense(Elem::BF16, &[total, heads]),
        a_log: Some(dense(Elem::F32, &[heads])),
        dt_bias: dense(Elem::F32, &[heads, 128]),
        state: dense(Elem::BF16, &[requests + 2, heads, 128, 128]),
        convolution: Some(convolution(Elem::BF16, false, requests, heads, window)),
        query_start: dense(Elem::I32, &[requests + 1]),
        slots: dense(Elem::I32, &[requests]),
        corr: dense(Elem::F32, &[requests, heads, window, 128]),
        kg: dense(Elem::BF16, &[requests, heads, window, 256]),
        out: dense(Elem::BF16, &[total, heads, 128]),
        counters: Some(dense(Elem::U32, &[heads])),
        scale: 0.088_388_35,
        gate: BOUNDED,
        null: 0,
    }
}

fn planned(problem: &Problem, device: &Capability, options: &Options) -> Variant {
    let plan = plan(problem, device, options).unwrap_or_else(|error| panic!("{error}"));
    Variant::of(plan.desc()).expect("a variant of tc_verify")
}

/// What is said of a call that is refused.
fn refused(problem: &Problem, device: &Capability, options: &Options) -> String {
    match plan(problem, device, options) {
        Ok(plan) => panic!("{} takes it", plan.desc().entry),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_size_has_a_plan_whose_ctas_share_heads_evenly() {
    for heads in [1, 3, 12, 16, 24, 48, 96, 131] {
        for requests in [1, 2, 8, 43, 44, 45, 64, 128, 512, 3000] {
            for (counters, window) in [(false, 8), (true, 8), (true, 1)] {
                let mut problem = problem(requests, heads, window);
                problem.counters = problem.counters.filter(|_| counters);
                let plan = plan(&problem, &HOPPER, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
                let (variant, ctas) = (Variant::of(plan.desc()).unwrap(), u64::from(plan.prepared().grid[0]));
                let what = format!("H {heads}, B {requests}, Q {window}, {}: {ctas}", plan.desc().entry);
                assert!(variant.hopper() && ctas.is_multiple_of(heads) && ctas > 0, "{what}");
                assert!(ctas <= heads * requests && ctas <= heads.max(132 * 3 / heads * heads), "{what}");
                assert!(variant.boxes() && variant.heads() == 0, "{what}");
            }
        }
    }
}

#[test]
fn without_tickets_rounds_are_full() {
    let grid = |requests| {
        let mut problem = problem(requests, 12, 8);
        problem.counters = None;
        plan(&problem, &HOPPER, &Options::default()).unwrap().prepared().grid[0]
    };
    // 33 CTAs a head are there at once.
    assert_eq!([1, 33, 34, 50, 66, 67, 99].map(grid), [12, 396, 204, 300, 396, 276, 396]);
}

#[test]
fn kinds_of_calls_find_their_kernel() {
    type Change = fn(&mut Problem);
    let cases: [(&str, Change, [Option<&str>; 3]); 9] = [
        (
            "plain",
            |_| {},
            [
                Some("tc_verify__heads0_conv_nochannel_major_bf16_boxes_noearly_nosoftplus"),
                Some("tokens8"),
                Some("tokens8"),
            ],
        ),
        (
            "taps of f32",
            |p| p.convolution = Some(convolution(Elem::F32, false, 5, 2, 8)),
            [
                Some("heads0_conv_nochannel_major_f32_boxes"),
                Some("tokens8_conv_nochannel_major_f32"),
                Some("tokens8_conv_nochannel_major_f32"),
            ],
        ),
        (
            "channels outside",
            |p| p.convolution = Some(convolution(Elem::BF16, true, 5, 2, 8)),
            [
                Some("heads0_conv_channel_major_bf16"),
                Some("tokens8_conv_channel_major"),
                Some("tokens8_conv_channel_major"),
            ],
        ),
        (
            "no convolution",
            |p| p.convolution = None,
            [Some("heads0_noconv"), Some("tokens8_noconv"), Some("tokens8_noconv")],
        ),
        (
            "softplus",
            |p| p.gate = Gate::Softplus,
            [Some("bf16_boxes_noearly_softplus"), Some("_softplus_bf16"), Some("_softplus_bf16")],
        ),
        (
            "a state of f32",
            |p| p.state = dense(Elem::F32, &[7, 2, 128, 128]),
            [Some("portable__tokens8_conv_nochannel_major_bf16_nosoftplus_f32"); 3],
        ),
        (
            "windows of 16",
            |p| *p = Problem { gate: BOUNDED, ..problem(5, 2, 16) },
            [Some("portable__tokens16_conv_nochannel_major_bf16_nosoftplus_bf16"); 3],
        ),
        (
            "shared heads of q and k",
            |p| (p.convolution, p.qkv) = (None, dense(Elem::BF16, &[40, (2 + 2) * 128])),
            [Some("portable__tokens8_noconv"); 3],
        ),
        (
            "slots far apart",
            |p| p.state = strided(Elem::BF16, &[7, 2, 128, 128], &[1 << 40, 128 * 128, 128, 1]),
            [Some("portable__tokens8_conv"); 3],
        ),
    ];
    for (what, change, wanted) in cases {
        let mut problem = problem(5, 2, 8);
        change(&mut problem);
        for (device, wanted) in [HOPPER, AMPERE, BLACKWELL].iter().zip(wanted) {
            let entry = planned(&problem, device, &Options::default()).desc().entry;
            assert!(wanted.is_some_and(|wanted| entry.contains(wanted)), "{what}: {entry}");
        }
    }
}

#[test]
fn the_state_is_read_early_where_nothing_writes_it() {
    let problem = problem(5, 12, 8);
    for (pdl, stable_pools, early) in
        [(false, false, false), (true, false, false), (false, true, false), (true, true, true)]
    {
        let options = Options { pdl, stable_pools, ..Options::default() };
        assert_eq!(planned(&problem, &HOPPER, &options).early(), early, "{options:?}");
        let forced =
            Variant::all().find(|v| v.early() && v.heads() == 12 && v.taps() == Some(Elem::BF16) && !v.softplus());
        let forced = Options { variant: forced, ..options };
        match early {
            true => assert_eq!(Some(planned(&problem, &HOPPER, &forced)), forced.variant),
            false => assert!(refused(&problem, &HOPPER, &forced).contains("which may write it"), "{options:?}"),
        }
    }
}

fn history(problem: &mut Problem) -> &mut Convolution {
    problem.convolution.as_mut().expect("a convolution")
}

/// Boxes take rows at multiples of 16 bytes, whose tensors begin at one; threads take others.
#[test]
fn raw_inputs_that_boxes_cannot_take_are_loaded_by_threads() {
    type Change = fn(&mut Problem);
    let cases: [(&str, Change); 7] = [
        ("no rows", |p| {
            p.qkv = dense(Elem::BF16, &[0, 768]);
            p.raw_g = dense(Elem::BF16, &[0, 2, 128]);
            p.raw_beta = dense(Elem::BF16, &[0, 2]);
            p.out = dense(Elem::BF16, &[0, 2, 128]);
        }),
        ("rows of q, k and v", |p| p.qkv = strided(Elem::BF16, &[40, 768], &[770, 1])),
        ("their first byte", |p| p.qkv.ptr += 4),
        ("rows of gates", |p| p.raw_g = strided(Elem::BF16, &[40, 2, 128], &[258, 128, 1])),
        ("their first byte", |p| p.raw_g.ptr += 4),
        ("lines of the history", |p| history(p).state = strided(Elem::BF16, &[7, 768, 10], &[7682, 1, 768])),
        ("its first byte", |p| history(p).state.ptr += 4),
    ];
    for (what, change) in cases {
        for (pdl, stable_pools) in [(false, false), (true, true)] {
            let options = Options { pdl, stable_pools, ..Options::default() };
            let mut problem = problem(5, 2, 8);
            let boxes = planned(&problem, &HOPPER, &options);
            assert!(boxes.boxes());
            change(&mut problem);
            let variant = planned(&problem, &HOPPER, &options);
            assert!(variant.hopper() && !variant.boxes(), "{what}: {}", variant.desc().entry);
            let forced = Options { variant: Some(boxes), ..options };
            assert!(refused(&problem, &HOPPER, &forced).contains("multiples of 16 bytes"), "{what}");
        }
    }
}

/// With a predecessor that leaves the pools alone, what is known of the heads counts; not where boxes fill the device as often.
#[test]
fn loads_that_overlap_with_a_predecessor_are_by_threads_of_known_heads() {
    let options = Options { pdl: true, stable_pools: true, ..Options::default() };
    // 44 CTAs a head are there at once, 33 with boxes.
    for (requests, known) in [
        (1, true),
        (44, true),
        (45, false),
        (66, false),
        (67, true),
        (88, true),
        (89, false),
        (99, false),
        (100, true),
        (512, true),
    ] {
        let variant = planned(&problem(requests, 12, 8), &HOPPER, &options);
        assert_eq!((variant.heads() == 12, variant.boxes()), (known, !known), "B {requests}");
        assert!(variant.early());
    }
    assert!(planned(&problem(1, 16, 8), &HOPPER, &options).boxes());
    // Rows of one token lie nowhere in particular.
    assert!(planned(&problem(1, 12, 1), &HOPPER, &options).boxes());
}

#[test]
fn forced_variants_must_fit() {
    let of = |what: &str| {
        let variant = Variant::all().find(|v| v.desc().entry.contains(what)).expect("a variant");
        Options { variant: Some(variant), ..Options::default() }
    };
    let plain = problem(5, 2, 8);
    for (what, words) in [
        (
            "heads0_noconv",
            "it is for no convolution, the call has a convolution with taps of bf16 and a history in the order [Q + 2, D]",
        ),
        ("heads0_conv_channel_major_bf16", "a history in the order [D, Q + 2], the call has"),
        (
            "heads0_conv_nochannel_major_bf16_boxes_noearly_softplus",
            "it is for a softplus gate, the call has a bounded gate",
        ),
        ("tokens8_conv_nochannel_major_bf16_nosoftplus_f32", "it is for a state of f32, the call has one of bf16"),
    ] {
        let said = refused(&plain, &HOPPER, &of(what));
        assert!(said.contains(words), "{said}");
    }
    let overlapped = Options { pdl: true, stable_pools: true, ..of("heads12_conv_nochannel_major_bf16") };
    let said = refused(&plain, &HOPPER, &overlapped);
    assert!(said.contains("it is for 12 heads and two rows or more, without gaps; the call has 2 heads"), "{said}");
    let said = refused(&plain, &AMPERE, &of("heads0_conv_nochannel_major_bf16_boxes_noearly_nosoftplus"));
    assert!(said.contains("it is written for sm_90a, the device has compute capability 8.0"), "{said}");
    let said = refused(&problem(5, 2, 12), &HOPPER, &of("heads0_conv_nochannel_major_bf16_boxes_noearly_nosoftplus"));
    assert!(said.contains("it is for up to 8 tokens, the call has Q = 12"), "{said}");
    let said = refused(&plain, &Capability(7, 5, 40), &Options::default());
    assert!(said.contains("no variant runs on compute capability 7.5; sm_80 is needed"), "{said}");
}

#[test]
fn gates_that_let_keys_overflow_are_refused() {
    for (gate, window, words) in [
        (Gate::Bounded { lower_bound: -5.0 }, 16, None),
        (Gate::Bounded { lower_bound: -10.0 }, 8, None),
        (Gate::Bounded { lower_bound: -10.1 }, 8, Some("a bound from -80 / Q to 0 is needed")),
        (Gate::Bounded { lower_bound: 0.5 }, 1, Some("a gate bounded by 0.5 over Q = 1 tokens")),
        (Gate::Bounded { lower_bound: f32::NAN }, 1, Some("a bound from -80 / Q to 0 is needed")),
        (Gate::Softplus, 8, None),
        (Gate::Softplus, 9, Some("Q up to 8 is possible with it, to 16 with a bounded gate")),
        (BOUNDED, 17, Some("axis Q of `corr`")),
    ] {
        let problem = Problem { gate, ..problem(3, 2, window) };
        match words {
            None => drop(planned(&problem, &HOPPER, &Options::default())),
            Some(words) => {
                let said = refused(&problem, &HOPPER, &Options::default());
                assert!(said.contains(words), "{said}");
            }
        }
    }
}

#[test]
fn a_call_without_requests_has_no_launch() {
    let plan = plan(&problem(0, 3, 8), &HOPPER, &Options::default()).unwrap();
    assert!(plan.launches().iter().all(kda_core::PreparedLaunch::is_empty));
}

/// The operator asks for what the strictest variant asks for, so that a call does not depend on the choice.
#[test]
fn alignments_are_those_of_the_kernels() {
    for (names, align) in [
        (&["raw_beta"][..], align::BF16),
        (&["qkv", "raw_g", "a_log", "slot_of", "query_start", "accepted", "kg", "out", "conv"], align::SCALARS),
        (&["dt_bias", "corr"], align::PAIRS),
        (&["taps"], align::WIDE),
    ] {
        for name in names {
            for descs in [tc_verify::DESCS, tc_verify_portable::DESCS] {
                assert!(align::strictest(descs, name) <= align, "{name}");
            }
            let both = [tc_verify::DESCS, tc_verify_portable::DESCS].map(|descs| align::strictest(descs, name));
            assert!(both.contains(&align), "{name}: {both:?}");
        }
    }
}

/// A pool without slots has no tensor map; its requests get zeros.
#[test]
fn pools_without_slots_are_for_the_portable_kernel() {
    let mut empty = problem(3, 2, 8);
    empty.state = dense(Elem::BF16, &[0, 2, 128, 128]);
    empty.convolution = Some(Convolution {
        state: strided(Elem::BF16, &[0, 768, 10], &[7680, 1, 768]),
        ..convolution(Elem::BF16, false, 3, 2, 8)
    });
    assert!(!planned(&empty, &HOPPER, &Options::default()).hopper());
    let forced = Variant::all().find(|v| v.hopper() && v.taps().is_none() && !v.softplus() && !v.early());
    let said = refused(&empty, &HOPPER, &Options { variant: forced, ..Options::default() });
    assert!(said.contains("a pool of states with a slot"), "{said}");
}
