//! Pools of more than 8 GiB, which is 2^31 elements of f32 and 2^32 of bf16: an entry above the boundary gives the bits of the
//! same entry in a small pool, and where a 32-bit offset, of elements or of bytes, would wrap to stays as it was.
//!
//! One pool at a time; each needs about 9 GB on a GPU. The simulator's memory is sparse.

use super::Failure;
use super::call::{Call, Results, differences, f32_bits};
use super::case::{Case, Plan};
use super::judge::fits;
use super::problems::{POOLS, with_pool};
use crate::checks::{Device, Measured, Sink};
use kda_core::Elem;
use kda_kernels::conv_verify::ConvVerifyVariant;
use kda_ref::conv_verify::sample::Switches;
use kda_ref::floats::FloatVec;
use kda_runtime::DeviceBuffer;

/// Bytes ahead of the entries that are used.
const BOUNDARY: u64 = 8 << 30;
/// Requests and tokens.
const N: usize = 2;
const T: usize = 2;

/// Which pool is large.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pool {
    State,
    ConvState,
    StatesOut,
    WindowsOut,
}

/// Each pool in turn, on every tile; convolution pool and windows in every type and order.
pub fn run(device: Device, seed: u64, sink: Sink, share: f64) -> Result<(), Failure> {
    for pool in [Pool::State, Pool::ConvState, Pool::StatesOut, Pool::WindowsOut] {
        // Of states there is one kind: the pools of engines are enough.
        let kinds = if matches!(pool, Pool::State | Pool::StatesOut) { &POOLS[..2] } else { &POOLS[..] };
        let (mut wrong, mut runs) = (0, 0);
        for kind in kinds {
            let switches = Switches { roll: true, ..with_pool(Switches::plain(N, T, 1, 1), *kind) };
            let case = Plan::of(switches).draw(seed);
            for variant in ConvVerifyVariant::ALL.into_iter().filter(|v| fits(*v, &switches)) {
                wrong +=
                    one(device, &case, pool, variant).map_err(|cause| format!("a large pool, {pool:?}: {cause}"))?;
                runs += 1;
            }
        }
        let case = format!("{pool:?} of more than 8 GiB, {runs} variants");
        let output = "bits that differ from a small pool".into();
        sink(Measured { case, output, error: wrong as f64, budget: 0.0 }, share);
    }
    Ok(())
}

/// Entry of request n in the large pool: the first ones behind the boundary, in reverse.
fn entry(first: u64, request: usize) -> u64 {
    first + (N - 1 - request) as u64
}

