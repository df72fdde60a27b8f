//! `tc_verify` with something wrong about its protocol or its memory: a barrier, a wait, the next item, a guard, a row. A check
//! must tell each from the right kernel, by an error beyond its budget, by a bit that is prescribed, or by the simulator's
//! report. What is wrong about the maths is in the code generator's tests.

use kda::checks::tc_verify::call::{Call, Results};
use kda::checks::tc_verify::case::{Case, Plan, options};
use kda::checks::tc_verify::judge::{Expected, Tally};
use kda::checks::{Device, Measured};
use kda::core::exec::{Executor, Stream};
use kda::core::{KernelDesc, PreparedLaunch};
use kda::mutate::subject::compile;
use kda::reference::conv::TapType;
use kda::reference::tc_verify::sample::Switches;
use kda::runtime::executor::sim::SimExecutor;
use kda::runtime::operators::tc_verify::{Variant, plan};
use kda_kernels::Source;

const SEED: u64 = 3;

/// More requests than there are CTAs, of every length and with slots and metadata of every kind, dense and not.
fn cases() -> Vec<Case> {
    let plain = Switches { taps: Some(TapType::Bf16), ..Switches::plain(7, 2, 5) };
    let mixed = Switches { ragged: true, nulls: true, misfits: true, null: 0, padding: 8, ..plain };
    let drawn = |switches, counters, seed| Plan { counters, ..Plan::of(switches) }.draw(SEED + seed);
    // Two live requests, one of a slot that is null, one past the pool, and three without tokens.
    let mut offsets = drawn(Switches { null: 0, ..plain }, false, 0);
    let s = &mut offsets.sample;
    s.query_start = vec![10, 15, 8, 10, s.total as i32 + 1, 3, 5, 8];
    (s.slot_of[0], s.slot_of[2], s.accepted[5], s.accepted[6]) = (0, s.slots as i32, 6, 0);
    s.poison_strays();
    // Whole windows of the most tokens that there are.
    let whole = Switches { window: 8, ..plain };
    vec![offsets, drawn(plain, true, 1), drawn(mixed, true, 2), drawn(mixed, false, 3), drawn(whole, true, 4)]
}

/// Runs a case with another kernel in the place of a variant's, on one multiprocessor.
fn run(variant: Variant, instead: &'static KernelDesc, case: &Case) -> Result<Results, String> {
    let executor = SimExecutor::default().with_multiprocessors(1);
    let call = Call::new(Device::simulator(&executor), case).map_err(|e| e.to_string())?;
    let planned = plan(&call.problem, &executor, &options(variant)).map_err(|e| e.to_string())?;
    let launch = PreparedLaunch { desc: instead, ..planned.prepared().clone() };
    // SAFETY: the simulator touches no host memory; the buffers of the call outlive the launch.
    unsafe { executor.launch(&launch, Stream::default()) }.map_err(|e| e.to_string())?;
    call.results().map_err(|e| e.to_string())
}

fn passes(results: &Results, expected: &Expected) -> bool {
    let mut tally = Tally::default();
    tally.judge(results, expected);
    tally.rows("").iter().all(Measured::passes)
}

/// A kernel of its family's source, or of the libraries that it uses, with one text replaced.
fn changed(desc: &'static KernelDesc, from: &str, to: &str) -> &'static KernelDesc {
    let source = kda_kernels::SOURCES.into_iter().find(|source| source.family == desc.family).expect("the source");
    let texts = || source.libraries.iter().chain([&source.text]);
    assert!(texts().any(|text| text.contains(from)), "the source of {} has no `{from}`", desc.family);
    let libraries: Vec<&str> = source.libraries.iter().map(|text| &*text.replace(from, to).leak()).collect();
    let source = Source { libraries: libraries.leak(), ..source };
    let compiled = compile(desc, &source, &source.text.replace(from, to));
    let compiled = compiled.unwrap_or_else(|errors| panic!("`{from}` -> `{to}`: {errors:?}"));
    let (isa, shared_bytes, pdl) = (compiled.isa, compiled.shared_bytes, compiled.pdl);
    KernelDesc { isa, shared_bytes, pdl, ..*desc }.with_text(compiled.ptx)
}

/// Every replaced text of a variant is noticed in a call, and the variant itself is right.
#[track_caller]
fn each_is_noticed(entry: &str, changes: &[(&str, &str)]) {
    let variant = Variant::all().find(|v| v.desc().entry == entry).expect("the variant exists");
    let cases = cases();
    let expected: Vec<Expected> = cases.iter().map(|case| Expected::of(case).expect("the golden model runs")).collect();
    let right = |desc: &'static KernelDesc| {
        let mut pairs = cases.iter().zip(&expected);
        pairs.all(|(case, expected)| run(variant, desc, case).is_ok_and(|results| passes(&results, expected)))
    };
    for (case, expected) in cases.iter().zip(&expected) {
        let results = run(variant, variant.desc(), case).unwrap_or_else(|error| panic!("{entry} itself: {error}"));
        assert!(passes(&results, expected), "{entry} itself");
    }
    let survivors: Vec<_> = changes.iter().filter(|(from, to)| right(changed(variant.desc(), from, to))).collect();
    assert!(survivors.is_empty(), "{entry}: {survivors:#?}");
}

