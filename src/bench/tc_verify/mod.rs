//! `tc_verify` under the bench.
//!
//! A shape is Q tokens of each of N requests, all of them full. Every input set has a pool of N slots, which the requests take
//! in a random order, so that the sets of a run are one pool with a slot for each request of all of them. States are read
//! only, and a history that is rolled holds the newest inputs alone after a few calls: replays do not drift. Requests start at
//! every row of the history. Null index -1, dense tensors, bf16 states unless said otherwise.

mod twin;

use super::arena::{Arena, Content};
use super::shape::{List, Shape};
use super::twin::{Kernel, Twin};
use super::{Call, Choice, Contract, Failure, Launch, Subject, conv_verify};
use kda_core::{Elem, Executor, KernelDesc, PreparedLaunch, TensorArg};
use kda_ref::rng::Rng;
use kda_runtime::operators::tc_verify::{Convolution, Gate, NAME, Options, Problem, Variant, plan};
use kda_runtime::{OpError, Plan};

/// K and V: channels of a head.
const HEAD: u64 = 128;
/// Most tokens of a request; above 8 with a bounded gate alone.
const MOST_TOKENS: u64 = 16;

const CONV: Contract = Contract { name: "conv", text: "convolution with bf16 taps, history [Q + 2, D], bounded gate" };
const CONV_F32: Contract = Contract { name: "conv-f32", text: "the same with f32 taps" };
const SOFTPLUS: Contract = Contract { name: "softplus", text: "as conv with a softplus gate" };
const GIVEN: Contract = Contract { name: "given", text: "q, k and v given, no convolution; bounded gate" };
const CHANNEL_MAJOR: Contract = Contract { name: "channel-major", text: "as conv with a history [D, Q + 2]" };
const FP32: Contract =
    Contract { name: "fp32", text: "as conv with f32 states, by the portable kernel; every launch is plain" };
const FIXED: Contract =
    Contract { name: "fixed", text: "as conv without tickets: CTAs take requests in a fixed order" };
const SNAPSHOTS: Contract =
    Contract { name: "snapshots", text: "conv_verify instead: f32 states, one and a window stored behind each token" };

/// The operator.
pub struct TcVerify;

impl Subject for TcVerify {
    fn name(&self) -> &'static str {
        NAME
    }

    fn contracts(&self) -> &'static [Contract] {
        &[CONV, CONV_F32, SOFTPLUS, GIVEN, CHANNEL_MAJOR, FP32, FIXED, SNAPSHOTS]
    }

    fn shapes(&self, list: List) -> Vec<Shape> {
        let requests = [1, 8, 16, 32, 64, 128, 256, 512];
        let of = |t: u64, h: u64| requests.map(|n| Shape { t, h, n });
        match list {
            List::All => [(8, 12), (8, 96), (4, 12), (4, 96)].into_iter().flat_map(|(t, h)| of(t, h)).collect(),
            List::Small => of(8, 12)[..4].to_vec(),
            List::Table | List::Tune => of(8, 12).to_vec(),
        }
    }

    /// State, tokens and history read once, outputs, records and history written once. Weights, which all requests share, are
    /// left out.
    fn bytes(&self, contract: &Contract, shape: Shape) -> f64 {
        let Shape { t, h, n } = shape;
        let state = if *contract == FP32 { 4 } else { 2 } * HEAD * HEAD;
        let token = 2 * (3 * HEAD + HEAD + 1) + 2 * HEAD;
        let record = 4 * HEAD + 2 * 2 * HEAD;
        let row = 2 * 3 * HEAD; // of the history: three are read, Q + 2 written
        let history = if *contract == GIVEN { 0 } else { row * (3 + t + 2) };
        match *contract {
            SNAPSHOTS => conv_verify::bytes_with_narrow_taps(shape),
            _ => (n * h * (state + t * (token + record) + history)) as f64,
        }
    }

    fn kernels(&self) -> Vec<&'static KernelDesc> {
        Variant::all().map(Variant::desc).collect()
    }

    fn call(&self, arena: &mut Arena, contract: &Contract, shape: Shape) -> Result<Box<dyn Call>, Failure> {
        if *contract == SNAPSHOTS {
            return Ok(Box::new(Snapshots(conv_verify::with_narrow_taps(arena, shape)?)));
        }
        Ok(Box::new(Verify { problem: problem(arena, contract, shape)?, shape }))
    }

    /// Dispatch goes by what a call is, not by times.
    fn choices(&self) -> &'static [Choice] {
        &[]
    }

    fn preference(&self) -> &'static str {
        ""
    }

    fn twin(&self) -> Option<&dyn Twin> {
        Some(&twin::HandWritten)
    }

    fn peers(&self) -> Option<&'static str> {
        Some("benches/peers/tc_verify.py")
    }
}

struct Verify {
    problem: Problem,
    shape: Shape,
}

impl Call for Verify {
    fn plan(
        &self,
        executor: &dyn Executor,
        kernel: Option<&'static KernelDesc>,
        launch: Launch,
    ) -> Result<Plan, OpError> {
        plan(&self.problem, executor, &options(kernel.and_then(Variant::of), launch))
    }

