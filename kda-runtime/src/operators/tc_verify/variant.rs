//! The kernels that verify.

use kda_core::{Elem, KernelDesc};
use kda_kernels::tc_verify::TcVerifyVariant;

/// A variant of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Of `tc_verify`: copies by tensor maps, products of warpgroups.
    Hopper(TcVerifyVariant),
}

impl From<TcVerifyVariant> for Variant {
    fn from(variant: TcVerifyVariant) -> Variant {
        Variant::Hopper(variant)
    }
}

impl Variant {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Variant> {
        TcVerifyVariant::ALL.into_iter().map(Variant::from)
    }

    /// What the compiled kernel is.
    pub fn desc(self) -> &'static KernelDesc {
        match self {
            Variant::Hopper(v) => v.desc(),
        }
    }

    /// The variant of this descriptor.
    pub fn of(desc: &KernelDesc) -> Option<Variant> {
        Variant::all().find(|v| std::ptr::eq(v.desc(), desc))
    }

    /// Heads that it is for; 0 if for any number.
    pub fn heads(self) -> u32 {
        match self {
            Variant::Hopper(v) => v.heads(),
        }
    }

    /// Type of the taps of the convolution; `None` if it has none.
    pub fn taps(self) -> Option<Elem> {
        match self {
            Variant::Hopper(v) => v.conv().then_some(v.tap()),
        }
    }

    /// Whether the history of the convolution is `[D, Q + 2]` in memory, not `[Q + 2, D]`.
    pub fn channel_major(self) -> bool {
        match self {
            Variant::Hopper(v) => v.channel_major(),
        }
    }

    /// The form of gate: softplus, or bounded.
    pub fn softplus(self) -> bool {
        match self {
            Variant::Hopper(v) => v.softplus(),
        }
    }

    /// Types of state that it takes.
    pub fn states(self) -> &'static [Elem] {
        match self {
            Variant::Hopper(_) => &[Elem::BF16],
        }
    }

    /// Most tokens of a request.
    pub fn most_tokens(self) -> u32 {
        match self {
            Variant::Hopper(_) => 8,
        }
    }

    /// Whether it reads the state ahead of the wait for a predecessor.
    pub fn early(self) -> bool {
        match self {
            Variant::Hopper(v) => v.early(),
        }
    }

    /// Whether its copies are of boxes, that tensor maps describe.
    pub fn boxes(self) -> bool {
        matches!(self, Variant::Hopper(_))
    }
}
