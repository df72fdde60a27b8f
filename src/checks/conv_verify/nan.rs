//! A NaN stays where the formulas take it: within its request, within the value heads that share its q/k head, and behind
//! its token. Everything else has the bits of a run without it.

use super::Failure;
use super::call::Call;
use super::case::{Case, Plan};
use super::judge::fits;
use super::problems::{POOLS, with_pool};
use crate::checks::{Device, Measured, Sink};
use half::bf16;
use kda_kernels::conv_verify::ConvVerifyVariant;
use kda_ref::conv_verify::HEAD;
use kda_ref::conv_verify::sample::{Sample, Switches};

/// Requests, tokens, q/k heads, value heads.
const SIZES: (usize, usize, usize, usize) = (2, 4, 2, 4);
/// The request and the token with the NaN.
const REQUEST: usize = 1;
const TOKEN: usize = 1;

/// Where an output element stands: request, token, value head, row of V.
type Place = (usize, usize, usize, usize);

/// A NaN in one input.
struct Poison {
    input: &'static str,
    put: fn(&mut Sample),
    /// Whether it must reach this element of `out`.
    out: fn(Place) -> bool,
    /// Whether it must reach this row of the state after the token.
    state: fn(Place) -> bool,
}

const POISONS: [Poison; 6] = [
    Poison {
        input: "k of head 0",
        put: |s| put_x(s, SIZES.2 * HEAD + 5),
        out: |(n, t, hv, _)| n == REQUEST && t >= TOKEN && hv < 2,
        state: |(n, t, hv, _)| n == REQUEST && t >= TOKEN && hv < 2,
    },
    Poison {
        // Four taps carry it over the four tokens from its own on.
        input: "q of head 1",
        put: |s| put_x(s, HEAD + 127),
        out: |(n, t, hv, _)| n == REQUEST && t >= TOKEN && hv >= 2,
        state: |_| false,
    },
    Poison {
        input: "v of value head 3",
        put: |s| put_x(s, (2 * SIZES.2 + 3) * HEAD + 7),
        out: |(n, t, hv, v)| n == REQUEST && t >= TOKEN && hv == 3 && v == 7,
        state: |(n, t, hv, v)| n == REQUEST && t >= TOKEN && hv == 3 && v == 7,
    },
    Poison {
        input: "gate of value head 2",
        put: |s| s.a[((REQUEST * SIZES.1 + TOKEN) * SIZES.3 + 2) * HEAD + 9] = bf16::NAN,
        out: |(n, t, hv, _)| n == REQUEST && t >= TOKEN && hv == 2,
        state: |(n, t, hv, _)| n == REQUEST && t >= TOKEN && hv == 2,
    },
    Poison {
        input: "beta of value head 1",
        put: |s| s.b[(REQUEST * SIZES.1 + TOKEN) * SIZES.3 + 1] = bf16::NAN,
        out: |(n, t, hv, _)| n == REQUEST && t >= TOKEN && hv == 1,
        state: |(n, t, hv, _)| n == REQUEST && t >= TOKEN && hv == 1,
    },
    Poison {
        input: "state of value head 0",
        put: |s| {
            let slot = s.state_slots[REQUEST] as usize * s.switches.dims.state_len();
            s.state[slot + 3 * HEAD + 4] = f32::NAN;
        },
        out: |(n, _, hv, v)| n == REQUEST && hv == 0 && v == 3,
        state: |(n, _, hv, v)| n == REQUEST && hv == 0 && v == 3,
    },
];

fn put_x(sample: &mut Sample, channel: usize) {
    let row = REQUEST * SIZES.1 + TOKEN;
    sample.x[row * sample.switches.dims.channels() + channel] = bf16::NAN;
}

/// Every poison on every variant of at least `rows` rows of V for this number of tokens, with both gates.
pub fn run(device: Device, seed: u64, rows: u32, sink: Sink, share: f64) -> Result<(), Failure> {
    let (n, t, h, hv) = SIZES;
    for poison in &POISONS {
        let mut wrong = 0;
        for (index, pool) in POOLS.into_iter().enumerate() {
            let lower_bound = [Some(-5.0), None][index % 2];
            let switches = Switches { lower_bound, ..with_pool(Switches::plain(n, t, h, hv), pool) };
            let clean = Plan::of(switches).draw(seed);
            let mut poisoned = clean.clone();
            (poison.put)(&mut poisoned.sample);
            for variant in ConvVerifyVariant::ALL.iter().filter(|v| fits(**v, &switches) && v.bv() >= rows) {
                wrong += strays(device, &clean, &poisoned, poison, *variant)?;
            }
        }
        let case = format!("NaN in {}", poison.input);
        let output = "elements it reaches wrongly, or wrongly not".into();
        sink(Measured { case, output, error: wrong as f64, budget: 0.0 }, share);
    }
    Ok(())
}

fn strays(
    device: Device,
    clean: &Case,
    poisoned: &Case,
    poison: &Poison,
    variant: ConvVerifyVariant,
) -> Result<usize, Failure> {
    let a = Call::new(device, clean)?.run(Some(variant))?;
    let b = Call::new(device, poisoned)?.run(Some(variant))?;
    let (n, t, hv, _) = (SIZES.0, SIZES.1, SIZES.3, ());
    let mut wrong = b.changed_inputs;
    let (Some(before), Some(after)) = (&a.states, &b.states) else { return Ok(wrong + 1) };
    for row in 0..n * t * hv * HEAD {
        let place = (row / HEAD / hv / t, row / HEAD / hv % t, row / HEAD % hv, row % HEAD);
        wrong += usize::from(match (poison.out)(place) {
            true => !b.out[row].is_nan(),
            false => a.out[row].to_bits() != b.out[row].to_bits(),
        });
        let snapshot = clean.sample.snapshot_rows[place.0] as usize;
        let begin = (((snapshot * t + place.1) * hv + place.2) * HEAD + place.3) * HEAD;
        for i in begin..begin + HEAD {
            wrong += usize::from(match (poison.state)(place) {
                true => !after[i].is_nan(),
                false => before[i].to_bits() != after[i].to_bits(),
            });
        }
    }
    Ok(wrong)
}
