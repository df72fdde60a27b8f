//! A problem on a device: buffers, launch, results.

use super::Failure;
use super::case::{Case, transposed};
use crate::checks::Device;
use crate::checks::conv_verify::call::{bf16_bits, differences, floats, poisoned, read};
use half::bf16;
use kda_core::exec::Stream;
use kda_core::{Elem, TensorArg};
use kda_kernels::decode::DecodeVariant;
use kda_ref::decode::sample::Sample;
use kda_ref::floats::FloatVec;
use kda_ref::layout::StateOrder;
use kda_runtime::DeviceBuffer;
use kda_runtime::operators::decode::{Convolution, Gate, Options, Problem, Tokens, plan};

/// Everything that a launch may have written.
#[derive(Clone, Debug)]
pub struct Results {
    /// Rows of `HV*V`, with the padding between them.
    pub out: Vec<bf16>,
    /// The pool of states, in the order `[V, K]` whatever the order on the device.
    pub state: FloatVec,
    /// The pool of histories.
    pub pool: FloatVec,
    /// Counters that are not zero.
    pub counters: usize,
}

impl Results {
    /// Elements whose bits differ.
    pub fn differing_bits(&self, other: &Results) -> usize {
        differences(&bf16_bits(&self.out), &bf16_bits(&other.out))
            + differences(&self.state.bits(), &other.state.bits())
            + differences(&self.pool.bits(), &other.pool.bits())
            + self.counters.abs_diff(other.counters)
    }
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
    workspace: DeviceBuffer<'d>,
    /// Inputs that nothing looks at again; kept for their memory and their guard bands.
    inputs: Vec<DeviceBuffer<'d>>,
}

