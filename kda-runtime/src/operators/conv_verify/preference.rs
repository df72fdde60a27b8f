//! Which variant of `conv_verify` to prefer, by size. `kda bench conv_verify --tune` writes this file.
//!
//! From the hand-written twin's measurements on an H200: one row of V a lane group fills the chip up to 32 pairs, 512-byte
//! warp stores win above.

use crate::operators::preference::{Row, Table};

/// Without programmatic dependent launch.
pub const PLAIN: Table = Table {
    multiprocessors: 132,
    rows: &[
        Row { tokens: (1, 8), pairs: 8, variant: "bv8_lanes8_ctas1" },
        Row { tokens: (1, 8), pairs: 16, variant: "bv32_lanes8_ctas2" },
        Row { tokens: (1, 8), pairs: 32, variant: "bv16_lanes8_ctas2" },
        Row { tokens: (1, 8), pairs: 64, variant: "bv32_lanes8_ctas2" },
        Row { tokens: (1, 8), pairs: 128, variant: "bv64_lanes32_ctas2" },
        Row { tokens: (1, 8), pairs: 2048, variant: "bv128_lanes32_ctas2" },
        Row { tokens: (1, 8), pairs: u64::MAX, variant: "bv128_lanes32_ctas1" },
        Row { tokens: (9, u64::MAX), pairs: 64, variant: "bv32_lanes8_ctas1" },
        Row { tokens: (9, u64::MAX), pairs: u64::MAX, variant: "bv128_lanes32_ctas1" },
    ],
};

/// With it, everything read behind the wait for the predecessor.
pub const PDL: Table = PLAIN;

/// With it, indices and pools read ahead of that wait.
pub const PDL_STABLE: Table = PLAIN;
