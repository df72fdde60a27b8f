//! Pairs of 16-bit floats: two neighbours share a register, and instructions that round or multiply both at once.

use super::Specialiser;
use super::site::Site;
use super::value::{Scalar, Value};
use crate::consteval::Const;
use crate::diag::{Diagnostic, Result};
use crate::kir::Uniform;
use kda_core::Elem;
use kda_ptx::modifier::{Round, Type};
use kda_ptx::operand::{DstList, Src, SrcList};
use kda_ptx::table::*;
use kda_ptx::{Class, Reg};

impl Specialiser<'_> {
    /// Two neighbours with one instruction.
    pub(super) fn round_pairs(&mut self, items: &[Value], elem: Elem, site: Site<'_>) -> Result<Vec<Value>> {
        let to = if elem == Elem::BF16 { Type::Bf16x2 } else { Type::F16x2 };
        let mut out = Vec::with_capacity(items.len());
        for pair in items.chunks(2) {
            let (low, high) = (self.operand(&pair[0], Elem::F32, site)?, self.operand(&pair[1], Elem::F32, site)?);
            let both = self.builder.pure(Class::B32, |dst| {
                let (round, ftz, sat) = (Some(Round::Rn), Default::default(), Default::default());
                let (a, b) = (high.clone(), Some(low.clone()));
                Cvt { round, relu: Default::default(), ftz, sat, to, from: Type::F32, dst, a, b }.into()
            });
            let uniform = pair[0].uniform().max(pair[1].uniform());
            out.extend(self.halves_of(Scalar::new(Elem::U32, both, uniform), elem));
        }
        Ok(out)
    }

    /// The two 16-bit values of a register.
    pub(super) fn halves_of(&mut self, both: Scalar, elem: Elem) -> [Value; 2] {
        let halves = [self.builder.fresh(Class::B16), self.builder.fresh(Class::B16)];
        let dst = DstList(halves.map(Some).to_vec());
        self.builder.inst(Unpack { ty: Type::B32, dst, src: both.src() });
        self.halves.extend([(halves[0], (both.reg, false)), (halves[1], (both.reg, true))]);
        halves.map(|half| Value::Scalar(Scalar::new(elem, half, both.uniform)))
    }

    /// `pair.to_bits()` of two 16-bit floats: one u32, the first in the lower half.
    pub(super) fn bits_of_pair(&mut self, pair: &[Value], site: Site<'_>) -> Result<Value> {
        let elem = pair.iter().find_map(|x| match x {
            Value::Scalar(s) if matches!(s.elem, Elem::BF16 | Elem::F16) => Some(s.elem),
            Value::Const(Const::Float(_, Some(elem @ (Elem::BF16 | Elem::F16)))) => Some(*elem),
            _ => None,
        });
        let ([a, b], Some(elem)) = (pair, elem) else {
            return Err(Diagnostic::new(156, site, "`to_bits` takes a float, or two bf16 or f16"));
        };
        let (low, high) = (self.operand(a, elem, site)?, self.operand(b, elem, site)?);
        let uniform = a.uniform().max(b.uniform());
        Ok(Value::Scalar(Scalar::new(Elem::U32, self.pack_halves(low, high), uniform)))
    }

    /// Products of 16-bit floats, two with one instruction.
    pub(super) fn multiply_pairs(
        &mut self,
        a: &[Value],
        b: &[Value],
        elem: Elem,
        site: Site<'_>,
    ) -> Result<Vec<Value>> {
        self.has_products(elem, site)?;
        let ty = if elem == Elem::BF16 { Type::Bf16x2 } else { Type::F16x2 };
        let mut out = Vec::with_capacity(a.len());
        for (x, y) in a.chunks(2).zip(b.chunks(2)) {
            let uniform = x.iter().chain(y).map(Value::uniform).max().unwrap_or(Uniform::Thread);
            let mut word = |pair: &[Value]| -> Result<Reg> {
                let (low, high) = (self.operand(&pair[0], elem, site)?, self.operand(&pair[1], elem, site)?);
                Ok(self.pack_halves(low, high))
            };
            let (x, y) = (word(x)?, word(y)?);
            let both = self.builder.pure(Class::B32, |dst| {
                let (round, ftz, sat) = (Some(Round::Rn), Default::default(), Default::default());
                Mul { half: None, round, ftz, sat, ty, dst, a: x.into(), b: y.into() }.into()
            });
            out.extend(self.halves_of(Scalar::new(Elem::U32, both, uniform), elem));
        }
        Ok(out)
    }

    pub(super) fn has_products(&self, elem: Elem, site: Site<'_>) -> Result<()> {
        if elem == Elem::BF16 && !self.variant.arch.has(kda_core::Arch::SM_90) {
            return Err(Diagnostic::new(156, site, format!("products of bf16 on {}", self.variant.arch))
                .help("they exist from sm_90 on; write `bf16::rn(a as f32 * b as f32)`, which is the same"));
        }
        Ok(())
    }

    /// Two 16-bit values in one 32-bit register, the first in the lower half.
    pub(super) fn pack_halves(&mut self, low: Src, high: Src) -> Reg {
        if let (Src::Reg(a), Src::Reg(b)) = (&low, &high)
            && let (Some(&(first, from)), Some(&(second, to))) = (self.halves.get(a), self.halves.get(b))
        {
            if (first, from, to) == (second, false, true) {
                return first;
            }
            // One instruction for what ptxas would make of two moves, again at each use.
            let selector = if from { 0x32 } else { 0x10 } | if to { 0x7600 } else { 0x5400 };
            return self.builder.pure(Class::B32, |dst| {
                Prmt { dst, a: first.into(), b: second.into(), selector: Src::Imm(selector) }.into()
            });
        }
        // Only registers can be packed.
        let mut register = |src: Src| match src {
            Src::Reg(_) => src,
            other => self.builder.pure(Class::B16, |dst| Mov { ty: Type::B16, dst, src: other.clone() }.into()).into(),
        };
        let (low, high) = (register(low), register(high));
        self.builder
            .pure(Class::B32, |dst| Pack { ty: Type::B32, dst, src: SrcList(vec![low.clone(), high.clone()]) }.into())
    }
}

/// The type, if these are 16-bit floats, an even number of them.
pub(super) fn halves(items: &[Value]) -> Option<Elem> {
    let elem = |item: &Value| match item {
        Value::Scalar(s) if matches!(s.elem, Elem::BF16 | Elem::F16) => Some(s.elem),
        _ => None,
    };
    let first = elem(items.first()?)?;
    (items.len().is_multiple_of(2) && items.iter().all(|item| elem(item) == Some(first))).then_some(first)
}
