//! Every variant assembles with ptxas for the arch it names: no error, no spill, no stack frame, no C75xx note.
//!
//! ptxas is looked for in `$PTXAS` and then in PATH. Where there is none the test says so and passes, unless
//! `KDA_REQUIRE_PTXAS` is set.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn ptxas() -> Option<PathBuf> {
    let named = std::env::var_os("PTXAS").map(PathBuf::from);
    let found = named.or_else(|| {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|folder| folder.join("ptxas")).find(|file| file.is_file())
    });
    if found.is_none() {
        assert!(std::env::var_os("KDA_REQUIRE_PTXAS").is_none(), "ptxas is required and was not found");
        eprintln!("skipped: no ptxas in $PTXAS or PATH");
    }
    found
}

/// The report of ptxas, and whether it assembled.
fn assemble(ptxas: &PathBuf, ptx: &str, arch: &str) -> (bool, String) {
    let mut child = Command::new(ptxas)
        .args(["-v", "--warn-on-spills", &format!("-arch={arch}"), "-o", "/dev/null", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ptxas starts");
    child.stdin.take().expect("piped").write_all(ptx.as_bytes()).expect("ptxas reads its input");
    let output = child.wait_with_output().expect("ptxas ends");
    let report = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&report).into_owned())
}

/// What is wrong in a report, if anything.
fn fault(assembled: bool, report: &str) -> Option<String> {
    let bad = |line: &&str| {
        line.contains("(C75")
            || line.contains("spilled")
            || line.contains("error")
            || (line.contains("stack frame")
                && !line.trim_start().starts_with("0 bytes stack frame, 0 bytes spill stores"))
    };
    match report.lines().find(bad) {
        Some(line) => Some(line.trim().to_string()),
        None if !assembled => Some(report.to_string()),
        None => None,
    }
}

#[test]
fn every_variant_assembles_without_spills() {
    let Some(ptxas) = ptxas() else { return };
    let mut faults = Vec::new();
    let mut count = 0;
    for desc in kda::registry::kernels() {
        let (assembled, report) = assemble(&ptxas, desc.ptx, &desc.arch.to_string());
        count += 1;
        if let Some(fault) = fault(assembled, &report) {
            faults.push(format!("{}: {fault}", desc.entry));
        }
    }
    assert!(count > 0, "no kernels");
    assert!(faults.is_empty(), "{} of {count}:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn the_gate_sees_errors_and_spills() {
    let Some(ptxas) = ptxas() else { return };
    let desc = kda::registry::kernels()[0];
    let broken = desc.ptx.replace("bar.sync 0;", "bar.sink 0;");
    assert_ne!(broken, desc.ptx);
    let (assembled, report) = assemble(&ptxas, &broken, &desc.arch.to_string());
    assert!(!assembled && fault(assembled, &report).is_some());
    // A kernel that needs many registers, under a cap of 24.
    let wide = kda::registry::kernels().into_iter().find(|d| d.entry.contains("bv128")).expect("a wide variant");
    let capped = wide.ptx.replace(".minnctapersm 1\n", ".maxnreg 24\n");
    assert_ne!(capped, wide.ptx);
    let (assembled, report) = assemble(&ptxas, &capped, &wide.arch.to_string());
    assert!(assembled, "{report}");
    assert!(fault(assembled, &report).is_some(), "{report}");
}
