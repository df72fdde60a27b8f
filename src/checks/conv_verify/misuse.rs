//! Calls that break what only the device can see: how far the damage goes, and what finds them.
//!
//! | misuse | found by | damage |
//! | --- | --- | --- |
//! | two live requests with one line and `roll`, or with one snapshot row | `indices::duplicates`; the simulator | those two requests |
//! | a launch behind one that was cut off, without `workspace::reset` | `workspace::at_rest`; the simulator | lines that are rolled too early |
//! | two launches at once that count in the same memory | `workspace::is_shared`; the simulator | the same |

use super::Failure;
use super::call::{Call, Results};
use super::case::{Case, Plan};
use super::judge::fits;
use super::problems::{POOLS, with_pool};
use crate::checks::{Device, Measured, Sink};
use kda_core::exec::Stream;
use kda_kernels::conv_verify::ConvVerifyVariant;
use kda_ref::conv_verify::sample::Switches;
use kda_ref::floats::FloatVec;
use kda_runtime::executor::sim::{Code, Options as SimOptions, SimExecutor};
use kda_runtime::operators::conv_verify::Options;
use kda_runtime::operators::conv_verify::indices::{Indices, duplicates};
use kda_runtime::operators::conv_verify::workspace::{at_rest, is_shared, reset};

/// An index array of which two live requests must not hold the same entry.
const MAPS: [&str; 2] = ["conv_slots", "snapshot_rows"];
/// Where a launch is cut off, in parts of its warp instructions.
const CUTS: [u64; 4] = [5, 6, 7, 8];
const PARTS: u64 = 10;

/// The call without its fault: roll and snapshots, three requests, two value heads a q/k head.
fn case(pool: (bool, bool), t: usize, seed: u64) -> Case {
    Plan::of(Switches { roll: true, bias: true, ..with_pool(Switches::plain(3, t, 1, 2), pool) }).draw(seed)
}

/// The variants for that number of tokens; those of several passes too.
fn own(case: &Case) -> impl Iterator<Item = ConvVerifyVariant> {
    let switches = case.sample.switches;
    ConvVerifyVariant::ALL.into_iter().filter(move |variant| fits(*variant, &switches))
}

/// The index arrays of a case.
pub fn indices(case: &Case) -> Indices {
    let s = &case.sample;
    let (conv_slots, state_slots) = (s.conv_slots.clone(), s.state_slots.clone());
    Indices { conv_slots, state_slots, snapshot_rows: s.snapshot_rows.clone() }
}

/// Duplicates on any device: what they must leave alone. `finds_races` is an executor that must report them.
pub fn duplicated(device: Device, simulated: bool, seed: u64, sink: Sink, share: f64) -> Result<(), Failure> {
    for map in MAPS {
        let (mut wrong, mut unseen) = (0, 0);
        for pool in POOLS {
            let clean = case(pool, 2, seed);
            let mut spoilt = clean.clone();
            let s = &mut spoilt.sample;
            let entries = if map == MAPS[0] { &mut s.conv_slots } else { &mut s.snapshot_rows };
            entries[1] = entries[0];
            for variant in own(&clean) {
                let expected = Call::new(device, &clean)?.run(Some(variant))?;
                let call = Call::new(device, &spoilt)?;
                let found = duplicates(&call.problem, &Indices::read(&call.problem, device.executor)?);
                unseen += usize::from(!found.iter().any(|d| (d.map, d.first, d.second) == (map, 0, 1)));
                if !simulated {
                    wrong += elsewhere(&clean, &expected, call.run(Some(variant))?);
                    continue;
                }
                unseen += usize::from(!is_race(&spoilt, variant)?);
                let blind = without_races();
                let call = Call::new(Device::simulator(&blind), &spoilt)?;
                wrong += elsewhere(&clean, &expected, call.run(Some(variant))?);
            }
        }
        let case = format!("two live requests with one entry of {map}");
        let row = |output: &str, error: usize| Measured {
            case: case.clone(),
            output: output.into(),
            error: error as f64,
            budget: 0.0,
        };
        sink(row("launches that are not found out", unseen), share);
        sink(row("bits that differ elsewhere", wrong), share);
    }
    Ok(())
}

/// A simulator that reports stray accesses, and lets races run.
fn without_races() -> SimExecutor {
    let options = SimOptions::default();
    let checks = kda_sim::Checks { races: false, ..options.checks };
    SimExecutor::new(SimOptions { checks, ..options })
}

/// Whether the simulator reports a launch of this case as a race.
fn is_race(case: &Case, variant: ConvVerifyVariant) -> Result<bool, Failure> {
    let executor = SimExecutor::default();
    let call = Call::new(Device::simulator(&executor), case)?;
    let ran = call.run(Some(variant)).is_ok();
    Ok(!ran && executor.last_report().is_some_and(|report| report.code == Code::Race))
}

