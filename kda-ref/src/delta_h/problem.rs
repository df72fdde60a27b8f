//! What the operator takes, and where it reads and writes. All strides count elements; heads of a row follow each other.

use super::schedule::{Room, Schedule, Sequence};
use super::step::{Chunk, Real};
use super::{HEAD, STATE};
use crate::budget::Stored;
use crate::floats::{Floats, Rows};
use crate::layout::{StateOrder, key_head};
use std::collections::HashSet;

pub use crate::decode::Refusal;

/// The decay of the state over a chunk.
#[derive(Clone, Copy, Debug)]
pub enum Gate<'a> {
    /// Chunk-local inclusive cumulative gate in log2 units, rows of `[HV, K]` for each token. Only the last row of each chunk
    /// is read.
    Cumulative(Rows<'a>),
    /// The decay itself, rows of `[HV, K]` for each chunk of the call.
    Decay(Rows<'a>),
    /// Chunk-local inclusive cumulative gate in log2 units, rows of `[HV]` for each token: one for all channels of a head, and
    /// not yet in the keys.
    Scalar(Rows<'a>),
}

/// Where initial states are read.
#[derive(Clone, Copy, Debug)]
pub struct Initial<'a> {
    /// Pool of states, `[HV, K, V]` or `[HV, V, K]` a slot, of the type that the problem names.
    pub pool: Floats<'a>,
    /// Number of slots: the length that liveness is tested against.
    pub count: usize,
    /// Distance between slots.
    pub slot_stride: usize,
    /// Slot of each sequence `[N]`; absent: slot n.
    pub slots: Option<&'a [i32]>,
    /// `[N]`: 0 for a sequence that starts from zeros; absent: all have a state.
    pub has: Option<&'a [u8]>,
}

/// Where final states are written.
#[derive(Clone, Copy, Debug)]
pub struct Final<'a> {
    /// Number of slots: the length that liveness is tested against.
    pub count: usize,
    /// Distance between slots.
    pub slot_stride: usize,
    /// Slot of each sequence `[N]`; absent: slot n.
    pub slots: Option<&'a [i32]>,
    /// The pool is the one that initial states are read from.
    pub in_place: bool,
}

/// The inputs of one call.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// Boundaries `[N+1]`, which may be wrong.
    pub cu_seqlens: &'a [i64],
    /// Allocated rows T.
    pub rows: usize,
    /// Key heads of `kg`: HV, and with a scalar gate any divisor of it.
    pub h: usize,
    /// Value heads HV.
    pub hv: usize,
    /// `k * 2^(G_last - G)`, rows of `[HV, K]`; with a scalar gate k, rows of `[H, K]`.
    pub kg: Rows<'a>,
    /// Rows of `[HV, K]`.
    pub w: Rows<'a>,
    /// Rows of `[HV, V]`.
    pub u: Rows<'a>,
    /// The decay.
    pub gate: Gate<'a>,
    /// Type of the pools of states.
    pub stored: Stored,
    /// Axis order of states in the pools.
    pub order: StateOrder,
    /// Absent: zeros.
    pub initial: Option<Initial<'a>>,
    /// Absent: no final state is written.
    pub final_state: Option<Final<'a>>,
    /// A slot i is live when `null < i < count`.
    pub null: i32,
    /// Every this many chunks the state is stored.
    pub h_every: usize,
    /// Chunk states that h holds, and the distance between them; absent: no h.
    pub h_buffer: Option<(usize, usize)>,
    /// Axis order of h.
    pub h_order: StateOrder,
    /// Distance between rows of `[HV, V]` of v_new; absent: no v_new.
    pub v_new_stride: Option<usize>,
}

