//! Constants into operands, and conversions between types.

use super::Specialiser;
use super::params::{NO_RELU, arithmetic};
use super::range::{Range, multiple, power_of_two};
use super::site::Site;
use super::value::{Scalar, Value, class};
use crate::consteval::{self, Const, float};
use crate::diag::{Diagnostic, Result};
use crate::kir::{Uniform, when};
use kda_core::Elem;
use kda_ptx::modifier::{Compare, Round, Type};
use kda_ptx::operand::{DstAndPred, DstList, Src};
use kda_ptx::table::*;
use kda_ptx::{Class, Reg};
use proc_macro2::Span;

/// The bits of a value of `f16` or `bf16`; the value must be one of the type.
fn half_bits(value: f64, elem: Elem) -> u16 {
    if elem == Elem::BF16 {
        // The upper half of the f32, exactly; a NaN stays one.
        let bits = (value as f32).to_bits();
        return (bits >> 16) as u16 | if value.is_nan() { 0x40 } else { 0 };
    }
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    let magnitude = value.abs();
    let below = if magnitude.is_nan() {
        0x7e00
    } else if magnitude.is_infinite() {
        0x7c00
    } else if magnitude < 2f64.powi(-14) {
        // Subnormal: units of 2^-24.
        (magnitude * 2f64.powi(24)) as u16
    } else {
        let bits = magnitude.to_bits();
        ((((bits >> 52) as i32 - 1023 + 15) as u16) << 10) | (bits >> 42) as u16 & 0x3ff
    };
    sign | below
}

/// The PTX type of a conversion: unlike arithmetic, conversions know 8 bits.
fn converted(elem: Elem) -> Type {
    match elem {
        Elem::U8 => Type::U8,
        elem => arithmetic(elem),
    }
}

