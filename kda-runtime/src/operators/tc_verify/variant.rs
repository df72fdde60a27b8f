//! The kernels that verify.

use kda_core::KernelDesc;
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
}
