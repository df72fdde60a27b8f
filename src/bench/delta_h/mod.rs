//! `delta_h` under the bench.
//!
//! A shape is T rows of N packed sequences, whose lengths are those of [`super::lengths`]. A call is the launches of a layer; the
//! schedule, which a model makes once for all layers, has run ahead of it and is timed on its own. Initial and final states
//! are f32 and apart, every chunk's state is stored. Decays lie between 1/2 and 1 and keys are short, so that states stay
//! finite over any number of chunks.

mod twin;

use super::arena::{Arena, Content};
use super::lengths::NAMED;
use super::shape::{List, Shape};
use super::twin::{Kernel, Twin};
use super::{Call, Choice, Contract, Failure, Launch, Subject};
use kda_core::{Elem, Executor, KernelDesc, PreparedLaunch, TensorArg};
use kda_runtime::operators::delta_h::{Batch, Gate, Options, Problem, Schedule, Variant, plan, schedule};
use kda_runtime::{OpError, Plan};

/// K and V: channels of a head.
const HEAD: u64 = 128;
/// Rows of a chunk.
const CHUNK: u64 = 64;

const KDA: Contract = Contract { name: "kda", text: "a gate a key channel; states and h [K, V]" };
const KDA_VK: Contract = Contract { name: "kda-vk", text: "a gate a key channel; states and h [V, K]" };
const SCALAR: Contract = Contract { name: "scalar", text: "one gate a head and row; states and h [K, V]" };
const SERIAL: Contract =
    Contract { name: "serial", text: "a gate a key channel; states and h [K, V]; no sequence is cut into segments" };
const OPEN: Contract = Contract { name: "open", text: "as kda, where the host does not know the longest sequence" };

/// The operator.
pub struct DeltaH;

impl Subject for DeltaH {
    fn name(&self) -> &'static str {
        "delta_h"
    }

    fn contracts(&self) -> &'static [Contract] {
        &[KDA, KDA_VK, SCALAR, SERIAL, OPEN]
    }

    /// No call writes what the next one reads.
    fn launches(&self) -> &'static [Launch] {
        &[Launch::Plain, Launch::Pdl]
    }

    fn shapes(&self, list: List) -> Vec<Shape> {
        let [fixed, mixed] = &NAMED;
        let heads = [4, 8, 16, 32, 64];
        let table = || [fixed, mixed].into_iter().flat_map(|named| heads.map(|h| Shape::packed(named, h)));
        match list {
            List::All => {
                // Many short sequences, and one that is long.
                let more = [(8192, 64), (8192, 512), (65_536, 1)];
                table().chain(more.into_iter().flat_map(|(t, n)| heads.map(|h| Shape { t, h, n }))).collect()
            }
            List::Small => {
                [fixed, mixed].into_iter().flat_map(|named| [4, 8].map(|h| Shape::packed(named, h))).collect()
            }
            List::Table => table().collect(),
            // No two have as many pairs of a sequence and a head.
            List::Tune => {
                let one = [4, 8, 16, 28, 32, 40, 64, 128].map(|h| Shape::packed(fixed, h));
                one.into_iter().chain([2, 4, 6, 8, 16, 32, 64].map(|h| Shape::packed(mixed, h))).collect()
            }
        }
    }

    /// Every input row, gate of a chunk and initial state read once, every result written once.
    fn bytes(&self, contract: &Contract, shape: Shape) -> f64 {
        let Shape { t, h, n } = shape;
        let chunks = chunks(shape);
        let gates = if *contract == SCALAR { t * h * 4 } else { chunks * h * HEAD * 4 };
        let state = h * HEAD * HEAD;
        (t * h * 4 * HEAD * 2 + chunks * state * 2 + gates + 2 * n * state * 4) as f64
    }

    fn kernels(&self) -> Vec<&'static KernelDesc> {
        Variant::all().filter(|variant| variant.boxes()).map(Variant::desc).collect()
    }

    fn call(&self, arena: &mut Arena, contract: &Contract, shape: Shape) -> Result<Box<dyn Call>, Failure> {
        Ok(Box::new(Layer::new(arena, contract, shape)?))
    }

    /// Slices of V are chosen where whole sequences are walked; segments have one kind.
    fn choices(&self) -> &'static [Choice] {
        &[Choice { prefix: "", text: "", contracts: &[SERIAL] }]
    }

    fn preference(&self) -> &'static str {
        "kda-runtime/src/operators/delta_h/preference.rs"
    }

    fn twin(&self) -> Option<&dyn Twin> {
        Some(&twin::HandWritten)
    }

    fn peers(&self) -> Option<&'static str> {
        Some("benches/peers/delta_h.py")
    }
}