impl Specialiser<'_> {
    /// A value of type `elem` as a source operand; a constant must fit the type.
    pub(super) fn operand(&mut self, value: &Value, elem: Elem, site: Site<'_>) -> Result<Src> {
        match value {
            Value::Scalar(s) if s.elem == elem => Ok(s.src()),
            Value::Scalar(s) => Err(Diagnostic::new(150, site, format!("a {} where a {elem} is needed", s.elem))
                .help(format!("conversions are written: `… as {elem}`"))),
            Value::Const(Const::Bool(value)) if elem == Elem::Bool => {
                let compare = if *value { Compare::Eq } else { Compare::Ne };
                let reg = self.builder.prologue(Class::Pred, |dst| {
                    let dst = DstAndPred { dst: Some(dst), pred: None };
                    Setp { compare, ftz: Default::default(), ty: Type::U32, dst, a: Src::Imm(0), b: Src::Imm(0) }.into()
                });
                Ok(reg.into())
            }
            Value::Const(constant) => immediate(constant, elem, site),
            other => Err(Diagnostic::new(156, site, format!("{} where a {elem} is needed", other.describe()))),
        }
    }

    /// A value in a register; an untyped constant becomes `elem`, or `u32`, `i32` (if negative) or `f32`.
    pub(super) fn scalar(&mut self, value: &Value, elem: Option<Elem>, site: Site<'_>) -> Result<Scalar> {
        if let Value::Scalar(s) = value {
            return match elem {
                Some(elem) if elem != s.elem => self.operand(value, elem, site).map(|_| *s),
                _ => Ok(*s),
            };
        }
        let natural = match value {
            Value::Const(Const::Int(_, Some(ty)) | Const::Float(_, Some(ty))) => *ty,
            Value::Const(Const::Int(v, None)) if *v < 0 => Elem::I32,
            Value::Const(Const::Int(..)) => Elem::U32,
            Value::Const(Const::Float(..)) => Elem::F32,
            Value::Const(Const::Bool(_)) => Elem::Bool,
            other => return Err(Diagnostic::new(156, site, format!("{} is not a single number", other.describe()))),
        };
        let elem = elem.unwrap_or(natural);
        let src = self.operand(value, elem, site)?;
        if let Src::Reg(reg) = src {
            return Ok(Scalar::new(elem, reg, Uniform::Cta));
        }
        let ty = super::params::bits(elem);
        let mut scalar = self.builder.scalar(elem, Uniform::Cta, |dst| Mov { ty, dst, src: src.clone() }.into());
        scalar.multiple = multiple(value);
        if elem.is_integer() {
            scalar.range = Range::of(value, elem);
        }
        Ok(scalar)
    }

    /// `value as elem`
    pub(super) fn cast(&mut self, value: Value, elem: Elem, site: Site<'_>) -> Result<Value> {
        let from = match value {
            Value::Const(constant) => {
                let value = consteval::cast(&constant, elem, Span::call_site()).map_err(|error| error.placed(site))?;
                return Ok(Value::from_const(value));
            }
            Value::Array(items) => {
                return items.into_iter().map(|x| self.cast(x, elem, site)).collect::<Result<_>>().map(Value::Array);
            }
            Value::Scalar(scalar) => scalar,
            other => return Err(Diagnostic::new(156, site, format!("{} cannot be converted", other.describe()))),
        };
        if from.elem == elem {
            return Ok(Value::Scalar(from));
        }
        let cvt = |round: Option<Round>, to: Type, ty: Type| {
            move |dst| {
                let (ftz, sat) = (Default::default(), Default::default());
                Cvt { round, relu: NO_RELU, ftz, sat, to, from: ty, dst, a: from.src(), b: None }.into()
            }
        };
        let (to_ty, from_ty) = (converted(elem), converted(from.elem));
        let mut scalar = match (from.elem, elem) {
            (Elem::Bool, Elem::U32 | Elem::I32) => self.builder.scalar(elem, from.uniform, |dst| {
                Selp { ty: Type::B32, dst, a: Src::Imm(1), b: Src::Imm(0), pred: when(from.reg) }.into()
            }),
            // Same bits.
            (Elem::U32, Elem::I32) | (Elem::I32, Elem::U32) | (Elem::U64, Elem::I64) | (Elem::I64, Elem::U64) => {
                let kept = from.elem.bytes() == 4 && from.range.fits(elem);
                let range = if kept { from.range } else { Range::full(elem) };
                let multiple = if kept { from.multiple } else { power_of_two(from.multiple) };
                return Ok(Value::Scalar(Scalar { elem, range, multiple, ..from }));
            }
            // The upper half of an f32.
            (Elem::BF16, Elem::F32) if self.halves.contains_key(&from.reg) => {
                let (word, high) = self.halves[&from.reg];
                self.builder.scalar(elem, from.uniform, |dst| match high {
                    false => Shl { ty: Type::B32, dst, a: word.into(), b: Src::Imm(16) }.into(),
                    true => And { ty: Type::B32, dst, a: word.into(), b: Src::Imm(0xffff_0000) }.into(),
                })
            }
            (Elem::BF16, Elem::F32) => {
                let wide = self.builder.pure(Class::B32, cvt(None, Type::U32, Type::U16));
                self.builder.scalar(elem, from.uniform, |dst| {
                    Shl { ty: Type::B32, dst, a: wide.into(), b: Src::Imm(16) }.into()
                })
            }
            (Elem::F16, Elem::F32) | (Elem::F32, Elem::F64) => {
                self.builder.scalar(elem, from.uniform, cvt(None, to_ty, from_ty))
            }
            (Elem::F32, Elem::BF16 | Elem::F16) | (Elem::F64, Elem::F32) => {
                let message = format!("a {} becomes a {elem} by rounding, which is written", from.elem);
                return Err(Diagnostic::new(150, site, message).help(format!("write `{elem}::rn(…)`")));
            }
            (a, b) if a.is_integer() && b.is_integer() => {
                self.builder.scalar(elem, from.uniform, cvt(None, to_ty, from_ty))
            }
            (a, Elem::F32 | Elem::F64) if a.is_integer() => {
                self.builder.scalar(elem, from.uniform, cvt(Some(Round::Rn), to_ty, from_ty))
            }
            (Elem::F32 | Elem::F64, b) if b.is_integer() => {
                self.builder.scalar(elem, from.uniform, cvt(Some(Round::Rzi), to_ty, from_ty))
            }
            (a, b) => return Err(Diagnostic::new(156, site, format!("a {a} cannot become a {b}"))),
        };
        if from.elem.is_integer() && elem.is_integer() {
            let kept = from.elem.bytes() <= 4 && from.range.fits(elem);
            scalar.multiple = match kept {
                true => from.multiple,
                // Dropping bits keeps the lower ones.
                false => power_of_two(from.multiple).min(1 << (8 * elem.bytes() - 1)),
            };
            if kept && elem.bytes() <= 4 {
                scalar.range = from.range;
            }
        } else if from.elem == Elem::Bool {
            scalar.range = Range { least: 0, most: 1 };
        }
        Ok(Value::Scalar(scalar))
    }

    /// `elem::rn(value)`: to the nearest, ties to even.
    pub(super) fn round(&mut self, value: Value, elem: Elem, site: Site<'_>) -> Result<Value> {
        match value {
            Value::Array(items)
                if matches!(elem, Elem::BF16 | Elem::F16) && items.len() % 2 == 0 && in_registers(&items) =>
            {
                self.round_pairs(&items, elem, site).map(Value::Array)
            }
            Value::Array(items) => {
                items.into_iter().map(|x| self.round(x, elem, site)).collect::<Result<_>>().map(Value::Array)
            }
            Value::Const(Const::Float(v, None | Some(Elem::F32))) if elem.is_float() && elem != Elem::F64 => {
                // To f32 first, as the instruction takes one.
                let rounded = float::round(float::round(v, Elem::F32), elem);
                Ok(Value::Const(Const::Float(rounded, Some(elem))))
            }
            value => {
                if !matches!(elem, Elem::F32 | Elem::BF16 | Elem::F16) {
                    return Err(Diagnostic::new(156, site, format!("`rn` rounds to f32, bf16 or f16, not to {elem}")));
                }
                let uniform = value.uniform();
                let a = self.operand(&value, Elem::F32, site)?;
                if elem == Elem::F32 {
                    return Ok(value);
                }
                let to = arithmetic(elem);
                let scalar = self.builder.scalar(elem, uniform, |dst| {
                    let (ftz, sat) = (Default::default(), Default::default());
                    Cvt {
                        round: Some(Round::Rn),
                        relu: NO_RELU,
                        ftz,
                        sat,
                        to,
                        from: Type::F32,
                        dst,
                        a: a.clone(),
                        b: None,
                    }
                    .into()
                });
                Ok(Value::Scalar(scalar))
            }
        }
    }

    /// The same bits under another type of that width; a u32 as two 16-bit floats.
    pub(super) fn reinterpret(&mut self, value: Value, elem: Elem, site: Site<'_>) -> Result<Value> {
        let scalar = self.scalar(&value, None, site)?;
        if matches!((scalar.elem, elem), (Elem::U32, Elem::BF16 | Elem::F16)) {
            return Ok(Value::Array(self.halves_of(scalar, elem).to_vec()));
        }
        if class(scalar.elem) != class(elem) || scalar.elem.bytes() != elem.bytes() {
            let message = format!("a {} and a {elem} differ in width", scalar.elem);
            return Err(Diagnostic::new(156, site, message));
        }
        Ok(Value::Scalar(Scalar::new(elem, scalar.reg, scalar.uniform)))
    }
}

