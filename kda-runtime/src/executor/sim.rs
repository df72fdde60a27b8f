//! Runs kernels in the simulator of their PTX text, on any CPU.
//!
//! A launch runs to its end before the call returns, whatever the stream; so streams order nothing here. A fault that
//! the simulator finds is the launch's error, with the line of the kernel's source.

use kda_core::desc::content_hash;
use kda_core::exec::{ExecError, Executor, Stream};
use kda_core::tensor_map::MAP_BYTES;
use kda_core::{KernelDesc, LaunchError, ParamDesc, ParamKind, PreparedLaunch};
use kda_sim::{Launch, Memory, Program, run};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use kda_sim::{Code, CtaOrder, Options, Report, Schedule, Stats};

/// Compute capability and multiprocessors that the simulator shows unless a kernel needs another: those of an H200, so that
/// kernels are chosen as there.
const CAPABILITY: (u8, u8) = (9, 0);
const MULTIPROCESSORS: u32 = 132;

/// Memory and launches in the simulator.
pub struct SimExecutor {
    options: Options,
    /// Tensors that the grid ahead of a dependent launch has settled, by name; `None` for those declared stable.
    settled: Option<Vec<&'static str>>,
    capability: (u8, u8),
    multiprocessors: u32,
    state: Mutex<State>,
}

struct State {
    memory: Memory,
    /// Decoded kernels, by content hash and entry.
    programs: HashMap<(u64, &'static str), Arc<Program>>,
    /// What the last launch did, and how long it took.
    last: Option<(Stats, Duration)>,
    /// What was wrong with the last launch that had a fault.
    report: Option<Box<Report>>,
    /// Tensors that the last dependent launch accessed ahead of its wait.
    early: Vec<&'static str>,
    /// Where the next launch is cut off.
    cut: Option<u64>,
}

impl Default for SimExecutor {
    fn default() -> SimExecutor {
        SimExecutor::new(Options::default())
    }
}

impl SimExecutor {
    /// An executor with empty memory that runs every launch with these options.
    pub fn new(options: Options) -> SimExecutor {
        let state = State {
            memory: Memory::new(),
            programs: HashMap::new(),
            last: None,
            report: None,
            early: Vec::new(),
            cut: None,
        };
        SimExecutor {
            options,
            settled: None,
            capability: CAPABILITY,
            multiprocessors: MULTIPROCESSORS,
            state: Mutex::new(state),
        }
    }

    /// The same, showing a compute capability that runs this kernel: its target's, if the usual one does not.
    pub fn for_kernel(options: Options, desc: &KernelDesc) -> SimExecutor {
        let arch = desc.arch;
        let capability = match arch.runs_on(CAPABILITY.0, CAPABILITY.1) {
            true => CAPABILITY,
            false => (arch.major, arch.minor),
        };
        SimExecutor { capability, ..SimExecutor::new(options) }
    }

    /// The same, showing this compute capability: kernels are chosen as on such a device.
    pub fn with_capability(options: Options, capability: (u8, u8)) -> SimExecutor {
        SimExecutor { capability, ..SimExecutor::new(options) }
    }

    /// The same executor, showing so many multiprocessors: the CTAs of a persistent grid then take several items each where
    /// these hold no more.
    pub fn with_multiprocessors(self, multiprocessors: u32) -> SimExecutor {
        SimExecutor { multiprocessors, ..self }
    }

    /// What the last launch that ran without a fault did.
    pub fn last_stats(&self) -> Option<Stats> {
        self.state().last.map(|(stats, _)| stats)
    }

    /// How long that launch took on the host.
    pub fn last_elapsed(&self) -> Option<Duration> {
        self.state().last.map(|(_, elapsed)| elapsed)
    }

    /// The fault of the last launch that had one: what [`ExecError::Simulation`] says in words.
    pub fn last_report(&self) -> Option<Report> {
        self.state().report.as_deref().cloned()
    }

    /// The same executor, for which the grid ahead of every dependent launch may still be writing all tensors but these. Without,
    /// it may be writing all that are not declared `stable`.
    pub fn with_settled(self, settled: Vec<&'static str>) -> SimExecutor {
        SimExecutor { settled: Some(settled), ..self }
    }

