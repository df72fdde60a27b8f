//! Which variant of `decode` to prefer, by size. `kda bench decode --tune` writes this file.
//!
//! Measured with the contracts fp32, fp32-kv, bf16, bf16-kv, cold L2, on: NVIDIA H200, compute capability 9.0, 132
//! multiprocessors, driver for CUDA 13.0; driver 580.159.04, SM clock 1980 of 1980 MHz and memory clock 3201 of 3201
//! MHz at the start; 2026-11-30 06:11 UTC; kda 0.1.0; kda bench decode --tune=pref_decode.rs --csv
//! tune_decode.csv.

use crate::operators::preference::{Row, Table};

/// Without programmatic dependent launch; an f32 state [V, K].
pub const F32_VK_PLAIN: Table = Table {
    multiprocessors: 132,
    rows: &[
        Row { tokens: (1, u64::MAX), pairs: 30, variant: "bv32_lanes8_threads256_extra1_ctas3" },
        Row { tokens: (1, u64::MAX), pairs: 70, variant: "bv64_lanes8_threads256_extra1_ctas2" },
        Row { tokens: (1, u64::MAX), pairs: 99, variant: "bv32_lanes8_threads256_extra1_ctas3" },
        Row { tokens: (1, u64::MAX), pairs: 202, variant: "bv64_lanes32_threads256_extra0_ctas3" },
        Row { tokens: (1, u64::MAX), pairs: u64::MAX, variant: "bv128_lanes32_threads512_extra0_ctas2" },
    ],
};

/// With it, everything read behind the wait for the predecessor; an f32 state [V, K].
pub const F32_VK_PDL: Table = Table {
    multiprocessors: 132,
    rows: &[
        Row { tokens: (1, u64::MAX), pairs: 2, variant: "bv8_lanes32_threads128_extra1_ctas4" },
        Row { tokens: (1, u64::MAX), pairs: 4, variant: "bv16_lanes8_threads128_extra1_ctas4" },
        Row { tokens: (1, u64::MAX), pairs: 35, variant: "bv32_lanes8_threads256_extra1_ctas3" },
        Row { tokens: (1, u64::MAX), pairs: 80, variant: "bv64_lanes8_threads256_extra1_ctas2" },
        Row { tokens: (1, u64::MAX), pairs: 105, variant: "bv32_lanes8_threads256_extra1_ctas3" },
        Row { tokens: (1, u64::MAX), pairs: 137, variant: "bv32_lanes8_threads128_extra1_ctas4" },
        Row { tokens: (1, u64::MAX), pairs: 204, variant: "bv64_lanes32_threads256_extra0_ctas3" },
        Row { tokens: (1, u64::MAX), pairs: u64::MAX, variant: "bv128_lanes32_threads512_extra0_ctas2" },
    ],
};

/// With it, indices and pools read ahead of that wait; an f32 state [V, K].
pub const F32_VK_PDL_STABLE: Table = Table {
    multiprocessors: 132,
    rows: &[
        Row { tokens: (1, u64::MAX), pairs: 18, variant: "bv32_lanes8_threads256_extra1_ctas3" },
        Row { tokens: (1, u64::MAX), pairs: 39, variant: "bv64_lanes8_threads256_extra1_ctas2" },
        Row { tokens: (1, u64::MAX), pairs: 116, variant: "bv128_lanes32_threads256_extra0_ctas2" },
        Row { tokens: (1, u64::MAX), pairs: 167, variant: "bv128_lanes32_threads512_extra0_ctas1" },
        Row { tokens: (1, u64::MAX), pairs: u64::MAX, variant: "bv128_lanes32_threads512_extra0_ctas2" },
    ],
};

/// Without programmatic dependent launch; an f32 state [K, V].
pub const F32_KV_PLAIN: Table = Table {
    multiprocessors: 132,
    rows: &[
        Row { tokens: (1, u64::MAX), pairs: 17, variant: "bv16_lanes1_threads128_extra0_ctas5" },
        Row { tokens: (1, u64::MAX), pairs: 42, variant: "bv32_lanes1_threads128_extra0_ctas4" },
        Row { tokens: (1, u64::MAX), pairs: 58, variant: "bv64_lanes1_threads256_extra0_ctas2" },
        Row { tokens: (1, u64::MAX), pairs: u64::MAX, variant: "bv128_lanes1_threads256_extra0_ctas2" },
    ],
};

