//! Calls of `tc_verify` that must be refused: nothing is written, nothing is launched, and the words say what was given and
//! what is needed. Metadata that only the device sees, of every kind, and gates of any strength: what is defined is so, and
//! nothing else is touched. On the simulator, which reports any access outside a buffer.

#[path = "common/tensors.rs"]
mod tensors;

use kda::checks::Device;
use kda::checks::tc_verify::call::Call;
use kda::checks::tc_verify::case::{Case, Plan, fits, options};
use kda::checks::tc_verify::judge::{Tallies, Tally, on_variants};
use kda::core::exec::Stream;
use kda::core::{Elem, TensorArg};
use kda::reference::conv::TapType;
use kda::reference::floats::FloatVec;
use kda::reference::tc_verify::sample::{Sample, Switches};
use kda::reference::tc_verify::{ConvOrder, HEAD};
use kda::runtime::executor::sim::SimExecutor;
use kda::runtime::operators::tc_verify::{Convolution, Gate, Options, Problem, Variant};
use tensors::{reshaped, resized, restrided};

const SEED: u64 = 11;

/// Two requests of two heads and four tokens, with a convolution of bf16 taps.
fn convolved() -> Switches {
    Switches { taps: Some(TapType::Bf16), ..Switches::plain(2, 2, 4) }
}

