//! Tiles in shared memory: swizzled buffers with stages.
//!
//! A tile of R rows and C columns whose rows are wider than the swizzle's span is kept as panels: panel p holds the columns
//! of one site of every row. The byte at (panel, row, column) lies at `panel*R*site + row*site + column`, with the 16-byte
//! chunks permuted by [`kda_core::Swizzle::place`]. This is the image that bulk tensor copies make, one a panel, and that
//! warpgroup products read.

use super::site::Site;
use super::value::Value;
use super::{MAX_SHARED_BYTES, Specialiser};
use crate::compiled::{Map, ParamKind, SharedBuffer};
use crate::diag::{Diagnostic, Result};
use kda_core::{Elem, Swizzle};
use kda_ptx::Class;
use kda_ptx::modifier::*;
use kda_ptx::operand::{Base, Src};
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
    /// First row of this part.
    pub row: u64,
    /// Rows of this part.
    pub height: u64,
    /// Its rows are what the source calls columns.
    pub transposed: bool,
    /// Products take it with the other sign.
    pub negated: bool,
    /// The pipeline's slot that the tile belongs to.
    pub slot: Option<u32>,
}

impl TileView {
    /// Bytes of one stage.
    pub fn stage_bytes(&self) -> u64 {
        self.rows.saturating_mul(self.columns).saturating_mul(self.elem.bytes().into())
    }

    /// Rows and columns, as the source counts them.
    pub fn extent(&self) -> (u64, u64) {
        if self.transposed { (self.width, self.height) } else { (self.height, self.width) }
    }

    /// Some of the columns, as the source counts them.
    pub fn part_of_columns(&self, columns: std::ops::Range<u64>) -> TileView {
        let (first, count) = (columns.start, columns.end - columns.start);
        match self.transposed {
            true => TileView { row: self.row + first, height: count, ..self.clone() },
            false => TileView { column: self.column + first, width: count, ..self.clone() },
        }
    }

    /// Some of the rows, as the source counts them.
    pub fn part_of_rows(&self, rows: std::ops::Range<u64>) -> TileView {
        let part = TileView { transposed: !self.transposed, ..self.clone() }.part_of_columns(rows);
        TileView { transposed: self.transposed, ..part }
    }

    /// Bytes of a row within a panel.
    pub fn span(&self) -> u64 {
        let row = self.columns.saturating_mul(self.elem.bytes().into());
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
            row: 0,
            height: rows,
            transposed: false,
            negated: false,
            slot: None,
        };
        let row = columns.saturating_mul(elem.bytes().into());
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
        let whole = (view.height, view.width) == (view.rows, view.columns) && !view.transposed;
        if elem != view.elem || map.swizzle != view.swizzle || (rows, columns) != (view.rows, view.columns) || !whole {
            let message = format!(
                "the buffer holds {} [{}, {}] with `Swizzle<{}>`, the map of `{name}` copies {elem} [{rows}, {columns}] with `Swizzle<{}>`",
                view.elem,
                view.height,
                view.width,
                view.swizzle.span().unwrap_or(0),
                map.swizzle.span().unwrap_or(0)
            );
            return Err(Diagnostic::new(805, site, message).help("declare the buffer as the map is declared"));
        }
        let part = u64::from(map.copy.last().copied().unwrap_or(1));
        Ok((0..columns / part).map(|i| (view.column_offset(i * part), i * part)).collect())
    }
}
