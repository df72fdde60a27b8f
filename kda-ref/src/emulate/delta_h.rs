//! The inter-chunk recurrence in fp32 with bf16 operands, as a tensor-core kernel runs it.
//!
//! ```text
//! h = bf16(S);  x = bf16(u - w h);  S = S * exp2(gk_last);  S = S + kg^T x        fp32 accumulation
//! ```
//! The order of summation inside a dot is not contractual; here products are fused and added in order of the index. A
//! sum over rows accumulates onto the decayed state, as an MMA does.

use super::{lanes, scalar};
use crate::delta_h::{CHUNK, DeltaH, DeltaHOutputs};
use crate::forward::initial_state;
use crate::layout::chunks;
use crate::round::to_bf16_f32;

fn widened(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

/// Runs the emulation; results are fp32 values (`final_state`) or bf16 values (`h`, `v_new`) in float64. Inputs should
/// be bf16 values (`kg`, `w`, `u`) or fp32 values (`gk`, states).
///
/// # Panics
/// If an input is shorter than the sizes say.
pub fn run(problem: &DeltaH<'_>) -> DeltaHOutputs {
    let p = &problem.packed;
    let (keys, values, hv, size) = (p.keys, p.values, p.value_heads, p.state_len());
    let (mut out, walks) = problem.plan();
    for walk in walks {
        for value_head in 0..hv {
            let wide = initial_state(p, &problem.states, walk.sequence, value_head);
            let mut state: Vec<f32> = wide.iter().map(|&s| s as f32).collect();
            for (c, (begin, end)) in chunks(walk.rows.0, walk.rows.1, CHUNK).enumerate() {
                let rows = || (begin..end).map(|token| token * hv + value_head);
                let rounded: Vec<f32> = state.iter().map(|&s| to_bf16_f32(s)).collect();
                let slot = ((walk.first_chunk + c) * hv + value_head) * size;
                problem.h_order.store(keys, values, &widened(&rounded), &mut out.h[slot..slot + size]);
                let mut v_new = vec![0.0f32; (end - begin) * values];
                for (row, x) in rows().zip(v_new.chunks_exact_mut(values)) {
                    for (key, h) in rounded.chunks_exact(values).enumerate() {
                        lanes::fma(x, problem.w.get(row, key) as f32, h);
                    }
                    for (value, x) in x.iter_mut().enumerate() {
                        *x = to_bf16_f32(problem.u.get(row, value) as f32 - *x);
                    }
                    out.v_new[row * values..(row + 1) * values].copy_from_slice(&widened(x));
                }
                let last = (end - 1) * hv + value_head;
                for (key, s) in state.chunks_exact_mut(values).enumerate() {
                    let decay = scalar::exp2(problem.gk.get(last, key) as f32);
                    s.iter_mut().for_each(|s| *s *= decay);
                    for (row, x) in rows().zip(v_new.chunks_exact(values)) {
                        lanes::fma(s, problem.kg.get(row, key) as f32, x);
                    }
                }
            }
            let slot = (walk.sequence * hv + value_head) * size;
            problem.states.order.store(keys, values, &widened(&state), &mut out.final_state[slot..slot + size]);
        }
    }
    out
}
