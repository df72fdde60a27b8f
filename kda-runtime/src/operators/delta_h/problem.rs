//! What a call takes.

use super::batch::Batch;
use kda_core::TensorArg;

/// What the state decays by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gate {
    /// `[T, HV, K]` f32: gates summed up within each chunk, log2 units. The last row of each chunk is read, no other.
    Cumulative(TensorArg),
    /// `[chunks, HV, K]` f32: the decay of each chunk, `2^gate` of its last row, over the chunks of all sequences in order.
    Decay(TensorArg),
    /// `[T, HV]` f32: one gate a head and row, summed up within each chunk, log2 units. Values are multiplied by
    /// `2^(last - own)` ahead of the update, so that `kg` is k without a gate.
    Scalar(TensorArg),
}

impl Gate {
    /// The tensor, and its name in messages.
    pub(super) fn tensor(&self) -> (&'static str, &TensorArg) {
        match self {
            Gate::Cumulative(gk) => ("gk", gk),
            Gate::Decay(decay) => ("decay", decay),
            Gate::Scalar(g) => ("g", g),
        }
    }
}

/// One call. Shapes are logical; strides are the tensors' own. Rows of `kg`, `w`, `u` and `v_new` lie whole 16 bytes apart,
/// heads 128 elements.
///
/// In each sequence and head, S `[K, V]` in f32, for the rows R of each chunk in order:
/// ```text
/// h = bf16(S);   v_new[R] = bf16(u[R] - w[R] h);   S <- S * 2^gk[last(R)];   S <- S + kg[R]^T v_new[R]
/// ```
/// An index i of a slot array is live when `null < i < slots` of its pool. A sequence whose `initial_slots` entry is not live,
/// or whose `has_initial` is 0, starts from zeros; one whose `final_slots` entry is not live leaves no final state. Without
/// slot arrays sequence n has state n. An empty sequence hands its initial state on, bit for bit. Live final slots are
/// distinct, and none is the initial slot of another sequence: what such states hold is undefined, and nothing else is.
///
/// Sequences, and rows and chunk states of `v_new` and `h`, that the schedule does not hold stay untouched. What a call writes
/// shares no memory with anything else that it takes, but that `final_state` may be `initial_state`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Problem {
    /// `[T, HV, K]` bf16: `k 2^(last - own)` of each chunk; with a scalar gate `[T, H, K]` bf16: k, where H divides HV.
    pub kg: TensorArg,
    /// `[T, HV, K]` bf16.
    pub w: TensorArg,
    /// `[T, HV, V]` bf16.
    pub u: TensorArg,
    /// The decay.
    pub gate: Gate,
    /// `[slots, HV, K, V]` f32 or bf16; memory order `[K, V]` or `[V, K]` by strides; any slot stride of whole 16 bytes.
    /// Absent: zeros.
    pub initial_state: Option<TensorArg>,
    /// `[N]` i32: slot of each sequence in `initial_state`.
    pub initial_slots: Option<TensorArg>,
    /// `[N]` u8 or bool: 0 for sequences that start from zeros whatever their slots.
    pub has_initial: Option<TensorArg>,
    /// As `initial_state`, with a type, an order and strides of its own; may be the same tensor.
    pub final_state: Option<TensorArg>,
    /// `[N]` i32: slot of each sequence in `final_state`.
    pub final_slots: Option<TensorArg>,
    /// The null index of both slot arrays: -1, or 0 where slot 0 is the null slot.
    pub null: i32,
    /// `[capacity, HV, K, V]` bf16: the state ahead of each chunk, or of every [`h_every`](Self::h_every)-th; memory order
    /// `[K, V]` or `[V, K]` by strides; any chunk stride of whole 16 bytes. At least [`Batch::h_states`] of them.
    pub h: Option<TensorArg>,
    /// `[T, HV, V]` bf16: the corrected values, not gated.
    pub v_new: Option<TensorArg>,
    /// The workspace that [`schedule`](super::schedule::plan) of the same [`batch`](Self::batch) has filled ahead of this call on
    /// the same stream: u32 or u8, at least [`Batch::schedule_bytes`].
    pub schedule: TensorArg,
    /// u8 or u32, at least [`Batch::map_bytes`]: what segments do to a state. Needed if that is not 0. Calls that may overlap need
    /// memory of their own; nothing is kept from one call to the next.
    pub maps: Option<TensorArg>,
    /// N: sequences.
    pub sequences: u64,
    /// The state ahead of every so many chunks of a sequence is stored in `h`; 1 for all.
    pub h_every: u32,
    /// Whether the schedule may cut long sequences into segments. A scalar gate takes whole sequences only.
    pub split: bool,
    /// Most rows of a sequence, if that is known, as in the schedule: [`Batch::longest`]. Engines have it as the longest prompt
    /// of a step.
    pub longest: Option<u64>,
}

impl Problem {
    /// Sizes of the batch, for memory and the schedule.
    pub fn batch(&self) -> Batch {
        let axis = |t: &TensorArg, axis: usize| t.shape().get(axis).copied().unwrap_or(0);
        let (sequences, rows, heads) = (self.sequences, axis(&self.w, 0), axis(&self.w, 1));
        Batch { sequences, rows, heads, h_every: self.h_every, split: self.split, longest: self.longest }
    }
}
