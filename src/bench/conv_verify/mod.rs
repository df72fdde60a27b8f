//! `conv_verify` under the bench.
//!
//! Bounded gate -5, states f32, null index -1, three independent permutations as index maps.

mod twin;

use super::arena::{Arena, Content};
use super::shape::{List, Shape};
use super::twin::{Kernel, Twin};
use super::{Call, Choice, Contract, Failure, Launch, Subject};
use kda_core::{Elem, Executor, KernelDesc, PreparedLaunch, TensorArg};
use kda_kernels::conv_verify::ConvVerifyVariant;
use kda_ref::rng::Rng;
use kda_runtime::operators::conv_verify::{Gate, Options, Problem, SnapshotRule, plan};
use kda_runtime::{OpError, Plan};

/// K and V: channels of a head.
const HEAD: u64 = 128;

const FP32: Contract =
    Contract { name: "fp32", text: "f32 convolution pool and windows [D, 3], bias, roll (cuLA's contract)" };
const BF16: Contract =
    Contract { name: "bf16", text: "bf16 convolution pool and windows [3, D], no bias, no roll (SGLang's contract)" };

/// The operator.
pub struct ConvVerify;

impl Subject for ConvVerify {
    fn name(&self) -> &'static str {
        "conv_verify"
    }

    fn contracts(&self) -> &'static [Contract] {
        &[FP32, BF16]
    }

    fn shapes(&self, list: List) -> Vec<Shape> {
        let grid = |tokens: &[u64], pairs: &[u64]| {
            tokens.iter().flat_map(|t| pairs.iter().map(|pairs| Shape::of_pairs(*t, *pairs))).collect()
        };
        match list {
            List::All => {
                let mut shapes = Vec::new();
                for t in [4, 6, 8] {
                    for h in [8, 16, 32, 64] {
                        shapes.extend((0..8).map(|log| Shape { t, h, n: 1 << log }));
                    }
                }
                shapes
            }
            List::Small => grid(&[4, 6, 8], &[8, 16, 32, 64]),
            List::Table => grid(&[4], &[8, 16, 32, 64, 128, 256, 512, 1024, 4096, 8192]),
            List::Tune => grid(
                &[1, 2, 3, 4, 6, 8, 12, 16],
                &[1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 4096],
            ),
        }
    }

    /// Every input read once, every output written once.
    fn bytes(&self, contract: &Contract, shape: Shape) -> f64 {
        let Shape { t, h, n } = shape;
        let (fp32, d) = (*contract == FP32, 3 * h * HEAD);
        let elem = if fp32 { 4 } else { 2 };
        let history = 3 * d * elem;
        let states = h * HEAD * HEAD * 4;
        let read = states + history + 2 * t * d + 2 * t * h * (HEAD + 1);
        let written = states * t + history * t + 2 * t * h * HEAD + if fp32 { history } else { 0 };
        let shared = 16 * d + 4 * h * (1 + HEAD) + if fp32 { 4 * d } else { 0 };
        (n * (read + written) + shared) as f64
    }

    fn kernels(&self) -> Vec<&'static KernelDesc> {
        ConvVerifyVariant::ALL.iter().map(|variant| variant.desc()).collect()
    }

    fn call(&self, arena: &mut Arena, contract: &Contract, shape: Shape) -> Result<Box<dyn Call>, Failure> {
        let problem = problem(arena, *contract == FP32, shape)?;
        Ok(Box::new(Verify { problem, shape, bytes: self.bytes(contract, shape) }))
    }

    fn choices(&self) -> &'static [Choice] {
        &[Choice { prefix: "", text: "", contracts: &[FP32, BF16] }]
    }

    fn preference(&self) -> &'static str {
        "kda-runtime/src/operators/conv_verify/preference.rs"
    }

    fn twin(&self) -> Option<&dyn Twin> {
        Some(&twin::HandWritten)
    }

    fn peers(&self) -> Option<&'static str> {
        Some("benches/peers/conv_verify.py")
    }
}

/// A call with the bf16 contract and taps of bf16: what `tc_verify` is set beside.
///
/// # Errors
/// As [`Subject::call`].
pub(super) fn with_narrow_taps(arena: &mut Arena, shape: Shape) -> Result<Box<dyn Call>, Failure> {
    let wide = problem(arena, false, shape)?;
    let conv_weight = arena.tensor(Content::NarrowWeight, Elem::BF16, wide.conv_weight.shape())?;
    let problem = Problem { conv_weight, ..wide };
    Ok(Box::new(Verify { problem, shape, bytes: bytes_with_narrow_taps(shape) }))
}

/// Bytes of such a call.
pub(super) fn bytes_with_narrow_taps(shape: Shape) -> f64 {
    ConvVerify.bytes(&BF16, shape) - (8 * 3 * shape.h * HEAD) as f64
}

struct Verify {
    problem: Problem,
    shape: Shape,
    bytes: f64,
}

impl Call for Verify {
    fn plan(
        &self,
        executor: &dyn Executor,
        kernel: Option<&'static KernelDesc>,
        launch: Launch,
    ) -> Result<Plan, OpError> {
        let variant = kernel.and_then(|desc| ConvVerifyVariant::find(desc.entry));
        plan(&self.problem, executor, &options(variant, launch))
    }

    fn twin(&self, kernel: &Kernel, launch: Launch) -> Option<Vec<PreparedLaunch>> {
        let fits = kernel.tokens == self.shape.t;
        fits.then(|| vec![twin::launch(&self.problem, self.shape, self.bytes, kernel, launch)])
    }

