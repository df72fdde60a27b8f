//! A request's results depend neither on the variant that is chosen, nor on the batch around it, nor on other calls.

use kda::checks::Device;
use kda::checks::conv_verify::call::{Call, Results};
use kda::checks::conv_verify::case::{Case, Plan};
use kda::core::exec::Stream;
use kda::reference::conv_verify::sample::{Sample, Switches};
use kda::reference::conv_verify::{Dims, HEAD};
use kda::reference::floats::FloatVec;
use kda::reference::layout::StateOrder;
use kda::runtime::executor::sim::SimExecutor;
use kda::runtime::operators::conv_verify::Options;
use kda::runtime::operators::conv_verify::preference::PLAIN;

const SEED: u64 = 5;

/// The names of `decode`'s checks.
mod decode {
    pub use kda::checks::decode::call::{Call, Results};
    pub use kda::checks::decode::case::{Case, Plan};
    pub use kda::reference::decode::sample::Switches;
    pub use kda::runtime::operators::decode::Options;
}

/// The names of `tc_verify`'s checks.
mod tc_verify {
    pub use kda::checks::tc_verify::call::{Call, Results};
    pub use kda::checks::tc_verify::case::{Case, Plan};
    pub use kda::reference::conv::TapType;
    pub use kda::reference::tc_verify::ConvOrder;
    pub use kda::reference::tc_verify::sample::Switches;
    pub use kda::runtime::operators::tc_verify::Options;
}

/// The names of `tc_commit`'s checks.
mod tc_commit {
    pub use kda::checks::tc_commit::call::{Call, Results};
    pub use kda::checks::tc_commit::case::{Case, Plan};
    pub use kda::reference::tc_commit::ConvOrder;
    pub use kda::reference::tc_commit::sample::Switches;
    pub use kda::runtime::operators::tc_commit::Options;
}

/// The call with request `n` alone, on the same pools.
fn alone(sample: &Sample, n: usize) -> Sample {
    let d = sample.switches.dims;
    let stride = sample.problem().x_row_stride;
    let rows = n * d.t..(n + 1) * d.t;
    let mut one = sample.clone();
    one.switches.dims = Dims { n: 1, ..d };
    one.x = sample.x[rows.start * stride..rows.end * stride].to_vec();
    one.a = sample.a[rows.start * d.hv * HEAD..rows.end * d.hv * HEAD].to_vec();
    one.b = sample.b[rows.start * d.hv..rows.end * d.hv].to_vec();
    one.conv_slots = vec![sample.conv_slots[n]];
    one.state_slots = vec![sample.state_slots[n]];
    one.snapshot_rows = vec![sample.snapshot_rows[n]];
    one
}

fn run(case: &Case) -> (Results, &'static str) {
    let executor = SimExecutor::default();
    let call = Call::new(Device::simulator(&executor), case).expect("memory");
    let entry = call.enqueue(&Options::default(), Stream::default()).expect("the call runs");
    (call.results().expect("results"), entry)
}

/// Bits of a request's output, snapshots and windows.
fn bits(sample: &Sample, results: &Results, n: usize) -> Vec<u32> {
    let (d, s, buffers) = (sample.switches.dims, &sample.switches, sample.buffers());
    let row = sample.snapshot_rows[n] as usize;
    let out = &results.out[n * d.t * buffers.out_row_stride..(n + 1) * d.t * buffers.out_row_stride];
    let length = s.t_alloc * d.state_len();
    let states = &results.states.as_ref().expect("states")[row * length..(row + 1) * length];
    let windows = results.windows.as_ref().expect("windows").bits();
    let step = buffers.window_layout.row;
    let mut all: Vec<u32> = out.iter().map(|v| u32::from(v.to_bits())).collect();
    all.extend(states.iter().map(|v| v.to_bits()));
    all.extend(&windows[row * step..(row + 1) * step]);
    all
}

