//! Cases as calls of `tc_verify`, and of `tc_commit` on its records.

use super::{Case, Comparison, ReplayError, StoredType, cases, compare};
use crate::Mode;
use crate::conv::{TapType, WIDTH};
use crate::floats::{FloatVec, Floats};
use crate::layout::StateOrder;
use crate::round::bf16_from_f64;
use crate::tc_verify::sample::{Sample, Switches};
use crate::tc_verify::{ConvOrder, HEAD, HISTORY, MAX_WINDOW};
use crate::{tc_commit, tc_verify};
use half::bf16;

/// The case as a call of `tc_verify`: one request for each sequence, a window of the longest, dense, slot b for request b. `None`
/// for cases of other operators, those with grouped values, longer sequences, and inputs that bf16 does not hold.
///
/// # Errors
/// [`ReplayError`] when a tensor is missing or has another shape or kind than the case needs.
pub fn tc_verify_call(case: &Case) -> Result<Option<Sample>, ReplayError> {
    let has = |name: &str| case.tensors.contains_key(name);
    let (heads, fused) = (case.heads, has("in.conv_state"));
    if heads != case.value_heads || has("out.g_cumsum") || has("in.slots") || has("in.prompt") {
        return Ok(None);
    }
    let total = if fused { case.shape("in.x_qkv")?.first().copied().unwrap_or(0) } else { cases::tokens(case)? };
    let cu = if fused { case.boundaries(total)? } else { cases::boundaries(case)? };
    let (n_req, width) = (cu.len() - 1, heads * HEAD);
    let lens: Vec<usize> = cu.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let window = lens.iter().copied().max().unwrap_or(0);
    let projections: &[&str] =
        if fused { &["in.x_qkv", "in.conv_state", "in.conv_weight"] } else { &["in.q", "in.k", "in.v"] };
    for name in projections.iter().chain(&["in.g_raw", "in.beta_raw"]) {
        if case.floats_stored(name)?.0 != StoredType::Bf16 {
            return Ok(None);
        }
    }
    if !(1..=MAX_WINDOW).contains(&window) {
        return Ok(None);
    }
    // A tensor whose elements follow each other token by token, whatever its leading axes are.
    let rows = |name: &str, width: usize| -> Result<Vec<bf16>, ReplayError> {
        let (_, values) = case.floats_stored(name)?;
        if values.len() != total * width {
            let given = case.shape(name)?.to_vec();
            return Err(ReplayError::Shape { name: name.into(), given, needed: vec![total, width] });
        }
        Ok(values.iter().map(|x| bf16_from_f64(*x)).collect())
    };
    let qkv = if fused {
        rows("in.x_qkv", 3 * width)?
    } else {
        let parts = [rows("in.q", width)?, rows("in.k", width)?, rows("in.v", width)?];
        (0..total).flat_map(|row| parts.iter().flat_map(move |part| &part[row * width..][..width])).copied().collect()
    };
    let f32s = |name: &str, len: usize| -> Result<Vec<f32>, ReplayError> {
        Ok(case.floats(name, &[len])?.iter().map(|x| *x as f32).collect())
    };
    let (state, bf16_state) = states(case, n_req, heads)?;
    let taps = match fused {
        true => Some(FloatVec::Bf16(
            case.floats("in.conv_weight", &[3 * width, WIDTH])?.iter().map(|x| bf16_from_f64(*x)).collect(),
        )),
        false => None,
    };
    let conv_pitch = (window + HISTORY - 1) * 3 * width;
    Ok(Some(Sample {
        switches: Switches {
            ragged: true,
            lower_bound: case.lower_bound,
            taps: taps.as_ref().map(|_| TapType::Bf16),
            order: ConvOrder::ChannelMajor,
            bf16_state,
            ..Switches::plain(n_req, heads, window)
        },
        total,
        slots: n_req,
        qkv,
        qkv_pitch: 3 * width,
        raw_g: rows("in.g_raw", width)?,
        g_pitch: width,
        raw_beta: rows("in.beta_raw", heads)?,
        beta_pitch: heads,
        a_log: Some(f32s("in.A_log", heads)?),
        dt_bias: f32s("in.dt_bias", width)?,
        state,
        state_pitch: width * HEAD,
        conv: if fused { histories(case, n_req, 3 * width, window + HISTORY - 1)? } else { Vec::new() },
        taps,
        conv_pitch,
        accepted: vec![1; n_req],
        slot_of: (0..n_req as i32).collect(),
        query_start: cu.iter().map(|row| *row as i32).collect(),
        out_pitch: width,
        rows: n_req,
    }))
}

