//! `decode` under the bench.
//!
//! With the convolution: bounded gate -5; without: softplus gate. Null index -1, independent permutations as index maps. The
//! state is read and written in place, call after call: decays are at most 1, keys have norm 1 and write strengths lie
//! below 1, so that the delta rule contracts, and states stay finite over any number of replays.

use super::arena::{Arena, Content};
use super::shape::{List, Shape};
use super::{Call, Choice, Contract, Failure, Launch, Subject};
use kda_core::{Elem, Executor, KernelDesc, TensorArg};
use kda_kernels::decode::DecodeVariant;
use kda_ref::rng::Rng;
use kda_runtime::operators::decode::{Convolution, Gate, Options, Problem, Tokens, plan};
use kda_runtime::{OpError, Plan};

/// K and V: channels of a head.
const HEAD: u64 = 128;

const FP32: Contract = Contract { name: "fp32", text: "f32 states [V, K]; convolution with f32 pool [D, 3], bias" };
const BF16: Contract =
    Contract { name: "bf16", text: "bf16 states [V, K]; convolution with bf16 pool [3, D], no bias" };
const FP32_KV: Contract =
    Contract { name: "fp32-kv", text: "f32 states [K, V]; convolution with f32 pool [D, 3], bias" };
const BF16_KV: Contract =
    Contract { name: "bf16-kv", text: "bf16 states [K, V]; convolution with bf16 pool [3, D], no bias" };
const GIVEN: Contract =
    Contract { name: "given", text: "f32 states [V, K]; q, k and v given, no convolution (FLA's contract)" };

/// The operator.
pub struct Decode;

impl Subject for Decode {
    fn name(&self) -> &'static str {
        "decode"
    }

    fn contracts(&self) -> &'static [Contract] {
        &[FP32, BF16, FP32_KV, BF16_KV, GIVEN]
    }

    fn shapes(&self, list: List) -> Vec<Shape> {
        let of_heads = |h: u64| (0..8).map(move |log| Shape { t: 1, h, n: 1 << log });
        match list {
            List::All => [8, 16, 32, 64].into_iter().flat_map(of_heads).collect(),
            List::Small => [1, 8].map(|n| Shape { t: 1, h: 64, n }).to_vec(),
            List::Table => of_heads(64).collect(),
            List::Tune => {
                let pairs = [1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096, 8192];
                pairs.map(|pairs| Shape::of_pairs(1, pairs)).to_vec()
            }
        }
    }

    /// State and history read and written once, every other input read once, the output written once.
    fn bytes(&self, contract: &Contract, shape: Shape) -> f64 {
        let form = Form::of(contract);
        let Shape { h, n, .. } = shape;
        let d = 3 * h * HEAD;
        let state = 2 * h * HEAD * HEAD * u64::from(form.state.bytes());
        let history = form.pool.map_or(0, |pool| 2 * 3 * d * u64::from(pool.bytes()));
        let tokens = 2 * d + 2 * h * (HEAD + 1) + 2 * h * HEAD; // q, k, v or x; gate and strength; out
        let taps = form.pool.map_or(0, |pool| 16 * d + if pool == Elem::F32 { 4 * d } else { 0 });
        (n * (state + history + tokens) + taps + 4 * h * (1 + HEAD)) as f64
    }

    fn kernels(&self) -> Vec<&'static KernelDesc> {
        DecodeVariant::ALL.iter().map(|variant| variant.desc()).collect()
    }

    fn call(&self, arena: &mut Arena, contract: &Contract, shape: Shape) -> Result<Box<dyn Call>, Failure> {
        if shape.t != 1 {
            return Err(format!("decode takes one token a request, T = 1; {shape} has T = {}", shape.t).into());
        }
        Ok(Box::new(Step { problem: problem(arena, &Form::of(contract), shape)? }))
    }

    fn choices(&self) -> &'static [Choice] {
        &[
            Choice { prefix: "F32_VK_", text: "an f32 state [V, K]", contracts: &[FP32] },
            Choice { prefix: "F32_KV_", text: "an f32 state [K, V]", contracts: &[FP32_KV] },
            Choice { prefix: "BF16_VK_", text: "a bf16 state [V, K]", contracts: &[BF16] },
            Choice { prefix: "BF16_KV_", text: "a bf16 state [K, V]", contracts: &[BF16_KV] },
        ]
    }

    fn preference(&self) -> &'static str {
        "kda-runtime/src/operators/decode/preference.rs"
    }

    fn peers(&self) -> Option<&'static str> {
        Some("benches/peers/decode.py")
    }
}

