//! Owned random problems: every switch of the contract, with pitches of their own for every tensor.

use super::problem::{Conv, ConvOrder, Outputs, Problem};
use super::{HEAD, HISTORY};
use crate::conv::{TapType, WIDTH};
use crate::floats::FloatVec;
use crate::rng::Rng;
use half::bf16;

/// What the gates of a problem are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gates {
    /// As trained models have them: biases, and `A_log` between the logarithms of 1 and 16.
    Typical,
    /// Every log decay is the lower bound; -5 with the softplus gate.
    Lowest,
    /// No decay.
    Zero,
    /// A quarter of the channels far out: with the softplus gate each of their tokens adds about -640 to the cumulative gate. The
    /// others decay slowly.
    Far,
}

/// What a head's gate needs beside the raw gate, and the raw gates.
#[derive(Clone, Debug, PartialEq)]
pub struct DrawnGates {
    /// Raw gates `[rows, heads, K]`, rows `pitch` apart.
    pub raw: Vec<bf16>,
    /// `[heads]`.
    pub a_log: Option<Vec<f32>>,
    /// `[heads, K]`.
    pub dt_bias: Vec<f32>,
}

impl Gates {
    /// Draws the gates of `rows` rows `pitch` apart. `A_log` is left out where that is asked for.
    pub fn draw(
        self,
        rng: &mut Rng,
        heads: usize,
        rows: usize,
        pitch: usize,
        softplus: bool,
        a_log: bool,
    ) -> DrawnGates {
        let (bias, width) = (rng.normals_f32(heads * HEAD, 0.5), heads * HEAD);
        let logs = (0..heads).map(|_| (1.0 + 15.0 * rng.uniform()).ln() as f32).collect();
        let noise = rng.normals_bf16(rows * pitch, 1.0);
        let all = |raw: f32| (vec![bf16::from_f32(raw); rows * pitch], vec![0.0; width]);
        let (raw, dt_bias) = match self {
            Gates::Typical => (noise, bias),
            Gates::Lowest => all(if softplus { 5.0 } else { 60.0 }),
            Gates::Zero => all(-200.0),
            Gates::Far => {
                (noise, bias.iter().enumerate().map(|(i, b)| if i % 4 == 0 { 40.0 } else { b - 4.0 }).collect())
            }
        };
        let logs = match self {
            Gates::Typical => logs,
            Gates::Lowest | Gates::Zero => vec![0.0; heads],
            Gates::Far => vec![16f32.ln(); heads],
        };
        DrawnGates { raw, a_log: (a_log || self == Gates::Far).then_some(logs), dt_bias }
    }
}

/// The switches of a problem.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Switches {
    /// Requests.
    pub n_req: usize,
    /// Heads.
    pub heads: usize,
    /// Most tokens of a request.
    pub window: usize,
    /// Requests have 0 to `window` tokens; else all have `window`.
    pub ragged: bool,
    /// `None`: softplus gate.
    pub lower_bound: Option<f64>,
    /// What the gates are like.
    pub gates: Gates,
    /// Whether `A_log` is given; it always is with gates far out.
    pub a_log: bool,
    /// The convolution and the type of its taps, or none.
    pub taps: Option<TapType>,
    /// Order of the convolution pool.
    pub order: ConvOrder,
    /// bf16 state instead of fp32.
    pub bf16_state: bool,
    /// The null slot.
    pub null: i32,
    /// Elements that pitches exceed their rows by, a multiple of 8; every tensor has another multiple of it.
    pub padding: usize,
    /// Whether slots may be null, negative or past the pool.
    pub nulls: bool,
    /// Whether requests may have more tokens than `window`, offsets outside the tokens, or accepted counts out of range.
    pub misfits: bool,
    /// Standard deviation of projections and histories.
    pub input_sigma: f64,
}

impl Switches {
    /// The plainest call of these sizes: bf16 state, no convolution, bounded gate -5, dense, all requests full and live.
    pub fn plain(n_req: usize, heads: usize, window: usize) -> Self {
        Switches {
            n_req,
            heads,
            window,
            ragged: false,
            lower_bound: Some(-5.0),
            gates: Gates::Typical,
            a_log: true,
            taps: None,
            order: ConvOrder::TokenMajor,
            bf16_state: true,
            null: -1,
            padding: 0,
            nulls: false,
            misfits: false,
            input_sigma: 1.0,
        }
    }

