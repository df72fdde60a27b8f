//! Argument blocks of any kernel, drawn from its description: dimensions that agree, strides that are allowed, scalars; then a
//! field or two are made wrong.

use super::execute::{MOST_BYTES, MOST_CTAS, Memory, numbers};
use super::{spoil, words_of};
use crate::fuzz::Counts;
use kda_core::desc::{DimDesc, StrideDesc};
use kda_core::launch::{Arg, ScalarArg, prepare};
use kda_core::{Elem, Expr, KernelDesc, LaunchError, ParamDesc, ParamKind, PreparedLaunch, TensorArg};
use kda_ref::rng::Rng;
use kda_runtime::executor::sim::{Options, SimExecutor};
use std::collections::HashMap;

/// Sizes that a dimension may have.
const SIZES: [u64; 14] = [0, 1, 2, 3, 4, 7, 31, 32, 64, 96, 128, 128, 256, 512];
/// Draws after which a kernel is left with a block that does not fit it.
const DRAWS: usize = 6;
/// One of so many accepted blocks is executed.
const EXECUTE: usize = 8;
/// Families that trust what another kernel or the host has written, so that numbers that are drawn stand for nothing: calls of
/// their operators are executed.
const TRUSTING: [&str; 4] = ["conv_verify", "delta_h", "delta_h_narrow", "delta_h_portable"];

pub(super) fn case(rng: &mut Rng, counts: &mut Counts) -> Result<(), String> {
    let kernels: Vec<&'static KernelDesc> = kda_kernels::all().collect();
    // As many blocks for the families with few variants.
    let family = rng.choose(&["conv_verify", "", "", ""]);
    let of_family =
        |desc: &&&'static KernelDesc| family.is_empty() != (desc.family == family || desc.family == "conv_verify");
    let candidates: Vec<_> = kernels.iter().filter(of_family).collect();
    let desc = **candidates.get(rng.below(candidates.len().max(1))).ok_or("no kernels")?;
    case_of(desc, prepare, rng, counts).map_err(|what| format!("{}: {what}", desc.entry))
}