/// Initial states `[N, heads, V, K]`, and whether they are of bf16; zeros of fp32 where the case has none.
fn states(case: &Case, n: usize, heads: usize) -> Result<(FloatVec, bool), ReplayError> {
    let shape = [n, heads, HEAD, HEAD];
    let Some(k_first) = case.optional_floats("in.h0", &shape)? else {
        return Ok((FloatVec::filled(false, shape.iter().product(), 0.0), false));
    };
    let v_first = k_first.chunks_exact(HEAD * HEAD).flat_map(|s| StateOrder::VFirst.load(HEAD, HEAD, |i| s[i]));
    Ok(match case.floats_stored("in.h0")?.0 {
        StoredType::Bf16 => (FloatVec::Bf16(v_first.map(bf16_from_f64).collect()), true),
        _ => (FloatVec::F32(v_first.map(|s| s as f32).collect()), false),
    })
}

/// Histories `[N, channels, rows]`: the case's three rows, and rows behind them that hold no number.
fn histories(case: &Case, n: usize, channels: usize, rows: usize) -> Result<Vec<bf16>, ReplayError> {
    let given = case.floats("in.conv_state", &[n, channels, HISTORY])?;
    let row =
        |row: &[f64]| (0..rows).map(|i| row.get(i).map_or(bf16::NAN, |x| bf16_from_f64(*x))).collect::<Vec<bf16>>();
    Ok(given.chunks_exact(HISTORY).flat_map(row).collect())
}

/// Verifies the case and commits its records in exact mode: outputs, and the states after every number of tokens that the case
/// expects. `None` as for [`tc_verify_call`].
///
/// # Errors
/// As [`tc_verify_call`].
pub fn tc_verify_replay(case: &Case) -> Result<Option<Vec<Comparison>>, ReplayError> {
    let Some(sample) = tc_verify_call(case)? else { return Ok(None) };
    let refused = |refusal: tc_verify::Refusal| ReplayError::Inconsistent { what: refusal.to_string() };
    let mut verified = sample.buffers();
    let problem = tc_verify::Problem { scale: (HEAD as f64).sqrt().recip(), ..sample.problem() };
    tc_verify::run(&problem, &mut verified.outputs(), Mode::Exact).map_err(refused)?;
    let state_after = |counts: &[i32]| -> Result<Vec<f64>, ReplayError> {
        let commit = tc_commit::Problem {
            n_req: problem.n_req,
            heads: problem.heads,
            window: problem.window,
            slots: problem.slots,
            state: problem.state,
            state_pitch: problem.state_pitch,
            corr: Floats::F64(&verified.corr),
            kg: Floats::F64(&verified.kg),
            a_log: problem.a_log,
            dt_bias: problem.dt_bias,
            conv: None,
            slot_of: problem.slot_of,
            destinations: None,
            counts,
            boundary: None,
            lower_bound: problem.lower_bound,
            null: problem.null,
        };
        let mut state = problem.state.widened(0, problem.state.len());
        tc_commit::run(&commit, &mut tc_commit::Outputs { state: &mut state, conv: None }, Mode::Exact)
            .map_err(refused)?;
        let heads = state.chunks_exact(HEAD * HEAD);
        Ok(heads.flat_map(|s| StateOrder::KFirst.load(HEAD, HEAD, |i| s[i % HEAD * HEAD + i / HEAD])).collect())
    };
    let lens = problem.query_start.windows(2).map(|pair| pair[1] - pair[0]);
    let mut compared = vec![compare(case, "out.o", &verified.out, None)?];
    if case.tensors.contains_key("out.state_after") {
        let runs = (1..=problem.window as i32).map(|n| state_after(&vec![n; problem.n_req]));
        let runs = runs.collect::<Result<Vec<_>, _>>()?;
        let width = problem.state_len();
        let token = |(b, len): (usize, i32)| (0..len as usize).map(move |t| (b, t)).collect::<Vec<_>>();
        let tokens = lens.enumerate().flat_map(token);
        let states: Vec<f64> = tokens.flat_map(|(b, t)| &runs[t][b * width..][..width]).copied().collect();
        compared.push(compare(case, "out.state_after", &states, None)?);
    } else {
        compared.push(compare(case, "out.final_state", &state_after(&lens.collect::<Vec<i32>>())?, None)?);
    }
    Ok(Some(compared))
}
