//! Missing order, one fault a kernel; and the same kernels with the order in place, under every schedule.

#[path = "../common/mod.rs"]
mod common;
mod copies;
mod dropped;
mod threads;

use common::Bench;
use kda_sim::{Code, CtaOrder, ProxyFence, Report, Schedule};

/// The two lines that a race names must be these pieces of the text, in either role.
pub(crate) fn expect_race(bench: &mut Bench, one: &str, other: &str, help: &str) -> Box<Report> {
    let report = bench.run().expect_err("the race must be found");
    assert_eq!(report.code, Code::Race, "{report}");
    let mut lines = [report.ptx_line(), report.others[0].at.ptx_line];
    let mut wanted = [bench.line_of(one), bench.line_of(other)];
    lines.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(lines, wanted, "{report}");
    assert!(report.help.contains(help), "{report}");
    report
}

/// Every schedule finds it: a race does not depend on who came first.
pub(crate) fn race_everywhere(make: impl Fn() -> Bench, one: &str, other: &str, help: &str) {
    for (schedule, seed) in common::schedules() {
        for cta_order in [CtaOrder::Forward, CtaOrder::Reverse] {
            let mut bench = make();
            (bench.options.schedule, bench.options.seed, bench.options.cta_order) = (schedule, seed, cta_order);
            expect_race(&mut bench, one, other, help);
        }
    }
}
