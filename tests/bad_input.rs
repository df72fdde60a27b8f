//! Calls that must be refused, and indices that must be left alone: nothing is written, nothing is launched, and the words
//! say what was given and what is needed. On the simulator, which reports any access outside a buffer.

#[path = "common/tensors.rs"]
mod tensors;

use kda::checks::conv_verify::call::{Call, Results};
use kda::checks::conv_verify::case::{Case, Plan};
use kda::checks::conv_verify::judge::{Tally, fits, one_case};
use kda::checks::conv_verify::problems::{POOLS, with_pool};
use kda::checks::{Device, Measured};
use kda::core::exec::Stream;
use kda::core::{Elem, TensorArg};
use kda::reference::conv_verify::sample::Switches;
use kda::reference::floats::FloatVec;
use kda::runtime::executor::sim::SimExecutor;
use kda::runtime::operators::conv_verify::{Options, Problem, SnapshotRule};
use kda_kernels::conv_verify::ConvVerifyVariant;
use tensors::{reshaped, resized, restrided};

const SEED: u64 = 11;
/// N, T, H and HV of the call that each test spoils.
const SIZES: (usize, usize, usize, usize) = (2, 3, 1, 2);

fn good_case() -> Case {
    let (n, t, h, hv) = SIZES;
    let switches = Switches { bias: true, roll: true, t_alloc: t + 1, ..Switches::plain(n, t, h, hv) };
    Plan::of(switches).draw(SEED)
}

/// A change to a call, with words that its refusal must hold.
type Spoil<'s> = &'s dyn Fn(&mut Problem);

