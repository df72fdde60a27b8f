//! KDA20xx: what `ptxas` says of the emitted text, brought back to the kernel's source.

use super::{Entry, entry};

/// Entries in the order of their codes.
pub const ENTRIES: &[Entry] = &[
    entry(
        2001,
        "the assembler refuses the text",
        "`ptxas` reports an error. What the compiler emits should always assemble, so this is a fault of the compiler, or \
         the assembler is older than the text's version.",
        "Use ptxas 13.0 or newer; if it still fails, report the kernel.",
    ),
    entry(
        2002,
        "registers are spilled",
        "The kernel needs more registers than a thread may have, and some are kept in local memory: every use costs a load.",
        "Keep fewer values alive at once: smaller tiles, fewer stages in registers, `min_blocks_per_sm = 1`, or more \
         registers for the role.",
    ),
    entry(
        2003,
        "the assembler gave up an optimisation",
        "A note C75xx: `setmaxnreg` was ignored, or products of warpgroups run one after another because their registers \
         are touched, or too few.",
        "For products: end loop bodies with `wgmma::wait::<0>()`, do not touch accumulators in flight, and leave registers \
         free. For `setmaxnreg`: write `min_blocks_per_sm`.",
    ),
    entry(
        2004,
        "the kernel has a stack frame",
        "Values lie in local memory, which is global memory behind a cache. The language has no way to ask for it, so it \
         comes from the assembler.",
        "Keep fewer values alive at once.",
    ),
    entry(
        2005,
        "more registers than the launch allows",
        "A CTA's registers at launch must fit the 65,536 of an SM, as often as `min_blocks_per_sm` says.",
        "Raise `min_blocks_per_sm` only as far as registers allow, or use fewer threads.",
    ),
];
