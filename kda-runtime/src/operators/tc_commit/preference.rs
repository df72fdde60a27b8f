//! Which variant of `tc_commit` to prefer, by the number of (layer, request, head) states.
//!
//! The bounds are those of hand-written CUDA C++ with the same slices, cold L2, on an H200 (132 multiprocessors, driver
//! 580.159): slices of 8 KB are faster up to 384 states, those of 16 KB from 1536 states on. They are no times of these
//! kernels; `kda bench tc_commit --tune` writes this file from such.

use crate::operators::preference::{Row, Table};

/// Without programmatic dependent launch; a bf16 state.
pub const BF16_PLAIN: Table = Table {
    multiprocessors: 132,
    rows: &[
        Row { tokens: (1, u64::MAX), pairs: 768, variant: "rows32" },
        Row { tokens: (1, u64::MAX), pairs: u64::MAX, variant: "rows64" },
    ],
};

/// With it, everything read behind the wait for the predecessor; a bf16 state.
pub const BF16_PDL: Table = BF16_PLAIN;

/// Without programmatic dependent launch; an f32 state.
pub const F32_PLAIN: Table = Table {
    multiprocessors: 132,
    rows: &[
        Row { tokens: (1, u64::MAX), pairs: 384, variant: "rows16" },
        Row { tokens: (1, u64::MAX), pairs: u64::MAX, variant: "rows32" },
    ],
};

/// With it, everything read behind the wait for the predecessor; an f32 state.
pub const F32_PDL: Table = F32_PLAIN;
