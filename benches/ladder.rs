//! Times rungs of the ladder beside kernels of the same algorithm written by hand in CUDA C++ (`benches/ladder/*.cu`).
//!
//! Method: both run on the same buffers, several times the size of L2; CUDA-graph replay, warmed up, the two in turn; the
//! median of 15. The hand-written kernels are compiled by `nvcc` (`$NVCC`, PATH, or /usr/local/cuda) when the bench starts,
//! have the same entry, parameters and shared memory as ours, and are launched by the same code.

mod common;

use common::{Failure, device, median};
use kda::checks::Device;
use kda::checks::ladder::{Problem, RUNGS, Rung};
use kda::runtime::Guarding;
use kda_core::exec::{ExecError, Stream};
use kda_core::{Executor, KernelDesc, PreparedLaunch};
use kda_runtime::executor::cuda::CudaExecutor;
use std::path::{Path, PathBuf};
use std::process::Command;

const SEED: u64 = 1;
const REPLAYS: usize = 15;

fn main() -> Result<(), Failure> {
    let Some(executor) = device()? else { return Ok(()) };
    println!(
        "{:<18} {:>20} {:>10} {:>10} {:>7} {:>9} {:>9}",
        "kernel", "size", "ours_us", "hand_us", "ratio", "GB/s", "TFLOP/s"
    );
    let on = Device { executor: &executor, guarding: Guarding::NONE };
    for rung in &RUNGS {
        for desc in rung.descs() {
            match twin(rung, desc)? {
                Some(twin) => compare(&executor, on, rung, desc, twin)?,
                None => println!("{:<18} has no hand-written kernel beside it", desc.entry),
            }
        }
    }
    Ok(())
}

/// Both kernels: the same results on a small problem, then their times on a large one.
fn compare(
    executor: &CudaExecutor,
    device: Device,
    rung: &Rung,
    desc: &'static KernelDesc,
    twin: &'static KernelDesc,
) -> Result<(), Failure> {
    for size in rung.sizes {
        let small = (rung.problem)(device, desc, *size, SEED)?;
        let mut results = Vec::new();
        for desc in [desc, twin] {
            launch(executor, &with(&small.launch, desc))?;
            executor.synchronize(Stream::default())?;
            let output = small.buffers.last().ok_or("a problem has an output")?;
            results.push(output.download::<f32>()?);
            output.fill(0xFF)?;
        }
        let differing = results[0].iter().zip(&results[1]).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        if differing > 0 {
            return Err(
                format!("{} {size:?}: {differing} results differ from the hand-written kernel's", desc.entry).into()
            );
        }
    }
    let large = (rung.problem)(device, desc, rung.large, SEED)?;
    let (mut ours, mut hand) = (Vec::new(), Vec::new());
    let graphs = [desc, twin].map(|desc| executor.capture(|executor| launch(executor, &with(&large.launch, desc))));
    let [our_graph, hand_graph] = graphs;
    let (our_graph, hand_graph) = (our_graph?, hand_graph?);
    for round in 0..REPLAYS + 3 {
        for (graph, times) in [(&our_graph, &mut ours), (&hand_graph, &mut hand)] {
            // SAFETY: the buffers of `large` outlive the graphs' last replay.
            let us = executor.time_us(|_| unsafe { graph.launch(Stream::default()) })?;
            // The first rounds warm up.
            if round >= 3 {
                times.push(us);
            }
        }
    }
    report(desc, rung, &large, median(&mut ours), median(&mut hand));
    Ok(())
}

fn report(desc: &KernelDesc, rung: &Rung, problem: &Problem, ours: f64, hand: f64) {
    println!(
        "{:<18} {:>20} {ours:>10.1} {hand:>10.1} {:>7.3} {:>9.0} {:>9.1}",
        desc.entry,
        format!("{:?}", rung.large),
        hand / ours,
        problem.bytes as f64 / ours / 1e3,
        problem.operations as f64 / ours / 1e6
    );
}

fn launch(executor: &CudaExecutor, prepared: &PreparedLaunch) -> Result<(), ExecError> {
    // SAFETY: the caller keeps the buffers until the launch has completed.
    unsafe { executor.launch(prepared, Stream::default()) }
}

/// The launch of another kernel with the same parameters.
fn with(launch: &PreparedLaunch, desc: &'static KernelDesc) -> PreparedLaunch {
    PreparedLaunch { desc, params: launch.params.clone(), maps: launch.maps.clone(), ..*launch }
}

/// The hand-written kernel of a rung: ours with another text.
fn twin(rung: &Rung, desc: &'static KernelDesc) -> Result<Option<&'static KernelDesc>, Failure> {
    let near = Path::new("benches/ladder");
    let folder = if near.is_dir() { near.into() } else { Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/ladder") };
    let source = folder.join(format!("{}.cu", rung.name));
    if !source.is_file() {
        return Ok(None);
    }
    let target = std::env::temp_dir().join(format!("kda-{}-{}.ptx", rung.name, std::process::id()));
    let mut command = Command::new(nvcc());
    command.args(["-ptx", "-arch=sm_90a", "-O3", "-o"]).arg(&target).arg(&source);
    let output = command.output().map_err(|cause| format!("nvcc cannot be run: {cause}"))?;
    if !output.status.success() {
        return Err(format!("{}: {}", source.display(), String::from_utf8_lossy(&output.stderr)).into());
    }
    let text = std::fs::read_to_string(&target)?;
    std::fs::remove_file(&target)?;
    Ok(Some(desc.with_text(text)))
}

fn nvcc() -> PathBuf {
    std::env::var_os("NVCC").map(PathBuf::from).unwrap_or_else(|| {
        let usual = Path::new("/usr/local/cuda/bin/nvcc");
        if usual.is_file() { usual.into() } else { "nvcc".into() }
    })
}
