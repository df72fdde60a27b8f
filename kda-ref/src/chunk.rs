//! Chunked KDA round the inter-chunk recurrence: preparation and output, in float64.
//!
//! Per chunk of 64 rows, with G the inclusive cumulative log decay of the chunk in log2 units and q already scaled:
//! ```text
//! A[i,j]  = sum_k q_i k_j 2^(G_i - G_j)              i >= j
//! L[i,j]  = beta_i sum_k k_i k_j 2^(G_i - G_j)       i >  j
//! M       = (I + L)^-1
//! w = M (beta k 2^G);   u = M (beta v);   kg = k 2^(G_last - G)
//! o = (q 2^G) h[chunk] + A v_new
//! ```
//! Source: the WY form of the delta rule as in `naive_chunk_kda` of fla-core (MIT). Exponents are differences with
//! G_i <= G_j, so no factor exceeds 1 and any gate is safe.

use crate::Mode;
use crate::delta_h::CHUNK;
use crate::delta_h::plain::{self, DeltaH, DeltaHOutputs};
use crate::floats::{Floats, Rows};
use crate::forward::{Activated, Outcome, Packed, States};
use crate::layout::{StateOrder, chunks, sequences};

/// What the inter-chunk recurrence and the output take. Row of token t and value head hv: `t * HV + hv`.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    /// Chunk-local inclusive cumulative log decay in log2 units, `[T, HV, K]`.
    pub gk: Vec<f64>,
    /// `[T, HV, K]`.
    pub w: Vec<f64>,
    /// `[T, HV, V]`.
    pub u: Vec<f64>,
    /// `[T, HV, K]`.
    pub kg: Vec<f64>,
    /// Attention inside the chunk `[T, HV, 64]`; column j is row j of the chunk, columns past the row itself are 0.
    pub a: Vec<f64>,
}

/// `sum_k x_i[k] y_j[k] 2^(G_i[k] - G_j[k])`, the exponent at most 0.
fn decayed_dot(x: &[f64], y: &[f64], g_i: &[f64], g_j: &[f64]) -> f64 {
    let terms = x.iter().zip(y).zip(g_i.iter().zip(g_j));
    terms.map(|((x, y), (gi, gj))| x * y * if gi < gj { (gi - gj).exp2() } else { 1.0 }).sum()
}

/// Prepares every chunk of every sequence and head.
///
/// # Panics
/// If an input is shorter than the sizes say.
pub fn prepare(packed: &Packed<'_>, inputs: &Activated) -> Prepared {
    let (keys, values, hv) = (packed.keys, packed.values, packed.value_heads);
    let rows = packed.tokens() * hv;
    let mut out = Prepared {
        gk: vec![0.0; rows * keys],
        w: vec![0.0; rows * keys],
        u: vec![0.0; rows * values],
        kg: vec![0.0; rows * keys],
        a: vec![0.0; rows * CHUNK],
    };
    for (begin, end) in sequences(packed.cu_seqlens).flat_map(|(begin, end)| chunks(begin, end, CHUNK)) {
        for value_head in 0..hv {
            let rows: Vec<usize> = (begin..end).map(|token| token * hv + value_head).collect();
            prepare_chunk(keys, values, &rows, inputs, &mut out);
        }
    }
    out
}

