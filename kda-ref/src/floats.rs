//! Views of float buffers whose element type is known at run time only.

use crate::round::widen;
use half::bf16;

/// A read-only view of fp64, fp32 or bf16 elements.
#[derive(Clone, Copy, Debug)]
pub enum Floats<'a> {
    /// float64 elements.
    F64(&'a [f64]),
    /// fp32 elements.
    F32(&'a [f32]),
    /// bf16 elements.
    Bf16(&'a [bf16]),
}

impl Floats<'_> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Floats::F64(x) => x.len(),
            Floats::F32(x) => x.len(),
            Floats::Bf16(x) => x.len(),
        }
    }

    /// True when there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Element `i`, widened exactly.
    #[inline]
    pub fn get(&self, i: usize) -> f64 {
        match self {
            Floats::F64(x) => x[i],
            Floats::F32(x) => f64::from(x[i]),
            Floats::Bf16(x) => f64::from(widen(x[i])),
        }
    }

    /// Element `i` as fp32: exact for fp32 and bf16, rounded to nearest for fp64.
    #[inline]
    pub fn get_f32(&self, i: usize) -> f32 {
        match self {
            Floats::F64(x) => x[i] as f32,
            Floats::F32(x) => x[i],
            Floats::Bf16(x) => widen(x[i]),
        }
    }

    /// Elements `start .. start + len`, widened exactly.
    pub fn widened(&self, start: usize, len: usize) -> Vec<f64> {
        (start..start + len).map(|i| self.get(i)).collect()
    }
}

/// A view of fp32 or bf16 elements that an operator writes bit for bit.
#[derive(Debug)]
pub enum FloatsMut<'a> {
    /// fp32 elements.
    F32(&'a mut [f32]),
    /// bf16 elements.
    Bf16(&'a mut [bf16]),
}

impl FloatsMut<'_> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            FloatsMut::F32(x) => x.len(),
            FloatsMut::Bf16(x) => x.len(),
        }
    }

    /// True when there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies a value that the element type represents exactly. No rounding takes place: a bf16 element keeps the upper
    /// half of the bits, so copying an fp32 value with more bits is the caller's mistake.
    #[inline]
    pub fn put_exact(&mut self, i: usize, value: f32) {
        match self {
            FloatsMut::F32(x) => x[i] = value,
            FloatsMut::Bf16(x) => {
                debug_assert_eq!(value.to_bits() & 0xFFFF, 0, "value {value} is not a bf16 value");
                x[i] = bf16::from_bits((value.to_bits() >> 16) as u16);
            }
        }
    }
}

/// Rows of an array whose innermost dimension is contiguous and whose rows lie `stride` elements apart.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// The elements.
    pub data: Floats<'a>,
    /// Distance from one row to the next, in elements.
    pub stride: usize,
}

impl<'a> Rows<'a> {
    /// Rows that follow each other without a gap, `width` elements each.
    pub fn packed(data: Floats<'a>, width: usize) -> Self {
        Rows { data, stride: width }
    }

    /// Element `column` of row `row`, widened exactly.
    #[inline]
    pub fn get(&self, row: usize, column: usize) -> f64 {
        self.data.get(row * self.stride + column)
    }
}

/// An owned buffer of fp32 or bf16 elements.
#[derive(Clone, Debug, PartialEq)]
pub enum FloatVec {
    /// fp32 elements.
    F32(Vec<f32>),
    /// bf16 elements.
    Bf16(Vec<bf16>),
}

impl FloatVec {
    /// A buffer of `len` times `value`, which is rounded for bf16.
    pub fn filled(bf16_elements: bool, len: usize, value: f32) -> Self {
        if bf16_elements { FloatVec::Bf16(vec![bf16::from_f32(value); len]) } else { FloatVec::F32(vec![value; len]) }
    }

    /// A read-only view.
    pub fn view(&self) -> Floats<'_> {
        match self {
            FloatVec::F32(x) => Floats::F32(x),
            FloatVec::Bf16(x) => Floats::Bf16(x),
        }
    }

    /// A view that can be written.
    pub fn view_mut(&mut self) -> FloatsMut<'_> {
        match self {
            FloatVec::F32(x) => FloatsMut::F32(x),
            FloatVec::Bf16(x) => FloatsMut::Bf16(x),
        }
    }

    /// The bits of every element: equal buffers are equal here even where they hold NaN.
    pub fn bits(&self) -> Vec<u32> {
        match self {
            FloatVec::F32(x) => x.iter().map(|v| v.to_bits()).collect(),
            FloatVec::Bf16(x) => x.iter().map(|v| u32::from(v.to_bits())).collect(),
        }
    }
}