/// What a contract says of tensors.
struct Form {
    /// Type of the states.
    state: Elem,
    /// The state is `[K, V]`, not `[V, K]`.
    k_first: bool,
    /// Type of the convolution's pool, f32 `[D, 3]` with a bias or bf16 `[3, D]` without; none without a convolution.
    pool: Option<Elem>,
}

impl Form {
    fn of(contract: &Contract) -> Form {
        let elem = if [BF16, BF16_KV].contains(contract) { Elem::BF16 } else { Elem::F32 };
        let k_first = [FP32_KV, BF16_KV].contains(contract);
        Form { state: elem, k_first, pool: (*contract != GIVEN).then_some(elem) }
    }
}

struct Step {
    problem: Problem,
}

impl Call for Step {
    fn plan(
        &self,
        executor: &dyn Executor,
        kernel: Option<&'static KernelDesc>,
        launch: Launch,
    ) -> Result<Plan, OpError> {
        let variant = kernel.and_then(|desc| DecodeVariant::find(desc.entry));
        plan(&self.problem, executor, &options(variant, launch))
    }

    fn outputs(&self) -> Vec<TensorArg> {
        vec![self.problem.out]
    }
}

fn options(variant: Option<DecodeVariant>, launch: Launch) -> Options {
    let (pdl, stable_pools) = match launch {
        Launch::Plain => (false, false),
        Launch::Pdl => (true, false),
        Launch::PdlStable => (true, true),
    };
    Options { variant, pdl, stable_pools, evict_first: false }
}

fn problem(arena: &mut Arena, form: &Form, shape: Shape) -> Result<Problem, Failure> {
    let Shape { h, n, .. } = shape;
    let rng = &mut Rng::new(arena.used().bytes());
    let mut permutation = |arena: &mut Arena| {
        let mut slots: Vec<i32> = (0..n as i32).collect();
        rng.shuffle(&mut slots);
        arena.upload(&slots)
    };
    let tokens = match form.pool {
        Some(pool) => Tokens::Convolved(convolution(arena, pool, shape, &mut permutation)?),
        None => {
            let mut heads = || arena.tensor(Content::Activation, Elem::BF16, &[n, h, HEAD]);
            Tokens::Given { q: heads()?, k: heads()?, v: heads()? }
        }
    };
    let states = if form.state == Elem::BF16 { Content::NarrowState } else { Content::State };
    let dense = arena.tensor(states, form.state, &[n, h, HEAD, HEAD])?;
    let inner = if form.k_first { [1, HEAD] } else { [HEAD, 1] };
    let strides = [h * HEAD * HEAD, HEAD * HEAD, inner[0], inner[1]];
    Ok(Problem {
        tokens,
        g: arena.tensor(Content::Activation, Elem::BF16, &[n, h, HEAD])?,
        beta: arena.tensor(Content::Activation, Elem::BF16, &[n, h])?,
        a_log: Some(arena.tensor(Content::Weight, Elem::F32, &[h])?),
        dt_bias: Some(arena.tensor(Content::Weight, Elem::F32, &[h, HEAD])?),
        state: TensorArg::strided(dense.ptr, dense.bytes, dense.elem, dense.shape(), &strides)?,
        state_slots: permutation(arena)?,
        state_slots_out: None,
        out: arena.tensor(Content::Output, Elem::BF16, &[n, h, HEAD])?,
        scale: (HEAD as f32).sqrt().recip(),
        gate: if form.pool.is_some() { Gate::Bounded { lower_bound: -5.0 } } else { Gate::Softplus },
        null: -1,
    })
}

