//! Fills the buffers of a [`Sample`].

use super::prepare::{Tokens, prepare};
use super::problem::{Final, Gate, Initial, Problem};
use super::sample::{Damage, GateForm, PoolForm, Sample, Strength, Switches};
use super::schedule::{Room, Schedule};
use super::{CHUNK, HEAD, STATE};
use crate::budget::Stored;
use crate::floats::{FloatVec, Floats, Rows};
use crate::layout::key_head;
use crate::rng::Rng;
use crate::round::bf16_from_f64;
use half::bf16;

impl Sample {
    /// Draws a problem with sequences of these lengths.
    ///
    /// # Panics
    /// If the switches name no head, or a number of key heads that does not divide that of value heads.
    pub fn random(rng: &mut Rng, lengths: &[usize], switches: Switches) -> Sample {
        let s = &switches;
        let (n, pad) = (lengths.len(), s.padding);
        let mut cu_seqlens = vec![0i64];
        for length in lengths {
            cu_seqlens.push(cu_seqlens[cu_seqlens.len() - 1] + *length as i64);
        }
        let rows = cu_seqlens[n] as usize + s.spare_rows;
        damage_boundaries(rng, &mut cu_seqlens, rows, s);
        let needed = Schedule::new(&cu_seqlens, rows, s.h_every, Room::default()).h_chunks();
        let capacity =
            if s.damage == Some(Damage::Capacity) { rng.below(needed.max(1)) } else { needed + s.spare_chunks };
        let gate_stride = if s.gate == GateForm::Scalar { s.hv + pad } else { s.hv * HEAD + 4 * pad };
        let [k_stride, stride] = [s.h, s.hv].map(|heads| heads * HEAD + 8 * pad);
        let gate_rows = if s.gate == GateForm::Decay { rows.min(n) + rows.saturating_sub(n) / CHUNK } else { rows };
        let slot_stride = s.hv * STATE + 8 * pad;
        let (initial_slots, final_slots, counts) = slots(rng, n, s);
        let mut sample = Sample {
            switches,
            cu_seqlens,
            rows,
            kg: vec![bf16::NAN; rows * k_stride],
            w: vec![bf16::NAN; rows * stride],
            u: vec![bf16::NAN; rows * stride],
            gate: vec![f32::NAN; gate_rows * gate_stride],
            strides: [k_stride, stride, stride, gate_stride, stride + 8 * rng.below(2) * pad],
            pool: FloatVec::filled(s.bf16_state, counts.0 * slot_stride, f32::NAN),
            initial_count: counts.0,
            initial_slots,
            has_initial: s.has_initial.then(|| (0..n).map(|_| rng.choose(&[0, 1, 1, 255])).collect()),
            final_count: counts.1,
            final_slots,
            slot_stride,
            capacity,
            h_stride: s.hv * STATE + 8 * pad,
        };
        sample.fill_rows(rng);
        sample.fill_states(rng);
        sample
    }

