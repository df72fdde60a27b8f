//! Pools of more than 2^31 elements: an entry above the boundary gives the bits of the same entry in a small pool, and
//! where a 32-bit offset would wrap to stays as it was.
//!
//! One pool at a time; each needs about 9 GB on a GPU. The simulator's memory is sparse.

use super::Failure;
use super::call::{Call, Results, differences, f32_bits};
use super::case::{Case, Plan};
use super::judge::fits;
use crate::checks::{Device, Measured, Sink};
use kda_core::Elem;
use kda_kernels::conv_verify::ConvVerifyVariant;
use kda_ref::conv_verify::sample::Switches;
use kda_ref::floats::FloatVec;
use kda_runtime::DeviceBuffer;

/// Elements at which a 32-bit signed offset wraps.
const BOUNDARY: u64 = 1 << 31;
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

/// Each pool in turn, on every tile.
pub fn run(device: Device, seed: u64, sink: Sink, share: f64) -> Result<(), Failure> {
    let case = Plan::of(Switches { roll: true, ..Switches::plain(N, T, 1, 1) }).draw(seed);
    for pool in [Pool::State, Pool::ConvState, Pool::StatesOut, Pool::WindowsOut] {
        let mut wrong = 0;
        for variant in ConvVerifyVariant::ALL.iter().filter(|v| fits(**v, &case.sample.switches)) {
            wrong += one(device, &case, pool, *variant).map_err(|cause| format!("a large pool, {pool:?}: {cause}"))?;
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
    let first = BOUNDARY.div_ceil(length) + 1;
    let entries = first + N as u64;
    let large = DeviceBuffer::new(device.executor, "large pool", 4 * entries * length, device.guarding)?;
    // Where a wrapped offset would land: entries that nobody may write, in whole or in part.
    let low = DeviceRange { buffer: &large, length, entries: N as u64 + 2 };
    low.fill()?;
    for request in 0..N {
        let place = entry(first, request) * length;
        match pool {
            Pool::State => {
                let slot = sample.state_slots[request] as usize * state as usize;
                large.upload_at(place, &sample.state[slot..slot + state as usize])?;
            }
            Pool::ConvState => large.upload_at(place, &pooled(&sample.conv_state, sample.conv_slots[request], line))?,
            Pool::StatesOut | Pool::WindowsOut => {
                large.upload_at(place, &vec![f32::from_bits(u32::MAX); length as usize])?;
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
            problem.conv_state = large.dense(Elem::F32, &[entries, channels, 3])?;
            problem.conv_slots = map;
        }
        Pool::StatesOut => {
            problem.states_out = Some(large.dense(Elem::F32, &[entries, T as u64, 1, 128, 128])?);
            (problem.windows_out, problem.snapshot_rows) = (None, map);
        }
        Pool::WindowsOut => {
            problem.windows_out = Some(large.dense(Elem::F32, &[entries, T as u64, channels, 3])?);
            (problem.states_out, problem.snapshot_rows) = (None, map);
        }
    }
    let results = call.run(Some(variant))?;
    large.check_canaries()?;
    let mut wrong = results.changed_inputs + low.changed()? + differences(&bits(&results), &bits(&small));
    for request in 0..N {
        let high: Vec<f32> = large.download_at(entry(first, request) * length, length)?;
        let snapshot = sample.snapshot_rows[request] as usize;
        let expected: Vec<f32> = match (pool, &small.states, &small.windows) {
            (Pool::State, ..) => {
                let slot = sample.state_slots[request] as usize * state as usize;
                sample.state[slot..slot + state as usize].to_vec()
            }
            (Pool::ConvState, ..) => pooled(&small.pool, sample.conv_slots[request], line),
            (Pool::StatesOut, Some(states), _) => states[snapshot * length as usize..][..length as usize].to_vec(),
            (Pool::WindowsOut, _, Some(windows)) => pooled(windows, snapshot as i32, length),
            _ => Vec::new(),
        };
        wrong += differences(&f32_bits(&high), &f32_bits(&expected));
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

/// Entry `index` of an fp32 pool of dense entries.
fn pooled(pool: &FloatVec, index: i32, length: u64) -> Vec<f32> {
    let begin = index as usize * length as usize;
    (begin..begin + length as usize).map(|i| pool.view().get_f32(i)).collect()
}

/// The first entries of the large pool.
struct DeviceRange<'b, 'd> {
    buffer: &'b DeviceBuffer<'d>,
    length: u64,
    entries: u64,
}

impl DeviceRange<'_, '_> {
    fn pattern(&self) -> Vec<f32> {
        (0..self.entries * self.length).map(|i| 1e30 + i as f32 * 1e24).collect()
    }

    fn fill(&self) -> Result<(), Failure> {
        Ok(self.buffer.upload_at(0, &self.pattern())?)
    }

    fn changed(&self) -> Result<usize, Failure> {
        let now: Vec<f32> = self.buffer.download_at(0, self.entries * self.length)?;
        Ok(differences(&f32_bits(&now), &f32_bits(&self.pattern())))
    }
}
