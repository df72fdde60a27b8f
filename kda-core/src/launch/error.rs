//! The reasons why a launch is refused: what was given and what is needed.

use super::MAX_RANK;
use crate::expr::ExprError;
use crate::{Arch, Elem};

/// Why a launch was refused. Nothing has been written when one of these is returned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// Shape and strides that do not describe a tensor.
    #[error(
        "a tensor needs as many strides as axes and at most {MAX_RANK} axes; given shape {shape:?}, strides {strides:?}"
    )]
    BadTensor {
        /// Given shape.
        shape: Vec<u64>,
        /// Given strides.
        strides: Vec<u64>,
    },
    /// The argument list does not match the kernel's fields.
    #[error("{entry}: field {index} needs {needed}")]
    BadField {
        /// Kernel entry.
        entry: &'static str,
        /// Position among the fields.
        index: usize,
        /// What is needed there.
        needed: String,
    },
    /// A tensor that is not optional was absent.
    #[error("{entry}: `{param}` is absent; it is not optional")]
    Absent {
        /// Kernel entry.
        entry: &'static str,
        /// Parameter.
        param: &'static str,
    },
    /// Wrong element type.
    #[error("{entry}: `{param}` holds {given}; {needed} is needed")]
    WrongElem {
        /// Kernel entry.
        entry: &'static str,
        /// Parameter.
        param: &'static str,
        /// Given type.
        given: Elem,
        /// Needed type.
        needed: Elem,
    },
    /// Wrong number of axes.
    #[error("{entry}: `{param}` has shape {given:?}; {needed} axes are needed: [{axes}]")]
    WrongRank {
        /// Kernel entry.
        entry: &'static str,
        /// Parameter.
        param: &'static str,
        /// Given shape.
        given: Vec<u64>,
        /// Needed rank.
        needed: usize,
        /// The axes as written in the kernel.
        axes: String,
    },
    /// A wrong size.
    #[error("{entry}: axis {axis} of `{param}` has size {given}; {needed} is needed ({why})")]
    WrongSize {
        /// Kernel entry.
        entry: &'static str,
        /// Parameter.
        param: &'static str,
        /// Axis, outermost first.
        axis: usize,
        /// Given size.
        given: u64,
        /// Needed size.
        needed: i128,
        /// Whence the needed size.
        why: String,
    },
    /// A stride that the compiled text cannot use.
    #[error("{entry}: axis {axis} of `{param}` has stride {given} elements; {needed} is needed")]
    WrongStride {
        /// Kernel entry.
        entry: &'static str,
        /// Parameter.
        param: &'static str,
        /// Axis, outermost first.
        axis: usize,
        /// Given stride.
        given: u64,
        /// Needed stride.
        needed: u64,
    },
    /// The memory behind a tensor is too small for its shape.
    #[error("{entry}: `{param}` has {given} bytes; its shape {shape:?} with strides {strides:?} needs {needed}")]
    TooFewBytes {
        /// Kernel entry.
        entry: &'static str,
        /// Parameter.
        param: &'static str,
        /// Given bytes.
        given: u64,
        /// Needed bytes.
        needed: u128,
        /// Given shape.
        shape: Vec<u64>,
        /// Given strides.
        strides: Vec<u64>,
    },
    /// A misaligned base address.
    #[error("{entry}: `{param}` starts at 0x{given:x}; an address that is a multiple of {needed} is needed")]
    Misaligned {
        /// Kernel entry.
        entry: &'static str,
        /// Parameter.
        param: &'static str,
        /// Given address.
        given: u64,
        /// Needed alignment, bytes.
        needed: u32,
    },
    /// An empty tensor behind a tensor map.
    #[error("{entry}: axis {axis} of `{param}` has size 0; a tensor map needs at least one element")]
    EmptyMap {
        /// Kernel entry.
        entry: &'static str,
        /// Parameter.
        param: &'static str,
        /// Axis, outermost first.
        axis: usize,
    },
    /// A written tensor behind a map whose rows end within 16 bytes: copies would write beyond them.
    #[error(
        "{entry}: axis {axis} of `{param}` has {given} elements; copies write whole 16 bytes of a row, so a multiple of {} is needed",
        16 / bytes
    )]
    MapRow {
        /// Kernel entry.
        entry: &'static str,
        /// Parameter.
        param: &'static str,
        /// Axis, the innermost one.
        axis: usize,
        /// Given elements.
        given: u64,
        /// Bytes of an element.
        bytes: u32,
    },
    /// A stride that bulk tensor copies cannot take.
    #[error(
        "{entry}: axis {axis} of `{param}` has a stride of {given} bytes; bulk tensor copies need a multiple of 16 below 2^40"
    )]
    MapStride {
        /// Kernel entry.
        entry: &'static str,
        /// Parameter.
        param: &'static str,
        /// Axis, outermost first.
        axis: usize,
        /// Given stride, bytes.
        given: u64,
    },
    /// A written tensor behind a map with two elements at one address.
    #[error(
        "{entry}: axis {axis} of `{param}` has stride {given} elements; it is written, so its rows must not overlap: at least {needed} is needed"
    )]
    MapOverlap {
        /// Kernel entry.
        entry: &'static str,
        /// Parameter.
        param: &'static str,
        /// Axis, outermost first.
        axis: usize,
        /// Given stride.
        given: u64,
        /// Elements that the axes of smaller strides span.
        needed: u128,
    },
    /// A null pointer with a shape that is not empty.
    #[error("{entry}: `{param}` is a null pointer, with shape {shape:?}")]
    NullPointer {
        /// Kernel entry.
        entry: &'static str,
        /// Parameter.
        param: &'static str,
        /// Given shape.
        shape: Vec<u64>,
    },
    /// A condition of `#[requires]` does not hold.
    #[error("{entry}: needs `{text}`; given {given}")]
    Requirement {
        /// Kernel entry.
        entry: &'static str,
        /// The condition as written.
        text: &'static str,
        /// The values of its names.
        given: String,
    },
    /// A size past the range of the kernel's 32-bit dimensions, or a grid past the device's limit.
    #[error("{entry}: {what} is {given}; at most {needed} is possible")]
    TooLarge {
        /// Kernel entry.
        entry: &'static str,
        /// Which size.
        what: String,
        /// Given size.
        given: i128,
        /// Largest size.
        needed: i128,
    },
    /// An expression of the kernel has no value for these arguments.
    #[error("{entry}: {source}")]
    Expr {
        /// Kernel entry.
        entry: &'static str,
        /// The cause.
        #[source]
        source: ExprError,
    },
    /// The kernel's text does not run on this device.
    #[error("{entry} is written for {needed}; the device has compute capability {}.{}", given.0, given.1)]
    WrongDevice {
        /// Kernel entry.
        entry: &'static str,
        /// Compute capability of the device.
        given: (u8, u8),
        /// Target of the text.
        needed: Arch,
    },
}
