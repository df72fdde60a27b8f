//! The shipped kernels with one synchronisation taken away: the simulator reports each, at the statements that are no longer
//! ordered. And with all of them: no report, under every schedule and order of CTAs.
//!
//! A change that no run can tell from the kernel is listed as equivalent, with the reason.

use kda::checks::Device;
use kda::checks::conv_verify::call::{Call, Results};
use kda::checks::conv_verify::case::{Case, Plan};
use kda::checks::conv_verify::problems::with_pool;
use kda::checks::conv_verify::schedules;
use kda::core::exec::{Executor, Stream};
use kda::core::{Elem, KernelDesc, PreparedLaunch};
use kda::reference::conv_verify::sample::Switches;
use kda::runtime::executor::sim::{Code, Report, SimExecutor, Stats};
use kda::runtime::operators::conv_verify::{Options, plan};
use kda_kernels::conv_verify::ConvVerifyVariant;

const SEED: u64 = 1;

/// Kernels of each shape, eight lanes a row, staged output and several passes, with the pools of engines; and each other
/// pool once. With the tokens each is run on.
fn kernels() -> [(ConvVerifyVariant, usize); 8] {
    let find = |bv: u32, long: bool, t: u32, pool: Elem, inner: bool| {
        let own = |v: &&ConvVerifyVariant| (v.bv(), v.long(), v.t(), v.pool(), v.inner()) == (bv, long, t, pool, inner);
        *ConvVerifyVariant::ALL.iter().find(own).expect("the variant exists")
    };
    [
        (find(8, false, 4, Elem::F32, false), 4),
        (find(8, false, 4, Elem::BF16, true), 4),
        (find(64, false, 4, Elem::F32, false), 4),
        (find(64, false, 4, Elem::BF16, true), 4),
        (find(32, true, 8, Elem::F32, false), 11),
        (find(32, true, 8, Elem::BF16, true), 11),
        (find(64, false, 2, Elem::F32, true), 2),
        (find(64, false, 2, Elem::BF16, false), 2),
    ]
}

/// Snapshots and roll, two value heads a q/k head, and the variant's pool.
fn case(variant: ConvVerifyVariant, tokens: usize) -> Case {
    let plain = with_pool(Switches::plain(2, tokens, 1, 2), (variant.pool() == Elem::BF16, variant.inner()));
    Plan::of(Switches { roll: true, ..plain }).draw(SEED)
}

/// The kernel's source, line by line.
fn source(desc: &KernelDesc) -> Vec<String> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(desc.source.file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines().map(String::from).collect()
}

/// What must be found when a synchronisation is gone.
enum Expected {
    /// A race, reported on a line with one of the first words, against a line with one of the second.
    Race(&'static [&'static str], &'static [&'static str]),
    /// Nothing in these launches: why.
    Equivalent(&'static str),
}

use Expected::{Equivalent, Race};

const SHARED_WRITES: &[&str] = &["inputs[[part", "qkv[[part", "squares[[part", "decays[[t"];
/// Of two accesses that nothing orders, the later one is reported, against the earlier one.
const SHARED: &[&str] = &[
    "inputs[[part",
    "qkv[[part",
    "squares[[part",
    "decays[[t",
    "bulk::store(",
    "qkv.at(",
    "squares.at(",
    "decays.at(",
    "betas[[t]]",
    "qkv[[2",
    "step::inverse_norm(",
];
const HISTORY_READS: &[&str] = &["let loaded = from_fn::<TAPS>(|j| conv.at("];
const ROLL_OF_V: &[&str] = &["bulk::store(conv.at([line, c0"];
const ROLL_OF_QK: &[&str] = &["bulk::store(conv.at([line, (part * heads + h)"];

