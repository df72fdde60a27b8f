//! Owned random problems: every switch of the contract, with padded strides and independent index maps.

use super::problem::{Convolved, Dims, Given, Outputs, Problem, Tokens};
use super::{ConvLayout, HEAD};
use crate::conv::WIDTH;
use crate::floats::FloatVec;
use crate::layout::StateOrder;
use crate::rng::Rng;
use half::bf16;

/// The switches of a problem.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Switches {
    /// Sizes.
    pub dims: Dims,
    /// q, k and v are convolved here.
    pub fused: bool,
    /// Whether a bias is added.
    pub bias: bool,
    /// bf16 taps instead of fp32.
    pub bf16_taps: bool,
    /// bf16 pool of histories instead of fp32.
    pub bf16_pool: bool,
    /// Pool of histories `[3, D]` instead of `[D, 3]`.
    pub channels_innermost: bool,
    /// fp32 gate instead of bf16.
    pub f32_gate: bool,
    /// bf16 state instead of fp32.
    pub bf16_state: bool,
    /// Order of V and K in the state.
    pub order: StateOrder,
    /// `None`: softplus gate.
    pub lower_bound: Option<f64>,
    /// Whether `A_log` is given.
    pub a_log: bool,
    /// Whether `dt_bias` is given.
    pub dt_bias: bool,
    /// The null index.
    pub null: i32,
    /// Slots that are written are others than those that are read.
    pub separate: bool,
    /// Elements added to every stride that the contract leaves free.
    pub padding: usize,
    /// Whether rows may be padding rows.
    pub nulls: bool,
    /// Standard deviation of projections and histories.
    pub input_sigma: f64,
}

impl Switches {
    /// The plainest call of these sizes: convolution with fp32 pools, state `[V, K]`, bounded gate -5, no padding, no nulls.
    pub fn plain(n: usize, h: usize, hv: usize) -> Self {
        Switches {
            dims: Dims { n, h, hv },
            fused: true,
            bias: false,
            bf16_taps: false,
            bf16_pool: false,
            channels_innermost: false,
            f32_gate: false,
            bf16_state: false,
            order: StateOrder::VFirst,
            lower_bound: Some(-5.0),
            a_log: true,
            dt_bias: true,
            null: -1,
            separate: false,
            padding: 0,
            nulls: false,
            input_sigma: 1.0,
        }
    }

    /// Random switches and sizes: N 1..=`max_n`, HV/H of 1, 2, 3 or 4. Type and order of the state are those of `self`.
    pub fn random(rng: &mut Rng, max_n: usize) -> Self {
        let (h, hv) = rng.choose(&[(1, 1), (1, 2), (2, 2), (1, 3), (1, 4), (2, 4)]);
        Switches {
            dims: Dims { n: 1 + rng.below(max_n), h, hv },
            fused: rng.below(3) > 0,
            bias: rng.coin(),
            bf16_taps: rng.coin(),
            bf16_pool: rng.coin(),
            channels_innermost: rng.coin(),
            f32_gate: rng.below(3) == 0,
            bf16_state: rng.coin(),
            order: if rng.coin() { StateOrder::VFirst } else { StateOrder::KFirst },
            lower_bound: if rng.coin() { Some(-5.0) } else { None },
            a_log: rng.below(4) > 0,
            dt_bias: rng.below(4) > 0,
            null: rng.choose(&[-1, 0]),
            separate: rng.below(3) == 0,
            padding: 8 * rng.below(3),
            nulls: rng.coin(),
            input_sigma: rng.choose(&[1.0, 1.0, 0.02]),
        }
    }
}

/// The buffers of a problem.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // the fields are those of `Problem`, `Convolved` and `Given`
pub struct Sample {
    pub switches: Switches,
    /// Projections `[N, D]`, or q, k and v in one row each.
    pub x: Vec<bf16>,
    pub weight: FloatVec,
    pub bias: Option<Vec<f32>>,
    pub pool: FloatVec,
    pub layout: ConvLayout,
    pub conv_slots: Vec<i32>,
    pub conv_slots_out: Option<Vec<i32>>,
    pub g: FloatVec,
    pub beta: Vec<bf16>,
    pub a_log: Option<Vec<f32>>,
    pub dt_bias: Option<Vec<f32>>,
    pub state: FloatVec,
    pub state_len: usize,
    pub slots: Vec<i32>,
    pub slots_out: Option<Vec<i32>>,
}

/// Buffers for everything that a call writes.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // the fields are those of `Outputs`
pub struct Buffers {
    pub out: Vec<f64>,
    pub out_row_stride: usize,
    pub state: Vec<f64>,
    pub rolled: FloatVec,
}

impl Buffers {
    /// The buffers as a call's outputs.
    pub fn outputs(&mut self) -> Outputs<'_> {
        Outputs {
            out: &mut self.out,
            out_row_stride: self.out_row_stride,
            state: &mut self.state,
            rolled: Some(self.rolled.view_mut()),
        }
    }
}