fn prepare_chunk(keys: usize, values: usize, rows: &[usize], inputs: &Activated, out: &mut Prepared) {
    let key_range = |row: usize| row * keys..(row + 1) * keys;
    let mut running = vec![0.0; keys];
    for &row in rows {
        for (g, sum) in inputs.log_decay[key_range(row)].iter().zip(&mut running) {
            *sum += g * std::f64::consts::LOG2_E;
        }
        out.gk[key_range(row)].copy_from_slice(&running);
    }
    // Forward substitution: row i of M X is X_i - sum_{j<i} L_ij (M X)_j, for X = beta k 2^G and X = beta v.
    for (i, &row) in rows.iter().enumerate() {
        let (q, k) = (&inputs.q[key_range(row)], &inputs.k[key_range(row)]);
        let beta = inputs.beta[row];
        let g = out.gk[key_range(row)].to_vec();
        let mut w: Vec<f64> = k.iter().zip(&g).map(|(k, g)| beta * k * g.exp2()).collect();
        let mut u: Vec<f64> = inputs.v[row * values..(row + 1) * values].iter().map(|v| beta * v).collect();
        for (j, &earlier) in rows[..=i].iter().enumerate() {
            let (k_j, g_j) = (&inputs.k[key_range(earlier)], &out.gk[key_range(earlier)]);
            out.a[row * CHUNK + j] = decayed_dot(q, k_j, &g, g_j);
            if j < i {
                let l = beta * decayed_dot(k, k_j, &g, g_j);
                w.iter_mut().zip(&out.w[key_range(earlier)]).for_each(|(w, earlier)| *w -= l * earlier);
                let u_j = &out.u[earlier * values..(earlier + 1) * values];
                u.iter_mut().zip(u_j).for_each(|(u, earlier)| *u -= l * earlier);
            }
        }
        out.w[key_range(row)].copy_from_slice(&w);
        out.u[row * values..(row + 1) * values].copy_from_slice(&u);
        for (c, kg) in out.kg[key_range(row)].iter_mut().enumerate() {
            let difference = running[c] - g[c];
            *kg = k[c] * if difference < 0.0 { difference.exp2() } else { 1.0 };
        }
    }
}

/// The output of every token from the state before its chunk (K-first `h`) and the corrected values.
///
/// # Panics
/// If an input is shorter than the sizes say.
pub fn output(packed: &Packed<'_>, q: &[f64], prepared: &Prepared, recurrence: &DeltaHOutputs) -> Vec<f64> {
    let (keys, values, hv, size) = (packed.keys, packed.values, packed.value_heads, packed.state_len());
    let mut o = vec![0.0; packed.tokens() * hv * values];
    let all_chunks = sequences(packed.cu_seqlens).flat_map(|(begin, end)| chunks(begin, end, CHUNK));
    for (c, (begin, end)) in all_chunks.enumerate() {
        for value_head in 0..hv {
            let h = &recurrence.h[(c * hv + value_head) * size..][..size];
            for token in begin..end {
                let row = token * hv + value_head;
                let o = &mut o[row * values..(row + 1) * values];
                for (key, h) in h.chunks_exact(values).enumerate() {
                    let q = q[row * keys + key] * prepared.gk[row * keys + key].exp2();
                    o.iter_mut().zip(h).for_each(|(o, h)| *o += q * h);
                }
                for earlier in begin..=token {
                    let a = prepared.a[row * CHUNK + earlier - begin];
                    let v_new = &recurrence.v_new[(earlier * hv + value_head) * values..][..values];
                    o.iter_mut().zip(v_new).for_each(|(o, v)| *o += a * v);
                }
            }
        }
    }
    o
}

/// The whole chunked forward in float64; equals [`crate::forward::recurrence`] but for float64 rounding.
///
/// # Panics
/// If an input is shorter than the sizes say.
pub fn forward(packed: &Packed<'_>, inputs: &Activated, states: &States<'_>) -> Outcome {
    let prepared = prepare(packed, inputs);
    let problem = DeltaH {
        packed: *packed,
        kg: Rows::packed(Floats::F64(&prepared.kg), packed.keys),
        w: Rows::packed(Floats::F64(&prepared.w), packed.keys),
        u: Rows::packed(Floats::F64(&prepared.u), packed.values),
        gk: Rows::packed(Floats::F64(&prepared.gk), packed.keys),
        states: *states,
        h_order: StateOrder::KFirst,
    };
    let recurrence = plain::run(&problem, Mode::Exact);
    let o = output(packed, &inputs.q, &prepared, &recurrence);
    Outcome { o, final_state: recurrence.final_state, states: Vec::new() }
}
