//! Whole designs in the kernel language: that they compute what they should, and what they need.

#[path = "../semantics/record.rs"]
mod record;

#[path = "../semantics/harness.rs"]
#[allow(dead_code)]
mod harness;

mod delta_h;
mod tc_verify;

use kda_codegen::compiled::Compiled;

/// Assembles what was compiled, where `KDA_PTXAS` names the assembler: no error, no spill, no note on products.
fn assembled(name: &str, compiled: &Compiled) {
    let Ok(ptxas) = std::env::var("KDA_PTXAS") else { return };
    let path = std::env::temp_dir().join(format!("design-{name}.ptx"));
    std::fs::write(&path, &compiled.ptx).expect("a file");
    let arch = format!("-arch={}", compiled.arch);
    let output = std::process::Command::new(ptxas).args([&arch, "-v", "-o", "/dev/null"]).arg(&path).output();
    let text = String::from_utf8_lossy(&output.expect("ptxas runs").stderr).into_owned();
    assert!(!text.contains("C75") && text.contains(" 0 bytes spill stores"), "{text}\n{}", compiled.ptx);
}
