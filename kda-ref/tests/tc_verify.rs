//! The contract of `tc_verify`: the closed form against the recurrence, metadata, what is written, the convolution's bits.

use half::bf16;
use kda_ref::Mode;
use kda_ref::budget::max_abs_error;
use kda_ref::conv::TapType;
use kda_ref::delta_rule::{Token, step};
use kda_ref::floats::Floats;
use kda_ref::gate::sigmoid;
use kda_ref::norm::l2_normalise;
use kda_ref::rng::Rng;
use kda_ref::round::to_bf16;
use kda_ref::tc_verify::sample::{Buffers, Gates, Sample, Switches};
use kda_ref::tc_verify::{ConvOrder, HEAD, Outputs, Problem, Refusal, Request, reference, run};

const MODES: [Mode; 4] = [Mode::Exact, Mode::Contract, Mode::ContractOtherTies, Mode::Emulate];

fn seed() -> u64 {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let fresh = u64::from(clock.subsec_nanos());
    let seed = std::env::var("KDA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(fresh);
    println!("KDA_SEED={seed}");
    seed
}

fn execute(sample: &Sample, mode: Mode) -> Buffers {
    let mut buffers = sample.buffers();
    run(&sample.problem(), &mut buffers.outputs(), mode).expect("a valid sample");
    buffers
}

fn bits(x: &[f64]) -> Vec<u64> {
    x.iter().map(|x| x.to_bits()).collect()
}

fn same(x: &[bf16], y: &[bf16]) -> bool {
    x.iter().map(|x| x.to_bits()).eq(y.iter().map(|y| y.to_bits()))
}

/// A request's tokens of one head, ready for the recurrence: `[len]` of q, k, v, log decay, beta.
type Tokens = Vec<(Vec<f64>, Vec<f64>, Vec<f64>, Vec<f64>, f64)>;

/// Taken from the tensors as the table of the contract says, without a convolution.
fn tokens(p: &Problem<'_>, r: &Request, head: usize) -> Tokens {
    let token = |row: usize| {
        let part = |part: usize| -> Vec<f64> {
            (0..HEAD).map(|c| p.qkv[row * p.qkv_pitch + (part * p.heads + head) * HEAD + c].to_f64()).collect()
        };
        let (mut q, mut k, v) = (part(0), part(1), part(2));
        l2_normalise(&mut q, p.scale);
        l2_normalise(&mut k, 1.0);
        let gate = |c: usize| {
            let z = p.raw_g[row * p.g_pitch + head * HEAD + c].to_f64() + f64::from(p.dt_bias[head * HEAD + c]);
            p.gate().log_decay(z, f64::from(p.a_log(head)))
        };
        let beta = sigmoid(p.raw_beta[row * p.beta_pitch + head].to_f64());
        (q, k, v, (0..HEAD).map(gate).collect(), beta)
    };
    (r.begin..r.begin + r.len).map(token).collect()
}

/// The state `[V, K]` of a head.
fn state(p: &Problem<'_>, slot: usize, head: usize) -> Vec<f64> {
    p.state.widened(slot * p.state_pitch + head * HEAD * HEAD, HEAD * HEAD)
}

/// u and o by couplings and a triangular solve, with `e^{cum_t - cum_i}` taken as one exponential:
/// ```text
/// u_t = beta_t (v_t - S p_t - sum_{i<t} c_ti u_i);   o_t = S r_t + sum_{i<=t} d_ti u_i
/// ```
fn closed_form(state: &[f64], tokens: &Tokens) -> (Vec<f64>, Vec<f64>) {
    let mut cum: Vec<Vec<f64>> = Vec::new();
    let (mut us, mut os): (Vec<f64>, Vec<f64>) = Default::default();
    for (t, (q, k, v, g, beta)) in tokens.iter().enumerate() {
        let before = cum.last().cloned().unwrap_or_else(|| vec![0.0; HEAD]);
        cum.push(before.iter().zip(g).map(|(c, g)| c + g).collect());
        let coupling = |x: &[f64], i: usize| -> f64 {
            (0..HEAD).map(|c| (cum[t][c] - cum[i][c]).exp() * x[c] * tokens[i].1[c]).sum()
        };
        let project = |x: &[f64], row: &[f64]| -> f64 { (0..HEAD).map(|c| row[c] * cum[t][c].exp() * x[c]).sum() };
        for (row, v) in state.chunks_exact(HEAD).zip(v) {
            let at = us.len() % HEAD;
            let earlier: f64 = (0..t).map(|i| coupling(k, i) * us[i * HEAD + at]).sum();
            us.push(beta * (v - project(k, row) - earlier));
            os.push(project(q, row) + (0..=t).map(|i| coupling(q, i) * us[i * HEAD + at]).sum::<f64>());
        }
    }
    (us, os)
}

/// The operator is the plain recurrence, and so is the closed form that kernels compute; records are copies.
#[test]
fn closed_form_recurrence_and_operator_agree() {
    let seed = seed();
    for case in 0..24 {
        let mut rng = Rng::new(seed + case);
        let drawn = Switches::random(&mut rng, 2, 2, if case % 4 == 0 { 16 } else { 8 });
        let sample = Sample::random(&mut rng, Switches { taps: None, ..drawn });
        let (p, got) = (sample.problem(), execute(&sample, Mode::Exact));
        for ((r, slot), head) in p.live_requests().flat_map(|live| (0..p.heads).map(move |head| (live, head))) {
            let (tokens, start) = (tokens(&p, &r, head), state(&p, slot, head));
            let (us, os) = closed_form(&start, &tokens);
            // K-first, as the recurrence has it.
            let mut s: Vec<f64> = (0..HEAD * HEAD).map(|i| start[i % HEAD * HEAD + i / HEAD]).collect();
            for (t, (q, k, v, log_decay, beta)) in tokens.iter().enumerate() {
                let (mut u, mut o) = (vec![0.0; HEAD], vec![0.0; HEAD]);
                step(&mut s, Token { q, k, v, log_decay, beta: *beta }, &mut u, &mut o);
                let record = p.record(r.b, head, t);
                let rows =
                    [&got.corr[record..][..HEAD], &got.out[(r.begin + t) * got.out_pitch + head * HEAD..][..HEAD]];
                let what =
                    format!("KDA_SEED={seed}, case {case}, {r:?}, head {head}, token {t}: {:?}", sample.switches);
                assert_eq!(max_abs_error(&u, rows[0]), 0.0, "{what}");
                assert_eq!(max_abs_error(&o, rows[1]), 0.0, "{what}");
                assert!(max_abs_error(&u, &us[t * HEAD..][..HEAD]) < 1e-12, "{what}");
                assert!(max_abs_error(&o, &os[t * HEAD..][..HEAD]) < 1e-12, "{what}");
                let row = r.begin + t;
                for c in 0..HEAD {
                    let k = p.qkv[row * p.qkv_pitch + (p.heads + head) * HEAD + c].to_f64();
                    let g = p.raw_g[row * p.g_pitch + head * HEAD + c].to_f64();
                    assert_eq!([got.kg[2 * record + c], got.kg[2 * record + HEAD + c]], [k, g], "{what}");
                }
            }
        }
    }
}

/// Everything that no live request names keeps its bits, in all four buffers.
#[test]
fn only_what_the_contract_names_is_written() {
    let seed = seed();
    for case in 0..40 {
        let mut rng = Rng::new(seed + case);
        let switches = Switches { nulls: true, misfits: case % 2 == 0, ..Switches::random(&mut rng, 6, 2, 5) };
        let sample = Sample::random(&mut rng, switches);
        let (p, got) = (sample.problem(), execute(&sample, Mode::Contract));
        let (mut out, mut corr) = (vec![false; got.out.len()], vec![false; got.corr.len()]);
        let (mut kg, mut conv) = (vec![false; got.kg.len()], vec![false; got.conv.len()]);
        for b in 0..p.n_req {
            let (begin, end) = (i64::from(p.query_start[b]), i64::from(p.query_start[b + 1]));
            if begin < 0 || end < begin || end > p.total as i64 {
                continue;
            }
            let len = ((end - begin) as usize).min(p.window);
            let rows = begin as usize..begin as usize + len;
            rows.for_each(|row| out[row * got.out_pitch..][..p.heads * HEAD].fill(true));
            let slot = p.slot_of[b];
            if len == 0 || slot <= p.null || slot < 0 || slot as usize >= p.slots {
                continue;
            }
            for head in 0..p.heads {
                let record = (b * p.heads + head) * p.window * HEAD;
                corr[record..][..len * HEAD].fill(true);
                kg[2 * record..][..2 * len * HEAD].fill(true);
            }
            if switches.taps.is_some() {
                for (row, channel) in (0..2 + len).flat_map(|row| (0..p.channels()).map(move |c| (row, c))) {
                    let at = switches.order.offset(row, channel, p.window + 2, p.channels());
                    conv[slot as usize * sample.conv_pitch + at] = true;
                }
            }
        }
        let written = |x: &[f64]| x.iter().map(|x| !x.is_nan()).collect::<Vec<_>>();
        let what = format!("KDA_SEED={seed}, case {case}: {switches:?}");
        assert!(written(&got.out) == out, "out, {what}");
        assert!(written(&got.corr) == corr, "corr, {what}");
        assert!(written(&got.kg) == kg, "kg, {what}");
        let kept = |i: usize| conv[i] || sample.conv[i].to_bits() == got.conv[i].to_bits();
        assert!((0..conv.len()).all(kept), "conv, {what}");
        assert!(reference(&p).expect("a valid sample").same_conv(&got.conv), "conv, {what}");
    }
}

/// Metadata that a host cannot see, one case each.
#[test]
fn metadata_out_of_range_is_defined() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let plain = Switches { taps: Some(TapType::Bf16), null: 0, ..Switches::plain(3, 1, 4) };
    let sample = Sample::random(&mut rng, plain);
    let request = |query_start: [i32; 4], slot: i32, accepted: i32| {
        let mut changed = sample.clone();
        changed.query_start = query_start.to_vec();
        changed.slot_of[1] = slot;
        changed.accepted[1] = accepted;
        changed.problem().request(1)
    };
    let (slot, total) = (sample.slot_of[1], sample.total as i32);
    assert_eq!(total, 12);
    let whole = request([0, 4, 8, 12], slot, 3).expect("a request");
    assert_eq!(whole, Request { b: 1, begin: 4, len: 4, slot: Some(slot as usize), first: 2 });
    for nothing in [[0, 4, 4, 8], [0, -1, 3, 8], [0, 4, 3, 8], [0, 4, 13, 8], [0, i32::MIN, 4, 8], [0, 4, i32::MAX, 8]]
    {
        assert_eq!(request(nothing, slot, 1), None, "{nothing:?}");
    }
    assert_eq!(request([0, 4, 12, 12], slot, 1).expect("a request").len, 4);
    for dead in [0, -1, i32::MIN, sample.slots as i32, i32::MAX] {
        assert_eq!(request([0, 4, 8, 12], dead, 1).expect("a request").slot, None, "{dead}");
    }
    for (accepted, first) in [(i32::MIN, 0), (-3, 0), (0, 0), (1, 0), (4, 3), (5, 3), (i32::MAX, 3)] {
        assert_eq!(request([0, 4, 8, 12], slot, accepted).expect("a request").first, first, "{accepted}");
    }
}

