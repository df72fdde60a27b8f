//! Each operator gives exactly the mutants that its rule names, and each of them is PTX again.

use super::super::Operator::{self, *};
use super::*;

/// A kernel with these lines.
fn kernel(body: &str) -> String {
    let body: String = body.lines().map(|line| format!("    {}\n", line.trim())).collect();
    format!(
        ".version 8.6\n.target sm_100f\n.address_size 64\n\n.extern .shared .align 1024 .b8 smem[];\n\n\
         .visible .entry k()\n{{\n    .reg .pred %p<4>;\n    .reg .b32 %r<9>;\n    .reg .b64 %rd<3>;\n{body}    ret;\n}}\n"
    )
}

/// Mutants of these lines: operator, and the lines that differ from the kernel's, joined.
fn changed(body: &str) -> Vec<(Operator, String)> {
    let text = kernel(body);
    let whole = parse(&text).expect("the kernel is PTX").to_string();
    let lines: Vec<&str> = whole.lines().collect();
    let mutants = mutants("k", &text).expect("the kernel is PTX");
    let of = |mutant: Mutant| {
        let Text::Ptx(text) = &mutant.text else { panic!("{mutant}") };
        assert_eq!(parse(text).expect("a mutant is PTX").to_string(), *text);
        assert_ne!(*text, whole, "{mutant}");
        let new = text.lines().filter(|line| !lines.contains(line) && !line.contains(".reg"));
        (mutant.operator, new.map(str::trim).collect::<Vec<_>>().join(" "))
    };
    mutants.into_iter().map(of).collect()
}

fn check(body: &str, expected: &[(Operator, &str)]) {
    let expected: Vec<_> = expected.iter().map(|(operator, text)| (*operator, text.to_string())).collect();
    assert_eq!(changed(body), expected, "{body}");
}

#[test]
fn arithmetic_and_accesses_have_no_mutants() {
    check("add.u32 %r0, %r1, 1;\nld.global.u32 %r0, [%rd0];\natom.relaxed.gpu.global.add.u32 %r0, [%rd0], %r1;", &[]);
}

#[test]
fn barriers_and_fences() {
    check("bar.sync 0;", &[(Drop, "")]);
    check("bar.sync 1, 64;", &[(Drop, ""), (CountUp, "bar.sync 1, 96;"), (CountDown, "bar.sync 1, 32;")]);
    check("bar.arrive 1, 32;", &[(Drop, ""), (CountUp, "bar.arrive 1, 64;")]);
    check("bar.warp.sync -1;", &[(Drop, "")]);
    check(
        "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;",
        &[(Drop, ""), (Narrow, "barrier.cluster.arrive.relaxed.aligned;"), (Drop, "")],
    );
    check("fence.acq_rel.gpu;", &[(Drop, ""), (Narrow, "fence.acq_rel.cta;")]);
    check("fence.acq_rel.cta;", &[(Drop, "")]);
    check("fence.proxy.async.shared::cta;", &[(Drop, "")]);
    check(
        "fence.proxy.async;",
        &[(Drop, ""), (Narrow, "fence.proxy.async.global;"), (Narrow, "fence.proxy.async.shared::cta;")],
    );
    check("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;", &[(Drop, "")]);
}

#[test]
fn mbarriers() {
    check(
        "@%p0 mbarrier.init.shared::cta.b64 [smem+8], 2;",
        &[
            (Drop, ""),
            (CountUp, "@%p0 mbarrier.init.shared::cta.b64 [smem+8], 3;"),
            (CountDown, "@%p0 mbarrier.init.shared::cta.b64 [smem+8], 1;"),
            (EveryLane, "mbarrier.init.shared::cta.b64 [smem+8], 2;"),
        ],
    );
    check(
        "mbarrier.arrive.shared::cta.b64 _, [smem];",
        &[
            (Drop, ""),
            (CountUp, "mbarrier.arrive.shared::cta.b64 _, [smem], 2;"),
            (Narrow, "mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [smem];"),
        ],
    );
    check(
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1];",
        &[
            (Drop, ""),
            (CountUp, "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1], 2;"),
            (Narrow, "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%r1];"),
        ],
    );
    check(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [smem], 64;",
        &[
            (Drop, ""),
            (BytesUp, "mbarrier.arrive.expect_tx.shared::cta.b64 _, [smem], 80;"),
            (BytesDown, "mbarrier.arrive.expect_tx.shared::cta.b64 _, [smem], 48;"),
        ],
    );
    check(
        "mbarrier.try_wait.parity.shared::cta.b64 %p1, [smem], %r2;",
        &[
            (Drop, "setp.eq.u32 %p1, 0, 0;"),
            (Phase, "xor.b32 %r9, %r2, 1; mbarrier.try_wait.parity.shared::cta.b64 %p1, [smem], %r9;"),
            (Narrow, "mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 %p1, [smem], %r2;"),
        ],
    );
    check(
        "mbarrier.test_wait.parity.shared::cta.b64 %p1, [smem], 0;",
        &[
            (Drop, "setp.eq.u32 %p1, 0, 0;"),
            (Phase, "mbarrier.test_wait.parity.shared::cta.b64 %p1, [smem], 1;"),
            (Narrow, "mbarrier.test_wait.parity.relaxed.cta.shared::cta.b64 %p1, [smem], 0;"),
        ],
    );
}