fn convolution(
    arena: &mut Arena,
    pool: Elem,
    shape: Shape,
    permutation: &mut dyn FnMut(&mut Arena) -> Result<TensorArg, Failure>,
) -> Result<Convolution, Failure> {
    let Shape { h, n, .. } = shape;
    let d = 3 * h * HEAD;
    let fp32 = pool == Elem::F32;
    let state = if fp32 {
        arena.tensor(Content::History, Elem::F32, &[n, d, 3])?
    } else {
        let lines = arena.tensor(Content::NarrowHistory, Elem::BF16, &[n, 3, d])?;
        TensorArg::strided(lines.ptr, lines.bytes, lines.elem, &[n, d, 3], &[3 * d, 1, d])?
    };
    Ok(Convolution {
        x: arena.tensor(Content::Activation, Elem::BF16, &[n, d])?,
        weight: arena.tensor(Content::Weight, Elem::F32, &[d, 4])?,
        bias: if fp32 { Some(arena.tensor(Content::Weight, Elem::F32, &[d])?) } else { None },
        state,
        slots: permutation(arena)?,
        slots_out: None,
        workspace: arena.tensor(Content::Zero, Elem::U32, &[n, h])?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kda_runtime::executor::sim::SimExecutor;

    /// For each (request, head): the state's contract, and what the convolution adds; weights once a call.
    #[test]
    fn bytes_are_those_of_the_contract() {
        let (wide, narrow, shared) = (132_354, 66_818, 516);
        for (h, n) in [(8, 1), (64, 128)] {
            for (contract, pair, weights) in [
                (FP32, wide + 9_216, 7_680),
                (FP32_KV, wide + 9_216, 7_680),
                (BF16, narrow + 4_608, 6_144),
                (BF16_KV, narrow + 4_608, 6_144),
                (GIVEN, wide, 0),
            ] {
                let bytes = Decode.bytes(&contract, Shape { t: 1, h, n });
                assert_eq!(bytes, (n * h * pair + h * (weights + shared)) as f64, "{}", contract.name);
            }
        }
    }

    #[test]
    fn the_lists_are_those_that_are_published() {
        let table: Vec<(u64, u64, u64)> =
            Decode.shapes(List::Table).iter().map(|shape| (shape.t, shape.h, shape.n)).collect();
        assert_eq!(table, [1, 2, 4, 8, 16, 32, 64, 128].map(|n| (1, 64, n)));
        assert_eq!(Decode.shapes(List::Small), [1, 8].map(|n| Shape { t: 1, h: 64, n }));
        assert_eq!(Decode.shapes(List::All).len(), 32);
    }

    /// Every contract and launch: dispatch plans the call, and so do several variants.
    #[test]
    fn every_call_of_the_grid_has_a_plan() {
        let executor = SimExecutor::default();
        for contract in Decode.contracts() {
            for shape in [List::All, List::Tune].into_iter().flat_map(|list| Decode.shapes(list)) {
                let call = Decode.call(&mut Arena::counting(), contract, shape).unwrap();
                for launch in Launch::ALL {
                    let plan = call.plan(&executor, None, launch).unwrap();
                    assert_eq!(plan.prepared().pdl, launch != Launch::Plain);
                }
                let fits = |desc: &&&'static KernelDesc| call.plan(&executor, Some(desc), Launch::Plain).is_ok();
                assert!(Decode.kernels().iter().filter(fits).count() > 1, "{shape}");
            }
        }
    }

    #[test]
    fn more_tokens_are_refused() {
        let call = Decode.call(&mut Arena::counting(), &FP32, Shape { t: 4, h: 8, n: 1 });
        assert!(call.err().expect("an error").to_string().contains("4:8:1 has T = 4"));
    }
}
