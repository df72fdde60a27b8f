//! mbarriers: pending arrivals, expected bytes, an absolute phase number, and what may go wrong with them.

use super::remote::RemoteArrival;
use super::warp::{Flow, Step, Wait};
use super::{Machine, Outcome};
use crate::program::op::{AddressRef, Kind, MbarrierOp, MemSpace, NONE};
use crate::report::{Code, Report};
use crate::shadow::clock::{AGENT_BITS, Clocks, Entry};
use std::rc::Rc;

/// Largest number of outstanding bytes of a phase, and of arrivals.
const LIMIT: i64 = (1 << 20) - 1;

/// Somebody who has seen a phase complete.
#[derive(Clone, Copy, Debug)]
struct Seen {
    agent: u32,
    clock: u32,
    lanes: u32,
    warp: usize,
    pc: u32,
}

/// An mbarrier.
#[derive(Clone, Debug)]
pub struct Mbarrier {
    /// Agent of the copies that complete on it.
    pub agent: u32,
    /// It is initialised.
    pub valid: bool,
    /// Arrivals of a phase.
    pub count: u32,
    /// Arrivals missing in the present phase.
    pub pending: u32,
    /// Bytes expected and not arrived in the present phase.
    pub tx: i64,
    /// Number of completed phases.
    pub phase: u64,
    /// What arrivals have published so far.
    clocks: Clocks,
    /// What the last completed phase published.
    completed: Option<Rc<Clocks>>,
    /// Who initialised it, and where.
    init: (u32, u32, u32, u32),
    /// Its initialisation is visible to the async proxy.
    fenced: bool,
    /// Who has seen the last completed phase.
    seen: Vec<Seen>,
    /// The last completed phase, if there is one, has been seen by somebody.
    observed: bool,
    /// The last arrival of each thread of another CTA.
    pub remote: Vec<RemoteArrival>,
}

