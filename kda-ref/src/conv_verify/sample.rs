//! Owned random problems: every switch of the contract, with padded strides and three independent index maps.

use super::HEAD;
use super::problem::{ConvLayout, Dims, Outputs, Problem, SnapshotRule, WindowLayout};
use crate::conv::WIDTH;
use crate::floats::{FloatVec, Floats};
use crate::rng::Rng;
use half::bf16;

/// The switches of a problem.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Switches {
    /// Sizes.
    pub dims: Dims,
    /// Steps held per snapshot row.
    pub t_alloc: usize,
    /// Whether a bias is added.
    pub bias: bool,
    /// bf16 taps instead of fp32.
    pub bf16_taps: bool,
    /// bf16 convolution pool and windows instead of fp32.
    pub bf16_pool: bool,
    /// Pool and windows `[3, D]` instead of `[D, 3]`.
    pub channels_innermost: bool,
    /// `None`: softplus gate.
    pub lower_bound: Option<f64>,
    /// Whether `A_log` is given.
    pub a_log: bool,
    /// The null index.
    pub null: i32,
    /// Whether histories are rolled.
    pub roll: bool,
    /// Where state snapshots go.
    pub rule: SnapshotRule,
    /// Elements added to every stride that the contract leaves free.
    pub padding: usize,
    /// Whether rows may be padding rows or have a null snapshot row.
    pub nulls: bool,
    /// Standard deviation of projections and histories. At 0.02 the norm's epsilon weighs as much as the squares.
    pub input_sigma: f64,
}

impl Switches {
    /// The plainest call of these sizes: fp32, bounded gate -5, no padding, no null rows, no roll.
    pub fn plain(n: usize, t: usize, h: usize, hv: usize) -> Self {
        Switches {
            dims: Dims { n, t, h, hv },
            t_alloc: t,
            bias: false,
            bf16_taps: false,
            bf16_pool: false,
            channels_innermost: false,
            lower_bound: Some(-5.0),
            a_log: true,
            null: -1,
            roll: false,
            rule: SnapshotRule::ByIndex,
            padding: 0,
            nulls: false,
            input_sigma: 1.0,
        }
    }

    /// Random switches and sizes: N 1..=`max_n`, T 1..=`max_t`, HV of 1, 2 or 4.
    pub fn random(rng: &mut Rng, max_n: usize, max_t: usize) -> Self {
        let (n, t) = (1 + rng.below(max_n), 1 + rng.below(max_t));
        let (h, hv) = rng.choose(&[(1, 1), (1, 2), (2, 2), (1, 4), (2, 4), (4, 4)]);
        Switches {
            dims: Dims { n, t, h, hv },
            t_alloc: t + rng.below(3),
            bias: rng.coin(),
            bf16_taps: rng.coin(),
            bf16_pool: rng.coin(),
            channels_innermost: rng.coin(),
            lower_bound: if rng.coin() { Some(-5.0) } else { None },
            a_log: rng.below(4) > 0,
            null: rng.choose(&[-1, 0]),
            roll: rng.coin(),
            rule: if rng.coin() { SnapshotRule::ByIndex } else { SnapshotRule::ByBatch },
            padding: 8 * rng.below(3),
            nulls: rng.coin(),
            input_sigma: rng.choose(&[1.0, 1.0, 0.02]),
        }
    }
}

/// The buffers of a problem.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // the fields are those of `Problem`
pub struct Sample {
    pub switches: Switches,
    pub x: Vec<bf16>,
    pub conv_weight: FloatVec,
    pub conv_bias: Option<Vec<f32>>,
    pub conv_state: FloatVec,
    pub conv_layout: ConvLayout,
    pub conv_slots: Vec<i32>,
    pub state: Vec<f32>,
    pub state_len: usize,
    pub state_slots: Vec<i32>,
    pub snapshot_rows: Vec<i32>,
    pub snapshot_len: usize,
    pub a: Vec<bf16>,
    pub b: Vec<bf16>,
    pub a_log: Option<Vec<f32>>,
    pub dt_bias: Vec<f32>,
}

/// Buffers for everything that a call writes.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // the fields are those of `Outputs`
pub struct Buffers {
    pub out: Vec<f64>,
    pub out_bf16: Vec<bf16>,
    pub out_row_stride: usize,
    pub states: Vec<f64>,
    pub windows: FloatVec,
    pub window_layout: WindowLayout,
    pub rolled: FloatVec,
}

impl Buffers {
    /// The buffers as a call's outputs.
    pub fn outputs(&mut self) -> Outputs<'_> {
        Outputs {
            out: &mut self.out,
            out_bf16: &mut self.out_bf16,
            out_row_stride: self.out_row_stride,
            states: Some(&mut self.states),
            windows: Some((self.windows.view_mut(), self.window_layout)),
            rolled: Some(self.rolled.view_mut()),
        }
    }
}

