//! Operands in registers.

use super::{Accumulator, Specialiser};
use crate::diag::{Diagnostic, Result};
use crate::specialise::site::Site;
use crate::specialise::value::Value;
use kda_core::Elem;
use kda_ptx::modifier::*;
use kda_ptx::table::*;
use kda_ptx::{Class, Reg};

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

impl Specialiser<'_> {
    /// `acc.as_a::<bf16>()`: the accumulator, rounded, as an A operand whose columns are K.
    pub(in crate::specialise) fn as_operand(&mut self, acc: &Accumulator, elem: Elem, site: Site<'_>) -> Result<Value> {
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
}
