//! Accumulators in registers.
//!
//! An accumulator of M rows belongs to a role of M / 64 / tiles warpgroups; each holds `tiles` blocks of 64 rows, one after
//! another. In a block, warp w and lane l of the warpgroup hold rows 16 w + l / 4 and that plus 8, and columns
//! 8 j + 2 (l mod 4) and the next one. Of one block, an accumulator may have 16, 32 or 48 rows: the other rows are zero, and
//! nobody reads or stores them.
//!
//! A variable keeps its registers: products and assignments write them in place, what the source reads of them is a copy,
//! and a second variable gets registers of its own. Columns that no product has written yet are known to be zero, eight at
//! a time; the first product overwrites them.

use super::Specialiser;
use crate::consteval::Const;
use crate::diag::{Diagnostic, Result};
use crate::kir::Uniform;
use crate::specialise::site::Site;
use crate::specialise::value::{Scalar, Value};
use kda_core::Elem;
use kda_ptx::modifier::*;
use kda_ptx::operand::Src;
use kda_ptx::table::*;
use kda_ptx::{Class, Reg};
use std::ops::Range;
use syn::GenericArgument;

/// An accumulator, or some of its columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Accumulator {
    /// Rows of all warpgroups of the role.
    pub m: u32,
    /// Columns.
    pub n: u32,
    /// First column within the whole accumulator.
    pub column: u32,
    /// Registers of each block of 64 rows.
    pub tiles: Vec<Vec<Reg>>,
    /// Which eights of columns are still zero and not yet written.
    pub zero: Vec<bool>,
    /// Number of the accumulator in the kernel.
    pub id: usize,
}

impl Accumulator {
    /// Its columns within the whole accumulator.
    pub fn columns(&self) -> Range<u32> {
        self.column..self.column + self.n
    }

    /// Some of its columns, from a multiple of 8 to a multiple of 8.
    pub fn part(&self, columns: Range<u32>) -> Accumulator {
        let registers = columns.start as usize / 2..columns.end as usize / 2;
        Accumulator {
            m: self.m,
            n: columns.end - columns.start,
            column: self.column + columns.start,
            tiles: self.tiles.iter().map(|tile| tile[registers.clone()].to_vec()).collect(),
            zero: self.zero[columns.start as usize / 8..columns.end as usize / 8].to_vec(),
            id: self.id,
        }
    }

    /// Takes over what is known of a part.
    fn set_part(&mut self, part: &Accumulator) {
        let first = (part.column - self.column) as usize / 8;
        self.zero[first..first + part.zero.len()].clone_from_slice(&part.zero);
    }
}

/// Registers of a thread: the most that `setmaxnreg` and the assembler give.
const MOST_REGISTERS: u64 = 255;