impl Machine<'_> {
    pub(super) fn mbarrier_error(&self, w: usize, pc: u32, lane: u32, message: String, help: &str) -> Box<Report> {
        self.report_at(w, pc, 1 << lane, Code::Barrier, message, "mbarrier operation", help)
    }

    /// CTA and offset of an mbarrier operand.
    pub(super) fn mbarrier_place(&self, w: usize, pc: u32, lane: u32, address: AddressRef) -> Outcome<(usize, u32)> {
        let undefined = Self::undefined_addresses(&self.warps[w].registers, address) & 1 << lane;
        if undefined != 0 && self.options.checks.undefined {
            return Err(self.undefined(w, pc, undefined, "is the address of an mbarrier"));
        }
        let place = self.shared_operand(w, lane as usize, address);
        if !place.is_multiple_of(8) {
            let fault = super::fault::Fault::Misaligned { address: place, needed: 8 };
            return Err(self.fault(w, pc, 1 << lane, fault));
        }
        let (own, space) = (self.warps[w].cta, address.space);
        let reachable = |found: &(usize, u32)| space != MemSpace::Shared || found.0 == own;
        let Some(found) = self.shared_offset(own, place, 8).filter(reachable) else {
            let space = if space == MemSpace::Generic { MemSpace::Cluster } else { space };
            let fault = super::fault::Fault::Bounds { address: place, bytes: 8, space };
            return Err(self.fault(w, pc, 1 << lane, fault));
        };
        self.check_remote(w, pc, 1 << lane, found.0)?;
        Ok(found)
    }

    /// The mbarrier at a place, if it is initialised and this lane knows that.
    pub(super) fn known_mbarrier(&mut self, w: usize, pc: u32, lane: u32, (cta, offset): (usize, u32)) -> Outcome<()> {
        let Some(barrier) = self.ctas[cta].mbarriers.get(&offset).filter(|b| b.valid) else {
            let message = format!("no mbarrier is initialised at shared offset {offset}");
            return Err(self.mbarrier_error(
                w,
                pc,
                lane,
                message,
                "execute mbarrier.init, and a barrier before first use",
            ));
        };
        let (agent, by, clock, init_pc) = barrier.init;
        let warp = &self.warps[w];
        let knows = &warp.knowledge[warp.knowledge_of(lane)].clocks;
        let own = agent == warp.agent && by == lane;
        if self.options.checks.races && !own && !knows.get(agent).generic.covers(clock, by) {
            let message = format!("the mbarrier at shared offset {offset} is used before its initialisation is known");
            let help = "put a barrier (bar.sync, or the cluster barrier) between mbarrier.init and the first use";
            let mut report = self.mbarrier_error(w, pc, lane, message, help);
            report.others.push(self.place_of_agent(agent, by, init_pc, "initialisation"));
            return Err(report);
        }
        self.check_seal(w, pc, lane, (cta, offset))
    }

    pub(super) fn mbarrier(&mut self, w: usize, pc: u32, act: u32) -> Step {
        let Kind::Mbarrier { op, address, x, d, order, .. } = self.program.ops[pc as usize].kind else {
            return Ok(Flow::Next);
        };
        let undefined = self.warps[w].registers.undef32[x as usize] & act;
        if undefined != 0 && self.options.checks.undefined {
            return Err(self.undefined(w, pc, undefined, "is the operand of an mbarrier operation"));
        }
        if matches!(op, MbarrierOp::TryWait | MbarrierOp::TestWait) {
            return self.mbarrier_wait(w, pc, act, address, x, d, order.acquires());
        }
        let clock = self.warps[w].clock;
        let published = match op {
            MbarrierOp::Arrive | MbarrierOp::ArriveExpectTx if order.releases() => {
                Some(self.warps[w].publish(act, &mut self.memory.history))
            }
            _ => None,
        };
        for lane in (0..32u32).filter(|l| act >> l & 1 != 0) {
            let value = self.warps[w].registers.b32[x as usize][lane as usize];
            let place = self.mbarrier_place(w, pc, lane, address)?;
            match op {
                MbarrierOp::Init => self.mbarrier_init(w, pc, lane, place, value)?,
                MbarrierOp::Inval => {
                    self.known_mbarrier(w, pc, lane, place)?;
                    if let Some(barrier) = self.ctas[place.0].mbarriers.get_mut(&place.1) {
                        barrier.valid = false;
                    }
                }
                _ => {
                    self.known_mbarrier(w, pc, lane, place)?;
                    if op != MbarrierOp::Arrive {
                        self.expect_tx(w, pc, lane, place, i64::from(value))?;
                    }
                    if op != MbarrierOp::ExpectTx {
                        let arrivals = if op == MbarrierOp::Arrive { value } else { 1 };
                        self.arrive(w, pc, lane, place, arrivals, published.as_ref())?;
                        self.note_remote_arrival(
                            w,
                            place,
                            RemoteArrival { agent: self.warps[w].agent, lane, clock, pc },
                        );
                    }
                }
            }
        }
        self.progress += 1;
        Ok(Flow::Yield)
    }

    fn mbarrier_init(&mut self, w: usize, pc: u32, lane: u32, (cta, offset): (usize, u32), count: u32) -> Outcome<()> {
        if count == 0 || i64::from(count) > LIMIT {
            let message = format!("mbarrier.init with {count} arrivals");
            return Err(self.mbarrier_error(w, pc, lane, message, "1 to 1048575 arrivals are possible"));
        }
        let slot = self.cluster_of(cta);
        let old = self.ctas[cta].mbarriers.get(&offset);
        if old.is_some_and(|b| b.valid) {
            let message = format!("the mbarrier at shared offset {offset} is initialised again");
            return Err(self.mbarrier_error(w, pc, lane, message, "execute mbarrier.inval first"));
        }
        // The agent of a place outlives re-initialisation, and so does its clock.
        let (agent, phase) = match old {
            Some(old) => (old.agent, old.phase + old.phase % 2),
            None => {
                let cluster_warps = self.cluster_warps();
                let cluster = &mut self.clusters[slot];
                cluster.mbarrier_agents += 1;
                let local = cluster_warps * self.program.agents.count + cluster.mbarrier_agents;
                let id = cluster.id;
                if local >= 1 << AGENT_BITS {
                    let message = "the cluster has more mbarriers than the simulator can tell apart".to_string();
                    return Err(self.mbarrier_error(w, pc, lane, message, "use fewer mbarriers"));
                }
                (id << AGENT_BITS | local, 0)
            }
        };
        let warp = &self.warps[w];
        let cluster = self.clusters[slot].id;
        let barrier = Mbarrier {
            agent,
            valid: true,
            count,
            pending: count,
            tx: 0,
            phase,
            clocks: Clocks::new(cluster),
            completed: None,
            init: (warp.agent, lane, warp.clock, pc),
            fenced: false,
            seen: Vec::new(),
            observed: true,
            remote: Vec::new(),
        };
        self.ctas[cta].mbarriers.insert(offset, barrier);
        self.seal(cta, offset);
        Ok(())
    }

    /// `fence.mbarrier_init`, and the proxy fences: the initialisations of these lanes reach the async proxy.
    pub(super) fn init_fence(&mut self, w: usize, act: u32) {
        let agent = self.warps[w].agent;
        let slot = self.cluster_of(self.warps[w].cta);
        let size = self.launch.cluster as usize;
        for cta in &mut self.ctas[slot * size..(slot + 1) * size] {
            for barrier in cta.mbarriers.values_mut() {
                barrier.fenced |= barrier.init.0 == agent && act >> barrier.init.1 & 1 != 0;
            }
        }
    }

    /// Checks that a copy may complete on an mbarrier.
    pub(super) fn check_async_mbarrier(&mut self, w: usize, pc: u32, lane: u32, place: (usize, u32)) -> Outcome<()> {
        self.known_mbarrier(w, pc, lane, place)?;
        if self.options.checks.races && self.ctas[place.0].mbarriers.get(&place.1).is_some_and(|b| !b.fenced) {
            let message = format!(
                "a copy completes on the mbarrier at shared offset {}, whose initialisation is not visible to the async proxy",
                place.1
            );
            let help = "the initialising thread executes fence.mbarrier_init.release.cluster after mbarrier.init";
            return Err(self.mbarrier_error(w, pc, lane, message, help));
        }
        Ok(())
    }

    fn expect_tx(&mut self, w: usize, pc: u32, lane: u32, place: (usize, u32), bytes: i64) -> Outcome<()> {
        let Some(barrier) = self.ctas[place.0].mbarriers.get_mut(&place.1) else { return Ok(()) };
        barrier.tx += bytes;
        let (tx, offset) = (barrier.tx, place.1);
        if tx > LIMIT {
            let message = format!("the mbarrier at shared offset {offset} expects {tx} bytes");
            return Err(self.mbarrier_error(w, pc, lane, message, "at most 1048575 bytes can be outstanding"));
        }
        Ok(())
    }

    pub(super) fn arrive(
        &mut self,
        w: usize,
        pc: u32,
        lane: u32,
        place: (usize, u32),
        arrivals: u32,
        published: Option<&Clocks>,
    ) -> Outcome<()> {
        let Some(barrier) = self.ctas[place.0].mbarriers.get_mut(&place.1) else { return Ok(()) };
        if arrivals == 0 || arrivals > barrier.pending {
            let message = format!(
                "{arrivals} arrivals at the mbarrier at shared offset {}, whose phase {} misses {} of {} (and {} bytes)",
                place.1, barrier.phase, barrier.pending, barrier.count, barrier.tx
            );
            let help = "initialise it with the number of arrivals of a phase, and wait for a phase before arriving for the next";
            return Err(self.mbarrier_error(w, pc, lane, message, help));
        }
        if !barrier.observed {
            let message = format!(
                "arrival in phase {} of the mbarrier at shared offset {}, and no wait has seen phase {} complete",
                barrier.phase,
                place.1,
                barrier.phase - 1
            );
            let help = "initialise it with the number of all arrivals of a phase, and wait for a phase before arriving for the next";
            return Err(self.mbarrier_error(w, pc, lane, message, help));
        }
        barrier.pending -= arrivals;
        if let Some(clocks) = published {
            barrier.clocks.join(clocks);
        }
        self.try_complete(place, w, pc)
    }

    /// Bytes have arrived.
    pub(super) fn complete_tx(&mut self, place: (usize, u32), bytes: i64, w: usize, pc: u32) -> Outcome<()> {
        let Some(barrier) = self.ctas[place.0].mbarriers.get_mut(&place.1).filter(|b| b.valid) else {
            let message = format!("a copy completes on shared offset {}, where no mbarrier is any more", place.1);
            return Err(self.mbarrier_error(w, pc, 0, message, "wait for the copy before mbarrier.inval"));
        };
        barrier.tx -= bytes;
        if barrier.tx < -LIMIT {
            let message = format!("the mbarrier at shared offset {} lacks {} expected bytes", place.1, -barrier.tx);
            return Err(self.mbarrier_error(w, pc, 0, message, "expect the bytes of every copy of a phase"));
        }
        self.try_complete(place, w, pc)
    }

    fn try_complete(&mut self, place: (usize, u32), w: usize, pc: u32) -> Outcome<()> {
        let races = self.options.checks.races;
        let Some(barrier) = self.ctas[place.0].mbarriers.get_mut(&place.1) else { return Ok(()) };
        if barrier.pending != 0 || barrier.tx != 0 {
            return Ok(());
        }
        let phase = barrier.phase;
        // Whoever saw the phase before must be known to have seen it: else it might look only now, and wait for ever.
        let late = barrier.seen.iter().find(|s| {
            let entry = barrier.clocks.get(s.agent).generic;
            !(s.clock <= entry.all || (s.clock <= entry.high && s.lanes & entry.mask != 0))
        });
        if let (true, Some(late)) = (races, late.copied()) {
            let message = format!(
                "phase {phase} of the mbarrier at shared offset {} may complete before warp {} has seen phase {}",
                place.1,
                self.warps[late.warp].index,
                phase - 1
            );
            let help =
                "every waiter of a phase must arrive, directly or through another barrier, before the next completes";
            let mut report = self.mbarrier_error(w, pc, 0, message, help);
            report.others.push(self.place_of(late.pc, late.warp, "wait that may come too late"));
            return Err(report);
        }
        barrier.seen.clear();
        barrier.observed = false;
        barrier.phase += 1;
        barrier.pending = barrier.count;
        barrier.clocks.get_mut(barrier.agent).generic.join(Entry::all(barrier.phase as u32));
        barrier.completed = Some(Rc::new(barrier.clocks.clone()));
        for warp in &mut self.warps {
            for group in &mut warp.groups {
                if let Wait::Mbarrier { cta, offset } = group.wait
                    && (cta, offset) == place
                {
                    group.wait = Wait::Ready;
                }
            }
        }
        self.progress += 1;
        Ok(())
    }

    fn mbarrier_wait(
        &mut self,
        w: usize,
        pc: u32,
        act: u32,
        address: AddressRef,
        x: u16,
        d: u16,
        acquires: bool,
    ) -> Step {
        let mut done = 0u32;
        let mut waiting = None;
        for lane in (0..32u32).filter(|l| act >> l & 1 != 0) {
            let place = self.mbarrier_place(w, pc, lane, address)?;
            self.known_mbarrier(w, pc, lane, place)?;
            let parity = u64::from(self.warps[w].registers.b32[x as usize][lane as usize]);
            let Some(barrier) = self.ctas[place.0].mbarriers.get(&place.1) else { continue };
            if parity > 1 {
                let message = format!("parity {parity}");
                return Err(self.mbarrier_error(w, pc, lane, message, "the parity of a phase is 0 or 1"));
            }
            if barrier.phase & 1 != parity {
                done |= 1 << lane;
            } else {
                waiting = Some(place);
            }
        }
        let warp = &mut self.warps[w];
        if let (0, Some((cta, offset))) = (done, waiting) {
            // The first try gives false, as it may; the next one waits for the phase. A `test_wait` that comes later is no other.
            let Some(group) = warp.groups.iter_mut().find(|g| g.mask & act != 0) else { return Ok(Flow::Next) };
            if group.timed_out || group.tried != pc {
                (group.timed_out, group.tried) = (false, pc);
            } else {
                return Ok(Flow::Block(Wait::Mbarrier { cta, offset }));
            }
        }
        if d != NONE {
            super::step::set_pred(&mut warp.registers, d, done, 0, act);
        }
        if done != 0 {
            self.observe_phases(w, pc, done, address, acquires)?;
        }
        Ok(if done == act { Flow::Next } else { Flow::Yield })
    }

    /// Lanes have seen their phases complete.
    fn observe_phases(&mut self, w: usize, pc: u32, done: u32, address: AddressRef, acquires: bool) -> Outcome<()> {
        let mut left = done;
        while left != 0 {
            let lane = left.trailing_zeros();
            let place = self.mbarrier_place(w, pc, lane, address)?;
            let mut same = 0;
            for other in (0..32u32).filter(|l| left >> l & 1 != 0) {
                if self.mbarrier_place(w, pc, other, address)? == place {
                    same |= 1 << other;
                }
            }
            left &= !same;
            let Some(barrier) = self.ctas[place.0].mbarriers.get_mut(&place.1) else { continue };
            let completed = barrier.completed.clone();
            if let (true, Some(clocks)) = (acquires, completed.as_ref()) {
                self.warps[w].learn(same, clocks);
            }
            let warp = &self.warps[w];
            let seen = Seen { agent: warp.agent, clock: warp.clock, lanes: same, warp: w, pc };
            if let Some(barrier) = self.ctas[place.0].mbarriers.get_mut(&place.1) {
                barrier.observed = true;
            }
            if completed.is_some()
                && let Some(barrier) = self.ctas[place.0].mbarriers.get_mut(&place.1)
                && !barrier.seen.iter().any(|s| s.agent == seen.agent && s.lanes == same)
            {
                barrier.seen.push(seen);
            }
        }
        Ok(())
    }
}

/// What an mbarrier misses, for a report.
pub(super) fn missing(barrier: &Mbarrier) -> String {
    let bytes = match barrier.tx {
        0 => String::new(),
        tx if tx > 0 => format!(", {tx} expected bytes have not arrived"),
        tx => format!(", {} bytes have arrived that were not expected", -tx),
    };
    format!(
        "phase {} of the mbarrier, which misses {} of {} arrivals{bytes}",
        barrier.phase, barrier.pending, barrier.count
    )
}
