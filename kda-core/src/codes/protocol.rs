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
    entry(
        652,
        "form of a pipeline",
        "A pipeline names its two sides in order of flow, and its buffers, which have the same number of stages.",
        "Write `Pipeline::<load, math> { a: smem::<bf16, Shape<128, 64>, Swizzle<128>, STAGES>() }`.",
    ),
    entry(
        653,
        "side of a pipeline",
        "The producing side acquires and commits, the consuming side waits and releases; a role does only what its side does.",
        "Use the operation of this role's side, or change the sides of the pipeline.",
    ),
    entry(
        654,
        "stage used twice or not at all",
        "A stage that was acquired is committed once, a stage that was waited for is released once; after that it is gone.",
        "Commit or release each stage exactly once on every path.",
    ),
    entry(
        655,
        "stage released too early",
        "Products that read the stage may still run; the producer would overwrite their operands.",
        "Wait for the products before the release: `wgmma::wait::<0>();`.",
    ),
    entry(
        656,
        "one thread where the role is needed, or the reverse",
        "Bulk tensor copies are issued by one thread of a role; waiting for a stage and releasing it is done by all of it.",
        "Put copies under `#[elect_one]`, and everything else outside.",
    ),
    entry(
        657,
        "branch that takes part on one side only",
        "Other roles count on every stage and every barrier; a runtime branch that leaves one out would leave them waiting.",
        "Take and give stages outside the branch; make only the work inside conditional.",
    ),
    entry(
        660,
        "stages left over",
        "With some numbers of trips the producing side commits more stages than the consuming side releases.",
        "Give both sides the same loop: the same bounds, written as the same expression.",
    ),
    entry(
        661,
        "deadlock",
        "With some numbers of trips a role waits for a stage or a barrier that no other role will ever give.",
        "Give both sides the same loop, and meet at barriers in the same order.",
    ),
];
