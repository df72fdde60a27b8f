//! Forms that several rows of the instruction table share: one source, two, comparisons, mbarriers, atomics; and how
//! orders and scopes of the text become those of the simulator.

use super::decode::Decoded;
use super::op::{Kind, Logic, MbarrierOp, MemOrder, MemScope, NONE};
use super::{Decoder, LoadError};
use crate::alu::lanes::{Args, Build, CompareFn, LaneFn};
use kda_ptx::modifier::*;
use kda_ptx::operand::{Address, DstAndPred, PredSrc, Reg, Src};

pub(super) fn mem_order(order: Option<Order>, default: MemOrder) -> MemOrder {
    match order {
        None => default,
        Some(Order::Relaxed) => MemOrder::Relaxed,
        Some(Order::Acquire) => MemOrder::Acquire,
        Some(Order::Release) => MemOrder::Release,
        Some(Order::AcqRel) => MemOrder::AcqRel,
    }
}

pub(super) fn mem_scope(scope: Option<Scope>, default: MemScope) -> MemScope {
    match scope {
        None => default,
        Some(Scope::Cta) => MemScope::Cta,
        Some(Scope::Cluster) => MemScope::Cluster,
        Some(Scope::Gpu | Scope::Sys) => MemScope::Gpu,
    }
}

pub(super) fn strength(strength: Option<Strength>) -> MemOrder {
    match strength {
        None | Some(Strength::Weak) => MemOrder::Weak,
        Some(Strength::Relaxed | Strength::Volatile) => MemOrder::Relaxed,
        Some(Strength::Acquire) => MemOrder::Acquire,
        Some(Strength::Release) => MemOrder::Release,
        Some(Strength::AcqRel) => MemOrder::AcqRel,
    }
}

pub(super) fn logic(combine: Combine) -> Logic {
    match combine {
        Combine::And => Logic::And,
        Combine::Or => Logic::Or,
        Combine::Xor => Logic::Xor,
    }
}

