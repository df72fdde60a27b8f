//! The crates depend on each other only as the architecture says.

use std::collections::{BTreeMap, BTreeSet};

/// Crate, and the workspace crates that it may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("kda-core", &[]),
    ("kda-ptx", &["kda-core"]),
    ("kda-codegen", &["kda-core", "kda-ptx"]),
    ("kda-dsl", &["kda-codegen"]),
    ("kda-kernels", &["kda-core", "kda-dsl"]),
    ("kda-ref", &[]),
    ("kda-sim", &["kda-core", "kda-ptx"]),
    ("kda-runtime", &["kda-core", "kda-kernels", "kda-sim"]),
    ("kda", &["kda-codegen", "kda-core", "kda-kernels", "kda-ptx", "kda-ref", "kda-runtime", "kda-sim"]),
];

/// Crates that may use nothing outside the workspace but these.
const CLOSED: &[(&str, &[&str])] = &[("kda-ref", &["half"])];

/// Every package of the workspace with its dependencies that are not for tests alone.
fn packages() -> BTreeMap<String, BTreeSet<String>> {
    let output = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let text = |value: &serde_json::Value| value.as_str().expect("a string").to_string();
    let list = |value: &serde_json::Value| value.as_array().expect("a list").clone();
    list(&metadata["packages"])
        .iter()
        .map(|package| {
            let used = list(&package["dependencies"])
                .iter()
                .filter(|dependency| dependency["kind"].as_str() != Some("dev"))
                .map(|dependency| text(&dependency["name"]))
                .collect();
            (text(&package["name"]), used)
        })
        .collect()
}

#[test]
fn dependencies_point_one_way() {
    let packages = packages();
    let names: BTreeSet<&str> = packages.keys().map(String::as_str).collect();
    let known: BTreeSet<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, known, "a crate without a line in the table, or the reverse");
    for (name, used) in &packages {
        let (_, allowed) = ARROWS.iter().find(|(crate_name, _)| crate_name == name).expect("known");
        let inside: Vec<&str> = used.iter().map(String::as_str).filter(|used| names.contains(used)).collect();
        let wrong: Vec<_> = inside.iter().filter(|used| !allowed.contains(used)).collect();
        assert!(wrong.is_empty(), "{name} must not use {wrong:?}");
    }
}

#[test]
fn closed_crates_use_nothing_else() {
    let packages = packages();
    for (name, allowed) in CLOSED {
        let used: Vec<&str> = packages[*name].iter().map(String::as_str).collect();
        assert_eq!(&used, allowed, "{name}");
    }
}
