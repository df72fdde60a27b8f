//! What a call takes, and how it becomes the kernel's arguments.

use super::Gate;
use super::validate::{Layout, validate};
use crate::operators::OpError;
use kda_core::{Elem, TensorArg};
use kda_kernels::decode::DecodeArgs;

/// Channels of a head.
const HEAD: u64 = 128;

/// The convolution ahead of the recurrence, and its pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Convolution {
    /// `[N, D]` bf16: projections before the convolution.
    pub x: TensorArg,
    /// `[D, 4]` f32 or bf16: taps, the last for the token. bf16 taps round each product to bf16.
    pub weight: TensorArg,
    /// `[D]` f32, or absent.
    pub bias: Option<TensorArg>,
    /// `[lines, D, 3]` f32 or bf16, oldest input first; memory order `[D, 3]` or `[3, D]` by strides; any line stride of whole
    /// 16 bytes, in `[3, D]` inputs a multiple of 8 elements apart. It rolls: the token becomes the newest input.
    pub state: TensorArg,
    /// `[N]` i32: line that each request reads; any stride.
    pub slots: TensorArg,
    /// `[N]` i32: line that each request writes; absent: the one it reads.
    pub slots_out: Option<TensorArg>,
    /// `[N, H]` u32: arrival counters of the roll, zero ahead of the first launch; a launch leaves them zero. Launches that
    /// may overlap need counters of their own; after a launch that did not run to its end they must be reset, as those of
    /// [`conv_verify`](crate::operators::conv_verify::workspace).
    pub workspace: TensorArg,
}

/// Where q, k and v come from.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(clippy::large_enum_variant)] // a call is a value that is copied, and made once
pub enum Tokens {
    /// Convolved here.
    Convolved(Convolution),
    /// Post-convolution values, ahead of the norm.
    Given {
        /// `[N, H, K]` bf16; any row stride.
        q: TensorArg,
        /// `[N, H, K]` bf16; any row stride.
        k: TensorArg,
        /// `[N, HV, V]` bf16; any row stride.
        v: TensorArg,
    },
}

/// One call. Shapes are logical; strides are the tensors' own, the innermost axis contiguous unless said otherwise.
///
/// An index i of a slot array is live when `null < i < length` of its pool. A request with an index that is not live is
/// padding: its output is zeros and nothing else is written. Slots that live requests write must be distinct, and none of
/// them may be one that another live request reads: what such requests leave there, and their outputs, are undefined, and
/// nothing else is. What a call writes overlaps nothing else that it takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Problem {
    /// q, k and v, or what they are made of.
    pub tokens: Tokens,
    /// `[N, HV, K]` bf16 or f32: raw gate; any row stride.
    pub g: TensorArg,
    /// `[N, HV]` bf16: raw write strength; any row stride.
    pub beta: TensorArg,
    /// `[HV]` f32; absent counts as 0.
    pub a_log: Option<TensorArg>,
    /// `[HV, K]` f32; absent counts as 0.
    pub dt_bias: Option<TensorArg>,
    /// `[slots, HV, V, K]` f32 or bf16; memory order `[V, K]` or `[K, V]` by strides; any slot stride of whole 16 bytes. Read
    /// and written: bf16 is widened exactly, and rounded to nearest even once.
    pub state: TensorArg,
    /// `[N]` i32: slot that each request reads; any stride.
    pub state_slots: TensorArg,
    /// `[N]` i32: slot that each request writes; absent: the one it reads. A slot that is only read keeps its bits.
    pub state_slots_out: Option<TensorArg>,
    /// `[N, HV, V]` bf16; any row stride.
    pub out: TensorArg,
    /// Factor on the normalised query; `K^-1/2` as a rule.
    pub scale: f32,
    /// Form of the decay.
    pub gate: Gate,
    /// The null index: -1, or 0 where slot 0 is the null slot.
    pub null: i32,
}

impl Problem {
    /// Bytes of the workspace for `n` requests and `heads` q/k heads.
    pub const fn workspace_bytes(n: u64, heads: u64) -> u64 {
        n.saturating_mul(heads).saturating_mul(4)
    }

    /// Number of (request, value head) pairs: the parallelism of a call.
    pub fn pairs(&self) -> u64 {
        match self.beta.shape() {
            [n, hv] => n.saturating_mul(*hv),
            _ => 0,
        }
    }

