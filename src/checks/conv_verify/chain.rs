//! Launches that read what the launch ahead of them writes, enqueued as dependent launches: they give the bits of launches that
//! each wait for the one before.
//!
//! ```text
//! A0 -> B0 -> A1 -> B1 -> ...
//! loose:  B takes x from the output of A
//! tight:  B takes x, states and histories from output, snapshots and windows of A; A takes its states from the snapshots of B
//! ```
//! Every call has outputs of its own, poisoned ahead of each round: what is read too early is a NaN.

use super::Failure;
use super::call::Call;
use super::case::{Case, Plan};
use super::problems::{POOLS, with_pool};
use crate::checks::{Device, Measured, Sink};
use kda_core::TensorArg;
use kda_core::exec::Stream;
use kda_ref::conv_verify::sample::Switches;
use kda_runtime::operators::conv_verify::Options;

/// Requests and tokens of every call; value heads of A and B, of one q/k head.
const N: usize = 2;
const T: usize = 2;
const WIDE: usize = 4;
const NARROW: usize = 2;
/// Pairs of calls.
const PAIRS: usize = 4;
const STATE: u64 = 128 * 128;

/// What a call takes from the one ahead of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// B's projections: pools and indices are settled, and are read ahead of the wait.
    Loose,
    /// Projections, states and histories.
    Tight,
}

/// Bits that differ from launches one by one, and outputs that are no numbers, over some rounds.
pub fn strays(device: Device, link: Link, pool: (bool, bool), rounds: usize, seed: u64) -> Result<usize, Failure> {
    let cases = cases(link, pool, seed);
    let mut calls = cases.iter().map(|case| Call::new(device, case)).collect::<Result<Vec<Call>, Failure>>()?;
    for at in 1..calls.len() {
        let (ahead, own) = calls.split_at_mut(at);
        join(link, &ahead[at - 1], &mut own[0])?;
    }
    let run = |options: &Options, wait: bool| -> Result<Vec<Vec<u8>>, Failure> {
        calls.iter().try_for_each(Call::restore)?;
        for call in &calls {
            call.enqueue(options, Stream::default())?;
            if wait {
                device.executor.synchronize(Stream::default())?;
            }
        }
        calls.iter().map(Call::written).collect()
    };
    let expected = run(&Options::default(), true)?;
    let mut wrong = 0;
    for call in &calls {
        wrong += call.results()?.out.iter().filter(|o| !o.is_finite()).count();
    }
    let options = Options { pdl: true, stable_pools: link == Link::Loose, ..Options::default() };
    for _ in 0..rounds {
        let found = run(&options, false)?;
        let differ = |(a, b): (&Vec<u8>, &Vec<u8>)| {
            if a == b { 0 } else { a.iter().zip(b).filter(|(a, b)| a != b).count() }
        };
        wrong += found.iter().zip(&expected).map(differ).sum::<usize>();
    }
    Ok(wrong)
}

/// The calls, whose indices name what they take from the call ahead.
fn cases(link: Link, pool: (bool, bool), seed: u64) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for at in 0..2 * PAIRS {
        let hv = if at % 2 == 0 { WIDE } else { NARROW };
        // Of a tight link B rolls nothing: its histories are the windows of A.
        let roll = link == Link::Loose || hv == WIDE;
        let switches = Switches { roll, ..with_pool(Switches::plain(N, T, 1, hv), pool) };
        let mut case = Plan::of(switches).draw(seed.wrapping_add(at as u64));
        if let (Link::Tight, Some(ahead)) = (link, cases.last()) {
            let rows = &ahead.sample.snapshot_rows;
            let newest: Vec<i32> = rows.iter().map(|row| row * T as i32 + T as i32 - 1).collect();
            if hv == NARROW {
                case.sample.conv_slots = newest.clone();
            }
            // A slot of A is a row of B: two heads of each of two tokens.
            case.sample.state_slots = if hv == NARROW { newest } else { rows.clone() };
        }
        cases.push(case);
    }
    cases
}

/// Lets a call read what the call ahead writes.
fn join(link: Link, ahead: &Call, call: &mut Call) -> Result<(), Failure> {
    let hv = call.problem.b.shape()[2];
    let narrow = hv == NARROW as u64;
    if narrow {
        let out = &ahead.problem.out;
        let d = call.problem.x.shape()[2];
        call.problem.x = view(out, &[N as u64, T as u64, d], &[out.strides()[0], out.strides()[1], 1])?;
    }
    let (Link::Tight, Some(states), Some(windows)) = (link, ahead.problem.states_out, ahead.problem.windows_out) else {
        return Ok(());
    };
    // B's slots are A's steps, A's slots are B's rows.
    let (slots, pitch) = match narrow {
        true => (states.shape()[0] * T as u64, WIDE as u64 * STATE),
        false => (states.shape()[0], (T * NARROW) as u64 * STATE),
    };
    call.problem.state = view(&states, &[slots, hv, 128, 128], &[pitch, STATE, 128, 1])?;
    if narrow {
        let (shape, strides) = (windows.shape(), windows.strides());
        let lines = shape[0] * T as u64;
        let d = call.problem.x.shape()[2];
        call.problem.conv_state = view(&windows, &[lines, d, 3], &[strides[1], strides[2], strides[3]])?;
    }
    Ok(())
}

fn view(of: &TensorArg, shape: &[u64], strides: &[u64]) -> Result<TensorArg, Failure> {
    Ok(TensorArg::strided(of.ptr, of.bytes, of.elem, shape, strides)?)
}

/// Both links, on every pool.
pub fn run(device: Device, rounds: usize, seed: u64, sink: Sink, share: f64) -> Result<(), Failure> {
    for link in [Link::Loose, Link::Tight] {
        let mut wrong = 0;
        for pool in POOLS {
            wrong += strays(device, link, pool, rounds, seed)?;
        }
        let what = match link {
            Link::Loose => "projections from the launch ahead, pools settled",
            Link::Tight => "projections, states and histories from the launch ahead",
        };
        let case = format!("chains of {} dependent launches, {what}, {rounds} rounds a pool", 2 * PAIRS);
        let output = "bytes that differ from launches one by one".into();
        sink(Measured { case, output, error: wrong as f64, budget: 0.0 }, share);
    }
    Ok(())
}
