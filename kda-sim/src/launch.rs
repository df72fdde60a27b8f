//! What is run and how.

use crate::schedule::Schedule;

/// A launch.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Number of CTAs in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a CTA: 1 to 1024.
    pub block: u32,
    /// CTAs of a cluster, in x: 1 to 16.
    pub cluster: u32,
    /// Bytes of dynamic shared memory: at most 232,448.
    pub shared_bytes: u32,
    /// The parameter block, as the entry declares it.
    pub params: &'a [u8],
}

impl<'a> Launch<'a> {
    /// A launch without clusters and without shared memory.
    pub fn new(grid: [u32; 3], block: u32, params: &'a [u8]) -> Launch<'a> {
        Launch { grid, block, cluster: 1, shared_bytes: 0, params }
    }
}

/// What is checked. All is, by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Conflicting accesses without order.
    pub races: bool,
    /// Undefined values that reach an address, a branch, a guard or a store to global memory.
    pub undefined: bool,
    /// Who must execute `fence.proxy.async` for shared memory.
    pub proxy_fence: ProxyFence,
}

/// Where the proxy fence between a generic write to shared memory and an access of it by the async proxy (a bulk copy, a
/// product) may stand.
///
/// The memory model asks for a proxy fence anywhere along the causality path from the write to the access: in the writing
/// thread before it hands over, or in the thread that issues the copy, once it has acquired what the others wrote. A fence
/// covers what its thread has written or acquired by then, and nothing later: one fence in the issuing thread before the barrier
/// covers its own writes alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyFence {
    /// Only in the writer: stricter than the memory model.
    Writer,
    /// Anywhere on the path.
    OnPath,
}

impl Default for Checks {
    fn default() -> Checks {
        Checks { races: true, undefined: true, proxy_fence: ProxyFence::OnPath }
    }
}

/// In which order CTAs start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CtaOrder {
    /// As numbered.
    Forward,
    /// The last first.
    Reverse,
    /// Shuffled by the seed.
    Random,
}

/// How a launch is run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Who runs next.
    pub schedule: Schedule,
    /// Order of the CTAs.
    pub cta_order: CtaOrder,
    /// Seed of random orders.
    pub seed: u64,
    /// Number of warp instructions after which the run is stopped.
    pub step_limit: u64,
    /// CTAs that run at a time.
    pub resident_ctas: u32,
    /// What is checked.
    pub checks: Checks,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            schedule: Schedule::RoundRobin,
            cta_order: CtaOrder::Forward,
            seed: 0,
            step_limit: 2_000_000_000,
            resident_ctas: 8,
            checks: Checks::default(),
        }
    }
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Instructions executed, counted once a warp.
    pub warp_instructions: u64,
    /// Bulk and tensor copies.
    pub bulk_copies: u64,
    /// Products of warpgroups.
    pub products: u64,
    /// CTAs run.
    pub ctas: u64,
    /// The kernel executed `griddepcontrol.wait`.
    pub dependency_wait: bool,
    /// The kernel executed `griddepcontrol.launch_dependents`.
    pub launch_dependents: bool,
    /// Some warp of a kernel that has executed `griddepcontrol.wait` read global memory before it did.
    pub read_before_wait: bool,
    /// Some warp of such a kernel wrote global memory before it did.
    pub wrote_before_wait: bool,
}
