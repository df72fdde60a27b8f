//! Tensors with another shape or other strides over the same memory.

use kda::core::TensorArg;

/// The tensor with another shape and other strides over the same memory.
pub fn reshaped(tensor: &TensorArg, shape: &[u64], strides: &[u64]) -> TensorArg {
    TensorArg::strided(tensor.ptr, tensor.bytes, tensor.elem, shape, strides).expect("a tensor")
}

/// With one size changed.
pub fn resized(tensor: &TensorArg, axis: usize, size: u64) -> TensorArg {
    let mut shape = tensor.shape().to_vec();
    shape[axis] = size;
    reshaped(tensor, &shape, tensor.strides())
}

/// With one stride changed.
pub fn restrided(tensor: &TensorArg, axis: usize, stride: u64) -> TensorArg {
    let mut strides = tensor.strides().to_vec();
    strides[axis] = stride;
    reshaped(tensor, tensor.shape(), &strides)
}
