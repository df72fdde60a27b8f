//! Multicast: the CTAs of a cluster load a tile together, each a part of it into the shared memory of all.
//!
//! `tile.tma_multicast(map, [coordinates])` splits the tile along its outermost axis of more than one element: the box of the
//! map is the part of one CTA. Every CTA's full barrier expects the bytes of the whole tile, whoever loads them. A stage may be filled again when
//! the consumers of all CTAs have released it, so a release of such a ring goes to the empty barriers of all CTAs, and the
//! barriers are published to the cluster.
//!
//! What passes between CTAs there are bulk copies, which complete a barrier themselves, and the news that a stage has been
//! read. So waits and arrivals keep the scope of the CTA: that of the cluster would cost a fence of all memory at each
//! arrival and the L1 cache at each wait. Only a kernel that also stores to other CTAs by itself has them wider.

use super::Specialiser;
use super::site::Site;
use super::tensor_copy::Tensor;
use super::tile::TileView;
use super::value::{Scalar, Value};
use crate::diag::{Diagnostic, Result};
use crate::kir::{Uniform, when};
use kda_core::Elem;
use kda_ptx::modifier::*;
use kda_ptx::operand::{Address, Base, DstAndPred, PredSrc, Sink, Special, Src, TensorAddress, Trailing};
use kda_ptx::table::*;
use kda_ptx::{Class, Reg};
use syn::{BinOp, Expr};

/// Rows after which the pattern of a swizzle repeats.
const PATTERN: u64 = 8;

