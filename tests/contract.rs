//! The parts of `conv_verify`'s contract that engines rely on and no golden case shows: counters after a launch that was cut off,
//! calls that break the contract, every raw gate. The checks of `kda check --full`, in the simulator, and proof that each can
//! fail.

use kda::checks::conv_verify::call::Call;
use kda::checks::conv_verify::case::Plan;
use kda::checks::conv_verify::problems::{POOLS, with_pool};
use kda::checks::conv_verify::{chain, gates, misuse};
use kda::checks::{Device, Measured};
use kda::core::exec::Stream;
use kda::core::{Elem, Executor, PreparedLaunch};
use kda::reference::conv_verify::sample::Switches;
use kda::runtime::executor::sim::SimExecutor;
use kda::runtime::operators::conv_verify::indices::{Duplicate, Indices, duplicates};
use kda::runtime::operators::conv_verify::workspace::{at_rest, is_shared, reset};
use kda::runtime::operators::conv_verify::{Options, Problem, SnapshotRule, plan};

const SEED: u64 = 12;

type Rows<'r> = &'r mut dyn FnMut(Measured, f64);

#[track_caller]
fn all_pass(run: impl FnOnce(Rows)) {
    let mut rows = Vec::new();
    run(&mut |measured, _| rows.push(measured));
    assert!(!rows.is_empty() && rows.iter().all(Measured::passes), "{rows:#?}");
}

#[test]
fn duplicates_are_found_and_spoil_nothing_else() {
    let executor = SimExecutor::default();
    let device = Device::simulator(&executor);
    all_pass(|rows| misuse::duplicated(device, true, SEED, rows, 1.0).expect("the checks run"));
}

/// Counters that a launch left behind when it was cut off are wrong for the next one, and right again after a reset.
#[test]
fn counters_are_right_again_after_a_launch_that_was_cut_off() {
    all_pass(|rows| misuse::counters(SEED, rows, 1.0).expect("the checks run"));
}

#[test]
fn every_raw_gate_is_a_decay() {
    let executor = SimExecutor::default();
    let device = Device::simulator(&executor);
    all_pass(|rows| gates::run(device, SEED, rows, 1.0).expect("the checks run"));
}

/// Kernels that lose a limit of an exponent: some gate meets an infinity that a zero multiplies.
#[test]
fn lost_limits_of_the_gates_are_found() {
    // 88 and -87 as the texts write them.
    for (lower_bound, a_log, limit, other) in [
        (Some(-5.0), 100.0, "0f42B00000", "0f7F7FFFFF"),
        (Some(-5.0), -200.0, "0fC2AE0000", "0fFF7FFFFF"),
        (None, -200.0, "0fC2AE0000", "0fFF7FFFFF"),
    ] {
        let case = gates::case(gates::SHORT, lower_bound, POOLS[0], a_log, if a_log > 0.0 { 0.0 } else { f32::MAX });
        let run = |changed: bool| {
            let executor = SimExecutor::default();
            let call = Call::new(Device::simulator(&executor), &case).expect("memory");
            let planned = plan(&call.problem, &executor, &Options::default()).expect("the call is good");
            let text = planned.desc().ptx.replace(limit, if changed { other } else { limit });
            assert_eq!(text != planned.desc().ptx, changed, "{limit} is not in the text");
            let launch = PreparedLaunch { desc: planned.desc().with_text(text), ..planned.prepared().clone() };
            // SAFETY: the simulator touches no host memory; the buffers of the call outlive the launch.
            unsafe { executor.launch(&launch, Stream::default()) }.expect("no report");
            gates::strays(&case.sample, &call.results().expect("results"))
        };
        assert_eq!(run(false), 0, "{limit}");
        assert!(run(true) > 0, "{limit}: nobody notices");
    }
}

/// Every call of a chain reads what the one ahead has written, and the simulator sees no read ahead of the wait.
#[test]
fn dependent_launches_give_the_bits_of_launches_one_by_one() {
    let executor = SimExecutor::default();
    let device = Device::simulator(&executor);
    all_pass(|rows| chain::run(device, 1, SEED, rows, 1.0).expect("the checks run"));
}

/// A call on a small batch: four requests, two of them padding.
fn with_call(check: impl FnOnce(&mut Problem, &SimExecutor)) {
    let executor = SimExecutor::default();
    let case = Plan::of(Switches { roll: true, ..with_pool(Switches::plain(4, 1, 1, 2), POOLS[0]) }).draw(SEED);
    let mut call = Call::new(Device::simulator(&executor), &case).expect("memory");
    check(&mut call.problem, &executor);
}