/// Distinct live indices in random order, for reads and for writes, some replaced by null or too-large ones.
fn index_maps(rng: &mut Rng, n: usize, len: usize, switches: &Switches) -> (Vec<i32>, Option<Vec<i32>>) {
    let first = usize::try_from(switches.null + 1).unwrap_or(0);
    let mut live: Vec<i32> = (first..len).map(|i| i as i32).collect();
    rng.shuffle(&mut live);
    let mut write = switches.separate.then(|| live.split_off(live.len() - n));
    live.truncate(n);
    if switches.nulls {
        let null = switches.null;
        for index in live.iter_mut().chain(write.iter_mut().flatten()) {
            if rng.below(6) == 0 {
                *index = rng.choose(&[null, -1, -7, i32::MIN, len as i32, i32::MAX]);
            }
        }
    }
    (live, write)
}

fn floats(rng: &mut Rng, narrow: bool, len: usize, sigma: f64) -> FloatVec {
    if narrow { FloatVec::Bf16(rng.normals_bf16(len, sigma)) } else { FloatVec::F32(rng.normals_f32(len, sigma)) }
}

impl Sample {
    /// Draws inputs: normal projections, gates and logits, states of 0.5 sigma, taps of 0.4 sigma, `A_log` as trained models
    /// have it (logarithm of 1..16). An fp32 pool holds histories that bf16 cannot represent.
    pub fn random(rng: &mut Rng, switches: Switches) -> Self {
        let d = switches.dims;
        let (channels, extra) = (d.channels(), 2 + rng.below(3));
        let twice = if switches.separate { 2 } else { 1 };
        // Pools of different lengths, so that a mixed-up index array shows.
        let (lines, state_len) = (twice * d.n + extra, twice * d.n + extra + 1);
        let mut layout = if switches.channels_innermost {
            ConvLayout::channels_innermost(lines, channels)
        } else {
            ConvLayout::window_innermost(lines, channels)
        };
        layout.line += switches.padding;
        let (conv_slots, conv_slots_out) = index_maps(rng, d.n, lines, &switches);
        let (slots, slots_out) = index_maps(rng, d.n, state_len, &switches);
        let state = floats(rng, switches.bf16_state, state_len * (d.state_len() + switches.padding), 0.5);
        Sample {
            switches,
            x: rng.normals_bf16(d.n * (channels + switches.padding), switches.input_sigma),
            weight: floats(rng, switches.bf16_taps, channels * WIDTH, 0.4),
            bias: switches.bias.then(|| rng.normals_f32(channels, 0.2)),
            pool: floats(rng, switches.bf16_pool, lines * layout.line, switches.input_sigma),
            layout,
            conv_slots,
            conv_slots_out,
            g: floats(rng, !switches.f32_gate, d.n * d.hv * HEAD, 1.0),
            beta: rng.normals_bf16(d.n * d.hv, 1.0),
            a_log: switches.a_log.then(|| (0..d.hv).map(|_| (1.0 + 15.0 * rng.uniform()).ln() as f32).collect()),
            dt_bias: switches.dt_bias.then(|| rng.normals_f32(d.hv * HEAD, 0.5)),
            state,
            state_len,
            slots,
            slots_out,
        }
    }

    /// The problem on these buffers.
    pub fn problem(&self) -> Problem<'_> {
        let (s, d) = (&self.switches, self.switches.dims);
        let stride = d.channels() + s.padding;
        let tokens = if s.fused {
            Tokens::Convolved(Convolved {
                x: &self.x,
                x_row_stride: stride,
                weight: self.weight.view(),
                bias: self.bias.as_deref(),
                pool: self.pool.view(),
                layout: self.layout,
                slots: &self.conv_slots,
                slots_out: self.conv_slots_out.as_deref(),
            })
        } else {
            let from = |heads: usize| self.x.get(heads * HEAD..).unwrap_or_default();
            Tokens::Given(Given { q: &self.x, k: from(d.h), v: from(2 * d.h), row_strides: [stride; 3] })
        };
        Problem {
            dims: d,
            tokens,
            g: self.g.view(),
            beta: &self.beta,
            a_log: self.a_log.as_deref(),
            dt_bias: self.dt_bias.as_deref(),
            state: self.state.view(),
            order: s.order,
            state_len: self.state_len,
            slot_stride: d.state_len() + s.padding,
            slots: &self.slots,
            slots_out: self.slots_out.as_deref(),
            scale: f64::from((HEAD as f32).sqrt().recip()),
            lower_bound: s.lower_bound,
            null: s.null,
        }
    }

    /// Output buffers: NaN, and a copy of the pool of histories.
    pub fn buffers(&self) -> Buffers {
        let (s, d) = (&self.switches, self.switches.dims);
        let out_row_stride = d.hv * HEAD + s.padding;
        Buffers {
            out: vec![f64::NAN; d.n * out_row_stride],
            out_row_stride,
            state: vec![f64::NAN; self.state.view().len()],
            rolled: self.pool.clone(),
        }
    }
}
