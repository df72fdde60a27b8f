//! Which problems are run.

use super::case::Plan;
use crate::checks::Extent;
use kda_ref::delta_h::sample::{Damage, GateForm, PoolForm, Strength, Switches, random_lengths};
use kda_ref::delta_h::{CHUNK, Split};
use kda_ref::rng::Rng;
use kda_runtime::Backend;

/// The problems of a check.
pub fn problems(extent: Extent, backend: Backend, rng: &mut Rng) -> Vec<Plan> {
    let mut plans = few();
    if extent == Extent::Full {
        let (rounds, most_hv, most_rows) = if backend == Backend::Sim { (24, 3, 400) } else { (120, 8, 3000) };
        for _ in 0..rounds {
            let switches = Switches::random(rng, most_hv);
            plans.push(Plan { split: rng.coin(), ..Plan::of(&random_lengths(rng, 6, most_rows), switches) });
        }
        plans.extend(segments(backend, rng));
    }
    plans
}

/// Problems that together meet every switch.
pub fn few() -> Vec<Plan> {
    let plain = Switches::plain;
    let slots = Switches { initial: PoolForm::Slots, final_state: PoolForm::Slots, dead: true, ..plain(1) };
    let scalar = Switches { gate: GateForm::Scalar, ..slots };
    let damaged = |damage| Switches { damage: Some(damage), spare_rows: 20, ..plain(1) };
    let weak = Switches { strength: Strength::Weak, ..plain(1) };
    vec![
        Plan::of(&[64, 1, 0, 65, 130], Switches { strength: Strength::Mixed, ..plain(1) }),
        Plan::of(
            &[0, 100, 64, 7, 0],
            Switches {
                h: 2,
                hv: 2,
                has_initial: true,
                null: 0,
                in_place: true,
                bf16_state: true,
                h_every: 2,
                wide_boundaries: true,
                padding: 1,
                spare_rows: 70,
                spare_chunks: 2,
                ..slots
            },
        ),
        Plan::of(
            &[200, 3, 70],
            Switches { gate: GateForm::Decay, initial: PoolForm::Absent, v_new: false, h_every: 3, ..slots },
        ),
        Plan::of(&[65, 0, 129], Switches { hv: 2, padding: 2, ..scalar }),
        Plan::of(&[130, 20], Switches { h_every: 2, bf16_state: true, strength: Strength::Strong, ..scalar }),
        // More chunks than gates are copied ahead.
        Plan::of(&[20, 1100, 600], scalar),
        Plan::of(&[130], Switches { h_out: false, bf16_state: true, in_place: true, ..weak }),
        Plan::of(&[70, 64], Switches { h_out: false, final_state: PoolForm::Absent, strength: Strength::None, ..weak }),
        Plan::of(&[0, 0, 0], plain(2)),
        Plan::of(&[0, 0], Switches { spare_rows: 70, has_initial: true, bf16_state: true, ..slots }),
        Plan::of(&[], Switches { spare_rows: 3, ..plain(1) }),
        Plan::of(&[70, 64, 10, 20], damaged(Damage::Negative)),
        Plan::of(&[70, 64, 10, 20], Switches { wide_boundaries: true, ..damaged(Damage::Falling) }),
        Plan::of(&[70, 64, 10, 20], Switches { gate: GateForm::Scalar, ..damaged(Damage::PastTheRows) }),
        Plan::of(&[70, 64, 10, 130], Switches { h_every: 2, ..damaged(Damage::Capacity) }),
        // Hardly anything is written and nothing decays, so that the maps alone are what states are off by.
        Plan::cut(&[4033], Switches { beta: 1e-3, strength: Strength::None, ..weak }),
        Plan::cut(&[20, 2497], Switches { spare_rows: 64, strength: Strength::Mixed, ..weak }),
        Plan::cut(
            &[3100, 0, 70],
            Switches { in_place: true, h_every: 2, padding: 1, bf16_state: true, dead: false, ..slots },
        ),
    ]
}

/// Long sequences in segments, with every form of state.
fn segments(backend: Backend, rng: &mut Rng) -> Vec<Plan> {
    let simulated = backend == Backend::Sim;
    let (rounds, most_hv, longest) = if simulated { (2, 1, 1000) } else { (24, 8, 14_000) };
    let mut plans = Vec::new();
    for _ in 0..rounds {
        let gate = rng.choose(&[GateForm::Cumulative, GateForm::Decay]);
        let drawn = Switches { gate, damage: None, ..Switches::random(rng, most_hv) };
        let switches = Switches { h: drawn.hv, ..drawn };
        let mut lengths = random_lengths(rng, 3, 300);
        let least = Split::of_heads(switches.hv).map_or(0, |split| (split.fewest * split.least - 1) * CHUNK + 1);
        lengths.insert(rng.below(lengths.len() + 1), least + rng.below(longest));
        if !simulated {
            lengths.push(least + rng.below(longest));
        }
        plans.push(Plan::cut(&lengths, switches));
    }
    plans
}

#[cfg(test)]
mod tests {
    use super::*;
    use kda_ref::layout::StateOrder;

    /// Whether a problem has what a variant must meet.
    type Meets = fn(&Plan) -> bool;

    fn scalar(p: &Plan) -> bool {
        p.switches.gate == GateForm::Scalar
    }

    fn rows(p: &Plan) -> usize {
        p.lengths.iter().sum()
    }

