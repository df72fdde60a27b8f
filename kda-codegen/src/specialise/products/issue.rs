//! Products, commits and waits.

use super::descriptor::Described;
use super::flight::{Running, Step};
use super::{Accumulator, Operand, Specialiser};
use crate::diag::{Diagnostic, Place as _, Result};
use crate::kir::Sync;
use crate::specialise::site::Site;
use crate::specialise::tile::TileView;
use kda_core::Elem;
use kda_ptx::modifier::*;
use kda_ptx::operand::{Accumulators, PredSrc, RegList, Src, Trailing};
use kda_ptx::table::*;
use kda_ptx::{Class, Reg};

/// The A operand of a product.
pub(super) enum Left {
    /// In shared memory.
    Tile(TileView),
    /// In registers.
    Registers(Operand),
}

/// The same, ready for the instructions.
enum Ready {
    Tile(Described),
    Registers(Operand),
}

impl Left {
    fn elem(&self) -> Elem {
        match self {
            Left::Tile(view) => view.elem,
            Left::Registers(operand) => operand.elem,
        }
    }

    /// Rows of M and columns of K.
    fn extent(&self) -> (u64, u64) {
        match self {
            Left::Tile(view) => view.extent(),
            Left::Registers(operand) => (operand.m.into(), operand.width),
        }
    }

    fn negated(&self) -> bool {
        match self {
            Left::Tile(view) => view.negated,
            Left::Registers(operand) => operand.negated,
        }
    }
}

impl Specialiser<'_> {
    /// `acc.mma(a, b)`: acc += A Bᵀ for A `[M, K]` and B `[N, K]`, in steps of K.
    pub(super) fn mma(&mut self, acc: &mut Accumulator, a: Left, b: &TileView, site: Site<'_>) -> Result<()> {
        let (first, groups) = self.warpgroups(site)?;
        self.check_group(acc.m, acc.tiles.len(), site)?;
        let ((m, k), (n, depth)) = (a.extent(), b.extent());
        if (m, n) != (acc.m.into(), acc.n.into()) || k != depth || a.elem() != b.elem {
            let message = format!(
                "A is {} [{m}, {k}], B {} [{n}, {depth}], the accumulator [{}, {}]",
                a.elem(),
                b.elem,
                acc.m,
                acc.n
            );
            return Err(Diagnostic::new(902, site, message).help(
                "A is [M, K] and B is [N, K] for an accumulator of [M, N]; a tile of [K, N] is B as `tile.t()`",
            ));
        }
        if self.flight.writes_otherwise(acc.id, &acc.columns()) {
            let message = "products of other columns of this accumulator, some of them the same, may still run";
            return Err(
                Diagnostic::new(903, site, message).help("wait for them first: `wgmma::commit(); wgmma::wait::<0>();`")
            );
        }
        let rows = 64 * acc.tiles.len() as u64;
        let right = self.described(b, None, "B", site)?;
        let negate = |negated: bool| Src::Imm(if negated { -1 } else { 1 });
        let (negate_a, negate_b) = (negate(a.negated()), negate(b.negated));
        let mut stages: Vec<u32> = b.slot.into_iter().collect();
        let mut buffers = vec![b.buffer];
        let left = match a {
            Left::Tile(view) => {
                stages.extend(view.slot);
                buffers.push(view.buffer);
                if !m.is_multiple_of(64) {
                    let message = format!("A of {m} rows in shared memory, of which a product reads 64 rows");
                    return Err(Diagnostic::new(902, site, message)
                        .help("an accumulator of fewer than 64 rows takes A in registers: `other.as_a::<bf16>()`"));
                }
                let group = (groups > 1).then_some((first, rows));
                Ready::Tile(self.described(&view, group, "A", site)?)
            }
            Left::Registers(operand) => Ready::Registers(operand),
        };
        if acc.zero.contains(&false) {
            self.settle(acc);
        }
        self.conversions.forget(acc.id, &acc.columns());
        self.place(site);
        for buffer in buffers {
            self.builder.sync(Sync::ProductRead { buffer });
        }
        if !self.flight.fenced {
            self.builder.inst(WgmmaFence {});
            self.flight.fenced = true;
        }
        let (inputs, step) = match b.elem {
            Elem::BF16 => (WgmmaInputs::Bf16, 16),
            Elem::F16 => (WgmmaInputs::F16, 16),
            _ => (WgmmaInputs::Tf32, 8),
        };
        let shape = WgmmaShape { n: acc.n as u16, k: step as u8 };
        let turn = |transposed: bool| Src::Imm(transposed.into());
        for index in 0..k / step {
            let scale_d = PredSrc { reg: self.truth(!acc.zero.contains(&true)), negated: false };
            for (block, tile) in acc.tiles.iter().enumerate() {
                let d = Accumulators(tile.clone());
                let b_step = self.step_of(&right, 0, index);
                let (negate_a, negate_b) = (negate_a.clone(), negate_b.clone());
                match &left {
                    Ready::Tile(described) => {
                        let a = self.step_of(described, 64 * block as u64, index);
                        let turns = vec![turn(described.is_transposed()), turn(b.transposed)];
                        let transpose = Trailing(if step == 16 { turns } else { Vec::new() });
                        let (ty, b) = (Type::F32, b_step);
                        self.builder.inst(Wgmma { shape, ty, inputs, d, a, b, scale_d, negate_a, negate_b, transpose });
                    }
                    Ready::Registers(operand) => {
                        let slice = operand.column as usize / 16 + index as usize;
                        let a = RegList(operand.registers[block][slice].to_vec());
                        let (ty, b, transpose) = (Type::F32, b_step, Trailing(vec![turn(b.transposed)]));
                        self.builder.inst(WgmmaRegisters {
                            shape,
                            ty,
                            inputs,
                            d,
                            a,
                            b,
                            scale_d,
                            negate_a,
                            negate_b,
                            transpose,
                        });
                    }
                }
            }
            acc.zero.fill(false);
        }
        self.flight.open.push(Running { accumulator: acc.id, columns: acc.columns(), stages });
        self.flight.last = Some((Step::Product, site.ends()));
        Ok(())
    }

    fn truth(&mut self, value: bool) -> Reg {
        let compare = if value { Compare::Eq } else { Compare::Ne };
        self.builder.prologue(Class::Pred, |dst| {
            let dst = kda_ptx::operand::DstAndPred { dst: Some(dst), pred: None };
            Setp { compare, ftz: Default::default(), ty: Type::U32, dst, a: Src::Imm(0), b: Src::Imm(0) }.into()
        })
    }

    /// `wgmma::commit()`
    pub(in crate::specialise) fn wgmma_commit(&mut self, site: Site<'_>) -> Result<()> {
        self.warpgroups(site)?;
        self.place(site);
        self.builder.inst(WgmmaCommit {});
        let group = std::mem::take(&mut self.flight.open);
        self.flight.groups.push(group);
        self.flight.last = Some((Step::Commit, site.ends()));
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
        self.flight.last = Some((Step::Wait, site.ends()));
        Ok(())
    }
}
