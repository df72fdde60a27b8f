//! Owned random problems: every switch of the contract, with pitches of their own for every tensor.

use super::problem::{Boundary, Compaction, Outputs, Problem};
use super::{ConvOrder, HEAD, HISTORY};
use crate::floats::{FloatVec, Floats};
use crate::rng::Rng;
use crate::tc_verify::sample::{Gates, dead, floats, live_slots, spoil};
use half::bf16;

/// The switches of a problem.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Switches {
    /// Requests.
    pub n_req: usize,
    /// Heads.
    pub heads: usize,
    /// Record rows of a request.
    pub window: usize,
    /// `None`: softplus gate.
    pub lower_bound: Option<f64>,
    /// What the gates are like.
    pub gates: Gates,
    /// Whether `A_log` is given; it always is with gates far out.
    pub a_log: bool,
    /// Order of the windows that are compacted, or none.
    pub conv: Option<ConvOrder>,
    /// bf16 state instead of fp32.
    pub bf16_state: bool,
    /// Destinations are given; some are the sources.
    pub separate: bool,
    /// Boundaries are given.
    pub boundary: bool,
    /// The null slot.
    pub null: i32,
    /// Elements that pitches exceed their slots by, a multiple of 8; each pool has another multiple of it.
    pub padding: usize,
    /// Whether slots may be null, negative or past the pool.
    pub nulls: bool,
    /// Whether counts may be negative or past the window.
    pub misfits: bool,
    /// Standard deviation of keys.
    pub input_sigma: f64,
}

impl Switches {
    /// The plainest call of these sizes: bf16 state in place, bounded gate -5, no windows, no boundary, dense, all live.
    pub fn plain(n_req: usize, heads: usize, window: usize) -> Self {
        Switches {
            n_req,
            heads,
            window,
            lower_bound: Some(-5.0),
            gates: Gates::Typical,
            a_log: true,
            conv: None,
            bf16_state: true,
            separate: false,
            boundary: false,
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
            lower_bound: if rng.coin() { Some(-5.0) } else { None },
            gates: rng.choose(&[Gates::Typical, Gates::Typical, Gates::Lowest, Gates::Zero, Gates::Far]),
            a_log: rng.below(4) > 0,
            conv: rng.choose(&[None, Some(ConvOrder::TokenMajor), Some(ConvOrder::ChannelMajor)]),
            bf16_state: rng.coin(),
            separate: rng.coin(),
            boundary: rng.coin(),
            null: rng.choose(&[-1, 0]),
            padding: 8 * rng.below(3),
            nulls: rng.coin(),
            misfits: rng.coin(),
            input_sigma: rng.choose(&[1.0, 1.0, 0.02]),
        }
    }
}

/// The buffers of a problem.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // the fields are those of `Problem`, `Compaction` and `Boundary`
pub struct Sample {
    pub switches: Switches,
    pub slots: usize,
    pub state: FloatVec,
    pub state_pitch: usize,
    /// Record rows, one more than there are requests.
    pub rows: usize,
    pub corr: Vec<f32>,
    pub kg: Vec<bf16>,
    pub a_log: Option<Vec<f32>>,
    pub dt_bias: Vec<f32>,
    /// Empty without windows.
    pub conv: Vec<bf16>,
    pub conv_pitch: usize,
    pub slot_of: Vec<i32>,
    pub destinations: Option<Vec<i32>>,
    pub counts: Vec<i32>,
    pub boundary_tokens: Vec<i32>,
    pub boundary_slots: Vec<i32>,
}

/// Buffers for everything that a call writes.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // the fields are those of `Outputs`
pub struct Buffers {
    pub state: Vec<f64>,
    pub conv: Vec<bf16>,
}

impl Buffers {
    /// The buffers as a call's outputs.
    pub fn outputs(&mut self) -> Outputs<'_> {
        Outputs { state: &mut self.state, conv: Some(&mut self.conv) }
    }
}