impl Decoder<'_> {
    pub(super) fn push_alu(&mut self, f: Build<LaneFn>, args: Args) -> Decoded {
        let f = f.choose(self.vector);
        self.push(Kind::Alu { f, args });
        Ok(())
    }

    /// One source of `from` bits to a destination of `to` bits.
    pub(super) fn unary(&mut self, f: Build<LaneFn>, to: u32, from: u32, dst: Reg, a: &Src, aux: u32) -> Decoded {
        let (d, a) = (self.dst(dst, to)?, self.src(a, from)?);
        self.push_alu(f, Args { d, a, b: a, c: a, aux })
    }

    /// Two sources; the third register is the first again.
    pub(super) fn binary(&mut self, f: Build<LaneFn>, bits: [u32; 3], dst: Reg, a: &Src, b: &Src, aux: u32) -> Decoded {
        let (d, a, b) = (self.dst(dst, bits[0])?, self.src(a, bits[1])?, self.src(b, bits[2])?);
        self.push_alu(f, Args { d, a, b, c: a, aux })
    }

    /// Three sources.
    pub(super) fn ternary(
        &mut self,
        f: Build<LaneFn>,
        bits: [u32; 4],
        dst: Reg,
        [a, b, c]: [&Src; 3],
        aux: u32,
    ) -> Decoded {
        let d = self.dst(dst, bits[0])?;
        let (a, b, c) = (self.src(a, bits[1])?, self.src(b, bits[2])?, self.src(c, bits[3])?);
        self.push_alu(f, Args { d, a, b, c, aux })
    }

    pub(super) fn optional(&self, reg: Option<Reg>, bits: u32) -> Result<u16, LoadError> {
        reg.map_or(Ok(NONE), |r| self.dst(r, bits))
    }

    pub(super) fn optional_pred(&self, reg: Option<Reg>) -> Result<u16, LoadError> {
        reg.map_or(Ok(NONE), |r| self.pred(r))
    }

    pub(super) fn pred_src(&mut self, src: &Src) -> Result<u16, LoadError> {
        match src {
            Src::Reg(reg) => self.pred(*reg),
            _ => Err(self.operand_error("a predicate register is needed")),
        }
    }

    pub(super) fn pred_logic(&mut self, op: Logic, dst: Reg, a: &Src, b: &Src) -> Decoded {
        let (d, a, b) = (self.pred(dst)?, self.pred_src(a)?, self.pred_src(b)?);
        self.push(Kind::PredLogic { op, d, a, b });
        Ok(())
    }

    pub(super) fn compare(
        &mut self,
        f: Build<CompareFn>,
        bits: u32,
        dst: &DstAndPred,
        [a, b]: [&Src; 2],
        aux: u32,
        combine: Option<(Logic, PredSrc)>,
    ) -> Decoded {
        // `setp` names its predicates where other instructions name a register and a predicate.
        let (d, c) = (self.optional_pred(dst.dst)?, self.optional_pred(dst.pred)?);
        let (a, b) = (self.src(a, bits)?, self.src(b, bits)?);
        let (combine, pred, negated) = match combine {
            None => (Logic::First, NONE, false),
            Some((op, src)) => (op, self.pred(src.reg)?, src.negated),
        };
        let f = f.choose(self.vector);
        self.push(Kind::Compare { f, args: Args { d, a, b, c, aux }, wide: bits == 64, combine, pred, negated });
        Ok(())
    }

    pub(super) fn mbarrier(
        &mut self,
        op: MbarrierOp,
        address: &Address,
        space: Option<Space>,
        x: Option<&Src>,
        done: Option<Reg>,
        order: Option<Order>,
    ) -> Decoded {
        let address = self.address(address, space)?;
        let x = match x {
            Some(x) => self.src(x, 32)?,
            None => self.constant(1),
        };
        let d = self.optional_pred(done)?;
        let default = match op {
            MbarrierOp::TryWait | MbarrierOp::TestWait => MemOrder::Acquire,
            MbarrierOp::ExpectTx => MemOrder::Relaxed,
            _ => MemOrder::Release,
        };
        let order = mem_order(order, default);
        self.push(Kind::Mbarrier { op, address, x, d, order });
        Ok(())
    }

    pub(super) fn decode_atomic(
        &mut self,
        dst: Option<Reg>,
        address: &Address,
        space: Option<Space>,
        op: AtomicOp,
        ty: Type,
        b: &Src,
        c: Option<&Src>,
        order: Option<Order>,
        scope: Option<Scope>,
    ) -> Decoded {
        use Type::*;
        let known = match op {
            AtomicOp::Add => matches!(ty, U32 | S32 | U64 | F32 | F64),
            AtomicOp::Inc | AtomicOp::Dec => ty == U32,
            AtomicOp::Min | AtomicOp::Max => matches!(ty, U32 | S32 | U64 | S64),
            AtomicOp::And | AtomicOp::Or | AtomicOp::Xor => matches!(ty, B32 | B64),
            AtomicOp::Exch | AtomicOp::Cas => matches!(ty, B32 | B64 | U32 | S32 | U64 | F32),
        };
        if !known {
            return Err(self.unsupported(&format!("atom{}{}", op.text(), ty.text())));
        }
        if (op == AtomicOp::Cas) != c.is_some() {
            return Err(self.operand_error("a comparison value belongs to `cas` alone, which needs it"));
        }
        let bits = ty.bytes() * 8;
        let d = self.optional(dst, bits)?;
        let address = self.address(address, space)?;
        let b = self.src(b, bits)?;
        let c = c.map_or(Ok(NONE), |c| self.src(c, bits))?;
        let (order, scope) = (mem_order(order, MemOrder::Relaxed), mem_scope(scope, MemScope::Gpu));
        self.push(Kind::Atomic { address, op, ty, d, b, c, order, scope });
        Ok(())
    }
}
