//! The rows that the operator reads, from keys, values, gates and write strengths, one chunk of one head at a time.
//!
//! As [`crate::chunk::prepare`], but decays between two rows are products of the decays of each row, so that no exponential
//! is taken for a pair of rows; and without queries.

use super::HEAD;

/// Rows of one chunk and head.
#[derive(Clone, Debug)]
pub struct Tokens {
    /// Normalised keys `[rows, K]`.
    pub k: Vec<f64>,
    /// Values `[rows, V]`.
    pub v: Vec<f64>,
    /// Write strengths `[rows]`.
    pub beta: Vec<f64>,
    /// Log decays in log2 units, at most 0, `[rows, K]`.
    pub g: Vec<f64>,
}

/// What the operator reads of them.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// `k 2^(G_last - G)`, `[rows, K]`.
    pub kg: Vec<f64>,
    /// `Ainv (beta k 2^G)`, `[rows, K]`.
    pub w: Vec<f64>,
    /// `Ainv (beta v)`, `[rows, V]`.
    pub u: Vec<f64>,
    /// Inclusive cumulative gate G in log2 units, `[rows, K]`.
    pub gk: Vec<f64>,
}

/// Prepares a chunk.
///
/// # Panics
/// If the parts of `tokens` have different numbers of rows.
pub fn prepare(tokens: &Tokens) -> Prepared {
    let decays: Vec<f64> = tokens.g.iter().map(|g| g.exp2()).collect();
    let (k, decays) = (rows(&tokens.k), rows(&decays));
    let count = k.len();
    let mut gk = tokens.g.clone();
    for i in HEAD..gk.len() {
        gk[i] += gk[i - HEAD];
    }
    let mut kg = tokens.k.clone();
    let mut factor = [1.0; HEAD];
    for (kg, decay) in kg.chunks_exact_mut(HEAD).zip(decays).rev() {
        kg.iter_mut().zip(&mut factor).zip(decay).for_each(|((kg, factor), decay)| {
            *kg *= *factor;
            *factor *= decay;
        });
    }
    let (mut w, mut u) = (Vec::with_capacity(count * HEAD), Vec::with_capacity(count * HEAD));
    for i in 0..count {
        let beta = tokens.beta[i];
        let mut w_i: [f64; HEAD] = std::array::from_fn(|c| beta * k[i][c] * gk[i * HEAD + c].exp2());
        let mut u_i: [f64; HEAD] = std::array::from_fn(|c| beta * tokens.v[i * HEAD + c]);
        // beta k_i times the decays behind row j.
        let mut decayed: [f64; HEAD] = std::array::from_fn(|c| beta * k[i][c] * decays[i][c]);
        for j in (0..i).rev() {
            let l: f64 = decayed.iter().zip(&k[j]).map(|(x, k)| x * k).sum();
            decayed.iter_mut().zip(&decays[j]).for_each(|(x, decay)| *x *= decay);
            subtract(&mut w_i, l, &w[j * HEAD..(j + 1) * HEAD]);
            subtract(&mut u_i, l, &u[j * HEAD..(j + 1) * HEAD]);
        }
        w.extend(w_i);
        u.extend(u_i);
    }
    Prepared { kg, w, u, gk }
}

fn rows(x: &[f64]) -> &[[f64; HEAD]] {
    x.as_chunks().0
}

fn subtract(to: &mut [f64; HEAD], factor: f64, row: &[f64]) {
    to.iter_mut().zip(row).for_each(|(to, x)| *to -= factor * x);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::relative_error;
    use crate::chunk;
    use crate::forward::{Activated, Packed};
    use crate::rng::Rng;

    #[test]
    fn equals_the_chunked_forward() {
        let mut rng = Rng::new(5);
        let rows = 37;
        let mut k = rng.normals(rows * HEAD, 1.0);
        k.chunks_exact_mut(HEAD).for_each(|k| crate::norm::l2_normalise(k, 1.0));
        let tokens = Tokens {
            k,
            v: rng.normals(rows * HEAD, 1.0),
            beta: (0..rows).map(|_| rng.uniform()).collect(),
            g: (0..rows * HEAD).map(|_| -rng.uniform() * 2.0).collect(),
        };
        let packed = Packed { cu_seqlens: &[0, rows], heads: 1, value_heads: 1, keys: HEAD, values: HEAD };
        let activated = Activated {
            q: tokens.k.clone(),
            k: tokens.k.clone(),
            v: tokens.v.clone(),
            log_decay: tokens.g.iter().map(|g| g * std::f64::consts::LN_2).collect(),
            beta: tokens.beta.clone(),
        };
        let (want, got) = (chunk::prepare(&packed, &activated), prepare(&tokens));
        for (want, got) in [(&want.kg, &got.kg), (&want.w, &got.w), (&want.u, &got.u), (&want.gk, &got.gk)] {
            assert!(relative_error(want, got) < 1e-12);
        }
    }
}