    fn outputs(&self) -> Vec<TensorArg> {
        vec![self.problem.out]
    }
}

fn options(variant: Option<ConvVerifyVariant>, launch: Launch) -> Options {
    let (pdl, stable_pools) = match launch {
        Launch::Plain => (false, false),
        Launch::Pdl => (true, false),
        Launch::PdlStable => (true, true),
    };
    Options { variant, pdl, stable_pools, evict_first: None }
}

fn problem(arena: &mut Arena, fp32: bool, shape: Shape) -> Result<Problem, Failure> {
    let Shape { t, h, n } = shape;
    let d = 3 * h * HEAD;
    let rng = &mut Rng::new(arena.used().bytes());
    let mut permutation = |arena: &mut Arena| {
        let mut slots: Vec<i32> = (0..n as i32).collect();
        rng.shuffle(&mut slots);
        arena.upload(&slots)
    };
    let (conv_state, windows_out) = if fp32 {
        let pool = arena.tensor(Content::History, Elem::F32, &[n, d, 3])?;
        (pool, arena.tensor(Content::Output, Elem::F32, &[n, t, d, 3])?)
    } else {
        let pool = arena.tensor(Content::NarrowHistory, Elem::BF16, &[n, 3, d])?;
        let windows = arena.tensor(Content::Output, Elem::BF16, &[n, t, 3, d])?;
        let channels_inner =
            |t: TensorArg, shape: &[u64], strides: &[u64]| TensorArg::strided(t.ptr, t.bytes, t.elem, shape, strides);
        (
            channels_inner(pool, &[n, d, 3], &[3 * d, 1, d])?,
            channels_inner(windows, &[n, t, d, 3], &[3 * d * t, 3 * d, 1, d])?,
        )
    };
    Ok(Problem {
        x: arena.tensor(Content::Activation, Elem::BF16, &[n, t, d])?,
        conv_weight: arena.tensor(Content::Weight, Elem::F32, &[d, 4])?,
        conv_bias: if fp32 { Some(arena.tensor(Content::Weight, Elem::F32, &[d])?) } else { None },
        conv_state,
        conv_slots: permutation(arena)?,
        state: arena.tensor(Content::State, Elem::F32, &[n, h, HEAD, HEAD])?,
        state_slots: permutation(arena)?,
        snapshot_rows: permutation(arena)?,
        a: arena.tensor(Content::Activation, Elem::BF16, &[n, t, h, HEAD])?,
        b: arena.tensor(Content::Activation, Elem::BF16, &[n, t, h])?,
        a_log: Some(arena.tensor(Content::Weight, Elem::F32, &[h])?),
        dt_bias: arena.tensor(Content::Weight, Elem::F32, &[h, HEAD])?,
        states_out: Some(arena.tensor(Content::Output, Elem::F32, &[n, t, h, HEAD, HEAD])?),
        windows_out: Some(windows_out),
        out: arena.tensor(Content::Output, Elem::BF16, &[n, t, h, HEAD])?,
        workspace: arena.tensor(Content::Zero, Elem::U32, &[n, h])?,
        scale: (HEAD as f32).sqrt().recip(),
        gate: Gate::Bounded { lower_bound: -5.0 },
        null: -1,
        roll: fp32,
        snapshot_rule: SnapshotRule::ByIndex,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kda_runtime::executor::sim::SimExecutor;

    #[test]
    fn bytes_are_those_of_the_contract() {
        for (t, fp32, bf16) in [(4, 360_456, 344_328), (6, 503_308, 482_572), (8, 646_160, 620_816)] {
            for (h, n) in [(8, 1), (64, 128)] {
                let shape = Shape { t, h, n };
                assert_eq!(ConvVerify.bytes(&FP32, shape), (n * h * fp32 + 8196 * h) as f64);
                assert_eq!(ConvVerify.bytes(&BF16, shape), (n * h * bf16 + 6660 * h) as f64);
            }
        }
    }

    #[test]
    fn the_lists_are_those_that_are_published() {
        assert_eq!(ConvVerify.shapes(List::All).len(), 96);
        let table: Vec<(u64, u64, u64)> =
            ConvVerify.shapes(List::Table).iter().map(|shape| (shape.t, shape.h, shape.n)).collect();
        let small = [(4, 8, 1), (4, 16, 1), (4, 32, 1), (4, 64, 1), (4, 64, 2), (4, 64, 4), (4, 64, 8), (4, 64, 16)];
        assert_eq!(table, [&small[..], &[(4, 64, 64), (4, 64, 128)]].concat());
    }

    /// Both contracts, every launch: dispatch plans the call, and so does every variant for its tokens.
    #[test]
    fn every_call_of_the_grid_has_a_plan() {
        let executor = SimExecutor::default();
        for contract in ConvVerify.contracts() {
            for shape in [List::Small, List::Tune].into_iter().flat_map(|list| ConvVerify.shapes(list)) {
                let call = ConvVerify.call(&mut Arena::counting(), contract, shape).unwrap();
                for launch in Launch::ALL {
                    let plan = call.plan(&executor, None, launch).unwrap();
                    assert_eq!(plan.prepared().pdl, launch != Launch::Plain);
                }
                let fits = |desc: &&&'static KernelDesc| call.plan(&executor, Some(desc), Launch::Plain).is_ok();
                assert!(ConvVerify.kernels().iter().filter(fits).count() > 1, "{shape}");
            }
        }
    }
}
