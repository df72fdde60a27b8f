//! Without a device.

use super::*;
use kda_runtime::executor::sim::SimExecutor;

#[test]
fn bytes_are_those_of_the_contract() {
    for (h, n) in [(12, 1), (12, 512)] {
        for t in [4, 8] {
            let (shape, records) = (Shape { t, h, n }, 1024 * (t / 2));
            for (contract, pair) in
                [(MOVED, 65_536 + 4_608), (BF16, 65_536 + 4_608), (F32, 131_072 + 4_608), (KEPT, 65_536)]
            {
                assert_eq!(TcCommit.bytes(&contract, shape), (n * h * (pair + records)) as f64, "{}", contract.name);
            }
            let step = 36_608 + 3_074 * t + 65_536 + 4_608 + records;
            assert_eq!(TcCommit.bytes(&STEP, shape), (n * h * step) as f64);
        }
    }
    // Half a millisecond for all layers at 32 requests.
    let floor = TcCommit.bytes(&ALL_LAYERS, Shape { t: 8, h: 12, n: 32 }) / 4.3e6;
    assert!((456.0..458.0).contains(&floor), "{floor}");
    assert_eq!([1, 3, 8].map(accepted), [1, 2, 4]);
}

#[test]
fn the_lists_are_those_that_are_published() {
    let table: Vec<u64> = TcCommit.shapes(List::Table).iter().map(|shape| shape.n).collect();
    assert_eq!(table, [1, 8, 16, 32, 64, 128, 256, 512]);
    assert_eq!((TcCommit.shapes(List::All).len(), TcCommit.shapes(List::Small).len()), (16, 4));
}

/// Every contract and launch: dispatch plans the call, and so do several variants; a step is two launches.
#[test]
fn every_call_of_the_lists_has_a_plan() {
    let executor = SimExecutor::default();
    for contract in TcCommit.contracts() {
        for shape in [List::All, List::Tune].into_iter().flat_map(|list| TcCommit.shapes(list)) {
            let call = TcCommit.call(&mut Arena::counting(), contract, shape).unwrap();
            for launch in TcCommit.launches() {
                let plan = call.plan(&executor, None, *launch).unwrap();
                assert_eq!(plan.launches().len(), if *contract == STEP { 2 } else { 1 });
                assert!(plan.launches().iter().all(|prepared| prepared.pdl == (*launch != Launch::Plain)));
                let layers = if *contract == ALL_LAYERS { LAYERS as u32 } else { 1 };
                assert_eq!(plan.prepared().grid[1..], [shape.n as u32, layers], "{} {shape}", contract.name);
            }
            let fits = |desc: &&&'static KernelDesc| call.plan(&executor, Some(desc), Launch::Plain).is_ok();
            assert!(TcCommit.kernels().iter().filter(fits).count() > 1, "{shape}");
        }
    }
}

#[test]
fn more_tokens_are_refused() {
    let call = TcCommit.call(&mut Arena::counting(), &BF16, Shape { t: 17, h: 12, n: 1 });
    assert!(call.err().expect("an error").to_string().contains("17:12:1 has 17"));
    // The window of a step is one that the verify takes.
    assert!(TcCommit.call(&mut Arena::counting(), &STEP, Shape { t: 17, h: 12, n: 1 }).is_err());
}

/// States that are compared are those that are written alone: the second half of a pool.
#[test]
fn results_are_states_that_are_no_inputs() {
    let shape = Shape { t: 8, h: 12, n: 3 };
    for contract in TcCommit.contracts() {
        let call = TcCommit.call(&mut Arena::counting(), contract, shape).unwrap();
        let states: Vec<Vec<u64>> =
            call.outputs().iter().map(|t| t.shape().to_vec()).filter(|shape| shape.len() == 4).collect();
        let expected: &[[u64; 4]] = if *contract == MOVED { &[[3, 12, 128, 128]] } else { &[] };
        assert_eq!(states, expected, "{}", contract.name);
    }
}
