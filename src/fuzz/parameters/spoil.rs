//! What is made wrong about an argument.

use kda_core::{Elem, TensorArg};
use kda_ref::rng::Rng;

/// Numbers at which arithmetic on sizes turns over.
const EDGES: [u64; 16] = [
    0,
    1,
    2,
    3,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    (1 << 32) + 1,
    1 << 40,
    1 << 62,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX - 15,
    u64::MAX,
];

/// A size or a stride near `given`, or one of the edges.
fn number(given: u64, rng: &mut Rng) -> u64 {
    match rng.below(8) {
        0 => given.wrapping_add(1),
        1 => given.wrapping_sub(1),
        2 => given.wrapping_mul(2),
        3 => given.wrapping_add(8),
        4 => given / 2,
        5 => given.wrapping_add(128),
        _ => rng.choose(&EDGES),
    }
}

/// Makes one thing about a tensor wrong. Sometimes its memory grows with it, so that the size is not what is refused.
pub fn tensor(tensor: &mut TensorArg, rng: &mut Rng) {
    let (mut shape, mut strides) = (tensor.shape().to_vec(), tensor.strides().to_vec());
    let axis = rng.below(shape.len().max(1));
    match rng.below(12) {
        0 => {
            tensor.ptr =
                rng.choose(&[0, 1, 2, 4, 8, tensor.ptr ^ 1, tensor.ptr ^ 2, tensor.ptr ^ 4, tensor.ptr ^ 8, u64::MAX])
        }
        1 => tensor.bytes = number(tensor.bytes, rng),
        2 => tensor.elem = rng.choose(&Elem::ALL),
        3 if !shape.is_empty() => {
            shape.remove(axis);
            strides.remove(axis);
        }
        4 => {
            shape.insert(axis, rng.choose(&[0, 1, 2]));
            strides.insert(axis, rng.choose(&EDGES));
        }
        5 if shape.len() > 1 => strides.swap(0, axis),
        6..9 if !shape.is_empty() => shape[axis] = number(shape[axis], rng),
        _ if !shape.is_empty() => strides[axis] = number(strides[axis], rng),
        _ => tensor.ptr = 0,
    }
    // A rank that no tensor can have is refused where it is made.
    if let Ok(mut changed) = TensorArg::strided(tensor.ptr, tensor.bytes, tensor.elem, &shape, &strides) {
        if rng.coin() {
            changed.bytes = changed.bytes.max(u64::try_from(changed.extent_bytes()).unwrap_or(u64::MAX));
        }
        *tensor = changed;
    }
}

/// Makes an axis of a tensor shorter, and leaves its strides and its memory: what is still touched of the axis lies between
/// elements, or behind the last.
pub fn shorter(tensor: &mut TensorArg, rng: &mut Rng) {
    let (mut shape, strides) = (tensor.shape().to_vec(), tensor.strides().to_vec());
    let axis = rng.below(shape.len().max(1));
    if let Some(size) = shape.get_mut(axis) {
        *size = size.saturating_sub(1 + rng.below(2) as u64);
    }
    if let Ok(changed) = TensorArg::strided(tensor.ptr, tensor.bytes, tensor.elem, &shape, &strides) {
        *tensor = changed;
    }
}

/// A scalar of 32 bits at an edge.
pub fn scalar(rng: &mut Rng) -> u32 {
    rng.choose(&[0, 1, 2, 3, 31, 32, 127, 128, 1 << 16, (1 << 31) - 1, 1 << 31, u32::MAX - 1, u32::MAX])
}

/// A float, special ones among them.
pub fn float(rng: &mut Rng) -> f32 {
    rng.choose(&[0.0, -0.0, 1.0, -5.0, 0.088, 1e-45, f32::MAX, f32::MIN, f32::INFINITY, f32::NEG_INFINITY, f32::NAN])
}
