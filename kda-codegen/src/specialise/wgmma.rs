//! Products of warpgroups: accumulators in registers, operands in swizzled shared memory.
//!
//! An accumulator of M rows belongs to a role of M / 64 / tiles warpgroups; each holds `tiles` blocks of 64 rows, one after
//! another. In a block, warp w and lane l of the warpgroup hold rows 16 w + l / 4 and that plus 8, and columns
//! 8 j + 2 (l mod 4) and the next one. Registers of an accumulator are written in place; what the source reads of them is
//! a copy.

use super::Specialiser;
use super::site::Site;
use super::tile::TileView;
use super::value::{Scalar, Value};
use crate::consteval::Const;
use crate::diag::{Diagnostic, Result};
use crate::kir::Uniform;
use kda_core::{Elem, Swizzle};
use kda_ptx::modifier::*;
use kda_ptx::operand::{Accumulators, Base, PredSrc, Special, Src, Trailing};
use kda_ptx::table::*;
use kda_ptx::{Class, Reg};
use syn::{BinOp, Expr, GenericArgument};

/// Fixed bits of a descriptor: 128-byte swizzle, rows of eight 1024 bytes apart.
const DESCRIPTOR: i64 = 0x4000_0040_0001_0000;

/// Registers of an accumulator.
#[derive(Clone, Debug, PartialEq)]
pub struct Accumulator {
    /// Rows of all warpgroups of the role.
    pub m: u32,
    /// Columns.
    pub n: u32,
    /// Registers of each block of 64 rows.
    pub tiles: Vec<Vec<Reg>>,
    /// Still zero, and not yet written: the first product overwrites.
    pub zero: bool,
    /// Number of the accumulator in the kernel.
    pub id: usize,
}

/// An A operand in registers: what an accumulator became.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    /// Element type.
    pub elem: Elem,
    /// Rows of all warpgroups of the role.
    pub m: u32,
    /// Four registers for each block of 64 rows and each 16 columns: `[block][slice]`.
    pub registers: Vec<Vec<[Reg; 4]>>,
    /// First column of this part.
    pub column: u64,
    /// Columns of this part.
    pub width: u64,
}

/// What runs on the tensor cores while the kernel is compiled.
#[derive(Clone, Debug, Default)]
pub struct Flight {
    /// Products since the last commit: accumulators, and slots that they read.
    pub open: Vec<(usize, Option<u32>)>,
    /// Committed groups, oldest first.
    pub groups: Vec<Vec<(usize, Option<u32>)>>,
}

impl Flight {
    /// True if any product may still run.
    pub fn is_busy(&self) -> bool {
        !self.open.is_empty() || !self.groups.is_empty()
    }

    /// True if an accumulator is being written.
    pub fn writes(&self, id: usize) -> bool {
        self.open.iter().chain(self.groups.iter().flatten()).any(|(acc, _)| *acc == id)
    }
}