    /// Random switches and sizes: 1..=`max_req` requests, 1..=`max_heads` heads, windows of 1..=`max_window`.
    pub fn random(rng: &mut Rng, max_req: usize, max_heads: usize, max_window: usize) -> Self {
        Switches {
            n_req: 1 + rng.below(max_req),
            heads: 1 + rng.below(max_heads),
            window: 1 + rng.below(max_window),
            ragged: rng.below(4) > 0,
            lower_bound: if rng.coin() { Some(-5.0) } else { None },
            gates: rng.choose(&[Gates::Typical, Gates::Typical, Gates::Lowest, Gates::Zero, Gates::Far]),
            a_log: rng.below(4) > 0,
            taps: rng.choose(&[None, Some(TapType::Bf16), Some(TapType::F32)]),
            order: rng.choose(&[ConvOrder::TokenMajor, ConvOrder::ChannelMajor]),
            bf16_state: rng.coin(),
            null: rng.choose(&[-1, 0]),
            padding: 8 * rng.below(3),
            nulls: rng.coin(),
            misfits: rng.coin(),
            input_sigma: rng.choose(&[1.0, 1.0, 0.02]),
        }
    }

    /// Channels of q, k and v.
    pub fn channels(&self) -> usize {
        3 * self.heads * HEAD
    }
}

/// The buffers of a problem.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // the fields are those of `Problem` and `Conv`
pub struct Sample {
    pub switches: Switches,
    pub total: usize,
    pub slots: usize,
    pub qkv: Vec<bf16>,
    pub qkv_pitch: usize,
    pub raw_g: Vec<bf16>,
    pub g_pitch: usize,
    pub raw_beta: Vec<bf16>,
    pub beta_pitch: usize,
    pub a_log: Option<Vec<f32>>,
    pub dt_bias: Vec<f32>,
    pub state: FloatVec,
    pub state_pitch: usize,
    pub taps: Option<FloatVec>,
    /// Empty without a convolution.
    pub conv: Vec<bf16>,
    pub conv_pitch: usize,
    pub accepted: Vec<i32>,
    pub slot_of: Vec<i32>,
    pub query_start: Vec<i32>,
    pub out_pitch: usize,
    /// Record rows of a caller's buffers: one more than there are requests.
    pub rows: usize,
}

/// Buffers for everything that a call writes.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // the fields are those of `Outputs`
pub struct Buffers {
    pub out: Vec<f64>,
    pub out_pitch: usize,
    pub corr: Vec<f64>,
    pub kg: Vec<f64>,
    pub conv: Vec<bf16>,
}

impl Buffers {
    /// The buffers as a call's outputs.
    pub fn outputs(&mut self) -> Outputs<'_> {
        Outputs {
            out: &mut self.out,
            out_pitch: self.out_pitch,
            corr: &mut self.corr,
            kg: &mut self.kg,
            conv: Some(&mut self.conv),
        }
    }
}

/// `n` distinct live slots of pools of `slots` in random order, and those that are left.
pub(crate) fn live_slots(rng: &mut Rng, n: usize, slots: usize, null: i32) -> (Vec<i32>, Vec<i32>) {
    let first = usize::try_from(null + 1).unwrap_or(0);
    let mut live: Vec<i32> = (first..slots).map(|i| i as i32).collect();
    rng.shuffle(&mut live);
    let left = live.split_off(n);
    (live, left)
}

/// Replaces about one in `one_in` by one of `choices`.
pub(crate) fn spoil(rng: &mut Rng, indices: &mut [i32], one_in: usize, choices: &[i32]) {
    for index in indices {
        if rng.below(one_in) == 0 {
            *index = rng.choose(choices);
        }
    }
}

/// Slots that are not live in pools of `slots`.
pub(crate) fn dead(slots: usize, null: i32) -> [i32; 6] {
    [null, -1, -7, i32::MIN, slots as i32, i32::MAX]
}

/// Normal numbers of bf16 or fp32.
pub(crate) fn floats(rng: &mut Rng, narrow: bool, len: usize, sigma: f64) -> FloatVec {
    if narrow { FloatVec::Bf16(rng.normals_bf16(len, sigma)) } else { FloatVec::F32(rng.normals_f32(len, sigma)) }
}

/// Packed offsets and the rows of the tokens, with rows ahead of the first request and behind the last one that no request has.
/// Misfits: requests longer than the window, and offsets outside the tokens, which leave the requests on both sides empty.
fn offsets(rng: &mut Rng, s: &Switches) -> (Vec<i32>, usize) {
    let around = usize::from(s.padding > 0) * 3;
    let mut query_start = vec![rng.below(around + 1) as i32];
    for _ in 0..s.n_req {
        let mut len = if s.ragged { rng.below(s.window + 1) } else { s.window };
        if s.misfits && rng.below(6) == 0 {
            len = s.window + 1 + rng.below(3);
        }
        query_start.push(query_start[query_start.len() - 1] + len as i32);
    }
    let total = query_start[s.n_req] as usize + rng.below(around + 1);
    if s.misfits {
        spoil(rng, &mut query_start, 8, &[-1, -7, i32::MIN, total as i32 + 1, i32::MAX]);
    }
    (query_start, total)
}

