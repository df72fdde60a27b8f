//! What a call takes.

use super::Gate;
use kda_core::TensorArg;

/// The convolution ahead of the recurrence, and its history.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Convolution {
    /// `[D, 4]` f32 or bf16: taps, the last for the token. bf16 taps round each product to bf16. There is no bias.
    pub weight: TensorArg,
    /// `[slots, D, Q + 2]` bf16, oldest input first; memory order `[Q + 2, D]`, with even slot and row strides, or `[D, Q + 2]` by
    /// strides. A request of n tokens leaves its rows 0 to n + 1: the two inputs ahead of its tokens, and these. `tc_commit` moves
    /// rows of `[Q + 2, D]` by 16 bytes.
    pub state: TensorArg,
    /// `[B]` i32: of the three inputs ahead of a request's tokens the first is row `accepted - 1` of its history. What is less
    /// than 1 counts as 1, what is more than Q as Q.
    pub accepted: TensorArg,
}

/// One call. Shapes are logical; strides are the tensors' own, the innermost axis contiguous unless said otherwise.
///
/// Per request, head and token t, with S the request's state, q, k and v behind the convolution, k and q normalised,
/// ```text
/// S <- S exp(g_t);   u_t = sigmoid(beta_t) (v_t - S k_t);   S <- S + u_t k_t^T;   o_t = S q_t
/// ```
/// `query_start[b]` is a request's first row, `query_start[b + 1]` the one behind its last. A request with more than Q rows has
/// Q; one whose rows are not in order, or not within T, has none. Outputs of rows that several requests have are undefined. A slot is live when `null < slot < slots`: of requests
/// without a live slot the outputs are zeros, and nothing else is written. Live slots are distinct where there is a convolution:
/// what requests of the same slot leave in its history, and what they make of it, is undefined, and nothing else is. There a request
/// with tokens has its first one accepted at least: the oldest input ahead of it is gone. What a call writes shares no memory
/// with anything else that it takes. A NaN or an infinity of a token makes u and o of all tokens of its request undefined, of
/// those ahead of it as well, and nothing of other requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Problem {
    /// `[T, D]` bf16, D = (2 H + HV) 128, in the order q, k, v: projections ahead of the convolution, or what is behind it. With
    /// a convolution H is HV; else H divides HV, and HV / H heads share one of q and k.
    pub qkv: TensorArg,
    /// `[T, HV, K]` bf16: raw gate.
    pub raw_g: TensorArg,
    /// `[T, HV]` bf16: raw write strength.
    pub raw_beta: TensorArg,
    /// `[HV]` f32; absent counts as 0.
    pub a_log: Option<TensorArg>,
    /// `[HV, K]` f32.
    pub dt_bias: TensorArg,
    /// `[slots, HV, V, K]` bf16 or f32, K innermost; any slot stride of whole 16 bytes. Read only.
    pub state: TensorArg,
    /// Absent: `qkv` is behind it.
    pub convolution: Option<Convolution>,
    /// `[B + 1]` i32, see above.
    pub query_start: TensorArg,
    /// `[B]` i32: slot of each request, in the pool of states and in that of histories.
    pub slots: TensorArg,
    /// `[rows, HV, Q, V]` f32, at least B rows: u of each token; row b is of request b. Q is 1 to 16, with softplus to 8.
    pub corr: TensorArg,
    /// `[rows, HV, Q, 2 K]` bf16: of each token the key ahead of its norm, then the raw gate.
    pub kg: TensorArg,
    /// `[T, HV, V]` bf16.
    pub out: TensorArg,
    /// `[HV]` u32: tickets by which CTAs take requests as they become free, or absent: CTAs take them in a fixed order. Zero
    /// ahead of the first launch; a launch leaves them zero. Launches that may overlap need counters of their own; after a
    /// launch that did not run to its end they must be set to zero. Results do not depend on it.
    pub counters: Option<TensorArg>,
    /// Factor on the normalised query; `K^-1/2` as a rule.
    pub scale: f32,
    /// Form of the decay. The bound of a bounded gate lies in [-80 / Q, 0]: keys grow by it from token to token.
    pub gate: Gate,
    /// The null index: -1, or 0 where slot 0 is the null slot.
    pub null: i32,
}

impl Problem {
    /// Bytes of the counters for `heads` heads.
    pub const fn counters_bytes(heads: u64) -> u64 {
        heads.saturating_mul(4)
    }

    /// Number of (request, head) pairs: the parallelism of a call.
    pub fn pairs(&self) -> u64 {
        match (self.slots.shape(), self.raw_beta.shape()) {
            ([n], [_, heads]) => n.saturating_mul(*heads),
            _ => 0,
        }
    }
}
