//! The verify with compact records as a tensor-core kernel runs it, for one request and head, and its fp32 commit.
//!
//! ```text
//! p_t = e^{cum_t} kn_t;  r_t = e^{cum_t} qn_t          each split into bf16 hi + lo, and so is an fp32 state
//! P_t = S p_t;  R_t = S r_t                            as tensor cores add; low times low is left out
//! c_ti = <k_t, w_i>, d_ti = <q_t, w_i>                 w_i = kn_i, multiplied by e^{g_t} at every later token t
//! or c_ti = <e^{cum_t} k_t, e^{-cum_i} k_i>, d_ti likewise, as three products of the bf16 hi + lo of both factors; where the gate
//! has no bound e^{cum_t - cum_3} and e^{cum_3 - cum_i} across the end of four tokens, and the first form within four
//! u_t = beta_t (v_t - P_t - sum_{i<t} c_ti u_i);  o_t = R_t + sum_{i<=t} d_ti u_i
//! ```
//! Source: the operator's contract.

use super::{lanes, scalar};
use crate::gate::Gate;
use crate::records::{Drafts, HeadGate, Records};
use crate::round::to_bf16_f32;
use crate::tensor_core;

/// Key channels of a head.
const KEYS: usize = 128;

fn head(x: &[f64], row: usize) -> [f32; KEYS] {
    std::array::from_fn(|c| x[row * KEYS + c] as f32)
}

fn dot(a: &[f32; KEYS], b: &[f32; KEYS]) -> f32 {
    a.iter().zip(b).fold(0.0f32, |sum, (a, b)| a.mul_add(*b, sum))
}

/// How keys of two tokens meet, and how the triangular system of a window is solved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Couplings {
    /// In fp32: keys decay from token to token, which is right for any gate; forward substitution.
    Scalar,
    /// On tensor cores, where keys have their norms late: the inverse of the system, in fp32, times its right side in three
    /// products of tf32.
    Split,
}

impl Couplings {
    /// A vector divided by its norm, times a scale; or the vector and what its products are multiplied by.
    fn normed(self, mut x: [f32; KEYS], scale: f32) -> ([f32; KEYS], f32) {
        match self {
            Couplings::Scalar => {
                scalar::l2_normalise(&mut x, scale);
                (x, 1.0)
            }
            Couplings::Split => (x, scalar::inverse_norm(&x) * scale),
        }
    }
}

/// Tokens that meet in fp32 where the gate has no bound.
const FOUR: usize = 4;

/// A token that is carried on: its key, the cumulative gate behind it, the key decayed to the present.
struct Carried {
    k: [f32; KEYS],
    cum: [f32; KEYS],
    w: [f32; KEYS],
}

/// `<x e^{cum}, k_i e^{-cum_i}>` of token t and a token that is not behind it.
fn couple(
    couplings: Couplings,
    bounded: bool,
    (t, x, cum): (usize, &[f32; KEYS], &[f32; KEYS]),
    of: &[Carried],
    i: usize,
) -> f32 {
    let token = &of[i];
    let scaled = |x: &[f32; KEYS], by: &dyn Fn(usize) -> f32| std::array::from_fn(|c| x[c] * scalar::exp(by(c)));
    // The end of the four of token i.
    let pivot = |c: usize| of[i / FOUR * FOUR + FOUR - 1].cum[c];
    match couplings {
        Couplings::Scalar => dot(x, &token.w),
        Couplings::Split if bounded => split_dot(&scaled(x, &|c| cum[c]), &scaled(&token.k, &|c| -token.cum[c])),
        Couplings::Split if t / FOUR == i / FOUR => dot(x, &token.w),
        Couplings::Split => {
            split_dot(&scaled(x, &|c| cum[c] - pivot(c)), &scaled(&token.k, &|c| pivot(c) - token.cum[c]))
        }
    }
}

/// hi·lo + lo·hi + hi·hi, as tensor cores add.
fn split_dot(a: &[f32; KEYS], b: &[f32; KEYS]) -> f32 {
    let [(a_hi, a_lo), (b_hi, b_lo)] = [a, b].map(parts);
    tensor_core::dot(&[a_hi.as_slice(), &a_lo, &a_hi].concat(), &[b_lo, b_hi.clone(), b_hi].concat())
}

fn log_decay(gate: &HeadGate<'_>, raw: &[f64]) -> [f32; KEYS] {
    std::array::from_fn(|c| scalar::log_decay(gate.gate, raw[c] as f32, gate.dt_bias[c] as f32, gate.a_log as f32))
}

/// A number as bf16 high and low parts, about 16 bits of mantissa together.
fn split(x: f32) -> (f64, f64) {
    let hi = to_bf16_f32(x);
    (f64::from(hi), f64::from(to_bf16_f32(x - hi)))
}

/// The high and the low parts of numbers.
fn parts(x: &[f32; KEYS]) -> (Vec<f64>, Vec<f64>) {
    x.iter().map(|&x| split(x)).unzip()
}

