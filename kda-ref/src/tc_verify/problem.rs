//! What the operator takes and gives: slices, sizes and pitches. All pitches count elements.

use super::{HEAD, HISTORY};
use crate::floats::Floats;
use crate::gate::Gate;
use half::bf16;

/// Order of the axes of a slot of the convolution pool: `rows = window + 2` raw inputs of `channels = 3*heads*K` channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConvOrder {
    /// `[window+2, 3, heads, K]`.
    TokenMajor,
    /// `[3, heads, K, window+2]`.
    ChannelMajor,
}

impl ConvOrder {
    /// Offset of a row and channel in a slot.
    #[inline]
    pub fn offset(self, row: usize, channel: usize, rows: usize, channels: usize) -> usize {
        match self {
            ConvOrder::TokenMajor => row * channels + channel,
            ConvOrder::ChannelMajor => channel * rows + row,
        }
    }
}

/// What a fused convolution needs.
#[derive(Clone, Copy, Debug)]
pub struct Conv<'a> {
    /// Taps `[3, heads, K, 4]`, bf16 or fp32; tap 3 multiplies the newest token. The type decides the rounding of the sum.
    pub taps: Floats<'a>,
    /// Pool of raw inputs `[slots, ..]` before the call, a slot in the order `order`.
    pub pool: &'a [bf16],
    /// Distance between slots of the pool.
    pub pitch: usize,
    /// Order of the axes of a slot.
    pub order: ConvOrder,
    /// `[n_req]`: the first history row is `accepted - 1`. Below 1 counts as 1, above `window` as `window`.
    pub accepted: &'a [i32],
}

/// The inputs of one call.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// Requests B.
    pub n_req: usize,
    /// Heads of q, k and v alike.
    pub heads: usize,
    /// Most tokens of a request, and record rows of one: 1..=16.
    pub window: usize,
    /// Rows of the packed tokens.
    pub total: usize,
    /// Slots of the pools: the length that liveness is tested against.
    pub slots: usize,
    /// `[total, 3, heads, K]`: raw projections with a convolution, else q, k, v behind it.
    pub qkv: &'a [bf16],
    /// Distance between rows of `qkv`.
    pub qkv_pitch: usize,
    /// Raw gate `[total, heads, K]`.
    pub raw_g: &'a [bf16],
    /// Distance between rows of `raw_g`.
    pub g_pitch: usize,
    /// Raw write strength `[total, heads]`, a logit.
    pub raw_beta: &'a [bf16],
    /// Distance between rows of `raw_beta`.
    pub beta_pitch: usize,
    /// `[heads]`; absent = 0.
    pub a_log: Option<&'a [f32]>,
    /// `[heads, K]`.
    pub dt_bias: &'a [f32],
    /// Pool of states `[slots, heads, V, K]`, bf16 or fp32, and float64 so that exact runs can be chained. Read only.
    pub state: Floats<'a>,
    /// Distance between slots of `state`.
    pub state_pitch: usize,
    /// The fused convolution; absent: `qkv` is behind it.
    pub conv: Option<Conv<'a>>,
    /// Slot of each request in both pools `[n_req]`. Live: `null < slot < slots`.
    pub slot_of: &'a [i32],
    /// Packed offsets `[n_req + 1]`.
    pub query_start: &'a [i32],
    /// Multiplies the normalised query. A kernel takes fp32: give its value, widened, as the reference of a kernel.
    pub scale: f64,
    /// Present: bounded gate. Absent: softplus gate. As for `scale`.
    pub lower_bound: Option<f64>,
    /// The null slot.
    pub null: i32,
}

/// What a call writes. The caller fills the buffers first: only what the contract names is touched.
#[derive(Debug)]
pub struct Outputs<'a> {
    /// `o` before rounding to bf16, `[total, heads, V]`.
    pub out: &'a mut [f64],
    /// Distance between rows of `out`.
    pub out_pitch: usize,
    /// The corrections u `[rows, heads, window, V]`; request b has row b.
    pub corr: &'a mut [f64],
    /// `[rows, heads, window, 2, K]`: the key behind the convolution, then the raw gate. Values of bf16, but for the key of a
    /// convolution in [`crate::Mode::Exact`].
    pub kg: &'a mut [f64],
    /// A copy of the convolution pool, which rolls; needed with a convolution.
    pub conv: Option<&'a mut [bf16]>,
}

/// What the metadata make of a request with tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which one; also its record row.
    pub b: usize,
    /// First row of its tokens.
    pub begin: usize,
    /// Tokens, 1..=window.
    pub len: usize,
    /// Its slot; `None`: not live, so that its rows of `out` are zeros and nothing else is done.
    pub slot: Option<usize>,
    /// First history row, 0..window; 0 without a convolution.
    pub first: usize,
}

impl Problem<'_> {
    /// Request `b`; `None` when it has no token or offsets outside the packed tokens: nothing is done for it. More tokens than
    /// `window` are not looked at.
    pub fn request(&self, b: usize) -> Option<Request> {
        let (begin, end) = (self.query_start[b], self.query_start[b + 1]);
        let (begin, end) = (usize::try_from(begin).ok()?, usize::try_from(end).ok()?);
        if end <= begin || end > self.total {
            return None;
        }
        let first = self.conv.map_or(0, |conv| usize::try_from(conv.accepted[b].max(1)).map_or(0, |a| a - 1));
        Some(Request {
            b,
            begin,
            len: (end - begin).min(self.window),
            slot: live(self.slot_of[b], self.null, self.slots),
            first: first.min(self.window - 1),
        })
    }

    /// Every request with tokens.
    pub fn requests(&self) -> impl Iterator<Item = Request> + '_ {
        (0..self.n_req).filter_map(|b| self.request(b))
    }

    /// Every request with tokens and a live slot.
    pub fn live_requests(&self) -> impl Iterator<Item = (Request, usize)> + '_ {
        self.requests().filter_map(|request| Some((request, request.slot?)))
    }

    /// Channels of q, k and v: `3*heads*K`.
    pub fn channels(&self) -> usize {
        3 * self.heads * HEAD
    }

    /// Elements of a state: `heads*V*K`.
    pub fn state_len(&self) -> usize {
        self.heads * HEAD * HEAD
    }

    /// Rows of a slot of the convolution pool.
    pub fn conv_rows(&self) -> usize {
        self.window + HISTORY - 1
    }

    /// First element of the record of a request, head and token in `corr`; twice that in `kg`.
    pub fn record(&self, b: usize, head: usize, t: usize) -> usize {
        ((b * self.heads + head) * self.window + t) * HEAD
    }

    /// The gate of this call.
    pub fn gate(&self) -> Gate {
        Gate::from_lower_bound(self.lower_bound)
    }

    /// `A_log` of a head, 0 when absent.
    pub fn a_log(&self, head: usize) -> f32 {
        self.a_log.map_or(0.0, |a_log| a_log[head])
    }
}

/// `Some(slot)` when it is live in pools of `slots`.
pub fn live(slot: i32, null: i32, slots: usize) -> Option<usize> {
    usize::try_from(slot).ok().filter(|&i| slot > null && i < slots)
}
