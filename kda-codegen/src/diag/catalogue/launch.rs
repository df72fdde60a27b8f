//! KDA10xx: launches.

use super::{Entry, entry};

/// Entries in the order of their codes.
pub const ENTRIES: &[Entry] = &[entry(
    1001,
    "parameters too large",
    "The parameters of an entry take at most 4,352 bytes.",
    "Pass fewer scalars, or put them in a tensor.",
)];
