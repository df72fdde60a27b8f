//! `tc_verify` and `tc_commit` "kernels" written apart from the library, and ways to break them: fp32, sums in plain order, decays
//! between tokens as products, the standard library's exponential.

use half::bf16;
use kda_ref::floats::{FloatVec, Floats};
use kda_ref::gate::Gate;
use kda_ref::tc_commit;
use kda_ref::tc_verify::sample::Sample;
use kda_ref::tc_verify::{Got, HEAD, Problem, Request};

/// What a wrong kernel does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// No fault either: exponentials, reciprocals and roots as approximate instructions give them, and couplings of bf16 parts.
    Approximations,
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
pub const FAULTS: [Fault; 17] = [
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
pub const CONV_FAULTS: [Fault; 4] =
    [Fault::HistoryOneLater, Fault::TapsReversed, Fault::OtherTapRule, Fault::ActivationNotRounded];

fn round(x: f32) -> f32 {
    bf16::from_f32(x).to_f32()
}

/// `x` off by up to 2^-22.5 of it, the most that an approximate instruction is off by; how much follows from its bits.
fn blur(x: f32, fault: Fault) -> f32 {
    let hash = x.to_bits().wrapping_mul(0x9E37_79B1) >> 8;
    let by = (f64::from(hash) / f64::from(1 << 23) - 1.0) * 2f64.powf(-22.5);
    if fault == Fault::Approximations { (f64::from(x) * (1.0 + by)) as f32 } else { x }
}

/// e^x by a power of 2, which is 1 at numbers so small that no other result is near with approximate instructions too.
fn exp(x: f32, fault: Fault) -> f32 {
    match fault {
        Fault::Approximations if x.abs() > 2f32.powi(-25) => blur((x * std::f32::consts::LOG2_E).exp2(), fault),
        _ => x.exp(),
    }
}

fn logistic(x: f32, fault: Fault) -> f32 {
    blur(1.0 / (1.0 + exp(-x, fault)), fault)
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
    let y = sum * logistic(sum, fault);
    if fault == Fault::ActivationNotRounded { y } else { round(y) }
}

fn normalised(x: &[f32], scale: f32, fault: Fault) -> Vec<f32> {
    let factor = blur((x.iter().map(|x| x * x).sum::<f32>() + 1e-6).sqrt().recip(), fault) * scale;
    x.iter().map(|x| x * factor).collect()
}

fn log_decay(p: &Problem<'_>, head: usize, c: usize, raw: f32, fault: Fault) -> f32 {
    let z = if fault == Fault::GateWithoutBias { raw } else { raw + p.dt_bias[head * HEAD + c] };
    let strength = if fault == Fault::NoALog { 1.0 } else { exp(p.a_log(head), fault) };
    match p.gate() {
        Gate::Bounded { lower_bound } => lower_bound as f32 * logistic(strength * z, fault),
        Gate::Softplus if z > 20.0 => -strength * z,
        Gate::Softplus => -strength * blur(z.exp().ln_1p(), fault),
    }
}

/// What the kernel stores.
pub struct Stored {
    pub out: Vec<bf16>,
    pub corr: Vec<f32>,
    pub kg: Vec<bf16>,
}

impl Stored {
    pub fn got(&self, out_pitch: usize) -> Got<'_> {
        Got { out: &self.out, out_pitch, corr: &self.corr, kg: &self.kg }
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// A coupling, whole or of high and low parts without low times low.
fn couple(a: &[f32], b: &[f32], fault: Fault) -> f32 {
    let parts = |x: &[f32]| -> (Vec<f32>, Vec<f32>) { x.iter().map(|x| (round(*x), round(x - round(*x)))).unzip() };
    let ((a_hi, a_lo), (b_hi, b_lo)) = (parts(a), parts(b));
    if fault == Fault::Approximations { dot(&a_hi, &b_hi) + dot(&a_hi, &b_lo) + dot(&a_lo, &b_hi) } else { dot(a, b) }
}

pub fn kernel(sample: &Sample, fault: Fault) -> Stored {
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
    let [mut decays, mut keys, mut us]: [Vec<Vec<f32>>; 3] = Default::default();
    for t in 0..r.len {
        let from = if fault == Fault::OneTokenLate { t.saturating_sub(1) } else { t };
        let part = |part: usize| -> Vec<f32> {
            (0..HEAD).map(|c| activation(p, r, slot, from, (part * p.heads + head) * HEAD + c, fault)).collect()
        };
        let (q, k, v) = (part(0), part(1), part(2));
        let qn = normalised(&q, if fault == Fault::NoScale { 1.0 } else { p.scale as f32 }, fault);
        let kn = if fault == Fault::KeyNotNormalised { k.clone() } else { normalised(&k, 1.0, fault) };
        let raw = |c: usize| p.raw_g[(r.begin + t) * p.g_pitch + head * HEAD + c];
        let g: Vec<f32> = (0..HEAD).map(|c| log_decay(p, head, c, raw(c).to_f32(), fault)).collect();
        let record = p.record(r.b, head, t);
        for c in 0..HEAD {
            to.kg[2 * record + c] = bf16::from_f32(if fault == Fault::RecordedKeyNormalised { kn[c] } else { k[c] });
            let with_bias = bf16::from_f32(raw(c).to_f32() + p.dt_bias[head * HEAD + c]);
            to.kg[2 * record + HEAD + c] = if fault == Fault::RecordedGateWithBias { with_bias } else { raw(c) };
        }
        decays.push(g.iter().map(|g| exp(*g, fault)).collect());
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
                let (c, d) = (couple(&kn, &carried(i), fault), couple(&qn, &carried(i), fault));
                u.iter_mut().zip(earlier).for_each(|(x, e)| *x += c * e);
                o.iter_mut().zip(earlier).for_each(|(x, e)| *x += d * e);
            }
        }
        let raw_beta = p.raw_beta[(r.begin + t) * p.beta_pitch + head].to_f32();
        let beta = if fault == Fault::RawBeta { raw_beta } else { logistic(raw_beta, fault) };
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

/// A commit in fp32, element by element, with one fault.
pub fn commit(sample: &tc_commit::sample::Sample, fault: &str) -> FloatVec {
    let p = sample.problem();
    let kind = if fault == "approximations" { Fault::Approximations } else { Fault::None };
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
                let kn = if fault == "keys not normalised" { k } else { normalised(&k, 1.0, kind) };
                for k in 0..HEAD {
                    let z = kg(HEAD + k) + if fault == "no bias" { 0.0 } else { p.dt_bias[head * HEAD + k] };
                    let strength = exp(p.a_log(head), kind);
                    let g = match p.gate() {
                        Gate::Bounded { lower_bound } => lower_bound as f32 * logistic(strength * z, kind),
                        Gate::Softplus if z > 20.0 => -strength * z,
                        Gate::Softplus => -strength * blur(z.exp().ln_1p(), kind),
                    };
                    let w = if fault == "keys not decayed" { kn[k] } else { kn[k] * suffix[k] };
                    (0..HEAD).for_each(|v| sum[v * HEAD + k] += p.corr.get_f32(record + v) * w);
                    suffix[k] *= exp(g, kind);
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
