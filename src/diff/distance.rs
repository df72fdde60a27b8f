//! How far apart two contents of one tensor are.

use half::{bf16, f16};
use kda_core::Elem;
use kda_ref::budget::relative_error;

/// Two contents of a tensor, compared over the elements that either side has written.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Name of the parameter.
    pub tensor: &'static str,
    /// Type of its elements.
    pub elem: Elem,
    /// Elements that were written.
    pub written: usize,
    /// Of these, how many differ in their bits; two NaNs are equal.
    pub differing: usize,
    /// Relative Frobenius distance; for integers the number of elements that differ.
    pub distance: f64,
}

/// Compares what a launch left on two sides that began with the same `before`. All three hold whole elements.
pub fn compare(tensor: &'static str, elem: Elem, before: &[u8], device: &[u8], simulator: &[u8]) -> Difference {
    let size = elem.bytes() as usize;
    let (mut written, mut differing) = (0, 0);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let chunks = before.chunks_exact(size).zip(device.chunks_exact(size)).zip(simulator.chunks_exact(size));
    for ((before, device), simulator) in chunks {
        if device == before && simulator == before {
            continue;
        }
        written += 1;
        if device == simulator {
            // NaNs at the same place are no distance.
            let value = number(elem, device);
            let value = if value.is_finite() { value } else { 0.0 };
            ours.push(value);
            theirs.push(value);
            continue;
        }
        let (x, y) = (number(elem, device), number(elem, simulator));
        if elem.is_float() && x.is_nan() && y.is_nan() {
            continue;
        }
        differing += 1;
        ours.push(x);
        theirs.push(y);
    }
    let distance = match (differing, elem.is_float()) {
        (0, _) => 0.0,
        (_, true) => relative_error(&theirs, &ours),
        (count, false) => count as f64,
    };
    Difference { tensor, elem, written, differing, distance }
}

fn number(elem: Elem, bytes: &[u8]) -> f64 {
    let word = bytes.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
    match elem {
        Elem::F32 => f32::from_bits(word as u32).into(),
        Elem::F64 => f64::from_bits(word),
        Elem::BF16 => bf16::from_bits(word as u16).into(),
        Elem::F16 => f16::from_bits(word as u16).into(),
        _ => word as f64,
    }
}