impl Problem<'_> {
    /// What the boundaries say.
    pub fn schedule(&self) -> Schedule {
        let room = Room { h: self.h_buffer.map(|(capacity, _)| capacity), ..Room::default() };
        Schedule::new(self.cu_seqlens, self.rows, self.h_every, room)
    }

    /// Slot that sequence n reads; `None` when it starts from zeros.
    pub fn read_slot(&self, n: usize) -> Option<usize> {
        let initial = self.initial?;
        let has = initial.has.is_none_or(|has| has[n] != 0);
        self.slot(initial.slots, n, initial.count).filter(|_| has)
    }

    /// Slot that sequence n writes.
    pub fn write_slot(&self, n: usize) -> Option<usize> {
        let target = self.final_state?;
        self.slot(target.slots, n, target.count)
    }

    fn slot(&self, slots: Option<&[i32]>, n: usize, count: usize) -> Option<usize> {
        let Some(slots) = slots else { return Some(n) };
        let within = slots[n] > self.null && usize::try_from(slots[n]).is_ok_and(|i| i < count);
        within.then_some(slots[n] as usize)
    }

    /// First element in h of a value head of chunk state `index`.
    pub fn h_at(&self, index: usize, value_head: usize) -> usize {
        index * self.h_buffer.map_or(0, |(_, stride)| stride) + value_head * STATE
    }

    /// First element in v_new of a value head of row `token`.
    pub fn v_new_at(&self, token: usize, value_head: usize) -> usize {
        token * self.v_new_stride.unwrap_or(0) + value_head * HEAD
    }

    /// First element of a value head in a slot of the pool of final states.
    pub fn final_at(&self, slot: usize, value_head: usize) -> usize {
        slot * self.final_state.map_or(0, |target| target.slot_stride) + value_head * STATE
    }

    /// Elements of h, of v_new and of the pool of final states.
    pub(crate) fn extents(&self) -> [Option<usize>; 3] {
        let head = self.hv * STATE;
        [
            self.h_buffer.map(|(capacity, stride)| span(capacity, stride, head)),
            self.v_new_stride.map(|stride| span(self.rows, stride, self.hv * HEAD)),
            self.final_state.map(|target| span(target.count, target.slot_stride, head)),
        ]
    }

    /// The initial state of a sequence and head, K-first.
    pub(crate) fn initial_state<T: Real>(&self, n: usize, value_head: usize) -> Vec<T> {
        let (Some(slot), Some(initial)) = (self.read_slot(n), self.initial) else { return vec![T::default(); STATE] };
        let begin = slot * initial.slot_stride + value_head * STATE;
        let at = |key: usize, value: usize| begin + self.order.offset(key, value, HEAD, HEAD);
        (0..STATE).map(|i| T::narrow(initial.pool.get(at(i / HEAD, i % HEAD)))).collect()
    }

    /// The inputs of chunk `index` of a sequence for a value head.
    pub(crate) fn chunk<T: Real>(
        &self,
        sequence: &Sequence,
        index: usize,
        value_head: usize,
        exp2: fn(T) -> T,
    ) -> Chunk<T> {
        let (begin, end) = sequence.chunk_rows(index, index + 1);
        let gather = |rows: &Rows<'_>, head: usize| -> Vec<T> {
            let mut out = Vec::with_capacity((end - begin) * HEAD);
            for token in begin..end {
                out.extend((0..HEAD).map(|c| T::narrow(rows.get(token, head * HEAD + c))));
            }
            out
        };
        let (decay, gate) = match &self.gate {
            Gate::Cumulative(gk) => {
                ((0..HEAD).map(|c| exp2(T::narrow(gk.get(end - 1, value_head * HEAD + c)))).collect(), None)
            }
            Gate::Decay(rows) => {
                let row = sequence.chunk + index;
                ((0..HEAD).map(|c| T::narrow(rows.get(row, value_head * HEAD + c))).collect(), None)
            }
            Gate::Scalar(g) => {
                let g = |token| T::narrow(g.get(token, value_head));
                let last = g(end - 1);
                (vec![exp2(last); HEAD], Some((begin..end).map(|token| exp2(last - g(token))).collect()))
            }
        };
        Chunk {
            kg: gather(&self.kg, key_head(value_head, self.h, self.hv)),
            w: gather(&self.w, value_head),
            u: gather(&self.u, value_head),
            decay,
            gate,
        }
    }
}

