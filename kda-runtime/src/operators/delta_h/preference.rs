//! Which variant of `delta_h` to prefer, by size. `kda bench delta_h --tune` writes this file.
//!
//! Measured with the contract serial, cold L2, on: NVIDIA H200, compute capability 9.0, 132 multiprocessors, driver for
//! CUDA 13.0; one sequence of 8192 rows with HV from 4 to 64, and six of 8192 rows together with HV from 8 to 64;
//! slices of 32 columns against 64 in clusters of 2, us: one sequence 80 / 87, 81 / 88, 83 / 90, 106 / 112, 220 / 213;
//! six 48.4 / 44.4, 70.4 / 70.5, 125.3 / 123.4, 257 / 233.

use crate::operators::preference::{Row, Table};

/// Without programmatic dependent launch.
pub const PLAIN: Table = Table {
    multiprocessors: 132,
    rows: &[
        Row { tokens: (1, u64::MAX), pairs: 33, variant: "nomaps_nosplit_vs32_cluster1_nostream_nov_first_noscalar" },
        Row {
            tokens: (1, u64::MAX),
            pairs: u64::MAX,
            variant: "nomaps_nosplit_vs64_cluster2_stream_nov_first_noscalar",
        },
    ],
};

/// With it, everything read behind the wait for the predecessor.
pub const PDL: Table = PLAIN;
