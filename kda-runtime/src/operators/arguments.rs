//! What an operator asks of a tensor argument, in the operator's own names.
//!
//! A launch checks every argument again, in the kernel's names. An operator comes first, because a kernel may split one
//! argument over several parameters and states its conditions as formulas.

use super::OpError;
use kda_core::{Elem, TensorArg};

/// One tensor argument while it is checked. Each method passes or says what was given and what is needed.
#[derive(Clone, Copy)]
pub(super) struct Argument<'a> {
    op: &'static str,
    param: &'static str,
    tensor: &'a TensorArg,
    /// Names of the axes, outermost first.
    axes: &'static [&'static str],
}

impl<'a> Argument<'a> {
    /// Checks element type and rank; `axes` names the axes, `elems` the element types that are taken.
    pub fn new(
        op: &'static str,
        param: &'static str,
        tensor: &'a TensorArg,
        axes: &'static [&'static str],
        elems: &'static [Elem],
    ) -> Result<Argument<'a>, OpError> {
        if !elems.contains(&tensor.elem) {
            let names: Vec<String> = elems.iter().map(Elem::to_string).collect();
            return Err(OpError::Dtype { op, param, given: tensor.elem, needed: names.join(" or ") });
        }
        if tensor.shape().len() != axes.len() {
            let needed = format!("{} axes are needed: [{}]", axes.len(), axes.join(", "));
            return Err(OpError::Rank { op, param, given: tensor.shape().to_vec(), needed });
        }
        Ok(Argument { op, param, tensor, axes })
    }

    /// Size along an axis.
    pub fn size(&self, axis: usize) -> u64 {
        self.tensor.shape()[axis]
    }

    /// The axis has exactly this size; `why` says whence.
    pub fn exactly(&self, axis: usize, needed: u64, why: &str) -> Result<(), OpError> {
        if self.size(axis) == needed {
            Ok(())
        } else {
            Err(self.wrong_size(axis, format!("{needed} is needed ({why})")))
        }
    }

    /// The axis has at least this size.
    pub fn at_least(&self, axis: usize, needed: u64, why: &str) -> Result<(), OpError> {
        if self.size(axis) >= needed {
            Ok(())
        } else {
            Err(self.wrong_size(axis, format!("at least {needed} is needed ({why})")))
        }
    }

    /// The axis has at most this size.
    pub fn at_most(&self, axis: usize, needed: u64, why: &str) -> Result<(), OpError> {
        if self.size(axis) <= needed {
            Ok(())
        } else {
            Err(self.wrong_size(axis, format!("at most {needed} is possible ({why})")))
        }
    }

    /// The axis has exactly this stride. The stride of an axis that is never stepped along does not matter.
    pub fn stride(&self, axis: usize, needed: u64) -> Result<(), OpError> {
        if self.steps(axis).is_none_or(|stride| stride == needed) {
            return Ok(());
        }
        Err(self.layout(format!("a stride of {needed} elements along {} is needed", self.axes[axis])))
    }

    /// The stride of the axis is a multiple of `needed` elements, which keeps `bytes`-byte accesses aligned.
    pub fn stride_multiple(&self, axis: usize, needed: u64) -> Result<(), OpError> {
        if self.steps(axis).is_none_or(|stride| stride.is_multiple_of(needed)) {
            return Ok(());
        }
        let axis = self.axes[axis];
        Err(self.layout(format!("a stride along {axis} that is a multiple of {needed} elements is needed")))
    }

    /// No two elements share an address: what is written must not be written twice.
    pub fn distinct(&self) -> Result<(), OpError> {
        match self.tensor.overlap() {
            Some(_) => Err(self.layout("elements with addresses of their own are needed, as they are written".into())),
            None => Ok(()),
        }
    }

    /// The memory holds every element and starts at a multiple of `align` bytes. An empty tensor needs none.
    pub fn memory(&self, align: u64) -> Result<(), OpError> {
        let (op, param, t) = (self.op, self.param, self.tensor);
        if t.shape().contains(&0) {
            return Ok(());
        }
        if t.ptr == 0 {
            return Err(OpError::NullPointer { op, param, shape: t.shape().to_vec() });
        }
        if !t.ptr.is_multiple_of(align) {
            return Err(OpError::Misaligned { op, param, given: t.ptr, needed: align });
        }
        if t.extent_bytes() > u128::from(t.bytes) {
            // What is past 64 bits is past any memory.
            let needed = u64::try_from(t.extent_bytes()).unwrap_or(u64::MAX);
            let (shape, strides) = (t.shape().to_vec(), t.strides().to_vec());
            return Err(OpError::TooFewBytes { op, param, given: t.bytes, needed, shape, strides });
        }
        Ok(())
    }

    /// An error about the order or the distances of the elements.
    pub fn layout(&self, needed: String) -> OpError {
        let (shape, strides) = (self.tensor.shape().to_vec(), self.tensor.strides().to_vec());
        OpError::Layout { op: self.op, param: self.param, shape, strides, needed }
    }

    fn wrong_size(&self, axis: usize, needed: String) -> OpError {
        let (op, param, given) = (self.op, self.param, self.size(axis));
        OpError::Size { op, param, shape: self.tensor.shape().to_vec(), axis: self.axes[axis], given, needed }
    }

    /// The stride of an axis that is stepped along.
    fn steps(&self, axis: usize) -> Option<u64> {
        (self.size(axis) > 1 && !self.tensor.shape().contains(&0)).then(|| self.tensor.strides()[axis])
    }
}

/// True for `[.., 3, D]` in memory, false for `[.., D, 3]`; `axis` is that of D.
pub(super) fn histories(argument: &Argument, tensor: &TensorArg, axis: usize) -> Result<bool, OpError> {
    match tensor.strides()[axis..axis + 2] {
        [3, 1] => Ok(false),
        [1, tap] if tap.is_multiple_of(whole(tensor.elem)) => Ok(true),
        [1, _] => argument.stride_multiple(axis + 1, whole(tensor.elem)).map(|()| true),
        _ => {
            let orders = "[D, 3] (strides 3 and 1) or [3, D] (stride 1 along D)";
            Err(argument.layout(format!("the last two axes in the memory order {orders} are needed")))
        }
    }
}

/// Elements in 16 bytes.
pub(super) fn whole(elem: Elem) -> u64 {
    16 / u64::from(elem.bytes())
}
