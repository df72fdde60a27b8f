//! Two requests of a call that write the same place, found on the host. For debugging: a launch reads indices on the device
//! and trusts them.
//!
//! Among live requests, those whose `conv_slots` and `state_slots` are live, must be distinct: with `roll` the convolution
//! lines, and the live snapshot rows wherever a snapshot is written by them. State slots may be shared. Requests that break
//! this stay inside their tensors; what they leave in the line or the snapshots that they share is undefined.

use super::problem::{Problem, SnapshotRule};
use kda_core::exec::ExecError;
use kda_core::{Executor, TensorArg};
use std::collections::HashMap;

/// Host copies of the index arrays of a call, an entry a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indices {
    /// Line of each request.
    pub conv_slots: Vec<i32>,
    /// Slot of each request.
    pub state_slots: Vec<i32>,
    /// Snapshot row of each request.
    pub snapshot_rows: Vec<i32>,
}

/// A place that two live requests write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{map}` holds {index} for the live requests {first} and {second}, which would both write there")]
pub struct Duplicate {
    /// `conv_slots` or `snapshot_rows`.
    pub map: &'static str,
    /// The index that occurs twice.
    pub index: i32,
    /// The request that has it first.
    pub first: usize,
    /// The request that has it again.
    pub second: usize,
}

impl Indices {
    /// Copies the index arrays of a call that has been planned from the device. Waits for all work.
    ///
    /// # Errors
    /// What the executor says of an address that it does not know.
    pub fn read(problem: &Problem, executor: &dyn Executor) -> Result<Indices, ExecError> {
        let map = |map: &TensorArg| -> Result<Vec<i32>, ExecError> {
            let (n, stride) = (map.shape().iter().product::<u64>(), map.strides().first().copied().unwrap_or(1));
            let value = |i: u64| {
                let mut bytes = [0; 4];
                let ptr = map.ptr.wrapping_add(i.wrapping_mul(stride).wrapping_mul(4));
                executor.read(ptr, &mut bytes).map(|()| i32::from_le_bytes(bytes))
            };
            (0..n).map(value).collect()
        };
        Ok(Indices {
            conv_slots: map(&problem.conv_slots)?,
            state_slots: map(&problem.state_slots)?,
            snapshot_rows: map(&problem.snapshot_rows)?,
        })
    }
}

/// Every request that writes where an earlier one does, in order.
pub fn duplicates(problem: &Problem, indices: &Indices) -> Vec<Duplicate> {
    let length = |t: &TensorArg| t.shape().first().copied().unwrap_or(0);
    let live = |index: i32, len: u64| index > problem.null && u64::try_from(index).is_ok_and(|i| i < len);
    let (lines, slots) = (length(&problem.conv_state), length(&problem.state));
    let places = indices.conv_slots.iter().zip(&indices.state_slots).map(|(line, slot)| {
        // A padding row writes neither.
        live(*line, lines) && live(*slot, slots)
    });
    let requests: Vec<usize> = places.enumerate().filter(|(_, real)| *real).map(|(n, _)| n).collect();
    let mut found = Vec::new();
    if problem.roll {
        twice("conv_slots", requests.iter().map(|n| (*n, indices.conv_slots[*n])), &mut found);
    }
    let states = problem.states_out.is_some() && problem.snapshot_rule == SnapshotRule::ByIndex;
    if states || problem.windows_out.is_some() {
        let rows = requests.iter().filter_map(|n| indices.snapshot_rows.get(*n).map(|row| (*n, *row)));
        twice("snapshot_rows", rows.filter(|(_, row)| live(*row, problem.snapshot_len())), &mut found);
    }
    found.sort_by_key(|duplicate| duplicate.second);
    found
}

fn twice(map: &'static str, entries: impl Iterator<Item = (usize, i32)>, found: &mut Vec<Duplicate>) {
    let mut seen: HashMap<i32, usize> = HashMap::new();
    for (second, index) in entries {
        match seen.get(&index) {
            Some(first) => found.push(Duplicate { map, index, first: *first, second }),
            None => drop(seen.insert(index, second)),
        }
    }
}
