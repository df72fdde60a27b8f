//! `kda replay` as a user runs it: the golden cases pass, and every kind of damage is told.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const ORACLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/oracle");
const CASE: &str = "t1_softplus";

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

fn kda(arguments: &[&str]) -> Ran {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_kda")).args(arguments).output().expect("the command starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let ran = Ran { code: status.code(), out: text(stdout), err: text(stderr) };
    assert!(!ran.err.contains("panicked"), "{}", ran.err);
    ran
}

/// A copy of the golden cases that a test may damage; removed at the end.
struct Copy(PathBuf);

impl Copy {
    fn new(test: &str) -> Copy {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("replay-{test}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        for file in fs::read_dir(ORACLE).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), folder.join(file.file_name())).unwrap();
        }
        Copy(folder)
    }

    fn edit(&self, file: &str, edit: impl FnOnce(&mut Vec<u8>)) {
        let path = self.0.join(file);
        let mut bytes = fs::read(&path).unwrap();
        edit(&mut bytes);
        fs::write(path, bytes).unwrap();
    }

    /// Replays the damaged case alone.
    fn replay(&self) -> Ran {
        kda(&["replay", self.0.to_str().unwrap(), "--case", CASE])
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn every_golden_case_passes() {
    let ran = kda(&["replay", ORACLE]);
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.out, ran.err);
    assert_eq!(ran.out.lines().last(), Some("47 passed, 0 failed, 1 skipped"));
    assert!(ran.err.is_empty(), "{}", ran.err);
    let skipped = ran.out.lines().find(|line| line.starts_with("tiny_kda_lm")).expect("a row of the skipped case");
    assert!(skipped.contains("golden model") && skipped.contains("skip: a whole language model"), "{skipped}");
    let compared = ran.out.lines().find(|line| line.starts_with(CASE)).expect("a row of the case");
    assert!(compared.contains("out.o") && compared.ends_with("pass"), "{compared}");
}

#[test]
fn the_operator_replays_the_cases_that_are_its_own() {
    for backend in ["sim", "auto"] {
        let ran = kda(&["replay", ORACLE, "--backend", backend]);
        assert_eq!(ran.code, Some(0), "{}\n{}", ran.out, ran.err);
        assert!(ran.out.starts_with("backend "), "{}", ran.out);
        let replayed = |operator: &str| -> Vec<String> {
            let lines = ran.out.lines().filter(|l| l.contains(operator)).filter_map(|l| l.split(' ').next());
            let mut cases: Vec<String> = lines.map(String::from).collect();
            cases.dedup();
            cases
        };
        assert_eq!(replayed(" conv_verify "), ["conv_t1_decode", "conv_t4_verify"]);
        let decoded = [
            "t1_softplus",
            "t1_gva_h2_hv4",
            "t1_pool_slots",
            "t4_verify_softplus",
            "t3_verify_safe_gva",
            "gate_softplus_extremes",
            "gate_safe_extremes",
            "beta_saturated",
            "conv_t1_decode",
        ];
        assert_eq!(replayed(" decode "), decoded);
        let chunked = [
            "t1_softplus",
            "t1_gva_h2_hv4",
            "t64_softplus",
            "t100_softplus_h0",
            "t65_tail1",
            "varlen_0_3_0",
            "delta_h_3chunks",
            "gate_softplus_extremes",
            "gate_safe_extremes",
            "cum_decay_softplus_minus34",
            "beta_saturated",
        ];
        assert_eq!(replayed(" delta_h "), chunked);
        let verified =
            ["t1_softplus", "t4_verify_softplus", "varlen_0_3_0", "beta_saturated", "conv_t1_decode", "conv_t4_verify"];
        assert_eq!(replayed(" tc_verify "), verified);
        assert_eq!(replayed(" tc_commit "), ["t1_softplus", "t4_verify_softplus", "beta_saturated"]);
    }
}

/// One wrong element of an expected state or output is beyond twice the emulation's error; one wrong window is no copy.
#[test]
fn the_operator_is_held_against_every_expected_tensor() {
    // Operators of a case that know nothing of the tensor pass.
    for (case, operators, tensor, passed) in [
        ("conv_t4_verify", &["conv_verify", "tc_verify"][..], "out.o", 0),
        ("conv_t4_verify", &["conv_verify"], "out.state_after", 1),
        ("conv_t4_verify", &["conv_verify"], "out.conv_state_after", 1),
        ("conv_t1_decode", &["conv_verify", "decode"], "out.final_state", 1),
        ("conv_t1_decode", &["conv_verify", "decode", "tc_verify"], "out.conv_state", 0),
        ("t3_verify_safe_gva", &["decode"], "out.state_after", 0),
        ("t4_verify_softplus", &["decode", "tc_commit"], "out.state_after", 1),
        ("t1_pool_slots", &["decode"], "out.state_pool", 0),
        ("beta_saturated", &["decode", "tc_verify"], "out.o", 2),
        ("gate_safe_extremes", &["decode", "delta_h"], "out.final_state", 0),
        ("delta_h_3chunks", &["delta_h"], "out.h", 0),
        ("varlen_0_3_0", &["delta_h"], "out.final_state", 1),
    ] {
        let copy = Copy::new(&format!("operator-{case}-{tensor}"));
        copy.edit(&format!("{case}.safetensors"), |bytes| negate_largest(bytes, tensor));
        let ran = kda(&["replay", copy.0.to_str().unwrap(), "--case", case, "--backend", "sim"]);
        let summary = format!("{passed} passed, {} failed, 0 skipped", 1 + operators.len());
        assert_eq!((ran.code, ran.out.lines().last()), (Some(1), Some(summary.as_str())), "{}", ran.out);
        for operator in operators {
            let cause = format!("case {case}, {operator}: {tensor}");
            assert!(ran.err.contains(&cause) && ran.err.contains("is off by"), "{tensor}: {}", ran.err);
        }
    }
}

/// Changes the sign of the largest element of a float tensor.
fn negate_largest(bytes: &mut [u8], tensor: &str) {
    let (start, size, length) = {
        let parsed = safetensors::SafeTensors::deserialize(bytes).unwrap();
        let view = parsed.tensor(tensor).unwrap();
        let size = if view.dtype() == safetensors::Dtype::F64 { 8 } else { 4 };
        (view.data().as_ptr() as usize - bytes.as_ptr() as usize, size, view.data().len())
    };
    let value = |at: usize| match size {
        8 => f64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()).abs(),
        _ => f64::from(f32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())).abs(),
    };
    let places = (start..start + length).step_by(size);
    let largest = places.max_by(|a, b| value(*a).total_cmp(&value(*b))).unwrap();
    bytes[largest + size - 1] ^= 0x80;
}

