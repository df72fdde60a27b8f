//! Copies of a tile between a tensor map and shared memory, issued by one thread.
//!
//! Coordinates are elements of the tensor, outermost first in the source and innermost first in the instruction. A tile
//! wider than its swizzle's span is copied as one box for each span. A tile is a swizzled one, or a dense shared view for a
//! map without a swizzle. The map may carry a cache hint, `out.hint(l2::evict_first())`.

use super::Specialiser;
use super::site::Site;
use super::sync::dense;
use super::value::{SharedView, Value};
use crate::compiled::Map;
use crate::diag::{Diagnostic, Place as _, Result};
use crate::kir::Sync;
use crate::syntax::{ParamType, Stable};
use kda_core::{Elem, Swizzle};
use kda_ptx::Class;
use kda_ptx::modifier::*;
use kda_ptx::operand::{Address, Base, Src, TensorAddress, Trailing};
use kda_ptx::table::*;
use syn::{BinOp, Expr};

/// A tile in shared memory, as tensor copies see it.
struct Boxes {
    /// Its first byte.
    base: Address,
    /// One copy each: bytes from the first byte, first column.
    parts: Vec<(u64, u64)>,
    bytes: u64,
    buffer: usize,
    slot: Option<u32>,
}

/// The tensor of a copy.
pub(super) struct Tensor {
    pub param: usize,
    pub spec: Map,
    pub elem: Elem,
    pub rank: TensorRank,
    pub coordinates: Vec<Value>,
    pub policy: Option<Src>,
}

