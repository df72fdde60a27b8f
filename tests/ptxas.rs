//! Every variant assembles with ptxas for the arch it names: no error, no spill, no stack frame, no C75xx note.
//!
//! ptxas is looked for in `$PTXAS` and then in PATH. Where there is none the test says so and passes, unless
//! `KDA_REQUIRE_PTXAS` is set.

use kda::assembler::{self, Report};
use std::path::PathBuf;

fn ptxas() -> Option<PathBuf> {
    let found = assembler::find();
    if found.is_none() {
        assert!(std::env::var_os("KDA_REQUIRE_PTXAS").is_none(), "ptxas is required and was not found");
        eprintln!("skipped: no ptxas in $PTXAS or PATH");
    }
    found
}

#[test]
fn every_variant_assembles_without_spills() {
    let Some(ptxas) = ptxas() else { return };
    let mut faults = Vec::new();
    let kernels = kda::registry::kernels();
    for desc in &kernels {
        let report = assembler::assemble(&ptxas, desc).expect("ptxas runs");
        assert!(report.registers.is_some() || !report.findings.is_empty(), "{}: nothing was said", desc.entry);
        faults.extend(report.findings.iter().map(|f| format!("{}: {} {}", desc.entry, f.code, f.message)));
    }
    assert!(!kernels.is_empty(), "no kernels");
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), kernels.len(), faults.join("\n"));
}

/// One text of the family `sm_100f` runs on B200 and on B300.
#[test]
fn blackwell_texts_assemble_for_the_whole_family() {
    let Some(ptxas) = ptxas() else { return };
    let family = kda::registry::kernels().into_iter().filter(|desc| desc.arch.to_string() == "sm_100f");
    let mut count = 0;
    for desc in family {
        for arch in ["sm_100a", "sm_100f", "sm_103a", "sm_103f"] {
            let (assembled, text) = assembler::output(&ptxas, desc.ptx, arch).expect("ptxas runs");
            let report = assembler::read(desc, desc.ptx, assembled, &text);
            assert!(assembled && report.findings.is_empty(), "{} for {arch}: {:?}", desc.entry, report.findings);
            count += 1;
        }
    }
    assert!(count > 0, "no kernel for Blackwell");
}

/// The codes found in a text that is not the kernel's own, and their lines.
fn codes(ptxas: &std::path::Path, desc: &kda::core::KernelDesc, ptx: &str) -> Vec<(u16, u32)> {
    let (assembled, text) = assembler::output(ptxas, ptx, &desc.arch.to_string()).expect("ptxas runs");
    let Report { findings, .. } = assembler::read(desc, ptx, assembled, &text);
    findings.iter().map(|finding| (finding.code.0, finding.line)).collect()
}

#[test]
fn the_gate_sees_errors_spills_and_lost_optimisations() {
    let Some(ptxas) = ptxas() else { return };
    let kernels = kda::registry::kernels();
    let named = |part: &str| *kernels.iter().find(|d| d.entry.contains(part)).expect("a variant of that name");
    let edited = |desc: &kda::core::KernelDesc, from: &str, to: &str| {
        let text = desc.ptx.replace(from, to);
        assert_ne!(text, desc.ptx, "{from}");
        text
    };
    // A misspelt instruction, at the line of the barrier that it was.
    let desc = named("scale_add");
    let found = codes(&ptxas, desc, &edited(desc, "bar.sync 0;", "bar.sink 0;"));
    assert!(found.iter().any(|(code, line)| *code == 2001 && *line > desc.source.line), "{found:?}");
    // A kernel that needs many registers, under a cap of 24.
    let desc = named("bv128");
    let found = codes(&ptxas, desc, &edited(desc, ".minnctapersm 1\n", ".maxnreg 24\n"));
    assert_eq!(found, [(2002, desc.source.line)]);
    // Products whose registers nothing orders: the assembler orders them itself, and says where.
    let desc = named("chained_product");
    let found = codes(&ptxas, desc, &edited(desc, "\twgmma.fence.sync.aligned;\n", ""));
    assert!(matches!(found[..], [(2003, line), ..] if line != desc.source.line), "{found:?}");
}
