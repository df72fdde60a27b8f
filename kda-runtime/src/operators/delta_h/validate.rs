//! Whether the arguments of a call fit each other, said in the names of [`Problem`].

use super::NAME;
use super::batch::Batch;
use super::problem::{Gate, Problem};
use crate::operators::OpError;
use crate::operators::arguments::{Argument, no_overlap, whole};
use crate::operators::limits::*;
use kda_core::{Elem, TensorArg};

/// Most rows: they are `i32` coordinates of copies, and so are those of the chunk that ends behind the last.
pub const MOST_ROWS: u64 = i32::MAX as u64 - 64;
/// Most sequences: words of the schedule are counted in 32 bits.
pub const MOST_SEQUENCES: u64 = 1 << 27;
/// Twice the pieces of work that an entry of the schedule makes of a head: loops over them count past the last one.
const SLICES: u64 = 16;
/// Bytes that a step of a copy stays below.
const STEP_BYTES: u64 = 1 << 40;

const WHY_ROWS: &str = "rows are i32 coordinates";

/// What a checked call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Sizes.
    pub batch: Batch,
    /// Heads of `kg`.
    pub key_heads: u64,
    /// The initial states lie `[K, V]` in memory.
    pub initial_k_first: bool,
    /// The final states lie `[K, V]` in memory.
    pub final_k_first: bool,
    /// `h` lies `[K, V]` in memory.
    pub h_k_first: bool,
    /// A tensor whose outermost step no tensor map describes.
    pub far: Option<&'static str>,
}

/// Checks a call.
pub(super) fn validate(p: &Problem) -> Result<Layout, OpError> {
    let w = rows_of("w", &p.w, &["T", "HV", "K"])?;
    let batch = p.batch();
    w.at_most(0, MOST_ROWS, WHY_ROWS)?;
    if batch.heads == 0 {
        return Err(OpError::Heads { op: NAME, heads: 0, value_heads: 0 });
    }
    sizes(NAME, &batch)?;
    if p.null < -1 {
        let needed = "-1 is needed, or 0 where slot 0 is the null slot (negative indices must not be live)";
        return Err(OpError::Scalar { op: NAME, param: "null", given: p.null.into(), needed });
    }
    let key_heads = keys(p, &batch)?;
    let u = rows_of("u", &p.u, &["T", "HV", "V"])?;
    u.exactly(0, batch.rows, "T as in `w`")?;
    u.exactly(1, batch.heads, "HV as in `w`")?;
    for tensor in [&w, &u] {
        tensor.memory(align::WIDE)?;
    }
    gate(p, &batch)?;
    let initial_k_first = states(p.initial_state.as_ref(), Side::INITIAL, p.initial_slots.as_ref(), &batch)?;
    flags(p, &batch)?;
    let final_k_first = states(p.final_state.as_ref(), Side::FINAL, p.final_slots.as_ref(), &batch)?;
    let h_k_first = results(p, &batch)?;
    workspaces(p, &batch)?;
    alone(p)?;
    let boxed =
        [("kg", Some(&p.kg)), ("w", Some(&p.w)), ("u", Some(&p.u)), ("v_new", p.v_new.as_ref()), ("h", p.h.as_ref())];
    let far = boxed.into_iter().find(|(_, tensor)| tensor.is_some_and(is_far)).map(|(name, _)| name);
    Ok(Layout { batch, key_heads, initial_k_first, final_k_first, h_k_first, far })
}

/// What kernels can count of a batch.
pub(super) fn sizes(op: &'static str, batch: &Batch) -> Result<(), OpError> {
    let scalar = |param, given: u64, needed| {
        Err(OpError::Scalar { op, param, given: i64::try_from(given).unwrap_or(i64::MAX), needed })
    };
    if batch.rows > MOST_ROWS {
        return scalar("rows", batch.rows, "at most 2147483583 is possible (rows are i32 coordinates)");
    }
    if batch.sequences > MOST_SEQUENCES {
        let needed = "at most 134217728 is possible (words of the schedule are counted in 32 bits)";
        return scalar("sequences", batch.sequences, needed);
    }
    if batch.heads == 0 || batch.heads > MOST {
        return scalar("heads", batch.heads, "HV from 1 to 4294967295 is needed");
    }
    if batch.h_every == 0 {
        return scalar("h_every", 0, "at least 1 is needed: the state ahead of every so many chunks is stored");
    }
    let [first, later, maps] = batch.entries();
    if first.max(later).max(maps).saturating_mul(batch.heads).saturating_mul(SLICES) > MOST {
        let given = format!("N = {} sequences with HV = {} heads", batch.sequences, batch.heads);
        let needed =
            format!("at most {} (sequence, head) pairs are possible: work is counted in 32 bits", MOST / SLICES);
        return Err(OpError::Together { op, given, needed });
    }
    Ok(())
}

