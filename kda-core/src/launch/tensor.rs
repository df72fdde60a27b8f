//! A tensor argument: where it lies, and what its shape and strides say of the memory it takes.

use super::LaunchError;
use crate::Elem;

/// Highest rank of a tensor argument.
pub const MAX_RANK: usize = 6;

/// A tensor in device memory: pointer, byte length, dtype, shape and element strides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorArg {
    /// Device address of element 0.
    pub ptr: u64,
    /// Bytes from `ptr` to the end of the memory that the kernel may touch.
    pub bytes: u64,
    /// Element type.
    pub elem: Elem,
    rank: u8,
    shape: [u64; MAX_RANK],
    strides: [u64; MAX_RANK],
}

impl TensorArg {
    /// A tensor of any strides (elements). Axes past [`MAX_RANK`] or a stride list of another length give
    /// [`LaunchError::BadTensor`].
    pub fn strided(ptr: u64, bytes: u64, elem: Elem, shape: &[u64], strides: &[u64]) -> Result<Self, LaunchError> {
        if shape.len() > MAX_RANK || shape.len() != strides.len() {
            return Err(LaunchError::BadTensor { shape: shape.to_vec(), strides: strides.to_vec() });
        }
        let mut arg =
            TensorArg { ptr, bytes, elem, rank: shape.len() as u8, shape: [0; MAX_RANK], strides: [0; MAX_RANK] };
        arg.shape[..shape.len()].copy_from_slice(shape);
        arg.strides[..strides.len()].copy_from_slice(strides);
        Ok(arg)
    }

    /// A dense row-major tensor.
    pub fn dense(ptr: u64, bytes: u64, elem: Elem, shape: &[u64]) -> Result<Self, LaunchError> {
        let mut strides = vec![1u64; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis].saturating_mul(shape[axis].max(1));
        }
        TensorArg::strided(ptr, bytes, elem, shape, &strides)
    }

    /// Shape, outermost first.
    pub fn shape(&self) -> &[u64] {
        &self.shape[..self.rank as usize]
    }

    /// Strides in elements, outermost first.
    pub fn strides(&self) -> &[u64] {
        &self.strides[..self.rank as usize]
    }

    /// Bytes from element 0 to the end of the last element; 0 if an axis is empty. What is past 128 bits is the largest
    /// number of 128 bits: more than any memory.
    pub fn extent_bytes(&self) -> u128 {
        if self.shape().contains(&0) {
            return 0;
        }
        let steps = self.shape().iter().zip(self.strides()).map(|(&n, &s)| u128::from(n - 1) * u128::from(s));
        let last = steps.fold(0u128, u128::saturating_add);
        last.saturating_add(1).saturating_mul(u128::from(self.elem.bytes()))
    }

    /// The first axis, from the smallest stride on, that steps over less than what the axes before it span, and that span in
    /// elements; `None` if every element is known to have an address of its own. Axes of one element are never stepped along.
    pub fn overlap(&self) -> Option<(usize, u128)> {
        if self.shape().contains(&0) {
            return None;
        }
        let steps = self.shape().iter().zip(self.strides()).enumerate();
        let mut axes: Vec<(u64, u64, usize)> = steps.map(|(axis, (size, stride))| (*stride, *size, axis)).collect();
        axes.retain(|(_, size, _)| *size > 1);
        // Of equal strides the inner axis comes first; an axis that stands still is the last.
        axes.sort_unstable_by_key(|(stride, _, axis)| (*stride == 0, *stride, std::cmp::Reverse(*axis)));
        let mut span = 1u128;
        for (stride, size, axis) in axes {
            if u128::from(stride) < span {
                return Some((axis, span));
            }
            span = span.saturating_add(u128::from(size - 1).saturating_mul(stride.into()));
        }
        None
    }
}
