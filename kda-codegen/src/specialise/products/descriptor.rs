//! Descriptors of operands in shared memory.
//!
//! A tile is kept in panels of its swizzle's span (see [`super::super::tile`]); in a panel, eight rows are one repetition of
//! the pattern. An operand whose K runs along the rows of the tile ("K-major") advances by 32 bytes a step within a panel;
//! the stride is that of eight rows. A transposed operand (K runs across the rows, "MN-major") advances by rows; the
//! leading offset is that of the next panel, which holds the next elements of M or N.

use super::Specialiser;
use crate::diag::{Diagnostic, Result};
use crate::specialise::site::Site;
use crate::specialise::tile::TileView;
use kda_core::{Elem, Swizzle};
use kda_ptx::modifier::*;
use kda_ptx::operand::{Base, Src, SrcList};
use kda_ptx::table::*;
use kda_ptx::{Class, Reg};

/// Bytes of K that one product takes.
pub(super) const STEP_BYTES: u64 = 32;

/// An operand in shared memory that a product can take.
pub(super) struct Described {
    /// Descriptor of the first byte of the stage, or of its part that is this warpgroup's.
    base: Reg,
    view: TileView,
}

impl TileView {
    /// Elements of K that one product takes.
    pub(super) fn step(&self) -> u64 {
        STEP_BYTES / u64::from(self.elem.bytes())
    }

    /// Byte offset in the stage of the element (row, column) of this part, as the source counts them, ahead of the
    /// permutation.
    fn offset(&self, row: u64, column: u64) -> u64 {
        let (row, column) = if self.transposed { (column, row) } else { (row, column) };
        self.column_offset(self.column + column) + (self.row + row) * self.span()
    }

    /// Fixed bits of the descriptor: the mode, the stride of eight rows, and the distance of panels.
    fn layout(&self) -> i64 {
        let mode = match self.swizzle {
            Swizzle::None => 0u64,
            Swizzle::B128 => 1,
            Swizzle::B64 => 2,
            Swizzle::B32 => 3,
        };
        // Offsets count 16 bytes: eight rows of a span are half as many as it has bytes.
        let leading = if self.transposed { self.rows * self.span() } else { 16 };
        (mode << 62 | (self.span() >> 1) << 32 | (leading >> 4) << 16) as i64
    }

    /// Why a product cannot take the tile as an operand of rows of M or N and columns of K.
    fn unfit(&self) -> Option<&'static str> {
        let elements = self.span() / u64::from(self.elem.bytes());
        let (_, depth) = self.extent();
        if !matches!(self.elem, Elem::BF16 | Elem::F16 | Elem::F32) {
            return Some("a product takes bf16, f16, or f32 rounded to tf32");
        }
        if self.swizzle == Swizzle::None {
            return Some("declare the buffer with `Swizzle<128>`, `Swizzle<64>` or `Swizzle<32>`");
        }
        if self.swizzle.span().is_none_or(|span| u64::from(span) != self.span()) {
            return Some("a row of the tile is narrower than its swizzle's span");
        }
        if depth == 0 || !depth.is_multiple_of(self.step()) {
            return Some("K, the columns of both operands, is a multiple of 16 (of 8 for f32)");
        }
        if self.transposed {
            if self.elem.bytes() != 2 {
                return Some("only bf16 and f16 can be transposed");
            }
            if !self.row.is_multiple_of(8) {
                return Some("a part along K begins at a multiple of 8");
            }
            return (!self.column.is_multiple_of(elements))
                .then_some("a part of a transposed tile begins at a multiple of its swizzle's span");
        }
        if !self.row.is_multiple_of(8) || !self.column.is_multiple_of(self.step()) {
            return Some("a part begins at a row that is a multiple of 8 and a column that is a multiple of 16");
        }
        None
    }
}

impl Described {
    /// Where step `k` of the rows from `row` on begins, in units of the descriptor.
    fn distance(&self, row: u64, k: u64) -> i64 {
        (self.view.offset(row, k * self.view.step()) >> 4) as i64
    }

    /// K runs across the rows of the tile.
    pub(super) fn is_transposed(&self) -> bool {
        self.view.transposed
    }
}

