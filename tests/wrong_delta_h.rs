//! `delta_h` and its schedule with something wrong: a check must tell each of them from the right one, by an error beyond its
//! budget, by a bit or a word that is prescribed, or by the simulator's report.

use kda::checks::delta_h::call::{Call, Results};
use kda::checks::delta_h::case::{Case, Plan, walks_segments};
use kda::checks::delta_h::judge::{Expected, Tally, fits, h_order};
use kda::checks::delta_h::{problems, work};
use kda::checks::{Device, Extent, Measured};
use kda::core::exec::{Executor, Stream};
use kda::core::{Elem, KernelDesc, PreparedLaunch, TensorArg};
use kda::mutate::subject::{compile, compile_with_arrivals};
use kda::reference::delta_h::sample::{GateForm, PoolForm, Strength, Switches};
use kda::reference::layout::StateOrder;
use kda::reference::rng::Rng;
use kda::runtime::executor::sim::SimExecutor;
use kda::runtime::operators::delta_h::{Gate, Options, Problem, Variant, plan};
use kda_codegen::specialise::Arrivals;
use kda_kernels::delta_h_schedule::ScheduleVariant;
use kda_kernels::{SOURCES, Source};

const SEED: u64 = 2;

/// The problems of a quick check, and slots of every kind that is not live.
fn cases() -> Vec<Case> {
    let slots = Switches { initial: PoolForm::Slots, final_state: PoolForm::Slots, null: 0, ..Switches::plain(1) };
    let mut dead = Plan::of(&[30, 70, 0, 64], slots).draw(SEED);
    for (map, count) in [
        (&mut dead.sample.initial_slots, dead.sample.initial_count),
        (&mut dead.sample.final_slots, dead.sample.final_count),
    ] {
        let map = map.as_mut().expect("slots");
        map[..3].copy_from_slice(&[0, count as i32, -1]);
    }
    let mut first = Plan::of(&[70, 70], Switches { has_initial: true, ..Switches::plain(1) }).draw(SEED);
    first.sample.has_initial = Some(vec![1, 0]);
    let slow = Switches { strength: Strength::None, beta: 0.1, ..slots };
    let segments = [false, true].map(|in_place| Plan::cut(&[3100, 40], Switches { in_place, ..slow }).draw(SEED));
    // More items than a grid has CTAs.
    let rounds = Plan::of(&[3; 70], Switches::plain(1)).draw(SEED);
    let drawn = problems::few().into_iter().enumerate().map(|(at, plan)| plan.draw(SEED + at as u64));
    drawn.chain([dead, first, rounds]).chain(segments).collect()
}

/// The variants for Hopper.
fn hopper() -> impl Iterator<Item = Variant> {
    Variant::all().filter(|variant| variant.boxes())
}

/// The cases that a variant runs, in its order, with what is right.
fn own(variant: Variant, capability: (u8, u8)) -> Vec<(Case, Expected)> {
    cases()
        .into_iter()
        .filter(|case| fits(variant, case, capability))
        .enumerate()
        .map(|(at, case)| {
            let order = if at % 2 == 0 { StateOrder::KFirst } else { StateOrder::VFirst };
            let case = case.in_orders(order, h_order(variant));
            let expected = Expected::of(&case).expect("the golden model runs");
            (case, expected)
        })
        .collect()
}

/// Runs a case with another kernel in the place of the one of the same name.
fn run(variant: Variant, instead: &'static KernelDesc, case: &Case) -> Result<Results, String> {
    run_on(SimExecutor::default(), variant, instead, case)
}

fn run_on(
    executor: SimExecutor,
    variant: Variant,
    instead: &'static KernelDesc,
    case: &Case,
) -> Result<Results, String> {
    let call = Call::new(Device::simulator(&executor), case).map_err(|e| e.to_string())?;
    call.enqueue_schedule(Stream::default()).map_err(|e| e.to_string())?;
    let maps = Variant::all().find(|v| v.maps() && v.desc().entry == instead.entry);
    let options = Options { variant: Some(variant), maps, pdl: true };
    let planned = plan(&call.problem, &executor, &options).map_err(|e| e.to_string())?;
    for launch in planned.launches().iter().filter(|launch| !launch.is_empty()) {
        let desc = if launch.desc.entry == instead.entry { instead } else { launch.desc };
        let launch = PreparedLaunch { desc, ..launch.clone() };
        // SAFETY: the simulator touches no host memory; the buffers of the call outlive the launch.
        unsafe { executor.launch(&launch, Stream::default()) }.map_err(|e| e.to_string())?;
    }
    call.results().map_err(|e| e.to_string())
}

