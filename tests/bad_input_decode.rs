//! Calls of `decode` that must be refused, and indices that must be left alone: nothing is written, nothing is launched, and the
//! words say what was given and what is needed. On the simulator, which reports any access outside a buffer.

#[path = "common/tensors.rs"]
mod tensors;

use kda::checks::Device;
use kda::checks::decode::call::Call;
use kda::checks::decode::case::{Case, Plan};
use kda::checks::decode::judge::{Tally, fits, one_case};
use kda::core::exec::Stream;
use kda::core::{Elem, TensorArg};
use kda::reference::decode::sample::Switches;
use kda::runtime::executor::sim::SimExecutor;
use kda::runtime::operators::decode::{Convolution, Options, Problem, Tokens};
use kda_kernels::decode::DecodeVariant;
use tensors::{reshaped, resized, restrided};

const SEED: u64 = 11;

fn good_case(fused: bool) -> Case {
    Plan::of(Switches { fused, bias: true, separate: true, ..Switches::plain(2, 1, 2) }).draw(SEED)
}

/// The call, spoilt, is refused with these words, and has written nothing.
#[track_caller]
fn refused_with(fused: bool, options: &Options, spoil: &dyn Fn(&mut Problem), words: &[&str]) {
    let (executor, case) = (SimExecutor::default(), good_case(fused));
    let mut call = Call::new(Device::simulator(&executor), &case).expect("memory");
    let good = call.problem;
    spoil(&mut call.problem);
    assert_ne!(format!("{:?} {options:?}", call.problem), format!("{good:?} {:?}", Options::default()), "not spoilt");
    let error = call.enqueue(options, Stream::default()).expect_err("a refusal").to_string();
    for word in words {
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(!error.contains("pitch") && !error.contains("_f32`") && !error.contains("||"), "in kernel words: {error}");
    assert_eq!(executor.last_stats(), None, "launched: {error}");
    let results = call.results().expect("results");
    assert!(results.out.iter().all(|v| v.to_bits() == u16::MAX), "out: {error}");
    assert_eq!(results.state.bits(), case.sample.state.bits(), "state: {error}");
    assert_eq!(results.pool.bits(), case.sample.pool.bits(), "conv_state: {error}");
    assert_eq!(results.counters, 0, "{error}");
}

#[track_caller]
fn refused(spoil: &dyn Fn(&mut Problem), words: &[&str]) {
    refused_with(true, &Options::default(), spoil, words);
}

fn convolution(p: &mut Problem) -> &mut Convolution {
    match &mut p.tokens {
        Tokens::Convolved(convolution) => convolution,
        Tokens::Given { .. } => panic!("the call has a convolution"),
    }
}

fn given(p: &mut Problem) -> [&mut TensorArg; 3] {
    match &mut p.tokens {
        Tokens::Given { q, k, v } => [q, k, v],
        Tokens::Convolved(_) => panic!("the call has q, k and v"),
    }
}

/// A tensor argument: its name, where it is, the alignment it needs, and a type that it does not take.
struct Argument {
    name: &'static str,
    fused: bool,
    of: fn(&mut Problem) -> &mut TensorArg,
    align: u64,
    wrong: Elem,
}

fn arguments() -> Vec<Argument> {
    let argument = |name, of, align, wrong| Argument { name, fused: true, of, align, wrong };
    let of_given = |name, of| Argument { name, fused: false, of, align: 2, wrong: Elem::F32 };
    vec![
        argument("x", |p| &mut convolution(p).x, 2, Elem::F32),
        argument("conv_weight", |p| &mut convolution(p).weight, 16, Elem::F64),
        argument("conv_bias", |p| convolution(p).bias.as_mut().unwrap(), 4, Elem::BF16),
        argument("conv_state", |p| &mut convolution(p).state, 16, Elem::I32),
        argument("conv_slots", |p| &mut convolution(p).slots, 4, Elem::I64),
        argument("conv_slots_out", |p| convolution(p).slots_out.as_mut().unwrap(), 4, Elem::I64),
        argument("workspace", |p| &mut convolution(p).workspace, 4, Elem::I32),
        of_given("q", |p| given(p)[0]),
        of_given("k", |p| given(p)[1]),
        of_given("v", |p| given(p)[2]),
        argument("g", |p| &mut p.g, 2, Elem::F16),
        argument("beta", |p| &mut p.beta, 2, Elem::F32),
        argument("a_log", |p| p.a_log.as_mut().unwrap(), 4, Elem::BF16),
        argument("dt_bias", |p| p.dt_bias.as_mut().unwrap(), 4, Elem::BF16),
        argument("state", |p| &mut p.state, 16, Elem::F16),
        argument("state_slots", |p| &mut p.state_slots, 4, Elem::U32),
        argument("state_slots_out", |p| p.state_slots_out.as_mut().unwrap(), 4, Elem::U32),
        argument("out", |p| &mut p.out, 2, Elem::F32),
    ]
}

#[test]
fn wrong_types_ranks_and_memory() {
    for Argument { name, fused, of, align, wrong } in arguments() {
        let options = Options::default();
        let holds = format!("`{name}` holds {wrong}");
        refused_with(fused, &options, &|p| of(p).elem = wrong, &["decode: ", &holds, "is needed"]);
        let more = |p: &mut Problem| {
            let tensor = of(p);
            let (shape, strides) = ([&[1], tensor.shape()].concat(), [&[1 << 20], tensor.strides()].concat());
            *tensor = reshaped(tensor, &shape, &strides);
        };
        let given = format!("`{name}` has shape [1, ");
        refused_with(fused, &options, &more, &["decode: ", &given, "axes are needed: ["]);
        let few = |p: &mut Problem| of(p).bytes = of(p).extent_bytes() as u64 - 1;
        refused_with(fused, &options, &few, &["decode: ", &format!("`{name}` has "), " bytes; its shape"]);
        let null = format!("`{name}` is a null pointer");
        refused_with(fused, &options, &|p| of(p).ptr = 0, &["decode: ", &null]);
        if align > 2 {
            let starts = [format!("`{name}` starts at 0x"), format!("a multiple of {align} is needed")];
            refused_with(fused, &options, &|p| of(p).ptr += align / 2, &["decode: ", &starts[0], &starts[1]]);
        }
    }
}

#[test]
fn sizes_that_do_not_fit() {
    for Argument { name, fused, of, .. } in arguments() {
        let pool = ["state", "conv_state"].contains(&name);
        // The first axis of a pool is its length; `beta`, and where H comes from, are what others are held against.
        let axes = if name == "beta" || name == "conv_weight" || name == "conv_bias" { 0..0 } else { 0..1 };
        for axis in axes.filter(|_| !pool && name != "a_log" && name != "dt_bias") {
            let words = ["decode: ", &format!("axis N of `{name}`"), "is 1; 2 is needed (N as in `beta`)"];
            refused_with(fused, &Options::default(), &|p| *of(p) = resized(of(p), axis, 1), &words);
        }
    }
    refused(&|p| p.state = resized(&p.state, 2, 64), &["axis V of `state`", "is 64; 128 is needed", "only head size"]);
    refused(&|p| p.state = resized(&p.state, 1, 1), &["axis HV of `state`", "2 is needed (HV as in `beta`)"]);
    refused(&|p| convolution(p).x = resized(&convolution(p).x, 1, 384), &["axis D of `x`", "512 is needed", "H = 1"]);
    let taps = |p: &mut Problem| convolution(p).weight = resized(&convolution(p).weight, 1, 3);
    refused(&taps, &["axis 4 of `conv_weight`", "the convolution has 4 taps"]);
    let q = |p: &mut Problem| *given(p)[0] = resized(given(p)[0], 1, 0);
    refused_with(false, &Options::default(), &q, &["HV = 2 value heads over H = 0", "a positive multiple of H"]);
    let k = |p: &mut Problem| *given(p)[1] = resized(given(p)[1], 2, 64);
    refused_with(false, &Options::default(), &k, &["axis K of `k`", "is 64; 128 is needed"]);
    let heads = |p: &mut Problem| convolution(p).workspace = resized(&convolution(p).workspace, 1, 3);
    refused(&heads, &["HV = 2 value heads over H = 3"]);
}

#[test]
fn layouts_that_do_not_fit() {
    let orders = ["`state` of shape", "[V, K] (strides 128 and 1) or [K, V] (strides 1 and 128)"];
    refused(&|p| p.state = restrided(&p.state, 3, 2), &orders);
    refused(&|p| p.state = restrided(&p.state, 1, 64), &["`state`", "a stride of 16384 elements along HV"]);
    let uneven = |p: &mut Problem| {
        let slots = p.state.shape()[0];
        p.state = resized(&restrided(&p.state, 0, 2 * 16384 + 2), 0, slots - 1);
    };
    refused(&uneven, &["`state`", "a stride along slots that is a multiple of 4 elements"]);
    refused(&|p| p.state = restrided(&p.state, 0, 16384), &["`state`", "addresses of their own"]);
    let inner = |p: &mut Problem| convolution(p).state = restrided(&convolution(p).state, 2, 2);
    refused(&inner, &["`conv_state`", "[D, 3] (strides 3 and 1) or [3, D]"]);
    let taps = |p: &mut Problem| {
        let pool = &convolution(p).state;
        let (shape, line) = (pool.shape().to_vec(), pool.strides()[0] + 12);
        convolution(p).state = resized(&reshaped(pool, &shape, &[line, 1, shape[1] + 4]), 0, 2);
    };
    refused(&taps, &["`conv_state`", "a stride along 3 that is a multiple of 8 elements"]);
    refused(&|p| p.out = restrided(&p.out, 0, 128), &["`out`", "addresses of their own"]);
    refused(&|p| p.beta = restrided(&p.beta, 1, 2), &["`beta`", "a stride of 1 elements along HV"]);
    refused(&|p| p.g = restrided(&p.g, 2, 2), &["`g`", "a stride of 1 elements along K"]);
    let spread = |p: &mut Problem| convolution(p).workspace = restrided(&convolution(p).workspace, 0, 2);
    refused(&spread, &["`workspace`", "a stride of 1 elements along N"]);
}

#[test]
fn scalars_and_variants() {
    refused(&|p| p.null = -2, &["`null` is -2", "-1 is needed, or 0"]);
    for variant in DecodeVariant::ALL.into_iter().filter(|v| v.k_first() || fits(*v, true)) {
        let options = Options { variant: Some(variant), ..Options::default() };
        let words = ["decode: variant `decode__", "it is for a state of ", "the call has f32 in [V, K]"];
        refused_with(true, &options, &|_| {}, &words);
    }
}

/// Any index that is not live makes a padding row, whichever of the four it is, on every variant.
#[test]
fn indices_of_every_kind() {
    let executor = SimExecutor::default();
    for (at, dead) in [-1, -2, i32::MIN, i32::MAX, 1_000_000].into_iter().enumerate() {
        for which in 0..4 {
            let switches = Switches { separate: true, bf16_state: at % 2 == 1, ..Switches::plain(2, 1, 1) };
            let mut case = Plan::of(switches).draw(SEED + at as u64);
            let sample = &mut case.sample;
            let map = match which {
                0 => &mut sample.slots,
                1 => sample.slots_out.as_mut().unwrap(),
                2 => &mut sample.conv_slots,
                _ => sample.conv_slots_out.as_mut().unwrap(),
            };
            map[which % 2] = dead;
            let mut tallies = vec![Tally::default(); DecodeVariant::ALL.len()];
            one_case(Device::simulator(&executor), &case, &DecodeVariant::ALL, &mut tallies).expect("the call runs");
            for (variant, tally) in DecodeVariant::ALL.iter().zip(&tallies).filter(|(_, tally)| tally.problems > 0) {
                for row in tally.rows(variant.desc().entry) {
                    assert!(row.passes(), "index {which} is {dead}: {row:?}");
                }
            }
        }
    }
}

#[test]
fn nothing_to_do_is_no_launch() {
    let (executor, case) = (SimExecutor::default(), Plan::of(Switches::plain(0, 1, 2)).draw(SEED));
    let call = Call::new(Device::simulator(&executor), &case).expect("memory");
    let results = call.run(None).expect("nothing to do");
    assert_eq!(results.state.bits(), case.sample.state.bits());
    assert_eq!(executor.last_stats(), None);
}
