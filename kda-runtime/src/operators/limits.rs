//! Sizes and alignments that every operator of KDA decode asks for.

/// K and V: channels of a head.
pub(super) const HEAD: u64 = 128;
/// Inputs that a history or a window holds.
pub(super) const HISTORY: u64 = 3;
/// Taps of the convolution.
pub(super) const TAPS: u64 = HISTORY + 1;
/// Most entries of a pool that is indexed by `i32`.
pub(super) const MOST_SLOTS: u64 = i32::MAX as u64;
/// Most requests: a grid has at most that many rows of CTAs.
pub(super) const MOST_REQUESTS: u64 = 65_535;
/// Most of any other size: kernels count in 32 bits.
pub(super) const MOST: u64 = u32::MAX as u64;

pub(super) const WHY_HEAD: &str = "K = V = 128 is the only head size";
pub(super) const WHY_COUNT: &str = "sizes are counted in 32 bits";

/// Bytes that the start of each argument must be a multiple of.
pub(super) mod align {
    pub const BF16: u64 = 2;
    pub const SCALARS: u64 = 4;
    /// Read or written 8 bytes at once.
    pub const PAIRS: u64 = 8;
    /// Read or written 16 bytes at once.
    pub const WIDE: u64 = 16;
    /// Four taps of bf16 at once.
    pub const NARROW_TAPS: u64 = 8;

    /// What the strictest variant asks of a tensor parameter.
    #[cfg(test)]
    pub fn strictest(variants: &[kda_core::KernelDesc], name: &str) -> u64 {
        let of = |desc: &kda_core::KernelDesc| {
            let param = desc.params.iter().find(|p| p.name == name).expect("the parameter exists");
            match &param.kind {
                kda_core::ParamKind::Tensor(tensor) => u64::from(tensor.align),
                _ => panic!("{name} is no tensor"),
            }
        };
        variants.iter().map(of).max().expect("variants")
    }
}
