//! Mutants that no net can notice, because they do the same as the kernel: which, how many, and why.
//!
//! A reason names something that a reader can look up: a line of the kernel, a rule of the PTX ISA. It is about the mutants of one
//! line, so that one survivor cannot stand in for another. An entry that matches fewer or more mutants than it says is an error, so
//! that the table cannot outlive what it explains.

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
    /// Line of the source at which it stands; 0 where the reason is about several.
    pub line: u32,
    /// How many mutants live for this reason.
    pub times: usize,
    /// Why nothing is wrong with them.
    pub why: &'static str,
}

/// Every reason.
pub const REASONS: &[Reason] = &[
    source("transpose", Operator::Earlier, "cta_sync()", 33, 1, "the release has no barrier: the ring is filled once"),
    ptx("ring_sum__stages4", Operator::Drop, "bar.warp.sync", 58, 1, LAST_RELEASE),
    ptx("ring_sum__stages4", Operator::Drop, "mbarrier.arrive.shared", 58, 1, LAST_RELEASE),
    ptx("ring_sum__stages4", Operator::Swap, "mbarrier.arrive.shared", 58, 1, LAST_RELEASE),
    ptx("role_silu", Operator::Drop, "bar.warp.sync", 40, 1, JOINED),
    ptx("role_silu", Operator::Swap, "mbarrier.arrive.shared", 40, 1, JOINED),
    ptx("role_silu", Operator::Drop, "cp.async.bulk.wait_group 0", 43, 1, END_OF_GRID),
    ptx("role_silu", Operator::Pending, "cp.async.bulk.wait_group 0", 43, 1, END_OF_GRID),
    ptx("role_silu", Operator::Narrow, "cp.async.bulk.wait_group 0", 43, 1, END_OF_GRID),
    ptx("role_silu", Operator::EveryLane, "elect.sync", 43, 1, NO_GROUPS),
    ptx("product", Operator::Drop, "bar.warp.sync", 45, 1, NOTHING_STORED),
    ptx("product", Operator::Swap, "mbarrier.arrive.shared", 45, 1, NOTHING_STORED),
    ptx("chained_product", Operator::Drop, "wgmma.fence", 51, 2, FENCED_BEFORE),
    ptx("chained_product", Operator::Drop, "bar.warp.sync", 62, 3, NOTHING_STORED),
    ptx("chained_product", Operator::Swap, "mbarrier.arrive.shared", 62, 3, NOTHING_STORED),
    ptx("blackwell_product", Operator::Drop, "tcgen05.fence::after_thread_sync", 38, 1, FIRST_PRODUCT),
    ptx("blackwell_product", Operator::Drop, "tcgen05.fence::after_thread_sync", 40, 1, FIRST_PRODUCT),
    ptx("blackwell_product", Operator::Swap, "tcgen05.commit", 43, 1, FIRST_PRODUCT),
    ptx(GEMM, Operator::Drop, "bar.warp.sync", 69, 1, NOTHING_STORED),
    ptx(GEMM, Operator::Swap, "mbarrier.arrive.shared", 69, 1, NOTHING_STORED),
    ptx(GEMM, Operator::Swap, "mbarrier.arrive.shared", 81, 3, NEXT_STAGE),
    ptx(GEMM, Operator::Swap, "mbarrier.arrive.shared", 93, 3, NEXT_STAGE),
    ptx(GEMM, Operator::EveryLane, "elect.sync", 85, 1, NO_GROUPS),
    ptx(GEMM, Operator::Drop, "cp.async.bulk.wait_group 0", 85, 1, END_OF_GRID),
    ptx(GEMM, Operator::Pending, "cp.async.bulk.wait_group 0", 85, 1, END_OF_GRID),
    ptx(GEMM, Operator::Narrow, "cp.async.bulk.wait_group 0", 85, 1, END_OF_GRID),
    ptx(STAGED, Operator::Drop, "bar.warp.sync", 389, 1, STAGED_OUTPUT),
    source(STAGED, Operator::Drop, "warp_sync()", 389, 1, STAGED_OUTPUT),
    source(STAGED, Operator::Later, "warp_sync()", 389, 1, STAGED_OUTPUT),
    source(SHUFFLED, Operator::Later, "warp_sync()", 379, 1, STILL_AHEAD),
    ptx(SUMMED, Operator::Drop, "bar.warp.sync", 379, 1, SUM_BARRIERS),
    source(SUMMED, Operator::Drop, "warp_sync()", 379, 1, SUM_BARRIERS),
    source(SUMMED, Operator::Later, "warp_sync()", 379, 1, SUM_BARRIERS),
    source(COMMIT, Operator::Drop, "pdl::wait()", 125, 1, NOT_DEPENDENT),
];