/// Names the synchronisation of an instruction by the statement that it comes from, and what its loss must give.
fn expected(instruction: &str, statement: &str, variant: ConvVerifyVariant) -> Expected {
    let staged = variant.bv() >= 64;
    let known = [
        ("griddepcontrol.wait", "pdl::wait()"),
        ("fence.proxy.async.shared::cta", "cta_sync()"),
        ("bar.sync", "cta_sync()"),
        ("bar.warp.sync", "warp_sync()"),
        ("fence.proxy.async.global", "bulk::store("),
        ("atom.acq_rel", "inc_wrap("),
        ("cp.async.bulk.commit_group", "bulk::commit()"),
        ("cp.async.bulk.wait_group", "bulk::wait_read"),
    ];
    let of = known.iter().find(|(i, s)| instruction.contains(i) && statement.contains(s));
    match of.unwrap_or_else(|| panic!("a row is needed for `{instruction}` of `{statement}`")).0 {
        // The wait in the branch `!early`, by its indentation.
        "griddepcontrol.wait" if statement.starts_with("            pdl::wait()") => {
            Equivalent("the caller has promised that the pools are settled, so it is not executed")
        }
        "griddepcontrol.wait" => Race(&["| x.at([n", "| a.at([n", "out.at([n"], &[]),
        "fence.proxy.async.shared::cta" => Race(&["bulk::store("], SHARED_WRITES),
        "bar.sync" if statement.contains("the next pass") => Race(SHARED, SHARED),
        "bar.sync" if statement.contains("16-byte pieces") => Race(&["outs.at("], &["outs[["]),
        "bar.sync" => Race(SHARED, SHARED),
        "bar.warp.sync" if staged => {
            Equivalent("the CTA barrier of the staged output stands between the acquire and the roll")
        }
        "bar.warp.sync" | "atom.acq_rel" => Race(ROLL_OF_QK, HISTORY_READS),
        "fence.proxy.async.global" if ROLL_OF_V.iter().any(|s| statement.contains(s)) => Race(ROLL_OF_V, HISTORY_READS),
        "fence.proxy.async.global" => Race(ROLL_OF_QK, HISTORY_READS),
        // Shared memory goes to the next pass, or to the next CTA, while copies still read it.
        _ if variant.long() => Race(&["inputs[[part"], &["bulk::store("]),
        _ => Race(&["bulk::wait_read"], &["bulk::store("]),
    }
}

/// A kernel with one line of its text changed.
struct Mutant {
    /// The instruction before the change, and after it.
    instruction: String,
    changed: String,
    /// The statement it comes from.
    statement: String,
    desc: &'static KernelDesc,
}

/// Each synchronisation removed; the atomic weakened in each way; the wait for copies satisfied by fewer.
fn mutants(desc: &'static KernelDesc) -> Vec<Mutant> {
    const SYNCHRONISE: [&str; 7] =
        ["bar.", "fence.", "atom.", "commit_group", "wait_group", "griddepcontrol.wait", "mbarrier"];
    let (lines, source) = (desc.ptx.lines().collect::<Vec<_>>(), source(desc));
    let (mut at, mut found) = (0, Vec::new());
    for (index, line) in lines.iter().enumerate() {
        let line = line.trim();
        if let Some(loc) = line.strip_prefix(".loc ") {
            at = loc.split(' ').nth(1).and_then(|n| n.parse::<usize>().ok()).expect("a line number");
        }
        if line.starts_with('.') || line.starts_with("//") || !SYNCHRONISE.iter().any(|s| line.contains(s)) {
            continue;
        }
        let changes: Vec<String> = match line {
            l if l.starts_with("atom.") => [".relaxed.gpu", ".acquire.gpu", ".release.gpu", ".acq_rel.cta"]
                .map(|weaker| l.replace(".acq_rel.gpu", weaker))
                .to_vec(),
            l if l.contains("wait_group") => vec![String::new(), l.replace(" 0;", " 1;")],
            _ => vec![String::new()],
        };
        for changed in changes {
            assert_ne!(changed, line, "not a change");
            let mut text: Vec<&str> = lines.clone();
            text[index] = &changed;
            found.push(Mutant {
                instruction: line.into(),
                statement: source[at - 1].clone(),
                desc: desc.with_text(text.join("\n") + "\n"),
                changed,
            });
        }
    }
    found
}

