//! Fragments in memory.
//!
//! Blocks of 16-bit elements in shared memory go by `ldmatrix` and `stmatrix`, up to four at once, wherever eight elements
//! of a row are provably one aligned vector of 16 bytes. Everything else goes by pairs of neighbours, or element by element.

use super::super::Specialiser;
use super::super::site::Site;
use super::super::value::{Scalar, Value};
use super::place::Origin;
use super::{Fragment, Kind};
use crate::diag::{Diagnostic, Result};
use crate::kir::{Sync, Uniform, when};
use kda_core::{Arch, Elem};
use kda_ptx::modifier::*;
use kda_ptx::operand::{Address, OutList, RegList, Special, Src};
use kda_ptx::table::*;
use kda_ptx::{Class, Reg};
use syn::BinOp;

/// Blocks that one instruction moves: rows and columns of blocks.
fn group(rows: u32, columns: u32) -> (u32, u32) {
    match (rows / 8, columns / 8) {
        (r, c) if r % 2 == 0 && c % 2 == 0 => (2, 2),
        (_, c) if c % 4 == 0 => (1, 4),
        (r, _) if r % 4 == 0 => (4, 1),
        (_, c) if c % 2 == 0 => (1, 2),
        (r, _) if r % 2 == 0 => (2, 1),
        _ => (1, 1),
    }
}

