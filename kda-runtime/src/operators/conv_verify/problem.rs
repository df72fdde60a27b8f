//! What a call takes, and what of it the operator checks itself.

use super::validate::validate;
use crate::operators::OpError;
use kda_core::{Elem, TensorArg};
use kda_kernels::conv_verify::{ConvVerifyArgs, ConvVerifyVariant};

/// The decay's form.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gate {
    /// `lower_bound * sigmoid(exp(a_log) (a + dt_bias))`
    Bounded {
        /// The bound, natural log; -5 in Kimi K3.
        lower_bound: f32,
    },
    /// `-exp(a_log) * softplus(a + dt_bias)`
    Softplus,
}

/// Which row of `states_out` a request's snapshots go to. Windows always go to `snapshot_rows[n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotRule {
    /// `states_out[snapshot_rows[n]]`
    ByIndex,
    /// `states_out[n]`, for rows whose `snapshot_rows[n]` is live.
    ByBatch,
}

/// One call. Shapes are logical; strides are the tensors' own, the innermost axis contiguous unless said otherwise. Lines, slots,
/// rows and steps of pools, snapshots and `out` lie whole 16 bytes apart, and so do inputs in `[3, D]`.
///
/// An index i of a slot array is live when `null < i < length` of its pool. A request whose `conv_slots` or `state_slots`
/// entry is not live is padding: its output is zeros and nothing else is written. With `roll`, live requests must have
/// distinct convolution lines; live snapshot rows must be distinct. What two requests with the same one write there is
/// undefined, and nothing else is: [`indices`](super::indices) finds them on the host. What a call writes overlaps nothing
/// else that it takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Problem {
    /// `[N, T, D]` bf16: projections before the convolution.
    pub x: TensorArg,
    /// `[D, 4]` f32 or bf16: taps, the last for the newest token. bf16 taps round each product to bf16.
    pub conv_weight: TensorArg,
    /// `[D]` f32, or absent.
    pub conv_bias: Option<TensorArg>,
    /// `[lines, D, 3]` f32 or bf16, oldest input first; memory order `[D, 3]` or `[3, D]` by strides. Written only by `roll`.
    pub conv_state: TensorArg,
    /// `[N]` i32: line of each request; any stride.
    pub conv_slots: TensorArg,
    /// `[slots, HV, V, K]` f32, K innermost; any slot stride that is a multiple of 4.
    pub state: TensorArg,
    /// `[N]` i32: slot of each request; any stride.
    pub state_slots: TensorArg,
    /// `[N]` i32: snapshot row of each request; any stride.
    pub snapshot_rows: TensorArg,
    /// `[N, T, HV, K]` bf16: raw gate.
    pub a: TensorArg,
    /// `[N, T, HV]` bf16: raw write strength.
    pub b: TensorArg,
    /// `[HV]` f32; absent counts as 0.
    pub a_log: Option<TensorArg>,
    /// `[HV, K]` f32.
    pub dt_bias: TensorArg,
    /// `[rows, T_alloc, HV, V, K]` f32: state after each token, `T_alloc >= T`.
    pub states_out: Option<TensorArg>,
    /// `[rows, T_alloc, D, 3]`, dtype and memory order of `conv_state`: the three newest inputs at each token.
    pub windows_out: Option<TensorArg>,
    /// `[N, T, HV, V]` bf16.
    pub out: TensorArg,
    /// `[N, H]` u32: arrival counters of the roll, zero ahead of the first launch; a launch leaves them zero. Launches that
    /// may overlap need counters of their own; after a launch that did not run to its end they must be reset
    /// ([`workspace`](super::workspace)).
    pub workspace: TensorArg,
    /// Factor on the normalised query; `K^-1/2` as a rule.
    pub scale: f32,
    /// Form of the decay.
    pub gate: Gate,
    /// The null index: -1, or 0 where slot 0 is the null slot.
    pub null: i32,
    /// Replace each line's history by the newest three inputs.
    pub roll: bool,
    /// Row rule of `states_out`.
    pub snapshot_rule: SnapshotRule,
}

