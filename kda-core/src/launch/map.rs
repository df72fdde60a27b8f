//! Tensors behind a map: what the copy engine asks of them.

use super::{LaunchError, TensorArg};
use crate::desc::TensorParam;
use crate::tensor_map::TensorMapParam;

/// A tensor behind a map, as the other checks see it.
pub fn behind(map: &TensorMapParam) -> TensorParam {
    let TensorMapParam { elem, writes, stable, dims, .. } = *map;
    TensorParam { elem, writes, optional: false, stable, align: 16, dims }
}

/// What bulk tensor copies ask of a tensor: sizes of 1 to 2^32, strides that are multiples of 16 bytes and below 2^40, and rows of
/// whole 16 bytes if it is written, because stores fill the last 16 bytes of a row whatever its end. No two elements of a written
/// tensor share an address: in which order copies write them nobody says.
pub fn check(
    entry: &'static str,
    param: &'static str,
    map: &TensorMapParam,
    tensor: &TensorArg,
) -> Result<(), LaunchError> {
    let bytes = u64::from(tensor.elem.bytes());
    let rank = tensor.shape().len();
    for (axis, (&size, &stride)) in tensor.shape().iter().zip(tensor.strides()).enumerate() {
        if size == 0 {
            return Err(LaunchError::EmptyMap { entry, param, axis });
        }
        if size > 1 << 32 {
            let what = format!("axis {axis} of `{param}`");
            return Err(LaunchError::TooLarge { entry, what, given: size.into(), needed: 1 << 32 });
        }
        let inner = axis + 1 == rank;
        if inner && map.writes && size * bytes % 16 != 0 {
            return Err(LaunchError::MapRow { entry, param, axis, given: size, bytes: tensor.elem.bytes() });
        }
        if !inner && size > 1 && (stride.saturating_mul(bytes) % 16 != 0 || stride.saturating_mul(bytes) >= 1 << 40) {
            return Err(LaunchError::MapStride { entry, param, axis, given: stride.saturating_mul(bytes) });
        }
    }
    if map.writes { apart(entry, param, tensor) } else { Ok(()) }
}

/// Every axis of more than one element steps over all that the axes of smaller strides span.
fn apart(entry: &'static str, param: &'static str, tensor: &TensorArg) -> Result<(), LaunchError> {
    let sizes = tensor.shape().iter().zip(tensor.strides()).enumerate();
    let mut axes: Vec<(u64, u64, usize)> = sizes.map(|(axis, (size, stride))| (*stride, *size, axis)).collect();
    axes.retain(|(_, size, _)| *size > 1);
    // Of equal strides the inner axis comes first; an axis that stands still is the last.
    axes.sort_unstable_by_key(|(stride, _, axis)| (*stride == 0, *stride, std::cmp::Reverse(*axis)));
    let mut span = 1u128;
    for (stride, size, axis) in axes {
        if u128::from(stride) < span {
            return Err(LaunchError::MapOverlap { entry, param, axis, given: stride, needed: span });
        }
        span = span.saturating_add(u128::from(size - 1).saturating_mul(stride.into()));
    }
    Ok(())
}
