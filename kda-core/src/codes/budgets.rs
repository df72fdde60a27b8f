//! KDA05xx: budgets.

use super::{Entry, entry};

/// Entries in the order of their codes.
pub const ENTRIES: &[Entry] = &[
    entry(
        501,
        "block size",
        "A block is a positive multiple of 32 threads, at most 1,024.",
        "Round the block up to whole warps.",
    ),
    entry(502, "register count of a role", "`regs` is a multiple of 8 between 24 and 256.", "Choose such a count."),
    entry(
        503,
        "register limit",
        "`max_registers` is between 16 and 255, the most that a thread can have.",
        "Choose a limit in this range.",
    ),
    entry(
        504,
        "more threads than a multiprocessor has",
        "`min_blocks_per_sm` blocks of this size are more than the 2,048 threads of a multiprocessor.",
        "Ask for fewer blocks, or make them smaller.",
    ),
    entry(
        505,
        "registers of a block",
        "The roles of a block, or its threads at `max_registers`, hold more than the 65,536 registers of a multiprocessor, \
         taken as often as `min_blocks_per_sm` says.",
        "Lower `regs` of the roles that compute least, `max_registers` or `min_blocks_per_sm`.",
    ),
    entry(
        520,
        "cluster size",
        "A cluster has 1 to 8 CTAs, neighbours along x, and clusters divide the grid.",
        "Choose such a size, and round the grid up to whole clusters.",
    ),
    entry(
        521,
        "tensor memory",
        "A multiprocessor has 512 columns of tensor memory; each accumulator takes its columns times its stages, rounded up to a \
         power of two of at least 32.",
        "Use fewer stages or columns.",
    ),
    entry(
        550,
        "shared memory",
        "The shared buffers of a CTA take at most 232,448 bytes.",
        "Shrink the buffers that the message lists, or reuse one of them.",
    ),
    entry(
        551,
        "too much code",
        "Unrolled loops inside each other, and functions that call functions several times, multiply. A variant that needs \
         millions of steps to compile would make a text that no cache holds.",
        "Leave `#[unroll]` out of the outer loop, or call the function in a loop.",
    ),
    entry(
        552,
        "nesting",
        "Expressions, blocks and calls stand inside each other more deeply than the compiler follows.",
        "Name parts with `let`.",
    ),
];
