//! Floating-point arithmetic with every rounding, exactly.
//!
//! Round-to-nearest is the host's. The directed roundings take the host's result and the sign of its exact error, and step to the
//! neighbour where the sign asks for it.

use super::exact::sign;
use kda_ptx::modifier::{Accuracy, Round};
use std::cmp::Ordering;

/// The canonical NaN of `f32` results.
pub const NAN32: u32 = 0x7fff_ffff;
/// The canonical NaN of `f64` results.
pub const NAN64: u64 = 0x7ff8_0000_0000_0000;

/// Rounding direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Direction {
    /// To nearest, ties to even.
    Nearest,
    /// Toward zero.
    Zero,
    /// Toward minus infinity.
    Down,
    /// Toward plus infinity.
    Up,
}

impl Direction {
    /// Of a floating-point rounding modifier; `None` for those that round to integers.
    pub fn of(round: Round) -> Option<Direction> {
        Some(match round {
            Round::Rn => Direction::Nearest,
            Round::Rz => Direction::Zero,
            Round::Rm => Direction::Down,
            Round::Rp => Direction::Up,
            _ => return None,
        })
    }

    /// Of an accuracy that is a rounding.
    pub fn of_accuracy(accuracy: Accuracy) -> Option<Direction> {
        Some(match accuracy {
            Accuracy::Rn => Direction::Nearest,
            Accuracy::Rz => Direction::Zero,
            Accuracy::Rm => Direction::Down,
            Accuracy::Rp => Direction::Up,
            Accuracy::Approx | Accuracy::Full => return None,
        })
    }
}

/// Modes of a float operation in one constant: direction in bits 0..2, ftz in bit 2, saturation in bit 3.
#[derive(Clone, Copy, Debug)]
pub struct Modes {
    /// Rounding.
    pub direction: Direction,
    /// Subnormals become zero.
    pub ftz: bool,
    /// Clamp to [0, 1].
    pub sat: bool,
}

impl Modes {
    /// To nearest, subnormals kept, not clamped.
    pub fn is_plain(self) -> bool {
        self.direction == Direction::Nearest && !self.ftz && !self.sat
    }

    /// As the constant of an instruction.
    pub fn pack(self) -> u32 {
        self.direction as u32 | u32::from(self.ftz) << 2 | u32::from(self.sat) << 3
    }

    /// From the constant of an instruction.
    #[inline(always)]
    pub fn unpack(aux: u32) -> Modes {
        let direction = match aux & 3 {
            0 => Direction::Nearest,
            1 => Direction::Zero,
            2 => Direction::Down,
            _ => Direction::Up,
        };
        Modes { direction, ftz: aux & 4 != 0, sat: aux & 8 != 0 }
    }
}

/// A subnormal becomes zero of its sign.
#[inline(always)]
pub fn flush(bits: u32) -> u32 {
    if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits }
}

/// Clamps to [0, 1]; NaN becomes 0.
#[inline(always)]
pub fn saturate32(bits: u32) -> u32 {
    let x = f32::from_bits(bits);
    if x > 1.0 {
        1.0f32.to_bits()
    } else if x > 0.0 {
        bits
    } else {
        0
    }
}

/// Clamps to [0, 1]; NaN becomes 0.
#[inline(always)]
pub fn saturate64(bits: u64) -> u64 {
    let x = f64::from_bits(bits);
    if x > 1.0 {
        1.0f64.to_bits()
    } else if x > 0.0 {
        bits
    } else {
        0
    }
}

/// The canonical NaN instead of any other.
#[inline(always)]
pub fn canonical32(x: f32) -> u32 {
    let bits = x.to_bits();
    if x.is_nan() { NAN32 } else { bits }
}

/// The canonical NaN instead of any other.
#[inline(always)]
pub fn canonical64(x: f64) -> u64 {
    let bits = x.to_bits();
    if x.is_nan() { NAN64 } else { bits }
}

/// Sum and its exact error.
#[inline(always)]
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    let bb = s - a;
    (s, (a - (s - bb)) + (b - bb))
}

/// Where the exact value `near + error` goes from `near`, its nearest: one value below, none, or one above.
///
/// `error` needs only the right sign, zero where `near` is exact.
#[inline(always)]
fn direct(near: f64, error: f64, direction: Direction) -> Ordering {
    if near.is_nan() || error == 0.0 {
        return Ordering::Equal;
    }
    let down = match direction {
        Direction::Nearest => return Ordering::Equal,
        Direction::Down => true,
        Direction::Up => false,
        Direction::Zero if near == 0.0 => return Ordering::Equal,
        Direction::Zero => near > 0.0,
    };
    match (down, error > 0.0) {
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        _ => Ordering::Equal,
    }
}

