//! Clusters: ranks, barriers, shared memory of the other CTAs.
//!
//! `cluster_rank` and `cluster_size` name a CTA within its cluster; without `cluster = …` they are 0 and 1. All threads of
//! the cluster meet at `cluster_sync()`, or at its halves `cluster_arrive()` and `cluster_wait()`. `view.remote(rank)` is
//! the same view of the shared memory of another CTA, which exists between that CTA's start and its end: the author meets
//! the cluster before the first access, and the compiler ends a kernel that reaches other CTAs with a cluster barrier.

use super::Specialiser;
use super::site::Site;
use super::value::{SharedView, Value};
use crate::diag::{Diagnostic, Place as _, Result};
use crate::kir::{Node, Region, Sync, Uniform};
use kda_core::Elem;
use kda_ptx::Class;
use kda_ptx::modifier::*;
use kda_ptx::operand::{Address, Base, Special, Src};
use kda_ptx::table::*;
use proc_macro2::Span;
use std::collections::BTreeSet;
use syn::Expr;

/// What a kernel does with its cluster.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Other CTAs reach this one's shared memory.
    remote: bool,
    /// It writes the shared memory of others.
    pub writes: bool,
    /// The arrival that has no wait yet, and the open branches around it.
    arrived: Option<((Span, Span), usize)>,
    /// An early return.
    pub returned: Option<(Span, Span)>,
    /// Rings that the kernel is known to fill by multicast.
    pub multicast: BTreeSet<usize>,
    /// One of them is so under a condition, which may differ between CTAs.
    pub conditional: bool,
    /// Rings that were seen to be filled by multicast.
    pub found: BTreeSet<usize>,
}

impl State {
    /// Other CTAs reach this one's shared memory.
    pub fn reach(&mut self) {
        self.remote = true;
    }
}

impl Specialiser<'_> {
    /// `cluster_rank`, `cluster_size`; `None` for other names.
    pub(super) fn cluster_value(&mut self, name: &str) -> Option<Value> {
        let size = self.resolved.cluster;
        match name {
            "cluster_size" => Some(Value::u32(size)),
            "cluster_rank" if size == 1 => Some(Value::u32(0)),
            "cluster_rank" => Some(Value::Scalar(self.special(Special::ClusterCtaRank, Uniform::Cta))),
            _ => None,
        }
    }

    /// `cluster_sync()`, `cluster_arrive()`, `cluster_wait()`
    pub(super) fn cluster_barrier(&mut self, name: &str, args: &[&Expr], site: Site<'_>) -> Result<()> {
        let [] = self.arguments(name, args, site)?;
        if self.roles.is_some() {
            return Err(Diagnostic::new(353, site, format!("`{name}()` inside a role: the other roles never arrive"))
                .help("move it out of the role"));
        }
        if self.control() > Uniform::Cta {
            let message =
                format!("`{name}()` needs all threads of the CTA, but they may differ in the branch around it");
            return Err(Diagnostic::new(350, site, message));
        }
        let (arrive, wait) = (name != "cluster_wait", name != "cluster_arrive");
        let depth = self.control.len();
        match (self.cluster.arrived.take(), arrive) {
            (Some((first, _)), true) => {
                return Err(Diagnostic::new(360, site, "the cluster has arrived already and not waited")
                    .help("write `cluster_wait();` before it")
                    .note(first.0, "it arrived here"));
            }
            (Some((_, at)), false) if at == depth => {}
            (_, false) => {
                return Err(Diagnostic::new(
                    360,
                    site,
                    "`cluster_wait()` without a `cluster_arrive()` in the same block",
                )
                .help("write `cluster_arrive();` before it, or `cluster_sync()` instead"));
            }
            (None, true) => {}
        }
        self.place(site);
        // Not between the halves of a barrier: the cluster may meet for the mbarriers as well.
        if self.fresh_barriers.is_some() && arrive {
            self.publish_barriers(site)?;
        }
        if !wait {
            self.cluster.arrived = Some((site.ends(), depth));
        }
        self.meet_cluster(arrive, wait, site);
        Ok(())
    }

    fn meet_cluster(&mut self, arrive: bool, wait: bool, site: Site<'_>) {
        let span = self.note_span(site);
        self.builder.sync(match (self.resolved.cluster, wait) {
            // A CTA by itself.
            (1, true) => Sync::Cta,
            (1, false) => return,
            _ => Sync::Cluster { arrive, wait, span },
        });
    }

    /// All that may use the mbarriers meet behind their initialisation: the cluster, if it loads together.
    pub(super) fn meet_publishing(&mut self, site: Site<'_>) -> Result<()> {
        if self.cluster.multicast.is_empty() {
            self.builder.sync(Sync::Cta);
            return Ok(());
        }
        if let Some((place, _)) = self.cluster.arrived {
            return Err(Diagnostic::new(360, place, "the cluster meets for a pipeline before `cluster_wait()`")
                .help("write `cluster_wait();` ahead of the first use of the pipeline"));
        }
        self.meet_cluster(true, true, site);
        Ok(())
    }

    /// `view.remote(rank)`
    pub(super) fn remote(&mut self, mut view: SharedView, args: &[&Expr], site: Site<'_>) -> Result<Value> {
        let [rank] = self.arguments("remote", args, site)?;
        let size = self.resolved.cluster;
        if size == 1 {
            return Err(Diagnostic::new(460, site, "shared memory of another CTA, in a kernel without clusters")
                .help("write `cluster = 2` in `#[kernel(…)]`"));
        }
        if let Some(rank) = rank.as_int()
            && !(0..i128::from(size)).contains(&rank)
        {
            return Err(Diagnostic::new(154, site, format!("rank {rank} in a cluster of {size}")));
        }
        let uniform = rank.uniform();
        view.remote = Some((self.operand(&rank, Elem::U32, site)?, uniform));
        self.cluster.reach();
        Ok(Value::Shared(Box::new(view)))
    }

    /// Where an access of a shared view goes.
    pub(super) fn reach(&mut self, view: &SharedView) -> (Option<Space>, Address) {
        let address = self.shared_address(view);
        match &view.remote {
            None => (Some(Space::Shared), address),
            Some((rank, _)) => (Some(Space::SharedCluster), self.mapped_address(&address, rank)),
        }
    }

    /// The same place in the CTA of that rank.
    pub(super) fn mapped_address(&mut self, address: &Address, rank: &Src) -> Address {
        let base = match address.base {
            Base::Reg(reg) => reg,
            Base::Symbol(_) => self.shared_base(),
        };
        let reg = self.builder.pure(Class::B32, |dst| {
            Mapa { space: Space::SharedCluster, ty: Type::U32, dst, address: base.into(), rank: rank.clone() }.into()
        });
        Address { base: Base::Reg(reg), offset: address.offset }
    }

    /// A view that an operation takes in this CTA alone.
    pub(super) fn own(&self, view: &SharedView, site: Site<'_>) -> Result<()> {
        if view.remote.is_none() {
            return Ok(());
        }
        Err(Diagnostic::new(460, site, "only loads, stores and atomics reach the shared memory of another CTA")
            .help("let that CTA do it, behind a `cluster_sync()`"))
    }

    /// The end of the kernel: no half barrier is left, and nobody leaves while others reach its shared memory.
    pub(super) fn leave_cluster(&mut self) -> Result<()> {
        if let Some((place, _)) = self.cluster.arrived {
            return Err(Diagnostic::new(360, place, "`cluster_arrive()` without a `cluster_wait()`")
                .help("write `cluster_wait();` behind it, in the same block"));
        }
        match self.cluster.returned {
            Some(place) if self.cluster.remote => {
                Err(Diagnostic::new(361, place, "a CTA leaves while others of its cluster may reach its shared memory")
                    .help("put the rest of the kernel under a condition, so that every CTA comes to its end"))
            }
            _ => Ok(()),
        }
    }

    /// Ends a kernel that reaches other CTAs with a barrier of the cluster, unless nobody does so behind a barrier of its own.
    pub(super) fn close_cluster(&mut self, region: &mut Region) {
        // A barrier covers what stands ahead of its arrival.
        let arrives = |node: &Node| matches!(node, Node::Sync { sync: Sync::Cluster { arrive: true, .. }, .. });
        let behind = region.iter().rposition(arrives).map(|at| &region[at + 1..]);
        let met = behind.is_some_and(|behind| self.cluster.multicast.is_empty() && !reaches(behind));
        if self.cluster.remote && !met {
            self.spans.push(self.kernel.name.span().ends());
            let span = self.spans.len() - 1;
            region
                .push(Node::Sync { sync: Sync::Cluster { arrive: true, wait: true, span }, place: self.builder.place });
        }
    }
}

