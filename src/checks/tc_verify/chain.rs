//! Speculative steps, one after the other: each a verify of tokens of which some are accepted, and a commit of these. What they
//! come to is held against the float64 recurrence of the accepted tokens alone.
//!
//! Requests have 0 to `WINDOW` tokens a step, of which 0 to all are accepted, with a convolution at least the first. In turn
//! histories are compacted by the commit, to another slot now and then, and are left for the next verify to begin at
//! `accepted = n`. States are rounded to the pool's type by every commit, so budgets come from emulations of both kernels over
//! the same steps, with the same roundings, with couplings of fp32 and of tensor cores, and from activations on the other side
//! of ties. Histories are copies: those of every step have the golden model's bits.

use super::Failure;
use super::call::Call;
use super::case::{Case, fits};
use crate::checks::conv_verify::judge::Worst;
use crate::checks::tc_commit::call::Call as CommitCall;
use crate::checks::tc_commit::case::Case as CommitCase;
use crate::checks::{Device, Extent, Measured, Sink};
use half::bf16;
use kda_ref::Mode;
use kda_ref::budget::{Budget, Judgement, Stored};
use kda_ref::conv::TapType;
use kda_ref::floats::{FloatVec, Floats};
use kda_ref::rng::Rng;
use kda_ref::tc_commit;
use kda_ref::tc_verify::sample::{Gates, Sample, Switches};
use kda_ref::tc_verify::uninterrupted::{Row, uninterrupted};
use kda_ref::tc_verify::{self, ConvOrder, Couplings, HEAD, HISTORY};
use kda_runtime::operators::tc_verify::{Options, Variant};

const QUICK: usize = 6;
const FULL: usize = 25;
const REQUESTS: usize = 2;
const HEADS: usize = 2;
/// More than a history holds.
const WINDOW: usize = 6;
/// Room to move to.
const SLOTS: usize = REQUESTS + 2;
const CHANNELS: usize = 3 * HEADS * HEAD;
const WIDTH: usize = HEADS * HEAD;
/// Of the emulations.
const COUPLINGS: [Couplings; 2] = [Couplings::Scalar, Couplings::Split];

/// The chains of a check: both gates, both types of state, all kinds of inputs.
pub fn chains() -> Vec<Switches> {
    let chain = |lower_bound, bf16_state, taps, order| Switches {
        lower_bound,
        bf16_state,
        taps,
        order,
        ..Switches::plain(REQUESTS, HEADS, WINDOW)
    };
    let (tokens, channels) = (ConvOrder::TokenMajor, ConvOrder::ChannelMajor);
    vec![
        chain(Some(-5.0), true, Some(TapType::Bf16), tokens),
        chain(None, true, Some(TapType::F32), channels),
        chain(Some(-5.0), false, Some(TapType::F32), tokens),
        chain(None, false, Some(TapType::Bf16), channels),
        chain(None, false, None, tokens),
    ]
}

/// What a chain came to.
pub struct Outcome {
    out: Worst,
    state: Worst,
    /// Elements of histories that differ from the golden model's, over all steps.
    histories: usize,
    /// Elements that a call changed and must not have.
    changed: usize,
    /// Tokens that were accepted.
    pub accepted: usize,
}

impl Outcome {
    /// The results as rows, one an output.
    pub fn rows(&self, case: &str) -> Vec<Measured> {
        let found = [
            ("accepted outputs", self.out.error, self.out.limit),
            ("last state", self.state.error, self.state.limit),
            ("histories that differ", self.histories as f64, 0.0),
            ("state or counters that a verify changed", self.changed as f64, 0.0),
        ];
        Measured::over(1, case, &found)
    }
}

/// What is done to what a verify gave before the commit takes it; a test breaks it.
pub type Between<'b> = dyn Fn(usize, &mut tc_commit::sample::Sample) + 'b;