/// Launches a text in the place of the variant's own.
fn launch(
    executor: &SimExecutor,
    call: &Call,
    options: &Options,
    desc: &'static KernelDesc,
) -> Result<Stats, Box<Report>> {
    let planned = plan(&call.problem, executor, options).expect("the call is good");
    let launch = PreparedLaunch { desc, ..planned.prepared().clone() };
    // SAFETY: the simulator touches no host memory; the buffers of the call outlive the launch.
    match unsafe { executor.launch(&launch, Stream::default()) } {
        Ok(()) => Ok(executor.last_stats().expect("the launch ran")),
        Err(error) => Err(Box::new(executor.last_report().unwrap_or_else(|| panic!("{error}")))),
    }
}

#[test]
fn every_lost_synchronisation_is_reported_where_it_is_missed() {
    for (variant, tokens) in kernels() {
        let (entry, source) = (variant.desc().entry, source(variant.desc()));
        let case = case(variant, tokens);
        let all = mutants(variant.desc());
        assert!(all.len() >= 14, "{entry}: {} changes", all.len());
        for mutant in all {
            let what =
                format!("{entry}: `{}` -> `{}` of `{}`", mutant.instruction, mutant.changed, mutant.statement.trim());
            let options = Options { variant: Some(variant), pdl: true, stable_pools: true, ..Options::default() };
            let executor = SimExecutor::default();
            let call = Call::new(Device::simulator(&executor), &case).expect("memory");
            let report = launch(&executor, &call, &options, mutant.desc).err();
            let line = |number: u32| source[number as usize - 1].as_str();
            match expected(&mutant.instruction, &mutant.statement, variant) {
                Race(here, others) => {
                    let report = report.unwrap_or_else(|| panic!("{what}: no report"));
                    assert_eq!(report.code, Code::Race, "{what}\n{report}");
                    let site = line(report.source_line().unwrap_or_else(|| panic!("{what}: no line\n{report}")));
                    assert!(here.iter().any(|s| site.contains(s)), "{what}: on `{}`\n{report}", site.trim());
                    if others.is_empty() {
                        // The grid ahead has no line here.
                        assert!(report.others.is_empty(), "{what}\n{report}");
                        continue;
                    }
                    let partner = report.others.first().unwrap_or_else(|| panic!("{what}: alone\n{report}"));
                    let partner = line(partner.at.source.as_ref().expect("a line").line);
                    let known = others.iter().any(|s| partner.contains(s));
                    assert!(known, "{what}: against `{}`\n{report}", partner.trim());
                }
                Equivalent(reason) => {
                    assert!(report.is_none(), "{what}: reported, though {reason}\n{}", report.unwrap());
                }
            }
        }
    }
}

/// Nothing is written ahead of the wait for the predecessor, with early loads and without.
#[test]
fn the_kernels_wait_for_their_predecessor() {
    for (variant, tokens) in kernels() {
        for stable_pools in [false, true] {
            let (executor, case) = (SimExecutor::default(), case(variant, tokens));
            let call = Call::new(Device::simulator(&executor), &case).expect("memory");
            let options = Options { variant: Some(variant), pdl: true, stable_pools, ..Options::default() };
            let stats = launch(&executor, &call, &options, variant.desc()).unwrap_or_else(|report| panic!("{report}"));
            let entry = variant.desc().entry;
            assert!(stats.dependency_wait && stats.launch_dependents && !stats.wrote_before_wait, "{entry}: {stats:?}");
        }
    }
}

#[test]
fn the_kernels_are_clean_in_every_order() {
    for (variant, tokens) in kernels() {
        let case = case(variant, tokens);
        let mut first: Option<Results> = None;
        for options in schedules::ways(SEED) {
            let executor = SimExecutor::new(options);
            let call = Call::new(Device::simulator(&executor), &case).expect("memory");
            let results = call.run(Some(variant)).unwrap_or_else(|cause| panic!("{options:?}: {cause}"));
            assert_eq!(results.changed_inputs, 0, "{options:?}");
            if let Some(first) = &first {
                assert_eq!(first.differing_bits(&results), 0, "{}, {options:?}", variant.desc().entry);
            }
            first.get_or_insert(results);
        }
    }
}