/// A bf16 tensor whose rows are copied in pieces of 16 bytes: heads next to each other, rows whole 16 bytes apart.
fn rows_of<'a>(
    name: &'static str,
    tensor: &'a TensorArg,
    axes: &'static [&'static str],
) -> Result<Argument<'a>, OpError> {
    let argument = Argument::new(NAME, name, tensor, axes, &[Elem::BF16])?;
    argument.exactly(2, HEAD, WHY_HEAD)?;
    argument.stride(2, 1)?;
    argument.stride(1, HEAD)?;
    argument.stride_multiple(0, whole(tensor.elem))?;
    Ok(argument)
}

/// Whether an outermost step is more than that of a copy in boxes can be.
fn is_far(tensor: &TensorArg) -> bool {
    let bytes = u64::from(tensor.elem.bytes());
    tensor.shape()[0] > 1 && tensor.extent_bytes() > 0 && tensor.strides()[0].saturating_mul(bytes) >= STEP_BYTES
}

/// `kg`; gives its heads.
fn keys(p: &Problem, batch: &Batch) -> Result<u64, OpError> {
    let scalar = matches!(p.gate, Gate::Scalar(_));
    let kg = rows_of("kg", &p.kg, if scalar { &["T", "H", "K"] } else { &["T", "HV", "K"] })?;
    kg.exactly(0, batch.rows, "T as in `w`")?;
    let heads = kg.size(1);
    match scalar {
        false => kg.exactly(1, batch.heads, "HV as in `w`, as a gate a key channel is in it")?,
        true if heads == 0 || !batch.heads.is_multiple_of(heads) => {
            return Err(OpError::Heads { op: NAME, heads, value_heads: batch.heads });
        }
        true => {}
    }
    kg.memory(align::WIDE)?;
    Ok(heads)
}

fn gate(p: &Problem, batch: &Batch) -> Result<(), OpError> {
    let (name, tensor) = p.gate.tensor();
    let axes: &[&str] = match p.gate {
        Gate::Cumulative(_) => &["T", "HV", "K"],
        Gate::Decay(_) => &["chunks", "HV", "K"],
        Gate::Scalar(_) => &["T", "HV"],
    };
    let gate = Argument::new(NAME, name, tensor, axes, &[Elem::F32])?;
    match p.gate {
        Gate::Decay(_) => {
            let why = "the most chunks of N sequences in T rows: min(T, N) + (T - min(T, N)) / 64";
            gate.at_least(0, batch.chunks(), why)?;
            gate.at_most(0, MOST, WHY_COUNT)?;
        }
        Gate::Cumulative(_) | Gate::Scalar(_) => gate.exactly(0, batch.rows, "T as in `w`")?,
    }
    gate.exactly(1, batch.heads, "HV as in `w`")?;
    if matches!(p.gate, Gate::Scalar(_)) {
        gate.stride(1, 1)?;
        if p.split && batch.cut().is_some() {
            let given = "`split` with a scalar gate".to_string();
            let needed = "`split` must be false, here and in the schedule: a scalar gate takes whole sequences";
            return Err(OpError::Together { op: NAME, given, needed: needed.into() });
        }
        return gate.memory(align::SCALARS);
    }
    gate.exactly(2, HEAD, WHY_HEAD)?;
    gate.stride(2, 1)?;
    gate.stride(1, HEAD)?;
    gate.stride_multiple(0, whole(Elem::F32))?;
    gate.memory(align::WIDE)
}

/// One of the two ends of the sequences.
struct Side {
    state: &'static str,
    slots: &'static str,
    written: bool,
}

impl Side {
    const INITIAL: Side = Side { state: "initial_state", slots: "initial_slots", written: false };
    const FINAL: Side = Side { state: "final_state", slots: "final_slots", written: true };
}

/// States and their slots; true if they lie `[K, V]`.
fn states(state: Option<&TensorArg>, side: Side, slots: Option<&TensorArg>, batch: &Batch) -> Result<bool, OpError> {
    if let Some(slots) = slots {
        let argument = Argument::new(NAME, side.slots, slots, &["N"], &[Elem::I32])?;
        argument.exactly(0, batch.sequences, "N, the number of sequences")?;
        argument.stride(0, 1)?;
        argument.memory(align::SCALARS)?;
    }
    let Some(state) = state else {
        return match slots {
            Some(_) => {
                let needed = format!("`{}` are slots of it", side.slots);
                Err(OpError::Missing { op: NAME, param: side.state, needed })
            }
            None => Ok(true),
        };
    };
    let argument = Argument::new(NAME, side.state, state, &["slots", "HV", "K", "V"], &[Elem::F32, Elem::BF16])?;
    if slots.is_none() {
        let why = format!("one a sequence, as there are no `{}`", side.slots);
        argument.at_least(0, batch.sequences, &why)?;
    }
    argument.at_most(0, MOST_SLOTS, "slots are i32 indices")?;
    let k_first = matrices(&argument, state, batch)?;
    argument.stride_multiple(0, whole(state.elem))?;
    if side.written {
        argument.distinct()?;
    }
    argument.memory(align::WIDE)?;
    Ok(k_first)
}

