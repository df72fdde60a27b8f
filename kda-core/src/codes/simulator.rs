//! KDA30xx: what the simulator finds while a kernel runs.

use super::{Entry, entry};

/// Entries in the order of their codes.
pub const ENTRIES: &[Entry] = &[
    entry(
        3000,
        "the launch does not fit the kernel",
        "Block, grid, cluster, shared memory or parameters are not what the kernel's text declares.",
        "Launch through the generated arguments, which check all of it.",
    ),
    entry(
        3001,
        "race",
        "Two accesses touch the same bytes, at least one writes, and nothing orders them: no barrier, no arrival and wait, \
         no fence between the proxies. The report names both accesses. In a dependent launch the other may be that of the grid \
         ahead, until the kernel has waited for it.",
        "Hand the memory over: a barrier or a pipeline between threads, `wait()` ahead of a read of what a copy brings, a \
         wait of bulk groups before their sources are written again, `pdl::wait()` ahead of what the grid ahead may write.",
    ),
    entry(
        3002,
        "undefined value",
        "A value that nobody has written decides a branch or an address, enters a product, or is stored to global memory.",
        "Initialise the memory or the variable on every path that leads here.",
    ),
    entry(
        3003,
        "access outside its memory",
        "The address belongs to no tensor of the launch, or to no shared buffer of the CTA.",
        "Guard the access: `load_if(i < n)`, `store_if(i < n, x)`.",
    ),
    entry(
        3004,
        "misaligned access",
        "An access of N bytes needs an address that is a multiple of N; bulk copies need 16.",
        "State the divisibility in `#[requires]`, and begin vectors at multiples of their length.",
    ),
    entry(
        3005,
        "barrier used wrongly",
        "An mbarrier or a named barrier gets more arrivals or bytes than it expects, is used before its initialisation is \
         visible, has its bytes overwritten, or completes a phase that a waiting thread has not seen.",
        "Use `Pipeline` and `NamedBarrier`, which derive counts, bytes and phases.",
    ),
    entry(
        3006,
        "deadlock",
        "Nothing can run, nothing is in flight, and threads still wait. The report names what each of them waits for.",
        "Compare the loops of both sides of the pipeline, and the roles of the barrier.",
    ),
    entry(
        3007,
        "too many steps",
        "The run was stopped at its limit; the report says where each warp was.",
        "Look for a loop whose condition never changes; raise the limit if the kernel is merely long.",
    ),
    entry(3008, "trap", "The kernel executed `trap`.", "Look at the condition ahead of it."),
    entry(
        3009,
        "lanes are not together",
        "An instruction that all lanes of the warp execute together was executed by some of them.",
        "Move it out of the branch in which lanes differ.",
    ),
    entry(
        3010,
        "product used wrongly",
        "A product of warpgroups reads or writes registers that are touched meanwhile, has a bad descriptor, or is not \
         executed by a whole warpgroup.",
        "Commit and wait before accumulators are read; keep products out of branches.",
    ),
    entry(
        3011,
        "tensor map or copy that cannot be",
        "The map is not one, or box, coordinates or destination do not fit the instruction.",
        "Declare buffer and map with the same tile and swizzle.",
    ),
    entry(
        3012,
        "tensor memory used wrongly",
        "Columns are used that are not allocated, freed twice or not at all, or lanes belong to another warp.",
        "Use `Tmem`, which allocates and frees.",
    ),
    entry(
        3013,
        "registers reallocated wrongly",
        "`setmaxnreg` asks for registers that no other warpgroup gives up, or is not executed by a whole warpgroup.",
        "Give registers to roles that are whole warpgroups, within 65,536 a CTA.",
    ),
];
