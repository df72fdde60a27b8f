//! From a fault to a report: names, places, what is missing.

use super::Machine;
use super::access::Target;
use super::mbarrier::missing;
use super::tensor_memory::COLUMNS;
use super::warp::Wait;
use crate::program::op::{Kind, MemSpace};
use crate::report::{Code, Report, Site, Who};
use crate::shadow::check::Conflict;
use crate::shadow::clock::{AGENT_BITS, Clocks, MANY_LANES};
use std::rc::Rc;

/// A byte of memory, for a report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    memory: &'static str,
    address: u64,
}

impl Place {
    /// The place of an access.
    pub fn of(target: &Target, address: u64) -> Place {
        let memory = match target {
            Target::Global => "global",
            Target::Shared { .. } => "shared",
            Target::Tensor { .. } => "tensor",
        };
        Place { memory, address }
    }

    /// The place of a word of the same block, given the access's offset in it.
    pub fn at_word(self, word: usize, offset: usize) -> Place {
        Place { address: self.address.wrapping_add(word as u64 * 4).wrapping_sub(offset as u64), ..self }
    }
}

/// What went wrong with an access.
pub(super) enum Fault {
    /// Conflict without order; for a copy with what its thread knew.
    Race { conflict: Conflict, write: bool, place: Place, issued: Option<Rc<Clocks>> },
    /// Outside its memory.
    Bounds { address: u64, bytes: u64, space: MemSpace },
    /// Not a multiple.
    Misaligned { address: u64, needed: u64 },
}

