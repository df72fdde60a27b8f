//! Products of one thread into tensor memory, and the stages that they hand over.
//!
//! `slot.d.mma(a, b)` adds A · Bᵀ for A `[128, K]` and B `[N, K]` in swizzled shared memory, 16 columns an instruction; the
//! first product of a stage overwrites. The thread does not wait: a stage that its products read is released, and a stage
//! that they have written is committed, by `tcgen05.commit`, which arrives when all products so far have completed.

use super::Specialiser;
use super::pipeline::Slot;
use super::site::Site;
use super::tensor_memory::{ROWS, TmemView};
use super::tile::TileView;
use crate::diag::{Diagnostic, Result};
use kda_core::{Elem, Swizzle};
use kda_ptx::modifier::*;
use kda_ptx::operand::{Address, Base, DstAndPred, PredSrc, Src};
use kda_ptx::table::*;
use kda_ptx::{Class, Reg};

/// Fixed bits of a descriptor of shared memory: version, 128-byte swizzle, rows of eight 1024 bytes apart.
const DESCRIPTOR: i64 = 0x4000_4040_0001_0000;
/// Columns of K of an instruction.
const DEPTH: u64 = 16;

impl Specialiser<'_> {
    /// `slot.d.mma(a, b)`
    pub(super) fn tensor_mma(&mut self, view: &TmemView, a: &TileView, b: &TileView, site: Site<'_>) -> Result<()> {
        let allocation = self.held(view, 0, site)?;
        if !self.elected {
            return Err(Diagnostic::new(920, site, "products into tensor memory are issued by one thread")
                .help("put the loop of the role under `#[elect_one]`"));
        }
        for (tile, rows, name) in [(a, ROWS, "A"), (b, view.n, "B")] {
            let fits = tile.swizzle == Swizzle::B128
                && tile.rows == u64::from(rows)
                && matches!(tile.elem, Elem::BF16 | Elem::F16)
                && (tile.elem, tile.width) == (a.elem, a.width)
                && tile.width.is_multiple_of(DEPTH);
            if !fits {
                let message = format!(
                    "{name} is {} [{}, {}] with `Swizzle<{}>`; {rows} rows of bf16 or f16 with a 128-byte swizzle are needed, and as many columns in A and B, a multiple of {DEPTH}",
                    tile.elem,
                    tile.rows,
                    tile.width,
                    tile.swizzle.span().unwrap_or(0)
                );
                return Err(Diagnostic::new(902, site, message).help("declare both tiles with `Swizzle<128>`"));
            }
        }
        self.place(site);
        let d = self.accumulator_address(allocation.base, view, site)?;
        let (a_base, b_base) = (self.tile_descriptor(a, site)?, self.tile_descriptor(b, site)?);
        let instruction = self.instruction_descriptor(a.elem, view.n);
        for step in (0..a.width).step_by(DEPTH as usize) {
            let column = |tile: &TileView| tile.column_offset(tile.column + step) as i64 >> 4;
            let (a_src, b_src) = (self.stepped(a_base, column(a)), self.stepped(b_base, column(b)));
            self.builder.inst(Tcgen05Mma {
                group: CtaGroup::One,
                kind: Tcgen05Kind::F16,
                d: Address { base: Base::Reg(d), offset: 0 },
                a: a_src,
                b: b_src,
                instruction: instruction.into(),
                accumulate: PredSrc { reg: allocation.started, negated: false },
            });
            if step == 0 {
                self.set_started(allocation.started, true);
            }
        }
        for slot in [a.slot, b.slot].into_iter().flatten() {
            if !self.tensor_memory.read.contains(&slot) {
                self.tensor_memory.read.push(slot);
            }
        }
        Ok(())
    }

    /// The predicate of an accumulator, written in place: one thread runs its products in the order of the text.
    fn set_started(&mut self, started: Reg, value: bool) {
        let compare = if value { Compare::Eq } else { Compare::Ne };
        let dst = DstAndPred { dst: Some(started), pred: None };
        let (a, b) = (Src::Imm(0), Src::Imm(0));
        self.builder.inst(Setp { compare, ftz: Default::default(), ty: Type::U32, dst, a, b });
    }

    /// Type, columns and rows of a product: f32 sums of 16-bit operands, both with K contiguous.
    fn instruction_descriptor(&mut self, elem: Elem, n: u32) -> Reg {
        let ty = u32::from(elem == Elem::BF16);
        let bits = 1 << 4 | ty << 7 | ty << 10 | (n / 8) << 17 | (ROWS / 16) << 24;
        self.builder.prologue(Class::B32, |dst| Mov { ty: Type::U32, dst, src: Src::Imm(bits.into()) }.into())
    }

    /// Descriptor of the stage of a tile.
    fn tile_descriptor(&mut self, view: &TileView, site: Site<'_>) -> Result<Reg> {
        self.buffers[view.buffer].multiplied = true;
        self.note_read(view.slot, view.buffer, false, site)?;
        let (base, offset) = self.stage_address(view, site)?;
        let base = match base {
            Base::Reg(reg) => reg,
            Base::Symbol(_) => self.shared_base(),
        };
        let address = self.builder.pure(Class::B32, |dst| {
            let (round, ftz, sat) = (None, Default::default(), Default::default());
            Add { round, ftz, sat, ty: Type::U32, dst, a: base.into(), b: Src::Imm(offset) }.into()
        });
        // Shared addresses carry the CTA's rank in the cluster above bit 24: mask before shifting.
        let masked = self
            .builder
            .pure(Class::B32, |dst| And { ty: Type::B32, dst, a: address.into(), b: Src::Imm(0x3_FFFF) }.into());
        let shifted =
            self.builder.pure(Class::B32, |dst| Shr { ty: Type::U32, dst, a: masked.into(), b: Src::Imm(4) }.into());
        let wide = self.builder.pure(Class::B64, |dst| {
            let (relu, ftz, sat) = (Default::default(), Default::default(), Default::default());
            Cvt { round: None, relu, ftz, sat, to: Type::U64, from: Type::U32, dst, a: shifted.into(), b: None }.into()
        });
        Ok(self
            .builder
            .pure(Class::B64, |dst| Or { ty: Type::B64, dst, a: wide.into(), b: Src::Imm(DESCRIPTOR) }.into()))
    }

    fn stepped(&mut self, base: Reg, step: i64) -> Src {
        if step == 0 {
            return base.into();
        }
        let reg = self.builder.pure(Class::B64, |dst| {
            let (round, ftz, sat) = (None, Default::default(), Default::default());
            Add { round, ftz, sat, ty: Type::S64, dst, a: base.into(), b: Src::Imm(step) }.into()
        });
        reg.into()
    }

    /// What follows the wait for a stage, where tensor memory takes part.
    pub(super) fn after_take(&mut self, ring: usize, side: usize) {
        let accumulators = self.is_tensor_memory(ring);
        // Products of this thread read what it has waited for.
        if accumulators || self.elected && side > 0 && !self.tensor_memory.allocations.is_empty() {
            self.tensor_fence(TmemFence::After);
        }
        if accumulators && side == 0 {
            let all = self.tensor_memory.allocations.clone();
            all.iter().filter(|a| a.is_of(ring)).for_each(|a| self.set_started(a.started, false));
        }
    }

    /// True if products give a stage: they have written its accumulators, or they read its tiles.
    pub(super) fn given_by_products(&mut self, slot: &Slot, site: Site<'_>) -> Result<bool> {
        let accumulators = self.is_tensor_memory(slot.ring);
        if accumulators && slot.side == 0 {
            if self.elected {
                return Ok(true);
            }
            return Err(Diagnostic::new(
                920,
                site,
                "an accumulator is committed by the thread that issued its products",
            )
            .help("put the products and the `commit` under one `#[elect_one]`"));
        }
        if accumulators || !self.elected || slot.side == 0 {
            return Ok(false);
        }
        let read = self.tensor_memory.read.iter().position(|id| *id == slot.id);
        let Some(read) = read else { return Ok(false) };
        self.tensor_memory.read.remove(read);
        if self.releasing(slot.ring) > 1 {
            return Err(Diagnostic::new(820, site, "products of one thread release a stage of their own CTA alone")
                .help("fill this pipeline with `tma_load`"));
        }
        Ok(true)
    }

    /// What stands ahead of the arrival of a role that hands tensor memory over.
    pub(super) fn before_arrival(&mut self, ring: usize) {
        if self.is_tensor_memory(ring) {
            self.tensor_fence(TmemFence::Before);
        }
    }

    /// Arrives at an mbarrier when the products of this thread have completed.
    pub(super) fn arrive_after_products(&mut self, barrier: Address) {
        let (group, arrive) = (CtaGroup::One, CommitArrive::One);
        self.builder.inst(Tcgen05Commit { group, arrive, space: Some(Space::SharedCluster), ty: Type::B64, barrier });
    }
}