impl Specialiser<'_> {
    /// `Frag::<T, ROWS, COLUMNS>::load(view)`; transposed if the view holds `[COLUMNS, ROWS]`.
    pub(super) fn fragment_load(
        &mut self,
        kind: Kind,
        rows: u32,
        columns: u32,
        view: Value,
        origin: Origin,
        condition: Option<Reg>,
        transposed: bool,
        site: Site<'_>,
    ) -> Result<Value> {
        let elem = self.matrix_view(&view, (rows, columns), &origin, transposed, site)?;
        let stored = match (kind, elem) {
            (Kind::Half(wanted), elem) if wanted == elem => kind,
            (Kind::F32 | Kind::Tf32, Elem::F32) => Kind::F32,
            (Kind::F32, Elem::BF16 | Elem::F16) => Kind::Half(elem),
            _ => {
                let message = format!("a fragment of {} from a view of {elem}", kind.name());
                return Err(Diagnostic::new(906, site, message)
                    .help("load it as it is stored, then `round::<bf16>()` or `widen()`"));
            }
        };
        let mut frag = Fragment { kind: stored, rows, columns, blocks: Vec::new() };
        frag.blocks = match (stored, self.fragment_addresses(&frag, &view, &origin, transposed, site)?) {
            (Kind::Half(_), Some(addresses)) => {
                match &view {
                    Value::Shared(view) => self.note_read(view.slot, view.buffer, false, site)?,
                    Value::Tile(view) => self.note_read(view.slot, view.buffer, false, site)?,
                    _ => {}
                }
                self.load_fragment(&frag, addresses, condition, transposed, site)?
            }
            _ if condition.is_some() => {
                let message =
                    "only `ldmatrix` loads under a condition: 16-bit elements of shared memory, as they are stored";
                return Err(Diagnostic::new(906, site, message));
            }
            _ => self.load_pairs(&frag, &view, &origin, transposed, site)?,
        };
        Ok(Value::Frag(Box::new(match kind {
            Kind::F32 => self.widened(&frag, site)?,
            Kind::Tf32 => self.fragment_rounded(&frag, Kind::Tf32, site)?,
            Kind::Half(_) => frag,
        })))
    }

    /// `fragment.store(view)`; transposed if the view holds `[COLUMNS, ROWS]`.
    pub(super) fn fragment_store(
        &mut self,
        frag: &Fragment,
        view: Value,
        origin: Origin,
        transposed: bool,
        site: Site<'_>,
    ) -> Result<()> {
        let elem = self.matrix_view(&view, (frag.rows, frag.columns), &origin, transposed, site)?;
        let fits = match frag.kind {
            Kind::Half(own) => own == elem,
            Kind::F32 | Kind::Tf32 => elem == Elem::F32,
        };
        if !fits {
            let message = format!("a fragment of {} to a view of {elem}", frag.kind.name());
            return Err(Diagnostic::new(906, site, message).help(format!("round it first: `round::<{elem}>()`")));
        }
        let matrices = matches!(frag.kind, Kind::Half(_)) && self.variant.arch.has(Arch::SM_90);
        match self.fragment_addresses(frag, &view, &origin, transposed, site)? {
            Some(addresses) if matrices => self.store_fragment(frag, &view, addresses, transposed, site),
            _ => self.store_pairs(frag, &view, &origin, transposed, site),
        }
    }

    /// For each group of blocks the address that a lane gives to `ldmatrix` or `stmatrix`; `None` if rows of blocks are not
    /// provably aligned, or not in shared memory.
    fn fragment_addresses(
        &mut self,
        frag: &Fragment,
        view: &Value,
        origin: &Origin,
        transposed: bool,
        site: Site<'_>,
    ) -> Result<Option<Vec<Address>>> {
        if !matches!(frag.kind, Kind::Half(_)) || matches!(view, Value::Global(_)) {
            return Ok(None);
        }
        self.lanes_together("a fragment in shared memory", site)?;
        let (down, across) = group(frag.rows, frag.columns);
        let lane = Value::Scalar(self.special(Special::LaneId, Uniform::Thread));
        let (div, rem) = (BinOp::Div(Default::default()), BinOp::Rem(Default::default()));
        let (mul, add) = (BinOp::Mul(Default::default()), BinOp::Add(Default::default()));
        // Lanes 8 m to 8 m + 7 give the rows of block m, which lies at (m mod down, m / down) of the group.
        let number = self.binary(&div, lane.clone(), Value::u32(8), site)?;
        let within = self.binary(&rem, lane.clone(), Value::u32(8), site)?;
        let i = self.binary(&rem, number.clone(), Value::u32(down), site)?;
        let j = self.binary(&div, number, Value::u32(down), site)?;
        let j = self.binary(&rem, j, Value::u32(across), site)?;
        let (i, j) = (self.binary(&mul, i, Value::u32(8), site)?, self.binary(&mul, j, Value::u32(8), site)?);
        // A lane names a row of what is stored.
        let (i, j) = match transposed {
            false => (self.binary(&add, i, within, site)?, j),
            true => (i, self.binary(&add, j, within, site)?),
        };
        let mut addresses = Vec::new();
        for first in (0..frag.rows / 8).step_by(down as usize) {
            for second in (0..frag.width()).step_by(across as usize) {
                let row = self.binary(&add, i.clone(), Value::u32(8 * first), site)?;
                let column = self.binary(&add, j.clone(), Value::u32(8 * second), site)?;
                let indices = self.element(row, column, origin, transposed, site)?;
                match view {
                    Value::Shared(view) => {
                        let contiguous = view.axes.last().is_some_and(|(_, stride)| *stride == 1);
                        let view = self.shared_at((**view).clone(), indices, site)?;
                        if !contiguous || !aligned(view.runtime, view.offset, 8) {
                            return Ok(None);
                        }
                        addresses.push(self.shared_address(&view));
                    }
                    Value::Tile(view) => {
                        let element = self.tile_at(view, indices, site)?;
                        if element.tile.transposed {
                            return Ok(None);
                        }
                        addresses.push(self.element_address(&element, site)?);
                    }
                    _ => return Ok(None),
                }
            }
        }
        Ok(Some(addresses))
    }

    /// Positions in `blocks` of each group's blocks, in the order of the instruction.
    fn groups(frag: &Fragment) -> Vec<Vec<usize>> {
        let (down, across) = group(frag.rows, frag.columns);
        let mut groups = Vec::new();
        for first in (0..frag.rows / 8).step_by(down as usize) {
            for second in (0..frag.width()).step_by(across as usize) {
                let place = |m: u32| ((first + m % down) * frag.width() + second + m / down) as usize;
                groups.push((0..down * across).map(place).collect());
            }
        }
        groups
    }

    fn load_fragment(
        &mut self,
        frag: &Fragment,
        addresses: Vec<Address>,
        condition: Option<Reg>,
        transposed: bool,
        site: Site<'_>,
    ) -> Result<Vec<Value>> {
        let mut blocks = vec![Value::Unit; (frag.rows * frag.columns / 64) as usize];
        self.place(site);
        for (group, address) in Self::groups(frag).into_iter().zip(addresses) {
            let regs: Vec<Reg> = group.iter().map(|_| self.builder.fresh(Class::B32)).collect();
            let (count, trans, space, ty) = (count(group.len()), Trans(transposed), Space::Shared, Type::B16);
            if condition.is_some() {
                for reg in &regs {
                    self.builder.inst(Mov { ty: Type::B32, dst: *reg, src: Src::Imm(0) });
                }
            }
            let load = LdMatrix { count, trans, space, ty, dst: OutList(regs.clone()), address };
            self.builder.guarded(condition.map(when), load);
            for (place, reg) in group.into_iter().zip(regs) {
                blocks[place] = Value::Scalar(Scalar::new(Elem::U32, reg, Uniform::Thread));
            }
        }
        Ok(blocks)
    }

    fn store_fragment(
        &mut self,
        frag: &Fragment,
        view: &Value,
        addresses: Vec<Address>,
        transposed: bool,
        site: Site<'_>,
    ) -> Result<()> {
        let (slot, buffer) = match view {
            Value::Shared(view) => (view.slot, view.buffer),
            Value::Tile(view) => (view.slot, view.buffer),
            _ => return Ok(()),
        };
        self.note_write(slot, buffer, site)?;
        self.place(site);
        self.builder.sync(Sync::SharedWrite { buffer });
        for (group, address) in Self::groups(frag).into_iter().zip(addresses) {
            let mut regs = Vec::with_capacity(4);
            for place in &group {
                regs.push(self.scalar(&frag.blocks[*place], Some(Elem::U32), site)?.reg);
            }
            let (count, trans, space, ty) = (count(group.len()), Trans(transposed), Space::Shared, Type::B16);
            self.builder.inst(StMatrix { count, trans, space, ty, address, src: RegList(regs) });
        }
        Ok(())
    }

    fn load_pairs(
        &mut self,
        frag: &Fragment,
        view: &Value,
        origin: &Origin,
        transposed: bool,
        site: Site<'_>,
    ) -> Result<Vec<Value>> {
        let mut blocks = Vec::with_capacity((frag.rows * frag.columns / 64) as usize);
        for (row, column) in self.coordinates_of(frag.rows, frag.columns, site)? {
            let pair = match self.pair_view(view, [&row, &column], origin, transposed, site)? {
                Some(Value::Shared(view)) => self.shared_load(&view, 2, None, site)?,
                Some(Value::Global(view)) => self.global_load(&view, 2, None, site)?,
                Some(Value::TileElement(element)) => self.tile_load(&element, 2, None, site)?,
                _ => {
                    let mut pair = Vec::with_capacity(2);
                    for column in self.both(&column, site)? {
                        let indices = self.element(row.clone(), column, origin, transposed, site)?;
                        pair.push(match view {
                            Value::Shared(view) => {
                                let view = self.shared_at((**view).clone(), indices, site)?;
                                self.shared_load(&view, 1, None, site)?
                            }
                            Value::Global(view) => {
                                let view = self.global_at((**view).clone(), indices, site)?;
                                self.global_load(&view, 1, None, site)?
                            }
                            Value::Tile(view) => {
                                let element = self.tile_at(view, indices, site)?;
                                self.tile_load(&element, 1, None, site)?
                            }
                            _ => Value::Unit,
                        });
                    }
                    Value::Array(pair)
                }
            };
            blocks.push(match (frag.kind, &pair) {
                (Kind::Half(elem), Value::Array(pair)) => self.paired(pair, elem, site)?,
                _ => pair,
            });
        }
        Ok(blocks)
    }

    fn store_pairs(
        &mut self,
        frag: &Fragment,
        view: &Value,
        origin: &Origin,
        transposed: bool,
        site: Site<'_>,
    ) -> Result<()> {
        let coordinates = self.coordinates_of(frag.rows, frag.columns, site)?;
        for (block, (row, column)) in frag.blocks.iter().zip(coordinates) {
            let pair = match (frag.kind, block) {
                (Kind::Half(elem), block) => self.halves(block, elem, site)?,
                (_, Value::Array(pair)) => pair.clone(),
                _ => continue,
            };
            match self.pair_view(view, [&row, &column], origin, transposed, site)? {
                Some(Value::Shared(view)) => self.shared_store(&view, &Value::Array(pair), None, site)?,
                Some(Value::Global(view)) => self.global_store(&view, &Value::Array(pair), None, site)?,
                Some(Value::TileElement(element)) => self.tile_store(&element, &Value::Array(pair), None, site)?,
                _ => {
                    for (column, x) in self.both(&column, site)?.into_iter().zip(&pair) {
                        let indices = self.element(row.clone(), column, origin, transposed, site)?;
                        match view {
                            Value::Shared(view) => {
                                let view = self.shared_at((**view).clone(), indices, site)?;
                                self.shared_store(&view, x, None, site)?;
                            }
                            Value::Global(view) => {
                                let view = self.global_at((**view).clone(), indices, site)?;
                                self.global_store(&view, x, None, site)?;
                            }
                            Value::Tile(view) => {
                                let element = self.tile_at(view, indices, site)?;
                                self.tile_store(&element, x, None, site)?;
                            }
                            _ => {}
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The view of a pair of neighbours, if it is provably one aligned vector.
    fn pair_view(
        &mut self,
        view: &Value,
        [row, column]: [&Value; 2],
        origin: &Origin,
        swapped: bool,
        site: Site<'_>,
    ) -> Result<Option<Value>> {
        if swapped {
            return Ok(None);
        }
        let indices = self.element(row.clone(), column.clone(), origin, false, site)?;
        Ok(match view {
            Value::Shared(view) if view.axes.last().is_some_and(|(_, stride)| *stride == 1) => {
                let view = self.shared_at((**view).clone(), indices, site)?;
                aligned(view.runtime, view.offset, 2).then(|| Value::Shared(Box::new(view)))
            }
            Value::Global(view) => {
                let view = self.global_at((**view).clone(), indices, site)?;
                self.is_vector(&view, 2).then(|| Value::Global(Box::new(view)))
            }
            Value::Tile(view) => {
                let element = self.tile_at(view, indices, site)?;
                self.is_tile_vector(&element, 2).then(|| Value::TileElement(Box::new(element)))
            }
            _ => None,
        })
    }

    /// A column and the next one.
    fn both(&mut self, column: &Value, site: Site<'_>) -> Result<[Value; 2]> {
        let next = self.binary(&BinOp::Add(Default::default()), column.clone(), Value::u32(1), site)?;
        Ok([column.clone(), next])
    }
}

/// True if an offset of elements is provably a multiple of `lanes`.
fn aligned(runtime: Option<Scalar>, offset: u64, lanes: u64) -> bool {
    runtime.is_none_or(|s| s.multiple.is_multiple_of(lanes)) && offset.is_multiple_of(lanes)
}

fn count(matrices: usize) -> MatrixCount {
    match matrices {
        1 => MatrixCount::X1,
        2 => MatrixCount::X2,
        _ => MatrixCount::X4,
    }
}
