//! Whether the arguments of a call fit each other, said in the names of [`Problem`].

use super::NAME;
use super::problem::{Convolution, Problem, Tokens};
use crate::operators::OpError;
use crate::operators::arguments::{Argument, histories, whole};
use crate::operators::limits::*;
use kda_core::{Elem, TensorArg};

/// Largest distance between two inputs of a channel.
const MOST_TAP_STEP: u64 = (1 << 30) - 8;

const WHY_REQUESTS: &str = "N as in `beta`";

/// What the arguments say of sizes and memory orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// H.
    pub heads: u64,
    /// HV.
    pub value_heads: u64,
    /// The histories are `[3, D]` in memory, not `[D, 3]`.
    pub channels_inner: bool,
    /// The state is `[K, V]` in memory, not `[V, K]`.
    pub k_first: bool,
    /// Type of the state.
    pub state: Elem,
}

/// Checks a call.
pub(super) fn validate(p: &Problem) -> Result<Layout, OpError> {
    let beta = Argument::new(NAME, "beta", &p.beta, &["N", "HV"], &[Elem::BF16])?;
    let (n, hv) = (beta.size(0), beta.size(1));
    beta.at_most(0, MOST_REQUESTS, "a grid has a row of CTAs a request")?;
    beta.at_most(1, MOST, WHY_COUNT)?;
    if p.null < -1 {
        let needed = "-1 is needed, or 0 where slot 0 is the null slot (negative indices must not be live)";
        return Err(OpError::Scalar { op: NAME, param: "null", given: p.null.into(), needed });
    }
    let (heads, whence) = match &p.tokens {
        Tokens::Given { q, .. } => (Argument::new(NAME, "q", q, &["N", "H", "K"], &[Elem::BF16])?.size(1), "`q`"),
        Tokens::Convolved(c) => {
            let workspace = Argument::new(NAME, "workspace", &c.workspace, &["N", "H"], &[Elem::U32])?;
            (workspace.size(1), "`workspace`")
        }
    };
    if heads == 0 || hv == 0 || !hv.is_multiple_of(heads) {
        return Err(OpError::Heads { op: NAME, heads, value_heads: hv });
    }
    beta.stride(1, 1)?;
    beta.memory(align::BF16)?;
    let sizes = Sizes { n, h: heads, hv, whence };
    let channels_inner = match &p.tokens {
        Tokens::Given { q, k, v } => {
            sizes.rows("q", q, &["N", "H", "K"], heads, whence)?;
            sizes.rows("k", k, &["N", "H", "K"], heads, whence)?;
            sizes.rows("v", v, &["N", "HV", "V"], hv, "`beta`")?;
            false
        }
        Tokens::Convolved(c) => convolution(c, &sizes)?,
    };
    gate(p, &sizes)?;
    sizes.index_map("state_slots", Some(&p.state_slots))?;
    sizes.index_map("state_slots_out", p.state_slots_out.as_ref())?;
    let k_first = state(p, &sizes)?;
    let out = sizes.rows("out", &p.out, &["N", "HV", "V"], hv, "`beta`")?;
    out.distinct()?;
    Ok(Layout { heads, value_heads: hv, channels_inner, k_first, state: p.state.elem })
}

/// Sizes that every argument is held against.
struct Sizes {
    n: u64,
    h: u64,
    hv: u64,
    /// Whence H comes.
    whence: &'static str,
}

impl Sizes {
    /// Rows of bf16 heads, dense inside a row.
    fn rows<'a>(
        &self,
        name: &'static str,
        tensor: &'a TensorArg,
        axes: &'static [&'static str],
        heads: u64,
        whence: &str,
    ) -> Result<Argument<'a>, OpError> {
        let rows = Argument::new(NAME, name, tensor, axes, &[Elem::BF16])?;
        rows.exactly(0, self.n, WHY_REQUESTS)?;
        rows.exactly(1, heads, &format!("{} as in {whence}", axes[1]))?;
        rows.exactly(2, HEAD, WHY_HEAD)?;
        rows.stride(2, 1)?;
        rows.stride(1, HEAD)?;
        rows.memory(align::BF16)?;
        Ok(rows)
    }

    fn channels(&self, argument: &Argument, axis: usize) -> Result<(), OpError> {
        let channels = self.h.saturating_mul(2 * HEAD).saturating_add(self.hv.saturating_mul(HEAD));
        let (h, hv, whence) = (self.h, self.hv, self.whence);
        let why = format!("D = 2*H*128 + HV*128, with H = {h} as in {whence}, HV = {hv} as in `beta`");
        argument.exactly(axis, channels, &why)
    }

    fn index_map(&self, name: &'static str, map: Option<&TensorArg>) -> Result<(), OpError> {
        let Some(map) = map else { return Ok(()) };
        let map = Argument::new(NAME, name, map, &["N"], &[Elem::I32])?;
        map.exactly(0, self.n, WHY_REQUESTS)?;
        map.memory(align::SCALARS)
    }
}

