//! Conversions between number formats.

use super::float::{APART, Direction, NAN32, canonical64, direct32, direct64, flush, narrow, saturate32, saturate64};
use kda_ptx::modifier::{Round, Type};

/// `bf16` to `f32` bits: exact.
#[inline(always)]
pub fn bf16_to_f32(h: u32) -> u32 {
    h << 16
}

/// `f32` to `bf16`, to nearest even; NaN becomes `0x7fff`.
#[inline(always)]
pub fn f32_to_bf16(bits: u32) -> u32 {
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    if bits & 0x7fff_ffff > 0x7f80_0000 { 0x7fff } else { rounded }
}

/// The product of two bf16, rounded once.
pub fn mul_bf16(a: u32, b: u32) -> u32 {
    let exact = f64::from(f32::from_bits(bf16_to_f32(a))) * f64::from(f32::from_bits(bf16_to_f32(b)));
    // To f32 with what is lost kept in the last bit, so that the second rounding sees it.
    let near = exact as f32;
    let lost = exact - f64::from(near);
    let bits = near.to_bits();
    let kept = match lost.abs() > 0.0 && near.is_finite() {
        true if (lost > 0.0) == (exact > 0.0) => bits | 1,
        true => (bits - 1) | 1,
        false => bits,
    };
    f32_to_bf16(kept)
}

/// The product of two f16, rounded once: in f32 it is exact.
pub fn mul_f16(a: u32, b: u32) -> u32 {
    let product = f32::from_bits(f16_to_f32(a)) * f32::from_bits(f16_to_f32(b));
    f32_to_f16(product.to_bits(), Direction::Nearest)
}

/// `f16` to `f32` bits: exact.
#[inline(always)]
pub fn f16_to_f32(h: u32) -> u32 {
    let sign = (h & 0x8000) << 16;
    let rest = h & 0x7fff;
    // Scale by 2^112 to move the exponent's bias; this normalises subnormals too.
    let scaled = (f32::from_bits(rest << 13) * f32::from_bits(0x7780_0000)).to_bits();
    let out = if rest > 0x7c00 {
        return NAN32;
    } else if rest == 0x7c00 {
        0x7f80_0000
    } else {
        scaled
    };
    sign | out
}

/// `f32` to `f16` in a direction; NaN becomes `0x7fff`.
pub fn f32_to_f16(bits: u32, direction: Direction) -> u32 {
    round_mantissa(bits, direction, 5, 10)
}

/// `f32` to a format of `exponent` and `mantissa` bits (at most 8 and 22), in a direction.
fn round_mantissa(bits: u32, direction: Direction, exponent: u32, mantissa: u32) -> u32 {
    let width = exponent + mantissa;
    let sign = bits >> 31;
    let x = f32::from_bits(bits & 0x7fff_ffff);
    let infinity = ((1u32 << exponent) - 1) << mantissa;
    if x.is_nan() {
        return (1 << width) - 1;
    }
    if x.is_infinite() {
        return sign << width | infinity;
    }
    let bias = (1i32 << (exponent - 1)) - 1;
    // Exponent of the unit in the last place of the result.
    let e = ((bits >> 23 & 0xff) as i32 - 127).max(1 - bias);
    let unit = e - mantissa as i32;
    let scaled = f64::from(x) * 2f64.powi(-unit);
    let floor = scaled.floor();
    let rest = scaled - floor;
    let up = match direction {
        Direction::Nearest => rest > 0.5 || rest == 0.5 && floor % 2.0 == 1.0,
        Direction::Zero => false,
        Direction::Down => sign == 1 && rest > 0.0,
        Direction::Up => sign == 0 && rest > 0.0,
    };
    let count = floor as u32 + u32::from(up);
    let magnitude = ((e + bias - 1) as u32 * (1 << mantissa)) + count;
    let magnitude = if magnitude >= infinity {
        let to_infinity = match direction {
            Direction::Nearest => true,
            Direction::Zero => false,
            Direction::Down => sign == 1,
            Direction::Up => sign == 0,
        };
        if to_infinity { infinity } else { infinity - 1 }
    } else {
        magnitude
    };
    sign << width | magnitude
}

/// `f32` to `bf16` in a direction.
pub fn f32_to_bf16_in(bits: u32, direction: Direction) -> u32 {
    match direction {
        Direction::Nearest => f32_to_bf16(bits),
        _ => round_mantissa(bits, direction, 8, 7),
    }
}

