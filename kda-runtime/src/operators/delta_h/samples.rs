//! Calls for tests, over memory that does not exist: planning reads none.

use super::problem::{Gate, Problem};
use super::schedule::Schedule;
use kda_core::{Elem, TensorArg};
use std::cell::Cell;

thread_local! {
    static NEXT: Cell<u64> = const { Cell::new(1 << 30) };
}

/// A tensor with memory of its own that nobody owns, exactly as many bytes as it spans.
pub fn strided(elem: Elem, shape: &[u64], strides: &[u64]) -> TensorArg {
    let ptr = NEXT.get();
    let mut tensor = TensorArg::strided(ptr, 0, elem, shape, strides).unwrap();
    tensor.bytes = u64::try_from(tensor.extent_bytes()).unwrap();
    NEXT.set((ptr + tensor.bytes + 1).next_multiple_of(256));
    tensor
}

/// The same, dense.
pub fn dense(elem: Elem, shape: &[u64]) -> TensorArg {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis].max(1);
    }
    strided(elem, shape, &strides)
}

/// `[count, HV, K, V]`, in memory `[K, V]` or `[V, K]`.
pub fn matrices(elem: Elem, count: u64, heads: u64, k_first: bool) -> TensorArg {
    let inner = if k_first { [128, 1] } else { [1, 128] };
    strided(elem, &[count, heads, 128, 128], &[heads * 16384, 16384, inner[0], inner[1]])
}

/// A call with every tensor that is possible together, of N sequences in T rows.
pub fn problem(sequences: u64, rows: u64, heads: u64, split: bool) -> Problem {
    let of_rows = || dense(Elem::BF16, &[rows, heads, 128]);
    let nothing = dense(Elem::U8, &[0]);
    let mut problem = Problem {
        kg: of_rows(),
        w: of_rows(),
        u: of_rows(),
        gate: Gate::Cumulative(dense(Elem::F32, &[rows, heads, 128])),
        initial_state: Some(matrices(Elem::F32, sequences + 2, heads, true)),
        initial_slots: Some(dense(Elem::I32, &[sequences])),
        has_initial: Some(dense(Elem::U8, &[sequences])),
        final_state: Some(matrices(Elem::F32, sequences + 1, heads, true)),
        final_slots: Some(dense(Elem::I32, &[sequences])),
        null: -1,
        h: None,
        v_new: Some(of_rows()),
        schedule: nothing,
        maps: None,
        sequences,
        h_every: 1,
        split,
        longest: None,
    };
    let batch = problem.batch();
    problem.h = Some(matrices(Elem::BF16, batch.h_states(), heads, true));
    problem.schedule = dense(Elem::U32, &[batch.schedule_words()]);
    problem.maps = (batch.map_bytes() > 0).then(|| dense(Elem::U8, &[batch.map_bytes()]));
    problem
}

/// The schedule of such a call.
pub fn schedule(sequences: u64, rows: u64, heads: u64, split: bool) -> Schedule {
    let problem = problem(sequences, rows, heads, split);
    Schedule {
        cu_seqlens: dense(Elem::I32, &[sequences + 1]),
        workspace: problem.schedule,
        chunk_offsets: Some(dense(Elem::I32, &[sequences + 1])),
        rows,
        heads,
        h_every: 1,
        capacity: Some(problem.batch().h_states()),
        split,
        longest: None,
    }
}

/// The tensor with another size along an axis, and as many bytes as it then spans.
pub fn resized(tensor: &TensorArg, axis: usize, size: u64) -> TensorArg {
    let mut shape = tensor.shape().to_vec();
    shape[axis] = size;
    changed(tensor, &shape, tensor.strides())
}

/// The tensor with another stride along an axis, and as many bytes as it then spans.
pub fn restrided(tensor: &TensorArg, axis: usize, stride: u64) -> TensorArg {
    let mut strides = tensor.strides().to_vec();
    strides[axis] = stride;
    changed(tensor, tensor.shape(), &strides)
}

fn changed(tensor: &TensorArg, shape: &[u64], strides: &[u64]) -> TensorArg {
    let mut changed = strided(tensor.elem, &[0], &[1]);
    // Room for the strides that are tried.
    NEXT.set(changed.ptr + (1 << 44));
    changed = TensorArg::strided(changed.ptr, 0, tensor.elem, shape, strides).unwrap();
    changed.bytes = u64::try_from(changed.extent_bytes()).unwrap_or(u64::MAX);
    changed
}
