//! Calls of `tc_commit` that must be refused, and slots and counts that must be left alone: nothing is written, nothing is
//! launched, and the words say what was given and what is needed. On the simulator, which reports any access outside a buffer.

#[path = "common/tensors.rs"]
mod tensors;

use kda::checks::Device;
use kda::checks::tc_commit::call::Call;
use kda::checks::tc_commit::case::{Case, Plan};
use kda::checks::tc_commit::judge::{Tally, fits, one_case};
use kda::core::exec::Stream;
use kda::core::{Elem, TensorArg};
use kda::reference::tc_commit::ConvOrder;
use kda::reference::tc_commit::sample::Switches;
use kda::runtime::executor::sim::SimExecutor;
use kda::runtime::operators::tc_commit::{Options, Problem};
use kda_kernels::tc_commit::TcCommitVariant;
use tensors::{reshaped, resized, restrided};

const SEED: u64 = 11;

fn good_case(order: ConvOrder) -> Case {
    let switches = Switches { separate: true, boundary: true, conv: Some(order), ..Switches::plain(2, 2, 4) };
    Plan { layers: Some(2), ..Plan::of(switches) }.draw(SEED)
}

/// The call, spoilt, is refused with these words, and has written nothing.
#[track_caller]
fn refused_with(order: ConvOrder, options: &Options, spoil: &dyn Fn(&mut Problem), words: &[&str]) {
    let (executor, case) = (SimExecutor::default(), good_case(order));
    let mut call = Call::new(Device::simulator(&executor), &case).expect("memory");
    let good = call.problem;
    spoil(&mut call.problem);
    assert_ne!(format!("{:?} {options:?}", call.problem), format!("{good:?} {:?}", Options::default()), "not spoilt");
    let error = call.enqueue(options, Stream::default()).expect_err("a refusal").to_string();
    for word in words {
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(!error.contains("pitch") && !error.contains("conv_") && !error.contains("||"), "in kernel words: {error}");
    assert_eq!(executor.last_stats(), None, "launched: {error}");
    for (layer, sample) in call.results().expect("results").layers.iter().zip(&case.layers) {
        assert!(layer.state.bits() == sample.state.bits() && layer.conv == sample.conv, "written: {error}");
    }
}

#[track_caller]
fn refused(spoil: &dyn Fn(&mut Problem), words: &[&str]) {
    refused_with(ConvOrder::TokenMajor, &Options::default(), spoil, words);
}

/// A tensor argument: its name, where it is, the alignment it needs, and a type that it does not take.
type Argument = (&'static str, fn(&mut Problem) -> &mut TensorArg, u64, Elem);

const ARGUMENTS: [Argument; 12] = [
    ("state", |p| &mut p.state, 16, Elem::F16),
    ("corr", |p| &mut p.corr, 16, Elem::BF16),
    ("kg", |p| &mut p.kg, 2, Elem::F32),
    ("a_log", |p| p.a_log.as_mut().unwrap(), 4, Elem::BF16),
    ("dt_bias", |p| &mut p.dt_bias, 4, Elem::BF16),
    ("conv", |p| p.conv.as_mut().unwrap(), 16, Elem::F32),
    ("slots", |p| &mut p.slots, 4, Elem::I64),
    ("destinations", |p| p.destinations.as_mut().unwrap(), 4, Elem::U32),
    ("counts", |p| &mut p.counts, 4, Elem::I64),
    ("boundary_tokens", |p| &mut p.boundary.as_mut().unwrap().tokens, 4, Elem::U32),
    ("boundary_slots", |p| &mut p.boundary.as_mut().unwrap().slots, 4, Elem::U32),
    ("layers", |p| p.layers.as_mut().unwrap(), 8, Elem::I64),
];

#[test]
fn wrong_types_ranks_and_memory() {
    for (name, of, align, wrong) in ARGUMENTS {
        let holds = format!("`{name}` holds {wrong}");
        refused(&|p| of(p).elem = wrong, &["tc_commit: ", &holds, "is needed"]);
        let more = |p: &mut Problem| {
            let tensor = of(p);
            let (shape, strides) = ([&[1], tensor.shape()].concat(), [&[1 << 20], tensor.strides()].concat());
            *tensor = reshaped(tensor, &shape, &strides);
        };
        let given = format!("`{name}` has shape [1, ");
        refused(&more, &["tc_commit: ", &given, "axes are needed: ["]);
        let few = |p: &mut Problem| of(p).bytes = of(p).extent_bytes() as u64 - 1;
        refused(&few, &["tc_commit: ", &format!("`{name}` has "), " bytes; its shape"]);
        refused(&|p| of(p).ptr = 0, &["tc_commit: ", &format!("`{name}` is a null pointer")]);
        let starts = [format!("`{name}` starts at 0x"), format!("a multiple of {align} is needed")];
        refused(&|p| of(p).ptr += align / 2, &["tc_commit: ", &starts[0], &starts[1]]);
    }
    let odd = |p: &mut Problem| p.conv.as_mut().unwrap().ptr += 1;
    refused_with(
        ConvOrder::ChannelMajor,
        &Options::default(),
        &odd,
        &["`conv` starts at", "a multiple of 2 is needed"],
    );
}

#[test]
fn sizes_that_do_not_fit() {
    for (name, of, ..) in ARGUMENTS.into_iter().skip(6).filter(|(name, ..)| !["counts", "layers"].contains(name)) {
        let words = ["tc_commit: ", &format!("axis N of `{name}`"), "is 1; 2 is needed (N as in `counts`)"];
        refused(&|p| *of(p) = resized(of(p), 0, 1), &words);
    }
    refused(&|p| p.state = resized(&p.state, 2, 64), &["axis V of `state`", "is 64; 128 is needed", "only head size"]);
    refused(&|p| p.state = resized(&p.state, 1, 0), &["axis H of `state`", "is 0; at least 1 is needed"]);
    refused(&|p| p.state = resized(&p.state, 1, 1), &["axis H of `corr`", "1 is needed (H as in `state`)"]);
    refused(&|p| p.corr = resized(&p.corr, 0, 1), &["axis rows of `corr`", "at least 2 is needed", "N as in `counts`"]);
    refused(&|p| p.corr = resized(&p.corr, 2, 17), &["axis window of `corr`", "at most 16 is possible"]);
    refused(&|p| p.corr = resized(&p.corr, 2, 0), &["axis window of `corr`", "at least 1 is needed"]);
    refused(&|p| p.kg = resized(&p.kg, 0, 2), &["axis rows of `kg`", "3 is needed (rows as in `corr`)"]);
    refused(&|p| p.kg = resized(&p.kg, 2, 3), &["axis window of `kg`", "4 is needed (window as in `corr`)"]);
    refused(&|p| p.kg = resized(&p.kg, 3, 128), &["axis 2 K of `kg`", "a key and a raw gate"]);
    refused(&|p| p.dt_bias = resized(&p.dt_bias, 0, 1), &["axis H of `dt_bias`", "2 is needed"]);
    refused(&|p| p.a_log = p.a_log.map(|t| resized(&t, 0, 1)), &["axis H of `a_log`", "2 is needed"]);
    let conv = |axis: usize, size: u64| move |p: &mut Problem| p.conv = p.conv.map(|t| resized(&t, axis, size));
    refused(&conv(0, 3), &["axis slots of `conv`", "slots as in `state`"]);
    refused(&conv(1, 384), &["axis D of `conv`", "768 is needed (D = 3*H*128, with H = 2 as in `state`)"]);
    refused(&conv(2, 5), &["axis window + 2 of `conv`", "6 is needed (window + 2, with window = 4 as in `corr`)"]);
    let layers = |axis: usize, size: u64| move |p: &mut Problem| p.layers = p.layers.map(|t| resized(&t, axis, size));
    refused(&layers(0, 0), &["axis layers of `layers`", "at least 1 is needed"]);
    refused(&layers(0, 65_536), &["axis layers of `layers`", "at most 65535 is possible"]);
    refused(
        &layers(1, 5),
        &["axis 6 of `layers`", "6 is needed (state, conv, corr, kg, a_log and dt_bias of a layer)"],
    );
    refused(&|p| p.counts = resized(&p.counts, 0, 65_536), &["axis N of `counts`", "at most 65535 is possible"]);
}

#[test]
fn layouts_that_do_not_fit() {
    refused(&|p| p.state = restrided(&p.state, 3, 2), &["`state` of shape", "a stride of 1 elements along K"]);
    refused(&|p| p.state = restrided(&p.state, 2, 130), &["`state`", "a stride of 128 elements along V"]);
    refused(&|p| p.state = restrided(&p.state, 1, 64), &["`state`", "a stride of 16384 elements along H"]);
    let uneven = |p: &mut Problem| {
        let slots = p.state.shape()[0];
        p.state = resized(&restrided(&p.state, 0, 2 * 16384 + 4), 0, slots - 1);
    };
    refused(&uneven, &["`state`", "a stride along slots that is a multiple of 8 elements"]);
    refused(&|p| p.state = restrided(&p.state, 0, 16384), &["`state`", "addresses of their own"]);
    refused(&|p| p.corr = restrided(&p.corr, 1, 516), &["`corr`", "a stride of 512 elements along H"]);
    refused(&|p| p.kg = restrided(&p.kg, 2, 257), &["`kg`", "a stride of 256 elements along window"]);
    let conv = |strides: [u64; 3]| {
        move |p: &mut Problem| p.conv = p.conv.map(|t| resized(&reshaped(&t, t.shape(), &strides), 0, 1))
    };
    let one_slot = |p: &mut Problem| p.state = resized(&p.state, 0, 1);
    let pool = |strides: [u64; 3]| {
        move |p: &mut Problem| {
            conv(strides)(p);
            one_slot(p);
        }
    };
    refused(
        &pool([4608, 2, 1]),
        &["`conv`", "[D, window + 2] (strides 6 and 1) or [window + 2, D] (stride 1 along D)"],
    );
    refused(&pool([4608, 1, 764]), &["`conv`", "a stride along window + 2 that is a multiple of 8 elements"]);
    refused(&pool([4608, 1, 760]), &["`conv`", "addresses of their own"]);
    refused(&|p| p.counts = restrided(&p.counts, 0, 2), &["`counts`", "a stride of 1 elements along N"]);
    refused(&|p| p.slots = restrided(&p.slots, 0, 0), &["`slots`", "a stride of 1 elements along N"]);
    refused(
        &|p| p.layers = p.layers.map(|t| restrided(&t, 0, 7)),
        &["`layers`", "a stride of 6 elements along layers"],
    );
}

/// What is written shares memory with nothing.
#[test]
fn memory_that_is_shared() {
    for (name, of, ..) in ARGUMENTS.into_iter().filter(|(name, ..)| *name != "state") {
        let inside = |p: &mut Problem| of(p).ptr = p.state.ptr + 256;
        let first = if name == "conv" { "`state` at" } else { "`state` at 0x" };
        refused(&inside, &["tc_commit: ", first, &format!("shares memory with `{name}` at"), "as it is written"]);
    }
    refused(&|p| p.kg.ptr = p.conv.unwrap().ptr, &["`conv` at", "shares memory with `kg`"]);
}

#[test]
fn scalars_and_variants() {
    refused(&|p| p.null = -2, &["`null` is -2", "-1 is needed, or 0"]);
    let switches = good_case(ConvOrder::TokenMajor).first().switches;
    for variant in TcCommitVariant::ALL.into_iter().filter(|v| !fits(*v, &switches)) {
        let options = Options { variant: Some(variant), ..Options::default() };
        let why = match variant.state() {
            Elem::BF16 => "it applies no boundary, the call has one",
            _ => "it is for a state of f32, the call has bf16",
        };
        let words = ["tc_commit: variant `tc_commit__", why];
        refused_with(ConvOrder::TokenMajor, &options, &|_| {}, &words);
    }
}

/// Slots that are nobody's, wherever they stand, and counts that are none, on every variant.
#[test]
fn slots_and_counts_of_every_kind() {
    let executor = SimExecutor::default();
    for (at, dead) in [-1, -2, i32::MIN, i32::MAX, 1_000_000].into_iter().enumerate() {
        // What is no table of a boundary is spoilt in calls without one, too: those run on every variant.
        for (which, boundary) in (0..5).map(|which| (which, true)).chain([0, 1, 3].map(|which| (which, false))) {
            let switches = Switches {
                separate: true,
                boundary,
                conv: Some(ConvOrder::TokenMajor),
                bf16_state: at % 2 == 1,
                ..Switches::plain(2, 1, 3)
            };
            let mut case = Plan::of(switches).draw(SEED + at as u64);
            let sample = &mut case.layers[0];
            sample.counts.fill(3);
            sample.boundary_tokens.fill(2);
            let map = match which {
                0 => &mut sample.slot_of,
                1 => sample.destinations.as_mut().unwrap(),
                2 => &mut sample.boundary_slots,
                3 => &mut sample.counts,
                _ => &mut sample.boundary_tokens,
            };
            map[which % 2] = dead;
            let mut tallies = vec![Tally::default(); TcCommitVariant::ALL.len()];
            one_case(Device::simulator(&executor), &case, &TcCommitVariant::ALL, &mut tallies).expect("the call runs");
            for (variant, tally) in TcCommitVariant::ALL.iter().zip(&tallies) {
                assert_eq!(tally.problems > 0, fits(*variant, &switches), "{}", variant.desc().entry);
            }
            for (variant, tally) in TcCommitVariant::ALL.iter().zip(&tallies).filter(|(_, tally)| tally.problems > 0) {
                for row in tally.rows(variant.desc().entry) {
                    assert!(row.passes(), "boundary {boundary}, table {which} holds {dead}: {row:?}");
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
    assert_eq!(results.layers[0].state.bits(), case.first().state.bits());
    assert_eq!(executor.last_stats(), None);
}
