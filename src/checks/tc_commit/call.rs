//! A problem on a device: buffers, launch, results.

use super::Failure;
use super::case::Case;
use crate::checks::Device;
use crate::checks::conv_verify::call::{bf16_bits, differences, floats, read};
use half::bf16;
use kda_core::exec::Stream;
use kda_core::{Elem, TensorArg};
use kda_kernels::tc_commit::TcCommitVariant;
use kda_ref::floats::FloatVec;
use kda_ref::tc_commit::sample::Sample;
use kda_ref::tc_commit::{ConvOrder, HEAD};
use kda_runtime::DeviceBuffer;
use kda_runtime::operators::tc_commit::{Boundary, Gate, Options, Problem, plan};

/// What a launch may have written of a layer.
#[derive(Clone, Debug)]
pub struct Layer {
    /// The pool of states, with what lies between its slots.
    pub state: FloatVec,
    /// The pool of raw inputs; empty without one.
    pub conv: Vec<bf16>,
}

/// Everything that a launch may have written, layer by layer.
#[derive(Clone, Debug)]
pub struct Results {
    /// The layers.
    pub layers: Vec<Layer>,
}

impl Results {
    /// Elements whose bits differ.
    pub fn differing_bits(&self, other: &Results) -> usize {
        let of_layer = |(a, b): (&Layer, &Layer)| {
            differences(&a.state.bits(), &b.state.bits()) + differences(&bf16_bits(&a.conv), &bf16_bits(&b.conv))
        };
        self.layers.len().abs_diff(other.layers.len())
            + self.layers.iter().zip(&other.layers).map(of_layer).sum::<usize>()
    }
}

/// The pools of a layer on the device.
struct Pools<'d> {
    state: DeviceBuffer<'d>,
    conv: DeviceBuffer<'d>,
}

/// The buffers of a problem, and the problem on them.
pub struct Call<'d> {
    /// The call; a test may change it before it runs.
    pub problem: Problem,
    device: Device<'d>,
    case: &'d Case,
    pools: Vec<Pools<'d>>,
    /// Inputs that nothing looks at again; kept for their memory and their guard bands.
    inputs: Vec<DeviceBuffer<'d>>,
}

