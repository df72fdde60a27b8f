//! The comparison, with a second simulator in the place of the device.

use super::*;
use crate::checks::operators;
use crate::mutate::stand::Stand;
use crate::registry::kernels;
use kda_core::{Elem, PreparedLaunch};
use kda_runtime::executor::sim::Schedule;

/// A device that runs another text than the one it is given.
fn changed(from: &'static str, to: &'static str) -> Stand {
    Stand::new(SimExecutor::default(), move |launch| {
        let text = launch.desc.ptx.replace(from, to);
        assert_ne!(text, launch.desc.ptx, "{from} is not in the text");
        Some(PreparedLaunch { desc: launch.desc.with_text(text), ..launch.clone() })
    })
}

/// Rows of a variant whose entry begins so, on a device.
fn rows(device: &dyn Executor, entry: &str) -> Result<Vec<Measured>, String> {
    let desc = kernels().into_iter().find(|desc| desc.entry.starts_with(entry)).expect("a kernel of that name");
    let operator = operators().into_iter().find(|operator| operator.name == desc.family).expect("its operator");
    let mut rows = Vec::new();
    variant(&operator, device, desc, 3, &mut |measured, _| rows.push(measured))?;
    Ok(rows)
}

#[test]
fn another_schedule_gives_the_same_bits() {
    let options = Options { schedule: Schedule::ReverseWarps, ..Options::default() };
    for (entry, tensors) in [
        ("scale_add__block128", 1),
        ("gemm_ws__bn128_stages6_ctas1_f32", 1),
        ("role_silu", 1),
        ("conv_verify__bv8_lanes8_ctas1_f32_noinner_t2", 4),
    ] {
        let rows = rows(&SimExecutor::new(options), entry).expect("both run");
        let compared: Vec<&Measured> = rows.iter().filter(|row| row.output.contains("elements differ")).collect();
        assert!(compared.len() >= tensors, "{entry}: {rows:?}");
        assert!(compared.iter().all(|row| row.error == 0.0 && row.output.contains(": 0 of ")), "{entry}: {rows:?}");
        assert!(rows.iter().all(Measured::passes), "{entry}: {rows:?}");
        assert!(compared.iter().any(|row| !row.output.contains("0 of 0")), "{entry}: nothing was written: {rows:?}");
    }
}

#[test]
fn a_device_that_computes_something_else_is_found() {
    for (entry, from, to) in [
        ("scale_add__block128", "fma.rn.f32", "fma.rz.f32"),
        ("gemm_ws__bn128_stages6_ctas1_bf16_nosilu", "cvt.rn.bf16x2.f32", "cvt.rz.bf16x2.f32"),
        ("conv_verify__bv8_lanes8_ctas1_f32_noinner_t2", "cvt.rn.bf16.f32", "cvt.rz.bf16.f32"),
    ] {
        let rows = rows(&changed(from, to), entry).expect("both run");
        let found = rows.iter().any(|row| row.output.contains("elements differ") && row.error > 0.0);
        assert!(found && !rows.iter().all(Measured::passes), "{entry}: {rows:?}");
    }
}

#[test]
fn a_tensor_has_the_budget_of_its_output() {
    let row = |output: &str, budget| Measured { case: String::new(), output: output.into(), error: 0.0, budget };
    let rows = [row("out", 1e-3), row("states", 1e-7), row("prescribed bits that differ", 0.0)];
    assert_eq!(["out", "states_out", "windows_out", "conv"].map(|t| budget(&rows, t)), [1e-3, 1e-7, 0.0, 0.0]);
    assert_eq!(budget(&[row("error", 1e-5), row("bits", 0.0)], "y"), 1e-5);
}

#[test]
fn what_is_exact_is_seen_in_the_text() {
    let exact = |entry: &str| is_exact(kernels().iter().find(|d| d.entry.starts_with(entry)).expect("a kernel").ptx);
    assert!(exact("scale_add") && exact("transpose") && exact("ring_sum"));
    assert!(!exact("gemm_ws") && !exact("role_silu") && !exact("conv_verify") && !exact("blackwell_product"));
}

#[test]
fn distances() {
    use distance::compare;
    let words = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let before = words(&[0.0, 0.0, 0.0, 7.0]);
    let found = compare("x", Elem::F32, &before, &words(&[3.0, 0.0, 4.0, 7.0]), &words(&[3.0, 0.0, 4.0, 7.0]));
    assert_eq!((found.written, found.differing, found.distance), (2, 0, 0.0));
    let found = compare("x", Elem::F32, &before, &words(&[3.0, 0.0, 4.5, 7.0]), &words(&[3.0, 0.0, 4.0, 7.0]));
    assert_eq!((found.written, found.differing, found.distance), (2, 1, 0.1));
    // Written on one side alone.
    let found = compare("x", Elem::F32, &before, &before, &words(&[0.0, 1.0, 0.0, 7.0]));
    assert_eq!((found.written, found.differing, found.distance), (1, 1, 1.0));
    let nans = [f32::from_bits(0x7FC0_0000), f32::from_bits(0x7FFF_FFFF)].map(|nan| words(&[nan, 0.0, 0.0, 7.0]));
    assert_eq!(compare("x", Elem::F32, &before, &nans[0], &nans[1]).differing, 0);
    assert!(compare("x", Elem::F32, &before, &nans[0], &words(&[1.0, 0.0, 0.0, 7.0])).distance.is_nan());
    assert_eq!(compare("x", Elem::U32, &before, &nans[0], &nans[1]).distance, 1.0);
}
