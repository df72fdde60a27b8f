//! How far two right kernels may be apart in one element of v_new, beside the rounding of that element.
//!
//! ```text
//! 2^-16 (|u| + sum |w h|)          two fp32 sums of 129 terms are at most 2 * 128 * 2^-24 of the sum of magnitudes apart
//! 2^-7 max |w h|                   one value of S that lies next to a tie is rounded to the other side
//! 2^-7 max_r |x_r| max_r |w . kg_r|    one x of an earlier row is, and the state carries it on
//! ```
//! In the last line x is any earlier one of the same value channel, and kg_r the rows of the chunk before: those of older
//! chunks are alike, decayed.

use super::problem::Problem;
use super::step::Chunk;
use super::{CHUNK, HEAD};
use crate::emulate::delta_h::{Unit, exp2, step};
use crate::emulate::lanes;
use crate::round::to_bf16_f32;

/// The sensitivity of every element of v_new, where it lies in its buffer of `len` elements.
pub(crate) fn sensitivities(p: &Problem<'_>, len: usize) -> Vec<f64> {
    let mut out = vec![f64::NAN; len];
    for sequence in &p.schedule().sequences {
        for head in 0..p.hv {
            let mut state = p.initial_state(sequence.n, head);
            let (mut reach, mut before) = ([0.0f32; HEAD], Vec::new());
            for index in 0..sequence.chunks() {
                let chunk = p.chunk(sequence, index, head, exp2(Unit::Lanes));
                let local = local(&state, &chunk);
                let first = sequence.rows.0 + index * CHUNK;
                for (row, local) in local.chunks_exact(HEAD).enumerate() {
                    let carried = carried(&chunk.w[row * HEAD..(row + 1) * HEAD], &before);
                    let at = p.v_new_at(first + row, head);
                    let units = local.iter().zip(&reach).map(|(local, reach)| local + carried * reach * 2f32.powi(-7));
                    out[at..at + HEAD].iter_mut().zip(units).for_each(|(to, unit)| *to = f64::from(unit));
                }
                for x in step(&mut state, &chunk, Unit::Lanes).chunks_exact(HEAD) {
                    reach.iter_mut().zip(x).for_each(|(reach, x)| *reach = reach.max(x.abs()));
                }
                before = updates(chunk);
            }
        }
    }
    out
}

/// The first two lines, `[rows, V]`.
fn local(state: &[f32], chunk: &Chunk<f32>) -> Vec<f32> {
    let h: Vec<f32> = state.iter().map(|&s| to_bf16_f32(s).abs()).collect();
    let mut sum: Vec<f32> = chunk.u.iter().map(|u| u.abs()).collect();
    for (sum, w) in sum.chunks_exact_mut(HEAD).zip(chunk.w.chunks_exact(HEAD)) {
        let mut most = [0.0f32; HEAD];
        for (w, h) in w.iter().zip(h.chunks_exact(HEAD)) {
            lanes::fma(sum, w.abs(), h);
            most.iter_mut().zip(h).for_each(|(most, h)| *most = most.max(w.abs() * h));
        }
        sum.iter_mut().zip(most).for_each(|(sum, most)| *sum = *sum * 2f32.powi(-16) + most * 2f32.powi(-7));
    }
    sum
}

/// `max_r |w . kg_r|`; 0 without rows.
fn carried(w: &[f32], before: &[f32]) -> f32 {
    let dots = before.chunks_exact(HEAD).map(|kg| w.iter().zip(kg).map(|(w, kg)| w * kg).sum::<f32>());
    dots.fold(0.0, |most, dot| most.max(dot.abs()))
}

/// What a row's x is multiplied by on its way into the state, `[rows, K]`.
fn updates(chunk: Chunk<f32>) -> Vec<f32> {
    let mut kg = chunk.kg;
    if let Some(gate) = chunk.gate {
        kg.chunks_exact_mut(HEAD).zip(gate).for_each(|(kg, gate)| kg.iter_mut().for_each(|kg| *kg *= gate));
    }
    kg
}