    fn twin(&self, kernel: &Kernel, launch: Launch) -> Option<Vec<PreparedLaunch>> {
        twin::launch(&self.problem, self.shape, kernel, launch).map(|launch| vec![launch])
    }

    fn outputs(&self) -> Vec<TensorArg> {
        vec![self.problem.out, self.problem.corr, self.problem.kg]
    }
}

/// A call with the contract conv whose histories have been moved along by a commit.
pub(super) fn compacted(arena: &mut Arena, shape: Shape) -> Result<Problem, Failure> {
    let mut problem = problem(arena, &CONV, shape)?;
    let accepted = arena.upload(&vec![1; shape.n as usize])?;
    problem.convolution = problem.convolution.map(|convolution| Convolution { accepted, ..convolution });
    Ok(problem)
}

/// Bytes of such a call.
pub(super) fn bytes_compacted(shape: Shape) -> f64 {
    TcVerify.bytes(&CONV, shape)
}

/// How a call is launched.
pub(super) fn options(variant: Option<Variant>, launch: Launch) -> Options {
    let (pdl, stable_pools) = match launch {
        Launch::Plain => (false, false),
        Launch::Pdl => (true, false),
        Launch::PdlStable => (true, true),
    };
    Options { variant, pdl, stable_pools }
}

/// The same tokens verified by `conv_verify`.
struct Snapshots(Box<dyn Call>);

impl Call for Snapshots {
    fn plan(
        &self,
        executor: &dyn Executor,
        kernel: Option<&'static KernelDesc>,
        launch: Launch,
    ) -> Result<Plan, OpError> {
        match kernel {
            None => self.0.plan(executor, None, launch),
            Some(desc) => {
                let why = "conv_verify runs this contract".to_string();
                Err(OpError::Forced { op: NAME, variant: desc.entry.into(), why })
            }
        }
    }

    fn outputs(&self) -> Vec<TensorArg> {
        self.0.outputs()
    }
}

fn problem(arena: &mut Arena, contract: &Contract, shape: Shape) -> Result<Problem, Failure> {
    let Shape { t, h, n } = shape;
    if t > MOST_TOKENS {
        return Err(format!("{NAME} takes up to {MOST_TOKENS} tokens a request; {shape} has {t}").into());
    }
    let (total, d) = (n * t, 3 * h * HEAD);
    let (states, elem) =
        if *contract == FP32 { (Content::State, Elem::F32) } else { (Content::NarrowState, Elem::BF16) };
    let mut slots: Vec<i32> = (0..n as i32).collect();
    Rng::new(arena.used().bytes()).shuffle(&mut slots);
    let starts: Vec<i32> = (0..=n).map(|b| (b * t) as i32).collect();
    Ok(Problem {
        qkv: arena.tensor(Content::Activation, Elem::BF16, &[total, d])?,
        raw_g: arena.tensor(Content::Activation, Elem::BF16, &[total, h, HEAD])?,
        raw_beta: arena.tensor(Content::Activation, Elem::BF16, &[total, h])?,
        a_log: Some(arena.tensor(Content::Weight, Elem::F32, &[h])?),
        dt_bias: arena.tensor(Content::Weight, Elem::F32, &[h, HEAD])?,
        state: arena.tensor(states, elem, &[n, h, HEAD, HEAD])?,
        convolution: match *contract {
            GIVEN => None,
            _ => Some(convolution(arena, contract, shape)?),
        },
        query_start: arena.upload(&starts)?,
        slots: arena.upload(&slots)?,
        corr: arena.tensor(Content::Output, Elem::F32, &[n, h, t, HEAD])?,
        kg: arena.tensor(Content::Output, Elem::BF16, &[n, h, t, 2 * HEAD])?,
        out: arena.tensor(Content::Output, Elem::BF16, &[total, h, HEAD])?,
        counters: match *contract {
            FIXED => None,
            _ => Some(arena.tensor(Content::Zero, Elem::U32, &[h])?),
        },
        scale: (HEAD as f32).sqrt().recip(),
        gate: if *contract == SOFTPLUS { Gate::Softplus } else { Gate::Bounded { lower_bound: -5.0 } },
        null: -1,
    })
}

fn convolution(arena: &mut Arena, contract: &Contract, shape: Shape) -> Result<Convolution, Failure> {
    let Shape { t, h, n } = shape;
    let (d, rows) = (3 * h * HEAD, t + 2);
    let (taps, elem) =
        if *contract == CONV_F32 { (Content::Weight, Elem::F32) } else { (Content::NarrowWeight, Elem::BF16) };
    let weight = arena.tensor(taps, elem, &[d, 4])?;
    let dense = arena.tensor(Content::NarrowHistory, Elem::BF16, &[n, rows, d])?;
    let inner = if *contract == CHANNEL_MAJOR { [rows, 1] } else { [1, d] };
    let strides = [rows * d, inner[0], inner[1]];
    let state = TensorArg::strided(dense.ptr, dense.bytes, dense.elem, &[n, d, rows], &strides)?;
    let accepted: Vec<i32> = (0..n).map(|b| (1 + b % t) as i32).collect();
    Ok(Convolution { weight, state, accepted: arena.upload(&accepted)? })
}

#[cfg(test)]
mod tests;