/// Metadata, records, outputs and histories, which both kernels share.
const MEMORY: [(&str, &str); 15] = [
    ("end <= total as i32", "end <= total as i32 + 1"),
    ("(begin <= end)", "(begin != end)"),
    ("slot < slots as i32", "slot <= slots as i32"),
    ("slot > null", "slot >= null"),
    ("load_if(on), 1), window as i32", "load_if(on), 2), window as i32"),
    ("load_if(on), 1), window as i32", "load_if(on), 1), window as i32 + 1"),
    ("store_if(first + j < len, gate[j])", "store_if(first + j <= len, gate[j])"),
    ("rows.at([j, 0])", "rows.at([0, 0])"),
    ("kg.at([req, head, first..])", "kg.at([req, 0, first..])"),
    ("store_v_if(token < len, [u", "store_v_if(token <= len, [u"),
    ("out.at([begin + token, head,", "out.at([begin + token, 0,"),
    ("(tid..len * 64)", "(tid..64)"),
    ("(old[1 + j][x], j)", "(old[j][x], j)"),
    ("row < len + 2", "row < len + 3"),
    ("conv.at([line, row, x, head]).cast", "conv.at([line, row, x, 0]).cast"),
];

#[test]
fn a_check_tells_wrong_memory_of_the_portable_kernel() {
    let entry = "tc_verify_portable__tokens8_conv_nochannel_major_bf16_nosoftplus_bf16";
    each_is_noticed(entry, &MEMORY);
    let own = [
        ("kg, req, head, len, k_words, gate);\n        cta_sync();", "kg, req, head, len, k_words, gate);"),
        (
            "let row = if const { size_of::<STATE>() == 2 } { row_of(place) }",
            "let row = if const { size_of::<STATE>() == 2 } { place }",
        ),
        ("state.at([state_slot, head, row, k])", "state.at([req, head, row, k])"),
    ];
    each_is_noticed(entry, &own);
}

#[test]
fn a_check_tells_wrong_memory_and_protocols_of_the_kernel_for_hopper() {
    let entry = "tc_verify__heads0_conv_nochannel_major_bf16_noboxes_noearly_nosoftplus";
    each_is_noticed(entry, &MEMORY);
    // A barrier on one side of a branch, and a stage released ahead of the wait for its products, are refused by the compiler: both sides lose theirs.
    let own = [
        ("cta_sync();", ""),
        ("slot.release();\n                cta_sync();", "slot.release();"),
        ("state, [coming.0,", "state, [item.0,"),
        ("tma_load_if(coming.4,", "tma_load_if(item.4,"),
        ("accepted, next, sizes", "accepted, req, sizes"),
        ("item = coming;", ""),
        ("half, coming,", "half, item,"),
        ("kg, req, head, len, k_words", "kg, rank, head, len, k_words"),
        ("corr, out, req, begin", "corr, out, rank, begin"),
        ("conv, state_slot, head, word", "conv, req, head, word"),
    ];
    each_is_noticed(entry, &own);
}

#[test]
fn a_check_tells_wrong_boxes() {
    let entry = "tc_verify__heads0_conv_nochannel_major_bf16_boxes_noearly_nosoftplus";
    each_is_noticed(
        entry,
        &[
            ("cta_sync();", ""),
            ("let raw = raws.wait();\n                if coming.4", "let raw = raws.wait();\n                if live"),
            ("bulk::wait_read::<0>();", ""),
            ("past, gates, coming, head)", "past, gates, item, head)"),
            ("live, tokens, [begin,", "live, tokens, [begin + 1,"),
            ("past, [slot, hist,", "past, [slot, 0,"),
            ("past, [slot, hist,", "past, [0, hist,"),
            ("gates, [begin, head,", "gates, [begin, 0,"),
            ("rows.at([first + j, x, channel])", "rows.at([first, x, channel])"),
            ("rows.at([first + 3 + j, x, channel])", "rows.at([first + 2 + j, x, channel])"),
            ("gates.at([first + j, channel])", "gates.at([j, channel])"),
            ("rows.at([row + 1])", "rows.at([row])"),
            ("rows.at([1..])", "rows.at([0..10])"),
            ("0..len + 2 {", "0..len + 1 {"),
            ("0..len + 2 {", "0..len + 3 {"),
            ("rolled_row, [line, row,", "rolled_row, [line, 0,"),
            ("rolled, rolled_row, raw.rows, coming.0", "rolled, rolled_row, raw.rows, item.0"),
            ("select(first + j < len, post[2], 0)", "post[2]"),
        ],
    );
}