impl Specialiser<'_> {
    /// The descriptor of an operand; with `group`, the first warp of the role and the rows of a warpgroup, of the part of
    /// this warpgroup.
    pub(super) fn described(
        &mut self,
        view: &TileView,
        group: Option<(u32, u64)>,
        name: &str,
        site: Site<'_>,
    ) -> Result<Described> {
        if let Some(why) = view.unfit() {
            let (rows, columns) = view.extent();
            let (kind, span) = (if view.transposed { ", transposed," } else { "" }, view.swizzle.span().unwrap_or(0));
            let message = format!("{name} is {} [{rows}, {columns}]{kind} with `Swizzle<{span}>`", view.elem);
            return Err(Diagnostic::new(902, site, message).help(why));
        }
        self.buffers[view.buffer].multiplied = true;
        self.note_read(view.slot, view.buffer, false, site)?;
        let (base, stage) = self.stage_address(view, site)?;
        let layout = view.layout() as u64;
        // A stage that is known is an addition away from what all descriptors share.
        let (units, mut rest) = match base {
            Base::Reg(reg) => {
                let address = self.added(reg.into(), stage);
                (self.units_of(address), 0)
            }
            Base::Symbol(_) => (self.shared_units(), stage >> 4),
        };
        rest += (layout & 0xffff_ffff) as i64;
        let mut low = units;
        if let Some((first_warp, rows)) = group {
            let step = (view.offset(rows, 0) - view.offset(0, 0)) as i64 >> 4;
            let warp = self.warp();
            let group =
                self.builder.pure(Class::B32, |dst| Shr { ty: Type::U32, dst, a: warp.src(), b: Src::Imm(2) }.into());
            low = self.builder.pure(Class::B32, |dst| {
                let (a, b, c) = (group.into(), Src::Imm(step), low.into());
                Mad { half: Half::Lo, ty: Type::U32, dst, a, b, c }.into()
            });
            rest -= i64::from(first_warp / 4) * step;
        }
        let low = self.added(low.into(), rest);
        let high = Src::Imm((layout >> 32) as i64);
        let high = self.builder.prologue(Class::B32, |dst| Mov { ty: Type::B32, dst, src: high.clone() }.into());
        let base = self
            .builder
            .pure(Class::B64, |dst| Pack { ty: Type::B64, dst, src: SrcList(vec![low.into(), high.into()]) }.into());
        Ok(Described { base, view: view.clone() })
    }

    /// An address of shared memory in units of descriptors. It carries the CTA's rank in the cluster above bit 24.
    fn units_of(&mut self, address: Reg) -> Reg {
        let masked = self
            .builder
            .pure(Class::B32, |dst| And { ty: Type::B32, dst, a: address.into(), b: Src::Imm(0x3_FFFF) }.into());
        self.builder.pure(Class::B32, |dst| Shr { ty: Type::U32, dst, a: masked.into(), b: Src::Imm(4) }.into())
    }

    /// The same of the beginning of shared memory; it and every offset are below 2^18 together.
    fn shared_units(&mut self) -> Reg {
        let base = self.shared_base();
        let masked = self
            .builder
            .prologue(Class::B32, |dst| And { ty: Type::B32, dst, a: base.into(), b: Src::Imm(0x3_FFFF) }.into());
        self.builder.prologue(Class::B32, |dst| Shr { ty: Type::U32, dst, a: masked.into(), b: Src::Imm(4) }.into())
    }

    /// The descriptor of step `k` of the rows from `row` on.
    pub(super) fn step_of(&mut self, operand: &Described, row: u64, k: u64) -> Src {
        let step = operand.distance(row, k);
        if step == 0 {
            return operand.base.into();
        }
        let base = operand.base;
        let reg = self.builder.pure(Class::B64, |dst| {
            let (round, ftz, sat) = (None, Default::default(), Default::default());
            Add { round, ftz, sat, ty: Type::S64, dst, a: base.into(), b: Src::Imm(step) }.into()
        });
        reg.into()
    }

    /// A 32-bit address plus a constant.
    pub(super) fn added(&mut self, base: Src, offset: i64) -> Reg {
        if let (Src::Reg(reg), 0) = (&base, offset) {
            return *reg;
        }
        self.builder.pure(Class::B32, |dst| {
            let (round, ftz, sat) = (None, Default::default(), Default::default());
            Add { round, ftz, sat, ty: Type::S32, dst, a: base.clone(), b: Src::Imm(offset) }.into()
        })
    }
}