    const NEEDED: [(&str, Meets); 32] = [
        ("an empty sequence among others", |p| rows(p) > 0 && p.lengths.contains(&0)),
        ("T = 0", |p| rows(p) == 0 && p.switches.spare_rows == 0 && !p.lengths.is_empty()),
        ("all empty, with rows", |p| rows(p) == 0 && p.switches.spare_rows > 0 && !p.lengths.is_empty()),
        ("no sequence", |p| p.lengths.is_empty()),
        ("a tail of a row", |p| p.lengths.iter().any(|l| l % 64 == 1)),
        ("has_initial", |p| p.switches.has_initial),
        ("no initial state", |p| p.switches.initial == PoolForm::Absent),
        ("no final state", |p| p.switches.final_state == PoolForm::Absent),
        ("dense states", |p| p.switches.initial == PoolForm::Dense),
        ("dead slots", |p| p.switches.dead && p.switches.initial == PoolForm::Slots),
        ("null slot 0", |p| p.switches.null == 0 && p.switches.dead),
        ("in place", |p| p.switches.in_place && !p.split),
        ("in place in segments", |p| p.switches.in_place && p.split),
        ("bf16 states", |p| p.switches.bf16_state && !p.split),
        ("bf16 states in segments", |p| p.switches.bf16_state && p.split),
        ("fp32 states in segments", |p| !p.switches.bf16_state && p.split),
        ("every second h", |p| p.switches.h_every == 2 && p.switches.h_out),
        ("every third h", |p| p.switches.h_every == 3 && p.switches.h_out),
        ("no h", |p| !p.switches.h_out),
        ("no v_new", |p| !p.switches.v_new),
        ("decay rows", |p| p.switches.gate == GateForm::Decay),
        ("a scalar gate of shared keys", |p| scalar(p) && p.switches.h < p.switches.hv),
        ("a scalar gate in fp32 and bf16", |p| scalar(p) && p.switches.bf16_state),
        ("many chunks of a scalar gate", |p| scalar(p) && p.lengths.iter().any(|l| *l > 16 * CHUNK)),
        ("int64 boundaries", |p| p.switches.wide_boundaries),
        ("padded rows", |p| p.switches.padding > 0),
        ("spare rows", |p| p.switches.spare_rows > 63),
        ("a negative boundary", |p| p.switches.damage == Some(Damage::Negative)),
        ("falling boundaries", |p| p.switches.damage == Some(Damage::Falling)),
        ("a boundary past the rows", |p| p.switches.damage == Some(Damage::PastTheRows)),
        ("too small a capacity", |p| p.switches.damage == Some(Damage::Capacity)),
        ("several heads", |p| p.switches.hv > 1 && p.switches.h > 1),
    ];

    #[test]
    fn a_quick_check_meets_every_switch() {
        for backend in [Backend::Sim, Backend::Cuda] {
            let plans = problems(Extent::Quick, backend, &mut Rng::new(1));
            for (what, meets) in NEEDED {
                assert!(plans.iter().any(meets), "no problem with {what}");
            }
        }
    }

    /// Drawn cases of segments are long enough to be cut.
    #[test]
    fn long_sequences_are_cut() {
        for plan in segments(Backend::Cuda, &mut Rng::new(3)) {
            let split = Split::of_heads(plan.switches.hv).expect("few heads");
            assert!(plan.lengths.iter().any(|rows| split.parts(rows.div_ceil(CHUNK)) > 1), "{plan:?}");
        }
        for plan in few().iter().filter(|p| p.split) {
            let case = plan.draw(1);
            assert!(case.batch().cut().is_some(), "{plan:?}");
            let schedule = case.sample.problem().schedule();
            let split = case.segments().expect("few heads");
            assert!(schedule.sequences.iter().any(|s| split.parts(s.chunks()) > 1), "{plan:?}");
        }
    }

    /// A sequence alone is the sequence among others: the golden model gives it the same bits.
    #[test]
    fn a_sequence_alone_is_the_same_problem() {
        for plan in few().iter().filter(|p| p.switches.damage.is_none() && !p.split) {
            let case = plan.draw(7).in_orders(StateOrder::KFirst, StateOrder::KFirst);
            let p = case.sample.problem();
            let packed = kda_ref::delta_h::run(&p, kda_ref::Mode::Emulate).expect("a call");
            for s in &packed.schedule.sequences {
                let one = case.alone(s.n);
                let q = one.sample.problem();
                let alone = kda_ref::delta_h::run(&q, kda_ref::Mode::Emulate).expect("a call");
                assert_eq!((p.read_slot(s.n).is_some(), alone.schedule.status), (q.read_slot(0).is_some(), 0));
                if let (Some(a), Some(b)) = (&packed.v_new, &alone.v_new) {
                    let width = p.hv * kda_ref::delta_h::HEAD;
                    let bits = |x: &[f64]| x.iter().map(|x| x.to_bits()).collect::<Vec<u64>>();
                    for at in (s.rows.0..s.rows.1).map(|token| p.v_new_at(token, 0)) {
                        assert!(bits(&a.values[at..at + width]) == bits(&b.values[at..at + width]), "{plan:?}");
                    }
                }
                if let (Some(a), Some(b), Some(from)) = (&packed.final_state, &alone.final_state, p.write_slot(s.n)) {
                    let to = q.write_slot(0).expect("a live slot");
                    let size = p.hv * kda_ref::delta_h::STATE;
                    let (a, b) = (&a.values[p.final_at(from, 0)..][..size], &b.values[q.final_at(to, 0)..][..size]);
                    assert!(a == b, "{plan:?}");
                }
            }
        }
    }
}