const GEMM: &str = "gemm_ws__bn256_stages4_ctas2_bf16_silu";
const STAGED: &str = "conv_verify__bv64_lanes32_ctas2_f32_noinner_t2_nolong";
const SHUFFLED: &str = "decode__bv32_lanes8_threads128_extra1_ctas4_f32_nok_first";
const SUMMED: &str = "decode__bv32_lanes1_threads128_extra0_ctas4_bf16_k_first";
const COMMIT: &str = "tc_commit__rows32_bf16_most8_boundary_sm_90";
const LAST_RELEASE: &str = "the producer takes no stage any more: nobody waits for the releases behind the last load";
const JOINED: &str = "the release of the input, between the stores and this commit, has joined the lanes already: the lane that arrives \
     knows of all stores, and the only proxy fence is that of the storing role, behind its wait for this arrival";
const NOTHING_STORED: &str = "the role has stored nothing that the other side reads, and all lanes have waited together for the products that read \
     the stage (wgmma.wait_group is .sync.aligned)";
const NO_GROUPS: &str = "a thread without bulk stores has nothing to wait for";
const END_OF_GRID: &str = "each release has waited until its stage was read, and nothing else is left: what a grid has written is performed \
     and visible when it has completed (PTX ISA, griddepcontrol.wait)";
const FENCED_BEFORE: &str = "in the second and third copy of the loop's body: the fence ahead of the preceding product, line 58, stands \
     between the last reads of these registers, line 55, and these products";
const NEXT_STAGE: &str = "of two stages of results one is handed over behind the wait for the other, which does not depend on it: later, and right";
const FIRST_PRODUCT: &str = "two such fences stand between the barrier that publishes the allocation and the first product, one \
     ahead of the loop and one in it, and each orders all tcgen05 operations that follow (PTX ISA, tcgen05.fence); behind it, \
     mbarriers order the products' operands";
const STAGED_OUTPUT: &str = "the CTA barrier of the staged output stands between the atomic and these copies";
const STILL_AHEAD: &str = "behind the shuffle it still stands between the atomic and the copies";
const NOT_DEPENDENT: &str =
    "a kernel without the wait is not launched as a dependent one: it starts when its predecessor has ended";
const SUM_BARRIERS: &str = "the CTA barriers of the two sums stand between the atomic and these copies";

const fn ptx(
    kernel: &'static str,
    operator: Operator,
    what: &'static str,
    line: u32,
    times: usize,
    why: &'static str,
) -> Reason {
    Reason { kernel, level: Level::Ptx, operator, what, line, times, why }
}

const fn source(
    kernel: &'static str,
    operator: Operator,
    what: &'static str,
    line: u32,
    times: usize,
    why: &'static str,
) -> Reason {
    Reason { kernel, level: Level::Source, operator, what, line, times, why }
}

/// The reason why a mutant may live.
pub fn reason(mutant: &Mutant) -> Option<&'static Reason> {
    REASONS.iter().find(|r| {
        (r.kernel, r.level, r.operator) == (mutant.kernel, mutant.level, mutant.operator)
            && mutant.what.starts_with(r.what)
            && (r.line == 0 || r.line == mutant.line)
    })
}

/// Reasons of these kernels that do not hold of the survivors as often as they say, in words.
pub fn stale(kernels: &[&str], survivors: &[&Mutant]) -> Vec<String> {
    let here = REASONS.iter().filter(|reason| kernels.contains(&reason.kernel));
    here.filter_map(|r| {
        let found = survivors.iter().filter(|m| reason(m) == Some(r)).count();
        let Reason { kernel, level, operator, what, line, times, .. } = r;
        let place = if *line == 0 { String::new() } else { format!(" line {line}") };
        let name = format!("{kernel}{place}: {level} {operator} `{what}`");
        (found != *times).then(|| format!("{name} is said to survive {times} times, and did {found} times"))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutate::Text;

    fn mutant(of: &Reason, line: u32) -> Mutant {
        let (kernel, level, operator) = (of.kernel, of.level, of.operator);
        Mutant { kernel, level, operator, line, what: of.what.into(), text: Text::Ptx(String::new()) }
    }

    #[test]
    fn a_reason_is_about_its_line() {
        for of in REASONS.iter().filter(|of| of.line != 0) {
            assert_eq!(reason(&mutant(of, of.line)), Some(of));
            assert!(reason(&mutant(of, 1_000_000)).is_none(), "{of:?}");
            // A survivor of another line does not stand in for it.
            let others = vec![mutant(of, 1_000_000); of.times];
            let said = stale(&[of.kernel], &others.iter().collect::<Vec<_>>());
            let name = format!("{} line {}: {} {} `{}`", of.kernel, of.line, of.level, of.operator, of.what);
            assert!(said.iter().any(|cause| cause.starts_with(&name) && cause.ends_with("did 0 times")), "{said:?}");
        }
    }
}