/// Values of the convolution by hand, the window that it reads, and the rows that it leaves.
#[test]
fn history_taps_and_roll() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    for (taps, order) in [TapType::Bf16, TapType::F32]
        .into_iter()
        .flat_map(|taps| [ConvOrder::TokenMajor, ConvOrder::ChannelMajor].map(move |order| (taps, order)))
    {
        for accepted in 1..=4 {
            let switches = Switches { taps: Some(taps), order, padding: 8, ..Switches::plain(1, 2, 4) };
            let mut sample = Sample::random(&mut rng, switches);
            sample.accepted = vec![accepted];
            sample.query_start[1] = sample.query_start[0] + 3;
            let (p, got) = (sample.problem(), execute(&sample, Mode::Contract));
            let slot = sample.slot_of[0] as usize * sample.conv_pitch;
            let place = |row: usize, channel: usize| {
                slot + if order == ConvOrder::TokenMajor { row * p.channels() + channel } else { channel * 6 + row }
            };
            for channel in 0..p.channels() {
                let history = (0..3).map(|j| sample.conv[place(accepted as usize - 1 + j, channel)]);
                let rows = (0..3).map(|t| p.qkv[(p.query_start[0] as usize + t) * p.qkv_pitch + channel]);
                let xs: Vec<bf16> = history.chain(rows).collect();
                for row in 0..6 {
                    let want = if row < 5 { xs[row + 1] } else { sample.conv[place(5, channel)] };
                    assert_eq!(got.conv[place(row, channel)].to_bits(), want.to_bits(), "KDA_SEED={seed}, row {row}");
                }
                if channel / (2 * HEAD) == 1 {
                    for t in 0..3 {
                        let weight = |j: usize| p.conv.expect("a convolution").taps.get_f32(channel * 4 + j);
                        let sum = (0..4).fold(0.0f32, |sum, j| match taps {
                            TapType::F32 => xs[t + j].to_f32().mul_add(weight(j), sum),
                            TapType::Bf16 => sum + bf16::from_f32(xs[t + j].to_f32() * weight(j)).to_f32(),
                        });
                        let y = f64::from(sum) / (1.0 + (-f64::from(sum)).exp());
                        let (head, c) = (channel / HEAD - 2, channel % HEAD);
                        let k = got.kg[2 * p.record(0, head, t) + c];
                        assert_eq!(k, to_bf16(y), "KDA_SEED={seed}, {taps:?}, channel {channel}");
                    }
                }
            }
        }
    }
}

