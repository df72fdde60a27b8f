//! Tensors with gaps between rows.

/// Memory of a tensor, its shape, and its strides in elements.
#[derive(Clone)]
pub(super) struct Strided<T> {
    pub(super) memory: Vec<T>,
    pub(super) strides: Vec<usize>,
    shape: Vec<usize>,
}

impl<T: Copy> Strided<T> {
    /// Behind what an index of an axis holds lie `gaps` elements that belong to nothing; all elements are `gap`.
    pub(super) fn new(shape: &[usize], gaps: &[usize], gap: T) -> Strided<T> {
        let mut strides = vec![1; shape.len()];
        let mut size = 1;
        for axis in (0..shape.len()).rev() {
            strides[axis] = size + gaps[axis];
            size = shape[axis] * strides[axis];
        }
        Strided { memory: vec![gap; size], strides, shape: shape.to_vec() }
    }

    /// Gives every element a value, in order.
    pub(super) fn fill(&mut self, mut value: impl FnMut() -> T) {
        for i in 0..self.shape.iter().product() {
            let (mut left, mut place) = (i, 0);
            for (size, stride) in self.shape.iter().zip(&self.strides).rev() {
                place += left % size * stride;
                left /= size;
            }
            self.memory[place] = value();
        }
    }

    /// Where an element lies.
    pub(super) fn place(&self, index: &[usize]) -> usize {
        assert!(
            index.len() == self.shape.len() && index.iter().zip(&self.shape).all(|(i, size)| i < size),
            "{index:?}"
        );
        index.iter().zip(&self.strides).map(|(i, stride)| i * stride).sum()
    }

    pub(super) fn at(&self, index: &[usize]) -> T {
        self.memory[self.place(index)]
    }

    pub(super) fn at_mut(&mut self, index: &[usize]) -> &mut T {
        let place = self.place(index);
        &mut self.memory[place]
    }
}
