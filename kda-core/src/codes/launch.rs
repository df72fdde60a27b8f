//! KDA10xx: launches.

use super::{Entry, entry};

/// Entries in the order of their codes.
pub const ENTRIES: &[Entry] = &[
    entry(
        1001,
        "parameters too large",
        "The parameters of an entry take at most 4,352 bytes.",
        "Pass fewer scalars, or put them in a tensor.",
    ),
    entry(
        1050,
        "instructions of a newer architecture",
        "The kernel uses instructions that the architecture it is compiled for does not have.",
        "Raise `arch`, or choose by `if const { ARCH >= sm_90 }`.",
    ),
];
