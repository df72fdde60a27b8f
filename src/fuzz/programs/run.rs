//! A program in the simulator, on a device, and how the two compare.

use super::forms::{Closeness, Kind};
use super::generate::{COMBINED, GRID, Program, WORDS, pool};
use kda_core::desc::{Protocol, SourceLocation, content_hash};
use kda_core::exec::{ExecError, Executor, Stream};
use kda_core::{Arch, Expr, IsaVersion, KernelDesc, ParamDesc, ParamKind, PreparedLaunch};
use kda_sim::{CtaOrder, Launch, Memory, Options, Schedule};

/// What the output holds before the program runs.
const FILL: u8 = 0x5A;
/// Warp instructions after which a program is stopped.
const STEPS: u64 = 4_000_000;

/// Runs a program in the simulator; a report is an error.
pub fn simulate(
    program: &Program,
    text: &str,
    schedule: Schedule,
    order: CtaOrder,
    seed: u64,
) -> Result<Vec<u8>, String> {
    let decoded = kda_sim::Program::load(text).map_err(|error| error.to_string())?;
    let failed = |error: ExecError| format!("memory: {error}");
    let mut memory = Memory::new();
    let input = memory.allocate(program.input.len() as u64).map_err(failed)?;
    memory.write(input, &program.input).map_err(failed)?;
    let output = memory.allocate(program.output_bytes()).map_err(failed)?;
    memory.fill(output, FILL, program.output_bytes()).map_err(failed)?;
    let params = [input.to_le_bytes(), output.to_le_bytes()].concat();
    let launch = Launch { shared_bytes: program.shared_bytes, ..Launch::new([GRID, 1, 1], program.block, &params) };
    let options =
        Options { schedule, cta_order: order, seed, step_limit: STEPS, resident_ctas: 2, ..Options::default() };
    kda_sim::run(&decoded, &launch, &mut memory, &options).map_err(|report| report.to_string())?;
    let mut bytes = vec![0; program.output_bytes() as usize];
    memory.read(output, &mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Runs a text in place of the program's on a device.
pub fn on_device(program: &Program, text: &str, executor: &dyn Executor) -> Result<Vec<u8>, String> {
    let failed = |error: ExecError| error.to_string();
    let desc = describe(program, text.to_string().leak());
    let mut bytes = vec![0; program.output_bytes() as usize];
    let input = executor.allocate(program.input.len() as u64).map_err(failed)?;
    let output = executor.allocate(program.output_bytes()).map_err(failed)?;
    let params = [input.to_le_bytes(), output.to_le_bytes()].concat();
    let launch = PreparedLaunch { desc, grid: [GRID, 1, 1], params, maps: Vec::new(), pdl: false };
    let result = executor
        .write(input, &program.input)
        .and_then(|()| executor.fill(output, FILL, program.output_bytes()))
        // SAFETY: both buffers outlive the wait below; the text ran in the simulator without a stray access.
        .and_then(|()| unsafe { executor.launch(&launch, Stream::default()) })
        .and_then(|()| executor.synchronize(Stream::default()))
        .and_then(|()| executor.read(output, &mut bytes));
    let freed = executor.free(input).and(executor.free(output));
    result.and(freed).map_err(failed)?;
    Ok(bytes)
}

/// The program as a kernel. It lives as long as the process: a device may keep it.
fn describe(program: &Program, ptx: &'static str) -> &'static KernelDesc {
    const POINTERS: [ParamDesc; 2] = [
        ParamDesc { name: "input", kind: ParamKind::Dim, offset: 0, bytes: 8 },
        ParamDesc { name: "output", kind: ParamKind::Dim, offset: 8, bytes: 8 },
    ];
    Box::leak(Box::new(KernelDesc {
        entry: "fuzz",
        family: "fuzz",
        kernel: "fuzz",
        arch: Arch::SM_90,
        isa: IsaVersion::new(8, 0),
        ptx,
        block: program.block,
        cluster: 1,
        grid: [Expr::Int(GRID as i128), Expr::Int(1), Expr::Int(1)],
        min_blocks_per_sm: 1,
        shared_bytes: program.shared_bytes,
        shared: &[],
        roles: &[],
        barriers: &[],
        protocol: Protocol::Nothing,
        params: &POINTERS,
        param_bytes: 16,
        consts: &[],
        requires: &[],
        pdl: false,
        source: SourceLocation { file: "", line: 0 },
        hash: content_hash(ptx),
    }))
}

/// Whether a device's output is that of the simulator; what differs first if it is not.
pub fn compare(program: &Program, simulated: &[u8], device: &[u8]) -> Result<(), String> {
    match differences(program, simulated, device).into_iter().next() {
        Some(first) => Err(first),
        None => Ok(()),
    }
}

/// Every slot in which two outputs differ, with what computed it, and the input of the first thread that differs.
pub fn differences(program: &Program, simulated: &[u8], device: &[u8]) -> Vec<String> {
    if simulated.len() != device.len() {
        return vec![format!("{} bytes and {} bytes", simulated.len(), device.len())];
    }
    let threads = program.threads();
    let mut found = Vec::new();
    for (index, slot) in program.slots.iter().enumerate() {
        let differs = |thread: &usize| {
            let at = index * threads + thread;
            !same(slot.kind, slot.closeness, word(simulated, at), word(device, at))
        };
        let wrong: Vec<usize> = (0..threads).filter(differs).collect();
        if let Some(thread) = wrong.first() {
            let at = index * threads + thread;
            found.push(format!(
                "slot {index} of {} threads, thread {thread} first: {:x} in the simulator, {:x} on the device; {}; {}",
                wrong.len(),
                word(simulated, at),
                word(device, at),
                slot.text,
                operands(program, &slot.text, *thread)
            ));
        }
    }
    let combined = simulated.len() - COMBINED as usize;
    if simulated[combined..] != device[combined..] {
        found.push("what atomics of all CTAs combined differs".to_string());
    }
    found
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[8 * at..8 * at + 8].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// What the registers of a line held at first.
fn operands(program: &Program, text: &str, thread: usize) -> String {
    let named = |register: &str| text.split([' ', ',', ';', '{', '}', '|', '!', '@']).any(|piece| piece == register);
    let row = thread * WORDS;
    let held = pool().enumerate().filter(|(_, (_, register))| named(register));
    let held = held.map(|(index, (kind, register))| {
        let bits = word(&program.input, row + index) & (u64::MAX >> (64 - kind.bits().max(8)));
        format!("{register} = {bits:x}")
    });
    format!("at first {}", held.collect::<Vec<_>>().join(", "))
}

/// Whether two results of a kind are near enough.
fn same(kind: Kind, closeness: Closeness, a: u64, b: u64) -> bool {
    if let Closeness::Within(relative, absolute) = closeness {
        let (x, y) = (f64::from(f32::from_bits(a as u32)), f64::from(f32::from_bits(b as u32)));
        return x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= absolute.max(relative * x.abs().max(y.abs()));
    }
    let low = |word: u64| word & (u64::MAX >> (64 - kind.bits().max(16)));
    // Exponent bits of a half: all ones with a mantissa is a NaN.
    let nan16 = |word: u64, exponent: u64| word & exponent == exponent && word & (0x7FFF & !exponent) != 0;
    let halves = |exponent: u64, count: u32| {
        (0..count).all(|half| {
            let (x, y) = (a >> (16 * half) & 0xFFFF, b >> (16 * half) & 0xFFFF);
            x == y || (nan16(x, exponent) && nan16(y, exponent))
        })
    };
    match kind {
        Kind::F32 => a as u32 == b as u32 || (f32::from_bits(a as u32).is_nan() && f32::from_bits(b as u32).is_nan()),
        Kind::F64 => a == b || (f64::from_bits(a).is_nan() && f64::from_bits(b).is_nan()),
        Kind::F16 => halves(0x7C00, 1),
        Kind::F16x2 => halves(0x7C00, 2),
        Kind::Bf16 => halves(0x7F80, 1),
        Kind::Bf16x2 => halves(0x7F80, 2),
        Kind::P => a as u32 == b as u32,
        Kind::H | Kind::R | Kind::D => low(a) == low(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nans_are_alike_and_numbers_are_not() {
        let bits = Closeness::Bits;
        assert!(same(Kind::F32, bits, 0x7fff_ffff, 0xffc0_0001) && !same(Kind::R, bits, 0x7fff_ffff, 0xffc0_0001));
        assert!(
            same(Kind::F16x2, bits, 0x7e00_3c00, 0xfe01_3c00) && !same(Kind::F16x2, bits, 0x7e00_3c00, 0x7e00_3c01)
        );
        assert!(!same(Kind::Bf16, bits, 0x7f80, 0x7fff) && same(Kind::Bf16, bits, 0x7fc0, 0x7fff));
        assert!(!same(Kind::F32, bits, 0, 1 << 31) && same(Kind::F32, bits, 5 | 7 << 32, 5));
        let near = Closeness::Within(1e-6, 0.0);
        let one = u64::from(1f32.to_bits());
        assert!(same(Kind::F32, near, one, one + 2) && !same(Kind::F32, near, one, one + 20));
        assert!(!same(Kind::F32, near, one, u64::from(f32::NAN.to_bits())));
    }
}
