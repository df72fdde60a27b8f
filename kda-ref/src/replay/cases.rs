//! The four kinds of cases: the layer after the convolution, a pool of states, the whole verify, and `delta_h`.

use super::{Case, Comparison, ROUNDED_INPUTS, ReplayError, compare};
use crate::Mode;
use crate::conv::{TapType, WIDTH, convolve};
use crate::conv_verify::{self, ConvLayout, Dims, HEAD, HISTORY, Outputs, Problem, SnapshotRule, WindowLayout};
use crate::delta_h::CHUNK;
use crate::delta_h::plain::{self, DeltaH};
use crate::delta_h::prepare::Prepared;
use crate::floats::{Floats, FloatsMut, Rows};
use crate::forward::{Activated, Outcome, Packed, Raw, States, activate, recurrence};
use crate::gate::Gate;
use crate::layout::StateOrder;
use half::bf16;

fn inconsistent<T>(what: String) -> Result<T, ReplayError> {
    Err(ReplayError::Inconsistent { what })
}

fn check_heads(case: &Case) -> Result<(), ReplayError> {
    let (h, hv) = (case.heads, case.value_heads);
    if h == 0 || hv == 0 || !hv.is_multiple_of(h) {
        return inconsistent(format!("{hv} value heads over {h} query/key heads"));
    }
    Ok(())
}

/// Batch and token extents of `in.q`.
fn extents(case: &Case) -> Result<(usize, usize), ReplayError> {
    match case.shape("in.q")? {
        [batch, tokens, _, _] => Ok((*batch, *tokens)),
        other => {
            Err(ReplayError::Shape { name: "in.q".into(), given: other.to_vec(), needed: vec![0, 0, case.heads, HEAD] })
        }
    }
}

/// Tokens of all rows.
pub(super) fn tokens(case: &Case) -> Result<usize, ReplayError> {
    extents(case).map(|(batch, tokens)| batch * tokens)
}

/// Sizes and inputs of the layer's recurrence over boundaries `cu`; inputs are dense `[B, T]` rows, which packed rows equal.
pub(super) fn activated<'a>(case: &Case, cu: &'a [usize]) -> Result<(Packed<'a>, Activated), ReplayError> {
    check_heads(case)?;
    let (batch, tokens) = extents(case)?;
    let (h, hv) = (case.heads, case.value_heads);
    let raw = Raw {
        q: Floats::F64(case.floats("in.q", &[batch, tokens, h, HEAD])?),
        k: Floats::F64(case.floats("in.k", &[batch, tokens, h, HEAD])?),
        v: Floats::F64(case.floats("in.v", &[batch, tokens, hv, HEAD])?),
        a: Floats::F64(case.floats("in.g_raw", &[batch, tokens, hv, HEAD])?),
        b: Floats::F64(case.floats("in.beta_raw", &[batch, tokens, hv])?),
        a_log: Some(Floats::F64(case.floats("in.A_log", &[hv])?)),
        dt_bias: Some(Floats::F64(case.floats("in.dt_bias", &[hv * HEAD])?)),
        gate: Gate::from_lower_bound(case.lower_bound),
        scale: (HEAD as f64).sqrt().recip(),
    };
    let packed = Packed { cu_seqlens: cu, heads: h, value_heads: hv, keys: HEAD, values: HEAD };
    Ok((packed, activate(&packed, &raw)))
}

/// Runs the layer over boundaries `cu` with these initial states.
fn run_layer(case: &Case, cu: &[usize], initial: Option<&[f64]>, keep: bool) -> Result<Outcome, ReplayError> {
    let (packed, inputs) = activated(case, cu)?;
    let states = States { initial: initial.map(Floats::F64), order: StateOrder::KFirst };
    Ok(recurrence(&packed, &inputs, &states, keep))
}

/// Boundaries of dense or packed rows.
pub(super) fn boundaries(case: &Case) -> Result<Vec<usize>, ReplayError> {
    let (batch, tokens) = extents(case)?;
    if case.tensors.contains_key("in.cu_seqlens") {
        return case.boundaries(batch * tokens);
    }
    Ok((0..=batch).map(|row| row * tokens).collect())
}

/// Dense or packed rows, with or without an initial state; compares the final or the per-token states.
pub(super) fn layer(case: &Case) -> Result<Vec<Comparison>, ReplayError> {
    let cu = boundaries(case)?;
    let initial = case.optional_floats("in.h0", &[cu.len() - 1, case.value_heads, HEAD, HEAD])?;
    let keep = case.tensors.contains_key("out.state_after");
    let got = run_layer(case, &cu, initial, keep)?;
    let state = if keep { ("out.state_after", &got.states) } else { ("out.final_state", &got.final_state) };
    Ok(vec![compare(case, "out.o", &got.o, None)?, compare(case, state.0, state.1, None)?])
}