fn passes(results: &Results, expected: &Expected) -> bool {
    let mut tally = Tally::default();
    tally.judge(results, expected).expect("a valid call");
    tally.rows("").iter().all(Measured::passes)
}

/// A kernel of its family's source, or of the libraries that it uses, with one text replaced.
fn changed(desc: &'static KernelDesc, family: &str, from: &str, to: &str) -> &'static KernelDesc {
    let source = kda_kernels::SOURCES.into_iter().find(|source| source.family == family).expect("the source");
    let texts = || source.libraries.iter().chain([&source.text]);
    assert!(texts().any(|text| text.contains(from)), "the source of {family} has no `{from}`");
    let libraries: Vec<&str> = source.libraries.iter().map(|text| &*text.replace(from, to).leak()).collect();
    let source = Source { libraries: libraries.leak(), ..source };
    let compiled = compile(desc, &source, &source.text.replace(from, to));
    let compiled = compiled.unwrap_or_else(|errors| panic!("`{from}` -> `{to}`: {errors:?}"));
    let (isa, shared_bytes, pdl) = (compiled.isa, compiled.shared_bytes, compiled.pdl);
    KernelDesc { isa, shared_bytes, pdl, ..*desc }.with_text(compiled.ptx)
}

/// Every replaced text of a kernel is noticed in a call that a variant walks, and the kernel itself is right.
#[track_caller]
fn each_is_noticed(walks: Variant, kernel: &'static KernelDesc, changes: &[(&str, &str)]) {
    let capability = SimExecutor::default().compute_capability();
    let cases = own(walks, capability);
    let right = |desc: &'static KernelDesc| {
        cases.iter().all(|(case, expected)| run(walks, desc, case).is_ok_and(|results| passes(&results, expected)))
    };
    assert!(right(kernel), "{} itself", kernel.entry);
    let survivors: Vec<_> =
        changes.iter().filter(|(from, to)| right(changed(kernel, kernel.family, from, to))).collect();
    assert!(survivors.is_empty(), "{}: {survivors:#?}", kernel.entry);
}

fn variant(own: impl Fn(&Variant) -> bool) -> Variant {
    hopper().find(own).expect("the variant exists")
}

