//! Budgets of `tc_verify` and `tc_commit` are tested by breaking kernels: a small fp32 kernel of another construction than the
//! emulation, which has to pass, and the same kernel with one fault at a time, each of which has to be caught.

use half::bf16;
use kda_ref::Mode;
use kda_ref::conv::TapType;
use kda_ref::floats::{FloatVec, Floats};
use kda_ref::gate::Gate;
use kda_ref::rng::Rng;
use kda_ref::tc_commit;
use kda_ref::tc_verify::budgets::{CORR_BOUND, OUT_ULPS};
use kda_ref::tc_verify::sample::{Gates, Sample, Switches};
use kda_ref::tc_verify::{Got, HEAD, HeadJudgement, Problem, Request, reference, run};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    SingleBf16Probes,
    NoCouplings,
    CouplingsNotDecayed,
    OwnTokenLeftOut,
    HalfOfTheState,
    TransposedState,
    CorrectionInBf16,
    NoScale,
    KeyNotNormalised,
    RecordedKeyNormalised,
    RecordedGateWithBias,
    GateWithoutBias,
    NoALog,
    RawBeta,
    DecayAfterTheUse,
    OneTokenLate,
    NeighbouringHead,
    HistoryOneLater,
    TapsReversed,
    OtherTapRule,
    ActivationNotRounded,
}

/// Faults of every call, and those that need a convolution.
const FAULTS: [Fault; 17] = [
    Fault::SingleBf16Probes,
    Fault::NoCouplings,
    Fault::CouplingsNotDecayed,
    Fault::OwnTokenLeftOut,
    Fault::HalfOfTheState,
    Fault::TransposedState,
    Fault::CorrectionInBf16,
    Fault::NoScale,
    Fault::KeyNotNormalised,
    Fault::RecordedKeyNormalised,
    Fault::RecordedGateWithBias,
    Fault::GateWithoutBias,
    Fault::NoALog,
    Fault::RawBeta,
    Fault::DecayAfterTheUse,
    Fault::OneTokenLate,
    Fault::NeighbouringHead,
];
const CONV_FAULTS: [Fault; 4] =
    [Fault::HistoryOneLater, Fault::TapsReversed, Fault::OtherTapRule, Fault::ActivationNotRounded];

