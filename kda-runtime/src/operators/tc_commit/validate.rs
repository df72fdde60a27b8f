//! Whether the arguments of a call fit each other, said in the names of [`Problem`].

use super::NAME;
use super::problem::Problem;
use crate::operators::OpError;
use crate::operators::arguments::{Argument, no_overlap, whole};
use crate::operators::limits::*;
use kda_core::{Elem, TensorArg};

/// Most records of a request.
const MOST_WINDOW: u64 = 16;
/// Most layers: a grid has as many layers of CTAs.
const MOST_LAYERS: u64 = 65_535;
/// Addresses that `layers` holds of each layer.
const ADDRESSES: u64 = 6;
/// Most heads: channels of a row, and what is stepped over in a window, are counted in 32 bits.
const MOST_HEADS: u64 = 1 << 16;

const WHY_REQUESTS: &str = "N as in `counts`";
const WHY_HEADS: &str = "H as in `state`";
const WHY_ROWS: &str = "rows as in `corr`";
const WHY_WINDOW: &str = "window as in `corr`";

/// What the arguments say of sizes and memory orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// H.
    pub heads: u64,
    /// Record rows of a request.
    pub window: u64,
    /// Layers.
    pub layers: u64,
    /// The windows are `[window + 2, D]` in memory, not `[D, window + 2]`.
    pub token_rows: bool,
    /// Type of the state.
    pub state: Elem,
}

/// Checks a call.
pub(super) fn validate(p: &Problem) -> Result<Layout, OpError> {
    let counts = Argument::new(NAME, "counts", &p.counts, &["N"], &[Elem::I32])?;
    let n = counts.size(0);
    counts.at_most(0, MOST_REQUESTS, "a grid has a row of CTAs a request")?;
    dense(&counts, &p.counts)?;
    counts.memory(align::SCALARS)?;
    if p.null < -1 {
        let needed = "-1 is needed, or 0 where slot 0 is nobody's (negative slots must not be live)";
        return Err(OpError::Scalar { op: NAME, param: "null", given: p.null.into(), needed });
    }
    let heads = state(p)?;
    let window = records(p, n, heads)?;
    gate(p, heads)?;
    index_map("slots", Some(&p.slots), n)?;
    index_map("destinations", p.destinations.as_ref(), n)?;
    index_map("boundary_tokens", p.boundary.as_ref().map(|b| &b.tokens), n)?;
    index_map("boundary_slots", p.boundary.as_ref().map(|b| &b.slots), n)?;
    let token_rows = match &p.conv {
        None => false,
        Some(conv) => windows(p, conv, heads, window)?,
    };
    let layers = match &p.layers {
        None => 1,
        Some(table) => layers(table)?,
    };
    alone(p)?;
    Ok(Layout { heads, window, layers, token_rows, state: p.state.elem })
}

/// Every axis follows the next one without gaps.
fn dense(argument: &Argument, tensor: &TensorArg) -> Result<(), OpError> {
    let mut step = 1u64;
    for axis in (0..tensor.shape().len()).rev() {
        argument.stride(axis, step)?;
        step = step.saturating_mul(tensor.shape()[axis]);
    }
    Ok(())
}

/// Checks the pool of states; gives the heads.
fn state(p: &Problem) -> Result<u64, OpError> {
    let state = Argument::new(NAME, "state", &p.state, &["slots", "H", "V", "K"], &[Elem::F32, Elem::BF16])?;
    state.at_most(0, MOST_SLOTS, "slots are i32 indices")?;
    state.at_least(1, 1, "a state has heads")?;
    state.at_most(1, MOST_HEADS, "channels are counted in 32 bits")?;
    state.exactly(2, HEAD, WHY_HEAD)?;
    state.exactly(3, HEAD, WHY_HEAD)?;
    state.stride(3, 1)?;
    state.stride(2, HEAD)?;
    state.stride(1, HEAD * HEAD)?;
    state.stride_multiple(0, whole(p.state.elem))?;
    state.distinct()?;
    state.memory(align::WIDE)?;
    Ok(state.size(1))
}

/// Checks the records; gives the window.
fn records(p: &Problem, n: u64, heads: u64) -> Result<u64, OpError> {
    let corr = Argument::new(NAME, "corr", &p.corr, &["rows", "H", "window", "V"], &[Elem::F32])?;
    let (rows, window) = (corr.size(0), corr.size(2));
    corr.at_least(0, n, "request b has row b, N as in `counts`")?;
    corr.at_most(0, MOST, WHY_COUNT)?;
    corr.exactly(1, heads, WHY_HEADS)?;
    corr.at_least(2, 1, "a request has records")?;
    corr.at_most(2, MOST_WINDOW, "a window has at most 16 records")?;
    corr.exactly(3, HEAD, WHY_HEAD)?;
    dense(&corr, &p.corr)?;
    corr.memory(align::WIDE)?;
    let kg = Argument::new(NAME, "kg", &p.kg, &["rows", "H", "window", "2 K"], &[Elem::BF16])?;
    kg.exactly(0, rows, WHY_ROWS)?;
    kg.exactly(1, heads, WHY_HEADS)?;
    kg.exactly(2, window, WHY_WINDOW)?;
    kg.exactly(3, 2 * HEAD, "a record is a key and a raw gate of 128 channels each")?;
    dense(&kg, &p.kg)?;
    kg.memory(align::BF16)?;
    Ok(window)
}

