//! Mutants that no net can notice, because they do the same as the kernel: which, how many, and why.
//!
//! A reason names something that a reader can look up: a line of the kernel, a rule of the PTX memory model. An entry that matches
//! fewer or more mutants than it says is an error, so that the table cannot outlive what it explains.

use super::{Level, Mutant, Operator};

/// Why mutants of a kind live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Entry of the kernel.
    pub kernel: &'static str,
    /// Where the change is.
    pub level: Level,
    /// What was done.
    pub operator: Operator,
    /// Beginning of the instruction or statement.
    pub what: &'static str,
    /// How many mutants live for this reason.
    pub times: usize,
    /// Why nothing is wrong with them.
    pub why: &'static str,
}

/// Every reason.
pub const REASONS: &[Reason] = &[
    source("transpose", Operator::Earlier, "cta_sync()", 1, "the release has no barrier: the ring is filled once"),
    ptx("ring_sum__stages4", Operator::Drop, "bar.warp.sync", 1, LAST_RELEASE),
    ptx("ring_sum__stages4", Operator::Drop, "mbarrier.arrive.shared", 1, LAST_RELEASE),
    ptx("ring_sum__stages4", Operator::Swap, "mbarrier.arrive.shared", 1, LAST_RELEASE),
    ptx("role_silu", Operator::Drop, "bar.warp.sync", 1, JOINED),
    ptx("role_silu", Operator::Swap, "mbarrier.arrive.shared", 1, JOINED),
    ptx("role_silu", Operator::Drop, "cp.async.bulk.wait_group 0", 1, END_OF_GRID),
    ptx("role_silu", Operator::Pending, "cp.async.bulk.wait_group 0", 1, END_OF_GRID),
    ptx("role_silu", Operator::Narrow, "cp.async.bulk.wait_group 0", 1, END_OF_GRID),
    ptx("role_silu", Operator::EveryLane, "elect.sync", 1, "a thread without bulk stores has nothing to wait for"),
    ptx(
        "chained_product",
        Operator::Drop,
        "wgmma.fence",
        2,
        "the second and third copy of the loop's body begin with registers that no thread has accessed",
    ),
    ptx("blackwell_product", Operator::Drop, "tcgen05.fence::after_thread_sync", 2, FIRST_PRODUCT),
    ptx("blackwell_product", Operator::Swap, "tcgen05.commit", 1, FIRST_PRODUCT),
    ptx(GEMM, Operator::Swap, "mbarrier.arrive.shared", 6, NEXT_STAGE),
    ptx(GEMM, Operator::EveryLane, "elect.sync", 1, "a thread without bulk stores has nothing to wait for"),
    ptx(GEMM, Operator::Drop, "cp.async.bulk.wait_group 0", 1, END_OF_GRID),
    ptx(GEMM, Operator::Pending, "cp.async.bulk.wait_group 0", 1, END_OF_GRID),
    ptx(GEMM, Operator::Narrow, "cp.async.bulk.wait_group 0", 1, END_OF_GRID),
    ptx(STAGED, Operator::Drop, "bar.warp.sync", 1, STAGED_OUTPUT),
    source(STAGED, Operator::Drop, "warp_sync()", 1, STAGED_OUTPUT),
    source(STAGED, Operator::Later, "warp_sync()", 1, STAGED_OUTPUT),
];

const GEMM: &str = "gemm_ws__bn256_stages4_ctas2_bf16_silu";
const STAGED: &str = "conv_verify__bv64_lanes32_ctas2_noflat_t2_nolong";
const LAST_RELEASE: &str = "the producer takes no stage any more: nobody waits for the releases behind the last load";
const JOINED: &str = "the release of the input, between the stores and this commit, has joined the lanes already, and the proxy fence of the \
     thread that arrives covers what it knows of their stores";
const END_OF_GRID: &str = "each release has waited until its stage was read, and the end of the grid waits for the writes: nothing else is left";
const NEXT_STAGE: &str = "of two stages of results one is handed over behind the wait for the other, which does not depend on it: later, and right";
const FIRST_PRODUCT: &str = "two such fences stand between the barrier that publishes the allocation and the first product, one \
     ahead of the loop and one in it; behind it, mbarriers order the products' operands";
const STAGED_OUTPUT: &str = "the CTA barrier of the staged output stands between the atomic and these copies";

const fn ptx(kernel: &'static str, operator: Operator, what: &'static str, times: usize, why: &'static str) -> Reason {
    Reason { kernel, level: Level::Ptx, operator, what, times, why }
}

const fn source(
    kernel: &'static str,
    operator: Operator,
    what: &'static str,
    times: usize,
    why: &'static str,
) -> Reason {
    Reason { kernel, level: Level::Source, operator, what, times, why }
}

/// The reason why a mutant may live.
pub fn reason(mutant: &Mutant) -> Option<&'static Reason> {
    REASONS.iter().find(|r| {
        (r.kernel, r.level, r.operator) == (mutant.kernel, mutant.level, mutant.operator)
            && mutant.what.starts_with(r.what)
    })
}

/// Reasons of these kernels that do not hold of the survivors as often as they say, in words.
pub fn stale(kernels: &[&str], survivors: &[&Mutant]) -> Vec<String> {
    let here = REASONS.iter().filter(|reason| kernels.contains(&reason.kernel));
    here.filter_map(|r| {
        let found = survivors.iter().filter(|m| reason(m) == Some(r)).count();
        let Reason { kernel, level, operator, what, times, .. } = r;
        let name = format!("{kernel}: {level} {operator} `{what}`");
        (found != *times).then(|| format!("{name} is said to survive {times} times, and did {found} times"))
    })
    .collect()
}
