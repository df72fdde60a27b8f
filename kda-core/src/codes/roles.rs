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
    entry(
        350,
        "collective in a divergent branch",
        "The instruction needs all lanes of a warp or all threads of a CTA, but threads may differ in the branch around it: \
         it would hang or exchange nonsense.",
        "Compute in all threads, and use the result under the condition.",
    ),
    entry(
        351,
        "unknown or misplaced role",
        "`#[role(…)]` names roles that `#[roles(…)]` declares; a role does not stand in another.",
        "Correct the name, or declare the role.",
    ),
    entry(
        352,
        "named barrier of other threads",
        "A named barrier is declared between roles, and only these may use it.",
        "Write `NamedBarrier { between: (load, math) }` and call it in those roles.",
    ),
    entry(
        353,
        "CTA barrier inside a role",
        "The other roles never arrive, so the CTA hangs.",
        "Move it out of the role, or use a `NamedBarrier` between the roles that meet.",
    ),
    entry(
        360,
        "halves of a cluster barrier",
        "Every `cluster_arrive()` is followed by one `cluster_wait()` in the same block, without another cluster barrier between.",
        "Pair them, or write `cluster_sync()`.",
    ),
    entry(
        361,
        "early return in a cluster",
        "The shared memory of a CTA ends with it; the others of the cluster may still reach it.",
        "Put the rest of the kernel under a condition instead of returning.",
    ),
];