fn gate(p: &Problem, heads: u64) -> Result<(), OpError> {
    if let Some(tensor) = &p.a_log {
        let a_log = Argument::new(NAME, "a_log", tensor, &["H"], &[Elem::F32])?;
        a_log.exactly(0, heads, WHY_HEADS)?;
        dense(&a_log, tensor)?;
        a_log.memory(align::SCALARS)?;
    }
    let dt_bias = Argument::new(NAME, "dt_bias", &p.dt_bias, &["H", "K"], &[Elem::F32])?;
    dt_bias.exactly(0, heads, WHY_HEADS)?;
    dt_bias.exactly(1, HEAD, WHY_HEAD)?;
    dense(&dt_bias, &p.dt_bias)?;
    dt_bias.memory(align::SCALARS)
}

fn index_map(name: &'static str, map: Option<&TensorArg>, n: u64) -> Result<(), OpError> {
    let Some(tensor) = map else { return Ok(()) };
    let map = Argument::new(NAME, name, tensor, &["N"], &[Elem::I32])?;
    map.exactly(0, n, WHY_REQUESTS)?;
    dense(&map, tensor)?;
    map.memory(align::SCALARS)
}

/// Checks the pool of windows; true if it is `[window + 2, D]` in memory.
fn windows(p: &Problem, tensor: &TensorArg, heads: u64, window: u64) -> Result<bool, OpError> {
    let conv = Argument::new(NAME, "conv", tensor, &["slots", "D", "window + 2"], &[Elem::BF16])?;
    let (channels, rows) = (3 * heads * HEAD, window + HISTORY - 1);
    conv.exactly(0, p.state.shape()[0], "slots as in `state`")?;
    conv.exactly(1, channels, &format!("D = 3*H*128, with H = {heads} as in `state`"))?;
    conv.exactly(2, rows, &format!("window + 2, with window = {window} as in `corr`"))?;
    let token_rows = match tensor.strides()[1..] {
        [1, _] => true,
        [channel, 1] if channel == rows => false,
        _ => {
            let orders = format!("[D, window + 2] (strides {rows} and 1) or [window + 2, D] (stride 1 along D)");
            return Err(conv.layout(format!("the last two axes in the memory order {orders} are needed")));
        }
    };
    if token_rows {
        conv.stride_multiple(0, whole(Elem::BF16))?;
        conv.stride_multiple(2, whole(Elem::BF16))?;
    }
    conv.distinct()?;
    conv.memory(if token_rows { align::WIDE } else { align::BF16 })?;
    Ok(token_rows)
}

/// Checks the table of layers; gives their number.
fn layers(tensor: &TensorArg) -> Result<u64, OpError> {
    let table = Argument::new(NAME, "layers", tensor, &["layers", "6"], &[Elem::U64])?;
    table.at_least(0, 1, "a call has layers")?;
    table.at_most(0, MOST_LAYERS, "a grid has as many layers of CTAs")?;
    table.exactly(1, ADDRESSES, "state, conv, corr, kg, a_log and dt_bias of a layer")?;
    dense(&table, tensor)?;
    table.memory(8)?;
    Ok(table.size(0))
}

/// What is written has memory of its own.
fn alone(p: &Problem) -> Result<(), OpError> {
    let mut written = vec![("state", &p.state)];
    written.extend(p.conv.as_ref().map(|conv| ("conv", conv)));
    let mut read = vec![("corr", &p.corr), ("kg", &p.kg), ("dt_bias", &p.dt_bias)];
    read.extend([("slots", &p.slots), ("counts", &p.counts)]);
    let optional =
        [("a_log", p.a_log.as_ref()), ("destinations", p.destinations.as_ref()), ("layers", p.layers.as_ref())];
    read.extend(optional.into_iter().filter_map(|(name, tensor)| Some((name, tensor?))));
    if let Some(boundary) = &p.boundary {
        read.extend([("boundary_tokens", &boundary.tokens), ("boundary_slots", &boundary.slots)]);
    }
    no_overlap(NAME, &written, &read, &[])
}

#[cfg(test)]
mod tests {
    use super::align;
    use kda_kernels::tc_commit;

    /// The operator asks for what the strictest variant asks for, so that a call does not depend on the choice.
    #[test]
    fn alignments_are_those_of_the_kernels() {
        for (names, align) in [
            (&["kg", "conv_channel"][..], align::BF16),
            (&["a_log", "dt_bias", "slot_of", "destinations", "counts"], align::SCALARS),
            (&["boundary_tokens", "boundary_slots"], align::SCALARS),
            (&["layers"], 8),
            (&["state", "corr", "conv_token"], align::WIDE),
        ] {
            for name in names {
                assert_eq!(align::strictest(tc_commit::DESCS, name), align, "{name}");
            }
        }
    }
}
