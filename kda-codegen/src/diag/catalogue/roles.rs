//! KDA03xx: scopes and roles.

use super::{Entry, entry};

/// Entries in the order of their codes.
pub const ENTRIES: &[Entry] = &[
    entry(
        301,
        "role without warps",
        "The range of a role is empty.",
        "Write `first..end` with the end past the first warp.",
    ),
    entry(
        302,
        "roles overlap",
        "A warp has one role, so that what it executes can be read off the source.",
        "Separate the ranges; use `#[role(a, b)]` for code that two roles share.",
    ),
    entry(
        303,
        "role past the end of the block",
        "The role names warps that the block does not have.",
        "Enlarge `block` or move the role.",
    ),
    entry(
        304,
        "register count for a part of a warpgroup",
        "`regs` is set for four warps at once, beginning at a multiple of four.",
        "Let the role be whole warpgroups, or leave `regs` out.",
    ),
];
