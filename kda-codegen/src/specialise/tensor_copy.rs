//! Copies of a tile between a tensor map and shared memory, issued by one thread.
//!
//! Coordinates are elements of the tensor, outermost first in the source and innermost first in the instruction. A tile
//! wider than its swizzle's span is copied as one box for each span.

use super::Specialiser;
use super::site::Site;
use super::tile::TileView;
use super::value::Value;
use crate::diag::{Diagnostic, Place as _, Result};
use crate::kir::{MbarrierRole, Sync};
use kda_core::Elem;
use kda_ptx::Class;
use kda_ptx::modifier::*;
use kda_ptx::operand::{Address, Base, Src, TensorAddress, Trailing};
use kda_ptx::table::*;
use syn::{BinOp, Expr};

impl Specialiser<'_> {
    /// `tile.tma_load(map, [coordinates])`: the coordinates are elements, outermost first.
    pub(super) fn tma_load(&mut self, view: &TileView, args: &[&Expr], site: Site<'_>) -> Result<Value> {
        let [map, list] = args else {
            return Err(Diagnostic::new(
                157,
                site,
                "`tma_load` takes a tensor map and coordinates: `tma_load(a, [row, column])`",
            ));
        };
        let Some(id) = view.slot else {
            return Err(Diagnostic::new(654, site, "a bulk load fills a stage that was acquired from a pipeline"));
        };
        self.one_thread(site)?;
        let map_value = self.expr(map)?;
        let (param, spec, elem, _) = self.map_of(&map_value, Site::Tokens(map))?;
        let name = self.resolved.params[param].name.clone();
        let copies = self.copies(view, &spec, elem, &name, site)?;
        let coordinates = self.coordinates(list, spec.tile.len())?;
        let (ring, stage) = self.slot_of(view)?;
        self.note_access(param, false, site);
        let (base, offset) = self.stage_address(view, site)?;
        let barrier = self.barrier_address(ring, MbarrierRole::Full, &stage);
        let map = self.map_address(param);
        let rank = rank(spec.tile.len(), site)?;
        for (place, column) in copies {
            let coordinates = self.shifted(&coordinates, column, site)?;
            self.place(site);
            self.builder.inst(TensorLoad {
                rank,
                path: TensorLoadPath::Tile,
                multicast: Multicast(false),
                hint: CacheHint(false),
                dst: Address { base: base.clone(), offset: offset + place as i64 },
                src: TensorAddress { map: Base::Reg(map), coordinates },
                barrier: barrier.clone(),
                more: Trailing(Vec::new()),
            });
        }
        self.holdings[id as usize].bytes += view.stage_bytes();
        Ok(Value::Unit)
    }

    /// `tma::store(map, [coordinates], tile)`
    pub(super) fn tma_store(&mut self, args: &[&Expr], site: Site<'_>) -> Result<()> {
        let [map, list, tile] = args else {
            return Err(Diagnostic::new(157, site, "`tma::store` takes a tensor map, coordinates and a tile"));
        };
        self.one_thread(site)?;
        let map_value = self.expr(map)?;
        let (param, spec, elem, writes) = self.map_of(&map_value, Site::Tokens(map))?;
        let name = self.resolved.params[param].name.clone();
        if !writes {
            return Err(Diagnostic::new(454, Site::Tokens(map), format!("`{name}` is read-only"))
                .help("declare it `TensorMapMut<…>`"));
        }
        let Value::Tile(view) = self.expr(tile)? else {
            return Err(Diagnostic::new(805, Site::Tokens(tile), "a tile in shared memory is needed"));
        };
        let copies = self.copies(&view, &spec, elem, &name, site)?;
        let coordinates = self.coordinates(list, spec.tile.len())?;
        self.note_access(param, true, site);
        let (base, offset) = self.stage_address(&view, site)?;
        let map = self.map_address(param);
        let rank = rank(spec.tile.len(), site)?;
        for (place, column) in copies {
            let coordinates = self.shifted(&coordinates, column, site)?;
            self.place(site);
            let inst = TensorStore {
                rank,
                path: TensorStorePath::Tile,
                hint: CacheHint(false),
                dst: TensorAddress { map: Base::Reg(map), coordinates },
                src: Address { base: base.clone(), offset: offset + place as i64 },
                policy: None,
            };
            let (buffer, guard) = (view.buffer, None);
            self.builder.sync(Sync::BulkStore { buffer, destination: param, inst: inst.into(), guard });
        }
        Ok(())
    }

    pub(super) fn one_thread(&self, site: Site<'_>) -> Result<()> {
        if self.elected {
            return Ok(());
        }
        Err(Diagnostic::new(656, site, "a bulk tensor copy is issued by one thread")
            .help("put it under `#[elect_one]`"))
    }

    pub(super) fn note_access(&mut self, param: usize, write: bool, site: Site<'_>) {
        let stable =
            matches!(self.resolved.params[param].kind, crate::compiled::ParamKind::Tensor { stable: true, .. });
        let state = &mut self.params[param];
        if !self.waited && (write || !stable) && state.early.is_none() {
            state.early = Some(site.ends());
        }
    }

    pub(super) fn slot_of(&mut self, view: &TileView) -> Result<(usize, Value)> {
        let ring = self.rings.iter().position(|r| r.buffers.iter().any(|(_, b)| b.buffer == view.buffer));
        Ok((ring.unwrap_or(0), view.stage.clone()))
    }

    /// Coordinates in elements, outermost first.
    pub(super) fn coordinates(&mut self, list: &Expr, axes: usize) -> Result<Vec<Value>> {
        let Expr::Array(array) = list else {
            return Err(Diagnostic::new(157, Site::Tokens(list), "coordinates are a list: `[row, column]`"));
        };
        if array.elems.len() != axes {
            let message = format!("{} coordinates for {axes} axes", array.elems.len());
            return Err(Diagnostic::new(452, Site::Tokens(list), message));
        }
        array.elems.iter().map(|e| self.expr(e)).collect()
    }

    /// Coordinates as the instruction takes them: innermost first, moved by `column` along it.
    pub(super) fn shifted(&mut self, coordinates: &[Value], column: u64, site: Site<'_>) -> Result<Vec<Src>> {
        let mut out = Vec::with_capacity(coordinates.len());
        for (axis, value) in coordinates.iter().rev().enumerate() {
            let mut value = value.clone();
            if axis == 0 && column > 0 {
                value = self.binary(&BinOp::Add(Default::default()), value, Value::int(column.into()), site)?;
            }
            out.push(match &value {
                Value::Scalar(s) if matches!(s.elem, Elem::U32 | Elem::I32) => s.src(),
                other => match other.as_int() {
                    Some(v) => Src::Imm(v as i64),
                    None => return Err(Diagnostic::new(156, site, format!("{} is no coordinate", other.describe()))),
                },
            });
        }
        Ok(out)
    }

    /// Generic address of a tensor-map parameter.
    pub(super) fn map_address(&mut self, param: usize) -> kda_ptx::Reg {
        let name = self.resolved.params[param].name.clone();
        let address =
            self.builder.prologue(Class::B64, |dst| Mov { ty: Type::B64, dst, src: Src::Symbol(name.clone()) }.into());
        self.builder.prologue(Class::B64, |dst| {
            Cvta { to: To(false), space: Space::Param, ty: Type::U64, dst, src: address.into() }.into()
        })
    }
}

pub(super) fn rank(axes: usize, site: Site<'_>) -> Result<TensorRank> {
    TensorRank::of(axes).ok_or_else(|| Diagnostic::new(801, site, format!("a tile of {axes} axes")))
}
