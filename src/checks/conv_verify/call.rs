//! A problem on a device: buffers, launch, results.

use super::Failure;
use super::case::Case;
use crate::checks::Device;
use half::bf16;
use kda_core::exec::Stream;
use kda_core::{Elem, TensorArg};
use kda_kernels::conv_verify::ConvVerifyVariant;
use kda_ref::conv_verify::SnapshotRule as RefRule;
use kda_ref::conv_verify::sample::Sample;
use kda_ref::floats::FloatVec;
use kda_runtime::DeviceBuffer;
use kda_runtime::operators::conv_verify::{Gate, Options, Problem, SnapshotRule, plan};

/// Everything that a launch may have written.
#[derive(Clone, Debug)]
pub struct Results {
    /// `[N, T]` rows of `HV*V`, with the padding between them.
    pub out: Vec<bf16>,
    /// `[rows, T_alloc, HV, V, K]`; absent if the call has none.
    pub states: Option<Vec<f32>>,
    /// As the sample's window layout has it; absent if the call has none.
    pub windows: Option<FloatVec>,
    /// The pool of histories.
    pub pool: FloatVec,
    /// Elements of read-only pools and of the workspace that are not what they were.
    pub changed_inputs: usize,
}

impl Results {
    /// Elements whose bits differ.
    pub fn differing_bits(&self, other: &Results) -> usize {
        let out = unlike(&self.out, &other.out, |a, b| a.to_bits() == b.to_bits());
        let states = match (&self.states, &other.states) {
            (Some(a), Some(b)) => unlike(a, b, |a, b| a.to_bits() == b.to_bits()),
            (a, b) => usize::from(a.is_some() != b.is_some()),
        };
        let windows = match (&self.windows, &other.windows) {
            (Some(a), Some(b)) => unlike_floats(a, b),
            (a, b) => usize::from(a.is_some() != b.is_some()),
        };
        out + states + windows + unlike_floats(&self.pool, &other.pool)
    }
}

/// Elements that are not alike; elements that only one of the two has count too.
fn unlike<T>(a: &[T], b: &[T], alike: impl Fn(&T, &T) -> bool) -> usize {
    a.iter().zip(b).filter(|(a, b)| !alike(a, b)).count() + a.len().abs_diff(b.len())
}

/// As [`unlike`], of bits; a vector of another type is unlike everywhere.
fn unlike_floats(a: &FloatVec, b: &FloatVec) -> usize {
    match (a, b) {
        (FloatVec::F32(a), FloatVec::F32(b)) => unlike(a, b, |a, b| a.to_bits() == b.to_bits()),
        (FloatVec::Bf16(a), FloatVec::Bf16(b)) => unlike(a, b, |a, b| a.to_bits() == b.to_bits()),
        (a, b) => a.view().len().max(b.view().len()),
    }
}

/// Elements that differ; elements that only one of the two has count too.
pub(in crate::checks) fn differences(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).filter(|(a, b)| a != b).count() + a.len().abs_diff(b.len())
}

pub(in crate::checks) fn bf16_bits(values: &[bf16]) -> Vec<u32> {
    values.iter().map(|v| u32::from(v.to_bits())).collect()
}

pub(in crate::checks) fn f32_bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// The buffers of a problem, and the problem on them.
pub struct Call<'d> {
    /// The call; a test may change it before it runs.
    pub problem: Problem,
    device: Device<'d>,
    sample: &'d Sample,
    state: DeviceBuffer<'d>,
    pool: DeviceBuffer<'d>,
    out: DeviceBuffer<'d>,
    states: Option<DeviceBuffer<'d>>,
    windows: Option<DeviceBuffer<'d>>,
    workspace: DeviceBuffer<'d>,
    /// Inputs that nothing looks at again; kept for their memory and their guard bands.
    inputs: Vec<DeviceBuffer<'d>>,
}

impl<'d> Call<'d> {
    /// Uploads the inputs and poisons the outputs.
    pub fn new(device: Device<'d>, case: &'d Case) -> Result<Call<'d>, Failure> {
        let Device { executor, guarding } = device;
        let sample = &case.sample;
        let (p, d) = (sample.problem(), sample.switches.dims);
        let (n, t, h, hv, channels) = (d.n as u64, d.t as u64, d.h as u64, d.hv as u64, d.channels() as u64);
        let (rows, t_alloc) = (sample.snapshot_len as u64, p.t_alloc as u64);
        let os = sample.out_row_stride() as u64;
        let mut inputs = Vec::new();
        let mut keep = |buffer: DeviceBuffer<'d>,
                        elem: Elem,
                        shape: &[u64],
                        strides: Option<&[u64]>|
         -> Result<TensorArg, Failure> {
            let arg = match strides {
                Some(strides) => buffer.strided(elem, shape, strides)?,
                None => buffer.dense(elem, shape)?,
            };
            inputs.push(buffer);
            Ok(arg)
        };
        let f32s = |name: &str, values: &[f32]| DeviceBuffer::of(executor, name, values, guarding);
        let bf16s = |name: &str, values: &[bf16]| DeviceBuffer::of(executor, name, values, guarding);

