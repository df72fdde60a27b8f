//! The reference of a kernel test: contract-mode values of every live request and head, and how far a kernel may be off.
//!
//! ```text
//! kg    the key bit for bit, but where the float64 value lies next to a rounding tie: there either neighbour; the raw gate bit
//!       for bit
//! corr  against float64 on the activations that the kernel took (below);   right versions: Emulate on the same activations,
//!       float64 one unit of the last fp32 place larger, float64 with every log decay and every decay one such unit stronger
//! out   as corr, before rounding to bf16;   right versions: Emulate, and q on the other side of ties
//! conv  bit for bit, the whole pool
//! ```
//! Which way a kernel's activations fell at a tie decides u by more than its arithmetic does: a value of v moves its row of u by
//! half a unit of the last place of bf16. So the reference takes the kernel's own keys, which its records hold, and per row of the
//! state the neighbours of v that the kernel's u is nearest to. Each head of each request has a budget of its own. A token's beta
//! and the norm of its key are each one number for all its u, and so is the strength of a head's gate; decays near 1 may all be off the
//! same way. The emulation may have hit them by luck: hence the other versions of u.
//!
//! The contract's acceptance bounds ([`CORR_BOUND`], [`OUT_ULPS`]) hold for typical inputs; budgets are tighter there, and they
//! stay right for inputs that are not typical.

use super::HEAD;
use super::head::{self, Arithmetic};
use super::problem::{Problem, Request};
use super::run::{activations, roll};
use super::validate::{self, Refusal};
use crate::Mode;
use crate::budget::{Budget, FLOOR, Judgement, Stored};
use crate::floats::Floats;
use crate::records::Drafts;
use crate::round::widen;
use half::bf16;

/// Largest error of u, relative to the largest u of the head, that the contract accepts for typical inputs.
pub const CORR_BOUND: f64 = 2e-5;
/// Largest error of `out` that the contract accepts for typical inputs, in units of the last bf16 place of the row's largest value.
pub const OUT_ULPS: f64 = 1.0;

/// Ties in one row of v that are tried both ways; more than one a row is rare.
const TRIED_TIES: usize = 4;

/// What a kernel gave.
#[derive(Clone, Copy, Debug)]
pub struct Got<'a> {
    /// `[total, heads, V]`.
    pub out: &'a [bf16],
    /// Distance between rows of `out`.
    pub out_pitch: usize,
    /// `[rows, heads, window, V]`.
    pub corr: &'a [f32],
    /// `[rows, heads, window, 2, K]`.
    pub kg: &'a [bf16],
}

/// How a head of a request fared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadJudgement {
    /// The request.
    pub b: usize,
    /// The head.
    pub head: usize,
    /// `out` against its budget.
    pub out: Judgement,
    /// `corr` against its budget.
    pub corr: Judgement,
    /// Largest error of `out` in the unit of [`OUT_ULPS`]. That of `corr` in the unit of [`CORR_BOUND`] is `corr.error.max`.
    pub out_ulps: f64,
    /// Elements of `kg` that are wrong.
    pub wrong_kg: usize,
    /// Keys and values that lie on the other side of a tie than the reference has them.
    pub other_ties: usize,
}

impl HeadJudgement {
    /// True when all outputs are right.
    pub fn passes(&self) -> bool {
        self.out.passes && self.corr.passes && self.wrong_kg == 0
    }
}

/// References of all live requests of one call.
#[derive(Clone, Debug)]
pub struct Checked<'a> {
    problem: Problem<'a>,
    requests: Vec<Live>,
    /// The convolution pool behind the call, with what lies between its slots; empty without a convolution.
    pub conv: Vec<bf16>,
}

/// A live request, and its activations `[len, 3, heads, K]` on both sides of ties.
#[derive(Clone, Debug)]
struct Live {
    request: Request,
    slot: usize,
    contract: Vec<f64>,
    other_ties: Vec<f64>,
}

/// Convolves every live request; the rest is done where a kernel's results are judged.
///
/// # Errors
/// As [`super::run()`].
pub fn reference<'a>(problem: &Problem<'a>) -> Result<Checked<'a>, Refusal> {
    let p = problem;
    validate::inputs(p)?;
    let mut conv = p.conv.map_or_else(Vec::new, |conv| conv.pool.to_vec());
    let live = p.live_requests().map(|(request, slot)| {
        roll(p, &mut conv, &request, slot);
        let of = |mode| activations(p, &request, slot, mode);
        Live { request, slot, contract: of(Mode::Contract), other_ties: of(Mode::ContractOtherTies) }
    });
    let requests = live.collect();
    Ok(Checked { problem: *problem, requests, conv })
}