fn at_least(name: &str, given: usize, needed: usize) -> Result<(), Refusal> {
    if given >= needed { Ok(()) } else { Err(Refusal(format!("{name} is {given}, at least {needed} is needed"))) }
}

/// Elements that `count` blocks of `width`, `stride` apart, span.
fn span(count: usize, stride: usize, width: usize) -> usize {
    if count == 0 { 0 } else { (count - 1) * stride + width }
}

/// Checks everything that [`super::run()`] relies on.
pub(crate) fn validate(p: &Problem<'_>) -> Result<(), Refusal> {
    let n = p.cu_seqlens.len().checked_sub(1).ok_or(Refusal("cu_seqlens is empty, N + 1 are needed".into()))?;
    if p.h == 0 || p.hv == 0 || !p.hv.is_multiple_of(p.h) {
        return Err(Refusal(format!("{} value heads over {} key heads: a multiple is needed", p.hv, p.h)));
    }
    if p.h != p.hv && !matches!(p.gate, Gate::Scalar(_)) {
        return Err(Refusal(format!("{} heads of kg: the gate is in kg, so {} are needed", p.h, p.hv)));
    }
    at_least("h_every", p.h_every, 1)?;
    let (gate, gate_rows, gate_width) = match &p.gate {
        Gate::Cumulative(gk) => (gk, p.rows, p.hv * HEAD),
        Gate::Decay(rows) => (rows, p.schedule().chunks, p.hv * HEAD),
        Gate::Scalar(g) => (g, p.rows, p.hv),
    };
    let (head, tokens) = (p.hv * HEAD, p.rows);
    for (name, x, rows, width) in [
        ("kg", &p.kg, tokens, p.h * HEAD),
        ("w", &p.w, tokens, head),
        ("u", &p.u, tokens, head),
        ("gate", gate, gate_rows, gate_width),
    ] {
        at_least(&format!("row stride of {name}"), x.stride, width)?;
        at_least(name, x.data.len(), span(rows, x.stride, width))?;
    }
    if let Some(initial) = &p.initial {
        if matches!(initial.pool, Floats::Bf16(_)) != (p.stored == Stored::Bf16) {
            return Err(Refusal(format!("the pool of initial states is not {:?}", p.stored)));
        }
        at_least("initial state", initial.pool.len(), span(initial.count, initial.slot_stride, p.hv * STATE))?;
        at_least("initial slots", initial.slots.map_or(initial.count, <[i32]>::len), n)?;
        at_least("has_initial", initial.has.map_or(n, <[u8]>::len), n)?;
    }
    if let Some(target) = &p.final_state {
        at_least("final slots", target.slots.map_or(target.count, <[i32]>::len), n)?;
        let same = |initial: &Initial<'_>| (initial.count, initial.slot_stride) == (target.count, target.slot_stride);
        if target.in_place && !p.initial.as_ref().is_some_and(same) {
            return Err(Refusal("a pool in place is that of the initial states".into()));
        }
    }
    if let Some((capacity, stride)) = p.h_buffer {
        at_least("chunk stride of h", stride, if capacity > 1 { p.hv * STATE } else { 0 })?;
    }
    at_least("row stride of v_new", p.v_new_stride.unwrap_or(head), head)?;
    writes_are_apart(p, n)
}

/// No slot is written twice, and in place none is written that another sequence reads.
fn writes_are_apart(p: &Problem<'_>, sequences: usize) -> Result<(), Refusal> {
    let mut written = HashSet::new();
    for n in 0..sequences {
        let Some(slot) = p.write_slot(n) else { continue };
        if !written.insert(slot) {
            return Err(Refusal(format!("two sequences write slot {slot}")));
        }
        let in_place = p.final_state.is_some_and(|target| target.in_place);
        if in_place && (0..sequences).any(|other| other != n && p.read_slot(other) == Some(slot)) {
            return Err(Refusal(format!("sequence {n} writes slot {slot}, which another one reads")));
        }
    }
    Ok(())
}
