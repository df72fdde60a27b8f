//! Which PTX version and which GPU a piece of text needs.

use kda_core::{Arch, IsaVersion};

/// The least `.version` and `.target` of an instruction or a modifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Least `.version`.
    pub isa: IsaVersion,
    /// Least target.
    pub arch: Arch,
}

impl Gate {
    /// Needs nothing that the oldest supported target lacks.
    pub const NONE: Gate = Gate { isa: IsaVersion::new(7, 0), arch: Arch::SM_80 };

    /// `.version major.minor` on `arch`.
    pub const fn new(major: u8, minor: u8, arch: Arch) -> Gate {
        Gate { isa: IsaVersion::new(major, minor), arch }
    }

    /// Both gates at once; of two targets the one that has the other's features, else the more restrictive.
    pub fn and(self, other: Gate) -> Gate {
        let arch = if self.arch.has(other.arch) { self.arch } else { other.arch };
        Gate { isa: self.isa.max(other.isa), arch }
    }

    /// True if text of this version for this target may use the instruction.
    pub fn open(self, isa: IsaVersion, arch: Arch) -> bool {
        isa >= self.isa && arch.has(self.arch)
    }
}