    /// Rows of every processed sequence.
    fn fill_rows(&mut self, rng: &mut Rng) {
        let s = self.switches;
        let schedule = Schedule::new(&self.cu_seqlens, self.rows, s.h_every, Room::default());
        let [k_stride, w_stride, u_stride, gate_stride, _] = self.strides;
        let put = |to: &mut Vec<bf16>, at: usize, from: &[f64]| {
            to[at..at + HEAD].iter_mut().zip(from).for_each(|(to, from)| *to = bf16_from_f64(*from));
        };
        let spans =
            schedule.sequences.iter().flat_map(|q| (0..q.chunks()).map(|c| (q.chunk + c, q.chunk_rows(c, c + 1))));
        for (chunk, (begin, end)) in spans {
            let mut keys = Vec::new();
            for head in 0..s.hv {
                if key_head(head, s.h, s.hv) * (s.hv / s.h) == head {
                    keys = rng.normals((end - begin) * HEAD, 1.0);
                    keys.chunks_exact_mut(HEAD).for_each(|k| crate::norm::l2_normalise(k, 1.0));
                }
                let tokens = Tokens {
                    v: rng.normals((end - begin) * HEAD, 1.0),
                    beta: (begin..end).map(|_| s.beta * rng.uniform()).collect(),
                    g: log_decays(rng, end - begin, &s),
                    k: keys.clone(),
                };
                let prepared = prepare(&tokens);
                let scalar = s.gate == GateForm::Scalar;
                for (row, token) in (begin..end).enumerate() {
                    let row = row * HEAD..(row + 1) * HEAD;
                    let (kg, key) = if scalar { (&tokens.k, key_head(head, s.h, s.hv)) } else { (&prepared.kg, head) };
                    put(&mut self.kg, token * k_stride + key * HEAD, &kg[row.clone()]);
                    put(&mut self.w, token * w_stride + head * HEAD, &prepared.w[row.clone()]);
                    put(&mut self.u, token * u_stride + head * HEAD, &prepared.u[row.clone()]);
                    if scalar {
                        self.gate[token * gate_stride + head] = prepared.gk[row.start] as f32;
                    }
                }
                let last = prepared.gk[(end - begin - 1) * HEAD..].iter();
                let at = |row: usize| row * gate_stride + head * HEAD;
                match s.gate {
                    GateForm::Cumulative => {
                        self.gate[at(end - 1)..].iter_mut().zip(last).for_each(|(to, g)| *to = *g as f32);
                    }
                    GateForm::Decay => {
                        self.gate[at(chunk)..].iter_mut().zip(last).for_each(|(to, g)| *to = g.exp2() as f32);
                    }
                    GateForm::Scalar => {}
                }
            }
        }
    }

    /// States of the slots that are read. Those of an fp32 pool are no bf16 values.
    fn fill_states(&mut self, rng: &mut Rng) {
        let p = self.problem();
        let read: Vec<usize> = (0..self.cu_seqlens.len() - 1).filter_map(|n| p.read_slot(n)).collect();
        for slot in read {
            let (begin, len) = (slot * self.slot_stride, self.switches.hv * STATE);
            match &mut self.pool {
                FloatVec::F32(pool) => pool[begin..begin + len].copy_from_slice(&rng.normals_f32(len, 0.5)),
                FloatVec::Bf16(pool) => pool[begin..begin + len].copy_from_slice(&rng.normals_bf16(len, 0.5)),
            }
        }
    }

    /// The problem on these buffers.
    pub fn problem(&self) -> Problem<'_> {
        let s = &self.switches;
        let [k_stride, w_stride, u_stride, gate_stride, v_stride] = self.strides;
        let bf16s = |data, stride| Rows { data: Floats::Bf16(data), stride };
        let gate = Rows { data: Floats::F32(&self.gate), stride: gate_stride };
        let initial = Initial {
            pool: self.pool.view(),
            count: self.initial_count,
            slot_stride: self.slot_stride,
            slots: self.initial_slots.as_deref(),
            has: self.has_initial.as_deref(),
        };
        let target = Final {
            count: self.final_count,
            slot_stride: self.slot_stride,
            slots: self.final_slots.as_deref(),
            in_place: s.in_place,
        };
        Problem {
            cu_seqlens: &self.cu_seqlens,
            rows: self.rows,
            h: s.h,
            hv: s.hv,
            kg: bf16s(&self.kg, k_stride),
            w: bf16s(&self.w, w_stride),
            u: bf16s(&self.u, u_stride),
            gate: match s.gate {
                GateForm::Cumulative => Gate::Cumulative(gate),
                GateForm::Decay => Gate::Decay(gate),
                GateForm::Scalar => Gate::Scalar(gate),
            },
            stored: if s.bf16_state { Stored::Bf16 } else { Stored::F32 },
            order: s.order,
            initial: (s.initial != PoolForm::Absent).then_some(initial),
            final_state: (s.final_state != PoolForm::Absent).then_some(target),
            null: s.null,
            h_every: s.h_every,
            h_buffer: s.h_out.then_some((self.capacity, self.h_stride)),
            h_order: s.h_order,
            v_new_stride: s.v_new.then_some(v_stride),
        }
    }
}

