//! Long sequences cut into segments whose effect on the state is an affine map, as a kernel computes them.
//!
//! ```text
//! B = end of the segment's recurrence from S = 0                 fp32
//! M = end of the same recurrence from S = 1 with u = 0           hi = bf16(M), lo = bf16(M - hi)
//! S <- M S + B:   B + hi(M) hi(S) + lo(M) hi(S) + hi(M) lo(S)    fp32 accumulation
//! ```
//! Segment 0 starts from the initial state, segment 1 from its end, and each later one from the start of the one before it
//! mapped over that one. From its start a segment runs the recurrence as an uncut sequence does. Without the low parts of M
//! the state is rounded to bf16 at each join, which shows where M is near the identity.

use super::problem::{Problem, Refusal};
use super::run::{Machine, Results, walk};
use super::schedule::Split;
use super::step::Chunk;
use super::{HEAD, STATE};
use crate::emulate::delta_h::Unit;
use crate::emulate::lanes;
use crate::round::to_bf16_f32;

/// Maps a start over a segment with matrix M and affine part B: `fold(M, S, B)`.
pub(crate) type Fold<T> = fn(&[T], &[T], Vec<T>) -> Vec<T>;

/// How M is split for the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// High and low parts, as the operator's kernel does.
    HighAndLow,
    /// A plain bf16 M: less than the budget allows.
    High,
}

/// The emulation of a kernel that cuts sequences.
///
/// # Errors
/// As [`super::run()`].
pub fn run_segments(problem: &Problem<'_>, split: Split, operand: Operand) -> Result<Results, Refusal> {
    walk(problem, &Machine::emulation(Unit::Lanes, Some((split, fold(operand)))))
}

/// The fold with this operand.
pub(crate) fn fold(operand: Operand) -> Fold<f32> {
    match operand {
        Operand::HighAndLow => |m, s, b| product(m, s, b, true),
        Operand::High => |m, s, b| product(m, s, b, false),
    }
}

/// High and low bf16 parts.
fn parts(x: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let high: Vec<f32> = x.iter().map(|&x| to_bf16_f32(x)).collect();
    let low = x.iter().zip(&high).map(|(x, high)| to_bf16_f32(x - high)).collect();
    (high, low)
}

fn product(m: &[f32], s: &[f32], mut b: Vec<f32>, low: bool) -> Vec<f32> {
    let ((m_high, m_low), (s_high, s_low)) = (parts(m), parts(s));
    let mut add = |m: &[f32], s: &[f32]| {
        for (b, m) in b.chunks_exact_mut(HEAD).zip(m.chunks_exact(HEAD)) {
            m.iter().zip(s.chunks_exact(HEAD)).for_each(|(m, s)| lanes::fma(b, *m, s));
        }
    };
    add(&m_high, &s_high);
    if low {
        add(&m_low, &s_high);
    }
    add(&m_high, &s_low);
    b
}

/// The start of the segment behind one that starts from `start` and has these chunks.
pub(crate) fn next_start<T: super::step::Real>(
    start: Vec<T>,
    chunks: impl Iterator<Item = Chunk<T>>,
    step: fn(&mut [T], &Chunk<T>) -> Vec<T>,
    fold: &Fold<T>,
) -> Vec<T> {
    let (mut affine, mut matrix) = (vec![T::default(); STATE], vec![T::default(); STATE]);
    for i in 0..HEAD {
        matrix[i * HEAD + i] = T::narrow(1.0);
    }
    for chunk in chunks {
        step(&mut affine, &chunk);
        step(&mut matrix, &Chunk { u: vec![T::default(); chunk.u.len()], ..chunk });
    }
    fold(&matrix, &start, affine)
}
