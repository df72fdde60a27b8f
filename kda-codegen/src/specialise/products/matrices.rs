//! Between accumulators and tiles of 16-bit elements: `ldmatrix` and `stmatrix`, four 8 x 8 matrices at once.
//!
//! Lane l gives the address of row l mod 8 of matrix l / 8. In registers, matrices 0 and 1 are the upper and lower eight
//! rows of the left eight columns of a 16 x 16 piece, 2 and 3 those of the right eight columns.

use super::{Accumulator, Operand, Specialiser};
use crate::diag::{Diagnostic, Result};
use crate::kir::{Sync, Uniform};
use crate::specialise::site::Site;
use crate::specialise::tile::TileView;
use crate::specialise::value::Value;
use kda_core::{Elem, Swizzle};
use kda_ptx::modifier::*;
use kda_ptx::operand::{Address, Base, OutList, RegList, Special, Src};
use kda_ptx::table::*;
use kda_ptx::{Class, Reg};
use syn::BinOp;

/// Bytes of a row of a matrix.
const ROW_BYTES: u64 = 16;

impl Specialiser<'_> {
    /// `acc.store(tile)`, `operand.store(tile)`; with `transposed`, the tile gets the transpose.
    pub(super) fn store_matrices(
        &mut self,
        operand: &Operand,
        tile: &TileView,
        transposed: bool,
        site: Site<'_>,
    ) -> Result<()> {
        self.check_group(operand.m, operand.registers.len(), site)?;
        if operand.negated {
            return Err(Diagnostic::new(902, site, "an operand with its sign changed is only multiplied")
                .help("change the sign of the accumulator: `acc.map(|row, column, x| -x)`"));
        }
        let tile = TileView { transposed: tile.transposed != transposed, ..tile.clone() };
        self.check_matrices(&tile, operand.elem, (operand.m.into(), operand.width), site)?;
        self.note_write(tile.slot, tile.buffer, site)?;
        self.place(site);
        self.note_write(tile.slot, tile.buffer, site)?;
        self.builder.sync(Sync::SharedWrite { buffer: tile.buffer });
        let first = operand.column as usize / 16;
        let places = self.matrix_addresses(&tile, operand.registers.len(), operand.width, site)?;
        let store = |this: &mut Self| {
            for (block, places) in places.into_iter().enumerate() {
                for (slice, address) in places.into_iter().enumerate() {
                    this.builder.inst(StMatrix {
                        count: MatrixCount::X4,
                        trans: Trans(tile.transposed),
                        space: Space::Shared,
                        ty: Type::B16,
                        address,
                        src: RegList(operand.registers[block][first + slice].to_vec()),
                    });
                }
            }
            Ok(())
        };
        // Storing changes no accumulator.
        let conversions = self.conversions.clone();
        self.in_rows(operand.m, site, store, |_| Ok(()))?;
        self.conversions = conversions;
        Ok(())
    }

    /// `Acc::load(tile)`; with `transposed`, the accumulator is the transpose of the tile.
    pub(super) fn load_matrices(&mut self, tile: &TileView, transposed: bool, site: Site<'_>) -> Result<Accumulator> {
        let (m, n) = tile.extent();
        let size = |n: u64| u32::try_from(n).unwrap_or(0);
        let (m, n) = if transposed { (size(n), size(m)) } else { (size(m), size(n)) };
        let acc = self.accumulator(m, n, site)?;
        self.load_into(acc, tile, transposed, false, site)
    }

    /// The same into the registers of `acc`; `kept` leaves rows that nobody holds as they are.
    pub(super) fn load_into(
        &mut self,
        acc: Accumulator,
        tile: &TileView,
        transposed: bool,
        kept: bool,
        site: Site<'_>,
    ) -> Result<Accumulator> {
        let tile = TileView { transposed: tile.transposed != transposed, ..tile.clone() };
        let (m, n) = tile.extent();
        if !matches!(tile.elem, Elem::BF16 | Elem::F16) {
            return Err(Diagnostic::new(
                902,
                site,
                format!("an accumulator is loaded from bf16 or f16, not {}", tile.elem),
            )
            .help("of other types: `Acc::<f32, M, N>::from_fn(|row, column| tile[[row, column]])`"));
        }
        self.check_matrices(&tile, tile.elem, (m, n), site)?;
        self.note_read(tile.slot, tile.buffer, false, site)?;
        self.place(site);
        let places = self.matrix_addresses(&tile, acc.tiles.len(), n, site)?;
        let load = |this: &mut Self| {
            for (block, places) in places.into_iter().enumerate() {
                for (slice, address) in places.into_iter().enumerate() {
                    let packed: [Reg; 4] = std::array::from_fn(|_| this.builder.fresh(Class::B32));
                    this.builder.inst(LdMatrix {
                        count: MatrixCount::X4,
                        trans: Trans(tile.transposed),
                        space: Space::Shared,
                        ty: Type::B16,
                        dst: OutList(packed.to_vec()),
                        address,
                    });
                    for (i, both) in packed.into_iter().enumerate() {
                        for (half, value) in this.unpacked(both, tile.elem).into_iter().enumerate() {
                            let dst = acc.tiles[block][8 * slice + 2 * i + half];
                            this.builder.inst(Mov { ty: Type::B32, dst, src: value.into() });
                        }
                    }
                }
            }
            Ok(())
        };
        self.in_rows(acc.m, site, load, |this| if kept { Ok(()) } else { this.clear_rows(&acc) })?;
        self.flight.fenced = false;
        Ok(Accumulator { zero: vec![false; acc.zero.len()], ..acc })
    }

    fn check_matrices(&self, tile: &TileView, elem: Elem, (m, n): (u64, u64), site: Site<'_>) -> Result<()> {
        self.lanes_together("a tile of an accumulator", site)?;
        let (rows, columns) = tile.extent();
        if (rows, columns) != (m, n) || tile.elem != elem {
            let message = format!("{elem} [{m}, {n}] and a tile of {} [{rows}, {columns}]", tile.elem);
            return Err(Diagnostic::new(902, site, message).help("both have the same elements"));
        }
        let even =
            tile.row.is_multiple_of(8) && tile.column.is_multiple_of(16) && tile.span().is_multiple_of(ROW_BYTES);
        // Across the rows a warpgroup writes 64 columns from the first on.
        let elements = tile.span() / u64::from(tile.elem.bytes());
        let even = even && (!tile.transposed || tile.column.is_multiple_of(elements));
        let whole = rows.is_multiple_of(16) && columns.is_multiple_of(16);
        // Pieces side by side along the tile's rows must stay apart after the permutation.
        if !even || !whole || tile.swizzle.span().is_some_and(|span| u64::from(span) != tile.span()) {
            let message = "the tile, or the part of it, does not consist of whole pieces of 16 x 16 elements";
            return Err(Diagnostic::new(902, site, message)
                .help("rows are as wide as the swizzle's span or wider; a part begins at multiples of 16"));
        }
        Ok(())
    }

    /// This lane's addresses of the 16 x 16 pieces of a matrix: for each block of 64 rows, for each 16 columns.
    fn matrix_addresses(
        &mut self,
        tile: &TileView,
        blocks: usize,
        columns: u64,
        site: Site<'_>,
    ) -> Result<Vec<Vec<Address>>> {
        let (mul, add) = (BinOp::Mul(Default::default()), BinOp::Add(Default::default()));
        let (div, rem) = (BinOp::Div(Default::default()), BinOp::Rem(Default::default()));
        let number = |n: u64| Value::u32(n as u32);
        let lane = Value::Scalar(self.special(Special::LaneId, Uniform::Thread));
        let (group, warp) = self.group_place(site)?;
        let strip = self.binary(&mul, warp, number(16), site)?;
        let start = self.binary(&mul, group, number(64 * blocks as u64), site)?;
        let strip = self.binary(&add, start, strip, site)?;
        let left = self.binary(&rem, lane.clone(), number(16), site)?;
        let right = self.binary(&div, lane.clone(), number(16), site)?;
        let (row, chunk) = if tile.transposed {
            // Row of the tile: 8 (l / 16) + l mod 8; eights of its columns: two a warp, and (l / 8) mod 2.
            let low = self.binary(&rem, lane, number(8), site)?;
            let high = self.binary(&mul, right, number(8), site)?;
            let eight = self.binary(&div, left, number(8), site)?;
            let strip = self.binary(&div, strip, number(8), site)?;
            (self.binary(&add, high, low, site)?, self.binary(&add, strip, eight, site)?)
        } else {
            (self.binary(&add, strip, left, site)?, right)
        };
        let (base, stage) = self.stage_address(tile, site)?;
        let mut out = Vec::with_capacity(blocks);
        for block in 0..blocks as u64 {
            let mut places = Vec::new();
            for column in (0..columns).step_by(16) {
                let (at_row, at_column) = if tile.transposed { (column, 64 * block) } else { (64 * block, column) };
                let fixed = (tile.row + at_row, (tile.column + at_column) / 8);
                let (offset, constant) = self.chunk_offset(tile, &row, &chunk, fixed, site)?;
                let offset = self.scalar(&offset, Some(Elem::U32), site)?;
                let start: Src = match &base {
                    Base::Reg(reg) => (*reg).into(),
                    Base::Symbol(_) => self.shared_base().into(),
                };
                let reg = self.builder.pure(Class::B32, |dst| {
                    let (round, ftz, sat) = (None, Default::default(), Default::default());
                    Add { round, ftz, sat, ty: Type::U32, dst, a: start.clone(), b: offset.src() }.into()
                });
                places.push(Address { base: Base::Reg(reg), offset: stage + constant as i64 });
            }
            out.push(places);
        }
        Ok(out)
    }

    /// Byte offset in the stage of the 16 bytes `chunk` of a row: a runtime part and a constant one. The row is a runtime
    /// value plus a multiple of 8; the chunk is a runtime value plus a constant that has none of its bits.
    fn chunk_offset(
        &mut self,
        tile: &TileView,
        row: &Value,
        chunk: &Value,
        (fixed_row, fixed_chunk): (u64, u64),
        site: Site<'_>,
    ) -> Result<(Value, u64)> {
        let (mul, add) = (BinOp::Mul(Default::default()), BinOp::Add(Default::default()));
        let (div, rem) = (BinOp::Div(Default::default()), BinOp::Rem(Default::default()));
        let (xor, number) = (BinOp::BitXor(Default::default()), |n: u64| Value::u32(n as u32));
        let (span, panel) = (tile.span(), tile.rows * tile.span());
        let rows = self.binary(&mul, row.clone(), number(span), site)?;
        let rest = fixed_row * span;
        let (mask, shift) = match tile.swizzle {
            Swizzle::None => {
                let bytes = self.binary(&mul, chunk.clone(), number(ROW_BYTES), site)?;
                return Ok((self.binary(&add, rows, bytes, site)?, rest + fixed_chunk * ROW_BYTES));
            }
            Swizzle::B128 => (7, 1),
            Swizzle::B64 => (3, 2),
            Swizzle::B32 => (1, 4),
        };
        // The pattern turns chunks by the row modulo 8, which the constant part of the row leaves alone.
        let chunks = span / ROW_BYTES;
        let turn = self.binary(&div, row.clone(), number(shift), site)?;
        let turn = self.binary(&rem, turn, number(mask + 1), site)?;
        let within = self.binary(&rem, chunk.clone(), number(chunks), site)?;
        let turned = self.binary(&xor, within, turn, site)?;
        let bytes = self.binary(&mul, turned, number(ROW_BYTES), site)?;
        let bytes = match fixed_chunk % chunks {
            0 => bytes,
            fixed => self.binary(&xor, bytes, number(fixed * ROW_BYTES), site)?,
        };
        let mut sum = self.binary(&add, rows, bytes, site)?;
        // Two chunks never part.
        if tile.transposed {
            let panels = self.binary(&div, chunk.clone(), number(chunks), site)?;
            let panels = self.binary(&mul, panels, number(panel), site)?;
            sum = self.binary(&add, sum, panels, site)?;
        }
        Ok((sum, rest + fixed_chunk / chunks * panel))
    }
}
