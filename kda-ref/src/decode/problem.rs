//! What the operator takes and gives: slices, sizes and strides. All strides count elements.

use super::{ConvLayout, HEAD, HISTORY};
use crate::floats::{Floats, FloatsMut};
use crate::gate::Gate;
use crate::layout::StateOrder;
use half::bf16;
use std::collections::HashSet;

/// Sizes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dims {
    /// Rows (requests).
    pub n: usize,
    /// Query/key heads.
    pub h: usize,
    /// Value heads, a multiple of `h`.
    pub hv: usize,
}

impl Dims {
    /// Channels of q, k and v: `2*H*K + HV*V`.
    pub fn channels(&self) -> usize {
        (2 * self.h + self.hv) * HEAD
    }

    /// Elements of the state of one row, `HV*V*K`.
    pub fn state_len(&self) -> usize {
        self.hv * HEAD * HEAD
    }

    /// Query/key head of a value head.
    pub fn key_head(&self, value_head: usize) -> usize {
        crate::layout::key_head(value_head, self.h, self.hv)
    }
}

/// Projections ahead of the convolution, and what it needs.
#[derive(Clone, Copy, Debug)]
pub struct Convolved<'a> {
    /// Projections `[N, D]`: q heads, k heads, v heads.
    pub x: &'a [bf16],
    /// Distance between rows of `x`.
    pub x_row_stride: usize,
    /// Taps `[D, 4]`, fp32 or bf16; tap 3 multiplies the token. The type decides the rounding of the sum.
    pub weight: Floats<'a>,
    /// Bias `[D]`, or absent.
    pub bias: Option<&'a [f32]>,
    /// Pool of histories, fp32 or bf16.
    pub pool: Floats<'a>,
    /// Layout of the pool.
    pub layout: ConvLayout,
    /// Line that each row reads, `[N]`.
    pub slots: &'a [i32],
    /// Line that each row writes, `[N]`; absent: the one it reads.
    pub slots_out: Option<&'a [i32]>,
}

/// Post-convolution q, k and v, ahead of the norm.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// Query `[N, H, K]`.
    pub q: &'a [bf16],
    /// Key `[N, H, K]`.
    pub k: &'a [bf16],
    /// Value `[N, HV, V]`.
    pub v: &'a [bf16],
    /// Distances between rows of the three.
    pub row_strides: [usize; 3],
}

/// Where q, k and v come from.
#[derive(Clone, Copy, Debug)]
pub enum Tokens<'a> {
    /// Convolved here; the pool rolls.
    Convolved(Convolved<'a>),
    /// Given.
    Given(Given<'a>),
}

/// The inputs of one call.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// Sizes.
    pub dims: Dims,
    /// q, k and v.
    pub tokens: Tokens<'a>,
    /// Raw gate `[N, HV, K]`, bf16 or fp32.
    pub g: Floats<'a>,
    /// Raw write strength `[N, HV]`.
    pub beta: &'a [bf16],
    /// `[HV]`; absent = 0.
    pub a_log: Option<&'a [f32]>,
    /// `[HV, K]`; absent = 0.
    pub dt_bias: Option<&'a [f32]>,
    /// Pool of states, `[HV, V, K]` or `[HV, K, V]` a slot; fp32 or bf16, and float64 so that exact runs can be chained.
    pub state: Floats<'a>,
    /// Order of V and K in the pool.
    pub order: StateOrder,
    /// Number of slots: the length that liveness is tested against.
    pub state_len: usize,
    /// Distance between slots.
    pub slot_stride: usize,
    /// Slot that each row reads, `[N]`.
    pub slots: &'a [i32],
    /// Slot that each row writes, `[N]`; absent: the one it reads.
    pub slots_out: Option<&'a [i32]>,
    /// Multiplies the normalised query. A kernel takes fp32: give its value, widened, as the reference of a kernel.
    pub scale: f64,
    /// Present: bounded gate. Absent: softplus gate. As for `scale`.
    pub lower_bound: Option<f64>,
    /// An index i is live when `null < i < length`.
    pub null: i32,
}

/// What a call writes. The caller fills the buffers first: only what the contract names is touched.
#[derive(Debug)]
pub struct Outputs<'a> {
    /// `o` before rounding to bf16, rows `out_row_stride` apart.
    pub out: &'a mut [f64],
    /// Distance between rows.
    pub out_row_stride: usize,
    /// New states before rounding to the type of the pool, in the layout of the pool.
    pub state: &'a mut [f64],
    /// A copy of the pool of histories, which rolls; needed with a convolution.
    pub rolled: Option<FloatsMut<'a>>,
}

/// Indices of a live row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// Slots that are read and written.
    pub slot: usize,
    /// The slot that is written.
    pub slot_out: usize,
    /// The line that is read; 0 without a convolution.
    pub line: usize,
    /// The line that is written; 0 without a convolution.
    pub line_out: usize,
}

