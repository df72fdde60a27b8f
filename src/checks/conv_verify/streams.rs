//! Verify and commit, over and over, against one uninterrupted stream.
//!
//! A stream is one call over all its tokens. The chain runs the same tokens in calls of T: some of them are accepted, the
//! rest are drafts that the engine rejects. A commit of m tokens takes the m-th snapshot for the state and the m-th window
//! for the history; m = 0 keeps both. Every accepted token must give the stream's bits: output, state and window.

use super::Failure;
use super::call::{Call, Results, differences};
use super::case::{Case, Plan, View};
use super::judge::{Tally, fits, one_case};
use super::problems::{POOLS, with_pool};
use crate::checks::{Device, Measured, Sink};
use kda_kernels::conv_verify::ConvVerifyVariant;
use kda_ref::conv_verify::sample::{Sample, Switches};
use kda_ref::conv_verify::{HEAD, HISTORY};
use kda_ref::floats::FloatVec;
use kda_ref::rng::Rng;

/// Verifies in a chain.
const STEPS: usize = 25;
/// Tokens a call; 11 runs in two passes.
const LENGTHS: [usize; 5] = [1, 3, 4, 8, 11];

/// Tokens of the stream that is held against the golden model.
const STREAM: usize = 100;

/// A long stream against the golden model; chains on tiles of at least `rows` rows of V; then each number of accepted
/// tokens of one verify, on every tile.
pub fn run(device: Device, seed: u64, rows: u32, sink: Sink, share: f64) -> Result<(), Failure> {
    let gates = [Some(-5.0), None, None, Some(-5.0)];
    let modes = [0, 1, 2, 3].map(|i| (POOLS[i], gates[i]));
    let switches = |(pool, lower_bound)| {
        let plain = with_pool(Switches::plain(2, 1, 1, 1), pool);
        Switches { lower_bound, bias: true, ..plain }
    };
    let long: Vec<ConvVerifyVariant> = ConvVerifyVariant::ALL.iter().copied().filter(|v| v.long()).collect();
    let mut tallies = vec![Tally::default(); long.len()];
    for mode in modes {
        one_case(device, &Plan::of(of_length(switches(mode), STREAM)).draw(seed), &long, &mut tallies)?;
    }
    for (variant, tally) in long.iter().zip(&tallies) {
        let case = format!("{STREAM} tokens in one call of {}", variant.desc().entry);
        tally.rows(&case).into_iter().for_each(|row| sink(row, share));
    }
    for t in LENGTHS {
        for mode in modes {
            let mut rng = Rng::new(seed ^ t as u64);
            let accepted: Vec<[usize; 2]> = (0..STEPS).map(|_| [rng.below(t + 1), rng.below(t + 1)]).collect();
            let wrong = chain(device, switches(mode), t, rows, &accepted, &mut rng)?;
            let ((bf16_pool, channels_innermost), gate) = mode;
            let elem = if bf16_pool { "bf16" } else { "fp32" };
            let order = if channels_innermost { "[3, D]" } else { "[D, 3]" };
            let gate = if gate.is_some() { "bounded" } else { "softplus" };
            let what = format!("{elem} pool {order}, {gate} gate");
            let case = format!("{STEPS} verifies of T = {t}, commits of 0 to {t}, {what}");
            sink(measured(case, wrong), share);
        }
    }
    let t = 8;
    let accepted: Vec<[usize; 2]> = (0..=t).map(|m| [m, t - m]).collect();
    let mut wrong = 0;
    for pool in POOLS {
        let plain = with_pool(Switches::plain(2, 1, 1, 1), pool);
        wrong += chain(device, plain, t, 0, &accepted, &mut Rng::new(seed))?;
    }
    sink(measured(format!("commit of each m in 0 to {t} against single steps"), wrong), share);
    Ok(())
}

fn measured(case: String, wrong: usize) -> Measured {
    Measured { case, output: "bits that differ from one stream".into(), error: wrong as f64, budget: 0.0 }
}

/// The same switches for calls of `t` tokens.
fn of_length(mut switches: Switches, t: usize) -> Switches {
    (switches.dims.t, switches.t_alloc) = (t, t);
    switches
}

/// Runs verifies of `t` tokens, accepting the given numbers of each of two requests, on every tile of at least `rows`
/// rows; gives the number of elements that differ from the stream.
fn chain(
    device: Device,
    switches: Switches,
    t: usize,
    rows: u32,
    accepted: &[[usize; 2]],
    rng: &mut Rng,
) -> Result<usize, Failure> {
    let total = |request: usize| accepted.iter().map(|m| m[request]).sum::<usize>();
    let length = total(0).max(total(1)).max(1);
    let mut stream = Plan::of(of_length(switches, length)).draw(rng.next_u64());
    // Rows cost memory for every token of the stream.
    (stream.sample.snapshot_len, stream.sample.snapshot_rows) = (3, vec![2, 0]);
    let expected = Call::new(device, &stream)?.run(None)?;
    let mut wrong = 0;
    let runs = |v: &&ConvVerifyVariant| fits(**v, &of_length(switches, t)) && v.long() == (t > 8) && v.bv() >= rows;
    for variant in ConvVerifyVariant::ALL.iter().filter(runs) {
        let mut pools = stream.sample.clone();
        let mut done = [0, 0];
        for take in accepted {
            let step = step(&stream.sample, &pools, of_length(switches, t), done, *take, rng);
            let results = Call::new(device, &step)?.run(Some(*variant))?;
            wrong += results.changed_inputs;
            wrong += differences(&results.pool.bits(), &pools.conv_state.bits());
            for request in 0..2 {
                for i in 0..take[request] {
                    let (at, of_stream) = (Token { request, t: i }, Token { request, t: done[request] + i });
                    wrong += at.differs(&step.sample, &results, of_stream, &stream.sample, &expected);
                }
                commit(&mut pools, &step.sample, &results, request, take[request]);
                done[request] += take[request];
            }
        }
    }
    Ok(wrong)
}

