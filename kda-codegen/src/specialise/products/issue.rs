//! Products, commits and waits.

use super::{Accumulator, Operand, Specialiser};
use crate::diag::{Diagnostic, Result};
use crate::specialise::site::Site;
use crate::specialise::tile::TileView;
use kda_core::{Elem, Swizzle};
use kda_ptx::modifier::*;
use kda_ptx::operand::{Accumulators, PredSrc, Src, Trailing};
use kda_ptx::table::*;
use kda_ptx::{Class, Reg};

impl Specialiser<'_> {
    /// `acc.mma(a, b)`: acc += A Bᵀ for A `[M, 16]` and B `[N, 16]`, K contiguous.
    pub(in crate::specialise) fn mma(
        &mut self,
        acc: &mut Accumulator,
        a: &TileView,
        b: &TileView,
        site: Site<'_>,
    ) -> Result<()> {
        let (first, groups) = self.warpgroups(site)?;
        let fits = |view: &TileView, rows: u32| {
            view.swizzle == Swizzle::B128
                && view.width == 16
                && view.rows == u64::from(rows)
                && view.elem == a.elem
                && matches!(view.elem, Elem::BF16 | Elem::F16)
                && view.column.is_multiple_of(16)
        };
        for (view, rows, name) in [(a, acc.m, "A"), (b, acc.n, "B")] {
            if !fits(view, rows) {
                let message = format!(
                    "{name} is {} [{}, {}] with `Swizzle<{}>`; {rows} rows and a slice of 16 columns of bf16 or f16 with a 128-byte swizzle are needed",
                    view.elem,
                    view.rows,
                    view.width,
                    view.swizzle.span().unwrap_or(0)
                );
                return Err(Diagnostic::new(902, site, message).help("take a slice along K: `tile.k_slice(16 * k)`"));
            }
        }
        let tiles = acc.tiles.len() as u32;
        // Rows of this warpgroup within A.
        let group_bytes = i64::from(tiles) * 64 * 128;
        let a_base = self.descriptor(a, (groups > 1).then_some((first, group_bytes)), site)?;
        let b_base = self.descriptor(b, None, site)?;
        self.place(site);
        if self.flight.open.is_empty() {
            self.builder.inst(WgmmaFence {});
        }
        let scale_d = PredSrc { reg: self.truth(!acc.zero), negated: false };
        let inputs = if a.elem == Elem::BF16 { WgmmaInputs::Bf16 } else { WgmmaInputs::F16 };
        for (i, tile) in acc.tiles.iter().enumerate() {
            let a_step = (a.column_offset(a.column) as i64 + i as i64 * 64 * 128) >> 4;
            let b_step = b.column_offset(b.column) as i64 >> 4;
            let (a, b) = (self.plus(a_base, a_step), self.plus(b_base, b_step));
            self.builder.inst(Wgmma {
                shape: WgmmaShape { n: acc.n as u16, k: 16 },
                ty: Type::F32,
                inputs,
                d: Accumulators(tile.clone()),
                a,
                b,
                scale_d,
                negate_a: Src::Imm(1),
                negate_b: Src::Imm(1),
                transpose: Trailing(vec![Src::Imm(0), Src::Imm(0)]),
            });
        }
        acc.zero = false;
        self.flight.open.push((acc.id, a.slot));
        self.flight.open.push((acc.id, b.slot));
        Ok(())
    }

    /// `acc.mma(a, b)` with A in registers.
    pub(in crate::specialise) fn mma_registers(
        &mut self,
        acc: &mut Accumulator,
        a: &Operand,
        b: &TileView,
        site: Site<'_>,
    ) -> Result<()> {
        self.warpgroups(site)?;
        let fits = b.swizzle == Swizzle::B128 && b.width == 16 && b.rows == u64::from(acc.n) && b.elem == a.elem;
        if !fits || a.width != 16 || a.m != acc.m || a.registers.len() != acc.tiles.len() {
            let message = format!(
                "A is {} [{}, {}] in registers, B {} [{}, {}], the accumulator [{}, {}]",
                a.elem, a.m, a.width, b.elem, b.rows, b.width, acc.m, acc.n
            );
            return Err(
                Diagnostic::new(902, site, message).help("take slices of 16 along K of both: `x.k_slice(16 * k)`")
            );
        }
        let b_base = self.descriptor(b, None, site)?;
        self.place(site);
        if self.flight.open.is_empty() {
            self.builder.inst(WgmmaFence {});
        }
        let scale_d = PredSrc { reg: self.truth(!acc.zero), negated: false };
        let inputs = if a.elem == Elem::BF16 { WgmmaInputs::Bf16 } else { WgmmaInputs::F16 };
        let b_src = self.plus(b_base, b.column_offset(b.column) as i64 >> 4);
        for (tile, slices) in acc.tiles.iter().zip(&a.registers) {
            self.builder.inst(WgmmaRegisters {
                shape: WgmmaShape { n: acc.n as u16, k: 16 },
                ty: Type::F32,
                inputs,
                d: Accumulators(tile.clone()),
                a: kda_ptx::operand::RegList(slices[a.column as usize / 16].to_vec()),
                b: b_src.clone(),
                scale_d,
                negate_a: Src::Imm(1),
                negate_b: Src::Imm(1),
                transpose: Trailing(vec![Src::Imm(0)]),
            });
        }
        acc.zero = false;
        self.flight.open.push((acc.id, b.slot));
        Ok(())
    }

    /// `wgmma::commit()`
    pub(in crate::specialise) fn wgmma_commit(&mut self, site: Site<'_>) -> Result<()> {
        self.warpgroups(site)?;
        self.place(site);
        self.builder.inst(WgmmaCommit {});
        let group = std::mem::take(&mut self.flight.open);
        self.flight.groups.push(group);
        Ok(())
    }

    /// `wgmma::wait::<N>()`
    pub(in crate::specialise) fn wgmma_wait(&mut self, pending: usize, site: Site<'_>) -> Result<()> {
        self.warpgroups(site)?;
        if !self.flight.open.is_empty() {
            return Err(Diagnostic::new(904, site, "products ahead of this wait are in no group")
                .help("write `wgmma::commit();` behind them"));
        }
        self.place(site);
        self.builder.inst(WgmmaWait { pending: Src::Imm(pending as i64) });
        let done = self.flight.groups.len().saturating_sub(pending);
        self.flight.groups.drain(..done);
        Ok(())
    }

    fn truth(&mut self, value: bool) -> Reg {
        let compare = if value { Compare::Eq } else { Compare::Ne };
        self.builder.prologue(Class::Pred, |dst| {
            let dst = kda_ptx::operand::DstAndPred { dst: Some(dst), pred: None };
            Setp { compare, ftz: Default::default(), ty: Type::U32, dst, a: Src::Imm(0), b: Src::Imm(0) }.into()
        })
    }
}
