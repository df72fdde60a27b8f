//! The inter-chunk recurrence of chunked KDA: the operator `delta_h`.
//!
//! Per sequence and head, chunk after chunk of 64 rows R (the last one may be shorter):
//! ```text
//! h[c]     = S                             contract: rounded to bf16, both as stored and as operand
//! v_new[R] = u[R] - w[R] S                 contract: with the rounded S, and rounded to bf16, stored and operand
//! S        = S * exp2(gk[last(R)])         decay first
//! S        = S + kg[R]^T v_new[R]
//! ```
//! The gate is already inside kg and the decay row; `v_new` is not gated. Of `gk` (log2 units) only the last valid row
//! of each chunk is read. Source: `chunk_gated_delta_rule_fwd_h` of fla-core (MIT) and the operator's contract.

use crate::Mode;
use crate::emulate;
use crate::floats::Rows;
use crate::forward::{Packed, States, initial_state};
use crate::layout::{StateOrder, chunks, sequences};
use crate::round::{to_bf16, to_bf16_other_tie};

/// Rows of a chunk.
pub const CHUNK: usize = 64;

/// The inputs of one call. Row of token t and value head hv: `t * HV + hv`.
#[derive(Clone, Copy, Debug)]
pub struct DeltaH<'a> {
    /// Boundaries and sizes; `heads` is not used, because every input has HV heads.
    pub packed: Packed<'a>,
    /// `k * 2^(G_last - G)`, `[T, HV, K]`.
    pub kg: Rows<'a>,
    /// `[T, HV, K]`.
    pub w: Rows<'a>,
    /// `[T, HV, V]`.
    pub u: Rows<'a>,
    /// Chunk-local inclusive cumulative gate in log2 units, `[T, HV, K]`.
    pub gk: Rows<'a>,
    /// Initial states and their order, which the final states share.
    pub states: States<'a>,
    /// Axis order of `h`.
    pub h_order: StateOrder,
}

/// The results of one call.
#[derive(Clone, Debug, PartialEq)]
pub struct DeltaHOutputs {
    /// State before each chunk `[NT, HV, ..]`, chunks of all sequences in order.
    pub h: Vec<f64>,
    /// Corrected values `[T, HV, V]`.
    pub v_new: Vec<f64>,
    /// `[N, HV, ..]`; an empty sequence returns its initial state bit for bit.
    pub final_state: Vec<f64>,
}

/// Where the results of one sequence and head go.
pub(crate) struct Walk {
    /// Index of the sequence.
    pub sequence: usize,
    /// Index of its first chunk among all chunks.
    pub first_chunk: usize,
    /// Its rows.
    pub rows: (usize, usize),
}

impl DeltaH<'_> {
    /// Zeroed results and the walk over the sequences.
    pub(crate) fn plan(&self) -> (DeltaHOutputs, Vec<Walk>) {
        let (p, mut first_chunk, mut walks) = (&self.packed, 0, Vec::new());
        for (sequence, rows) in sequences(p.cu_seqlens).enumerate() {
            walks.push(Walk { sequence, first_chunk, rows });
            first_chunk += chunks(rows.0, rows.1, CHUNK).count();
        }
        let outputs = DeltaHOutputs {
            h: vec![0.0; first_chunk * p.value_heads * p.state_len()],
            v_new: vec![0.0; p.tokens() * p.value_heads * p.values],
            final_state: vec![0.0; walks.len() * p.value_heads * p.state_len()],
        };
        (outputs, walks)
    }
}

/// Runs the recurrence.
///
/// # Panics
/// If an input is shorter than the sizes say.
pub fn run(problem: &DeltaH<'_>, mode: Mode) -> DeltaHOutputs {
    let round: fn(f64) -> f64 = match mode {
        Mode::Exact => |x| x,
        Mode::Contract => to_bf16,
        Mode::ContractOtherTies => to_bf16_other_tie,
        Mode::Emulate => return emulate::delta_h::run(problem),
    };
    let p = &problem.packed;
    let (keys, values, hv, size) = (p.keys, p.values, p.value_heads, p.state_len());
    let (mut out, walks) = problem.plan();
    for walk in walks {
        for value_head in 0..hv {
            let mut state = initial_state(p, &problem.states, walk.sequence, value_head);
            for (c, (begin, end)) in chunks(walk.rows.0, walk.rows.1, CHUNK).enumerate() {
                let rounded: Vec<f64> = state.iter().map(|&s| round(s)).collect();
                let slot = ((walk.first_chunk + c) * hv + value_head) * size;
                problem.h_order.store(keys, values, &rounded, &mut out.h[slot..slot + size]);
                for row in (begin..end).map(|token| token * hv + value_head) {
                    let v_new = &mut out.v_new[row * values..(row + 1) * values];
                    for (key, h) in rounded.chunks_exact(values).enumerate() {
                        let w = problem.w.get(row, key);
                        v_new.iter_mut().zip(h).for_each(|(dot, h)| *dot += w * h);
                    }
                    for (value, x) in v_new.iter_mut().enumerate() {
                        *x = round(problem.u.get(row, value) - *x);
                    }
                }
                let last = (end - 1) * hv + value_head;
                for (key, s) in state.chunks_exact_mut(values).enumerate() {
                    let decay = problem.gk.get(last, key).exp2();
                    s.iter_mut().for_each(|s| *s *= decay);
                    for row in (begin..end).map(|token| token * hv + value_head) {
                        let kg = problem.kg.get(row, key);
                        let v_new = &out.v_new[row * values..(row + 1) * values];
                        s.iter_mut().zip(v_new).for_each(|(s, x)| *s += kg * x);
                    }
                }
            }
            let slot = (walk.sequence * hv + value_head) * size;
            problem.states.order.store(keys, values, &state, &mut out.final_state[slot..slot + size]);
        }
    }
    out
}