/// A state as operands of a tensor core: rows `[V, K]` of high parts, and of low ones where the state has any.
struct Operand {
    hi: Vec<f64>,
    lo: Option<Vec<f64>>,
}

impl Operand {
    /// Of a K-first state.
    fn new(state: &[f32], values: usize) -> Self {
        let at = |i: usize| state[i % KEYS * values + i / KEYS];
        let (hi, lo): (Vec<f64>, Vec<f64>) = (0..KEYS * values).map(|i| split(at(i))).unzip();
        Operand { hi, lo: lo.iter().any(|&x| x != 0.0).then_some(lo) }
    }

    /// `sum_k S[v, k] probe[k]` for all v: high with high, high with low and low with high, in one accumulator.
    fn project(&self, probe: &[f32; KEYS]) -> Vec<f32> {
        let (hi, lo) = parts(probe);
        let mut probes = [hi.as_slice(), &lo].concat();
        probes.extend(self.lo.iter().flat_map(|_| &hi));
        let rows = self.hi.chunks_exact(KEYS).enumerate();
        rows.map(|(v, row)| {
            let low = self.lo.as_ref().map_or(&[][..], |lo| &lo[v * KEYS..(v + 1) * KEYS]);
            tensor_core::dot(&[row, row, low].concat(), &probes)
        })
        .collect()
    }
}

/// Verifies the drafts; outputs `[T, V]` before rounding and the records, fp32 values in float64. `state` is K-first.
///
/// # Panics
/// If K is not 128 or a tensor is shorter than the sizes say.
pub fn verify(
    state: &[f32],
    drafts: &Drafts,
    gate: &HeadGate<'_>,
    scale: f32,
    couplings: Couplings,
) -> (Vec<f64>, Records) {
    assert_eq!(drafts.keys, KEYS, "the emulation is for heads of 128 key channels");
    let (values, tokens) = (drafts.values, drafts.raw_beta.len());
    let operand = Operand::new(state, values);
    let mut cum = [0.0f32; KEYS];
    let bounded = matches!(gate.gate, Gate::Bounded { .. });
    let mut carried: Vec<Carried> = Vec::new();
    let mut records = Records { keys: KEYS, values, corr: Vec::new(), kg: Vec::new() };
    let (mut window, mut norms) = (Window::default(), Vec::new());
    for t in 0..tokens {
        let raw = &drafts.raw_gate[t * KEYS..(t + 1) * KEYS];
        let g = log_decay(gate, raw);
        let ((q, rq), (k, rk)) =
            (couplings.normed(head(&drafts.q, t), scale), couplings.normed(head(&drafts.k, t), 1.0));
        records.kg.extend(drafts.k[t * KEYS..(t + 1) * KEYS].iter().chain(raw));
        for c in 0..KEYS {
            cum[c] += g[c];
            let decay = scalar::exp(g[c]);
            carried.iter_mut().for_each(|token| token.w[c] *= decay);
        }
        let decay = cum.map(scalar::exp);
        carried.push(Carried { k, cum, w: k });
        norms.push(rk);
        let coupled = |x: &[f32; KEYS], i: usize| norms[i] * couple(couplings, bounded, (t, x, &cum), &carried, i);
        let projected = operand.project(&std::array::from_fn(|c| decay[c] * k[c]));
        let v = drafts.v[t * values..(t + 1) * values].iter().map(|v| *v as f32);
        window.right.push(v.zip(projected).map(|(v, p)| v - rk * p).collect());
        let outputs = operand.project(&std::array::from_fn(|c| decay[c] * q[c]));
        window.outputs.push(outputs.into_iter().map(|r| rq * r).collect());
        window.c.push((0..t).map(|i| rk * coupled(&k, i)).collect());
        window.d.push((0..=t).map(|i| rq * coupled(&q, i)).collect());
        window.beta.push(scalar::sigmoid(drafts.raw_beta[t] as f32));
    }
    let (u, o) = match couplings {
        Couplings::Scalar => window.substitute(),
        Couplings::Split => window.invert(values),
    };
    let wide = |rows: Vec<Vec<f32>>| rows.into_iter().flatten().map(f64::from).collect();
    records.corr = wide(u);
    (wide(o), records)
}

/// What is known of the tokens of a window ahead of its corrections u: rows of `v - P` and of R, `[V]` each, c, d and beta.
#[derive(Default)]
struct Window {
    right: Vec<Vec<f32>>,
    outputs: Vec<Vec<f32>>,
    c: Vec<Vec<f32>>,
    d: Vec<Vec<f32>>,
    beta: Vec<f32>,
}

impl Window {
    /// u and o, token after token.
    fn substitute(self) -> (Vec<Vec<f32>>, Vec<Vec<f32>>) {
        let (mut u, mut o): (Vec<Vec<f32>>, Vec<Vec<f32>>) = (Vec::new(), self.outputs);
        for (t, mut row) in self.right.into_iter().enumerate() {
            for (c, u) in self.c[t].iter().zip(&u) {
                lanes::fma(&mut row, -c, u);
            }
            row.iter_mut().for_each(|x| *x *= self.beta[t]);
            u.push(row);
            for (d, u) in self.d[t].iter().zip(&u) {
                lanes::fma(&mut o[t], *d, u);
            }
        }
        (u, o)
    }

