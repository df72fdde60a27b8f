//! One problem of the checks: what is drawn, what is made special about it, and which optional tensors it has.

use half::bf16;
use kda_ref::conv_verify::HEAD;
use kda_ref::conv_verify::sample::{Sample, Switches};
use kda_ref::floats::FloatVec;
use kda_ref::rng::Rng;

/// What the kernel sees beside the sample: tensors that a caller may leave out, and how index arrays lie in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    /// `states_out` is given.
    pub states: bool,
    /// `windows_out` is given.
    pub windows: bool,
    /// Elements between two entries of an index array; 1 is dense.
    pub index_stride: usize,
}

impl View {
    /// Every tensor, dense index arrays.
    pub const WHOLE: View = View { states: true, windows: true, index_stride: 1 };
}

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
    /// Every third token of all zeros, and a history of zeros: q and k of length 0 meet the norm.
    ZeroTokens,
}

/// Raw gates round every threshold of the two gates.
pub(in crate::checks) const RAW_GATES: [f32; 18] =
    [-100.0, -90.0, -88.0, -40.0, -18.0, -17.0, -16.5, -3.0, -0.0, 0.0, 3.0, 16.5, 20.0, 21.0, 50.0, 88.0, 90.0, 100.0];
pub(in crate::checks) const A_LOGS: [f32; 8] = [-6.0, 0.0, 2.75, 10.0, 60.0, 88.0, 90.0, 100.0];
pub(in crate::checks) const BETA_LOGITS: [f32; 7] = [-100.0, -88.0, -20.0, 0.0, 20.0, 88.0, 100.0];

/// How a problem is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Sizes and switches.
    pub switches: Switches,
    /// Padding rows and a null snapshot row, for certain: request 0 has no line, request 1 no slot, request 2 no snapshot
    /// row. All others are live.
    pub null_rows: bool,
    /// What the kernel sees.
    pub view: View,
    /// What is special about the values.
    pub values: Values,
}

impl Plan {
    /// The problem as drawn, every tensor given.
    pub fn of(switches: Switches) -> Plan {
        Plan { switches, null_rows: false, view: View::WHOLE, values: Values::Drawn }
    }

    /// Whether every request is live and writes snapshots.
    pub fn all_live(&self) -> bool {
        !self.null_rows && !self.switches.nulls
    }

    /// Draws the problem.
    pub fn draw(&self, seed: u64) -> Case {
        let mut rng = Rng::new(seed);
        let mut sample = Sample::random(&mut rng, self.switches);
        if self.null_rows {
            null_rows(&mut sample, &mut rng);
        }
        self.values.apply(&mut sample);
        Case { sample, view: self.view }
    }
}

/// A problem that was drawn.
#[derive(Clone, Debug)]
pub struct Case {
    /// The inputs.
    pub sample: Sample,
    /// What the kernel sees.
    pub view: View,
}

/// Indices that are not live, of every kind.
fn null_rows(sample: &mut Sample, rng: &mut Rng) {
    let null = sample.switches.null;
    let mut dead = |len: usize| rng.choose(&[null, -1, -7, i32::MIN, len as i32, i32::MAX]);
    let maps = [
        (&mut sample.conv_slots, sample.conv_layout.lines),
        (&mut sample.state_slots, sample.state_len),
        (&mut sample.snapshot_rows, sample.snapshot_len),
    ];
    for (request, (map, len)) in maps.into_iter().enumerate() {
        if let Some(index) = map.get_mut(request) {
            *index = dead(len);
        }
    }
}

impl Values {
    fn apply(self, sample: &mut Sample) {
        match self {
            Values::Drawn => {}
            Values::GateExtremes(offset) => gate_extremes(sample, offset),
            Values::BetaExtremes => {
                for (i, b) in sample.b.iter_mut().enumerate() {
                    *b = bf16::from_f32(BETA_LOGITS[i % BETA_LOGITS.len()]);
                }
            }
            Values::Tiny(sigma) => {
                let scale = sigma / sample.switches.input_sigma as f32;
                sample.x.iter_mut().for_each(|x| *x = bf16::from_f32(x.to_f32() * scale));
                match &mut sample.conv_state {
                    FloatVec::F32(values) => values.iter_mut().for_each(|v| *v *= scale),
                    FloatVec::Bf16(values) => values.iter_mut().for_each(|v| *v = bf16::from_f32(v.to_f32() * scale)),
                }
            }
            Values::ZeroTokens => {
                let stride = sample.problem().x_row_stride;
                for row in (0..sample.x.len() / stride).filter(|row| row % 3 == 0) {
                    sample.x[row * stride..(row + 1) * stride].fill(bf16::ZERO);
                }
                match &mut sample.conv_state {
                    FloatVec::F32(values) => values.fill(0.0),
                    FloatVec::Bf16(values) => values.fill(bf16::ZERO),
                }
            }
        }
    }
}

fn gate_extremes(sample: &mut Sample, offset: usize) {
    // 18 raw gates against 128 channels: every channel meets other gates at the next token.
    for (i, a) in sample.a.iter_mut().enumerate() {
        *a = bf16::from_f32(RAW_GATES[(i + i / HEAD + offset) % RAW_GATES.len()]);
    }
    sample.dt_bias.fill(0.0);
    let a_logs = |hv: usize| A_LOGS[(hv + offset) % A_LOGS.len()];
    sample.a_log = Some((0..sample.switches.dims.hv).map(a_logs).collect());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_rows_are_certain() {
        for seed in 0..20 {
            let plan = Plan { null_rows: true, ..Plan::of(Switches::plain(4, 2, 1, 1)) };
            let case = plan.draw(seed);
            let p = case.sample.problem();
            let live: Vec<bool> = (0..4).map(|n| p.live_row(n).is_some()).collect();
            let keeps: Vec<bool> = (0..4).map(|n| p.snapshot_targets(n).is_some()).collect();
            assert_eq!((live, keeps[2], keeps[3]), (vec![false, false, true, true], false, true), "seed {seed}");
        }
    }

    #[test]
    fn extremes_meet_every_threshold() {
        let plan = Plan { values: Values::GateExtremes(1), ..Plan::of(Switches::plain(1, 4, 1, 2)) };
        let sample = plan.draw(3).sample;
        for gate in RAW_GATES {
            assert!(sample.a.iter().any(|a| a.to_f32() == gate), "{gate}");
        }
        assert_eq!(sample.a_log, Some(vec![0.0, 2.75]));
        let zeros = Plan { values: Values::ZeroTokens, ..Plan::of(Switches::plain(1, 4, 1, 1)) }.draw(3).sample;
        assert!(zeros.x[..384].iter().all(|x| x.to_bits() == 0) && zeros.x[384..].iter().any(|x| x.to_bits() != 0));
    }
}