/// Every chain through both operators, which choose their variants; of `variants` alone if there are any.
pub fn run(device: Device, extent: Extent, variants: &[Variant], seed: u64, sink: Sink) -> Result<(), Failure> {
    let steps = if extent == Extent::Full { FULL } else { QUICK };
    for (index, switches) in chains().iter().enumerate() {
        let forced = variants.iter().copied().find(|v| fits(*v, switches));
        if forced.is_none() && !variants.is_empty() {
            continue;
        }
        let gate = if switches.lower_bound.is_some() { "bounded" } else { "softplus" };
        let state = if switches.bf16_state { "bf16" } else { "f32" };
        let input = if switches.taps.is_some() { "a convolution" } else { "no convolution" };
        let case = format!("{steps} steps, {gate} gate, {state} state, {input}");
        let found = follow(device, switches, forced, steps, seed.wrapping_add(index as u64), &|_, _| {})
            .map_err(|cause| format!("{case}: {cause}"))?;
        found.rows(&case).into_iter().for_each(|row| sink(row, 1.0));
    }
    Ok(())
}

/// What a chain has of one request.
#[derive(Default)]
struct Stream {
    rows: Vec<Row>,
    /// Outputs of the accepted tokens, `[heads, V]` each: the device's, and the emulations' before rounding.
    outs: Vec<Vec<f64>>,
    emulated: [Vec<Vec<f64>>; 2],
}

