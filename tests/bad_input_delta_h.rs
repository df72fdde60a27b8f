//! Calls of `delta_h` and of its schedule that must be refused: nothing is written, nothing is launched, and the words say what was
//! given and what is needed. And boundaries that only the device sees: nothing behind the first wrong one is processed, and the
//! status says why. On the simulator, which reports any access outside a buffer, for every kernel.

#[path = "common/tensors.rs"]
mod tensors;

use kda::checks::Device;
use kda::checks::delta_h::call::{Call, Results};
use kda::checks::delta_h::case::{Case, Plan};
use kda::checks::delta_h::judge::own_bits;
use kda::core::exec::Stream;
use kda::core::{Elem, TensorArg};
use kda::reference::delta_h::sample::{GateForm, PoolForm, Switches};
use kda::runtime::executor::sim::SimExecutor;
use kda::runtime::operators::delta_h::{Gate, Options, Problem, Schedule, Status, Variant, plan, schedule};
use tensors::{reshaped, resized, restrided};

const SEED: u64 = 13;
const LENGTHS: [usize; 4] = [100, 64, 0, 30];
/// A device for Hopper's kernels and one for the portable one.
const DEVICES: [(u8, u8); 2] = [(9, 0), (8, 0)];

fn switches() -> Switches {
    Switches { initial: PoolForm::Slots, final_state: PoolForm::Slots, ..Switches::plain(2) }
}

/// The plain variants: of each kernel, of each width.
fn whole_sequences() -> impl Iterator<Item = Variant> {
    Variant::all().filter(|v| !v.scalar() && !v.maps() && !v.split() && !v.v_first())
}

fn executor(capability: (u8, u8)) -> SimExecutor {
    SimExecutor::with_capability(Default::default(), capability)
}

/// The results of a call that has written nothing.
fn assert_untouched(results: &Results, why: &str) {
    assert!(results.h.iter().chain(&results.v_new).all(|v| v.to_bits() == u16::MAX), "h, v_new: {why}");
    assert!(results.final_state.bits().iter().all(|bits| *bits == u32::MAX), "final_state: {why}");
    assert!(results.words.iter().all(|word| *word == u32::MAX), "schedule: {why}");
    assert!(results.offsets.iter().all(|offset| *offset == -1), "chunk_offsets: {why}");
    assert_eq!(results.changed_inputs, 0, "{why}");
}

