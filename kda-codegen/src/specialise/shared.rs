//! Shared buffers and their views.
//!
//! A buffer is row-major, outermost axis first, at a 16-byte boundary or more. Addresses are 32-bit; constant parts become
//! the immediate of the access. A buffer that no code of the variant touches takes no memory.

use super::global::{Index, vector_width};
use super::params::bits;
use super::value::{Scalar, SharedView, Value, class, gcd};
use super::{Buffer, MAX_SHARED_BYTES, Specialiser};
use crate::compiled::SharedBuffer;
use crate::consteval::Const;
use crate::diag::{Diagnostic, Result};
use crate::kir::{Sync, Uniform, when};
use kda_core::Elem;
use kda_ptx::modifier::*;
use kda_ptx::operand::{Address, Base, DstList, Src, SrcList};
use kda_ptx::table::*;
use kda_ptx::{Class, Reg};
use proc_macro2::Span;

/// Alignment of every buffer: that of the widest access, and of a bulk copy at full speed.
const ALIGN: u32 = 128;

impl Specialiser<'_> {
    /// `smem::<elem, (shape…)>()`
    pub(super) fn shared_buffer(&mut self, name: String, elem: Elem, shape: Vec<u32>, span: Span) -> Result<Value> {
        let elements = shape.iter().try_fold(1u32, |n, d| n.checked_mul(*d));
        let bytes = elements.and_then(|n| n.checked_mul(elem.bytes())).filter(|b| *b > 0 && *b <= MAX_SHARED_BYTES);
        let Some(bytes) = bytes else {
            let message = format!("`{name}` of shape {shape:?} does not fit shared memory");
            return Err(Diagnostic::new(550, span, message).help(format!("a CTA has {MAX_SHARED_BYTES} bytes")));
        };
        let keep = self.keep.as_ref().is_none_or(|keep| keep.get(self.declared).copied().unwrap_or(true));
        self.declared += 1;
        let offset = self.shared_end.next_multiple_of(ALIGN);
        if keep {
            self.shared_end = offset + bytes;
        }
        let axes = strides(&shape);
        let desc = SharedBuffer { name, offset, bytes, align: ALIGN, elem, shape };
        self.buffers.push(Buffer { desc, used: false });
        if keep && self.shared_end > MAX_SHARED_BYTES {
            let list =
                self.buffers.iter().map(|b| format!("{} {}", b.desc.name, b.desc.bytes)).collect::<Vec<_>>().join(", ");
            let message = format!("{} bytes of shared memory; a CTA has {MAX_SHARED_BYTES}", self.shared_end);
            return Err(Diagnostic::new(550, span, message).help(format!("buffers in bytes: {list}")));
        }
        Ok(Value::Shared(Box::new(SharedView { buffer: self.buffers.len() - 1, elem, runtime: None, offset: 0, axes })))
    }

    /// `view.at([…])` and `view[[…]]`
    pub(super) fn shared_at(
        &mut self,
        mut view: SharedView,
        indices: Vec<(Index, Span)>,
        span: Span,
    ) -> Result<SharedView> {
        if indices.len() > view.axes.len() {
            let message = format!("{} indices for {} axes", indices.len(), view.axes.len());
            return Err(Diagnostic::new(452, span, message));
        }
        let axes = std::mem::take(&mut view.axes);
        let given = indices.len();
        let mut open = Vec::new();
        for ((index, at), (size, stride)) in indices.into_iter().zip(axes.iter().copied()) {
            let start = match index {
                Index::At(value) => Some(value),
                Index::Open(start, end) => {
                    let first = start.as_ref().and_then(Value::as_int).unwrap_or(0);
                    let left = match end.as_ref().and_then(Value::as_int) {
                        Some(end) => u64::try_from(end - first).unwrap_or(0),
                        None => size.saturating_sub(u64::try_from(first).unwrap_or(0)),
                    };
                    open.push((left, stride));
                    start
                }
            };
            if let Some(start) = start {
                self.shared_advance(&mut view, &start, size, stride, at)?;
            }
        }
        open.extend_from_slice(&axes[given..]);
        view.axes = open;
        Ok(view)
    }

    fn shared_advance(
        &mut self,
        view: &mut SharedView,
        index: &Value,
        size: u64,
        stride: u64,
        span: Span,
    ) -> Result<()> {
        if let Some(value) = index.as_int() {
            if value < 0 || value >= i128::from(size) {
                return Err(Diagnostic::new(154, span, format!("index {value} on an axis of {size}")));
            }
            view.offset += value as u64 * stride;
            return Ok(());
        }
        let scalar = match index {
            Value::Scalar(s) if matches!(s.elem, Elem::U32 | Elem::I32) => *s,
            other => {
                let message = format!("{} is no index of shared memory", other.describe());
                return Err(Diagnostic::new(156, span, message).help("an index of shared memory is a u32"));
            }
        };
        let (base, add) = self.split(scalar);
        // A negative constant part stays with the register.
        let (scalar, add) = if add >= 0 { (Scalar { reg: base, ..scalar }, add as u64) } else { (scalar, 0) };
        let multiple = if add == 0 { scalar.multiple } else { gcd(scalar.multiple, add).max(1) };
        view.offset += add * stride;
        let scalar = Scalar { elem: Elem::U32, multiple, ..scalar };
        let stride = Value::u32(stride as u32);
        let term = self.binary(&syn::BinOp::Mul(Default::default()), Value::Scalar(scalar), stride, span)?;
        let sum = match view.runtime {
            None => term,
            Some(before) => self.binary(&syn::BinOp::Add(Default::default()), Value::Scalar(before), term, span)?,
        };
        view.runtime = Some(self.scalar(&sum, Some(Elem::U32), span)?);
        Ok(())
    }

    /// The address of a view's first element, for an access.
    pub(super) fn shared_address(&mut self, view: &SharedView) -> Address {
        self.buffers[view.buffer].used = true;
        let bytes = u64::from(view.elem.bytes());
        let offset = i64::from(self.buffers[view.buffer].desc.offset) + (view.offset * bytes) as i64;
        match view.runtime {
            None => Address { base: Base::Symbol(crate::lower::SHARED.into()), offset },
            Some(scalar) => {
                let base = self.shared_base();
                let (reg, add) = self.split(scalar);
                let shift = bytes.trailing_zeros();
                let scaled = if shift == 0 {
                    reg
                } else {
                    self.builder.pure(Class::B32, |dst| {
                        Shl { ty: Type::B32, dst, a: reg.into(), b: Src::Imm(shift.into()) }.into()
                    })
                };
                let sum = self.builder.pure(Class::B32, |dst| {
                    let (round, ftz, sat) = (None, Default::default(), Default::default());
                    Add { round, ftz, sat, ty: Type::U32, dst, a: base.into(), b: scaled.into() }.into()
                });
                Address { base: Base::Reg(sum), offset: offset + add as i64 * bytes as i64 }
            }
        }
    }

    fn check_shared(&mut self, view: &SharedView, lanes: u64, span: Span) -> Result<()> {
        if !view.axes.is_empty() {
            let message = format!("{} axes are open; an access needs one element", view.axes.len());
            return Err(Diagnostic::new(455, span, message).help("give an index for every axis"));
        }
        let bytes = lanes * u64::from(view.elem.bytes());
        if lanes > 1 && (!matches!(lanes, 2 | 4 | 8) || bytes > 16 || (view.elem.bytes() == 2 && lanes == 8)) {
            return Err(Diagnostic::new(451, span, format!("a vector of {lanes} {}", view.elem))
                .help("2 or 4 elements of at most 16 bytes in all are possible"));
        }
        let multiple = view.runtime.map_or(0, |s| s.multiple);
        if lanes > 1 && (!multiple.is_multiple_of(lanes) || !view.offset.is_multiple_of(lanes)) {
            let known = gcd(multiple, view.offset);
            let message =
                format!("the offset is known to be a multiple of {known} elements; a vector access needs {lanes}");
            return Err(Diagnostic::new(450, span, message));
        }
        Ok(())
    }

    /// Loads `lanes` elements; 0 where the condition is false.
    pub(super) fn shared_load(
        &mut self,
        view: &SharedView,
        lanes: u64,
        condition: Option<&Value>,
        span: Span,
    ) -> Result<Value> {
        self.check_shared(view, lanes, span)?;
        let guard = match condition {
            None | Some(Value::Const(Const::Bool(true))) => None,
            Some(value) => Some(when(self.scalar(value, Some(Elem::Bool), span)?.reg)),
        };
        let elem = view.elem;
        let regs: Vec<Reg> = (0..lanes).map(|_| self.builder.fresh(class(elem))).collect();
        if guard.is_some() {
            for reg in &regs {
                self.builder.inst(Mov { ty: bits(elem), dst: *reg, src: Src::Imm(0) });
            }
        }
        let address = self.shared_address(view);
        self.builder.guarded(
            guard,
            Ld {
                strength: None,
                scope: None,
                space: Some(Space::Shared),
                cache: None,
                nc: NonCoherent(false),
                l1: None,
                hint: CacheHint(false),
                prefetch: None,
                vector: vector_width(lanes as usize),
                ty: bits(elem),
                dst: DstList(regs.iter().copied().map(Some).collect()),
                address,
                policy: None,
            },
        );
        let uniform =
            view.runtime.map_or(Uniform::Cta, |s| s.uniform).max(condition.map_or(Uniform::Cta, Value::uniform));
        let make = |reg: Reg| Value::Scalar(Scalar { elem, reg, uniform, multiple: 1 });
        Ok(if lanes == 1 { make(regs[0]) } else { Value::Array(regs.into_iter().map(make).collect()) })
    }

    /// Stores an element or a vector; nothing where the condition is false.
    pub(super) fn shared_store(
        &mut self,
        view: &SharedView,
        value: &Value,
        condition: Option<&Value>,
        span: Span,
    ) -> Result<()> {
        let items: Vec<Value> = match value {
            Value::Array(items) => items.clone(),
            one => vec![one.clone()],
        };
        self.check_shared(view, items.len() as u64, span)?;
        let guard = match condition {
            None | Some(Value::Const(Const::Bool(true))) => None,
            Some(Value::Const(Const::Bool(false))) => return Ok(()),
            Some(value) => Some(when(self.scalar(value, Some(Elem::Bool), span)?.reg)),
        };
        let mut operands = Vec::with_capacity(items.len());
        for item in &items {
            operands.push(self.operand(item, view.elem, span)?);
        }
        let address = self.shared_address(view);
        self.builder.sync(Sync::SharedWrite { buffer: view.buffer });
        self.builder.guarded(
            guard,
            St {
                strength: None,
                scope: None,
                space: Some(Space::Shared),
                cache: None,
                l1: None,
                hint: CacheHint(false),
                vector: vector_width(operands.len()),
                ty: bits(view.elem),
                address,
                src: SrcList(operands),
                policy: None,
            },
        );
        Ok(())
    }

    /// The buffer's bytes as elements of another type, one axis.
    pub(super) fn shared_cast(&mut self, view: &SharedView, elem: Elem, span: Span) -> Result<SharedView> {
        if view.runtime.is_some() || view.offset != 0 {
            return Err(Diagnostic::new(453, span, "only a whole buffer can be seen as another type"));
        }
        let count = u64::from(self.buffers[view.buffer].desc.bytes / elem.bytes());
        Ok(SharedView { buffer: view.buffer, elem, runtime: None, offset: 0, axes: vec![(count, 1)] })
    }
}

/// Axes of a row-major buffer: sizes and strides.
fn strides(shape: &[u32]) -> Vec<(u64, u64)> {
    let mut axes: Vec<(u64, u64)> = shape.iter().map(|d| (u64::from(*d), 1)).collect();
    for axis in (1..axes.len()).rev() {
        axes[axis - 1].1 = axes[axis].1 * axes[axis].0;
    }
    axes
}