impl Problem {
    /// Bytes of the workspace for `n` requests and `heads` q/k heads.
    pub const fn workspace_bytes(n: u64, heads: u64) -> u64 {
        n.saturating_mul(heads).saturating_mul(4)
    }

    /// Why a variant cannot run this call, whose arguments have been checked; the kernel's own conditions come on top.
    pub(super) fn refuses(&self, variant: ConvVerifyVariant) -> Option<String> {
        let tokens = self.tokens();
        if !variant.long() && u64::from(variant.t()) != tokens {
            return Some(format!("it is for T = {}, the call has T = {tokens}", variant.t()));
        }
        let pool = (self.conv_state.elem, channels_inner(&self.conv_state));
        let written = (variant.pool(), variant.inner());
        if pool != written {
            let words = |(elem, inner): (Elem, bool)| format!("{elem} {}", if inner { "[3, D]" } else { "[D, 3]" });
            return Some(format!("its convolution pool is {}, the call's is {}", words(written), words(pool)));
        }
        None
    }

    /// Number of (request, value head) pairs: the parallelism of a call.
    pub fn pairs(&self) -> u64 {
        let shape = self.b.shape();
        if shape.len() == 3 { shape[0].saturating_mul(shape[2]) } else { 0 }
    }

    /// Tokens a request.
    pub fn tokens(&self) -> u64 {
        self.x.shape().get(1).copied().unwrap_or(0)
    }

    /// Rows that `snapshot_rows` indexes: a row is live below this number.
    pub(super) fn snapshot_len(&self) -> u64 {
        let rows = |t: &Option<TensorArg>| t.as_ref().and_then(|t| t.shape().first().copied());
        match (rows(&self.windows_out), rows(&self.states_out)) {
            (Some(windows), Some(states)) if self.snapshot_rule == SnapshotRule::ByIndex => windows.min(states),
            (Some(windows), _) => windows,
            (None, states) => states.unwrap_or(0),
        }
    }

    /// The kernel's arguments, once the call has been checked.
    pub(super) fn arguments(&self, early: bool, evict_first: bool) -> Result<ConvVerifyArgs, OpError> {
        validate(self)?;
        let (taps_f32, taps_bf16) = by_type(Some(self.conv_weight));
        let (bounded, lower_bound) = match self.gate {
            Gate::Bounded { lower_bound } => (true, lower_bound),
            Gate::Softplus => (false, 0.0),
        };
        Ok(ConvVerifyArgs {
            x: self.x,
            a: self.a,
            b: self.b,
            taps_f32,
            taps_bf16,
            conv_bias: self.conv_bias,
            a_log: self.a_log,
            dt_bias: self.dt_bias,
            conv_slots: self.conv_slots,
            state_slots: self.state_slots,
            snapshot_rows: self.snapshot_rows,
            conv: self.conv_state,
            state: self.state,
            states_out: self.states_out,
            windows_out: self.windows_out,
            out: self.out,
            arrivals: self.workspace,
            snapshot_len: self.snapshot_len().min(i32::MAX as u64) as u32,
            null: self.null,
            scale: self.scale,
            lower_bound,
            bounded,
            roll: self.roll,
            by_batch: self.snapshot_rule == SnapshotRule::ByBatch,
            early,
            evict_first,
        })
    }
}

/// True for `[3, D]` in memory, false for `[D, 3]`.
pub(super) fn channels_inner(pool: &TensorArg) -> bool {
    matches!(pool.strides(), [_, 1, _])
}

/// A tensor of f32 or of bf16, each in its place.
fn by_type(tensor: Option<TensorArg>) -> (Option<TensorArg>, Option<TensorArg>) {
    match tensor {
        Some(t) if t.elem == Elem::BF16 => (None, Some(t)),
        other => (other, None),
    }
}
