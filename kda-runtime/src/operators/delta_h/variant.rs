//! The kernels that walk sequences: for Hopper, and for every architecture from sm_80 on.

use kda_core::KernelDesc;
use kda_kernels::delta_h::DeltaHVariant;
use kda_kernels::delta_h_narrow::DeltaHNarrowVariant;
use kda_kernels::delta_h_portable::DeltaHPortableVariant;

/// A variant of one of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Of `delta_h`: copies by tensor maps, products of warpgroups; whole sequences.
    Hopper(DeltaHVariant),
    /// Of `delta_h_narrow`: the same for few heads, whole sequences or segments.
    Narrow(DeltaHNarrowVariant),
    /// Of `delta_h_portable`: copies of 16 bytes, products of warps; whole sequences.
    Portable(DeltaHPortableVariant),
}

impl From<DeltaHVariant> for Variant {
    fn from(variant: DeltaHVariant) -> Variant {
        Variant::Hopper(variant)
    }
}

impl From<DeltaHNarrowVariant> for Variant {
    fn from(variant: DeltaHNarrowVariant) -> Variant {
        Variant::Narrow(variant)
    }
}

impl From<DeltaHPortableVariant> for Variant {
    fn from(variant: DeltaHPortableVariant) -> Variant {
        Variant::Portable(variant)
    }
}

impl Variant {
    /// All of them, those for Hopper first.
    pub fn all() -> impl Iterator<Item = Variant> {
        DeltaHVariant::ALL
            .into_iter()
            .map(Variant::from)
            .chain(DeltaHNarrowVariant::ALL.into_iter().map(Variant::from))
            .chain(DeltaHPortableVariant::ALL.into_iter().map(Variant::from))
    }

    /// What the compiled kernel is.
    pub fn desc(self) -> &'static KernelDesc {
        match self {
            Variant::Hopper(v) => v.desc(),
            Variant::Narrow(v) => v.desc(),
            Variant::Portable(v) => v.desc(),
        }
    }

    /// The variant of this descriptor.
    pub fn of(desc: &KernelDesc) -> Option<Variant> {
        Variant::all().find(|v| std::ptr::eq(v.desc(), desc))
    }

    /// Columns of V that a CTA has.
    pub fn vs(self) -> u32 {
        match self {
            Variant::Hopper(_) => 64,
            Variant::Narrow(v) => v.vs(),
            Variant::Portable(v) => v.vs(),
        }
    }

    /// CTAs of a cluster.
    pub fn cluster(self) -> u32 {
        match self {
            Variant::Hopper(v) => v.desc().cluster,
            Variant::Narrow(_) | Variant::Portable(_) => 1,
        }
    }

    /// Whether it is for one gate a head and row, not one a key channel.
    pub fn scalar(self) -> bool {
        match self {
            Variant::Hopper(v) => v.scalar(),
            Variant::Narrow(v) => v.scalar(),
            Variant::Portable(v) => v.scalar(),
        }
    }

    /// Whether it writes `h` `[V, K]`.
    pub fn v_first(self) -> bool {
        match self {
            Variant::Hopper(v) => v.v_first(),
            Variant::Narrow(v) => v.v_first(),
            Variant::Portable(v) => v.v_first(),
        }
    }

    /// Whether it walks segments of sequences.
    pub fn split(self) -> bool {
        match self {
            Variant::Narrow(v) => v.split(),
            Variant::Hopper(_) | Variant::Portable(_) => false,
        }
    }

    /// Whether it computes the maps of segments and nothing else.
    pub fn maps(self) -> bool {
        match self {
            Variant::Narrow(v) => v.maps(),
            Variant::Hopper(_) | Variant::Portable(_) => false,
        }
    }

    /// Whether its copies are of boxes, that tensor maps describe.
    pub fn boxes(self) -> bool {
        !matches!(self, Variant::Portable(_))
    }
}
