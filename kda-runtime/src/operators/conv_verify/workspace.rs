//! The arrival counters of a call: who may use them, and when they must be reset.
//!
//! Of the CTAs that read the history of a q/k head the last one to arrive rolls it. They count themselves in `workspace`,
//! whose counters wrap to zero, so that the next launch finds them as this one did; a replayed graph needs nothing between
//! two replays. Three rules follow:
//!
//! - Counters are zero ahead of the first launch.
//! - A launch that may overlap another one, on another stream, in another graph, has counters of its own. Dependent launches
//!   (`pdl`) may share: each waits for its predecessor before it counts.
//! - After a launch that did not run to its end the counters hold a part of its count, and the next launch would roll ahead
//!   of its last reader. Once nothing is in flight, [`reset`] makes them right again. What else such a launch was to write is
//!   undefined: outputs, snapshots, and with `roll` the convolution lines of its requests, which may be rolled in part.
//!
//! No launch finds out by itself that it follows an aborted one: a CTA would have to tell a count of its own launch from one
//! that another launch left, and nothing that a replayed graph hands to its kernels is new in each replay.

use super::NAME;
use super::problem::Problem;
use crate::operators::OpError;
use crate::operators::arguments::Argument;
use crate::operators::limits::{MOST_REQUESTS, align};
use kda_core::exec::ExecError;
use kda_core::{Elem, Executor, TensorArg};

/// Bytes that are looked at at a time.
const PIECE: usize = 1 << 16;

/// Why counters could not be reset or looked at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkspaceError {
    /// The tensor is no workspace. Nothing has been written.
    #[error(transparent)]
    Refused(#[from] OpError),
    /// The executor failed.
    #[error(transparent)]
    Exec(#[from] ExecError),
}

/// Sets every counter of a workspace `[N, H]` u32 to zero, and nothing between its rows. Waits; no launch that uses it may be
/// in flight.
///
/// # Errors
/// [`WorkspaceError::Refused`] says what was given and what is needed; [`WorkspaceError::Exec`] is the executor's.
pub fn reset(workspace: &TensorArg, executor: &dyn Executor) -> Result<(), WorkspaceError> {
    for (ptr, bytes) in rows(workspace)? {
        executor.fill(ptr, 0, bytes)?;
    }
    Ok(())
}

/// True if every counter is zero, as it is whenever all launches have run to their ends. Waits for all work.
///
/// # Errors
/// As [`reset`].
pub fn at_rest(workspace: &TensorArg, executor: &dyn Executor) -> Result<bool, WorkspaceError> {
    for (ptr, bytes) in rows(workspace)? {
        for at in (0..bytes).step_by(PIECE) {
            let mut piece = vec![0; PIECE.min((bytes - at) as usize)];
            executor.read(ptr.wrapping_add(at), &mut piece)?;
            if piece.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// True if two calls count in the same memory, so that they must not overlap in time. A call without `roll` does not count.
pub fn is_shared(a: &Problem, b: &Problem) -> bool {
    let end = |p: &Problem| u128::from(p.workspace.ptr) + p.workspace.extent_bytes();
    a.roll && b.roll && u128::from(a.workspace.ptr) < end(b) && u128::from(b.workspace.ptr) < end(a)
}

/// Address and bytes of each row; of all at once where nothing lies between them.
fn rows(workspace: &TensorArg) -> Result<Vec<(u64, u64)>, OpError> {
    let argument = Argument::new(NAME, "workspace", workspace, &["N", "H"], &[Elem::U32])?;
    argument.at_most(0, MOST_REQUESTS, "a grid has a row of CTAs a request")?;
    argument.stride(1, 1)?;
    argument.distinct()?;
    argument.memory(align::SCALARS)?;
    let (n, h) = (argument.size(0), argument.size(1));
    let (bytes, pitch) = (Problem::workspace_bytes(1, h), workspace.strides()[0]);
    if n == 0 || h == 0 {
        return Ok(Vec::new());
    }
    if n == 1 || pitch == h {
        return Ok(vec![(workspace.ptr, Problem::workspace_bytes(n, h))]);
    }
    Ok((0..n).map(|row| (workspace.ptr.wrapping_add(row.wrapping_mul(pitch).wrapping_mul(4)), bytes)).collect())
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use super::*;
    use crate::executor::sim::SimExecutor;
    use crate::{DeviceBuffer, Guarding};

    #[test]
    fn a_reset_is_of_the_counters_alone() {
        let executor = SimExecutor::default();
        let buffer = DeviceBuffer::of(&executor, "workspace", &[7u32; 11], Guarding::NONE).unwrap();
        let workspace = buffer.strided(Elem::U32, &[3, 2], &[4, 1]).unwrap();
        assert_eq!(at_rest(&workspace, &executor), Ok(false));
        reset(&workspace, &executor).unwrap();
        assert_eq!(at_rest(&workspace, &executor), Ok(true));
        assert_eq!(buffer.download::<u32>().unwrap(), [0, 0, 7, 7, 0, 0, 7, 7, 0, 0, 7]);
        let one = buffer.strided(Elem::U32, &[1, 3], &[u64::MAX, 1]).unwrap();
        assert_eq!((at_rest(&one, &executor), reset(&one, &executor)), (Ok(false), Ok(())));
        assert_eq!(reset(&buffer.dense(Elem::U32, &[0, 2]).unwrap(), &executor), Ok(()));
    }

    #[test]
    fn what_is_no_workspace_is_refused() {
        let executor = SimExecutor::default();
        let buffer = DeviceBuffer::of(&executor, "workspace", &[7u32; 4], Guarding::NONE).unwrap();
        let words = |t: TensorArg| reset(&t, &executor).unwrap_err().to_string();
        let given = words(buffer.dense(Elem::U32, &[3, 2]).unwrap());
        assert!(given.contains("`workspace` has 16 bytes") && given.contains("needs 24"), "{given}");
        let given = words(buffer.dense(Elem::F32, &[2, 2]).unwrap());
        assert!(given.contains("`workspace` holds f32; u32 is needed"), "{given}");
        let given = words(buffer.dense(Elem::U32, &[4]).unwrap());
        assert!(given.contains("2 axes are needed: [N, H]"), "{given}");
        let at = |ptr| TensorArg::dense(ptr, 16, Elem::U32, &[2, 2]).unwrap();
        let given = words(at(0));
        assert!(given.contains("`workspace` is a null pointer"), "{given}");
        assert_eq!(buffer.download::<u32>().unwrap(), [7; 4]);
        assert!(matches!(reset(&at(1 << 60), &executor), Err(WorkspaceError::Exec(ExecError::BadPointer { .. }))));
    }
}