/// `n` distinct live indices of a pool of `len` entries in random order, some replaced by null or too-large ones.
fn index_map(rng: &mut Rng, n: usize, len: usize, switches: &Switches) -> Vec<i32> {
    let first = usize::try_from(switches.null + 1).unwrap_or(0);
    let mut live: Vec<i32> = (first..len).map(|i| i as i32).collect();
    rng.shuffle(&mut live);
    live.truncate(n);
    if switches.nulls {
        for index in &mut live {
            if rng.below(5) == 0 {
                *index = rng.choose(&[switches.null, -1, -7, i32::MIN, len as i32, i32::MAX]);
            }
        }
    }
    live
}

impl Sample {
    /// Draws inputs: normal projections, gates and logits, states of 0.5 sigma, taps of 0.4 sigma, `A_log` as trained
    /// models have it (logarithm of 1..16). An fp32 pool holds histories that bf16 cannot represent.
    pub fn random(rng: &mut Rng, switches: Switches) -> Self {
        let d = switches.dims;
        let (channels, tokens, extra) = (d.channels(), d.n * d.t, 2 + rng.below(3));
        // Three pools of different lengths, so that a mixed-up index array shows.
        let (lines, state_len, snapshot_len) = (d.n + extra, d.n + extra + 1, d.n + extra + 2);
        let mut conv_layout = if switches.channels_innermost {
            ConvLayout::channels_innermost(lines, channels)
        } else {
            ConvLayout::window_innermost(lines, channels)
        };
        conv_layout.line += switches.padding;
        let pool = lines * conv_layout.line;
        let conv_state = if switches.bf16_pool {
            FloatVec::Bf16(rng.normals_bf16(pool, switches.input_sigma))
        } else {
            FloatVec::F32(rng.normals_f32(pool, switches.input_sigma))
        };
        let conv_weight = if switches.bf16_taps {
            FloatVec::Bf16(rng.normals_bf16(channels * WIDTH, 0.4))
        } else {
            FloatVec::F32(rng.normals_f32(channels * WIDTH, 0.4))
        };
        Sample {
            switches,
            x: rng.normals_bf16(tokens * (channels + switches.padding), switches.input_sigma),
            conv_weight,
            conv_bias: switches.bias.then(|| rng.normals_f32(channels, 0.2)),
            conv_state,
            conv_layout,
            conv_slots: index_map(rng, d.n, lines, &switches),
            state: rng.normals_f32(state_len * (d.state_len() + switches.padding), 0.5),
            state_len,
            state_slots: index_map(rng, d.n, state_len, &switches),
            snapshot_rows: index_map(rng, d.n, snapshot_len, &switches),
            snapshot_len,
            a: rng.normals_bf16(tokens * d.hv * HEAD, 1.0),
            b: rng.normals_bf16(tokens * d.hv, 1.0),
            a_log: switches.a_log.then(|| (0..d.hv).map(|_| (1.0 + 15.0 * rng.uniform()).ln() as f32).collect()),
            dt_bias: rng.normals_f32(d.hv * HEAD, 0.5),
        }
    }

    /// The problem on these buffers.
    pub fn problem(&self) -> Problem<'_> {
        let (s, d) = (&self.switches, self.switches.dims);
        Problem {
            dims: d,
            x: &self.x,
            x_row_stride: d.channels() + s.padding,
            conv_weight: self.conv_weight.view(),
            conv_bias: self.conv_bias.as_deref(),
            conv_state: self.conv_state.view(),
            conv_layout: self.conv_layout,
            conv_slots: &self.conv_slots,
            state: Floats::F32(&self.state),
            state_len: self.state_len,
            state_slot_stride: d.state_len() + s.padding,
            state_slots: &self.state_slots,
            snapshot_rows: &self.snapshot_rows,
            snapshot_len: self.snapshot_len,
            t_alloc: s.t_alloc,
            snapshot_rule: s.rule,
            a: &self.a,
            b: &self.b,
            a_log: self.a_log.as_deref(),
            dt_bias: &self.dt_bias,
            scale: f64::from((HEAD as f32).sqrt().recip()),
            lower_bound: s.lower_bound,
            null: s.null,
            roll: s.roll,
        }
    }

    /// Where the windows lie.
    pub fn window_layout(&self) -> WindowLayout {
        let (s, channels) = (&self.switches, self.switches.dims.channels());
        if s.channels_innermost {
            WindowLayout::channels_innermost(s.t_alloc, channels)
        } else {
            WindowLayout::window_innermost(s.t_alloc, channels)
        }
    }

    /// Distance between rows of the output.
    pub fn out_row_stride(&self) -> usize {
        self.switches.dims.hv * HEAD + self.switches.padding
    }

    /// Output buffers filled with NaN; `rolled` starts as a copy of the pool.
    pub fn buffers(&self) -> Buffers {
        let (s, d) = (&self.switches, self.switches.dims);
        let (window_layout, out_row_stride) = (self.window_layout(), self.out_row_stride());
        let out_len = d.n * d.t * out_row_stride;
        Buffers {
            out: vec![f64::NAN; out_len],
            out_bf16: vec![bf16::NAN; out_len],
            out_row_stride,
            states: vec![f64::NAN; self.snapshot_len * s.t_alloc * d.state_len()],
            windows: FloatVec::filled(s.bf16_pool, self.snapshot_len * window_layout.row, f32::NAN),
            window_layout,
            rolled: self.conv_state.clone(),
        }
    }
}
