//! The machine: resident CTAs, their warps, pending copies, and the loop that runs them.
//!
//! | question | module |
//! | --- | --- |
//! | a warp: registers, groups of lanes, what it knows | [`warp`] |
//! | a CTA and its barriers | [`cta`] |
//! | the inner loop | [`step`] |
//! | loads and stores | [`access`]; of scattered lanes [`scattered`]; of any order, anywhere [`lanewise`] |
//! | between memory and registers | [`transfer`] |
//! | atomics and fences | [`atomic`] |
//! | shuffles, votes and other collectives of a warp | [`collective`] |
//! | `bar` and `barrier.cluster` | [`barrier`] |
//! | mbarriers, and who writes over them | [`mbarrier`], [`seal`] |
//! | work beside the threads, and its accesses | [`asynchronous`] |
//! | bulk and tensor copies | [`copies`]; boxes of tensors [`tensor`] |
//! | `cp.async` | [`thread_copies`] |
//! | matrices of a warp | [`matrices`] |
//! | shared memory of other CTAs | [`remote`] |
//! | tensor memory | [`tensor_memory`]; its products [`tensor_product`] |
//! | `setmaxnreg` | [`registers`] |
//! | accesses ahead of `griddepcontrol.wait` | [`dependent`] |
//! | products of a warpgroup | [`product`]; their operands [`tile`]; their registers [`watch`] |
//! | from a fault to a report | [`fault`] |
//!
//! A launch runs on one host thread: every outcome is a function of the launch, the schedule and the seed. Tests run
//! launches in parallel instead.

mod access;
mod asynchronous;
mod atomic;
mod barrier;
mod collective;
mod constant;
mod copies;
mod cta;
mod dependent;
mod fault;
mod lanewise;
mod loops;
mod matrices;
mod mbarrier;
mod product;
mod registers;
mod remote;
mod scattered;
mod seal;
mod step;
mod tensor;
mod tensor_memory;
mod tensor_product;
mod thread_copies;
mod tile;
mod transfer;
mod warp;
mod watch;

use crate::launch::{CtaOrder, Launch, Options, Stats};
use crate::memory::Memory;
use crate::program::Program;
use crate::report::{Code, Report};
use crate::schedule::{Choice, Scheduler};
use crate::shadow::clock::AGENT_BITS;
use crate::shadow::history::FastMap;
use asynchronous::Async;
use atomic::Location;
use cta::{Cluster, Cta};
use product::Warpgroup;
use warp::Warp;

pub(crate) type Outcome<T> = Result<T, Box<Report>>;

/// Shared address of the dynamic shared memory within its CTA.
pub(crate) const SHARED_BASE: u32 = 0x400;
/// Bits of a shared address that name a byte; the rank in the cluster stands above.
pub(crate) const SHARED_BITS: u32 = 24;

pub(crate) struct Machine<'a> {
    program: &'a Program,
    launch: &'a Launch<'a>,
    options: &'a Options,
    memory: &'a mut Memory,
    /// Resident CTAs; CTAs of a cluster stand together.
    ctas: Vec<Cta>,
    clusters: Vec<Cluster>,
    /// Warps of the resident CTAs, `warps_per_cta` each.
    warps: Vec<Warp>,
    /// Copies and products on their way, in the order of their issue.
    asyncs: Vec<Async>,
    /// Warpgroups of the resident CTAs.
    warpgroups: Vec<Warpgroup>,
    /// What releases at a word have published.
    locations: FastMap<u64, Vec<Location>>,
    scheduler: Scheduler,
    stats: Stats,
    warps_per_cta: usize,
    /// CTAs that have not started, the next last.
    waiting: Vec<u32>,
    /// Changes of anything that a waiting warp could wait for.
    progress: u64,
    /// `progress` when waits last timed out.
    timeout_at: Option<u64>,
    next_copy: u64,
}

/// Runs a kernel over device memory.
///
/// # Errors
/// A report of the first fault; memory then holds what was written so far.
pub fn run(program: &Program, launch: &Launch<'_>, memory: &mut Memory, options: &Options) -> Outcome<Stats> {
    check_launch(program, launch)?;
    memory.next_launch();
    let warps_per_cta = launch.block.div_ceil(32) as usize;
    let total = launch.grid.iter().product::<u32>() / launch.cluster;
    let mut scheduler = Scheduler::new(options.schedule, options.seed);
    let mut waiting: Vec<u32> = (0..total).rev().collect();
    match options.cta_order {
        CtaOrder::Forward => {}
        CtaOrder::Reverse => waiting.reverse(),
        CtaOrder::Random => {
            for i in (1..waiting.len()).rev() {
                waiting.swap(i, scheduler.random().below(i + 1));
            }
        }
    }
    let mut machine = Machine {
        program,
        launch,
        options,
        memory,
        ctas: Vec::new(),
        clusters: Vec::new(),
        warps: Vec::new(),
        asyncs: Vec::new(),
        warpgroups: Vec::new(),
        locations: FastMap::default(),
        scheduler,
        stats: Stats::default(),
        warps_per_cta,
        waiting,
        progress: 0,
        timeout_at: None,
        next_copy: 0,
    };
    let outcome = machine.run();
    let mut stats = machine.stats;
    memory.settle();
    outcome?;
    stats.read_before_wait &= stats.dependency_wait;
    stats.wrote_before_wait &= stats.dependency_wait;
    Ok(stats)
}