impl Sample {
    /// Draws inputs: normal keys and corrections, states of 0.5 sigma, and the metadata.
    pub fn random(rng: &mut Rng, switches: Switches) -> Self {
        let s = &switches;
        let slots = 3 * s.n_req + 2 + rng.below(3);
        let (mut slot_of, mut left) = live_slots(rng, s.n_req, slots, s.null);
        let mut boundary_slots = left.split_off(left.len() - s.n_req);
        left.truncate(s.n_req);
        let mut destinations = s.separate.then_some(left);
        let window = s.window as i32;
        let mut counts: Vec<i32> = (0..s.n_req).map(|_| rng.below(s.window + 1) as i32).collect();
        if s.misfits {
            spoil(rng, &mut counts, 4, &[-1, i32::MIN, window + 1, i32::MAX]);
        }
        let boundary_tokens = (0..s.n_req).map(|b| boundary(rng, counts[b], window)).collect();
        for (b, destination) in destinations.iter_mut().flatten().enumerate() {
            match rng.below(4) {
                0 => *destination = slot_of[b],
                // The block of the source is the one that the boundary ends.
                1 => boundary_slots[b] = slot_of[b],
                _ => {}
            }
        }
        if s.nulls {
            let dead = dead(slots, s.null);
            spoil(rng, &mut slot_of, 6, &dead);
            spoil(rng, &mut boundary_slots, 4, &dead);
            spoil(rng, destinations.as_deref_mut().unwrap_or_default(), 6, &dead);
        }
        let tensors = Sample {
            switches,
            slots,
            state: FloatVec::F32(Vec::new()),
            state_pitch: s.heads * HEAD * HEAD + 3 * s.padding,
            rows: s.n_req + 1,
            corr: Vec::new(),
            kg: Vec::new(),
            a_log: None,
            dt_bias: Vec::new(),
            conv: Vec::new(),
            conv_pitch: (s.window + HISTORY - 1) * 3 * s.heads * HEAD + 2 * s.padding,
            slot_of,
            destinations,
            counts,
            boundary_tokens,
            boundary_slots,
        };
        tensors.another_layer(rng)
    }

    /// The same requests in another layer: fresh tensors, the same shapes, pitches and metadata.
    pub fn another_layer(&self, rng: &mut Rng) -> Self {
        let s = &self.switches;
        let records = self.rows * s.heads * s.window;
        let gates = s.gates.draw(rng, s.heads, self.rows * s.window, s.heads * HEAD, s.lower_bound.is_none(), s.a_log);
        let mut kg = rng.normals_bf16(2 * records * HEAD, s.input_sigma);
        // Drawn gates are rows of heads; those of a head follow each other in the records.
        for record in 0..records {
            let (row, head, t) = (record / (s.heads * s.window), record / s.window % s.heads, record % s.window);
            let from = ((row * s.window + t) * s.heads + head) * HEAD;
            kg[(2 * record + 1) * HEAD..][..HEAD].copy_from_slice(&gates.raw[from..from + HEAD]);
        }
        Sample {
            state: floats(rng, s.bf16_state, self.slots * self.state_pitch, 0.5),
            corr: rng.normals_f32(records * HEAD, 1.0),
            kg,
            a_log: gates.a_log,
            dt_bias: gates.dt_bias,
            conv: rng.normals_bf16(if s.conv.is_some() { self.slots * self.conv_pitch } else { 0 }, 1.0),
            slot_of: self.slot_of.clone(),
            destinations: self.destinations.clone(),
            counts: self.counts.clone(),
            boundary_tokens: self.boundary_tokens.clone(),
            boundary_slots: self.boundary_slots.clone(),
            ..*self
        }
    }

    /// The problem on these buffers.
    pub fn problem(&self) -> Problem<'_> {
        let s = &self.switches;
        Problem {
            n_req: s.n_req,
            heads: s.heads,
            window: s.window,
            slots: self.slots,
            state: self.state.view(),
            state_pitch: self.state_pitch,
            corr: Floats::F32(&self.corr),
            kg: Floats::Bf16(&self.kg),
            a_log: self.a_log.as_deref(),
            dt_bias: &self.dt_bias,
            conv: s.conv.map(|order| Compaction { pool: &self.conv, pitch: self.conv_pitch, order }),
            slot_of: &self.slot_of,
            destinations: self.destinations.as_deref(),
            counts: &self.counts,
            boundary: s.boundary.then_some(Boundary { tokens: &self.boundary_tokens, slots: &self.boundary_slots }),
            lower_bound: s.lower_bound,
            null: s.null,
        }
    }

    /// Output buffers: NaN, and a copy of the pool of raw inputs.
    pub fn buffers(&self) -> Buffers {
        Buffers { state: vec![f64::NAN; self.state.view().len()], conv: self.conv.clone() }
    }
}

/// Tokens up to a boundary: none, as many as are committed, fewer or more.
fn boundary(rng: &mut Rng, n: i32, window: i32) -> i32 {
    match rng.below(4) {
        0 => rng.choose(&[0, -1, window + 1]),
        1 => n.clamp(0, window),
        _ => 1 + rng.below(window as usize) as i32,
    }
}
