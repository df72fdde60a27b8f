//! Bit rows: logic, shifts, fields and counts.

use super::Decoder;
use super::arith::{H, sx16};
use super::decode::Decoded;
use super::op::Logic;
use crate::alu::int;
use crate::alu::lanes::{Build, LaneFn, lane_fn};
use kda_ptx::modifier::*;
use kda_ptx::operand::{Dst, Src};
use kda_ptx::table::*;

impl Decoder<'_> {
    fn bitwise(
        &mut self,
        (logic, f32bit, f64bit): (Logic, Build<LaneFn>, Build<LaneFn>),
        ty: Type,
        dst: Dst,
        a: &Src,
        b: &Src,
    ) -> Decoded {
        match ty {
            Type::Pred => self.pred_logic(logic, dst, a, b),
            Type::B16 | Type::B32 => self.same2(f32bit, ty, dst, a, b, 0),
            Type::B64 => self.same2(f64bit, ty, dst, a, b, 0),
            _ => Err(self.bad_type("bitwise", ty)),
        }
    }

    pub(super) fn decode_and(&mut self, i: &And) -> Decoded {
        let f = (Logic::And, lane_fn!(|a: u32, b: u32| a & b), lane_fn!(|a: u64, b: u64| a & b));
        self.bitwise(f, i.ty, i.dst, &i.a, &i.b)
    }

    pub(super) fn decode_or(&mut self, i: &Or) -> Decoded {
        let f = (Logic::Or, lane_fn!(|a: u32, b: u32| a | b), lane_fn!(|a: u64, b: u64| a | b));
        self.bitwise(f, i.ty, i.dst, &i.a, &i.b)
    }

    pub(super) fn decode_xor(&mut self, i: &Xor) -> Decoded {
        let f = (Logic::Xor, lane_fn!(|a: u32, b: u32| a ^ b), lane_fn!(|a: u64, b: u64| a ^ b));
        self.bitwise(f, i.ty, i.dst, &i.a, &i.b)
    }

    pub(super) fn decode_not(&mut self, i: &Not) -> Decoded {
        let f = match i.ty {
            Type::Pred => return self.pred_logic(Logic::Not, i.dst, &i.a, &i.a),
            Type::B16 => lane_fn!(|a: u32| !a & H),
            Type::B32 => lane_fn!(|a: u32| !a),
            Type::B64 => lane_fn!(|a: u64| !a),
            _ => return Err(self.bad_type("not", i.ty)),
        };
        let bits = i.ty.bytes() * 8;
        self.unary(f, bits, bits, i.dst, &i.a, 0)
    }

    pub(super) fn decode_shl(&mut self, i: &Shl) -> Decoded {
        let f = match i.ty {
            Type::B16 => lane_fn!(|a: u32, b: u32| int::shl(u64::from(a), b, 16) as u32),
            Type::B32 => lane_fn!(|a: u32, b: u32| if b > 31 { 0 } else { a << (b & 31) }),
            Type::B64 => lane_fn!(|a: u64, b: u32| if b > 63 { 0 } else { a << (b & 63) }),
            _ => return Err(self.bad_type("shl", i.ty)),
        };
        let bits = i.ty.bytes() * 8;
        self.binary(f, [bits, bits, 32], i.dst, &i.a, &i.b, 0)
    }

    pub(super) fn decode_shr(&mut self, i: &Shr) -> Decoded {
        use Type::*;
        let f = match i.ty {
            B16 | U16 => lane_fn!(|a: u32, b: u32| if b > 15 { 0 } else { (a & H) >> (b & 15) }),
            S16 => lane_fn!(|a: u32, b: u32| (sx16(a) >> b.min(15)) as u32 & H),
            B32 | U32 => lane_fn!(|a: u32, b: u32| if b > 31 { 0 } else { a >> (b & 31) }),
            S32 => lane_fn!(|a: u32, b: u32| (a as i32 >> b.min(31)) as u32),
            B64 | U64 => lane_fn!(|a: u64, b: u32| if b > 63 { 0 } else { a >> (b & 63) }),
            S64 => lane_fn!(|a: u64, b: u32| (a as i64 >> b.min(63)) as u64),
            _ => return Err(self.bad_type("shr", i.ty)),
        };
        let bits = i.ty.bytes() * 8;
        self.binary(f, [bits, bits, 32], i.dst, &i.a, &i.b, 0)
    }

    pub(super) fn decode_shf(&mut self, i: &Shf) -> Decoded {
        if i.ty != Type::B32 {
            return Err(self.bad_type("shf", i.ty));
        }
        let aux = u32::from(i.direction == FunnelShift::Left) | u32::from(i.mode == FunnelMode::Wrap) << 1;
        let f = lane_fn!(|a: u32, b: u32, c: u32; aux| int::funnel(a, b, c, aux & 1 != 0, aux & 2 != 0));
        self.ternary(f, [32; 4], i.dst, [&i.a, &i.b, &i.c], aux)
    }

    pub(super) fn decode_lop3(&mut self, i: &Lop3) -> Decoded {
        let Src::Imm(table @ 0..=255) = i.table else {
            return Err(self.operand_error("the truth table must be a constant from 0 to 255"));
        };
        let f = lane_fn!(|a: u32, b: u32, c: u32; aux| int::lop3(a, b, c, aux));
        self.ternary(f, [32; 4], i.dst, [&i.a, &i.b, &i.c], table as u32)
    }

    pub(super) fn decode_prmt(&mut self, i: &Prmt) -> Decoded {
        let f = lane_fn!(|a: u32, b: u32, c: u32| int::prmt(a, b, c));
        self.ternary(f, [32; 4], i.dst, [&i.a, &i.b, &i.selector], 0)
    }

    pub(super) fn decode_bfe(&mut self, i: &Bfe) -> Decoded {
        let f = match i.ty {
            Type::U32 => lane_fn!(|a: u32, b: u32, c: u32| int::bfe(u64::from(a), b, c, 32, false) as u32),
            Type::S32 => lane_fn!(|a: u32, b: u32, c: u32| int::bfe(u64::from(a), b, c, 32, true) as u32),
            Type::U64 => lane_fn!(|a: u64, b: u32, c: u32| int::bfe(a, b, c, 64, false)),
            Type::S64 => lane_fn!(|a: u64, b: u32, c: u32| int::bfe(a, b, c, 64, true)),
            _ => return Err(self.bad_type("bfe", i.ty)),
        };
        let bits = i.ty.bytes() * 8;
        self.ternary(f, [bits, bits, 32, 32], i.dst, [&i.a, &i.start, &i.length], 0)
    }

    pub(super) fn decode_bfi(&mut self, i: &Bfi) -> Decoded {
        // Four sources: the position and the length must share a register, so they are constants.
        let (Src::Imm(start @ 0..=255), Src::Imm(length @ 0..=255)) = (&i.start, &i.length) else {
            return Err(self.unsupported("bfi with a position or length that is not a constant"));
        };
        let aux = *start as u32 | (*length as u32) << 8;
        let f = match i.ty {
            Type::B32 => lane_fn!(|a: u32, b: u32, _c: u32; aux| {
                int::bfi(u64::from(a), u64::from(b), aux & 255, aux >> 8, 32) as u32
            }),
            Type::B64 => lane_fn!(|a: u64, b: u64, _c: u64; aux| int::bfi(a, b, aux & 255, aux >> 8, 64)),
            _ => return Err(self.bad_type("bfi", i.ty)),
        };
        self.same2(f, i.ty, i.dst, &i.a, &i.b, aux)
    }

    pub(super) fn decode_popc(&mut self, i: &Popc) -> Decoded {
        match i.ty {
            Type::B32 => self.unary(lane_fn!(|a: u32| a.count_ones()), 32, 32, i.dst, &i.a, 0),
            Type::B64 => self.unary(lane_fn!(|a: u64| a.count_ones()), 32, 64, i.dst, &i.a, 0),
            _ => Err(self.bad_type("popc", i.ty)),
        }
    }

    pub(super) fn decode_clz(&mut self, i: &Clz) -> Decoded {
        match i.ty {
            Type::B32 => self.unary(lane_fn!(|a: u32| a.leading_zeros()), 32, 32, i.dst, &i.a, 0),
            Type::B64 => self.unary(lane_fn!(|a: u64| a.leading_zeros()), 32, 64, i.dst, &i.a, 0),
            _ => Err(self.bad_type("clz", i.ty)),
        }
    }

    pub(super) fn decode_brev(&mut self, i: &Brev) -> Decoded {
        match i.ty {
            Type::B32 => self.unary(lane_fn!(|a: u32| a.reverse_bits()), 32, 32, i.dst, &i.a, 0),
            Type::B64 => self.unary(lane_fn!(|a: u64| a.reverse_bits()), 64, 64, i.dst, &i.a, 0),
            _ => Err(self.bad_type("brev", i.ty)),
        }
    }
}