/// Rounds the exact value `near + error`, `near` being its nearest `f32`, in a direction.
pub fn direct32(near: f32, error: f64, direction: Direction) -> f32 {
    match direct(near.into(), error, direction) {
        Ordering::Less => near.next_down(),
        Ordering::Equal => near,
        Ordering::Greater => near.next_up(),
    }
}

/// As [`direct32`] in `f64`.
pub fn direct64(near: f64, error: f64, direction: Direction) -> f64 {
    match direct(near, error, direction) {
        Ordering::Less => near.next_down(),
        Ordering::Equal => near,
        Ordering::Greater => near.next_up(),
    }
}

/// Rounds the exact value `value + error` to `f32`; `value` is its nearest `f64`.
pub fn narrow(value: f64, error: f64, direction: Direction) -> f32 {
    // Round to odd in f64: then the rounding to f32 sees that something lies below.
    let mut odd = value;
    if error != 0.0 && value.is_finite() && value.to_bits() & 1 == 0 {
        odd = if error > 0.0 { value.next_up() } else { value.next_down() };
        if value == 0.0 {
            odd = if error > 0.0 { f64::from_bits(1) } else { -f64::from_bits(1) };
        }
    }
    let near = odd as f32;
    let rest = if near.is_infinite() {
        // An infinity that rounding made, not an operand: toward zero it is the largest finite number.
        if odd.is_infinite() { 0.0 } else { -f64::from(near.signum()) }
    } else {
        odd - f64::from(near)
    };
    direct32(near, rest, direction)
}

fn zero_sign(x: f32, exact_zero: bool, signs: (bool, bool), direction: Direction) -> f32 {
    // A sum of opposite signs that is exactly zero is -0 only when rounding down.
    if exact_zero && signs.0 != signs.1 && direction == Direction::Down { -0.0 } else { x }
}

#[inline(always)]
fn finish32(x: f32, modes: Modes) -> u32 {
    let mut bits = canonical32(x);
    if modes.ftz {
        bits = flush(bits);
    }
    if modes.sat { saturate32(bits) } else { bits }
}

/// By what a result next to the subnormal numbers is moved away from them.
pub const APART: f64 = (1u128 << 64) as f64;

/// As [`finish32`], of a result that may have been rounded up from a subnormal number. Whether it is one is seen after rounding to
/// 24 bits: `moved` computes it again from operands that are [`APART`] times larger.
#[inline(always)]
fn finish_tiny(x: f32, modes: Modes, moved: impl FnOnce(f32) -> f32) -> u32 {
    if modes.ftz && x.abs() == f32::MIN_POSITIVE && f64::from(moved(APART as f32).abs()) < APART * f64::from(x.abs()) {
        return finish32(0f32.copysign(x), modes);
    }
    finish32(x, modes)
}

#[inline(always)]
fn input(bits: u32, modes: Modes) -> f32 {
    f32::from_bits(if modes.ftz { flush(bits) } else { bits })
}

/// `a + b` in `f32`.
pub fn add32(a: u32, b: u32, modes: Modes) -> u32 {
    let (x, y) = (input(a, modes), input(b, modes));
    let near = x + y;
    let value = if modes.direction == Direction::Nearest || !(x.is_finite() && y.is_finite()) {
        near
    } else {
        let (s, e) = two_sum(f64::from(x), f64::from(y));
        zero_sign(
            narrow(s, e, modes.direction),
            s == 0.0 && e == 0.0,
            (x.is_sign_negative(), y.is_sign_negative()),
            modes.direction,
        )
    };
    finish32(value, modes)
}

/// `a * b` in `f32`.
pub fn mul32(a: u32, b: u32, modes: Modes) -> u32 {
    let (x, y) = (input(a, modes), input(b, modes));
    let product = |x: f32| match modes.direction {
        Direction::Nearest => x * y,
        direction if x.is_finite() && y.is_finite() => narrow(f64::from(x) * f64::from(y), 0.0, direction),
        _ => x * y,
    };
    finish_tiny(product(x), modes, |apart| product(x * apart))
}

/// `a * b + c` in `f32`, rounded once.
pub fn fma32(a: u32, b: u32, c: u32, modes: Modes) -> u32 {
    let (x, y, z) = (input(a, modes), input(b, modes), input(c, modes));
    let sum = |x: f32, z: f32| match modes.direction {
        Direction::Nearest => x.mul_add(y, z),
        direction if x.is_finite() && y.is_finite() && z.is_finite() => {
            let product = f64::from(x) * f64::from(y);
            let (s, e) = two_sum(product, f64::from(z));
            let signs = (product.is_sign_negative(), z.is_sign_negative());
            zero_sign(narrow(s, e, direction), s == 0.0 && e == 0.0, signs, direction)
        }
        _ => x.mul_add(y, z),
    };
    finish_tiny(sum(x, z), modes, |apart| sum(x * apart, z * apart))
}

