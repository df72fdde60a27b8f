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

/// Written tensors have memory of their own: apart from each other and from everything that is read. `but` names pairs, a
/// written tensor first, that may be the same.
pub(super) fn no_overlap(
    op: &'static str,
    written: &[(&'static str, &TensorArg)],
    read: &[(&'static str, &TensorArg)],
    but: &[(&'static str, &'static str)],
) -> Result<(), OpError> {
    for (at, (param, tensor)) in written.iter().enumerate() {
        for (other, second) in written[at + 1..].iter().chain(read) {
            let may_be_same = but.contains(&(param, other));
            if apart(tensor, second) || may_be_same && tensor == second {
                continue;
            }
            let needed = match may_be_same {
                true => "memory of its own is needed, or the very same tensor",
                false => "memory of its own is needed, as it is written",
            };
            let bytes = u64::try_from(tensor.extent_bytes()).unwrap_or(u64::MAX);
            return Err(OpError::Overlap { op, param, given: tensor.ptr, bytes, other, at: second.ptr, needed });
        }
    }
    Ok(())
}

/// True if two tensors are known to share no byte: one ends ahead of the other, or their outermost steps are as long as each
/// other and what they step over lies side by side, as the columns of a wider tensor do.
pub(super) fn apart(a: &TensorArg, b: &TensorArg) -> bool {
    let (from_a, from_b) = (u128::from(a.ptr), u128::from(b.ptr));
    if a.shape().contains(&0) || b.shape().contains(&0) {
        return true;
    }
    if from_a + a.extent_bytes() <= from_b || from_b + b.extent_bytes() <= from_a {
        return true;
    }
    let (Some((step_a, inner_a)), Some((step_b, inner_b))) = (outermost(a), outermost(b)) else { return false };
    if step_a != step_b || step_a == 0 {
        return false;
    }
    // Where b begins within a step of a.
    let offset = (from_b + step_a - from_a % step_a) % step_a;
    inner_a <= offset && offset + inner_b <= step_a
}

/// The longest step in bytes, and the bytes from the first to the last of what is stepped over.
fn outermost(tensor: &TensorArg) -> Option<(u128, u128)> {
    let bytes = u128::from(tensor.elem.bytes());
    let axes = || tensor.shape().iter().zip(tensor.strides()).filter(|(size, _)| **size > 1);
    let (size, step) = axes().max_by_key(|(_, stride)| **stride)?;
    let over = tensor.extent_bytes().checked_sub(u128::from(size - 1) * u128::from(*step) * bytes)?;
    Some((u128::from(*step) * bytes, over))
}

/// Elements in 16 bytes.
pub(super) fn whole(elem: Elem) -> u64 {
    16 / u64::from(elem.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(ptr: u64, shape: &[u64], strides: &[u64]) -> TensorArg {
        TensorArg::strided(ptr, 1 << 20, Elem::U8, shape, strides).unwrap()
    }

    /// Whether any byte belongs to both, counted out.
    fn shared(a: &TensorArg, b: &TensorArg) -> bool {
        let bytes = |t: &TensorArg| -> Vec<u64> {
            let [(rows, pitch), (columns, step)] = [0, 1].map(|axis| (t.shape()[axis], t.strides()[axis]));
            (0..rows).flat_map(|r| (0..columns).map(move |c| t.ptr + r * pitch + c * step)).collect()
        };
        let first = bytes(a);
        bytes(b).iter().any(|byte| first.contains(byte))
    }

    #[test]
    fn tensors_that_are_apart_share_no_byte() {
        let mut kept_apart = 0;
        for pitch in [8, 12] {
            for columns in 1..=8 {
                for rows in 0..3 {
                    for at in 0..48 {
                        let a = tensor(64, &[3, 4], &[8, 1]);
                        let b = tensor(40 + at, &[rows, columns], &[pitch, 1]);
                        assert!(!apart(&a, &b) || !shared(&a, &b), "{a:?}, {b:?}");
                        assert_eq!(apart(&a, &b), apart(&b, &a), "{a:?}, {b:?}");
                        kept_apart += usize::from(apart(&a, &b) && (40..88).contains(&at) && rows > 1);
                    }
                }
            }
        }
        assert!(kept_apart > 0);
        // Columns of one tensor, and what reaches into them.
        let left = tensor(64, &[3, 4], &[8, 1]);
        assert!(apart(&left, &tensor(68, &[3, 4], &[8, 1])) && apart(&tensor(68, &[3, 4], &[8, 1]), &left));
        assert!(!apart(&left, &tensor(68, &[3, 5], &[8, 1])) && !apart(&left, &tensor(67, &[3, 4], &[8, 1])));
        assert!(apart(&left, &tensor(66, &[0, 4], &[8, 1])));
    }

    #[test]
    fn what_may_be_the_same_is_the_very_same() {
        let (a, b) = (tensor(64, &[3, 4], &[8, 1]), tensor(64, &[2, 4], &[8, 1]));
        let check = |read: &TensorArg, but: &[_]| no_overlap("op", &[("y", &a)], &[("x", read)], but);
        assert_eq!(check(&a, &[("y", "x")]), Ok(()));
        let words = check(&b, &[("y", "x")]).unwrap_err().to_string();
        assert!(
            words.contains("`y` at 0x40, 20 bytes, shares memory with `x` at 0x40")
                && words.ends_with("the very same tensor")
        );
        assert!(check(&a, &[]).unwrap_err().to_string().ends_with("as it is written"));
        assert!(no_overlap("op", &[("y", &a), ("z", &b)], &[], &[]).is_err());
    }
}