/// The order of the pool changes places and no bits, and so do pitches.
#[test]
fn orders_and_pitches_change_places_alone() {
    let seed = seed();
    for case in 0..8 {
        let mut rng = Rng::new(seed + case);
        let drawn = Switches::random(&mut rng, 3, 2, 6);
        let switches = Switches { taps: Some(TapType::F32), order: ConvOrder::TokenMajor, misfits: true, ..drawn };
        let sample = Sample::random(&mut rng, switches);
        let mut other = sample.clone();
        other.switches.order = ConvOrder::ChannelMajor;
        other.conv_pitch += 24;
        other.conv = vec![bf16::NAN; other.slots * other.conv_pitch];
        let (rows, channels) = (switches.window + 2, switches.channels());
        let places: Vec<(usize, usize)> = (0..sample.slots)
            .flat_map(|slot| (0..rows * channels).map(move |i| (slot, i / channels, i % channels)))
            .map(|(slot, row, channel)| {
                let offset = |order: ConvOrder| order.offset(row, channel, rows, channels);
                (
                    slot * sample.conv_pitch + offset(ConvOrder::TokenMajor),
                    slot * other.conv_pitch + offset(ConvOrder::ChannelMajor),
                )
            })
            .collect();
        places.iter().for_each(|&(a, b)| other.conv[b] = sample.conv[a]);
        for mode in MODES {
            let (a, b) = (execute(&sample, mode), execute(&other, mode));
            let what = format!("KDA_SEED={seed}, case {case}, {mode:?}");
            assert!(bits(&a.out) == bits(&b.out) && bits(&a.corr) == bits(&b.corr), "{what}");
            assert!(bits(&a.kg) == bits(&b.kg), "{what}");
            assert!(places.iter().all(|&(i, j)| a.conv[i].to_bits() == b.conv[j].to_bits()), "{what}");
        }
    }
}