/// The axes HV, K and V of states, heads next to each other; true for `[K, V]` in memory, false for `[V, K]`.
fn matrices(argument: &Argument, tensor: &TensorArg, batch: &Batch) -> Result<bool, OpError> {
    argument.exactly(1, batch.heads, "HV as in `w`")?;
    argument.exactly(2, HEAD, WHY_HEAD)?;
    argument.exactly(3, HEAD, WHY_HEAD)?;
    argument.stride(1, HEAD * HEAD)?;
    match tensor.strides()[2..] {
        [HEAD, 1] => Ok(true),
        [1, HEAD] => Ok(false),
        _ => {
            let orders = "[K, V] (strides 128 and 1) or [V, K] (strides 1 and 128)";
            Err(argument.layout(format!("the last two axes in the memory order {orders} are needed")))
        }
    }
}

fn flags(p: &Problem, batch: &Batch) -> Result<(), OpError> {
    let Some(flags) = &p.has_initial else { return Ok(()) };
    let argument = Argument::new(NAME, "has_initial", flags, &["N"], &[Elem::U8, Elem::Bool])?;
    if p.initial_state.is_none() {
        let needed = "`has_initial` says which sequences start from it".into();
        return Err(OpError::Missing { op: NAME, param: "initial_state", needed });
    }
    argument.exactly(0, batch.sequences, "N, the number of sequences")?;
    argument.stride(0, 1)?;
    argument.memory(1)
}

/// What is written; true if `h` lies `[K, V]`.
fn results(p: &Problem, batch: &Batch) -> Result<bool, OpError> {
    if p.h.is_none() && p.v_new.is_none() && p.final_state.is_none() {
        let needed = "one of `h`, `v_new` and `final_state` is needed, or there is nothing to compute".to_string();
        return Err(OpError::Missing { op: NAME, param: "h", needed });
    }
    if let Some(v_new) = &p.v_new {
        let argument = rows_of("v_new", v_new, &["T", "HV", "V"])?;
        argument.exactly(0, batch.rows, "T as in `w`")?;
        argument.exactly(1, batch.heads, "HV as in `w`")?;
        argument.distinct()?;
        argument.memory(align::WIDE)?;
    }
    let Some(h) = &p.h else { return Ok(true) };
    let argument = Argument::new(NAME, "h", h, &["capacity", "HV", "K", "V"], &[Elem::BF16])?;
    let why = format!(
        "what N = {} sequences in T = {} rows can need with h_every = {}, as lengths are known to the device alone",
        batch.sequences, batch.rows, batch.h_every
    );
    argument.at_least(0, batch.h_states(), &why)?;
    argument.at_most(0, MOST_SLOTS, "chunk states are i32 coordinates")?;
    let k_first = matrices(&argument, h, batch)?;
    argument.stride_multiple(0, whole(h.elem))?;
    argument.distinct()?;
    argument.memory(align::WIDE)?;
    Ok(k_first)
}

fn workspaces(p: &Problem, batch: &Batch) -> Result<(), OpError> {
    memory_of(NAME, "schedule", &p.schedule, batch.schedule_bytes())?;
    let needed = batch.map_bytes();
    match &p.maps {
        Some(maps) => memory_of(NAME, "maps", maps, needed),
        None if needed > 0 => {
            let needed = format!("{needed} bytes are needed, as long sequences are cut into segments");
            Err(OpError::Missing { op: NAME, param: "maps", needed })
        }
        None => Ok(()),
    }
}

/// A workspace in one run that has at least so many bytes.
pub(super) fn memory_of(op: &'static str, name: &'static str, tensor: &TensorArg, needed: u64) -> Result<(), OpError> {
    let (axes, unit): (&[&str], _) = match tensor.elem {
        Elem::U32 => (&["words"], 4),
        _ => (&["bytes"], 1),
    };
    let argument = Argument::new(op, name, tensor, axes, &[Elem::U8, Elem::U32])?;
    argument.at_least(0, needed.div_ceil(unit), "for any lengths that fit")?;
    argument.stride(0, 1)?;
    argument.memory(align::WIDE)
}

/// Written tensors share no memory with others.
fn alone(p: &Problem) -> Result<(), OpError> {
    let written = [("h", &p.h), ("v_new", &p.v_new), ("final_state", &p.final_state), ("maps", &p.maps)];
    let written: Vec<_> = written.into_iter().filter_map(|(name, t)| Some((name, t.as_ref()?))).collect();
    let optional = [
        ("initial_state", &p.initial_state),
        ("initial_slots", &p.initial_slots),
        ("has_initial", &p.has_initial),
        ("final_slots", &p.final_slots),
    ];
    let mut read = vec![("kg", &p.kg), ("w", &p.w), ("u", &p.u), p.gate.tensor(), ("schedule", &p.schedule)];
    read.extend(optional.into_iter().filter_map(|(name, t)| Some((name, t.as_ref()?))));
    no_overlap(NAME, &written, &read, &[("final_state", "initial_state")])
}

#[cfg(test)]
mod tests;
