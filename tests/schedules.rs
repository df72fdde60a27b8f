//! No false alarms: every variant that ships is clean and right on its sample problem under every schedule and order of CTAs.

use kda::checks::{Device, Measured, operators};
use kda::core::KernelDesc;
use kda::runtime::executor::sim::{CTA_ORDERS, Options, Schedule, SimExecutor, schedule_name};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const SEED: u64 = 4;

/// What is wrong with a variant under a schedule.
fn faults(desc: &'static KernelDesc, index: usize) -> Option<String> {
    let schedule = Schedule::ALL[index];
    let cta_order = CTA_ORDERS[index % CTA_ORDERS.len()];
    let options = Options { schedule, cta_order, seed: SEED + index as u64, resident_ctas: 3, ..Options::default() };
    let executor = SimExecutor::for_kernel(options, desc);
    let operator = operators().into_iter().find(|o| o.name == desc.family).expect("an operator for the family");
    let mut measured: Vec<Measured> = Vec::new();
    let result = (operator.sample)(Device::simulator(&executor), desc, SEED, &mut |m, _| measured.push(m));
    let name = format!("{} under {}", desc.entry, schedule_name(schedule));
    match result {
        Err(cause) => Some(format!("{name}: {cause}")),
        Ok(()) if measured.is_empty() => Some(format!("{name}: nothing was measured")),
        Ok(()) => measured.iter().find(|m| !m.passes()).map(|m| format!("{name}: {m:?}")),
    }
}

#[test]
fn every_variant_is_clean_under_every_schedule() {
    let runs: Vec<_> = kda::registry::kernels()
        .into_iter()
        .flat_map(|desc| (0..Schedule::ALL.len()).map(move |index| (desc, index)))
        .collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((desc, index)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    found.lock().expect("no thread panics").extend(faults(desc, *index));
                }
            });
        }
    });
    let found = found.into_inner().expect("no thread panics");
    assert!(runs.len() > 300, "{} runs", runs.len());
    assert!(found.is_empty(), "{} of {}:\n{}", found.len(), runs.len(), found.join("\n"));
}
