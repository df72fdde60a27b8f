//! How far a state drifts from float64 over thousands of tokens, with an fp32 and with a bf16 pool.
//!
//! q, k and v are given, so that nothing but the state carries rounding on. The bound at each mark is twice the error of the
//! contract's emulation at the same token of the same stream (four times the largest single error): a kernel that loses more a
//! step than the pool's rounding explains drifts past it.

use super::Failure;
use super::call::Call;
use super::case::Case;
use super::judge::{fits, order};
use crate::checks::{Device, Measured, Sink};
use kda_kernels::decode::DecodeVariant;
use kda_ref::Mode;
use kda_ref::budget::Budget;
use kda_ref::decode::drift::{MARKS, Stream};
use kda_ref::floats::FloatVec;
use kda_ref::layout::StateOrder;

/// One variant for each type and order of the state, the widest: it runs on one CTA.
fn variants() -> impl Iterator<Item = DecodeVariant> {
    let kinds =
        [false, true].into_iter().flat_map(|narrow| [StateOrder::VFirst, StateOrder::KFirst].map(|o| (narrow, o)));
    kinds.filter_map(|(narrow, of)| {
        DecodeVariant::ALL.into_iter().filter(|v| fits(*v, narrow) && order(*v) == of).max_by_key(|v| v.bv())
    })
}

/// The curve of each variant, a row a mark.
pub fn run(device: Device, seed: u64, sink: Sink, share: f64) -> Result<(), Failure> {
    for variant in variants() {
        let narrow = fits(variant, true);
        let (mut exact, mut emulated) = (Stream::new(seed, None), Stream::new(seed, Some(narrow)));
        let mut state = emulated.pool();
        for token in 1..=MARKS[MARKS.len() - 1] {
            let mut sample = emulated.sample();
            sample.state = state;
            let case = Case { sample, index_stride: 1 }.in_order(order(variant));
            state = Call::new(device, &case)?.run(Some(variant))?.state;
            exact.step(Mode::Exact)?;
            emulated.step(Mode::Emulate)?;
            if MARKS.contains(&token) {
                let wide = |values: &FloatVec| values.view().widened(0, values.view().len());
                let budget = Budget::of_stored(exact.state(), emulated.state());
                let judgement = budget.judge(exact.state(), &wide(&state));
                let what = if narrow { "bf16" } else { "fp32" };
                let case = format!("{what} state after {token} tokens, {}", variant.desc().entry);
                let (error, limit) = (judgement.error, judgement.limit);
                let row =
                    |output: &str, error, budget| Measured { case: case.clone(), output: output.into(), error, budget };
                sink(row("relative drift of the state", error.rms, limit.rms), share);
                sink(row("largest drift of an element", error.max, limit.max), share);
            }
        }
    }
    Ok(())
}