impl Specialiser<'_> {
    /// Warps, first warp and warpgroups of the role that is being compiled.
    fn warpgroups(&self, site: Site<'_>) -> Result<(u32, u32)> {
        let (first, warps) = match self.roles.as_deref() {
            None => (0, self.resolved.block / 32),
            Some([role]) => (self.resolved.roles[*role].first_warp, self.resolved.roles[*role].warps),
            Some(_) => return Err(Diagnostic::new(905, site, "a block of several roles")),
        };
        if first % 4 != 0 || warps % 4 != 0 {
            let message = format!("a product needs whole warpgroups, not warps {first}..{}", first + warps);
            return Err(Diagnostic::new(905, site, message).help("begin and end the role at warps 0, 4, 8 …"));
        }
        if self.control() > Uniform::Warp || self.elected {
            return Err(Diagnostic::new(905, site, "a product in a branch in which the threads of a warp may differ")
                .help("make all threads of the warpgroup take part in the product"));
        }
        Ok((first, warps / 4))
    }

    /// `Acc::<f32, M, N>::zero()`
    pub(super) fn accumulator(&mut self, generics: &[GenericArgument], site: Site<'_>) -> Result<Value> {
        let form = || Diagnostic::new(901, site, "an accumulator is written `Acc::<f32, M, N>::zero()`");
        let [elem, m, n] = generics else { return Err(form()) };
        if self.generic_value(elem)? != Const::Elem(Elem::F32) {
            return Err(form());
        }
        let size = |value: Const| value.as_int().and_then(|v| u32::try_from(v).ok()).unwrap_or(0);
        let (m, n) = (size(self.generic_value(m)?), size(self.generic_value(n)?));
        let (_, groups) = self.warpgroups(site)?;
        if m == 0 || !m.is_multiple_of(64 * groups) || !n.is_multiple_of(8) || !(8..=256).contains(&n) {
            let message = format!("an accumulator of {m} rows and {n} columns in a role of {groups} warpgroups");
            return Err(Diagnostic::new(901, site, message)
                .help(format!("rows: a multiple of {}; columns: a multiple of 8 up to 256", 64 * groups)));
        }
        let tiles =
            (0..m / (64 * groups)).map(|_| (0..n / 2).map(|_| self.builder.fresh(Class::B32)).collect()).collect();
        self.accumulators += 1;
        Ok(Value::Acc(Box::new(Accumulator { m, n, tiles, zero: true, id: self.accumulators })))
    }

    /// Writes the zeros that a first product would have made unnecessary.
    pub(super) fn settle(&mut self, acc: &mut Accumulator) {
        if !std::mem::take(&mut acc.zero) {
            return;
        }
        for reg in acc.tiles.iter().flatten() {
            self.builder.inst(Mov { ty: Type::B32, dst: *reg, src: Src::Imm(0) });
        }
    }

    /// Settles every accumulator in scope: ahead of a runtime loop or branch.
    pub(super) fn settle_all(&mut self) {
        let count = self.frame().scopes.len();
        for id in 0..count {
            if let Value::Acc(acc) = &self.frame().scopes.get(id).value
                && acc.zero
            {
                let mut acc = acc.clone();
                self.settle(&mut acc);
                self.frame().scopes.get_mut(id).value = Value::Acc(acc);
            }
        }
    }

    /// `acc.mma(a, b)`: acc += A Bᵀ for A `[M, 16]` and B `[N, 16]`, K contiguous.
    pub(super) fn mma(&mut self, acc: &mut Accumulator, a: &TileView, b: &TileView, site: Site<'_>) -> Result<()> {
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

    /// `acc.as_a::<bf16>()`: the accumulator, rounded, as an A operand whose columns are K.
    pub(super) fn as_operand(&mut self, acc: &Accumulator, elem: Elem, site: Site<'_>) -> Result<Value> {
        self.landed(acc, site)?;
        if !matches!(elem, Elem::BF16 | Elem::F16) || !acc.n.is_multiple_of(16) {
            let message = format!("an accumulator of {} columns as an operand of {elem}", acc.n);
            return Err(Diagnostic::new(902, site, message).help("bf16 or f16, and a multiple of 16 columns"));
        }
        let mut acc = acc.clone();
        self.settle(&mut acc);
        let to = if elem == Elem::BF16 { Type::Bf16x2 } else { Type::F16x2 };
        self.place(site);
        let mut registers = Vec::new();
        for tile in &acc.tiles {
            let mut slices = Vec::new();
            // Eight accumulators of a thread are the 2 x 2 pairs of a 16-column slice, in the operand's order.
            for eight in tile.chunks(8) {
                let mut slice = [eight[0]; 4];
                for (pair, out) in eight.chunks(2).zip(&mut slice) {
                    let dst = self.builder.fresh(Class::B32);
                    let (ftz, sat, relu) = (Default::default(), Default::default(), Default::default());
                    let (a, b) = (pair[1].into(), Some(pair[0].into()));
                    self.builder.inst(Cvt { round: Some(Round::Rn), relu, ftz, sat, to, from: Type::F32, dst, a, b });
                    *out = dst;
                }
                slices.push(slice);
            }
            registers.push(slices);
        }
        let width = u64::from(acc.n);
        Ok(Value::Operand(Box::new(Operand { elem, m: acc.m, registers, column: 0, width })))
    }

    /// `acc.mma(a, b)` with A in registers.
    pub(super) fn mma_registers(
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

    fn truth(&mut self, value: bool) -> Reg {
        let compare = if value { Compare::Eq } else { Compare::Ne };
        self.builder.prologue(Class::Pred, |dst| {
            let dst = kda_ptx::operand::DstAndPred { dst: Some(dst), pred: None };
            Setp { compare, ftz: Default::default(), ty: Type::U32, dst, a: Src::Imm(0), b: Src::Imm(0) }.into()
        })
    }

    fn plus(&mut self, base: Reg, step: i64) -> Src {
        if step == 0 {
            return base.into();
        }
        let reg = self.builder.pure(Class::B64, |dst| {
            let (round, ftz, sat) = (None, Default::default(), Default::default());
            Add { round, ftz, sat, ty: Type::S64, dst, a: base.into(), b: Src::Imm(step) }.into()
        });
        reg.into()
    }

    /// Descriptor of a tile's stage; with `group`, of the part of this warpgroup.
    fn descriptor(&mut self, view: &TileView, group: Option<(u32, i64)>, site: Site<'_>) -> Result<Reg> {
        self.buffers[view.buffer].multiplied = true;
        self.note_read(view.slot, view.buffer, false, site)?;
        let (base, offset) = self.stage_address(view, site)?;
        let base: Src = match base {
            Base::Reg(reg) => reg.into(),
            Base::Symbol(_) => self.shared_base().into(),
        };
        let mut address = self.builder.pure(Class::B32, |dst| {
            let (round, ftz, sat) = (None, Default::default(), Default::default());
            Add { round, ftz, sat, ty: Type::U32, dst, a: base.clone(), b: Src::Imm(offset) }.into()
        });
        if let Some((first, bytes)) = group {
            let warp = self.warp();
            let group =
                self.builder.pure(Class::B32, |dst| Shr { ty: Type::U32, dst, a: warp.src(), b: Src::Imm(2) }.into());
            let start = -i64::from(first / 4) * bytes;
            let a = address;
            let moved = self.builder.pure(Class::B32, |dst| {
                Mad { half: Half::Lo, ty: Type::U32, dst, a: group.into(), b: Src::Imm(bytes), c: a.into() }.into()
            });
            address = moved;
            if start != 0 {
                address = self.builder.pure(Class::B32, |dst| {
                    let (round, ftz, sat) = (None, Default::default(), Default::default());
                    Add { round, ftz, sat, ty: Type::S32, dst, a: moved.into(), b: Src::Imm(start) }.into()
                });
            }
        }
        // Shared addresses carry the CTA's rank in the cluster above bit 24: mask before shifting.
        let masked = self
            .builder
            .pure(Class::B32, |dst| And { ty: Type::B32, dst, a: address.into(), b: Src::Imm(0x3_FFFF) }.into());
        let shifted =
            self.builder.pure(Class::B32, |dst| Shr { ty: Type::U32, dst, a: masked.into(), b: Src::Imm(4) }.into());
        let wide = self.builder.pure(Class::B64, |dst| {
            let (ftz, sat) = (Default::default(), Default::default());
            let relu = Default::default();
            Cvt { round: None, relu, ftz, sat, to: Type::U64, from: Type::U32, dst, a: shifted.into(), b: None }.into()
        });
        Ok(self
            .builder
            .pure(Class::B64, |dst| Or { ty: Type::B64, dst, a: wide.into(), b: Src::Imm(DESCRIPTOR) }.into()))
    }

    /// `wgmma::commit()`
    pub(super) fn wgmma_commit(&mut self, site: Site<'_>) -> Result<()> {
        self.warpgroups(site)?;
        self.place(site);
        self.builder.inst(WgmmaCommit {});
        let group = std::mem::take(&mut self.flight.open);
        self.flight.groups.push(group);
        Ok(())
    }

    /// `wgmma::wait::<N>()`
    pub(super) fn wgmma_wait(&mut self, pending: usize, site: Site<'_>) -> Result<()> {
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

    /// A slot may be released only when no product reads it any more.
    pub(super) fn check_products(&self, slot: &super::pipeline::Slot, site: Site<'_>) -> Result<()> {
        let reads = |(_, read): &(usize, Option<u32>)| *read == Some(slot.id);
        if self.flight.open.iter().chain(self.flight.groups.iter().flatten()).any(reads) {
            return Err(Diagnostic::new(655, site, "products that read this stage may still run")
                .help("wait for them first: `wgmma::commit(); wgmma::wait::<0>();`"));
        }
        Ok(())
    }

    fn landed(&self, acc: &Accumulator, site: Site<'_>) -> Result<()> {
        if self.flight.writes(acc.id) {
            return Err(Diagnostic::new(903, site, "products that write this accumulator may still run")
                .help("wait for them first: `wgmma::commit(); wgmma::wait::<0>();`"));
        }
        Ok(())
    }

    /// `acc.for_each(|row, column, pair| …)`: every two neighbouring elements of a row that this thread holds.
    pub(super) fn for_each_pair(&mut self, acc: &Accumulator, args: &[&Expr], site: Site<'_>) -> Result<Value> {
        self.landed(acc, site)?;
        let [Expr::Closure(closure)] = args else {
            return Err(Diagnostic::new(
                168,
                site,
                "`for_each` takes a closure: `acc.for_each(|row, column, pair| …)`",
            ));
        };
        let [row_pat, column_pat, pair_pat] = closure.inputs.iter().collect::<Vec<_>>()[..] else {
            return Err(Diagnostic::new(
                168,
                Site::Tokens(closure),
                "the closure takes a row, a column and a pair of elements",
            ));
        };
        let (first, groups) = self.warpgroups(site)?;
        let mut acc = acc.clone();
        self.settle(&mut acc);
        let number = |n: u32| Value::u32(n);
        let (mul, add, div, rem, sub) = (
            BinOp::Mul(Default::default()),
            BinOp::Add(Default::default()),
            BinOp::Div(Default::default()),
            BinOp::Rem(Default::default()),
            BinOp::Sub(Default::default()),
        );
        let lane = Value::Scalar(self.special(Special::LaneId, Uniform::Thread));
        let warp = Value::Scalar(self.warp());
        let in_group = self.binary(&rem, warp.clone(), number(4), site)?;
        let strip = self.binary(&mul, in_group, number(16), site)?;
        let quad = self.binary(&div, lane.clone(), number(4), site)?;
        let mut row = self.binary(&add, strip, quad, site)?;
        if groups > 1 {
            let relative = self.binary(&sub, warp, number(first), site)?;
            let group = self.binary(&div, relative, number(4), site)?;
            let start = self.binary(&mul, group, number(64 * acc.tiles.len() as u32), site)?;
            row = self.binary(&add, start, row, site)?;
        }
        let within = self.binary(&rem, lane, number(4), site)?;
        let column = self.binary(&mul, within, number(2), site)?;
        for (i, tile) in acc.tiles.iter().enumerate() {
            for (j, quad) in tile.chunks(4).enumerate() {
                for (half, pair) in quad.chunks(2).enumerate() {
                    let row = self.binary(&add, row.clone(), number(64 * i as u32 + 8 * half as u32), site)?;
                    let column = self.binary(&add, column.clone(), number(8 * j as u32), site)?;
                    let copies = pair.iter().map(|reg| self.copy_of(*reg)).collect();
                    self.frame().scopes.push();
                    self.bind(row_pat, row)?;
                    self.bind(column_pat, column)?;
                    self.bind(pair_pat, Value::Array(copies))?;
                    self.expr(&closure.body)?;
                    self.frame().scopes.pop();
                }
            }
        }
        Ok(Value::Unit)
    }

    /// The value of a register that is written in place, as it is now.
    fn copy_of(&mut self, reg: Reg) -> Value {
        let copy = self.builder.fresh(Class::B32);
        self.builder.inst(Mov { ty: Type::B32, dst: copy, src: reg.into() });
        Value::Scalar(Scalar::new(Elem::F32, copy, Uniform::Thread))
    }

    /// `setmaxnreg` at the head of a role that names its registers.
    pub(super) fn set_registers(&mut self, site: Site<'_>) {
        let Some([role]) = self.roles.as_deref() else { return };
        let Some(registers) = self.resolved.roles[*role].registers else { return };
        let at_launch = (65_536 / self.resolved.block / 8 * 8).min(255);
        let change = if registers <= at_launch { RegisterChange::Dec } else { RegisterChange::Inc };
        self.place(site);
        self.builder.inst(SetMaxNReg {
            change,
            sync: SyncAlignedU32::SyncAlignedU32,
            count: Src::Imm(registers.into()),
        });
    }
}