#[test]
fn a_check_tells_wrong_recurrences() {
    let whole = |vs: u32| variant(|v| !v.maps() && !walks_segments(*v) && v.vs() == vs && !v.scalar() && !v.v_first());
    let wide = whole(64);
    each_is_noticed(
        wide,
        wide.desc(),
        &[
            ("select(decays, row, ex2_approx(row))", "row"),
            ("select(decays, row, ex2_approx(row))", "ex2_approx(row)"),
            ("select(t < count, e, 0.0)", "e"),
            ("let mut x = Acc::load_t(first.u);", "let mut x = Acc::<f32, VS, BT>::zero();"),
            ("has_initial, n, slots_in, null)", "has_initial, n, slots_in, null - 1)"),
            ("has_initial, n, slots_in, null)", "has_initial, n, slots_in + 1, null)"),
            ("final_slots, n, slots_out, null)", "final_slots, n, slots_out, null - 1)"),
            ("final_slots, n, slots_out, null)", "final_slots, n, slots_out + 1, null)"),
            ("states::wanted_slot(initial_slots, has_initial, n,", "states::slot_of(initial_slots, n,"),
            ("has.at([n]).load() as u32 != 0", "has.at([n]).load() as u32 == 0"),
            ("skipped + 1 == every", "skipped + 2 == every"),
            ("let cut = last && end - row < BT;", "let cut = false;"),
            ("states::steps(final_k_first)", "states::steps(false)"),
            ("states::steps(initial_k_first)", "states::steps(true)"),
            ("bf16::rn(pair[0])", "bf16::rn(pair[1])"),
            ("head / per_key_head", "0 * head"),
            ("x = Acc::of(next_u);", "x = Acc::<f32, VS, BT>::zero();"),
            ("load_t(wu_slot.u, [0, strip])", "load_t(wu_slot.u, [0, 0])"),
            ("[lane % 2 * 2.., lane / 2 * 2..]", "[lane % 2 * 2.., lane / 4 * 4..]"),
            ("i in (16 * first + tid..16 * 64)", "i in (16 * first + 16 + tid..16 * 64)"),
            ("at += select(round, 1, 0);", "at += 1;"),
            ("bulk::wait_read::<1>();", "bulk::wait_read::<2>();"),
            // Items of the persistent loops.
            ("- 1 - (trip - first), trip)", "- 1 - (trip - first), trip - select(trip == 1, 1, 0))"),
            ("- 1 - (trip - first), trip)", "- (trip - first), trip)"),
            ("min(items - first, nctaid.x)", "nctaid.x"),
        ],
    );
    let narrow = whole(16);
    each_is_noticed(
        narrow,
        narrow.desc(),
        &[
            ("select(decays, row, ex2_approx(row))", "row"),
            ("select(t < count, e, 0.0)", "e"),
            ("[row, row + 8, row + 64, row + 72]", "[row, row + 8, row, row + 8]"),
            ("has_initial, n, slots_in, null)", "has_initial, n, slots_in, null - 1)"),
            ("final_slots, n, slots_out, null)", "final_slots, n, slots_out + 1, null)"),
            ("let first = v0 * v_step + 64 * k_step;", "let first = v0 * v_step;"),
            ("v0, final_k_first, low, high)", "v0, false, low, high)"),
            ("v0, initial_k_first)", "v0, true)"),
            ("let cut = last && end - row < BT;", "let cut = false;"),
            ("head / per_key_head", "0 * head"),
            ("x = Acc::of(u);", "x = Acc::<f32, BT, VS>::zero();"),
            ("let strip = 16 * warp;", "let strip = 0;"),
            ("halves::scale(&mut high, decay);", ""),
            ("i in (16 * first + tid..16 * 64)", "i in (16 * first + 16 + tid..16 * 64)"),
            ("at += select(round, 1, 0);", "at += 1;"),
            ("bulk::wait_read::<1>();", "bulk::wait_read::<2>();"),
        ],
    );
    let turned = variant(|v| v.vs() == 32 && v.v_first() && !v.scalar() && !walks_segments(*v));
    each_is_noticed(
        turned,
        turned.desc(),
        &[
            ("round_to::<V_FIRST, 0, VS>(low", "round_to::<V_FIRST, 64, VS>(low"),
            ("if const { V_FIRST } { (v0, 0) }", "if const { V_FIRST } { (0, 0) }"),
        ],
    );
}

/// Every lane may arrive for itself; barriers that wait for one more let nobody go on.
#[test]
fn every_lane_may_arrive() {
    for walks in hopper().filter(|v| !v.maps()) {
        let source = SOURCES.iter().find(|source| source.family == walks.desc().family).expect("the source");
        let compiled = compile_with_arrivals(walks.desc(), source, source.text, Arrivals::Lane);
        let compiled = compiled.unwrap_or_else(|errors| panic!("{}: {errors:?}", walks.desc().entry));
        let with = |ptx: String| {
            let (isa, shared_bytes, pdl) = (compiled.isa, compiled.shared_bytes, compiled.pdl);
            KernelDesc { isa, shared_bytes, pdl, ..*walks.desc() }.with_text(ptx)
        };
        let capability = SimExecutor::default().compute_capability();
        let cases = own(walks, capability);
        let right = |desc: &'static KernelDesc| {
            cases.iter().all(|(case, expected)| run(walks, desc, case).is_ok_and(|results| passes(&results, expected)))
        };
        assert!(right(with(compiled.ptx.clone())), "{}", walks.desc().entry);
        let one_more = |line: &str| match line.contains("mbarrier.init") {
            true => line.replace(", 128;", ", 129;"),
            false => line.into(),
        };
        let more: Vec<String> = compiled.ptx.lines().map(one_more).collect();
        let more = more.join("\n");
        assert!(more.contains(", 129;"), "no barrier of the four warps");
        assert!(!right(with(more)), "{}", walks.desc().entry);
    }
}