/// True if some code accesses the shared memory of other CTAs.
fn reaches(code: &[Node]) -> bool {
    use kda_ptx::Inst;
    let there = |space: Option<Space>| space == Some(Space::SharedCluster);
    code.iter().any(|node| match node {
        Node::Inst { inst, .. } => match inst {
            Inst::Ld(i) => there(i.space),
            Inst::St(i) => there(i.space),
            Inst::Atom(i) => there(i.space),
            Inst::Red(i) => there(i.space),
            Inst::MbarrierArrive(i) => there(i.space),
            Inst::MbarrierArriveExpectTx(i) => there(i.space),
            Inst::MbarrierExpectTx(i) => there(i.space),
            Inst::TensorLoad(i) => i.multicast.0,
            _ => false,
        },
        Node::If { then, other, .. } => reaches(then) || reaches(other),
        Node::Loop { head, body, .. } => reaches(head) || reaches(body),
        _ => false,
    })
}

/// Fences of a kernel that writes the shared memory of other CTAs concern that memory too; `multicast` says that CTAs give
/// each other stages of rings, so that waits and arrivals do as well.
pub fn widen_fences(region: &mut Region, multicast: bool) {
    for node in region {
        match node {
            Node::Inst { inst: kda_ptx::Inst::FenceProxy(fence), .. } if fence.proxy == Proxy::AsyncSharedCta => {
                fence.proxy = Proxy::AsyncSharedCluster;
            }
            Node::Inst { inst: kda_ptx::Inst::MbarrierTryWait(wait), .. } if multicast => {
                (wait.order, wait.scope) = (Some(Order::Acquire), Some(Scope::Cluster));
            }
            Node::Inst { inst: kda_ptx::Inst::MbarrierArrive(arrive), .. }
                if arrive.space == Some(Space::SharedCluster) =>
            {
                (arrive.order, arrive.scope) = (Some(Order::Release), Some(Scope::Cluster));
            }
            Node::If { then, other, .. } => {
                widen_fences(then, multicast);
                widen_fences(other, multicast);
            }
            Node::Loop { head, body, .. } => {
                widen_fences(head, multicast);
                widen_fences(body, multicast);
            }
            _ => {}
        }
    }
}
