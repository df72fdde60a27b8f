//! The ladder: short kernels, proved where there is something to prove, and every synchronisation in them is needed.

use kda::checks::Device;
use kda::checks::ladder::{RUNGS, Rung};
use kda::core::desc::{Protocol, content_hash};
use kda::core::exec::Stream;
use kda::core::{Executor, KernelDesc, PreparedLaunch};
use kda::runtime::executor::sim::{Options, Schedule, SimExecutor};
use std::collections::BTreeMap;

/// Most lines of a rung.
const LINES: usize = 80;
const SEED: u64 = 3;

#[test]
fn eight_short_rungs_with_a_verdict() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("kda-kernels/src/ladder");
    for rung in 1..=8 {
        let files = std::fs::read_dir(&folder).expect("the ladder is readable").flatten();
        let named = files.filter(|f| f.file_name().to_string_lossy().starts_with(&format!("rung{rung}_")));
        let paths: Vec<_> = named.map(|f| f.path()).collect();
        let [path] = &paths[..] else { panic!("rung {rung}: {paths:?}") };
        let lines = std::fs::read_to_string(path).expect("a rung is text").lines().count();
        assert!(lines < LINES, "{}: {lines} lines", path.display());
    }
    assert_eq!(RUNGS.len(), 8);
    for desc in RUNGS.iter().flat_map(Rung::descs) {
        let rings = desc.shared.iter().any(|buffer| buffer.name.ends_with(".barriers"));
        let expected = if rings { Protocol::Proved } else { Protocol::Nothing };
        assert_eq!(desc.protocol, expected, "{}", desc.entry);
    }
}

/// What orders threads, copies and products in a text, one instruction a line.
const SYNCHRONISATION: [&str; 11] = [
    "bar.sync",
    "bar.warp",
    "mbarrier.",
    "fence",
    "commit_group",
    "wait_group",
    "barrier.cluster",
    "tcgen05.commit",
    "tcgen05.wait",
    "tcgen05.alloc",
    "tcgen05.dealloc",
];

/// What may be dropped without a run showing it: rung, instruction, how often, and why.
const HARMLESS: &[(&str, &str, usize, &str)] = &[
    ("tile_copy", "mbarrier.try_wait", 1, "a fresh stage is empty"),
    ("tile_copy", "bar.warp", 1, "nobody waits for the last release"),
    ("tile_copy", "mbarrier.arrive", 1, "nobody waits for the last release"),
    ("ring_sum", "mbarrier.try_wait", 4, "fresh stages are empty"),
    ("ring_sum", "bar.warp", 1, "nobody waits for the last releases"),
    ("ring_sum", "mbarrier.arrive", 1, "nobody waits for the last releases"),
    ("role_silu", "bar.warp", 1, "the release ahead of the commit has already joined the lanes"),
    ("role_silu", "wait_group", 1, "the stages have been read, and the end of the grid waits for the writes"),
    ("product", "bar.warp", 1, "all lanes have waited for the products that read the stage"),
    ("chained_product", "mbarrier.try_wait", 1, "a fresh stage is empty"),
    ("chained_product", "bar.warp", 4, "all lanes have waited for the products that read the stages"),
    ("chained_product", "wgmma.fence", 2, "further copies of the loop's body begin with untouched registers"),
    ("chained_product", "mbarrier.arrive", 1, "nobody waits for the last release"),
    ("cluster_sum", "barrier.cluster", 1, "nobody reaches another CTA behind the author's own barrier"),
    ("blackwell_product", "mbarrier.try_wait", 1, "a fresh accumulator is empty"),
    ("blackwell_product", "bar.warp", 1, "nobody waits for the last release"),
    ("blackwell_product", "mbarrier.arrive", 1, "nobody waits for the last release"),
    ("blackwell_product", "fence", 4, "two fences of tensor memory overlap, or the CTA barrier ahead of the end does"),
];

/// The text without one line, for every line of synchronisation.
fn without_each(text: &str) -> Vec<(String, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let is_sync = |line: &str| SYNCHRONISATION.iter().any(|s| line.contains(s)) && !line.trim_start().starts_with(".");
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| is_sync(line)) {
        // A wait becomes a predicate that is true: nobody waits, and nothing is acquired.
        let passed = line.split_once("try_wait").and_then(|(_, rest)| {
            let pred = rest.split_whitespace().nth(1)?.trim_end_matches(',');
            Some(format!("    setp.eq.u32 {pred}, 0, 0;"))
        });
        let mut kept: Vec<&str> = lines.clone();
        kept[at] = passed.as_deref().unwrap_or_default();
        found.push((format!("{}: {}", at + 1, line.trim()), kept.join("\n") + "\n"));
    }
    found
}

/// True if a schedule reports the text, or gives other results than the right one.
fn is_found(rung: &Rung, desc: &'static KernelDesc, text: &str, right: &[f32], size: [u64; 3]) -> bool {
    let text: &'static str = text.to_string().leak();
    let changed: &'static KernelDesc = Box::leak(Box::new(KernelDesc { ptx: text, hash: content_hash(text), ..*desc }));
    Schedule::ALL.into_iter().any(|schedule| {
        let options = Options { schedule, seed: SEED, step_limit: 2_000_000, ..Options::default() };
        let executor = SimExecutor::for_kernel(options, desc);
        let problem = (rung.problem)(Device::simulator(&executor), desc, size, SEED).expect("a problem");
        let launch = &problem.launch;
        let launch =
            PreparedLaunch { desc: changed, params: launch.params.clone(), maps: launch.maps.clone(), ..*launch };
        // SAFETY: the simulator touches no host memory, and the buffers outlive the launch.
        if unsafe { executor.launch(&launch, Stream::default()) }.is_err() {
            return true;
        }
        let output = problem.buffers.last().expect("an output");
        output.download::<f32>().map_or(true, |values| values != right)
    })
}

#[test]
fn every_dropped_synchronisation_is_found() {
    let mut survivors: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    let mut count = 0;
    for rung in &RUNGS {
        let desc = rung.descs().next().expect("a variant");
        let size = rung.sizes[rung.sizes.len() - 1];
        let executor = SimExecutor::for_kernel(Options::default(), desc);
        let right = rung.values(Device::simulator(&executor), desc, size, SEED).expect("the rung runs");
        for (line, text) in without_each(desc.ptx) {
            count += 1;
            if !is_found(rung, desc, &text, &right, size) {
                let names = HARMLESS.iter().filter(|(name, ..)| *name == rung.name).map(|(_, what, ..)| *what);
                let what = names.into_iter().find(|what| line.contains(what)).unwrap_or("other");
                survivors.entry((rung.name, what)).or_default().push(line);
            }
        }
    }
    assert!(count > 150, "{count} lines of synchronisation");
    for (rung, what, times, why) in HARMLESS {
        let found = survivors.remove(&(*rung, *what)).unwrap_or_default();
        assert_eq!(found.len(), *times, "{rung}, {what} ({why}): {found:#?}");
    }
    assert!(survivors.is_empty(), "not found: {survivors:#?}");
}