/// The call, spoilt, is refused with these words, and has written nothing.
#[track_caller]
fn refused_with(options: &Options, spoil: Spoil, words: &[&str]) {
    let (executor, case) = (SimExecutor::default(), good_case());
    let mut call = Call::new(Device::simulator(&executor), &case).expect("memory");
    let good = call.problem;
    spoil(&mut call.problem);
    assert_ne!(format!("{:?} {options:?}", call.problem), format!("{good:?} {:?}", Options::default()), "not spoilt");
    let error = call.enqueue(options, Stream::default()).expect_err("a refusal").to_string();
    for word in words {
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
    assert_eq!(error.lines().count(), 1, "{error}");
    let forced = options.variant.map_or("", |variant| variant.desc().entry);
    let own = error.replace(forced, "");
    assert!(!own.contains("pitch") && !own.contains("_f32") && !own.contains("||"), "in kernel words: {error}");
    assert_eq!(executor.last_stats(), None, "launched: {error}");
    assert_untouched(&call.results().expect("results"), &case, &error);
}

#[test]
fn a_call_runs_after_a_refused_one() {
    let (executor, case) = (SimExecutor::default(), good_case());
    let mut call = Call::new(Device::simulator(&executor), &case).expect("memory");
    let good = std::mem::replace(&mut call.problem.x.ptr, 1);
    call.run(None).expect_err("a refusal");
    call.problem.x.ptr = good;
    call.run(None).expect("the good call");
    assert!(executor.last_stats().is_some());
}

#[track_caller]
fn refused(spoil: Spoil, words: &[&str]) {
    refused_with(&Options::default(), spoil, words);
}

#[track_caller]
fn assert_untouched(results: &Results, case: &Case, what: &str) {
    assert!(results.out.iter().all(|v| v.to_bits() == u16::MAX), "out: {what}");
    assert!(results.states.iter().flatten().all(|v| v.to_bits() == u32::MAX), "states_out: {what}");
    let poison = if matches!(case.sample.conv_state, FloatVec::Bf16(_)) { u32::from(u16::MAX) } else { u32::MAX };
    assert!(results.windows.as_ref().is_none_or(|w| w.bits().iter().all(|b| *b == poison)), "windows_out: {what}");
    assert_eq!(results.pool.bits(), case.sample.conv_state.bits(), "conv_state: {what}");
    assert_eq!(results.changed_inputs, 0, "{what}");
}

/// A tensor argument: its name, where it is, the alignment it needs, and a type that it does not take.
struct Argument {
    name: &'static str,
    of: fn(&mut Problem) -> &mut TensorArg,
    align: u64,
    wrong: Elem,
}

fn arguments() -> Vec<Argument> {
    let argument = |name, of, align, wrong| Argument { name, of, align, wrong };
    vec![
        argument("x", |p| &mut p.x, 2, Elem::F32),
        argument("conv_weight", |p| &mut p.conv_weight, 16, Elem::F64),
        argument("conv_bias", |p| p.conv_bias.as_mut().unwrap(), 4, Elem::BF16),
        argument("conv_state", |p| &mut p.conv_state, 16, Elem::I32),
        argument("conv_slots", |p| &mut p.conv_slots, 4, Elem::I64),
        argument("state", |p| &mut p.state, 16, Elem::BF16),
        argument("state_slots", |p| &mut p.state_slots, 4, Elem::U32),
        argument("snapshot_rows", |p| &mut p.snapshot_rows, 4, Elem::F32),
        argument("a", |p| &mut p.a, 2, Elem::F32),
        argument("b", |p| &mut p.b, 2, Elem::F32),
        argument("a_log", |p| p.a_log.as_mut().unwrap(), 4, Elem::BF16),
        argument("dt_bias", |p| &mut p.dt_bias, 4, Elem::BF16),
        argument("states_out", |p| p.states_out.as_mut().unwrap(), 16, Elem::BF16),
        argument("windows_out", |p| p.windows_out.as_mut().unwrap(), 16, Elem::U8),
        argument("out", |p| &mut p.out, 16, Elem::F32),
        argument("workspace", |p| &mut p.workspace, 4, Elem::I32),
    ]
}

#[test]
fn wrong_types() {
    for Argument { name, of, wrong, .. } in arguments() {
        refused(&|p| of(p).elem = wrong, &["conv_verify: ", &format!("`{name}` holds {wrong}"), "is needed"]);
    }
}

#[test]
fn wrong_ranks() {
    for Argument { name, of, .. } in arguments() {
        let more = |p: &mut Problem| {
            let tensor = of(p);
            let (shape, strides) = ([&[1], tensor.shape()].concat(), [&[1 << 20], tensor.strides()].concat());
            *tensor = reshaped(tensor, &shape, &strides);
        };
        let given = format!("`{name}` has shape [1, ");
        refused(&more, &["conv_verify: ", &given, "axes are needed: ["]);
    }
    let words = ["`x` has shape [2, 3]", "3 axes are needed: [N, T, D]"];
    refused(&|p| p.x = reshaped(&p.x, &[2, 3], &[3, 1]), &words);
}

#[test]
fn too_few_bytes() {
    for Argument { name, of, .. } in arguments() {
        let given = std::cell::Cell::new(0);
        let spoil = |p: &mut Problem| {
            let tensor = of(p);
            tensor.bytes = tensor.extent_bytes() as u64 - 1;
            given.set(tensor.bytes);
        };
        spoil(&mut Call::new(Device::simulator(&SimExecutor::default()), &good_case()).expect("memory").problem);
        let words = [format!("`{name}` has {} bytes", given.get()), format!("needs {}", given.get() + 1)];
        refused(&spoil, &[&words[0], &words[1]]);
    }
}

#[test]
fn null_and_misaligned_pointers() {
    for Argument { name, of, align, .. } in arguments() {
        refused(&|p| of(p).ptr = 0, &[&format!("`{name}` is a null pointer"), "shape [", "is needed"]);
        let words = [format!("`{name}` starts at 0x"), format!("multiple of {align} is needed")];
        refused(&|p| of(p).ptr += align / 2, &[&words[0], &words[1]]);
    }
}

#[test]
fn a_null_index_that_would_make_negative_indices_live() {
    for null in [-2, -7, i32::MIN] {
        refused(&|p| p.null = null, &[&format!("`null` is {null}; -1 is needed, or 0")]);
    }
}

#[test]
fn strides_past_128_bits_of_bytes() {
    for Argument { name, of, .. } in arguments() {
        for stride in [u64::MAX, 1 << 63] {
            let spoil = |p: &mut Problem| {
                let tensor = of(p);
                *tensor = restrided(tensor, 0, stride);
                tensor.bytes = u64::MAX;
            };
            let rows =
                of(&mut Call::new(Device::simulator(&SimExecutor::default()), &good_case()).expect("memory").problem)
                    .shape()[0];
            if rows > 1 {
                refused(&spoil, &[&format!("`{name}`")]);
            }
        }
    }
}

#[test]
fn wrong_sizes() {
    let (n, t, ..) = SIZES;
    let cases: [(Spoil, &[&str]); 17] = [
        (&|p| p.conv_slots = resized(&p.conv_slots, 0, 1), &["axis N of `conv_slots`", "is 1; 2 is needed"]),
        (&|p| p.state_slots = resized(&p.state_slots, 0, 1), &["axis N of `state_slots`", "is 1; 2 is needed"]),
        (&|p| p.snapshot_rows = resized(&p.snapshot_rows, 0, 1), &["axis N of `snapshot_rows`", "2 is needed"]),
        (&|p| p.workspace = resized(&p.workspace, 0, 1), &["axis N of `workspace`", "is 1; 2 is needed"]),
        (&|p| p.x = resized(&p.x, 1, 2), &["axis T of `x`", "is 2; 3 is needed (T as in `b`)"]),
        (&|p| p.out = resized(&p.out, 1, 2), &["axis T of `out`", "is 2; 3 is needed"]),
        (&|p| p.a = resized(&p.a, 2, 1), &["axis HV of `a`", "is 1; 2 is needed (HV as in `b`)"]),
        (
            &|p| p.x = resized(&p.x, 2, 384),
            &["axis D of `x`", "is 384; 512 is needed", "D = 2*H*128 + HV*128", "HV = 2"],
        ),
        (&|p| p.conv_state = resized(&p.conv_state, 1, 500), &["axis D of `conv_state`", "is 500; 512 is needed"]),
        (&|p| p.conv_state = resized(&p.conv_state, 2, 4), &["axis 3 of `conv_state`", "is 4; 3 is needed"]),
        (&|p| p.conv_weight = resized(&p.conv_weight, 1, 3), &["axis 4 of `conv_weight`", "is 3; 4 is needed"]),
        (&|p| p.dt_bias = resized(&p.dt_bias, 0, 1), &["axis HV of `dt_bias`", "is 1; 2 is needed"]),
        (
            &|p| p.states_out = p.states_out.map(|s| resized(&s, 1, 2)),
            &["axis T_alloc of `states_out`", "is 2; at least 3 is needed"],
        ),
        (
            &|p| p.windows_out = p.windows_out.map(|w| resized(&w, 1, 2)),
            &["axis T_alloc of `windows_out`", "is 2; at least 3 is needed"],
        ),
        (
            &|p| {
                p.snapshot_rule = SnapshotRule::ByBatch;
                p.states_out = p.states_out.map(|s| resized(&s, 0, 1));
            },
            &["axis rows of `states_out`", "is 1; at least 2 is needed (N rows, as the rule is by batch)"],
        ),
        (
            &|p| p.state = restrided(&resized(&p.state, 0, 1 << 31), 0, 0),
            &["axis slots of `state`", "is 2147483648; at most 2147483647 is possible (slots are i32 indices)"],
        ),
        (
            &|p| p.b = reshaped(&p.b, &[n as u64, 0, 2], &[2, 2, 1]),
            &["axis T of `b` with shape [2, 0, 2] is 0; at least 1 is needed"],
        ),
    ];
    for (spoil, words) in cases {
        refused(spoil, words);
    }
    assert_eq!(t, 3);
}

#[test]
fn other_head_sizes_are_refused_by_name() {
    for size in [32, 64, 96, 256] {
        let is = format!("is {size}; 128 is needed (K = V = 128 is the only head size)");
        refused(&|p| p.a = resized(&p.a, 3, size), &["axis K of `a`", &is]);
        refused(&|p| p.dt_bias = resized(&p.dt_bias, 1, size), &["axis K of `dt_bias`", &is]);
        refused(&|p| p.out = resized(&p.out, 3, size), &["axis V of `out`", &is]);
        refused(&|p| p.state = resized(&p.state, 2, size), &["axis V of `state`", &is]);
        refused(&|p| p.state = resized(&p.state, 3, size), &["axis K of `state`", &is]);
        refused(&|p| p.states_out = p.states_out.map(|s| resized(&s, 4, size)), &["axis K of `states_out`", &is]);
    }
}

#[test]
fn value_heads_that_do_not_share_evenly() {
    for (h, words) in [(3, "HV = 2 value heads over H = 3"), (4, "over H = 4"), (0, "over H = 0")] {
        let spoil = |p: &mut Problem| p.workspace = reshaped(&p.workspace, &[2, h], &[h.max(1), 1]);
        refused(&spoil, &[words, "HV must be a positive multiple of H"]);
    }
    refused(&|p| p.b = resized(&p.b, 2, 0), &["HV = 0 value heads over H = 1"]);
}

#[test]
fn wrong_strides() {
    let cases: [(Spoil, &[&str]); 15] = [
        (&|p| p.x = restrided(&p.x, 2, 2), &["`x` of shape [2, 3, 512]", "a stride of 1 elements along D is needed"]),
        (&|p| p.a = restrided(&p.a, 2, 136), &["`a`", "136", "a stride of 128 elements along HV is needed"]),
        (&|p| p.b = restrided(&p.b, 2, 2), &["`b`", "a stride of 1 elements along HV is needed"]),
        (&|p| p.conv_weight = restrided(&p.conv_weight, 0, 8), &["`conv_weight`", "a stride of 4 elements along D"]),
        (&|p| p.state = restrided(&p.state, 3, 2), &["`state`", "a stride of 1 elements along K is needed"]),
        (&|p| p.state = restrided(&p.state, 2, 129), &["`state`", "129", "a stride of 128 elements along V is needed"]),
        (
            &|p| p.state = restrided(&p.state, 0, 2 * 16384 + 2),
            &["`state`", "32770", "a stride along slots that is a multiple of 4 elements is needed"],
        ),
        (
            &|p| p.out = restrided(&p.out, 1, 260),
            &["`out`", "260", "a stride along T that is a multiple of 8 elements is needed"],
        ),
        (
            &|p| p.states_out = p.states_out.map(|s| restrided(&s, 1, 2 * 16384 + 1)),
            &["`states_out`", "a stride along T_alloc that is a multiple of 4 elements is needed"],
        ),
        (
            &|p| p.conv_state = restrided(&p.conv_state, 0, 3 * 512 + 1),
            &["`conv_state`", "1537", "a stride along lines that is a multiple of 4 elements is needed"],
        ),
        (
            &|p| p.conv_state = restrided(&p.conv_state, 1, 4),
            &["`conv_state`", "[D, 3] (strides 3 and 1) or [3, D] (stride 1 along D) are needed"],
        ),
        // Written elements that share an address.
        (&|p| p.out = restrided(&p.out, 0, 0), &["`out`", "addresses of their own"]),
        (&|p| p.states_out = p.states_out.map(|s| restrided(&s, 0, 4)), &["`states_out`", "addresses of their own"]),
        (&|p| p.workspace = restrided(&p.workspace, 0, 0), &["`workspace`", "addresses of their own"]),
        (&|p| p.conv_state = restrided(&p.conv_state, 0, 1024), &["`conv_state`", "addresses of their own"]),
    ];
    for (spoil, words) in cases {
        refused(spoil, words);
    }
}

#[test]
fn windows_unlike_the_pool() {
    let channels_inner = |p: &mut Problem| {
        p.windows_out = p.windows_out.map(|w| {
            let s = w.strides();
            reshaped(&w, w.shape(), &[s[0], s[1], 1, w.shape()[2]])
        });
    };
    refused(&channels_inner, &["`windows_out`", "the memory order of `conv_state`, [D, 3], is needed"]);
    let bf16 = |p: &mut Problem| p.windows_out.as_mut().unwrap().elem = Elem::BF16;
    refused(&bf16, &["`windows_out` holds bf16; f32, as in `conv_state`, is needed"]);
}

#[test]
fn a_forced_variant_for_other_lengths() {
    for variant in ConvVerifyVariant::ALL.iter().filter(|v| !v.long() && v.t() != 3) {
        let options = Options { variant: Some(*variant), ..Options::default() };
        let words = format!("it is for T = {}, the call has T = 3", variant.t());
        refused_with(&options, &|_| {}, &[variant.desc().entry, &words]);
    }
}

#[test]
fn a_forced_variant_for_another_pool() {
    let other = |v: &&ConvVerifyVariant| (v.long() || v.t() == 3) && (v.pool() != Elem::F32 || v.inner());
    let (mut orders, mut types) = (0, 0);
    for variant in ConvVerifyVariant::ALL.iter().filter(other) {
        let options = Options { variant: Some(*variant), ..Options::default() };
        let order = if variant.inner() { "[3, D]" } else { "[D, 3]" };
        let words = format!("its convolution pool is {} {order}, the call's is f32 [D, 3]", variant.pool());
        refused_with(&options, &|_| {}, &[variant.desc().entry, &words]);
        orders += usize::from(variant.pool() == Elem::F32);
        types += usize::from(!variant.inner());
    }
    assert!(orders > 0 && types > 0, "{orders} of another order, {types} of another type");
}

/// The grid has a row of CTAs a request.
#[test]
fn more_requests_than_a_grid_has_rows() {
    let n = 65_536;
    let more = |t: &TensorArg| reshaped(t, &[&[n], &t.shape()[1..]].concat(), &[&[0], &t.strides()[1..]].concat());
    let spoil = |p: &mut Problem| {
        for argument in [&mut p.x, &mut p.a, &mut p.b, &mut p.out, &mut p.workspace] {
            *argument = more(argument);
        }
        for map in [&mut p.conv_slots, &mut p.state_slots, &mut p.snapshot_rows] {
            *map = more(map);
        }
    };
    refused(&spoil, &["axis N of `b` with shape [65536, 3, 2] is 65536; at most 65535 is possible"]);
}

#[test]
fn optional_tensors_may_all_be_absent() {
    let (executor, case) = (SimExecutor::default(), good_case());
    let mut call = Call::new(Device::simulator(&executor), &case).expect("memory");
    let p = &mut call.problem;
    (p.conv_bias, p.a_log, p.states_out, p.windows_out) = (None, None, None, None);
    let results = call.run(None).expect("the call runs");
    assert!(results.out.iter().all(|v| v.to_f32().is_finite()));
    assert!(results.states.iter().flatten().all(|v| v.to_bits() == u32::MAX));
}

#[test]
fn no_requests_are_no_launch() {
    let switches = Switches { roll: true, ..Switches::plain(0, 3, 1, 2) };
    let (executor, case) = (SimExecutor::default(), Plan::of(switches).draw(SEED));
    let call = Call::new(Device::simulator(&executor), &case).expect("memory");
    let results = call.run(None).expect("success");
    assert_eq!(executor.last_stats(), None);
    assert_eq!(results.changed_inputs, 0);
    assert_eq!(results.pool.bits(), case.sample.conv_state.bits());
}

/// Every index that is not live, in each of the three maps, under both null values: the simulator would report an access
/// outside a buffer, and the golden model says what must and what must not be written.
#[test]
fn dead_indices_are_left_alone() {
    for (null, map, pool) in (0..24).map(|i| ([-1, 0][i % 2], i / 2 % 3, POOLS[i / 6])) {
        let switches = Switches { null, roll: true, ..with_pool(Switches::plain(6, 2, 1, 1), pool) };
        let mut case = Plan::of(switches).draw(SEED);
        let s = &mut case.sample;
        let length = [s.conv_layout.lines, s.state_len, s.snapshot_len][map] as i32;
        let indices = [&mut s.conv_slots, &mut s.state_slots, &mut s.snapshot_rows].into_iter().nth(map).unwrap();
        indices[..5].copy_from_slice(&[i32::MIN, -7, null, length, i32::MAX]);
        let executor = SimExecutor::default();
        for variant in ConvVerifyVariant::ALL.iter().filter(|v| fits(**v, &switches)) {
            let mut tallies = [Tally::default()];
            let what = format!("null {null}, map {map}, pool {pool:?}");
            one_case(Device::simulator(&executor), &case, &[*variant], &mut tallies)
                .unwrap_or_else(|cause| panic!("{what}: {cause}"));
            let rows = tallies[0].rows(variant.desc().entry);
            assert!(rows.len() == 3 && rows.iter().all(Measured::passes), "{what}: {rows:#?}");
        }
    }
}