#[test]
fn a_request_has_the_same_bits_alone_and_in_any_batch() {
    // N*HV chooses the variant.
    for (t, sizes) in [(3, &[2, 4, 8, 20, 33][..]), (10, &[2, 20])] {
        let mut chosen = std::collections::BTreeSet::new();
        let largest = *sizes.last().unwrap();
        let switches = Switches { bias: true, lower_bound: None, ..Switches::plain(largest, t, 1, 4) };
        let whole = Plan::of(switches).draw(SEED);
        let mut alone_bits: Vec<Vec<u32>> = Vec::new();
        for n in [0, 1] {
            let case = Case { sample: alone(&whole.sample, n), view: whole.view };
            let (results, entry) = run(&case);
            chosen.insert(entry);
            alone_bits.push(bits(&case.sample, &results, 0));
        }
        for &n in sizes {
            let mut sample = whole.sample.clone();
            sample.switches.dims.n = n;
            let d = sample.switches.dims;
            sample.x.truncate(n * t * d.channels());
            sample.a.truncate(n * t * d.hv * HEAD);
            sample.b.truncate(n * t * d.hv);
            for map in [&mut sample.conv_slots, &mut sample.state_slots, &mut sample.snapshot_rows] {
                map.truncate(n);
            }
            let case = Case { sample, view: whole.view };
            let (results, entry) = run(&case);
            chosen.insert(entry);
            for (request, expected) in alone_bits.iter().enumerate() {
                assert!(bits(&case.sample, &results, request) == *expected, "T {t}, N {n}, request {request}: {entry}");
            }
        }
        // One variant for each row of the table that these sizes reach.
        let rows = PLAIN.rows_for(t as u64);
        let reached = [&[1], sizes].concat();
        let row = |n: &usize| rows.iter().position(|row| 4 * *n as u64 <= row.pairs).expect("a row");
        let expected: std::collections::BTreeSet<&str> = reached.iter().map(|n| rows[row(n)].variant).collect();
        assert_eq!(chosen.len(), expected.len(), "{chosen:?} for {expected:?}");
        assert!(chosen.len() > 1, "{chosen:?}");
    }
}

/// Each call has a workspace of its own, so two of them may be in flight at once.
#[test]
fn interleaved_calls_do_not_meet() {
    let cases: Vec<Case> = [(4, 1, 2), (9, 2, 2)]
        .into_iter()
        .map(|(t, h, hv)| Plan::of(Switches { roll: true, ..Switches::plain(2, t, h, hv) }).draw(SEED + t as u64))
        .collect();
    const ROUNDS: usize = 3;
    let executor = SimExecutor::default();
    let device = Device::simulator(&executor);
    let expected: Vec<Results> = cases
        .iter()
        .map(|case| {
            let call = Call::new(device, case).expect("memory");
            (0..ROUNDS).for_each(|_| drop(call.run(None).expect("the call runs")));
            call.results().expect("results")
        })
        .collect();
    let calls: Vec<Call> = cases.iter().map(|case| Call::new(device, case).expect("memory")).collect();
    for round in 0..ROUNDS {
        for (at, call) in calls.iter().enumerate() {
            call.enqueue(&Options::default(), Stream(1 + ((round + at) % 2) as u64)).expect("the call runs");
        }
    }
    for (call, expected) in calls.iter().zip(&expected) {
        let results = call.results().expect("results");
        assert_eq!((results.differing_bits(expected), results.changed_inputs), (0, 0));
    }
}

/// `decode`: the call with requests `first .. first + count` alone, on the same pools.
fn requests(case: &decode::Case, first: usize, count: usize) -> decode::Case {
    let mut some = case.clone();
    let (s, d) = (&mut some.sample, case.sample.switches.dims);
    let range = |width: usize| first * width..(first + count) * width;
    s.switches.dims.n = count;
    s.x = s.x[range(d.channels() + s.switches.padding)].to_vec();
    s.g = match &s.g {
        FloatVec::F32(g) => FloatVec::F32(g[range(d.hv * HEAD)].to_vec()),
        FloatVec::Bf16(g) => FloatVec::Bf16(g[range(d.hv * HEAD)].to_vec()),
    };
    s.beta = s.beta[range(d.hv)].to_vec();
    s.slots = s.slots[range(1)].to_vec();
    s.conv_slots = s.conv_slots[range(1)].to_vec();
    some
}

/// Bits of the output, the state and the history of a request of `decode`.
fn decoded(case: &decode::Case, results: &decode::Results, n: usize) -> Vec<u32> {
    let (sample, problem) = (&case.sample, case.sample.problem());
    let d = sample.switches.dims;
    let place = problem.places(n).expect("a live request");
    let (row, width) = (sample.buffers().out_row_stride, d.hv * HEAD);
    let (state, line) = (problem.head(place.slot_out, 0), place.line_out * sample.layout.line);
    let mut all: Vec<u32> = results.out[n * row..n * row + width].iter().map(|v| u32::from(v.to_bits())).collect();
    all.extend(&results.state.bits()[state..state + d.state_len()]);
    all.extend(&results.pool.bits()[line..line + 3 * d.channels()]);
    all
}

