//! Convolution, verify and commit over many steps are one uninterrupted recurrence, whatever was rejected on the way: with windows
//! compacted or not, in place or to other slots, and with a state left behind at a boundary now and then.

use half::bf16;
use kda_ref::Mode;
use kda_ref::budget::max_abs_error;
use kda_ref::conv::TapType;
use kda_ref::floats::Floats;
use kda_ref::rng::Rng;
use kda_ref::tc_commit::{self, Boundary, Compaction};
use kda_ref::tc_verify::sample::{Gates, Sample, Switches};
use kda_ref::tc_verify::uninterrupted::{Row, uninterrupted};
use kda_ref::tc_verify::{self, ConvOrder, HEAD, Problem};

const STEPS: usize = 12;
const REQUESTS: usize = 2;
const HEADS: usize = 2;
const WINDOW: usize = 5;
const CHANNELS: usize = 3 * HEADS * HEAD;

fn seed() -> u64 {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let fresh = u64::from(clock.subsec_nanos());
    let seed = std::env::var("KDA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(fresh);
    println!("KDA_SEED={seed}");
    seed
}

/// What the chain gave of one request.
#[derive(Default)]
struct Stream {
    /// Accepted tokens.
    rows: Vec<Row>,
    /// Their outputs `[heads, V]` and recorded keys `[heads, K]`.
    outs: Vec<Vec<f64>>,
    keys: Vec<Vec<f64>>,
    /// Slots left behind, and the tokens that their states have.
    left: Vec<(usize, usize)>,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    lower_bound: Option<f64>,
    gates: Gates,
    taps: TapType,
    order: ConvOrder,
    /// Windows are compacted, so that each step starts at row 0; then slots may change and boundaries are stored.
    compacted: bool,
    mode: Mode,
}

fn chain(seed: u64, case: Case) {
    let what = format!("KDA_SEED={seed}, {case:?}");
    let mut rng = Rng::new(seed);
    let mut switches = Switches::plain(REQUESTS, HEADS, WINDOW);
    (switches.lower_bound, switches.gates, switches.order) = (case.lower_bound, case.gates, case.order);
    (switches.taps, switches.bf16_state) = (Some(case.taps), false);
    let first = Sample::random(&mut rng, switches);
    let (pitch, conv_pitch, width) = (first.state_pitch, first.conv_pitch, HEADS * HEAD);
    // Room for the states that are left behind.
    let slots = REQUESTS * (STEPS + 2);
    let mut state: Vec<f64> = rng.normals(slots * pitch, 0.5);
    let mut conv = rng.normals_bf16(slots * conv_pitch, 1.0);
    let (start_state, start_conv) = (state.clone(), conv.clone());
    let (mut slot, mut free) = (vec![0i32, 1], (2..slots as i32).collect::<Vec<i32>>());
    let mut accepted = vec![1i32; REQUESTS];
    let mut streams: [Stream; REQUESTS] = Default::default();
    for _ in 0..STEPS {
        let mut call = Sample { slots, slot_of: slot.clone(), accepted: accepted.clone(), ..first.clone() };
        let lens: Vec<usize> = (0..REQUESTS).map(|_| rng.below(WINDOW + 1)).collect();
        call.query_start = vec![0, lens[0] as i32, (lens[0] + lens[1]) as i32];
        call.total = lens[0] + lens[1];
        let drawn = case.gates.draw(&mut rng, HEADS, call.total, width, case.lower_bound.is_none(), true);
        (call.qkv, call.raw_g) = (rng.normals_bf16(call.total * CHANNELS, 1.0), drawn.raw);
        call.raw_beta = rng.normals_bf16(call.total * HEADS, 1.0);
        call.conv = conv.clone();
        let mut verified = call.buffers();
        let problem = Problem { state: Floats::F64(&state), ..call.problem() };
        tc_verify::run(&problem, &mut verified.outputs(), case.mode).expect("a valid verify");
        conv = verified.conv;

        let counts: Vec<i32> = lens.iter().map(|len| if *len == 0 { 0 } else { 1 + rng.below(*len) as i32 }).collect();
        let mut destinations = slot.clone();
        let (mut boundary_tokens, mut boundary_slots) = (vec![0; REQUESTS], vec![-1; REQUESTS]);
        for b in (0..REQUESTS).filter(|b| case.compacted && counts[*b] > 0) {
            // A boundary takes a new slot, or the source while the request moves on.
            match rng.below(3) {
                0 => destinations[b] = free.pop().expect("room"),
                1 => {
                    boundary_tokens[b] = 1 + rng.below(counts[b] as usize) as i32;
                    boundary_slots[b] = free.pop().expect("room");
                }
                _ => {
                    boundary_tokens[b] = 1 + rng.below(counts[b] as usize) as i32;
                    boundary_slots[b] = slot[b];
                    destinations[b] = free.pop().expect("room");
                }
            }
        }
        let commit = tc_commit::Problem {
            n_req: REQUESTS,
            heads: HEADS,
            window: WINDOW,
            slots,
            state: Floats::F64(&state),
            state_pitch: pitch,
            corr: Floats::F64(&verified.corr),
            kg: Floats::F64(&verified.kg),
            a_log: call.a_log.as_deref(),
            dt_bias: &call.dt_bias,
            conv: case.compacted.then_some(Compaction { pool: &conv, pitch: conv_pitch, order: case.order }),
            slot_of: &slot,
            destinations: Some(&destinations),
            counts: &counts,
            boundary: Some(Boundary { tokens: &boundary_tokens, slots: &boundary_slots }),
            lower_bound: case.lower_bound,
            null: -1,
        };
        let (mut next_state, mut next_conv) = (state.clone(), conv.clone());
        let mut outputs = tc_commit::Outputs { state: &mut next_state, conv: Some(&mut next_conv) };
        tc_commit::run(&commit, &mut outputs, case.mode).expect("a valid commit");

        for (b, stream) in streams.iter_mut().enumerate() {
            if boundary_tokens[b] > 0 {
                stream.left.push((boundary_slots[b] as usize, stream.rows.len() + boundary_tokens[b] as usize));
            }
            for t in 0..counts[b] as usize {
                let row = call.query_start[b] as usize + t;
                let of = |x: &[bf16], width: usize| x[row * width..][..width].to_vec();
                stream.rows.push(Row {
                    qkv: of(&call.qkv, CHANNELS),
                    raw_g: of(&call.raw_g, width),
                    raw_beta: of(&call.raw_beta, HEADS),
                });
                stream.outs.push(verified.out[row * call.out_pitch..][..width].to_vec());
                let key = |head: usize| &verified.kg[2 * problem.record(b, head, t)..][..HEAD];
                stream.keys.push((0..HEADS).flat_map(key).copied().collect());
            }
            if counts[b] > 0 {
                accepted[b] = if case.compacted { 1 } else { counts[b] };
            }
        }
        (state, conv, slot) = (next_state, next_conv, destinations);
    }
    let problem = first.problem();
    for (b, stream) in streams.iter().enumerate() {
        let offset = |row, channel| b * conv_pitch + case.order.offset(row, channel, WINDOW + 2, CHANNELS);
        let history: Vec<Vec<bf16>> =
            (0..3).map(|row| (0..CHANNELS).map(|channel| start_conv[offset(row, channel)]).collect()).collect();
        let start = &start_state[b * pitch..][..width * HEAD];
        let whole = uninterrupted(&problem, &stream.rows, &history, start, case.mode);
        for (t, (o, k)) in stream.outs.iter().zip(&stream.keys).enumerate() {
            assert!(whole.keys[t] == *k, "{what}: key of token {t}");
            let error = max_abs_error(&whole.outs[t], o);
            assert!(error < 1e-12, "{what}: output of token {t} is off by {error}");
        }
        let last = [(slot[b] as usize, stream.rows.len())];
        for (slot, tokens) in stream.left.iter().chain(&last).filter(|(_, tokens)| *tokens > 0) {
            let error = max_abs_error(&whole.states[tokens - 1], &state[slot * pitch..][..width * HEAD]);
            assert!(error < 1e-12, "{what}: the state of {tokens} tokens in slot {slot} is off by {error}");
        }
    }
}

#[test]
fn steps_are_the_uninterrupted_recurrence() {
    let seed = seed();
    let gates = [(Some(-5.0), Gates::Typical), (None, Gates::Typical), (None, Gates::Far)];
    for (i, (lower_bound, gates)) in gates.into_iter().enumerate() {
        for compacted in [true, false] {
            for mode in [Mode::Exact, Mode::Contract] {
                let taps = if i % 2 == 0 { TapType::F32 } else { TapType::Bf16 };
                let order = if compacted == (i == 0) { ConvOrder::TokenMajor } else { ConvOrder::ChannelMajor };
                chain(seed + i as u64, Case { lower_bound, gates, taps, order, compacted, mode });
            }
        }
    }
}
