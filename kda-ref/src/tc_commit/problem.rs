//! What the operator takes and gives: slices, sizes and pitches. All pitches count elements.

use super::{ConvOrder, HEAD, HISTORY};
use crate::floats::Floats;
use crate::gate::Gate;
use crate::tc_verify::problem::live;
use half::bf16;

/// The pool of raw inputs whose windows are compacted.
#[derive(Clone, Copy, Debug)]
pub struct Compaction<'a> {
    /// Pool `[slots, ..]` before the call, a slot of `window + 2` rows of `3*heads*K` channels in the order `order`.
    pub pool: &'a [bf16],
    /// Distance between slots of the pool.
    pub pitch: usize,
    /// Order of the axes of a slot.
    pub order: ConvOrder,
}

/// A second state of each request: the one at a boundary of cache blocks.
#[derive(Clone, Copy, Debug)]
pub struct Boundary<'a> {
    /// Tokens m up to the boundary `[n_req]`; outside `1..=n` there is no boundary.
    pub tokens: &'a [i32],
    /// Where S_m goes `[n_req]`; not live: nowhere. May be the source where the destination is another slot.
    pub slots: &'a [i32],
}

/// The inputs of one call.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// Requests B.
    pub n_req: usize,
    /// Heads.
    pub heads: usize,
    /// Record rows of a request: 1..=16.
    pub window: usize,
    /// Slots of the pools: the length that liveness is tested against.
    pub slots: usize,
    /// Pool of states `[slots, heads, V, K]` before the call, bf16 or fp32, and float64 so that exact runs can be chained.
    pub state: Floats<'a>,
    /// Distance between slots of `state`.
    pub state_pitch: usize,
    /// The corrections u `[rows, heads, window, V]`, fp32, and float64 so that exact runs can be chained; request b has row b.
    pub corr: Floats<'a>,
    /// `[rows, heads, window, 2, K]`: the key, not normalised, then the raw gate; bf16, and float64 as for `corr`.
    pub kg: Floats<'a>,
    /// `[heads]`; absent = 0.
    pub a_log: Option<&'a [f32]>,
    /// `[heads, K]`.
    pub dt_bias: &'a [f32],
    /// The windows to compact; absent: none.
    pub conv: Option<Compaction<'a>>,
    /// Source slots `[n_req]`. Live: `null < slot < slots`.
    pub slot_of: &'a [i32],
    /// Destination slots `[n_req]`; absent: the sources.
    pub destinations: Option<&'a [i32]>,
    /// Records n to apply `[n_req]`: nothing is done below 1, and more than `window` count as `window`.
    pub counts: &'a [i32],
    /// States at boundaries; absent: none.
    pub boundary: Option<Boundary<'a>>,
    /// Present: bounded gate. Absent: softplus gate. A kernel takes fp32: give its value, widened, as the reference of a kernel.
    pub lower_bound: Option<f64>,
    /// The null slot.
    pub null: i32,
}

/// What a call writes. The caller fills the buffers first: only what the contract names is touched.
#[derive(Debug)]
pub struct Outputs<'a> {
    /// States before rounding to the type of the pool, in the layout of the pool.
    pub state: &'a mut [f64],
    /// A copy of the pool of raw inputs, which is compacted; needed with one.
    pub conv: Option<&'a mut [bf16]>,
}

/// What the metadata make of a request that is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Which request; also its record row.
    pub b: usize,
    /// The slot that is read.
    pub source: usize,
    /// The slot that takes S_n.
    pub destination: usize,
    /// Records that are applied, 1..=window.
    pub n: usize,
    /// m, and the slot that takes S_m; `None`: no boundary.
    pub boundary: Option<(usize, usize)>,
}

impl Commit {
    /// Every slot that is written, with the records that its state has.
    pub fn targets(&self) -> impl Iterator<Item = (usize, usize)> {
        self.boundary.into_iter().chain([(self.n, self.destination)])
    }
}

impl Problem<'_> {
    /// Request `b`; `None` when nothing is done for it: no record to apply, or a source or destination that is not live.
    pub fn commit(&self, b: usize) -> Option<Commit> {
        let slot = |indices: &[i32]| live(indices[b], self.null, self.slots);
        let n = usize::try_from(self.counts[b]).ok().filter(|&n| n > 0)?.min(self.window);
        let boundary = self.boundary.and_then(|boundary| {
            let m = usize::try_from(boundary.tokens[b]).ok().filter(|m| (1..=n).contains(m))?;
            Some((m, slot(boundary.slots)?))
        });
        let (source, destination) = (slot(self.slot_of)?, slot(self.destinations.unwrap_or(self.slot_of))?);
        Some(Commit { b, source, destination, n, boundary })
    }

    /// Every request that is committed.
    pub fn commits(&self) -> impl Iterator<Item = Commit> + '_ {
        (0..self.n_req).filter_map(|b| self.commit(b))
    }

    /// Channels of q, k and v: `3*heads*K`.
    pub fn channels(&self) -> usize {
        3 * self.heads * HEAD
    }

    /// Elements of a state: `heads*V*K`.
    pub fn state_len(&self) -> usize {
        self.heads * HEAD * HEAD
    }

    /// Rows of a slot of the pool of raw inputs.
    pub fn conv_rows(&self) -> usize {
        self.window + HISTORY - 1
    }

    /// First element of the record of a request, head and token in `corr`; twice that in `kg`.
    pub fn record(&self, b: usize, head: usize, t: usize) -> usize {
        ((b * self.heads + head) * self.window + t) * HEAD
    }

    /// The gate of this call.
    pub fn gate(&self) -> Gate {
        Gate::from_lower_bound(self.lower_bound)
    }

    /// `A_log` of a head, 0 when absent.
    pub fn a_log(&self, head: usize) -> f32 {
        self.a_log.map_or(0.0, |a_log| a_log[head])
    }
}
