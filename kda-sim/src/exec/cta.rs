//! A CTA: shared memory, named barriers, mbarriers; and a cluster of CTAs.

use super::loops::Loops;
use super::product::{Products, Warpgroup};
use super::tensor_memory::{TensorAccesses, TensorMemory};
use super::thread_copies::ThreadCopies;
use super::warp::{Group, Knowledge, Warp};
use super::watch::Watch;
use super::{Machine, SHARED_BASE, SHARED_BITS};
use crate::alu::lanes::FULL;
use crate::memory::block::Block;
use crate::program::Hidden;
use crate::program::details::AgentKind;
use crate::shadow::clock::{AGENT_BITS, Clocks};
use crate::shadow::history::FastMap;
use kda_ptx::operand::Special;
use std::rc::Rc;

use super::barrier::Named;
use super::mbarrier::Mbarrier;

#[derive(Debug)]
pub struct Cta {
    /// Index in the grid.
    pub block: [u32; 3],
    /// Rank in its cluster.
    pub rank: u32,
    pub shared: Block,
    /// Shadow cells of shared memory count from these.
    pub base_segment: u32,
    pub base_set: u32,
    pub barriers: [Named; 16],
    pub mbarriers: FastMap<u32, Mbarrier>,
    /// Made when it is first used.
    pub tensor: Option<TensorMemory>,
}

#[derive(Debug, Default)]
pub struct Cluster {
    /// Number in the grid.
    pub id: u32,
    pub running: bool,
    /// Agents given to mbarriers.
    pub mbarrier_agents: u32,
    /// Phase of the cluster barrier.
    pub phase: u64,
    /// What arrivals at the cluster barrier have published in this phase.
    pub arrived: Option<Clocks>,
    /// What the last completed phase published.
    pub completed: Option<Rc<Clocks>>,
}