fn check_launch(program: &Program, launch: &Launch<'_>) -> Outcome<()> {
    let fail = |message: String, help: &str| {
        Err(Box::new(Report {
            code: Code::Launch,
            kernel: program.name.clone(),
            message,
            site: None,
            others: Vec::new(),
            help: help.to_string(),
        }))
    };
    let block = launch.block;
    if !(1..=1024).contains(&block) {
        return fail(format!("{block} threads in a CTA"), "1 to 1024 are possible");
    }
    let bounds = &program.bounds;
    if bounds.max_threads.is_some_and(|max| block > max) {
        return fail(format!("{block} threads in a CTA"), "the kernel's .maxntid is smaller");
    }
    if bounds.exact_threads.is_some_and(|exact| block != exact) {
        return fail(format!("{block} threads in a CTA"), "the kernel's .reqntid differs");
    }
    if launch.params.len() != program.param_bytes as usize {
        let found = launch.params.len();
        let message = format!("{found} bytes of parameters; the kernel takes {}", program.param_bytes);
        return fail(message, "pack every parameter at its offset");
    }
    if launch.shared_bytes > 232_448 {
        return fail(format!("{} bytes of shared memory", launch.shared_bytes), "at most 232448 are possible");
    }
    let cluster = launch.cluster;
    if !(1..=16).contains(&cluster) || !launch.grid[0].is_multiple_of(cluster) {
        let message = format!("clusters of {cluster} CTAs in a grid of {} in x", launch.grid[0]);
        return fail(message, "a cluster has 1 to 16 CTAs, and they must divide the grid");
    }
    if bounds.cluster.is_some_and(|needed| needed != cluster) {
        return fail(format!("clusters of {cluster} CTAs"), "the kernel's .reqnctapercluster differs");
    }
    let ctas = launch.grid.iter().map(|n| u64::from(*n)).product::<u64>();
    if ctas / u64::from(cluster) >= 1 << (32 - AGENT_BITS) {
        return fail(format!("a grid of {ctas} CTAs"), "the simulator runs grids of fewer than 524288 clusters");
    }
    Ok(())
}

impl Machine<'_> {
    fn run(&mut self) -> Outcome<()> {
        let cluster_ctas = self.launch.cluster;
        let slots = (self.options.resident_ctas / cluster_ctas).max(1) as usize;
        for slot in 0..slots {
            let Some(id) = self.waiting.pop() else { break };
            self.start_cluster(slot, id);
        }
        let mut runnable: Vec<usize> = Vec::new();
        loop {
            runnable.clear();
            runnable.extend((0..self.warps.len()).filter(|w| self.warps[*w].ready()));
            if runnable.is_empty() && self.asyncs.is_empty() {
                if self.warps.iter().all(|w| w.live == 0) {
                    return Ok(());
                }
                self.nothing_runs()?;
                continue;
            }
            match self.scheduler.choose(&runnable, self.asyncs.len()) {
                Choice::Copy(index) => self.step_async(index)?,
                Choice::Warp(index, budget) => {
                    let slot = runnable[index];
                    let steps = self.run_warp(slot, budget)?;
                    self.stats.warp_instructions += u64::from(steps);
                    self.scheduler.ran(slot, steps, steps >= budget);
                    if self.stats.warp_instructions > self.options.step_limit {
                        return Err(self.step_limit(slot));
                    }
                    self.replace_cluster(slot)?;
                }
            }
        }
    }

    /// A cluster whose threads have all exited makes room for the next.
    fn replace_cluster(&mut self, warp: usize) -> Outcome<()> {
        if self.warps[warp].live != 0 {
            return Ok(());
        }
        let slot = warp / self.warps_per_cta / self.launch.cluster as usize;
        let per_cluster = self.warps_per_cta * self.launch.cluster as usize;
        let first = slot * per_cluster;
        if self.clusters[slot].running && self.warps[first..first + per_cluster].iter().all(|w| w.live == 0) {
            // Copies that still read or write its shared memory finish first.
            while let Some(index) = self.asyncs.iter().position(|a| self.cluster_of(a.cta()) == slot) {
                self.step_async(index)?;
            }
            self.clusters[slot].running = false;
            self.stats.ctas += u64::from(self.launch.cluster);
            if let Some(id) = self.waiting.pop() {
                self.start_cluster(slot, id);
            }
        }
        Ok(())
    }

    fn cluster_of(&self, cta: usize) -> usize {
        cta / self.launch.cluster as usize
    }

    /// Nothing can run and no copy is pending: `try_wait` may time out, once per change of anything.
    fn nothing_runs(&mut self) -> Outcome<()> {
        if self.timeout_at != Some(self.progress) {
            self.timeout_at = Some(self.progress);
            let mut any = false;
            for warp in &mut self.warps {
                any |= warp.time_out();
            }
            if any {
                return Ok(());
            }
        }
        Err(self.deadlock())
    }
}