impl Specialiser<'_> {
    /// Registers and their type for a vector of so many elements: eight of 16 bits travel in four of 32.
    pub(super) fn vector_registers(elem: Elem, lanes: usize) -> (usize, Elem) {
        if elem.bytes() == 2 && lanes == 8 { (4, Elem::U32) } else { (lanes, elem) }
    }

    /// The elements in the registers of such a vector.
    pub(super) fn vector_elements(&mut self, regs: &[Reg], lanes: usize, elem: Elem, uniform: Uniform) -> Vec<Value> {
        let make = |reg: Reg| Value::Scalar(Scalar::new(elem, reg, uniform));
        if regs.len() == lanes {
            return regs.iter().map(|reg| make(*reg)).collect();
        }
        let mut items = Vec::with_capacity(lanes);
        for reg in regs {
            let halves: Vec<Reg> = (0..2).map(|_| self.builder.fresh(Class::B16)).collect();
            let dst = DstList(halves.iter().copied().map(Some).collect());
            self.builder.inst(Unpack { ty: Type::B32, dst, src: (*reg).into() });
            items.extend(halves.into_iter().map(make));
        }
        items
    }

    /// The operands of a vector store of these elements, and their type.
    pub(super) fn vector_operands(&mut self, operands: Vec<Src>, elem: Elem) -> (Vec<Src>, Elem) {
        let (count, unit) = Self::vector_registers(elem, operands.len());
        if count == operands.len() {
            return (operands, unit);
        }
        let pairs = operands.chunks(2).map(|pair| Src::Reg(self.pack_halves(pair[0].clone(), pair[1].clone())));
        (pairs.collect(), unit)
    }
}

/// True if all of these are numbers in registers.
fn in_registers(items: &[Value]) -> bool {
    items.iter().all(|x| matches!(x, Value::Scalar(s) if s.elem == Elem::F32))
}

/// A constant as an immediate of a type.
fn immediate(constant: &Const, elem: Elem, site: Site<'_>) -> Result<Src> {
    let mismatch = |given: String| {
        Err(Diagnostic::new(150, site, format!("{given} where a {elem} is needed"))
            .help(format!("write `… as {elem}`")))
    };
    match constant {
        Const::Int(value, written) => {
            if let Some(written) = written
                && *written != elem
            {
                return mismatch(format!("a {written}"));
            }
            let range = match elem {
                Elem::U8 => 0..=i128::from(u8::MAX),
                Elem::U16 => 0..=i128::from(u16::MAX),
                Elem::U32 => 0..=i128::from(u32::MAX),
                Elem::U64 => 0..=i128::from(u64::MAX),
                Elem::I32 => i128::from(i32::MIN)..=i128::from(i32::MAX),
                Elem::I64 => i128::from(i64::MIN)..=i128::from(i64::MAX),
                _ => return mismatch(format!("the integer {value}")),
            };
            if !range.contains(value) {
                return Err(Diagnostic::new(164, site, format!("{value} does not fit a {elem}")));
            }
            Ok(Src::Imm(*value as i64))
        }
        Const::Float(value, written) => {
            if let Some(written) = written
                && *written != elem
            {
                return mismatch(format!("a {written}"));
            }
            match elem {
                Elem::F32 => Ok(Src::f32(*value as f32)),
                Elem::F64 => Ok(Src::F64(value.to_bits())),
                Elem::BF16 | Elem::F16 => Ok(Src::Imm(half_bits(float::round(*value, elem), elem).into())),
                _ => mismatch(format!("the number {value}")),
            }
        }
        Const::Bool(value) => mismatch(format!("`{value}`")),
        _ => mismatch("this constant".into()),
    }
}
