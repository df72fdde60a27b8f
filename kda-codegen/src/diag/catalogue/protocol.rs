//! KDA06xx: protocol.

use super::{Entry, entry};

/// Entries in the order of their codes.
pub const ENTRIES: &[Entry] = &[
    entry(
        650,
        "too many named barriers",
        "The hardware has 16 barriers a CTA; one of them is `cta_sync()`.",
        "Use one barrier for roles that meet at several places.",
    ),
    entry(
        651,
        "access ahead of the wait for the predecessor",
        "With programmatic dependent launch a predecessor may still run until `pdl::wait()` returns. Ahead of it only \
         parameters that no running kernel writes may be read, and nothing may be written.",
        "Move the access behind the wait, or mark the parameter `stable` if that is true of it.",
    ),
];