/// The next verify: accepted tokens come from the stream, drafts are drawn, pools are those of the last commit.
fn step(
    stream: &Sample,
    pools: &Sample,
    switches: Switches,
    done: [usize; 2],
    take: [usize; 2],
    rng: &mut Rng,
) -> Case {
    let mut step = Sample::random(rng, switches);
    let (from, to) = (stream.switches.dims, switches.dims);
    step.conv_weight = stream.conv_weight.clone();
    step.conv_bias = stream.conv_bias.clone();
    step.a_log = stream.a_log.clone();
    step.dt_bias = stream.dt_bias.clone();
    (step.conv_layout, step.conv_slots) = (stream.conv_layout, stream.conv_slots.clone());
    (step.state_len, step.state_slots) = (stream.state_len, stream.state_slots.clone());
    (step.snapshot_len, step.snapshot_rows) = (stream.snapshot_len, stream.snapshot_rows.clone());
    (step.conv_state, step.state) = (pools.conv_state.clone(), pools.state.clone());
    for request in 0..2 {
        for i in 0..take[request] {
            let (s, d) = (request * from.t + done[request] + i, request * to.t + i);
            let copy = |to: &mut [half::bf16], from: &[half::bf16], width: usize| {
                to[d * width..(d + 1) * width].copy_from_slice(&from[s * width..(s + 1) * width]);
            };
            copy(&mut step.x, &stream.x, from.channels());
            copy(&mut step.a, &stream.a, from.hv * HEAD);
            copy(&mut step.b, &stream.b, from.hv);
        }
    }
    Case { sample: step, view: View::WHOLE }
}

/// One token of one request.
#[derive(Clone, Copy)]
struct Token {
    request: usize,
    t: usize,
}

impl Token {
    /// Elements of this token's output, state and window that differ from those of another token of another call.
    fn differs(self, sample: &Sample, results: &Results, other: Token, of: &Sample, expected: &Results) -> usize {
        let out = |sample: &Sample, results: &Results, token: Token| -> Vec<u32> {
            let width = sample.switches.dims.hv * HEAD;
            let row = token.request * sample.switches.dims.t + token.t;
            results.out[row * width..(row + 1) * width].iter().map(|v| u32::from(v.to_bits())).collect()
        };
        let state = |sample: &Sample, results: &Results, token: Token| -> Vec<u32> {
            snapshot(sample, results, token).iter().map(|v| v.to_bits()).collect()
        };
        let mut wrong = differences(&out(sample, results, self), &out(of, expected, other));
        wrong += differences(&state(sample, results, self), &state(of, expected, other));
        wrong + differences(&window(sample, results, self), &window(of, expected, other))
    }
}

fn snapshot<'r>(sample: &Sample, results: &'r Results, token: Token) -> &'r [f32] {
    let (d, row) = (sample.switches.dims, sample.snapshot_rows[token.request] as usize);
    let begin = (row * sample.switches.t_alloc + token.t) * d.state_len();
    results.states.as_deref().map_or(&[], |states| &states[begin..begin + d.state_len()])
}

/// Bits of a window in the order `[D, 3]`.
fn window(sample: &Sample, results: &Results, token: Token) -> Vec<u32> {
    let (layout, row) = (sample.buffers().window_layout, sample.snapshot_rows[token.request] as usize);
    let Some(windows) = &results.windows else { return Vec::new() };
    let bits = windows.bits();
    let places = (0..sample.switches.dims.channels()).flat_map(|c| (0..HISTORY).map(move |tap| (c, tap)));
    places.map(|(c, tap)| bits[layout.offset(row, token.t, c, tap)]).collect()
}

/// What an engine does once it knows that `m` tokens of a request are accepted.
fn commit(pools: &mut Sample, step: &Sample, results: &Results, request: usize, m: usize) {
    let Some(t) = m.checked_sub(1) else { return };
    let token = Token { request, t };
    let length = step.switches.dims.state_len();
    let slot = step.state_slots[request] as usize * length;
    pools.state[slot..slot + length].copy_from_slice(snapshot(step, results, token));
    let line = step.conv_slots[request] as usize;
    for (i, bits) in window(step, results, token).into_iter().enumerate() {
        let at = pools.conv_layout.offset(line, i / HISTORY, i % HISTORY);
        match &mut pools.conv_state {
            FloatVec::F32(values) => values[at] = f32::from_bits(bits),
            FloatVec::Bf16(values) => values[at] = half::bf16::from_bits(bits as u16),
        }
    }
}
