//! The recurrence of packed sequences without switches: any sizes K and V, inputs and results in float64 buffers.
//!
//! What chunked KDA is built from in float64 ([`crate::chunk`]) and third-party cases are replayed with. `v_new` and `h` are
//! returned as stored. Of `gk` (log2 units) only the last valid row of each chunk is read.

use super::CHUNK;
use super::step::{Chunk, Real, golden};
use crate::Mode;
use crate::emulate::delta_h::{self as emulate, Unit, exp2};
use crate::floats::Rows;
use crate::forward::{Packed, States, initial_state};
use crate::layout::{StateOrder, chunks, sequences};
use crate::round::{to_bf16, to_bf16_other_tie};

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

impl DeltaH<'_> {
    /// The rows of a chunk `begin .. end` of a value head.
    fn chunk<T: Real>(&self, begin: usize, end: usize, value_head: usize, exp2: fn(T) -> T) -> Chunk<T> {
        let p = &self.packed;
        let rows = |from: &Rows<'_>, width: usize| -> Vec<T> {
            let row = |token| token * p.value_heads + value_head;
            (begin..end).flat_map(|token| (0..width).map(move |c| T::narrow(from.get(row(token), c)))).collect()
        };
        let last = (end - 1) * p.value_heads + value_head;
        Chunk {
            kg: rows(&self.kg, p.keys),
            w: rows(&self.w, p.keys),
            u: rows(&self.u, p.values),
            decay: (0..p.keys).map(|key| exp2(T::narrow(self.gk.get(last, key)))).collect(),
            gate: None,
        }
    }
}

/// Runs the recurrence. In [`Mode::Emulate`] results are fp32 values (`final_state`) or bf16 values (`h`, `v_new`).
///
/// # Panics
/// If an input is shorter than the sizes say.
pub fn run(problem: &DeltaH<'_>, mode: Mode) -> DeltaHOutputs {
    match mode {
        Mode::Exact => walk(problem, |x| x, f64::exp2, |s, c| golden(s, c, |x| x)),
        Mode::Contract => walk(problem, to_bf16, f64::exp2, |s, c| golden(s, c, to_bf16)),
        Mode::ContractOtherTies => walk(problem, to_bf16_other_tie, f64::exp2, |s, c| golden(s, c, to_bf16_other_tie)),
        Mode::Emulate => walk(problem, to_bf16, exp2(Unit::Lanes), |s, c| emulate::step(s, c, Unit::Lanes)),
    }
}

/// Takes every sequence and head through `step`; `round` is that of what is stored.
fn walk<T: Real>(
    problem: &DeltaH<'_>,
    round: fn(f64) -> f64,
    exp2: fn(T) -> T,
    step: fn(&mut [T], &Chunk<T>) -> Vec<T>,
) -> DeltaHOutputs {
    let p = &problem.packed;
    let (keys, values, hv, size) = (p.keys, p.values, p.value_heads, p.state_len());
    let chunk_count: usize = sequences(p.cu_seqlens).map(|(begin, end)| (end - begin).div_ceil(CHUNK)).sum();
    let mut out = DeltaHOutputs {
        h: vec![0.0; chunk_count * hv * size],
        v_new: vec![0.0; p.tokens() * hv * values],
        final_state: vec![0.0; p.cu_seqlens.len().saturating_sub(1) * hv * size],
    };
    let mut first_chunk = 0;
    for (n, rows) in sequences(p.cu_seqlens).enumerate() {
        for value_head in 0..hv {
            let wide = initial_state(p, &problem.states, n, value_head);
            let mut state: Vec<T> = wide.into_iter().map(T::narrow).collect();
            for (c, (begin, end)) in chunks(rows.0, rows.1, CHUNK).enumerate() {
                let rounded: Vec<f64> = state.iter().map(|s| round(s.wide())).collect();
                let slot = ((first_chunk + c) * hv + value_head) * size;
                problem.h_order.store(keys, values, &rounded, &mut out.h[slot..slot + size]);
                let x = step(&mut state, &problem.chunk(begin, end, value_head, exp2));
                for (token, x) in (begin..end).zip(x.chunks_exact(values)) {
                    let v_new = &mut out.v_new[(token * hv + value_head) * values..][..values];
                    v_new.iter_mut().zip(x).for_each(|(v, x)| *v = round(x.wide()));
                }
            }
            let state: Vec<f64> = state.into_iter().map(T::wide).collect();
            let slot = (n * hv + value_head) * size;
            problem.states.order.store(keys, values, &state, &mut out.final_state[slot..slot + size]);
        }
        first_chunk += (rows.1 - rows.0).div_ceil(CHUNK);
    }
    out
}
