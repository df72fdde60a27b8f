//! Every synchronisation of the clean kernels is needed.

use super::common::{self, Bench};
use super::copies::{bulk_load, bulk_store};
use super::threads::last_arriver;
use super::*;

/// Runs a kernel under every schedule; the codes found.
fn outcomes(make: impl Fn() -> Bench) -> Vec<Option<Code>> {
    common::schedules()
        .into_iter()
        .map(|(schedule, seed)| {
            let mut b = make();
            (b.options.schedule, b.options.seed) = (schedule, seed);
            b.options.step_limit = 100_000;
            b.run().err().map(|r| r.code)
        })
        .collect()
}

#[test]
fn every_dropped_synchronisation_is_found() {
    const SYNC: [&str; 7] = ["bar.", "mbarrier.", "fence", "wait_group", "commit_group", "atom.", "bra WAIT"];
    type Make = Box<dyn Fn() -> Bench>;
    let kernels: [(&str, Make); 4] = [
        ("ring", Box::new(|| bulk_load(str::to_string))),
        (
            "store",
            Box::new(|| {
                bulk_store(
                    "fence.proxy.async.shared::cta;",
                    "cp.async.bulk.wait_group.read 0;",
                    "cp.async.bulk.wait_group.read 0;",
                )
            }),
        ),
        ("counter", Box::new(|| last_arriver("atom.acq_rel.gpu.global.add.u32", "", ""))),
        (
            "fenced counter",
            Box::new(|| last_arriver("atom.relaxed.gpu.global.add.u32", "fence.acq_rel.gpu;", "fence.acq_rel.gpu;")),
        ),
    ];
    let mut dropped = 0;
    let mut survivors = Vec::new();
    for (name, make) in &kernels {
        let text = make().text;
        for (number, line) in text.lines().enumerate() {
            if !SYNC.iter().any(|s| line.contains(s)) || line.ends_with(':') {
                continue;
            }
            dropped += 1;
            let mutant: String =
                text.lines().enumerate().filter(|(n, _)| *n != number).map(|(_, l)| format!("{l}\n")).collect();
            let found = outcomes(|| {
                let mut b = make();
                b.text = mutant.clone();
                b
            });
            if found.iter().all(Option::is_none) {
                survivors.push(format!("{name}: {}", line.trim()));
            }
        }
    }
    assert_eq!(dropped, 22);
    // The last wait of the store kernel repeats the one in its loop.
    assert_eq!(survivors, ["store: @!%p0 cp.async.bulk.wait_group.read 0;"], "of {dropped}");
}