/// Runs a chain.
pub fn follow(
    device: Device,
    switches: &Switches,
    forced: Option<Variant>,
    steps: usize,
    seed: u64,
    between: &Between<'_>,
) -> Result<Outcome, Failure> {
    let mut rng = Rng::new(seed);
    let mut at = Sample { slots: SLOTS, ..Sample::random(&mut rng, *switches) };
    let (pitch, conv_pitch) = (at.state_pitch, at.conv_pitch);
    at.state = match rng.normals_f32(SLOTS * pitch, 0.5) {
        state if switches.bf16_state => FloatVec::Bf16(state.into_iter().map(bf16::from_f32).collect()),
        state => FloatVec::F32(state),
    };
    at.conv = if switches.taps.is_some() { rng.normals_bf16(SLOTS * conv_pitch, 1.0) } else { Vec::new() };
    (at.slot_of, at.accepted) = ((0..REQUESTS as i32).collect(), vec![1; REQUESTS]);
    let start = at.clone();
    let stored = if switches.bf16_state { Stored::Bf16 } else { Stored::F32 };
    let mut emulated: [Vec<f64>; 2] = COUPLINGS.map(|_| at.state.view().widened(0, SLOTS * pitch));
    let mut streams: [Stream; REQUESTS] = Default::default();
    let (mut histories, mut changed) = (0, 0);
    for index in 0..steps {
        // ---- Verify
        let lens: [usize; REQUESTS] = std::array::from_fn(|_| rng.below(WINDOW + 1));
        at.query_start = vec![0, lens[0] as i32, (lens[0] + lens[1]) as i32];
        at.total = lens.iter().sum();
        let gates = Gates::Typical.draw(&mut rng, HEADS, at.total, WIDTH, switches.lower_bound.is_none(), true);
        (at.qkv, at.raw_g) = (rng.normals_bf16(at.total * CHANNELS, 1.0), gates.raw);
        at.raw_beta = rng.normals_bf16(at.total * HEADS, 1.0);
        let case = Case { sample: at.clone(), counters: index % 2 == 1 };
        let got = Call::new(device, &case)?.run(&Options { variant: forced, ..Options::default() })?;
        changed += got.changed;
        let mut right = COUPLINGS.map(|_| at.buffers());
        for ((right, state), couplings) in right.iter_mut().zip(&emulated).zip(COUPLINGS) {
            let problem = tc_verify::Problem { state: Floats::F64(state), ..at.problem() };
            tc_verify::emulate(&problem, &mut right.outputs(), couplings)?;
        }
        histories += differing(&right[0].conv, &got.conv);
        at.conv = got.conv;

        // ---- Commit
        let compacts = switches.taps.is_some() && index % 2 == 0;
        // A verify rolls the oldest input of a history out, so that there its first token is taken for accepted.
        let least = |len: usize| if switches.taps.is_some() { len.min(1) } else { 0 };
        let counts = lens.map(|len| least(len) + rng.below(len + 1 - least(len)));
        let mut to = at.slot_of.clone();
        for b in 0..REQUESTS {
            let free = (0..SLOTS as i32).find(|slot| !at.slot_of.contains(slot) && !to.contains(slot));
            if let Some(slot) = free.filter(|_| counts[b] > 0 && (compacts || switches.taps.is_none()) && rng.coin()) {
                to[b] = slot;
            }
        }
        let plain = tc_commit::sample::Switches::plain(REQUESTS, HEADS, WINDOW);
        let mut commit = tc_commit::sample::Sample {
            switches: tc_commit::sample::Switches {
                lower_bound: switches.lower_bound,
                bf16_state: switches.bf16_state,
                conv: compacts.then_some(switches.order),
                separate: true,
                ..plain
            },
            slots: SLOTS,
            state: at.state.clone(),
            state_pitch: pitch,
            rows: at.rows,
            corr: got.corr,
            kg: got.kg,
            a_log: at.a_log.clone(),
            dt_bias: at.dt_bias.clone(),
            conv: if compacts { at.conv.clone() } else { Vec::new() },
            conv_pitch,
            slot_of: at.slot_of.clone(),
            destinations: Some(to.clone()),
            counts: counts.map(|n| n as i32).to_vec(),
            boundary_tokens: Vec::new(),
            boundary_slots: Vec::new(),
        };
        let mut next = emulated.clone().map(|state| tc_commit::sample::Buffers { state, conv: commit.conv.clone() });
        for ((next, state), right) in next.iter_mut().zip(&emulated).zip(&right) {
            let of_emulation = tc_commit::Problem {
                state: Floats::F64(state),
                corr: Floats::F64(&right.corr),
                kg: Floats::F64(&right.kg),
                ..commit.problem()
            };
            tc_commit::run(&of_emulation, &mut next.outputs(), Mode::Emulate)?;
        }
        between(index, &mut commit);
        let case = CommitCase { layers: vec![commit], table: false };
        let mut layers = CommitCall::new(device, &case)?.run(None)?.layers;
        let layer = layers.pop().ok_or("a layer")?;
        at.state = layer.state;
        if compacts {
            histories += differing(&next[0].conv, &layer.conv);
            at.conv = layer.conv;
        }
        emulated = next.map(|next| next.state.into_iter().map(|s| stored.round(s)).collect());

        // ---- Accepted tokens
        for (b, stream) in streams.iter_mut().enumerate() {
            for row in (at.query_start[b] as usize..).take(counts[b]) {
                let of = |x: &[bf16], width: usize| x[row * width..][..width].to_vec();
                let (qkv, raw_g, raw_beta) = (of(&at.qkv, CHANNELS), of(&at.raw_g, WIDTH), of(&at.raw_beta, HEADS));
                stream.rows.push(Row { qkv, raw_g, raw_beta });
                stream.outs.push(got.out[row * at.out_pitch..][..WIDTH].iter().map(|o| o.to_f64()).collect());
                for (emulated, right) in stream.emulated.iter_mut().zip(&right) {
                    emulated.push(right.out[row * at.out_pitch..][..WIDTH].to_vec());
                }
            }
            if counts[b] > 0 {
                at.accepted[b] = if compacts { 1 } else { counts[b] as i32 };
            }
        }
        at.slot_of = to;
    }
    let mut found = Outcome { out: Worst::default(), state: Worst::default(), histories, changed, accepted: 0 };
    for (b, stream) in streams.iter().enumerate() {
        let slot = at.slot_of[b] as usize;
        found.accepted += stream.rows.len();
        for judged in judge(&start, b, stream, (slot, &at.state, &emulated)) {
            let [out, state] = judged;
            for (worst, judgement) in [(&mut found.out, out), (&mut found.state, state)] {
                worst.take(judgement.error.rms, judgement.limit.rms);
                worst.take(judgement.error.max, judgement.limit.max);
            }
        }
    }
    Ok(found)
}

