//! `kda sim` and `kda check` as a user runs them.

use std::process::{Command, Output};

fn kda(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_kda")).args(arguments).output().expect("the command starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let (out, err) = (text(stdout), text(stderr));
    assert!(!err.contains("panicked"), "{err}");
    (status.code(), out, err)
}

#[test]
fn a_kernel_of_each_family_is_clean_under_every_schedule() {
    for desc in [
        "scale_add__block256",
        "conv_verify__bv64_lanes32_ctas2_f32_noinner_t2_nolong",
        "schedule__i64",
        "delta_h__v_first_scalar",
        "delta_h_narrow__nomaps_nosplit_vs16_nov_first_noscalar",
    ] {
        let (code, out, err) = kda(&["sim", desc, "--schedule", "all", "--seed", "4"]);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
        assert!(out.starts_with(&format!("{desc}, seed 4\n")), "{out}");
        for schedule in ["round-robin", "reverse-warps", "random", "pct", "late-async", "early-async"] {
            let line = out.lines().find(|line| line.starts_with(schedule)).unwrap_or_else(|| panic!("{out}"));
            let counts: Vec<&str> = line.split_whitespace().collect();
            assert!(counts[1].parse::<u64>().is_ok_and(|ctas| ctas > 0), "{line}");
            assert!(counts[2].parse::<u64>().is_ok_and(|instructions| instructions > 100), "{line}");
            assert!(line.ends_with("pass"), "{line}");
        }
        assert_eq!(out.lines().last(), Some("clean under 6 schedules"));
    }
}

#[test]
fn names_are_checked_with_near_ones() {
    let (code, out, err) = kda(&["sim", "conv_verify__bv64_lanes32_ctas2_f32_noinner_t9_nolong"]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.contains("near it: `conv_verify__bv64_lanes32_ctas2_f32_noinner_t1_nolong`"), "{err}");
    let (code, _, err) = kda(&["sim", "scale_add__block256", "--schedule", "early"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("there is no schedule `early`; near it: `early-async`"), "{err}");
    let (code, _, err) = kda(&["sim", "scale_add__block256", "--ctas", "sideways"]);
    assert_eq!(code, Some(2), "{err}");
}

#[test]
fn a_quick_check_passes_in_the_simulator_and_repeats_with_its_seed() {
    let run = || kda(&["check", "--backend", "sim", "--op", "scale_add", "--seed", "9"]);
    let (code, out, err) = run();
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.starts_with("backend sim") && out.contains("quick check, seed 9"), "{out}");
    assert_eq!(run().1, out);
    let (code, out, err) = kda(&["check", "--backend", "sim", "--op", "conv_verify"]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    // Three rows a variant.
    let rows = 3 * kda_kernels::conv_verify::DESCS.len();
    assert_eq!(out.lines().last(), Some(format!("{rows} passed, 0 failed").as_str()));
}

/// Where there is a device the check passes on it; elsewhere the command says what is missing.
#[test]
fn without_a_driver_cuda_is_an_input_error() {
    for command in
        [&["check", "--op", "scale_add"][..], &["replay", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/oracle")]]
    {
        let (code, out, err) = kda(&[command, &["--backend", "cuda"]].concat());
        if code == Some(0) {
            assert!(out.starts_with("backend cuda"), "{out}");
            continue;
        }
        assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
        assert!(err.starts_with("error: no usable CUDA device: "), "{err}");
        assert!(err.contains("NVIDIA driver") || err.contains("cuInit") || err.contains("device"), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
}