#[test]
fn a_check_tells_wrong_scalar_gates() {
    let scalar = |vs: u32| variant(|v| v.vs() == vs && v.scalar() && v.v_first());
    let narrow = scalar(32);
    each_is_noticed(
        narrow,
        narrow.desc(),
        &[
            ("select(row + t < end, ex2_approx(last - mine[i]), 0.0)", "ex2_approx(last)"),
            ("min(end - row, BT) - 1", "BT - 1"),
            ("row0 + c * BT, end, head", "row0, end, head"),
            ("row + work::AHEAD * BT, end", "row + BT, end"),
            ("copy_async_if(row + t < end, gate", "copy_async_if(true, gate"),
            ("to.factors[[DECAY]] = ex2_approx(last)", "to.factors[[DECAY]] = ex2_approx(0.0 - last)"),
            ("if const { SCALAR } { gated } else { v }", "v"),
            ("scale(&mut x, [factors[0], factors[1]]);", "scale(&mut x, [factors[1], factors[0]]);"),
        ],
    );
    let scalar = scalar(64);
    each_is_noticed(
        scalar,
        scalar.desc(),
        &[
            ("select(row + t < end, ex2_approx(last - mine[i]), 0.0)", "ex2_approx(last)"),
            ("min(end - row, BT) - 1", "BT - 1"),
            ("row0 + c * BT, end, head", "row0, end, head"),
            ("row + work::AHEAD * BT, end", "row + BT, end"),
            ("copy_async_if(row + t < end, gate", "copy_async_if(true, gate"),
            ("to.factors[[0, DECAY]] = ex2_approx(last)", "to.factors[[0, DECAY]] = ex2_approx(0.0 - last)"),
            ("head / per_key_head", "head"),
            ("[t % 8 / 2, t / 8 * 2 + t % 2]", "[t / 16, t % 16]"),
        ],
    );
}

/// CTAs that do several items one behind the other, of more and of fewer chunks than gates are copied ahead.
#[test]
fn scalar_gates_take_turns() {
    let scalar = Switches { gate: GateForm::Scalar, hv: 2, ..Switches::plain(1) };
    let case = Plan::of(&[1100, 20, 700, 0, 64], scalar).draw(SEED);
    for walks in hopper().filter(|v| v.scalar()) {
        let case = case.in_orders(StateOrder::KFirst, h_order(walks));
        let expected = Expected::of(&case).expect("the golden model runs");
        let executor = SimExecutor::default().with_multiprocessors(2);
        let results = run_on(executor, walks, walks.desc(), &case).expect("it runs");
        assert!(passes(&results, &expected), "{}", walks.desc().entry);
    }
}

#[test]
fn a_check_tells_wrong_segments() {
    let fold = variant(|v| walks_segments(*v) && !v.v_first());
    each_is_noticed(
        fold,
        fold.desc(),
        &[
            ("h0 + first_chunk / every", "h0"),
            ("max(segment_of(kind), 1) - 1", "kind & 0"),
            ("map0 + 1 + i, head, v0 * K..", "map0 + i, head, v0 * K.."),
            ("map0 + 1 + i, head, v0 * K + 64 * VS..", "map0 + 1 + i, head, v0 * K.."),
            ("map0 + 1 + i, head, part / 2", "map0 + i, head, part / 2"),
            ("head, part / 2, part % 2 * 64", "head, 0, part % 2 * 64"),
            ("low.fragment() + b_low", "low.fragment()"),
            ("high.mma(slot.kg, rounded.t());", ""),
            ("low.mma(slot.kg, rounded.t());", ""),
            ("low.mma(held.kg, left_over.t());", ""),
            ("high.mma(slot.kg, left_over.t());", ""),
            ("select(later, work::LATER, work::ENTRIES)", "work::ENTRIES"),
            ("if segment > 0 {", "if segment > 1 {"),
            ("affine_b.at([map0, head, v0 * K..]), low)", "affine_b.at([map0, head, v0 * K..]), high)"),
        ],
    );
    for maps in hopper().filter(|v| v.maps()) {
        let changes = [
            ("select(v0 + v == k, 1.0, 0.0)", "select(v0 + v == k, 0.5, 0.0)"),
            ("select(identity, 0.0, e)", "e"),
            ("head, 1, 0, v0], left_over", "head, 1, 0, v0], rounded"),
            ("image.at([64 * 32..]), high.columns(v..v + 32)", "image.at([64 * 32..]), low.columns(v..v + 32)"),
            ("(v0 + v) * K..", "v * K.."),
            ("(v0 + v) * K..", "v0 * K.."),
        ];
        // With one image a slice the last is no change.
        let count = if maps.vs() > 32 { changes.len() } else { changes.len() - 1 };
        each_is_noticed(fold, maps.desc(), &changes[..count]);
    }
}

