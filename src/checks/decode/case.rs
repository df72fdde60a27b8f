//! One problem of the checks: what is drawn, and what is made special about it.

use crate::checks::conv_verify::case::{A_LOGS, BETA_LOGITS, RAW_GATES};
use half::bf16;
use kda_ref::decode::HEAD;
use kda_ref::decode::sample::{Sample, Switches};
use kda_ref::floats::FloatVec;
use kda_ref::layout::StateOrder;
use kda_ref::rng::Rng;

/// What is special about the values of a problem.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Values {
    /// As drawn.
    Drawn,
    /// Raw gates from -100 to 100 without bias, and `A_log` from -6 to 100, counted on from this offset.
    GateExtremes(usize),
    /// Write strengths of 0 and 1: logits from -100 to 100.
    BetaExtremes,
    /// Projections and histories of this standard deviation, so that the norms' epsilon rules.
    Tiny(f32),
    /// Tokens and histories of zeros: q and k of length 0 meet the norm.
    Zeros,
}

/// How a problem is made. A check gives every variant the type and the order of state that it is written for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Sizes and switches.
    pub switches: Switches,
    /// Padding rows, for certain: request 0 has no slot, request 1 no line (or no slot to write). All others are live.
    pub null_rows: bool,
    /// Two requests read the same slot and line, and write others.
    pub shared_source: bool,
    /// Elements between two entries of an index array; 1 is dense.
    pub index_stride: usize,
    /// What is special about the values.
    pub values: Values,
}

impl Plan {
    /// The problem as drawn, dense index arrays.
    pub fn of(switches: Switches) -> Plan {
        Plan { switches, null_rows: false, shared_source: false, index_stride: 1, values: Values::Drawn }
    }

    /// Draws the problem.
    pub fn draw(&self, seed: u64) -> Case {
        let mut rng = Rng::new(seed);
        let mut sample = Sample::random(&mut rng, self.switches);
        if self.shared_source {
            let last = self.switches.dims.n - 1;
            (sample.slots[0], sample.conv_slots[0]) = (sample.slots[last], sample.conv_slots[last]);
        }
        if self.null_rows {
            null_rows(&mut sample, &mut rng);
        }
        self.values.apply(&mut sample);
        Case { sample, index_stride: self.index_stride }
    }
}

/// A problem that was drawn.
#[derive(Clone, Debug)]
pub struct Case {
    /// The inputs.
    pub sample: Sample,
    /// Elements between two entries of an index array.
    pub index_stride: usize,
}

impl Case {
    /// The same problem with a state of this order.
    pub fn in_order(&self, order: StateOrder) -> Case {
        let mut case = self.clone();
        if case.sample.switches.order != order {
            case.sample.state = transposed(&self.sample, &self.sample.state);
            case.sample.switches.order = order;
        }
        case
    }
}

/// A pool of states with K and V exchanged; what lies between slots stays.
pub fn transposed(sample: &Sample, pool: &FloatVec) -> FloatVec {
    let p = sample.problem();
    let mut swapped = pool.clone();
    let heads = (0..p.state_len).flat_map(|slot| (0..p.dims.hv).map(move |hv| (slot, hv)));
    for base in heads.map(|(slot, hv)| p.head(slot, hv)) {
        for (row, column) in (0..HEAD).flat_map(|row| (0..HEAD).map(move |column| (row, column))) {
            let (to, from) = (base + column * HEAD + row, base + row * HEAD + column);
            match (&mut swapped, pool) {
                (FloatVec::F32(to_pool), FloatVec::F32(pool)) => to_pool[to] = pool[from],
                (FloatVec::Bf16(to_pool), FloatVec::Bf16(pool)) => to_pool[to] = pool[from],
                _ => unreachable!("a clone has the type of its origin"),
            }
        }
    }
    swapped
}

/// Indices that are not live, of every kind.
fn null_rows(sample: &mut Sample, rng: &mut Rng) {
    let null = sample.switches.null;
    let mut dead = |len: usize| rng.choose(&[null, -1, -7, i32::MIN, len as i32, i32::MAX]);
    let (slots, lines) = (sample.state_len, sample.layout.lines);
    sample.slots[0] = dead(slots);
    if let Some(second) = sample.conv_slots.get_mut(1) {
        *second = dead(lines);
    }
    for (map, len) in [(&mut sample.slots_out, slots), (&mut sample.conv_slots_out, lines)] {
        if let Some(second) = map.as_mut().and_then(|map| map.get_mut(1)) {
            *second = dead(len);
        }
    }
}

impl Values {
    fn apply(self, sample: &mut Sample) {
        match self {
            Values::Drawn => {}
            Values::GateExtremes(offset) => {
                // 18 raw gates against 128 channels: every channel of another head meets other gates.
                let gates = |i: usize| RAW_GATES[(i + i / HEAD + offset) % RAW_GATES.len()];
                map(&mut sample.g, |i, _| gates(i));
                sample.dt_bias = None;
                let a_logs = |hv: usize| A_LOGS[(hv + offset) % A_LOGS.len()];
                sample.a_log = Some((0..sample.switches.dims.hv).map(a_logs).collect());
            }
            Values::BetaExtremes => {
                for (i, b) in sample.beta.iter_mut().enumerate() {
                    *b = bf16::from_f32(BETA_LOGITS[i % BETA_LOGITS.len()]);
                }
            }
            Values::Tiny(sigma) => {
                let scale = sigma / sample.switches.input_sigma as f32;
                sample.x.iter_mut().for_each(|x| *x = bf16::from_f32(x.to_f32() * scale));
                map(&mut sample.pool, |_, x| x * scale);
            }
            Values::Zeros => {
                sample.x.fill(bf16::ZERO);
                map(&mut sample.pool, |_, _| 0.0);
            }
        }
    }
}

fn map(values: &mut FloatVec, new: impl Fn(usize, f32) -> f32) {
    match values {
        FloatVec::F32(values) => values.iter_mut().enumerate().for_each(|(i, v)| *v = new(i, *v)),
        FloatVec::Bf16(values) => {
            values.iter_mut().enumerate().for_each(|(i, v)| *v = bf16::from_f32(new(i, v.to_f32())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_rows_are_certain() {
        for (seed, separate) in (0..20).map(|seed| (seed, seed % 2 == 0)) {
            for fused in [true, false] {
                let plain = Switches { separate, fused, ..Switches::plain(3, 1, 1) };
                let case = Plan { null_rows: true, ..Plan::of(plain) }.draw(seed);
                let p = case.sample.problem();
                let live: Vec<bool> = (0..3).map(|n| p.places(n).is_some()).collect();
                assert_eq!(live, [false, !(fused || separate), true], "seed {seed}");
            }
        }
    }

    #[test]
    fn transposed_twice_is_as_before() {
        let case = Plan::of(Switches { padding: 8, ..Switches::plain(2, 1, 2) }).draw(1);
        let (once, p) = (case.in_order(StateOrder::KFirst), case.sample.problem());
        let at = p.head(1, 1) + 3 * HEAD + 5;
        assert_eq!(once.sample.state.bits()[p.head(1, 1) + 5 * HEAD + 3], case.sample.state.bits()[at]);
        assert_eq!(once.in_order(StateOrder::VFirst).sample.state.bits(), case.sample.state.bits());
    }
}