impl<'d> Call<'d> {
    /// Uploads the inputs.
    pub fn new(device: Device<'d>, case: &'d Case) -> Result<Call<'d>, Failure> {
        let Device { executor, guarding } = device;
        let sample = case.first();
        let s = &sample.switches;
        let (n, heads, window) = (s.n_req as u64, s.heads as u64, s.window as u64);
        let (slots, rows, head) = (sample.slots as u64, sample.rows as u64, HEAD as u64);
        let mut inputs: Vec<DeviceBuffer<'d>> = Vec::new();
        let (mut pools, mut addresses, mut problem) = (Vec::new(), Vec::<u64>::new(), None);
        for layer in &case.layers {
            let (state, elem) = floats(device, "state", &layer.state)?;
            let conv = DeviceBuffer::of(executor, "conv", &layer.conv, guarding)?;
            let corr = DeviceBuffer::of(executor, "corr", &layer.corr, guarding)?;
            let kg = DeviceBuffer::of(executor, "kg", &layer.kg, guarding)?;
            let a_log = match &layer.a_log {
                Some(a_log) => Some(DeviceBuffer::of(executor, "a_log", a_log, guarding)?),
                None => None,
            };
            let dt_bias = DeviceBuffer::of(executor, "dt_bias", &layer.dt_bias, guarding)?;
            let of_conv = if s.conv.is_some() { conv.ptr() } else { 0 };
            let of_a_log = a_log.as_ref().map_or(0, DeviceBuffer::ptr);
            addresses.extend([state.ptr(), of_conv, corr.ptr(), kg.ptr(), of_a_log, dt_bias.ptr()]);
            // The first layer says how all of them lie.
            if problem.is_none() {
                let strides = [sample.state_pitch as u64, head * head, head, 1];
                problem = Some(Problem {
                    state: state.strided(elem, &[slots, heads, head, head], &strides)?,
                    corr: corr.dense(Elem::F32, &[rows, heads, window, head])?,
                    kg: kg.dense(Elem::BF16, &[rows, heads, window, 2 * head])?,
                    a_log: a_log.as_ref().map(|a_log| a_log.dense(Elem::F32, &[heads])).transpose()?,
                    dt_bias: dt_bias.dense(Elem::F32, &[heads, head])?,
                    conv: windows(sample, &conv)?,
                    slots: integers(device, "slots", &sample.slot_of, &mut inputs)?,
                    destinations: match &sample.destinations {
                        Some(slots) => Some(integers(device, "destinations", slots, &mut inputs)?),
                        None => None,
                    },
                    counts: integers(device, "counts", &sample.counts, &mut inputs)?,
                    boundary: match s.boundary {
                        true => Some(Boundary {
                            tokens: integers(device, "boundary_tokens", &sample.boundary_tokens, &mut inputs)?,
                            slots: integers(device, "boundary_slots", &sample.boundary_slots, &mut inputs)?,
                        }),
                        false => None,
                    },
                    layers: None,
                    gate: match s.lower_bound {
                        Some(bound) => Gate::Bounded { lower_bound: bound as f32 },
                        None => Gate::Softplus,
                    },
                    null: s.null,
                });
            }
            inputs.extend([corr, kg, dt_bias]);
            inputs.extend(a_log);
            pools.push(Pools { state, conv });
        }
        let mut problem = problem.ok_or("a case has a layer")?;
        debug_assert_eq!(problem.counts.shape(), [n]);
        if case.table {
            let table = DeviceBuffer::of(executor, "layers", &addresses, guarding)?;
            problem.layers = Some(table.dense(Elem::U64, &[case.layers.len() as u64, 6])?);
            inputs.push(table);
        }
        Ok(Call { problem, device, case, pools, inputs })
    }

    /// Runs the call with a forced variant, or with the one that the operator chooses, and reads everything back.
    pub fn run(&self, variant: Option<TcCommitVariant>) -> Result<Results, Failure> {
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

    /// Waits, and reads everything back. A guard byte that changed is an error.
    pub fn results(&self) -> Result<Results, Failure> {
        let of_pools = self.pools.iter().flat_map(|pools| [&pools.state, &pools.conv]);
        for buffer in self.inputs.iter().chain(of_pools) {
            buffer.check_canaries()?;
        }
        let layer = |(pools, sample): (&Pools, &Sample)| -> Result<Layer, Failure> {
            Ok(Layer { state: read(&pools.state, &sample.state)?, conv: pools.conv.download()? })
        };
        let layers = self.pools.iter().zip(&self.case.layers).map(layer).collect::<Result<_, Failure>>()?;
        Ok(Results { layers })
    }
}

fn integers<'d>(
    device: Device<'d>,
    name: &str,
    values: &[i32],
    inputs: &mut Vec<DeviceBuffer<'d>>,
) -> Result<TensorArg, Failure> {
    let buffer = DeviceBuffer::of(device.executor, name, values, device.guarding)?;
    let arg = buffer.dense(Elem::I32, &[values.len() as u64])?;
    inputs.push(buffer);
    Ok(arg)
}

/// The pool of raw inputs as `[slots, D, window + 2]`, in its memory order.
fn windows(sample: &Sample, conv: &DeviceBuffer) -> Result<Option<TensorArg>, Failure> {
    let s = &sample.switches;
    let Some(order) = s.conv else { return Ok(None) };
    let (channels, rows) = (3 * (s.heads * HEAD) as u64, s.window as u64 + 2);
    let inner = match order {
        ConvOrder::TokenMajor => [1, channels],
        ConvOrder::ChannelMajor => [rows, 1],
    };
    let shape = [sample.slots as u64, channels, rows];
    Ok(Some(conv.strided(Elem::BF16, &shape, &[sample.conv_pitch as u64, inner[0], inner[1]])?))
}
