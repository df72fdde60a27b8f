//! What is wrong with a kernel, in words that its author can act on.

use crate::program::source::Position;
use std::fmt;

/// What kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum Code {
    /// The launch does not fit the kernel.
    Launch = 3000,
    /// Two accesses conflict and nothing orders them.
    Race = 3001,
    /// An undefined value is used.
    Uninitialised = 3002,
    /// An access outside its memory.
    OutOfBounds = 3003,
    /// An address that is not a multiple of what it must be.
    Misaligned = 3004,
    /// A barrier is used wrongly.
    Barrier = 3005,
    /// Nothing can run any more.
    Deadlock = 3006,
    /// The run took too many steps.
    StepLimit = 3007,
    /// The kernel executed `trap`.
    Trap = 3008,
    /// An instruction that needs lanes together was executed by some of them.
    Divergent = 3009,
    /// A product, or its registers, used wrongly.
    Product = 3010,
    /// A tensor map, or a copy through it, that cannot be.
    TensorMap = 3011,
    /// Tensor memory used wrongly.
    TensorMemory = 3012,
    /// Registers reallocated wrongly.
    Registers = 3013,
}

impl Code {
    /// Every kind.
    pub const ALL: [Code; 14] = [
        Code::Launch,
        Code::Race,
        Code::Uninitialised,
        Code::OutOfBounds,
        Code::Misaligned,
        Code::Barrier,
        Code::Deadlock,
        Code::StepLimit,
        Code::Trap,
        Code::Divergent,
        Code::Product,
        Code::TensorMap,
        Code::TensorMemory,
        Code::Registers,
    ];
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KDA{}", *self as u16)
    }
}

/// Who did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// Index of the CTA in the grid.
    pub block: [u32; 3],
    /// Warp of the CTA.
    pub warp: u32,
    /// Lanes.
    pub lanes: u32,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.block;
        write!(f, "block ({x}, {y}, {z}) warp {} ", self.warp)?;
        match self.lanes {
            u32::MAX => write!(f, "all lanes"),
            0 => write!(f, "some lanes"),
            lanes if lanes.count_ones() == 1 => write!(f, "lane {}", lanes.trailing_zeros()),
            lanes => write!(f, "lanes {lanes:#010x}"),
        }
    }
}

/// An access that takes part in a race, or any other place worth naming.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Who.
    pub who: Who,
    /// Where.
    pub at: Position,
    /// What: "write by a bulk store".
    pub what: String,
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Kind.
    pub code: Code,
    /// Kernel.
    pub kernel: String,
    /// What happened, in one sentence.
    pub message: String,
    /// The place where it was noticed; for a race the later access.
    pub site: Option<Site>,
    /// For a race the earlier access; for a deadlock everyone who waits.
    pub others: Vec<Site>,
    /// What to do.
    pub help: String,
}

impl Report {
    /// Line of the PTX text where the fault was noticed, or 0.
    pub fn ptx_line(&self) -> u32 {
        self.site.as_ref().map_or(0, |s| s.at.ptx_line)
    }

    /// Line of the kernel's source where the fault was noticed, if the text has one.
    pub fn source_line(&self) -> Option<u32> {
        self.site.as_ref()?.at.source.as_ref().map(|s| s.line)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}] in kernel `{}`: {}", self.code, self.kernel, self.message)?;
        if let Some(site) = &self.site {
            write!(f, "\n  here: {} by {}\n     at {}", site.what, site.who, site.at)?;
        }
        for other in &self.others {
            write!(f, "\n   and: {} by {}\n     at {}", other.what, other.who, other.at)?;
        }
        if !self.help.is_empty() {
            write!(f, "\n  help: {}", self.help)?;
        }
        Ok(())
    }
}

impl std::error::Error for Report {}

#[cfg(test)]
mod tests {
    use super::Code;

    #[test]
    fn every_code_is_explained() {
        let known: Vec<u16> = kda_core::codes::simulator::ENTRIES.iter().map(|entry| entry.code.0).collect();
        assert_eq!(Code::ALL.map(|code| code as u16).to_vec(), known);
    }
}
