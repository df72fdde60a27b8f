//! Which variant of `delta_h` to prefer, by size. `kda bench delta_h --tune` writes this file.
//!
//! Measured with the contract serial, cold L2, on: NVIDIA H200, compute capability 9.0, 132 multiprocessors, driver for
//! CUDA 13.0; driver 580.159.04, SM clock 1980 of 1980 MHz and memory clock 3201 of 3201 MHz at the start; 2026-11-30
//! 19:16 UTC; kda 0.1.0. Plain and dependent launches differ by less than 2 %. The first two rows end where the CTAs of one
//! sequence no longer run all at once; several sequences take the same time, or 4 to 9 % less, with narrower slices up to 36.

use crate::operators::preference::{Row, Table};

/// Without programmatic dependent launch.
pub const PLAIN: Table = Table {
    multiprocessors: 132,
    rows: &[
        Row { tokens: (1, u64::MAX), pairs: 16, variant: "nomaps_nosplit_vs16_nov_first_noscalar" },
        Row { tokens: (1, u64::MAX), pairs: 33, variant: "nomaps_nosplit_vs32_nov_first_noscalar" },
        Row { tokens: (1, u64::MAX), pairs: 45, variant: "nov_first_noscalar" },
        Row { tokens: (1, u64::MAX), pairs: 56, variant: "nomaps_nosplit_vs32_nov_first_noscalar" },
        Row { tokens: (1, u64::MAX), pairs: 71, variant: "nov_first_noscalar" },
        Row { tokens: (1, u64::MAX), pairs: 119, variant: "nomaps_nosplit_vs32_nov_first_noscalar" },
        Row { tokens: (1, u64::MAX), pairs: 155, variant: "nov_first_noscalar" },
        Row { tokens: (1, u64::MAX), pairs: 246, variant: "nomaps_nosplit_vs32_nov_first_noscalar" },
        Row { tokens: (1, u64::MAX), pairs: u64::MAX, variant: "nov_first_noscalar" },
    ],
};

/// With it, everything read behind the wait for the predecessor.
pub const PDL: Table = PLAIN;