/// `f32` to `tf32`, to nearest with ties away from zero, as `f32` bits. A NaN whose payload lies in the bits that go becomes an
/// infinity, as on an H200.
#[inline(always)]
pub fn f32_to_tf32(bits: u32) -> u32 {
    match bits & 0x7fff_ffff > 0x7f80_0000 {
        true if bits & 0x007f_e000 == 0 => bits & 0xff80_0000,
        true => NAN32,
        false => bits.wrapping_add(0x1000) & !0x1fff,
    }
}

/// Negative numbers and NaN become zero: the clamp of `.relu`, before rounding; NaN stays.
#[inline(always)]
pub fn relu(bits: u32) -> u32 {
    if f32::from_bits(bits) < 0.0 || bits == 0x8000_0000 { 0 } else { bits }
}

/// A conversion, as one constant of an instruction.
#[derive(Clone, Copy, Debug)]
pub struct Conversion {
    /// Type of the result.
    pub to: Type,
    /// Type of the operand.
    pub from: Type,
    /// Rounding.
    pub round: Option<Round>,
    /// Subnormals become zero.
    pub ftz: bool,
    /// Clamp.
    pub sat: bool,
    /// Negative numbers become zero.
    pub relu: bool,
}

impl Conversion {
    /// As the constant of an instruction.
    pub fn pack(self) -> u32 {
        let round = self.round.map_or(15, |r| r as u32);
        self.to as u32
            | (self.from as u32) << 8
            | round << 16
            | u32::from(self.ftz) << 20
            | u32::from(self.sat) << 21
            | u32::from(self.relu) << 22
    }

    /// From the constant of an instruction.
    pub fn unpack(aux: u32) -> Conversion {
        Conversion {
            to: Type::ALL[(aux & 0xff) as usize],
            from: Type::ALL[(aux >> 8 & 0xff) as usize],
            round: Round::ALL.get((aux >> 16 & 15) as usize).copied(),
            ftz: aux >> 20 & 1 != 0,
            sat: aux >> 21 & 1 != 0,
            relu: aux >> 22 & 1 != 0,
        }
    }
}

/// True for the formats that [`convert`] knows, in any pair.
pub fn supported(ty: Type) -> bool {
    use Type::*;
    matches!(ty, U8 | S8 | U16 | S16 | U32 | S32 | U64 | S64 | F16 | Bf16 | F32 | F64 | Tf32)
}

