//! What each thread holds of an accumulator, with its coordinates.

use super::{Accumulator, Specialiser};
use crate::diag::{Diagnostic, Result};
use crate::kir::Uniform;
use crate::specialise::fragment::{Fragment, Kind};
use crate::specialise::site::Site;
use crate::specialise::value::Value;
use kda_core::Elem;
use kda_ptx::modifier::Type;
use kda_ptx::operand::{Special, Src};
use kda_ptx::table::Mov;
use syn::{BinOp, Expr};

/// What the closure of a map takes and gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Each {
    /// An element.
    One,
    /// Two neighbours of a row, as an array.
    Pair,
}

impl Each {
    /// That of `map` or `map_pairs`.
    pub(super) fn of(method: &str) -> Each {
        if method == "map_pairs" { Each::Pair } else { Each::One }
    }

    fn elements(self) -> usize {
        1 + usize::from(self == Each::Pair)
    }
}

/// Coordinates of the first element that a thread holds.
struct Corner {
    row: Value,
    column: Value,
}

impl Specialiser<'_> {
    fn corner(&mut self, acc: &Accumulator, site: Site<'_>) -> Result<Corner> {
        let (mul, add) = (BinOp::Mul(Default::default()), BinOp::Add(Default::default()));
        let (div, rem) = (BinOp::Div(Default::default()), BinOp::Rem(Default::default()));
        let number = |n: u32| Value::u32(n);
        let lane = Value::Scalar(self.special(Special::LaneId, Uniform::Thread));
        let (group, warp) = self.group_place(site)?;
        let strip = self.binary(&mul, warp, number(16), site)?;
        let quad = self.binary(&div, lane.clone(), number(4), site)?;
        let row = self.binary(&add, strip, quad, site)?;
        let start = self.binary(&mul, group, number(64 * acc.tiles.len() as u32), site)?;
        let row = self.binary(&add, start, row, site)?;
        let within = self.binary(&rem, lane, number(4), site)?;
        let column = self.binary(&mul, within, number(2), site)?;
        Ok(Corner { row, column })
    }

    /// Coordinates of the pair `half` of the eight columns `eight` in the block of rows `block`.
    fn place_in(
        &mut self,
        corner: &Corner,
        block: usize,
        eight: usize,
        half: usize,
        site: Site<'_>,
    ) -> Result<(Value, Value)> {
        let add = BinOp::Add(Default::default());
        let row = self.binary(&add, corner.row.clone(), Value::u32(64 * block as u32 + 8 * half as u32), site)?;
        let column = self.binary(&add, corner.column.clone(), Value::u32(8 * eight as u32), site)?;
        Ok((row, column))
    }

    /// `acc.for_each(|row, column, pair| …)`: every two neighbouring elements of a row that this thread holds.
    pub(super) fn for_each_pair(&mut self, acc: &Accumulator, args: &[&Expr], site: Site<'_>) -> Result<Value> {
        self.landed(acc, site)?;
        let form = "`for_each` takes a closure: `acc.for_each(|row, column, pair| …)`";
        let [Expr::Closure(closure)] = args else { return Err(Diagnostic::new(168, site, form)) };
        let mut acc = acc.clone();
        self.settle(&mut acc);
        let corner = self.corner(&acc, site)?;
        let visit = |this: &mut Self| {
            for (block, tile) in acc.tiles.iter().enumerate() {
                for (eight, quad) in tile.chunks(4).enumerate() {
                    for (half, pair) in quad.chunks(2).enumerate() {
                        let (row, column) = this.place_in(&corner, block, eight, half, site)?;
                        // The closure may start products.
                        this.landed(&acc, site)?;
                        let pair = pair.iter().map(|reg| this.copy_of(*reg)).collect();
                        this.spend(1, site)?;
                        this.apply_all(closure, vec![row, column, Value::Array(pair)])?;
                    }
                }
            }
            Ok(())
        };
        self.in_rows(acc.m, site, visit, |_| Ok(()))?;
        self.flight.fenced = false;
        Ok(Value::Unit)
    }

    /// `acc.map(|row, column, x| …)`, and with no accumulator `Acc::from_fn(|row, column| …)`: an accumulator of what the
    /// closure gives for each element that this thread holds.
    pub(super) fn mapped(
        &mut self,
        from: Option<&Accumulator>,
        (m, n): (u32, u32),
        each: Each,
        args: &[&Expr],
        site: Site<'_>,
    ) -> Result<Accumulator> {
        let into = self.accumulator(m, n, site)?;
        self.mapped_into(into, from, each, args, site)
    }

    /// The same, into the registers of `out`; where that is `from`, rows that nobody holds are zero already.
    pub(super) fn mapped_into(
        &mut self,
        out: Accumulator,
        from: Option<&Accumulator>,
        each: Each,
        args: &[&Expr],
        site: Site<'_>,
    ) -> Result<Accumulator> {
        let form = match from {
            Some(_) if each == Each::Pair => "`map_pairs` takes a closure: `acc.map_pairs(|row, column, pair| …)`",
            Some(_) => "`map` of an accumulator takes a closure: `acc.map(|row, column, x| …)`",
            None => "`from_fn` takes a closure: `Acc::<f32, M, N>::from_fn(|row, column| …)`",
        };
        let [Expr::Closure(closure)] = args else { return Err(Diagnostic::new(168, site, form)) };
        let from = match from {
            None => None,
            Some(acc) => {
                self.landed(acc, site)?;
                let mut acc = acc.clone();
                self.settle(&mut acc);
                Some(acc)
            }
        };
        let add = BinOp::Add(Default::default());
        let corner = self.corner(&out, site)?;
        let kept = from.as_ref().is_some_and(|from| from.id == out.id);
        let compute = |this: &mut Self| {
            for (block, tile) in out.tiles.iter().enumerate() {
                for (index, dst) in tile.iter().enumerate() {
                    let (eight, half, odd) = (index / 4, index % 4 / 2, index as u32 % 2);
                    if each == Each::Pair && odd == 1 {
                        continue;
                    }
                    let (row, column) = this.place_in(&corner, block, eight, half, site)?;
                    let column = this.binary(&add, column, Value::u32(odd), site)?;
                    let mut values = vec![row, column];
                    if let Some(from) = &from {
                        this.landed(from, site)?;
                        let regs = &from.tiles[block][index..index + each.elements()];
                        let mut held: Vec<Value> = regs.iter().map(|reg| this.copy_of(*reg)).collect();
                        values.push(if each == Each::Pair { Value::Array(held) } else { held.remove(0) });
                    }
                    this.spend(1, site)?;
                    let value = this.apply_all(closure, values)?;
                    let place = Site::Expr(&closure.body);
                    let results = match (each, value) {
                        (Each::One, value) => vec![value],
                        (Each::Pair, Value::Array(values)) if values.len() == 2 => values,
                        (Each::Pair, other) => {
                            let message = format!("the closure of `map_pairs` gives {}", other.describe());
                            return Err(Diagnostic::new(168, place, message).help("it gives two elements: `[a, b]`"));
                        }
                    };
                    let sources: Vec<Src> =
                        results.iter().map(|value| this.operand(value, Elem::F32, place)).collect::<Result<_>>()?;
                    let into = std::iter::once(dst).chain(tile.get(index + 1));
                    for (dst, src) in into.zip(sources) {
                        this.builder.inst(Mov { ty: Type::B32, dst: *dst, src });
                    }
                }
            }
            Ok(())
        };
        self.in_rows(out.m, site, compute, |this| if kept { Ok(()) } else { this.clear_rows(&out) })?;
        self.flight.fenced = false;
        Ok(Accumulator { zero: vec![false; out.zero.len()], ..out })
    }

    /// `acc.fragment()`: this warp's 16 rows of each block of 64, one block under the other. Registers of an accumulator lie
    /// as those of a fragment do.
    pub(super) fn fragment_of(&mut self, acc: &Accumulator, site: Site<'_>) -> Result<Value> {
        self.flight.fenced = false;
        self.landed(acc, site)?;
        let mut acc = acc.clone();
        self.settle(&mut acc);
        self.place(site);
        let mut blocks = Vec::with_capacity(2 * acc.tiles.len() * acc.n as usize / 8);
        for tile in &acc.tiles {
            for half in 0..2 {
                for quad in tile.chunks(4) {
                    let pair = &quad[2 * half..2 * half + 2];
                    blocks.push(Value::Array(pair.iter().map(|reg| self.copy_of(*reg)).collect()));
                }
            }
        }
        let (rows, columns) = (16 * acc.tiles.len() as u32, acc.n);
        Ok(Value::Frag(Box::new(Fragment { kind: Kind::F32, rows, columns, blocks })))
    }

    /// `Acc::<f32, M, N>::of(fragment)`: the reverse, into the registers of `out`.
    pub(super) fn of_fragment(
        &mut self,
        out: Accumulator,
        frag: &Fragment,
        site: Site<'_>,
    ) -> Result<Accumulator> {
        let rows = 16 * out.tiles.len() as u32;
        if (frag.rows, frag.columns) != (rows, out.n) || frag.kind == Kind::Tf32 {
            let message =
                format!("a fragment of {} [{}, {}] for [{rows}, {}]", frag.kind.name(), frag.rows, frag.columns, out.n);
            return Err(Diagnostic::new(902, site, message)
                .help("each warp gives 16 rows of each 64, one under the other, of f32, bf16 or f16"));
        }
        self.place(site);
        // No branch for warps without rows: what they give reaches nobody.
        let wide = self.widened(frag, site)?;
        let mut pairs = wide.blocks.iter();
        for tile in &out.tiles {
            for half in 0..2 {
                for quad in tile.chunks(4) {
                    let Some(Value::Array(pair)) = pairs.next() else { continue };
                    for (dst, value) in quad[2 * half..].iter().zip(pair) {
                        let src = self.operand(value, Elem::F32, site)?;
                        self.builder.inst(Mov { ty: Type::B32, dst: *dst, src });
                    }
                }
            }
        }
        self.flight.fenced = false;
        Ok(Accumulator { zero: vec![false; out.zero.len()], ..out })
    }

    /// Zeros in the warps that hold no rows of an accumulator.
    pub(super) fn clear_rows(&mut self, acc: &Accumulator) -> Result<()> {
        for reg in acc.tiles.iter().flatten() {
            self.builder.inst(Mov { ty: Type::B32, dst: *reg, src: Src::Imm(0) });
        }
        Ok(())
    }

    /// A closure of so many arguments, evaluated here.
    fn apply_all(&mut self, closure: &syn::ExprClosure, values: Vec<Value>) -> Result<Value> {
        if closure.inputs.len() != values.len() {
            let what = if values.len() == 2 { "a row and a column" } else { "a row, a column and what is there" };
            return Err(Diagnostic::new(168, Site::Tokens(closure), format!("the closure takes {what}")));
        }
        self.frame().scopes.push();
        for (pat, value) in closure.inputs.iter().zip(values) {
            self.bind(pat, value)?;
        }
        let value = self.expr(&closure.body)?;
        self.frame().scopes.pop();
        Ok(value)
    }
}
