//! Which variant of `tc_commit` to prefer, by size. `kda bench tc_commit --tune` writes this file.
//!
//! Measured with the contracts bf16, fp32, cold L2, on: NVIDIA H200, compute capability 9.0, 132 multiprocessors,
//! driver for CUDA 13.0; driver 580.159.04, SM clock 1980 of 1980 MHz and memory clock 3201 of 3201 MHz at the start;
//! 2026-11-30 16:07 UTC; kda 0.1.0; kda bench tc_commit --tune=pref.rs --csv tune.csv.

use crate::operators::preference::{Row, Table};

/// Without programmatic dependent launch; a bf16 state.
pub const BF16_PLAIN: Table = Table {
    multiprocessors: 132,
    rows: &[
        Row { tokens: (1, u64::MAX), pairs: 169, variant: "rows32" },
        Row { tokens: (1, u64::MAX), pairs: 201, variant: "rows64" },
        Row { tokens: (1, u64::MAX), pairs: 362, variant: "rows32" },
        Row { tokens: (1, u64::MAX), pairs: 510, variant: "rows64" },
        Row { tokens: (1, u64::MAX), pairs: 768, variant: "rows32" },
        Row { tokens: (1, u64::MAX), pairs: u64::MAX, variant: "rows64" },
    ],
};

/// With it, everything read behind the wait for the predecessor; a bf16 state.
pub const BF16_PDL: Table = Table {
    multiprocessors: 132,
    rows: &[
        Row { tokens: (1, u64::MAX), pairs: 138, variant: "rows32" },
        Row { tokens: (1, u64::MAX), pairs: 218, variant: "rows64" },
        Row { tokens: (1, u64::MAX), pairs: 343, variant: "rows32" },
        Row { tokens: (1, u64::MAX), pairs: u64::MAX, variant: "rows64" },
    ],
};

/// Without programmatic dependent launch; an f32 state.
pub const F32_PLAIN: Table = Table {
    multiprocessors: 132,
    rows: &[
        Row { tokens: (1, u64::MAX), pairs: 19, variant: "rows16" },
        Row { tokens: (1, u64::MAX), pairs: 270, variant: "rows32" },
        Row { tokens: (1, u64::MAX), pairs: u64::MAX, variant: "rows16" },
    ],
};

/// With it, everything read behind the wait for the predecessor; an f32 state.
pub const F32_PDL: Table = Table {
    multiprocessors: 132,
    rows: &[
        Row { tokens: (1, u64::MAX), pairs: 180, variant: "rows16" },
        Row { tokens: (1, u64::MAX), pairs: u64::MAX, variant: "rows32" },
    ],
};
