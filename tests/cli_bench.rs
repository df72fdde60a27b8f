//! `kda bench` as a user runs it, with a device or without one.

use std::process::{Command, Output, Stdio};

fn kda(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_kda")).args(arguments).output().expect("the command starts");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"));
    output
}

#[test]
fn without_a_device_nothing_is_timed_and_nothing_fails() {
    let folder = std::env::temp_dir().join(format!("kda-cli-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (csv, table) = (folder.join("a.csv"), folder.join("preference.rs"));
    let small =
        ["bench", "conv_verify", "--shapes", "4:8:1", "--samples", "1", "--launch", "plain", "--contract", "fp32"];
    let output = kda(&[&small[..], &["--csv", csv.to_str().unwrap()]].concat());
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{out}");
    if out.starts_with("nothing timed: ") {
        assert_eq!(out.lines().count(), 1, "{out}");
        assert!(!csv.exists(), "no file of a run that there was not");
        let tune = kda(&["bench", "conv_verify", &format!("--tune={}", table.display())]);
        assert_eq!(tune.status.code(), Some(0));
        assert!(!table.exists(), "no table without times");
    } else {
        assert!(out.starts_with("# ") && out.contains("ours*"), "{out}");
        assert!(std::fs::read_to_string(&csv).unwrap().contains("\nconv_verify,fp32,4,8,1,8,plain,ours,"));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn wrong_usage_is_said_ahead_of_any_device() {
    for (arguments, expected) in [
        (&["no_such_operator"][..], "error: there is no operator `no_such_operator` to time"),
        (&["conv_verify", "--launch", "eager"], "error: there is no launch mode `eager`"),
        (&["conv_verify", "--contract", "fp8"], "error: conv_verify has no contract `fp8`"),
        (&["conv_verify", "--variants", "none_such"], "error: conv_verify has no variant `none_such`"),
        (&["conv_verify", "--shapes", "4:8"], "error: invalid value '4:8' for '--shapes <LIST>'"),
        (&["conv_verify", "--tune", "--twin"], "error: the argument '--tune[=<FILE>]' cannot be used with '--twin'"),
        (&[], "error: the following required arguments were not provided"),
    ] {
        let output = kda(&[&["bench"][..], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(err.starts_with(expected) && output.stdout.is_empty(), "{arguments:?}: {err}");
    }
}

/// The scripts of peers are Python, and answer whether or not there is PyTorch and a device.
#[test]
fn scripts_of_peers_answer_a_start() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers");
    if Command::new("python3").arg("--version").output().is_err() {
        println!("there is no python3: not checked");
        return;
    }
    for script in ["conv_verify.py", "decode.py", "delta_h.py", "tc_verify.py"] {
        let output = Command::new("python3")
            .args(["-B", &format!("{folder}/{script}"), "--serve"])
            .stdin(Stdio::null())
            .output()
            .expect("python3 starts");
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(out.lines().any(|line| line == "done"), "{script}: {out}");
        assert!(out.starts_with("note,") || out.starts_with("skip,every peer,"), "{script}: {out}");
    }
}
