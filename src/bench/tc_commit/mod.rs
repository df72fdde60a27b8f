//! `tc_commit` under the bench.
//!
//! A shape is a window of Q tokens of each of N requests, half of them (rounded up) accepted. States and histories change in
//! place, call after call, by the same records; decays are below 1, so that states stay finite. Null index -1, a random order
//! of slots, bounded gate -5. Results are compared with the twin's where states move to other slots. A step is the verify of these tokens and then their commit.

mod twin;

use super::arena::{Arena, Content};
use super::shape::{List, Shape};
use super::twin::{Kernel, Twin};
use super::{Call, Choice, Contract, Failure, Launch, Subject, tc_verify};
use kda_core::{Elem, Executor, KernelDesc, PreparedLaunch, TensorArg};
use kda_kernels::tc_commit::TcCommitVariant;
use kda_ref::rng::Rng;
use kda_runtime::operators::tc_commit::{Gate, NAME, Options, Problem, plan};
use kda_runtime::operators::tc_verify as verify;
use kda_runtime::{OpError, Plan};

/// K and V: channels of a head.
const HEAD: u64 = 128;
/// Most tokens of a window.
const MOST_TOKENS: u64 = 16;
/// Layers of a model that are committed at once.
const LAYERS: u64 = 69;

const MOVED: Contract =
    Contract { name: "moved", text: "bf16 states and histories [Q + 2, D], from one slot to another" };
const BF16: Contract = Contract { name: "bf16", text: "bf16 states in place; histories [Q + 2, D] are moved along" };
const F32: Contract = Contract { name: "fp32", text: "f32 states in place; histories [Q + 2, D] are moved along" };
const KEPT: Contract =
    Contract { name: "kept", text: "bf16 states; histories stay, and the next verify begins at another row" };
const ALL_LAYERS: Contract = Contract { name: "layers", text: "as bf16, 69 layers in one launch by a table" };
const STEP: Contract = Contract { name: "step", text: "tc_verify with the contract conv, then bf16" };

/// The operator.
pub struct TcCommit;

impl Subject for TcCommit {
    fn name(&self) -> &'static str {
        NAME
    }

    fn contracts(&self) -> &'static [Contract] {
        &[MOVED, BF16, F32, KEPT, ALL_LAYERS, STEP]
    }

    fn shapes(&self, list: List) -> Vec<Shape> {
        let of = |t: u64, h: u64| [1, 8, 16, 32, 64, 128, 256, 512].map(|n| Shape { t, h, n });
        match list {
            List::All => [(8, 12), (4, 12)].into_iter().flat_map(|(t, h)| of(t, h)).collect(),
            List::Small => of(8, 12)[..4].to_vec(),
            List::Table => of(8, 12).to_vec(),
            List::Tune => {
                let requests = [1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512];
                requests.map(|n| Shape { t: 8, h: 12, n }).to_vec()
            }
        }
    }

    /// States read and written once, of each accepted token its record, of a history three rows read and written. Weights,
    /// which all requests share, are left out.
    fn bytes(&self, contract: &Contract, shape: Shape) -> f64 {
        let Shape { t, h, n } = shape;
        let elem = if *contract == F32 { 4 } else { 2 };
        let history = if *contract == KEPT { 0 } else { 2 * 3 * 2 * 3 * HEAD };
        let commit = (n * h * (2 * elem * HEAD * HEAD + accepted(t) * 8 * HEAD + history)) as f64;
        match *contract {
            ALL_LAYERS => LAYERS as f64 * commit,
            STEP => commit + tc_verify::bytes_compacted(shape),
            _ => commit,
        }
    }

    fn kernels(&self) -> Vec<&'static KernelDesc> {
        TcCommitVariant::ALL.iter().map(|variant| variant.desc()).collect()
    }

    fn call(&self, arena: &mut Arena, contract: &Contract, shape: Shape) -> Result<Box<dyn Call>, Failure> {
        if shape.t > MOST_TOKENS {
            return Err(format!("{NAME} takes windows up to {MOST_TOKENS} tokens; {shape} has {}", shape.t).into());
        }
        if *contract == STEP {
            let verify = tc_verify::compacted(arena, shape)?;
            return Ok(Box::new(Step { commit: behind(arena, &verify, shape)?, verify }));
        }
        let layers = if *contract == ALL_LAYERS { LAYERS } else { 1 };
        Ok(Box::new(Commit { problem: problem(arena, contract, shape, layers)?, shape }))
    }

    fn choices(&self) -> &'static [Choice] {
        &[
            Choice { prefix: "BF16_", text: "a bf16 state", contracts: &[BF16] },
            Choice { prefix: "F32_", text: "an f32 state", contracts: &[F32] },
        ]
    }

    /// Nothing is read ahead of the wait.
    fn launches(&self) -> &'static [Launch] {
        &[Launch::Plain, Launch::Pdl]
    }

    fn preference(&self) -> &'static str {
        "kda-runtime/src/operators/tc_commit/preference.rs"
    }

    fn twin(&self) -> Option<&dyn Twin> {
        Some(&twin::HandWritten)
    }
}

/// Tokens of a window that are accepted.
fn accepted(t: u64) -> u64 {
    t.div_ceil(2)
}

struct Commit {
    problem: Problem,
    shape: Shape,
}

impl Call for Commit {
    fn plan(
        &self,
        executor: &dyn Executor,
        kernel: Option<&'static KernelDesc>,
        launch: Launch,
    ) -> Result<Plan, OpError> {
        commit(&self.problem, executor, kernel, launch)
    }