/// CTAs that do several maps and segments one behind the other: what one leaves in shared memory is another's.
#[test]
fn a_check_tells_wrong_turns_of_segments() {
    let slots = Switches { initial: PoolForm::Slots, final_state: PoolForm::Slots, ..Switches::plain(1) };
    let slow = Switches { strength: Strength::None, beta: 0.1, ..slots };
    let case = Plan::cut(&[2600, 40, 2500], slow).draw(SEED);
    let fold = variant(|v| walks_segments(*v) && !v.v_first());
    let case = case.in_orders(StateOrder::KFirst, h_order(fold));
    let expected = Expected::of(&case).expect("the golden model runs");
    let right = |desc: &'static KernelDesc| {
        let executor = SimExecutor::default().with_multiprocessors(3);
        run_on(executor, fold, desc, &case).is_ok_and(|results| passes(&results, &expected))
    };
    assert!(right(fold.desc()));
    let left = "bulk::wait_read::<0>();\n                    }\n                    role_sync();";
    for maps in hopper().filter(|v| v.maps()) {
        assert!(right(maps.desc()));
        for to in ["bulk::wait_read::<0>();\n                    }", "}\n                    role_sync();"] {
            let changed = changed(maps.desc(), maps.desc().family, left, to);
            assert!(!right(changed), "{}: `{left}` -> `{to}`", maps.desc().entry);
        }
    }
}

#[test]
fn a_check_tells_wrong_schedules() {
    let batches = work::batches(Extent::Quick, &mut Rng::new(SEED));
    let executor = SimExecutor::default();
    for variant in ScheduleVariant::ALL {
        let right = |desc: &'static KernelDesc| {
            let own = batches.iter().filter(|asked| asked.wide == (variant.index_() == Elem::I64));
            own.into_iter()
                .all(|asked| asked.run_as(Device::simulator(&executor), variant, desc).is_ok_and(|wrong| wrong == 0))
        };
        assert!(right(variant.desc()), "{} itself", variant.desc().entry);
        let changes = [
            ("parts < fewest, 1, parts", "parts < 2, 1, parts"),
            ("to - from > longest", "to - from >= longest"),
            ("place_of(first_end) } else", "place_of(chunks) } else"),
            ("!disorder && to > rows, PAST_ROWS", "!disorder && to > rows + 1, PAST_ROWS"),
            ("|| to < from", "|| to <= from"),
            ("at[1] + mine[1] > capacity", "at[1] + mine[1] >= capacity"),
            ("at[2] + mine[2] > most_segments", "at[2] + mine[2] > most_segments + 1"),
            ("chunks / every + select(chunks % every > 0, 1, 0)", "(chunks + every - 1) / every"),
            ("chunks / every + select(chunks % every > 0, 1, 0)", "chunks / every"),
            ("share * ahead + rest * ahead / shares", "share * ahead"),
            ("ahead - (INNER - LAST)", "ahead"),
            ("later_list - work::ENTRY * stop", "later_list"),
            ("let kind = s | parts << 8;", "let kind = s;"),
            ("(if n < stop { at[1] } else { all[1] })", "at[1]"),
            ("255 - select(chunks < 128, chunks,", "select(chunks < 128, chunks,"),
            ("(at[2] - 2 * at[3])", "(at[2] - at[3])"),
            ("stop = min(stop, end);", "stop = end;"),
        ];
        let survivors: Vec<_> =
            changes.iter().filter(|(from, to)| right(changed(variant.desc(), "delta_h_schedule", from, to))).collect();
        assert!(survivors.is_empty(), "{}: {survivors:#?}", variant.desc().entry);
    }
}

/// What spoils a call.
type Spoil = fn(&mut Problem);

fn exchanged(arg: TensorArg) -> TensorArg {
    let s = arg.strides();
    TensorArg::strided(arg.ptr, arg.bytes, arg.elem, arg.shape(), &[s[0], s[1], s[3], s[2]]).expect("a tensor")
}