/// A pool of states updated in place; a negative slot is a padding row.
pub(super) fn pool(case: &Case) -> Result<Vec<Comparison>, ReplayError> {
    let (batch, tokens) = extents(case)?;
    let slots = case.ints("in.slots")?;
    let lengths = case.shape("in.state_pool")?.first().copied().unwrap_or(0);
    let size = case.value_heads * HEAD * HEAD;
    let mut pool = case.floats("in.state_pool", &[lengths, case.value_heads, HEAD, HEAD])?.to_vec();
    if slots.len() != batch || slots.iter().any(|&slot| slot >= 0 && slot as usize >= lengths) {
        return inconsistent(format!("slots {slots:?} of {batch} rows into a pool of {lengths}"));
    }
    let live: Vec<Option<usize>> = slots.iter().map(|&slot| usize::try_from(slot).ok()).collect();
    let gathered: Vec<f64> = live
        .iter()
        .flat_map(|slot| slot.map_or(vec![0.0; size], |slot| pool[slot * size..(slot + 1) * size].to_vec()))
        .collect();
    let cu: Vec<usize> = (0..=batch).map(|row| row * tokens).collect();
    let mut got = run_layer(case, &cu, Some(&gathered), false)?;
    let width = tokens * case.value_heads * HEAD;
    for (row, slot) in live.iter().enumerate() {
        match slot {
            Some(slot) => {
                pool[slot * size..(slot + 1) * size].copy_from_slice(&got.final_state[row * size..(row + 1) * size]);
            }
            None => got.o[row * width..(row + 1) * width].fill(0.0),
        }
    }
    Ok(vec![compare(case, "out.o", &got.o, None)?, compare(case, "out.state_pool", &pool, None)?])
}

/// Convolution and verify through the operator itself, rows of equal length.
pub(super) fn conv(case: &Case) -> Result<Vec<Comparison>, ReplayError> {
    check_heads(case)?;
    let dims = |n, t| Dims { n, t, h: case.heads, hv: case.value_heads };
    let channels = dims(0, 0).channels();
    let total = case.shape("in.x_qkv")?.first().copied().unwrap_or(0);
    let cu = case.boundaries(total)?;
    let n = cu.len() - 1;
    let t = total.checked_div(n).unwrap_or(0);
    if t == 0 || cu.windows(2).any(|w| w[1] - w[0] != t) {
        return inconsistent(format!("the operator takes rows of one length, the boundaries are {cu:?}"));
    }
    let d = dims(n, t);
    let bf16s = |name: &str, shape: &[usize]| -> Result<Vec<bf16>, ReplayError> {
        Ok(case.floats(name, shape)?.iter().map(|&x| bf16::from_f64(x)).collect())
    };
    let f32s = |name: &str, shape: &[usize]| -> Result<Vec<f32>, ReplayError> {
        Ok(case.floats(name, shape)?.iter().map(|&x| x as f32).collect())
    };
    let (x, weights) = (bf16s("in.x_qkv", &[total, channels])?, bf16s("in.conv_weight", &[channels, WIDTH])?);
    let history = bf16s("in.conv_state", &[n, channels, HISTORY])?;
    let (a, b) = (bf16s("in.g_raw", &[1, total, d.hv, HEAD])?, bf16s("in.beta_raw", &[1, total, d.hv])?);
    let (a_log, dt_bias) = (f32s("in.A_log", &[d.hv])?, f32s("in.dt_bias", &[d.hv * HEAD])?);
    let state = swap_orders(case.floats("in.h0", &[n, d.hv, HEAD, HEAD])?);
    let state: Vec<f32> = state.iter().map(|&s| s as f32).collect();
    let identity: Vec<i32> = (0..n as i32).collect();
    let problem = Problem {
        dims: d,
        x: &x,
        x_row_stride: channels,
        conv_weight: Floats::Bf16(&weights),
        conv_bias: None,
        conv_state: Floats::Bf16(&history),
        conv_layout: ConvLayout::window_innermost(n, channels),
        conv_slots: &identity,
        state: Floats::F32(&state),
        state_len: n,
        state_slot_stride: d.state_len(),
        state_slots: &identity,
        snapshot_rows: &identity,
        snapshot_len: n,
        t_alloc: t,
        snapshot_rule: SnapshotRule::ByIndex,
        a: &a,
        b: &b,
        a_log: Some(&a_log),
        dt_bias: &dt_bias,
        scale: (HEAD as f64).sqrt().recip(),
        lower_bound: case.lower_bound,
        null: -1,
        roll: true,
    };
    let (mut o, mut o_bf16) = (vec![f64::NAN; total * d.hv * HEAD], vec![bf16::NAN; total * d.hv * HEAD]);
    let mut states = vec![f64::NAN; n * t * d.state_len()];
    let (mut windows, mut rolled) = (vec![bf16::NAN; total * channels * HISTORY], history.clone());
    let mut outputs = Outputs {
        out: &mut o,
        out_bf16: &mut o_bf16,
        out_row_stride: d.hv * HEAD,
        states: Some(&mut states),
        windows: Some((FloatsMut::Bf16(&mut windows), WindowLayout::window_innermost(t, channels))),
        rolled: Some(FloatsMut::Bf16(&mut rolled)),
    };
    if let Err(refusal) = conv_verify::run(&problem, &mut outputs, Mode::Exact) {
        return inconsistent(refusal.to_string());
    }
    let states = swap_orders(&states);
    let widen = |x: &[bf16]| -> Vec<f64> { x.iter().map(|x| x.to_f64()).collect() };
    let mut compared = vec![
        compare(case, "out.o", &o, None)?,
        compare(case, "out.conv_out", &convolved(&x, &weights, &history, d), None)?,
    ];
    if case.tensors.contains_key("out.state_after") {
        compared.push(compare(case, "out.state_after", &states, None)?);
        compared.push(compare(case, "out.conv_state_after", &widen(&windows), None)?);
    } else {
        let last: Vec<f64> =
            (0..n).flat_map(|row| &states[((row + 1) * t - 1) * d.state_len()..][..d.state_len()]).copied().collect();
        compared.push(compare(case, "out.final_state", &last, None)?);
        compared.push(compare(case, "out.conv_state", &widen(&rolled), None)?);
    }
    Ok(compared)
}

