//! Arithmetic rows: the closure that each type stands for.

use super::Decoder;
use super::LoadError;
use super::decode::Decoded;
use crate::alu::float::{Direction, Modes, canonical32, flush};
use crate::alu::lanes::{Build, LaneFn, lane_fn, lanes};
use crate::alu::{approx, convert, float, int, minmax};
use kda_ptx::modifier::*;
use kda_ptx::operand::{Dst, Src};
use kda_ptx::table::*;

/// Narrows a result to 16 bits.
pub(super) const H: u32 = 0xffff;

/// A 16-bit register as a signed number.
pub(super) fn sx16(a: u32) -> i32 {
    i32::from(a as u16 as i16)
}

/// Modes of a float operation.
fn modes(round: Option<Round>, ftz: Ftz, sat: Sat) -> Option<Modes> {
    let direction = round.map_or(Some(Direction::Nearest), Direction::of)?;
    Some(Modes { direction, ftz: ftz.0, sat: sat.0 })
}

/// A float operation of two sources: the plain builds are vector code, the rest reads its modes from the constant.
macro_rules! float2 {
    ($modes:expr, |$x:ident, $y:ident| $value:expr, $general:path) => {
        match $modes {
            Modes { direction: Direction::Nearest, ftz: false, sat: false } => lane_fn!(|a: u32, b: u32| {
                let ($x, $y) = (f32::from_bits(a), f32::from_bits(b));
                canonical32($value)
            }),
            Modes { direction: Direction::Nearest, ftz: true, sat: false } => lane_fn!(|a: u32, b: u32| {
                let ($x, $y) = (f32::from_bits(flush(a)), f32::from_bits(flush(b)));
                flush(canonical32($value))
            }),
            _ => lanes(|a: u32, b: u32, _: u32, aux: u32| $general(a, b, Modes::unpack(aux))),
        }
    };
}

