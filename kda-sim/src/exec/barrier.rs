//! Named barriers of a CTA and the barrier of a cluster.

use super::warp::{Flow, Step, Wait};
use super::{Machine, Outcome};
use crate::program::op::{Kind, NONE};
use crate::report::{Code, Report};
use crate::shadow::clock::Clocks;
use std::rc::Rc;

/// A named barrier.
#[derive(Clone, Debug, Default)]
pub struct Named {
    /// Threads of the present use; `None` for all of the CTA, and before the first arrival.
    pub threads: Option<u32>,
    /// Threads that have arrived.
    pub arrived: u32,
    /// Warps that have arrived, one bit each.
    pub warps: u32,
    /// Instruction of the first arrival.
    pub first_pc: u32,
    /// A warp that has arrived has waited for the grid ahead.
    pub waited: bool,
    /// What the arrivals have published.
    pub clocks: Option<Clocks>,
}

impl Machine<'_> {
    /// An aligned instruction: all live lanes of the warp must be here.
    fn aligned(&self, w: usize, act: u32) -> Option<Flow> {
        let live = self.warps[w].live;
        (act != live).then_some(Flow::Block(Wait::Lanes { needed: live, live, aligned: true }))
    }

    fn barrier_error(&self, w: usize, pc: u32, message: String, help: &str) -> Box<Report> {
        self.report_at(w, pc, self.warps[w].live, Code::Barrier, message, "barrier operation", help)
    }

    fn uniform(&self, w: usize, pc: u32, act: u32, register: u16, what: &str) -> Outcome<u32> {
        let registers = &self.warps[w].registers;
        let undefined = registers.undef32[register as usize] & act;
        if undefined != 0 && self.options.checks.undefined {
            return Err(self.undefined(w, pc, undefined, &format!("is {what} of a barrier")));
        }
        let values = &registers.b32[register as usize];
        let value = values[act.trailing_zeros() as usize];
        if (0..32).any(|l| act >> l & 1 != 0 && values[l] != value) {
            let message = format!("the lanes of the warp give different values for {what} of a barrier");
            return Err(self.barrier_error(
                w,
                pc,
                message,
                "compute it from values that are the same in the whole warp",
            ));
        }
        Ok(value)
    }

    pub(super) fn named_barrier(&mut self, w: usize, pc: u32, act: u32) -> Step {
        if let Some(flow) = self.aligned(w, act) {
            return Ok(flow);
        }
        let (barrier, threads, waits) = match self.program.ops[pc as usize].kind {
            Kind::BarSync { barrier, threads } => (barrier, threads, true),
            Kind::BarArrive { barrier, threads } => (barrier, threads, false),
            _ => return Ok(Flow::Next),
        };
        let id = self.uniform(w, pc, act, barrier, "the number")?;
        let threads = match threads {
            NONE => None,
            register => Some(self.uniform(w, pc, act, register, "the thread count")?),
        };
        if id > 15 {
            return Err(self.barrier_error(w, pc, format!("barrier {id}"), "a CTA has barriers 0 to 15"));
        }
        let most = self.warps_per_cta as u32 * 32;
        if let Some(n) = threads
            && (n == 0 || n % 32 != 0 || n > most)
        {
            let message = format!("barrier {id} with {n} threads in a CTA of {most}");
            return Err(self.barrier_error(
                w,
                pc,
                message,
                "the count is a multiple of 32, and at most the CTA's threads",
            ));
        }
        let (cta, index) = (self.warps[w].cta, self.warps[w].index);
        let named = &self.ctas[cta].barriers[id as usize];
        let all = |n: Option<u32>| n.unwrap_or(most);
        if named.arrived > 0 && all(named.threads) != all(threads) {
            let (was, is) = (count(named.threads), count(threads));
            let mut report = self.barrier_error(
                w,
                pc,
                format!("barrier {id} is used with {is}, but an arrival before used it with {was}"),
                "all arrivals of one use must give the same count",
            );
            report.others.push(self.place_of(named.first_pc, w, "first arrival"));
            return Err(report);
        }
        if named.warps >> index & 1 != 0 {
            let message = format!("warp {index} arrives at barrier {id} twice before it completes");
            return Err(self.barrier_error(
                w,
                pc,
                message,
                "use another barrier, or wait for the first use to complete",
            ));
        }
        let clocks = self.warps[w].publish(act, &mut self.memory.history);
        let waited = self.warps[w].dependency_wait;
        let named = &mut self.ctas[cta].barriers[id as usize];
        named.waited |= waited;
        if named.arrived == 0 {
            named.first_pc = pc;
        }
        // The count of all threads is what no count means, but for warps that have exited.
        named.threads = named.threads.or(threads);
        match &mut named.clocks {
            Some(to) => to.join(&clocks),
            None => named.clocks = Some(clocks),
        }
        named.arrived += 32;
        named.warps |= 1 << index;
        self.progress += 1;
        if self.complete_barrier(cta, id, waits.then_some(w)) || !waits {
            return Ok(Flow::Yield);
        }
        // The warp goes on behind the barrier when it completes.
        Ok(Flow::Block(Wait::Barrier { id }))
    }

    /// Lets a barrier complete if everybody is there. `last` is a warp that syncs now and is not marked as waiting yet.
    fn complete_barrier(&mut self, cta: usize, id: u32, last: Option<usize>) -> bool {
        let first = cta * self.warps_per_cta;
        let warps = first..first + self.warps_per_cta;
        let named = &mut self.ctas[cta].barriers[id as usize];
        if named.arrived == 0 {
            return false;
        }
        let live_missing = self.warps[warps.clone()].iter().any(|w| w.live != 0 && named.warps >> w.index & 1 == 0);
        let complete = match named.threads {
            Some(threads) => named.arrived >= threads,
            None => !live_missing,
        };
        if !complete {
            return false;
        }
        let named = std::mem::take(named);
        let clocks = Rc::new(named.clocks.unwrap_or_else(|| Clocks::new(0)));
        for at in warps {
            let warp = &mut self.warps[at];
            let waiting = warp.groups.iter().position(|g| g.wait == Wait::Barrier { id });
            if let Some(group) = waiting {
                warp.groups[group].pc += 1;
                warp.groups[group].wait = Wait::Ready;
            } else if last != Some(at) {
                continue;
            }
            warp.dependency_wait |= named.waited;
            warp.unite(Rc::clone(&clocks));
        }
        self.progress += 1;
        true
    }

    /// A warp has exited: barriers for all threads no longer wait for it.
    pub(super) fn after_exit(&mut self, w: usize) -> Outcome<()> {
        if self.warps[w].live == 0 {
            let cta = self.warps[w].cta;
            for id in 0..16 {
                if self.ctas[cta].barriers[id as usize].threads.is_none() {
                    self.complete_barrier(cta, id, None);
                }
            }
            self.complete_cluster(self.cluster_of(cta));
        }
        Ok(())
    }

    pub(super) fn cluster_barrier(&mut self, w: usize, pc: u32, act: u32) -> Step {
        if let Some(flow) = self.aligned(w, act) {
            return Ok(flow);
        }
        let slot = self.cluster_of(self.warps[w].cta);
        let phase = self.clusters[slot].phase;
        match self.program.ops[pc as usize].kind {
            Kind::ClusterArrive { release } => {
                if self.warps[w].cluster_arrived != 0 {
                    let message = "the warp arrives at the cluster barrier twice without waiting".to_string();
                    return Err(self.barrier_error(w, pc, message, "pair every arrive with a wait"));
                }
                if release {
                    let clocks = self.warps[w].publish(act, &mut self.memory.history);
                    match &mut self.clusters[slot].arrived {
                        Some(to) => to.join(&clocks),
                        None => self.clusters[slot].arrived = Some(clocks),
                    }
                }
                self.warps[w].cluster_arrived = act;
                self.warps[w].cluster_phase = phase;
                self.progress += 1;
                self.complete_cluster(slot);
                Ok(Flow::Yield)
            }
            _ => {
                if self.warps[w].cluster_arrived == 0 {
                    let message = "the warp waits for the cluster barrier without having arrived".to_string();
                    return Err(self.barrier_error(w, pc, message, "execute barrier.cluster.arrive first"));
                }
                if self.warps[w].cluster_phase == phase {
                    return Ok(Flow::Block(Wait::Cluster));
                }
                self.warps[w].cluster_arrived = 0;
                if let Some(clocks) = self.clusters[slot].completed.clone() {
                    self.warps[w].learn(act, &clocks);
                }
                Ok(Flow::Next)
            }
        }
    }

    /// Lets the cluster barrier complete if every live warp has arrived in this phase.
    fn complete_cluster(&mut self, slot: usize) {
        let per_cluster = self.cluster_warps() as usize;
        let range = slot * per_cluster..(slot + 1) * per_cluster;
        let phase = self.clusters[slot].phase;
        let arrived = |w: &super::warp::Warp| w.cluster_arrived != 0 && w.cluster_phase == phase;
        let warps = &self.warps[range.clone()];
        if !warps.iter().any(arrived) || !warps.iter().all(|w| w.live == 0 || arrived(w)) {
            return;
        }
        let cluster = &mut self.clusters[slot];
        cluster.phase += 1;
        cluster.completed = cluster.arrived.take().map(Rc::new);
        for warp in &mut self.warps[range] {
            for group in &mut warp.groups {
                if group.wait == Wait::Cluster {
                    group.wait = Wait::Ready;
                }
            }
        }
        self.progress += 1;
    }
}

/// A thread count in words.
fn count(threads: Option<u32>) -> String {
    threads.map_or("all threads".to_string(), |n| format!("{n} threads"))
}
