//! A problem on a device: buffers, schedule, launches, results.

use super::Failure;
use super::case::{Case, exchanged, transposed};
use crate::checks::Device;
use crate::checks::conv_verify::call::{bf16_bits, differences, f32_bits, floats, poisoned, read};
use half::bf16;
use kda_core::exec::Stream;
use kda_core::{Elem, KernelDesc, TensorArg};
use kda_kernels::delta_h_schedule::{ScheduleArgs, ScheduleVariant};
use kda_ref::delta_h::sample::{Damage, GateForm, PoolForm};
use kda_ref::floats::FloatVec;
use kda_ref::layout::StateOrder;
use kda_runtime::DeviceBuffer;
use kda_runtime::operators::delta_h::{Gate, Options, Problem, Schedule, plan, schedule};

/// Everything that the launches may have written.
#[derive(Clone, Debug)]
pub struct Results {
    /// Chunk states in the order `[K, V]` whatever the order on the device, with the padding between them; empty without h.
    pub h: Vec<bf16>,
    /// Rows of `HV*V`, with the padding between them; empty without `v_new`.
    pub v_new: Vec<bf16>,
    /// The pool of final states in the order `[K, V]`; empty without one.
    pub final_state: FloatVec,
    /// Words of the schedule.
    pub words: Vec<u32>,
    /// First chunk state of each sequence, and the number of all.
    pub offsets: Vec<i64>,
    /// Elements of inputs that are not what they were.
    pub changed_inputs: usize,
}

impl Results {
    /// Elements of results whose bits differ. Words of a schedule may come in another order, so they are not among them.
    pub fn differing_bits(&self, other: &Results) -> usize {
        differences(&bf16_bits(&self.h), &bf16_bits(&other.h))
            + differences(&bf16_bits(&self.v_new), &bf16_bits(&other.v_new))
            + differences(&self.final_state.bits(), &other.final_state.bits())
    }
}

/// The buffers of a problem, and the problem on them.
pub struct Call<'d> {
    /// The call; a test may change it before it runs.
    pub problem: Problem,
    /// The schedule ahead of it.
    pub schedule: Schedule,
    device: Device<'d>,
    case: &'d Case,
    initial: DeviceBuffer<'d>,
    final_state: DeviceBuffer<'d>,
    h: DeviceBuffer<'d>,
    v_new: DeviceBuffer<'d>,
    work: DeviceBuffer<'d>,
    offsets: DeviceBuffer<'d>,
    cu: DeviceBuffer<'d>,
    /// kg, w and u; nothing may change them.
    rows: Vec<(DeviceBuffer<'d>, &'d [bf16])>,
    gates: DeviceBuffer<'d>,
    /// Memory that nothing looks at again; kept for its guard bands.
    others: Vec<DeviceBuffer<'d>>,
}