impl Decoder<'_> {
    /// The row does not model the type.
    pub(super) fn bad_type(&self, mnemonic: &str, ty: Type) -> LoadError {
        self.unsupported(&format!("{mnemonic}{}", ty.text()))
    }

    /// Two sources and a destination of one type.
    pub(super) fn same2(&mut self, f: Build<LaneFn>, ty: Type, dst: Dst, a: &Src, b: &Src, aux: u32) -> Decoded {
        let bits = ty.bytes() * 8;
        self.binary(f, [bits; 3], dst, a, b, aux)
    }

    pub(super) fn decode_add(&mut self, i: &Add) -> Decoded {
        use Type::*;
        let modes = modes(i.round, i.ftz, i.sat).ok_or_else(|| self.bad_type("add", i.ty))?;
        let f = match (i.ty, i.sat.0) {
            (S32, true) => lane_fn!(|a: u32, b: u32| (a as i32).saturating_add(b as i32) as u32),
            (U32 | S32, false) => lane_fn!(|a: u32, b: u32| a.wrapping_add(b)),
            (U64 | S64, false) => lane_fn!(|a: u64, b: u64| a.wrapping_add(b)),
            (U16 | S16, false) => lane_fn!(|a: u32, b: u32| a.wrapping_add(b) & H),
            (F32, _) => float2!(modes, |x, y| x + y, float::add32),
            (F64, _) => lanes(|a: u64, b: u64, _: u64, aux: u32| float::add64(a, b, Modes::unpack(aux))),
            _ => return Err(self.bad_type("add", i.ty)),
        };
        self.same2(f, i.ty, i.dst, &i.a, &i.b, modes.pack())
    }

    pub(super) fn decode_sub(&mut self, i: &Sub) -> Decoded {
        use Type::*;
        const SIGN: u32 = 1 << 31;
        let modes = modes(i.round, i.ftz, i.sat).ok_or_else(|| self.bad_type("sub", i.ty))?;
        let f = match (i.ty, i.sat.0) {
            (S32, true) => lane_fn!(|a: u32, b: u32| (a as i32).saturating_sub(b as i32) as u32),
            (U32 | S32, false) => lane_fn!(|a: u32, b: u32| a.wrapping_sub(b)),
            (U64 | S64, false) => lane_fn!(|a: u64, b: u64| a.wrapping_sub(b)),
            (U16 | S16, false) => lane_fn!(|a: u32, b: u32| a.wrapping_sub(b) & H),
            (F32, _) => {
                fn general(a: u32, b: u32, modes: Modes) -> u32 {
                    float::add32(a, b ^ SIGN, modes)
                }
                float2!(modes, |x, y| x - y, general)
            }
            (F64, _) => lanes(|a: u64, b: u64, _: u64, aux: u32| float::add64(a, b ^ 1 << 63, Modes::unpack(aux))),
            _ => return Err(self.bad_type("sub", i.ty)),
        };
        self.same2(f, i.ty, i.dst, &i.a, &i.b, modes.pack())
    }

    pub(super) fn decode_mul(&mut self, i: &Mul) -> Decoded {
        use Type::*;
        let modes = modes(i.round, i.ftz, i.sat).ok_or_else(|| self.bad_type("mul", i.ty))?;
        let f = match (i.ty, i.half) {
            // Whether a product is flushed takes a second look.
            (F32, None) if modes.ftz => {
                lanes(|a: u32, b: u32, _: u32, aux: u32| float::mul32(a, b, Modes::unpack(aux)))
            }
            (F32, None) => float2!(modes, |x, y| x * y, float::mul32),
            (F64, None) => lanes(|a: u64, b: u64, _: u64, aux: u32| float::mul64(a, b, Modes::unpack(aux))),
            (Bf16, None) if modes.is_plain() => lane_fn!(|a: u32, b: u32| convert::mul_bf16(a & H, b & H)),
            (Bf16x2, None) if modes.is_plain() => lane_fn!(|a: u32, b: u32| {
                convert::mul_bf16(a >> 16, b >> 16) << 16 | convert::mul_bf16(a & H, b & H)
            }),
            (F16, None) if modes.is_plain() => lane_fn!(|a: u32, b: u32| convert::mul_f16(a & H, b & H)),
            (F16x2, None) if modes.is_plain() => {
                lane_fn!(|a: u32, b: u32| { convert::mul_f16(a >> 16, b >> 16) << 16 | convert::mul_f16(a & H, b & H) })
            }
            (U32 | S32, Some(Half::Lo)) => lane_fn!(|a: u32, b: u32| a.wrapping_mul(b)),
            (U32, Some(Half::Hi)) => lane_fn!(|a: u32, b: u32| ((u64::from(a) * u64::from(b)) >> 32) as u32),
            (S32, Some(Half::Hi)) => {
                lane_fn!(|a: u32, b: u32| ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32)
            }
            (U64 | S64, Some(Half::Lo)) => lane_fn!(|a: u64, b: u64| a.wrapping_mul(b)),
            (U64, Some(Half::Hi)) => lane_fn!(|a: u64, b: u64| ((u128::from(a) * u128::from(b)) >> 64) as u64),
            (S64, Some(Half::Hi)) => {
                lane_fn!(|a: u64, b: u64| ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64)
            }
            (U16 | S16, Some(Half::Lo)) => lane_fn!(|a: u32, b: u32| a.wrapping_mul(b) & H),
            (U16, Some(Half::Hi)) => lane_fn!(|a: u32, b: u32| (a & H).wrapping_mul(b & H) >> 16),
            (S16, Some(Half::Hi)) => lane_fn!(|a: u32, b: u32| (sx16(a).wrapping_mul(sx16(b)) >> 16) as u32 & H),
            (U32, Some(Half::Wide)) => {
                let f = lane_fn!(|a: u32, b: u32| u64::from(a) * u64::from(b));
                return self.binary(f, [64, 32, 32], i.dst, &i.a, &i.b, 0);
            }
            (S32, Some(Half::Wide)) => {
                let f = lane_fn!(|a: u32, b: u32| (i64::from(a as i32) * i64::from(b as i32)) as u64);
                return self.binary(f, [64, 32, 32], i.dst, &i.a, &i.b, 0);
            }
            (U16, Some(Half::Wide)) => {
                let f = lane_fn!(|a: u32, b: u32| (a & H).wrapping_mul(b & H));
                return self.binary(f, [32, 16, 16], i.dst, &i.a, &i.b, 0);
            }
            (S16, Some(Half::Wide)) => {
                let f = lane_fn!(|a: u32, b: u32| sx16(a).wrapping_mul(sx16(b)) as u32);
                return self.binary(f, [32, 16, 16], i.dst, &i.a, &i.b, 0);
            }
            _ => return Err(self.bad_type("mul", i.ty)),
        };
        self.same2(f, i.ty, i.dst, &i.a, &i.b, modes.pack())
    }

    pub(super) fn decode_mad(&mut self, i: &Mad) -> Decoded {
        use Type::*;
        let wide = i.half == Half::Wide;
        let f = match (i.ty, i.half) {
            (U32 | S32, Half::Lo) => lane_fn!(|a: u32, b: u32, c: u32| a.wrapping_mul(b).wrapping_add(c)),
            (U32, Half::Hi) => {
                lane_fn!(|a: u32, b: u32, c: u32| (((u64::from(a) * u64::from(b)) >> 32) as u32).wrapping_add(c))
            }
            (S32, Half::Hi) => {
                lane_fn!(|a: u32, b: u32, c: u32| {
                    (((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32).wrapping_add(c)
                })
            }
            (U32, Half::Wide) => lane_fn!(|a: u32, b: u32, c: u64| (u64::from(a) * u64::from(b)).wrapping_add(c)),
            (S32, Half::Wide) => {
                lane_fn!(|a: u32, b: u32, c: u64| ((i64::from(a as i32) * i64::from(b as i32)) as u64).wrapping_add(c))
            }
            (U64 | S64, Half::Lo) => lane_fn!(|a: u64, b: u64, c: u64| a.wrapping_mul(b).wrapping_add(c)),
            (U64, Half::Hi) => {
                lane_fn!(|a: u64, b: u64, c: u64| (((u128::from(a) * u128::from(b)) >> 64) as u64).wrapping_add(c))
            }
            (S64, Half::Hi) => {
                lane_fn!(|a: u64, b: u64, c: u64| {
                    (((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64).wrapping_add(c)
                })
            }
            (U16 | S16, Half::Lo) => lane_fn!(|a: u32, b: u32, c: u32| a.wrapping_mul(b).wrapping_add(c) & H),
            (U16, Half::Hi) => {
                lane_fn!(|a: u32, b: u32, c: u32| ((a & H).wrapping_mul(b & H) >> 16).wrapping_add(c) & H)
            }
            (S16, Half::Hi) => {
                lane_fn!(|a: u32, b: u32, c: u32| {
                    ((sx16(a).wrapping_mul(sx16(b)) >> 16) as u32).wrapping_add(c) & H
                })
            }
            (U16, Half::Wide) => lane_fn!(|a: u32, b: u32, c: u32| (a & H).wrapping_mul(b & H).wrapping_add(c)),
            (S16, Half::Wide) => {
                lane_fn!(|a: u32, b: u32, c: u32| (sx16(a).wrapping_mul(sx16(b)) as u32).wrapping_add(c))
            }
            _ => return Err(self.bad_type("mad", i.ty)),
        };
        let bits = i.ty.bytes() * 8;
        let out = if wide { bits * 2 } else { bits };
        self.ternary(f, [out, bits, bits, out], i.dst, [&i.a, &i.b, &i.c], 0)
    }

    pub(super) fn decode_fma(&mut self, i: &Fma) -> Decoded {
        let modes = modes(Some(i.round), i.ftz, i.sat).ok_or_else(|| self.bad_type("fma", i.ty))?;
        let plain = modes.direction == Direction::Nearest && !modes.sat;
        let f = match i.ty {
            Type::F32 if plain && !modes.ftz => lane_fn!(|a: u32, b: u32, c: u32| {
                canonical32(f32::from_bits(a).mul_add(f32::from_bits(b), f32::from_bits(c)))
            }),
            Type::F32 => lane_fn!(|a: u32, b: u32, c: u32; aux| float::fma32(a, b, c, Modes::unpack(aux))),
            Type::F64 => lane_fn!(|a: u64, b: u64, c: u64; aux| float::fma64(a, b, c, Modes::unpack(aux))),
            _ => return Err(self.bad_type("fma", i.ty)),
        };
        let bits = i.ty.bytes() * 8;
        self.ternary(f, [bits; 4], i.dst, [&i.a, &i.b, &i.c], modes.pack())
    }

    pub(super) fn decode_div(&mut self, i: &Div) -> Decoded {
        use Type::*;
        let direction = i.accuracy.and_then(Direction::of_accuracy).unwrap_or(Direction::Nearest);
        let modes = Modes { direction, ftz: i.ftz.0, sat: false };
        let f = match (i.ty, i.accuracy) {
            // Approximate quotients are the rounded ones.
            (F32, Some(_)) => lanes(|a: u32, b: u32, _: u32, aux: u32| float::div32(a, b, Modes::unpack(aux))),
            (F64, Some(_)) => lanes(|a: u64, b: u64, _: u64, aux: u32| float::div64(a, b, Modes::unpack(aux))),
            (U32, None) => lane_fn!(|a: u32, b: u32| a.checked_div(b).unwrap_or(u32::MAX)),
            (S32, None) => lane_fn!(|a: u32, b: u32| int::div_signed(i64::from(a as i32), i64::from(b as i32)) as u32),
            (U64, None) => lane_fn!(|a: u64, b: u64| int::div_unsigned(a, b)),
            (S64, None) => lane_fn!(|a: u64, b: u64| int::div_signed(a as i64, b as i64) as u64),
            (U16, None) => lane_fn!(|a: u32, b: u32| (a & H).checked_div(b & H).unwrap_or(H)),
            (S16, None) => {
                lane_fn!(|a: u32, b: u32| int::div_signed(i64::from(sx16(a)), i64::from(sx16(b))) as u32 & H)
            }
            _ => return Err(self.bad_type("div", i.ty)),
        };
        self.same2(f, i.ty, i.dst, &i.a, &i.b, modes.pack())
    }

    pub(super) fn decode_rem(&mut self, i: &Rem) -> Decoded {
        use Type::*;
        let f = match i.ty {
            U32 => lane_fn!(|a: u32, b: u32| a.checked_rem(b).unwrap_or(a)),
            S32 => lane_fn!(|a: u32, b: u32| int::rem_signed(i64::from(a as i32), i64::from(b as i32)) as u32),
            U64 => lane_fn!(|a: u64, b: u64| int::rem_unsigned(a, b)),
            S64 => lane_fn!(|a: u64, b: u64| int::rem_signed(a as i64, b as i64) as u64),
            U16 => lane_fn!(|a: u32, b: u32| (a & H).checked_rem(b & H).unwrap_or(a & H)),
            S16 => lane_fn!(|a: u32, b: u32| int::rem_signed(i64::from(sx16(a)), i64::from(sx16(b))) as u32 & H),
            _ => return Err(self.bad_type("rem", i.ty)),
        };
        self.same2(f, i.ty, i.dst, &i.a, &i.b, 0)
    }

    pub(super) fn decode_neg(&mut self, i: &Neg) -> Decoded {
        use Type::*;
        let f = match i.ty {
            S16 => lane_fn!(|a: u32| 0u32.wrapping_sub(a) & H),
            S32 => lane_fn!(|a: u32| 0u32.wrapping_sub(a)),
            S64 => lane_fn!(|a: u64| 0u64.wrapping_sub(a)),
            F32 if i.ftz.0 => lane_fn!(|a: u32| flush(a) ^ 1 << 31),
            F32 => lane_fn!(|a: u32| a ^ 1 << 31),
            F64 => lane_fn!(|a: u64| a ^ 1 << 63),
            F16 | Bf16 => lane_fn!(|a: u32| a ^ 1 << 15),
            F16x2 | Bf16x2 => lane_fn!(|a: u32| a ^ 0x8000_8000),
            _ => return Err(self.bad_type("neg", i.ty)),
        };
        let bits = i.ty.bytes() * 8;
        self.unary(f, bits, bits, i.dst, &i.a, 0)
    }

    pub(super) fn decode_abs(&mut self, i: &Abs) -> Decoded {
        use Type::*;
        let f = match i.ty {
            S16 => lane_fn!(|a: u32| sx16(a).wrapping_abs() as u32 & H),
            S32 => lane_fn!(|a: u32| (a as i32).wrapping_abs() as u32),
            S64 => lane_fn!(|a: u64| (a as i64).wrapping_abs() as u64),
            F32 if i.ftz.0 => lane_fn!(|a: u32| flush(a) & !(1 << 31)),
            F32 => lane_fn!(|a: u32| a & !(1 << 31)),
            F64 => lane_fn!(|a: u64| a & !(1 << 63)),
            F16 | Bf16 => lane_fn!(|a: u32| a & 0x7fff),
            F16x2 | Bf16x2 => lane_fn!(|a: u32| a & 0x7fff_7fff),
            _ => return Err(self.bad_type("abs", i.ty)),
        };
        let bits = i.ty.bytes() * 8;
        self.unary(f, bits, bits, i.dst, &i.a, 0)
    }

    pub(super) fn decode_min(&mut self, i: &Min) -> Decoded {
        use Type::*;
        let f = match (i.ty, i.ftz.0, i.nan.0) {
            (U32, ..) => lane_fn!(|a: u32, b: u32| a.min(b)),
            (S32, ..) => lane_fn!(|a: u32, b: u32| (a as i32).min(b as i32) as u32),
            (U64, ..) => lane_fn!(|a: u64, b: u64| a.min(b)),
            (S64, ..) => lane_fn!(|a: u64, b: u64| (a as i64).min(b as i64) as u64),
            (U16, ..) => lane_fn!(|a: u32, b: u32| (a & H).min(b & H)),
            (S16, ..) => lane_fn!(|a: u32, b: u32| sx16(a).min(sx16(b)) as u32 & H),
            (F32, false, false) => lane_fn!(|a: u32, b: u32| minmax::min32(a, b, false, false)),
            (F32, true, false) => lane_fn!(|a: u32, b: u32| minmax::min32(a, b, true, false)),
            (F32, false, true) => lane_fn!(|a: u32, b: u32| minmax::min32(a, b, false, true)),
            (F32, true, true) => lane_fn!(|a: u32, b: u32| minmax::min32(a, b, true, true)),
            (F64, ..) => lane_fn!(|a: u64, b: u64| minmax::min64(a, b)),
            _ => return Err(self.bad_type("min", i.ty)),
        };
        self.same2(f, i.ty, i.dst, &i.a, &i.b, 0)
    }

    pub(super) fn decode_max(&mut self, i: &Max) -> Decoded {
        use Type::*;
        let f = match (i.ty, i.ftz.0, i.nan.0) {
            (U32, ..) => lane_fn!(|a: u32, b: u32| a.max(b)),
            (S32, ..) => lane_fn!(|a: u32, b: u32| (a as i32).max(b as i32) as u32),
            (U64, ..) => lane_fn!(|a: u64, b: u64| a.max(b)),
            (S64, ..) => lane_fn!(|a: u64, b: u64| (a as i64).max(b as i64) as u64),
            (U16, ..) => lane_fn!(|a: u32, b: u32| (a & H).max(b & H)),
            (S16, ..) => lane_fn!(|a: u32, b: u32| sx16(a).max(sx16(b)) as u32 & H),
            (F32, false, false) => lane_fn!(|a: u32, b: u32| minmax::max32(a, b, false, false)),
            (F32, true, false) => lane_fn!(|a: u32, b: u32| minmax::max32(a, b, true, false)),
            (F32, false, true) => lane_fn!(|a: u32, b: u32| minmax::max32(a, b, false, true)),
            (F32, true, true) => lane_fn!(|a: u32, b: u32| minmax::max32(a, b, true, true)),
            (F64, ..) => lane_fn!(|a: u64, b: u64| minmax::max64(a, b)),
            _ => return Err(self.bad_type("max", i.ty)),
        };
        self.same2(f, i.ty, i.dst, &i.a, &i.b, 0)
    }

    pub(super) fn decode_rcp(&mut self, i: &Rcp) -> Decoded {
        let direction = Direction::of_accuracy(i.accuracy);
        let modes = Modes { direction: direction.unwrap_or(Direction::Nearest), ftz: i.ftz.0, sat: false };
        const ONE: u32 = 0x3f80_0000;
        const ONE64: u64 = 0x3ff0_0000_0000_0000;
        let f = match (i.ty, direction, i.ftz.0) {
            (Type::F32, None, false) => lane_fn!(|a: u32| approx::rcp(a, false)),
            (Type::F32, None, true) => lane_fn!(|a: u32| approx::rcp(a, true)),
            (Type::F32, Some(_), _) => {
                lanes(|a: u32, _: u32, _: u32, aux: u32| float::div32(ONE, a, Modes::unpack(aux)))
            }
            (Type::F64, Some(_), _) => {
                lanes(|a: u64, _: u64, _: u64, aux: u32| float::div64(ONE64, a, Modes::unpack(aux)))
            }
            _ => return Err(self.bad_type("rcp", i.ty)),
        };
        let bits = i.ty.bytes() * 8;
        self.unary(f, bits, bits, i.dst, &i.a, modes.pack())
    }

    pub(super) fn decode_sqrt(&mut self, i: &Sqrt) -> Decoded {
        let direction = Direction::of_accuracy(i.accuracy);
        let modes = Modes { direction: direction.unwrap_or(Direction::Nearest), ftz: i.ftz.0, sat: false };
        let f = match (i.ty, direction, i.ftz.0) {
            (Type::F32, None, false) => lane_fn!(|a: u32| approx::sqrt(a, false)),
            (Type::F32, None, true) => lane_fn!(|a: u32| approx::sqrt(a, true)),
            (Type::F32, Some(_), _) => lanes(|a: u32, _: u32, _: u32, aux: u32| float::sqrt32(a, Modes::unpack(aux))),
            (Type::F64, Some(_), _) => lanes(|a: u64, _: u64, _: u64, aux: u32| float::sqrt64(a, Modes::unpack(aux))),
            _ => return Err(self.bad_type("sqrt", i.ty)),
        };
        let bits = i.ty.bytes() * 8;
        self.unary(f, bits, bits, i.dst, &i.a, modes.pack())
    }

    fn approximation(&mut self, name: &str, f: Build<LaneFn>, ty: Type, dst: Dst, a: &Src) -> Decoded {
        if ty != Type::F32 {
            return Err(self.bad_type(name, ty));
        }
        self.unary(f, 32, 32, dst, a, 0)
    }

    pub(super) fn decode_rsqrt(&mut self, i: &Rsqrt) -> Decoded {
        let f = if i.ftz.0 {
            lane_fn!(|a: u32| approx::rsqrt(a, true))
        } else {
            lane_fn!(|a: u32| approx::rsqrt(a, false))
        };
        self.approximation("rsqrt.approx", f, i.ty, i.dst, &i.a)
    }

    pub(super) fn decode_ex2(&mut self, i: &Ex2) -> Decoded {
        let f =
            if i.ftz.0 { lane_fn!(|a: u32| approx::ex2(a, true)) } else { lane_fn!(|a: u32| approx::ex2(a, false)) };
        self.approximation("ex2.approx", f, i.ty, i.dst, &i.a)
    }

    pub(super) fn decode_lg2(&mut self, i: &Lg2) -> Decoded {
        let f =
            if i.ftz.0 { lane_fn!(|a: u32| approx::lg2(a, true)) } else { lane_fn!(|a: u32| approx::lg2(a, false)) };
        self.approximation("lg2.approx", f, i.ty, i.dst, &i.a)
    }

    pub(super) fn decode_tanh(&mut self, i: &Tanh) -> Decoded {
        self.approximation("tanh.approx", lane_fn!(|a: u32| approx::tanh(a)), i.ty, i.dst, &i.a)
    }
}
