//! Arithmetic, comparison and logic.

use super::Specialiser;
use super::halves::halves;
use super::params::arithmetic;
use super::products::Operand;
use super::range::{self, Range};
use super::site::Site;
use super::tile::TileView;
use super::value::{Scalar, Value};
use crate::consteval::{self, Const};
use crate::diag::{Diagnostic, Result};
use crate::kir::Uniform;
use kda_core::Elem;
use kda_ptx::Class;
use kda_ptx::modifier::{Compare, Half, Round, Type};
use kda_ptx::operand::{DstAndPred, Src};
use kda_ptx::table::*;
use proc_macro2::Span;
use syn::{BinOp, UnOp};

impl Specialiser<'_> {
    /// `a op b`
    pub(super) fn binary(&mut self, op: &BinOp, a: Value, b: Value, site: Site<'_>) -> Result<Value> {
        match (&a, &b) {
            (Value::Const(x), Value::Const(y)) => {
                let value = consteval::binary(op, x, y, Span::call_site()).map_err(|error| error.placed(site))?;
                return Ok(Value::from_const(value));
            }
            (Value::Array(x), Value::Array(y))
                if matches!(op, BinOp::Mul(_))
                    && x.len() == y.len()
                    && halves(x).is_some()
                    && halves(x) == halves(y) =>
            {
                let elem = halves(x).unwrap_or(Elem::BF16);
                return self.multiply_pairs(x, y, elem, site).map(Value::Array);
            }
            (Value::Array(x), Value::Array(y)) if is_arithmetic(op) => {
                if x.len() != y.len() {
                    let message = format!("arrays of {} and {} elements do not go together", x.len(), y.len());
                    return Err(Diagnostic::new(156, site, message));
                }
                let pairs: Vec<_> = x.iter().cloned().zip(y.iter().cloned()).collect();
                return pairs
                    .into_iter()
                    .map(|(x, y)| self.binary(op, x, y, site))
                    .collect::<Result<_>>()
                    .map(Value::Array);
            }
            (Value::Frag(_), _) | (_, Value::Frag(_)) if is_arithmetic(op) => {
                return self.fragment_binary(op, a, b, site).map(|frag| Value::Frag(Box::new(frag)));
            }
            (Value::Array(x), Value::Const(_) | Value::Scalar(_)) if is_arithmetic(op) => {
                let items = x.clone();
                return items
                    .into_iter()
                    .map(|x| self.binary(op, x, b.clone(), site))
                    .collect::<Result<_>>()
                    .map(Value::Array);
            }
            (Value::Const(_) | Value::Scalar(_), Value::Array(y)) if is_arithmetic(op) => {
                let items = y.clone();
                return items
                    .into_iter()
                    .map(|y| self.binary(op, a.clone(), y, site))
                    .collect::<Result<_>>()
                    .map(Value::Array);
            }
            _ => {}
        }
        if matches!(op, BinOp::Shl(_) | BinOp::Shr(_)) {
            return self.shift(op, a, b, site);
        }
        let elem = self.common(&a, &b, site)?;
        if let Some(simple) = self.simplify(op, &a, &b, elem, site)? {
            return Ok(simple);
        }
        let uniform = self.uniform_of(op, &a, &b);
        let (x, y) = (self.operand(&a, elem, site)?, self.operand(&b, elem, site)?);
        if let Some(compare) = comparison(op, elem) {
            return self.compare(compare, elem, x, y, uniform, site);
        }
        let ty = arithmetic(elem);
        let round = elem.is_float().then_some(Round::Rn);
        let no = Default::default();
        match (elem, op) {
            (Elem::F16 | Elem::BF16, BinOp::Mul(_)) => {
                // Immediates of this type do not exist.
                let x = self.scalar(&a, Some(elem), site)?.src();
                let y = self.scalar(&b, Some(elem), site)?.src();
                self.has_products(elem, site)?;
                return Ok(Value::Scalar(self.builder.scalar(elem, uniform, |dst| {
                    let (a, b) = (x.clone(), y.clone());
                    Mul { half: None, round, ftz: no, sat: Default::default(), ty, dst, a, b }.into()
                })));
            }
            (Elem::F16 | Elem::BF16, _) => {
                let message = format!("of {elem} there are products alone");
                return Err(Diagnostic::new(156, site, message).help("convert to f32 first: `x as f32`"));
            }
            (Elem::U8 | Elem::U16, _) => {
                let message = format!("there is no arithmetic on {elem}");
                return Err(Diagnostic::new(156, site, message).help("convert to f32 or u32 first: `x as f32`"));
            }
            _ => {}
        }
        let mut scalar = match op {
            BinOp::Add(_) if elem != Elem::Bool => self.builder.scalar(elem, uniform, |dst| {
                Add { round, ftz: no, sat: Default::default(), ty, dst, a: x.clone(), b: y.clone() }.into()
            }),
            BinOp::Sub(_) if elem != Elem::Bool => self.builder.scalar(elem, uniform, |dst| {
                Sub { round, ftz: no, sat: Default::default(), ty, dst, a: x.clone(), b: y.clone() }.into()
            }),
            BinOp::Mul(_) if elem != Elem::Bool => {
                let half = (!elem.is_float()).then_some(Half::Lo);
                self.builder.scalar(elem, uniform, |dst| {
                    Mul { half, round, ftz: no, sat: Default::default(), ty, dst, a: x.clone(), b: y.clone() }.into()
                })
            }
            BinOp::Div(_) if elem != Elem::Bool => {
                let accuracy = elem.is_float().then_some(kda_ptx::modifier::Accuracy::Rn);
                self.builder
                    .scalar(elem, uniform, |dst| Div { accuracy, ftz: no, ty, dst, a: x.clone(), b: y.clone() }.into())
            }
            BinOp::Rem(_) if elem.is_integer() => {
                self.builder.scalar(elem, uniform, |dst| Rem { ty, dst, a: x.clone(), b: y.clone() }.into())
            }
            BinOp::And(_) | BinOp::BitAnd(_) if !elem.is_float() => {
                let ty = logic(elem);
                self.builder.scalar(elem, uniform, |dst| And { ty, dst, a: x.clone(), b: y.clone() }.into())
            }
            BinOp::Or(_) | BinOp::BitOr(_) if !elem.is_float() => {
                let ty = logic(elem);
                self.builder.scalar(elem, uniform, |dst| Or { ty, dst, a: x.clone(), b: y.clone() }.into())
            }
            BinOp::BitXor(_) if !elem.is_float() => {
                let ty = logic(elem);
                self.builder.scalar(elem, uniform, |dst| Xor { ty, dst, a: x.clone(), b: y.clone() }.into())
            }
            _ => {
                let message = format!("this operator does not take {} and {}", a.describe(), b.describe());
                return Err(Diagnostic::new(156, site, message));
            }
        };
        if elem.is_integer() {
            scalar.range = Range::binary(op, Range::of(&a, elem), Range::of(&b, elem), elem);
            scalar.multiple = range::multiple_of(op, &a, &b, scalar.range, elem);
            self.note_affine(op, &a, &b, elem, scalar.reg);
        }
        Ok(Value::Scalar(scalar))
    }

    /// Among whom `a op b` is the same. What drops the warp's place in its warpgroup, counted from any warpgroup on, is the
    /// same in all of the warpgroup.
    fn uniform_of(&self, op: &BinOp, a: &Value, b: &Value) -> Uniform {
        let both = a.uniform().max(b.uniform());
        let (Value::Scalar(scalar), Some(number)) = (a, b.as_int()) else { return both };
        let (base, add) = self.modular.get(&scalar.reg).copied().unwrap_or((scalar.reg, 0));
        if both != Uniform::Warp || self.warp_register != Some(base) || add % 4 != 0 {
            return both;
        }
        let drops = match op {
            BinOp::Lt(_) | BinOp::Ge(_) | BinOp::BitAnd(_) => number % 4 == 0,
            BinOp::Le(_) | BinOp::Gt(_) => (number + 1) % 4 == 0,
            BinOp::Div(_) => number > 0 && number % 4 == 0,
            BinOp::Shr(_) => number >= 2,
            _ => false,
        };
        if drops { Uniform::Warpgroup } else { both }
    }

    /// Identities and cheaper forms on integers.
    fn simplify(&mut self, op: &BinOp, a: &Value, b: &Value, elem: Elem, site: Site<'_>) -> Result<Option<Value>> {
        if elem == Elem::Bool {
            let (constant, other) = match (a, b) {
                (Value::Const(Const::Bool(c)), other) | (other, Value::Const(Const::Bool(c))) => (*c, other),
                _ => return Ok(None),
            };
            return Ok(match op {
                BinOp::And(_) | BinOp::BitAnd(_) => {
                    Some(if constant { other.clone() } else { Value::Const(Const::Bool(false)) })
                }
                BinOp::Or(_) | BinOp::BitOr(_) => {
                    Some(if constant { Value::Const(Const::Bool(true)) } else { other.clone() })
                }
                BinOp::Eq(_) if constant => Some(other.clone()),
                BinOp::Ne(_) if !constant => Some(other.clone()),
                BinOp::Eq(_) | BinOp::Ne(_) => Some(self.unary(&UnOp::Not(Default::default()), other.clone(), site)?),
                _ => None,
            });
        }
        if !elem.is_integer() {
            return Ok(None);
        }
        let zero = || Some(Value::Const(Const::Int(0, Some(elem))));
        let unsigned = !elem.is_signed();
        let (x, y) = (a.as_int(), b.as_int());
        if y == Some(0) && matches!(op, BinOp::Div(_) | BinOp::Rem(_)) {
            return Err(Diagnostic::new(156, site, "division by zero"));
        }
        let simple = match op {
            BinOp::Add(_) if x == Some(0) => Some(b.clone()),
            BinOp::Add(_) | BinOp::Sub(_) if y == Some(0) => Some(a.clone()),
            BinOp::Mul(_) if x == Some(1) => Some(b.clone()),
            BinOp::Mul(_) | BinOp::Div(_) if y == Some(1) => Some(a.clone()),
            BinOp::Mul(_) if x == Some(0) || y == Some(0) => zero(),
            BinOp::Rem(_) if y == Some(1) => zero(),
            BinOp::Lt(_) if unsigned && y == Some(0) => Some(Value::Const(Const::Bool(false))),
            BinOp::Ge(_) if unsigned && y == Some(0) => Some(Value::Const(Const::Bool(true))),
            _ => None,
        };
        if simple.is_some() {
            return Ok(simple);
        }
        let power = |c: Option<i128>| c.filter(|c| *c > 1 && c.count_ones() == 1).map(|c| c.trailing_zeros());
        let shift = |bits: u32| Value::Const(Const::Int(bits.into(), Some(Elem::U32)));
        Ok(match op {
            BinOp::Mul(_) if power(y).is_some() => {
                Some(self.shift(&BinOp::Shl(Default::default()), a.clone(), shift(power(y).unwrap_or(0)), site)?)
            }
            BinOp::Mul(_) if power(x).is_some() => {
                Some(self.shift(&BinOp::Shl(Default::default()), b.clone(), shift(power(x).unwrap_or(0)), site)?)
            }
            BinOp::Div(_) if unsigned && power(y).is_some() => {
                Some(self.shift(&BinOp::Shr(Default::default()), a.clone(), shift(power(y).unwrap_or(0)), site)?)
            }
            BinOp::Rem(_) if unsigned && power(y).is_some() => {
                let mask = Value::Const(Const::Int(y.unwrap_or(1) - 1, Some(elem)));
                Some(self.binary(&BinOp::BitAnd(Default::default()), a.clone(), mask, site)?)
            }
            _ => None,
        })
    }

    fn shift(&mut self, op: &BinOp, a: Value, b: Value, site: Site<'_>) -> Result<Value> {
        let left = matches!(op, BinOp::Shl(_));
        let x = self.scalar(&a, None, site)?;
        if !x.elem.is_integer() || matches!(x.elem, Elem::U8 | Elem::U16) {
            return Err(Diagnostic::new(156, site, format!("a {} cannot be shifted", x.elem)));
        }
        let width = 8 * x.elem.bytes();
        if let Some(by) = b.as_int().filter(|by| !(0..i128::from(width)).contains(by)) {
            let message = format!("a {} is shifted by {by}; it has {width} bits", x.elem);
            return Err(Diagnostic::new(202, site, message));
        }
        let amount = self.operand(&b, Elem::U32, site)?;
        let uniform = self.uniform_of(op, &a, &b);
        let untyped = if width == 64 { Type::B64 } else { Type::B32 };
        let shl = |dst, a: Src| Shl { ty: untyped, dst, a, b: amount.clone() }.into();
        let mut scalar = if left {
            self.builder.scalar(x.elem, uniform, |dst| shl(dst, x.src()))
        } else {
            let ty = arithmetic(x.elem);
            self.builder.scalar(x.elem, uniform, |dst| Shr { ty, dst, a: x.src(), b: amount.clone() }.into())
        };
        if let Some(bits) = b.as_int().and_then(|bits| u32::try_from(bits).ok()) {
            scalar.range = Range::binary(op, x.range, Range::of(&b, Elem::U32), x.elem);
            scalar.multiple = match (left, x.multiple.checked_shl(bits).filter(|m| m >> bits == x.multiple)) {
                (true, Some(m)) if scalar.range != Range::full(x.elem) => m.max(1),
                (true, m) => range::power_of_two(m.unwrap_or(0)).max(1),
                (false, _) if x.multiple.is_multiple_of(1 << bits) => (x.multiple >> bits).max(1),
                (false, _) => 1,
            };
            if left {
                self.note_shifted(x, bits, scalar, |this, base| {
                    this.builder.pure(super::value::class(x.elem), |dst| shl(dst, base.into()))
                });
            }
        }
        Ok(Value::Scalar(scalar))
    }

    /// `setp`
    pub(super) fn compare(
        &mut self,
        compare: Compare,
        elem: Elem,
        x: Src,
        y: Src,
        uniform: Uniform,
        site: Site<'_>,
    ) -> Result<Value> {
        let reg = match elem {
            Elem::Bool => {
                let differ = self
                    .builder
                    .pure(Class::Pred, |dst| Xor { ty: Type::Pred, dst, a: x.clone(), b: y.clone() }.into());
                match compare {
                    Compare::Ne => differ,
                    Compare::Eq => {
                        self.builder.pure(Class::Pred, |dst| Not { ty: Type::Pred, dst, a: differ.into() }.into())
                    }
                    _ => return Err(Diagnostic::new(156, site, "booleans have no order")),
                }
            }
            Elem::F16 | Elem::BF16 | Elem::U8 | Elem::U16 => {
                return Err(Diagnostic::new(156, site, format!("a {elem} cannot be compared"))
                    .help("convert to f32 or u32 first"));
            }
            _ => {
                let ty = arithmetic(elem);
                self.builder.pure(Class::Pred, |dst| {
                    let dst = DstAndPred { dst: Some(dst), pred: None };
                    Setp { compare, ftz: Default::default(), ty, dst, a: x.clone(), b: y.clone() }.into()
                })
            }
        };
        Ok(Value::Scalar(Scalar::new(Elem::Bool, reg, uniform)))
    }

    /// `op a`
    pub(super) fn unary(&mut self, op: &UnOp, a: Value, site: Site<'_>) -> Result<Value> {
        match a {
            // Products negate their operands for nothing.
            Value::Tile(view) if matches!(op, UnOp::Neg(_)) => {
                Ok(Value::Tile(Box::new(TileView { negated: !view.negated, ..*view })))
            }
            Value::Operand(operand) if matches!(op, UnOp::Neg(_)) => {
                Ok(Value::Operand(Box::new(Operand { negated: !operand.negated, ..*operand })))
            }
            Value::Const(x) => {
                let value = consteval::unary(op, &x, Span::call_site()).map_err(|error| error.placed(site))?;
                Ok(Value::from_const(value))
            }
            Value::Array(items) => {
                items.into_iter().map(|x| self.unary(op, x, site)).collect::<Result<_>>().map(Value::Array)
            }
            Value::Frag(frag) if frag.kind == super::fragment::Kind::F32 => {
                let blocks: Result<Vec<Value>> = frag.blocks.iter().map(|x| self.unary(op, x.clone(), site)).collect();
                Ok(Value::Frag(Box::new(frag.with(frag.kind, blocks?))))
            }
            Value::Scalar(x) => {
                let ty = arithmetic(x.elem);
                let scalar = match op {
                    UnOp::Neg(_) if matches!(x.elem, Elem::F32 | Elem::F64 | Elem::I32 | Elem::I64) => self
                        .builder
                        .scalar(x.elem, x.uniform, |dst| Neg { ftz: Default::default(), ty, dst, a: x.src() }.into()),
                    UnOp::Not(_) if !x.elem.is_float() && !matches!(x.elem, Elem::U8 | Elem::U16) => {
                        let ty = logic(x.elem);
                        self.builder.scalar(x.elem, x.uniform, |dst| Not { ty, dst, a: x.src() }.into())
                    }
                    _ => return Err(Diagnostic::new(156, site, format!("this operator does not take a {}", x.elem))),
                };
                Ok(Value::Scalar(scalar))
            }
            other => Err(Diagnostic::new(156, site, format!("this operator does not take {}", other.describe()))),
        }
    }

    /// The type on which two operands agree.
    pub(super) fn common(&self, a: &Value, b: &Value, site: Site<'_>) -> Result<Elem> {
        let of = |v: &Value| match v {
            Value::Scalar(s) => Ok(Some(s.elem)),
            Value::Const(Const::Int(_, ty)) | Value::Const(Const::Float(_, ty)) => Ok(*ty),
            Value::Const(Const::Bool(_)) => Ok(Some(Elem::Bool)),
            other => Err(Diagnostic::new(156, site, format!("{} cannot be computed with", other.describe()))),
        };
        match (of(a)?, of(b)?) {
            (Some(x), Some(y)) if x == y => Ok(x),
            (Some(x), None) | (None, Some(x)) => Ok(x),
            (Some(x), Some(y)) => Err(Diagnostic::new(150, site, format!("a {x} meets a {y}"))
                .help(format!("conversions are written: `… as {x}` or `… as {y}`"))),
            (None, None) => Ok(Elem::U32),
        }
    }
}

fn is_arithmetic(op: &BinOp) -> bool {
    comparison(op, Elem::U32).is_none() && !matches!(op, BinOp::And(_) | BinOp::Or(_))
}

/// The type of a bitwise operation.
pub(super) fn logic(elem: Elem) -> Type {
    match elem {
        Elem::Bool => Type::Pred,
        _ => super::params::bits(elem),
    }
}

fn comparison(op: &BinOp, elem: Elem) -> Option<Compare> {
    Some(match op {
        BinOp::Eq(_) => Compare::Eq,
        // A NaN differs from everything.
        BinOp::Ne(_) if elem.is_float() => Compare::Neu,
        BinOp::Ne(_) => Compare::Ne,
        BinOp::Lt(_) => Compare::Lt,
        BinOp::Le(_) => Compare::Le,
        BinOp::Gt(_) => Compare::Gt,
        BinOp::Ge(_) => Compare::Ge,
        _ => return None,
    })
}
