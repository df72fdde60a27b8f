//! Operands in registers.
//!
//! What an accumulator becomes when it is rounded has the layout of an A operand. Its registers are written once, so a
//! product in flight may go on reading them. As long as the accumulator does not change, the same conversion gives the
//! same registers.

use super::{Accumulator, Specialiser};
use crate::diag::{Diagnostic, Result};
use crate::specialise::site::Site;
use crate::specialise::value::Value;
use kda_core::Elem;
use kda_ptx::modifier::*;
use kda_ptx::operand::{DstList, Src};
use kda_ptx::table::*;
use kda_ptx::{Class, Reg};
use std::collections::HashMap;
use std::ops::Range;

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
    /// Products take it with the other sign.
    pub negated: bool,
}

/// Registers of 16 columns, for each block of 64 rows.
type Slice = Vec<[Reg; 4]>;

/// Conversions that still hold: accumulator, first of 16 columns, type, and whether it is what rounding left over.
#[derive(Clone, Debug, Default)]
pub struct Conversions {
    known: HashMap<(usize, u32, Elem, bool), Slice>,
}

impl Conversions {
    /// Columns of an accumulator change.
    pub(super) fn forget(&mut self, accumulator: usize, columns: &Range<u32>) {
        self.known
            .retain(|(id, first, ..), _| *id != accumulator || *first >= columns.end || first + 16 <= columns.start);
    }

    /// Control begins or joins here: what one side has computed is unknown to the other.
    pub(in crate::specialise) fn clear(&mut self) {
        self.known.clear();
    }
}

impl Specialiser<'_> {
    /// `acc.as_a::<bf16>()`: the accumulator, rounded, as an A operand whose columns are K.
    pub(super) fn as_operand(&mut self, acc: &Accumulator, elem: Elem, site: Site<'_>) -> Result<Operand> {
        self.converted(acc, elem, false, site)
    }

    /// `acc.split_a::<bf16>()`: the accumulator, rounded, and what rounding left over, rounded.
    pub(super) fn split_operand(&mut self, acc: &Accumulator, elem: Elem, site: Site<'_>) -> Result<Value> {
        let high = self.converted(acc, elem, false, site)?;
        let low = self.converted(acc, elem, true, site)?;
        Ok(Value::Tuple(vec![Value::Operand(Box::new(high)), Value::Operand(Box::new(low))]))
    }

    fn converted(&mut self, acc: &Accumulator, elem: Elem, rest: bool, site: Site<'_>) -> Result<Operand> {
        self.landed(acc, site)?;
        if !matches!(elem, Elem::BF16 | Elem::F16) || !acc.n.is_multiple_of(16) {
            let message = format!("an accumulator of {} columns as an operand of {elem}", acc.n);
            return Err(Diagnostic::new(902, site, message).help("bf16 or f16, and a multiple of 16 columns"));
        }
        let mut acc = acc.clone();
        self.settle(&mut acc);
        self.place(site);
        let mut registers: Vec<Vec<[Reg; 4]>> = vec![Vec::new(); acc.tiles.len()];
        for (index, first) in acc.columns().step_by(16).enumerate() {
            let key = (acc.id, first, elem, rest);
            let slice = match self.conversions.known.get(&key) {
                Some(slice) => slice.clone(),
                None => {
                    let eights = acc.tiles.iter().map(|tile| tile[8 * index..8 * index + 8].to_vec());
                    let high = self.conversions.known.get(&(acc.id, first, elem, false)).cloned();
                    let mut slice = Vec::new();
                    for (block, eight) in eights.collect::<Vec<_>>().into_iter().enumerate() {
                        slice.push(match high.as_ref().filter(|_| rest) {
                            Some(high) => self.left_over(&eight, &high[block], elem),
                            None => self.rounded(&eight, elem),
                        });
                    }
                    self.flight.fenced = false;
                    self.conversions.known.insert(key, slice.clone());
                    slice
                }
            };
            for (block, four) in registers.iter_mut().zip(slice) {
                block.push(four);
            }
        }
        Ok(Operand { elem, m: acc.m, registers, column: 0, width: acc.n.into(), negated: false })
    }

    /// Eight accumulators of a thread are the 2 x 2 pairs of a 16-column slice, in the operand's order.
    fn rounded(&mut self, eight: &[Reg], elem: Elem) -> [Reg; 4] {
        let mut out = [eight[0]; 4];
        for (pair, out) in eight.chunks(2).zip(&mut out) {
            *out = self.packed(pair[0], pair[1], elem);
        }
        out
    }

    /// The same of what rounding to `high` left over.
    fn left_over(&mut self, eight: &[Reg], high: &[Reg; 4], elem: Elem) -> [Reg; 4] {
        let mut out = *high;
        for ((pair, high), out) in eight.chunks(2).zip(high).zip(&mut out) {
            let [low, top] = self.unpacked(*high, elem);
            let (low, top) = (self.difference(pair[0], low), self.difference(pair[1], top));
            *out = self.packed(low, top, elem);
        }
        out
    }

    fn difference(&mut self, a: Reg, b: Reg) -> Reg {
        let dst = self.builder.fresh(Class::B32);
        let (ftz, sat) = (Default::default(), Default::default());
        self.builder.inst(Sub { round: Some(Round::Rn), ftz, sat, ty: Type::F32, dst, a: a.into(), b: b.into() });
        dst
    }

    /// Two numbers, rounded, in one register: the first in the lower half.
    fn packed(&mut self, first: Reg, second: Reg, elem: Elem) -> Reg {
        let to = if elem == Elem::BF16 { Type::Bf16x2 } else { Type::F16x2 };
        let dst = self.builder.fresh(Class::B32);
        let (ftz, sat, relu) = (Default::default(), Default::default(), Default::default());
        let (a, b) = (second.into(), Some(first.into()));
        self.builder.inst(Cvt { round: Some(Round::Rn), relu, ftz, sat, to, from: Type::F32, dst, a, b });
        dst
    }

    /// The two numbers of a register as f32.
    pub(super) fn unpacked(&mut self, both: Reg, elem: Elem) -> [Reg; 2] {
        if elem == Elem::BF16 {
            let [low, high] = [self.builder.fresh(Class::B32), self.builder.fresh(Class::B32)];
            self.builder.inst(Shl { ty: Type::B32, dst: low, a: both.into(), b: Src::Imm(16) });
            self.builder.inst(And { ty: Type::B32, dst: high, a: both.into(), b: Src::Imm(0xffff_0000) });
            return [low, high];
        }
        let halves = [self.builder.fresh(Class::B16), self.builder.fresh(Class::B16)];
        self.builder.inst(Unpack { ty: Type::B32, dst: DstList(halves.map(Some).to_vec()), src: both.into() });
        halves.map(|half| {
            let dst = self.builder.fresh(Class::B32);
            let (ftz, sat, relu) = (Default::default(), Default::default(), Default::default());
            let (to, from, a) = (Type::F32, Type::F16, half.into());
            self.builder.inst(Cvt { round: None, relu, ftz, sat, to, from, dst, a, b: None });
            dst
        })
    }
}
