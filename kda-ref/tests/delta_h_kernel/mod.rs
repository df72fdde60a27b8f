//! A `delta_h` "kernel" written apart from the library, and ways to break it: fp32, sums by halves of K in plain order, the
//! standard library's exponential.

use half::bf16;
use kda_ref::budget::Stored;
use kda_ref::delta_h::{CHUNK, Gate, HEAD, Problem, STATE};
use kda_ref::floats::{FloatVec, Floats};

/// What a wrong kernel does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// None either: sums of 8 products at a time are rounded toward zero, as older tensor cores do.
    TowardZero,
    DecayAfterTheUpdate,
    HAfterTheDecay,
    HTruncated,
    FinalTruncated,
    TailRowsLeak,
    TailRowsWritten,
    HeadOfHWrong,
    HOfEveryChunk,
    StateOrderSwapped,
    HOrderSwapped,
    VNewGated,
    UpdateUngated,
    VNewTruncated,
    StateKeptInBf16,
    LastRowOfAFullChunk,
    DecayRowOfH,
    NeighbouringKeyHead,
    HasInitialIgnored,
    DeadSlotsClamped,
    EmptySequenceSkipped,
    BoundariesTrusted,
    InitialStateIgnored,
}

/// Everything that the kernel stores into.
#[derive(Clone, Debug)]
pub struct Buffers {
    pub h: Vec<bf16>,
    pub v_new: Vec<bf16>,
    pub final_state: FloatVec,
}

/// The bits that buffers hold ahead of a call.
pub const CANARY: u16 = 0x5a5a;

impl Buffers {
    /// Canaries, and in place the pool of initial states.
    pub fn new(p: &Problem<'_>) -> Buffers {
        let canary = bf16::from_bits(CANARY);
        let [h, v_new] = [
            p.h_buffer.map_or(0, |(capacity, stride)| capacity * stride),
            p.v_new_stride.map_or(0, |stride| p.rows * stride),
        ];
        let narrow = p.stored == Stored::Bf16;
        let final_state = match (p.final_state, p.initial) {
            (Some(target), Some(initial)) if target.in_place => match initial.pool {
                Floats::F32(x) => FloatVec::F32(x.to_vec()),
                Floats::Bf16(x) => FloatVec::Bf16(x.to_vec()),
                Floats::F64(_) => panic!("a pool of f64"),
            },
            (Some(target), _) => FloatVec::filled(narrow, target.count * target.slot_stride, canary.to_f32()),
            (None, _) => FloatVec::filled(narrow, 0, 0.0),
        };
        Buffers { h: vec![canary; h], v_new: vec![canary; v_new], final_state }
    }
}

fn rounded(x: f32) -> f32 {
    bf16::from_f32(x).to_f32()
}

/// The f32 next to `x` that is not farther from zero.
fn toward_zero(x: f64) -> f32 {
    let near = x as f32;
    if f64::from(near).abs() > x.abs() { f32::from_bits(near.to_bits() - 1) } else { near }
}

fn truncated(x: f32) -> bf16 {
    bf16::from_bits((x.to_bits() >> 16) as u16)
}

fn put(pool: &mut FloatVec, at: usize, x: f32, truncate: bool) {
    match pool {
        FloatVec::F32(pool) => pool[at] = x,
        FloatVec::Bf16(pool) => pool[at] = if truncate { truncated(x) } else { bf16::from_f32(x) },
    }
}

/// `(first row, end row)` of the sequences that are processed.
fn sequences(p: &Problem<'_>, fault: Fault) -> Vec<(usize, usize)> {
    let (mut out, mut h) = (Vec::new(), 0);
    for pair in p.cu_seqlens.windows(2) {
        let (begin, end) = (pair[0], pair[1]);
        let wrong = begin < 0 || end < begin || end > p.rows as i64;
        let chunks = if wrong { 0 } else { ((end - begin) as usize).div_ceil(CHUNK) };
        let past = p.h_buffer.is_some_and(|(capacity, _)| h + chunks.div_ceil(p.h_every) > capacity);
        if wrong || past {
            match fault {
                Fault::BoundariesTrusted => out.push((0, 0)),
                _ => break,
            }
            continue;
        }
        h += chunks.div_ceil(p.h_every);
        out.push((begin as usize, end as usize));
    }
    out
}

