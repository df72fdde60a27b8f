//! What a call must satisfy before it runs. Each refusal says what was given and what is needed.

use super::problem::{Outputs, Problem};
use super::{HEAD, MAX_WINDOW};
use crate::conv::WIDTH;
use crate::floats::Floats;
use std::collections::HashSet;
use std::fmt;

/// Why a call was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// A size lies outside what the operator is defined for.
    Size {
        /// Name of the size.
        name: &'static str,
        /// Given.
        given: usize,
        /// What is taken.
        needed: &'static str,
    },
    /// A buffer, an index array or a pitch is too small.
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
    /// An argument that others ask for is absent.
    Absent {
        /// Name of the argument.
        name: &'static str,
    },
    /// Two requests write the same place, or one writes what another reads.
    Shared {
        /// Name of what holds the place.
        name: &'static str,
        /// The place.
        index: usize,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Size { name, given, needed } => write!(f, "{name} is {given}, needed is {needed}"),
            Refusal::TooShort { name, given, needed } => write!(f, "{name} is {given}, at least {needed} is needed"),
            Refusal::ElementType { name, needed } => write!(f, "{name} needs to hold {needed}"),
            Refusal::Absent { name } => write!(f, "{name} is needed"),
            Refusal::Shared { name, index } => {
                write!(f, "{name} {index} is written by one request and used by another")
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// Refuses what is shorter than needed.
pub(crate) fn at_least(name: &'static str, given: usize, needed: usize) -> Result<(), Refusal> {
    if given >= needed { Ok(()) } else { Err(Refusal::TooShort { name, given, needed }) }
}

/// Refuses rows that overlap, or a buffer that does not hold `count` rows of `width`, `pitch` apart.
pub(crate) fn rows(
    names: [&'static str; 2],
    given: usize,
    count: usize,
    pitch: usize,
    width: usize,
) -> Result<(), Refusal> {
    at_least(names[1], pitch, width)?;
    at_least(names[0], given, if count == 0 { 0 } else { (count - 1) * pitch + width })
}

/// Refuses sizes that the operator is not defined for.
pub(crate) fn sizes(heads: usize, window: usize) -> Result<(), Refusal> {
    if heads == 0 {
        return Err(Refusal::Size { name: "heads", given: heads, needed: "at least 1" });
    }
    if window == 0 || window > MAX_WINDOW {
        return Err(Refusal::Size { name: "window", given: window, needed: "1 to 16" });
    }
    Ok(())
}

/// Checks sizes, pitches, element types and places of what a call reads.
pub(super) fn inputs(p: &Problem<'_>) -> Result<(), Refusal> {
    sizes(p.heads, p.window)?;
    let (channels, width) = (p.channels(), p.heads * HEAD);
    rows(["qkv", "qkv_pitch"], p.qkv.len(), p.total, p.qkv_pitch, channels)?;
    rows(["raw_g", "g_pitch"], p.raw_g.len(), p.total, p.g_pitch, width)?;
    rows(["raw_beta", "beta_pitch"], p.raw_beta.len(), p.total, p.beta_pitch, p.heads)?;
    rows(["state", "state_pitch"], p.state.len(), p.slots, p.state_pitch, p.state_len())?;
    if let Some(a_log) = p.a_log {
        at_least("a_log", a_log.len(), p.heads)?;
    }
    at_least("dt_bias", p.dt_bias.len(), width)?;
    at_least("slot_of", p.slot_of.len(), p.n_req)?;
    at_least("query_start", p.query_start.len(), p.n_req + 1)?;
    if let Some(conv) = &p.conv {
        if matches!(conv.taps, Floats::F64(_)) {
            return Err(Refusal::ElementType { name: "taps", needed: "fp32 or bf16" });
        }
        at_least("taps", conv.taps.len(), channels * WIDTH)?;
        at_least("accepted", conv.accepted.len(), p.n_req)?;
        rows(["conv", "conv_pitch"], conv.pool.len(), p.slots, conv.pitch, p.conv_rows() * channels)?;
    }
    places(p)
}

/// Checks the buffers that a call writes; its inputs are checked.
pub(super) fn outputs(p: &Problem<'_>, out: &Outputs<'_>) -> Result<(), Refusal> {
    let width = p.heads * HEAD;
    rows(["out", "out_pitch"], out.out.len(), p.total, out.out_pitch, width)?;
    let records = p.n_req * p.window * width;
    at_least("corr", out.corr.len(), records)?;
    at_least("kg", out.kg.len(), 2 * records)?;
    if let Some(conv) = &p.conv {
        let rolled = out.conv.as_ref().ok_or(Refusal::Absent { name: "the convolution pool that rolls" })?;
        at_least("the convolution pool that rolls", rolled.len(), conv.pool.len())?;
    }
    Ok(())
}

/// Tokens belong to one request, and with a convolution so does a live slot.
fn places(p: &Problem<'_>) -> Result<(), Refusal> {
    let (mut tokens, mut slots) = (HashSet::new(), HashSet::new());
    for request in p.requests() {
        if let Some(index) = (request.begin..request.begin + request.len).find(|&row| !tokens.insert(row)) {
            return Err(Refusal::Shared { name: "token", index });
        }
        if let Some(index) = request.slot.filter(|&slot| p.conv.is_some() && !slots.insert(slot)) {
            return Err(Refusal::Shared { name: "slot", index });
        }
    }
    Ok(())
}
