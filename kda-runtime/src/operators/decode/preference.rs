//! Which variant of `decode` to prefer, by size. `kda bench decode --tune` writes this file.
//!
//! By reasoning, not by measurement: what is launched must fill the chip, and a CTA that owns more rows of V repeats less of
//! the convolution.

use crate::operators::preference::{Row, Table};

/// Without programmatic dependent launch; an f32 state [V, K].
pub const F32_VK_PLAIN: Table = Table {
    multiprocessors: 132,
    rows: &[
        Row { tokens: (1, u64::MAX), pairs: 16, variant: "bv16_lanes8_threads128_extra1_ctas4" },
        Row { tokens: (1, u64::MAX), pairs: 32, variant: "bv32_lanes8_threads128_extra1_ctas4" },
        Row { tokens: (1, u64::MAX), pairs: 128, variant: "bv64_lanes8_threads256_extra1_ctas2" },
        Row { tokens: (1, u64::MAX), pairs: 512, variant: "bv64_lanes32_threads256_extra0_ctas3" },
        Row { tokens: (1, u64::MAX), pairs: u64::MAX, variant: "bv128_lanes32_threads512_extra0_ctas2" },
    ],
};

/// With it, everything read behind the wait for the predecessor; an f32 state [V, K].
pub const F32_VK_PDL: Table = F32_VK_PLAIN;

/// With it, indices and pools read ahead of that wait; an f32 state [V, K].
pub const F32_VK_PDL_STABLE: Table = F32_VK_PLAIN;

/// Without programmatic dependent launch; an f32 state [K, V].
pub const F32_KV_PLAIN: Table = Table {
    multiprocessors: 132,
    rows: &[
        Row { tokens: (1, u64::MAX), pairs: 32, variant: "bv16_lanes1_threads128_extra0_ctas5" },
        Row { tokens: (1, u64::MAX), pairs: 64, variant: "bv32_lanes1_threads128_extra0_ctas4" },
        Row { tokens: (1, u64::MAX), pairs: 256, variant: "bv64_lanes1_threads256_extra0_ctas2" },
        Row { tokens: (1, u64::MAX), pairs: u64::MAX, variant: "bv128_lanes1_threads256_extra0_ctas2" },
    ],
};

/// With it, everything read behind the wait for the predecessor; an f32 state [K, V].
pub const F32_KV_PDL: Table = F32_KV_PLAIN;

/// With it, indices and pools read ahead of that wait; an f32 state [K, V].
pub const F32_KV_PDL_STABLE: Table = F32_KV_PLAIN;

/// Without programmatic dependent launch; a bf16 state [V, K].
pub const BF16_VK_PLAIN: Table = Table {
    multiprocessors: 132,
    rows: &[
        Row { tokens: (1, u64::MAX), pairs: 64, variant: "bv32_lanes4_threads128_extra1_ctas4" },
        Row { tokens: (1, u64::MAX), pairs: 256, variant: "bv64_lanes4_threads256_extra0_ctas2" },
        Row { tokens: (1, u64::MAX), pairs: u64::MAX, variant: "bv128_lanes4_threads256_extra0_ctas2" },
    ],
};

/// With it, everything read behind the wait for the predecessor; a bf16 state [V, K].
pub const BF16_VK_PDL: Table = BF16_VK_PLAIN;

/// With it, indices and pools read ahead of that wait; a bf16 state [V, K].
pub const BF16_VK_PDL_STABLE: Table = BF16_VK_PLAIN;

/// Without programmatic dependent launch; a bf16 state [K, V].
pub const BF16_KV_PLAIN: Table = Table {
    multiprocessors: 132,
    rows: &[
        Row { tokens: (1, u64::MAX), pairs: 64, variant: "bv32_lanes1_threads128_extra0_ctas4" },
        Row { tokens: (1, u64::MAX), pairs: 256, variant: "bv64_lanes1_threads256_extra0_ctas2" },
        Row { tokens: (1, u64::MAX), pairs: u64::MAX, variant: "bv128_lanes1_threads256_extra0_ctas2" },
    ],
};

/// With it, everything read behind the wait for the predecessor; a bf16 state [K, V].
pub const BF16_KV_PDL: Table = BF16_KV_PLAIN;

/// With it, indices and pools read ahead of that wait; a bf16 state [K, V].
pub const BF16_KV_PDL_STABLE: Table = BF16_KV_PLAIN;