/// A request's results do not depend on what else is in the batch.
#[test]
fn requests_are_independent() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let switches = Switches { taps: Some(TapType::Bf16), ..Switches::plain(3, 2, 4) };
    let sample = Sample::random(&mut rng, switches);
    for mode in MODES {
        let together = execute(&sample, mode);
        for b in 0..3 {
            let mut alone = sample.clone();
            (0..3).filter(|other| *other != b).for_each(|other| alone.slot_of[other] = -1);
            let got = execute(&alone, mode);
            let record = sample.problem().record(b, 0, 0)..sample.problem().record(b + 1, 0, 0);
            assert!(bits(&got.corr[record.clone()]) == bits(&together.corr[record]), "KDA_SEED={seed}");
            let rows = 4 * b * got.out_pitch..4 * (b + 1) * got.out_pitch;
            assert!(bits(&got.out[rows.clone()]) == bits(&together.out[rows]), "KDA_SEED={seed}");
            assert!(got.corr.iter().filter(|u| !u.is_nan()).count() == 4 * 2 * HEAD, "KDA_SEED={seed}");
        }
    }
}

/// Modes differ where the contract rounds and nowhere else.
#[test]
fn modes_round_where_the_contract_does() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let given = Sample::random(&mut rng, Switches { window: 8, ..Switches::plain(2, 2, 8) });
    let [exact, contract, other, emulated] = MODES.map(|mode| execute(&given, mode));
    for buffers in [&contract, &other] {
        assert!(bits(&exact.out) == bits(&buffers.out) && bits(&exact.corr) == bits(&buffers.corr));
    }
    assert!(bits(&emulated.kg) == bits(&exact.kg) && bits(&emulated.corr) != bits(&exact.corr));
    let fused = Sample::random(&mut rng, Switches { taps: Some(TapType::F32), ..Switches::plain(2, 2, 8) });
    let [exact, contract, other, emulated] = MODES.map(|mode| execute(&fused, mode));
    let values = |x: &Buffers| x.kg.iter().copied().filter(|x| !x.is_nan()).collect::<Vec<f64>>();
    assert!(values(&contract).iter().chain(&values(&other)).chain(&values(&emulated)).all(|x| to_bf16(*x) == *x));
    assert!(values(&exact).iter().any(|x| to_bf16(*x) != *x));
    for buffers in [&contract, &other, &emulated] {
        assert!(same(&exact.conv, &buffers.conv), "KDA_SEED={seed}");
    }
}