#[test]
fn a_decode_has_the_same_bits_alone_and_in_any_batch() {
    let sizes = [2, 5, 9, 33];
    for (bf16_state, order) in [
        (false, StateOrder::VFirst),
        (false, StateOrder::KFirst),
        (true, StateOrder::VFirst),
        (true, StateOrder::KFirst),
    ] {
        let mut chosen = std::collections::BTreeSet::new();
        let plain = decode::Switches::plain(sizes[sizes.len() - 1], 1, 4);
        let switches = decode::Switches { bias: true, lower_bound: None, bf16_state, order, ..plain };
        let whole = decode::Plan::of(switches).draw(SEED);
        let mut run = |case: &decode::Case| {
            let executor = SimExecutor::default();
            let call = decode::Call::new(Device::simulator(&executor), case).expect("memory");
            chosen.insert(call.enqueue(&decode::Options::default(), Stream::default()).expect("the call runs"));
            call.results().expect("results")
        };
        let expected: Vec<Vec<u32>> = [0, 1]
            .map(|n| {
                let case = requests(&whole, n, 1);
                decoded(&case, &run(&case), 0)
            })
            .to_vec();
        for n in sizes {
            let case = requests(&whole, 0, n);
            let results = run(&case);
            for (request, expected) in expected.iter().enumerate() {
                assert!(decoded(&case, &results, request) == *expected, "{order:?}, N {n}, request {request}");
            }
        }
        // From 4 to 132 pairs the tables name several variants.
        assert!(chosen.len() > 1, "{chosen:?}");
    }
}

/// `tc_verify`: the call with requests `first .. first + count` alone, on the same rows and pools.
fn verified_requests(case: &tc_verify::Case, first: usize, count: usize) -> tc_verify::Case {
    let mut some = case.clone();
    let (s, range) = (&mut some.sample, first..first + count);
    s.switches.n_req = count;
    s.rows = count + 1;
    s.slot_of = s.slot_of[range.clone()].to_vec();
    s.accepted = s.accepted[range.clone()].to_vec();
    s.query_start = s.query_start[range.start..=range.end].to_vec();
    some
}

/// Bits of the outputs, the records and the history of request `n` of `tc_verify`.
fn verified(case: &tc_verify::Case, results: &tc_verify::Results, n: usize) -> Vec<u32> {
    let (sample, problem) = (&case.sample, case.sample.problem());
    let Some(request) = problem.request(n) else { return Vec::new() };
    let (row, width) = (sample.out_pitch, problem.heads * HEAD);
    let rows = request.begin..request.begin + request.len;
    let outs = rows.flat_map(|at| &results.out[at * row..at * row + width]).map(|v| u32::from(v.to_bits()));
    let mut all: Vec<u32> = outs.collect();
    let record = problem.record(n, 0, 0)..problem.record(n + 1, 0, 0);
    all.extend(results.corr[record.clone()].iter().map(|v| v.to_bits()));
    all.extend(results.kg[2 * record.start..2 * record.end].iter().map(|v| u32::from(v.to_bits())));
    if let Some(slot) = request.slot.filter(|_| problem.conv.is_some()) {
        let line = &results.conv[slot * sample.conv_pitch..(slot + 1) * sample.conv_pitch];
        all.extend(line.iter().map(|v| u32::from(v.to_bits())));
    }
    all
}

/// Alone; in batches of which CTAs take a request or several each, in a fixed order or by tickets; launched plainly, or while
/// the predecessor may still run.
#[test]
fn a_tc_verify_has_the_same_bits_alone_and_in_any_batch() {
    use tc_verify::{ConvOrder, Options, TapType};
    let sizes = [2, 9];
    let kinds = [
        (Some(-5.0), Some(TapType::Bf16), ConvOrder::TokenMajor, true),
        (None, Some(TapType::F32), ConvOrder::ChannelMajor, true),
        (Some(-5.0), None, ConvOrder::TokenMajor, true),
        (None, Some(TapType::Bf16), ConvOrder::TokenMajor, false),
    ];
    for (lower_bound, taps, order, bf16_state) in kinds {
        let plain = tc_verify::Switches::plain(sizes[1], 2, 8);
        let switches = tc_verify::Switches { lower_bound, taps, order, bf16_state, ragged: true, nulls: true, ..plain };
        let whole = tc_verify::Plan::of(switches).draw(SEED);
        let mut chosen = std::collections::BTreeSet::new();
        let mut grids = std::collections::BTreeSet::new();
        let mut run = |case: &tc_verify::Case, multiprocessors: u32, options: &Options| {
            let executor = SimExecutor::default().with_multiprocessors(multiprocessors);
            let call = tc_verify::Call::new(Device::simulator(&executor), case).expect("memory");
            chosen.insert(call.enqueue(options, Stream::default()).expect("the call runs"));
            grids.insert(executor.last_stats().expect("a launch").ctas);
            let results = call.results().expect("results");
            assert_eq!(results.changed, 0);
            results
        };
        let expected: Vec<Vec<u32>> = (0..sizes[1])
            .map(|n| {
                let case = verified_requests(&whole, n, 1);
                verified(&case, &run(&case, 132, &Options::default()), 0)
            })
            .collect();
        assert!(expected.iter().filter(|bits| !bits.is_empty()).count() > 3, "requests with tokens");
        for n in sizes {
            for (at, multiprocessors) in [132, 1, 2].into_iter().enumerate() {
                for counters in [false, true] {
                    let case = tc_verify::Case { counters, ..verified_requests(&whole, 0, n) };
                    let pdl = at > 0;
                    let options = Options { pdl, stable_pools: pdl && counters == (at == 1), ..Options::default() };
                    let results = run(&case, multiprocessors, &options);
                    for (request, expected) in expected.iter().take(n).enumerate() {
                        let same = verified(&case, &results, request) == *expected;
                        assert!(same, "{switches:?}, B {n}, request {request}: {options:?}, tickets {counters}");
                    }
                }
            }
        }
        // The kernel for Hopper reads states of bf16 ahead of the wait where it may, and shares requests among fewer CTAs.
        assert_eq!(
            (chosen.len(), grids.len() > 3),
            if bf16_state { (2, true) } else { (1, false) },
            "{chosen:?} {grids:?}"
        );
    }
}