#[test]
fn what_is_a_duplicate() {
    let of = |conv_slots: [i32; 4], state_slots: [i32; 4], snapshot_rows: [i32; 4]| Indices {
        conv_slots: conv_slots.into(),
        state_slots: state_slots.into(),
        snapshot_rows: snapshot_rows.into(),
    };
    let twice = |map, index, first, second| Duplicate { map, index, first, second };
    with_call(|p, _| {
        let distinct = of([0, 1, 2, 3], [0, 1, 2, 3], [3, 2, 1, 0]);
        assert_eq!(duplicates(p, &distinct), []);
        // A state slot is read only.
        assert_eq!(duplicates(p, &of([0, 1, 2, 3], [1, 1, 1, 1], [3, 2, 1, 0])), []);
        let lines = of([2, 1, 2, 2], [0, 1, 2, 3], [3, 2, 1, 0]);
        assert_eq!(duplicates(p, &lines), [twice("conv_slots", 2, 0, 2), twice("conv_slots", 2, 0, 3)]);
        let words = duplicates(p, &lines)[0].to_string();
        assert_eq!(words, "`conv_slots` holds 2 for the live requests 0 and 2, which would both write there");
        // Padding rows write nothing: a line or a slot that is not live.
        assert_eq!(duplicates(p, &of([2, 1, 2, -1], [0, 1, -1, 3], [1, 2, 1, 1])), []);
        let rows = of([0, 1, 2, 3], [0, 1, 2, 3], [3, 0, 3, -1]);
        assert_eq!(duplicates(p, &rows), [twice("snapshot_rows", 3, 0, 2)]);
        // Rows that are not live are written by nobody.
        let many = p.snapshot_rows.shape()[0] as i32 + 100;
        assert_eq!(duplicates(p, &of([0, 1, 2, 3], [0, 1, 2, 3], [many, many, -7, -7])), []);
        // By batch a state goes to the request's own row, a window still to its snapshot row.
        p.snapshot_rule = SnapshotRule::ByBatch;
        assert_eq!(duplicates(p, &rows).len(), 1);
        p.windows_out = None;
        assert_eq!(duplicates(p, &rows), []);
        p.snapshot_rule = SnapshotRule::ByIndex;
        assert_eq!(duplicates(p, &rows).len(), 1);
        p.states_out = None;
        assert_eq!(duplicates(p, &rows), []);
        p.roll = false;
        assert_eq!(duplicates(p, &lines), []);
        // With null = 0 slot 0 is the null slot.
        p.roll = true;
        assert_eq!(duplicates(p, &of([0, 0, 1, 2], [1, 2, 3, 4], [1, 2, 3, 4])).len(), 1);
        p.null = 0;
        assert_eq!(duplicates(p, &of([0, 0, 1, 2], [1, 2, 3, 4], [1, 2, 3, 4])), []);
        assert_eq!(duplicates(p, &Indices::default()), []);
    });
}

#[test]
fn indices_are_read_with_their_stride() {
    let case = Plan { null_rows: true, ..Plan::of(Switches::plain(4, 1, 1, 1)) };
    for index_stride in [1, 3] {
        let mut case = case.draw(SEED);
        case.view.index_stride = index_stride;
        let executor = SimExecutor::default();
        let call = Call::new(Device::simulator(&executor), &case).expect("memory");
        assert_eq!(Indices::read(&call.problem, &executor), Ok(misuse::indices(&case)), "{index_stride}");
    }
}

#[test]
fn calls_that_may_not_overlap() {
    with_call(|p, executor| {
        assert!(is_shared(p, p));
        let mut other = *p;
        other.workspace.ptr += other.workspace.extent_bytes() as u64;
        assert!(!is_shared(p, &other) && !is_shared(&other, p));
        other.workspace.ptr -= 4;
        assert!(is_shared(p, &other) && is_shared(&other, p));
        // A call without roll does not count.
        other.roll = false;
        assert!(!is_shared(p, &other) && !is_shared(&other, p));
        assert_eq!(at_rest(&p.workspace, executor), Ok(true));
        executor.write(p.workspace.ptr + 4, &[0, 0, 1, 0]).expect("the workspace is written");
        assert_eq!(at_rest(&p.workspace, executor), Ok(false));
        reset(&p.workspace, executor).expect("the workspace is reset");
        assert_eq!((at_rest(&p.workspace, executor), p.workspace.elem), (Ok(true), Elem::U32));
    });
}