impl Specialiser<'_> {
    /// `tile.tma_load(map, [coordinates])`, `tile.tma_load_if(condition, map, [coordinates])`, and `tile.tma_load_on(mbarrier,
    /// map, [coordinates])`, whose bytes the author announces
    pub(super) fn tma_load(&mut self, tile: &Value, name: &str, args: &[&Expr], site: Site<'_>) -> Result<Value> {
        let mut outside = None;
        let (condition, map, list) = match (name, args) {
            ("tma_load_on", [barrier, map, list]) => {
                let Value::Mbarrier(barrier) = self.expr(barrier)? else {
                    return Err(Diagnostic::new(156, Site::Tokens(barrier), "`tma_load_on` completes on an mbarrier"));
                };
                outside = Some(self.mbarrier_address(barrier));
                (None, map, list)
            }
            ("tma_load", [map, list]) => (None, map, list),
            ("tma_load_if", [condition, map, list]) => (Some(self.expr(condition)?), map, list),
            _ => {
                let message = format!("`{name}` takes a tensor map and coordinates: `{name}(a, [row, column])`");
                return Err(
                    Diagnostic::new(157, site, message).help("the condition of `tma_load_if` stands ahead of them")
                );
            }
        };
        self.one_thread(site)?;
        let tensor = self.copied_tensor(map, list, site)?;
        let boxes = self.boxes(tile, &tensor, site)?;
        self.note_access(tensor.param, false, site);
        let bytes = Value::u32(boxes.bytes as u32);
        self.note_fill(boxes.slot, boxes.buffer, condition.as_ref());
        let announced = match outside {
            Some(barrier) => Some((barrier, None)),
            None => self.announce(boxes.slot, bytes, condition.as_ref(), site)?,
        };
        let Some((barrier, guard)) = announced else { return Ok(Value::Unit) };
        self.builder.sync(Sync::BulkFill { buffer: boxes.buffer });
        let map = self.map_address(tensor.param);
        for (place, column) in &boxes.parts {
            let coordinates = self.shifted(&tensor.coordinates, *column, site)?;
            self.place(site);
            let inst = TensorLoad {
                rank: tensor.rank,
                path: TensorLoadPath::Tile,
                multicast: Multicast(false),
                hint: CacheHint(tensor.policy.is_some()),
                dst: Address { base: boxes.base.base.clone(), offset: boxes.base.offset + *place as i64 },
                src: TensorAddress { map: Base::Reg(map), coordinates },
                barrier: barrier.clone(),
                more: Trailing(tensor.policy.clone().into_iter().collect()),
            };
            self.builder.guarded(guard, inst);
        }
        Ok(Value::Unit)
    }

    /// `tma::store(map, [coordinates], tile)`, `tma::reduce_add(map, [coordinates], tile)`
    pub(super) fn tma_store(&mut self, name: &str, args: &[&Expr], site: Site<'_>) -> Result<()> {
        let [map, list, tile] = args else {
            return Err(Diagnostic::new(157, site, format!("`{name}` takes a tensor map, coordinates and a tile")));
        };
        self.one_thread(site)?;
        let tensor = self.copied_tensor(map, list, site)?;
        let param = tensor.param;
        let kind = &self.resolved.params[param].kind;
        if !matches!(kind, crate::compiled::ParamKind::Tensor { writes: true, .. }) {
            let message = format!("`{}` is read-only", self.resolved.params[param].name);
            return Err(Diagnostic::new(454, Site::Tokens(map), message).help("declare it `TensorMapMut<…>`"));
        }
        let adds = name == "tma::reduce_add";
        if adds && !matches!(tensor.elem, Elem::F32 | Elem::F16 | Elem::BF16 | Elem::U32 | Elem::I32 | Elem::U64) {
            let message = format!("`tma::reduce_add` of {}", tensor.elem);
            return Err(
                Diagnostic::new(805, Site::Tokens(map), message).help("f32, f16, bf16, u32, i32 and u64 can be added")
            );
        }
        if adds && tensor.policy.is_some() {
            return Err(Diagnostic::new(805, Site::Tokens(map), "`tma::reduce_add` takes no cache hint"));
        }
        let view = self.expr(tile)?;
        let boxes = self.boxes(&view, &tensor, Site::Tokens(tile))?;
        self.note_access(param, true, site);
        self.note_bulk_store(boxes.slot, boxes.buffer, site)?;
        let map = self.map_address(param);
        for (place, column) in &boxes.parts {
            let coordinates = self.shifted(&tensor.coordinates, *column, site)?;
            self.place(site);
            let dst = TensorAddress { map: Base::Reg(map), coordinates };
            let src = Address { base: boxes.base.base.clone(), offset: boxes.base.offset + *place as i64 };
            let (rank, policy) = (tensor.rank, tensor.policy.clone());
            let inst: kda_ptx::Inst = if adds {
                let (from, op, to) = (TensorReduceFrom::SharedCta, AtomicOp::Add, TensorReduceTo::Tile);
                TensorReduce { rank, from, op, to, dst, src }.into()
            } else {
                let (path, hint) = (TensorStorePath::Tile, CacheHint(policy.is_some()));
                TensorStore { rank, path, hint, dst, src, policy }.into()
            };
            self.builder.sync(Sync::BulkStore { buffer: boxes.buffer, destination: param, inst, guard: None });
        }
        Ok(())
    }

    /// `tma::prefetch(map)`: the copy engine reads the map itself ahead of the first copy through it.
    pub(super) fn tma_prefetch(&mut self, args: &[&Expr], site: Site<'_>) -> Result<()> {
        let [map] = args else {
            return Err(Diagnostic::new(157, site, "`tma::prefetch` takes a tensor map"));
        };
        self.one_thread(site)?;
        let value = self.expr(map)?;
        let (param, ..) = self.map_of(&value, Site::Tokens(*map))?;
        let base = Base::Reg(self.map_address(param));
        self.place(site);
        self.builder.inst(PrefetchTensorMap { map: Address { base, offset: 0 } });
        Ok(())
    }

    /// The tensor map and coordinates of a copy.
    pub(super) fn copied_tensor(&mut self, map: &Expr, list: &Expr, site: Site<'_>) -> Result<Tensor> {
        let value = self.expr(map)?;
        let (param, spec, elem, _) = self.map_of(&value, Site::Tokens(map))?;
        let policy = match &value {
            Value::Global(view) => view.hint.policy.map(Src::Reg),
            _ => None,
        };
        let coordinates = self.coordinates(list, spec.tile.len())?;
        check_column(coordinates.last(), elem, list)?;
        let rank = rank(spec.tile.len(), site)?;
        Ok(Tensor { param, spec, elem, rank, coordinates, policy })
    }

    /// The copies that move a tile.
    fn boxes(&mut self, tile: &Value, tensor: &Tensor, site: Site<'_>) -> Result<Boxes> {
        let name = self.resolved.params[tensor.param].name.clone();
        match tile {
            Value::Tile(view) => {
                let parts = self.copies(view, &tensor.spec, tensor.elem, &name, site)?;
                let (base, offset) = self.stage_address(view, site)?;
                let (bytes, buffer, slot) = (view.stage_bytes(), view.buffer, view.slot);
                Ok(Boxes { base: Address { base, offset }, parts, bytes, buffer, slot })
            }
            Value::Shared(view) => self.dense_box(view, tensor, &name, site),
            other => {
                let message = format!("{} is no tile in shared memory", other.describe());
                Err(Diagnostic::new(805, site, message).help("declare it with `smem::<…>()`"))
            }
        }
    }

    /// A shared view whose elements are those of a box without a swizzle.
    fn dense_box(&mut self, view: &SharedView, tensor: &Tensor, name: &str, site: Site<'_>) -> Result<Boxes> {
        self.own(view, site)?;
        let axes: Option<Vec<_>> = view.axes.iter().map(|(size, stride)| size.map(|n| (n, Some(*stride)))).collect();
        let elements = axes.as_ref().map_or(0, |axes| axes.iter().map(|(n, _)| n).product::<u64>());
        let of_map: u64 = tensor.spec.tile.iter().map(|n| u64::from(*n)).product();
        let fits = axes.as_ref().is_some_and(|axes| {
            dense(axes) && axes.last().map(|(n, _)| *n) == tensor.spec.tile.last().map(|n| u64::from(*n))
        });
        let Map { tile, copy, swizzle } = &tensor.spec;
        if !fits || elements != of_map || tensor.elem != view.elem || *swizzle != Swizzle::None || tile != copy {
            let message = format!(
                "the view holds {elements} elements of {} in rows, the map of `{name}` copies {} {tile:?} with `Swizzle<{}>`",
                view.elem,
                tensor.elem,
                swizzle.span().unwrap_or(0)
            );
            return Err(Diagnostic::new(805, site, message)
                .help("the view is dense and holds one box of a map without a swizzle"));
        }
        let bytes = u64::from(view.elem.bytes());
        let runtime = view.runtime.map_or(0, |s| s.multiple);
        if !(view.offset * bytes).is_multiple_of(128) || !runtime.wrapping_mul(bytes).is_multiple_of(128) {
            return Err(Diagnostic::new(450, site, "a tensor copy begins at a multiple of 128 bytes of shared memory"));
        }
        let base = self.shared_address(view);
        Ok(Boxes { base, parts: vec![(0, 0)], bytes: elements * bytes, buffer: view.buffer, slot: view.slot })
    }

    /// Refuses a bulk copy that all threads would issue.
    pub(super) fn one_thread(&self, site: Site<'_>) -> Result<()> {
        if self.elected {
            return Ok(());
        }
        Err(Diagnostic::new(656, site, "a bulk tensor copy is issued by one thread")
            .help("put it under `#[elect_one]`"))
    }

    /// An access to a tensor, which may stand ahead of the wait for the predecessor.
    pub(super) fn note_access(&mut self, param: usize, write: bool, site: Site<'_>) {
        let resolved = &self.resolved.params[param];
        let stable = matches!(resolved.kind, crate::compiled::ParamKind::Tensor { stable: true, .. });
        let unshared = || {
            let mut written = self.kernel.params.iter().filter(|p| p.name == resolved.name);
            written.any(|p| matches!(p.ty, ParamType::Tensor { stable: Stable::Unshared, .. }))
        };
        if !self.waited && (!stable || write && !unshared()) {
            self.params[param].early.get_or_insert(site.ends());
        }
    }

    /// Coordinates in elements, outermost first.
    fn coordinates(&mut self, list: &Expr, axes: usize) -> Result<Vec<Value>> {
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

/// The innermost coordinate is a multiple of 16 bytes: the hardware takes no other.
fn check_column(column: Option<&Value>, elem: Elem, list: &Expr) -> Result<()> {
    let needed = 16 / u64::from(elem.bytes());
    let multiple = match column {
        Some(Value::Scalar(s)) => s.multiple,
        Some(other) => other.as_int().map_or(0, |v| v.unsigned_abs() as u64),
        None => 0,
    };
    if multiple.is_multiple_of(needed) {
        return Ok(());
    }
    let place = match list {
        Expr::Array(array) => array.elems.last().unwrap_or(list),
        _ => list,
    };
    let message =
        format!("the innermost coordinate is not known to be a multiple of {needed} elements of {elem}, 16 bytes");
    Err(Diagnostic::new(807, Site::Tokens(place), message).help(format!(
        "write it as a multiple, `{needed} * i`, or require it of the launch: `#[requires(first % {needed} == 0)]`"
    )))
}

fn rank(axes: usize, site: Site<'_>) -> Result<TensorRank> {
    TensorRank::of(axes).ok_or_else(|| Diagnostic::new(801, site, format!("a tile of {axes} axes")))
}