/// `tc_commit`: the call with request `n` alone, on the same pools.
fn committed_alone(case: &tc_commit::Case, n: usize) -> tc_commit::Case {
    let mut one = case.clone();
    for s in &mut one.layers {
        let record = s.switches.heads * s.switches.window * HEAD;
        s.switches.n_req = 1;
        s.rows = 1;
        s.corr = s.corr[n * record..(n + 1) * record].to_vec();
        s.kg = s.kg[2 * n * record..2 * (n + 1) * record].to_vec();
        for map in [&mut s.slot_of, &mut s.counts, &mut s.boundary_tokens, &mut s.boundary_slots] {
            *map = vec![map[n]];
        }
        s.destinations = s.destinations.as_ref().map(|map| vec![map[n]]);
    }
    one
}

/// Bits of what request `n` of `tc_commit` writes in every layer: states and windows, at its destination and its boundary.
fn committed(case: &tc_commit::Case, results: &tc_commit::Results, n: usize) -> Vec<u32> {
    let problem = case.first().problem();
    let Some(commit) = problem.commit(n) else { return Vec::new() };
    let mut all = Vec::new();
    for ((_, slot), layer) in commit.targets().flat_map(|to| results.layers.iter().map(move |layer| (to, layer))) {
        all.extend(&layer.state.bits()[slot * problem.state_pitch..][..problem.state_len()]);
        let line = &layer.conv[slot * case.first().conv_pitch..][..case.first().conv_pitch];
        all.extend(line.iter().map(|v| u32::from(v.to_bits())));
    }
    all
}

#[test]
fn a_tc_commit_has_the_same_bits_alone_and_in_any_batch_and_layer() {
    use tc_commit::{ConvOrder, Options};
    for (bf16_state, lower_bound, order, boundary) in [
        (true, Some(-5.0), ConvOrder::TokenMajor, true),
        (false, None, ConvOrder::ChannelMajor, true),
        (true, None, ConvOrder::ChannelMajor, false),
        (false, Some(-5.0), ConvOrder::TokenMajor, false),
    ] {
        let plain = tc_commit::Switches::plain(7, 2, 8);
        let conv = Some(order);
        let switches =
            tc_commit::Switches { bf16_state, lower_bound, conv, separate: true, boundary, nulls: true, ..plain };
        let whole = tc_commit::Plan { layers: Some(2), ..tc_commit::Plan::of(switches) }.draw(SEED);
        let run = |case: &tc_commit::Case, pdl: bool| {
            let executor = SimExecutor::default();
            let call = tc_commit::Call::new(Device::simulator(&executor), case).expect("memory");
            call.enqueue(&Options { pdl, ..Options::default() }, Stream::default()).expect("the call runs");
            call.results().expect("results")
        };
        let (batch, early) = (run(&whole, false), run(&whole, true));
        assert_eq!(batch.differing_bits(&early), 0, "pdl");
        let mut seen = 0;
        for n in 0..7 {
            let alone = committed_alone(&whole, n);
            let expected = committed(&alone, &run(&alone, n % 2 == 1), 0);
            assert!(committed(&whole, &batch, n) == expected, "{switches:?}, request {n}");
            // Each layer by itself, without the table.
            for (at, layer) in whole.layers.iter().enumerate().filter(|_| n == 0) {
                let single = tc_commit::Case { layers: vec![layer.clone()], table: false };
                let results = tc_commit::Results { layers: vec![batch.layers[at].clone()] };
                assert_eq!(run(&single, false).differing_bits(&results), 0, "layer {at}");
            }
            seen += usize::from(!expected.is_empty());
        }
        assert!(seen > 2, "only {seen} requests are committed");
    }
}
