//! Tiles in shared memory: swizzled buffers with stages.
//!
//! A tile of R rows and C columns whose rows are wider than the swizzle's span is kept as panels: panel p holds the columns
//! of one site of every row. The byte at (panel, row, column) lies at `panel*R*site + row*site + column`, with the 16-byte
//! chunks permuted by [`kda_core::Swizzle::place`]. This is the image that bulk tensor copies make, one a panel, and that
//! warpgroup products read.

use super::params::bits;
use super::site::Site;
use super::value::{Scalar, Value, class};
use super::views::Index;
use super::{MAX_SHARED_BYTES, Specialiser};
use crate::compiled::{Map, ParamKind, SharedBuffer};
use crate::diag::{Diagnostic, Result};
use crate::kir::{Sync, Uniform};
use kda_core::{Elem, Swizzle};
use kda_ptx::Class;
use kda_ptx::modifier::*;
use kda_ptx::operand::{Address, Base, DstList, Src, SrcList};
use kda_ptx::table::*;

/// Alignment of a swizzled buffer: the pattern repeats every 1024 bytes.
const ALIGN: u32 = 1024;

/// A part of a swizzled buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct TileView {
    /// Index of the buffer.
    pub buffer: usize,
    /// Element type.
    pub elem: Elem,
    /// Swizzle.
    pub swizzle: Swizzle,
    /// Rows of the whole tile.
    pub rows: u64,
    /// Columns of the whole tile.
    pub columns: u64,
    /// Stage of the ring, a constant or a u32.
    pub stage: Value,
    /// First column of this part.
    pub column: u64,
    /// Columns of this part.
    pub width: u64,
    /// The pipeline's slot that the tile belongs to.
    pub slot: Option<u32>,
}

impl TileView {
    /// Bytes of one stage.
    pub fn stage_bytes(&self) -> u64 {
        self.rows * self.columns * u64::from(self.elem.bytes())
    }

    /// Bytes of a row within a panel.
    pub fn span(&self) -> u64 {
        let row = self.columns * u64::from(self.elem.bytes());
        self.swizzle.span().map_or(row, |site| row.min(site.into()))
    }

    /// Byte offset of a constant column, at row 0, before the permutation.
    pub fn column_offset(&self, column: u64) -> u64 {
        let bytes = column * u64::from(self.elem.bytes());
        bytes / self.span() * self.rows * self.span() + bytes % self.span()
    }
}

