//! Tensor maps in the driver's encoding.

use super::result::checked;
use cudarc::driver::sys::{
    self, CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion,
    CUtensorMapSwizzle,
};
use kda_core::exec::ExecError;
use kda_core::tensor_map::{MAP_BYTES, MAX_MAP_RANK};
use kda_core::{Elem, Swizzle, TensorMapArg};

/// Encodes a map. Reads past the tensor's end give zeros, stores there are dropped.
pub(super) fn encode(map: &TensorMapArg) -> Result<[u8; MAP_BYTES as usize], ExecError> {
    let kind = match map.param.elem {
        Elem::U8 | Elem::Bool => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
        Elem::U16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT16,
        Elem::U32 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT32,
        Elem::I32 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_INT32,
        Elem::U64 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT64,
        Elem::I64 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_INT64,
        Elem::F16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        Elem::BF16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        Elem::F32 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        Elem::F64 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
    };
    let swizzle = match map.param.swizzle {
        Swizzle::None => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
        Swizzle::B32 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        Swizzle::B64 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        Swizzle::B128 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
    };
    let (shape, strides) = (map.tensor.shape(), map.tensor.strides());
    let rank = map.param.tile.len().min(shape.len());
    if !(1..=MAX_MAP_RANK).contains(&rank) {
        return Err(ExecError::Unsupported(format!("a tensor map of {rank} axes; 1 to {MAX_MAP_RANK} are possible")));
    }
    let bytes = u64::from(map.param.elem.bytes());
    let (mut sizes, mut pitches) = ([1u64; MAX_MAP_RANK], [16u64; MAX_MAP_RANK]);
    let (mut tile, steps) = ([1u32; MAX_MAP_RANK], [1u32; MAX_MAP_RANK]);
    for axis in 0..rank {
        let outer = rank - 1 - axis;
        sizes[axis] = shape[outer];
        tile[axis] = map.param.tile[outer];
        // The driver wants the pitch of every axis but the innermost, also of one that is never stepped along.
        if axis > 0 && shape[outer] > 1 {
            pitches[axis - 1] = strides[outer] * bytes;
        }
    }
    let mut encoded = CUtensorMap { opaque: [0; 16] };
    // SAFETY: the map is a valid place for the result; the arrays hold `rank` values, and one fewer for the pitches. The
    // driver only checks the address.
    let result = unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut encoded,
            kind,
            rank as u32,
            std::ptr::without_provenance_mut(map.tensor.ptr as usize),
            sizes.as_ptr(),
            pitches.as_ptr(),
            tile.as_ptr(),
            steps.as_ptr(),
            CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            // 128 bytes: as fast as none for streams, and 6 % faster than 256 bytes.
            CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    checked("cuTensorMapEncodeTiled", result).map_err(|failure| {
        failure.with(&format!(
            "address 0x{:x}, sizes {:?}, pitches {:?} bytes, box {:?}, {:?}",
            map.tensor.ptr,
            &sizes[..rank],
            &pitches[..rank - 1],
            &tile[..rank],
            map.param.swizzle
        ))
    })?;
    let mut out = [0u8; MAP_BYTES as usize];
    for (word, chunk) in encoded.opaque.iter().zip(out.chunks_exact_mut(8)) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    Ok(out)
}
