//! What is known about integers in registers: an interval, a divisor, and a sum of another register and a constant.
//!
//! Integers of registers wrap. A fact is kept only where it survives that: an interval where the exact result fits the
//! type, a divisor that is no power of two where nothing can wrap.

use super::Specialiser;
use super::value::{Scalar, Value, gcd};
use kda_core::Elem;
use kda_ptx::Reg;
use syn::BinOp;

/// An interval that holds a value of an integer type. Values of 64 bits have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Least value.
    pub least: i64,
    /// Greatest value.
    pub most: i64,
}

impl Range {
    /// All values of a type.
    pub fn full(elem: Elem) -> Range {
        let (least, most) = match elem {
            Elem::U8 => (0, u8::MAX.into()),
            Elem::U16 => (0, u16::MAX.into()),
            Elem::U32 => (0, u32::MAX.into()),
            Elem::I32 => (i32::MIN.into(), i32::MAX.into()),
            _ => (i64::MIN, i64::MAX),
        };
        Range { least, most }
    }

    /// True if every value of it is one of the type.
    pub fn fits(self, elem: Elem) -> bool {
        let full = Range::full(elem);
        full.least <= self.least && self.most <= full.most
    }

    /// One value.
    fn one(value: i128) -> Option<Range> {
        let value = i64::try_from(value).ok()?;
        Some(Range { least: value, most: value })
    }

    /// The interval of a value that is computed with as `elem`.
    pub fn of(value: &Value, elem: Elem) -> Range {
        match value {
            Value::Scalar(s) => s.range,
            other => other.as_int().and_then(Range::one).unwrap_or(Range::full(elem)),
        }
    }

    /// Both of them.
    pub fn join(self, other: Range) -> Range {
        Range { least: self.least.min(other.least), most: self.most.max(other.most) }
    }

    /// The interval of `a op b` in a type of at most 32 bits, if the result does not wrap.
    pub fn binary(op: &BinOp, a: Range, b: Range, elem: Elem) -> Range {
        let full = Range::full(elem);
        if elem.bytes() > 4 || !elem.is_integer() {
            return full;
        }
        let corners = |f: fn(i64, i64) -> i64| {
            let all = [f(a.least, b.least), f(a.least, b.most), f(a.most, b.least), f(a.most, b.most)];
            let (least, most) = all.iter().fold((all[0], all[0]), |(l, m), x| (l.min(*x), m.max(*x)));
            Range { least, most }
        };
        let natural = a.least >= 0 && b.least >= 0;
        // Operands are of 32 bits, so nothing overflows here.
        let result = match op {
            BinOp::Add(_) => Range { least: a.least + b.least, most: a.most + b.most },
            BinOp::Sub(_) => Range { least: a.least - b.most, most: a.most - b.least },
            BinOp::Mul(_) => corners(|x, y| x.saturating_mul(y)),
            BinOp::Div(_) if b.least > 0 => corners(|x, y| x / y),
            BinOp::Rem(_) if b.least > 0 && a.least >= 0 => Range { least: 0, most: a.most.min(b.most - 1) },
            BinOp::BitAnd(_) if natural => Range { least: 0, most: a.most.min(b.most) },
            BinOp::BitOr(_) | BinOp::BitXor(_) if natural => {
                let bits = 64 - (a.most | b.most).leading_zeros();
                Range { least: 0, most: (1i64 << bits) - 1 }
            }
            BinOp::Shl(_) if b.least == b.most && (0..32).contains(&b.least) => {
                corners(|x, y| x.saturating_mul(1 << y))
            }
            BinOp::Shr(_) if b.least == b.most && (0..32).contains(&b.least) => corners(|x, y| x >> y),
            _ => full,
        };
        if result.fits(elem) { result } else { full }
    }
}

/// The greatest power of two that divides `of`; 0, which everything divides, stays 0.
pub fn power_of_two(of: u64) -> u64 {
    of & of.wrapping_neg()
}

/// The known divisor of a value; 0 if it is 0.
pub fn multiple(value: &Value) -> u64 {
    match value {
        Value::Scalar(s) => s.multiple,
        other => other.as_int().map_or(1, |i| u64::try_from(i.unsigned_abs()).unwrap_or(1)),
    }
}

/// The divisor of `a op b`, whose interval is `range`.
pub fn multiple_of(op: &BinOp, a: &Value, b: &Value, range: Range, elem: Elem) -> u64 {
    let (m, n) = (multiple(a), multiple(b));
    // Whatever wraps by a power of two keeps the powers of two.
    let kept = |m: u64| if range == Range::full(elem) { power_of_two(m) } else { m };
    match op {
        BinOp::Add(_) | BinOp::Sub(_) => kept(gcd(m, n)).max(1),
        BinOp::Mul(_) => kept(m.checked_mul(n).unwrap_or_else(|| power_of_two(m))).max(1),
        BinOp::Div(_) if b.as_int().is_some() && n > 0 && m.is_multiple_of(n) => (m / n).max(1),
        BinOp::Rem(_) => gcd(m, n).max(1),
        BinOp::BitAnd(_) => power_of_two(m).max(power_of_two(n)).max(1),
        _ => 1,
    }
}