impl Specialiser<'_> {
    /// `smem::<elem, Shape<rows, columns>, Swizzle<span>, STAGES>()`
    pub(super) fn tile_buffer(
        &mut self,
        name: String,
        elem: Elem,
        shape: &[u32],
        swizzle: Swizzle,
        stages: u32,
        site: Site<'_>,
    ) -> Result<Value> {
        let columns = u64::from(shape.last().copied().unwrap_or(1));
        let rows: u64 = shape.iter().rev().skip(1).map(|n| u64::from(*n)).product();
        let view = TileView {
            buffer: self.buffers.len(),
            elem,
            swizzle,
            rows,
            columns,
            stage: Value::u32(0),
            column: 0,
            width: columns,
            slot: None,
        };
        let row = columns * u64::from(elem.bytes());
        if !row.is_multiple_of(view.span().max(1)) || !view.stage_bytes().is_multiple_of(u64::from(ALIGN)) && stages > 1
        {
            let message = format!("`{name}`: rows of {row} bytes, {} bytes a stage", view.stage_bytes());
            return Err(Diagnostic::new(804, site, message)
                .help("a row is a multiple of the swizzle's span, and a stage of 1024 bytes"));
        }
        let bytes = view.stage_bytes().saturating_mul(stages.into());
        if bytes == 0 || bytes > MAX_SHARED_BYTES.into() {
            return Err(Diagnostic::new(550, site, format!("`{name}` takes {bytes} bytes of shared memory"))
                .help(format!("a CTA has {MAX_SHARED_BYTES} bytes")));
        }
        let mut full_shape = shape.to_vec();
        if stages > 1 {
            full_shape.insert(0, stages);
        }
        let desc = SharedBuffer { name, offset: 0, bytes: bytes as u32, align: ALIGN, elem, shape: full_shape };
        self.place_buffer(desc, site);
        Ok(Value::Tile(Box::new(view)))
    }

    /// Address of the first byte of a tile's stage, without the constant offset, which is the second value.
    pub(super) fn stage_address(&mut self, view: &TileView, site: Site<'_>) -> Result<(Base, i64)> {
        self.buffers[view.buffer].used = true;
        let offset = i64::from(self.buffers[view.buffer].desc.offset);
        if let Some(stage) = view.stage.as_int() {
            return Ok((Base::Symbol(crate::lower::SHARED.into()), offset + stage as i64 * view.stage_bytes() as i64));
        }
        let stage = self.scalar(&view.stage, Some(Elem::U32), site)?;
        let base = self.shared_base();
        let bytes = Src::Imm(view.stage_bytes() as i64);
        let reg = self.builder.pure(Class::B32, |dst| {
            Mad { half: Half::Lo, ty: Type::U32, dst, a: stage.src(), b: bytes.clone(), c: base.into() }.into()
        });
        Ok((Base::Reg(reg), offset))
    }

    /// `tile.at([row, column])`: the address of an element; both may be runtime values.
    fn element_address(&mut self, view: &TileView, indices: Vec<(Index, Site<'_>)>, site: Site<'_>) -> Result<Address> {
        let mut values = Vec::new();
        for (index, at) in indices {
            match index {
                Index::At(value) => values.push(value),
                Index::Open(..) => {
                    return Err(Diagnostic::new(455, at, "a swizzled tile is accessed element by element"));
                }
            }
        }
        let [row, column] = values.as_slice() else {
            return Err(Diagnostic::new(452, site, format!("{} indices for 2 axes", values.len())));
        };
        let (base, offset) = self.stage_address(view, site)?;
        let elem = u64::from(view.elem.bytes());
        let line = view.span();
        let op = |name: &str| -> syn::BinOp {
            match name {
                "+" => syn::BinOp::Add(Default::default()),
                "*" => syn::BinOp::Mul(Default::default()),
                "/" => syn::BinOp::Div(Default::default()),
                "%" => syn::BinOp::Rem(Default::default()),
                "^" => syn::BinOp::BitXor(Default::default()),
                "&" => syn::BinOp::BitAnd(Default::default()),
                _ => syn::BinOp::Shr(Default::default()),
            }
        };
        let number = |n: u64| Value::u32(n as u32);
        let column = self.binary(&op("+"), column.clone(), number(view.column), site)?;
        let byte = self.binary(&op("*"), column, number(elem), site)?;
        let panel = self.binary(&op("/"), byte.clone(), number(line), site)?;
        let within = self.binary(&op("%"), byte, number(line), site)?;
        let row_bytes = self.binary(&op("*"), row.clone(), number(line), site)?;
        let panel_bytes = self.binary(&op("*"), panel, number(view.rows * line), site)?;
        let in_panel = self.binary(&op("+"), row_bytes, within, site)?;
        let mask = match view.swizzle {
            Swizzle::None => 0,
            Swizzle::B32 => 0x10,
            Swizzle::B64 => 0x30,
            Swizzle::B128 => 0x70,
        };
        let placed = if mask == 0 {
            in_panel
        } else {
            let high = self.binary(&op(">>"), in_panel.clone(), number(3), site)?;
            let turn = self.binary(&op("&"), high, number(mask), site)?;
            self.binary(&op("^"), in_panel, turn, site)?
        };
        let total = self.binary(&op("+"), panel_bytes, placed, site)?;
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

    /// `tile[[row, column]]`
    pub(super) fn tile_load(
        &mut self,
        view: &TileView,
        indices: Vec<(Index, Site<'_>)>,
        site: Site<'_>,
    ) -> Result<Value> {
        self.note_read(view.slot, view.buffer, false, site)?;
        let address = self.element_address(view, indices, site)?;
        let reg = self.builder.fresh(class(view.elem));
        self.builder.inst(Ld {
            strength: None,
            scope: None,
            space: Some(Space::Shared),
            cache: None,
            nc: NonCoherent(false),
            l1: None,
            hint: CacheHint(false),
            prefetch: None,
            vector: None,
            ty: bits(view.elem),
            dst: DstList(vec![Some(reg)]),
            address,
            policy: None,
        });
        Ok(Value::Scalar(Scalar::new(view.elem, reg, Uniform::Thread)))
    }

    /// `tile[[row, column]] = value`
    pub(super) fn tile_store(
        &mut self,
        view: &TileView,
        indices: Vec<(Index, Site<'_>)>,
        value: &Value,
        site: Site<'_>,
    ) -> Result<()> {
        let operand = self.operand(value, view.elem, site)?;
        let address = self.element_address(view, indices, site)?;
        self.note_write(view.slot, view.buffer, site)?;
        self.builder.sync(Sync::SharedWrite { buffer: view.buffer });
        self.builder.inst(St {
            strength: None,
            scope: None,
            space: Some(Space::Shared),
            cache: None,
            l1: None,
            hint: CacheHint(false),
            vector: None,
            ty: bits(view.elem),
            address,
            src: SrcList(vec![operand]),
            policy: None,
        });
        Ok(())
    }

    /// The tensor map behind a view, with its parameter.
    pub(super) fn map_of(&self, value: &Value, site: Site<'_>) -> Result<(usize, Map, Elem, bool)> {
        if let Value::Global(view) = value
            && let ParamKind::Tensor { map: Some(map), elem, writes, .. } = &self.resolved.params[view.param].kind
        {
            return Ok((view.param, map.clone(), *elem, *writes));
        }
        Err(Diagnostic::new(805, site, format!("{} is no tensor map", value.describe()))
            .help("declare the parameter as `TensorMap<…>`"))
    }

    /// The parts of a tile that one copy each moves: offset in the stage, first column.
    pub(super) fn copies(
        &self,
        view: &TileView,
        map: &Map,
        elem: Elem,
        name: &str,
        site: Site<'_>,
    ) -> Result<Vec<(u64, u64)>> {
        let columns = u64::from(map.tile.last().copied().unwrap_or(0));
        let rows: u64 = map.tile.iter().rev().skip(1).map(|n| u64::from(*n)).product();
        if elem != view.elem || map.swizzle != view.swizzle || (rows, columns) != (view.rows, view.columns) {
            let message = format!(
                "the buffer holds {} [{}, {}] with `Swizzle<{}>`, the map of `{name}` copies {elem} [{rows}, {columns}] with `Swizzle<{}>`",
                view.elem,
                view.rows,
                view.columns,
                view.swizzle.span().unwrap_or(0),
                map.swizzle.span().unwrap_or(0)
            );
            return Err(Diagnostic::new(805, site, message).help("declare the buffer as the map is declared"));
        }
        let part = u64::from(map.copy.last().copied().unwrap_or(1));
        Ok((0..columns / part).map(|i| (view.column_offset(i * part), i * part)).collect())
    }
}
