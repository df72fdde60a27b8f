//! Which variant of `tc_commit` to prefer, by size. `kda bench tc_commit --tune` writes this file.
//!
//! A bf16 state: the bound is the last measured size at which `rows32` is the faster, on: NVIDIA H200, compute capability
//! 9.0, 132 multiprocessors; µs of `rows32` / `rows64`, variants that apply boundaries: 192 states 6.7 / 6.9, 384 states
//! 11.1 / 10.0, 768 states 18.8 / 17.5. Not measured: variants without boundaries, and an f32 state, which has the bound
//! of slices of the same bytes, 8 and 16 KB.

use crate::operators::preference::{Row, Table};

/// Without programmatic dependent launch; a bf16 state.
pub const BF16_PLAIN: Table = Table {
    multiprocessors: 132,
    rows: &[
        Row { tokens: (1, u64::MAX), pairs: 192, variant: "rows32" },
        Row { tokens: (1, u64::MAX), pairs: u64::MAX, variant: "rows64" },
    ],
};

/// With it, everything read behind the wait for the predecessor; a bf16 state.
pub const BF16_PDL: Table = BF16_PLAIN;

/// Without programmatic dependent launch; an f32 state.
pub const F32_PLAIN: Table = Table {
    multiprocessors: 132,
    rows: &[
        Row { tokens: (1, u64::MAX), pairs: 192, variant: "rows16" },
        Row { tokens: (1, u64::MAX), pairs: u64::MAX, variant: "rows32" },
    ],
};

/// With it, everything read behind the wait for the predecessor; an f32 state.
pub const F32_PDL: Table = F32_PLAIN;
