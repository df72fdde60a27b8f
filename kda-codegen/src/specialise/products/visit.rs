//! What each thread holds of an accumulator, with its coordinates.

use super::{Accumulator, Specialiser};
use crate::diag::{Diagnostic, Result};
use crate::kir::Uniform;
use crate::specialise::site::Site;
use crate::specialise::value::Value;
use kda_ptx::operand::Special;
use syn::{BinOp, Expr};

impl Specialiser<'_> {
    /// `acc.for_each(|row, column, pair| …)`: every two neighbouring elements of a row that this thread holds.
    pub(in crate::specialise) fn for_each_pair(
        &mut self,
        acc: &Accumulator,
        args: &[&Expr],
        site: Site<'_>,
    ) -> Result<Value> {
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
}