        let xs = p.x_row_stride as u64;
        let x = keep(bf16s("x", &sample.x)?, Elem::BF16, &[n, t, channels], Some(&[t * xs, xs, 1]))?;
        let a = keep(bf16s("a", &sample.a)?, Elem::BF16, &[n, t, hv, 128], None)?;
        let b = keep(bf16s("b", &sample.b)?, Elem::BF16, &[n, t, hv], None)?;
        let (taps, elem) = floats(device, "conv_weight", &sample.conv_weight)?;
        let conv_weight = keep(taps, elem, &[channels, 4], None)?;
        let conv_bias = match &sample.conv_bias {
            Some(bias) => Some(keep(f32s("conv_bias", bias)?, Elem::F32, &[channels], None)?),
            None => None,
        };
        let a_log = match &sample.a_log {
            Some(a_log) => Some(keep(f32s("a_log", a_log)?, Elem::F32, &[hv], None)?),
            None => None,
        };
        let dt_bias = keep(f32s("dt_bias", &sample.dt_bias)?, Elem::F32, &[hv, 128], None)?;
        let pitch = case.view.index_stride.max(1);
        let mut map = |name: &str, indices: &[i32]| -> Result<TensorArg, Failure> {
            // What lies between is 0: a live index, which nothing must read.
            let mut spread = vec![0; indices.len().saturating_sub(1) * pitch + usize::from(!indices.is_empty())];
            for (at, index) in indices.iter().enumerate() {
                spread[at * pitch] = *index;
            }
            keep(DeviceBuffer::of(executor, name, &spread, guarding)?, Elem::I32, &[n], Some(&[pitch as u64]))
        };
        let conv_slots = map("conv_slots", &sample.conv_slots)?;
        let state_slots = map("state_slots", &sample.state_slots)?;
        let snapshot_rows = map("snapshot_rows", &sample.snapshot_rows)?;

        let state = f32s("state", &sample.state)?;
        let (pool, pool_elem) = floats(device, "conv_state", &sample.conv_state)?;
        let out = poisoned(device, "out", 2 * n * t * os)?;
        let (mut states, mut windows) = (None, None);
        if case.view.states {
            states = Some(poisoned(device, "states_out", 4 * rows * t_alloc * d.state_len() as u64)?);
        }
        if case.view.windows {
            let bytes = rows * sample.window_layout().row as u64 * u64::from(pool_elem.bytes());
            windows = Some(poisoned(device, "windows_out", bytes)?);
        }
        let workspace = DeviceBuffer::new(executor, "workspace", Problem::workspace_bytes(n, h), guarding)?;
        workspace.fill(0)?;

