//! Tensors behind a map: what the copy engine asks of them.

use super::{LaunchError, TensorArg};
use crate::desc::TensorParam;
use crate::tensor_map::TensorMapParam;

/// A tensor behind a map, as the other checks see it.
pub fn behind(map: &TensorMapParam) -> TensorParam {
    let TensorMapParam { elem, writes, optional, stable, dims, .. } = *map;
    TensorParam { elem, writes, optional, stable, align: 16, dims }
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
    match tensor.overlap().filter(|_| map.writes) {
        Some((axis, needed)) => {
            Err(LaunchError::MapOverlap { entry, param, axis, given: tensor.strides()[axis], needed })
        }
        None => Ok(()),
    }
}