/// The call, spoilt, is refused with these words, and has written nothing.
#[track_caller]
fn refused_with(switches: Switches, options: &Options, spoil: &dyn Fn(&mut Problem), words: &[&str]) {
    let (executor, case) = (SimExecutor::default(), Plan { counters: true, ..Plan::of(switches) }.draw(SEED));
    let mut call = Call::new(Device::simulator(&executor), &case).expect("memory");
    let good = call.problem;
    spoil(&mut call.problem);
    assert_ne!(format!("{:?} {options:?}", call.problem), format!("{good:?} {:?}", Options::default()), "not spoilt");
    let error = call.enqueue(options, Stream::default()).expect_err("a refusal").to_string();
    for word in words {
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
    assert_eq!(error.lines().count(), 1, "{error}");
    let kernel_words = ["pitch", "n_req", "slot_of", "`taps`", "`conv`", "||", "per_key_head"];
    assert!(!kernel_words.iter().any(|word| error.contains(word)), "in kernel words: {error}");
    assert_eq!(executor.last_stats(), None, "launched: {error}");
    let results = call.results().expect("results");
    assert!(results.out.iter().all(|v| v.to_bits() == u16::MAX), "out: {error}");
    assert!(results.corr.iter().all(|v| v.to_bits() == u32::MAX), "corr: {error}");
    assert!(results.kg.iter().all(|v| v.to_bits() == u16::MAX), "kg: {error}");
    assert!(results.conv == case.sample.conv && results.changed == 0, "{error}");
}

#[track_caller]
fn refused(spoil: &dyn Fn(&mut Problem), words: &[&str]) {
    refused_with(convolved(), &Options::default(), spoil, words);
}

fn conv(p: &mut Problem) -> &mut Convolution {
    p.convolution.as_mut().expect("the call has a convolution")
}

/// A tensor argument: its name, where it is, the alignment it needs, and a type that it does not take.
type Argument = (&'static str, fn(&mut Problem) -> &mut TensorArg, u64, Elem);

const ARGUMENTS: [Argument; 15] = [
    ("out", |p| &mut p.out, 4, Elem::F32),
    ("corr", |p| &mut p.corr, 8, Elem::BF16),
    ("kg", |p| &mut p.kg, 4, Elem::F32),
    ("conv_state", |p| &mut conv(p).state, 4, Elem::F32),
    ("counters", |p| p.counters.as_mut().unwrap(), 4, Elem::I32),
    ("qkv", |p| &mut p.qkv, 4, Elem::F32),
    ("raw_g", |p| &mut p.raw_g, 4, Elem::F16),
    ("raw_beta", |p| &mut p.raw_beta, 2, Elem::F32),
    ("a_log", |p| p.a_log.as_mut().unwrap(), 4, Elem::BF16),
    ("dt_bias", |p| &mut p.dt_bias, 8, Elem::BF16),
    ("state", |p| &mut p.state, 16, Elem::F16),
    ("conv_weight", |p| &mut conv(p).weight, 16, Elem::F64),
    ("accepted", |p| &mut conv(p).accepted, 4, Elem::I64),
    ("query_start", |p| &mut p.query_start, 4, Elem::I64),
    ("slots", |p| &mut p.slots, 4, Elem::U32),
];
/// The first of them are written.
const WRITTEN: usize = 5;

#[test]
fn wrong_types_ranks_and_memory() {
    for (name, of, align, wrong) in ARGUMENTS {
        let holds = format!("`{name}` holds {wrong}");
        refused(&|p| of(p).elem = wrong, &["tc_verify: ", &holds, "is needed"]);
        let more = |p: &mut Problem| {
            let tensor = of(p);
            let (shape, strides) = ([&[1], tensor.shape()].concat(), [&[1 << 20], tensor.strides()].concat());
            *tensor = reshaped(tensor, &shape, &strides);
        };
        refused(&more, &["tc_verify: ", &format!("`{name}` has shape [1, "), "axes are needed: ["]);
        let few = |p: &mut Problem| of(p).bytes = of(p).extent_bytes() as u64 - 1;
        refused(&few, &["tc_verify: ", &format!("`{name}` has "), " bytes; its shape"]);
        refused(&|p| of(p).ptr = 0, &["tc_verify: ", &format!("`{name}` is a null pointer")]);
        let starts = [format!("`{name}` starts at 0x"), format!("a multiple of {align} is needed")];
        refused(&|p| of(p).ptr += align / 2, &["tc_verify: ", &starts[0], &starts[1]]);
    }
    let channels = Switches { order: ConvOrder::ChannelMajor, ..convolved() };
    let words = ["`conv_state` starts at", "a multiple of 2 is needed"];
    refused_with(channels, &Options::default(), &|p| conv(p).state.ptr += 1, &words);
}

#[test]
fn sizes_that_do_not_fit() {
    for (name, of, ..) in ARGUMENTS.iter().filter(|(name, ..)| ["qkv", "raw_g", "out"].contains(name)) {
        let words = ["tc_verify: ", &format!("axis T of `{name}`"), "is 7; 8 is needed (T as in `raw_beta`)"];
        refused(&|p| *of(p) = resized(of(p), 0, 7), &words);
    }
    // Axis and size by argument: what is said of it.
    let cases: [(&str, usize, u64, [&str; 2]); 25] = [
        ("raw_beta", 1, 0, ["axis HV of `raw_beta`", "at least 1 is needed"]),
        ("raw_beta", 1, 1, ["axis D of `qkv`", "is 768; 384 is needed (D = (2 H + HV) 128, with H = HV"]),
        ("raw_g", 1, 1, ["axis HV of `raw_g`", "2 is needed (HV as in `raw_beta`)"]),
        ("raw_g", 2, 64, ["axis K of `raw_g`", "is 64; 128 is needed (K = V = 128 is the only head size)"]),
        ("out", 1, 1, ["axis HV of `out`", "2 is needed"]),
        ("out", 2, 64, ["axis V of `out`", "is 64; 128 is needed"]),
        ("dt_bias", 0, 1, ["axis HV of `dt_bias`", "2 is needed"]),
        ("dt_bias", 1, 64, ["axis K of `dt_bias`", "128 is needed"]),
        ("a_log", 0, 1, ["axis HV of `a_log`", "2 is needed"]),
        ("state", 1, 1, ["axis HV of `state`", "2 is needed"]),
        ("state", 2, 64, ["axis V of `state`", "is 64; 128 is needed (K = V = 128 is the only head size)"]),
        ("state", 3, 64, ["axis K of `state`", "is 64; 128 is needed (K = V = 128 is the only head size)"]),
        ("slots", 0, 1, ["axis B + 1 of `query_start`", "is 3; 2 is needed (one more than `slots` has)"]),
        ("query_start", 0, 2, ["axis B + 1 of `query_start`", "is 2; 3 is needed (one more than `slots` has)"]),
        ("accepted", 0, 1, ["axis B of `accepted`", "is 1; 2 is needed (B as in `slots`)"]),
        ("corr", 0, 2, ["axis rows of `kg`", "is 3; 2 is needed (rows as in `corr`)"]),
        ("corr", 2, 0, ["axis Q of `corr`", "at least 1 is needed"]),
        ("corr", 2, 17, ["axis Q of `corr`", "is 17; at most 16 is possible"]),
        ("kg", 2, 3, ["axis Q of `kg`", "is 3; 4 is needed (Q as in `corr`)"]),
        ("kg", 3, 128, ["axis 2 K of `kg`", "is 128; 256 is needed"]),
        ("conv_weight", 1, 3, ["axis 4 of `conv_weight`", "the convolution has 4 taps"]),
        ("conv_state", 0, 3, ["axis slots of `conv_state`", "(slots as in `state`"]),
        ("conv_state", 2, 5, ["axis Q + 2 of `conv_state`", "is 5; 6 is needed (two inputs more than `corr`"]),
        ("conv_state", 1, 384, ["axis D of `conv_state`", "is 384; 768 is needed (D = 3 HV 128"]),
        ("counters", 0, 1, ["axis HV of `counters`", "is 1; 2 is needed"]),
    ];
    for (name, axis, size, words) in cases {
        let (_, of, ..) = ARGUMENTS.iter().find(|(other, ..)| *other == name).expect("an argument");
        refused(&|p| *of(p) = resized(of(p), axis, size), &["tc_verify: ", words[0], words[1]]);
    }
    let one_row = |p: &mut Problem| (p.corr, p.kg) = (resized(&p.corr, 0, 1), resized(&p.kg, 0, 1));
    refused(&one_row, &["axis rows of `corr`", "is 1; at least 2 is needed (a row a request, B as in `slots`)"]);
    // Without a convolution heads may share q and k, but not in any way.
    let wide = |size: u64| {
        move |p: &mut Problem| {
            p.qkv.bytes *= 2;
            p.qkv = resized(&p.qkv, 1, size);
        }
    };
    let plain = Switches::plain(2, 2, 4);
    for (size, words) in [
        (640, ["axis D of `qkv`", "is 640; 768 is needed (D = (2 H + HV) 128"]),
        (256, ["axis D of `qkv`", "is 256; 768 is needed (D = (2 H + HV) 128"]),
        (700, ["axis D of `qkv`", "is 700; 768 is needed (D = (2 H + HV) 128"]),
        (1024, ["HV = 2 value heads over H = 3", "a positive multiple of H"]),
    ] {
        refused_with(plain, &Options::default(), &wide(size), &words);
    }
}

#[test]
fn layouts_that_do_not_fit() {
    let cases: [(&str, usize, u64, &str); 21] = [
        ("qkv", 1, 2, "a stride of 1 elements along D"),
        ("qkv", 0, 769, "a stride along T that is a multiple of 2 elements"),
        ("raw_g", 2, 2, "a stride of 1 elements along K"),
        ("raw_g", 1, 130, "a stride of 128 elements along HV"),
        ("raw_g", 0, 257, "a stride along T that is a multiple of 2 elements"),
        ("raw_beta", 1, 2, "a stride of 1 elements along HV"),
        ("out", 0, 128, "addresses of their own"),
        ("out", 0, 257, "a stride along T that is a multiple of 2 elements"),
        ("dt_bias", 0, 256, "a stride of 128 elements along HV"),
        ("state", 3, 2, "a stride of 1 elements along K"),
        ("state", 2, 130, "a stride of 128 elements along V"),
        ("state", 1, 64, "a stride of 16384 elements along HV"),
        ("state", 0, 32_772, "a stride along slots that is a multiple of 8 elements"),
        ("corr", 1, 513, "a stride along HV that is a multiple of 2 elements"),
        ("corr", 1, 256, "addresses of their own"),
        ("kg", 2, 258, "a stride of 256 elements along Q"),
        ("kg", 0, 0, "addresses of their own"),
        ("conv_weight", 0, 8, "a stride of 4 elements along D"),
        ("slots", 0, 0, "a stride of 1 elements along B"),
        ("query_start", 0, 2, "a stride of 1 elements along B + 1"),
        ("counters", 0, 2, "a stride of 1 elements along HV"),
    ];
    for (name, axis, stride, words) in cases {
        let (_, of, ..) = ARGUMENTS.iter().find(|(other, ..)| *other == name).expect("an argument");
        let longer = |p: &mut Problem| {
            of(p).bytes *= 2;
            *of(p) = restrided(of(p), axis, stride);
        };
        refused(&longer, &["tc_verify: ", &format!("`{name}` of shape"), words]);
    }
    let history = |strides: [u64; 3]| {
        move |p: &mut Problem| {
            let pool = conv(p).state;
            conv(p).state = reshaped(&pool, pool.shape(), &strides);
        }
    };
    let orders = "[Q + 2, D] (stride 1 along D) or [D, Q + 2] (stride 1 along Q + 2)";
    refused(&history([4608, 2, 1536]), &["`conv_state` of shape", orders]);
    refused(&history([4609, 1, 768]), &["`conv_state`", "a stride along slots that is a multiple of 2 elements"]);
    refused(&history([4608, 1, 767]), &["`conv_state`", "a stride along Q + 2 that is a multiple of 2 elements"]);
    refused(&history([4608, 1, 384]), &["`conv_state`", "addresses of their own"]);
    refused(&history([4608, 5, 1]), &["`conv_state`", "addresses of their own"]);
    // States of f32 are copied in pieces of four.
    let narrow = Switches { bf16_state: false, ..convolved() };
    let words = ["`state`", "a stride along slots that is a multiple of 4 elements"];
    refused_with(narrow, &Options::default(), &|p| p.state = restrided(&p.state, 0, 32_770), &words);
}

/// What is written shares memory with nothing.
#[test]
fn memory_that_is_shared() {
    for (at, (name, of, ..)) in ARGUMENTS.into_iter().take(WRITTEN).enumerate() {
        for (other, second, ..) in ARGUMENTS.into_iter().skip(at + 1) {
            let words =
                [format!("`{name}` at 0x"), format!("shares memory with `{other}` at"), "as it is written".into()];
            refused(&|p| second(p).ptr = of(p).ptr, &["tc_verify: ", &words[0], &words[1], &words[2]]);
        }
    }
}

#[test]
fn scalars_gates_and_variants() {
    refused(&|p| p.null = -2, &["`null` is -2", "-1 is needed, or 0"]);
    for bound in [0.5, -20.1, f32::NAN, f32::NEG_INFINITY, f32::INFINITY] {
        let words = ["tc_verify: ", &format!("a gate bounded by {bound} over Q = 4"), "from -80 / Q to 0 is needed"];
        refused(&|p| p.gate = Gate::Bounded { lower_bound: bound }, &words);
    }
    let long = Switches { window: 9, ..convolved() };
    let words = ["a softplus gate over Q = 9 tokens", "Q up to 8 is possible with it, to 16 with a bounded gate"];
    refused_with(long, &Options::default(), &|p| p.gate = Gate::Softplus, &words);
    for variant in Variant::all().filter(|v| v.early() || !fits(*v, &convolved())) {
        let options = Options { variant: Some(variant), ..Options::default() };
        refused_with(convolved(), &options, &|_| {}, &["tc_verify: variant `tc_verify", "it "]);
        if variant.heads() > 0 && variant.taps() == Some(Elem::BF16) && !variant.softplus() {
            let options = Options { pdl: true, stable_pools: true, ..options };
            let words = "it is for 12 heads and two rows or more, without gaps; the call has 2 heads";
            refused_with(convolved(), &options, &|_| {}, &[words]);
            let padded = Switches { heads: 12, padding: 8, ..convolved() };
            refused_with(padded, &options, &|_| {}, &["it is for 12 heads", "or rows that lie otherwise"]);
        }
    }
}

#[test]
fn nothing_to_do_is_no_launch() {
    let (executor, case) = (SimExecutor::default(), Plan::of(Switches { n_req: 0, ..convolved() }).draw(SEED));
    let call = Call::new(Device::simulator(&executor), &case).expect("memory");
    let results = call.run(&Options::default()).expect("nothing to do");
    assert!(results.conv == case.sample.conv && results.changed == 0);
    assert_eq!(executor.last_stats(), None);
}

/// A pool without a slot has no live one.
#[test]
fn an_empty_pool_makes_rows_of_zeros() {
    for order in [ConvOrder::TokenMajor, ConvOrder::ChannelMajor] {
        let (executor, case) = (SimExecutor::default(), Plan::of(Switches { order, ..convolved() }).draw(SEED));
        let mut call = Call::new(Device::simulator(&executor), &case).expect("memory");
        call.problem.state = resized(&call.problem.state, 0, 0);
        let pool = conv(&mut call.problem);
        pool.state = resized(&pool.state, 0, 0);
        let results = call.run(&Options::default()).expect("the call runs");
        assert!(results.out.iter().all(|v| v.to_bits() == 0) && results.corr.iter().all(|v| v.is_nan()));
        assert!(results.conv == case.sample.conv && results.changed == 0);
    }
}

/// Runs the call, changed, on the variants of both kernels that are written for it: three requests of up to four tokens.
#[track_caller]
fn defined(switches: Switches, what: &str, change: &dyn Fn(&mut Sample)) {
    let executor = SimExecutor::default();
    let mut case = Plan { counters: true, ..Plan::of(switches) }.draw(SEED);
    change(&mut case.sample);
    let variants: Vec<Variant> = Variant::all().filter(|v| v.heads() == 0 && fits(*v, &switches)).collect();
    let mut tallies: Tallies = variants.iter().map(|v| (v.desc().entry, Tally::default())).collect();
    on_variants(Device::simulator(&executor), &case, &variants, &mut tallies).unwrap_or_else(|e| panic!("{what}: {e}"));
    let hopper = switches.bf16_state;
    assert!(tallies.keys().any(|entry| entry.starts_with("tc_verify_portable__")) && variants[0].hopper() == hopper);
    for (entry, tally) in &tallies {
        assert_eq!(tally.problems, 1, "{entry}");
        for row in tally.rows(entry) {
            assert!(row.passes(), "{what}: {row:?}");
        }
    }
}

fn three() -> Switches {
    Switches { n_req: 3, heads: 1, ..convolved() }
}

/// A slot that is nobody's, wherever it stands; the null slot is 0 or there is none.
#[test]
fn slots_of_every_kind() {
    for (at, dead) in [-1, -2, i32::MIN, i32::MAX, 1_000_000].into_iter().enumerate() {
        let switches = Switches { null: -(at as i32 % 2), bf16_state: at % 3 < 2, ..three() };
        defined(switches, &format!("slot {dead}"), &|sample| sample.slot_of[at % 3] = dead);
    }
    let null = Switches { null: 0, ..three() };
    defined(null, "the null slot", &|sample| sample.slot_of[1] = 0);
    defined(three(), "past the pool", &|sample| sample.slot_of[2] = sample.slots as i32);
    defined(null, "nobody", &|sample| sample.slot_of.fill(0));
    // What only reads may be the same.
    defined(Switches { taps: None, ..three() }, "one slot", &|sample| sample.slot_of.fill(1));
}

/// Offsets that are out of order, outside the rows, or too far apart.
#[test]
fn offsets_of_every_kind() {
    const T: i32 = 12; // three requests of four tokens
    for (at, offsets) in [
        [4, 0, 4, 8],
        [4, 8, 0, 4],
        [12, 8, 4, 0],
        [0, 4, -1, 8],
        [-1, 4, 8, T],
        [i32::MIN, 4, i32::MAX, T],
        [i32::MAX, i32::MIN, 0, 4],
        [0, 4, 8, T + 1],
        [0, 4, 8, i32::MAX],
        [5, 5, 5, 5],
        [T, T, T, T],
        [0, 9, 9, T],
        [0, 0, T, T],
        [-4, 0, 1, 3],
    ]
    .into_iter()
    .enumerate()
    {
        let order = if at % 2 == 0 { ConvOrder::TokenMajor } else { ConvOrder::ChannelMajor };
        let switches = Switches { order, bf16_state: at % 3 < 2, ..three() };
        defined(switches, &format!("offsets {offsets:?}"), &|sample| {
            assert_eq!(sample.total, T as usize);
            sample.query_start = offsets.to_vec();
        });
    }
}

#[test]
fn counts_of_accepted_tokens_of_every_kind() {
    for (at, accepted) in [0, -3, i32::MIN, 4, 5, 17, i32::MAX].into_iter().enumerate() {
        let taps = Some(if at % 2 == 0 { TapType::Bf16 } else { TapType::F32 });
        let switches = Switches { taps, lower_bound: (at % 3 == 0).then_some(-5.0), ..three() };
        defined(switches, &format!("accepted {accepted}"), &|sample| sample.accepted[at % 3] = accepted);
    }
}

/// Any strength of a gate gives numbers, and the right ones.
#[test]
fn gates_of_every_strength() {
    for a_log in [f32::MAX, -f32::MAX, f32::INFINITY, f32::NEG_INFINITY, 100.0, 88.0, -100.0] {
        for lower_bound in [Some(-5.0), Some(-20.0), Some(0.0), None] {
            let switches = Switches { lower_bound, ..three() };
            defined(switches, &format!("a_log {a_log}, bound {lower_bound:?}"), &|sample| {
                sample.a_log = Some(vec![a_log]);
            });
        }
    }
}

/// NaN and infinities of a request reach no other one's results, whether a CTA takes them ahead of it or behind it, and rows
/// of a request without a slot are zeros whatever they would be made from.
#[test]
fn nan_stays_in_its_request() {
    let executor = SimExecutor::default().with_multiprocessors(1);
    let run = |case: &Case, variant: Variant| {
        let call = Call::new(Device::simulator(&executor), case).expect("memory");
        call.run(&options(variant)).unwrap_or_else(|error| panic!("{}: {error}", variant.desc().entry))
    };
    for (at, (taps, lower_bound)) in
        [(None, Some(-5.0)), (Some(TapType::Bf16), None), (Some(TapType::F32), Some(-5.0))].into_iter().enumerate()
    {
        // Rows lie behind each other: what a box of the last request has beyond it is the first one's.
        let switches = Switches { n_req: 9, taps, lower_bound, ..three() };
        let mut clean = Plan { counters: at % 2 == 0, ..Plan::of(switches) }.draw(SEED);
        let s = &mut clean.sample;
        (s.slot_of[4], s.query_start[6]) = (s.slots as i32, s.query_start[5] + 1);
        s.poison_strays();
        let mut spoilt = clean.clone();
        let value = [half::bf16::NAN, half::bf16::INFINITY, half::bf16::from_bits(0x7f81)][at];
        let (live, dead) = (2usize, 4usize);
        let t = &mut spoilt.sample;
        for bad in [live, dead] {
            let rows = t.query_start[bad] as usize..t.query_start[bad + 1] as usize;
            t.qkv[rows.start * t.qkv_pitch..rows.end * t.qkv_pitch].fill(value);
            t.raw_g[rows.start * t.g_pitch..rows.end * t.g_pitch].fill(value);
            t.raw_beta[rows.start * t.beta_pitch..rows.end * t.beta_pitch].fill(value);
        }
        let slot = t.slot_of[live] as usize;
        let FloatVec::Bf16(state) = &mut t.state else { panic!("a state of bf16") };
        state[slot * t.state_pitch..(slot + 1) * t.state_pitch].fill(value);
        if taps.is_some() {
            t.conv[slot * t.conv_pitch..(slot + 1) * t.conv_pitch].fill(value);
        }
        for variant in Variant::all().filter(|v| v.heads() == 0 && fits(*v, &switches)) {
            let (right, mut got, entry) = (run(&clean, variant), run(&spoilt, variant), variant.desc().entry);
            assert!(got.differing_bits(&right) > 0, "{entry}: not spoilt");
            let s = &spoilt.sample;
            let rows = s.query_start[live] as usize * s.out_pitch..s.query_start[live + 1] as usize * s.out_pitch;
            got.out[rows.clone()].copy_from_slice(&right.out[rows]);
            let records = switches.heads * switches.window * HEAD;
            let record = live * records..(live + 1) * records;
            got.corr[record.clone()].copy_from_slice(&right.corr[record.clone()]);
            let record = 2 * record.start..2 * record.end;
            got.kg[record.clone()].copy_from_slice(&right.kg[record]);
            if taps.is_some() {
                let history = slot * s.conv_pitch..(slot + 1) * s.conv_pitch;
                got.conv[history.clone()].copy_from_slice(&right.conv[history]);
            }
            assert_eq!(got.differing_bits(&right), 0, "{entry}");
            assert_eq!(got.changed, 0, "{entry}");
        }
    }
}
