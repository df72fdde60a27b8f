//! Elements of tiles: loads and stores by threads.
//!
//! The permutation of a swizzle turns the 16-byte chunks of a row by bits of the row alone. So the address of a chunk is that of
//! the row, turned once, exclusive-or the chunk's place: one instruction for each constant column of a runtime row.
//! Elements of one chunk stay neighbours, which makes vectors of up to 16 bytes possible.

use super::Specialiser;
use super::shared_access::items;
use super::site::Site;
use super::tile::TileView;
use super::value::{Scalar, Value, gcd};
use super::views::Index;
use crate::diag::{Diagnostic, Result};
use crate::kir::{Sync, Uniform};
use kda_core::{Elem, Swizzle};
use kda_ptx::Class;
use kda_ptx::modifier::*;
use kda_ptx::operand::{Address, Base, Src};
use kda_ptx::table::*;
use syn::BinOp;

/// An element of a tile.
#[derive(Clone, Debug, PartialEq)]
pub struct TileElement {
    /// The tile.
    pub tile: TileView,
    /// Row and column as they are stored.
    pub place: [Value; 2],
}

/// Bytes after which the pattern of every swizzle repeats.
const PERIOD: u64 = 1024;

impl Specialiser<'_> {
    /// `tile.at([row, column])`, `tile[[row, column]]`
    pub(super) fn tile_at(
        &mut self,
        tile: &TileView,
        indices: Vec<(Index, Site<'_>)>,
        site: Site<'_>,
    ) -> Result<TileElement> {
        let (rows, columns) = tile.extent();
        if indices.len() != 2 {
            return Err(Diagnostic::new(452, site, format!("{} indices for 2 axes", indices.len())));
        }
        let mut place = Vec::with_capacity(2);
        for ((index, at), size) in indices.into_iter().zip([rows, columns]) {
            let Index::At(value) = index else {
                return Err(Diagnostic::new(455, at, "a swizzled tile is accessed element by element"));
            };
            match value.as_int() {
                Some(known) if !(0..i128::from(size)).contains(&known) => {
                    return Err(Diagnostic::new(154, at, format!("index {known} on an axis of {size}")));
                }
                None if !matches!(&value, Value::Scalar(s) if matches!(s.elem, Elem::U32 | Elem::I32)) => {
                    let message = format!("{} is no index of shared memory", value.describe());
                    return Err(Diagnostic::new(156, at, message).help("an index of shared memory is a u32"));
                }
                _ => place.push(match value {
                    Value::Scalar(s) => Value::Scalar(Scalar { elem: Elem::U32, ..s }),
                    known => Value::u32(known.as_int().unwrap_or(0) as u32),
                }),
            }
        }
        if tile.transposed {
            place.reverse();
        }
        let add = BinOp::Add(Default::default());
        let mut place = place.into_iter().zip([tile.row, tile.column]).map(|(value, first)| match first {
            0 => Ok(value),
            first => self.binary(&add, value, Value::u32(first as u32), site),
        });
        let place = [place.next().unwrap_or(Ok(Value::Unit))?, place.next().unwrap_or(Ok(Value::Unit))?];
        Ok(TileElement { tile: tile.clone(), place })
    }

    /// The address of an element.
    pub(super) fn element_address(&mut self, element: &TileElement, site: Site<'_>) -> Result<Address> {
        let TileElement { tile, place: [row, column] } = element;
        let (base, mut offset) = self.stage_address(tile, site)?;
        let (mul, add, xor) =
            (BinOp::Mul(Default::default()), BinOp::Add(Default::default()), BinOp::BitXor(Default::default()));
        let (div, rem) = (BinOp::Div(Default::default()), BinOp::Rem(Default::default()));
        let number = |n: u64| Value::u32(n as u32);
        let (line, bytes) = (tile.span(), u64::from(tile.elem.bytes()));
        // Rows in whole periods of the pattern go into the immediate.
        let row = match row {
            Value::Scalar(s) => {
                let (reg, constant) = self.split(*s);
                let period = match tile.swizzle {
                    Swizzle::None => 1,
                    _ => i128::from(PERIOD / line.clamp(1, PERIOD)),
                };
                let whole = if constant > 0 { constant / period * period } else { 0 };
                offset += (whole * i128::from(line)) as i64;
                let rest = Value::Scalar(Scalar::new(Elem::U32, reg, s.uniform));
                match constant == whole {
                    true => rest,
                    // A part that is no whole period stays with the register.
                    false if whole == 0 => row.clone(),
                    false => self.binary(&add, rest, number((constant - whole) as u64), site)?,
                }
            }
            known => known.clone(),
        };
        let byte = self.binary(&mul, column.clone(), number(bytes), site)?;
        let panel = self.binary(&div, byte.clone(), number(line), site)?;
        let within = self.binary(&rem, byte, number(line), site)?;
        let panel_bytes = self.binary(&mul, panel, number(tile.rows * line), site)?;
        let row_bytes = self.binary(&mul, row.clone(), number(line), site)?;
        let (shift, turns) = match tile.swizzle {
            Swizzle::None => (1, 1),
            Swizzle::B32 => (4, 2),
            Swizzle::B64 => (2, 4),
            Swizzle::B128 => (1, 8),
        };
        let narrow = tile.swizzle.span().is_some_and(|span| u64::from(span) != line);
        let placed = if tile.swizzle == Swizzle::None {
            self.binary(&add, row_bytes, within, site)?
        } else if narrow {
            // Several rows share a span: the pattern turns by bits of the offset as a whole.
            let offset = self.binary(&add, row_bytes, within, site)?;
            let high = self.binary(&div, offset.clone(), number(128), site)?;
            let turn = self.binary(&rem, high, number(turns), site)?;
            let turn = self.binary(&mul, turn, number(16), site)?;
            self.binary(&xor, offset, turn, site)?
        } else {
            let turn = self.binary(&div, row, number(shift), site)?;
            let turn = self.binary(&rem, turn, number(turns), site)?;
            let turn = self.binary(&mul, turn, number(16), site)?;
            // The row's bytes are a multiple of the line and the rest is below it: no carries.
            let start = self.binary(&add, row_bytes, turn, site)?;
            self.binary(&xor, start, within, site)?
        };
        if let Some(constant) = panel_bytes.as_int() {
            offset += constant as i64;
        }
        let total = match panel_bytes.as_int() {
            Some(_) => placed,
            None => self.binary(&add, placed, panel_bytes, site)?,
        };
        if let Some(constant) = total.as_int() {
            return Ok(Address { base, offset: offset + constant as i64 });
        }
        let total = self.scalar(&total, Some(Elem::U32), site)?;
        let start: Src = match base {
            Base::Reg(reg) => reg.into(),
            Base::Symbol(_) => self.shared_base().into(),
        };
        let reg = self.builder.pure(Class::B32, |dst| {
            let (round, ftz, sat) = (None, Default::default(), Default::default());
            Add { round, ftz, sat, ty: Type::U32, dst, a: start.clone(), b: total.src() }.into()
        });
        Ok(Address { base: Base::Reg(reg), offset })
    }

    /// Loads an element, or a vector of a row; 0 where the condition is false.
    pub(super) fn tile_load(
        &mut self,
        element: &TileElement,
        lanes: u64,
        condition: Option<&Value>,
        site: Site<'_>,
    ) -> Result<Value> {
        self.check_vector(element, lanes, site)?;
        self.note_read(element.tile.slot, element.tile.buffer, condition.is_some(), site)?;
        self.read_shared(element.tile.elem, lanes, condition, Uniform::Thread, site, |this, _| {
            Ok((Some(Space::Shared), this.element_address(element, site)?))
        })
    }

    /// Stores an element, or a vector of a row; nothing where the condition is false.
    pub(super) fn tile_store(
        &mut self,
        element: &TileElement,
        value: &Value,
        condition: Option<&Value>,
        site: Site<'_>,
    ) -> Result<()> {
        let items = items(value);
        self.check_vector(element, items.len() as u64, site)?;
        self.write_shared(element.tile.elem, items, condition, site, |this| {
            let address = this.element_address(element, site)?;
            this.note_write(element.tile.slot, element.tile.buffer, site)?;
            this.builder.sync(Sync::SharedWrite { buffer: element.tile.buffer });
            Ok((Some(Space::Shared), address))
        })
    }

    /// True if `lanes` elements from here lie in one aligned piece of a chunk.
    pub(super) fn is_tile_vector(&self, element: &TileElement, lanes: u64) -> bool {
        let known = match &element.place[1] {
            Value::Scalar(s) => s.multiple,
            known => known.as_int().map_or(1, |column| gcd(0, column.unsigned_abs() as u64)),
        };
        let row = element.tile.span();
        !element.tile.transposed && known.is_multiple_of(lanes) && row.is_multiple_of(16)
    }

    fn check_vector(&self, element: &TileElement, lanes: u64, site: Site<'_>) -> Result<()> {
        let bytes = lanes.saturating_mul(element.tile.elem.bytes().into());
        if lanes > 1 && (!matches!(lanes, 2 | 4 | 8) || bytes > 16 || (lanes == 8 && bytes != 16)) {
            return Err(Diagnostic::new(451, site, format!("a vector of {lanes} {}", element.tile.elem))
                .help("2 or 4 elements of at most 16 bytes in all are possible, and 8 of 16 bits"));
        }
        if lanes > 1 && !self.is_tile_vector(element, lanes) {
            let message = format!("the column is not known to be a multiple of {lanes}, or the tile is transposed");
            return Err(Diagnostic::new(450, site, message).help("begin vectors at multiples of their length"));
        }
        Ok(())
    }
}
