//! What a call must satisfy before it runs. Each refusal says what was given and what is needed.

use super::problem::{Outputs, Problem, SnapshotRule};
use super::{HEAD, HISTORY};
use crate::conv::WIDTH;
use crate::floats::{Floats, FloatsMut};
use std::collections::HashSet;
use std::fmt;

/// Why a call was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// `HV` is not a positive multiple of `H`.
    Heads {
        /// Query/key heads given.
        h: usize,
        /// Value heads given.
        hv: usize,
    },
    /// A buffer, an index array or a stride is too small.
    TooShort {
        /// Name of the argument.
        name: &'static str,
        /// Elements given.
        given: usize,
        /// Elements needed.
        needed: usize,
    },
    /// A buffer has an element type that the operator does not take.
    ElementType {
        /// Name of the argument.
        name: &'static str,
        /// What is taken.
        needed: &'static str,
    },
    /// `roll` is set and no buffer for the rolled histories is given.
    NoRollTarget,
    /// Two live rows write the same place.
    Duplicate {
        /// Name of the index array.
        name: &'static str,
        /// The index that occurs twice.
        index: usize,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Heads { h, hv } => write!(f, "HV = {hv} value heads need to be a positive multiple of H = {h}"),
            Refusal::TooShort { name, given, needed } => write!(f, "{name} is {given}, at least {needed} is needed"),
            Refusal::ElementType { name, needed } => write!(f, "{name} needs to hold {needed}"),
            Refusal::NoRollTarget => write!(f, "roll is set, so a buffer for the rolled histories is needed"),
            Refusal::Duplicate { name, index } => {
                write!(f, "{name} holds {index} for two live rows, which would both write there")
            }
        }
    }
}

impl std::error::Error for Refusal {}

fn at_least(name: &'static str, given: usize, needed: usize) -> Result<(), Refusal> {
    if given >= needed { Ok(()) } else { Err(Refusal::TooShort { name, given, needed }) }
}

/// Elements that `count` blocks of `width`, `stride` apart, span.
fn span(count: usize, stride: usize, width: usize) -> usize {
    if count == 0 { 0 } else { (count - 1) * stride + width }
}

fn distinct(name: &'static str, indices: impl Iterator<Item = usize>) -> Result<(), Refusal> {
    let mut seen = HashSet::new();
    for index in indices {
        if !seen.insert(index) {
            return Err(Refusal::Duplicate { name, index });
        }
    }
    Ok(())
}

/// Checks sizes, strides, element types and index maps of a call.
pub(super) fn validate(p: &Problem<'_>, out: &Outputs<'_>) -> Result<(), Refusal> {
    let d = p.dims;
    if d.h == 0 || d.hv == 0 || !d.hv.is_multiple_of(d.h) {
        return Err(Refusal::Heads { h: d.h, hv: d.hv });
    }
    let (channels, tokens) = (d.channels(), d.n * d.t);
    at_least("T", d.t, 1)?;
    at_least("T_alloc", p.t_alloc, d.t)?;
    at_least("x row stride", p.x_row_stride, channels)?;
    at_least("x", p.x.len(), span(tokens, p.x_row_stride, channels))?;
    at_least("conv_weight", p.conv_weight.len(), channels * WIDTH)?;
    if let Some(bias) = p.conv_bias {
        at_least("conv_bias", bias.len(), channels)?;
    }
    for (name, floats) in [("conv_weight", p.conv_weight), ("conv_state", p.conv_state)] {
        if matches!(floats, Floats::F64(_)) {
            return Err(Refusal::ElementType { name, needed: "fp32 or bf16" });
        }
    }
    let line_span = (channels - 1) * p.conv_layout.channel + (HISTORY - 1) * p.conv_layout.tap + 1;
    let pool_span = span(p.conv_layout.lines, p.conv_layout.line, line_span);
    at_least("conv_state", p.conv_state.len(), pool_span)?;
    at_least("state slot stride", p.state_slot_stride, d.state_len())?;
    at_least("state", p.state.len(), span(p.state_len, p.state_slot_stride, d.state_len()))?;
    at_least("a", p.a.len(), tokens * d.hv * HEAD)?;
    at_least("b", p.b.len(), tokens * d.hv)?;
    if let Some(a_log) = p.a_log {
        at_least("A_log", a_log.len(), d.hv)?;
    }
    at_least("dt_bias", p.dt_bias.len(), d.hv * HEAD)?;
    for (name, map) in
        [("conv_slots", p.conv_slots), ("state_slots", p.state_slots), ("snapshot_rows", p.snapshot_rows)]
    {
        at_least(name, map.len(), d.n)?;
    }
    outputs(p, out, pool_span)?;
    let live = |n: &usize| p.live_row(*n).is_some();
    distinct("snapshot_rows", (0..d.n).filter(live).filter_map(|n| p.snapshot_targets(n)).map(|(_, row)| row))?;
    if p.roll {
        distinct("conv_slots", (0..d.n).filter_map(|n| p.live_row(n)).map(|(line, _)| line))?;
    }
    Ok(())
}

fn outputs(p: &Problem<'_>, out: &Outputs<'_>, pool_span: usize) -> Result<(), Refusal> {
    let (d, width) = (p.dims, p.dims.hv * HEAD);
    at_least("out row stride", out.out_row_stride, width)?;
    at_least("out", out.out.len(), span(d.n * d.t, out.out_row_stride, width))?;
    at_least("out (bf16)", out.out_bf16.len(), span(d.n * d.t, out.out_row_stride, width))?;
    if let Some(states) = &out.states {
        let rows = match p.snapshot_rule {
            SnapshotRule::ByIndex => p.snapshot_len,
            SnapshotRule::ByBatch => d.n,
        };
        at_least("states_out", states.len(), rows * p.t_alloc * d.state_len())?;
    }
    let same_type = |target: &FloatsMut<'_>| {
        matches!((p.conv_state, target), (Floats::F32(_), FloatsMut::F32(_)) | (Floats::Bf16(_), FloatsMut::Bf16(_)))
    };
    if let Some((windows, layout)) = &out.windows {
        if !same_type(windows) {
            return Err(Refusal::ElementType { name: "windows_out", needed: "the elements of conv_state" });
        }
        let step = (d.channels() - 1) * layout.channel + (HISTORY - 1) * layout.tap + 1;
        at_least("windows_out", windows.len(), span(p.snapshot_len, layout.row, span(p.t_alloc, layout.step, step)))?;
    }
    if p.roll {
        let rolled = out.rolled.as_ref().ok_or(Refusal::NoRollTarget)?;
        if !same_type(rolled) {
            return Err(Refusal::ElementType { name: "rolled histories", needed: "the elements of conv_state" });
        }
        at_least("rolled histories", rolled.len(), pool_span)?;
    }
    Ok(())
}