    fn twin(&self, kernel: &Kernel, launch: Launch) -> Option<Vec<PreparedLaunch>> {
        twin::launch(&self.problem, self.shape, kernel, launch).map(|launch| vec![launch])
    }

    /// The states at destinations; those in place are inputs, too.
    fn outputs(&self) -> Vec<TensorArg> {
        let Shape { h, n, .. } = self.shape;
        let state = &self.problem.state;
        let bytes = n * h * HEAD * HEAD * u64::from(state.elem.bytes());
        let moved = TensorArg::dense(state.ptr + bytes, bytes, state.elem, &[n, h, HEAD, HEAD]).ok();
        self.problem.destinations.and(moved).into_iter().collect()
    }
}

/// A verify and its commit.
struct Step {
    verify: verify::Problem,
    commit: Problem,
}

impl Call for Step {
    /// The kernel named is that of the commit. States are written by the launch ahead of the next verify, but those of other
    /// input sets.
    fn plan(
        &self,
        executor: &dyn Executor,
        kernel: Option<&'static KernelDesc>,
        launch: Launch,
    ) -> Result<Plan, OpError> {
        let first = verify::plan(&self.verify, executor, &tc_verify::options(None, launch))?;
        Ok(first.followed_by(commit(&self.commit, executor, kernel, launch)?))
    }

    fn outputs(&self) -> Vec<TensorArg> {
        vec![self.verify.out]
    }
}

fn commit(
    problem: &Problem,
    executor: &dyn Executor,
    kernel: Option<&'static KernelDesc>,
    launch: Launch,
) -> Result<Plan, OpError> {
    let variant = kernel.and_then(|desc| TcCommitVariant::find(desc.entry));
    plan(problem, executor, &Options { variant, pdl: launch != Launch::Plain })
}

/// The commit of what a verify has recorded.
fn behind(arena: &mut Arena, verify: &verify::Problem, shape: Shape) -> Result<Problem, Failure> {
    let Shape { t, n, .. } = shape;
    Ok(Problem {
        state: verify.state,
        corr: verify.corr,
        kg: verify.kg,
        a_log: verify.a_log,
        dt_bias: verify.dt_bias,
        conv: verify.convolution.map(|convolution| convolution.state),
        slots: verify.slots,
        destinations: None,
        counts: arena.upload(&vec![accepted(t) as i32; n as usize])?,
        boundary: None,
        layers: None,
        gate: verify.gate,
        null: verify.null,
    })
}

/// Histories `[slots, Q + 2, D]` in the order in which a call takes them.
fn windows(state: &TensorArg, shape: Shape) -> Result<TensorArg, Failure> {
    let (rows, d) = (shape.t + 2, 3 * shape.h * HEAD);
    Ok(TensorArg::strided(state.ptr, state.bytes, state.elem, &[shape.n, d, rows], &[rows * d, 1, d])?)
}

/// A commit on its own, of one layer or of several by a table.
fn problem(arena: &mut Arena, contract: &Contract, shape: Shape, layers: u64) -> Result<Problem, Failure> {
    let Shape { t, h, n } = shape;
    let (states, elem) =
        if *contract == F32 { (Content::State, Elem::F32) } else { (Content::NarrowState, Elem::BF16) };
    let moved = *contract == MOVED;
    let mut slots: Vec<i32> = (0..n as i32).collect();
    Rng::new(arena.used().bytes()).shuffle(&mut slots);
    // Destinations behind all sources.
    let others: Vec<i32> = slots.iter().map(|slot| n as i32 + slot).collect();
    let destinations = if moved { Some(arena.upload(&others)?) } else { None };
    let pool = if moved { Shape { n: 2 * n, ..shape } } else { shape };
    let (slots, counts) = (arena.upload(&slots)?, arena.upload(&vec![accepted(t) as i32; n as usize])?);
    let mut first: Option<Problem> = None;
    let mut addresses = Vec::new();
    for _ in 0..layers {
        let history = arena.tensor(Content::NarrowHistory, Elem::BF16, &[pool.n, t + 2, 3 * h * HEAD])?;
        let layer = Problem {
            state: arena.tensor(states, elem, &[pool.n, h, HEAD, HEAD])?,
            corr: arena.tensor(Content::State, Elem::F32, &[n, h, t, HEAD])?,
            kg: arena.tensor(Content::Activation, Elem::BF16, &[n, h, t, 2 * HEAD])?,
            a_log: Some(arena.tensor(Content::Weight, Elem::F32, &[h])?),
            dt_bias: arena.tensor(Content::Weight, Elem::F32, &[h, HEAD])?,
            conv: if *contract == KEPT { None } else { Some(windows(&history, pool)?) },
            slots,
            destinations,
            counts,
            boundary: None,
            layers: None,
            gate: Gate::Bounded { lower_bound: -5.0 },
            null: -1,
        };
        let address = |tensor: Option<TensorArg>| tensor.map_or(0, |tensor| tensor.ptr);
        addresses.push([
            layer.state.ptr,
            address(layer.conv),
            layer.corr.ptr,
            layer.kg.ptr,
            address(layer.a_log),
            layer.dt_bias.ptr,
        ]);
        first = first.or(Some(layer));
    }
    let table = if layers > 1 { Some(arena.addresses(&addresses)?) } else { None };
    let first = first.ok_or("a call has layers")?;
    Ok(Problem { layers: table, ..first })
}

#[cfg(test)]
mod tests;