#[test]
fn cases_are_chosen_by_name() {
    let ran = kda(&["replay", ORACLE, "--case", CASE, "--case", "varlen_0_3_0"]);
    assert_eq!((ran.code, ran.out.lines().last()), (Some(0), Some("8 passed, 0 failed, 0 skipped")));
    let ran = kda(&["replay", ORACLE, "--case", "t1_softpluss"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("`t1_softpluss`") && ran.err.contains("near it: `t1_softplus`"), "{}", ran.err);
}

#[test]
fn nothing_compared_is_not_a_pass() {
    let ran = kda(&["replay", ORACLE, "--case", "tiny_kda_lm"]);
    assert_eq!(ran.code, Some(1));
    assert_eq!(ran.out.lines().last(), Some("0 passed, 0 failed, 1 skipped"));
    assert!(ran.err.contains("no case was compared"), "{}", ran.err);
    let copy = Copy::new("no-cases");
    fs::write(copy.0.join("cases.json"), r#"{"cases": []}"#).unwrap();
    assert_eq!(kda(&["replay", copy.0.to_str().unwrap()]).code, Some(1));
}

/// The last bytes of the file are values of a tensor; a changed exponent cannot agree.
#[test]
fn a_changed_value_fails_and_names_the_case() {
    let copy = Copy::new("changed-value");
    copy.edit("t1_softplus.safetensors", |bytes| {
        let at = bytes.len() - 1;
        bytes[at] ^= 0x20;
    });
    let ran = copy.replay();
    assert_eq!(ran.code, Some(1), "{}\n{}", ran.out, ran.err);
    assert_eq!(ran.out.lines().last(), Some("0 passed, 5 failed, 0 skipped"));
    assert!(ran.err.contains("case t1_softplus, golden model: ") && ran.err.contains("is off by"), "{}", ran.err);
    let whole = kda(&["replay", copy.0.to_str().unwrap()]);
    assert_eq!((whole.code, whole.out.lines().last()), (Some(1), Some("42 passed, 5 failed, 1 skipped")));
}

/// What a test does to a copy.
type Damage = fn(&Copy);

#[test]
fn truncated_and_missing_files_fail_and_name_the_case() {
    let damage: [(&str, Damage, &str); 5] = [
        ("short", |copy| copy.edit("t1_softplus.safetensors", |bytes| bytes.truncate(1000)), "has 1000 bytes"),
        (
            "padded",
            |copy| {
                // The size that cases.json names, but not the tensors.
                copy.edit("t1_softplus.safetensors", |bytes| {
                    let length = bytes.len();
                    bytes.truncate(1000);
                    bytes.resize(length, 0x20);
                    bytes[..8].copy_from_slice(&(length as u64).to_le_bytes());
                });
            },
            "not a whole safetensors file",
        ),
        ("empty", |copy| copy.edit("t1_softplus.safetensors", Vec::clear), "has 0 bytes"),
        ("missing", |copy| fs::remove_file(copy.0.join("t1_softplus.safetensors")).unwrap(), "cannot be read"),
        (
            "renamed",
            |copy| {
                copy.edit("cases.json", |bytes| {
                    let text = String::from_utf8(bytes.clone()).unwrap();
                    *bytes = text.replacen("\"t1_softplus.safetensors\"", "\"../t1_softplus.safetensors\"", 1).into();
                });
            },
            "not the name of a file beside",
        ),
    ];
    for (name, act, expected) in damage {
        let copy = Copy::new(name);
        act(&copy);
        let ran = copy.replay();
        assert_eq!(ran.code, Some(1), "{name}: {}\n{}", ran.out, ran.err);
        assert!(
            ran.err.contains("case t1_softplus, golden model: ") && ran.err.contains(expected),
            "{name}: {}",
            ran.err
        );
        assert_eq!(ran.err.lines().count(), 1, "{name}: {}", ran.err);
    }
}

#[test]
fn a_tensor_other_than_described_fails() {
    let copy = Copy::new("described");
    copy.edit("cases.json", |bytes| {
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert!(text.contains("\"float64\""));
        *bytes = text.replacen("\"float64\"", "\"float32\"", 1).into();
    });
    let ran = copy.replay();
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.err.contains("tensor out.o is float64"), "{}", ran.err);
}

#[test]
fn unusable_folders_are_input_errors() {
    let ran = kda(&["replay", "there/is/no/such/folder"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("there/is/no/such/folder is not a folder"), "{}", ran.err);
    let copy = Copy::new("unusable");
    fs::write(copy.0.join("cases.json"), "{\"cases\": [{\"case\": 7}]}").unwrap();
    let ran = copy.replay();
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("does not describe cases"), "{}", ran.err);
    fs::remove_file(copy.0.join("cases.json")).unwrap();
    let ran = copy.replay();
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("cases.json cannot be read"), "{}", ran.err);
    assert_eq!((ran.out.as_str(), ran.err.lines().count()), ("", 1));
}