impl Specialiser<'_> {
    /// `M, N` of `Acc::<f32, M, N>`
    pub(super) fn accumulator_shape(&mut self, generics: &[GenericArgument], site: Site<'_>) -> Result<(u32, u32)> {
        let form = || Diagnostic::new(901, site, "an accumulator is written `Acc::<f32, M, N>::zero()`");
        let [elem, m, n] = generics else { return Err(form()) };
        if self.generic_value(elem)? != Const::Elem(Elem::F32) {
            return Err(form());
        }
        let size = |value: Const| value.as_int().and_then(|v| u32::try_from(v).ok()).unwrap_or(0);
        Ok((size(self.generic_value(m)?), size(self.generic_value(n)?)))
    }

    /// An accumulator of fresh registers, still zero.
    pub(super) fn accumulator(&mut self, m: u32, n: u32, site: Site<'_>) -> Result<Accumulator> {
        let (_, groups) = self.group_shape(site)?;
        let part = groups == 1 && matches!(m, 16 | 32 | 48);
        if m == 0 || !(m.is_multiple_of(64 * groups) || part) || !n.is_multiple_of(8) || !(8..=256).contains(&n) {
            let message = format!("an accumulator of {m} rows and {n} columns in a role of {groups} warpgroups");
            return Err(Diagnostic::new(901, site, message).help(format!(
                "rows: a multiple of {}, or 16, 32 or 48 of a single warpgroup; columns: a multiple of 8 up to 256",
                64 * groups
            )));
        }
        let blocks = m.div_ceil(64 * groups);
        let registers = u64::from(blocks) * u64::from(n / 2);
        if registers > MOST_REGISTERS {
            let message = format!("an accumulator of {m} rows and {n} columns takes {registers} registers of a thread");
            return Err(Diagnostic::new(901, site, message)
                .help(format!("a thread has at most {MOST_REGISTERS}: more warpgroups, or fewer rows or columns")));
        }
        let tiles = (0..blocks).map(|_| (0..n / 2).map(|_| self.builder.fresh(Class::B32)).collect()).collect();
        self.accumulators += 1;
        Ok(Accumulator { m, n, column: 0, tiles, zero: vec![true; n as usize / 8], id: self.accumulators })
    }

    /// Registers of an accumulator are written by something else than a product: what was derived from them is stale.
    pub(super) fn touch(&mut self, acc: &Accumulator) {
        self.flight.fenced = false;
        self.conversions.forget(acc.id, &acc.columns());
    }

    /// Writes the zeros that a first product would have made unnecessary.
    pub(super) fn settle(&mut self, acc: &mut Accumulator) {
        if !acc.zero.contains(&true) {
            return;
        }
        self.touch(acc);
        for tile in &acc.tiles {
            for (regs, zero) in tile.chunks(4).zip(&acc.zero) {
                for reg in regs.iter().filter(|_| *zero) {
                    self.builder.inst(Mov { ty: Type::B32, dst: *reg, src: Src::Imm(0) });
                }
            }
        }
        acc.zero.fill(false);
    }

    /// Settles every accumulator in scope: where runtime control begins, and where it joins.
    pub(in crate::specialise) fn settle_all(&mut self) {
        if self.accumulators == 0 {
            return;
        }
        for id in 0..self.frame().scopes.len() {
            let mut value = std::mem::replace(&mut self.frame().scopes.get_mut(id).value, Value::Unit);
            self.settle_value(&mut value);
            self.frame().scopes.get_mut(id).value = value;
        }
    }

    fn settle_value(&mut self, value: &mut Value) {
        match value {
            Value::Acc(acc) => self.settle(acc),
            Value::Array(items) | Value::Tuple(items) => items.iter_mut().for_each(|item| self.settle_value(item)),
            _ => {}
        }
    }

    /// The value with registers of its own, where its accumulators are those of a variable.
    pub(in crate::specialise) fn owned(&mut self, value: Value, site: Site<'_>) -> Result<Value> {
        if self.accumulators == 0 {
            return Ok(value);
        }
        let mut taken = Vec::new();
        accumulators(&value, &mut taken);
        if taken.is_empty() {
            return Ok(value);
        }
        taken.clear();
        for frame in &self.frames {
            (0..frame.scopes.len()).for_each(|id| accumulators(&frame.scopes.get(id).value, &mut taken));
        }
        self.copied(value, &mut taken, site)
    }

    fn copied(&mut self, value: Value, taken: &mut Vec<usize>, site: Site<'_>) -> Result<Value> {
        match value {
            Value::Acc(acc) if taken.contains(&acc.id) || acc.column > 0 => {
                let mut copy = self.accumulator(acc.m, acc.n, site)?;
                self.move_accumulator(&mut copy, &acc, site)?;
                taken.push(copy.id);
                Ok(Value::Acc(Box::new(copy)))
            }
            Value::Acc(acc) => {
                taken.push(acc.id);
                Ok(Value::Acc(acc))
            }
            Value::Array(items) => {
                items.into_iter().map(|item| self.copied(item, taken, site)).collect::<Result<_>>().map(Value::Array)
            }
            Value::Tuple(items) => {
                items.into_iter().map(|item| self.copied(item, taken, site)).collect::<Result<_>>().map(Value::Tuple)
            }
            other => Ok(other),
        }
    }

    /// The new value of a variable that holds `old`: accumulators move into its registers.
    pub(in crate::specialise) fn replaced(&mut self, old: &Value, new: Value, site: Site<'_>) -> Result<Value> {
        match (old, new) {
            (Value::Acc(a), Value::Acc(b)) if a.id == b.id && a.columns() == b.columns() => Ok(Value::Acc(b)),
            (Value::Acc(a), Value::Acc(b)) if (a.m, a.n) == (b.m, b.n) => {
                let mut acc = a.clone();
                self.move_accumulator(&mut acc, &b, site)?;
                Ok(Value::Acc(acc))
            }
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
                let pairs: Vec<_> = a.iter().zip(b).collect();
                pairs.into_iter().map(|(a, b)| self.replaced(a, b, site)).collect::<Result<_>>().map(Value::Array)
            }
            (Value::Tuple(a), Value::Tuple(b)) if a.len() == b.len() => {
                let pairs: Vec<_> = a.iter().zip(b).collect();
                pairs.into_iter().map(|(a, b)| self.replaced(a, b, site)).collect::<Result<_>>().map(Value::Tuple)
            }
            (_, new) => Ok(new),
        }
    }

    /// `to = from`, register by register.
    fn move_accumulator(&mut self, to: &mut Accumulator, from: &Accumulator, site: Site<'_>) -> Result<()> {
        self.landed(to, site)?;
        self.landed(from, site)?;
        self.touch(to);
        for (to, from_tile) in to.tiles.iter().zip(&from.tiles) {
            for ((to, from), zero) in to.chunks(4).zip(from_tile.chunks(4)).zip(&from.zero) {
                for (dst, src) in to.iter().zip(from).filter(|_| !zero) {
                    self.builder.inst(Mov { ty: Type::B32, dst: *dst, src: (*src).into() });
                }
            }
        }
        to.zero.clone_from(&from.zero);
        Ok(())
    }

    /// `place.columns(range) = value`, where the value is of these columns.
    pub(in crate::specialise) fn assign_columns(&mut self, call: &syn::ExprMethodCall, value: Value) -> Result<()> {
        let site = Site::Expr(&call.receiver);
        let old = self.method(call, site)?;
        let whole = self.expr(&call.receiver)?;
        let (Value::Acc(part), Value::Acc(mut whole)) = (self.replaced(&old, value, site)?, whole) else {
            return Err(Diagnostic::new(151, site, "only columns of an accumulator can be assigned to"));
        };
        if part.id != whole.id || part.n > whole.n {
            let message = format!("{} is assigned to {}", Value::Acc(part).describe(), old.describe());
            return Err(Diagnostic::new(160, site, message));
        }
        whole.set_part(&part);
        self.assign_value(&call.receiver, Value::Acc(whole))
    }

    /// The value of a register that is written in place, as it is now.
    pub(super) fn copy_of(&mut self, reg: Reg) -> Value {
        let copy = self.builder.fresh(Class::B32);
        self.builder.inst(Mov { ty: Type::B32, dst: copy, src: reg.into() });
        Value::Scalar(Scalar::new(Elem::F32, copy, Uniform::Thread))
    }
}

/// Numbers of the accumulators in a value.
fn accumulators(value: &Value, out: &mut Vec<usize>) {
    match value {
        Value::Acc(acc) => out.push(acc.id),
        Value::Array(items) | Value::Tuple(items) => items.iter().for_each(|item| accumulators(item, out)),
        _ => {}
    }
}
