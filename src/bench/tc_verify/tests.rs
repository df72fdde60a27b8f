//! Without a device.

use super::*;
use kda_runtime::executor::sim::SimExecutor;

#[test]
fn bytes_are_those_of_the_contract() {
    for (h, n) in [(12, 1), (96, 512)] {
        for t in [1, 4, 8] {
            let shape = Shape { t, h, n };
            for contract in [CONV, CONV_F32, SOFTPLUS, CHANNEL_MAJOR, FIXED] {
                assert_eq!(TcVerify.bytes(&contract, shape), (n * h * (36_608 + 3_074 * t)) as f64);
            }
            assert_eq!(TcVerify.bytes(&FP32, shape), (n * h * (69_376 + 3_074 * t)) as f64);
            assert_eq!(TcVerify.bytes(&GIVEN, shape), (n * h * (32_768 + 2_306 * t)) as f64);
        }
    }
    let floor = |n: u64| (TcVerify.bytes(&CONV, Shape { t: 8, h: 12, n }) / 4.3e6 * 10.0).round() / 10.0;
    assert_eq!([1, 32, 128, 512].map(floor), [0.2, 5.5, 21.9, 87.4]);
    // Snapshots of f32 states at 8 tokens: ten times the bytes.
    let shape = Shape { t: 8, h: 12, n: 32 };
    let ratio = TcVerify.bytes(&SNAPSHOTS, shape) / TcVerify.bytes(&CONV, shape);
    assert!((10.0..10.3).contains(&ratio), "{ratio}");
}

#[test]
fn the_lists_are_those_that_are_published() {
    let table: Vec<u64> = TcVerify.shapes(List::Table).iter().map(|shape| shape.n).collect();
    assert_eq!(table, [1, 8, 16, 32, 64, 128, 256, 512]);
    assert!(TcVerify.shapes(List::Table).iter().all(|shape| (shape.t, shape.h) == (8, 12)));
    assert_eq!((TcVerify.shapes(List::All).len(), TcVerify.shapes(List::Small).len()), (32, 4));
}

/// Every contract and launch: dispatch plans the call, and so does one variant of each kind that fits it.
#[test]
fn every_call_of_the_lists_has_a_plan() {
    let executor = SimExecutor::default();
    for contract in TcVerify.contracts() {
        for shape in TcVerify.shapes(List::All) {
            let call = TcVerify.call(&mut Arena::counting(), contract, shape).unwrap();
            for launch in Launch::ALL {
                let plan = call.plan(&executor, None, launch).unwrap();
                // The portable kernel knows no dependent launch.
                assert_eq!(plan.prepared().pdl, launch != Launch::Plain && *contract != FP32);
                let (snapshots, early) = (*contract == SNAPSHOTS, launch == Launch::PdlStable);
                let variant = Variant::of(plan.desc());
                assert_eq!(variant.is_none(), snapshots, "{} {shape}", contract.name);
                assert!(variant.is_none_or(|v| v.early() == (early && v.hopper())), "{} {shape}", contract.name);
            }
            let fits = |desc: &&&'static KernelDesc| call.plan(&executor, Some(desc), Launch::Plain).is_ok();
            assert_eq!(TcVerify.kernels().iter().any(|desc| fits(&desc)), *contract != SNAPSHOTS, "{shape}");
        }
    }
}

#[test]
fn more_tokens_are_refused() {
    let call = TcVerify.call(&mut Arena::counting(), &CONV, Shape { t: 17, h: 12, n: 1 });
    assert!(call.err().expect("an error").to_string().contains("17:12:1 has 17"));
    let call = TcVerify.call(&mut Arena::counting(), &CONV, Shape { t: 16, h: 12, n: 1 }).unwrap();
    assert!(call.plan(&SimExecutor::default(), None, Launch::Plain).is_ok());
}