impl<'d> Call<'d> {
    /// Uploads the inputs and poisons the output.
    pub fn new(device: Device<'d>, case: &'d Case) -> Result<Call<'d>, Failure> {
        let Device { executor, guarding } = device;
        let sample = &case.sample;
        let (p, d) = (sample.problem(), sample.switches.dims);
        let (n, h, hv, channels) = (d.n as u64, d.h as u64, d.hv as u64, d.channels() as u64);
        let golden = sample.buffers();
        let mut inputs = Vec::new();
        let mut keep = |buffer: DeviceBuffer<'d>, elem: Elem, shape: &[u64]| -> Result<TensorArg, Failure> {
            let arg = buffer.dense(elem, shape)?;
            inputs.push(buffer);
            Ok(arg)
        };
        let f32s = |name: &str, values: &[f32]| DeviceBuffer::of(executor, name, values, guarding);
        let bf16s = |name: &str, values: &[bf16]| DeviceBuffer::of(executor, name, values, guarding);

        let row = channels + sample.switches.padding as u64;
        let x = keep(bf16s("x", &sample.x)?, Elem::BF16, &[n * row])?;
        let heads = |first: u64, count: u64| {
            let skip = 2 * first * 128;
            let (ptr, bytes) = (x.ptr + skip, x.bytes.saturating_sub(skip));
            TensorArg::strided(ptr, bytes, Elem::BF16, &[n, count, 128], &[row, 128, 1])
        };
        let (gate, elem) = floats(device, "g", &sample.g)?;
        let g = keep(gate, elem, &[n, hv, 128])?;
        let beta = keep(bf16s("beta", &sample.beta)?, Elem::BF16, &[n, hv])?;
        let a_log = match &sample.a_log {
            Some(a_log) => Some(keep(f32s("a_log", a_log)?, Elem::F32, &[hv])?),
            None => None,
        };
        let dt_bias = match &sample.dt_bias {
            Some(bias) => Some(keep(f32s("dt_bias", bias)?, Elem::F32, &[hv, 128])?),
            None => None,
        };
        let pitch = case.index_stride.max(1);
        let mut index_map = |name: &str, indices: Option<&Vec<i32>>| -> Result<Option<TensorArg>, Failure> {
            let Some(indices) = indices else { return Ok(None) };
            // What lies between is 0: a live index, which nothing must read.
            let mut spread = vec![0; indices.len().saturating_sub(1) * pitch + usize::from(!indices.is_empty())];
            for (at, index) in indices.iter().enumerate() {
                spread[at * pitch] = *index;
            }
            let buffer = DeviceBuffer::of(executor, name, &spread, guarding)?;
            let arg = buffer.strided(Elem::I32, &[n], &[pitch as u64])?;
            inputs.push(buffer);
            Ok(Some(arg))
        };
        let needed = "an index array that is always drawn";
        let state_slots = index_map("state_slots", Some(&sample.slots))?.ok_or(needed)?;
        let state_slots_out = index_map("state_slots_out", sample.slots_out.as_ref())?;
        let conv_slots = index_map("conv_slots", Some(&sample.conv_slots))?.ok_or(needed)?;
        let conv_slots_out = index_map("conv_slots_out", sample.conv_slots_out.as_ref())?;

        let (state, state_elem) = floats(device, "state", &sample.state)?;
        let (pool, pool_elem) = floats(device, "conv_state", &sample.pool)?;
        let out = poisoned(device, "out", 2 * golden.out.len() as u64)?;
        let workspace = DeviceBuffer::new(executor, "workspace", Problem::workspace_bytes(n, h), guarding)?;
        workspace.fill(0)?;

        let tokens = if sample.switches.fused {
            let (taps, elem) = floats(device, "conv_weight", &sample.weight)?;
            let weight = taps.dense(elem, &[channels, 4])?;
            inputs.push(taps);
            let bias = match &sample.bias {
                Some(values) => {
                    let buffer = f32s("conv_bias", values)?;
                    let arg = buffer.dense(Elem::F32, &[channels])?;
                    inputs.push(buffer);
                    Some(arg)
                }
                None => None,
            };
            let l = sample.layout;
            let strides = [l.line as u64, l.channel as u64, l.tap as u64];
            Tokens::Convolved(Convolution {
                x: TensorArg::strided(x.ptr, x.bytes, Elem::BF16, &[n, channels], &[row, 1])?,
                weight,
                bias,
                state: pool.strided(pool_elem, &[l.lines as u64, channels, 3], &strides)?,
                slots: conv_slots,
                slots_out: conv_slots_out,
                workspace: workspace.dense(Elem::U32, &[n, h])?,
            })
        } else {
            Tokens::Given { q: heads(0, h)?, k: heads(h, h)?, v: heads(2 * h, hv)? }
        };
        let inner = if sample.switches.order == StateOrder::VFirst { [128, 1] } else { [1, 128] };
        let strides = [p.slot_stride as u64, 128 * 128, inner[0], inner[1]];
        let problem = Problem {
            tokens,
            g,
            beta,
            a_log,
            dt_bias,
            state: state.strided(state_elem, &[p.state_len as u64, hv, 128, 128], &strides)?,
            state_slots,
            state_slots_out,
            out: out.strided(Elem::BF16, &[n, hv, 128], &[golden.out_row_stride as u64, 128, 1])?,
            scale: p.scale as f32,
            gate: match p.lower_bound {
                Some(bound) => Gate::Bounded { lower_bound: bound as f32 },
                None => Gate::Softplus,
            },
            null: p.null,
        };
        Ok(Call { problem, device, sample, state, pool, out, workspace, inputs })
    }

    /// Runs the call with a forced variant, or with the one that the operator chooses, and reads everything back.
    pub fn run(&self, variant: Option<DecodeVariant>) -> Result<Results, Failure> {
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

    /// The pool of states as it lies on the device.
    pub fn raw_state(&self) -> Result<FloatVec, Failure> {
        read(&self.state, &self.sample.state)
    }

    /// Waits, and reads everything back. A guard byte that changed is an error.
    pub fn results(&self) -> Result<Results, Failure> {
        for buffer in self.inputs.iter().chain([&self.state, &self.pool, &self.out, &self.workspace]) {
            buffer.check_canaries()?;
        }
        let counters: Vec<u32> = self.workspace.download()?;
        let state = self.raw_state()?;
        Ok(Results {
            out: self.out.download()?,
            state: match self.sample.switches.order {
                StateOrder::VFirst => state,
                StateOrder::KFirst => transposed(self.sample, &state),
            },
            pool: read(&self.pool, &self.sample.pool)?,
            counters: counters.iter().filter(|c| **c != 0).count(),
        })
    }
}
