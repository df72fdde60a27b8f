//! A random problem on a device: buffers, launch, results.

use super::differences;
use half::bf16;
use kda_core::exec::{ExecError, Stream};
use kda_core::{Elem, Executor, TensorArg};
use kda_kernels::conv_verify::ConvVerifyVariant;
use kda_ref::conv_verify::SnapshotRule as RefRule;
use kda_ref::conv_verify::sample::Sample;
use kda_ref::floats::FloatVec;
use kda_runtime::operators::conv_verify::{Gate, Options, Problem, SnapshotRule, plan};
use kda_runtime::{DeviceBuffer, Guarding, Opened};

type Failure = Box<dyn std::error::Error>;

/// Everything a launch has written.
pub struct Results {
    pub out: Vec<bf16>,
    pub states: Vec<f32>,
    pub windows: FloatVec,
    pub pool: FloatVec,
    /// Elements of read-only pools and of the workspace that are not what they were.
    pub changed_inputs: usize,
}

impl Results {
    /// Elements whose bits differ from those of another variant.
    pub fn differing_bits(&self, other: &Results) -> usize {
        let out = self.out.iter().zip(&other.out).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        let states = self.states.iter().zip(&other.states).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        out + states + differences(&self.windows.bits(), &other.windows.bits())
    }
}

/// The buffers of a problem.
pub struct Device<'d> {
    executor: &'d dyn Executor,
    sample: &'d Sample,
    problem: Problem,
    state: DeviceBuffer<'d>,
    pool: DeviceBuffer<'d>,
    out: DeviceBuffer<'d>,
    states: DeviceBuffer<'d>,
    windows: DeviceBuffer<'d>,
    workspace: DeviceBuffer<'d>,
    /// Inputs that nothing looks at again; kept for their memory and their guard bands.
    inputs: Vec<DeviceBuffer<'d>>,
}

impl<'d> Device<'d> {
    /// Uploads the inputs and poisons the outputs.
    pub fn new(opened: &'d Opened, sample: &'d Sample) -> Result<Device<'d>, Failure> {
        let (executor, guarding) = (opened.executor.as_ref(), opened.guarding());
        let (p, d) = (sample.problem(), sample.switches.dims);
        let (n, t, h, hv, channels) = (d.n as u64, d.t as u64, d.h as u64, d.hv as u64, d.channels() as u64);
        let (golden, t_alloc) = (sample.buffers(), p.t_alloc as u64);
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
        let i32s = |name: &str, values: &[i32]| DeviceBuffer::of(executor, name, values, guarding);

        let xs = p.x_row_stride as u64;
        let x = keep(bf16s("x", &sample.x)?, Elem::BF16, &[n, t, channels], Some(&[t * xs, xs, 1]))?;
        let a = keep(bf16s("a", &sample.a)?, Elem::BF16, &[n, t, hv, 128], None)?;
        let b = keep(bf16s("b", &sample.b)?, Elem::BF16, &[n, t, hv], None)?;
        let (taps, elem) = floats(executor, "conv_weight", &sample.conv_weight, guarding)?;
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
        let conv_slots = keep(i32s("conv_slots", &sample.conv_slots)?, Elem::I32, &[n], None)?;
        let state_slots = keep(i32s("state_slots", &sample.state_slots)?, Elem::I32, &[n], None)?;
        let snapshot_rows = keep(i32s("snapshot_rows", &sample.snapshot_rows)?, Elem::I32, &[n], None)?;

        let state = f32s("state", &sample.state)?;
        let (pool, pool_elem) = floats(executor, "conv_state", &sample.conv_state, guarding)?;
        let out = DeviceBuffer::new(executor, "out", 2 * golden.out.len() as u64, guarding)?;
        let states = DeviceBuffer::new(executor, "states_out", 4 * golden.states.len() as u64, guarding)?;
        let window_bytes = golden.windows.view().len() as u64 * u64::from(pool_elem.bytes());
        let windows = DeviceBuffer::new(executor, "windows_out", window_bytes, guarding)?;
        for output in [&out, &states, &windows] {
            output.fill(0xFF)?;
        }
        let workspace = DeviceBuffer::new(executor, "workspace", Problem::workspace_bytes(n, h), guarding)?;
        workspace.fill(0)?;

        let (line, window) = (p.conv_layout, golden.window_layout);
        let pool_strides = [line.line as u64, line.channel as u64, line.tap as u64];
        let window_strides = [window.row as u64, window.step as u64, window.channel as u64, window.tap as u64];
        let rows = sample.snapshot_len as u64;
        let os = golden.out_row_stride as u64;
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
            states_out: Some(states.dense(Elem::F32, &[rows, t_alloc, hv, 128, 128])?),
            windows_out: Some(windows.strided(pool_elem, &[rows, t_alloc, channels, 3], &window_strides)?),
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
        Ok(Device { executor, sample, problem, state, pool, out, states, windows, workspace, inputs })
    }

    /// Runs one variant and reads everything back.
    pub fn launch(&self, variant: ConvVerifyVariant) -> Result<Results, Failure> {
        let options = Options { variant: Some(variant), ..Options::default() };
        let plan = plan(&self.problem, self.executor, &options)?;
        // SAFETY: the buffers live as long as `self`, the results are read before it goes, and nothing else uses them.
        unsafe { plan.launch(self.executor, Stream::default()) }.map_err(|e| failed(variant, &e))?;
        self.executor.synchronize(Stream::default()).map_err(|e| failed(variant, &e))?;
        let written = [&self.state, &self.pool, &self.out, &self.states, &self.windows, &self.workspace];
        for buffer in self.inputs.iter().chain(written) {
            buffer.check_canaries()?;
        }
        let state: Vec<f32> = self.state.download()?;
        let counters: Vec<u32> = self.workspace.download()?;
        let changed = state.iter().zip(&self.sample.state).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        Ok(Results {
            out: self.out.download()?,
            states: self.states.download()?,
            windows: read(&self.windows, &self.sample.conv_state)?,
            pool: read(&self.pool, &self.sample.conv_state)?,
            changed_inputs: changed + counters.iter().filter(|c| **c != 0).count(),
        })
    }
}

fn failed(variant: ConvVerifyVariant, error: &ExecError) -> Failure {
    format!("{}: {error}", variant.desc().entry).into()
}

fn floats<'d>(
    executor: &'d dyn Executor,
    name: &str,
    values: &FloatVec,
    guarding: Guarding,
) -> Result<(DeviceBuffer<'d>, Elem), Failure> {
    Ok(match values {
        FloatVec::F32(values) => (DeviceBuffer::of(executor, name, values, guarding)?, Elem::F32),
        FloatVec::Bf16(values) => (DeviceBuffer::of(executor, name, values, guarding)?, Elem::BF16),
    })
}

/// A buffer as elements of the type of `like`.
fn read(buffer: &DeviceBuffer<'_>, like: &FloatVec) -> Result<FloatVec, Failure> {
    Ok(match like {
        FloatVec::F32(_) => FloatVec::F32(buffer.download()?),
        FloatVec::Bf16(_) => FloatVec::Bf16(buffer.download()?),
    })
}
