//! Fragments element by element: the compiler knows the coordinates of every register.

use super::super::Specialiser;
use super::super::site::Site;
use super::super::value::Value;
use super::{Fragment, Kind};
use crate::diag::{Diagnostic, Result};
use crate::kir::Uniform;
use kda_core::Elem;
use kda_ptx::operand::Special;
use syn::{BinOp, Expr, ExprClosure, Pat};

impl Specialiser<'_> {
    /// Row and first column of what a thread holds of each block.
    pub(super) fn coordinates_of(&mut self, rows: u32, columns: u32, site: Site<'_>) -> Result<Vec<(Value, Value)>> {
        let lane = Value::Scalar(self.special(Special::LaneId, Uniform::Thread));
        let row = self.binary(&BinOp::Div(Default::default()), lane.clone(), Value::u32(4), site)?;
        let within = self.binary(&BinOp::Rem(Default::default()), lane, Value::u32(4), site)?;
        let column = self.binary(&BinOp::Mul(Default::default()), within, Value::u32(2), site)?;
        let add = BinOp::Add(Default::default());
        let mut found = Vec::with_capacity((rows * columns / 64) as usize);
        for i in 0..rows / 8 {
            let row = self.binary(&add, row.clone(), Value::u32(8 * i), site)?;
            for j in 0..columns / 8 {
                found.push((row.clone(), self.binary(&add, column.clone(), Value::u32(8 * j), site)?));
            }
        }
        Ok(found)
    }

    /// `Frag::<T, ROWS, COLUMNS>::from_fn(|row, column| x)`
    pub(super) fn fragment_from_fn(
        &mut self,
        kind: Kind,
        rows: u32,
        columns: u32,
        args: &[&Expr],
        site: Site<'_>,
    ) -> Result<Value> {
        let (closure, [row_pat, column_pat]) = closure::<2>(args, "Frag::from_fn(|row, column| …)", site)?;
        let mut blocks = Vec::new();
        for (row, column) in self.coordinates_of(rows, columns, site)? {
            let mut pair = Vec::with_capacity(2);
            for element in 0..2 {
                let column = self.moved(&column, element, site)?;
                pair.push(self.evaluate(closure, [(row_pat, row.clone()), (column_pat, column)])?);
            }
            blocks.push(self.block_of(kind, &pair, site)?);
        }
        Ok(Value::Frag(Box::new(Fragment { kind, rows, columns, blocks })))
    }

    /// `Frag::<T, ROWS, COLUMNS>::from_pairs(pairs)`: of what each lane gives, two neighbours of a row for each block.
    pub(super) fn fragment_from_pairs(
        &mut self,
        kind: Kind,
        rows: u32,
        columns: u32,
        pairs: Value,
        site: Site<'_>,
    ) -> Result<Value> {
        let count = (rows * columns / 64) as usize;
        let two = |pair: &Value| matches!(pair, Value::Array(pair) if pair.len() == 2);
        let pairs = match pairs {
            Value::Array(pairs) if pairs.len() == count && pairs.iter().all(two) => pairs,
            other => {
                let message = format!("{} for a fragment of {count} blocks", other.describe());
                return Err(Diagnostic::new(906, site, message)
                    .help("give an array with two neighbours for each block of 8 x 8, row by row"));
            }
        };
        let mut blocks = Vec::with_capacity(count);
        for pair in &pairs {
            let Value::Array(pair) = pair else { continue };
            blocks.push(self.block_of(kind, pair, site)?);
        }
        Ok(Value::Frag(Box::new(Fragment { kind, rows, columns, blocks })))
    }

    /// `fragment.map(|row, column, x| …)`: another fragment; `fragment.for_each(|row, column, pair| …)`: every two
    /// neighbouring elements of a row.
    pub(super) fn fragment_visit(
        &mut self,
        frag: &Fragment,
        map: bool,
        args: &[&Expr],
        site: Site<'_>,
    ) -> Result<Value> {
        let form = if map { "map(|row, column, x| …)" } else { "for_each(|row, column, pair| …)" };
        let (closure, [row_pat, column_pat, pat]) = closure::<3>(args, form, site)?;
        let (mut blocks, mut kind) = (Vec::new(), None);
        let coordinates = self.coordinates_of(frag.rows, frag.columns, site)?;
        for (block, (row, column)) in frag.blocks.iter().zip(coordinates) {
            let pair = match (frag.kind, block) {
                (Kind::Half(elem), packed) => self.halves(packed, elem, site)?,
                (_, Value::Array(pair)) => pair.clone(),
                _ => continue,
            };
            if !map {
                self.evaluate(closure, [(row_pat, row), (column_pat, column), (pat, Value::Array(pair))])?;
                continue;
            }
            let mut results = Vec::with_capacity(2);
            for (element, x) in pair.into_iter().enumerate() {
                let column = self.moved(&column, element as u32, site)?;
                results.push(self.evaluate(closure, [(row_pat, row.clone()), (column_pat, column), (pat, x)])?);
            }
            let own = match &results[0] {
                Value::Scalar(s) if matches!(s.elem, Elem::BF16 | Elem::F16) => Kind::Half(s.elem),
                _ => Kind::F32,
            };
            let kind = *kind.get_or_insert(own);
            blocks.push(self.block_of(kind, &results, site)?);
        }
        match kind {
            Some(kind) => Ok(Value::Frag(Box::new(frag.with(kind, blocks)))),
            None => Ok(Value::Unit),
        }
    }

    /// A block of two results of a closure.
    fn block_of(&mut self, kind: Kind, pair: &[Value], site: Site<'_>) -> Result<Value> {
        match kind {
            Kind::Half(elem) => self.paired(pair, elem, site),
            Kind::F32 => {
                for x in pair {
                    self.operand(x, Elem::F32, site)?;
                }
                Ok(Value::Array(pair.to_vec()))
            }
            Kind::Tf32 => Err(Diagnostic::new(906, site, "tf32 comes from rounding f32")
                .help("make a fragment of f32, then `round::<tf32>()`")),
        }
    }

    fn moved(&mut self, column: &Value, by: u32, site: Site<'_>) -> Result<Value> {
        self.binary(&BinOp::Add(Default::default()), column.clone(), Value::u32(by), site)
    }

    /// The value of a closure's body with these arguments.
    fn evaluate<const N: usize>(&mut self, closure: &ExprClosure, arguments: [(&Pat, Value); N]) -> Result<Value> {
        self.frame().scopes.push();
        for (pat, value) in arguments {
            self.bind(pat, value)?;
        }
        let value = self.expr(&closure.body)?;
        self.frame().scopes.pop();
        Ok(value)
    }
}

/// The closure of a call, and its N parameters.
fn closure<'e, const N: usize>(
    args: &[&'e Expr],
    form: &str,
    site: Site<'_>,
) -> Result<(&'e ExprClosure, [&'e Pat; N])> {
    let wrong = |site| Diagnostic::new(168, site, format!("a closure of {N} parameters is needed: `{form}`"));
    let [Expr::Closure(closure)] = args else { return Err(wrong(site)) };
    let patterns: Vec<&Pat> = closure.inputs.iter().collect();
    let patterns = patterns.try_into().map_err(|_| wrong(Site::Tokens(closure)))?;
    Ok((closure, patterns))
}