    /// The same as products: `U = T (beta (v - P))` with `T = (I + beta C)^-1`, then `O = R + D U`.
    fn invert(self, values: usize) -> (Vec<Vec<f32>>, Vec<Vec<f32>>) {
        let tokens = self.beta.len();
        let mut inverse: Vec<Vec<f32>> =
            (0..tokens).map(|t| (0..tokens).map(|i| f32::from(u8::from(i == t))).collect()).collect();
        for i in 0..tokens {
            let row = inverse[i].clone();
            for (t, own) in inverse.iter_mut().enumerate().skip(i + 1) {
                lanes::fma(own, -(self.beta[t] * self.c[t][i]), &row);
            }
        }
        let scaled = |(row, beta): (&Vec<f32>, &f32)| row.iter().map(|x| x * beta).collect();
        let right: Vec<Vec<f32>> = self.right.iter().zip(&self.beta).map(scaled).collect();
        let product = |of: &[Vec<f32>], by: &[f32], v: usize| {
            let column: Vec<f32> = of.iter().take(by.len()).map(|row| row[v]).collect();
            tf32_dot(&column, by)
        };
        let u: Vec<Vec<f32>> = inverse.iter().map(|by| (0..values).map(|v| product(&right, by, v)).collect()).collect();
        let o =
            self.outputs.iter().zip(&self.d).map(|(r, by)| (0..values).map(|v| r[v] + product(&u, by, v)).collect());
        let o = o.collect();
        (u, o)
    }
}

/// low·high + high·low + high·high of tf32 halves, as tensor cores add.
fn tf32_dot(a: &[f32], b: &[f32]) -> f32 {
    let halves = |x: &[f32]| -> (Vec<f64>, Vec<f64>) {
        let split = |x: &f32| (to_tf32(*x), to_tf32(x - to_tf32(*x)));
        x.iter().map(split).map(|(high, low)| (f64::from(high), f64::from(low))).unzip()
    };
    let ((a_high, a_low), (b_high, b_low)) = (halves(a), halves(b));
    // Each product is an instruction of its own: they add up in f32.
    let terms = [(&a_low, &b_high), (&a_high, &b_low), (&a_high, &b_high)];
    terms.iter().fold(0.0, |sum, (a, b)| {
        let products: f64 = a.iter().zip(b.iter()).map(|(x, y)| x * y).sum();
        tensor_core::toward_zero(f64::from(sum) + products)
    })
}

/// Rounded to tf32, ties away from zero.
fn to_tf32(x: f32) -> f32 {
    f32::from_bits((x.to_bits() + 0x1000) & !0x1fff)
}

/// Normalised key, log decay and correction of record `i`.
fn record(records: &Records, i: usize, gate: &HeadGate<'_>) -> ([f32; KEYS], [f32; KEYS], Vec<f32>) {
    assert_eq!(records.keys, KEYS, "the emulation is for heads of 128 key channels");
    let mut kn = head(&records.kg, 2 * i);
    scalar::l2_normalise(&mut kn, 1.0);
    let g = log_decay(gate, &records.kg[(2 * i + 1) * KEYS..2 * (i + 1) * KEYS]);
    (kn, g, records.corr[i * records.values..(i + 1) * records.values].iter().map(|&u| u as f32).collect())
}

/// Applies the first `n` records to a K-first state in fp32, token after token. The store's rounding is the caller's.
///
/// # Panics
/// If K is not 128 or there are fewer than `n` records.
pub fn commit(state: &mut [f32], records: &Records, n: usize, gate: &HeadGate<'_>) {
    for i in 0..n {
        let (kn, g, u) = record(records, i, gate);
        for ((row, k), g) in state.chunks_exact_mut(records.values).zip(kn).zip(g) {
            let decay = scalar::exp(g);
            row.iter_mut().for_each(|s| *s *= decay);
            lanes::fma(row, k, &u);
        }
    }
}

/// [`commit`] with keys decayed by running products from the last token: `S <- S * product`, then `S <- fma(u, w, S)` a record.
///
/// # Panics
/// As [`commit`].
pub fn commit_reverse(state: &mut [f32], records: &Records, n: usize, gate: &HeadGate<'_>) {
    let mut suffix = [1.0f32; KEYS];
    let mut carried: Vec<([f32; KEYS], Vec<f32>)> = Vec::new();
    for i in (0..n).rev() {
        let (kn, g, u) = record(records, i, gate);
        carried.push((std::array::from_fn(|c| kn[c] * suffix[c]), u));
        suffix = std::array::from_fn(|c| suffix[c] * scalar::exp(g[c]));
    }
    for (c, row) in state.chunks_exact_mut(records.values).enumerate() {
        row.iter_mut().for_each(|s| *s *= suffix[c]);
        carried.iter().rev().for_each(|(w, u)| lanes::fma(row, w[c], u));
    }
}
