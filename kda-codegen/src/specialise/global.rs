//! Views of global tensors: indexing, loads, stores, atomics.
//!
//! Offsets are 64-bit. Constant parts become the immediate of the access; parts that unrolled steps have in common are
//! added first, so that they are computed once. The width of a vector access is proved from strides, indices and
//! `#[requires]`; the base alignment that it needs becomes a check of the launcher.

use super::Specialiser;
use super::params::bits;
use super::value::{GlobalView, Hint, OpenAxis, Scalar, Stride, Value, class, gcd};
use crate::compiled::{OwnedExpr, ParamKind, Stride as DimStride};
use crate::diag::{Diagnostic, Result};
use crate::kir::{Uniform, when};
use kda_core::Elem;
use kda_ptx::modifier::*;
use kda_ptx::operand::{Address, Base, DstAndPred, DstList, PredSrc, Src, SrcList};
use kda_ptx::table::*;
use kda_ptx::{Class, Reg};
use proc_macro2::Span;

/// One index of `.at([…])`.
pub(super) enum Index {
    /// A position.
    At(Value),
    /// `start..end`, `start..`, `..`: the axis stays open.
    Open(Option<Value>, Option<Value>),
}

impl Specialiser<'_> {
    /// A tensor parameter with all axes open.
    pub(super) fn tensor(&mut self, param: usize) -> Value {
        let desc = self.resolved.params[param].clone();
        let ParamKind::Tensor { elem, optional, dims, .. } = &desc.kind else { return Value::Unit };
        let axes = dims
            .iter()
            .map(|dim| OpenAxis {
                size: match dim.size {
                    OwnedExpr::Int(n) => u64::try_from(n).ok(),
                    _ => None,
                },
                stride: match &dim.stride {
                    DimStride::Const(s) => Stride::Const(*s),
                    DimStride::Param(name) => self.stride_param(name),
                },
            })
            .collect();
        let present = optional.then(|| {
            let pointer = self.load_param(param);
            self.builder.prologue(Class::Pred, |dst| {
                let dst = DstAndPred { dst: Some(dst), pred: None };
                Setp {
                    compare: Compare::Ne,
                    ftz: Default::default(),
                    ty: Type::U64,
                    dst,
                    a: pointer.into(),
                    b: Src::Imm(0),
                }
                .into()
            })
        });
        Value::Global(Box::new(GlobalView {
            param,
            elem: *elem,
            terms: Vec::new(),
            steps: Vec::new(),
            offset: 0,
            inner: Stride::Const(1),
            multiple: 0,
            axes,
            hint: Hint::default(),
            present,
            uniform: Uniform::Cta,
        }))
    }

    fn stride_param(&mut self, name: &str) -> Stride {
        match self.resolved.params.iter().position(|p| p.name == name) {
            Some(index) => Stride::Reg(self.load_param(index), self.multiple_of(name)),
            None => Stride::Const(0),
        }
    }

    /// `view.at([…])`
    pub(super) fn global_at(
        &mut self,
        mut view: GlobalView,
        indices: Vec<(Index, Span)>,
        span: Span,
    ) -> Result<GlobalView> {
        if indices.len() > view.axes.len() {
            let message = format!("{} indices for {} axes", indices.len(), view.axes.len());
            return Err(Diagnostic::new(452, span, message));
        }
        let mut open = Vec::new();
        let axes = std::mem::take(&mut view.axes);
        let given = indices.len();
        for ((index, at), axis) in indices.into_iter().zip(&axes) {
            match index {
                Index::At(value) => {
                    self.advance(&mut view, &value, axis, at)?;
                    view.inner = axis.stride;
                }
                Index::Open(start, end) => {
                    let size = match (&start, &end) {
                        (None, None) => axis.size,
                        (start, Some(end)) => self.distance(start.as_ref(), end),
                        (Some(start), None) => match (axis.size, start.as_int()) {
                            (Some(size), Some(start)) => u64::try_from(i128::from(size) - start).ok(),
                            _ => None,
                        },
                    };
                    if let Some(start) = start {
                        self.advance(&mut view, &start, axis, at)?;
                    }
                    open.push(OpenAxis { size, stride: axis.stride });
                }
            }
        }
        open.extend_from_slice(&axes[given..]);
        view.axes = open;
        Ok(view)
    }

    /// `end - start`, if it is known.
    fn distance(&self, start: Option<&Value>, end: &Value) -> Option<u64> {
        let parts = |v: &Value| match v {
            Value::Scalar(s) => {
                let (base, add) = self.split(*s);
                Some((Some(base), add))
            }
            other => other.as_int().map(|i| (None, i)),
        };
        let (a, b) = (start.map_or(Some((None, 0)), parts)?, parts(end)?);
        if a.0 == b.0 { u64::try_from(b.1 - a.1).ok() } else { None }
    }

    /// Moves a view by `index` steps along an axis.
    fn advance(&mut self, view: &mut GlobalView, index: &Value, axis: &OpenAxis, span: Span) -> Result<()> {
        let bytes = u64::from(view.elem.bytes());
        let (scalar, constant) = match index {
            Value::Scalar(s) if s.elem.is_integer() && s.elem.bytes() >= 4 => {
                let (base, add) = self.split(*s);
                (Some(Scalar { reg: base, ..*s }), add)
            }
            other => match other.as_int() {
                Some(value) if value < 0 => {
                    return Err(Diagnostic::new(154, span, format!("index {value} is negative")));
                }
                Some(value) if axis.size.is_some_and(|n| value >= i128::from(n)) => {
                    let message = format!("index {value} on an axis of {}", axis.size.unwrap_or(0));
                    return Err(Diagnostic::new(154, span, message));
                }
                Some(value) => (None, value),
                None => {
                    let message = format!("{} is no index", other.describe());
                    return Err(Diagnostic::new(156, span, message).help("an index is a u32, i32, u64 or i64"));
                }
            },
        };
        match axis.stride {
            Stride::Const(stride) => {
                view.offset += constant * i128::from(stride);
                if let Some(s) = scalar {
                    let term = self.scaled(s, stride * bytes);
                    view.terms.push(term);
                }
            }
            Stride::Reg(stride, _) => {
                let shift = bytes.trailing_zeros();
                let stride_bytes = if shift == 0 {
                    stride
                } else {
                    self.builder.prologue(Class::B64, |dst| {
                        Shl { ty: Type::B64, dst, a: stride.into(), b: Src::Imm(shift.into()) }.into()
                    })
                };
                if let Some(s) = scalar {
                    let wide = self.in_64_bits(s);
                    let term = self.product(wide.into(), stride_bytes.into());
                    view.terms.push(term);
                }
                if constant != 0 {
                    let step = self.product(stride_bytes.into(), Src::Imm(constant as i64));
                    view.steps.push(step);
                    view.multiple =
                        gcd(view.multiple, (constant.unsigned_abs() as u64).saturating_mul(axis.stride.multiple()));
                }
            }
        }
        if let Some(s) = scalar {
            let base_multiple =
                if constant == 0 { s.multiple } else { gcd(s.multiple, constant.unsigned_abs() as u64) };
            view.multiple = gcd(view.multiple, base_multiple.saturating_mul(axis.stride.multiple()));
            view.uniform = view.uniform.max(s.uniform);
        }
        Ok(())
    }

    fn product(&mut self, a: Src, b: Src) -> Reg {
        self.builder.pure(Class::B64, |dst| {
            let (ftz, sat) = (Default::default(), Default::default());
            Mul { half: Some(Half::Lo), round: None, ftz, sat, ty: Type::U64, dst, a: a.clone(), b: b.clone() }.into()
        })
    }

    /// The integer in 64 bits.
    fn in_64_bits(&mut self, s: Scalar) -> Reg {
        if s.elem.bytes() == 8 {
            return s.reg;
        }
        let (to, from) = if s.elem.is_signed() { (Type::S64, Type::S32) } else { (Type::U64, Type::U32) };
        self.builder.pure(Class::B64, |dst| {
            let (ftz, sat) = (Default::default(), Default::default());
            Cvt { round: None, relu: Default::default(), ftz, sat, to, from, dst, a: s.src(), b: None }.into()
        })
    }

    /// `index * bytes` in 64 bits.
    fn scaled(&mut self, s: Scalar, bytes: u64) -> Reg {
        if s.elem.bytes() == 8 || bytes > u64::from(u32::MAX) / 2 {
            let wide = self.in_64_bits(s);
            return self.product(wide.into(), Src::Imm(bytes as i64));
        }
        if bytes == 1 {
            return self.in_64_bits(s);
        }
        let ty = if s.elem.is_signed() { Type::S32 } else { Type::U32 };
        self.builder.pure(Class::B64, |dst| {
            let (ftz, sat) = (Default::default(), Default::default());
            Mul { half: Some(Half::Wide), round: None, ftz, sat, ty, dst, a: s.src(), b: Src::Imm(bytes as i64) }.into()
        })
    }

    /// The address of a view's first element.
    pub(super) fn global_address(&mut self, view: &GlobalView) -> Address {
        let mut base = self.load_param(view.param);
        for term in view.terms.iter().chain(&view.steps) {
            let a = base;
            base = self.builder.pure(Class::B64, |dst| {
                let (round, ftz, sat) = (None, Default::default(), Default::default());
                Add { round, ftz, sat, ty: Type::U64, dst, a: a.into(), b: (*term).into() }.into()
            });
        }
        Address { base: Base::Reg(base), offset: view.offset as i64 * i64::from(view.elem.bytes()) }
    }

    /// Proves that `lanes` elements from here are one aligned vector, and notes what the base must satisfy.
    fn prove_vector(&mut self, view: &GlobalView, lanes: u64, span: Span) -> Result<()> {
        let bytes = lanes * u64::from(view.elem.bytes());
        if lanes == 1 {
            let align = &mut self.params[view.param].align;
            *align = (*align).max(view.elem.bytes());
            return Ok(());
        }
        if !matches!(lanes, 2 | 4 | 8) || bytes > 16 {
            let message = format!("a vector of {lanes} {}", view.elem);
            return Err(
                Diagnostic::new(451, span, message).help("2, 4 or 8 elements of at most 16 bytes in all are possible")
            );
        }
        let name = self.resolved.params[view.param].name.clone();
        if view.inner != Stride::Const(1) {
            return Err(Diagnostic::new(450, span, format!("the innermost axis of `{name}` is not contiguous")));
        }
        if !view.multiple.is_multiple_of(lanes) || !view.offset.unsigned_abs().is_multiple_of(lanes.into()) {
            let known = gcd(view.multiple, view.offset.unsigned_abs() as u64);
            let message = format!(
                "the offset into `{name}` is known to be a multiple of {known} elements; a vector access needs {lanes}"
            );
            return Err(Diagnostic::new(450, span, message)
                .help("name the stride in `#[dims(…)]` and state its divisibility: `#[requires(pitch % 8 == 0)]`"));
        }
        let align = &mut self.params[view.param].align;
        *align = (*align).max(bytes as u32);
        Ok(())
    }

    fn check_access(&mut self, view: &GlobalView, write: bool, span: Span) -> Result<()> {
        let param = &self.resolved.params[view.param];
        let ParamKind::Tensor { writes, stable, .. } = param.kind else { return Ok(()) };
        if !view.axes.is_empty() {
            let message = format!("{} axes of `{}` are open; an access needs one element", view.axes.len(), param.name);
            return Err(Diagnostic::new(455, span, message).help("give an index for every axis: `.at([…])`"));
        }
        if write && !writes {
            let message = format!("`{}` is read-only", param.name);
            return Err(Diagnostic::new(454, span, message).help("declare it `GlobalMut<…>`"));
        }
        let state = &mut self.params[view.param];
        if !self.waited && (write || !stable) && state.early.is_none() {
            state.early = Some(span);
        }
        Ok(())
    }

    /// Predicate of an access: the author's condition and the presence of an optional tensor. `None` if it never runs.
    fn access_guard(
        &mut self,
        present: Option<Reg>,
        condition: Option<&Value>,
        span: Span,
    ) -> Result<Option<Option<PredSrc>>> {
        let written = match condition {
            None => None,
            Some(Value::Const(crate::consteval::Const::Bool(true))) => None,
            Some(Value::Const(crate::consteval::Const::Bool(false))) => return Ok(None),
            Some(value) => Some(self.scalar(value, Some(Elem::Bool), span)?.reg),
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
        span: Span,
    ) -> Result<Value> {
        self.check_access(view, false, span)?;
        self.prove_vector(view, lanes, span)?;
        self.params[view.param].generic = true;
        let elem = view.elem;
        let zero = || match elem.is_float() {
            true => Value::Const(crate::consteval::Const::Float(0.0, Some(elem))),
            false => Value::Const(crate::consteval::Const::Int(0, Some(elem))),
        };
        let Some(guard) = self.access_guard(view.present, condition, span)? else {
            return Ok(if lanes == 1 { zero() } else { Value::Array(vec![zero(); lanes as usize]) });
        };
        let uniform = view.uniform.max(condition.map_or(Uniform::Cta, Value::uniform));
        // Wide vectors of 16-bit elements travel in 32-bit registers.
        let packed = elem.bytes() == 2 && lanes == 8;
        let (count, unit) = if packed { (4, Elem::U32) } else { (lanes as usize, elem) };
        let regs: Vec<Reg> = (0..count).map(|_| self.builder.fresh(class(unit))).collect();
        if guard.is_some() {
            for reg in &regs {
                self.builder.inst(Mov { ty: bits(unit), dst: *reg, src: Src::Imm(0) });
            }
        }
        let address = self.global_address(view);
        let vector = vector_width(count);
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
                prefetch: None,
                vector,
                ty: bits(unit),
                dst: DstList(regs.iter().copied().map(Some).collect()),
                address,
                policy: view.hint.policy.map(Src::Reg),
            },
        );
        let make = |reg: Reg, elem: Elem| Value::Scalar(Scalar { elem, reg, uniform, multiple: 1 });
        if packed {
            let mut items = Vec::with_capacity(8);
            for reg in regs {
                let halves: Vec<Reg> = (0..2).map(|_| self.builder.fresh(Class::B16)).collect();
                let dst = DstList(halves.iter().copied().map(Some).collect());
                self.builder.inst(Unpack { ty: Type::B32, dst, src: reg.into() });
                items.extend(halves.into_iter().map(|h| make(h, elem)));
            }
            return Ok(Value::Array(items));
        }
        if lanes == 1 {
            return Ok(make(regs[0], elem));
        }
        Ok(Value::Array(regs.into_iter().map(|reg| make(reg, elem)).collect()))
    }

    /// Stores an element or a vector; nothing where the condition is false or the tensor absent.
    pub(super) fn global_store(
        &mut self,
        view: &GlobalView,
        value: &Value,
        condition: Option<&Value>,
        span: Span,
    ) -> Result<()> {
        self.check_access(view, true, span)?;
        let items: Vec<Value> = match value {
            Value::Array(items) => items.clone(),
            one => vec![one.clone()],
        };
        self.prove_vector(view, items.len() as u64, span)?;
        self.params[view.param].generic = true;
        let Some(guard) = self.access_guard(view.present, condition, span)? else { return Ok(()) };
        let mut operands = Vec::with_capacity(items.len());
        for item in &items {
            operands.push(self.operand(item, view.elem, span)?);
        }
        let mut unit = view.elem;
        if unit.bytes() == 2 && operands.len() == 8 {
            unit = Elem::U32;
            let mut pairs = Vec::new();
            for pair in operands.chunks(2) {
                pairs.push(Src::Reg(self.pack_halves(pair[0].clone(), pair[1].clone())));
            }
            operands = pairs;
        }
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
                ty: bits(unit),
                address,
                src: SrcList(operands),
                policy: view.hint.policy.map(Src::Reg),
            },
        );
        Ok(())
    }

    /// An atomic on one element; gives the old value.
    pub(super) fn global_atomic(
        &mut self,
        view: &GlobalView,
        op: AtomicOp,
        order: Order,
        value: &Value,
        span: Span,
    ) -> Result<Value> {
        self.check_access(view, true, span)?;
        self.prove_vector(view, 1, span)?;
        self.params[view.param].generic = true;
        let b = self.operand(value, view.elem, span)?;
        let dst = self.builder.fresh(class(view.elem));
        let address = self.global_address(view);
        let ty = super::params::arithmetic(view.elem);
        self.builder.inst(Atom {
            order: Some(order),
            scope: Some(Scope::Gpu),
            space: Some(Space::Global),
            op,
            ty,
            dst,
            address,
            b,
            c: None,
        });
        Ok(Value::Scalar(Scalar { elem: view.elem, reg: dst, uniform: Uniform::Thread, multiple: 1 }))
    }
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
