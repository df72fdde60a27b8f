//! Pools of more than 2^31 elements: an entry above the boundary gives the bits of the same entry in a small pool, and where a
//! 32-bit offset would wrap to stays as it was. One pool at a time; each needs about 9 GB on a GPU (5 GB for a bf16 state).
//! The simulator's memory is sparse.

use super::Failure;
use super::call::Call;
use super::case::{Case, Plan};
use super::judge::{fits, order};
use crate::checks::conv_verify::call::differences;
use crate::checks::{Device, Measured, Sink};
use half::bf16;
use kda_core::Elem;
use kda_kernels::decode::DecodeVariant;
use kda_ref::decode::sample::Switches;
use kda_ref::floats::FloatVec;
use kda_ref::layout::StateOrder;
use kda_runtime::DeviceBuffer;
use kda_runtime::operators::decode::Tokens;

/// Elements at which a 32-bit signed offset wraps.
const BOUNDARY: u64 = 1 << 31;
/// Requests.
const N: usize = 2;

/// Which pool is large.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pool {
    State,
    ConvState,
}

/// Each pool in turn, on every variant.
pub fn run(device: Device, seed: u64, sink: Sink, share: f64) -> Result<(), Failure> {
    for pool in [Pool::State, Pool::ConvState] {
        let mut wrong = 0;
        for bf16_state in [false, true] {
            let plain = Switches { bf16_state, bf16_pool: bf16_state, ..Switches::plain(N, 1, 1) };
            let case = Plan::of(plain).draw(seed);
            for variant in DecodeVariant::ALL.into_iter().filter(|v| fits(*v, bf16_state)) {
                let case = case.in_order(order(variant));
                wrong +=
                    one(device, &case, pool, variant).map_err(|cause| format!("a large pool, {pool:?}: {cause}"))?;
            }
        }
        let case = format!("{pool:?} of more than 2^31 elements");
        let output = "bits that differ from a small pool".into();
        sink(Measured { case, output, error: wrong as f64, budget: 0.0 }, share);
    }
    Ok(())
}

/// Entry of request n in the large pool: the first ones behind the boundary, in reverse.
fn entry(first: u64, request: usize) -> u64 {
    first + (N - 1 - request) as u64
}

fn one(device: Device, case: &Case, pool: Pool, variant: DecodeVariant) -> Result<usize, Failure> {
    let sample = &case.sample;
    let small_call = Call::new(device, case)?;
    let small = small_call.run(Some(variant))?;
    let mut call = Call::new(device, case)?;
    let (values, indices, length) = match pool {
        Pool::State => (&sample.state, &sample.slots, 128 * 128u64),
        Pool::ConvState => (&sample.pool, &sample.conv_slots, 3 * 3 * 128),
    };
    let elem = if matches!(values, FloatVec::Bf16(_)) { Elem::BF16 } else { Elem::F32 };
    let first = BOUNDARY.div_ceil(length) + 1;
    let entries = first + N as u64;
    let bytes = u64::from(elem.bytes()) * entries * length;
    let large = DeviceBuffer::new(device.executor, "large pool", bytes, device.guarding)?;
    // Where a wrapped offset would land: entries that nobody may write, in whole or in part.
    let low = (N as u64 + 2) * length;
    let pattern = FloatVec::filled(elem == Elem::BF16, low as usize, 1e30);
    upload(&large, 0, &pattern)?;
    for (request, index) in indices.iter().enumerate() {
        let begin = *index as usize * length as usize;
        upload(&large, entry(first, request) * length, &part(values, begin, length as usize))?;
    }
    let map: Vec<i32> = (0..N).map(|n| entry(first, n) as i32).collect();
    let map = DeviceBuffer::of(device.executor, "indices", &map, device.guarding)?;
    match (pool, &mut call.problem.tokens) {
        (Pool::ConvState, Tokens::Convolved(convolution)) => {
            convolution.state = large.dense(elem, &[entries, 3 * 128, 3])?;
            convolution.slots = map.dense(Elem::I32, &[N as u64])?;
        }
        _ => {
            let inner = if sample.switches.order == StateOrder::VFirst { [128, 1] } else { [1, 128] };
            let strides = [128 * 128, 128 * 128, inner[0], inner[1]];
            call.problem.state = large.strided(elem, &[entries, 1, 128, 128], &strides)?;
            call.problem.state_slots = map.dense(Elem::I32, &[N as u64])?;
        }
    }
    let results = call.run(Some(variant))?;
    large.check_canaries()?;
    let bits = |out: &[bf16]| out.iter().map(|v| u32::from(v.to_bits())).collect::<Vec<_>>();
    let mut wrong = results.counters + differences(&bits(&results.out), &bits(&small.out));
    wrong += differences(&download(&large, 0, low, elem)?.bits(), &pattern.bits());
    // The small pool as it lies on the device, in the order of the variant.
    let expected = match pool {
        Pool::State => small_call.raw_state()?,
        Pool::ConvState => small.pool.clone(),
    };
    for (request, index) in indices.iter().enumerate() {
        let high = download(&large, entry(first, request) * length, length, elem)?;
        let begin = *index as usize * length as usize;
        wrong += differences(&high.bits(), &part(&expected, begin, length as usize).bits());
    }
    // The pool that is not used any more is as it was.
    wrong += match pool {
        Pool::State => differences(&call.raw_state()?.bits(), &sample.state.bits()),
        Pool::ConvState => differences(&results.pool.bits(), &sample.pool.bits()),
    };
    Ok(wrong)
}

fn part(values: &FloatVec, begin: usize, length: usize) -> FloatVec {
    match values {
        FloatVec::F32(values) => FloatVec::F32(values[begin..begin + length].to_vec()),
        FloatVec::Bf16(values) => FloatVec::Bf16(values[begin..begin + length].to_vec()),
    }
}

fn upload(buffer: &DeviceBuffer<'_>, at: u64, values: &FloatVec) -> Result<(), Failure> {
    match values {
        FloatVec::F32(values) => buffer.upload_at(at, values)?,
        FloatVec::Bf16(values) => buffer.upload_at(at, values)?,
    }
    Ok(())
}

fn download(buffer: &DeviceBuffer<'_>, at: u64, length: u64, elem: Elem) -> Result<FloatVec, Failure> {
    Ok(if elem == Elem::BF16 {
        FloatVec::Bf16(buffer.download_at(at, length)?)
    } else {
        FloatVec::F32(buffer.download_at(at, length)?)
    })
}