/// A register that is another one plus a constant, without wrapping.
#[derive(Clone, Copy, Debug)]
pub(super) struct Affine {
    base: Reg,
    add: i128,
    /// Read as signed numbers; the sum may be read either way if neither it nor the base is ever negative.
    signed: bool,
    natural: bool,
}

impl Specialiser<'_> {
    /// Remembers `reg = a op b` where that is a register plus a constant.
    pub(super) fn note_affine(&mut self, op: &BinOp, a: &Value, b: &Value, elem: Elem, reg: Reg) {
        let (base, add) = match (op, a, b) {
            (BinOp::Add(_), Value::Scalar(s), c) | (BinOp::Add(_), c, Value::Scalar(s)) => (*s, c.as_int()),
            (BinOp::Sub(_), Value::Scalar(s), c) => (*s, c.as_int().map(|c| -c)),
            _ => return,
        };
        let Some(add) = add.and_then(|add| i64::try_from(add).ok()) else { return };
        let (first, sum) = self.modular.get(&base.reg).copied().unwrap_or((base.reg, 0));
        self.modular.entry(reg).or_insert((first, sum.wrapping_add(add)));
        if elem.bytes() == 8 {
            // Addresses have 64 bits too: they wrap alike.
            let entry =
                Affine { base: first, add: sum.wrapping_add(add).into(), signed: elem.is_signed(), natural: true };
            self.affine.entry(reg).or_insert(entry);
            return;
        }
        let (least, most) = (base.range.least.saturating_add(add), base.range.most.saturating_add(add));
        let exact = Range { least, most }.fits(elem);
        // Below zero an unsigned number is past the end of every axis, so there is no access to get wrong.
        let past_the_end = !elem.is_signed() && (i64::from(i32::MIN)..0).contains(&add);
        if !exact && !past_the_end {
            return;
        }
        let natural = least >= 0 && base.range.least >= 0 && most.max(base.range.most) <= i32::MAX.into();
        let mut entry = Affine { base: base.reg, add: add.into(), signed: elem.is_signed(), natural };
        if let Some(before) = self.affine.get(&base.reg).filter(|x| x.natural || x.signed == elem.is_signed()) {
            entry.base = before.base;
            entry.add += before.add;
            entry.natural &= before.natural;
        }
        self.affine.entry(reg).or_insert(entry);
    }

    /// Remembers that `to` is `x` shifted left by `bits`, where `shift` shifts the base of `x`.
    pub(super) fn note_shifted(&mut self, x: Scalar, bits: u32, to: Scalar, shift: impl FnOnce(&mut Self, Reg) -> Reg) {
        let Some(before) = self.affine.get(&x.reg).copied() else { return };
        if self.affine.contains_key(&to.reg) {
            return;
        }
        if x.elem.bytes() == 8 {
            let base = shift(self, before.base);
            let add = (before.add as i64).wrapping_shl(bits);
            self.affine.insert(to.reg, Affine { base, add: add.into(), ..before });
        } else if to.range != Range::full(to.elem) && before.natural && before.add > 0 {
            // The base is smaller than the sum, so its shift does not wrap either.
            let base = shift(self, before.base);
            let natural = to.range.most <= i32::MAX.into();
            self.affine.insert(to.reg, Affine { base, add: before.add << bits, natural, ..before });
        }
    }

    /// An integer as a register and a constant: their exact sum.
    pub(super) fn split(&self, scalar: Scalar) -> (Reg, i128) {
        match self.affine.get(&scalar.reg) {
            Some(x) if x.natural || x.signed == scalar.elem.is_signed() => (x.base, x.add),
            _ => (scalar.reg, 0),
        }
    }

    /// `end - start`, if it is known. Both may have wrapped alike.
    pub(super) fn distance(&self, start: Option<&Value>, end: &Value) -> Option<u64> {
        let parts = |v: &Value| match v {
            Value::Scalar(s) => {
                let (base, add) = self.modular.get(&s.reg).copied().unwrap_or((s.reg, 0));
                Some((Some(base), i128::from(add)))
            }
            other => other.as_int().map(|i| (None, i)),
        };
        let (a, b) = (start.map_or(Some((None, 0)), parts)?, parts(end)?);
        if a.0 == b.0 { b.1.checked_sub(a.1).and_then(|d| u64::try_from(d).ok()) } else { None }
    }
}