/// With it, everything read behind the wait for the predecessor; an f32 state [K, V].
pub const F32_KV_PDL: Table = Table {
    multiprocessors: 132,
    rows: &[
        Row { tokens: (1, u64::MAX), pairs: 6, variant: "bv16_lanes1_threads128_extra0_ctas5" },
        Row { tokens: (1, u64::MAX), pairs: 9, variant: "bv32_lanes1_threads128_extra0_ctas4" },
        Row { tokens: (1, u64::MAX), pairs: 19, variant: "bv16_lanes1_threads128_extra0_ctas5" },
        Row { tokens: (1, u64::MAX), pairs: 52, variant: "bv32_lanes1_threads128_extra0_ctas4" },
        Row { tokens: (1, u64::MAX), pairs: u64::MAX, variant: "bv128_lanes1_threads256_extra0_ctas2" },
    ],
};

/// With it, indices and pools read ahead of that wait; an f32 state [K, V].
pub const F32_KV_PDL_STABLE: Table = Table {
    multiprocessors: 132,
    rows: &[
        Row { tokens: (1, u64::MAX), pairs: 4, variant: "bv16_lanes1_threads128_extra0_ctas5" },
        Row { tokens: (1, u64::MAX), pairs: 22, variant: "bv32_lanes1_threads128_extra0_ctas4" },
        Row { tokens: (1, u64::MAX), pairs: 25, variant: "bv64_lanes1_threads256_extra0_ctas2" },
        Row { tokens: (1, u64::MAX), pairs: u64::MAX, variant: "bv128_lanes1_threads256_extra0_ctas2" },
    ],
};

/// Without programmatic dependent launch; a bf16 state [V, K].
pub const BF16_VK_PLAIN: Table = Table {
    multiprocessors: 132,
    rows: &[
        Row { tokens: (1, u64::MAX), pairs: 32, variant: "bv32_lanes4_threads128_extra1_ctas4" },
        Row { tokens: (1, u64::MAX), pairs: 68, variant: "bv64_lanes4_threads256_extra0_ctas2" },
        Row { tokens: (1, u64::MAX), pairs: u64::MAX, variant: "bv128_lanes4_threads256_extra0_ctas2" },
    ],
};

/// With it, everything read behind the wait for the predecessor; a bf16 state [V, K].
pub const BF16_VK_PDL: Table = BF16_VK_PLAIN;

/// With it, indices and pools read ahead of that wait; a bf16 state [V, K].
pub const BF16_VK_PDL_STABLE: Table = Table {
    multiprocessors: 132,
    rows: &[
        Row { tokens: (1, u64::MAX), pairs: 11, variant: "bv32_lanes4_threads128_extra1_ctas4" },
        Row { tokens: (1, u64::MAX), pairs: 49, variant: "bv64_lanes4_threads256_extra0_ctas2" },
        Row { tokens: (1, u64::MAX), pairs: 121, variant: "bv128_lanes4_threads256_extra0_ctas2" },
        Row { tokens: (1, u64::MAX), pairs: 129, variant: "bv64_lanes4_threads256_extra0_ctas2" },
        Row { tokens: (1, u64::MAX), pairs: u64::MAX, variant: "bv128_lanes4_threads256_extra0_ctas2" },
    ],
};

/// Without programmatic dependent launch; a bf16 state [K, V].
pub const BF16_KV_PLAIN: Table = Table {
    multiprocessors: 132,
    rows: &[
        Row { tokens: (1, u64::MAX), pairs: 68, variant: "bv32_lanes1_threads128_extra0_ctas4" },
        Row { tokens: (1, u64::MAX), pairs: u64::MAX, variant: "bv128_lanes1_threads256_extra0_ctas2" },
    ],
};

/// With it, everything read behind the wait for the predecessor; a bf16 state [K, V].
pub const BF16_KV_PDL: Table = BF16_KV_PLAIN;

/// With it, indices and pools read ahead of that wait; a bf16 state [K, V].
pub const BF16_KV_PDL_STABLE: Table = Table {
    multiprocessors: 132,
    rows: &[
        Row { tokens: (1, u64::MAX), pairs: 36, variant: "bv32_lanes1_threads128_extra0_ctas4" },
        Row { tokens: (1, u64::MAX), pairs: u64::MAX, variant: "bv128_lanes1_threads256_extra0_ctas2" },
    ],
};
