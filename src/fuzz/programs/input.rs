//! Numbers that programs read and constants in their text: any bits, and those at which arithmetic turns over.

use super::forms::Kind;
use super::generate::{BLOCK, GRID, WORDS, pool};
use kda_ref::rng::Rng;

/// What the program reads: for each register of each thread a word of its kind.
pub(super) fn input(rng: &mut Rng) -> Vec<u8> {
    let kinds: Vec<Kind> = pool().map(|(kind, _)| kind).collect();
    let mut out = Vec::new();
    for _ in 0..BLOCK * GRID {
        for index in 0..WORDS {
            out.extend_from_slice(&word(kinds.get(index).copied().unwrap_or(Kind::D), rng).to_le_bytes());
        }
    }
    out
}

/// Bits of a kind: any, or near an edge.
pub(super) fn word(kind: Kind, rng: &mut Rng) -> u64 {
    let any = rng.next_u64();
    // Exponent and mantissa bits of a float.
    let float = match kind {
        Kind::F16 | Kind::F16x2 => Some((5, 10)),
        Kind::Bf16 | Kind::Bf16x2 => Some((8, 7)),
        Kind::F32 => Some((8, 23)),
        Kind::F64 => Some((11, 52)),
        _ => None,
    };
    let Some((exponent, mantissa)) = float else {
        return match rng.below(4) {
            0 => any,
            1 => any % 64,
            2 => (any % 16).wrapping_neg(),
            _ => (1u64 << (any % 64)).wrapping_sub(any >> 62),
        };
    };
    let width = exponent + mantissa + 1;
    let bias = (1u64 << (exponent - 1)) - 1;
    let one = |rng: &mut Rng, any: u64| {
        let sign = (any >> 63) << (width - 1);
        let low = any & ((1 << mantissa) - 1);
        match rng.below(10) {
            0 => any & (u64::MAX >> (64 - width)),
            // Zero, one, infinity, a NaN, the largest, subnormal numbers.
            1 => sign,
            2 => sign | bias << mantissa,
            3 => sign | ((1 << exponent) - 1) << mantissa | rng.choose(&[0, 0, low | 1]),
            4 => sign | rng.choose(&[low >> 1, 1, (1 << mantissa) - 1, 1 << mantissa]),
            5 => sign | (((1 << exponent) - 2) << mantissa) | low,
            // Near one, and whole numbers.
            6 => sign | (bias + rng.below(12) as u64) << mantissa | low & !((1 << (mantissa - mantissa / 3)) - 1),
            _ => sign | (bias - 4 + rng.below(9) as u64) << mantissa | low,
        }
    };
    let low = one(rng, any);
    match kind {
        Kind::F16x2 | Kind::Bf16x2 => low | one(rng, any.rotate_left(23)) << 16,
        _ => low,
    }
}