#[test]
fn a_check_tells_wrong_arguments() {
    let slots = Switches { initial: PoolForm::Slots, final_state: PoolForm::Slots, ..Switches::plain(2) };
    let mut case = Plan::of(&[70, 130, 64], Switches { has_initial: true, ..slots }).draw(SEED);
    case.sample.has_initial = Some(vec![1, 0, 1]);
    let expected = Expected::of(&case).expect("the golden model runs");
    let wrong: [(&str, Spoil); 13] = [
        ("h_every", |p| p.h_every = 2),
        ("initial_slots", |p| p.initial_slots = p.final_slots),
        ("final_slots", |p| p.final_slots = p.initial_slots),
        ("no flags", |p| p.has_initial = None),
        ("no initial state", |p| (p.initial_state, p.initial_slots, p.has_initial) = (None, None, None)),
        ("kg and w", |p| std::mem::swap(&mut p.kg, &mut p.w)),
        ("u", |p| p.u = p.w),
        ("gates as decays", |p| {
            if let Gate::Cumulative(gk) = p.gate {
                p.gate = Gate::Decay(gk);
            }
        }),
        ("the order of initial states", |p| p.initial_state = p.initial_state.map(exchanged)),
        ("the order of final states", |p| p.final_state = p.final_state.map(exchanged)),
        ("the order of h", |p| p.h = p.h.map(exchanged)),
        ("no h", |p| p.h = None),
        ("no v_new", |p| p.v_new = None),
    ];
    let outcome = |spoil: Spoil| {
        let executor = SimExecutor::default();
        let mut call = Call::new(Device::simulator(&executor), &case).expect("memory");
        spoil(&mut call.problem);
        call.run(&Options::default()).map_err(|cause| cause.to_string())
    };
    assert!(passes(&outcome(|_| ()).expect("it runs"), &expected));
    for (what, spoil) in wrong {
        match outcome(spoil) {
            Ok(results) => assert!(!passes(&results, &expected), "{what}"),
            Err(report) => assert!(report.contains("error[KDA3"), "{what}: {report}"),
        }
    }
}

/// Each kind of stray write counts, and each wrong value.
#[test]
fn stray_writes_and_wrong_values_are_counted() {
    let slots = Switches { initial: PoolForm::Slots, final_state: PoolForm::Slots, padding: 1, ..Switches::plain(1) };
    let case = Plan::of(&[70, 0, 20], Switches { spare_rows: 3, spare_chunks: 2, ..slots }).draw(SEED);
    let expected = Expected::of(&case).expect("the golden model runs");
    let executor = SimExecutor::default();
    let right =
        Call::new(Device::simulator(&executor), &case).expect("memory").run(&Options::default()).expect("it runs");
    assert!(passes(&right, &expected));
    let p = case.sample.problem();
    let one = half::bf16::ONE;
    let fails = |what: &str, spoil: &dyn Fn(&mut Results)| {
        let mut wrong = right.clone();
        spoil(&mut wrong);
        assert!(!passes(&wrong, &expected), "{what}");
    };
    fails("a row past the last", &|r| r.v_new[p.v_new_at(90, 0)] = one);
    fails("the gap behind a row", &|r| r.v_new[p.v_new_at(5, 0) + 128] = one);
    fails("a value of a row", &|r| r.v_new[p.v_new_at(69, 0) + 127] = half::bf16::from_f32(30.0));
    fails("a chunk state past the active ones", &|r| r.h[p.h_at(3, 0)] = one);
    fails("the gap behind a chunk state", &|r| r.h[p.h_at(1, 0) - 1] = one);
    fails("a chunk state", &|r| r.h[p.h_at(1, 0) + 77] = half::bf16::from_f32(30.0));
    let live: Vec<usize> = (0..3).filter_map(|n| p.write_slot(n)).collect();
    let spare = (0..case.sample.final_count).find(|slot| !live.contains(slot)).expect("a spare slot");
    let state = |r: &mut Results, at: usize| match &mut r.final_state {
        kda::reference::floats::FloatVec::F32(values) => values[at] += 1.0,
        kda::reference::floats::FloatVec::Bf16(_) => panic!("states of fp32"),
    };
    fails("a final state", &|r| state(r, p.final_at(live[0], 0)));
    let empty = p.final_at(p.write_slot(1).expect("a live slot"), 0);
    fails("the state of the empty sequence", &|r| match &mut r.final_state {
        kda::reference::floats::FloatVec::F32(values) => values[empty] = f32::from_bits(values[empty].to_bits() ^ 1),
        kda::reference::floats::FloatVec::Bf16(_) => panic!("states of fp32"),
    });
    fails("a slot that is nobody's", &|r| match &mut r.final_state {
        kda::reference::floats::FloatVec::F32(values) => values[p.final_at(spare, 0)] = 0.0,
        kda::reference::floats::FloatVec::Bf16(_) => panic!("states of fp32"),
    });
    fails("an input", &|r| r.changed_inputs = 1);
    fails("a chunk offset", &|r| r.offsets[1] += 1);
    fails("the status", &|r| r.words[3] = 1);
}