#[track_caller]
fn said(error: &str, words: &[&str]) {
    for word in words {
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(!error.contains("pitch") && !error.contains("_f32`") && !error.contains("||"), "in kernel words: {error}");
}

/// The call, spoilt, is refused with these words on any device, and has written nothing.
#[track_caller]
fn refused_as(case: &Case, options: &Options, spoil: &dyn Fn(&mut Problem), words: &[&str]) {
    for capability in DEVICES {
        let executor = executor(capability);
        let mut call = Call::new(Device::simulator(&executor), case).expect("memory");
        let good = call.problem;
        assert!(plan(&good, &executor, &Options::default()).is_ok(), "not good from the start");
        spoil(&mut call.problem);
        assert!(call.problem != good || options.variant.is_some(), "not spoilt");
        let error = call.enqueue(options, Stream::default()).expect_err("a refusal").to_string();
        said(&error, &[&["delta_h: "], words].concat());
        assert_eq!(executor.last_stats(), None, "launched: {error}");
        assert_untouched(&call.results().expect("results"), &error);
    }
}

#[track_caller]
fn refused(spoil: &dyn Fn(&mut Problem), words: &[&str]) {
    refused_as(&Plan::of(&LENGTHS, switches()).draw(SEED), &Options::default(), spoil, words);
}

/// The same of a schedule.
#[track_caller]
fn refused_schedule(spoil: &dyn Fn(&mut Schedule), words: &[&str]) {
    for capability in DEVICES {
        let (executor, case) = (executor(capability), Plan::of(&LENGTHS, switches()).draw(SEED));
        let mut call = Call::new(Device::simulator(&executor), &case).expect("memory");
        assert!(schedule::plan(&call.schedule, &executor).is_ok(), "not good from the start");
        spoil(&mut call.schedule);
        let error = call.enqueue_schedule(Stream::default()).expect_err("a refusal").to_string();
        said(&error, &[&["delta_h_schedule: "], words].concat());
        assert_eq!(executor.last_stats(), None, "launched: {error}");
        assert_untouched(&call.results().expect("results"), &error);
    }
}

/// A tensor argument: its name, where it is, the alignment it needs, and a type that it does not take.
type Argument = (&'static str, fn(&mut Problem) -> &mut TensorArg, u64, Elem);

/// With a step along the first axis that follows from its own.
fn stepped(tensor: &TensorArg, step: impl Fn(u64) -> u64) -> TensorArg {
    restrided(tensor, 0, step(tensor.strides()[0]))
}

fn gate(p: &mut Problem) -> &mut TensorArg {
    let (Gate::Cumulative(gate) | Gate::Decay(gate) | Gate::Scalar(gate)) = &mut p.gate;
    gate
}

fn arguments() -> Vec<Argument> {
    vec![
        ("kg", |p| &mut p.kg, 16, Elem::F16),
        ("w", |p| &mut p.w, 16, Elem::F32),
        ("u", |p| &mut p.u, 16, Elem::F16),
        ("gk", gate, 16, Elem::BF16),
        ("initial_state", |p| p.initial_state.as_mut().unwrap(), 16, Elem::F16),
        ("initial_slots", |p| p.initial_slots.as_mut().unwrap(), 4, Elem::I64),
        ("final_state", |p| p.final_state.as_mut().unwrap(), 16, Elem::F64),
        ("final_slots", |p| p.final_slots.as_mut().unwrap(), 4, Elem::U32),
        ("h", |p| p.h.as_mut().unwrap(), 16, Elem::F32),
        ("v_new", |p| p.v_new.as_mut().unwrap(), 16, Elem::F16),
        ("schedule", |p| &mut p.schedule, 16, Elem::I32),
    ]
}

#[test]
fn wrong_types_ranks_and_memory() {
    for (name, of, align, wrong) in arguments() {
        refused(&|p| of(p).elem = wrong, &[&format!("`{name}` holds {wrong}"), "is needed"]);
        let more = |p: &mut Problem| {
            let tensor = of(p);
            let (shape, strides) = ([&[1], tensor.shape()].concat(), [&[1 << 20], tensor.strides()].concat());
            *tensor = reshaped(tensor, &shape, &strides);
        };
        refused(&more, &[&format!("`{name}` has shape [1, "), "needed: ["]);
        let few = |p: &mut Problem| of(p).bytes = of(p).extent_bytes() as u64 - 1;
        refused(&few, &[&format!("`{name}` has "), " bytes; its shape"]);
        refused(&|p| of(p).ptr = 0, &[&format!("`{name}` is a null pointer")]);
        let starts = [format!("`{name}` starts at 0x"), format!("a multiple of {align} is needed")];
        refused(&|p| of(p).ptr += align / 2, &[&starts[0], &starts[1]]);
    }
}

#[test]
fn sizes_that_do_not_fit() {
    let why = "K = V = 128 is the only head size";
    for size in [64, 256] {
        let is = format!("is {size}; 128 is needed");
        refused(&|p| p.w = resized(&p.w, 2, size), &["axis K of `w`", &is, why]);
        refused(&|p| p.kg = resized(&p.kg, 2, size), &["axis K of `kg`", &is, why]);
        refused(&|p| p.u = resized(&p.u, 2, size), &["axis V of `u`", &is, why]);
        refused(&|p| *gate(p) = resized(gate(p), 2, size), &["axis K of `gk`", &is, why]);
        refused(&|p| p.v_new = p.v_new.map(|v| resized(&v, 2, size)), &["axis V of `v_new`", &is, why]);
        for (axis, name) in [(2, "K"), (3, "V")] {
            let state = |p: &mut Problem| p.initial_state = p.initial_state.map(|s| resized(&s, axis, size));
            refused(&state, &[&format!("axis {name} of `initial_state`"), &is, why]);
            let state = |p: &mut Problem| p.final_state = p.final_state.map(|s| resized(&s, axis, size));
            refused(&state, &[&format!("axis {name} of `final_state`"), &is, why]);
            let h = |p: &mut Problem| p.h = p.h.map(|h| resized(&h, axis, size));
            refused(&h, &[&format!("axis {name} of `h`"), &is, why]);
        }
    }
    refused(&|p| p.u = resized(&p.u, 0, 3), &["axis T of `u`", "T as in `w`"]);
    refused(&|p| p.kg = resized(&p.kg, 1, 1), &["axis HV of `kg`", "2 is needed (HV as in `w`"]);
    let slots = |p: &mut Problem| p.initial_slots = p.initial_slots.map(|s| resized(&s, 0, 3));
    refused(&slots, &["axis N of `initial_slots`", "4 is needed (N, the number of sequences)"]);
    // Room for any lengths, whatever these are.
    let short = |p: &mut Problem| p.h = p.h.map(|h| resized(&h, 0, p.batch().h_states() - 1));
    refused(&short, &["axis capacity of `h`", "at least ", "N = 4 sequences in T = "]);
    let short = |p: &mut Problem| p.schedule = resized(&p.schedule, 0, p.batch().schedule_words() - 1);
    refused(&short, &["axis words of `schedule`", "for any lengths"]);
}

#[test]
fn layouts_that_do_not_fit() {
    // Rows that copies of 16 bytes cannot take.
    for (name, of, ..) in arguments().into_iter().filter(|(name, ..)| ["kg", "w", "u", "v_new"].contains(name)) {
        let pitch = |p: &mut Problem| *of(p) = stepped(of(p), |step| step + 4);
        refused(&pitch, &[&format!("`{name}`"), "a stride along T that is a multiple of 8 elements"]);
        refused(&|p| *of(p) = restrided(of(p), 1, 136), &[&format!("`{name}`"), "a stride of 128 elements along HV"]);
        refused(&|p| *of(p) = restrided(of(p), 2, 2), &[&format!("`{name}`"), "a stride of 1 elements along "]);
    }
    refused(&|p| *gate(p) = restrided(gate(p), 0, 258), &["`gk`", "a multiple of 4 elements"]);
    for (name, of, ..) in
        arguments().into_iter().filter(|(name, ..)| ["h", "initial_state", "final_state"].contains(name))
    {
        let order = "[K, V] (strides 128 and 1) or [V, K] (strides 1 and 128)";
        refused(&|p| *of(p) = restrided(of(p), 2, 136), &[&format!("`{name}` of shape"), order]);
        refused(&|p| *of(p) = stepped(of(p), |step| step + 2), &[&format!("`{name}`"), "that is a multiple of"]);
    }
    for (name, of, ..) in arguments().into_iter().filter(|(name, ..)| ["h", "v_new", "final_state"].contains(name)) {
        let twice = |p: &mut Problem| *of(p) = stepped(of(p), |step| step / 2);
        refused(&twice, &[&format!("`{name}`"), "addresses of their own"]);
    }
    for (name, of, ..) in arguments().into_iter().filter(|(name, ..)| name.ends_with("_slots")) {
        refused(&|p| *of(p) = restrided(of(p), 0, 2), &[&format!("`{name}`"), "a stride of 1 elements along N"]);
    }
}

/// Where one tensor is the memory of another, only a pool may be.
#[test]
fn memory_that_is_shared() {
    for (output, written, ..) in
        arguments().into_iter().filter(|(name, ..)| ["h", "v_new", "final_state"].contains(name))
    {
        for (_, of, ..) in arguments().into_iter().filter(|(name, ..)| *name != output) {
            let share = |p: &mut Problem| {
                let at = of(p).ptr;
                // Its last 16 bytes are the other one's first.
                let tensor = written(p);
                tensor.ptr = at + 16 - tensor.bytes.next_multiple_of(16);
            };
            refused(&share, &["shares memory with", &format!("`{output}`")]);
        }
    }
    refused_schedule(&|s| s.workspace.ptr = s.cu_seqlens.ptr, &["`workspace`", "shares memory with `cu_seqlens`"]);
    let over = |s: &mut Schedule| s.chunk_offsets = Some(s.cu_seqlens);
    refused_schedule(&over, &["`chunk_offsets`", "shares memory with `cu_seqlens`"]);
}

#[test]
fn scalars_and_what_needs_what() {
    refused(&|p| p.null = -2, &["`null` is -2", "-1 is needed, or 0"]);
    refused(&|p| p.h_every = 0, &["`h_every` is 0; at least 1"]);
    refused(&|p| p.initial_state = None, &["`initial_state` is absent; `initial_slots` are slots of it"]);
    refused(&|p| p.final_state = None, &["`final_state` is absent; `final_slots` are slots of it"]);
    let nothing = |p: &mut Problem| (p.h, p.v_new, p.final_state, p.final_slots) = (None, None, None, None);
    refused(&nothing, &["one of `h`, `v_new` and `final_state` is needed"]);
    let scalar = Plan::of(&LENGTHS, Switches { gate: GateForm::Scalar, ..switches() }).draw(SEED);
    let heads = |p: &mut Problem| p.kg = resized(&p.kg, 1, 0);
    refused_as(&scalar, &Options::default(), &heads, &["HV = 2 value heads over H = 0"]);
}

#[test]
fn variants_that_are_for_something_else() {
    let case = Plan::of(&LENGTHS, switches()).draw(SEED);
    let mut seen = 0;
    for variant in Variant::all().filter(|v| v.scalar() || v.maps() || v.split() || v.v_first()) {
        let options = Options { variant: Some(variant), ..Options::default() };
        refused_as(
            &case,
            &options,
            &|_| {},
            &[&format!("variant `{}` cannot run this problem: it", variant.desc().entry)],
        );
        seen += 1;
    }
    assert!(seen > 10, "{seen}");
    // Steps that no tensor map describes: the kernels for Hopper are refused, the portable one takes them.
    let executor = executor((9, 0));
    let call = Call::new(Device::simulator(&executor), &case).expect("memory");
    let mut far = call.problem;
    let (rows, heads) = (far.w.shape()[0], far.w.shape()[1]);
    let shape = [rows, heads, 128];
    far.w = TensorArg::strided(1 << 60, u64::MAX, Elem::BF16, &shape, &[1 << 39, 128, 1]).expect("a tensor");
    let chosen = plan(&far, &executor, &Options::default()).expect("a plan");
    assert!(matches!(Variant::of(chosen.desc()), Some(Variant::Portable(_))), "{}", chosen.desc().entry);
    for hopper in whole_sequences().filter(|v| v.boxes()) {
        let options = Options { variant: Some(hopper), ..Options::default() };
        let error = plan(&far, &executor, &options).unwrap_err().to_string();
        said(&error, &["delta_h: variant", "outermost strides below 2^40 bytes, as `w` has not"]);
    }
    assert_eq!(executor.last_stats(), None);
}

#[test]
fn schedules_that_are_refused() {
    for (wrong, words) in [(Elem::U32, "holds u32"), (Elem::F32, "holds f32"), (Elem::U64, "holds u64")] {
        refused_schedule(&|s| s.cu_seqlens.elem = wrong, &["`cu_seqlens`", words, "is needed"]);
    }
    let wide = |s: &mut Schedule| s.chunk_offsets.iter_mut().for_each(|t| t.elem = Elem::I64);
    refused_schedule(&wide, &["`chunk_offsets` holds i64; i32 is needed"]);
    refused_schedule(&|s| s.cu_seqlens = resized(&s.cu_seqlens, 0, 0), &["axis N + 1 of `cu_seqlens`", "at least 1"]);
    let fewer = |s: &mut Schedule| s.chunk_offsets = s.chunk_offsets.map(|t| resized(&t, 0, 4));
    refused_schedule(&fewer, &["axis N + 1 of `chunk_offsets`", "is 4; 5 is needed (as in `cu_seqlens`)"]);
    refused_schedule(&|s| s.cu_seqlens = restrided(&s.cu_seqlens, 0, 2), &["`cu_seqlens`", "a stride of 1 elements"]);
    refused_schedule(&|s| s.cu_seqlens.ptr = 0, &["`cu_seqlens` is a null pointer"]);
    refused_schedule(&|s| s.workspace.ptr = 0, &["`workspace` is a null pointer"]);
    refused_schedule(&|s| s.workspace.ptr += 4, &["`workspace` starts at 0x", "a multiple of 16 is needed"]);
    refused_schedule(&|s| s.cu_seqlens.bytes -= 1, &["`cu_seqlens` has ", " bytes; its shape"]);
    let words = |s: &mut Schedule| s.workspace = resized(&s.workspace, 0, s.batch().schedule_words() - 1);
    refused_schedule(&words, &["axis words of `workspace`", "for any lengths"]);
    let least = |s: &mut Schedule| s.capacity = Some(s.batch().h_states() - 1);
    refused_schedule(&least, &["`capacity` is ", "at least ", "N = 4 sequences in T = "]);
    refused_schedule(&|s| s.h_every = 0, &["`h_every` is 0"]);
    refused_schedule(&|s| s.heads = 0, &["`heads` is 0"]);
    refused_schedule(&|s| s.rows = 1 << 31, &["`rows` is 2147483648", "rows are i32 coordinates"]);
}

/// Boundaries that are wrong from some place on, and what the status says.
fn wrong_boundaries(good: &[i64], rows: i64) -> Vec<(Vec<i64>, usize, &'static str)> {
    let with = |at: usize, value: i64| {
        let mut ends = good.to_vec();
        ends[at] = value;
        ends
    };
    vec![
        // Not in order.
        (with(1, good[2] + 7), 1, "out of order"),
        (with(2, good[1] - 7), 1, "out of order"),
        (with(4, good[3] - 1), 3, "out of order"),
        (with(0, -1), 0, "out of order"),
        (with(2, i64::from(i32::MIN)), 1, "out of order"),
        (with(4, i64::from(i32::MAX)), 3, "past the last row"),
        // Past T, with and without more chunks than there is room for.
        (with(4, rows + 1), 3, "past the last row"),
        (with(2, rows + 5000), 1, "chunk states do not fit"),
        (with(1, 1 << 30), 0, "past the last row"),
    ]
}

/// Nothing of the first wrong sequence and of those behind it is read or written, out of bounds or within; what lies ahead is
/// what it is without them.
#[test]
fn boundaries_that_only_the_device_sees() {
    for (capability, variant) in DEVICES.into_iter().flat_map(|d| whole_sequences().map(move |v| (d, v))) {
        // A Hopper runs its own kernels.
        if variant.boxes() != (capability == DEVICES[0]) {
            continue;
        }
        let options = Options { variant: Some(variant), ..Options::default() };
        for wide in [false, true] {
            let case = Plan::of(&LENGTHS, Switches { wide_boundaries: wide, ..switches() }).draw(SEED);
            let executor = executor(capability);
            let device = Device::simulator(&executor);
            for (ends, whole, words) in wrong_boundaries(&case.sample.cu_seqlens, case.sample.rows as i64) {
                // The same up to there, and empty sequences from there on.
                let mut prefix = case.clone();
                for (n, end) in prefix.sample.cu_seqlens.iter_mut().enumerate() {
                    *end = if whole == 0 { 0 } else { ends[n.min(whole)] };
                }
                let right = Call::new(device, &prefix).expect("memory").run(&options).expect("the call runs");
                let call = Call::new(device, &case).expect("memory");
                call.set_boundaries(&ends).expect("boundaries");
                // It checks what lies beside every buffer.
                let results = call.run(&options).unwrap_or_else(|error| panic!("{ends:?}: {error}"));
                let status = Status::read(&call.problem.schedule, &executor).expect("a status");
                assert!(!status.is_whole() && status.sequences as usize == whole, "{ends:?}: {status}");
                assert!(status.to_string().contains(words), "{ends:?}: {status}");
                assert_eq!(results.changed_inputs, 0, "{ends:?}");
                let mut untouched = results.clone();
                for n in 0..whole {
                    assert!(own_bits(&prefix, &results, n) == own_bits(&prefix, &right, n), "{ends:?}: sequence {n}");
                    forget(&prefix, &mut untouched, n);
                }
                assert!(untouched.h.iter().chain(&untouched.v_new).all(|v| v.to_bits() == u16::MAX), "{ends:?}");
                assert!(untouched.final_state.bits().iter().all(|bits| *bits == u32::MAX), "{ends:?}");
            }
        }
    }
}

/// Puts the poison back where a sequence that is processed writes.
fn forget(case: &Case, results: &mut Results, n: usize) {
    let p = case.sample.problem();
    let schedule = p.schedule();
    let (s, poison) = (&schedule.sequences[n], half::bf16::from_bits(u16::MAX));
    for at in s.h..schedule.chunk_offsets[n + 1] {
        results.h[p.h_at(at, 0)..][..p.hv * 128 * 128].fill(poison);
    }
    for row in s.rows.0..s.rows.1 {
        results.v_new[p.v_new_at(row, 0)..][..p.hv * 128].fill(poison);
    }
    if let (Some(slot), kda::reference::floats::FloatVec::F32(values)) = (p.write_slot(n), &mut results.final_state) {
        values[p.final_at(slot, 0)..][..p.hv * 128 * 128].fill(f32::from_bits(u32::MAX));
    }
}

#[test]
fn nothing_to_do_is_no_launch() {
    for capability in DEVICES {
        let (executor, case) = (executor(capability), Plan::of(&[], Switches::plain(2)).draw(SEED));
        let call = Call::new(Device::simulator(&executor), &case).expect("memory");
        call.enqueue(&Options::default(), Stream::default()).expect("nothing to do");
        assert_eq!(executor.last_stats(), None);
    }
}
