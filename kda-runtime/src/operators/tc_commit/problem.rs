//! What a call takes, and how it becomes the kernel's arguments.

use super::Gate;
use super::validate::{Layout, validate};
use crate::operators::OpError;
use kda_core::TensorArg;
use kda_kernels::tc_commit::TcCommitArgs;

/// Channels of a head.
const HEAD: u64 = 128;

/// A second state of each request: the one at a boundary of cache blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Boundary {
    /// `[N]` i32: records m ahead of the boundary. Where m is below 1 or above the records that are applied, there is none.
    pub tokens: TensorArg,
    /// `[N]` i32: slot that takes the state after m records; not live: nobody wants it. It may be the source where the
    /// destination is another slot, and the destination where m is all.
    pub slots: TensorArg,
}

/// One call. Shapes are logical; strides are the tensors' own, the innermost axis contiguous unless said otherwise.
///
/// A slot i is live when `null < i < slots`. For a request of less than one record, or with a source or a destination that is
/// not live, nothing is done; more records than `window` count as `window`. Slots that live requests write must be distinct,
/// and none of them may be one that another live request reads: what such slots hold then is undefined, and nothing else is.
/// A slot that is only read keeps its bits. What a call writes overlaps nothing else that it takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Problem {
    /// `[slots, H, V, K]` f32 or bf16; any slot stride of whole 16 bytes. Read and written; a bf16 state is widened exactly,
    /// and rounded to nearest even once.
    pub state: TensorArg,
    /// `[rows, H, window, V]` f32, dense: the corrections u; request b has row b of at least N. Windows have 1 to 16 records.
    pub corr: TensorArg,
    /// `[rows, H, window, 2 K]` bf16, dense: the key after the convolution, not normalised, then the raw gate.
    pub kg: TensorArg,
    /// `[H]` f32; absent counts as 0.
    pub a_log: Option<TensorArg>,
    /// `[H, K]` f32.
    pub dt_bias: TensorArg,
    /// `[slots, D, window + 2]` bf16 with `D = 3*H*128`: windows of raw inputs of q, k and v, oldest first; memory order
    /// `[D, window + 2]` or `[window + 2, D]` by strides. Any slot stride; in `[window + 2, D]` slot and row strides of whole
    /// 16 bytes. Rows n-1 .. n+1 of a source become rows 0 .. 2. Absent: windows stay as they are.
    pub conv: Option<TensorArg>,
    /// `[N]` i32: slot that each request reads.
    pub slots: TensorArg,
    /// `[N]` i32: slot that each request writes; absent: the one it reads.
    pub destinations: Option<TensorArg>,
    /// `[N]` i32: records that are applied.
    pub counts: TensorArg,
    /// States at boundaries; absent: none.
    pub boundary: Option<Boundary>,
    /// `[layers, 6]` u64: where `state`, `conv`, `corr`, `kg`, `a_log` and `dt_bias` of each layer begin. The tensors of this
    /// call then say shapes, strides and types for all layers, and those that are absent are so in all; an address 0 of
    /// `conv` or `a_log` is that of an absent one. Nothing checks the table: the caller answers for the memory behind it, and
    /// for alignments, 16 bytes of `state`, `corr` and `conv`. Absent: one layer, of the tensors of this call.
    pub layers: Option<TensorArg>,
    /// Form of the decay.
    pub gate: Gate,
    /// The null slot: -1, or 0 where slot 0 is nobody's.
    pub null: i32,
}

impl Problem {
    /// Number of (layer, request, head) states: the parallelism of a call.
    pub fn states(&self) -> u64 {
        let layers = self.layers.map_or(1, |table| table.shape().first().copied().unwrap_or(0));
        let requests = self.counts.shape().first().copied().unwrap_or(0);
        let heads = self.state.shape().get(1).copied().unwrap_or(0);
        layers.saturating_mul(requests).saturating_mul(heads)
    }

    /// The kernel's arguments, once the call has been checked.
    pub(super) fn arguments(&self) -> Result<(TcCommitArgs, Layout), OpError> {
        let layout = validate(self)?;
        let (bounded, lower_bound) = match self.gate {
            Gate::Bounded { lower_bound } => (true, lower_bound),
            Gate::Softplus => (false, 0.0),
        };
        let (conv_token, conv_channel) = match &self.conv {
            None => (None, None),
            Some(conv) => windows(conv, &layout)?,
        };
        let [rows, heads, window] = [0, 1, 2].map(|axis| self.kg.shape()[axis]);
        let halves = [rows, heads, window, 2, HEAD];
        let args = TcCommitArgs {
            state: self.state,
            corr: self.corr,
            kg: TensorArg::dense(self.kg.ptr, self.kg.bytes, self.kg.elem, &halves)?,
            a_log: self.a_log,
            dt_bias: self.dt_bias,
            conv_token,
            conv_channel,
            slot_of: self.slots,
            destinations: self.destinations,
            counts: self.counts,
            boundary_tokens: self.boundary.map(|boundary| boundary.tokens),
            boundary_slots: self.boundary.map(|boundary| boundary.slots),
            layers: self.layers,
            layer_count: layout.layers as u32,
            null: self.null,
            lower_bound,
            bounded,
        };
        Ok((args, layout))
    }
}

/// The windows with the axes of their memory order: in rows of tokens, or of channels.
fn windows(conv: &TensorArg, layout: &Layout) -> Result<(Option<TensorArg>, Option<TensorArg>), OpError> {
    let (slots, rows, heads) = (conv.shape()[0], conv.shape()[2], layout.heads);
    let (slot, row) = match slots {
        0 => (0, 3 * heads * HEAD), // nobody steps through an empty pool
        _ => (conv.strides()[0], conv.strides()[2]),
    };
    let seen = |shape: &[u64], strides: &[u64]| TensorArg::strided(conv.ptr, conv.bytes, conv.elem, shape, strides);
    if layout.token_rows {
        return Ok((Some(seen(&[slots, rows, 3, heads, HEAD], &[slot, row, heads * HEAD, HEAD, 1])?), None));
    }
    let strides = [slot, heads * HEAD * rows, HEAD * rows, rows, 1];
    Ok((None, Some(seen(&[slots, 3, heads, HEAD, rows], &strides)?)))
}
