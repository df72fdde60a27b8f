//! The kernels that verify: for Hopper, and for every architecture from sm_80 on.

use kda_core::{Elem, KernelDesc};
use kda_kernels::tc_verify::TcVerifyVariant;
use kda_kernels::tc_verify_portable::TcVerifyPortableVariant;

/// A variant of either kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Of `tc_verify`: copies by tensor maps, products of warpgroups; states of bf16.
    Hopper(TcVerifyVariant),
    /// Of `tc_verify_portable`: copies of 16 bytes, products of warps.
    Portable(TcVerifyPortableVariant),
}

impl From<TcVerifyVariant> for Variant {
    fn from(variant: TcVerifyVariant) -> Variant {
        Variant::Hopper(variant)
    }
}

impl From<TcVerifyPortableVariant> for Variant {
    fn from(variant: TcVerifyPortableVariant) -> Variant {
        Variant::Portable(variant)
    }
}

impl Variant {
    /// All of them, those for Hopper first.
    pub fn all() -> impl Iterator<Item = Variant> {
        let portable = TcVerifyPortableVariant::ALL.into_iter().map(Variant::from);
        TcVerifyVariant::ALL.into_iter().map(Variant::from).chain(portable)
    }

    /// What the compiled kernel is.
    pub fn desc(self) -> &'static KernelDesc {
        match self {
            Variant::Hopper(v) => v.desc(),
            Variant::Portable(v) => v.desc(),
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
            Variant::Portable(_) => 0,
        }
    }

    /// Type of the taps of the convolution; `None` if it has none.
    pub fn taps(self) -> Option<Elem> {
        let (conv, tap) = match self {
            Variant::Hopper(v) => (v.conv(), v.tap()),
            Variant::Portable(v) => (v.conv(), v.tap()),
        };
        conv.then_some(tap)
    }

    /// Whether the history of the convolution is `[D, Q + 2]` in memory, not `[Q + 2, D]`.
    pub fn channel_major(self) -> bool {
        match self {
            Variant::Hopper(v) => v.channel_major(),
            Variant::Portable(v) => v.channel_major(),
        }
    }

    /// The form of gate: softplus, or bounded.
    pub fn softplus(self) -> bool {
        match self {
            Variant::Hopper(v) => v.softplus(),
            Variant::Portable(v) => v.softplus(),
        }
    }

    /// Type of the state.
    pub fn state(self) -> Elem {
        match self {
            Variant::Hopper(_) => Elem::BF16,
            Variant::Portable(v) => v.state(),
        }
    }

    /// Most tokens of a request.
    pub fn most_tokens(self) -> u32 {
        match self {
            Variant::Hopper(_) => 8,
            Variant::Portable(v) => v.tokens(),
        }
    }

    /// Whether heads may share one of q and k.
    pub fn shares(self) -> bool {
        matches!(self, Variant::Portable(v) if !v.conv())
    }

    /// Whether it reads the state and weights ahead of the wait for a predecessor.
    pub fn early(self) -> bool {
        match self {
            Variant::Hopper(v) => v.early(),
            Variant::Portable(_) => false,
        }
    }

    /// Whether raw inputs are copied in boxes, not loaded by threads.
    pub fn boxes(self) -> bool {
        match self {
            Variant::Hopper(v) => v.boxes(),
            Variant::Portable(_) => false,
        }
    }

    /// Whether it is the kernel for Hopper, whose states come by tensor maps.
    pub fn hopper(self) -> bool {
        matches!(self, Variant::Hopper(_))
    }
}
