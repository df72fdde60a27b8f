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
        "A pipeline names its sides in order of flow, each a role or a tuple of roles, and its buffers, which have the same \
         number of stages.",
        "Write `Pipeline::<load, math> { a: smem::<bf16, Shape<128, 64>, Swizzle<128>, STAGES>() }`.",
    ),
    entry(
        653,
        "side of a pipeline",
        "The producing side acquires and commits, the consuming side waits and releases, a side between them waits and commits; \
         a role does only what its side does.",
        "Use the operation of this role's side, or change the sides of the pipeline.",
    ),
    entry(
        654,
        "stage used twice or not at all",
        "A stage that was acquired is committed once, a stage that was waited for is released once; after that it is gone. A \
         role that holds several gives the oldest first. What `peek` has looked at is taken next, in the same block. A stage may go round a loop in a variable if no copies of it are \
         under way.",
        "Commit or release each stage exactly once on every path, in the order in which they were taken.",
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
        "Bulk copies are issued by one thread of a role. A role takes and gives the stages of its side in one thread or as a \
         whole, everywhere in the same way, because the arrivals of a stage are counted once.",
        "Put copies under `#[elect_one]`, and all uses of the pipeline on this side inside or all outside.",
    ),
    entry(
        657,
        "branch that takes part on one side only",
        "Other roles count on every stage and every barrier; a runtime branch that leaves one out would leave them waiting. \
         A branch that compares a value with a constant, `if n > 0`, is understood where loops of other roles depend on it; \
         a role may meet itself, `role_sync()`, on one side of a branch that is the same for the whole CTA.",
        "Take and give stages outside the branch; make only the work inside conditional.",
    ),
    entry(
        660,
        "stages left over",
        "With some numbers of trips, or at an early `return`, the producing side has committed more stages than the \
         consuming side has released.",
        "Give both sides the same loop: the same bounds, written as the same expression.",
    ),
    entry(
        661,
        "deadlock",
        "With some numbers of trips a role waits for a stage or a barrier that no other role will ever give. Or a role \
         arrives at a named barrier twice before another one has arrived once: the barrier counts arrivals and completes \
         without the other, which then waits for ever.",
        "Give both sides the same loop, and meet at barriers in the same order. Between two arrivals let a role wait for \
         what the others do after theirs.",
    ),
    entry(
        662,
        "buffer read that may not be filled",
        "The producing side fills the buffer of a stage under a condition, and the other side reads it always: where the \
         condition is false it reads what an earlier trip has left, or nothing at all. Or no role fills the buffer.",
        "Read the buffer under the same condition; fill it in some role.",
    ),
    entry(
        663,
        "wait for the predecessor on some paths only",
        "The kernel launched next relies on this one having waited for its own predecessor. A CTA that ends without the wait ends \
         too early for it.",
        "Put `pdl::wait()` where every path passes, ahead of each `return`.",
    ),
];