#[inline(always)]
fn finish64(x: f64, modes: Modes) -> u64 {
    let bits = canonical64(x);
    if modes.sat { saturate64(bits) } else { bits }
}

/// `x`; a zero that is exact although the signs of the two operands differ is negative where rounding goes down.
fn zero_sign64(x: f64, exact_zero: bool, signs: (bool, bool), direction: Direction) -> f64 {
    if exact_zero && signs.0 != signs.1 && direction == Direction::Down { -0.0 } else { x }
}

/// `a + b` in `f64`.
pub fn add64(a: u64, b: u64, modes: Modes) -> u64 {
    let (x, y) = (f64::from_bits(a), f64::from_bits(b));
    let near = x + y;
    let finite = x.is_finite() && y.is_finite();
    let rounded = toward(near, finite, modes.direction, || sign(&[(x, 1.0), (y, 1.0), (-near, 1.0)]));
    // No sum is so small that it is rounded to zero.
    let signs = (x.is_sign_negative(), y.is_sign_negative());
    finish64(zero_sign64(rounded, near == 0.0, signs, modes.direction), modes)
}

/// Rounds to `near`, or to its neighbour on the side of the exact value. Infinities that rounding made go back to the largest
/// finite number where the direction asks for it.
fn toward(near: f64, finite: bool, direction: Direction, side: impl FnOnce() -> Ordering) -> f64 {
    if direction == Direction::Nearest || !finite {
        return near;
    }
    let error = if near.is_infinite() { -near.signum() } else { f64::from(side() as i8) };
    direct64(near, error, direction)
}

/// `a * b` in `f64`.
pub fn mul64(a: u64, b: u64, modes: Modes) -> u64 {
    let (x, y) = (f64::from_bits(a), f64::from_bits(b));
    let near = x * y;
    let finite = x.is_finite() && y.is_finite();
    finish64(toward(near, finite, modes.direction, || sign(&[(x, y), (-near, 1.0)])), modes)
}

/// `a * b + c` in `f64`, rounded once.
pub fn fma64(a: u64, b: u64, c: u64, modes: Modes) -> u64 {
    let (x, y, z) = (f64::from_bits(a), f64::from_bits(b), f64::from_bits(c));
    let near = x.mul_add(y, z);
    let finite = x.is_finite() && y.is_finite() && z.is_finite();
    let mut side = Ordering::Equal;
    let rounded = toward(near, finite, modes.direction, || {
        side = sign(&[(x, y), (z, 1.0), (-near, 1.0)]);
        side
    });
    let signs = (x.is_sign_negative() != y.is_sign_negative(), z.is_sign_negative());
    finish64(zero_sign64(rounded, near == 0.0 && side.is_eq(), signs, modes.direction), modes)
}

/// `a / b` in `f32`, rounded.
pub fn div32(a: u32, b: u32, modes: Modes) -> u32 {
    let (x, y) = (input(a, modes), input(b, modes));
    let quotient = |x: f32| {
        if !(x.is_finite() && y.is_finite() && y != 0.0 && modes.direction != Direction::Nearest) {
            return x / y;
        }
        // q = x / y in f64; its remainder tells the side exactly.
        let q = f64::from(x) / f64::from(y);
        let remainder = (-q).mul_add(f64::from(y), f64::from(x));
        narrow(q, remainder * f64::from(y.signum()), modes.direction)
    };
    finish_tiny(quotient(x), modes, |apart| quotient(x * apart))
}

/// `sqrt a` in `f32`, rounded.
pub fn sqrt32(a: u32, modes: Modes) -> u32 {
    let x = input(a, modes);
    let value = if x > 0.0 && x.is_finite() && modes.direction != Direction::Nearest {
        let q = f64::from(x).sqrt();
        narrow(q, (-q).mul_add(q, f64::from(x)), modes.direction)
    } else {
        x.sqrt()
    };
    finish32(value, modes)
}

/// `a / b` in `f64`, rounded.
pub fn div64(a: u64, b: u64, modes: Modes) -> u64 {
    let (x, y) = (f64::from_bits(a), f64::from_bits(b));
    let q = x / y;
    let finite = x.is_finite() && y.is_finite() && y != 0.0;
    let side = || {
        let rest = sign(&[(x, 1.0), (-q, y)]);
        if y.is_sign_negative() { rest.reverse() } else { rest }
    };
    finish64(toward(q, finite, modes.direction, side), modes)
}

/// `sqrt a` in `f64`, rounded.
pub fn sqrt64(a: u64, modes: Modes) -> u64 {
    let x = f64::from_bits(a);
    let q = x.sqrt();
    let finite = x.is_finite() && q > 0.0;
    finish64(toward(q, finite, modes.direction, || sign(&[(x, 1.0), (-q, q)])), modes)
}
