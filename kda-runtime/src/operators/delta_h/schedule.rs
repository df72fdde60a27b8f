//! What there is to do in a batch: once for all layers.
//!
//! One CTA reads the boundaries on the device and writes a list into a workspace of u32 words. Head: entries of each kind,
//! status, counts ([`Status`]). Then entries of 8 words: sequences and first segments, maps of inner segments, segments behind
//! the first. Boundaries that are not in order, and chunk states that do not fit, end the list: nothing of that sequence and
//! of those behind it is processed or written, and the status says why.

use super::batch::{Batch, HEADER_WORDS};
use super::validate::{memory_of, sizes};
use crate::operators::OpError;
use crate::operators::arguments::{Argument, no_overlap};
use crate::operators::limits::align;
use kda_core::exec::ExecError;
use kda_core::{Elem, Executor, TensorArg};

/// Name of the step.
pub const NAME: &str = "delta_h_schedule";

/// The schedule of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// `[N + 1]` i32 or i64: first row of each sequence, and behind the last one's end. In order, from 0 to at most T; the first
    /// place that is not ends the list.
    pub cu_seqlens: TensorArg,
    /// u32 or u8, at least [`Batch::schedule_bytes`]; written whole.
    pub workspace: TensorArg,
    /// `[N + 1]` i32, written: first chunk state of each sequence, and the number of all.
    pub chunk_offsets: Option<TensorArg>,
    /// T: rows that tensors of rows have.
    pub rows: u64,
    /// HV: value heads.
    pub heads: u64,
    /// The state is stored ahead of every so many chunks of a sequence; 1 for all.
    pub h_every: u32,
    /// Chunk states that the smallest `h` of a call holds; `None` if no call has one.
    pub capacity: Option<u64>,
    /// Whether long sequences may be cut into segments.
    pub split: bool,
}

impl Schedule {
    /// Sizes of the batch, for memory and for calls.
    pub fn batch(&self) -> Batch {
        let ends = self.cu_seqlens.shape().first().copied().unwrap_or(0);
        let Schedule { rows, heads, h_every, split, .. } = *self;
        Batch { sequences: ends.saturating_sub(1), rows, heads, h_every, split }
    }

    /// Whether the arguments fit each other.
    pub(super) fn validate(&self) -> Result<Batch, OpError> {
        let ends = Argument::new(NAME, "cu_seqlens", &self.cu_seqlens, &["N + 1"], &[Elem::I32, Elem::I64])?;
        ends.at_least(0, 1, "N sequences have N + 1 boundaries")?;
        let batch = self.batch();
        sizes(NAME, &batch)?;
        ends.stride(0, 1)?;
        ends.memory(self.cu_seqlens.elem.bytes().into())?;
        if let Some(offsets) = &self.chunk_offsets {
            let offsets = Argument::new(NAME, "chunk_offsets", offsets, &["N + 1"], &[Elem::I32])?;
            offsets.exactly(0, batch.sequences + 1, "as in `cu_seqlens`")?;
            offsets.stride(0, 1)?;
            offsets.memory(align::SCALARS)?;
        }
        match self.capacity {
            Some(given) if given < batch.h_states() => {
                let given = format!("`capacity` is {given}");
                let needed = format!(
                    "at least {} is needed, what N = {} sequences in T = {} rows can need with h_every = {}",
                    batch.h_states(),
                    batch.sequences,
                    batch.rows,
                    batch.h_every
                );
                return Err(OpError::Together { op: NAME, given, needed });
            }
            _ => {}
        }
        memory_of(NAME, "workspace", &self.workspace, batch.schedule_bytes())?;
        let mut written = vec![("workspace", &self.workspace)];
        written.extend(self.chunk_offsets.as_ref().map(|offsets| ("chunk_offsets", offsets)));
        no_overlap(NAME, &written, &[("cu_seqlens", &self.cu_seqlens)], &[])?;
        Ok(batch)
    }
}

/// What the device says of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Entries of whole sequences and first segments.
    pub real: u32,
    /// Entries of maps.
    pub maps: u32,
    /// Entries of segments behind the first.
    pub folds: u32,
    /// Boundaries are out of order, or the first is negative.
    pub out_of_order: bool,
    /// A sequence ends past the last row.
    pub past_end: bool,
    /// Chunk states do not fit.
    pub past_capacity: bool,
    /// Segments do not fit the workspace.
    pub past_workspace: bool,
    /// Sequences that are processed: all, or those ahead of the first that is not possible.
    pub sequences: u32,
    /// Chunk states that are stored.
    pub h_states: u32,
    /// Chunks.
    pub chunks: u32,
}

impl Status {
    /// From the head of a workspace, little-endian words; `None` if it is shorter.
    pub fn decode(head: &[u8]) -> Option<Status> {
        let head = head.get(..4 * HEADER_WORDS as usize)?;
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| head[4 * at + byte]));
        let flag = |bit: u32| word(3) >> bit & 1 != 0;
        Some(Status {
            real: word(0),
            maps: word(1),
            folds: word(2),
            out_of_order: flag(0),
            past_end: flag(1),
            past_capacity: flag(2),
            past_workspace: flag(3),
            sequences: word(4),
            h_states: word(5),
            chunks: word(6),
        })
    }

    /// Reads it from a workspace that a schedule has filled. Waits for all work.
    ///
    /// # Errors
    /// What the executor says of an address that it does not know.
    pub fn read(workspace: &TensorArg, executor: &dyn Executor) -> Result<Status, ExecError> {
        let mut head = [0; 4 * HEADER_WORDS as usize];
        executor.read(workspace.ptr, &mut head)?;
        Ok(Status::decode(&head).unwrap_or_default())
    }

    /// True if every sequence is processed.
    pub const fn is_whole(&self) -> bool {
        !(self.out_of_order || self.past_end || self.past_capacity || self.past_workspace)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} sequences, {} chunks, {} chunk states", self.sequences, self.chunks, self.h_states)?;
        let faults = [
            (self.out_of_order, "boundaries are negative or out of order"),
            (self.past_end, "a sequence ends past the last row"),
            (self.past_capacity, "chunk states do not fit"),
            (self.past_workspace, "segments do not fit the workspace"),
        ];
        faults.iter().filter(|(found, _)| *found).try_for_each(|(_, words)| write!(f, "; {words}"))
    }
}

#[cfg(test)]
mod tests;