        let (line, window) = (p.conv_layout, sample.window_layout());
        let pool_strides = [line.line as u64, line.channel as u64, line.tap as u64];
        let window_strides = [window.row as u64, window.step as u64, window.channel as u64, window.tap as u64];
        let (states_shape, windows_shape) = ([rows, t_alloc, hv, 128, 128], [rows, t_alloc, channels, 3]);
        let slot = p.state_slot_stride as u64;
        let problem = Problem {
            x,
            conv_weight,
            conv_bias,
            conv_state: pool.strided(pool_elem, &[line.lines as u64, channels, 3], &pool_strides)?,
            conv_slots,
            state: state.strided(Elem::F32, &[p.state_len as u64, hv, 128, 128], &[slot, 128 * 128, 128, 1])?,
            state_slots,
            snapshot_rows,
            a,
            b,
            a_log,
            dt_bias,
            states_out: states.as_ref().map(|s| s.dense(Elem::F32, &states_shape)).transpose()?,
            windows_out: windows.as_ref().map(|w| w.strided(pool_elem, &windows_shape, &window_strides)).transpose()?,
            out: out.strided(Elem::BF16, &[n, t, hv, 128], &[t * os, os, 128, 1])?,
            workspace: workspace.dense(Elem::U32, &[n, h])?,
            scale: p.scale as f32,
            gate: match p.lower_bound {
                Some(bound) => Gate::Bounded { lower_bound: bound as f32 },
                None => Gate::Softplus,
            },
            null: p.null,
            roll: p.roll,
            snapshot_rule: match p.snapshot_rule {
                RefRule::ByIndex => SnapshotRule::ByIndex,
                RefRule::ByBatch => SnapshotRule::ByBatch,
            },
        };
        Ok(Call { problem, device, sample, state, pool, out, states, windows, workspace, inputs })
    }

    /// Runs the call with a forced variant, or with the one that the operator chooses, and reads everything back.
    pub fn run(&self, variant: Option<ConvVerifyVariant>) -> Result<Results, Failure> {
        self.enqueue(&Options { variant, ..Options::default() }, Stream::default())?;
        self.device.executor.synchronize(Stream::default())?;
        self.results()
    }

    /// Plans and enqueues the call, and gives the entry that was chosen.
    pub fn enqueue(&self, options: &Options, stream: Stream) -> Result<&'static str, Failure> {
        let plan = plan(&self.problem, self.device.executor, options)?;
        let entry = plan.desc().entry;
        // SAFETY: the buffers live as long as `self`, which a caller keeps until the results are read; nothing else
        // uses them.
        unsafe { plan.launch(self.device.executor, stream) }.map_err(|error| format!("{entry}: {error}"))?;
        Ok(entry)
    }

    /// Puts the pool and poisoned outputs back, as they were ahead of the first launch. The workspace is left as it is.
    pub fn restore(&self) -> Result<(), Failure> {
        match &self.sample.conv_state {
            FloatVec::F32(values) => self.pool.upload(values)?,
            FloatVec::Bf16(values) => self.pool.upload(values)?,
        }
        for buffer in [Some(&self.out), self.states.as_ref(), self.windows.as_ref()].into_iter().flatten() {
            buffer.fill(0xFF)?;
        }
        Ok(())
    }

    /// Waits, and gives the bytes of everything that a launch may write.
    pub fn written(&self) -> Result<Vec<u8>, Failure> {
        let mut all = Vec::new();
        let buffers =
            [Some(&self.out), self.states.as_ref(), self.windows.as_ref(), Some(&self.pool), Some(&self.workspace)];
        for buffer in buffers.into_iter().flatten() {
            let begin = all.len();
            all.resize(begin + buffer.bytes() as usize, 0);
            self.device.executor.read(buffer.ptr(), &mut all[begin..])?;
        }
        Ok(all)
    }

    /// Waits, and reads everything back. A guard byte that changed is an error.
    pub fn results(&self) -> Result<Results, Failure> {
        let written = [&self.state, &self.pool, &self.out, &self.workspace];
        for buffer in self.inputs.iter().chain(written).chain(&self.states).chain(&self.windows) {
            buffer.check_canaries()?;
        }
        let state: Vec<f32> = self.state.download()?;
        let counters: Vec<u32> = self.workspace.download()?;
        let changed = differences(&f32_bits(&state), &f32_bits(&self.sample.state));
        let like = &self.sample.conv_state;
        Ok(Results {
            out: self.out.download()?,
            states: self.states.as_ref().map(DeviceBuffer::download).transpose()?,
            windows: self.windows.as_ref().map(|windows| read(windows, like)).transpose()?,
            pool: read(&self.pool, like)?,
            changed_inputs: changed + counters.iter().filter(|c| **c != 0).count(),
        })
    }
}

/// A buffer of 0xFF bytes, on every executor.
pub(in crate::checks) fn poisoned<'d>(device: Device<'d>, name: &str, bytes: u64) -> Result<DeviceBuffer<'d>, Failure> {
    let buffer = DeviceBuffer::new(device.executor, name, bytes, device.guarding)?;
    buffer.fill(0xFF)?;
    Ok(buffer)
}

pub(in crate::checks) fn floats<'d>(
    device: Device<'d>,
    name: &str,
    values: &FloatVec,
) -> Result<(DeviceBuffer<'d>, Elem), Failure> {
    let Device { executor, guarding } = device;
    Ok(match values {
        FloatVec::F32(values) => (DeviceBuffer::of(executor, name, values, guarding)?, Elem::F32),
        FloatVec::Bf16(values) => (DeviceBuffer::of(executor, name, values, guarding)?, Elem::BF16),
    })
}

/// A buffer as elements of the type of `like`.
pub(in crate::checks) fn read(buffer: &DeviceBuffer<'_>, like: &FloatVec) -> Result<FloatVec, Failure> {
    Ok(match like {
        FloatVec::F32(_) => FloatVec::F32(buffer.download()?),
        FloatVec::Bf16(_) => FloatVec::Bf16(buffer.download()?),
    })
}
