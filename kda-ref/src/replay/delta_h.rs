//! Cases as calls of `delta_h`: their inputs rounded to what the operator takes.

use super::{Case, ReplayError, cases};
use crate::chunk;
use crate::delta_h::prepare::Prepared;
use crate::delta_h::sample::{Sample, Switches};
use crate::delta_h::{HEAD, STATE};
use crate::floats::FloatVec;
use crate::round::bf16_from_f64;
use half::bf16;

/// A case as a call, and what a float64 reference gives before the inputs are rounded.
#[derive(Clone, Debug)]
pub struct DeltaHCase {
    /// The call: fp32 states `[K, V]`, every chunk state, dense rows.
    pub sample: Sample,
    /// Expected final states `[N, HV, K, V]`.
    pub final_state: Vec<f64>,
    /// Expected chunk states `[NT, HV, K, V]`; absent where the case has none.
    pub h: Option<Vec<f64>>,
}

/// The case as a call of `delta_h`: its own chunks, or those that the layer's inputs give. `None` for cases of other operators
/// and those without final states.
///
/// # Errors
/// [`ReplayError`] when a tensor is missing or has another shape or kind than the case needs.
pub fn delta_h_call(case: &Case) -> Result<Option<DeltaHCase>, ReplayError> {
    let has = |name: &str| case.tensors.contains_key(name);
    let chunks = has("out.g_cumsum");
    if !has("out.final_state") || has("in.conv_state") || has("in.slots") || has("in.prompt") {
        return Ok(None);
    }
    let (hv, cu, rows) = if chunks {
        let (tokens, inputs) = cases::chunk_inputs(case)?;
        (1, vec![0, tokens], inputs)
    } else {
        let cu = cases::boundaries(case)?;
        let (packed, inputs) = cases::activated(case, &cu)?;
        let p = chunk::prepare(&packed, &inputs);
        (case.value_heads, cu.clone(), Prepared { kg: p.kg, w: p.w, u: p.u, gk: p.gk })
    };
    let shape = [cu.len() - 1, hv, HEAD, HEAD];
    let initial = case.optional_floats("in.h0", &shape)?;
    let final_state = case.floats("out.final_state", &shape)?.to_vec();
    let h = if chunks { Some(case.floats("out.h", &[cu[1] / 64, HEAD, HEAD])?.to_vec()) } else { None };
    Ok(Some(DeltaHCase { sample: call(hv, &cu, &rows, initial), final_state, h }))
}

fn call(hv: usize, cu: &[usize], rows: &Prepared, initial: Option<&[f64]>) -> Sample {
    let n = cu.len() - 1;
    let round = |x: &[f64]| -> Vec<bf16> { x.iter().map(|x| bf16_from_f64(*x)).collect() };
    let zeros = vec![0.0; n * hv * STATE];
    let capacity = cu.windows(2).map(|pair| (pair[1] - pair[0]).div_ceil(crate::delta_h::CHUNK)).sum();
    Sample {
        switches: Switches::plain(hv),
        cu_seqlens: cu.iter().map(|row| *row as i64).collect(),
        rows: cu[n],
        kg: round(&rows.kg),
        w: round(&rows.w),
        u: round(&rows.u),
        gate: rows.gk.iter().map(|g| *g as f32).collect(),
        strides: [hv * HEAD; 5],
        pool: FloatVec::F32(initial.unwrap_or(&zeros).iter().map(|x| *x as f32).collect()),
        initial_count: n,
        initial_slots: None,
        has_initial: None,
        final_count: n,
        final_slots: None,
        slot_stride: hv * STATE,
        capacity,
        h_stride: hv * STATE,
    }
}