impl<'d> Call<'d> {
    /// Uploads the inputs and poisons the outputs.
    pub fn new(device: Device<'d>, case: &'d Case) -> Result<Call<'d>, Failure> {
        let Device { executor, guarding } = device;
        let (s, batch) = (&case.sample, case.batch());
        let sw = &s.switches;
        let (n, t, heads, hv) = (batch.sequences, batch.rows, sw.h as u64, batch.heads);
        let [kg_stride, w_stride, u_stride, gate_stride, v_stride] = s.strides.map(|stride| stride as u64);
        let (mut rows, mut others) = (Vec::new(), Vec::new());
        let mut of_rows = |name: &str, values: &'d [bf16], heads: u64, stride: u64| -> Result<TensorArg, Failure> {
            let buffer = DeviceBuffer::of(executor, name, values, guarding)?;
            let arg = buffer.strided(Elem::BF16, &[t, heads, 128], &[stride, 128, 1])?;
            rows.push((buffer, values));
            Ok(arg)
        };
        let kg = of_rows("kg", &s.kg, heads, kg_stride)?;
        let w = of_rows("w", &s.w, hv, w_stride)?;
        let u = of_rows("u", &s.u, hv, u_stride)?;
        let gates = DeviceBuffer::of(executor, "gate", &s.gate, guarding)?;
        let channels = |rows: u64| gates.strided(Elem::F32, &[rows, hv, 128], &[gate_stride, 128, 1]);
        let gate = match sw.gate {
            GateForm::Cumulative => Gate::Cumulative(channels(t)?),
            GateForm::Decay => Gate::Decay(channels(s.gate.len() as u64 / gate_stride)?),
            GateForm::Scalar => Gate::Scalar(gates.strided(Elem::F32, &[t, hv], &[gate_stride, 1])?),
        };

        let (initial, elem) = floats(device, "initial_state", &s.pool)?;
        let slot_bytes = s.slot_stride as u64 * u64::from(elem.bytes());
        let own = if sw.in_place { 0 } else { s.final_count as u64 * slot_bytes };
        let final_state = poisoned(device, "final_state", own)?;
        let states = |buffer: &DeviceBuffer<'d>, elem, count: usize, stride: usize, order| {
            let inner = if order == StateOrder::KFirst { [128, 1] } else { [1, 128] };
            buffer.strided(elem, &[count as u64, hv, 128, 128], &[stride as u64, 128 * 128, inner[0], inner[1]])
        };
        let pool = |buffer, count| states(buffer, elem, count, s.slot_stride, sw.order);
        let initial_state = match sw.initial {
            PoolForm::Absent => None,
            _ => Some(pool(&initial, s.initial_count)?),
        };
        let final_arg = match sw.final_state {
            PoolForm::Absent => None,
            _ if sw.in_place => initial_state,
            _ => Some(pool(&final_state, s.final_count)?),
        };
        let mut keep = |buffer: DeviceBuffer<'d>, elem, shape: &[u64]| -> Result<TensorArg, Failure> {
            let arg = buffer.dense(elem, shape)?;
            others.push(buffer);
            Ok(arg)
        };
        let mut slots = |name: &str, map: &Option<Vec<i32>>| -> Result<Option<TensorArg>, Failure> {
            let Some(map) = map else { return Ok(None) };
            keep(DeviceBuffer::of(executor, name, map, guarding)?, Elem::I32, &[n]).map(Some)
        };
        let initial_slots = slots("initial_slots", &s.initial_slots)?;
        let final_slots = slots("final_slots", &s.final_slots)?;
        let has_initial = match &s.has_initial {
            Some(has) if initial_state.is_some() => {
                Some(keep(DeviceBuffer::of(executor, "has_initial", has, guarding)?, Elem::U8, &[n])?)
            }
            _ => None,
        };

        let h_bytes = if sw.h_out { 2 * (case.states * s.h_stride) as u64 } else { 0 };
        let h = poisoned(device, "h", h_bytes)?;
        let v_new = poisoned(device, "v_new", if sw.v_new { 2 * t * v_stride } else { 0 })?;
        let h_arg = match sw.h_out {
            true => Some(states(&h, Elem::BF16, case.states, s.h_stride, sw.h_order)?),
            false => None,
        };
        let v_arg = match sw.v_new {
            true => Some(v_new.strided(Elem::BF16, &[t, hv, 128], &[v_stride, 128, 1])?),
            false => None,
        };

        let ends = [n + 1];
        let narrow: Vec<i32> = s.cu_seqlens.iter().map(|end| *end as i32).collect();
        let (cu, cu_elem) = match sw.wide_boundaries {
            true => (DeviceBuffer::of(executor, "cu_seqlens", &s.cu_seqlens, guarding)?, Elem::I64),
            false => (DeviceBuffer::of(executor, "cu_seqlens", &narrow, guarding)?, Elem::I32),
        };
        let offsets = poisoned(device, "chunk_offsets", u64::from(cu_elem.bytes()) * (n + 1))?;
        let work = poisoned(device, "schedule", batch.schedule_bytes())?;
        let workspace = work.dense(Elem::U32, &[batch.schedule_words()])?;
        let maps = poisoned(device, "maps", batch.map_bytes())?;
        let maps_arg = if batch.map_bytes() > 0 { Some(maps.dense(Elem::U8, &[batch.map_bytes()])?) } else { None };
        others.push(maps);
        let schedule = Schedule {
            cu_seqlens: cu.dense(cu_elem, &ends)?,
            workspace,
            chunk_offsets: Some(offsets.dense(cu_elem, &ends)?),
            rows: t,
            heads: hv,
            h_every: batch.h_every,
            capacity: sw.h_out.then_some(s.capacity as u64),
            split: case.split,
            longest: case.batch().longest,
        };
        let problem = Problem {
            kg,
            w,
            u,
            gate,
            initial_state,
            initial_slots,
            has_initial,
            final_state: final_arg,
            final_slots,
            null: sw.null,
            h: h_arg,
            v_new: v_arg,
            schedule: workspace,
            maps: maps_arg,
            sequences: n,
            h_every: batch.h_every,
            split: case.split,
            longest: case.batch().longest,
        };
        Ok(Call {
            problem,
            schedule,
            device,
            case,
            initial,
            final_state,
            h,
            v_new,
            work,
            offsets,
            cu,
            rows,
            gates,
            others,
        })
    }

    /// Runs schedule and call, and reads everything back.
    pub fn run(&self, options: &Options) -> Result<Results, Failure> {
        self.enqueue_schedule(Stream::default())?;
        self.enqueue(options, Stream::default())?;
        self.device.executor.synchronize(Stream::default())?;
        self.results()
    }

    /// Plans and enqueues the schedule. The operator refuses capacities that some lengths exceed, so that one of those goes to
    /// the kernel as it is.
    pub fn enqueue_schedule(&self, stream: Stream) -> Result<(), Failure> {
        let executor = self.device.executor;
        if self.case.sample.switches.damage == Some(Damage::Capacity) {
            let launch = self.schedule_args()?;
            // SAFETY: the buffers live as long as `self`, which a caller keeps until the results are read; nothing else uses
            // them.
            return Ok(unsafe { executor.launch(&launch, stream) }?);
        }
        let planned = schedule::plan(&self.schedule, executor)?;
        // SAFETY: as above.
        unsafe { planned.launch(executor, stream) }.map_err(|error| format!("{}: {error}", planned.desc().entry).into())
    }

    /// The schedule with its arguments as they are.
    fn schedule_args(&self) -> Result<kda_core::PreparedLaunch, Failure> {
        let (batch, s) = (self.case.batch(), &self.schedule);
        let variant = ScheduleVariant::ALL.into_iter().find(|v| v.index_() == s.cu_seqlens.elem);
        let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let cut = batch.cut();
        let args = ScheduleArgs {
            cu: s.cu_seqlens,
            chunk_offsets: s.chunk_offsets,
            work_list: s.workspace,
            seqs: count(batch.sequences),
            rows: count(batch.rows),
            capacity: s.capacity.map_or(u32::MAX, count),
            every: batch.h_every,
            longest: batch.longest.map_or(u32::MAX, count),
            most: cut.map_or(1, |cut| count(cut.most)),
            fewest: cut.map_or(2, |cut| count(cut.fewest)),
            least: cut.map_or(1, |cut| count(cut.least)),
            first_eighths: cut.map_or(8, |cut| count(cut.first)),
            most_segments: count(batch.segments()),
        };
        Ok(args.prepare(variant.ok_or("no variant for the type of the boundaries")?, false)?)
    }

    /// Plans and enqueues the call, and gives the kernels that were chosen, in order.
    pub fn enqueue(&self, options: &Options, stream: Stream) -> Result<Vec<&'static KernelDesc>, Failure> {
        let plan = plan(&self.problem, self.device.executor, options)?;
        // SAFETY: the buffers live as long as `self`, which a caller keeps until the results are read; nothing else
        // uses them.
        unsafe { plan.launch(self.device.executor, stream) }
            .map_err(|error| format!("{}: {error}", plan.desc().entry))?;
        Ok(plan.launches().iter().map(|launch| launch.desc).collect())
    }

    /// Writes other boundaries of as many sequences.
    pub fn set_boundaries(&self, cu_seqlens: &[i64]) -> Result<(), Failure> {
        match self.case.sample.switches.wide_boundaries {
            true => self.cu.upload(cu_seqlens)?,
            false => self.cu.upload(&cu_seqlens.iter().map(|end| *end as i32).collect::<Vec<i32>>())?,
        }
        Ok(())
    }

    /// Puts the pools and poisoned outputs back, as they were ahead of the first launch.
    pub fn restore(&self) -> Result<(), Failure> {
        match &self.case.sample.pool {
            FloatVec::F32(values) => self.initial.upload(values)?,
            FloatVec::Bf16(values) => self.initial.upload(values)?,
        }
        for buffer in [&self.final_state, &self.h, &self.v_new, &self.work, &self.offsets] {
            buffer.fill(0xFF)?;
        }
        Ok(())
    }

    /// Waits, and reads everything back. A guard byte that changed is an error.
    pub fn results(&self) -> Result<Results, Failure> {
        let own =
            [&self.gates, &self.initial, &self.final_state, &self.h, &self.v_new, &self.work, &self.offsets, &self.cu];
        for buffer in own.into_iter().chain(self.rows.iter().map(|(buffer, _)| buffer)).chain(&self.others) {
            buffer.check_canaries()?;
        }
        let (s, sw) = (&self.case.sample, &self.case.sample.switches);
        let mut changed_inputs = 0;
        for (buffer, before) in &self.rows {
            changed_inputs += differences(&bf16_bits(&buffer.download::<bf16>()?), &bf16_bits(before));
        }
        changed_inputs += differences(&f32_bits(&self.gates.download()?), &f32_bits(&s.gate));
        let initial = read(&self.initial, &s.pool)?;
        if !sw.in_place {
            changed_inputs += differences(&initial.bits(), &s.pool.bits());
        }
        let raw = if sw.in_place { initial } else { read(&self.final_state, &s.pool)? };
        let h: Vec<bf16> = self.h.download()?;
        Ok(Results {
            h: match sw.h_order {
                StateOrder::VFirst if sw.h_out => exchanged(&h, &self.case.h_heads()),
                _ => h,
            },
            v_new: self.v_new.download()?,
            final_state: match sw.order {
                StateOrder::VFirst => transposed(&raw, self.case.final_heads()),
                StateOrder::KFirst => raw,
            },
            words: self.work.download()?,
            offsets: match sw.wide_boundaries {
                true => self.offsets.download()?,
                false => self.offsets.download::<i32>()?.into_iter().map(i64::from).collect(),
            },
            changed_inputs,
        })
    }
}
