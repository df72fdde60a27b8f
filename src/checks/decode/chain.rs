//! A verify of T tokens against T decodes: outputs, states and histories after every token, bit for bit.

use super::Failure;
use super::call::Call;
use super::case::Case;
use super::judge::{fits, order};
use crate::checks::conv_verify::call::{Call as Verify, Results as Verified, differences};
use crate::checks::conv_verify::case::{Case as VerifyCase, Plan as VerifyPlan};
use crate::checks::{Device, Extent, Measured, Sink};
use half::bf16;
use kda_kernels::decode::DecodeVariant;
use kda_ref::conv_verify::sample::{Sample as VerifySample, Switches as VerifySwitches};
use kda_ref::decode::sample::{Sample, Switches};
use kda_ref::decode::{Dims, HEAD, HISTORY};
use kda_ref::floats::FloatVec;

/// Tokens of the verify, by extent.
const QUICK: usize = 3;
const FULL: usize = 8;

/// Every variant with an fp32 state. Two verifies: both gates, both pools of histories, heads shared and not.
pub fn run(device: Device, extent: Extent, seed: u64, sink: Sink, share: f64) -> Result<(), Failure> {
    let t = if extent == Extent::Full { FULL } else { QUICK };
    let plain = |h, hv| VerifySwitches { roll: true, ..VerifySwitches::plain(2, t, h, hv) };
    let verifies = [
        VerifySwitches { bias: true, ..plain(1, 2) },
        VerifySwitches {
            bf16_pool: true,
            bf16_taps: true,
            channels_innermost: true,
            lower_bound: None,
            a_log: false,
            ..plain(2, 2)
        },
    ];
    let verifies: Vec<(VerifyCase, Verified)> = verifies
        .into_iter()
        .map(|switches| {
            let case = VerifyPlan::of(switches).draw(seed);
            let results = Verify::new(device, &case)?.run(None)?;
            Ok((case, results))
        })
        .collect::<Result<_, Failure>>()?;
    for variant in DecodeVariant::ALL.into_iter().filter(|v| fits(*v, false)) {
        let mut wrong = 0;
        for (case, results) in &verifies {
            wrong += chain(device, variant, &case.sample, results)?;
        }
        let case = format!("{t} tokens one by one on {}", variant.desc().entry);
        let output = "bits that differ from one verify".into();
        sink(Measured { case, output, error: wrong as f64, budget: 0.0 }, share);
    }
    Ok(())
}

/// Decodes the tokens of a verify one by one; elements that differ from it.
fn chain(device: Device, variant: DecodeVariant, of: &VerifySample, verified: &Verified) -> Result<usize, Failure> {
    let d = of.switches.dims;
    let (mut state, mut pool) = (FloatVec::F32(of.state.clone()), of.conv_state.clone());
    let mut wrong = 0;
    for t in 0..d.t {
        let case = Case { sample: token(of, t, &state, &pool), index_stride: 1 }.in_order(order(variant));
        let results = Call::new(device, &case)?.run(Some(variant))?;
        (state, pool) = (results.state.clone(), results.pool.clone());
        wrong += results.counters;
        for n in 0..d.n {
            let width = d.hv * HEAD;
            let (mine, its) = (&results.out[n * width..][..width], &verified.out[(n * d.t + t) * width..][..width]);
            wrong += mine.iter().zip(its).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
            wrong += state_differs(of, n, t, &state, verified) + window_differs(of, n, t, &pool, verified);
        }
    }
    Ok(wrong + differences(&pool.bits(), &verified.pool.bits()))
}

/// The decode of token `t` of a verify.
fn token(of: &VerifySample, t: usize, state: &FloatVec, pool: &FloatVec) -> Sample {
    let (s, d) = (of.switches, of.switches.dims);
    let pick = |x: &[bf16], width: usize| -> Vec<bf16> {
        (0..d.n).flat_map(|n| &x[(n * d.t + t) * width..][..width]).copied().collect()
    };
    let switches = Switches {
        bias: s.bias,
        bf16_taps: s.bf16_taps,
        bf16_pool: s.bf16_pool,
        channels_innermost: s.channels_innermost,
        lower_bound: s.lower_bound,
        a_log: s.a_log,
        null: s.null,
        ..Switches::plain(d.n, d.h, d.hv)
    };
    debug_assert_eq!(switches.dims, Dims { n: d.n, h: d.h, hv: d.hv });
    Sample {
        switches,
        x: pick(&of.x, d.channels()),
        weight: of.conv_weight.clone(),
        bias: of.conv_bias.clone(),
        pool: pool.clone(),
        layout: of.conv_layout,
        conv_slots: of.conv_slots.clone(),
        conv_slots_out: None,
        g: FloatVec::Bf16(pick(&of.a, d.hv * HEAD)),
        beta: pick(&of.b, d.hv),
        a_log: of.a_log.clone(),
        dt_bias: Some(of.dt_bias.clone()),
        state: state.clone(),
        state_len: of.state_len,
        slots: of.state_slots.clone(),
        slots_out: None,
    }
}

/// Elements of a request's state that differ from its snapshot of token `t`.
fn state_differs(of: &VerifySample, n: usize, t: usize, state: &FloatVec, verified: &Verified) -> usize {
    let length = of.switches.dims.state_len();
    let snapshot = (of.snapshot_rows[n] as usize * of.switches.t_alloc + t) * length;
    let Some(snapshots) = &verified.states else { return length };
    let (mine, begin) = (state.view(), of.state_slots[n] as usize * length);
    (0..length).filter(|i| mine.get_f32(begin + i).to_bits() != snapshots[snapshot + i].to_bits()).count()
}

/// Elements of a request's history that differ from its window of token `t`.
fn window_differs(of: &VerifySample, n: usize, t: usize, pool: &FloatVec, verified: &Verified) -> usize {
    let (layout, row, line) = (of.buffers().window_layout, of.snapshot_rows[n] as usize, of.conv_slots[n] as usize);
    let Some(windows) = &verified.windows else { return 1 };
    let (windows, pool) = (windows.bits(), pool.bits());
    let places = (0..of.switches.dims.channels()).flat_map(|c| (0..HISTORY).map(move |tap| (c, tap)));
    places.filter(|(c, j)| windows[layout.offset(row, t, *c, *j)] != pool[of.conv_layout.offset(line, *c, *j)]).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kda_ref::layout::StateOrder;
    use kda_runtime::executor::sim::SimExecutor;

    /// A chain that loses one bit, or one input, is noticed.
    #[test]
    fn a_changed_bit_is_noticed() {
        let switches = VerifySwitches { roll: true, ..VerifySwitches::plain(1, 2, 1, 1) };
        let case = VerifyPlan::of(switches).draw(1);
        let executor = SimExecutor::default();
        let device = Device::simulator(&executor);
        let verified = Verify::new(device, &case).unwrap().run(None).unwrap();
        for variant in [StateOrder::VFirst, StateOrder::KFirst] {
            let of_order = |v: &DecodeVariant| order(*v) == variant && fits(*v, false);
            let variant = DecodeVariant::ALL.into_iter().rev().find(of_order).unwrap();
            assert_eq!(chain(device, variant, &case.sample, &verified).unwrap(), 0);
            let mut other = verified.clone();
            other.out[5] = bf16::from_bits(other.out[5].to_bits() ^ 1);
            if let Some(states) = &mut other.states {
                states[case.sample.snapshot_rows[0] as usize * 2 * HEAD * HEAD + 7] += 1.0;
            }
            assert_eq!(chain(device, variant, &case.sample, &other).unwrap(), 2);
        }
    }
}