    /// Names of the tensors that the last dependent launch accessed ahead of `griddepcontrol.wait`.
    pub fn last_early(&self) -> Vec<&'static str> {
        self.state().early.clone()
    }

    /// Cuts the next launch off after so many warp instructions, as a launch that a device aborts is: it ends in
    /// [`Code::StepLimit`], and memory keeps what it had written by then.
    pub fn cut_next(&self, warp_instructions: u64) {
        self.state().cut = Some(warp_instructions);
    }

    /// Whether the grid ahead of a dependent launch may still be writing a tensor.
    fn is_unsettled(&self, param: &ParamDesc) -> bool {
        let stable = match param.kind {
            ParamKind::Tensor(tensor) => tensor.stable,
            ParamKind::TensorMap(map) => map.stable,
            _ => true,
        };
        self.settled.as_ref().map_or(!stable, |settled| !settled.contains(&param.name))
    }

    /// How every launch is run.
    pub fn options(&self) -> &Options {
        &self.options
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Name of a schedule on a command line.
pub const fn schedule_name(schedule: Schedule) -> &'static str {
    match schedule {
        Schedule::RoundRobin => "round-robin",
        Schedule::ReverseWarps => "reverse-warps",
        Schedule::Random => "random",
        Schedule::Pct { .. } => "pct",
        Schedule::LateAsync => "late-async",
        Schedule::EarlyAsync => "early-async",
    }
}

/// Name of an order of CTAs, as texts show it.
pub const fn cta_order_name(order: CtaOrder) -> &'static str {
    match order {
        CtaOrder::Forward => "forward",
        CtaOrder::Reverse => "reverse",
        CtaOrder::Random => "random",
    }
}

/// Every order of CTAs.
pub const CTA_ORDERS: [CtaOrder; 3] = [CtaOrder::Forward, CtaOrder::Reverse, CtaOrder::Random];

/// The schedule of that name.
pub fn schedule_of(name: &str) -> Option<Schedule> {
    Schedule::ALL.into_iter().find(|schedule| schedule_name(*schedule) == name)
}

impl State {
    /// The decoded kernel.
    fn program(&mut self, desc: &'static KernelDesc, given: (u8, u8)) -> Result<Arc<Program>, ExecError> {
        let key = (desc.hash, desc.entry);
        if let Some(program) = self.programs.get(&key) {
            return Ok(Arc::clone(program));
        }
        let entry = desc.entry;
        if !desc.arch.runs_on(given.0, given.1) {
            let error = LaunchError::WrongDevice { entry, given, needed: desc.arch };
            return Err(ExecError::Unsupported(error.to_string()));
        }
        let hash = content_hash(desc.ptx);
        if hash != desc.hash {
            return Err(ExecError::Unsupported(format!(
                "{entry}: its description names the hash {:016x}, its text has {hash:016x}; build it again",
                desc.hash
            )));
        }
        let program = Program::load_entry(desc.ptx, entry)
            .map_err(|cause| ExecError::Unsupported(format!("{entry} cannot be simulated: {cause}")))?;
        Ok(Arc::clone(self.programs.entry(key).or_insert(Arc::new(program))))
    }
}

/// Tensors of a launch, and where they are.
fn tensors(launch: &PreparedLaunch) -> Vec<(&'static ParamDesc, u64)> {
    let place = |param: &'static ParamDesc| match param.kind {
        ParamKind::Tensor(_) => {
            let at = param.offset as usize;
            let bytes = launch.params.get(at..at + 8)?;
            Some((param, u64::from_le_bytes(bytes.try_into().ok()?)))
        }
        ParamKind::TensorMap(_) => {
            let map = launch.maps.iter().find(|map| map.offset == param.offset)?;
            Some((param, map.tensor.ptr))
        }
        _ => None,
    };
    launch.desc.params.iter().filter_map(place).filter(|(_, ptr)| *ptr != 0).collect()
}

impl Executor for SimExecutor {
    fn describe(&self) -> String {
        let (major, minor) = self.capability;
        format!(
            "simulator of PTX text, compute capability {major}.{minor}, schedule {}, CTAs {}, seed {}",
            schedule_name(self.options.schedule),
            cta_order_name(self.options.cta_order),
            self.options.seed
        )
    }

    fn compute_capability(&self) -> (u8, u8) {
        self.capability
    }

    fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    fn allocate(&self, bytes: u64) -> Result<u64, ExecError> {
        self.state().memory.allocate(bytes)
    }

    fn free(&self, ptr: u64) -> Result<(), ExecError> {
        self.state().memory.free(ptr)
    }

    fn write(&self, ptr: u64, bytes: &[u8]) -> Result<(), ExecError> {
        self.state().memory.write(ptr, bytes)
    }

    fn read(&self, ptr: u64, bytes: &mut [u8]) -> Result<(), ExecError> {
        self.state().memory.read(ptr, bytes)
    }

    fn fill(&self, ptr: u64, byte: u8, bytes: u64) -> Result<(), ExecError> {
        self.state().memory.fill(ptr, byte, bytes)
    }

    unsafe fn launch(&self, launch: &PreparedLaunch, _stream: Stream) -> Result<(), ExecError> {
        if launch.is_empty() {
            return Ok(());
        }
        let desc = launch.desc;
        let mut state = self.state();
        let program = state.program(desc, self.capability)?;
        let mut params = launch.params.clone();
        for map in &launch.maps {
            let at = map.offset as usize;
            let place = params.get_mut(at..at + MAP_BYTES as usize).ok_or_else(|| {
                ExecError::Unsupported(format!(
                    "{}: a tensor map at byte {at} is not in the parameter block",
                    desc.entry
                ))
            })?;
            place.copy_from_slice(&map.encode());
        }
        let simulated = Launch {
            grid: launch.grid,
            block: desc.block,
            cluster: desc.cluster,
            shared_bytes: desc.shared_bytes,
            params: &params,
        };
        let tensors = if launch.pdl { tensors(launch) } else { Vec::new() };
        if launch.pdl {
            let unsettled = tensors.iter().filter(|(param, _)| self.is_unsettled(param)).map(|(_, ptr)| *ptr);
            state.memory.depend(&unsettled.collect::<Vec<_>>());
        }
        let mut options = self.options;
        options.step_limit = state.cut.take().unwrap_or(options.step_limit);
        let start = Instant::now();
        let outcome = run(&program, &simulated, &mut state.memory, &options);
        let early = |ptr| state.memory.allocation_of(ptr).is_some_and(|allocation| allocation.early);
        state.early = tensors.iter().filter(|(_, ptr)| early(*ptr)).map(|(param, _)| param.name).collect();
        match outcome {
            Ok(stats) => {
                state.last = Some((stats, start.elapsed()));
                Ok(())
            }
            Err(report) => {
                let words = report.to_string();
                state.report = Some(report);
                Err(ExecError::Simulation(words))
            }
        }
    }

