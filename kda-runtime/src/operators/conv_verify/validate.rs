//! Whether the arguments of a call fit each other, said in the names of [`Problem`].

use super::NAME;
use super::problem::{Problem, SnapshotRule};
use crate::operators::OpError;
use crate::operators::arguments::{Argument, histories, whole};
use crate::operators::limits::*;
use kda_core::Elem;

/// Most tokens: kernels count the output elements of a head, T * V, in 32 bits.
const MOST_TOKENS: u64 = 1 << 24;

/// Checks a call. `Ok(true)` if the histories are `[3, D]` in memory, `Ok(false)` for `[D, 3]`.
pub(super) fn validate(p: &Problem) -> Result<bool, OpError> {
    let b = Argument::new(NAME, "b", &p.b, &["N", "T", "HV"], &[Elem::BF16])?;
    let workspace = Argument::new(NAME, "workspace", &p.workspace, &["N", "H"], &[Elem::U32])?;
    let (n, t, hv, h) = (b.size(0), b.size(1), b.size(2), workspace.size(1));
    b.at_least(1, 1, "T tokens of each request")?;
    b.at_most(0, MOST_REQUESTS, "a grid has a row of CTAs a request")?;
    b.at_most(1, MOST_TOKENS, "T * V is counted in 32 bits")?;
    b.at_most(2, MOST, WHY_COUNT)?;
    if p.null < -1 {
        let needed = "-1 is needed, or 0 where slot 0 is the null slot (negative indices must not be live)";
        return Err(OpError::Scalar { op: NAME, param: "null", given: p.null.into(), needed });
    }
    if h == 0 || hv == 0 || !hv.is_multiple_of(h) {
        return Err(OpError::Heads { op: NAME, heads: h, value_heads: hv });
    }
    let channels = h.saturating_mul(2 * HEAD).saturating_add(hv.saturating_mul(HEAD));
    let sizes = Sizes { n, t, hv, channels, why: format!("H = {h} as in `workspace`, HV = {hv} as in `b`") };
    workspace.exactly(0, n, "N as in `b`")?;
    workspace.stride(1, 1)?;
    workspace.distinct()?;
    b.stride(2, 1)?;
    inputs(p, &sizes)?;
    index_maps(p, &sizes)?;
    let channels_inner = pools(p, &sizes)?;
    outputs(p, &sizes, channels_inner)?;
    b.memory(align::BF16)?;
    workspace.memory(align::SCALARS)?;
    Ok(channels_inner)
}

/// Sizes that every argument is held against.
struct Sizes {
    n: u64,
    t: u64,
    hv: u64,
    /// D.
    channels: u64,
    /// Whence D comes.
    why: String,
}

impl Sizes {
    fn requests(&self, argument: &Argument) -> Result<(), OpError> {
        argument.exactly(0, self.n, "N as in `b`")
    }

    /// Axes N and T.
    fn rows(&self, argument: &Argument) -> Result<(), OpError> {
        self.requests(argument)?;
        argument.exactly(1, self.t, "T as in `b`")
    }

    fn channels(&self, argument: &Argument, axis: usize) -> Result<(), OpError> {
        let why = format!("D = 2*H*128 + HV*128, with {}", self.why);
        argument.exactly(axis, self.channels, &why)
    }

    fn value_heads(&self, argument: &Argument, axis: usize) -> Result<(), OpError> {
        argument.exactly(axis, self.hv, "HV as in `b`")
    }
}

fn inputs(p: &Problem, sizes: &Sizes) -> Result<(), OpError> {
    let x = Argument::new(NAME, "x", &p.x, &["N", "T", "D"], &[Elem::BF16])?;
    sizes.rows(&x)?;
    sizes.channels(&x, 2)?;
    x.at_most(2, MOST, WHY_COUNT)?;
    x.stride(2, 1)?;
    x.memory(align::BF16)?;
    let a = Argument::new(NAME, "a", &p.a, &["N", "T", "HV", "K"], &[Elem::BF16])?;
    sizes.rows(&a)?;
    sizes.value_heads(&a, 2)?;
    a.exactly(3, HEAD, WHY_HEAD)?;
    a.stride(3, 1)?;
    a.stride(2, HEAD)?;
    a.memory(align::BF16)?;
    let taps = Argument::new(NAME, "conv_weight", &p.conv_weight, &["D", "4"], &[Elem::F32, Elem::BF16])?;
    sizes.channels(&taps, 0)?;
    taps.exactly(1, TAPS, "the convolution has 4 taps")?;
    taps.stride(1, 1)?;
    taps.stride(0, TAPS)?;
    taps.memory(if p.conv_weight.elem == Elem::F32 { align::WIDE } else { align::NARROW_TAPS })?;
    if let Some(bias) = &p.conv_bias {
        let bias = Argument::new(NAME, "conv_bias", bias, &["D"], &[Elem::F32])?;
        sizes.channels(&bias, 0)?;
        bias.stride(0, 1)?;
        bias.memory(align::SCALARS)?;
    }
    if let Some(a_log) = &p.a_log {
        let a_log = Argument::new(NAME, "a_log", a_log, &["HV"], &[Elem::F32])?;
        sizes.value_heads(&a_log, 0)?;
        a_log.stride(0, 1)?;
        a_log.memory(align::SCALARS)?;
    }
    let dt_bias = Argument::new(NAME, "dt_bias", &p.dt_bias, &["HV", "K"], &[Elem::F32])?;
    sizes.value_heads(&dt_bias, 0)?;
    dt_bias.exactly(1, HEAD, WHY_HEAD)?;
    dt_bias.stride(1, 1)?;
    dt_bias.stride(0, HEAD)?;
    dt_bias.memory(align::SCALARS)
}

