//! Without a device.

use super::*;
use crate::bench::shape::Shapes;
use kda_runtime::executor::sim::SimExecutor;
use std::collections::BTreeSet;

#[test]
fn bytes_are_those_of_the_contract() {
    for h in [8, 64] {
        assert_eq!(
            DeltaH.bytes(&KDA, Shape::packed(&NAMED[0], h)),
            (h * (8192 * 1024 + 128 * 33_280 + 131_072)) as f64
        );
        assert_eq!(
            DeltaH.bytes(&SERIAL, Shape::packed(&NAMED[1], h)),
            (h * (8192 * 1024 + 131 * 33_280 + 6 * 131_072)) as f64
        );
    }
    let floor = |shape: Shape| (DeltaH.bytes(&KDA, shape) / 4.3e6 * 10.0).round() / 10.0;
    assert_eq!([floor(Shape::packed(&NAMED[0], 64)), floor(Shape::packed(&NAMED[1], 8))], [190.2, 25.2]);
}

#[test]
fn the_lists_are_those_that_are_published() {
    let table = DeltaH.shapes(List::Table);
    assert_eq!("fixed8192:4,mixed6:64".parse(), Ok(Shapes::Given(vec![table[0], table[9]])));
    assert_eq!((table.len(), DeltaH.shapes(List::All).len(), DeltaH.shapes(List::Small).len()), (10, 25, 4));
    let tune = DeltaH.shapes(List::Tune);
    let pairs: BTreeSet<u64> = tune.iter().map(|shape| shape.pairs()).collect();
    assert_eq!(pairs.len(), tune.len(), "a table keeps one time for each number of pairs");
}

/// Every contract and launch: dispatch plans the call; long sequences at few heads take three launches.
#[test]
fn every_call_of_the_lists_has_a_plan() {
    let executor = SimExecutor::default();
    for contract in DeltaH.contracts() {
        for shape in [List::All, List::Tune].into_iter().flat_map(|list| DeltaH.shapes(list)) {
            let call = DeltaH.call(&mut Arena::counting(), contract, shape).unwrap();
            for launch in DeltaH.launches() {
                let plan = call.plan(&executor, None, *launch).unwrap();
                let (first, others) = plan.launches().split_first().expect("a launch");
                assert_eq!(first.pdl, *launch != Launch::Plain, "{shape}");
                assert!([0, 2].contains(&others.len()) && others.iter().all(|launch| launch.pdl), "{shape}");
            }
            let (name, ahead) = call.ahead(&executor).unwrap().expect("a schedule");
            assert_eq!((name, ahead.launches().len()), ("schedule", 1));
            let fits = |desc: &&&'static KernelDesc| call.plan(&executor, Some(desc), Launch::Plain).is_ok();
            assert!(DeltaH.kernels().iter().filter(fits).count() >= 1, "{shape}");
        }
    }
    let launches = |contract: &Contract, shape: Shape| {
        let call = DeltaH.call(&mut Arena::counting(), contract, shape).unwrap();
        call.plan(&executor, None, Launch::Plain).unwrap().launches().len()
    };
    let [fixed, mixed] = &NAMED;
    assert_eq!(
        [
            launches(&KDA, Shape::packed(fixed, 4)),
            launches(&SERIAL, Shape::packed(fixed, 4)),
            launches(&KDA, Shape::packed(mixed, 4))
        ],
        [3, 1, 1]
    );
    // Six sequences too short to be cut, if that is known.
    let eight = [(&KDA, fixed), (&KDA, mixed), (&OPEN, mixed)];
    assert_eq!(eight.map(|(contract, lengths)| launches(contract, Shape::packed(lengths, 8))), [3, 1, 3]);
    assert_eq!([launches(&KDA, Shape::packed(fixed, 32)), launches(&SCALAR, Shape::packed(fixed, 8))], [1, 1]);
}

/// What is compared and looked at is what a call writes: nothing behind the last chunk.
#[test]
fn results_are_those_that_are_written() {
    let call = DeltaH.call(&mut Arena::counting(), &SERIAL, Shape::packed(&NAMED[1], 8)).unwrap();
    let shapes: Vec<Vec<u64>> = call.outputs().iter().map(|tensor| tensor.shape().to_vec()).collect();
    assert_eq!(shapes, [vec![8192, 8, 128], vec![131, 8, 128, 128], vec![6, 8, 128, 128]]);
}
