//! The methods of accumulators, operands and tiles, and the functions of `Acc`.

use super::issue::Left;
use super::visit::Each;
use super::{Operand, Specialiser};
use crate::diag::{Diagnostic, Result};
use crate::specialise::site::Site;
use crate::specialise::tile::TileView;
use crate::specialise::value::Value;
use kda_core::Elem;
use std::ops::Range;
use syn::{Expr, GenericArgument};

impl Specialiser<'_> {
    /// `Acc::<f32, M, N>::zero()`, `::from_fn(…)`, `::of(fragment)`, `Acc::load(tile)`, `Acc::load_t(tile)`; `None` if it
    /// is none of them.
    pub(in crate::specialise) fn accumulator_function(
        &mut self,
        function: &str,
        generics: &[GenericArgument],
        args: &[&Expr],
        site: Site<'_>,
    ) -> Result<Option<Value>> {
        let acc = match function {
            "zero" => {
                let [] = self.arguments("Acc::zero", args, site)?;
                let (m, n) = self.accumulator_shape(generics, site)?;
                self.accumulator(m, n, site)?
            }
            "from_fn" => {
                let shape = self.accumulator_shape(generics, site)?;
                self.mapped(None, shape, Each::One, args, site)?
            }
            "of" => {
                let (m, n) = self.accumulator_shape(generics, site)?;
                let [fragment] = self.arguments("Acc::of", args, site)?;
                let Value::Frag(fragment) = fragment else {
                    let message = format!("an accumulator of {}; a fragment is needed", fragment.describe());
                    return Err(Diagnostic::new(902, site, message));
                };
                let acc = self.accumulator(m, n, site)?;
                self.of_fragment(acc, &fragment, site)?
            }
            "load" | "load_t" => {
                let [tile] = self.arguments(&format!("Acc::{function}"), args, site)?;
                let Value::Tile(tile) = tile else {
                    let message = format!("an accumulator is loaded from a tile, not from {}", tile.describe());
                    return Err(Diagnostic::new(902, site, message));
                };
                let acc = self.load_matrices(&tile, function == "load_t", site)?;
                if !generics.is_empty() && self.accumulator_shape(generics, site)? != (acc.m, acc.n) {
                    let message = format!("the tile holds an accumulator of [{}, {}]", acc.m, acc.n);
                    return Err(Diagnostic::new(901, site, message).help(format!("write `Acc::{function}(tile)`")));
                }
                acc
            }
            _ => return Ok(None),
        };
        Ok(Some(Value::Acc(Box::new(acc))))
    }

    /// True if the method is one of [`Self::product_method`].
    pub(in crate::specialise) fn is_product_method(receiver: &Value, name: &str) -> bool {
        match receiver {
            Value::Acc(_) => {
                matches!(
                    name,
                    "mma"
                        | "as_a"
                        | "split_a"
                        | "for_each"
                        | "map"
                        | "map_pairs"
                        | "columns"
                        | "store"
                        | "store_t"
                        | "fragment"
                )
            }
            Value::Operand(_) => matches!(name, "k_slice" | "columns" | "store" | "store_t"),
            Value::Tile(_) => matches!(name, "k_slice" | "columns" | "rows" | "t"),
            _ => false,
        }
    }

    /// A method of an accumulator, an operand or a tile.
    pub(in crate::specialise) fn product_method(
        &mut self,
        receiver: Value,
        call: &syn::ExprMethodCall,
        args: &[&Expr],
        site: Site<'_>,
    ) -> Result<Value> {
        let name = call.method.to_string();
        match (receiver, name.as_str()) {
            (Value::Tile(view), "t") => {
                let [] = self.arguments(&name, args, site)?;
                Ok(Value::Tile(Box::new(TileView { transposed: !view.transposed, ..*view })))
            }
            (Value::Tile(view), "k_slice") => {
                let columns = self.slice_of_k(&name, args, view.extent().1, site)?;
                Ok(Value::Tile(Box::new(view.part_of_columns(columns))))
            }
            (Value::Tile(view), "columns") => {
                let columns = self.part_range(&name, args, view.extent().1, 8, site)?;
                Ok(Value::Tile(Box::new(view.part_of_columns(columns))))
            }
            (Value::Tile(view), "rows") => {
                let rows = self.part_range(&name, args, view.extent().0, 8, site)?;
                Ok(Value::Tile(Box::new(view.part_of_rows(rows))))
            }
            (Value::Operand(operand), "k_slice" | "columns") => {
                let columns = match name.as_str() {
                    "k_slice" => self.slice_of_k(&name, args, operand.width, site)?,
                    _ => self.part_range(&name, args, operand.width, 16, site)?,
                };
                let (column, width) = (operand.column + columns.start, columns.end - columns.start);
                Ok(Value::Operand(Box::new(Operand { column, width, ..*operand })))
            }
            (Value::Operand(operand), _) => {
                let tile = self.destination(&name, args, site)?;
                self.store_matrices(&operand, &tile, name == "store_t", site)?;
                Ok(Value::Unit)
            }
            (Value::Acc(mut acc), "mma") => {
                let [a, b] = self.arguments(&name, args, site)?;
                let (a, b) = match (a, b) {
                    (Value::Tile(a), Value::Tile(b)) => (Left::Tile(*a), b),
                    (Value::Operand(a), Value::Tile(b)) => (Left::Registers(*a), b),
                    (a, b) => {
                        let message = format!("a product of {} and {}", a.describe(), b.describe());
                        return Err(Diagnostic::new(902, site, message)
                            .help("A is a tile in shared memory or an operand in registers, B a tile"));
                    }
                };
                self.mma(&mut acc, a, &b, site)?;
                self.assign_value(&call.receiver, Value::Acc(acc))?;
                Ok(Value::Unit)
            }
            (Value::Acc(acc), "as_a" | "split_a") => {
                let [] = self.arguments(&name, args, site)?;
                let elem = match call.turbofish.as_ref().and_then(|g| g.args.first()) {
                    Some(GenericArgument::Type(ty)) => self.elem_type(ty)?,
                    _ => {
                        let message = format!("`{name}` needs a type: `{name}::<bf16>()`");
                        return Err(Diagnostic::new(157, site, message));
                    }
                };
                match name.as_str() {
                    "as_a" => Ok(Value::Operand(Box::new(self.as_operand(&acc, elem, site)?))),
                    _ => self.split_operand(&acc, elem, site),
                }
            }
            (Value::Acc(acc), "columns") => {
                let columns = self.part_range(&name, args, acc.n.into(), 8, site)?;
                Ok(Value::Acc(Box::new(acc.part(columns.start as u32..columns.end as u32))))
            }
            (Value::Acc(acc), "map" | "map_pairs") => {
                let acc = self.mapped(Some(&acc), (acc.m, acc.n), Each::of(&name), args, site)?;
                Ok(Value::Acc(Box::new(acc)))
            }
            (Value::Acc(acc), "fragment") => {
                let [] = self.arguments(&name, args, site)?;
                self.fragment_of(&acc, site)
            }
            (Value::Acc(acc), "for_each") => self.for_each_pair(&acc, args, site),
            (Value::Acc(acc), _) => {
                let tile = self.destination(&name, args, site)?;
                let operand = self.as_operand(&acc, tile.elem, site)?;
                self.store_matrices(&operand, &tile, name == "store_t", site)?;
                Ok(Value::Unit)
            }
            (receiver, _) => {
                Err(Diagnostic::at(158, &call.method, format!("{} has no method `{name}`", receiver.describe())))
            }
        }
    }

    /// The tile of `store(tile)`.
    fn destination(&mut self, name: &str, args: &[&Expr], site: Site<'_>) -> Result<TileView> {
        match self.arguments(name, args, site)? {
            [Value::Tile(tile)] if matches!(tile.elem, Elem::BF16 | Elem::F16) => Ok(*tile),
            [other] => Err(Diagnostic::new(902, site, format!("`{name}` to {}", other.describe())).help(
                "the destination is a tile of bf16 or f16; f32 is stored by `acc.for_each(|row, column, pair| …)`",
            )),
        }
    }

    /// 16 columns from a constant multiple of 16 on.
    fn slice_of_k(&mut self, name: &str, args: &[&Expr], width: u64, site: Site<'_>) -> Result<Range<u64>> {
        let [column] = self.arguments(name, args, site)?;
        match column.as_int() {
            Some(c) if c >= 0 && c % 16 == 0 && c + 16 <= i128::from(width) => Ok(c as u64..c as u64 + 16),
            _ => Err(Diagnostic::new(154, site, format!("a slice of 16 columns of {width}"))
                .help("the first column is a constant and a multiple of 16")),
        }
    }

    /// A constant range of `size` rows or columns, from a multiple of `step` to a multiple of `step`.
    fn part_range(&mut self, name: &str, args: &[&Expr], size: u64, step: u64, site: Site<'_>) -> Result<Range<u64>> {
        let form = || {
            Diagnostic::new(154, site, format!("`{name}` of {size} takes a constant range of multiples of {step}"))
                .help(format!("write `{name}(0..{step})`"))
        };
        let [Value::Range(range)] = self.arguments(name, args, site)? else { return Err(form()) };
        let end = |value: &Value| value.as_int().and_then(|n| u64::try_from(n).ok()).filter(|n| n % step == 0);
        match (end(&range.0), end(&range.1), range.2.as_int()) {
            (Some(first), Some(last), Some(1)) if first < last && last <= size => Ok(first..last),
            _ => Err(form()),
        }
    }
}
