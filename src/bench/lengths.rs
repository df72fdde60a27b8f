//! Batches of packed sequences: T rows in N sequences, of these lengths.

use super::shape::Shape;

/// A batch that has a name.
pub struct Named {
    /// Its name on a command line: `NAME:H`.
    pub name: &'static str,
    /// Rows of each sequence.
    pub lengths: &'static [u64],
}

/// All of them. No two have the same numbers of rows and sequences, so that a [`Shape`] says which it is.
pub static NAMED: [Named; 2] = [
    Named { name: "fixed8192", lengths: &[8192] },
    Named { name: "mixed6", lengths: &[1300, 547, 2048, 963, 271, 3063] },
];

impl Named {
    /// The batch with this many heads.
    pub fn shape(&self, h: u64) -> Shape {
        Shape { t: self.lengths.iter().sum(), h, n: self.lengths.len() as u64 }
    }

    /// The one of that name.
    pub fn find(name: &str) -> Option<&'static Named> {
        NAMED.iter().find(|named| named.name == name)
    }
}

/// Rows of each sequence of a batch: those of the name that it has, else as equal as may be, longer ones first.
pub fn of(shape: Shape) -> Vec<u64> {
    let Shape { t, h, n } = shape;
    match NAMED.iter().find(|named| named.shape(h) == shape) {
        Some(named) => named.lengths.to_vec(),
        None => (0..n).map(|i| t / n + u64::from(i < t % n)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_says_which_batch_it_is() {
        for named in &NAMED {
            assert_eq!(of(named.shape(8)), named.lengths);
            assert!(std::ptr::eq(Named::find(named.name).unwrap(), named));
        }
        assert_eq!(NAMED[1].shape(8), Shape { t: 8192, h: 8, n: 6 });
        assert_eq!(of(Shape { t: 14, h: 1, n: 4 }), [4, 4, 3, 3]);
        assert_eq!(of(Shape { t: 2, h: 1, n: 3 }), [1, 1, 0]);
        assert!(Named::find("mixed").is_none());
    }
}