/// Gates far out take the cumulative gate below -500, where `e^-cum` is no number, and leave everything finite.
#[test]
fn gates_far_out_stay_finite() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let switches = Switches { gates: Gates::Far, lower_bound: None, ..Switches::plain(2, 2, 8) };
    let sample = Sample::random(&mut rng, switches);
    let p = sample.problem();
    let cum: f64 = tokens(&p, &p.request(0).expect("a request"), 0).iter().map(|token| token.3[0]).sum();
    assert!(cum < -500.0 && (-cum as f32).exp().is_infinite(), "KDA_SEED={seed}: {cum}");
    for mode in MODES {
        let got = execute(&sample, mode);
        let live = 2 * 2 * 8 * HEAD;
        assert!(got.corr[..live].iter().chain(&got.kg[..2 * live]).chain(&got.out).all(|x| x.is_finite()), "{mode:?}");
    }
    // The other channels count still: the state is not merely gone.
    let mut silent = sample.clone();
    silent.state = kda_ref::floats::FloatVec::filled(true, sample.state.view().len(), 0.0);
    let (with, without) = (execute(&sample, Mode::Exact), execute(&silent, Mode::Exact));
    assert!(max_abs_error(&with.corr[..8 * HEAD], &without.corr[..8 * HEAD]) > 0.01, "KDA_SEED={seed}");
}

