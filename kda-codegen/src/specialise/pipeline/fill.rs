//! Copies into a stage: what they announce, bulk copies of rows, and asynchronous copies by threads.
//!
//! The barrier of a stage expects the bytes of all bulk copies of its phase. Copies in the thread that commits, outside
//! further branches, are announced with the commit; others announce themselves, ahead of the copy.

use crate::compiled::ParamKind;
use crate::consteval::Const;
use crate::diag::{Diagnostic, Result};
use crate::kir::{Sync, Uniform, when};
use crate::specialise::Specialiser;
use crate::specialise::site::Site;
use crate::specialise::value::{GlobalView, Scalar, SharedView, Stride, Value};
use kda_core::Elem;
use kda_ptx::Reg;
use kda_ptx::modifier::*;
use kda_ptx::operand::{Address, PredSrc, Src};
use kda_ptx::table::*;
use syn::{BinOp, Expr};

impl Specialiser<'_> {
    /// Makes the barrier of a slot expect the bytes of a bulk copy, where `condition` is true. Gives the barrier and the
    /// predicate of the copy; `None` if the copy never runs.
    pub(in crate::specialise) fn announce(
        &mut self,
        slot: Option<u32>,
        bytes: Value,
        condition: Option<&Value>,
        site: Site<'_>,
    ) -> Result<Option<(Address, Option<PredSrc>)>> {
        let id = self.filled_slot(slot, site)?;
        let (bytes, guard) = match condition {
            None | Some(Value::Const(Const::Bool(true))) => (bytes, None),
            Some(Value::Const(Const::Bool(false))) => return Ok(None),
            Some(condition) => {
                let guard = when(self.scalar(condition, Some(Elem::Bool), site)?.reg);
                (self.select(condition.clone(), bytes, Value::u32(0), site)?, Some(guard))
            }
        };
        let holding = self.holdings[id as usize].clone();
        let barrier = self.barrier_address(holding.ring, self.barrier_of(holding.ring, holding.side), &holding.stage);
        if holding.elected && holding.depth == self.control.len() {
            let before = holding.bytes.unwrap_or(Value::u32(0));
            let sum = self.binary(&BinOp::Add(Default::default()), before, bytes, site)?;
            self.holdings[id as usize].bytes = Some(sum);
        } else {
            let bytes = self.operand(&bytes, Elem::U32, site)?;
            let (order, scope, space, ty) = (Order::Relaxed, Some(Scope::Cta), Some(Space::SharedCta), Type::B64);
            let address = barrier.clone();
            self.place(site);
            self.builder.inst(MbarrierExpectTx { order, scope, space, ty, address, bytes });
        }
        Ok(Some((barrier, guard)))
    }

    /// The slot that a copy fills: one that the kernel holds, on a side that commits.
    fn filled_slot(&self, slot: Option<u32>, site: Site<'_>) -> Result<u32> {
        let Some(id) = slot else {
            return Err(Diagnostic::new(654, site, "a bulk load fills a stage that was acquired from a pipeline"));
        };
        self.check_held(id, site)?;
        let holding = &self.holdings[id as usize];
        if holding.side == self.rings[holding.ring].last() {
            return Err(Diagnostic::new(653, site, "the consuming side does not fill a stage")
                .help("copy into a stage between `acquire` and `commit`"));
        }
        Ok(id)
    }

    /// `view.bulk_load(from)`: as many bytes as both views hold; `view.bulk_load(from, bytes)` copies that many.
    pub(in crate::specialise) fn bulk_load(
        &mut self,
        to: &SharedView,
        args: &[&Expr],
        site: Site<'_>,
    ) -> Result<Value> {
        let (from_expr, bytes) = match args {
            [from] => (*from, None),
            [from, bytes] => (*from, Some(*bytes)),
            _ => return Err(Diagnostic::new(157, site, "`bulk_load` takes a global view and perhaps the bytes")),
        };
        self.one_thread(site)?;
        let from_site = Site::Expr(from_expr);
        let Value::Global(from) = self.expr(from_expr)? else {
            return Err(Diagnostic::new(156, from_site, "`bulk_load` copies from a global view"));
        };
        let bytes = match bytes {
            Some(bytes) => self.expr(bytes)?,
            None => self.copied_bytes(&from, from_site, to, site, site)?,
        };
        self.own(to, site)?;
        self.check_bulk(&from, from_site, to, site, &bytes, site)?;
        self.note_access(from.param, false, site);
        let present = from.present.map(truth);
        self.note_fill(to.slot, to.buffer, present.as_ref());
        let Some((barrier, guard)) = self.announce(to.slot, bytes.clone(), present.as_ref(), site)? else {
            return Ok(Value::Unit);
        };
        let bytes = self.operand(&bytes, Elem::U32, site)?;
        self.place(site);
        self.builder.sync(Sync::BulkFill { buffer: to.buffer });
        let (dst, src) = (self.shared_address(to), self.global_address(&from));
        let (hint, policy) = (CacheHint(from.hint.policy.is_some()), from.hint.policy.map(Src::Reg));
        self.builder.guarded(guard, BulkLoad { hint, dst, src, bytes, barrier, policy });
        Ok(Value::Unit)
    }

    /// `view.copy_async_v::<N>(from)`, `view.copy_async_v_if::<N>(condition, from)`: N elements that this thread copies;
    /// zeros where the condition is false. `to` is a shared view or an element of a tile.
    pub(in crate::specialise) fn copy_async(
        &mut self,
        to: &Value,
        name: &str,
        lanes: u64,
        args: &[&Expr],
        site: Site<'_>,
    ) -> Result<Value> {
        let (condition, from_expr) = match (name.ends_with("_if"), args) {
            (false, [from]) => (None, *from),
            (true, [condition, from]) => (Some(self.expr(condition)?), *from),
            _ => return Err(Diagnostic::new(157, site, format!("`{name}` takes a global view, behind its condition"))),
        };
        let (slot, buffer, elem) = match to {
            Value::Shared(view) => (view.slot, view.buffer, view.elem),
            Value::TileElement(element) => (element.tile.slot, element.tile.buffer, element.tile.elem),
            _ => return Err(Diagnostic::new(156, site, format!("`{name}` to {}", to.describe()))),
        };
        let id = self.filled_slot(slot, site)?;
        let from_site = Site::Expr(from_expr);
        let Value::Global(from) = self.expr(from_expr)? else {
            return Err(Diagnostic::new(156, from_site, format!("`{name}` copies from a global view")));
        };
        let (whole, aligned) = match to {
            Value::TileElement(element) => (true, lanes == 1 || self.is_tile_vector(element, lanes)),
            Value::Shared(view) => {
                self.own(view, site)?;
                let multiple = |n: u64| n.is_multiple_of(lanes);
                (view.axes.is_empty(), multiple(view.runtime.map_or(0, |s| s.multiple)) && multiple(view.offset))
            }
            _ => (false, false),
        };
        let bytes = lanes.saturating_mul(elem.bytes().into());
        self.check_async(whole && elem == from.elem, aligned, &from, lanes, bytes, site)?;
        self.note_generic(from.param, site);
        let mut size = None;
        for condition in [condition, from.present.map(truth)].into_iter().flatten() {
            let all = size.unwrap_or(Value::u32(bytes as u32));
            size = Some(self.select(condition, all, Value::u32(0), site)?);
        }
        let size = match size {
            Some(size) => Some(self.operand(&size, Elem::U32, site)?),
            None => None,
        };
        let cache = if bytes == 16 { AsyncCache::Cg } else { AsyncCache::Ca };
        let dst = match to {
            Value::TileElement(element) => self.element_address(element, site)?,
            Value::Shared(view) => self.shared_address(view),
            _ => return Ok(Value::Unit),
        };
        let src = self.global_address(&from);
        self.place(site);
        self.builder.inst(CpAsync { cache, dst, src, bytes: Src::Imm(bytes as i64), size });
        let holding = &mut self.holdings[id as usize];
        holding.copied = true;
        self.rings[holding.ring].copied.insert(buffer);
        Ok(Value::Unit)
    }

    /// The copy goes from one element to one of the same type, if `fits`, both at multiples of the bytes that are copied.
    fn check_async(
        &mut self,
        fits: bool,
        to_aligned: bool,
        from: &GlobalView,
        lanes: u64,
        bytes: u64,
        site: Site<'_>,
    ) -> Result<()> {
        if !fits || !from.axes.is_empty() {
            return Err(Diagnostic::new(
                455,
                site,
                "an asynchronous copy goes from one element to one of the same type",
            )
            .help("give an index for every axis: `slot.a.at([i]).copy_async_v::<4>(x.at([j]))`"));
        }
        if !matches!(bytes, 4 | 8 | 16) {
            return Err(Diagnostic::new(451, site, format!("an asynchronous copy of {bytes} bytes"))
                .help("a thread copies 4, 8 or 16 bytes: `copy_async_v::<4>` of f32, `copy_async_v::<8>` of bf16"));
        }
        let aligned = |multiple: u64, offset: u64| multiple.is_multiple_of(lanes) && offset.is_multiple_of(lanes);
        let inner = lanes == 1 || from.inner == Stride::Const(1);
        let source = aligned(from.multiple, from.offset.unsigned_abs() as u64);
        if !inner || !source || !to_aligned {
            let side = if inner && source { "destination" } else { "source" };
            let message = format!("the {side} is not known to be a multiple of {lanes} elements");
            return Err(Diagnostic::new(450, site, message));
        }
        let align = &mut self.params[from.param].align;
        *align = (*align).max(bytes as u32);
        Ok(())
    }

    /// A read of a tensor by ordinary accesses.
    fn note_generic(&mut self, param: usize, site: Site<'_>) {
        self.params[param].generic = true;
        self.note_access(param, false, site);
    }

    /// `l2::prefetch(view)`: brings the line of the view's first element into L2.
    pub(in crate::specialise) fn l2_prefetch(&mut self, args: &[&Expr], site: Site<'_>) -> Result<()> {
        let [view] = self.arguments("l2::prefetch", args, site)?;
        let Value::Global(view) = view else {
            return Err(Diagnostic::new(156, site, format!("{} is no global view", view.describe())));
        };
        if let ParamKind::Tensor { map: Some(_), .. } = self.resolved.params[view.param].kind {
            return Err(Diagnostic::new(156, site, "`l2::prefetch` of a tensor map").help("prefetch a `Global<…>`"));
        }
        self.place(site);
        let address = self.global_address(&view);
        let guard = view.present.map(when);
        self.builder.guarded(guard, Prefetch { space: Some(Space::Global), level: PrefetchLevel::L2, address });
        Ok(())
    }
}

/// A predicate that is the same in all threads of the CTA.
fn truth(reg: Reg) -> Value {
    Value::Scalar(Scalar::new(Elem::Bool, reg, Uniform::Cta))
}