/// Why a call was refused: a name, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

impl Problem<'_> {
    fn live(&self, index: i32, len: usize) -> Option<usize> {
        let within = index > self.null && usize::try_from(index).is_ok_and(|i| i < len);
        within.then_some(index as usize)
    }

    /// Where row `n` reads and writes; `None` for a padding row: one whose indices are not all live.
    pub fn places(&self, n: usize) -> Option<Places> {
        let both = |read: &[i32], write: Option<&[i32]>, len: usize| {
            Some((self.live(read[n], len)?, self.live(write.unwrap_or(read)[n], len)?))
        };
        let (slot, slot_out) = both(self.slots, self.slots_out, self.state_len)?;
        let (line, line_out) = match &self.tokens {
            Tokens::Convolved(c) => both(c.slots, c.slots_out, c.layout.lines)?,
            Tokens::Given(_) => (0, 0),
        };
        Some(Places { slot, slot_out, line, line_out })
    }

    /// The gate of this call.
    pub fn gate(&self) -> Gate {
        Gate::from_lower_bound(self.lower_bound)
    }

    /// `A_log` of a value head, 0 when absent.
    pub fn a_log(&self, value_head: usize) -> f32 {
        self.a_log.map_or(0.0, |a_log| a_log[value_head])
    }

    /// `dt_bias` of a channel, 0 when absent.
    pub fn dt_bias(&self, value_head: usize, channel: usize) -> f32 {
        self.dt_bias.map_or(0.0, |bias| bias[value_head * HEAD + channel])
    }

    /// First element of a head in a slot.
    pub fn head(&self, slot: usize, value_head: usize) -> usize {
        slot * self.slot_stride + value_head * HEAD * HEAD
    }
}

fn at_least(name: &str, given: usize, needed: usize) -> Result<(), Refusal> {
    if given >= needed { Ok(()) } else { Err(Refusal(format!("{name} is {given}, at least {needed} is needed"))) }
}

/// Elements that `count` blocks of `width`, `stride` apart, span.
fn span(count: usize, stride: usize, width: usize) -> usize {
    if count == 0 { 0 } else { (count - 1) * stride + width }
}

/// Checks sizes, strides and index maps of a call.
pub(super) fn validate(p: &Problem<'_>, out: &Outputs<'_>) -> Result<(), Refusal> {
    let d = p.dims;
    if d.h == 0 || d.hv == 0 || !d.hv.is_multiple_of(d.h) {
        return Err(Refusal(format!("HV = {} needs to be a positive multiple of H = {}", d.hv, d.h)));
    }
    at_least("slot stride", p.slot_stride, d.state_len())?;
    at_least("state", p.state.len(), span(p.state_len, p.slot_stride, d.state_len()))?;
    at_least("new state", out.state.len(), p.state.len())?;
    at_least("g", p.g.len(), d.n * d.hv * HEAD)?;
    at_least("beta", p.beta.len(), d.n * d.hv)?;
    at_least("slots", p.slots.len().min(p.slots_out.unwrap_or(p.slots).len()), d.n)?;
    at_least("out row stride", out.out_row_stride, d.hv * HEAD)?;
    at_least("out", out.out.len(), span(d.n, out.out_row_stride, d.hv * HEAD))?;
    match &p.tokens {
        Tokens::Given(given) => {
            for (name, x, stride, heads) in [
                ("q", given.q, given.row_strides[0], d.h),
                ("k", given.k, given.row_strides[1], d.h),
                ("v", given.v, given.row_strides[2], d.hv),
            ] {
                at_least(name, x.len(), span(d.n, stride, heads * HEAD))?;
            }
        }
        Tokens::Convolved(c) => {
            at_least("x", c.x.len(), span(d.n, c.x_row_stride, d.channels()))?;
            at_least("taps", c.weight.len(), 4 * d.channels())?;
            let line = (d.channels() - 1) * c.layout.channel + (HISTORY - 1) * c.layout.tap + 1;
            let pool = span(c.layout.lines, c.layout.line, line);
            at_least("pool of histories", c.pool.len(), pool)?;
            at_least("rolled histories", out.rolled.as_ref().map_or(0, FloatsMut::len), pool)?;
            at_least("lines", c.slots.len().min(c.slots_out.unwrap_or(c.slots).len()), d.n)?;
        }
    }
    let (mut slots, mut lines) = (HashSet::new(), HashSet::new());
    let convolved = matches!(p.tokens, Tokens::Convolved(_));
    for places in (0..d.n).filter_map(|n| p.places(n)) {
        if !slots.insert(places.slot_out) || convolved && !lines.insert(places.line_out) {
            return Err(Refusal(format!("two live rows write slot {} or line {}", places.slot_out, places.line_out)));
        }
    }
    Ok(())
}