impl Machine<'_> {
    pub(super) fn who(&self, w: usize, lanes: u32) -> Who {
        let warp = &self.warps[w];
        Who { block: self.ctas[warp.cta].block, warp: warp.index, lanes }
    }

    /// A report about an instruction of a warp.
    pub(super) fn report_at(
        &self,
        w: usize,
        pc: u32,
        lanes: u32,
        code: Code,
        message: String,
        what: &str,
        help: &str,
    ) -> Box<Report> {
        let site = Site { who: self.who(w, lanes), at: self.program.source.position(pc), what: what.to_string() };
        Box::new(Report {
            code,
            kernel: self.program.name.clone(),
            message,
            site: Some(site),
            others: Vec::new(),
            help: help.to_string(),
        })
    }

    /// A further place, in a warp that still runs.
    pub(super) fn place_of(&self, pc: u32, w: usize, what: &str) -> Site {
        Site { who: self.who(w, self.warps[w].live), at: self.program.source.position(pc), what: what.to_string() }
    }

    /// A further place, of an agent that may be gone.
    pub(super) fn place_of_agent(&self, agent: u32, lane: u32, pc: u32, what: &str) -> Site {
        let local = self.agent_kind(agent).1.unwrap_or(0);
        let (rank, warp) = (local / self.warps_per_cta as u32, local % self.warps_per_cta as u32);
        let (id, size) = (agent >> AGENT_BITS, self.launch.cluster);
        let [gx, gy, _] = self.launch.grid;
        let per_row = gx / size;
        let block = [(id % per_row) * size + rank, id / per_row % gy, id / per_row / gy];
        let lanes = if lane < MANY_LANES { 1 << lane } else { 0 };
        Site { who: Who { block, warp, lanes }, at: self.program.source.position(pc), what: what.to_string() }
    }

    pub(super) fn undefined(&self, w: usize, pc: u32, lanes: u32, how: &str) -> Box<Report> {
        self.report_at(
            w,
            pc,
            lanes,
            Code::Uninitialised,
            format!("a value that was never defined {how}"),
            "use",
            "define it on every path: initialise the register, write the memory before it is read, or guard the use",
        )
    }

    pub(super) fn step_limit(&self, w: usize) -> Box<Report> {
        let warp = &self.warps[w];
        let group = warp.groups.first().copied();
        let (pc, lanes) = group.map_or((0, 0), |g| (g.pc, g.mask));
        let mut report = self.report_at(
            w,
            pc,
            lanes,
            Code::StepLimit,
            format!("the kernel has not ended after {} warp instructions", self.options.step_limit),
            "running",
            "look for a loop that does not end here, or for a flag that nobody sets; raise the step limit if the kernel is that long",
        );
        for (other, warp) in self.warps.iter().enumerate().filter(|(o, v)| *o != w && v.live != 0).take(7) {
            if let Some(group) = warp.groups.first() {
                report.others.push(self.place_of(group.pc, other, "still there"));
            }
        }
        report
    }

    pub(super) fn fault(&self, w: usize, pc: u32, lanes: u32, fault: Fault) -> Box<Report> {
        match fault {
            Fault::Misaligned { address, needed } => self.report_at(
                w,
                pc,
                lanes,
                Code::Misaligned,
                format!("{address:#x} is not a multiple of {needed}"),
                "access",
                "align the base and the offset, or use a narrower access",
            ),
            Fault::Bounds { address, bytes, space } => self.bounds(w, pc, lanes, address, bytes, space),
            Fault::Race { conflict, write, place, issued } => self.race(w, pc, lanes, conflict, write, place, issued),
        }
    }

    fn bounds(&self, w: usize, pc: u32, lanes: u32, address: u64, bytes: u64, space: MemSpace) -> Box<Report> {
        let elsewhere = self.shared_offset(self.warps[w].cta, address, bytes);
        if let (MemSpace::Shared, Some((cta, offset))) = (space, elsewhere) {
            let rank = self.ctas[cta].rank;
            let message = format!(
                "{bytes} bytes at offset {offset} of the CTA of rank {rank} are not in the shared memory of this CTA"
            );
            let help = "access other CTAs of the cluster with .shared::cluster; .shared alone is .shared::cta";
            return self.report_at(w, pc, lanes, Code::OutOfBounds, message, "access", help);
        }
        let message = if space.is_shared() {
            format!(
                "{bytes} bytes at shared address {address:#x}, offset {}, are not in the {} bytes of shared memory",
                (address & 0xff_ffff) as i64 - i64::from(super::SHARED_BASE),
                self.launch.shared_bytes
            )
        } else {
            let near = self.memory.allocation_of(address).or_else(|| self.memory.allocation_before(address));
            let near = near.map_or("no allocation is near".to_string(), |a| {
                let state = if a.live { "" } else { " (freed)" };
                let offset = address.wrapping_sub(a.base) as i64;
                format!(
                    "the nearest allocation, {:#x} of {} bytes{state}, is at offset {offset} from it",
                    a.base, a.bytes
                )
            });
            format!("{bytes} bytes at {address:#x} are in no allocation; {near}")
        };
        let help = "check the index against the size, for the last element too";
        self.report_at(w, pc, lanes, Code::OutOfBounds, message, "access", help)
    }

    fn race(
        &self,
        w: usize,
        pc: u32,
        lanes: u32,
        c: Conflict,
        write: bool,
        place: Place,
        issued: Option<Rc<Clocks>>,
    ) -> Box<Report> {
        let cluster_warps = self.cluster_warps();
        let (agent, clock) = self.memory.history.of(c.segment);
        let (kind, _) = self.agent_kind(agent);
        let is_copy = issued.is_some();
        let (now, before) = (if write { "write" } else { "read" }, if c.write { "write" } else { "read" });
        let (memory, shared) = (place.memory, place.memory == "shared");
        let address = match (memory, self.memory.allocation_of(place.address)) {
            ("shared", _) => {
                format!("offset {}", (place.address & 0xff_ffff).wrapping_sub(u64::from(super::SHARED_BASE)))
            }
            ("tensor", _) => {
                let word = place.address / 4;
                format!("lane {}, column {}", word / COLUMNS as u64, word % COLUMNS as u64)
            }
            (_, Some(a)) => format!("{:#x} (byte {} of its allocation)", place.address, place.address - a.base),
            (_, None) => format!("{:#x}", place.address),
        };
        let operation = &self.program.ops[pc as usize].kind;
        let is_product = matches!(operation, Kind::Product { .. } | Kind::TensorProduct { .. });
        let by = match operation {
            _ if is_product => " by a product",
            Kind::ThreadCopy { .. } => " by cp.async",
            Kind::TensorAccess { store: false, .. } => " by tcgen05.ld",
            Kind::TensorAccess { store: true, .. } => " by tcgen05.st",
            Kind::TensorAlloc { .. } => " by tcgen05.alloc",
            Kind::TensorFree { .. } => " by tcgen05.dealloc",
            _ if is_copy => " by a bulk copy",
            _ => "",
        };
        let what = format!("{now}{by}");
        let my_cluster = self.clusters[self.cluster_of(self.warps[w].cta)].id;
        let same_cluster = agent >> AGENT_BITS == my_cluster;
        let wpc = self.warps_per_cta as u32;
        let local = agent & ((1 << AGENT_BITS) - 1);
        let same_warp = agent == self.warps[w].agent;
        let same_cta = same_cluster && local % cluster_warps / wpc == self.ctas[self.warps[w].cta].rank;
        let lane = if c.lane < MANY_LANES { c.lane } else { lanes.trailing_zeros() };
        let now_known = &self.warps[w].knowledge[self.warps[w].knowledge_of(lane)].clocks;
        let knows = issued.as_ref().unwrap_or(now_known);
        let ordered = knows.get(agent).generic.covers(clock, c.previous_lane);
        let help = if c.same_instruction {
            "the lanes write different values to one address: let one lane write, or give each its own address"
        } else if memory == "tensor" {
            "wait for products at the mbarrier of their commit, for loads and stores by tcgen05.wait; between threads put \
             tcgen05.fence::before_thread_sync, a barrier, and tcgen05.fence::after_thread_sync"
        } else if is_copy && kind.is_empty() && ordered && shared {
            "the accesses are ordered, but not for the async proxy: the writing threads execute fence.proxy.async.shared::cta after \
             their writes, before the barrier that hands over to the copy"
        } else if is_copy && kind.is_empty() && ordered {
            "the accesses are ordered, but not for the async proxy: execute fence.proxy.async (or .async.global) after acquiring, \
             before the copy"
        } else if matches!(operation, Kind::TensorAlloc { .. }) {
            "put a barrier of the CTA behind tcgen05.alloc, before other warps read the address"
        } else if is_product && kind.is_empty() {
            "either the write comes before the product: the writing threads execute fence.proxy.async.shared::cta, then a barrier leads \
             from all of them to the product; or it comes while the product runs: wait for the product first"
        } else if is_copy && kind.is_empty() && shared && !write {
            "either the write overwrites the source before the store has read its source: wait with cp.async.bulk.wait_group.read in \
             the issuing thread, then a barrier; or it comes before, and no barrier leads from it to the copy"
        } else if is_copy && kind.is_empty() && shared {
            "either the access comes before the copy has landed: every accessing thread waits for the phase of its mbarrier (or \
             bar.warp.sync follows the wait of one lane); or the copy comes too early: wait until the stage has been released"
        } else if kind.ends_with("its source") {
            "wait for the bulk store to have read its source (cp.async.bulk.wait_group.read by the issuing thread), then a barrier"
        } else if kind.ends_with("bulk store") {
            "wait for the bulk store to complete (cp.async.bulk.wait_group without .read by the issuing thread), then release and \
             acquire"
        } else if kind.ends_with("product") {
            "wait for the product before the access: wgmma.commit_group and wgmma.wait_group, or the mbarrier of tcgen05.commit; between \
             threads a barrier after it"
        } else if kind.ends_with("cp.async") {
            "the copying thread waits: cp.async.commit_group, then cp.async.wait_group; before other threads read, a barrier after it"
        } else if !kind.is_empty() {
            "wait for the phase of the mbarrier on which the copy completes, and acquire it, before the access"
        } else if same_warp {
            "lanes of a warp see each other's accesses only after bar.warp.sync (or a barrier of the CTA)"
        } else if same_cta {
            "put a barrier between the two accesses: bar.sync, or an mbarrier that the first arrives at and the second waits for"
        } else if same_cluster {
            "put a cluster barrier with release and acquire between the two accesses"
        } else {
            "no release and acquire leads from the first block to the second: use atom.acq_rel.gpu (or a fence.acq_rel.gpu on both \
             sides) on a counter; .relaxed alone gives no order"
        };
        let message = format!("race: {now} and {before} of {memory} memory at {address} are not ordered");
        let lanes = if c.lane < MANY_LANES { 1 << c.lane } else { lanes };
        let mut report = self.report_at(w, pc, lanes, Code::Race, message, &what, help);
        let mut other = self.place_of_agent(agent, c.previous_lane, c.pc, &format!("earlier {before}{kind}"));
        if self.agent_kind(agent).1.is_none() {
            other.who = Who { block: self.ctas[self.warps[w].cta].block, ..other.who };
        }
        report.others.push(other);
        report
    }

    /// A branch marked `.uni` that lanes `act` of the active ones take, and the others do not.
    #[cold]
    pub(super) fn uniform_diverges(&self, w: usize, pc: u32, act: u32, active: u32) -> Box<Report> {
        self.report_at(
            w,
            pc,
            act,
            Code::Divergent,
            format!("a branch marked .uni diverges: lanes {act:#010x} of {active:#010x} take it"),
            "branch",
            "leave out .uni, or branch on a value that is the same in every lane that comes here",
        )
    }

    /// A warp in which nobody can run: lanes that wait for lanes which will not come.
    pub(super) fn check_divergence(&self, w: usize) -> super::Outcome<()> {
        let warp = &self.warps[w];
        let all_wait = warp.groups.iter().all(|g| matches!(g.wait, Wait::Lanes { .. } | Wait::Barrier { .. }));
        let mut groups = warp.groups.clone();
        groups.sort_by_key(|g| g.pc);
        for group in &groups {
            let Wait::Lanes { needed, live, aligned } = group.wait else { continue };
            let gone = aligned && live & !warp.live != 0;
            if !all_wait && !gone {
                continue;
            }
            let missing = if aligned { live } else { needed & warp.live } & !group.mask;
            let mut report = self.report_at(
                w,
                group.pc,
                group.mask,
                Code::Divergent,
                format!("lanes {missing:#010x} do not come to an instruction that needs them"),
                "collective",
                "move it out of the branch, so that every lane of the warp (or of its member mask) executes it together",
            );
            for other in warp.groups.iter().filter(|g| g.mask & missing != 0) {
                let site = Site {
                    who: self.who(w, other.mask),
                    at: self.program.source.position(other.pc),
                    what: "waiting elsewhere".to_string(),
                };
                report.others.push(site);
            }
            return Err(report);
        }
        Ok(())
    }

    /// Everyone who waits, and for what.
    pub(super) fn deadlock(&self) -> Box<Report> {
        let mut sites = Vec::new();
        for (w, warp) in self.warps.iter().enumerate() {
            for group in &warp.groups {
                let what = match group.wait {
                    Wait::Ready => "running".to_string(),
                    Wait::Lanes { needed, .. } => format!("waiting for lanes {:#010x}", needed & !group.mask),
                    Wait::Cluster => "waiting for the cluster barrier".to_string(),
                    Wait::Bulk => "waiting for its bulk groups".to_string(),
                    Wait::Registers => {
                        let had = warp.register_count;
                        let free = self.free_registers(warp.cta);
                        format!(
                            "waiting for registers: its threads have {had}, and {free} of the CTA's are free for one"
                        )
                    }
                    Wait::TensorMemory => "waiting for columns of tensor memory".to_string(),
                    Wait::Products => "waiting for products that its warpgroup has not issued together".to_string(),
                    Wait::Barrier { id } => self.waits_at(warp.cta, id),
                    Wait::Mbarrier { cta, offset } => {
                        let state = self.ctas[cta].mbarriers.get(&offset).map(missing).unwrap_or_default();
                        format!("waiting at shared offset {offset} for {state}")
                    }
                };
                let at = self.program.source.position(group.pc);
                sites.push(Site { who: self.who(w, group.mask), at, what });
            }
        }
        let site = if sites.is_empty() { None } else { Some(sites.remove(0)) };
        let count = sites.len() + usize::from(site.is_some());
        let exited = self.warps.iter().filter(|w| w.live == 0).count();
        Box::new(Report {
            code: Code::Deadlock,
            kernel: self.program.name.clone(),
            message: format!(
                "deadlock: {count} groups of lanes wait, nothing is in flight, {exited} resident warps have exited"
            ),
            site,
            others: sites,
            help: "each waiter names what it misses: make somebody arrive, correct the count, or wait in the same order everywhere"
                .to_string(),
        })
    }

    fn waits_at(&self, cta: usize, id: u32) -> String {
        let named = &self.ctas[cta].barriers[id as usize];
        let wanted = named.threads.unwrap_or(self.warps_per_cta as u32 * 32);
        let missing: Vec<String> =
            (0..self.warps_per_cta).filter(|w| named.warps >> w & 1 == 0).map(|w| w.to_string()).collect();
        let missing = if missing.is_empty() { "none".to_string() } else { missing.join(", ") };
        let arrived = named.arrived;
        format!("waiting at barrier {id}, where {arrived} of {wanted} threads have arrived; warps not there: {missing}")
    }
}