#[test]
fn groups_elections_and_atomics() {
    check(
        "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;",
        &[
            (Drop, ""),
            (Drop, ""),
            (Pending, "cp.async.bulk.wait_group 1;"),
            (Narrow, "cp.async.bulk.wait_group.read 0;"),
        ],
    );
    check("cp.async.bulk.wait_group.read 1;", &[(Drop, ""), (Pending, "cp.async.bulk.wait_group.read 2;")]);
    check("wgmma.wait_group.sync.aligned 0;", &[(Drop, ""), (Pending, "wgmma.wait_group.sync.aligned 1;")]);
    check("elect.sync _|%p1, -1;", &[(EveryLane, "setp.eq.u32 %p1, 0, 0;")]);
    check(
        "atom.acq_rel.gpu.global.inc.u32 %r0, [%rd0], %r1;",
        &[
            (Drop, "mov.u32 %r0, 0;"),
            (Narrow, "atom.relaxed.gpu.global.inc.u32 %r0, [%rd0], %r1;"),
            (Narrow, "atom.acq_rel.cta.global.inc.u32 %r0, [%rd0], %r1;"),
        ],
    );
}

/// Order of the lines of a mutant that only moves some.
fn moved(body: &str) -> Vec<Vec<String>> {
    let swaps = mutants("k", &kernel(body)).expect("the kernel is PTX").into_iter().filter(|m| m.operator == Swap);
    let of = |mutant: Mutant| {
        let Text::Ptx(text) = mutant.text else { panic!("a PTX mutant") };
        let lines = text.lines().skip_while(|line| *line != "{").map(str::trim).filter(|l| !l.contains(".reg"));
        lines.filter(|line| line.len() > 1).map(String::from).collect()
    };
    swaps.map(of).collect()
}

#[test]
fn a_wait_slips_behind_the_arrival() {
    let body = "wgmma.wait_group.sync.aligned 0;\nadd.u32 %r0, %r1, 8;\n@%p0 mbarrier.arrive.shared::cta.b64 _, [%r0];";
    let expected = [
        "add.u32 %r0, %r1, 8;",
        "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r0];",
        "wgmma.wait_group.sync.aligned 0;",
        "ret;",
    ];
    assert_eq!(moved(body), [expected]);
    // Not past a branch, and not past another arrival.
    assert!(moved("bar.warp.sync -1;\n$L1:\nmbarrier.arrive.shared::cta.b64 _, [smem];").is_empty());
    let two = "bar.warp.sync -1;\ncp.async.bulk.commit_group;\nmbarrier.arrive.shared::cta.b64 _, [smem];";
    assert_eq!(moved(two).len(), 1);
}

#[test]
fn an_arrival_slips_behind_the_wait() {
    let wait = "$L1:\nmbarrier.try_wait.parity.shared::cta.b64 %p1, [smem+8], 0;\n@%p1 bra $L2;\nbra.uni $L1;\n$L2:";
    let body = format!("mbarrier.arrive.shared::cta.b64 _, [smem];\n{wait}\nadd.u32 %r0, %r1, 8;");
    let found = moved(&body);
    assert_eq!(found.len(), 1);
    let at = |text: &str| found[0].iter().position(|line| line.contains(text)).expect("the line is there");
    assert!(at("$L2:") + 1 == at("mbarrier.arrive") && at("mbarrier.arrive") < at("add.u32"), "{found:#?}");
    // A loop that does more than wait is none.
    assert!(moved(&body.replace("bra.uni $L1;", "add.u32 %r0, %r0, 1;\nbra.uni $L1;")).is_empty());
}

#[test]
fn a_mutant_knows_its_line() {
    let text = kernel(".loc 1 7 5\nadd.u32 %r0, %r1, 1;\nbar.sync 0;\n.loc 1 9 5\nbar.sync 1, 32;");
    let found = mutants("k", &text).expect("the kernel is PTX");
    let lines: Vec<(u32, String)> = found.into_iter().map(|mutant| (mutant.line, mutant.what)).collect();
    let one = |line, what: &str| (line, what.to_string());
    assert_eq!(lines, [one(7, "bar.sync 0"), one(9, "bar.sync 1, 32"), one(9, "bar.sync 1, 32")]);
    assert!(mutants("k", "nonsense").is_err());
}
