//! A problem on a device: buffers, launch, results.

use super::Failure;
use super::case::Case;
use crate::checks::Device;
use crate::checks::conv_verify::call::{bf16_bits, differences, f32_bits, floats, poisoned, read};
use half::bf16;
use kda_core::exec::Stream;
use kda_core::{Elem, TensorArg};
use kda_ref::tc_verify::sample::Sample;
use kda_ref::tc_verify::{ConvOrder, HEAD};
use kda_runtime::DeviceBuffer;
use kda_runtime::operators::tc_verify::{Convolution, Gate, Options, Problem, plan};

/// Everything that a launch may have written.
#[derive(Clone, Debug)]
pub struct Results {
    /// `[T, H, V]`, with the padding between rows.
    pub out: Vec<bf16>,
    /// `[rows, H, Q, V]`.
    pub corr: Vec<f32>,
    /// `[rows, H, Q, 2 K]`.
    pub kg: Vec<bf16>,
    /// The pool of histories; empty without a convolution.
    pub conv: Vec<bf16>,
    /// Elements of the state, and counters, that are not what they were.
    pub changed: usize,
}

impl Results {
    /// Elements whose bits differ.
    pub fn differing_bits(&self, other: &Results) -> usize {
        differences(&bf16_bits(&self.out), &bf16_bits(&other.out))
            + differences(&f32_bits(&self.corr), &f32_bits(&other.corr))
            + differences(&bf16_bits(&self.kg), &bf16_bits(&other.kg))
            + differences(&bf16_bits(&self.conv), &bf16_bits(&other.conv))
    }
}

/// The buffers of a problem, and the problem on them.
pub struct Call<'d> {
    /// The call; a test may change it before it runs.
    pub problem: Problem,
    device: Device<'d>,
    sample: &'d Sample,
    state: DeviceBuffer<'d>,
    conv: DeviceBuffer<'d>,
    out: DeviceBuffer<'d>,
    corr: DeviceBuffer<'d>,
    kg: DeviceBuffer<'d>,
    counters: DeviceBuffer<'d>,
    /// Inputs that nothing looks at again; kept for their memory and their guard bands.
    inputs: Vec<DeviceBuffer<'d>>,
}

