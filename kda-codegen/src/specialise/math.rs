//! Arithmetic functions, cache policies.

use super::Specialiser;
use super::params::arithmetic;
use super::range::{Range, multiple};
use super::site::Site;
use super::value::{Hint, Value, gcd};
use crate::consteval::{self, Const};
use crate::diag::{Diagnostic, Result};
use crate::kir::when;
use kda_core::Elem;
use kda_ptx::Class;
use kda_ptx::modifier::*;
use kda_ptx::operand::Src;
use kda_ptx::table::*;
use proc_macro2::Span;

impl Specialiser<'_> {
    pub(super) fn fma(&mut self, a: Value, b: Value, c: Value, site: Site<'_>) -> Result<Value> {
        if let Some(n) =
            [&a, &b, &c].iter().find_map(|v| if let Value::Array(items) = v { Some(items.len()) } else { None })
        {
            let spread = |v: Value| match v {
                Value::Array(items) if items.len() == n => Ok(items),
                Value::Array(items) => Err(Diagnostic::new(
                    156,
                    site,
                    format!("arrays of {n} and {} elements do not go together", items.len()),
                )),
                one => Ok(vec![one; n]),
            };
            let (a, b, c) = (spread(a)?, spread(b)?, spread(c)?);
            let items = a.into_iter().zip(b).zip(c).map(|((a, b), c)| self.fma(a, b, c, site));
            return items.collect::<Result<_>>().map(Value::Array);
        }
        if [&a, &b, &c].iter().any(|v| matches!(v, Value::Frag(_))) {
            return self.fragment_fma(a, b, c, site);
        }
        let real = |v: &Value| matches!(v, Value::Const(Const::Float(_, None)));
        let elem = match (real(&a), real(&b), real(&c)) {
            (true, true, true) => Elem::F32,
            (true, true, false) => self.common(&a, &c, site)?,
            _ => self.common(&a, &b, site)?,
        };
        if !matches!(elem, Elem::F32 | Elem::F64) {
            return Err(Diagnostic::new(156, site, format!("`fma` takes f32 or f64, not {elem}")));
        }
        let uniform = a.uniform().max(b.uniform()).max(c.uniform());
        let (x, y, z) = (self.operand(&a, elem, site)?, self.operand(&b, elem, site)?, self.operand(&c, elem, site)?);
        let ty = arithmetic(elem);
        Ok(Value::Scalar(self.builder.scalar(elem, uniform, |dst| {
            let (ftz, sat) = (Default::default(), Default::default());
            Fma { round: Round::Rn, ftz, sat, ty, dst, a: x.clone(), b: y.clone(), c: z.clone() }.into()
        })))
    }

    pub(super) fn extremum(&mut self, smaller: bool, a: Value, b: Value, site: Site<'_>) -> Result<Value> {
        if let (Some(x), Some(y)) = (a.as_const(), b.as_const()) {
            let value = consteval::call(if smaller { "min" } else { "max" }, &[x, y], Span::call_site());
            return value.map(Value::from_const).map_err(|error| error.placed(site));
        }
        let elem = self.common(&a, &b, site)?;
        if !matches!(elem, Elem::F32 | Elem::F64 | Elem::U32 | Elem::I32 | Elem::U64 | Elem::I64) {
            return Err(Diagnostic::new(156, site, format!("`min` and `max` do not take a {elem}")));
        }
        let uniform = a.uniform().max(b.uniform());
        let (x, y) = (self.operand(&a, elem, site)?, self.operand(&b, elem, site)?);
        let (ftz, nan, ty) = (Ftz(false), Nan(false), arithmetic(elem));
        let mut scalar = self.builder.scalar(elem, uniform, |dst| match smaller {
            true => Min { ftz, nan, ty, dst, a: x.clone(), b: y.clone() }.into(),
            false => Max { ftz, nan, ty, dst, a: x.clone(), b: y.clone() }.into(),
        });
        if elem.is_integer() {
            let (x, y) = (Range::of(&a, elem), Range::of(&b, elem));
            scalar.range = match smaller {
                true => Range { least: x.least.min(y.least), most: x.most.min(y.most) },
                false => Range { least: x.least.max(y.least), most: x.most.max(y.most) },
            };
            scalar.multiple = gcd(multiple(&a), multiple(&b)).max(1);
        }
        Ok(Value::Scalar(scalar))
    }

    /// `select(condition, a, b)`: both sides are computed, no branch.
    pub(super) fn select(&mut self, condition: Value, a: Value, b: Value, site: Site<'_>) -> Result<Value> {
        match (&condition, &a, &b) {
            (Value::Const(Const::Bool(c)), ..) => return Ok(if *c { a } else { b }),
            (_, Value::Array(x), Value::Array(y)) if x.len() == y.len() => {
                let pairs: Vec<_> = x.iter().cloned().zip(y.iter().cloned()).collect();
                let items = pairs.into_iter().map(|(x, y)| self.select(condition.clone(), x, y, site));
                return items.collect::<Result<_>>().map(Value::Array);
            }
            _ => {}
        }
        if a == b {
            return Ok(a);
        }
        if let (Value::Global(x), Value::Global(y)) = (&a, &b) {
            let condition = self.scalar(&condition, Some(Elem::Bool), site)?;
            return self.pick_view(condition, (**x).clone(), (**y).clone(), site);
        }
        let elem = self.joined_elem(&a, &b, site)?;
        let condition = self.scalar(&condition, Some(Elem::Bool), site)?;
        let uniform = condition.uniform.max(a.uniform()).max(b.uniform());
        let (x, y) = (self.operand(&a, elem, site)?, self.operand(&b, elem, site)?);
        if elem == Elem::Bool {
            let pick = |this: &mut Self, p: kda_ptx::Reg, v: Src| {
                this.builder.pure(Class::Pred, |dst| And { ty: Type::Pred, dst, a: p.into(), b: v.clone() }.into())
            };
            let not = self.builder.pure(Class::Pred, |dst| Not { ty: Type::Pred, dst, a: condition.src() }.into());
            let (x, y) = (pick(self, condition.reg, x), pick(self, not, y));
            return Ok(Value::Scalar(
                self.builder.scalar(elem, uniform, |dst| Or { ty: Type::Pred, dst, a: x.into(), b: y.into() }.into()),
            ));
        }
        let ty = super::params::bits(elem);
        let pred = when(condition.reg);
        let mut scalar =
            self.builder.scalar(elem, uniform, |dst| Selp { ty, dst, a: x.clone(), b: y.clone(), pred }.into());
        if elem.is_integer() {
            scalar.multiple = gcd(multiple(&a), multiple(&b)).max(1);
            scalar.range = Range::of(&a, elem).join(Range::of(&b, elem));
        }
        Ok(Value::Scalar(scalar))
    }

    pub(super) fn abs(&mut self, a: Value, site: Site<'_>) -> Result<Value> {
        match a {
            Value::Const(Const::Float(v, ty)) => Ok(Value::Const(Const::Float(v.abs(), ty))),
            Value::Const(Const::Int(v, ty)) => consteval::fit(v.saturating_abs(), ty, Span::call_site())
                .map(Value::Const)
                .map_err(|error| error.placed(site)),
            Value::Array(items) => {
                items.into_iter().map(|x| self.abs(x, site)).collect::<Result<_>>().map(Value::Array)
            }
            Value::Scalar(s) if matches!(s.elem, Elem::F32 | Elem::F64 | Elem::I32 | Elem::I64) => {
                let ty = arithmetic(s.elem);
                Ok(Value::Scalar(
                    self.builder.scalar(s.elem, s.uniform, |dst| Abs { ftz: Ftz(false), ty, dst, a: s.src() }.into()),
                ))
            }
            other => Err(Diagnostic::new(156, site, format!("`abs` does not take {}", other.describe()))),
        }
    }

    /// An approximation of the hardware on f32; subnormal inputs and results count as zero.
    pub(super) fn approximate(&mut self, name: &str, a: Value, site: Site<'_>) -> Result<Value> {
        if let Value::Array(items) = a {
            return items.into_iter().map(|x| self.approximate(name, x, site)).collect::<Result<_>>().map(Value::Array);
        }
        let uniform = a.uniform();
        let a = self.operand(&a, Elem::F32, site)?;
        let (ftz, ty) = (Ftz(true), Type::F32);
        Ok(Value::Scalar(self.builder.scalar(Elem::F32, uniform, |dst| match name {
            "ex2_approx" => Ex2 { ftz, ty, dst, a: a.clone() }.into(),
            "rcp_approx" => Rcp { accuracy: Accuracy::Approx, ftz, ty, dst, a: a.clone() }.into(),
            "rsqrt_approx" => Rsqrt { ftz, ty, dst, a: a.clone() }.into(),
            "sqrt_approx" => Sqrt { accuracy: Accuracy::Approx, ftz, ty, dst, a: a.clone() }.into(),
            "lg2_approx" => Lg2 { ftz, ty, dst, a: a.clone() }.into(),
            _ => Tanh { ty, dst, a: a.clone() }.into(),
        })))
    }

    pub(super) fn policy(&mut self, policy: L2Policy) -> kda_ptx::Reg {
        self.builder.prologue(Class::B64, |dst| {
            CreatePolicy { policy, ty: Type::B64, dst, fraction: Some(Src::f32(1.0)) }.into()
        })
    }

    pub(super) fn evict_first_if(&mut self, condition: Value, site: Site<'_>) -> Result<Value> {
        let (first, normal) = (self.policy(L2Policy::EvictFirst), self.policy(L2Policy::EvictNormal));
        let policy = match condition {
            Value::Const(Const::Bool(true)) => first,
            Value::Const(Const::Bool(false)) => normal,
            other => {
                let pred = when(self.scalar(&other, Some(Elem::Bool), site)?.reg);
                self.builder
                    .pure(Class::B64, |dst| Selp { ty: Type::B64, dst, a: first.into(), b: normal.into(), pred }.into())
            }
        };
        Ok(Value::Hint(Hint { policy: Some(policy), ..Hint::default() }))
    }
}

/// The policy of that name.
pub(super) fn policy(name: &str) -> L2Policy {
    match name {
        "l2::evict_first" => L2Policy::EvictFirst,
        "l2::evict_last" => L2Policy::EvictLast,
        "l2::evict_unchanged" => L2Policy::EvictUnchanged,
        _ => L2Policy::EvictNormal,
    }
}

/// How much a load with that hint brings into L2.
pub(super) fn prefetch(name: &str) -> Option<L2Prefetch> {
    match name {
        "l2::prefetch_64" => Some(L2Prefetch::B64),
        "l2::prefetch_128" => Some(L2Prefetch::B128),
        "l2::prefetch_256" => Some(L2Prefetch::B256),
        _ => None,
    }
}