/// Checks what the convolution takes; true if its histories are `[3, D]` in memory.
fn convolution(c: &Convolution, sizes: &Sizes) -> Result<bool, OpError> {
    let x = Argument::new(NAME, "x", &c.x, &["N", "D"], &[Elem::BF16])?;
    x.exactly(0, sizes.n, WHY_REQUESTS)?;
    sizes.channels(&x, 1)?;
    x.stride(1, 1)?;
    x.memory(align::BF16)?;
    let taps = Argument::new(NAME, "conv_weight", &c.weight, &["D", "4"], &[Elem::F32, Elem::BF16])?;
    sizes.channels(&taps, 0)?;
    taps.exactly(1, TAPS, "the convolution has 4 taps")?;
    taps.stride(1, 1)?;
    taps.stride(0, TAPS)?;
    taps.memory(if c.weight.elem == Elem::F32 { align::WIDE } else { align::NARROW_TAPS })?;
    if let Some(bias) = &c.bias {
        let bias = Argument::new(NAME, "conv_bias", bias, &["D"], &[Elem::F32])?;
        sizes.channels(&bias, 0)?;
        bias.stride(0, 1)?;
        bias.memory(align::SCALARS)?;
    }
    sizes.index_map("conv_slots", Some(&c.slots))?;
    sizes.index_map("conv_slots_out", c.slots_out.as_ref())?;
    let pool = Argument::new(NAME, "conv_state", &c.state, &["lines", "D", "3"], &[Elem::F32, Elem::BF16])?;
    pool.at_most(0, MOST_SLOTS, "lines are i32 indices")?;
    sizes.channels(&pool, 1)?;
    pool.exactly(2, HISTORY, "a history holds 3 inputs")?;
    let channels_inner = histories(&pool, &c.state, 1)?;
    if channels_inner {
        // Copies of whole 16 bytes, of either type.
        pool.stride_multiple(2, whole(Elem::BF16))?;
        if c.state.strides()[2] > MOST_TAP_STEP {
            let needed = format!(
                "a stride along 3 of at most {MOST_TAP_STEP} elements is needed (offsets in a line have 32 bits)"
            );
            return Err(pool.layout(needed));
        }
    }
    pool.stride_multiple(0, whole(c.state.elem))?;
    pool.distinct()?;
    pool.memory(align::WIDE)?;
    let workspace = Argument::new(NAME, "workspace", &c.workspace, &["N", "H"], &[Elem::U32])?;
    workspace.exactly(0, sizes.n, WHY_REQUESTS)?;
    workspace.stride(1, 1)?;
    workspace.stride(0, sizes.h)?;
    workspace.memory(align::SCALARS)?;
    Ok(channels_inner)
}

fn gate(p: &Problem, sizes: &Sizes) -> Result<(), OpError> {
    let g = Argument::new(NAME, "g", &p.g, &["N", "HV", "K"], &[Elem::BF16, Elem::F32])?;
    g.exactly(0, sizes.n, WHY_REQUESTS)?;
    g.exactly(1, sizes.hv, "HV as in `beta`")?;
    g.exactly(2, HEAD, WHY_HEAD)?;
    g.stride(2, 1)?;
    g.stride(1, HEAD)?;
    g.memory(u64::from(p.g.elem.bytes()))?;
    if let Some(a_log) = &p.a_log {
        let a_log = Argument::new(NAME, "a_log", a_log, &["HV"], &[Elem::F32])?;
        a_log.exactly(0, sizes.hv, "HV as in `beta`")?;
        a_log.stride(0, 1)?;
        a_log.memory(align::SCALARS)?;
    }
    if let Some(dt_bias) = &p.dt_bias {
        let dt_bias = Argument::new(NAME, "dt_bias", dt_bias, &["HV", "K"], &[Elem::F32])?;
        dt_bias.exactly(0, sizes.hv, "HV as in `beta`")?;
        dt_bias.exactly(1, HEAD, WHY_HEAD)?;
        dt_bias.stride(1, 1)?;
        dt_bias.stride(0, HEAD)?;
        dt_bias.memory(align::SCALARS)?;
    }
    Ok(())
}

/// Checks the pool of states; true if it is `[K, V]` in memory.
fn state(p: &Problem, sizes: &Sizes) -> Result<bool, OpError> {
    let state = Argument::new(NAME, "state", &p.state, &["slots", "HV", "V", "K"], &[Elem::F32, Elem::BF16])?;
    state.at_most(0, MOST_SLOTS, "slots are i32 indices")?;
    state.exactly(1, sizes.hv, "HV as in `beta`")?;
    state.exactly(2, HEAD, WHY_HEAD)?;
    state.exactly(3, HEAD, WHY_HEAD)?;
    let k_first = match p.state.strides()[2..] {
        [HEAD, 1] => false,
        [1, HEAD] => true,
        _ => {
            let orders = "[V, K] (strides 128 and 1) or [K, V] (strides 1 and 128)";
            return Err(state.layout(format!("the last two axes in the memory order {orders} are needed")));
        }
    };
    state.stride(1, HEAD * HEAD)?;
    state.stride_multiple(0, whole(p.state.elem))?;
    state.distinct()?;
    state.memory(align::WIDE)?;
    Ok(k_first)
}

#[cfg(test)]
mod tests {
    use super::align;
    use kda_kernels::decode;

    /// The operator asks for what the strictest variant asks for, so that a call does not depend on the choice.
    #[test]
    fn alignments_are_those_of_the_kernels() {
        for (names, align) in [
            (&["q", "k", "v", "g_bf16", "beta", "out"][..], align::BF16),
            (&["taps_bf16"], align::NARROW_TAPS),
            (&["g_f32", "conv_bias", "a_log", "dt_bias", "arrivals"], align::SCALARS),
            (&["conv_slots", "conv_slots_out", "state_slots", "state_slots_out"], align::SCALARS),
            (&["taps_f32", "conv_f32", "conv_bf16", "state"], align::WIDE),
        ] {
            for name in names {
                assert_eq!(align::strictest(decode::DESCS, name), align, "{name}");
            }
        }
    }
}
