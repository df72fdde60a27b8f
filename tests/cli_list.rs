//! `kda list`, `ptx`, `card` and `check` as a user runs them.

use std::process::{Command, Output, Stdio};

fn kda(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_kda")).args(arguments).output().expect("the command starts");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"));
    output
}

#[test]
fn the_list_is_a_json_array_of_the_registered_kernels() {
    let output = kda(&["list", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let parsed: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let entries: Vec<&str> =
        parsed.as_array().unwrap().iter().map(|kernel| kernel["entry"].as_str().unwrap()).collect();
    let registered: Vec<&str> = kda::registry::kernels().iter().map(|desc| desc.entry).collect();
    assert_eq!(entries, registered);
    let table = String::from_utf8(kda(&["list"]).stdout).unwrap();
    assert_eq!(table.lines().count(), 1 + registered.len());
}

#[test]
fn every_registered_kernel_has_a_card_and_its_text() {
    for desc in kda::registry::kernels() {
        let arch = desc.arch.to_string();
        let card = kda(&["card", desc.entry, "--arch", &arch]);
        assert_eq!(card.status.code(), Some(0), "{}", desc.entry);
        assert!(String::from_utf8(card.stdout).unwrap().starts_with(desc.entry));
        let text = kda(&["ptx", desc.entry, "--arch", &arch]);
        assert_eq!(String::from_utf8(text.stdout).unwrap().trim_end(), desc.ptx.trim_end());
    }
}

#[test]
fn an_unknown_entry_is_a_usage_error() {
    for command in ["ptx", "card", "sim"] {
        let output = kda(&[command, "no_such_kernel_at_all"]);
        assert_eq!(output.status.code(), Some(2), "{command}");
        assert!(output.stdout.is_empty());
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(err.starts_with("error: there is no kernel `no_such_kernel_at_all`"), "{command}: {err}");
        assert_eq!(err.lines().count(), 1, "{command}: {err}");
    }
}

#[test]
fn wrong_usage_has_its_own_exit_code() {
    for arguments in [&["frobnicate"][..], &["check", "--backend", "abacus"], &["check", "--quick", "--full"], &[]] {
        assert_eq!(kda(arguments).status.code(), Some(2), "{arguments:?}");
    }
    assert_eq!(kda(&["--help"]).status.code(), Some(0));
    assert_eq!(kda(&["check", "--op", "no_such_operator"]).status.code(), Some(2));
}

/// The reader is gone before the first byte is written.
#[test]
fn a_broken_pipe_is_not_a_panic() {
    for arguments in [&["list", "--json"][..], &["list"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_kda"))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(err.is_empty(), "{err}");
        // A reader that leaves late enough is not noticed.
        assert!(matches!(output.status.code(), Some(141 | 0)), "{:?}", output.status);
    }
}