impl Machine<'_> {
    /// Number of warps of a cluster: the first agents; as many of each other kind follow, then mbarriers.
    pub(super) fn cluster_warps(&self) -> u32 {
        self.warps_per_cta as u32 * self.launch.cluster
    }

    /// Number of agents whose accesses are generic.
    pub(super) fn generic_agents(&self) -> u32 {
        self.cluster_warps() * self.program.agents.generic
    }

    /// How far the agents of a kind stand behind the warps.
    pub(super) fn kind_offset(&self, kind: AgentKind) -> u32 {
        self.cluster_warps() * self.program.agents.position(kind)
    }

    /// A warp's agent of a kind.
    pub(super) fn agent_of(&self, w: usize, kind: AgentKind) -> u32 {
        self.warps[w].agent + self.kind_offset(kind)
    }

    /// What kind an agent is of, in words, and its warp in the cluster; none for mbarriers.
    pub(super) fn agent_kind(&self, agent: u32) -> (&'static str, Option<u32>) {
        let (local, warps) = (agent & ((1 << AGENT_BITS) - 1), self.cluster_warps());
        let Some(kind) = self.program.agents.kind(local / warps) else {
            return (" by a copy that completes on an mbarrier", None);
        };
        let text = match kind {
            AgentKind::Generic => "",
            AgentKind::ThreadCopy => " by cp.async",
            AgentKind::BulkRead => " by a bulk store reading its source",
            AgentKind::BulkWrite => " by a bulk store",
            AgentKind::Product | AgentKind::TensorProduct => " by a product",
            AgentKind::TensorLoad => " by tcgen05.ld",
            AgentKind::TensorStore => " by tcgen05.st",
        };
        (text, Some(local % warps))
    }

    /// Starts a cluster in a slot.
    pub(super) fn start_cluster(&mut self, slot: usize, id: u32) {
        let size = self.launch.cluster as usize;
        let cluster = Cluster { id, running: true, ..Cluster::default() };
        if slot == self.clusters.len() {
            self.clusters.push(cluster);
        } else {
            self.clusters[slot] = cluster;
        }
        let [gx, gy, _] = self.launch.grid;
        let per_row = gx / self.launch.cluster;
        for rank in 0..size {
            let (x, rest) = ((id % per_row) * size as u32 + rank as u32, id / per_row);
            let block = [x, rest % gy, rest / gy];
            self.start_cta(slot * size + rank, block, rank as u32, id);
        }
    }

    fn start_cta(&mut self, slot: usize, block: [u32; 3], rank: u32, cluster: u32) {
        let bytes = self.launch.shared_bytes as usize;
        let (base_segment, base_set) = (self.memory.history.last_segment(), self.memory.history.last_set());
        if slot == self.ctas.len() {
            self.ctas.push(Cta {
                block,
                rank,
                shared: Block::new(bytes),
                base_segment,
                base_set,
                barriers: Default::default(),
                mbarriers: FastMap::default(),
                tensor: None,
            });
        } else {
            let cta = &mut self.ctas[slot];
            cta.shared.defined.fill(0);
            (cta.block, cta.rank) = (block, rank);
            (cta.base_segment, cta.base_set) = (base_segment, base_set);
            cta.barriers = Default::default();
            cta.mbarriers.clear();
        }
        let launch_registers = self.launch_registers();
        let copy_offset = (self.program.agents.generic > 1).then(|| self.kind_offset(AgentKind::ThreadCopy));
        let fresh = self.program.watches || copy_offset.is_some();
        self.ctas[slot].tensor = None;
        let groups = self.warps_per_cta.div_ceil(4);
        self.warpgroups.resize_with(self.warpgroups.len().max((slot + 1) * groups), Warpgroup::default);
        self.warpgroups[slot * groups..(slot + 1) * groups].fill_with(Warpgroup::default);
        self.memory.history.extra.retain(|key, _| key >> 32 != shared_key(slot) >> 32);
        for index in 0..self.warps_per_cta {
            let agent = cluster << AGENT_BITS | (rank * self.warps_per_cta as u32 + index as u32);
            let segment = self.memory.history.segment(agent, 1);
            let lanes = (self.launch.block - index as u32 * 32).min(32);
            let live = FULL >> (32 - lanes);
            let at = slot * self.warps_per_cta + index;
            if at == self.warps.len() {
                self.warps.push(Warp {
                    cta: slot,
                    index: index as u32,
                    agent,
                    registers: self.program.registers.clone(),
                    live,
                    groups: Vec::new(),
                    loops: Loops::default(),
                    knowledge: Vec::new(),
                    clock: 1,
                    segment,
                    bulk: Vec::new(),
                    copies: 0,
                    dependency_wait: false,
                    cluster_arrived: 0,
                    cluster_phase: 0,
                    watch: Watch::default(),
                    products: Products::default(),
                    thread_copies: ThreadCopies::default(),
                    copy_agent: 0,
                    waited_copies: [0; 32],
                    tensor: TensorAccesses::default(),
                    register_count: 0,
                    reallocations: 0,
                });
            }
            let warp = &mut self.warps[at];
            warp.registers.clone_from(&self.program.registers);
            (warp.agent, warp.live, warp.clock, warp.segment) = (agent, live, 1, segment);
            (warp.copies, warp.dependency_wait, warp.cluster_arrived) = (0, false, 0);
            warp.bulk.clear();
            warp.products = Products::default();
            warp.copy_agent = copy_offset.map_or(0, |offset| agent + offset);
            warp.waited_copies = [0; 32];
            (warp.register_count, warp.reallocations) = (launch_registers, 0);
            if fresh {
                warp.thread_copies = ThreadCopies::default();
                warp.tensor = TensorAccesses::default();
            }
            if self.program.watches {
                warp.watch.reset(self.program.registers.b32.len());
            }
            warp.groups.clear();
            warp.loops.clear();
            warp.groups.push(Group::ready(0, live));
            warp.knowledge.clear();
            warp.knowledge.push(Knowledge {
                mask: u32::MAX,
                clocks: Rc::new(Clocks::new(cluster)),
                caches: Box::default(),
                fence: None,
                seen: [None, None],
                seen_words: Vec::new(),
                acquired: Vec::new(),
            });
            self.fill_hidden(at);
        }
        self.progress += 1;
    }

    fn fill_hidden(&mut self, at: usize) {
        let warp = &mut self.warps[at];
        let cta = &self.ctas[warp.cta];
        let shared = cta.rank << SHARED_BITS | SHARED_BASE;
        let launch = self.launch;
        for (hidden, index) in &self.program.hidden {
            let index = *index as usize;
            let special = match hidden {
                Hidden::Shared64 => {
                    warp.registers.b64[index] = [u64::from(shared); 32];
                    continue;
                }
                Hidden::Shared => {
                    warp.registers.b32[index] = [shared; 32];
                    continue;
                }
                Hidden::Special(special) => *special,
            };
            let cluster_id = cta.block[0] / launch.cluster;
            let value = match special {
                Special::TidX => {
                    let first = warp.index * 32;
                    warp.registers.b32[index] = std::array::from_fn(|lane| first + lane as u32);
                    continue;
                }
                Special::LaneId => {
                    warp.registers.b32[index] = std::array::from_fn(|lane| lane as u32);
                    continue;
                }
                Special::LaneMaskLt => {
                    warp.registers.b32[index] = std::array::from_fn(|lane| (1 << lane) - 1);
                    continue;
                }
                Special::TidY | Special::TidZ => 0,
                Special::NtidX => launch.block,
                Special::NtidY | Special::NtidZ => 1,
                Special::CtaidX => cta.block[0],
                Special::CtaidY => cta.block[1],
                Special::CtaidZ => cta.block[2],
                Special::NctaidX => launch.grid[0],
                Special::NctaidY => launch.grid[1],
                Special::NctaidZ => launch.grid[2],
                Special::WarpId => warp.index,
                Special::SmId => warp.cta as u32,
                Special::ClusterCtaRank => cta.rank,
                Special::ClusterNctaRank => launch.cluster,
                Special::ClusterIdX => cluster_id,
                Special::DynamicSharedSize => launch.shared_bytes,
                Special::Clock64 | Special::GlobalTimer => 0,
            };
            warp.registers.b32[index] = [value; 32];
        }
    }
}

/// Key of the first word of a CTA's shared memory in the history's extra writes; global words have smaller keys.
pub fn shared_key(slot: usize) -> u64 {
    1 << 63 | (slot as u64) << 32
}
