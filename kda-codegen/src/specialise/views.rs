//! Views of global tensors: indexing and addresses.
//!
//! Offsets are 64-bit. Constant parts become the immediate of the access; parts that unrolled steps have in common are
//! added first, so that they are computed once.

use super::Specialiser;
use super::site::Site;
use super::value::{GlobalView, Hint, OpenAxis, Scalar, Stride, Value, gcd};
use crate::compiled::{OwnedExpr, ParamKind, Stride as DimStride};
use crate::diag::{Diagnostic, Result};
use crate::kir::Uniform;
use kda_ptx::modifier::*;
use kda_ptx::operand::{Address, Base, DstAndPred, Src};
use kda_ptx::table::*;
use kda_ptx::{Class, Reg};

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
        let ParamKind::Tensor { elem, optional, dims, map, .. } = &desc.kind else { return Value::Unit };
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
                    DimStride::Any => Stride::Const(0),
                },
            })
            .collect();
        // Accesses ask it of a pointer; of a map only the author does.
        let present = (*optional && map.is_none()).then(|| self.presence(param, Type::U64));
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
            picked: None,
            uniform: Uniform::Cta,
        }))
    }

    /// Whether the tensor of a view is there; `None` if it always is.
    pub(super) fn present(&mut self, view: &GlobalView) -> Option<Reg> {
        if matches!(self.resolved.params[view.param].kind, ParamKind::Tensor { map: Some(_), .. }) {
            return self.map_presence(view.param);
        }
        view.present
    }

    /// Whether the tensor behind a map is there; `None` if it always is. What a map holds is the driver's affair, so a
    /// parameter of its own says it.
    pub(super) fn map_presence(&mut self, param: usize) -> Option<Reg> {
        let says = |kind: &ParamKind| matches!(kind, ParamKind::Present { tensor } if *tensor as usize == param);
        let flag = self.resolved.params.iter().position(|p| says(&p.kind))?;
        Some(self.presence(flag, Type::U32))
    }

    /// Whether a parameter is not 0.
    fn presence(&mut self, param: usize, ty: Type) -> Reg {
        let word = self.load_param(param);
        self.builder.prologue(Class::Pred, |dst| {
            let dst = DstAndPred { dst: Some(dst), pred: None };
            Setp { compare: Compare::Ne, ftz: Default::default(), ty, dst, a: word.into(), b: Src::Imm(0) }.into()
        })
    }

    /// A stride of the launch; a constant where `#[requires(name == constant)]` fixes it.
    fn stride_param(&mut self, name: &str) -> Stride {
        if let Some(stride) = self.known(name).and_then(|value| value.try_into().ok()) {
            return Stride::Const(stride);
        }
        match self.resolved.params.iter().position(|p| p.name == name) {
            Some(index) => Stride::Reg(self.load_param(index), self.multiple_of(name)),
            None => Stride::Const(0),
        }
    }

    /// `view.at([…])`
    pub(super) fn global_at(
        &mut self,
        mut view: GlobalView,
        indices: Vec<(Index, Site<'_>)>,
        site: Site<'_>,
    ) -> Result<GlobalView> {
        if indices.len() > view.axes.len() {
            let message = format!("{} indices for {} axes", indices.len(), view.axes.len());
            return Err(Diagnostic::new(452, site, message));
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
                        (start, Some(end)) => self.slice_size(start.as_ref(), end, axis.size, at)?,
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

    /// The size of `start..end`, if it is known; an error where it cannot lie in an axis of `size` elements.
    pub(super) fn slice_size(
        &self,
        start: Option<&Value>,
        end: &Value,
        size: Option<u64>,
        site: Site<'_>,
    ) -> Result<Option<u64>> {
        let known = start.map_or(Some(0), Value::as_int);
        if let (Some(first), Some(last)) = (known, end.as_int())
            && (first > last || size.is_some_and(|size| last > size.into()))
        {
            let message = match size {
                Some(size) => format!("the range {first}..{last} on an axis of {size}"),
                None => format!("the range {first}..{last}"),
            };
            return Err(Diagnostic::new(154, site, message));
        }
        Ok(self.distance(start, end))
    }

    /// Moves a view by `index` steps along an axis.
    fn advance(&mut self, view: &mut GlobalView, index: &Value, axis: &OpenAxis, site: Site<'_>) -> Result<()> {
        let bytes = u64::from(view.elem.bytes());
        let (scalar, constant) = match index {
            Value::Scalar(s) if s.elem.is_integer() && s.elem.bytes() >= 4 => {
                let (base, add) = self.split(*s);
                (Some(Scalar { reg: base, ..*s }), add)
            }
            other => match other.as_int() {
                Some(value) if value < 0 => {
                    return Err(Diagnostic::new(154, site, format!("index {value} is negative")));
                }
                Some(value) if axis.size.is_some_and(|n| value >= i128::from(n)) => {
                    let message = format!("index {value} on an axis of {}", axis.size.unwrap_or(0));
                    return Err(Diagnostic::new(154, site, message));
                }
                Some(value) if i64::try_from(value).is_err() => {
                    return Err(Diagnostic::new(154, site, format!("index {value} is past the end of every axis")));
                }
                Some(value) => (None, value),
                None => {
                    let message = format!("{} is no index", other.describe());
                    return Err(Diagnostic::new(156, site, message).help("an index is a u32, i32, u64 or i64"));
                }
            },
        };
        match axis.stride {
            Stride::Const(stride) => {
                // Both have 64 bits at most.
                view.offset = view.offset.saturating_add(constant.saturating_mul(stride.into()));
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
                    view.multiple = gcd(view.multiple, divisor(constant.unsigned_abs() as u64, axis.stride));
                }
            }
        }
        if let Some(s) = scalar {
            let base_multiple =
                if constant == 0 { s.multiple } else { gcd(s.multiple, constant.unsigned_abs() as u64) };
            view.multiple = gcd(view.multiple, divisor(base_multiple, axis.stride));
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
        let mut base = match view.picked {
            Some((_, base)) => base,
            None => self.load_param(view.param),
        };
        for term in view.terms.iter().chain(&view.steps) {
            base = self.sum(base, (*term).into());
        }
        let offset = (view.offset as i64).wrapping_mul(view.elem.bytes().into());
        if i32::try_from(offset).is_ok() {
            return Address { base: Base::Reg(base), offset };
        }
        // An access takes 32 bits.
        Address { base: Base::Reg(self.sum(base, Src::Imm(offset))), offset: 0 }
    }

    /// `select(condition, a, b)` of two views that differ in their first elements alone: one address is picked.
    pub(super) fn pick_view(
        &mut self,
        condition: Scalar,
        a: GlobalView,
        b: GlobalView,
        site: Site<'_>,
    ) -> Result<Value> {
        let strides = |view: &GlobalView| view.axes.iter().map(|axis| axis.stride).collect::<Vec<_>>();
        // A map is the tensor's own: its bytes are not an address.
        let mapped =
            |view: &GlobalView| matches!(self.resolved.params[view.param].kind, ParamKind::Tensor { map: Some(_), .. });
        let plain = !mapped(&a)
            && !mapped(&b)
            && a.present.is_none()
            && b.present.is_none()
            && one_tensor(&a)
            && one_tensor(&b);
        let inner = !a.axes.is_empty() || a.inner == b.inner;
        if a.elem != b.elem || strides(&a) != strides(&b) || !inner || !plain {
            let (a, b) = (Value::Global(Box::new(a)).describe(), Value::Global(Box::new(b)).describe());
            return Err(Diagnostic::new(156, site, format!("one of {a} and {b}")).help(
                "views of the same type and strides, of tensors that are always there, can be selected between",
            ));
        }
        // Whichever it is, it may be read here.
        for view in [&a, &b] {
            self.note_access(view.param, false, site);
        }
        let place = |this: &mut Self, view: &GlobalView| {
            let address = this.global_address(view);
            match (address.base, address.offset) {
                (Base::Reg(reg), 0) => reg,
                (Base::Reg(reg), offset) => this.sum(reg, Src::Imm(offset)),
                _ => this.load_param(view.param),
            }
        };
        let (x, y) = (place(self, &a), place(self, &b));
        let base = self.builder.pure(Class::B64, |dst| {
            let pred = crate::kir::when(condition.reg);
            kda_ptx::table::Selp { ty: Type::B64, dst, a: x.into(), b: y.into(), pred }.into()
        });
        let part = |view: &GlobalView| gcd(view.multiple, view.offset.unsigned_abs() as u64);
        let sizes = a.axes.iter().zip(&b.axes).map(|(x, y)| x.size.filter(|_| x.size == y.size));
        let axes = sizes.zip(strides(&a)).map(|(size, stride)| OpenAxis { size, stride }).collect();
        let hint = if a.hint == b.hint { a.hint } else { Hint::default() };
        Ok(Value::Global(Box::new(GlobalView {
            terms: Vec::new(),
            steps: Vec::new(),
            offset: 0,
            multiple: gcd(part(&a), part(&b)),
            axes,
            hint,
            picked: Some((b.param, base)),
            uniform: condition.uniform.max(a.uniform).max(b.uniform),
            ..a
        })))
    }

    fn sum(&mut self, a: Reg, b: Src) -> Reg {
        self.builder.pure(Class::B64, |dst| {
            let (round, ftz, sat) = (None, Default::default(), Default::default());
            Add { round, ftz, sat, ty: Type::U64, dst, a: a.into(), b: b.clone() }.into()
        })
    }
}

/// A part of one parameter, wherever it begins.
fn one_tensor(view: &GlobalView) -> bool {
    view.picked.is_none_or(|(param, _)| param == view.param)
}

/// The divisor of an index times a stride; a product past 64 bits keeps the stride's.
fn divisor(index: u64, stride: Stride) -> u64 {
    index.checked_mul(stride.multiple()).unwrap_or(stride.multiple())
}