/// Runs the kernel on canaries.
pub fn kernel(p: &Problem<'_>, fault: Fault) -> Buffers {
    let mut out = Buffers::new(p);
    let (mut first_h, mut first_chunk) = (0, 0);
    for (n, (begin, end)) in sequences(p, fault).into_iter().enumerate() {
        let chunks = (end - begin).div_ceil(CHUNK);
        for head in 0..p.hv {
            let mut s = initial(p, n, head, fault);
            for c in 0..chunks {
                let rows = (begin + c * CHUNK, (begin + (c + 1) * CHUNK).min(end));
                step(p, &mut out, &mut s, (c, first_h, first_chunk + c), rows, head, fault);
            }
            let skipped = fault == Fault::EmptySequenceSkipped && chunks == 0;
            if let (Some(slot), false) = (slot(p, n, false, fault), skipped) {
                for (i, s) in s.iter().enumerate() {
                    let order = if fault == Fault::StateOrderSwapped { !k_first(p.order) } else { k_first(p.order) };
                    let at = if order { i } else { i % HEAD * HEAD + i / HEAD };
                    put(&mut out.final_state, p.final_at(slot, head) + at, *s, fault == Fault::FinalTruncated);
                }
            }
        }
        let stored = if fault == Fault::HOfEveryChunk { chunks } else { chunks.div_ceil(p.h_every) };
        (first_h, first_chunk) = (first_h + stored, first_chunk + chunks);
    }
    out
}

fn k_first(order: kda_ref::layout::StateOrder) -> bool {
    order == kda_ref::layout::StateOrder::KFirst
}

fn slot(p: &Problem<'_>, n: usize, read: bool, fault: Fault) -> Option<usize> {
    let (slots, count, has) = if read {
        let initial = p.initial?;
        (initial.slots, initial.count, initial.has.is_none_or(|has| has[n] != 0))
    } else {
        let target = p.final_state?;
        (target.slots, target.count, true)
    };
    if !has && fault != Fault::HasInitialIgnored {
        return None;
    }
    let Some(slots) = slots else { return Some(n) };
    let (index, last) = (i64::from(slots[n]), count as i64 - 1);
    let live = index > i64::from(p.null) && index <= last;
    match fault {
        Fault::DeadSlotsClamped => Some(index.clamp(0, last) as usize),
        _ => live.then_some(index as usize),
    }
}

fn initial(p: &Problem<'_>, n: usize, head: usize, fault: Fault) -> Vec<f32> {
    let (Some(slot), Some(initial)) = (slot(p, n, true, fault), p.initial) else { return vec![0.0; STATE] };
    if fault == Fault::InitialStateIgnored {
        return vec![0.0; STATE];
    }
    let base = slot * initial.slot_stride + head * STATE;
    let at = |i: usize| if k_first(p.order) { i } else { i % HEAD * HEAD + i / HEAD };
    (0..STATE).map(|i| initial.pool.get_f32(base + at(i))).collect()
}

