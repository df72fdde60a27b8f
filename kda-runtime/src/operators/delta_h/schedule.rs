//! What there is to do in a batch: once for all layers.
//!
//! One CTA reads the boundaries on the device and writes a list into a workspace of u32 words. Head: entries of each kind,
//! status, counts ([`Status`]). Then entries of 8 words: sequences and segments, and maps of segments. Boundaries that are
//! not in order, and chunk states that do not fit, end the list: nothing of that sequence and of those behind it is
//! processed or written, and the status says why.

use super::batch::{Batch, HEADER_WORDS};
use super::validate::{memory_of, sizes};
use crate::operators::arguments::{Argument, no_overlap};
use crate::operators::{OpError, Plan};
use kda_core::exec::ExecError;
use kda_core::{Elem, Executor, TensorArg};
use kda_kernels::delta_h_schedule::{ScheduleArgs, ScheduleVariant};

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
    /// `[N + 1]`, type of `cu_seqlens`, written: first chunk state of each sequence, and the number of all.
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
    /// Most rows of a sequence, if that is known: [`Batch::longest`].
    pub longest: Option<u64>,
}

impl Schedule {
    /// Sizes of the batch, for memory and for calls.
    pub fn batch(&self) -> Batch {
        let ends = self.cu_seqlens.shape().first().copied().unwrap_or(0);
        let Schedule { rows, heads, h_every, split, longest, .. } = *self;
        Batch { sequences: ends.saturating_sub(1), rows, heads, h_every, split, longest }
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
            let elems = if self.cu_seqlens.elem == Elem::I64 { &[Elem::I64] } else { &[Elem::I32] };
            let argument = Argument::new(NAME, "chunk_offsets", offsets, &["N + 1"], elems)?;
            argument.exactly(0, batch.sequences + 1, "as in `cu_seqlens`")?;
            argument.stride(0, 1)?;
            argument.memory(offsets.elem.bytes().into())?;
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

/// Checks the arguments and chooses the variant that writes the schedule.
///
/// # Errors
/// [`OpError`] says what was given and what is needed; nothing has been written.
pub fn plan(schedule: &Schedule, executor: &dyn Executor) -> Result<Plan, OpError> {
    let batch = schedule.validate()?.on(executor);
    let capability = executor.compute_capability();
    let variant = ScheduleVariant::ALL
        .into_iter()
        .find(|v| v.index_() == schedule.cu_seqlens.elem && v.desc().arch.runs_on(capability.0, capability.1));
    let Some(variant) = variant else {
        let needed = ScheduleVariant::ALL.first().map_or(String::new(), |v| v.desc().arch.to_string());
        return Err(OpError::NoVariant { op: NAME, given: capability, needed });
    };
    let cut = batch.cut();
    let args = ScheduleArgs {
        cu: schedule.cu_seqlens,
        chunk_offsets: schedule.chunk_offsets,
        work_list: words(&schedule.workspace, &batch)?,
        seqs: counted(batch.sequences),
        rows: counted(batch.rows),
        capacity: schedule.capacity.map_or(u32::MAX, counted),
        every: batch.h_every,
        longest: batch.longest.map_or(u32::MAX, counted),
        most: cut.map_or(1, |cut| counted(cut.most)),
        fewest: cut.map_or(2, |cut| counted(cut.fewest)),
        least: cut.map_or(1, |cut| counted(cut.least)),
        first_eighths: cut.map_or(8, |cut| counted(cut.first)),
        most_segments: counted(batch.segments()),
    };
    Ok(Plan::of(args.prepare(variant, false)?))
}

/// The workspace as the words of a batch's schedule.
pub(super) fn words(workspace: &TensorArg, batch: &Batch) -> Result<TensorArg, OpError> {
    Ok(TensorArg::dense(workspace.ptr, workspace.bytes, Elem::U32, &[batch.schedule_words()])?)
}

/// A number that has been checked to fit 32 bits, or that counts as many where it is larger.
pub(super) fn counted(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// What the device says of a batch, and of the first sequence that is not processed: all that it lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Entries of sequences and segments.
    pub entries: u32,
    /// Entries of maps.
    pub maps: u32,
    /// Segments of sequences that are cut.
    pub segments: u32,
    /// Boundaries are out of order, negative, or past 2^31 - 1.
    pub out_of_order: bool,
    /// A sequence ends past the last row.
    pub past_end: bool,
    /// Chunk states do not fit.
    pub past_capacity: bool,
    /// A sequence has more rows than was promised.
    pub past_longest: bool,
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
            entries: word(0).saturating_add(word(4)),
            maps: word(1),
            segments: word(2),
            out_of_order: flag(0),
            past_end: flag(1),
            past_capacity: flag(2),
            past_workspace: flag(3),
            past_longest: flag(4),
            sequences: word(0),
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
        !(self.out_of_order || self.past_end || self.past_capacity || self.past_workspace || self.past_longest)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} sequences, {} chunks, {} chunk states", self.sequences, self.chunks, self.h_states)?;
        if self.segments > 0 {
            write!(f, ", {} segments", self.segments)?;
        }
        let faults = [
            (self.out_of_order, "boundaries are out of order, negative or past 2^31 - 1"),
            (self.past_end, "a sequence ends past the last row"),
            (self.past_capacity, "chunk states do not fit"),
            (self.past_workspace, "segments do not fit the workspace"),
            (self.past_longest, "a sequence is longer than `longest`"),
        ];
        faults.iter().filter(|(found, _)| *found).try_for_each(|(_, words)| write!(f, "; {words}"))
    }
}

#[cfg(test)]
mod tests;