impl Sample {
    /// Draws inputs: normal projections and logits, states of 0.5 sigma, taps of 0.4 sigma. Rows of no request are NaN.
    pub fn random(rng: &mut Rng, switches: Switches) -> Self {
        let s = &switches;
        let (query_start, total) = offsets(rng, s);
        let (width, channels) = (s.heads * HEAD, s.channels());
        let slots = s.n_req + 2 + rng.below(3);
        let pitch = |width: usize, share: usize| width + share * s.padding;
        let (qkv_pitch, g_pitch, beta_pitch) = (pitch(channels, 1), pitch(width, 2), pitch(s.heads, 1));
        let (state_pitch, out_pitch) = (pitch(width * HEAD, 3), pitch(width, 1));
        let conv_pitch = pitch((s.window + HISTORY - 1) * channels, 2);
        let (mut slot_of, _) = live_slots(rng, s.n_req, slots, s.null);
        let mut accepted: Vec<i32> = (0..s.n_req).map(|_| 1 + rng.below(s.window) as i32).collect();
        if s.nulls {
            spoil(rng, &mut slot_of, 4, &dead(slots, s.null));
        }
        if s.misfits {
            spoil(rng, &mut accepted, 4, &[0, -3, i32::MIN, s.window as i32 + 1, i32::MAX]);
        }
        let gates = s.gates.draw(rng, s.heads, total, g_pitch, s.lower_bound.is_none(), s.a_log);
        let pool = if s.taps.is_some() { slots * conv_pitch } else { 0 };
        let mut sample = Sample {
            switches,
            total,
            slots,
            qkv: rng.normals_bf16(total * qkv_pitch, s.input_sigma),
            qkv_pitch,
            raw_g: gates.raw,
            g_pitch,
            raw_beta: rng.normals_bf16(total * beta_pitch, 1.0),
            beta_pitch,
            a_log: gates.a_log,
            dt_bias: gates.dt_bias,
            state: floats(rng, s.bf16_state, slots * state_pitch, 0.5),
            state_pitch,
            taps: s.taps.map(|taps| floats(rng, taps == TapType::Bf16, channels * WIDTH, 0.4)),
            conv: rng.normals_bf16(pool, s.input_sigma),
            conv_pitch,
            accepted,
            slot_of,
            query_start,
            out_pitch,
            rows: s.n_req + 1,
        };
        sample.poison_strays();
        sample
    }

    /// Makes raw inputs of rows that no request has NaN: nobody reads them, or what is read counts for nothing.
    pub fn poison_strays(&mut self) {
        let mut owned = vec![false; self.total];
        for offsets in self.query_start.windows(2) {
            let [begin, end] = [offsets[0], offsets[1]].map(|offset| usize::try_from(offset).ok());
            if let (Some(begin), Some(end)) = (begin, end)
                && begin <= end
                && end <= self.total
            {
                owned[begin..end.min(begin + self.switches.window)].fill(true);
            }
        }
        for (rows, pitch) in
            [(&mut self.qkv, self.qkv_pitch), (&mut self.raw_g, self.g_pitch), (&mut self.raw_beta, self.beta_pitch)]
        {
            for (row, _) in rows.chunks_exact_mut(pitch.max(1)).zip(&owned).filter(|(_, owned)| !**owned) {
                row.fill(bf16::NAN);
            }
        }
    }

    /// The problem on these buffers.
    pub fn problem(&self) -> Problem<'_> {
        let s = &self.switches;
        Problem {
            n_req: s.n_req,
            heads: s.heads,
            window: s.window,
            total: self.total,
            slots: self.slots,
            qkv: &self.qkv,
            qkv_pitch: self.qkv_pitch,
            raw_g: &self.raw_g,
            g_pitch: self.g_pitch,
            raw_beta: &self.raw_beta,
            beta_pitch: self.beta_pitch,
            a_log: self.a_log.as_deref(),
            dt_bias: &self.dt_bias,
            state: self.state.view(),
            state_pitch: self.state_pitch,
            conv: self.taps.as_ref().map(|taps| Conv {
                taps: taps.view(),
                pool: &self.conv,
                pitch: self.conv_pitch,
                order: s.order,
                accepted: &self.accepted,
            }),
            slot_of: &self.slot_of,
            query_start: &self.query_start,
            scale: f64::from((HEAD as f32).sqrt().recip()),
            lower_bound: s.lower_bound,
            null: s.null,
        }
    }

    /// Output buffers: NaN, and a copy of the convolution pool.
    pub fn buffers(&self) -> Buffers {
        let s = &self.switches;
        let records = self.rows * s.heads * s.window * HEAD;
        Buffers {
            out: vec![f64::NAN; self.total * self.out_pitch],
            out_pitch: self.out_pitch,
            corr: vec![f64::NAN; records],
            kg: vec![f64::NAN; 2 * records],
            conv: self.conv.clone(),
        }
    }
}