fn index_maps(p: &Problem, sizes: &Sizes) -> Result<(), OpError> {
    let maps = [("conv_slots", &p.conv_slots), ("state_slots", &p.state_slots), ("snapshot_rows", &p.snapshot_rows)];
    for (name, map) in maps {
        let map = Argument::new(NAME, name, map, &["N"], &[Elem::I32])?;
        sizes.requests(&map)?;
        map.memory(align::SCALARS)?;
    }
    Ok(())
}

fn pools(p: &Problem, sizes: &Sizes) -> Result<bool, OpError> {
    let pool = Argument::new(NAME, "conv_state", &p.conv_state, &["lines", "D", "3"], &[Elem::F32, Elem::BF16])?;
    pool.at_most(0, MOST_SLOTS, "lines are i32 indices")?;
    sizes.channels(&pool, 1)?;
    pool.exactly(2, HISTORY, "a history holds 3 inputs")?;
    let channels_inner = histories(&pool, &p.conv_state, 1)?;
    pool.stride_multiple(0, whole(p.conv_state.elem))?;
    if p.roll {
        pool.distinct()?;
    }
    pool.memory(align::WIDE)?;
    let state = Argument::new(NAME, "state", &p.state, &["slots", "HV", "V", "K"], &[Elem::F32])?;
    state.at_most(0, MOST_SLOTS, "slots are i32 indices")?;
    heads(&state, sizes, 1)?;
    state.stride_multiple(0, whole(Elem::F32))?;
    state.memory(align::WIDE)?;
    Ok(channels_inner)
}

fn outputs(p: &Problem, sizes: &Sizes, channels_inner: bool) -> Result<(), OpError> {
    let steps = "T_alloc is at least T";
    if let Some(states) = &p.states_out {
        let axes = &["rows", "T_alloc", "HV", "V", "K"];
        let argument = Argument::new(NAME, "states_out", states, axes, &[Elem::F32])?;
        argument.at_most(0, MOST_SLOTS, "rows are i32 indices")?;
        argument.at_least(1, sizes.t, steps)?;
        heads(&argument, sizes, 2)?;
        if p.snapshot_rule == SnapshotRule::ByBatch {
            argument.at_least(0, sizes.n, "N rows, as the rule is by batch")?;
        }
        argument.stride_multiple(0, whole(Elem::F32))?;
        argument.stride_multiple(1, whole(Elem::F32))?;
        argument.distinct()?;
        argument.memory(align::WIDE)?;
    }
    if let Some(windows) = &p.windows_out {
        let axes = &["rows", "T_alloc", "D", "3"];
        let argument = Argument::new(NAME, "windows_out", windows, axes, &[Elem::F32, Elem::BF16])?;
        if windows.elem != p.conv_state.elem {
            let needed = format!("{}, as in `conv_state`,", p.conv_state.elem);
            return Err(OpError::Dtype { op: NAME, param: "windows_out", given: windows.elem, needed });
        }
        argument.at_most(0, MOST_SLOTS, "rows are i32 indices")?;
        argument.at_least(1, sizes.t, steps)?;
        sizes.channels(&argument, 2)?;
        argument.exactly(3, HISTORY, "a window holds 3 inputs")?;
        if histories(&argument, windows, 2)? != channels_inner {
            let order = if channels_inner { "[3, D]" } else { "[D, 3]" };
            return Err(argument.layout(format!("the memory order of `conv_state`, {order}, is needed")));
        }
        argument.stride_multiple(0, whole(windows.elem))?;
        argument.stride_multiple(1, whole(windows.elem))?;
        argument.distinct()?;
        argument.memory(align::WIDE)?;
    }
    let out = Argument::new(NAME, "out", &p.out, &["N", "T", "HV", "V"], &[Elem::BF16])?;
    sizes.rows(&out)?;
    sizes.value_heads(&out, 2)?;
    out.exactly(3, HEAD, WHY_HEAD)?;
    out.stride(3, 1)?;
    out.stride(2, HEAD)?;
    out.stride_multiple(0, whole(Elem::BF16))?;
    out.stride_multiple(1, whole(Elem::BF16))?;
    out.distinct()?;
    out.memory(align::WIDE)
}

/// Axes HV, V, K from `axis` on, dense.
fn heads(argument: &Argument, sizes: &Sizes, axis: usize) -> Result<(), OpError> {
    sizes.value_heads(argument, axis)?;
    argument.exactly(axis + 1, HEAD, WHY_HEAD)?;
    argument.exactly(axis + 2, HEAD, WHY_HEAD)?;
    argument.stride(axis + 2, 1)?;
    argument.stride(axis + 1, HEAD)?;
    argument.stride(axis, HEAD * HEAD)
}

#[cfg(test)]
mod tests {
    use super::align;
    use kda_kernels::conv_verify;

    /// The operator asks for what the strictest variant asks for, so that a call does not depend on the choice.
    #[test]
    fn alignments_are_those_of_the_kernels() {
        for (names, align) in [
            (&["x", "a", "b"][..], align::BF16),
            (&["taps_bf16"], align::NARROW_TAPS),
            (&["conv_bias", "a_log", "dt_bias", "arrivals"], align::SCALARS),
            (&["conv_slots", "state_slots", "snapshot_rows"], align::SCALARS),
            (&["taps_f32", "conv", "state", "states_out"], align::WIDE),
            (&["windows_out", "out"], align::WIDE),
        ] {
            for name in names {
                assert_eq!(align::strictest(conv_verify::DESCS, name), align, "{name}");
            }
        }
    }
}
