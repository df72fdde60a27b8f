//! The golden model of Kimi Delta Attention (KDA): float64, sequential, obviously right.
//!
//! Per token, with S the state of one value head, g the log decay per key channel and q, k L2-normalised:
//! ```text
//! S <- S * exp(g)          decay of the key channels
//! u  = beta * (v - S k)    what the delta rule still has to write
//! S <- S + u k^T
//! o  = S (q * scale)
//! ```
//! Source: the gated delta rule with a gate per channel (Kimi Linear, arXiv 2510.26692).
//!
//! | question | module |
//! | --- | --- |
//! | what is a gate, a norm, a convolution | [`gate`], [`norm`], [`conv`] |
//! | what does the recurrence give | [`delta_rule`], [`forward`] |
//! | what is a compact record, and what does its commit give | [`records`] |
//! | what does the chunked form give | [`chunk`], its inter-chunk recurrence [`delta_h`] |
//! | what do the operators `conv_verify` and `decode` give | [`conv_verify`], [`decode`] |
//! | what do the operators `tc_verify` and `tc_commit` give | [`tc_verify`], [`tc_commit`] |
//! | what would a right fp32/bf16 kernel give | [`emulate`], of products [`tensor_core`] |
//! | how far may a kernel be off | [`budget`] |
//! | where do reproducible inputs come from | [`rng`], and the `sample` of each operator, such as [`decode::sample`] |
//! | does the model agree with third-party references | [`replay`] |
//!
//! Every operator runs in one of the modes of [`Mode`].
//!
//! Sizes: K = channels of a key head, V = channels of a value head, H = query/key heads, HV = value heads. With
//! grouped values (HV > H) value head `hv` uses query/key head `hv / (HV / H)`.

pub mod budget;
pub mod chunk;
pub mod conv;
pub mod conv_verify;
pub mod decode;
pub mod delta_h;
pub mod delta_rule;
pub mod emulate;
pub mod floats;
pub mod forward;
pub mod gate;
pub mod layout;
pub mod norm;
pub mod records;
pub mod replay;
pub mod rng;
pub mod round;
pub mod tc_commit;
pub mod tc_verify;
pub mod tensor_core;

/// Which arithmetic an operator runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Float64 with no rounding anywhere: what third-party float64 references compute.
    Exact,
    /// The rounding points that the operator's contract names, float64 everywhere else: the reference of kernel tests.
    Contract,
    /// [`Mode::Contract`], but every value that lies next to a rounding tie ([`round::TIE_MARGIN`]) goes to the other
    /// neighbour. The distance to `Contract` is what a right kernel may lose by landing on the other side of a tie.
    ContractOtherTies,
    /// The fp32/bf16 arithmetic of a right kernel, with the contract's reduction trees.
    Emulate,
}