/// One chunk: `c` of its sequence, h index of the sequence, index in the call.
fn step(
    p: &Problem<'_>,
    out: &mut Buffers,
    s: &mut [f32],
    (c, first_h, number): (usize, usize, usize),
    (begin, end): (usize, usize),
    head: usize,
    fault: Fault,
) {
    let at =
        |rows: &kda_ref::floats::Rows<'_>, row: usize, column: usize| rows.data.get_f32(row * rows.stride + column);
    let last = if fault == Fault::LastRowOfAFullChunk { (begin + CHUNK).min(p.rows) - 1 } else { end - 1 };
    let decay: Vec<f32> = match &p.gate {
        Gate::Cumulative(gk) => (0..HEAD).map(|k| at(gk, last, head * HEAD + k).exp2()).collect(),
        Gate::Decay(rows) => {
            let row = if fault == Fault::DecayRowOfH { first_h + c / p.h_every } else { number };
            (0..HEAD).map(|k| at(rows, row, head * HEAD + k)).collect()
        }
        Gate::Scalar(g) => vec![at(g, last, head).exp2(); HEAD],
    };
    let h: Vec<f32> = s.iter().map(|&s| rounded(s)).collect();
    let every = if fault == Fault::HOfEveryChunk { 1 } else { p.h_every };
    if p.h_buffer.is_some() && c % every == 0 {
        let order = if fault == Fault::HOrderSwapped { !k_first(p.h_order) } else { k_first(p.h_order) };
        let head = if fault == Fault::HeadOfHWrong { (head + 1) % p.hv } else { head };
        let base = p.h_at(first_h + c / every, head);
        for i in 0..STATE {
            let value = if fault == Fault::HAfterTheDecay { s[i] * decay[i / HEAD] } else { s[i] };
            let target = base + if order { i } else { i % HEAD * HEAD + i / HEAD };
            if target < out.h.len() {
                out.h[target] = if fault == Fault::HTruncated { truncated(value) } else { bf16::from_f32(value) };
            }
        }
    }
    let leak = if fault == Fault::TailRowsLeak { (begin + CHUNK).min(p.rows) } else { end };
    let mut operands = Vec::new();
    for row in begin..leak {
        let (mut sums, mut blocks) = ([[0.0f32; HEAD]; 2], [[0.0f64; HEAD]; HEAD / 8]);
        for (k, h) in h.chunks_exact(HEAD).enumerate() {
            let w = at(&p.w, row, head * HEAD + k);
            sums[k / 64].iter_mut().zip(h).for_each(|(sum, h)| *sum += w * h);
            if fault == Fault::TowardZero {
                blocks[k / 8].iter_mut().zip(h).for_each(|(sum, h)| *sum += f64::from(w * h));
            }
        }
        let gate = match &p.gate {
            Gate::Scalar(g) => (at(g, end - 1, head) - at(g, row, head)).exp2(),
            _ => 1.0,
        };
        for (v, (a, b)) in sums[0].iter().zip(&sums[1]).enumerate() {
            let u = at(&p.u, row, head * HEAD + v);
            let x = match fault {
                Fault::TowardZero => blocks.iter().fold(u, |x, block| toward_zero(f64::from(x) - block[v])),
                _ => u - (a + b),
            };
            operands.push(rounded(if fault == Fault::UpdateUngated { x } else { x * gate }));
            let stored = if fault == Fault::VNewGated { x * gate } else { x };
            if p.v_new_stride.is_some() && (row < end) {
                let stored = if fault == Fault::VNewTruncated { truncated(stored) } else { bf16::from_f32(stored) };
                out.v_new[p.v_new_at(row, head) + v] = stored;
            }
        }
    }
    if fault == Fault::TailRowsWritten && p.v_new_stride.is_some() && end < p.rows {
        out.v_new[p.v_new_at(end, head)] = bf16::ZERO;
    }
    let mut key_head = head / (p.hv / p.h);
    if fault == Fault::NeighbouringKeyHead {
        key_head = head % p.h;
    }
    for (k, s) in s.chunks_exact_mut(HEAD).enumerate() {
        let late = fault == Fault::DecayAfterTheUpdate;
        if !late {
            s.iter_mut().for_each(|s| *s *= decay[k]);
        }
        let kg = |row: usize| at(&p.kg, begin + row, key_head * HEAD + k);
        for (block, rows) in operands.chunks(8 * HEAD).enumerate() {
            let products = |v: usize| rows.chunks_exact(HEAD).enumerate().map(move |(row, x)| (8 * block + row, x[v]));
            for (v, s) in s.iter_mut().enumerate() {
                *s = match fault {
                    Fault::TowardZero => {
                        toward_zero(products(v).fold(f64::from(*s), |s, (row, x)| s + f64::from(kg(row) * x)))
                    }
                    _ => products(v).fold(*s, |s, (row, x)| s + kg(row) * x),
                };
            }
        }
        if late {
            s.iter_mut().for_each(|s| *s *= decay[k]);
        }
        if fault == Fault::StateKeptInBf16 {
            s.iter_mut().for_each(|s| *s = rounded(*s));
        }
    }
}