/// Log decays in log2 units, `[rows, K]`.
fn log_decays(rng: &mut Rng, rows: usize, s: &Switches) -> Vec<f64> {
    let rate = |rng: &mut Rng| loop {
        let strength = if s.strength == Strength::Mixed {
            rng.choose(&[Strength::None, Strength::Weak, Strength::Usual, Strength::Strong])
        } else {
            s.strength
        };
        match strength {
            Strength::None => break 0.0,
            Strength::Weak => break 0.01,
            Strength::Usual => break 0.1,
            Strength::Strong => break 40.0,
            Strength::Mixed => {}
        }
    };
    let rates: Vec<f64> =
        if s.gate == GateForm::Scalar { vec![rate(rng); HEAD] } else { (0..HEAD).map(|_| rate(rng)).collect() };
    let mut g = Vec::with_capacity(rows * HEAD);
    for _ in 0..rows {
        let shared = rng.uniform();
        g.extend(rates.iter().map(|rate| -rate * if s.gate == GateForm::Scalar { shared } else { rng.uniform() }));
    }
    g
}

/// Damages the boundaries where the switches say so; a call without sequences has none to damage.
fn damage_boundaries(rng: &mut Rng, cu: &mut [i64], rows: usize, s: &Switches) {
    if cu.len() < 2 {
        return;
    }
    let at = 1 + rng.below(cu.len() - 1);
    let least = if s.wide_boundaries { i64::MIN } else { i64::from(i32::MIN) };
    match s.damage {
        Some(Damage::Negative) => cu[at] = rng.choose(&[-1, -64, least]),
        Some(Damage::Falling) => cu[at] = cu[at - 1] - 1,
        Some(Damage::PastTheRows) => cu[at] = rng.choose(&[rows as i64 + 1, -(least + 1)]),
        _ => {}
    }
}

type SlotMaps = (Option<Vec<i32>>, Option<Vec<i32>>, (usize, usize));

/// Slots of initial and final states, and the numbers of slots. In place a sequence writes the slot that it reads, or one that
/// none reads.
fn slots(rng: &mut Rng, n: usize, s: &Switches) -> SlotMaps {
    let first = usize::try_from(s.null + 1).unwrap_or(0);
    let mut draw = |count: usize| -> Vec<i32> {
        let mut live: Vec<i32> = (first..count).map(|i| i as i32).collect();
        rng.shuffle(&mut live);
        live
    };
    let (count, other) = (2 * n + 3, n + 2);
    let mut live = draw(count);
    let spare = live.split_off(n);
    let mut apart = draw(other);
    apart.truncate(n);
    let mut initial = (s.initial == PoolForm::Slots).then(|| live.clone());
    let mut target = (s.final_state == PoolForm::Slots).then(|| match s.in_place {
        false => apart,
        true if rng.coin() => live,
        true => spare[..n].to_vec(),
    });
    let dense = |form| if form == PoolForm::Dense { n } else { 0 };
    let counts = (
        if initial.is_some() { count } else { dense(s.initial) },
        match (&target, s.in_place) {
            (Some(_), true) => count,
            (Some(_), false) => other,
            (None, _) => dense(s.final_state),
        },
    );
    if s.dead {
        for (map, count) in [(&mut initial, counts.0), (&mut target, counts.1)] {
            for slot in map.iter_mut().flatten() {
                if rng.below(5) > 0 {
                    continue;
                }
                *slot = rng.choose(&[s.null, -1, -7, i32::MIN, count as i32, i32::MAX]);
            }
        }
    }
    (initial, target, counts)
}
