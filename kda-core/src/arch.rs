//! GPU architectures and PTX ISA versions.
//!
//! A target is written as PTX writes it: `sm_90` text runs on every newer GPU, `sm_90a` on compute capability 9.0 alone,
//! `sm_100f` on the family 10.x.

use std::fmt;

/// How far a target's text carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reach {
    /// Runs on this compute capability and every newer one.
    Forward,
    /// Runs on the same major version with at least this minor version (`f` targets).
    Family,
    /// Runs on exactly this compute capability (`a` targets).
    Exact,
}

/// A PTX target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Arch {
    /// Major compute capability.
    pub major: u8,
    /// Minor compute capability.
    pub minor: u8,
    /// On which GPUs the text runs.
    pub reach: Reach,
}

impl Arch {
    /// Ampere A100.
    pub const SM_80: Arch = Arch::new(8, 0, Reach::Forward);
    /// Hopper, portable text.
    pub const SM_90: Arch = Arch::new(9, 0, Reach::Forward);
    /// Hopper with wgmma and setmaxnreg.
    pub const SM_90A: Arch = Arch::new(9, 0, Reach::Exact);
    /// Blackwell, portable text.
    pub const SM_100: Arch = Arch::new(10, 0, Reach::Forward);
    /// Blackwell B200 alone.
    pub const SM_100A: Arch = Arch::new(10, 0, Reach::Exact);
    /// Blackwell family: B200 and B300.
    pub const SM_100F: Arch = Arch::new(10, 0, Reach::Family);
    /// Blackwell B300 alone.
    pub const SM_103A: Arch = Arch::new(10, 3, Reach::Exact);
    /// Consumer Blackwell.
    pub const SM_120: Arch = Arch::new(12, 0, Reach::Forward);
    /// Consumer Blackwell with its own features.
    pub const SM_120A: Arch = Arch::new(12, 0, Reach::Exact);

    const fn new(major: u8, minor: u8, reach: Reach) -> Arch {
        Arch { major, minor, reach }
    }

    /// Parses `sm_90`, `sm_90a`, `sm_100f`.
    pub fn from_name(name: &str) -> Option<Arch> {
        let digits = name.strip_prefix("sm_")?;
        let (digits, reach) = match digits.as_bytes().last()? {
            b'a' => (&digits[..digits.len() - 1], Reach::Exact),
            b'f' => (&digits[..digits.len() - 1], Reach::Family),
            _ => (digits, Reach::Forward),
        };
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let number: u16 = digits.parse().ok()?;
        if number < 50 {
            return None;
        }
        Some(Arch::new(u8::try_from(number / 10).ok()?, (number % 10) as u8, reach))
    }

    /// True if text for this target runs on a GPU of compute capability `major.minor`.
    pub const fn runs_on(self, major: u8, minor: u8) -> bool {
        match self.reach {
            Reach::Forward => major > self.major || (major == self.major && minor >= self.minor),
            Reach::Family => major == self.major && minor >= self.minor,
            Reach::Exact => major == self.major && minor == self.minor,
        }
    }

    /// True if every feature of `needed` exists on this target.
    pub const fn has(self, needed: Arch) -> bool {
        match needed.reach {
            Reach::Forward => self.major > needed.major || (self.major == needed.major && self.minor >= needed.minor),
            Reach::Family => {
                self.major == needed.major && self.minor >= needed.minor && !matches!(self.reach, Reach::Forward)
            }
            Reach::Exact => {
                self.major == needed.major && self.minor == needed.minor && matches!(self.reach, Reach::Exact)
            }
        }
    }

    /// The lowest PTX ISA version that knows this target, as found with ptxas.
    pub const fn least_isa(self) -> IsaVersion {
        match (self.major, self.minor, self.reach) {
            (..9, _, _) => IsaVersion::new(7, 0),
            (9, _, _) => IsaVersion::new(8, 0),
            (10, 0, Reach::Forward | Reach::Exact) => IsaVersion::new(8, 6),
            (12, 0, Reach::Forward | Reach::Exact) => IsaVersion::new(8, 7),
            _ => IsaVersion::new(8, 8),
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = match self.reach {
            Reach::Forward => "",
            Reach::Family => "f",
            Reach::Exact => "a",
        };
        write!(f, "sm_{}{}{suffix}", self.major, self.minor)
    }
}

/// A PTX ISA version, the `.version` of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IsaVersion {
    /// Major number.
    pub major: u8,
    /// Minor number.
    pub minor: u8,
}

impl IsaVersion {
    /// Version `major.minor`.
    pub const fn new(major: u8, minor: u8) -> IsaVersion {
        IsaVersion { major, minor }
    }
}

impl fmt::Display for IsaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for name in ["sm_80", "sm_90", "sm_90a", "sm_100f", "sm_103a", "sm_120a"] {
            assert_eq!(Arch::from_name(name).map(|a| a.to_string()).as_deref(), Some(name));
        }
        for name in ["", "sm_", "sm_a", "90", "sm_9x", "sm_20"] {
            assert_eq!(Arch::from_name(name), None, "{name}");
        }
    }

    #[test]
    fn reach_decides_where_text_runs() {
        assert!(Arch::SM_80.runs_on(9, 0) && !Arch::SM_90.runs_on(8, 9));
        assert!(Arch::SM_90A.runs_on(9, 0) && !Arch::SM_90A.runs_on(10, 0));
        assert!(Arch::SM_100F.runs_on(10, 3) && !Arch::SM_100F.runs_on(12, 0));
        assert!(Arch::SM_90A.has(Arch::SM_90) && !Arch::SM_90.has(Arch::SM_90A) && Arch::SM_100F.has(Arch::SM_90));
    }
}
