//! One problem of the checks: what is drawn, and what is made special about it.

use crate::checks::conv_verify::case::{A_LOGS, RAW_GATES};
use half::bf16;
use kda_ref::rng::Rng;
use kda_ref::tc_commit::HEAD;
use kda_ref::tc_commit::sample::{Sample, Switches};

/// What is special about the values of a problem.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Values {
    /// As drawn.
    Drawn,
    /// Raw gates from -100 to 100 without bias, and `A_log` from -6 to 100, counted on from this offset; whole windows.
    GateExtremes(usize),
    /// Keys of zeros: a length of 0 meets the norm; whole windows.
    ZeroKeys,
}

/// How a problem is made. A check gives every variant the type of state and the windows that it is written for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Sizes and switches.
    pub switches: Switches,
    /// Request 0 has a source that is nobody's, for certain; the last one has a whole window, and a boundary in it if there
    /// are boundaries.
    pub nobody: bool,
    /// So many layers by the table of their addresses; `None`: one layer without a table.
    pub layers: Option<usize>,
    /// What is special about the values.
    pub values: Values,
}

impl Plan {
    /// The problem as drawn, of one layer.
    pub fn of(switches: Switches) -> Plan {
        Plan { switches, nobody: false, layers: None, values: Values::Drawn }
    }

    /// Draws the problem.
    pub fn draw(&self, seed: u64) -> Case {
        let mut rng = Rng::new(seed);
        let mut sample = Sample::random(&mut rng, self.switches);
        let window = self.switches.window as i32;
        if self.nobody {
            let last = sample.counts.len() - 1;
            sample.counts[last] = window;
            sample.boundary_tokens[last] = (window + 1) / 2;
            let length = sample.slots as i32;
            sample.slot_of[0] = rng.choose(&[self.switches.null, -1, -7, i32::MIN, length, i32::MAX]);
        }
        if self.values != Values::Drawn {
            sample.counts.fill(window);
        }
        let more = self.layers.unwrap_or(1).saturating_sub(1);
        let mut layers: Vec<Sample> = (0..more).map(|_| sample.another_layer(&mut rng)).collect();
        layers.insert(0, sample);
        layers.iter_mut().for_each(|layer| self.values.apply(layer));
        Case { layers, table: self.layers.is_some() }
    }
}

/// A problem that was drawn.
#[derive(Clone, Debug)]
pub struct Case {
    /// The inputs of each layer; metadata, sizes and pitches are those of the first.
    pub layers: Vec<Sample>,
    /// The layers are reached by the table of their addresses.
    pub table: bool,
}

impl Case {
    /// The layer that says sizes, pitches and metadata.
    pub fn first(&self) -> &Sample {
        &self.layers[0]
    }
}

impl Values {
    fn apply(self, sample: &mut Sample) {
        let halves = |kg: &mut [bf16], gates: bool, value: &dyn Fn(usize) -> f32| {
            for (record, pair) in kg.chunks_exact_mut(2 * HEAD).enumerate() {
                let half = if gates { &mut pair[HEAD..] } else { &mut pair[..HEAD] };
                half.iter_mut().enumerate().for_each(|(i, x)| *x = bf16::from_f32(value(record * HEAD + i)));
            }
        };
        match self {
            Values::Drawn => {}
            Values::GateExtremes(offset) => {
                // 18 raw gates against 128 channels: every channel of another record meets other gates.
                let gates = |i: usize| RAW_GATES[(i + i / HEAD + offset) % RAW_GATES.len()];
                halves(&mut sample.kg, true, &gates);
                sample.dt_bias.fill(0.0);
                let a_logs = |head: usize| A_LOGS[(head + offset) % A_LOGS.len()];
                sample.a_log = Some((0..sample.switches.heads).map(a_logs).collect());
            }
            Values::ZeroKeys => halves(&mut sample.kg, false, &|_| 0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kda_ref::tc_commit::ConvOrder;

    #[test]
    fn what_is_asked_for_is_certain() {
        for seed in 0..20 {
            let plain = Switches { boundary: true, separate: seed % 2 == 0, ..Switches::plain(3, 1, 5) };
            let case = Plan { nobody: true, ..Plan::of(plain) }.draw(seed);
            let problem = case.first().problem();
            assert_eq!(problem.commit(0), None);
            let last = problem.commit(2).expect("a request that is committed");
            assert_eq!((last.n, last.boundary.map(|(m, _)| m)), (5, Some(3)), "seed {seed}");
        }
    }

    #[test]
    fn layers_have_values_of_their_own() {
        let switches = Switches { conv: Some(ConvOrder::TokenMajor), ..Switches::plain(2, 3, 4) };
        let values = Values::GateExtremes(1);
        let case = Plan { layers: Some(3), values, ..Plan::of(switches) }.draw(5);
        assert!(case.table && case.layers.len() == 3);
        assert!(
            case.layers[1].state.bits() != case.layers[2].state.bits() && case.layers[0].conv != case.layers[1].conv
        );
        for layer in &case.layers {
            assert_eq!((&layer.slot_of, &layer.counts), (&case.first().slot_of, &vec![4, 4]));
            assert_eq!(layer.a_log, Some(vec![0.0, 2.75, 10.0]));
            assert!(RAW_GATES.iter().all(|gate| layer.kg.iter().any(|x| x.to_f32() == *gate)));
        }
    }
}