    fn synchronize(&self, _stream: Stream) -> Result<(), ExecError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceBuffer, Guarding};
    use half::bf16;
    use kda_core::Elem;
    use kda_core::launch::{Arg, ScalarArg, prepare};

    fn scale_add() -> &'static KernelDesc {
        kda_kernels::all().find(|desc| desc.entry == "scale_add__block128").expect("the kernel scale_add")
    }

    fn launch(x: &DeviceBuffer, y: &DeviceBuffer, n: u64) -> PreparedLaunch {
        let tensor = |buffer: &DeviceBuffer| Arg::Tensor(Some(buffer.dense(Elem::F32, &[n]).unwrap()));
        prepare(scale_add(), &[tensor(x), tensor(y), Arg::Scalar(ScalarArg::F32(0.5))], false).unwrap()
    }

    #[test]
    fn a_kernel_runs_under_every_schedule() {
        for schedule in Schedule::ALL {
            let options = Options { schedule, ..Options::default() };
            let executor = SimExecutor::new(options);
            assert!(executor.describe().contains(schedule_name(schedule)));
            let values: Vec<f32> = (0..300).map(|i| i as f32).collect();
            let x = DeviceBuffer::of(&executor, "x", &values, Guarding::NONE).unwrap();
            let y = DeviceBuffer::of(&executor, "y", &values, Guarding::NONE).unwrap();
            // SAFETY: the simulator touches no host memory, and both buffers outlive the launch.
            unsafe { executor.launch(&launch(&x, &y, 300), Stream(0)) }.unwrap();
            let mirror = |i: usize| values.get(i / 128 * 128 + 127 - i % 128).copied().unwrap_or(0.0);
            let expected: Vec<f32> = (0..300).map(|i| values[i].mul_add(0.5, mirror(i))).collect();
            assert_eq!(y.download::<f32>().unwrap(), expected, "{schedule:?}");
            assert!(executor.last_stats().unwrap().warp_instructions > 0);
        }
    }

    #[test]
    fn a_fault_is_the_error_of_the_launch() {
        let executor = SimExecutor::default();
        let x = DeviceBuffer::new(&executor, "x", 1200, Guarding::NONE).unwrap();
        let y = DeviceBuffer::new(&executor, "y", 1200, Guarding::NONE).unwrap();
        // SAFETY: as above.
        let error = unsafe { executor.launch(&launch(&x, &y, 300), Stream(0)) }.unwrap_err();
        assert!(matches!(&error, ExecError::Simulation(report) if report.contains("KDA3002")), "{error}");
        let report = executor.last_report().expect("a report");
        assert_eq!((report.code, report.to_string()), (Code::Uninitialised, error.to_string()));
        assert_eq!((executor.last_stats(), executor.last_elapsed()), (None, None));
    }

    #[test]
    fn a_cut_ends_one_launch_and_keeps_what_it_wrote() {
        let executor = SimExecutor::default();
        let x = DeviceBuffer::of(&executor, "x", &vec![1f32; 300], Guarding::NONE).unwrap();
        let y = DeviceBuffer::of(&executor, "y", &vec![1f32; 300], Guarding::NONE).unwrap();
        // SAFETY: as above.
        unsafe { executor.launch(&launch(&x, &y, 300), Stream(0)) }.unwrap();
        let whole = executor.last_stats().unwrap().warp_instructions;
        y.fill(0).unwrap();
        executor.cut_next(whole - 1);
        // SAFETY: as above.
        unsafe { executor.launch(&launch(&x, &y, 300), Stream(0)) }.unwrap_err();
        assert_eq!(executor.last_report().unwrap().code, Code::StepLimit);
        assert!(y.download::<f32>().unwrap().contains(&1.5));
        // SAFETY: as above.
        unsafe { executor.launch(&launch(&x, &y, 300), Stream(0)) }.unwrap();
    }

    #[test]
    fn tensor_maps_reach_the_kernel() {
        let desc = kda_kernels::all().find(|d| d.entry.starts_with("gemm_ws")).expect("the kernel gemm_ws");
        let executor = SimExecutor::default();
        let (n, k) = (256u64, 64u64);
        // Whole numbers of at most 3 bits: every product and sum is exact, and so is its bf16.
        let value = |seed: u64, i: u64| ((i * 7 + seed) % 5) as f32 - 2.0;
        let values = |seed: u64| -> Vec<bf16> { (0..n * k).map(|i| bf16::from_f32(value(seed, i))).collect() };
        let a = DeviceBuffer::of(&executor, "a", &values(1), Guarding::NONE).unwrap();
        let b = DeviceBuffer::of(&executor, "b", &values(2), Guarding::NONE).unwrap();
        let c = DeviceBuffer::new(&executor, "c", n * n * 2, Guarding::NONE).unwrap();
        let tensor =
            |buffer: &DeviceBuffer, columns| Arg::Tensor(Some(buffer.dense(Elem::BF16, &[n, columns]).unwrap()));
        let arguments =
            [tensor(&a, k), tensor(&b, k), Arg::Tensor(None), tensor(&c, n), Arg::Scalar(ScalarArg::U32(2))];
        let launch = prepare(desc, &arguments, false).unwrap();
        assert_eq!(launch.maps.len(), 3);
        // SAFETY: as above.
        unsafe { executor.launch(&launch, Stream(0)) }.unwrap();
        let found = c.download::<bf16>().unwrap();
        for (at, found) in found.iter().enumerate() {
            let (i, j) = (at as u64 / n, at as u64 % n);
            let want: f32 = (0..k).map(|l| value(1, i * k + l) * value(2, j * k + l)).sum();
            assert_eq!(found.to_f32(), want, "row {i} column {j}");
        }
    }

    #[test]
    fn schedules_have_names() {
        for schedule in Schedule::ALL {
            assert_eq!(schedule_of(schedule_name(schedule)), Some(schedule));
        }
        assert_eq!(schedule_of("fifo"), None);
    }
}
