//! Where control joins: values that differ get a register.

use super::Specialiser;
use super::params::bits;
use super::pipeline::Slot;
use super::range::{Range, multiple};
use super::site::Site;
use super::value::{Scalar, Value, class, gcd};
use crate::consteval::Const;
use crate::diag::{Diagnostic, Result};
use crate::kir::Uniform;
use kda_core::Elem;
use kda_ptx::Reg;
use kda_ptx::modifier::{Compare, Type};
use kda_ptx::operand::DstAndPred;
use kda_ptx::operand::{PredSrc, Src};
use kda_ptx::table::{Mov, Selp, Setp};

/// A copy into the register of a join: destination, and what goes there.
pub(super) type Copy = (Scalar, Value);

impl Specialiser<'_> {
    /// One value for two sides; `a_copies` and `b_copies` are to run at the end of each side.
    pub(super) fn join(
        &mut self,
        a: &Value,
        b: &Value,
        uniform: Uniform,
        copies: &mut (Vec<Copy>, Vec<Copy>),
        site: Site<'_>,
    ) -> Result<Value> {
        if a == b {
            return Ok(a.clone());
        }
        match (a, b) {
            (Value::Array(x), Value::Array(y)) if x.len() == y.len() => {
                let items = x.iter().zip(y).map(|(x, y)| self.join(x, y, uniform, copies, site));
                items.collect::<Result<_>>().map(Value::Array)
            }
            (Value::Tuple(x), Value::Tuple(y)) if x.len() == y.len() => {
                let items = x.iter().zip(y).map(|(x, y)| self.join(x, y, uniform, copies, site));
                items.collect::<Result<_>>().map(Value::Tuple)
            }
            (Value::Frag(x), Value::Frag(y)) if x.alike(y) => {
                let blocks = x.blocks.iter().zip(&y.blocks).map(|(x, y)| self.join(x, y, uniform, copies, site));
                let blocks = blocks.collect::<Result<_>>()?;
                Ok(Value::Frag(Box::new(x.with(x.kind, blocks))))
            }
            // Either side holds one stage; which one, the joined stage says.
            (Value::Slot(x), Value::Slot(y)) if (x.ring, x.side) == (y.ring, y.side) => {
                let stage = self.join(&x.stage, &y.stage, uniform, copies, site)?;
                Ok(Value::Slot(Box::new(Slot { stage, ..**x })))
            }
            (Value::Const(_) | Value::Scalar(_), Value::Const(_) | Value::Scalar(_)) => {
                let elem = self.joined_elem(a, b, site)?;
                let uniform = uniform.max(a.uniform()).max(b.uniform());
                let reg = self.builder.fresh(class(elem));
                let mut scalar = Scalar::new(elem, reg, uniform);
                if elem.is_integer() {
                    scalar.multiple = gcd(multiple(a), multiple(b)).max(1);
                    scalar.range = Range::of(a, elem).join(Range::of(b, elem));
                }
                copies.0.push((scalar, a.clone()));
                copies.1.push((scalar, b.clone()));
                Ok(Value::Scalar(scalar))
            }
            _ => {
                let message = format!("one side gives {}, the other {}", a.describe(), b.describe());
                let help = match (a, b) {
                    (Value::Acc(_), Value::Acc(_)) => {
                        "declare an accumulator ahead of the branch, and assign to it on each side"
                    }
                    _ => {
                        "a value that differs between runtime branches must be a number, or an array or tuple of numbers"
                    }
                };
                Err(Diagnostic::new(163, site, message).help(help))
            }
        }
    }

    /// The type of a value that is one of two.
    pub(super) fn joined_elem(&self, a: &Value, b: &Value, site: Site<'_>) -> Result<Elem> {
        if let (Value::Const(Const::Float(_, None)), Value::Const(Const::Float(_, None))) = (a, b) {
            return Ok(Elem::F32);
        }
        if let (Some(x), Some(y)) = (a.as_int(), b.as_int())
            && (x < 0 || y < 0)
            && matches!((a, b), (Value::Const(Const::Int(_, None)), Value::Const(Const::Int(_, None))))
        {
            return Ok(Elem::I32);
        }
        self.common(a, b, site)
    }

    /// A value in a loop: `now` at the start of a trip, `after` at its end. Leaves that change get a register, which is
    /// listed in `phis` with its value ahead of the loop. True in `changed` if another trial is needed.
    pub(super) fn widen(
        &mut self,
        now: &Value,
        after: &Value,
        uniform: Uniform,
        phis: &mut Vec<Copy>,
        changed: &mut bool,
        site: Site<'_>,
    ) -> Result<Value> {
        if now == after {
            return Ok(now.clone());
        }
        match (now, after) {
            (Value::Array(x), Value::Array(y)) if x.len() == y.len() => {
                let items = x.iter().zip(y).map(|(x, y)| self.widen(x, y, uniform, phis, changed, site));
                items.collect::<Result<_>>().map(Value::Array)
            }
            (Value::Tuple(x), Value::Tuple(y)) if x.len() == y.len() => {
                let items = x.iter().zip(y).map(|(x, y)| self.widen(x, y, uniform, phis, changed, site));
                items.collect::<Result<_>>().map(Value::Tuple)
            }
            (Value::Frag(x), Value::Frag(y)) if x.alike(y) => {
                let pairs = x.blocks.iter().zip(&y.blocks);
                let blocks = pairs.map(|(x, y)| self.widen(x, y, uniform, phis, changed, site));
                let blocks = blocks.collect::<Result<_>>()?;
                Ok(Value::Frag(Box::new(x.with(x.kind, blocks))))
            }
            // The stage that is held at the end of a trip is the one that the next trip begins with.
            (Value::Slot(x), Value::Slot(y)) if (x.ring, x.side) == (y.ring, y.side) => {
                let stage = self.widen(&x.stage, &y.stage, uniform, phis, changed, site)?;
                Ok(Value::Slot(Box::new(Slot { stage, ..**x })))
            }
            (Value::Const(_) | Value::Scalar(_), Value::Const(_) | Value::Scalar(_)) => {
                let known = match now {
                    Value::Scalar(s) => phis.iter_mut().find(|(phi, _)| phi.reg == s.reg),
                    _ => None,
                };
                if let Some((phi, _)) = known {
                    if let Value::Scalar(after) = after
                        && after.elem != phi.elem
                    {
                        return Err(Diagnostic::new(
                            163,
                            site,
                            format!("a {} becomes a {} in the loop", phi.elem, after.elem),
                        ));
                    }
                    let joined = Scalar {
                        uniform: phi.uniform.max(after.uniform()).max(uniform),
                        multiple: gcd(phi.multiple, multiple(after)).max(1),
                        ..*phi
                    };
                    *changed |= joined != *phi;
                    *phi = joined;
                    return Ok(Value::Scalar(joined));
                }
                let elem = self.joined_elem(now, after, site)?;
                let reg = self.builder.fresh(class(elem));
                let uniform = uniform.max(now.uniform()).max(after.uniform());
                let multiple = gcd(multiple(now), multiple(after)).max(1);
                let scalar = Scalar { multiple, ..Scalar::new(elem, reg, uniform) };
                phis.push((scalar, now.clone()));
                *changed = true;
                Ok(Value::Scalar(scalar))
            }
            _ => {
                let (from, to) = (now.describe(), after.describe());
                let to = if from == to { "another".into() } else { to };
                let message = format!("{from} becomes {to} in a runtime loop");
                Err(Diagnostic::new(162, site, message)
                    .help("only numbers, and arrays and tuples of numbers, may change in a runtime loop"))
            }
        }
    }

    /// The copies of a loop's end: each changing register with its value of the next trip.
    pub(super) fn next_values(now: &Value, after: &Value, phis: &[Copy], out: &mut Vec<Copy>) {
        match (now, after) {
            (Value::Array(x), Value::Array(y)) | (Value::Tuple(x), Value::Tuple(y)) => {
                x.iter().zip(y).for_each(|(x, y)| Self::next_values(x, y, phis, out));
            }
            (Value::Frag(x), Value::Frag(y)) => {
                x.blocks.iter().zip(&y.blocks).for_each(|(x, y)| Self::next_values(x, y, phis, out));
            }
            (Value::Slot(x), Value::Slot(y)) => Self::next_values(&x.stage, &y.stage, phis, out),
            (Value::Scalar(s), after) => {
                if let Some((phi, _)) = phis.iter().find(|(phi, _)| phi.reg == s.reg)
                    && now != after
                {
                    out.push((*phi, after.clone()));
                }
            }
            _ => {}
        }
    }

    /// Emits copies that happen at once.
    pub(super) fn copy_all(&mut self, copies: &[Copy], site: Site<'_>) -> Result<()> {
        let written: Vec<Reg> = copies.iter().map(|(dst, _)| dst.reg).collect();
        let mut ready = Vec::with_capacity(copies.len());
        for (dst, value) in copies {
            let mut src = self.operand(value, dst.elem, site)?;
            // A source that is itself written goes through a register of its own.
            if let Src::Reg(reg) = src
                && reg != dst.reg
                && written.contains(&reg)
            {
                let spare = self.builder.fresh(reg.class);
                self.move_into(Scalar { reg: spare, ..*dst }, src);
                src = spare.into();
            }
            ready.push((*dst, src));
        }
        for (dst, src) in ready {
            if src != Src::Reg(dst.reg) {
                self.move_into(dst, src);
            }
        }
        Ok(())
    }

    /// `dst = src` in a register that is written more than once.
    pub(super) fn move_into(&mut self, dst: Scalar, src: Src) {
        if dst.elem == Elem::Bool {
            if let Src::Reg(reg) = src {
                // PTX has no move between predicates of its own: go through 0 and 1.
                let number = self.builder.fresh(kda_ptx::Class::B32);
                let pred = PredSrc { reg, negated: false };
                self.builder.inst(Selp { ty: Type::B32, dst: number, a: Src::Imm(1), b: Src::Imm(0), pred });
                self.builder.inst(Setp {
                    compare: Compare::Ne,
                    ftz: Default::default(),
                    ty: Type::U32,
                    dst: DstAndPred { dst: Some(dst.reg), pred: None },
                    a: number.into(),
                    b: Src::Imm(0),
                });
            }
            return;
        }
        self.builder.inst(Mov { ty: bits(dst.elem), dst: dst.reg, src });
    }
}
