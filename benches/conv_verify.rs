//! Times every variant of `conv_verify` on a CUDA device, beside the byte floor.
//!
//! Method: a CUDA graph of calls over rotating input sets of more than 200 MB in all, so that L2 is cold; warmed up; the
//! median of several replays, per call. Contract: fp32 convolution pool `[D, 3]`, bias, roll, bounded gate -5, H = HV.
//! Floor: `N*HV*(74752 + 71426*T) + 8196*HV` bytes at 4.3 TB/s.
//!
//! Arguments: numbers of tokens to time (default 4 and 8). Prints CSV, then the best variant of each shape.

mod common;

use common::{Failure, device, median};
use half::bf16;
use kda_core::exec::ExecError;
use kda_core::{Elem, Executor, TensorArg};
use kda_kernels::conv_verify::ConvVerifyVariant;
use kda_ref::rng::Rng;
use kda_runtime::executor::cuda::CudaExecutor;
use kda_runtime::operators::conv_verify::{Gate, Options, Problem, SnapshotRule, plan};

/// (H, N), in order of N*HV.
const SHAPES: &[(u64, u64)] =
    &[(8, 1), (16, 1), (32, 1), (64, 1), (64, 2), (64, 4), (64, 8), (64, 16), (64, 64), (64, 128)];
/// Bytes of all input sets together, at least.
const COLD_BYTES: f64 = 210e6;
const REPLAYS: usize = 15;

/// How a launch overlaps its predecessor.
#[derive(Clone, Copy)]
enum Overlap {
    Plain,
    WaitFirst,
    LoadsFirst,
}

fn main() -> Result<(), Failure> {
    let Some(executor) = device()? else { return Ok(()) };
    println!("T,H,N,N*HV,variant,plain_us,pdl_wait_first_us,pdl_loads_first_us,floor_us");
    let chosen: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let tokens = if chosen.is_empty() { vec![4, 8] } else { chosen };
    let mut summary = Vec::new();
    for t in tokens {
        for (h, n) in SHAPES {
            summary.push(shape(&executor, t, *h, *n)?);
        }
    }
    println!("\nbest of each shape, us");
    println!(
        "{:>2} {:>6} {:>8} {:>9} {:>9} {:>8}  variant (plain)",
        "T", "N*HV", "plain", "PDL wait", "PDL loads", "floor"
    );
    for row in summary {
        println!("{row}");
    }
    Ok(())
}

/// Times the variants of one shape; gives the summary line.
fn shape(executor: &CudaExecutor, t: u64, h: u64, n: u64) -> Result<String, Failure> {
    let bytes = (n * h) as f64 * (74_752.0 + 71_426.0 * t as f64) + 8196.0 * h as f64;
    let floor = bytes / 4.3e6;
    let sets = ((COLD_BYTES / bytes).ceil() as usize).clamp(2, 72);
    let mut memory = Memory { executor, owned: Vec::new() };
    let problems = (0..sets).map(|set| memory.problem(t, h, n, set as u64)).collect::<Result<Vec<_>, _>>()?;
    let mut best: [Option<(f64, &str)>; 3] = [None; 3];
    for variant in ConvVerifyVariant::ALL
        .iter()
        .filter(|v| !v.long() && u64::from(v.t()) == t && v.pool() == Elem::F32 && !v.inner())
    {
        let ctas = n * h * u64::from(128 / variant.bv());
        if ctas > 132 * 40 && variant.bv() < 64 {
            continue;
        }
        let mut times = [0.0; 3];
        for (i, overlap) in [Overlap::Plain, Overlap::WaitFirst, Overlap::LoadsFirst].into_iter().enumerate() {
            times[i] = time(executor, &problems, *variant, overlap, floor)?;
            if best[i].is_none_or(|(us, _)| times[i] < us) {
                best[i] = Some((times[i], variant.desc().entry));
            }
        }
        let entry = variant.desc().entry;
        println!("{t},{h},{n},{},{entry},{:.3},{:.3},{:.3},{floor:.2}", n * h, times[0], times[1], times[2]);
    }
    let us = |i: usize| best[i].map_or(f64::NAN, |b| b.0);
    let entry = best[0].map_or("none", |b| b.1);
    Ok(format!("{t:>2} {:>6} {:>8.2} {:>9.2} {:>9.2} {floor:>8.2}  {entry}", n * h, us(0), us(1), us(2)))
}

