//! Moves, packing, conversions and address conversions.

use super::Decoder;
use super::decode::Decoded;
use super::op::{Kind, Logic};
use crate::alu::convert::{self, Conversion, convert, pack_halves};
use crate::alu::lanes::{Args, lane_fn, lanes};
use kda_ptx::modifier::{Round, Space, Type};
use kda_ptx::operand::{Special, Src};
use kda_ptx::table::{Cvt, Cvta, Mov, Pack, Unpack};

impl Decoder<'_> {
    pub(super) fn decode_mov(&mut self, i: &Mov) -> Decoded {
        if i.ty == Type::Pred {
            return self.pred_logic(Logic::First, i.dst, &i.src, &i.src);
        }
        let bits = i.ty.bytes() * 8;
        if let Src::Special(Special::Clock64 | Special::GlobalTimer) = i.src {
            let d = self.dst(i.dst, 64)?;
            self.push(Kind::Clock { d });
            return Ok(());
        }
        match bits {
            8 | 16 | 32 => self.unary(lane_fn!(|a: u32| a), bits, bits, i.dst, &i.src, 0),
            64 => self.unary(lane_fn!(|a: u64| a), 64, 64, i.dst, &i.src, 0),
            _ => Err(self.unsupported("mov of 128 bits")),
        }
    }

    pub(super) fn decode_unpack(&mut self, i: &Unpack) -> Decoded {
        let total = i.ty.bytes() * 8;
        let count = i.dst.0.len() as u32;
        let part = total / count.max(1);
        if !matches!((total, part), (32, 16) | (64, 32) | (64, 16)) {
            return Err(self.unsupported(&format!("mov of {total} bits into {count} registers")));
        }
        // The source must outlive a destination that overwrites it; a 32-bit destination never is a 64-bit source, and
        // 16-bit destinations never are a 32-bit source.
        for (k, dst) in i.dst.0.iter().enumerate() {
            let Some(dst) = dst else { continue };
            let shift = k as u32 * part;
            match (total, part) {
                (32, _) => {
                    let f = lanes(|a: u32, _: u32, _: u32, shift: u32| a >> shift & 0xffff);
                    self.unary(f, 16, 32, *dst, &i.src, shift)?;
                }
                (_, 32) => {
                    let f = lanes(|a: u64, _: u64, _: u64, shift: u32| (a >> shift) as u32);
                    self.unary(f, 32, 64, *dst, &i.src, shift)?;
                }
                _ => {
                    let f = lanes(|a: u64, _: u64, _: u64, shift: u32| (a >> shift) as u32 & 0xffff);
                    self.unary(f, 16, 64, *dst, &i.src, shift)?;
                }
            }
        }
        if i.dst.0.iter().all(Option::is_none) {
            self.push(Kind::Nop);
        }
        Ok(())
    }

    pub(super) fn decode_pack(&mut self, i: &Pack) -> Decoded {
        let total = i.ty.bytes() * 8;
        match (total, i.src.0.as_slice()) {
            (32, [low, high]) => {
                let f = lane_fn!(|a: u32, b: u32| a & 0xffff | b << 16);
                self.binary(f, [32, 16, 16], i.dst, low, high, 0)
            }
            (64, [low, high]) => {
                let f = lane_fn!(|a: u32, b: u32| u64::from(b) << 32 | u64::from(a));
                self.binary(f, [64, 32, 32], i.dst, low, high, 0)
            }
            (64, [a, b, c, d]) => {
                // The low three quarters, then the last on top of them.
                let f = lane_fn!(|a: u32, b: u32, c: u32| u64::from(a) | u64::from(b) << 16 | u64::from(c) << 32);
                self.ternary(f, [64, 16, 16, 16], i.dst, [a, b, c], 0)?;
                let f = lane_fn!(|a: u64, b: u32| a | u64::from(b) << 48);
                self.binary(f, [64, 64, 16], i.dst, &Src::Reg(i.dst), d, 0)
            }
            (_, parts) => Err(self.unsupported(&format!("mov of {} registers into {total} bits", parts.len()))),
        }
    }

    pub(super) fn decode_cvt(&mut self, i: &Cvt) -> Decoded {
        use Type::*;
        let conversion =
            Conversion { to: i.to, from: i.from, round: i.round, ftz: i.ftz.0, sat: i.sat.0, relu: i.relu.0 };
        let plain = !conversion.ftz && !conversion.sat && !conversion.relu;
        let nearest = plain && matches!(i.round, Some(Round::Rn));
        if let Some(b) = &i.b {
            if !matches!(i.to, F16x2 | Bf16x2) || i.from != F32 {
                return Err(self.unsupported(&format!("cvt{}{} of two operands", i.to.text(), i.from.text())));
            }
            let f = match i.to {
                Bf16x2 if nearest => {
                    lane_fn!(|a: u32, b: u32| convert::f32_to_bf16(a) << 16 | convert::f32_to_bf16(b))
                }
                _ => lanes(|a: u32, b: u32, _: u32, aux: u32| pack_halves(a, b, Conversion::unpack(aux))),
            };
            return self.binary(f, [32, 32, 32], i.dst, &i.a, b, conversion.pack());
        }
        if !convert::supported(i.to) || !convert::supported(i.from) {
            return Err(self.unsupported(&format!("cvt{}{}", i.to.text(), i.from.text())));
        }
        // The register may be wider than the type of an integer.
        let to = self.register_bits(i.to, i.dst.class);
        let from = match &i.a {
            Src::Reg(reg) => self.register_bits(i.from, reg.class),
            _ => i.from.bytes().max(2) * 8,
        };
        let f = match (i.to, i.from) {
            (Bf16, F32) if nearest => lane_fn!(|a: u32| convert::f32_to_bf16(a)),
            (F32, Bf16) if plain => lane_fn!(|a: u32| convert::bf16_to_f32(a & 0xffff)),
            (F32, F16) if plain => lane_fn!(|a: u32| convert::f16_to_f32(a & 0xffff)),
            (F32, S32) if nearest => lane_fn!(|a: u32| (a as i32 as f32).to_bits()),
            (F32, U32) if nearest => lane_fn!(|a: u32| (a as f32).to_bits()),
            (S32, F32) if plain && i.round == Some(Round::Rzi) => lane_fn!(|a: u32| f32::from_bits(a) as i32 as u32),
            (U32, F32) if plain && i.round == Some(Round::Rzi) => lane_fn!(|a: u32| f32::from_bits(a) as u32),
            (U64 | S64, U32) if (to, from) == (64, 32) && plain => lane_fn!(|a: u32| u64::from(a)),
            (S64 | U64, S32) if (to, from) == (64, 32) && plain => lane_fn!(|a: u32| a as i32 as i64 as u64),
            (U32 | S32, U64 | S64) if (to, from) == (32, 64) && plain => lane_fn!(|a: u64| a as u32),
            _ => match (to, from) {
                (64, 64) => lanes(|a: u64, _: u64, _: u64, aux: u32| convert(a, Conversion::unpack(aux), 64)),
                (64, _) => lanes(|a: u32, _: u32, _: u32, aux: u32| convert(u64::from(a), Conversion::unpack(aux), 64)),
                (32, 64) => lanes(|a: u64, _: u64, _: u64, aux: u32| convert(a, Conversion::unpack(aux), 32) as u32),
                (32, _) => {
                    lanes(|a: u32, _: u32, _: u32, aux: u32| convert(u64::from(a), Conversion::unpack(aux), 32) as u32)
                }
                (_, 64) => lanes(|a: u64, _: u64, _: u64, aux: u32| convert(a, Conversion::unpack(aux), 16) as u32),
                _ => {
                    lanes(|a: u32, _: u32, _: u32, aux: u32| convert(u64::from(a), Conversion::unpack(aux), 16) as u32)
                }
            },
        };
        self.unary(f, to, from, i.dst, &i.a, conversion.pack())
    }

    /// Width of the register of an operand: at least that of its type.
    fn register_bits(&self, ty: Type, class: kda_ptx::Class) -> u32 {
        let least = ty.bytes().max(2) * 8;
        let bits = match class {
            kda_ptx::Class::B16 => 16,
            kda_ptx::Class::B64 => 64,
            _ => 32,
        };
        if ty.is_float() { least } else { bits.max(least) }
    }

    pub(super) fn decode_cvta(&mut self, i: &Cvta) -> Decoded {
        if !matches!(i.ty, Type::U64) {
            return Err(self.unsupported("cvta of 32 bits"));
        }
        let window = self.window(i.space)?;
        let (d, a) = (self.dst(i.dst, 64)?, self.src(&i.src, 64)?);
        let f = if i.to.0 || i.space == Space::Global {
            lane_fn!(|a: u64, b: u64| a.wrapping_sub(b))
        } else {
            lane_fn!(|a: u64, b: u64| a.wrapping_add(b))
        };
        self.push_alu(f, Args { d, a, b: window, c: a, aux: 0 })
    }
}