impl Checked<'_> {
    /// Judges a kernel's results, every head of every live request.
    ///
    /// # Panics
    /// If a buffer is shorter than the call's tensor.
    pub fn judge(&self, got: &Got<'_>) -> Vec<HeadJudgement> {
        let heads = |live| (0..self.problem.heads).map(move |head| self.judge_head(live, head, got));
        self.requests.iter().flat_map(heads).collect()
    }

    /// True when the pool that a kernel rolled has the right bits everywhere.
    pub fn same_conv(&self, conv: &[bf16]) -> bool {
        let bits = |x: &[bf16]| x.iter().map(|x| x.to_bits()).collect::<Vec<u16>>();
        bits(&self.conv) == bits(conv)
    }

    fn judge_head(&self, live: &Live, head: usize, got: &Got<'_>) -> HeadJudgement {
        let (p, request) = (&self.problem, &live.request);
        let mut taken = head::drafts(p, request, head, &live.contract);
        let other = head::drafts(p, request, head, &live.other_ties);
        let record = p.record(request.b, head, 0);
        let corr = Floats::F32(got.corr).widened(record, request.len * HEAD);
        let kg = &got.kg[2 * record..][..2 * request.len * HEAD];
        let run = |drafts: &Drafts, arithmetic| head::run(p, live.slot, head, drafts, arithmetic);
        let (flipped_keys, wrong_kg) = take_keys(&mut taken, &other, kg, p.conv.is_some());
        let flipped_values = take_values(&mut taken, &other, &corr, |drafts| run(drafts, Arithmetic::Golden).1.corr);
        let (o, records) = run(&taken, Arithmetic::Golden);
        let (o_emulated, emulated) = run(&taken, Arithmetic::Emulated);
        let scaled: Vec<f64> = records.corr.iter().map(|u| u * (1.0 + FLOOR)).collect();
        let (_, stronger) = run(&taken, Arithmetic::StrongerDecay);
        let (o_other, _) = run(&Drafts { q: other.q, ..taken }, Arithmetic::Golden);
        let rows = (request.begin..request.begin + request.len).map(|row| row * got.out_pitch + head * HEAD);
        let out: Vec<f64> = rows.flat_map(|begin| Floats::Bf16(got.out).widened(begin, HEAD)).collect();
        HeadJudgement {
            b: request.b,
            head,
            out: Budget::derive(&o, &[&o_emulated, &o_other], Stored::Bf16).judge(&o, &out),
            corr: Budget::derive(&records.corr, &[&emulated.corr, &scaled, &stronger.corr], Stored::F32)
                .judge(&records.corr, &corr),
            out_ulps: ulps(&o, &out),
            wrong_kg,
            other_ties: flipped_keys + flipped_values,
        }
    }
}

/// Takes the kernel's keys where they are right; how many lie on the other side of a tie, and how many elements are wrong. Keys
/// that are copies have the bits of the input; those of a convolution may have zeros of either sign.
fn take_keys(taken: &mut Drafts, other: &Drafts, kg: &[bf16], convolved: bool) -> (usize, usize) {
    let (mut flipped, mut wrong) = (0, 0);
    for (i, record) in kg.chunks_exact(2 * HEAD).enumerate() {
        for (c, (&k, &g)) in record[..HEAD].iter().zip(&record[HEAD..]).enumerate() {
            let (at, k) = (i * HEAD + c, f64::from(widen(k)));
            let same = |x: f64, y: f64| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
            let right = |x: f64| same(k, x) || convolved && k == x;
            wrong += usize::from(!same(f64::from(widen(g)), taken.raw_gate[at]));
            if !right(taken.k[at]) {
                let tie = right(other.k[at]);
                flipped += usize::from(tie);
                wrong += usize::from(!tie);
                taken.k[at] = if tie { k } else { taken.k[at] };
            }
        }
    }
    (flipped, wrong)
}

/// Takes, per row of the state, the neighbours of v at ties that `corr` is nearest to; how many differ from the reference. Rows of
/// u depend on their own values alone, so that one run tries the same ties of every row.
fn take_values(taken: &mut Drafts, other: &Drafts, corr: &[f64], corrections: impl Fn(&Drafts) -> Vec<f64>) -> usize {
    let len = taken.raw_beta.len();
    let ties = |c: usize| (0..len).map(move |t| t * HEAD + c).filter(|&i| taken.v[i].to_bits() != other.v[i].to_bits());
    let ties: Vec<Vec<usize>> = (0..HEAD).map(|c| ties(c).take(TRIED_TIES).collect()).collect();
    let most = ties.iter().map(Vec::len).max().unwrap_or(0);
    let mut best = vec![(f64::INFINITY, 0usize); HEAD];
    let flip = |v: &mut [f64], c: usize, choice: usize| {
        for (_, &i) in ties[c].iter().enumerate().filter(|(j, _)| choice >> j & 1 == 1) {
            v[i] = other.v[i];
        }
    };
    if most == 0 {
        return 0;
    }
    for choice in 0..1 << most {
        let mut tried = taken.clone();
        (0..HEAD).for_each(|c| flip(&mut tried.v, c, choice));
        let u = corrections(&tried);
        for (c, best) in best.iter_mut().enumerate() {
            let off = (0..len).map(|t| (u[t * HEAD + c] - corr[t * HEAD + c]).abs()).fold(0.0, f64::max);
            if off < best.0 {
                *best = (off, choice);
            }
        }
    }
    let mut flipped = 0;
    for (c, (_, choice)) in best.into_iter().enumerate() {
        flip(&mut taken.v, c, choice);
        flipped += (choice & ((1 << ties[c].len()) - 1)).count_ones() as usize;
    }
    flipped
}

/// Largest error of a row, in units of the last bf16 place of the row's largest value; the largest of all rows.
fn ulps(reference: &[f64], got: &[f64]) -> f64 {
    let rows = reference.chunks_exact(HEAD).zip(got.chunks_exact(HEAD));
    let row = |(reference, got): (&[f64], &[f64])| {
        let largest = reference.iter().fold(0.0f64, |max, x| max.max(x.abs()));
        let unit = 2f64.powi(largest.max(f64::MIN_POSITIVE).log2().floor() as i32 - 7);
        let error = |(x, y): (&f64, &f64)| if x == y { 0.0 } else { (x - y).abs() / unit };
        reference.iter().zip(got).map(error).fold(0.0, |a: f64, b| if b > a || b.is_nan() { b } else { a })
    };
    rows.map(row).fold(0.0, |a: f64, b| if b > a || b.is_nan() { b } else { a })
}
