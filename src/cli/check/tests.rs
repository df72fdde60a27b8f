//! The decision, with operators that return what the test wants.

use super::*;
use kda::core::PreparedLaunch;
use kda::core::exec::{ExecError, Executor, Stream};
use kda::runtime::Backend;

/// Runs nothing.
struct Idle;

impl Executor for Idle {
    fn describe(&self) -> String {
        "idle".into()
    }

    fn compute_capability(&self) -> (u8, u8) {
        (9, 0)
    }

    fn multiprocessors(&self) -> u32 {
        1
    }

    fn allocate(&self, _bytes: u64) -> Result<u64, ExecError> {
        Ok(256)
    }

    fn free(&self, _ptr: u64) -> Result<(), ExecError> {
        Ok(())
    }

    fn write(&self, _ptr: u64, _bytes: &[u8]) -> Result<(), ExecError> {
        Ok(())
    }

    fn read(&self, _ptr: u64, _bytes: &mut [u8]) -> Result<(), ExecError> {
        Ok(())
    }

    fn fill(&self, _ptr: u64, _byte: u8, _bytes: u64) -> Result<(), ExecError> {
        Ok(())
    }

    unsafe fn launch(&self, _launch: &PreparedLaunch, _stream: Stream) -> Result<(), ExecError> {
        Ok(())
    }

    fn synchronize(&self, _stream: Stream) -> Result<(), ExecError> {
        Ok(())
    }
}

fn measured(error: f64) -> Measured {
    Measured { case: "n = 3".into(), output: "out".into(), error, budget: 1e-3 }
}

/// An operator without a sample problem and without golden cases.
const BARE: Operator = Operator { name: "", run: |_, _| Ok(()), sample: |_, _, _, _| Ok(()), replay: |_, _| Ok(None) };
const GOOD: Operator = Operator {
    name: "good",
    run: |_, take| {
        take(measured(1e-3), 1.0);
        Ok(())
    },
    ..BARE
};
const SEED: Operator = Operator {
    name: "seed",
    run: |request, take| {
        assert_eq!((request.seed, request.extent), (7, Extent::Full));
        take(measured(0.0), 1.0);
        Ok(())
    },
    ..BARE
};
const BAD: Operator = Operator {
    name: "bad",
    run: |_, take| {
        take(measured(1.1e-3), 1.0);
        Ok(())
    },
    ..BARE
};
const NAN: Operator = Operator {
    name: "nan",
    run: |_, take| {
        take(measured(f64::NAN), 1.0);
        Ok(())
    },
    ..BARE
};
const EMPTY: Operator = Operator { name: "empty", ..BARE };
const STOPPED: Operator = Operator {
    name: "stopped",
    run: |_, take| {
        take(measured(0.0), 1.0);
        Err("the device was lost".into())
    },
    ..BARE
};

fn check(operators: &[Operator], ops: &[&str]) -> (Verdict, String, String) {
    let ops = ops.iter().map(|op| op.to_string()).collect();
    let arguments = Arguments { ops, backend: BackendName::Auto, quick: false, full: true, diff: false, seed: Some(7) };
    let device = Opened { executor: Box::new(Idle), backend: Backend::Sim, why: "backend idle".into() };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let verdict = run_on(&arguments, operators, &device, &mut Streams { out: &mut out, err: &mut err }).unwrap();
    (verdict, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

#[test]
fn passes_only_if_all_is_within_budget() {
    let (verdict, out, err) = check(&[GOOD, SEED], &[]);
    assert_eq!(verdict, Verdict::Passed);
    assert!(out.starts_with("backend idle; full check, seed 7\n") && out.ends_with("2 passed, 0 failed\n"), "{out}");
    assert!(err.is_empty());
    for wrong in [BAD, NAN, EMPTY, STOPPED] {
        let name = wrong.name;
        let (verdict, out, _) = check(&[GOOD, wrong], &[]);
        assert_eq!(verdict, Verdict::Failed, "{name}: {out}");
        assert!(out.ends_with("1 failed\n"), "{name}: {out}");
    }
    assert!(check(&[STOPPED], &[]).2.contains("stopped: the device was lost"));
    assert!(check(&[EMPTY], &[]).2.contains("empty: nothing was measured"));
}

#[test]
fn operators_are_chosen_by_name() {
    assert_eq!(check(&[GOOD, BAD], &["good"]).0, Verdict::Passed);
    let arguments = Arguments {
        ops: vec!["godo".into()],
        backend: BackendName::Sim,
        quick: false,
        full: false,
        diff: false,
        seed: None,
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let stop = run(&arguments, &[GOOD], &mut Streams { out: &mut out, err: &mut err }).unwrap_err();
    assert!(stop.to_string().ends_with("near it: `good`; one of good is needed"), "{stop}");
}

#[test]
fn nothing_to_check_is_not_a_pass() {
    let arguments =
        Arguments { ops: vec![], backend: BackendName::Sim, quick: true, full: false, diff: false, seed: None };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let verdict = run(&arguments, &[], &mut Streams { out: &mut out, err: &mut err }).unwrap();
    assert_eq!((verdict, out.len()), (Verdict::Failed, 0));
}

#[test]
fn a_comparison_needs_a_device() {
    let arguments =
        Arguments { ops: vec![], backend: BackendName::Sim, quick: false, full: false, diff: true, seed: None };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let stop = run(&arguments, &[GOOD], &mut Streams { out: &mut out, err: &mut err }).unwrap_err();
    assert!(stop.to_string().contains("--diff needs a CUDA device"), "{stop}");
}