fn one(device: Device, case: &Case, pool: Pool, variant: ConvVerifyVariant) -> Result<usize, Failure> {
    let sample = &case.sample;
    let small = Call::new(device, case)?.run(Some(variant))?;
    let mut call = Call::new(device, case)?;
    let p = sample.problem();
    let (state, line) = (p.dims.state_len() as u64, (3 * p.dims.channels()) as u64);
    let length = match pool {
        Pool::State => state,
        Pool::ConvState => line,
        Pool::StatesOut => T as u64 * state,
        Pool::WindowsOut => T as u64 * line,
    };
    let elem = match pool {
        Pool::ConvState | Pool::WindowsOut => call.problem.conv_state.elem,
        Pool::State | Pool::StatesOut => Elem::F32,
    };
    let size = u64::from(elem.bytes());
    let first = BOUNDARY.div_ceil(length * size) + 1;
    let entries = first + N as u64;
    let large = DeviceBuffer::new(device.executor, "large pool", size * entries * length, device.guarding)?;
    // Where a wrapped offset would land: entries that nobody may write, in whole or in part.
    let low = DeviceRange { buffer: &large, words: (N as u64 + 2) * length * size / 4 };
    low.fill()?;
    for request in 0..N {
        let place = entry(first, request) * length;
        match pool {
            Pool::State => {
                let slot = sample.state_slots[request] as usize * state as usize;
                large.upload_at(place, &sample.state[slot..slot + state as usize])?;
            }
            Pool::ConvState => match pooled(&sample.conv_state, sample.conv_slots[request], line) {
                FloatVec::F32(values) => large.upload_at(place, &values)?,
                FloatVec::Bf16(values) => large.upload_at(place, &values)?,
            },
            Pool::StatesOut | Pool::WindowsOut => {
                large.upload_at(place * size, &vec![u8::MAX; (length * size) as usize])?;
            }
        }
    }
    let indices: Vec<i32> = (0..N).map(|n| entry(first, n) as i32).collect();
    let map = DeviceBuffer::of(device.executor, "indices", &indices, device.guarding)?;
    let map = map.dense(Elem::I32, &[N as u64])?;
    let channels = p.dims.channels() as u64;
    let problem = &mut call.problem;
    match pool {
        Pool::State => {
            problem.state = large.dense(Elem::F32, &[entries, 1, 128, 128])?;
            problem.state_slots = map;
        }
        Pool::ConvState => {
            let strides = [&[line], &problem.conv_state.strides()[1..]].concat();
            problem.conv_state = large.strided(elem, &[entries, channels, 3], &strides)?;
            problem.conv_slots = map;
        }
        Pool::StatesOut => {
            problem.states_out = Some(large.dense(Elem::F32, &[entries, T as u64, 1, 128, 128])?);
            (problem.windows_out, problem.snapshot_rows) = (None, map);
        }
        Pool::WindowsOut => {
            let strides = [&[length, line], &problem.conv_state.strides()[1..]].concat();
            problem.windows_out = Some(large.strided(elem, &[entries, T as u64, channels, 3], &strides)?);
            (problem.states_out, problem.snapshot_rows) = (None, map);
        }
    }
    let results = call.run(Some(variant))?;
    large.check_canaries()?;
    let mut wrong = results.changed_inputs + low.changed()? + differences(&bits(&results), &bits(&small));
    for request in 0..N {
        let place = entry(first, request) * length;
        let high = match elem {
            Elem::BF16 => FloatVec::Bf16(large.download_at(place, length)?),
            _ => FloatVec::F32(large.download_at(place, length)?),
        };
        let snapshot = sample.snapshot_rows[request];
        let expected = match (pool, &small.states, &small.windows) {
            (Pool::State, ..) => {
                let slot = sample.state_slots[request] as usize * state as usize;
                FloatVec::F32(sample.state[slot..slot + state as usize].to_vec())
            }
            (Pool::ConvState, ..) => pooled(&small.pool, sample.conv_slots[request], line),
            (Pool::StatesOut, Some(states), _) => {
                FloatVec::F32(states[snapshot as usize * length as usize..][..length as usize].to_vec())
            }
            (Pool::WindowsOut, _, Some(windows)) => pooled(windows, snapshot, length),
            _ => FloatVec::F32(Vec::new()),
        };
        wrong += differences(&high.bits(), &expected.bits());
    }
    // What stayed small has the bits of the small run.
    if matches!(pool, Pool::State | Pool::ConvState) {
        let states = |results: &Results| results.states.as_deref().map(f32_bits).unwrap_or_default();
        wrong += differences(&states(&results), &states(&small));
    }
    Ok(wrong)
}

fn bits(results: &Results) -> Vec<u32> {
    results.out.iter().map(|v| u32::from(v.to_bits())).collect()
}

/// Entry `index` of a pool of dense entries.
fn pooled(pool: &FloatVec, index: i32, length: u64) -> FloatVec {
    let begin = index as usize * length as usize;
    let place = begin..begin + length as usize;
    match pool {
        FloatVec::F32(values) => FloatVec::F32(values[place].to_vec()),
        FloatVec::Bf16(values) => FloatVec::Bf16(values[place].to_vec()),
    }
}

/// The first words of the large pool.
struct DeviceRange<'b, 'd> {
    buffer: &'b DeviceBuffer<'d>,
    words: u64,
}

impl DeviceRange<'_, '_> {
    fn pattern(&self) -> Vec<f32> {
        (0..self.words).map(|i| 1e30 + i as f32 * 1e24).collect()
    }

    fn fill(&self) -> Result<(), Failure> {
        Ok(self.buffer.upload_at(0, &self.pattern())?)
    }

    fn changed(&self) -> Result<usize, Failure> {
        let now: Vec<f32> = self.buffer.download_at(0, self.words)?;
        Ok(differences(&f32_bits(&now), &f32_bits(&self.pattern())))
    }
}