#[test]
fn refusals_say_what_is_needed_and_nothing_is_written() {
    let mut rng = Rng::new(9);
    let switches = Switches { taps: Some(TapType::F32), padding: 8, ..Switches::plain(2, 1, 3) };
    let sample = Sample::random(&mut rng, switches);
    let plain = sample.problem();
    let refusal = |p: &Problem<'_>, shorten: &dyn Fn(&mut Buffers)| {
        let mut buffers = sample.buffers();
        shorten(&mut buffers);
        let refusal = run(p, &mut buffers.outputs(), Mode::Contract).expect_err("a bad call");
        assert!(buffers.out.iter().chain(&buffers.corr).chain(&buffers.kg).all(|x| x.is_nan()));
        assert!(same(&buffers.conv[..1000], &sample.conv[..1000]));
        refusal
    };
    let short = |p: &Problem<'_>, name: &str| match refusal(p, &|_| ()) {
        Refusal::TooShort { name: given, .. } => assert_eq!(given, name),
        other => panic!("{name}: {other}"),
    };
    short(&Problem { qkv: &plain.qkv[..10], ..plain }, "qkv");
    short(&Problem { qkv_pitch: 3 * HEAD - 1, ..plain }, "qkv_pitch");
    short(&Problem { raw_g: &plain.raw_g[..10], ..plain }, "raw_g");
    short(&Problem { g_pitch: HEAD - 1, ..plain }, "g_pitch");
    short(&Problem { raw_beta: &plain.raw_beta[..3], ..plain }, "raw_beta");
    short(&Problem { beta_pitch: 0, ..plain }, "beta_pitch");
    short(&Problem { a_log: Some(&[]), ..plain }, "a_log");
    short(&Problem { dt_bias: &plain.dt_bias[..127], ..plain }, "dt_bias");
    short(&Problem { state: Floats::F32(&[]), ..plain }, "state");
    short(&Problem { state_pitch: 1, ..plain }, "state_pitch");
    short(&Problem { slot_of: &plain.slot_of[..1], ..plain }, "slot_of");
    short(&Problem { query_start: &plain.query_start[..2], ..plain }, "query_start");
    let conv = plain.conv.expect("a convolution");
    let fused = |conv| Problem { conv: Some(conv), ..plain };
    short(&fused(kda_ref::tc_verify::Conv { taps: Floats::F32(&[]), ..conv }), "taps");
    short(&fused(kda_ref::tc_verify::Conv { accepted: &[1], ..conv }), "accepted");
    short(&fused(kda_ref::tc_verify::Conv { pool: &conv.pool[..100], ..conv }), "conv");
    short(&fused(kda_ref::tc_verify::Conv { pitch: 5, ..conv }), "conv_pitch");
    let f64_taps = vec![0.0; 3 * HEAD * 4];
    let wrong = fused(kda_ref::tc_verify::Conv { taps: Floats::F64(&f64_taps), ..conv });
    assert!(matches!(refusal(&wrong, &|_| ()), Refusal::ElementType { name: "taps", .. }));
    for (name, window, heads) in [("window", 0, 1), ("window", 17, 1), ("heads", 3, 0)] {
        match refusal(&Problem { window, heads, ..plain }, &|_| ()) {
            Refusal::Size { name: given, .. } => assert_eq!(given, name),
            other => panic!("{name}: {other}"),
        }
    }
    type Shorten = fn(&mut Buffers);
    let buffers: [(&str, Shorten); 4] = [
        ("out", |b| b.out.truncate(20)),
        ("corr", |b| b.corr.truncate(2 * 3 * HEAD - 1)),
        ("kg", |b| b.kg.truncate(4 * 3 * HEAD - 1)),
        ("the convolution pool that rolls", |b| b.conv.truncate(1000)),
    ];
    for (name, shorten) in buffers {
        let given = refusal(&plain, &shorten);
        assert!(matches!(given, Refusal::TooShort { name: given, .. } if given == name), "{name}: {given}");
    }
    let (mut out, mut corr, mut kg) = (vec![0.0; sample.total * 136], vec![0.0; 6 * HEAD], vec![0.0; 12 * HEAD]);
    let mut outputs = Outputs { out: &mut out, out_pitch: 136, corr: &mut corr, kg: &mut kg, conv: None };
    let absent = run(&plain, &mut outputs, Mode::Exact).expect_err("nowhere to roll");
    assert_eq!(absent.to_string(), "the convolution pool that rolls is needed");
    // Requests that share what one of them writes.
    let shared = refusal(&Problem { slot_of: &[1, 1], ..plain }, &|_| ());
    assert_eq!(shared, Refusal::Shared { name: "slot", index: 1 });
    assert!(run(&Problem { slot_of: &[1, 1], conv: None, ..plain }, &mut outputs, Mode::Exact).is_ok());
    // A boundary between two of three is out of range, so that both ends name the same rows.
    let three = Problem { n_req: 3, query_start: &[0, 3, 1, 4], slot_of: &[0, 1, 2], ..plain };
    let three = Problem { conv: None, ..three };
    assert_eq!(refusal(&three, &|b| b.corr = vec![f64::NAN; 9 * HEAD]), Refusal::Shared { name: "token", index: 1 });
}
