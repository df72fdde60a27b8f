//! Tensors of more than 2^32 elements: rows, slots and chunk states far apart give the bits of those that lie close, and what
//! lies behind each stays as it was. One tensor at a time; each needs up to 25 GB on a GPU. The simulator's memory is sparse.

use super::Failure;
use super::call::{Call, Results};
use super::case::{Case, Plan};
use super::judge::fits;
use crate::checks::conv_verify::call::{bf16_bits, differences};
use crate::checks::{Device, Measured, Sink};
use half::bf16;
use kda_core::{Elem, TensorArg};
use kda_ref::delta_h::sample::Switches;
use kda_ref::floats::FloatVec;
use kda_runtime::operators::delta_h::{Gate, Options, Variant};
use kda_runtime::{DeviceBuffer, Guarding};

/// Elements from the first block of a tensor to the last: 32-bit offsets wrap, signed and unsigned ones.
const SPAN: u64 = 1 << 32;
/// Elements behind each block that are looked at.
const GAP: usize = 64;

/// Which tensor is large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tensor {
    /// `kg`.
    Kg,
    /// `w`.
    W,
    /// `u`.
    U,
    /// The cumulative gate.
    Gate,
    /// Initial states.
    Initial,
    /// Final states.
    Final,
    /// Chunk states.
    H,
    /// Corrected values.
    VNew,
}

impl Tensor {
    /// Every tensor.
    pub const ALL: [Tensor; 8] =
        [Tensor::Kg, Tensor::W, Tensor::U, Tensor::Gate, Tensor::Initial, Tensor::Final, Tensor::H, Tensor::VNew];
}

/// Each tensor in turn, on each of these variants for whole sequences with h `[K, V]`.
pub fn run(device: Device, variants: &[Variant], seed: u64, sink: Sink, share: f64) -> Result<(), Failure> {
    let case = Plan::of(&[30, 64, 1, 0, 66], Switches::plain(1)).draw(seed);
    let capability = device.executor.compute_capability();
    for tensor in Tensor::ALL {
        let mut wrong = 0;
        for variant in variants.iter().filter(|v| fits(**v, &case, capability) && !v.v_first()) {
            let options = Options { variant: Some(*variant), ..Options::default() };
            wrong += one(device, &case, tensor, &options).map_err(|cause| format!("{tensor:?} is large: {cause}"))?;
        }
        let case = format!("{tensor:?} of more than 2^32 elements");
        let output = "bits that differ from a small tensor".into();
        sink(Measured { case, output, error: wrong as f64, budget: 0.0 }, share);
    }
    Ok(())
}

/// Blocks of a tensor far apart.
struct Spread<'d> {
    buffer: DeviceBuffer<'d>,
    arg: TensorArg,
    width: u64,
}