/// Transposes every 128 by 128 state.
fn swap_orders(states: &[f64]) -> Vec<f64> {
    let swap = |state: &[f64]| StateOrder::VFirst.load(HEAD, HEAD, |i| state[i]);
    states.chunks_exact(HEAD * HEAD).flat_map(swap).collect()
}

/// Convolution and SiLU without rounding, `[N*T, D]`; history `[N, D, 3]`.
fn convolved(x: &[bf16], weights: &[bf16], history: &[bf16], d: Dims) -> Vec<f64> {
    let channels = d.channels();
    let mut y = Vec::with_capacity(x.len());
    for (n, t) in (0..d.n).flat_map(|n| (0..d.t).map(move |t| (n, t))) {
        for c in 0..channels {
            let raw = |step: usize| match step.checked_sub(HISTORY) {
                Some(token) => x[(n * d.t + token) * channels + c],
                None => history[(n * channels + c) * HISTORY + step],
            };
            let window = std::array::from_fn(|j| raw(t + j).to_f32());
            let taps = std::array::from_fn(|j| weights[c * WIDTH + j].to_f32());
            y.push(convolve(window, taps, None, TapType::Bf16, Mode::Exact));
        }
    }
    y
}

/// Inputs of the recurrence over chunks as they are stored, in fp32: kg, w, u and the gate in log2 units.
pub(super) fn chunk_inputs(case: &Case) -> Result<(usize, Prepared), ReplayError> {
    let chunk_count = case.shape("out.w")?.first().copied().unwrap_or(0);
    let tokens = chunk_count * CHUNK;
    let input = |name: &str| case.floats(name, &[chunk_count, CHUNK, HEAD]);
    let (w, u, cumulative, k) = (input("out.w")?, input("out.u")?, input("out.g_cumsum")?, input("out.k_norm")?);
    let gk: Vec<f64> = cumulative.iter().map(|g| g * std::f64::consts::LOG2_E).collect();
    let kg: Vec<f64> = (0..tokens * HEAD)
        .map(|i| {
            let (token, c) = (i / HEAD, i % HEAD);
            let last = token / CHUNK * CHUNK + CHUNK - 1;
            k[i] * (gk[last * HEAD + c] - gk[i]).exp2()
        })
        .collect();
    Ok((tokens, Prepared { kg, w: w.to_vec(), u: u.to_vec(), gk }))
}

/// The recurrence over chunks on the stored fp32 inputs.
pub(super) fn delta_h(case: &Case) -> Result<Vec<Comparison>, ReplayError> {
    let (tokens, inputs) = chunk_inputs(case)?;
    let problem = DeltaH {
        packed: Packed { cu_seqlens: &[0, tokens], heads: 1, value_heads: 1, keys: HEAD, values: HEAD },
        kg: Rows::packed(Floats::F64(&inputs.kg), HEAD),
        w: Rows::packed(Floats::F64(&inputs.w), HEAD),
        u: Rows::packed(Floats::F64(&inputs.u), HEAD),
        gk: Rows::packed(Floats::F64(&inputs.gk), HEAD),
        states: States {
            initial: Some(Floats::F64(case.floats("in.h0", &[1, 1, HEAD, HEAD])?)),
            order: StateOrder::KFirst,
        },
        h_order: StateOrder::KFirst,
    };
    let got = plain::run(&problem, Mode::Exact);
    Ok(vec![
        compare(case, "out.h", &got.h, Some(ROUNDED_INPUTS))?,
        compare(case, "out.final_state", &got.final_state, Some(ROUNDED_INPUTS))?,
    ])
}
