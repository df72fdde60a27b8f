//! Loads, stores and atomics of global tensors.
//!
//! The width of a vector access is proved from strides, indices and `#[requires]`; the base alignment that it needs becomes
//! a check of the launcher.

use super::Specialiser;
use super::params::{bits, memory_bits};
use super::site::Site;
use super::value::{GlobalView, OpenAxis, Scalar, Stride, Value, class, gcd};
use crate::compiled::ParamKind;
use crate::diag::{Diagnostic, Result};
use crate::kir::{Uniform, when};
use kda_core::Elem;
use kda_ptx::modifier::*;
use kda_ptx::operand::{DstList, PredSrc, Src, SrcList};
use kda_ptx::table::*;
use kda_ptx::{Class, Reg};

impl Specialiser<'_> {
    /// True if `lanes` elements from here are provably one aligned vector, given the base's alignment.
    pub(super) fn is_vector(&self, view: &GlobalView, lanes: u64) -> bool {
        view.inner == Stride::Const(1)
            && view.multiple.is_multiple_of(lanes)
            && view.offset.unsigned_abs().is_multiple_of(lanes.into())
    }

    /// Proves that `lanes` elements from here are one aligned vector, and notes what the base must satisfy.
    fn prove_vector(&mut self, view: &GlobalView, lanes: u64, site: Site<'_>) -> Result<()> {
        let bytes = lanes.saturating_mul(view.elem.bytes().into());
        if lanes == 1 {
            self.align_base(view, view.elem.bytes());
            return Ok(());
        }
        if !matches!(lanes, 2 | 4 | 8) || bytes > 16 || (lanes == 8 && view.elem.bytes() != 2) {
            let message = format!("a vector of {lanes} {}", view.elem);
            return Err(Diagnostic::new(451, site, message)
                .help("2 or 4 elements of at most 16 bytes in all are possible, and 8 of 16 bits"));
        }
        let name = self.resolved.params[view.param].name.clone();
        if view.inner != Stride::Const(1) {
            return Err(Diagnostic::new(450, site, format!("the innermost axis of `{name}` is not contiguous")));
        }
        if !self.is_vector(view, lanes) {
            let known = gcd(view.multiple, view.offset.unsigned_abs() as u64);
            let message = format!(
                "the offset into `{name}` is known to be a multiple of {known} elements; a vector access needs {lanes}"
            );
            return Err(Diagnostic::new(450, site, message)
                .help("name the stride in `#[dims(…)]` and state its divisibility: `#[requires(pitch % 8 == 0)]`"));
        }
        self.align_base(view, bytes as u32);
        Ok(())
    }

    /// `view.cast::<elem>()`: the elements of the innermost axis, several as one of a wider type.
    pub(super) fn global_cast(&mut self, view: &GlobalView, elem: Elem, site: Site<'_>) -> Result<GlobalView> {
        let (from, to) = (u64::from(view.elem.bytes()), u64::from(elem.bytes()));
        let [axis] = view.axes.as_slice() else {
            let message = format!("{} axes are open; a view of one axis is seen as another type", view.axes.len());
            return Err(Diagnostic::new(455, site, message).help("fix the others: `x.at([i, j]).cast::<u32>()`"));
        };
        let lanes = to / from;
        let whole = axis.size.is_none_or(|size| size.is_multiple_of(lanes.max(1)));
        if axis.stride != Stride::Const(1) || elem == Elem::Bool || lanes == 0 || !to.is_multiple_of(from) || !whole {
            let message = format!("an axis of {} as {elem}", view.elem);
            return Err(Diagnostic::new(453, site, message)
                .help("elements of an innermost axis can be seen as whole elements of a wider type"));
        }
        let contiguous = GlobalView { inner: Stride::Const(1), axes: Vec::new(), ..view.clone() };
        if !self.is_vector(&contiguous, lanes) {
            self.prove_vector(&contiguous, lanes, site)?;
        }
        self.align_base(view, elem.bytes());
        Ok(GlobalView {
            elem,
            offset: view.offset / i128::from(lanes),
            multiple: view.multiple / lanes,
            axes: vec![OpenAxis { size: axis.size.map(|size| size / lanes), stride: Stride::Const(1) }],
            ..view.clone()
        })
    }

    fn check_access(&mut self, view: &GlobalView, write: bool, site: Site<'_>) -> Result<()> {
        for index in tensors(view) {
            let param = &self.resolved.params[index];
            let ParamKind::Tensor { writes, .. } = param.kind else { continue };
            if !view.axes.is_empty() {
                let message =
                    format!("{} axes of `{}` are open; an access needs one element", view.axes.len(), param.name);
                return Err(Diagnostic::new(455, site, message).help("give an index for every axis: `.at([…])`"));
            }
            if write && !writes {
                let message = format!("`{}` is read-only", param.name);
                return Err(Diagnostic::new(454, site, message).help("declare it `GlobalMut<…>`"));
            }
            self.note_access(index, write, site);
            self.params[index].generic = true;
        }
        Ok(())
    }

    /// The tensors of a view begin at a multiple of so many bytes.
    fn align_base(&mut self, view: &GlobalView, bytes: u32) {
        for index in tensors(view) {
            let align = &mut self.params[index].align;
            *align = (*align).max(bytes);
        }
    }

    /// Predicate of an access: the author's condition and the presence of an optional tensor. `None` if it never runs.
    fn access_guard(
        &mut self,
        present: Option<Reg>,
        condition: Option<&Value>,
        site: Site<'_>,
    ) -> Result<Option<Option<PredSrc>>> {
        let written = match condition {
            None => None,
            Some(Value::Const(crate::consteval::Const::Bool(true))) => None,
            Some(Value::Const(crate::consteval::Const::Bool(false))) => return Ok(None),
            Some(value) => Some(self.scalar(value, Some(Elem::Bool), site)?.reg),
        };
        let guard = match (present, written) {
            (Some(a), Some(b)) => {
                Some(self.builder.pure(Class::Pred, |dst| And { ty: Type::Pred, dst, a: a.into(), b: b.into() }.into()))
            }
            (a, b) => a.or(b),
        };
        Ok(Some(guard.map(when)))
    }

    /// Loads `lanes` elements; 0 where the condition is false or the tensor absent.
    pub(super) fn global_load(
        &mut self,
        view: &GlobalView,
        lanes: u64,
        condition: Option<&Value>,
        site: Site<'_>,
    ) -> Result<Value> {
        self.check_access(view, false, site)?;
        self.prove_vector(view, lanes, site)?;
        let elem = view.elem;
        let zero = || match elem.is_float() {
            true => Value::Const(crate::consteval::Const::Float(0.0, Some(elem))),
            false => Value::Const(crate::consteval::Const::Int(0, Some(elem))),
        };
        let Some(guard) = self.access_guard(view.present, condition, site)? else {
            return Ok(if lanes == 1 { zero() } else { Value::Array(vec![zero(); lanes as usize]) });
        };
        let uniform = view.uniform.max(condition.map_or(Uniform::Cta, Value::uniform));
        let (count, unit) = Self::vector_registers(elem, lanes as usize);
        let regs: Vec<Reg> = (0..count).map(|_| self.builder.fresh(class(unit))).collect();
        if guard.is_some() {
            for reg in &regs {
                self.builder.inst(Mov { ty: bits(unit), dst: *reg, src: Src::Imm(0) });
            }
        }
        let address = self.global_address(view);
        let vector = vector_width(count);
        let written =
            |index: usize| !matches!(self.resolved.params[index].kind, ParamKind::Tensor { writes: false, .. });
        if let ([reg], None) = (regs.as_slice(), guard)
            && !tensors(view).any(written)
        {
            self.builder.note_load(*reg, Space::Global, memory_bits(unit), address.clone());
        }
        self.builder.guarded(
            guard,
            Ld {
                strength: None,
                scope: None,
                space: Some(Space::Global),
                cache: None,
                nc: NonCoherent(false),
                l1: view.hint.no_allocate.then_some(L1Priority::NoAllocate),
                hint: CacheHint(view.hint.policy.is_some()),
                prefetch: view.hint.prefetch,
                vector,
                ty: memory_bits(unit),
                dst: DstList(regs.iter().copied().map(Some).collect()),
                address,
                policy: view.hint.policy.map(Src::Reg),
            },
        );
        let mut items = self.vector_elements(&regs, lanes as usize, elem, uniform);
        Ok(if lanes == 1 { items.remove(0) } else { Value::Array(items) })
    }

    /// Stores an element or a vector; nothing where the condition is false or the tensor absent.
    pub(super) fn global_store(
        &mut self,
        view: &GlobalView,
        value: &Value,
        condition: Option<&Value>,
        site: Site<'_>,
    ) -> Result<()> {
        self.check_access(view, true, site)?;
        let items: Vec<Value> = match value {
            Value::Array(items) => items.clone(),
            one => vec![one.clone()],
        };
        self.prove_vector(view, items.len() as u64, site)?;
        let Some(guard) = self.access_guard(view.present, condition, site)? else { return Ok(()) };
        let mut operands = Vec::with_capacity(items.len());
        for item in &items {
            operands.push(self.operand(item, view.elem, site)?);
        }
        let (operands, unit) = self.vector_operands(operands, view.elem);
        let address = self.global_address(view);
        self.builder.guarded(
            guard,
            St {
                strength: None,
                scope: None,
                space: Some(Space::Global),
                cache: None,
                l1: None,
                hint: CacheHint(view.hint.policy.is_some()),
                vector: vector_width(operands.len()),
                ty: memory_bits(unit),
                address,
                src: SrcList(operands),
                policy: view.hint.policy.map(Src::Reg),
            },
        );
        Ok(())
    }

    /// An atomic on one element; gives the old value, or 0 where the condition is false or the tensor absent.
    pub(super) fn global_atomic(
        &mut self,
        view: &GlobalView,
        op: AtomicOp,
        order: Order,
        value: &Value,
        condition: Option<&Value>,
        site: Site<'_>,
    ) -> Result<Value> {
        let known = match op {
            AtomicOp::Inc => view.elem == Elem::U32,
            _ => matches!(view.elem, Elem::U32 | Elem::I32 | Elem::U64 | Elem::F32),
        };
        if !known {
            let message = format!("there is no such atomic on a tensor of {}", view.elem);
            return Err(
                Diagnostic::new(156, site, message).help("`inc_wrap` takes u32; `fetch_add` u32, i32, u64, f32")
            );
        }
        self.check_access(view, true, site)?;
        self.prove_vector(view, 1, site)?;
        let b = self.operand(value, view.elem, site)?;
        let Some(guard) = self.access_guard(view.present, condition, site)? else {
            return Ok(Value::Const(crate::consteval::Const::Int(0, Some(view.elem))));
        };
        let dst = self.builder.fresh(class(view.elem));
        if guard.is_some() {
            self.builder.inst(Mov { ty: bits(view.elem), dst, src: Src::Imm(0) });
        }
        let address = self.global_address(view);
        let ty = super::params::arithmetic(view.elem);
        self.builder.guarded(
            guard,
            Atom {
                order: Some(order),
                scope: Some(Scope::Gpu),
                space: Some(Space::Global),
                op,
                ty,
                dst,
                address,
                b,
                c: None,
            },
        );
        Ok(Value::Scalar(Scalar::new(view.elem, dst, Uniform::Thread)))
    }
}

/// The parameters that a view may be a part of.
fn tensors(view: &GlobalView) -> impl Iterator<Item = usize> + use<> {
    [Some(view.param), view.picked.map(|(param, _)| param)].into_iter().flatten()
}

/// The vector modifier for so many elements.
pub(super) fn vector_width(count: usize) -> Option<VectorWidth> {
    match count {
        2 => Some(VectorWidth::V2),
        4 => Some(VectorWidth::V4),
        8 => Some(VectorWidth::V8),
        _ => None,
    }
}