/// Bits that differ from a run without the fault, beside those of requests 0 and 1.
fn elsewhere(clean: &Case, expected: &Results, mut results: Results) -> usize {
    let (s, d) = (&clean.sample, clean.sample.switches.dims);
    let own = 2 * d.t * s.out_row_stride();
    results.out[..own].copy_from_slice(&expected.out[..own]);
    for request in 0..2 {
        let row = s.snapshot_rows[request] as usize;
        let length = s.switches.t_alloc * d.state_len();
        if let (Some(to), Some(from)) = (&mut results.states, &expected.states) {
            let place = row * length..(row + 1) * length;
            to[place.clone()].copy_from_slice(&from[place]);
        }
        if let (Some(to), Some(from)) = (&mut results.windows, &expected.windows) {
            copy(to, from, row * s.window_layout().row, s.window_layout().row);
        }
        copy(
            &mut results.pool,
            &expected.pool,
            s.conv_slots[request] as usize * s.conv_layout.line,
            s.conv_layout.line,
        );
    }
    results.differing_bits(expected) + results.changed_inputs
}

fn copy(to: &mut FloatVec, from: &FloatVec, at: usize, length: usize) {
    match (to, from) {
        (FloatVec::F32(to), FloatVec::F32(from)) => to[at..at + length].copy_from_slice(&from[at..at + length]),
        (FloatVec::Bf16(to), FloatVec::Bf16(from)) => to[at..at + length].copy_from_slice(&from[at..at + length]),
        _ => {}
    }
}

/// What launches behind one that was cut off give.
#[derive(Clone, Copy, Debug, Default)]
pub struct AfterACut {
    /// Launches that were cut off in the middle of counting.
    pub counting: usize,
    /// Bits that differ from a run without a cut, once pools are restored and counters reset.
    pub wrong: usize,
    /// Launches on counters that were not reset, which nothing found out.
    pub unseen: usize,
    /// Launches of another call on the counters of one that is in the middle, which nothing found out.
    pub unseen_shared: usize,
}

/// Cuts launches of a variant off, and launches again: with counters that were reset, with counters that were not, and another
/// call on the counters of the first.
pub fn cut_off(case: &Case, variant: ConvVerifyVariant) -> Result<AfterACut, Failure> {
    let mut found = AfterACut::default();
    let options = Options { variant: Some(variant), ..Options::default() };
    let whole = SimExecutor::default();
    let expected = Call::new(Device::simulator(&whole), case)?.run(Some(variant))?;
    let steps = whole.last_stats().ok_or("no launch")?.warp_instructions;
    for part in CUTS {
        let executor = SimExecutor::default();
        let device = Device::simulator(&executor);
        let (call, mut other) = (Call::new(device, case)?, Call::new(device, case)?);
        let cut = || -> Result<bool, Failure> {
            reset(&call.problem.workspace, &executor)?;
            executor.cut_next(steps * part / PARTS);
            let ended = call.enqueue(&options, Stream::default()).is_ok();
            let cut = executor.last_report().is_some_and(|report| report.code == Code::StepLimit);
            if ended || !cut {
                return Err("the launch was not cut off".into());
            }
            call.restore()?;
            Ok(!at_rest(&call.problem.workspace, &executor)?)
        };
        let raced = |call: &Call| {
            let failed = call.enqueue(&options, Stream::default()).is_err();
            failed && executor.last_report().is_some_and(|report| report.code == Code::Race)
        };
        if !cut()? {
            continue;
        }
        found.counting += 1;
        found.unseen += usize::from(!raced(&call));
        cut()?;
        reset(&call.problem.workspace, &executor)?;
        let again = call.run(Some(variant))?;
        found.wrong += again.differing_bits(&expected) + again.changed_inputs;
        found.unseen_shared += usize::from(is_shared(&call.problem, &other.problem));
        other.problem.workspace = call.problem.workspace;
        cut()?;
        found.unseen_shared += usize::from(!is_shared(&call.problem, &other.problem) || !raced(&other));
    }
    Ok(found)
}

/// Launches that are cut off, of every variant for two tokens, in the simulator.
pub fn counters(seed: u64, sink: Sink, share: f64) -> Result<(), Failure> {
    let mut sum = AfterACut::default();
    for pool in POOLS {
        let case = case(pool, 2, seed);
        for variant in own(&case) {
            let found = cut_off(&case, variant).map_err(|cause| format!("{}: {cause}", variant.desc().entry))?;
            sum.counting += found.counting;
            sum.wrong += found.wrong;
            sum.unseen += found.unseen;
            sum.unseen_shared += found.unseen_shared;
        }
    }
    let case = format!("{} launches cut off while their CTAs count", sum.counting);
    // Cuts that meet no count would show nothing.
    let of = |error: usize| if sum.counting == 0 { f64::NAN } else { error as f64 };
    let row = |output: &str, error: usize| Measured {
        case: case.clone(),
        output: output.into(),
        error: of(error),
        budget: 0.0,
    };
    sink(row("bits that differ after a reset", sum.wrong), share);
    sink(row("launches without a reset that are not found out", sum.unseen), share);
    sink(row("calls on the counters of another that are not found out", sum.unseen_shared), share);
    Ok(())
}