impl Specialiser<'_> {
    /// `tile.tma_multicast(map, [coordinates])`: the coordinates are those of the whole tile, the same in all CTAs.
    pub(super) fn tma_multicast(&mut self, view: &TileView, args: &[&Expr], site: Site<'_>) -> Result<Value> {
        let size = self.resolved.cluster;
        if size == 1 {
            return self.tma_load(&Value::Tile(Box::new(view.clone())), "tma_load", args, site);
        }
        let [map, list] = args else {
            let message = "`tma_multicast` takes a tensor map and coordinates: `tma_multicast(a, [row, column])`";
            return Err(Diagnostic::new(157, site, message));
        };
        self.one_thread(site)?;
        let Tensor { param, spec, elem, rank, mut coordinates, policy } = self.copied_tensor(map, list, site)?;
        let columns = u64::from(spec.tile.last().copied().unwrap_or(0));
        let share: u64 = spec.tile.iter().rev().skip(1).map(|n| u64::from(*n)).product();
        let fits = elem == view.elem && spec.swizzle == view.swizzle && columns == view.columns;
        if !fits || spec.tile.len() < 2 || share * u64::from(size) != view.rows || !share.is_multiple_of(PATTERN) {
            let name = &self.resolved.params[param].name;
            let message = format!(
                "the buffer holds {} [{}, {}], and each of {size} CTAs loads a box of `{name}`, {elem} [{share}, {columns}]",
                view.elem, view.rows, view.columns
            );
            return Err(Diagnostic::new(820, site, message).help(format!(
                "give the map the buffer's columns, its swizzle and 1/{size} of its rows, a multiple of {PATTERN}"
            )));
        }
        self.note_access(param, false, site);
        let bytes = Value::u32(view.stage_bytes() as u32);
        self.note_fill(view.slot, view.buffer, None);
        let Some((barrier, guard)) = self.announce(view.slot, bytes, None, site)? else { return Ok(Value::Unit) };
        self.builder.sync(crate::kir::Sync::BulkFill { buffer: view.buffer });
        self.cluster.reach();
        if let Some(slot) = view.slot {
            let holding = &self.holdings[slot as usize];
            self.cluster.found.insert(holding.ring);
            let warps = match self.roles.as_deref() {
                Some([role]) => self.resolved.roles[*role].warps,
                _ => self.resolved.block / 32,
            };
            // The election alone is a branch, and one more in a role of several warps.
            let election = if holding.elected { 0 } else { 1 + usize::from(warps > 1) };
            self.cluster.conditional |= self.branches > holding.branches + election;
        }
        let mine = Value::Scalar(self.special(Special::ClusterCtaRank, Uniform::Cta));
        let axis = spec.tile.iter().position(|size| *size > 1).unwrap_or(0);
        let parts = Value::u32(spec.tile[axis]);
        let mut first = self.binary(&BinOp::Mul(Default::default()), mine.clone(), parts, site)?;
        if matches!(&coordinates[axis], Value::Scalar(s) if s.elem == Elem::I32) {
            first = self.cast(first, Elem::I32, site)?;
        }
        coordinates[axis] = self.binary(&BinOp::Add(Default::default()), coordinates[axis].clone(), first, site)?;
        let (base, offset) = self.stage_address(view, site)?;
        let base = self.moved_base(&base, &mine, share * view.span(), site)?;
        let map = self.map_address(param);
        let everyone = Src::Imm((1 << size) - 1);
        let mask = self.builder.prologue(Class::B16, |dst| Mov { ty: Type::B16, dst, src: everyone.clone() }.into());
        let part = u64::from(spec.copy.last().copied().unwrap_or(1));
        for column in (0..columns / part).map(|i| i * part) {
            let coordinates = self.shifted(&coordinates, column, site)?;
            self.place(site);
            let inst = TensorLoad {
                rank,
                path: TensorLoadPath::Tile,
                multicast: Multicast(true),
                hint: CacheHint(policy.is_some()),
                dst: Address { base: Base::Reg(base), offset: offset + view.column_offset(column) as i64 },
                src: TensorAddress { map: Base::Reg(map), coordinates },
                barrier: barrier.clone(),
                more: Trailing([Some(mask.into()), policy.clone()].into_iter().flatten().collect()),
            };
            self.builder.guarded(guard, inst);
        }
        Ok(Value::Unit)
    }

    /// An address, moved by `step` bytes for each rank.
    fn moved_base(&mut self, base: &Base, rank: &Value, step: u64, site: Site<'_>) -> Result<Reg> {
        let base = match base {
            Base::Reg(reg) => *reg,
            Base::Symbol(_) => self.shared_base(),
        };
        let rank = self.scalar(rank, Some(Elem::U32), site)?;
        Ok(self.builder.pure(Class::B32, |dst| {
            let b = Src::Imm(step as i64);
            Mad { half: Half::Lo, ty: Type::U32, dst, a: rank.src(), b, c: base.into() }.into()
        }))
    }

    /// CTAs whose consumers release a stage of a ring.
    pub(super) fn releasing(&self, ring: usize) -> u32 {
        if self.cluster.multicast.contains(&ring) { self.resolved.cluster } else { 1 }
    }

    /// An arrival at this barrier of all CTAs, of one thread or of a warp, whose lane i arrives at the CTA of rank i.
    pub(super) fn arrive_everywhere(&mut self, address: &Address) {
        let size = i64::from(self.resolved.cluster);
        if self.elected {
            for rank in 0..size {
                self.arrive_at(address, Src::Imm(rank), None);
            }
            return;
        }
        let lane = self.special(Special::LaneId, Uniform::Thread);
        let (ftz, nan, last) = (Default::default(), Default::default(), Src::Imm(size - 1));
        let to = self
            .builder
            .pure(Class::B32, |dst| Min { ftz, nan, ty: Type::U32, dst, a: lane.src(), b: last.clone() }.into());
        let guard = self.first_lanes(lane, size - 1);
        self.arrive_at(address, to.into(), Some(when(guard)));
    }

    fn arrive_at(&mut self, address: &Address, rank: Src, guard: Option<PredSrc>) {
        let address = self.mapped_address(address, &rank);
        let (order, scope, space) = (None, None, Some(Space::SharedCluster));
        let arrive = MbarrierArrive { order, scope, space, ty: Type::B64, state: Sink, address, count: None };
        self.builder.guarded(guard, arrive);
    }

    /// True in the lanes up to `last`.
    fn first_lanes(&mut self, lane: Scalar, last: i64) -> Reg {
        self.builder.pure(Class::Pred, |dst| {
            let dst = DstAndPred { dst: Some(dst), pred: None };
            Setp { compare: Compare::Le, ftz: Default::default(), ty: Type::U32, dst, a: lane.src(), b: Src::Imm(last) }
                .into()
        })
    }
}
