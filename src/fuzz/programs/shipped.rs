//! Shipped kernels with changed texts, launched as they should be: barriers, copies, products and tensor memory used wrongly.

use super::wild::STEPS;
use crate::fuzz::parameters::execute::numbers;
use crate::fuzz::parameters::kernels::fitting;
use crate::fuzz::{Counts, text};
use kda_core::launch::{Arg, prepare};
use kda_core::{KernelDesc, PreparedLaunch};
use kda_ref::rng::Rng;
use kda_sim::{Launch, Memory, Options, Program, Schedule};

/// Longest text: what takes longer to decode is run less often elsewhere.
const SHORT: usize = 24_000;
/// Most bytes of a tensor.
const MOST_BYTES: u128 = 1 << 20;

/// Runs a kernel with a few changes.
pub(super) fn case(rng: &mut Rng, counts: &mut Counts) -> Result<(), String> {
    let mut kernels: Vec<&'static KernelDesc> = kda_kernels::all().filter(|desc| desc.ptx.len() < SHORT).collect();
    kernels.sort_by_key(|desc| desc.entry);
    let desc = rng.choose(&kernels);
    let mut text = desc.ptx.to_string();
    for _ in 0..rng.below(4) {
        match rng.below(4) {
            0 => text::number(&mut text, rng),
            _ => text::lines(&mut text, desc.ptx, rng),
        }
    }
    let Ok(program) = Program::load_entry(&text, desc.entry) else {
        counts.add("not loaded");
        return Ok(());
    };
    let Some(args) = fitting(desc, rng) else {
        counts.add("without arguments");
        return Ok(());
    };
    let mut memory = Memory::new();
    let Some(launch) = place(desc, &args, &mut memory, rng)? else {
        counts.add("without arguments");
        return Ok(());
    };
    let mut params = launch.params.clone();
    for map in &launch.maps {
        params[map.offset as usize..][..128].copy_from_slice(&map.encode());
    }
    let [x, y, z] = launch.grid.map(|ctas| ctas.clamp(1, 4));
    let simulated = Launch {
        grid: [x.next_multiple_of(desc.cluster), y, z],
        block: desc.block,
        cluster: desc.cluster,
        shared_bytes: desc.shared_bytes,
        params: &params,
    };
    let options =
        Options { schedule: rng.choose(&Schedule::ALL), seed: rng.next_u64(), step_limit: STEPS, ..Options::default() };
    match kda_sim::run(&program, &simulated, &mut memory, &options) {
        Ok(_) => counts.add("run to the end"),
        Err(report) if report.message.is_empty() => return Err(format!("a report without words\n{text}")),
        Err(report) => counts.add(&report.code.to_string()),
    }
    Ok(())
}

/// The launch with its tensors in memory; `None` if they are large.
fn place(
    desc: &'static KernelDesc,
    args: &[Arg],
    memory: &mut Memory,
    rng: &mut Rng,
) -> Result<Option<PreparedLaunch>, String> {
    let mut placed = args.to_vec();
    for arg in &mut placed {
        let Arg::Tensor(Some(tensor)) = arg else { continue };
        if tensor.extent_bytes() > MOST_BYTES {
            return Ok(None);
        }
        tensor.bytes = tensor.extent_bytes() as u64;
        let failed = |error: kda_core::exec::ExecError| format!("memory: {error}");
        tensor.ptr = memory.allocate(tensor.bytes).map_err(failed)?;
        memory.write(tensor.ptr, &numbers(tensor.elem, tensor.bytes as usize, rng)).map_err(failed)?;
    }
    prepare(desc, &placed, false).map(Some).map_err(|error| format!("refused once it was placed: {error}"))
}