/// Median microseconds of one call.
fn time(
    executor: &CudaExecutor,
    problems: &[Problem],
    variant: ConvVerifyVariant,
    overlap: Overlap,
    floor: f64,
) -> Result<f64, Failure> {
    let (pdl, stable_pools) = match overlap {
        Overlap::Plain => (false, false),
        Overlap::WaitFirst => (true, false),
        Overlap::LoadsFirst => (true, true),
    };
    let options = Options { variant: Some(variant), pdl, stable_pools, evict_first: None };
    let plans = problems.iter().map(|p| plan(p, executor, &options)).collect::<Result<Vec<_>, _>>()?;
    executor.warm(variant.desc())?;
    let rounds = if floor > 300.0 { 1 } else { (24usize).div_ceil(plans.len()) };
    let graph = executor.capture(|executor| {
        for plan in (0..rounds).flat_map(|_| &plans) {
            // SAFETY: the memory of all problems lives until the graph has been replayed and dropped.
            unsafe { plan.launch(executor, executor.own_stream()) }?;
        }
        Ok(())
    })?;
    let calls = (rounds * plans.len()) as f64;
    // SAFETY: as above; the stream is the executor's own.
    let replay = || executor.time_us(|executor| unsafe { graph.launch(executor.own_stream()) });
    for _ in 0..2 {
        replay()?;
    }
    let mut samples = (0..REPLAYS).map(|_| replay()).collect::<Result<Vec<_>, _>>()?;
    Ok(median(&mut samples) / calls)
}

/// Device memory of one shape.
struct Memory<'e> {
    executor: &'e CudaExecutor,
    owned: Vec<u64>,
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        for ptr in self.owned.drain(..) {
            // A failure to free shows in the next call on this context.
            let _ = self.executor.free(ptr);
        }
    }
}

impl Memory<'_> {
    fn allocate(&mut self, bytes: u64) -> Result<u64, ExecError> {
        let ptr = self.executor.allocate(bytes.max(1))?;
        self.owned.push(ptr);
        Ok(ptr)
    }

    /// Random elements; large buffers repeat 4 Mi of them.
    fn random(&mut self, elem: Elem, shape: &[u64], sigma: f64, rng: &mut Rng) -> Result<TensorArg, Failure> {
        let count: u64 = shape.iter().product();
        let bytes = count * u64::from(elem.bytes());
        let ptr = self.allocate(bytes)?;
        let drawn = count.min(1 << 20) as usize;
        let host: Vec<u8> = match elem {
            Elem::BF16 => rng.normals_bf16(drawn, sigma).iter().flat_map(|v: &bf16| v.to_le_bytes()).collect(),
            _ => rng.normals_f32(drawn, sigma).iter().flat_map(|v| v.to_le_bytes()).collect(),
        };
        let mut at = 0;
        while at < bytes {
            let part = (bytes - at).min(host.len() as u64) as usize;
            self.executor.write(ptr + at, &host[..part])?;
            at += part as u64;
        }
        Ok(TensorArg::dense(ptr, bytes, elem, shape)?)
    }

    fn empty(&mut self, elem: Elem, shape: &[u64]) -> Result<TensorArg, Failure> {
        let bytes = shape.iter().product::<u64>() * u64::from(elem.bytes());
        let ptr = self.allocate(bytes)?;
        self.executor.fill(ptr, 0, bytes)?;
        Ok(TensorArg::dense(ptr, bytes, elem, shape)?)
    }

    fn permutation(&mut self, n: u64, rng: &mut Rng) -> Result<TensorArg, Failure> {
        let mut slots: Vec<i32> = (0..n as i32).collect();
        rng.shuffle(&mut slots);
        let host: Vec<u8> = slots.iter().flat_map(|v| v.to_le_bytes()).collect();
        let ptr = self.allocate(4 * n)?;
        self.executor.write(ptr, &host)?;
        Ok(TensorArg::dense(ptr, 4 * n, Elem::I32, &[n])?)
    }

    fn problem(&mut self, t: u64, h: u64, n: u64, seed: u64) -> Result<Problem, Failure> {
        let rng = &mut Rng::new(seed);
        let d = 3 * h * 128;
        Ok(Problem {
            x: self.random(Elem::BF16, &[n, t, d], 1.0, rng)?,
            conv_weight: self.random(Elem::F32, &[d, 4], 0.5, rng)?,
            conv_bias: Some(self.random(Elem::F32, &[d], 0.1, rng)?),
            conv_state: self.random(Elem::F32, &[n, d, 3], 1.0, rng)?,
            conv_slots: self.permutation(n, rng)?,
            state: self.random(Elem::F32, &[n, h, 128, 128], 0.1, rng)?,
            state_slots: self.permutation(n, rng)?,
            snapshot_rows: self.permutation(n, rng)?,
            a: self.random(Elem::BF16, &[n, t, h, 128], 1.0, rng)?,
            b: self.random(Elem::BF16, &[n, t, h], 1.0, rng)?,
            a_log: Some(self.random(Elem::F32, &[h], 0.3, rng)?),
            dt_bias: self.random(Elem::F32, &[h, 128], 0.3, rng)?,
            states_out: Some(self.empty(Elem::F32, &[n, t, h, 128, 128])?),
            windows_out: Some(self.empty(Elem::F32, &[n, t, d, 3])?),
            out: self.empty(Elem::BF16, &[n, t, h, 128])?,
            workspace: self.empty(Elem::U32, &[n, h])?,
            scale: 128f32.sqrt().recip(),
            gate: Gate::Bounded { lower_bound: -5.0 },
            null: -1,
            roll: true,
            snapshot_rule: SnapshotRule::ByIndex,
        })
    }
}