    /// The kernel's arguments, once the call has been checked, and the memory order of its state.
    pub(super) fn arguments(&self, early: bool, evict_first: bool) -> Result<(DecodeArgs, Layout), OpError> {
        let layout = validate(self)?;
        let (g_f32, g_bf16) = by_type(self.g);
        let (bounded, lower_bound) = match self.gate {
            Gate::Bounded { lower_bound } => (true, lower_bound),
            Gate::Softplus => (false, 0.0),
        };
        let convolution = match &self.tokens {
            Tokens::Convolved(convolution) => Some(convolution),
            Tokens::Given { .. } => None,
        };
        let (taps_f32, taps_bf16) = convolution.map_or((None, None), |c| by_type(c.weight));
        let (histories, channel_step, tap_step) = match convolution {
            Some(convolution) => pool(&convolution.state, layout.channels_inner)?,
            None => (None, 3, 1),
        };
        let (conv_f32, conv_bf16) = histories.map_or((None, None), by_type);
        let [q, k, v] = match &self.tokens {
            Tokens::Given { q, k, v } => [*q, *k, *v],
            Tokens::Convolved(c) => {
                let (h, hv) = (layout.heads, layout.value_heads);
                [heads_of(&c.x, 0, h)?, heads_of(&c.x, h, h)?, heads_of(&c.x, 2 * h, hv)?]
            }
        };
        // The two inner axes are as long as each other: the kernel names them in memory order.
        let [slot, head] = [self.state.strides()[0], self.state.strides()[1]];
        let state = TensorArg::strided(
            self.state.ptr,
            self.state.bytes,
            self.state.elem,
            self.state.shape(),
            &[slot, head, HEAD, 1],
        )?;
        let args = DecodeArgs {
            q,
            k,
            v,
            g_bf16,
            g_f32,
            beta: self.beta,
            taps_f32,
            taps_bf16,
            conv_bias: convolution.and_then(|c| c.bias),
            a_log: self.a_log,
            dt_bias: self.dt_bias,
            conv_slots: convolution.map(|c| c.slots),
            conv_slots_out: convolution.and_then(|c| c.slots_out),
            state_slots: self.state_slots,
            state_slots_out: self.state_slots_out,
            conv_f32,
            conv_bf16,
            state,
            out: self.out,
            arrivals: convolution.map(|c| c.workspace),
            per_head: (layout.value_heads / layout.heads) as u32,
            channel_step,
            tap_step,
            null: self.null,
            scale: self.scale,
            lower_bound,
            bounded,
            early,
            evict_first,
        };
        Ok((args, layout))
    }
}

/// Heads `first .. first + count` of a row of projections, as `[N, count, 128]`.
fn heads_of(x: &TensorArg, first: u64, count: u64) -> Result<TensorArg, OpError> {
    let skip = first.saturating_mul(HEAD * u64::from(x.elem.bytes()));
    let ptr = if x.ptr == 0 { 0 } else { x.ptr.saturating_add(skip) };
    let shape = [x.shape()[0], count, HEAD];
    Ok(TensorArg::strided(ptr, x.bytes.saturating_sub(skip), x.elem, &shape, &[x.strides()[0], HEAD, 1])?)
}

/// The pool of histories as lines without further axes, and the distances from a channel and from an input to the next.
fn pool(state: &TensorArg, channels_inner: bool) -> Result<(Option<TensorArg>, u32, u32), OpError> {
    let ([lines, channels, _], [line, channel, tap]) = (state.shape(), state.strides()) else {
        return Ok((None, 3, 1)); // a checked pool has three axes
    };
    let (channel, tap) = match (*lines, channels_inner) {
        (0, _) => (3, 1), // nobody steps through an empty pool
        (_, true) => (1, *tap),
        (_, false) => (*channel, 1),
    };
    let length = 2 * tap + (channels - 1) * channel + 1;
    let histories = TensorArg::strided(state.ptr, state.bytes, state.elem, &[*lines, length], &[*line, 1])?;
    Ok((Some(histories), channel as u32, tap as u32))
}

/// A tensor of f32 or of bf16, each in its place.
fn by_type(tensor: TensorArg) -> (Option<TensorArg>, Option<TensorArg>) {
    if tensor.elem == Elem::BF16 { (None, Some(tensor)) } else { (Some(tensor), None) }
}