/// Chunks of all sequences.
fn chunks(shape: Shape) -> u64 {
    shape.lengths().iter().map(|length| length.div_ceil(CHUNK)).sum()
}

/// One layer, and the schedule of its batch.
struct Layer {
    problem: Problem,
    schedule: Schedule,
    shape: Shape,
}

impl Layer {
    fn new(arena: &mut Arena, contract: &Contract, shape: Shape) -> Result<Layer, Failure> {
        let Shape { t, h, n } = shape;
        let split = [KDA, KDA_VK, OPEN].contains(contract);
        let longest = if *contract == OPEN { None } else { shape.lengths().into_iter().max() };
        let batch = Batch { sequences: n, rows: t, heads: h, h_every: 1, split, longest };
        let mut end = 0;
        let ends: Vec<i32> = shape.lengths().iter().map(|length| (end += length, end as i32).1).collect();
        let cu_seqlens = arena.upload(&[&[0], &ends[..]].concat())?;
        let workspace = arena.tensor(Content::Output, Elem::U32, &[batch.schedule_words()])?;
        let schedule = Schedule {
            cu_seqlens,
            workspace,
            chunk_offsets: Some(arena.tensor(Content::Output, Elem::I32, &[n + 1])?),
            rows: t,
            heads: h,
            h_every: 1,
            capacity: Some(batch.h_states()),
            split,
            longest,
        };
        let matrices = |arena: &mut Arena, content: Content, elem: Elem, count: u64| {
            let dense = arena.tensor(content, elem, &[count, h, HEAD, HEAD])?;
            let inner = if *contract == KDA_VK { [1, HEAD] } else { [HEAD, 1] };
            let strides = [h * HEAD * HEAD, HEAD * HEAD, inner[0], inner[1]];
            Ok::<TensorArg, Failure>(TensorArg::strided(dense.ptr, dense.bytes, elem, dense.shape(), &strides)?)
        };
        let rows = [t, h, HEAD];
        let problem = Problem {
            kg: arena.tensor(Content::Keys, Elem::BF16, &rows)?,
            w: arena.tensor(Content::Projections, Elem::BF16, &rows)?,
            u: arena.tensor(Content::Values, Elem::BF16, &rows)?,
            gate: match *contract {
                SCALAR => Gate::Scalar(arena.tensor(Content::Gates, Elem::F32, &[t, h])?),
                _ => Gate::Cumulative(arena.tensor(Content::Gates, Elem::F32, &rows)?),
            },
            initial_state: Some(matrices(arena, Content::WideState, Elem::F32, n)?),
            initial_slots: None,
            has_initial: None,
            final_state: Some(matrices(arena, Content::Output, Elem::F32, n)?),
            final_slots: None,
            null: -1,
            h: Some(matrices(arena, Content::Output, Elem::BF16, batch.h_states())?),
            v_new: Some(arena.tensor(Content::Output, Elem::BF16, &rows)?),
            schedule: workspace,
            maps: match batch.map_bytes() {
                0 => None,
                bytes => Some(arena.tensor(Content::Output, Elem::U8, &[bytes])?),
            },
            sequences: n,
            h_every: 1,
            split,
            longest,
        };
        Ok(Layer { problem, schedule, shape })
    }
}

impl Call for Layer {
    fn plan(
        &self,
        executor: &dyn Executor,
        kernel: Option<&'static KernelDesc>,
        launch: Launch,
    ) -> Result<Plan, OpError> {
        let variant = kernel.and_then(Variant::of);
        plan(&self.problem, executor, &Options { variant, pdl: launch != Launch::Plain, ..Options::default() })
    }

    fn ahead(&self, executor: &dyn Executor) -> Result<Option<(&'static str, Plan)>, OpError> {
        Ok(Some(("schedule", schedule::plan(&self.schedule, executor)?)))
    }

    fn twin(&self, kernel: &Kernel, launch: Launch) -> Option<Vec<PreparedLaunch>> {
        twin::launches(&self.problem, kernel, launch)
    }

    /// Values, the states of all chunks that there are, and final states.
    fn outputs(&self) -> Vec<TensorArg> {
        let h = self.problem.h.and_then(|h| {
            let (shape, bytes) = ([chunks(self.shape), h.shape()[1], HEAD, HEAD], h.bytes);
            TensorArg::strided(h.ptr, bytes, h.elem, &shape, h.strides()).ok()
        });
        [self.problem.v_new, h, self.problem.final_state].into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests;