/// Every head of a request: its accepted outputs, and its last state.
fn judge(
    start: &Sample,
    b: usize,
    stream: &Stream,
    (slot, state, emulated): (usize, &FloatVec, &[Vec<f64>; 2]),
) -> Vec<[Judgement; 2]> {
    let (problem, order) = (start.problem(), start.switches.order);
    let (rows, pitch) = (WINDOW + HISTORY - 1, start.state_pitch);
    let raw = |row, channel| start.conv[b * start.conv_pitch + order.offset(row, channel, rows, CHANNELS)];
    let history: Vec<Vec<bf16>> = match start.switches.taps {
        Some(_) => (0..HISTORY).map(|row| (0..CHANNELS).map(|channel| raw(row, channel)).collect()).collect(),
        None => vec![vec![bf16::ZERO; CHANNELS]; HISTORY],
    };
    let first = start.state.view().widened(b * pitch, WIDTH * HEAD);
    let of = |mode| uninterrupted(&problem, &stream.rows, &history, &first, mode);
    let (right, other) = (of(Mode::Contract), of(Mode::ContractOtherTies));
    let of_head = |outs: &[Vec<f64>], head: usize| -> Vec<f64> {
        outs.iter().flat_map(|o| &o[head * HEAD..(head + 1) * HEAD]).copied().collect()
    };
    let stored = if start.switches.bf16_state { Stored::Bf16 } else { Stored::F32 };
    let heads = (0..HEADS).map(|head| {
        let outs = [&right.outs, &other.outs, &stream.emulated[0], &stream.emulated[1], &stream.outs];
        let [reference, ties, scalar, split, got] = &outs.map(|outs| of_head(outs, head));
        let out = Budget::derive(reference, &[scalar, split, ties], Stored::Bf16).judge(reference, got);
        let part = head * HEAD * HEAD..(head + 1) * HEAD * HEAD;
        let last = |states: &[Vec<f64>]| states.last().map_or(&first[..], Vec::as_slice)[part.clone()].to_vec();
        let (reference, ties) = (last(&right.states), last(&other.states));
        let base = slot * pitch + part.start;
        let got = state.view().widened(base, HEAD * HEAD);
        let [scalar, split] = emulated.each_ref().map(|emulated| &emulated[base..base + HEAD * HEAD]);
        [out, Budget::derive(&reference, &[scalar, split, &ties], stored).judge(&reference, &got)]
    });
    heads.collect()
}

fn differing(a: &[bf16], b: &[bf16]) -> usize {
    a.len().abs_diff(b.len()) + a.iter().zip(b).filter(|(a, b)| a.to_bits() != b.to_bits()).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kda_runtime::executor::sim::SimExecutor;

    /// Whether each row passes, of a chain of `QUICK` steps that is broken from the third one on.
    fn passes(switches: &Switches, broken: &dyn Fn(&mut tc_commit::sample::Sample)) -> Vec<bool> {
        let executor = SimExecutor::default();
        let between = |index: usize, commit: &mut tc_commit::sample::Sample| {
            if index >= 2 {
                broken(commit);
            }
        };
        let found = follow(Device::simulator(&executor), switches, None, QUICK, 5, &between).expect("the chain runs");
        assert!(found.accepted > QUICK, "{}", found.accepted);
        found.rows("").iter().map(Measured::passes).collect()
    }

    #[test]
    fn broken_steps_are_noticed() {
        let (convolved, plain) = (chains()[2], chains()[4]);
        for switches in [convolved, plain] {
            assert_eq!(passes(&switches, &|_| {}), [true; 4], "{switches:?}");
        }
        type Break = fn(&mut tc_commit::sample::Sample);
        let breaks: [(&str, Break); 6] = [
            ("a token less", |c| c.counts.iter_mut().for_each(|n| *n -= 1)),
            ("u off by 2^-12", |c| c.corr.iter_mut().for_each(|u| *u *= 1.000_244)),
            ("the other request's records", |c| {
                let record = HEADS * WINDOW * HEAD;
                c.corr.rotate_left(record);
                c.kg.rotate_left(2 * record);
            }),
            ("another gate", |c| c.dt_bias.iter_mut().for_each(|b| *b += 0.001)),
            ("another slot's state", |c| c.slot_of.swap(0, 1)),
            ("no commit", |c| c.counts.fill(0)),
        ];
        for (what, change) in breaks {
            let rows = passes(&plain, &change);
            assert!(!rows[0] || !rows[1], "{what}: {rows:?}");
        }
        // Windows that a commit does not have.
        let rows = passes(&convolved, &|c| c.conv.iter_mut().for_each(|x| *x = bf16::ONE));
        assert!(!rows[2], "{rows:?}");
    }
}