fn seed() -> u64 {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let fresh = u64::from(clock.subsec_nanos());
    let seed = std::env::var("KDA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(fresh);
    println!("KDA_SEED={seed}");
    seed
}

fn round(x: f32) -> f32 {
    bf16::from_f32(x).to_f32()
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// Raw input of a channel at a step behind the first history row.
fn raw(p: &Problem<'_>, r: &Request, slot: usize, step: usize, channel: usize) -> f32 {
    let conv = p.conv.as_ref().expect("a convolution");
    match step.checked_sub(3) {
        Some(t) => p.qkv[(r.begin + t) * p.qkv_pitch + channel].to_f32(),
        None => {
            let at = conv.order.offset(r.first + step, channel, p.window + 2, 3 * p.heads * HEAD);
            conv.pool[slot * conv.pitch + at].to_f32()
        }
    }
}

fn activation(p: &Problem<'_>, r: &Request, slot: usize, t: usize, channel: usize, fault: Fault) -> f32 {
    let Some(conv) = &p.conv else { return p.qkv[(r.begin + t) * p.qkv_pitch + channel].to_f32() };
    let rounded = matches!(conv.taps, Floats::Bf16(_)) != (fault == Fault::OtherTapRule);
    let mut sum = 0.0f32;
    for j in 0..4 {
        let tap = conv.taps.get_f32(channel * 4 + if fault == Fault::TapsReversed { 3 - j } else { j });
        let late = usize::from(fault == Fault::HistoryOneLater && t + j < 2);
        let x = raw(p, r, slot, t + j + late, channel);
        sum = if rounded { sum + round(x * tap) } else { x.mul_add(tap, sum) };
    }
    let y = sum * sigmoid(sum);
    if fault == Fault::ActivationNotRounded { y } else { round(y) }
}

fn normalised(x: &[f32], scale: f32) -> Vec<f32> {
    let factor = (x.iter().map(|x| x * x).sum::<f32>() + 1e-6).sqrt().recip() * scale;
    x.iter().map(|x| x * factor).collect()
}

fn log_decay(p: &Problem<'_>, head: usize, c: usize, raw: f32, fault: Fault) -> f32 {
    let z = if fault == Fault::GateWithoutBias { raw } else { raw + p.dt_bias[head * HEAD + c] };
    let strength = if fault == Fault::NoALog { 1.0 } else { p.a_log(head).exp() };
    match p.gate() {
        Gate::Bounded { lower_bound } => lower_bound as f32 * sigmoid(strength * z),
        Gate::Softplus if z > 20.0 => -strength * z,
        Gate::Softplus => -strength * z.exp().ln_1p(),
    }
}

/// What the kernel stores.
struct Stored {
    out: Vec<bf16>,
    corr: Vec<f32>,
    kg: Vec<bf16>,
}

impl Stored {
    fn got(&self, out_pitch: usize) -> Got<'_> {
        Got { out: &self.out, out_pitch, corr: &self.corr, kg: &self.kg }
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn kernel(sample: &Sample, fault: Fault) -> Stored {
    let p = sample.problem();
    let records = sample.rows * p.heads * p.window * HEAD;
    let mut stored = Stored {
        out: vec![bf16::NAN; p.total * sample.out_pitch],
        corr: vec![f32::NAN; records],
        kg: vec![bf16::NAN; 2 * records],
    };
    for (r, slot) in p.live_requests() {
        for head in 0..p.heads {
            one_head(&p, sample.out_pitch, &r, slot, head, fault, &mut stored);
        }
    }
    stored
}

fn one_head(p: &Problem<'_>, out_pitch: usize, r: &Request, slot: usize, head: usize, fault: Fault, to: &mut Stored) {
    let source = if fault == Fault::NeighbouringHead { (head + 1) % p.heads } else { head };
    let base = slot * p.state_pitch + source * HEAD * HEAD;
    let element = |v: usize, k: usize| match fault {
        Fault::TransposedState => p.state.get_f32(base + k * HEAD + v),
        Fault::HalfOfTheState if k >= 64 => 0.0,
        _ => p.state.get_f32(base + v * HEAD + k),
    };
    let state: Vec<f32> = (0..HEAD * HEAD).map(|i| element(i / HEAD, i % HEAD)).collect();
    let project = |probe: &[f32]| -> Vec<f32> {
        let hi: Vec<f32> = probe.iter().map(|x| round(*x)).collect();
        let lo: Vec<f32> = probe.iter().zip(&hi).map(|(x, hi)| round(x - hi)).collect();
        let rows = state.chunks_exact(HEAD);
        rows.map(|row| dot(row, &hi) + if fault == Fault::SingleBf16Probes { 0.0 } else { dot(row, &lo) }).collect()
    };
    let (mut decays, mut keys, mut us): (Vec<Vec<f32>>, Vec<Vec<f32>>, Vec<Vec<f32>>) = Default::default();
    for t in 0..r.len {
        let from = if fault == Fault::OneTokenLate { t.saturating_sub(1) } else { t };
        let part = |part: usize| -> Vec<f32> {
            (0..HEAD).map(|c| activation(p, r, slot, from, (part * p.heads + head) * HEAD + c, fault)).collect()
        };
        let (q, k, v) = (part(0), part(1), part(2));
        let qn = normalised(&q, if fault == Fault::NoScale { 1.0 } else { p.scale as f32 });
        let kn = if fault == Fault::KeyNotNormalised { k.clone() } else { normalised(&k, 1.0) };
        let raw = |c: usize| p.raw_g[(r.begin + t) * p.g_pitch + head * HEAD + c];
        let g: Vec<f32> = (0..HEAD).map(|c| log_decay(p, head, c, raw(c).to_f32(), fault)).collect();
        let record = p.record(r.b, head, t);
        for c in 0..HEAD {
            to.kg[2 * record + c] = bf16::from_f32(if fault == Fault::RecordedKeyNormalised { kn[c] } else { k[c] });
            let with_bias = bf16::from_f32(raw(c).to_f32() + p.dt_bias[head * HEAD + c]);
            to.kg[2 * record + HEAD + c] = if fault == Fault::RecordedGateWithBias { with_bias } else { raw(c) };
        }
        decays.push(g.iter().map(|g| g.exp()).collect());
        // e^{cum_t - cum_i} as a product of the decays behind token i.
        let since = |i: usize, c: usize| decays[i + 1..].iter().map(|decay| decay[c]).product::<f32>();
        let all = |c: usize| {
            let skipped = usize::from(fault == Fault::DecayAfterTheUse);
            decays[..decays.len() - skipped].iter().map(|decay| decay[c]).product::<f32>()
        };
        let probe = |x: &[f32]| -> Vec<f32> { (0..HEAD).map(|c| all(c) * x[c]).collect() };
        let carried = |i: usize| -> Vec<f32> {
            let decay = |c| if fault == Fault::CouplingsNotDecayed { 1.0 } else { since(i, c) };
            (0..HEAD).map(|c| keys[i][c] * decay(c)).collect()
        };
        let (mut u, mut o) = (project(&probe(&kn)), project(&probe(&qn)));
        if fault != Fault::NoCouplings {
            for (i, earlier) in us.iter().enumerate() {
                let (c, d) = (dot(&kn, &carried(i)), dot(&qn, &carried(i)));
                u.iter_mut().zip(earlier).for_each(|(x, e)| *x += c * e);
                o.iter_mut().zip(earlier).for_each(|(x, e)| *x += d * e);
            }
        }
        let raw_beta = p.raw_beta[(r.begin + t) * p.beta_pitch + head].to_f32();
        let beta = if fault == Fault::RawBeta { raw_beta } else { sigmoid(raw_beta) };
        u.iter_mut().zip(&v).for_each(|(x, v)| *x = beta * (v - *x));
        if fault == Fault::CorrectionInBf16 {
            u.iter_mut().for_each(|u| *u = round(*u));
        }
        let own = if fault == Fault::OwnTokenLeftOut { 0.0 } else { dot(&qn, &kn) };
        for (i, (o, u)) in o.iter().zip(&u).enumerate() {
            to.out[(r.begin + t) * out_pitch + head * HEAD + i] = bf16::from_f32(o + own * u);
            to.corr[record + i] = *u;
        }
        keys.push(kn);
        us.push(u);
    }
}

fn judge(sample: &Sample, fault: Fault) -> Vec<HeadJudgement> {
    let checked = reference(&sample.problem()).expect("a valid sample");
    checked.judge(&kernel(sample, fault).got(sample.out_pitch))
}

/// A right kernel passes on everything that can be drawn, and every live head of every live request is judged.
#[test]
fn right_arithmetic_passes() {
    let seed = seed();
    let (mut judged, mut ties) = (0, 0);
    for case in 0..80 {
        let mut rng = Rng::new(seed + case);
        let switches = Switches::random(&mut rng, 3, 3, 16);
        let sample = Sample::random(&mut rng, switches);
        let heads = judge(&sample, Fault::None);
        assert_eq!(heads.len(), sample.problem().live_requests().count() * switches.heads);
        for head in &heads {
            assert!(head.passes(), "KDA_SEED={seed}, case {case}: {head:?}, {switches:?}");
        }
        judged += heads.len();
        ties += heads.iter().map(|head| head.other_ties).sum::<usize>();
    }
    println!("{judged} heads, {ties} on the other side of a tie");
    assert!(judged > 80);
}

/// The kernel with a fault fails in every request.
#[test]
fn every_fault_is_caught() {
    let seed = seed();
    for case in 0..6 {
        let mut rng = Rng::new(seed + case);
        let lower_bound = if case % 2 == 0 { Some(-5.0) } else { None };
        let taps = if case % 3 == 0 { Some(TapType::Bf16) } else { Some(TapType::F32) };
        let plain = Switches { lower_bound, bf16_state: case % 4 < 2, ..Switches::plain(2, 2, 5) };
        for fault in FAULTS.into_iter().chain(CONV_FAULTS) {
            let taps = if CONV_FAULTS.contains(&fault) || case % 2 == 1 { taps } else { None };
            let sample = Sample::random(&mut rng, Switches { taps, ..plain });
            let heads = judge(&sample, fault);
            let requests = [0, 1].map(|b| heads.iter().any(|head| head.b == b && !head.passes()));
            assert!(requests == [true; 2], "KDA_SEED={seed}, case {case}: {fault:?} is not caught: {heads:?}");
        }
    }
}

/// Probes of one bf16 are what `corr` has its budget for: it alone catches them, with both types of states and every gate but -5
/// throughout, where the state hardly counts. The fixed bound takes many of them.
#[test]
fn single_bf16_probes_are_caught_by_corr() {
    let seed = seed();
    let mut caught = (0, 0);
    for case in 0..16 {
        let mut rng = Rng::new(seed + case);
        let drawn = Switches::random(&mut rng, 2, 2, 8);
        let gates = if drawn.gates == Gates::Lowest { Gates::Typical } else { drawn.gates };
        let switches = Switches { gates, nulls: false, misfits: false, ragged: false, input_sigma: 1.0, ..drawn };
        let sample = Sample::random(&mut rng, switches);
        for head in judge(&sample, Fault::SingleBf16Probes) {
            assert!(!head.corr.passes, "KDA_SEED={seed}, case {case}: {head:?}, {switches:?}");
            caught.0 += usize::from(head.corr.error.max > CORR_BOUND);
            caught.1 += 1;
        }
    }
    println!("{} of {} heads are within the fixed bound", caught.1 - caught.0, caught.1);
}

/// The contract's own bounds hold for the emulation and for the kernel on typical samples.
#[test]
fn typical_samples_meet_the_fixed_bounds() {
    let seed = seed();
    let mut worst = (0.0f64, 0.0f64);
    for case in 0..40 {
        let mut rng = Rng::new(seed + case);
        let drawn = Switches::random(&mut rng, 2, 2, 8);
        let switches = Switches { gates: Gates::Typical, input_sigma: 1.0, ..drawn };
        let sample = Sample::random(&mut rng, switches);
        let mut buffers = sample.buffers();
        run(&sample.problem(), &mut buffers.outputs(), Mode::Emulate).expect("a valid sample");
        let emulated = Stored {
            out: buffers.out.iter().map(|x| bf16::from_f32(*x as f32)).collect(),
            corr: buffers.corr.iter().map(|x| *x as f32).collect(),
            kg: buffers.kg.iter().map(|x| bf16::from_f32(*x as f32)).collect(),
        };
        let checked = reference(&sample.problem()).expect("a valid sample");
        for stored in [emulated, kernel(&sample, Fault::None)] {
            for head in checked.judge(&stored.got(sample.out_pitch)) {
                worst = (worst.0.max(head.corr.error.max), worst.1.max(head.out_ulps));
                let within = head.corr.error.max <= CORR_BOUND && head.out_ulps <= OUT_ULPS;
                assert!(within && head.passes(), "KDA_SEED={seed}, case {case}: {head:?}, {switches:?}");
            }
        }
    }
    println!("u {:.1e} of {CORR_BOUND:.0e}, out {:.3} of {OUT_ULPS} units of the last place", worst.0, worst.1);
    // The bounds are not so wide that anything meets them.
    assert!(worst.0 > CORR_BOUND / 200.0 && worst.1 > OUT_ULPS / 4.0);
}

/// Activations at a tie may fall either way, a whole unit of the last place elsewhere is a fault.
#[test]
fn ties_go_either_way_and_nothing_else_does() {
    let seed = seed();
    let mut found = [0; 2];
    for case in 0..60 {
        let mut rng = Rng::new(seed + case);
        let plain = Switches { taps: Some(TapType::F32), lower_bound: None, ..Switches::plain(1, 2, 8) };
        let sample = Sample::random(&mut rng, plain);
        let p = sample.problem();
        let runs = [Mode::Contract, Mode::ContractOtherTies].map(|mode| {
            let mut buffers = sample.buffers();
            run(&p, &mut buffers.outputs(), mode).expect("a valid sample");
            buffers
        });
        let checked = reference(&p).expect("a valid sample");
        let stored = |of: &kda_ref::tc_verify::sample::Buffers| Stored {
            out: of.out.iter().map(|x| bf16::from_f64(*x)).collect(),
            corr: of.corr.iter().map(|x| *x as f32).collect(),
            kg: of.kg.iter().map(|x| bf16::from_f64(*x)).collect(),
        };
        let other = checked.judge(&stored(&runs[1]).got(sample.out_pitch));
        assert!(other.iter().all(HeadJudgement::passes), "KDA_SEED={seed}, case {case}: {other:?}");
        let flipped_keys = runs[0].kg.iter().zip(&runs[1].kg).filter(|(a, b)| a != b && !a.is_nan()).count();
        found[0] += flipped_keys;
        found[1] += other.iter().map(|head| head.other_ties).sum::<usize>();
        let mut wrong = stored(&runs[0]);
        assert!(checked.judge(&wrong.got(sample.out_pitch)).iter().all(|head| head.passes() && head.other_ties == 0));
        // A key one unit off, where there is no tie.
        let at = (0..HEAD).find(|&c| runs[0].kg[c] == runs[1].kg[c] && runs[0].kg[c] != 0.0).expect("no tie");
        wrong.kg[at] = bf16::from_bits(wrong.kg[at].to_bits() ^ 1);
        let judged = checked.judge(&wrong.got(sample.out_pitch));
        assert_eq!([judged[0].wrong_kg, judged[1].wrong_kg], [1, 0], "KDA_SEED={seed}, case {case}");
    }
    println!("{} keys and {} values at ties", found[0], found[1] - found[0]);
    assert!(found[0] > 0 && found[1] > found[0], "KDA_SEED={seed}: {found:?}");
}

#[test]
fn a_single_wrong_element_is_caught() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let sample = Sample::random(&mut rng, Switches { padding: 8, ..Switches::plain(2, 2, 3) });
    let checked = reference(&sample.problem()).expect("a valid sample");
    let passes = |stored: &Stored| {
        checked.judge(&stored.got(sample.out_pitch)).iter().map(HeadJudgement::passes).collect::<Vec<_>>()
    };
    assert_eq!(passes(&kernel(&sample, Fault::None)), [true; 4], "KDA_SEED={seed}");
    // The second head of the first request.
    let record = sample.problem().record(0, 1, 1) + 17;
    let out = (sample.query_start[0] as usize + 1) * sample.out_pitch + HEAD + 17;
    for wrong in [1e-3, f32::NAN, f32::INFINITY] {
        let mut stored = kernel(&sample, Fault::None);
        stored.corr[record] += wrong;
        assert_eq!(passes(&stored), [true, false, true, true], "KDA_SEED={seed}: {wrong}");
        let mut stored = kernel(&sample, Fault::None);
        stored.out[out] = bf16::from_f32(stored.out[out].to_f32() + 100.0 * wrong);
        assert_eq!(passes(&stored), [true, false, true, true], "KDA_SEED={seed}: {wrong}");
    }
    let mut stored = kernel(&sample, Fault::None);
    stored.kg[2 * (record - 17) + HEAD + 5] = bf16::NAN;
    assert_eq!(passes(&stored), [true, false, true, true], "KDA_SEED={seed}");
}

/// A commit in fp32, element by element, with one fault.
fn commit(sample: &tc_commit::sample::Sample, fault: &str) -> FloatVec {
    let p = sample.problem();
    let mut pool = sample.state.clone();
    for (c, head) in p.commits().flat_map(|c| (0..p.heads).map(move |head| (c, head))) {
        for (n, slot) in c.targets() {
            let n = if fault == "one record less" { n - 1 } else { n };
            let mut suffix = vec![1.0f32; HEAD];
            let mut sum = vec![0.0f32; HEAD * HEAD];
            for i in (0..n).rev() {
                let record = p.record(c.b, head, i);
                let kg = |c: usize| p.kg.get_f32(2 * record + c);
                let k: Vec<f32> = (0..HEAD).map(kg).collect();
                let kn = if fault == "keys not normalised" { k } else { normalised(&k, 1.0) };
                for k in 0..HEAD {
                    let z = kg(HEAD + k) + if fault == "no bias" { 0.0 } else { p.dt_bias[head * HEAD + k] };
                    let strength = p.a_log(head).exp();
                    let g = match p.gate() {
                        Gate::Bounded { lower_bound } => lower_bound as f32 * sigmoid(strength * z),
                        Gate::Softplus if z > 20.0 => -strength * z,
                        Gate::Softplus => -strength * z.exp().ln_1p(),
                    };
                    let w = if fault == "keys not decayed" { kn[k] } else { kn[k] * suffix[k] };
                    (0..HEAD).for_each(|v| sum[v * HEAD + k] += p.corr.get_f32(record + v) * w);
                    suffix[k] *= g.exp();
                }
            }
            let slot_of = |slot: usize| slot * p.state_pitch + head * HEAD * HEAD;
            for (i, sum) in sum.iter().enumerate() {
                let s = p.state.get_f32(slot_of(c.source) + i) * suffix[i % HEAD] + sum;
                match &mut pool {
                    FloatVec::F32(pool) => pool[slot_of(slot) + i] = s,
                    FloatVec::Bf16(pool) if fault == "truncated" => {
                        pool[slot_of(slot) + i] = bf16::from_bits((s.to_bits() >> 16) as u16);
                    }
                    FloatVec::Bf16(pool) => pool[slot_of(slot) + i] = bf16::from_f32(s),
                }
            }
        }
    }
    pool
}

#[test]
fn right_commits_pass_and_faults_are_caught() {
    use tc_commit::sample::{Sample, Switches};
    let seed = seed();
    let mut judged = 0;
    for case in 0..60 {
        let mut rng = Rng::new(seed + case);
        let switches = Switches::random(&mut rng, 3, 2, 16);
        let sample = Sample::random(&mut rng, switches);
        let checked = tc_commit::reference(&sample.problem()).expect("a valid sample");
        for state in checked.judge(commit(&sample, "").view()) {
            assert!(state.judgement.passes, "KDA_SEED={seed}, case {case}: {state:?}, {switches:?}");
            judged += 1;
        }
    }
    println!("{judged} states");
    assert!(judged > 60, "KDA_SEED={seed}");
    for (case, bf16_state) in (0..4).map(|case| (case, case % 2 == 0)) {
        let mut rng = Rng::new(seed + 1000 + case);
        let lower_bound = if case < 2 { Some(-5.0) } else { None };
        let mut sample = Sample::random(&mut rng, Switches { lower_bound, bf16_state, ..Switches::plain(2, 2, 6) });
        sample.counts = vec![6, 3];
        let checked = tc_commit::reference(&sample.problem()).expect("a valid sample");
        let faults = ["one record less", "keys not normalised", "no bias", "keys not decayed", "truncated"];
        for fault in faults.into_iter().filter(|fault| bf16_state || *fault != "truncated") {
            let states = checked.judge(commit(&sample, fault).view());
            assert!(states.iter().all(|state| !state.judgement.passes), "KDA_SEED={seed}: {fault}: {states:?}");
        }
    }
}
