//! Arithmetic on fragments of f32, element by element; numbers go with every element.

use super::super::Specialiser;
use super::super::site::Site;
use super::super::value::Value;
use super::{Fragment, Kind};
use crate::diag::{Diagnostic, Result};
use crate::kir::Uniform;
use kda_core::Elem;
use kda_ptx::operand::Special;
use syn::BinOp;

impl Specialiser<'_> {
    /// `a op b`; one of them may be a number.
    pub(in super::super) fn fragment_binary(
        &mut self,
        op: &BinOp,
        a: Value,
        b: Value,
        site: Site<'_>,
    ) -> Result<Fragment> {
        let (shape, [a, b]) = spread([a, b], site)?;
        let blocks: Result<Vec<Value>> = a.into_iter().zip(b).map(|(x, y)| self.binary(op, x, y, site)).collect();
        Ok(shape.with(Kind::F32, blocks?))
    }

    /// `fma(a, b, c)`; some of them may be numbers.
    pub(in super::super) fn fragment_fma(&mut self, a: Value, b: Value, c: Value, site: Site<'_>) -> Result<Value> {
        let (shape, [a, b, c]) = spread([a, b, c], site)?;
        let blocks = a.into_iter().zip(b).zip(c).map(|((a, b), c)| self.fma(a, b, c, site));
        Ok(Value::Frag(Box::new(shape.with(Kind::F32, blocks.collect::<Result<_>>()?))))
    }

    /// `fragment.row(i)`, `fragment.column(i)`: a fragment of that shape with this row in every row, or this column in every
    /// column.
    pub(super) fn fragment_line(&mut self, frag: &Fragment, row: bool, index: &Value, site: Site<'_>) -> Result<Value> {
        let size = if row { frag.rows } else { frag.columns };
        let index = index.as_int().and_then(|i| u32::try_from(i).ok()).filter(|i| *i < size);
        let (Some(index), Kind::F32) = (index, frag.kind) else {
            let message = format!("one line of {}", Value::Frag(Box::new(frag.clone())).describe());
            return Err(
                Diagnostic::new(154, site, message).help("the index is a constant below the size, the type f32")
            );
        };
        let lane = Value::Scalar(self.special(Special::LaneId, Uniform::Thread));
        let (own, add, mul) =
            (BinOp::Rem(Default::default()), BinOp::Add(Default::default()), BinOp::Mul(Default::default()));
        // Four lanes hold a row of a block, two columns each.
        let source = if row {
            let within = self.binary(&own, lane, Value::u32(4), site)?;
            self.binary(&add, within, Value::u32(index % 8 * 4), site)?
        } else {
            let group = self.binary(&BinOp::Div(Default::default()), lane, Value::u32(4), site)?;
            let group = self.binary(&mul, group, Value::u32(4), site)?;
            self.binary(&add, group, Value::u32(index % 8 / 2), site)?
        };
        let mut lines = Vec::new();
        for other in 0..(if row { frag.width() } else { frag.rows / 8 }) {
            let block = if row { frag.block(index / 8, other) } else { frag.block(other, index / 8) };
            let Value::Array(pair) = block else { continue };
            let mut pair = pair.clone();
            if !row {
                let one = pair[index as usize % 2].clone();
                pair = vec![one.clone(), one];
            }
            for x in &mut pair {
                *x = Value::Scalar(self.scalar(x, Some(Elem::F32), site)?);
            }
            lines.push(match row {
                true => self.shuffle("shfl", Value::Array(pair), source.clone(), site)?,
                false => {
                    let one = self.shuffle("shfl", pair[0].clone(), source.clone(), site)?;
                    Value::Array(vec![one.clone(), one])
                }
            });
        }
        let place = |i: u32, j: u32| lines[if row { j } else { i } as usize].clone();
        let width = frag.width();
        let blocks =
            (0..frag.rows / 8).flat_map(|i| (0..width).map(move |j| (i, j))).map(|(i, j)| place(i, j)).collect();
        Ok(Value::Frag(Box::new(frag.with(Kind::F32, blocks))))
    }
}

/// The operands block by block, and the shape that the fragments among them share.
fn spread<const N: usize>(operands: [Value; N], site: Site<'_>) -> Result<(Fragment, [Vec<Value>; N])> {
    let mut shape: Option<Fragment> = None;
    let mut fits = true;
    for operand in &operands {
        fits &= match operand {
            Value::Frag(frag) => {
                let same = shape.as_ref().is_none_or(|shape| shape.alike(frag));
                shape.get_or_insert_with(|| frag.with(frag.kind, Vec::new()));
                same && frag.kind == Kind::F32
            }
            Value::Const(_) | Value::Scalar(_) => true,
            _ => false,
        };
    }
    let Some(shape) = shape.filter(|_| fits) else {
        let names: Vec<String> = operands.iter().map(Value::describe).collect();
        let message = format!("{} do not go together", names.join(" and "));
        return Err(
            Diagnostic::new(156, site, message).help("arithmetic is on f32: of fragments of one shape, and numbers")
        );
    };
    let count = (shape.rows * shape.columns / 64) as usize;
    let operands = operands.map(|operand| match operand {
        Value::Frag(frag) => frag.blocks,
        number => vec![number; count],
    });
    Ok((shape, operands))
}