impl<'d> Call<'d> {
    /// Uploads the inputs and poisons the outputs.
    pub fn new(device: Device<'d>, case: &'d Case) -> Result<Call<'d>, Failure> {
        let Device { executor, guarding } = device;
        let sample = &case.sample;
        let (p, s) = (sample.problem(), &sample.switches);
        let [n, heads, window, total] = [s.n_req, s.heads, s.window, sample.total].map(|size| size as u64);
        let (channels, slots, rows, head) = (s.channels() as u64, sample.slots as u64, sample.rows as u64, HEAD as u64);
        let mut inputs = Vec::new();
        let mut keep =
            |buffer: DeviceBuffer<'d>, elem: Elem, shape: &[u64], strides: &[u64]| -> Result<TensorArg, Failure> {
                let arg = buffer.strided(elem, shape, strides)?;
                inputs.push(buffer);
                Ok(arg)
            };
        let bf16s = |name: &str, values: &[bf16]| DeviceBuffer::of(executor, name, values, guarding);
        let f32s = |name: &str, values: &[f32]| DeviceBuffer::of(executor, name, values, guarding);
        let i32s = |name: &str, values: &[i32]| DeviceBuffer::of(executor, name, values, guarding);

        let qkv = keep(bf16s("qkv", &sample.qkv)?, Elem::BF16, &[total, channels], &[p.qkv_pitch as u64, 1])?;
        let strides = [p.g_pitch as u64, head, 1];
        let raw_g = keep(bf16s("raw_g", &sample.raw_g)?, Elem::BF16, &[total, heads, head], &strides)?;
        let strides = [p.beta_pitch as u64, 1];
        let raw_beta = keep(bf16s("raw_beta", &sample.raw_beta)?, Elem::BF16, &[total, heads], &strides)?;
        let a_log = match &sample.a_log {
            Some(a_log) => Some(keep(f32s("a_log", a_log)?, Elem::F32, &[heads], &[1])?),
            None => None,
        };
        let dt_bias = keep(f32s("dt_bias", &sample.dt_bias)?, Elem::F32, &[heads, head], &[head, 1])?;
        let slot_of = keep(i32s("slots", &sample.slot_of)?, Elem::I32, &[n], &[1])?;
        let query_start = keep(i32s("query_start", &sample.query_start)?, Elem::I32, &[n + 1], &[1])?;
        let (state, elem) = floats(device, "state", &sample.state)?;
        let conv = bf16s("conv_state", &sample.conv)?;
        let convolution = match &sample.taps {
            Some(taps) => {
                let (taps, elem) = floats(device, "conv_weight", taps)?;
                let strides = match s.order {
                    ConvOrder::TokenMajor => [sample.conv_pitch as u64, 1, channels],
                    ConvOrder::ChannelMajor => [sample.conv_pitch as u64, window + 2, 1],
                };
                Some(Convolution {
                    weight: keep(taps, elem, &[channels, 4], &[4, 1])?,
                    state: conv.strided(Elem::BF16, &[slots, channels, window + 2], &strides)?,
                    accepted: keep(i32s("accepted", &sample.accepted)?, Elem::I32, &[n], &[1])?,
                })
            }
            None => None,
        };
        let out = poisoned(device, "out", 2 * total * sample.out_pitch as u64)?;
        let corr = poisoned(device, "corr", 4 * rows * heads * window * head)?;
        let kg = poisoned(device, "kg", 4 * rows * heads * window * head)?;
        let counters = DeviceBuffer::new(executor, "counters", Problem::counters_bytes(heads), guarding)?;
        counters.fill(0)?;
        let strides = [p.state_pitch as u64, head * head, head, 1];
        let problem = Problem {
            qkv,
            raw_g,
            raw_beta,
            a_log,
            dt_bias,
            state: state.strided(elem, &[slots, heads, head, head], &strides)?,
            convolution,
            query_start,
            slots: slot_of,
            corr: corr.dense(Elem::F32, &[rows, heads, window, head])?,
            kg: kg.dense(Elem::BF16, &[rows, heads, window, 2 * head])?,
            out: out.strided(Elem::BF16, &[total, heads, head], &[sample.out_pitch as u64, head, 1])?,
            counters: if case.counters { Some(counters.dense(Elem::U32, &[heads])?) } else { None },
            scale: p.scale as f32,
            gate: match p.lower_bound {
                Some(bound) => Gate::Bounded { lower_bound: bound as f32 },
                None => Gate::Softplus,
            },
            null: p.null,
        };
        Ok(Call { problem, device, sample, state, conv, out, corr, kg, counters, inputs })
    }

    /// Runs the call and reads everything back.
    pub fn run(&self, options: &Options) -> Result<Results, Failure> {
        self.enqueue(options, Stream::default())?;
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

    /// Puts the pool of histories and poisoned outputs back, as they were ahead of the first launch.
    pub fn restore(&self) -> Result<(), Failure> {
        self.conv.upload(&self.sample.conv)?;
        for buffer in [&self.out, &self.corr, &self.kg] {
            buffer.fill(0xFF)?;
        }
        Ok(())
    }

    /// Waits, and reads everything back. A guard byte that changed is an error.
    pub fn results(&self) -> Result<Results, Failure> {
        let own = [&self.state, &self.conv, &self.out, &self.corr, &self.kg, &self.counters];
        for buffer in self.inputs.iter().chain(own) {
            buffer.check_canaries()?;
        }
        let state = read(&self.state, &self.sample.state)?;
        let counters: Vec<u32> = self.counters.download()?;
        let changed = differences(&state.bits(), &self.sample.state.bits());
        Ok(Results {
            out: self.out.download()?,
            corr: self.corr.download()?,
            kg: self.kg.download()?,
            conv: self.conv.download()?,
            changed: changed + counters.iter().filter(|c| **c != 0).count(),
        })
    }
}