impl<'d> Spread<'d> {
    /// The blocks along the first axis of a small dense tensor, a large step apart.
    fn of(device: Device<'d>, small: &TensorArg, values: &FloatVec) -> Result<Spread<'d>, Failure> {
        let (count, width) = (small.shape()[0], small.strides()[0]);
        let pitch = (SPAN / (count - 1)).next_multiple_of(8) + 8;
        let bytes = u64::from(small.elem.bytes()) * ((count - 1) * pitch + width + GAP as u64);
        let guarding = Guarding { poison: None, ..device.guarding };
        let buffer = DeviceBuffer::new(device.executor, "large tensor", bytes, guarding)?;
        let arg = buffer.strided(small.elem, small.shape(), &[&[pitch], &small.strides()[1..]].concat())?;
        let spread = Spread { buffer, arg, width };
        for at in 0..count as usize {
            let begin = at * width as usize;
            let block = begin..begin + width as usize;
            let first = at as u64 * pitch;
            match values {
                FloatVec::F32(values) => spread.buffer.upload_at(first, &[&values[block], &[1e30; GAP]].concat())?,
                FloatVec::Bf16(values) => {
                    let gap = [bf16::from_f32(1e30); GAP];
                    spread.buffer.upload_at(first, &[&values[block], &gap].concat())?;
                }
            }
        }
        Ok(spread)
    }

    /// Bits of all blocks, and elements behind them that are not what they were.
    fn gathered(&self) -> Result<(Vec<u32>, usize), Failure> {
        self.buffer.check_canaries()?;
        let (mut blocks, mut changed) = (Vec::new(), 0);
        for at in 0..self.arg.shape()[0] {
            let (first, count) = (at * self.arg.strides()[0], self.width + GAP as u64);
            let (bits, gap) = match self.arg.elem {
                Elem::BF16 => {
                    (bf16_bits(&self.buffer.download_at::<bf16>(first, count)?), bf16::from_f32(1e30).to_bits().into())
                }
                _ => (FloatVec::F32(self.buffer.download_at(first, count)?).bits(), 1e30f32.to_bits()),
            };
            let (block, behind) = bits.split_at(self.width as usize);
            blocks.extend(block);
            changed += behind.iter().filter(|bits| **bits != gap).count();
        }
        Ok((blocks, changed))
    }
}

/// Bits that differ when this tensor is large.
pub fn one(device: Device, case: &Case, tensor: Tensor, options: &Options) -> Result<usize, Failure> {
    let small: Results = Call::new(device, case)?.run(options)?;
    let mut call = Call::new(device, case)?;
    let (s, p) = (&case.sample, &mut call.problem);
    let poison = |wide: bool, len: usize| match wide {
        true => FloatVec::F32(vec![f32::from_bits(u32::MAX); len]),
        false => FloatVec::Bf16(vec![bf16::from_bits(u16::MAX); len]),
    };
    let absent = || -> Failure { format!("{tensor:?} is absent").into() };
    let bf16s = |values: &[bf16]| FloatVec::Bf16(values.to_vec());
    let (arg, values) = match tensor {
        Tensor::Kg => (&mut p.kg, bf16s(&s.kg)),
        Tensor::W => (&mut p.w, bf16s(&s.w)),
        Tensor::U => (&mut p.u, bf16s(&s.u)),
        Tensor::Gate => match &mut p.gate {
            Gate::Cumulative(gate) | Gate::Decay(gate) | Gate::Scalar(gate) => (gate, FloatVec::F32(s.gate.clone())),
        },
        Tensor::Initial => (p.initial_state.as_mut().ok_or_else(absent)?, s.pool.clone()),
        Tensor::Final => {
            let wide = !s.switches.bf16_state;
            (p.final_state.as_mut().ok_or_else(absent)?, poison(wide, s.final_count * s.slot_stride))
        }
        Tensor::H => (p.h.as_mut().ok_or_else(absent)?, poison(false, case.states * s.h_stride)),
        Tensor::VNew => (p.v_new.as_mut().ok_or_else(absent)?, poison(false, s.rows * s.strides[4])),
    };
    let before = values.bits();
    let spread = Spread::of(device, arg, &values)?;
    *arg = spread.arg;
    let mut results = call.run(options)?;
    let (blocks, mut wrong) = spread.gathered()?;
    // The small buffer of a large result is not used any more.
    let (expected, unused) = match tensor {
        Tensor::Final => {
            (small.final_state.bits(), std::mem::replace(&mut results.final_state, small.final_state.clone()).bits())
        }
        Tensor::H => (bf16_bits(&small.h), bf16_bits(&std::mem::replace(&mut results.h, small.h.clone()))),
        Tensor::VNew => {
            (bf16_bits(&small.v_new), bf16_bits(&std::mem::replace(&mut results.v_new, small.v_new.clone())))
        }
        _ => (before.clone(), before.clone()),
    };
    wrong += differences(&blocks, &expected) + differences(&unused, &before);
    Ok(wrong + results.differing_bits(&small) + results.changed_inputs)
}
