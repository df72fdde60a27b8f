//! One problem of the checks: what is drawn, and how the call is put.

use kda_core::Executor;
use kda_ref::delta_h::sample::{Damage, GateForm, PoolForm, Sample, Switches};
use kda_ref::delta_h::{HEAD, STATE, Split};
use kda_ref::floats::FloatVec;
use kda_ref::layout::StateOrder;
use kda_ref::rng::Rng;
use kda_runtime::operators::delta_h::{Batch, Variant};

/// How a problem is made. A check gives every variant the orders that it is written for.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Rows of each sequence.
    pub lengths: Vec<usize>,
    /// Sizes and switches.
    pub switches: Switches,
    /// Long sequences may be cut.
    pub split: bool,
}

impl Plan {
    /// Sequences of these lengths, none of them cut.
    pub fn of(lengths: &[usize], switches: Switches) -> Plan {
        Plan { lengths: lengths.to_vec(), switches, split: false }
    }

    /// The same, with long sequences cut.
    pub fn cut(lengths: &[usize], switches: Switches) -> Plan {
        Plan { split: true, ..Plan::of(lengths, switches) }
    }

    /// Draws the problem. Switches that the operator refuses together are made to fit.
    pub fn draw(&self, seed: u64) -> Case {
        let mut switches = self.switches;
        if !switches.h_out && switches.final_state == PoolForm::Absent {
            switches.v_new = true;
        }
        let split = self.split && switches.gate != GateForm::Scalar;
        let mut sample = Sample::random(&mut Rng::new(seed), &self.lengths, switches);
        let states = sample.capacity.max(batch_of(&sample, split).h_states() as usize);
        if switches.damage != Some(Damage::Capacity) {
            sample.capacity = states;
        }
        Case { sample, split, states }
    }
}

/// A problem that was drawn.
#[derive(Clone, Debug)]
pub struct Case {
    /// The inputs. Its capacity is what the schedule is told.
    pub sample: Sample,
    /// Long sequences may be cut.
    pub split: bool,
    /// Chunk states that the buffer of h has room for.
    pub states: usize,
}

/// Whether a variant is for schedules whose sequences may be cut.
pub fn walks_segments(variant: impl Into<Variant>) -> bool {
    variant.into().split()
}

fn batch_of(sample: &Sample, split: bool) -> Batch {
    Batch {
        sequences: sample.cu_seqlens.len() as u64 - 1,
        rows: sample.rows as u64,
        heads: sample.switches.hv as u64,
        h_every: sample.switches.h_every as u32,
        split,
        longest: None,
    }
}

impl Case {
    /// A problem that was made elsewhere: whole sequences, with room in h for any lengths.
    pub fn of(mut sample: Sample) -> Case {
        sample.capacity = sample.capacity.max(batch_of(&sample, false).h_states() as usize);
        Case { states: sample.capacity, split: false, sample }
    }

    /// Sizes of the call.
    pub fn batch(&self) -> Batch {
        batch_of(&self.sample, self.split)
    }

    /// How the golden model cuts sequences.
    pub fn segments(&self) -> Option<Split> {
        Split::of_heads(self.sample.switches.hv).filter(|_| self.split)
    }

    /// The same problem on a device that may have no variant for segments: there nothing is cut.
    pub fn on(&self, executor: &dyn Executor) -> Case {
        let (major, minor) = executor.compute_capability();
        let able = Variant::all().any(|v| walks_segments(v) && v.desc().arch.runs_on(major, minor));
        Case { split: self.split && able, ..self.clone() }
    }

    /// The same problem with states and h in these orders.
    pub fn in_orders(&self, states: StateOrder, h: StateOrder) -> Case {
        let mut case = self.clone();
        if self.sample.switches.order != states {
            case.sample.pool = transposed(&self.sample.pool, self.initial_heads());
            case.sample.switches.order = states;
        }
        case.sample.switches.h_order = h;
        case
    }

    /// First elements of the heads of all slots of the initial pool.
    pub fn initial_heads(&self) -> Vec<usize> {
        self.heads(self.sample.initial_count, self.sample.slot_stride)
    }

    /// The same of the final pool.
    pub fn final_heads(&self) -> Vec<usize> {
        self.heads(self.sample.final_count, self.sample.slot_stride)
    }

    /// The same of h.
    pub fn h_heads(&self) -> Vec<usize> {
        self.heads(self.states, self.sample.h_stride)
    }

    fn heads(&self, count: usize, stride: usize) -> Vec<usize> {
        let hv = self.sample.switches.hv;
        (0..count).flat_map(|at| (0..hv).map(move |head| at * stride + head * STATE)).collect()
    }

    /// Sequence n of the same problem alone: the same rows and pools, other boundaries. It must be processed.
    pub fn alone(&self, n: usize) -> Case {
        let mut case = self.clone();
        let schedule = self.sample.problem().schedule();
        let (sequence, s) = (schedule.sequences[n], &mut case.sample);
        s.cu_seqlens = vec![sequence.rows.0 as i64, sequence.rows.1 as i64];
        s.switches.damage = None;
        let one = |map: &mut Option<Vec<i32>>| {
            if let Some(map) = map {
                *map = vec![map[n]];
            }
        };
        one(&mut s.initial_slots);
        one(&mut s.final_slots);
        if let Some(has) = &mut s.has_initial {
            *has = vec![has[n]];
        }
        if s.switches.initial == PoolForm::Dense {
            let skip = n * s.slot_stride;
            match &mut s.pool {
                FloatVec::F32(pool) => drop(pool.drain(..skip)),
                FloatVec::Bf16(pool) => drop(pool.drain(..skip)),
            }
            s.initial_count -= n;
        }
        if s.switches.final_state == PoolForm::Dense {
            s.final_count -= n;
        }
        if s.switches.gate == GateForm::Decay {
            s.gate.drain(..sequence.chunk * s.strides[3]);
        }
        let batch = case.batch();
        if case.sample.switches.gate == GateForm::Decay {
            case.sample.gate.resize(batch.chunks() as usize * case.sample.strides[3], f32::NAN);
        }
        case.states = case.states.max(batch.h_states() as usize);
        case.sample.capacity = case.states;
        case
    }

    /// The same problem with NaN in all rows of sequence n, which must be processed.
    pub fn with_nan(&self, n: usize) -> Case {
        let mut case = self.clone();
        let (begin, end) = self.sample.problem().schedule().sequences[n].rows;
        let s = &mut case.sample;
        let [kg, w, u, gate, _] = s.strides;
        for (buffer, stride) in [(&mut s.kg, kg), (&mut s.w, w), (&mut s.u, u)] {
            buffer[begin * stride..end * stride].fill(half::bf16::NAN);
        }
        if s.switches.gate != GateForm::Decay {
            s.gate[begin * gate..end * gate].fill(f32::NAN);
        }
        case
    }
}

/// Values with K and V exchanged in the matrices that begin at these elements; everything else stays.
pub fn transposed(values: &FloatVec, heads: Vec<usize>) -> FloatVec {
    match values {
        FloatVec::F32(values) => FloatVec::F32(exchanged(values, &heads)),
        FloatVec::Bf16(values) => FloatVec::Bf16(exchanged(values, &heads)),
    }
}

/// The same of a slice.
pub fn exchanged<T: Copy>(values: &[T], heads: &[usize]) -> Vec<T> {
    let mut swapped = values.to_vec();
    for base in heads {
        for (row, column) in (0..HEAD).flat_map(|row| (0..HEAD).map(move |column| (row, column))) {
            swapped[base + column * HEAD + row] = values[base + row * HEAD + column];
        }
    }
    swapped
}