/// How a block is validated.
type Prepare = fn(&'static KernelDesc, &[Arg], bool) -> Result<PreparedLaunch, LaunchError>;

fn case_of(desc: &'static KernelDesc, validate: Prepare, rng: &mut Rng, counts: &mut Counts) -> Result<(), String> {
    let mut args = fitting(desc, rng).unwrap_or_else(|| draw(desc, rng));
    for _ in 0..rng.choose(&[0, 1, 1, 1, 2]) {
        let at = rng.below(args.len().max(1));
        if let Some(arg) = args.get_mut(at) {
            wrong(arg, rng);
        }
    }
    if rng.below(64) == 0 {
        args.pop();
    }
    let launch = match validate(desc, &args, rng.coin()) {
        Ok(launch) => launch,
        Err(error) => return words_of(&error, counts),
    };
    counts.add("accepted");
    let ctas: u64 = launch.grid.iter().map(|n| u64::from(*n)).fold(1, u64::saturating_mul);
    let small = |arg: &Arg| !matches!(arg, Arg::Tensor(Some(t)) if t.extent_bytes() > MOST_BYTES);
    if ctas > MOST_CTAS || !args.iter().all(small) || TRUSTING.contains(&desc.family) || rng.below(EXECUTE) != 0 {
        return Ok(());
    }
    execute(desc, &args, rng).map_err(|what| format!("{what}\n{args:?}"))?;
    counts.add("executed");
    counts.add(&format!("executed of {}", desc.family));
    Ok(())
}

fn execute(desc: &'static KernelDesc, args: &[Arg], rng: &mut Rng) -> Result<(), String> {
    let written = |param: &ParamDesc| match param.kind {
        ParamKind::Tensor(kind) => kind.writes,
        ParamKind::TensorMap(map) => map.writes,
        _ => false,
    };
    let overlaps = desc
        .fields()
        .zip(args)
        .any(|(param, arg)| matches!(arg, Arg::Tensor(Some(tensor)) if written(param) && tensor.overlap().is_some()));
    let mut options = Options { seed: rng.next_u64(), ..Options::default() };
    options.checks.races = !overlaps;
    let executor = SimExecutor::for_kernel(options, desc);
    let mut memory = Memory::new(&executor);
    let mut placed = Vec::new();
    for (param, arg) in desc.fields().zip(args) {
        placed.push(match arg {
            Arg::Tensor(Some(tensor)) => {
                let contents = |bytes| numbers(tensor.elem, bytes, rng);
                Arg::Tensor(Some(memory.place(tensor, written(param), contents)?))
            }
            other => *other,
        });
    }
    let launch = prepare(desc, &placed, false).map_err(|error| format!("refused once it was placed: {error}"))?;
    memory.run(&launch)
}

/// A block that fits the kernel; `None` if none was drawn.
pub(in crate::fuzz) fn fitting(desc: &'static KernelDesc, rng: &mut Rng) -> Option<Vec<Arg>> {
    (0..DRAWS).map(|_| draw(desc, rng)).find(|args| prepare(desc, args, false).is_ok())
}

/// A block that fits the kernel, or nearly.
fn draw(desc: &'static KernelDesc, rng: &mut Rng) -> Vec<Arg> {
    let mut names: HashMap<&'static str, i128> = HashMap::new();
    let scalars: HashMap<&'static str, ScalarArg> = desc
        .fields()
        .filter_map(|param| match param.kind {
            ParamKind::Scalar(elem) => Some((param.name, scalar(elem, rng))),
            _ => None,
        })
        .collect();
    for (name, value) in &scalars {
        match value {
            ScalarArg::U32(value) => names.insert(name, i128::from(*value)),
            ScalarArg::Bool(value) => names.insert(name, i128::from(*value)),
            _ => None,
        };
    }
    let mut size_of = |dim: &DimDesc, rng: &mut Rng| -> u64 {
        if let Expr::Name(name) = dim.size {
            names.entry(name).or_insert_with(|| i128::from(rng.choose(&SIZES)));
        }
        let value = dim.size.eval(&|name| names.get(name).copied()).unwrap_or(1);
        u64::try_from(value).unwrap_or(0)
    };
    let args = desc.fields().map(|param| match param.kind {
        ParamKind::Scalar(elem) => Arg::Scalar(scalars.get(param.name).copied().unwrap_or_else(|| scalar(elem, rng))),
        ParamKind::Tensor(kind) if kind.optional && rng.below(3) == 0 => Arg::Tensor(None),
        ParamKind::Tensor(kind) => Arg::Tensor(tensor(kind.elem, kind.dims, &mut size_of, rng)),
        ParamKind::TensorMap(map) if map.optional && rng.below(3) == 0 => Arg::Tensor(None),
        ParamKind::TensorMap(map) => Arg::Tensor(tensor(map.elem, map.dims, &mut size_of, rng)),
        ParamKind::Dim | ParamKind::Stride { .. } | ParamKind::Present { .. } => Arg::Tensor(None),
    });
    args.collect()
}

fn tensor(
    elem: Elem,
    dims: &[DimDesc],
    size_of: &mut impl FnMut(&DimDesc, &mut Rng) -> u64,
    rng: &mut Rng,
) -> Option<TensorArg> {
    let shape: Vec<u64> = dims.iter().map(|dim| size_of(dim, rng)).collect();
    let mut strides = vec![1u64; dims.len()];
    for axis in (0..dims.len()).rev() {
        if axis + 1 < dims.len() {
            strides[axis] = strides[axis + 1].saturating_mul(shape[axis + 1].max(1));
        }
        match dims[axis].stride {
            StrideDesc::Const(stride) => strides[axis] = stride,
            _ if rng.below(3) == 0 => strides[axis] = strides[axis].next_multiple_of(8) + 8 * rng.below(3) as u64,
            _ => {}
        }
    }
    let mut tensor = TensorArg::strided(rng.below(1 << 30) as u64 * 256 + 256, 0, elem, &shape, &strides).ok()?;
    tensor.bytes = u64::try_from(tensor.extent_bytes()).unwrap_or(u64::MAX).saturating_add(rng.below(2) as u64 * 64);
    Some(tensor)
}

fn scalar(elem: Elem, rng: &mut Rng) -> ScalarArg {
    match elem {
        Elem::Bool => ScalarArg::Bool(rng.coin()),
        Elem::U64 => ScalarArg::U64(rng.below(64) as u64),
        Elem::I32 => ScalarArg::I32(spoil::scalar(rng) as i32),
        Elem::I64 => ScalarArg::I64(rng.next_u64() as i64),
        Elem::F32 => ScalarArg::F32(spoil::float(rng)),
        _ => ScalarArg::U32(if rng.coin() { rng.below(9) as u32 } else { spoil::scalar(rng) }),
    }
}

fn wrong(arg: &mut Arg, rng: &mut Rng) {
    match arg {
        Arg::Tensor(Some(_)) if rng.below(24) == 0 => *arg = Arg::Tensor(None),
        Arg::Tensor(Some(tensor)) => spoil::tensor(tensor, rng),
        Arg::Tensor(None) => *arg = Arg::Scalar(ScalarArg::U32(0)),
        Arg::Scalar(value) => {
            let elem = if rng.below(8) == 0 { rng.choose(&Elem::ALL) } else { value.elem() };
            *value = scalar(elem, rng);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::Sweep;

    fn sweep(validate: Prepare) -> crate::fuzz::Outcome {
        let desc = kda_kernels::all().find(|desc| desc.family == "scale_add").expect("the kernel");
        let sweep = Sweep { seed: 9, cases: 400, only: None };
        sweep.run(|rng, counts| case_of(desc, validate, rng, counts), &|_| {})
    }

    #[test]
    fn a_good_validator_passes() {
        let outcome = sweep(prepare);
        assert_eq!(outcome.verdict("blocks", 9), Ok(()));
        assert!(outcome.counts.get("executed") > 5, "{:?}", outcome.counts);
    }

    #[test]
    fn a_validator_that_panics_is_a_failure() {
        let outcome = sweep(|desc, args, pdl| {
            let launch = prepare(desc, args, pdl);
            assert!(!matches!(launch, Err(LaunchError::NullPointer { .. })), "a null pointer");
            launch
        });
        assert!(outcome.panics > 0 && outcome.verdict("blocks", 9).is_err(), "{outcome:?}");
    }

    #[test]
    fn a_validator_that_takes_too_much_is_a_failure() {
        // Takes tensors of any element type: memory of narrower elements ends before the last of f32.
        let outcome = sweep(|desc, args, pdl| {
            let mut grown = args.to_vec();
            for arg in &mut grown {
                if let Arg::Tensor(Some(tensor)) = arg {
                    tensor.elem = Elem::F32;
                }
            }
            prepare(desc, &grown, pdl)
        });
        assert!(outcome.failed > 0 && outcome.panics == 0, "{outcome:?}");
    }
}