fn integer_range(ty: Type) -> (i128, i128) {
    let bits = ty.bytes() * 8;
    if ty.is_signed() { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

/// The bits of an integer of a type as a register holds them: narrow types extended to the register.
fn integer_bits(value: i128, ty: Type, register: u32) -> u64 {
    let bits = (ty.bytes() * 8).max(register);
    value as u64 & (u64::MAX >> (64 - bits))
}

/// Converts the low bits of `a`; `register` is the width in bits of the destination register.
pub fn convert(a: u64, conversion: Conversion, register: u32) -> u64 {
    let Conversion { to, from, .. } = conversion;
    match (from.is_float(), to.is_float()) {
        (false, false) => {
            let value = read_integer(a, from);
            let (low, high) = integer_range(to);
            let value = if conversion.sat { value.clamp(low, high) } else { wrap(value, to) };
            integer_bits(value, to, register)
        }
        (false, true) => from_integer(read_integer(a, from), conversion),
        (true, false) => {
            let value = read_float(a, conversion);
            let round = conversion.round.unwrap_or(Round::Rzi);
            let (low, high) = integer_range(to);
            let rounded = integral(value, round);
            let value = match rounded.is_nan() {
                false => (rounded as i128).clamp(low, high),
                // Of a NaN in or to 64 bits the highest bit alone: MININT of a signed type.
                true if from == Type::F64 || to.bytes() == 8 => wrap(1 << (to.bytes() * 8 - 1), to),
                true => 0,
            };
            integer_bits(value, to, register)
        }
        (true, true) => between_floats(a, conversion),
    }
}

fn wrap(value: i128, ty: Type) -> i128 {
    let bits = ty.bytes() * 8;
    let low = value & ((1i128 << bits) - 1);
    if ty.is_signed() && low >> (bits - 1) & 1 != 0 { low - (1i128 << bits) } else { low }
}

fn read_integer(a: u64, ty: Type) -> i128 {
    wrap(i128::from(a), ty)
}

fn read_float(a: u64, conversion: Conversion) -> f64 {
    let flushed = |bits: u32| f64::from(f32::from_bits(if conversion.ftz { flush(bits) } else { bits }));
    match conversion.from {
        Type::F64 => f64::from_bits(a),
        Type::F16 => f64::from(f32::from_bits(f16_to_f32(a as u32 & 0xffff))),
        Type::Bf16 => f64::from(f32::from_bits(bf16_to_f32(a as u32 & 0xffff))),
        _ => flushed(a as u32),
    }
}

fn integral(value: f64, round: Round) -> f64 {
    match round {
        Round::Rni | Round::Rn => value.round_ties_even(),
        Round::Rmi | Round::Rm => value.floor(),
        Round::Rpi | Round::Rp => value.ceil(),
        _ => value.trunc(),
    }
}

fn from_integer(value: i128, conversion: Conversion) -> u64 {
    let direction = conversion.round.and_then(Direction::of).unwrap_or(Direction::Nearest);
    match conversion.to {
        Type::F64 => {
            let near = value as f64;
            let bits = direct64(near, (value - near as i128) as f64, direction).to_bits();
            if conversion.sat { saturate64(bits) } else { bits }
        }
        Type::F32 => {
            let near = value as f32;
            let bits = direct32(near, (value - near as i128) as f64, direction).to_bits();
            u64::from(if conversion.sat { saturate32(bits) } else { bits })
        }
        // To 16 bits through an f32 rounded to odd, so that only the last rounding counts.
        _ => {
            let near = value as f32;
            let error = value - near as i128;
            let mut bits = near.to_bits();
            if error != 0 && bits & 1 == 0 {
                bits = if (error > 0) == (value > 0) { bits + 1 } else { bits - 1 };
            }
            u64::from(to_half(bits, conversion.to, direction))
        }
    }
}

fn to_half(bits: u32, to: Type, direction: Direction) -> u32 {
    if to == Type::F16 { f32_to_f16(bits, direction) } else { f32_to_bf16_in(bits, direction) }
}

fn between_floats(a: u64, conversion: Conversion) -> u64 {
    if conversion.to == Type::Tf32 && !conversion.relu {
        return u64::from(f32_to_tf32(a as u32));
    }
    let to_integral = matches!(conversion.round, Some(Round::Rni | Round::Rzi | Round::Rmi | Round::Rpi));
    let mut value = read_float(a, conversion);
    if let (true, Some(round)) = (to_integral, conversion.round) {
        let rounded = integral(value, round);
        value = if rounded == 0.0 { 0f64.copysign(value) } else { rounded };
    }
    let direction = conversion.round.and_then(Direction::of).unwrap_or(Direction::Nearest);
    if conversion.to == Type::F64 {
        let bits = canonical64(value);
        return if conversion.sat { saturate64(bits) } else { bits };
    }
    let half = matches!(conversion.to, Type::F16 | Type::Bf16);
    // Toward a 16-bit format from f64 only the last rounding may count: the step to f32 rounds to odd.
    let x = if half && conversion.from == Type::F64 {
        let down = narrow(value, 0.0, Direction::Zero);
        if f64::from(down) != value && value.is_finite() { f32::from_bits(down.to_bits() | 1) } else { down }
    } else {
        narrow(value, 0.0, direction)
    };
    let mut bits = if x.is_nan() { NAN32 } else { x.to_bits() };
    if conversion.ftz {
        // Whether a result is subnormal is seen after rounding to 24 bits.
        let tiny = x.abs() == f32::MIN_POSITIVE
            && f64::from(narrow(value * APART, 0.0, direction).abs()) < APART * f64::from(f32::MIN_POSITIVE);
        bits = if tiny { bits & 0x8000_0000 } else { flush(bits) };
    }
    if conversion.sat {
        bits = saturate32(bits);
    }
    if conversion.relu {
        bits = relu(bits);
    }
    u64::from(match conversion.to {
        Type::Tf32 => f32_to_tf32(bits),
        Type::F32 => bits,
        to => to_half(bits, to, direction),
    })
}

/// Packs two `f32`: `a` into the upper half, `b` into the lower.
pub fn pack_halves(a: u32, b: u32, conversion: Conversion) -> u32 {
    let direction = conversion.round.and_then(Direction::of).unwrap_or(Direction::Nearest);
    let to = if conversion.to == Type::F16x2 { Type::F16 } else { Type::Bf16 };
    let half = |bits: u32| to_half(if conversion.relu { relu(bits) } else { bits }, to, direction);
    half(a) << 16 | half(b)
}
